"""HiFloat8 tensors: every code, rounding, what operators make of them; the published format is the oracle."""

import copy
import pickle

import torch_npu
from common_utils import TestCase, run_tests
from torch_npu import _hifloat8

import torch

HiFloat8Tensor = torch_npu.HiFloat8Tensor
ALL = torch.arange(256, dtype=torch.uint8)


def numbers(*values):
    return HiFloat8Tensor.to_hifloat8(torch.tensor(values).npu())


class TestFormat(TestCase):
    def test_published_codes(self):
        """By hand from the table of fields: sign, prefix, exponent, fraction."""
        for code, value in (
            (0b0_0000_000, 0.0),
            (0b0_0000_001, 2.0**-22),
            (0b0_0000_111, 2.0**-16),
            (0b0_0001_000, 1.0),
            (0b0_0001_101, 1.625),
            (0b0_001_0_000, 2.0),
            (0b0_001_1_100, 0.75),
            (0b0_01_00_001, 4.5),
            (0b0_01_01_000, 8.0),
            (0b0_01_11_000, 0.125),
            (0b0_10_000_00, 16.0),
            (0b0_10_111_11, 1.75 * 2.0**-7),
            (0b0_11_0000_1, 1.5 * 2.0**8),
            (0b0_11_0111_0, 2.0**15),
            (0b0_11_1111_0, 2.0**-15),
            (0b0_11_0111_1, float("inf")),
            (0b1_11_0111_1, -float("inf")),
            (0b1_01_00_001, -4.5),
            (0b1_0000_000, float("nan")),
        ):
            found = _hifloat8.decode(torch.tensor([code], dtype=torch.uint8), torch.float32)
            torch.testing.assert_close(found, torch.tensor([value]), rtol=0, atol=0, equal_nan=True, msg=bin(code))

    def test_each_number_is_a_code_of_its_own(self):
        values = _hifloat8.decode(ALL, torch.float32)
        self.assertEqual(len(set(values[~values.isnan()].tolist())), 255)
        self.assertTrue(torch.equal(_hifloat8.encode(values), ALL))
        on_npu = _hifloat8.decode(ALL.npu(), torch.float32)
        self.assertEqual(on_npu.device.type, "npu")
        self.assertTrue(torch.equal(on_npu.cpu().nan_to_num(7), values.nan_to_num(7)))

    def test_rounding(self):
        """To the nearest, ties away from zero; beyond half of the way to infinity it is infinite."""
        sizes = sorted(v for v in _hifloat8.decode(ALL, torch.float64).tolist() if 0 <= v < float("inf"))
        torch.manual_seed(0)
        x = torch.cat([torch.randn(4000) * 10.0**e for e in (-7, -4, -1, 0, 2, 4)])
        x = torch.cat([x, torch.tensor([(a + b) / 2 for a, b in zip(sizes, sizes[1:], strict=False)])])
        found = numbers(*x.tolist()).cpu().double()
        steps = torch.tensor([*sizes, 1.5 * 2**15], dtype=torch.float64)
        away = (x.double().abs()[:, None] - steps).abs()
        # Of two that are as near the larger one is right.
        place = steps.numel() - 1 - away.flip(1).argmin(1)
        wanted = torch.where(place == steps.numel() - 1, float("inf"), steps[place]) * x.sign()
        self.assertTrue(torch.equal(found, wanted))
        self.assertEqual(
            numbers(40959.0, 40960.0, -1e30, -0.0, 2.0**-24).cpu().tolist(), [32768, float("inf"), -float("inf"), 0, 0]
        )


class TestTensor(TestCase):
    def setUp(self):
        super().setUp()
        torch.manual_seed(0)
        self.x = HiFloat8Tensor.to_hifloat8(torch.randn(4, 6).npu())
        self.plain = self.x.float()

    def test_moves_keep_the_codes(self):
        for moved, plain in (
            (self.x.view(3, 8), self.plain.view(3, 8)),
            (self.x.reshape([24]), self.plain.reshape(24)),
            (self.x.transpose(0, 1), self.plain.transpose(0, 1)),
            (self.x.t().contiguous(), self.plain.t().contiguous()),
            (self.x[1:3, ::2], self.plain[1:3, ::2]),
            (self.x.clone(), self.plain.clone()),
            (self.x.detach(), self.plain),
        ):
            self.assertIsInstance(moved, HiFloat8Tensor)
            self.assertEqual((moved.shape, moved.stride()), (plain.shape, plain.stride()))
            self.assertTrue(torch.equal(moved.float(), plain))
        self.assertEqual(self.x._data.dtype, torch.uint8)

    def test_operators_compute_in_the_nominal_dtype(self):
        for dtype in (torch.float32, torch.float16, torch.bfloat16):
            x, plain = self.x.to_dtype(dtype), self.plain.to(dtype)
            self.assertEqual((x.dtype, x.device.type), (dtype, "npu"))
            for function in (lambda t: t @ t.t(), lambda t: t.sum(1), lambda t: torch.relu(t) + 1):
                found = function(x)
                self.assertNotIsInstance(found, HiFloat8Tensor)
                self.assertEqual(found.dtype, dtype)
                self.assertTrue(torch.equal(found, function(plain)))

    def test_writes_round(self):
        wanted = HiFloat8Tensor.to_hifloat8(self.plain * 1.1).float()
        self.assertIs(self.x.mul_(1.1), self.x)
        self.assertTrue(torch.equal(self.x.float(), wanted))
        self.x.copy_(torch.full((4, 6), 2.1).npu())
        self.assertEqual(self.x.float().unique().tolist(), [2.0])
        torch.add(self.x.float(), 1, out=self.x)
        self.assertEqual(self.x.float().unique().tolist(), [3.0])

    def test_gradients_pass(self):
        weight = torch.randn(6, 6).npu().requires_grad_()
        rounded = HiFloat8Tensor.to_hifloat8(weight)
        (self.plain @ rounded.from_hifloat8()).square().sum().backward()
        twin = rounded.detach().float().requires_grad_()
        (self.plain @ twin).square().sum().backward()
        self.assertTrue(torch.equal(weight.grad, twin.grad))

    def test_copies_and_files(self):
        for other in (pickle.loads(pickle.dumps(self.x)), copy.deepcopy(self.x)):
            self.assertIsInstance(other, HiFloat8Tensor)
            self.assertTrue(torch.equal(other.float(), self.plain))
        self.assertIn("HiFloat8Tensor(data=", repr(self.x))

    def test_errors(self):
        with self.assertRaisesRegex(ValueError, "uint8"):
            HiFloat8Tensor(data=torch.ones(2))
        with self.assertRaisesRegex(ValueError, "floating-point"):
            HiFloat8Tensor(data=torch.ones(2, dtype=torch.uint8), dtype=torch.int32)
        self.assertEqual(HiFloat8Tensor.to_hifloat8(torch.ones(2, dtype=torch.float64)).dtype, torch.float32)


if __name__ == "__main__":
    run_tests()
