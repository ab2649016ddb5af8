"""Meta, FakeTensor and torch.compile on npu: graphs are traced whole, give the CPU's results, and keep the device."""

import copy
import unittest

import several_devices  # noqa: F401
import torch._dynamo
import torch._dynamo.testing
from torch.nn import functional as F

import torch
import torch.npu
from torch import nn

DEVICE = "npu:0"


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.linear = nn.Linear(8 * 4 * 4, 10)

    def forward(self, x):
        x = F.adaptive_avg_pool2d(torch.relu(self.norm(self.conv(x))), 4)
        return self.linear(x.flatten(1))


class CompileTestCase(unittest.TestCase):
    def setUp(self):
        torch._dynamo.reset()
        torch.manual_seed(0)

    def whole(self, function, *inputs, backend="aot_eager"):
        """Compile without graph breaks and run on npu and on the CPU; results must agree. Returns the npu's."""
        compiled = torch.compile(function, backend=backend, fullgraph=True)
        on_npu = [x.detach().to(DEVICE).requires_grad_(x.requires_grad) for x in inputs]
        inputs = [x.detach().clone().requires_grad_(x.requires_grad) for x in inputs]
        actual, expected = compiled(*on_npu), function(*inputs)
        self.assertEqual(actual.device, torch.device(DEVICE))
        torch.testing.assert_close(actual.cpu(), expected, rtol=1e-4, atol=1e-5)
        if actual.requires_grad:
            actual.sum().backward()
            expected.sum().backward()
            for x, y in zip(on_npu, inputs, strict=True):
                if y.requires_grad:
                    torch.testing.assert_close(x.grad.cpu(), y.grad, rtol=1e-4, atol=1e-5)
        return actual


class TrainingTest(CompileTestCase):
    def train(self, backend, dynamic=None):
        reference = Net()
        model = copy.deepcopy(reference).to(DEVICE)
        compiled = torch.compile(model, backend=backend, dynamic=dynamic)
        sides = [
            (net, torch.optim.SGD(module.parameters(), 0.1), device)
            for net, module, device in ((reference, reference, "cpu"), (compiled, model, DEVICE))
        ]
        for batch in (4, 4, 5):
            x, target = torch.randn(batch, 3, 8, 8), torch.randint(0, 10, (batch,))
            for net, optimizer, device in sides:
                optimizer.zero_grad()
                F.cross_entropy(net(x.to(device)), target.to(device)).backward()
                optimizer.step()
        for expected, actual in zip(reference.parameters(), model.parameters(), strict=True):
            torch.testing.assert_close(actual.cpu(), expected, rtol=1e-3, atol=1e-4)

    def test_eager(self):
        self.train("eager")

    def test_npu(self):
        self.train("npu")

    def test_npu_with_dynamic_shapes(self):
        self.train("npu", dynamic=True)

    def test_default(self):
        self.train("inductor")

    def test_aot_eager(self):
        self.train("aot_eager")

    def test_aot_eager_with_dynamic_shapes(self):
        self.train("aot_eager", dynamic=True)

    def test_decomposed(self):
        self.train("aot_eager_decomp_partition")

    def test_one_graph_for_all_sizes(self):
        counter = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
        compiled = torch.compile(lambda x: (x * 2).sum(1), backend=counter)
        first = torch.ones(4, 3, device=DEVICE)
        torch._dynamo.mark_dynamic(first, 0)
        for n in (4, 5, 9):
            self.assertEqual(compiled(first if n == 4 else torch.ones(n, 3, device=DEVICE)).tolist(), [6.0] * n)
        self.assertEqual(counter.frame_count, 1)

    def test_compiled_optimizer(self):
        models = [nn.Linear(4, 4)]
        models.append(copy.deepcopy(models[0]).to(DEVICE))
        for model, device in zip(models, ("cpu", DEVICE), strict=True):
            optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
            step = torch.compile(optimizer.step, backend="aot_eager")
            for _ in range(2):
                optimizer.zero_grad()
                model(torch.ones(2, 4, device=device)).square().sum().backward()
                step()
        torch.testing.assert_close(models[1].weight.cpu(), models[0].weight, rtol=1e-4, atol=1e-5)

    def test_compiled_autograd(self):
        model = nn.Linear(4, 4).to(DEVICE)
        with torch._dynamo.config.patch(compiled_autograd=True):
            torch.compile(model, backend="aot_eager")(torch.ones(2, 4, device=DEVICE)).sum().backward()
        self.assertEqual(model.bias.grad.tolist(), [2.0] * 4)


