"""Pooling and resizing on npu against fp64 on the CPU."""

# ruff: noqa: B023 - functions made in a loop are called in the same round

import unittest

import torch.nn.functional as F
from nn_checks import check, randn

import torch


class TestMaxPool(unittest.TestCase):
    def test_2d(self):
        for options in (
            {"kernel_size": 3, "stride": 2, "padding": 1},
            {"kernel_size": 2},
            {"kernel_size": (2, 3)},
            {"kernel_size": 3, "dilation": 2},
            {"kernel_size": 3, "stride": 2, "ceil_mode": True},
        ):
            for shape in ((2, 16, 13, 12), (1, 1, 9, 9), (5, 11, 14)):
                with self.subTest(shape=shape, **options):
                    check(self, lambda x: F.max_pool2d(x, **options), [randn(*shape)])

    def test_indices_are_positions_in_a_plane(self):
        x = randn(2, 64, 10, 10, grad=False)
        values, indices = F.max_pool2d(x.npu(), 3, 2, return_indices=True)
        want_values, want = F.max_pool2d(x, 3, 2, return_indices=True)
        self.assertTrue(torch.equal(values.cpu(), want_values))
        self.assertTrue(torch.equal(indices.cpu(), want))

    def test_after_a_convolution(self):
        check(
            self,
            lambda x, w: F.max_pool2d(F.conv2d(x, w, padding=1), 3, 2, 1),
            [randn(2, 96, 12, 12), randn(32, 96, 3, 3)],
        )

    def test_1d_and_3d(self):
        check(self, lambda x: F.max_pool1d(x, 3, 2, 1), [randn(2, 5, 17)])
        check(self, lambda x: F.max_pool3d(x, 3, 2, 1), [randn(2, 3, 7, 8, 9)])

    def test_a_window_larger_than_the_image_is_refused(self):
        with self.assertRaisesRegex(RuntimeError, "too small"):
            F.max_pool2d(torch.zeros(1, 1, 2, 2, device="npu"), 5)


class TestAvgPool(unittest.TestCase):
    def test_2d(self):
        for options in (
            {"kernel_size": 3, "stride": 2, "padding": 1},
            {"kernel_size": 2},
            {"kernel_size": 3, "padding": 1, "count_include_pad": False},
            {"kernel_size": 3, "stride": 2, "ceil_mode": True},
            {"kernel_size": 2, "divisor_override": 3},
        ):
            with self.subTest(**options):
                check(self, lambda x: F.avg_pool2d(x, **options), [randn(2, 7, 13, 12)])

    def test_1d_and_3d(self):
        check(self, lambda x: F.avg_pool1d(x, 3, 2, 1), [randn(2, 5, 17)])
        check(self, lambda x: F.avg_pool3d(x, 3, 2, 1), [randn(2, 3, 7, 8, 9)])

    def test_adaptive(self):
        for size in (1, 3, (5, 2), (None, 4)):
            with self.subTest(size=size):
                check(self, lambda x: F.adaptive_avg_pool2d(x, size), [randn(3, 9, 11, 8)])
        check(self, lambda x: F.adaptive_avg_pool1d(x, 4), [randn(3, 9, 11)])
        check(self, lambda x: F.adaptive_max_pool2d(x, 3), [randn(3, 9, 11, 8)])


class TestResize(unittest.TestCase):
    def test_nearest(self):
        check(self, lambda x: F.interpolate(x, scale_factor=2), [randn(2, 5, 6, 7)])
        check(self, lambda x: F.interpolate(x, size=(4, 9)), [randn(2, 5, 6, 7)])

    def test_bilinear(self):
        for corners in (True, False):
            check(
                self,
                lambda x: F.interpolate(x, scale_factor=1.5, mode="bilinear", align_corners=corners),
                [randn(2, 5, 6, 8)],
            )
            check(
                self,
                lambda x: F.interpolate(x, size=(3, 11), mode="bilinear", align_corners=corners),
                [randn(2, 5, 6, 8)],
            )


if __name__ == "__main__":
    unittest.main()
