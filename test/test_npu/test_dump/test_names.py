"""Operators are recorded under the same names and numbers on CPU and npu, whatever a device makes of them."""

import sys
import types
import unittest
from pathlib import Path
from unittest import mock

import h5py

sys.path.insert(0, str(Path(__file__).resolve().parent))

from dump_case import HAS_DUMPER, ConvNet, DumpCase, attributes, calls, data, seeded, train

import torch

if HAS_DUMPER:
    from torch.utils.dumper import _calls
    from torch.utils.dumper._reader import Reader
    from torch.utils.dumper._session import Invocation
    from torch.utils.dumper._sinks import DumpSink
    from torch.utils.dumper._writer import Writer

nn = torch.nn


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.proj = nn.Linear(8, 24)

    def forward(self, x):
        q, k, v = (t.view(2, 4, 2, 4).transpose(1, 2) for t in self.proj(x).chunk(3, -1))
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return y.transpose(1, 2).reshape(2, 4, 8) + x


class Wrapped(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.forward = function


NETS = {
    "convolutions": (ConvNet, (2, 3, 8, 8)),
    "transformer": (lambda: nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True), (2, 4, 8)),
    "transformer with dropout": (lambda: nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1), (4, 2, 8)),
    "transformer for inference": (lambda: nn.TransformerEncoderLayer(8, 2, 16).eval(), (4, 2, 8)),
    "attention": (Attention, (2, 4, 8)),
    "lstm": (lambda: nn.LSTM(4, 5, num_layers=2), (3, 2, 4)),
    "lstm, both directions, batch first": (lambda: nn.LSTM(4, 5, bidirectional=True, batch_first=True), (2, 3, 4)),
    "gru": (lambda: nn.GRU(4, 5), (3, 2, 4)),
    "rnn": (lambda: nn.RNN(4, 5), (3, 2, 4)),
    "lstm cell": (lambda: nn.LSTMCell(4, 5), (2, 4)),
    "dropout": (lambda: nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Dropout(0.5, inplace=True)), (2, 4)),
}


