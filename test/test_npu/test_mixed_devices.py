"""Operands on several devices are refused, whichever of them is elsewhere, and where there is nothing to compute."""

import unittest

import torch.nn.functional as F
from common_utils import TestCase, run_tests

import torch

REASON = "Expected all tensors to be on the same device|Input type .* and weight type .* should be the same"


def zeros(*shape, **options):
    return torch.zeros(shape, **options)


def pivots(*shape):
    return torch.ones(shape, dtype=torch.int32)


def indices(*shape):
    return torch.zeros(shape, dtype=torch.int64)


# Operators by how they come to their kernel, each with operands of a batch of n.
CASES = {
    "generated": (torch.mm, lambda n: (zeros(n, 3), zeros(3, 4))),
    "generated, three": (torch.addmm, lambda n: (zeros(n, 4), zeros(n, 3), zeros(3, 4))),
    "generated, an index": (lambda x, i: x.gather(1, i), lambda n: (zeros(n, 3), indices(n, 2))),
    "generated, in place": (
        lambda x, i, s: x.scatter_add_(1, i, s),
        lambda n: (zeros(n, 3), indices(n, 2), zeros(n, 2)),
    ),
    "iterator": (torch.logaddexp, lambda n: (zeros(n, 3), zeros(n, 1))),
    "fast": (torch.add, lambda n: (zeros(n, 3), zeros(n, 3))),
    "composite": (F.linear, lambda n: (zeros(n, 3), zeros(4, 3), zeros(4))),
    "by hand": (lambda x, w, b: F.layer_norm(x, (3,), w, b), lambda n: (zeros(n, 3), zeros(3), zeros(3))),
    "by hand, statistics": (
        lambda x, w, m, v: F.batch_norm(x, m, v, w),
        lambda n: (zeros(n, 3, 2), zeros(3), zeros(3), zeros(3)),
    ),
    "by hand, convolution": (F.conv2d, lambda n: (zeros(n, 3, 4, 4), zeros(2, 3, 3, 3), zeros(2))),
    "by hand, a list": (lambda *t: torch.cat(t), lambda n: (zeros(n, 3), zeros(n, 3))),
    "by hand, an index": (torch.index_select, lambda n: (zeros(n, 3), 1, indices(2))),
    "by hand, a mask": (torch.masked_select, lambda n: (zeros(n, 3), zeros(n, 3, dtype=torch.bool))),
    "by hand, a loss": (F.mse_loss, lambda n: (zeros(n, 3), zeros(n, 3))),
    "boxed": (torch.linalg.lu_solve, lambda n: (zeros(n, 3, 3), pivots(n, 3), zeros(n, 3, 2))),
    "own": (lambda x, y: torch.npu_iou(x, y), lambda n: (zeros(n, 4), zeros(2, 4))),
}

# Of nothing upstream's composites do not ask a kernel, on CUDA neither.
UNASKED = ("by hand, statistics", "by hand, convolution")


class MixedDevicesTest(TestCase):
    def refuses(self, call, operands):
        for i, operand in enumerate(operands):
            if not isinstance(operand, torch.Tensor):
                continue
            given = [t.npu() if isinstance(t, torch.Tensor) and k != i else t for k, t in enumerate(operands)]
            with self.subTest(operand=i), self.assertRaisesRegex(RuntimeError, REASON):
                call(*given)
                torch.npu.synchronize()

    def test_any_operand(self):
        for name, (call, operands) in CASES.items():
            with self.subTest(name):
                call(*[t.npu() if isinstance(t, torch.Tensor) else t for t in operands(2)])
                self.refuses(call, operands(2))

    def test_without_elements(self):
        for name, (call, operands) in CASES.items():
            with self.subTest(name):
                call(*[t.npu() if isinstance(t, torch.Tensor) else t for t in operands(0)])
                if name not in UNASKED:
                    self.refuses(call, operands(0))

    def test_what_is_multiplied_by_nothing(self):
        """The operand that a factor of zero leaves unused."""
        with self.assertRaisesRegex(RuntimeError, REASON):
            torch.addr(zeros(2, 3), zeros(2).npu(), zeros(3).npu(), beta=0)

    def test_out(self):
        """The result's place is elsewhere: it is left as it was."""
        x, w, i = zeros(2, 3).npu(), zeros(3, 4).npu(), indices(2).npu()
        calls = {
            "generated": lambda out: torch.mm(x, w, out=out),
            "iterator": lambda out: torch.add(x, x, out=out),
            "by hand": lambda out: torch.index_select(x, 1, i, out=out),
            "by hand, no matrix": lambda out: torch.addmv(zeros(2).npu(), x, zeros(3).npu(), out=out),
            "boxed": lambda out: torch.linalg.cholesky(torch.eye(3).npu(), out=out),
        }
        for name, call in calls.items():
            for out in (zeros(5), torch.tensor(7.0)):
                with self.subTest(name, out=out), self.assertRaisesRegex(RuntimeError, "device"):
                    call(out)
                self.assertIn(tuple(out.shape), ((5,), ()))

    def test_numbers(self):
        """A 0-d tensor on the CPU is as good as a number."""
        x = torch.ones(2, 3, device="npu")
        self.assertEqual((x + torch.tensor(2.0)).cpu(), torch.full((2, 3), 3.0))
        self.assertEqual(torch.where(x > 0, x, torch.tensor(5.0)).cpu(), torch.ones(2, 3))
        self.assertEqual(torch.lerp(x, x, torch.tensor(0.5)).cpu(), torch.ones(2, 3))
        self.assertEqual(x.masked_fill(x > 0, torch.tensor(4.0)).cpu(), torch.full((2, 3), 4.0))

    def test_indices_of_the_host(self):
        """As on CUDA they may be on the CPU, where an indexing expression has them."""
        x = torch.arange(6.0, device="npu").view(2, 3)
        self.assertEqual(x[:, torch.tensor([2, 0])].cpu(), torch.tensor([[2.0, 0.0], [5.0, 3.0]]))
        with self.assertRaisesRegex(RuntimeError, "device"):
            torch.arange(3.0)[torch.tensor([1], device="npu")]

    @unittest.skipIf(torch.npu.device_count() < 2, "needs two devices")
    def test_two_devices_of_a_kind(self):
        for n in (0, 2):
            with self.subTest(n), self.assertRaisesRegex(RuntimeError, "same device.*npu:0 and npu:1"):
                torch.mm(zeros(n, 3).to("npu:0"), zeros(3, 4).to("npu:1"))


if __name__ == "__main__":
    run_tests()
