"""The first check after installation: ``python test_div.py`` ends in OK."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
from common_device_type import dtypes, instantiate_device_type_tests
from common_utils import TestCase, run_tests
from util_test import create_common_tensor

import torch


class TestDiv(TestCase):
    def compare(self, first, second, op):
        expected = op(first[0], second[0])
        output = op(first[1], second[1])
        self.assertTrue(output.is_npu)
        self.assertEqual(output.dtype, expected.dtype)
        self.assertRtolEqual(expected, output.cpu())

    def test_div_tensor(self, device):
        for dtype, shape in (
            (np.float32, 18),
            (np.float32, [5, 256]),
            (np.float32, [32, 3, 3]),
            (np.float32, [64, 112, 7, 7]),
            (np.float16, 18),
            (np.float16, [5, 256]),
            (np.float16, [2, 3, 4, 5, 6]),
        ):
            with self.subTest(dtype=dtype, shape=shape):
                first = create_common_tensor([dtype, -1, shape], -100, 100)
                second = create_common_tensor([dtype, -1, shape], 1, 100)
                self.compare(first, second, torch.div)

    def test_div_scalar(self, device):
        first = create_common_tensor([np.float32, 0, [4, 16, 3]], -10, 10)
        for scalar in (3, 0.7, -2.5):
            self.assertRtolEqual(first[0] / scalar, (first[1] / scalar).cpu())
            self.assertRtolEqual(scalar / first[0], (scalar / first[1]).cpu())

    def test_div_in_place_and_out(self, device):
        first = create_common_tensor([np.float32, -1, [7, 9]], -10, 10)
        second = create_common_tensor([np.float32, -1, [7, 9]], 1, 10)
        out = torch.empty(7, 9, device=device)
        torch.div(first[1], second[1], out=out)
        self.assertRtolEqual(first[0] / second[0], out.cpu())
        first[1].div_(second[1])
        self.assertRtolEqual(first[0] / second[0], first[1].cpu())

    def test_div_broadcast_and_strides(self, device):
        first = create_common_tensor([np.float32, -1, [6, 5, 4]], -10, 10)
        second = create_common_tensor([np.float32, -1, [5, 1]], 1, 10)
        self.compare(first, second, torch.div)
        self.compare([t.transpose(0, 2) for t in first], second, torch.div)
        self.compare([t[1:, ::2, 1] for t in first], [t[:3, 0] for t in second], torch.div)

    def test_div_by_zero(self, device):
        values = torch.tensor([1.0, -1.0, 0.0])
        self.assertRtolEqual(values / torch.zeros(3), (values.to(device) / torch.zeros(3, device=device)).cpu())

    @dtypes(torch.int32, torch.int64, torch.uint8)
    def test_div_of_integers_is_float(self, device, dtype):
        first = torch.randint(0, 100, (4, 5)).to(dtype)
        second = torch.randint(1, 9, (4, 5)).to(dtype)
        output = first.to(device) / second.to(device)
        self.assertEqual(output.dtype, torch.float32)
        self.assertRtolEqual(first / second, output.cpu())


instantiate_device_type_tests(TestDiv, globals(), except_for="cpu")

if __name__ == "__main__":
    run_tests()
