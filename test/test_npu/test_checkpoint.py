"""torch.utils.checkpoint with npu tensors: whose random state is kept, and what surrounds the recomputation."""

import warnings

from common_utils import TestCase, run_tests
from torch.utils.checkpoint import _infer_device_type, checkpoint

import torch


class TestInference(TestCase):
    def test_any_order(self):
        npu, meta, cpu = torch.ones(1, device="npu"), torch.ones(1, device="meta"), torch.ones(1)
        for arguments in ((npu, meta), (meta, npu), (cpu, meta, npu), (npu, cpu), (meta, {"a": [npu]}), (npu,)):
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                self.assertEqual(_infer_device_type(*arguments), "npu")
        self.assertEqual(_infer_device_type(cpu), "npu")  # the accelerator's, in case the function moves to it
        self.assertEqual(_infer_device_type(meta), "npu")


class TestCheckpoint(TestCase):
    def test_dropout_mask_is_the_same_again(self):
        for reentrant in (True, False):
            with self.subTest(reentrant=reentrant):
                x = torch.ones(64, 64, device="npu", requires_grad=True)
                y = checkpoint(lambda v: torch.nn.functional.dropout(v, 0.5) * v, x, use_reentrant=reentrant)
                outer = torch.npu.get_rng_state()
                y.sum().backward()
                # y = m * x * x with x = 1, so its gradient is 2 m = 2 y.
                self.assertEqual(x.grad.cpu(), 2 * y.detach().cpu())
                self.assertEqual(torch.npu.get_rng_state(), outer)

    def test_meta_beside_npu(self):
        meta = torch.ones(2, device="meta")
        for order in (lambda f: (meta, f), lambda f: (f, meta)):
            x = torch.ones(8, 8, device="npu", requires_grad=True)

            def run(a, b):
                value = a if a.device.type == "npu" else b
                return torch.nn.functional.dropout(value, 0.5) * value

            y = checkpoint(run, *order(x), use_reentrant=False)
            y.sum().backward()
            self.assertEqual(x.grad.cpu(), 2 * y.detach().cpu())

    def test_on_another_device(self):
        x = torch.ones(16, device="npu:1", requires_grad=True)
        y = checkpoint(lambda v: torch.nn.functional.dropout(v, 0.5) * v, x, use_reentrant=False)
        y.sum().backward()
        self.assertEqual(x.grad.cpu(), 2 * y.detach().cpu())
        self.assertEqual(torch.npu.current_device(), 0)

    def test_recomputation_sees_the_default_device(self):
        for reentrant in (True, False):
            with self.subTest(reentrant=reentrant):
                devices = []

                def run(v, devices=devices):
                    made = torch.ones(3)
                    devices.append(made.device.type)
                    return v * made.to(v.device)

                x = torch.ones(3, device="npu", requires_grad=True)
                with torch.device("npu"):
                    y = checkpoint(run, x, use_reentrant=reentrant)
                y.sum().backward()
                self.assertEqual(devices, ["npu", "npu"])
                self.assertEqual(torch.ones(1).device.type, "cpu")

    def test_recomputation_sees_autocast(self):
        for reentrant in (True, False):
            seen = []

            def run(v, seen=seen):
                seen.append((v @ v).dtype)
                return (v @ v).float()

            x = torch.ones(4, 4, device="npu", requires_grad=True)
            with torch.autocast("npu", dtype=torch.bfloat16):
                y = checkpoint(run, x, use_reentrant=reentrant)
            y.sum().backward()
            self.assertEqual(seen, [torch.bfloat16, torch.bfloat16])

    def test_sequential_model(self):
        torch.manual_seed(1)
        model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2)).npu()
        x = torch.randn(3, 4, device="npu", requires_grad=True)
        model(x).sum().backward()
        expected = [p.grad.clone() for p in model.parameters()]
        model.zero_grad()
        torch.utils.checkpoint.checkpoint_sequential(model, 2, x, use_reentrant=False).sum().backward()
        for parameter, grad in zip(model.parameters(), expected, strict=True):
            self.assertEqual(parameter.grad, grad)


if __name__ == "__main__":
    run_tests()