class WholeGraphTest(CompileTestCase):
    def test_factories_indices_and_masks(self):
        def function(x):
            index = torch.tensor([0, 2], device=x.device)
            y = torch.zeros(3, device=x.device) + x.sum(0)
            picked = x[index].sum() + torch.where(x > 0, x, 0.0).mean() + torch.arange(3, device=x.device).sum()
            return (y * 2).sum() + picked + x.new_ones(2).sum()

        self.whole(function, torch.randn(4, 3, requires_grad=True))

    def test_views_and_in_place(self):
        def function(x):
            y = x.clone()
            y.t()[1:].mul_(2)
            y.view(-1)[::3] += 1
            return y.transpose(0, 1).reshape(2, -1)

        self.whole(function, torch.randn(4, 3, requires_grad=True))

    def test_attention(self):
        q = torch.randn(2, 2, 8, 4, requires_grad=True)
        for causal in (False, True):
            self.whole(lambda x, c=causal: F.scaled_dot_product_attention(x, x, x, is_causal=c), q)
        # The traced strides are those of the kernel's result, so views are planned right.
        self.whole(lambda x: F.scaled_dot_product_attention(x, x, x).transpose(1, 2).reshape(2, 8, 8), q)
        self.whole(lambda x: F.scaled_dot_product_attention(x, x, x).reshape(4, 8, 4) * 2, q)

    def test_attention_of_changing_sizes(self):
        model = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        batches = [torch.randn(n, 5, 8) for n in (4, 3, 6)]
        expected = [model(x) for x in batches]
        model.to(DEVICE)
        compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
        results = [compiled(x.to(DEVICE)) for x in batches]  # the second size makes it a symbol
        results[-1].sum().backward()
        program = torch.export.export(
            model.eval(), (batches[0].to(DEVICE),), dynamic_shapes=({0: torch.export.Dim("batch")},)
        )
        results += [program.module()(x.to(DEVICE)) for x in batches]
        for result, right in zip(results, expected * 2, strict=True):
            torch.testing.assert_close(result.cpu(), right, rtol=1e-4, atol=1e-5)

    def test_flex_attention(self):
        from torch.nn.attention.flex_attention import flex_attention

        q = torch.randn(1, 2, 16, 8)
        expected = F.scaled_dot_product_attention(q, q, q)
        torch.testing.assert_close(flex_attention(*[q.to(DEVICE)] * 3).cpu(), expected, rtol=1e-4, atol=1e-5)

    def test_lstm(self):
        model = nn.LSTM(4, 5, batch_first=True)
        x = torch.randn(2, 3, 4)
        expected = model(x)[0]
        model.to(DEVICE)
        compiled = torch.compile(model, backend="aot_eager")
        torch.testing.assert_close(compiled(x.to(DEVICE))[0].cpu(), expected, rtol=1e-4, atol=1e-5)

    def test_gru_cell(self):
        cell = nn.GRUCell(4, 5)
        x = torch.randn(3, 4)
        expected = cell(x)
        (gradient,) = torch.autograd.grad(expected.sum(), cell.weight_hh)
        cell.to(DEVICE)
        result = torch.compile(cell, backend="aot_eager", fullgraph=True)(x.to(DEVICE))
        torch.testing.assert_close(result.cpu(), expected, rtol=1e-4, atol=1e-5)
        result.sum().backward()
        torch.testing.assert_close(cell.weight_hh.grad.cpu(), gradient, rtol=1e-4, atol=1e-5)
        exported = torch.export.export(cell, (x.to(DEVICE),)).module()
        torch.testing.assert_close(exported(x.to(DEVICE)).cpu(), expected, rtol=1e-4, atol=1e-5)

    def test_checkpoint(self):
        from torch.utils.checkpoint import checkpoint

        def function(x):
            return checkpoint(lambda y: torch.sin(y) * y, x, use_reentrant=False)

        self.whole(function, torch.randn(2, 4, requires_grad=True))

    def test_autocast(self):
        weight = torch.randn(8, 8, device=DEVICE)

        def function(x):
            with torch.autocast("npu", dtype=torch.float16):
                return F.linear(x, weight)

        y = torch.compile(function, backend="aot_eager", fullgraph=True)(torch.randn(2, 8, device=DEVICE))
        self.assertEqual(y.dtype, torch.float16)

    def test_random(self):
        function = torch.compile(lambda x: F.dropout(x, 0.5), backend="aot_eager", fullgraph=True)
        x, results = torch.ones(1000, device=DEVICE), []
        for _ in range(2):
            torch.npu.manual_seed(3)
            results.append(function(x).cpu())
        torch.testing.assert_close(*results)
        self.assertTrue(300 < (results[0] == 0).sum() < 700)
        self.assertFalse(torch.equal(function(x).cpu(), results[0]))


