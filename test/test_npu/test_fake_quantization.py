"""Fake quantization and quantization-aware training on npu against the CPU: values, gradients, observers, a network."""

import copy
import itertools
import os
import unittest
import warnings

os.environ["NPU_FALLBACK"] = "0"

import torch.ao.quantization as ao
import torch.utils._pytree as pytree

import torch
import torch.npu

DEVICE = "npu:0"


def moved(value):
    return pytree.tree_map(lambda t: t.to(DEVICE) if isinstance(t, torch.Tensor) else t, value)


def image(*sizes, seed=0):
    return torch.randn(sizes, generator=torch.Generator().manual_seed(seed)) * 4


class FakeQuantizationTest(unittest.TestCase):
    def setUp(self):
        warnings.simplefilter("ignore")  # upstream's, of what it will remove

    def same(self, actual, expected, note="", rtol=0, atol=0):
        for a, e in zip(actual, expected, strict=True):
            self.assertEqual(a.device.type, "npu", note)
            torch.testing.assert_close(a.cpu(), e, rtol=rtol, atol=atol, msg=lambda m: f"{note}: {m}")

    def refused(self, function, *args):
        """npu raises the class that the CPU raises."""
        with self.assertRaises(Exception) as expected:
            function(*args)
        with self.assertRaises(type(expected.exception)):
            function(*moved(args))

    def test_gradients(self):
        x = image(3, 4)
        scales, points = torch.tensor([0.1, 0.2, 0.05]), torch.tensor([0, 3, -2], dtype=torch.int32)
        cases = {
            "tensor": lambda t, d: torch.fake_quantize_per_tensor_affine(t, 0.05, 3, 0, 127),
            "qparams": lambda t, d: torch.fake_quantize_per_tensor_affine(
                t, torch.tensor(0.05).to(d), torch.tensor(3, dtype=torch.int32).to(d), 0, 127
            ),
            "channel": lambda t, d: torch.fake_quantize_per_channel_affine(t, scales.to(d), points.to(d), 0, -20, 20),
        }
        for name, function in cases.items():
            results = []
            for device in ("cpu", DEVICE):
                leaf = x.to(device, copy=True).requires_grad_()
                out = function(leaf, device)
                (out * image(3, 4, seed=1).to(device)).sum().backward()
                results.append([out.detach(), leaf.grad])
            self.same(results[1], results[0], name)

    def test_observed(self):
        def run(device, rows, turns, empty):
            on = [torch.tensor([int(v)]).to(device) for v in turns]
            count = 0 if empty else 4 if rows else 1
            buffers = [torch.full((count,), v).to(device) for v in (float("inf"), -float("inf"))]
            buffers += [torch.ones(max(count, 1)).to(device), torch.zeros(max(count, 1), dtype=torch.int32).to(device)]
            results = []
            for step in range(2):
                x = image(4, 3, 2, seed=step).to(device).requires_grad_()
                out = torch.fused_moving_avg_obs_fake_quant(x, *on, *buffers, 0.01, -100, 100, 0, rows, True)
                out.square().sum().backward()
                results += [out.detach(), x.grad]
            return results + buffers[: 4 if turns[1] else 2]

        for rows, turns in itertools.product((False, True), itertools.product((True, False), repeat=2)):
            for empty in (False, True) if rows else (False,):
                self.same(run(DEVICE, rows, turns, empty), run("cpu", rows, turns, empty), f"{rows} {turns} {empty}")
        buffers = [torch.ones(4), torch.ones(4), torch.ones(1), torch.zeros(1, dtype=torch.int32)]
        switches = [torch.tensor([1]), torch.tensor([1])]
        function = torch.fused_moving_avg_obs_fake_quant
        self.refused(function, image(4, 3), *switches, *buffers, 0.01, -100, 100, 0, True, True)
        self.refused(function, image(4, 3), *switches, *buffers, 0.01, -100, 100, 1, True, True)
        self.refused(function, image(4, 3).double(), *switches, *buffers, 0.01, -100, 100, 0, False, True)

    def test_network(self):
        torch.manual_seed(0)
        layers = [
            ao.QuantStub(),
            torch.nn.Conv2d(3, 8, 3),
            torch.nn.BatchNorm2d(8),
            torch.nn.ReLU(),
            torch.nn.Flatten(),
        ]
        net = torch.nn.Sequential(*layers, torch.nn.Linear(8 * 36, 4), ao.DeQuantStub())
        net.qconfig = ao.get_default_qat_qconfig("fbgemm")
        prepared = ao.prepare_qat(net.train())
        trained, losses = [], []
        for device in ("cpu", DEVICE):
            model = copy.deepcopy(prepared).to(device)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
            for step in range(2):
                loss = model(image(4, 3, 8, 8, seed=step).to(device)).square().mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            losses.append(loss.detach())
            trained.append(model.eval())
        self.same(losses[1:], losses[:1], rtol=1e-3, atol=1e-5)
        x = image(4, 3, 8, 8, seed=5)
        # A value beside a tie may take the other code: one step of the output's scale.
        step = trained[0][5].activation_post_process.scale.item()
        torch.testing.assert_close(trained[1](x.to(DEVICE)).cpu(), trained[0](x), rtol=0, atol=3 * step)
        converted = ao.convert(trained[1].cpu())
        self.assertEqual(converted(x).shape, (4, 4))

    def test_observers(self):
        kinds = ao.MinMaxObserver, ao.PerChannelMinMaxObserver, ao.MovingAverageMinMaxObserver, ao.HistogramObserver
        for kind in kinds:
            results = []
            for device in ("cpu", DEVICE):
                observer = kind().to(device)
                for step in range(3):
                    observer(image(4, 3, 5, seed=step).to(device))
                results.append(observer.calculate_qparams())
            self.same(results[1], results[0], kind.__name__, rtol=1e-6)


if __name__ == "__main__":
    unittest.main()