class TestNames(DumpCase):
    def test_same_on_both_devices(self):
        for name, (make, shape) in NETS.items():
            with self.subTest(name):
                torch.manual_seed(1)
                x = torch.randn(shape)
                found = {}
                for device in ("cpu", "npu"):
                    model, here = seeded(make, device), x.to(device)
                    _, path = self.dump(lambda m=model, h=here: train(m, h), f"{name}_{device}.h5")
                    found[device] = calls(path)
                self.assertEqual(found["cpu"], found["npu"])

    def test_packed_sequence(self):
        found = {}
        for device in ("cpu", "npu"):
            model = seeded(lambda: nn.LSTM(4, 5), device)
            packed = nn.utils.rnn.pack_padded_sequence(torch.ones(3, 2, 4).to(device), [3, 2])
            _, path = self.dump(lambda m=model, p=packed: m(p)[0].data.sum().backward(), f"{device}.h5")
            found[device] = calls(path)
            self.assertEqual(attributes(path, "/lstm/1")["Overload"], "aten::lstm.data")
        self.assertEqual(found["cpu"], found["npu"])

    def test_copies_between_devices_do_not_shift_the_numbers(self):
        _, path = self.dump(lambda: torch.ones(2).npu().to(torch.float16).cpu().to(torch.float64))
        self.assertIn("/_to_copy_across_devices/2", calls(path))
        self.assertEqual(attributes(path, "/_to_copy/2")["Index"], len(calls(path)))

    def test_names_of_cudnn(self):
        """A GPU's operators under the common names (their schemas exist in every build)."""
        describe, aten = _calls.describe, torch.ops.aten
        common = describe(aten.native_batch_norm_backward.default)
        found = describe(aten.cudnn_batch_norm_backward.default)
        self.assertEqual((found.name, found.returns), (common.name, common.returns))
        self.assertIn(found.arguments[:2], (("input", "grad_out"), ("grad_out", "input")))
        self.assertTrue({"save_mean", "save_invstd", "eps"} <= set(found.arguments) & set(common.arguments))
        self.assertEqual(
            describe(aten.cudnn_batch_norm.default).returns, describe(aten.native_batch_norm.default).returns
        )

    def test_files_of_cudnn(self):
        """A call of an operator that only GPUs have is made again by the common one, on any device."""
        x, w, grid = torch.randn(2, 3, 4, 4), torch.ones(3), torch.rand(2, 4, 4, 2) * 2 - 1
        mean, var, aten = torch.zeros(3), torch.ones(3), torch.ops.aten
        norm = aten.native_batch_norm(x, w, w, None, None, True, 0.1, 1e-5)
        cases = (
            (aten.cudnn_batch_norm, (x, w, w, mean, var, True, 0.1, 1e-5), norm[0]),
            (
                aten.cudnn_batch_norm_backward,
                (x, x, w, None, None, norm[1], norm[2], 1e-5, torch.empty(0, dtype=torch.uint8)),
                aten.native_batch_norm_backward(x, x, w, None, None, norm[1], norm[2], True, 1e-5, [True] * 3)[0],
            ),
            (aten.cudnn_grid_sampler, (x, grid), aten.grid_sampler_2d(x, grid, 0, 0, True)),
            (
                aten.cudnn_grid_sampler_backward,
                (x, grid, x),
                aten.grid_sampler_2d_backward(x, x, grid, 0, 0, True, [True] * 2)[0],
            ),
        )
        path = str(self.folder / "gpu.h5")
        writer = Writer(path, append=False, summary_only=False, progress=False, attributes={})
        for i, (func, args, wanted) in enumerate(cases):
            op = _calls.describe(func.default)
            call = Invocation(op, op.name, 1, i + 1, func.default, args, {}, lambda a, k, w=wanted: w)
            DumpSink(writer).run(call)
        writer.close()
        for device in ("cpu", "npu"):
            for func, _, wanted in cases:
                found = torch.utils.dumper.replay(path, f"/{_calls.describe(func.default).name}/1", device)
                torch.testing.assert_close(next(iter(found.values())).cpu(), wanted, rtol=1e-3, atol=1e-4)

    def test_gradients_of_regions(self):
        """What is recorded as a region's backward is what autograd gives."""
        for device in ("cpu", "npu"):
            for name in ("lstm", "attention", "gru"):
                with self.subTest(name, device=device):
                    make, shape = NETS[name]
                    model, x = seeded(make, device), torch.randn(shape, device=device, requires_grad=True)
                    _, path = self.dump(lambda m=model, v=x: train(m, v), f"{name}_{device}.h5")
                    if name == "attention":
                        call = "/scaled_dot_product_attention_backward/1"
                        with h5py.File(path, "r") as file:
                            self.assertEqual(set(file[call]["output"]), {"grad_query", "grad_key", "grad_value"})
                    else:
                        call = f"/{name}_backward/1"
                        self.assertEqual(attributes(path, call)["Phase"], "backward")
                        for i, p in enumerate(model.parameters()):
                            recorded = torch.from_numpy(data(path, f"{call}/output/grad_params_{i}"))
                            self.assertTrue(torch.equal(recorded, p.grad.cpu()), i)
                        self.assertTrue(
                            torch.equal(torch.from_numpy(data(path, f"{call}/output/grad_input")), x.grad.cpu())
                        )
                    for output, value in torch.utils.dumper.replay(path, call).items():
                        wanted = torch.from_numpy(data(path, f"{call}/output/{output}"))
                        torch.testing.assert_close(value, wanted)

    def test_graph_is_unchanged(self):
        def shape_of(node, depth=0):
            return [(node.name(), depth)] + [
                item for n, _ in node.next_functions if n is not None for item in shape_of(n, depth + 1)
            ]

        def attention():
            def run(q):
                return nn.functional.scaled_dot_product_attention(q, q * 2, q * 3)

            return run

        linear = lambda: nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.ReLU(inplace=True))  # noqa: E731
        nets = {**NETS, "attention": (lambda: Wrapped(attention()), (2, 2, 4, 4)), "linear": (linear, (2, 4))}
        for name in ("attention", "lstm", "convolutions", "linear"):
            make, shape = nets[name]
            model, x = seeded(make), torch.randn(shape, requires_grad=True)
            run = lambda m=model, v=x: (y[0] if isinstance(y := m(v), tuple) else y).sum()  # noqa: E731
            plain = shape_of(run().grad_fn)
            found = []
            self.dump(lambda r=run, f=found: f.append(r()))
            self.assertEqual(shape_of(found[0].grad_fn), plain)

    def test_function_imported_by_name(self):
        module = types.ModuleType("imported")
        exec("from torch.nn.functional import scaled_dot_product_attention as attend", module.__dict__)
        old, q = module.attend, torch.ones(1, 1, 2, 4)
        with mock.patch.dict(sys.modules, imported=module):
            _, path = self.dump(lambda: module.attend(q, q, q))
        self.assertEqual(calls(path), ["/scaled_dot_product_attention/1"])
        self.assertIs(module.attend, old)

    def test_transforms_of_torch_func(self):
        """Their tensors have no values: what they are made of is recorded."""
        function = nn.functional
        for device in ("cpu", "npu"):
            q = torch.ones(2, 1, 3, 4, device=device)

            def work(q=q):
                torch.func.vmap(lambda v: function.scaled_dot_product_attention(v, v, v))(q)
                torch.func.grad(lambda v: function.dropout(v, 0.5).sum())(q)
                torch.func.jvp(lambda v: v.sin(), (q,), (q,))
                torch.func.hessian(lambda v: (v**3).sum())(q[0, 0, 0])

            _, path = self.dump(work, f"{device}.h5")
            self.assertIn("/sin/1", calls(path))
            self.assertNotIn("/scaled_dot_product_attention/1", calls(path))

    def test_graph_of_an_earlier_block(self):
        model, x = seeded(NETS["lstm"][0]), torch.randn(3, 2, 4)
        losses = []
        self.dump(lambda: losses.append(model(x)[0].sum()), "a.h5")
        _, path = self.dump(lambda: losses[0].backward(), "b.h5")
        self.assertTrue(any("rnn" in call for call in calls(path)), calls(path))

    def test_autocast(self):
        """A region's inputs are those before autocast; it is made again under it."""
        for device in ("cpu", "npu"):
            for name in ("lstm", "attention"):
                with self.subTest(name, device=device):
                    make, shape = NETS[name]
                    model, x = seeded(make, device), torch.randn(shape).to(device).requires_grad_()

                    def work(model=model, x=x, device=device):
                        with torch.autocast(device, torch.bfloat16):
                            y = model(x)
                        (y[0] if isinstance(y, tuple) else y).float().sum().backward()

                    _, path = self.dump(work, f"{name}_{device}.h5")
                    name = name if name == "lstm" else "scaled_dot_product_attention"
                    for call in (f"/{name}/1", f"/{name}_backward/1"):
                        self.assertEqual(attributes(path, call)["Autocast"], "bfloat16")
                        found = torch.utils.dumper.replay(path, call, device)
                        with Reader(path) as reader:
                            for key, value in found.items():
                                wanted = reader.call(call).value(key, "output")
                                torch.testing.assert_close(value.cpu(), wanted, rtol=2e-2, atol=1e-2)

    def test_gradients_that_were_asked_for(self):
        model, x = seeded(NETS["lstm"][0]), torch.randn(3, 2, 4, requires_grad=True)
        _, path = self.dump(lambda: torch.autograd.grad(model(x)[0].sum(), [x]))
        self.assertEqual(set(torch.utils.dumper.replay(path, "/lstm_backward/1")), {"grad_input"})

    def test_backward_twice(self):
        model, x = seeded(NETS["lstm"][0]), torch.randn(3, 2, 4)

        def work():
            loss = model(x)[0].sum()
            loss.backward(retain_graph=True)
            loss.backward()

        _, path = self.dump(work)
        self.assertEqual([c for c in calls(path) if "lstm" in c], ["/lstm/1", "/lstm_backward/1", "/lstm_backward/2"])

    def test_recomputed_forward(self):
        model, x = seeded(Attention), torch.randn(2, 4, 8, requires_grad=True)
        work = lambda: torch.utils.checkpoint.checkpoint(model, x, use_reentrant=False).sum().backward()  # noqa: E731
        _, path = self.dump(work)
        self.assertIn("/scaled_dot_product_attention/2", calls(path))
        self.assertIn("/scaled_dot_product_attention_backward/1", calls(path))


if __name__ == "__main__":
    unittest.main()