class DeviceApiTest(CompileTestCase):
    """torch.npu inside compiled functions."""

    def both(self, function, *inputs):
        compiled = torch.compile(function, backend="aot_eager", fullgraph=True)
        return compiled(*inputs), function(*inputs)

    def test_queries(self):
        def function(x):
            known = (torch.npu.is_available(), torch.npu.device_count(), torch.npu.get_device_name(), x.is_npu)
            return x + torch.npu.current_device(), known

        actual, expected = self.both(function, torch.ones(2, device=DEVICE))
        self.assertEqual(actual[1], expected[1])
        self.assertEqual(actual[0].tolist(), [1.0, 1.0])

    def test_current_device_is_guarded(self):
        compiled = torch.compile(lambda x: x + torch.npu.current_device(), backend="eager", fullgraph=True)
        x = torch.zeros(1, device=DEVICE)
        self.assertEqual(compiled(x).item(), 0)
        with torch.npu.device(1):
            self.assertEqual(compiled(x).item(), 1)

    def test_device_context(self):
        def function(x):
            with torch.npu.device(1):
                y = torch.ones(2, device="npu")
            return x + 1, y

        with torch.npu.device(0):
            actual = torch.compile(function, backend="eager", fullgraph=True)(torch.ones(2, device=DEVICE))
            self.assertEqual(torch.npu.current_device(), 0)
        self.assertEqual([str(t.device) for t in actual], ["npu:0", "npu:1"])

    def test_moves(self):
        x = torch.ones(2, device=DEVICE)
        actual, expected = self.both(lambda x: (x.cpu() + 1, x.to("cpu").npu(), x.half(), x.to("npu:1")), x)
        self.assertEqual([(t.device, t.dtype) for t in actual], [(t.device, t.dtype) for t in expected])

    def test_streams_and_events(self):
        side = torch.npu.Stream()

        def function(x):
            side.wait_stream(torch.npu.current_stream())
            with torch.npu.stream(side):
                y = x + 1
            torch.npu.current_stream().wait_stream(side)
            event = torch.npu.Event()
            event.record()
            event.synchronize()
            return y * 2

        self.assertEqual(torch.compile(function, backend="eager")(torch.ones(2, device=DEVICE)).tolist(), [4.0, 4.0])

    def test_synchronize(self):
        def function(x):
            y = x + 1
            torch.npu.synchronize()
            return y, torch.npu.current_stream()

        actual, expected = self.both(function, torch.ones(2, device=DEVICE))
        self.assertEqual(actual[0].tolist(), [2.0, 2.0])
        self.assertEqual(actual[1], expected[1])


