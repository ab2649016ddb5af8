"""What Dynamo traces of torch.cuda it traces of torch.npu: streams, events, their contexts, and the functions of its
tables; random states that a compiled function keeps and sets."""

import unittest

import torch._dynamo
import torch._dynamo.testing
from torch._dynamo import trace_rules
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import torch
import torch.npu

DEVICE = "npu:0"


class StreamCase(unittest.TestCase):
    def setUp(self):
        torch._dynamo.reset()
        torch.manual_seed(0)

    def whole(self, function, *inputs, backends=("eager", "aot_eager")):
        """The compiled function gives what it gives uncompiled, without a graph break, twice."""
        expected = function(*inputs)
        for backend in backends:
            torch._dynamo.reset()
            compiled = torch.compile(function, backend=backend, fullgraph=True)
            for _ in range(2):
                result = compiled(*inputs)
                torch.npu.synchronize()
                torch.testing.assert_close(result, expected)
        return result


class TestStreams(StreamCase):
    def test_a_stream_made_inside(self):
        def function(x):
            side = torch.npu.Stream()
            side.wait_stream(torch.npu.current_stream())
            with torch.npu.stream(side):
                y = x * 2
            torch.npu.current_stream().wait_stream(side)
            return y + 1

        self.whole(function, torch.ones(4, device=DEVICE))

    def test_arguments(self):
        for arguments, options in (((0,), {}), ((), {"device": DEVICE}), ((), {"priority": -1}), ((DEVICE, -1), {})):

            def function(x, arguments=arguments, options=options):
                side = torch.npu.Stream(*arguments, **options)
                with torch.npu.stream(side):
                    y = x * 2
                side.synchronize()
                return y

            with self.subTest(arguments=arguments, options=options):
                self.whole(function, torch.ones(4, device=DEVICE))

    def test_a_stream_is_a_context(self):
        def function(x):
            side = torch.npu.Stream()
            side.wait_stream(torch.npu.current_stream())
            with side:
                y = x * 2
            torch.npu.current_stream().wait_stream(side)
            return y

        self.whole(function, torch.ones(4, device=DEVICE))

    def test_no_stream(self):
        def function(x):
            with torch.npu.stream(None):
                x = x + 1
            with torch.npu.stream(stream=None):
                return x * 2

        self.whole(function, torch.ones(4, device=DEVICE))

    def test_a_context_made_outside(self):
        side = torch.npu.Stream()
        context = torch.npu.stream(side)

        def function(x):
            side.wait_stream(torch.npu.current_stream())
            with context:
                y = x * 2
            torch.npu.current_stream().wait_stream(side)
            return y

        self.whole(function, torch.ones(4, device=DEVICE))

    def test_results(self):
        """What is made inside comes out as torch.npu's classes, with the arguments, another one in each run."""

        def function(x):
            return x + 1, torch.npu.Stream(priority=-1), torch.npu.Event(enable_timing=True), torch.npu.current_stream()

        compiled = torch.compile(function, backend="aot_eager", fullgraph=True)
        runs = [compiled(torch.ones(2, device=DEVICE)) for _ in range(2)]
        for _, stream, event, current in runs:
            self.assertIs(type(stream), torch.npu.Stream)
            self.assertEqual(stream.priority, -1)
            self.assertIs(type(event), torch.npu.Event)
            self.assertEqual(current, torch.npu.current_stream())
            event.record()
            event.synchronize()
            self.assertEqual(event.elapsed_time(event), 0.0)
        self.assertIsNot(runs[0][2], runs[1][2])

    def test_attributes_are_guarded(self):
        def function(x, stream):
            return x + (1 if stream.npu_stream == 0 else 2) + (10 if stream == torch.npu.default_stream() else 20)

        x, side = torch.zeros(2, device=DEVICE), torch.npu.Stream()
        compiled = torch.compile(function, backend="eager")
        for stream in (torch.npu.current_stream(), side, torch.npu.current_stream()):
            self.assertEqual(compiled(x, stream).tolist(), function(x, stream).tolist())


class TestEvents(StreamCase):
    def test_an_event_made_inside(self):
        for options in ({}, {"enable_timing": True}, {"blocking": True}):

            def function(x, options=options):
                event = torch.npu.Event(**options)
                side = torch.npu.Stream()
                event.record()
                event.wait(side)
                with torch.npu.stream(side):
                    y = x * 3
                    done = side.record_event()
                done.wait()
                return y - 1

            with self.subTest(**options):
                self.whole(function, torch.ones(4, device=DEVICE))

    def test_positional_arguments(self):
        def function(x):
            event = torch.npu.Event(True)
            y = x + 1
            event.record(torch.npu.current_stream())
            event.synchronize()
            return y

        self.whole(function, torch.ones(4, device=DEVICE))

    def test_gradients_through_streams(self):
        side = torch.npu.Stream()

        def function(x):
            with torch.npu.stream(side):
                y = x.sin()
            return (y * x).sum()

        gradients = []
        for call in (function, torch.compile(function, backend="aot_eager", fullgraph=True)):
            x = torch.arange(4.0, device=DEVICE).requires_grad_()
            call(x).backward()
            gradients.append(x.grad)
        torch.testing.assert_close(*gradients)


