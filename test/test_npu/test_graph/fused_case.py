"""What the tests of fused operators share: tensors with the values that matter, and comparison bit by bit."""

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch

FLOATS = (torch.float32, torch.bfloat16, torch.float16)
SPECIAL = (0.0, -0.0, 1.0, -1.0, float("inf"), float("-inf"), float("nan"), 1e-40, -1e-40, 65504.0, 3e38, -7e4, 1e-7)


def values(*shape, dtype=torch.float32, seed=0):
    """Normal numbers on npu, every hundredth or so a special one."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(shape, generator=generator)
    special = torch.tensor(SPECIAL)[torch.randint(len(SPECIAL), shape, generator=generator)]
    return torch.where(torch.rand(shape, generator=generator) < 0.01, special, x).to(dtype).npu()


class FusedCase(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        torch.ones(1, device="npu").add_(1)  # what the first operator of a process sets up is watched

    def assert_same(self, actual, expected, message=""):
        """Equal bit by bit; any NaN equals any other."""
        self.assertEqual((actual.dtype, actual.shape), (expected.dtype, expected.shape), message)
        self.assertEqual(actual.stride(), expected.stride(), message)
        a, b = actual.detach().cpu().contiguous(), expected.detach().cpu().contiguous()
        if a.is_complex():  # there is no equal() for complex halves
            a, b = torch.view_as_real(a.resolve_conj()), torch.view_as_real(b.resolve_conj())
        if a.is_floating_point():
            nan = a.isnan()
            self.assertTrue(torch.equal(nan, b.isnan()), f"NaN elsewhere: {message}")
            a, b = (
                t.masked_fill(nan, 0).view({2: torch.int16, 4: torch.int32, 8: torch.int64}[t.itemsize]) for t in (a, b)
            )
        if not torch.equal(a, b):
            first = int((a != b).flatten().nonzero()[0])
            self.fail(
                f"{message}: element {first} is {actual.flatten()[first].item()!r}, "
                f"not {expected.flatten()[first].item()!r}"
            )