class NpuBackendTest(CompileTestCase):
    """backend="npu", also where Inductor was to be taken."""

    def test_listed(self):
        self.assertIn("npu", torch._dynamo.list_backends())

    def test_instead_of_inductor(self):
        x = torch.randn(4, 4, device=DEVICE)
        for compiled in (
            torch.compile(lambda x: (x @ x).relu().sum()),
            torch.compile(lambda x: (x @ x).relu().sum(), mode="max-autotune"),
            torch.compile(lambda x: (x @ x).relu().sum(), dynamic=True),
        ):
            self.assertEqual(compiled(x), (x @ x).relu().sum())
        self.assertEqual(torch.compile(lambda: torch.ones(2, device=DEVICE).sum())().item(), 2.0)

    def test_says_so_once(self):
        from torch.npu import _compile

        _compile._tell.cache_clear()
        with self.assertLogs(_compile.__name__, "WARNING") as logs:
            for n in range(3):
                torch.compile(lambda x, n=n: x + n)(torch.ones(2, device=DEVICE))
        self.assertEqual(len(logs.output), 1)
        self.assertIn('back end "npu"', logs.output[0])

    def test_numbers_of_eager(self):
        x = torch.randn(4, 3, 8, 8, device=DEVICE)
        models = [Net().to(DEVICE)]
        models.append(copy.deepcopy(models[0]))
        outputs = [f(x) for f in (models[0], torch.compile(models[1], backend="npu"))]
        for output in outputs:
            output.square().mean().backward()
        self.assertTrue(torch.equal(*outputs))
        for a, b in zip(*(m.parameters() for m in models), strict=True):
            self.assertTrue(torch.equal(a.grad, b.grad))

    def test_kinds_of_arguments(self):
        def function(x, scale, *rest):
            y = torch.cat([x, x * scale], 1)[:, 1:3:1].masked_fill(x[:, :2] > 0, float("inf"))
            z = torch.nan_to_num(y, posinf=-1.0).to(torch.float64)
            first, second = z.split([1, 1], 1)
            return {"sum": first + second, "rest": [r + 1 for r in rest], "shape": z.shape, "complex": z * 2j}

        given = torch.randn(3, 4), 0.5, torch.ones(2), torch.arange(3)
        self.both(function, *given)

    def both(self, function, *given):
        expected = function(*given)
        moved = [g.to(DEVICE) if isinstance(g, torch.Tensor) else g for g in given]
        actual = torch.compile(function, backend="npu", fullgraph=True)(*moved)
        torch.testing.assert_close(torch.utils._pytree.tree_map_only(torch.Tensor, torch.Tensor.cpu, actual), expected)

    def test_inputs_that_are_written(self):
        def function(x, y):
            x.add_(1)
            y[0] = x.sum()
            return x.view(-1), x * y

        given = [torch.ones(2, 2), torch.zeros(2)]
        moved = [g.to(DEVICE) for g in given]
        expected = function(*given)
        actual = torch.compile(function, backend="npu", fullgraph=True)(*moved)
        for a, e in zip((*actual, *moved), (*expected, *given), strict=True):
            self.assertTrue(torch.equal(a.cpu(), e))
        actual[0].zero_()
        self.assertEqual(moved[0].sum().item(), 0.0)  # still a view of it

    def test_draws(self):
        """Equal calls that draw are not one."""
        compiled = torch.compile(lambda x: (torch.rand_like(x), torch.rand_like(x)), backend="npu", fullgraph=True)
        first, second = compiled(torch.ones(64, device=DEVICE))
        self.assertFalse(torch.equal(first, second))

    def test_memory_is_freed_on_the_way(self):
        def function(x):
            for _ in range(8):
                x = x + 1
            return x.sum()

        compiled = torch.compile(function, backend="npu", fullgraph=True)
        x = torch.ones(1 << 20, device=DEVICE)
        compiled(x)
        torch.npu.synchronize()
        torch.npu.reset_peak_memory_stats()
        before = torch.npu.memory_allocated()
        compiled(x)
        self.assertLess(torch.npu.max_memory_allocated() - before, 3 * x.nbytes)

    def test_branches(self):
        function = lambda x: torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))  # noqa: E731
        self.both(function, torch.ones(3))
        self.both(function, -torch.ones(3))

    def test_errors_are_the_operators(self):
        compiled = torch.compile(lambda x, i: x[i], backend="npu")
        with self.assertRaisesRegex(Exception, "out of|index"):
            compiled(torch.ones(3, device=DEVICE), torch.tensor([7], device=DEVICE)).cpu()
        torch.npu.synchronize()
        self.assertEqual(compiled(torch.ones(3, device=DEVICE), torch.tensor([1], device=DEVICE)).item(), 1.0)

    def test_optimizer_and_autocast(self):
        models = [nn.Linear(4, 4).to(DEVICE)]
        models.append(copy.deepcopy(models[0]))
        x = torch.randn(2, 4, device=DEVICE)

        def loss_of(model):
            with torch.autocast("npu", torch.bfloat16):
                return model(x).float().square().sum()

        for model, wrap in zip(models, (lambda f: f, lambda f: torch.compile(f, backend="npu")), strict=True):
            optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
            loss, step = wrap(loss_of), wrap(optimizer.step)
            for _ in range(2):
                optimizer.zero_grad()
                loss(model).backward()
                step()
        torch.testing.assert_close(models[1].weight, models[0].weight, rtol=1e-4, atol=1e-5)