class TestFunctions(StreamCase):
    def test_what_has_a_rule_for_cuda_has_one_for_npu(self):
        rules = trace_rules.get_torch_obj_rule_map()
        checked = 0
        for table in trace_rules.torch_name_rule_map:
            for name in table:
                found = torch.npu
                for part in name.removeprefix("torch.cuda.").split("."):
                    found = getattr(found, part, None)
                module = getattr(found, "__module__", None) or ""
                # torch.cuda.profiler starts tools of NVIDIA's; torch.npu's of that name is another thing.
                if name.startswith("torch.cuda.profiler."):
                    continue
                if name.startswith("torch.cuda.") and callable(found) and module.startswith("torch.npu"):
                    checked += 1
                    self.assertIn(found, rules, name)
        self.assertGreater(checked, 40)

    def test_queries(self):
        def function(x):
            with torch.npu.device(0):
                known = (
                    torch.npu.is_available(),
                    torch.npu.is_initialized(),
                    torch.npu.device_count(),
                    torch.npu.current_device(),
                    torch.npu.get_device_name(),
                    torch.npu.is_bf16_supported(),
                    torch.npu.get_device_properties(x.device).total_memory,
                )
            torch.npu.synchronize()
            return x + 0, known

        x = torch.ones(2, device=DEVICE)
        result, known = torch.compile(function, backend="eager", fullgraph=True)(x)
        self.assertEqual(known, function(x)[1])
        self.assertEqual(result.tolist(), [1.0, 1.0])

    def test_autocast(self):
        def function(x):
            with torch.npu.amp.autocast(dtype=torch.bfloat16):
                y = x @ x
            with torch.autocast("npu", dtype=torch.float16):
                z = x @ x
            return y, z

        self.whole(function, torch.ones(4, 4, device=DEVICE))


class TestRandomStates(StreamCase):
    def test_compiling_draws_nothing(self):
        torch.manual_seed(3)
        before = torch.npu.get_rng_state()
        compiled = torch.compile(lambda x: F.dropout(x, 0.5) + torch.rand(3, device=DEVICE), backend="aot_eager")
        x = torch.ones(3, device=DEVICE)
        first = compiled(x)
        torch.npu.set_rng_state(before)
        torch.testing.assert_close(compiled(x), first)
        torch.npu.set_rng_state(before)
        torch.testing.assert_close(F.dropout(x, 0.5) + torch.rand(3, device=DEVICE), first)

    def test_functionalised(self):
        def function(x):
            return x * torch.rand_like(x) + torch.rand(4, device=DEVICE)

        x = torch.ones(4, device=DEVICE)
        torch.manual_seed(5)
        expected = [function(x) for _ in range(3)]
        with torch._functorch.config.patch(functionalize_rng_ops=True):
            compiled = torch.compile(function, backend="aot_eager")
            torch.manual_seed(5)
            for wanted in expected:
                torch.testing.assert_close(compiled(x), wanted)
        torch.testing.assert_close(function(x), self.after(function, x, 3))

    def after(self, function, x, count):
        state = torch.npu.get_rng_state()
        torch.manual_seed(5)
        for _ in range(count + 1):
            result = function(x)
        torch.npu.set_rng_state(state)
        return result

    def test_checkpoints(self):
        def part(x):
            return F.dropout(x.sin() * torch.rand_like(x), 0.5)

        def function(x):
            return checkpoint(part, x, use_reentrant=False).square().sum()

        for functionalize in (False, True):
            with self.subTest(functionalize=functionalize):
                torch._dynamo.reset()
                with torch._functorch.config.patch(functionalize_rng_ops=functionalize):
                    compiled = torch.compile(function, backend="aot_eager_decomp_partition")
                    x = torch.arange(1.0, 65.0, device=DEVICE).requires_grad_()
                    torch.manual_seed(5)
                    loss = compiled(x)
                    loss.backward()
                    # d/dx of (k sin x)^2 is 2 k^2 sin x cos x: k is known from the result, so the masks must agree.
                    kept = (x.grad != 0).sum().item()
                    self.assertTrue(0 < kept < 64)
                    torch.testing.assert_close((x.grad * x.sin() / (2 * x.cos())).sum(), loss)


if __name__ == "__main__":
    unittest.main()
