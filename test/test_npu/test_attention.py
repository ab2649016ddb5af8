"""Scaled dot product attention on npu: against the composite on the CPU, and without a matrix of scores in memory."""

import os
import unittest

os.environ["NPU_FALLBACK"] = "0"

from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

import torch
import torch.npu

DEVICE = "npu:0"


def attend(inputs, device, dtype=None, **kwargs):
    """The result and the gradients of query, key and value for a loss that weighs every element differently."""
    leaves = [t.to(device=device, dtype=dtype or t.dtype).requires_grad_() for t in inputs]
    kwargs = {k: v.to(device) if isinstance(v, torch.Tensor) else v for k, v in kwargs.items()}
    result = scaled_dot_product_attention(*leaves, **kwargs)
    weights = torch.linspace(-1, 1, result.numel(), dtype=torch.float64).reshape(result.shape).to(device)
    grads = torch.autograd.grad((result * weights.to(result.dtype)).sum(), leaves)
    return result.detach(), *grads


class AttentionTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)

    def check(self, inputs, dtype=torch.float64, tolerance=1e-6, **kwargs):
        with sdpa_kernel(SDPBackend.MATH):
            expected = attend(inputs, "cpu", torch.float64, **kwargs)
        actual = attend(inputs, DEVICE, dtype, **kwargs)
        for a, e in zip(actual, expected, strict=True):
            self.assertEqual(a.device.type, "npu")
            self.assertEqual(a.dtype, dtype)
            torch.testing.assert_close(a.cpu().double(), e, rtol=tolerance, atol=tolerance)

    def inputs(self, length=33, other=17, heads=3, width=8):
        q = torch.randn(2, heads, length, width, dtype=torch.float64)
        k, v = torch.randn(2, 2, heads, other, width, dtype=torch.float64)
        return q, k, v

    def test_values_and_gradients(self):
        qkv = self.inputs()
        self.check(qkv)
        self.check(qkv, scale=0.3)
        self.check([t[..., :17, :] for t in qkv], is_causal=True)
        self.check(qkv, torch.float32, 1e-4)
        self.check(qkv, torch.bfloat16, 3e-2)
        self.check(qkv, torch.float16, 5e-3)

    def test_masks(self):
        qkv = self.inputs()
        keep = torch.rand(33, 17) > 0.3
        keep[:, 0] = True
        self.check(qkv, attn_mask=keep)
        self.check(qkv, attn_mask=torch.randn(33, 17, dtype=torch.float64))
        self.check(qkv, attn_mask=torch.randn(2, 1, 33, 17, dtype=torch.float64))
        self.check(qkv, attn_mask=torch.randn(1, 3, 1, 17, dtype=torch.float64))

    def test_what_the_blocks_do_not_serve(self):
        q, k, v = self.inputs()
        self.check([q[0], k[0], v[0]])  # three dimensions
        self.check([q, k, torch.randn(2, 3, 17, 5, dtype=torch.float64)])  # another width of the values
        self.check([torch.randn(2, 6, 9, 8, dtype=torch.float64), k, v], enable_gqa=True)
        self.check(qkv := self.inputs(1, 1), is_causal=False)
        dropped = scaled_dot_product_attention(*(t.to(DEVICE) for t in qkv), dropout_p=0.5)
        self.assertEqual(dropped.shape, qkv[0].shape)
        mask = torch.zeros(33, 17, dtype=torch.float64, device=DEVICE, requires_grad=True)
        scaled_dot_product_attention(*(t.to(DEVICE) for t in (q, k, v)), attn_mask=mask).sum().backward()
        self.assertEqual(mask.grad.shape, mask.shape)

    def test_views_of_a_projection(self):
        # (batch, position, head * width) split into heads is no contiguous tensor.
        x = torch.randn(2, 17, 3, 8, dtype=torch.float64)
        self.check([x.transpose(1, 2), x.flip(1).transpose(1, 2), x.flip(2).transpose(1, 2)])
        q = x.to(DEVICE).transpose(1, 2)
        # The result's memory is in the order of the positions: joining the heads is a view.
        self.assertTrue(scaled_dot_product_attention(q, q, q).transpose(1, 2).is_contiguous())

    def test_choice(self):
        q, k, v = (t.to(DEVICE) for t in self.inputs())
        choose = torch._fused_sdp_choice
        self.assertEqual(choose(q, k, v), SDPBackend.OVERRIDEABLE.value)
        with sdpa_kernel(SDPBackend.MATH):
            self.assertEqual(choose(q, k, v), SDPBackend.MATH.value)
        self.assertEqual(choose(q, k, v, dropout_p=0.1), SDPBackend.MATH.value)

    def test_no_matrix_of_scores(self):
        heads, length = 2, 4096
        for causal in (False, True):
            qkv = [torch.randn(1, heads, length, 32, device=DEVICE, requires_grad=True) for _ in range(3)]
            torch.npu.synchronize()
            torch.npu.reset_peak_memory_stats()
            before = torch.npu.memory_allocated()
            scaled_dot_product_attention(*qkv, is_causal=causal).sum().backward()
            torch.npu.synchronize()
            growth = torch.npu.max_memory_allocated() - before
            self.assertLess(growth, 0.25 * length * length * heads * 4)


if __name__ == "__main__":
    unittest.main()