class FakeTest(unittest.TestCase):
    def test_fake_tensors(self):
        from torch._subclasses import FakeTensorMode

        with FakeTensorMode():
            x = torch.empty(4, 3, device="npu", requires_grad=True)
            (x @ x.t()).softmax(-1).sum().backward()
            self.assertEqual((x.grad.shape, x.grad.device.type), (x.shape, "npu"))
            image, weight = torch.randn(2, 3, 8, 8, device=DEVICE), torch.randn(4, 3, 3, 3, device=DEVICE)
            self.assertEqual(F.conv2d(image, weight).shape, (2, 4, 6, 6))
            with self.assertRaises(RuntimeError):
                torch.ones(3, device=DEVICE) + torch.ones(3)
        mode = FakeTensorMode()
        fake = mode.from_tensor(torch.ones(3, device=DEVICE))
        with mode:
            self.assertEqual((fake + 1).device, torch.device(DEVICE))

    def test_meta(self):
        x = torch.ones(3, 4, device=DEVICE)
        meta = x.to("meta")
        self.assertEqual((meta @ meta.t()).shape, (3, 3))
        with torch.device("meta"):
            model = Net()
        model.to_empty(device=DEVICE)
        self.assertTrue(all(p.device == torch.device(DEVICE) for p in model.parameters()))

    def test_export(self):
        model, x = Net().to(DEVICE).eval(), torch.randn(2, 3, 8, 8, device=DEVICE)
        program = torch.export.export(model, (x,))
        torch.testing.assert_close(program.module()(x).cpu(), model(x).cpu())

    def test_make_fx(self):
        from torch.fx.experimental.proxy_tensor import make_fx

        x = torch.randn(3, device=DEVICE)
        graph = make_fx(lambda x: F.gelu(x).sum(), tracing_mode="symbolic")(x)
        torch.testing.assert_close(graph(x).cpu(), F.gelu(x.cpu()).sum())


if __name__ == "__main__":
    unittest.main()
