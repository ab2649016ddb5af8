"""torch.npu.npugraph_ex: graphs that are compiled to captures, replacements of one's own, scopes."""

from common_utils import TestCase, run_tests

import torch
from torch.npu.npugraph_ex import _compiler, compile_fx, register_replacement, scope

DEVICE = "npu:0"


def model(x, y):
    return torch.sigmoid(x @ y) * 2 + 1


class TestCompile(TestCase):
    def setUp(self):
        super().setUp()
        torch.manual_seed(0)
        self.x, self.y = torch.randn(8, 8, device=DEVICE), torch.randn(8, 8, device=DEVICE)

    def test_a_traced_function(self):
        seen = []
        compiled = compile_fx(
            torch.fx.symbolic_trace(model), [self.x, self.y], {"post_grad_custom_post_pass": lambda g: seen.append(g)}
        )
        for seed in range(4):  # as it is, captured, replayed
            self.x.copy_(torch.randn(8, 8, generator=torch.Generator().manual_seed(seed)))
            self.assertTrue(torch.equal(compiled(self.x, self.y), model(self.x, self.y)))
        self.assertEqual([type(graph) for graph in seen], [torch.fx.Graph])

    def test_inputs_of_the_graph_itself(self):
        traced = torch.fx.experimental.proxy_tensor.make_fx(model)(self.x, self.y)
        self.assertTrue(torch.equal(compile_fx(traced)(self.x, self.y), model(self.x, self.y)))
        with self.assertRaisesRegex(ValueError, "nothing tells what x is like"):
            compile_fx(torch.fx.symbolic_trace(model))

    def test_back_end_of_torch_compile(self):
        """Training, too; force_eager captures nothing."""
        for options in ({}, {"force_eager": True}):
            torch._dynamo.reset()
            torch.manual_seed(1)
            layer = torch.nn.Linear(8, 4).to(DEVICE)
            run = torch.compile(layer, backend="npugraph_ex", options=options)
            for _ in range(3):
                grads = []
                for function in (layer, run):
                    layer.zero_grad()
                    function(self.x).square().mean().backward()
                    grads.append(layer.weight.grad.clone())
                self.assertEqual(grads[0], grads[1])

    def test_options(self):
        with self.assertRaisesRegex(ValueError, "no option 'fast'"):
            compile_fx(torch.fx.symbolic_trace(model), [self.x, self.y], {"fast": True})


class TestReplacements(TestCase):
    def setUp(self):
        super().setUp()
        self.forget()
        self.addCleanup(self.forget)

    @staticmethod
    def forget():
        _compiler._replacements.clear()
        _compiler._replacements.seen_patterns.clear()

    def test_replaced(self):
        def search(x):
            return torch.sigmoid(x) * x

        def replace(x):
            return torch.nn.functional.silu(x)

        def run(x):
            return torch.sigmoid(x) * x + 1

        example = torch.randn(4, device=DEVICE)
        wanted_by, operators = [], {}
        register_replacement(
            search, replace, [example], extra_check=lambda match: not wanted_by.append(match) and example.dim() == 1
        )
        for fused in (True, False):
            options = {"pattern_fusion_pass": fused}
            options["post_grad_custom_post_pass"] = lambda graph, fused=fused: operators.update(
                {fused: {str(node.target) for node in graph.nodes if node.op == "call_function"}}
            )
            compiled = compile_fx(torch.fx.symbolic_trace(run), [example], options)
            x = torch.randn(4, device=DEVICE)
            self.assertEqual(compiled(x), run(x))
        self.assertIn("aten.silu.default", operators[True])
        self.assertNotIn("aten.sigmoid.default", operators[True])
        self.assertIn("aten.sigmoid.default", operators[False])
        self.assertEqual(len(wanted_by), 1)


class TestScopes(TestCase):
    def test_deterministic(self):
        for before in (False, True):
            torch.use_deterministic_algorithms(before)
            try:
                with scope.deterministic(1 - before):
                    self.assertEqual(torch.are_deterministic_algorithms_enabled(), not before)
                with self.assertRaisesRegex(KeyError, "of the body"), scope.deterministic(1):
                    raise KeyError("of the body")
                self.assertEqual(torch.are_deterministic_algorithms_enabled(), before)
            finally:
                torch.use_deterministic_algorithms(False)

    def test_limit_core_num(self):
        stream = torch.npu.Stream()
        whole = torch.npu.get_stream_limit(stream)
        with self.assertWarnsRegex(UserWarning, "threads of the host"), scope.limit_core_num(4, 8, stream):
            with scope.limit_core_num(1, -1, stream):
                self.assertEqual(torch.npu.get_stream_limit(stream)["cube_core_num"], 1)
            self.assertEqual(torch.npu.get_stream_limit(stream), {"cube_core_num": 4, "vector_core_num": 8})
        self.assertEqual(torch.npu.get_stream_limit(stream), whole)


if __name__ == "__main__":
    run_tests()
