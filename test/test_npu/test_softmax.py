"""Softmax, log-softmax and attention on npu against fp64 on the CPU."""

# ruff: noqa: B023 - functions made in a loop are called in the same round

import unittest

import torch.nn.functional as F
from nn_checks import check, randn, relative_error

import torch


class TestSoftmax(unittest.TestCase):
    def test_every_axis(self):
        for shape in ((7,), (3, 10), (2, 3, 4, 5)):
            for dim in range(-1, len(shape) - 1):
                with self.subTest(shape=shape, dim=dim):
                    check(self, lambda x: F.softmax(x, dim), [randn(*shape)])
                    check(self, lambda x: F.log_softmax(x, dim), [randn(*shape)])

    def test_large_values(self):
        check(self, lambda x: F.log_softmax(x, 1), [randn(3, 10) * 1000])

    def test_half_to_float(self):
        x = randn(3, 10, grad=False).half()
        got = F.softmax(x.npu(), 1, dtype=torch.float32)
        self.assertEqual(got.dtype, torch.float32)
        self.assertLess(relative_error(got, F.softmax(x.double(), 1)), 1e-6)

    def test_softmin_and_gumbel_run(self):
        check(self, lambda x: F.softmin(x, 1), [randn(3, 10)])
        y = F.gumbel_softmax(torch.zeros(5, 8, device="npu"), hard=True)
        self.assertEqual(y.sum(1).tolist(), [1.0] * 5)


class TestAttention(unittest.TestCase):
    def inputs(self, seed):
        # Transposed, as models make them from [batch, length, heads, width].
        return randn(2, 6, 3, 8, seed=seed).transpose(1, 2).detach().requires_grad_()

    def test_masks(self):
        q, k, v = (self.inputs(seed) for seed in (1, 2, 3))
        allowed = torch.rand(6, 6, generator=torch.Generator().manual_seed(1)) > 0.3
        allowed |= torch.eye(6, dtype=torch.bool)
        for options in ({}, {"is_causal": True}, {"scale": 0.3}):
            with self.subTest(**options):
                check(
                    self, lambda q, k, v: F.scaled_dot_product_attention(q, k, v, **options), [q, k, v], tolerance=5e-6
                )
        for mask in (allowed, randn(6, 6, grad=False)):
            with self.subTest(mask=mask.dtype):
                check(
                    self,
                    lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, attn_mask=m),
                    [q, k, v, mask],
                    tolerance=5e-6,
                )

    def test_module(self):
        torch.manual_seed(0)
        layer = torch.nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True)
        x = randn(2, 5, 16, grad=False)
        want = layer.double()(x.double())
        got = layer.float().npu()(x.npu())
        self.assertLess(relative_error(got, want), 1e-5)


if __name__ == "__main__":
    unittest.main()
