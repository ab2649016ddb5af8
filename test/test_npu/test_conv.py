"""Convolutions of every kind on npu against fp64 on the CPU."""

# ruff: noqa: B023 - functions made in a loop are called in the same round

import unittest

import nn_checks
import torch.nn.functional as F
from nn_checks import check, randn

import torch


class TestConv2d(unittest.TestCase):
    def case(self, x, w, bias=True, tolerance=2e-6, dtype=torch.float32, **options):
        b = randn(w[0]) if bias else None
        check(
            self,
            lambda x, w, b: F.conv2d(x, w, b, **options),
            [randn(*x), randn(*w, seed=3), b],
            tolerance=tolerance,
            dtype=dtype,
        )

    def test_kernels_and_strides(self):
        for kernel, stride, padding in ((1, 1, 0), (1, 2, 0), (3, 1, 1), (3, 2, 1), (7, 2, 3), (5, 3, 0), (2, 1, 1)):
            for channels, outputs in ((3, 8), (70, 33), (128, 64)):
                with self.subTest(kernel=kernel, stride=stride, channels=channels):
                    self.case(
                        (3, channels, 17, 15), (outputs, channels, kernel, kernel), stride=stride, padding=padding
                    )

    def test_rectangles_and_dilation(self):
        self.case((2, 96, 12, 20), (24, 96, 3, 5), stride=(2, 1), padding=(0, 2))
        self.case((2, 96, 16, 16), (24, 96, 3, 3), padding=2, dilation=2)
        self.case((2, 96, 16, 19), (24, 96, 3, 1), padding=(3, 0), dilation=(3, 1), stride=(1, 2))

    def test_groups(self):
        self.case((4, 32, 14, 14), (32, 1, 3, 3), groups=32, padding=1)
        self.case((4, 32, 14, 14), (64, 8, 3, 3), groups=4, padding=1, stride=2)
        self.case((4, 32, 14, 14), (64, 8, 1, 1), groups=4, bias=False)

    def test_one_image_and_one_pixel(self):
        self.case((1, 128, 9, 9), (64, 128, 3, 3), padding=1)
        self.case((5, 128, 1, 1), (64, 128, 1, 1))
        self.case((1, 64, 1, 1), (10, 64, 3, 3), padding=1)

    def test_without_gradient_of_the_input(self):
        x = randn(2, 3, 16, 16, grad=False)
        check(self, lambda x, w: F.conv2d(x, w, padding=1), [x, randn(8, 3, 3, 3)])

    def test_half_precision_accumulates_in_fp32(self):
        for dtype, tolerance in ((torch.float16, 1e-3), (torch.bfloat16, 8e-3)):
            x, w = randn(2, 256, 8, 8), randn(64, 256, 3, 3, seed=4)
            x, w = (t.detach().to(dtype).float().requires_grad_() for t in (x, w))
            check(self, lambda x, w: F.conv2d(x, w, padding=1), [x, w], dtype=dtype, tolerance=tolerance)

    def test_double(self):
        self.case((2, 8, 9, 9), (6, 8, 3, 3), dtype=torch.float64, tolerance=1e-13)

    def test_strided_operands(self):
        x = randn(4, 20, 18, 80).permute(0, 3, 1, 2)
        w = randn(3, 3, 80, 24, seed=5).permute(3, 2, 0, 1)
        check(self, lambda x, w: F.conv2d(x[:, :, 1::2], w), [x.detach().requires_grad_(), w.detach().requires_grad_()])

    def test_empty_batch(self):
        y = F.conv2d(torch.empty(0, 3, 8, 8, device="npu"), torch.randn(4, 3, 3, 3, device="npu"))
        self.assertEqual(tuple(y.shape), (0, 4, 6, 6))

    def test_wrong_channels_are_refused(self):
        with self.assertRaisesRegex(RuntimeError, "channels"):
            F.conv2d(torch.zeros(1, 3, 8, 8, device="npu"), torch.zeros(4, 5, 3, 3, device="npu"))

    def test_module_with_hooks(self):
        conv = torch.nn.Conv2d(1, 2, 64)
        seen = []
        other = torch.nn.Conv2d(1, 2, 64).npu()
        other.load_state_dict(conv.state_dict())
        other.weight.register_hook(seen.append)
        x = randn(4, 1, 64, 64, grad=False)
        conv(x).sum().backward()
        other(x.npu()).sum().backward()
        self.assertLess(nn_checks.relative_error(seen[0], conv.weight.grad), 1e-4)


class TestOtherRanks(unittest.TestCase):
    def test_conv1d(self):
        for options in ({}, {"stride": 2, "padding": 3}, {"dilation": 2}, {"groups": 2}):
            with self.subTest(**options):
                w = randn(6, 8 // options.get("groups", 1), 5, seed=2)
                check(self, lambda x, w, b: F.conv1d(x, w, b, **options), [randn(3, 8, 30), w, randn(6)])

    def test_conv3d(self):
        for options in ({}, {"stride": 2, "padding": 1}, {"dilation": 2}, {"groups": 2}):
            with self.subTest(**options):
                w = randn(6, 4 // options.get("groups", 1), 3, 3, 3, seed=2)
                check(self, lambda x, w, b: F.conv3d(x, w, b, **options), [randn(2, 4, 7, 8, 9), w, randn(6)])

    def test_transposed(self):
        beyond_the_stride = {"stride": 1, "padding": 2, "dilation": 3, "output_padding": 2}
        for options in (
            {},
            {"stride": 2, "padding": 1, "output_padding": 1},
            {"groups": 2, "stride": 3},
            beyond_the_stride,
        ):
            groups = options.get("groups", 1)
            with self.subTest(**options):
                check(
                    self,
                    lambda x, w, b: F.conv_transpose1d(x, w, b, **options),
                    [randn(2, 6, 11), randn(6, 8 // groups, 3, seed=1), randn(8)],
                )
                check(
                    self,
                    lambda x, w, b: F.conv_transpose2d(x, w, b, **options),
                    [randn(2, 6, 9, 7), randn(6, 8 // groups, 3, 3, seed=1), randn(8)],
                )
                check(
                    self,
                    lambda x, w, b: F.conv_transpose3d(x, w, b, **options),
                    [randn(2, 6, 4, 5, 3), randn(6, 8 // groups, 3, 3, 3, seed=1), randn(8)],
                )


class TestRefusals(unittest.TestCase):
    def test_dilation(self):
        x, w = torch.ones(1, 1, 4, 4, device="npu"), torch.ones(1, 1, 3, 3, device="npu")
        for dilation in (0, -1):
            with self.assertRaisesRegex(RuntimeError, "dilation should be greater than zero"):
                F.conv2d(x, w, dilation=dilation)
        torch.npu.synchronize()


if __name__ == "__main__":
    unittest.main()
