"""What the tests of large models' operators share: operands, and a formula in fp64 on the CPU as the reference."""

from common_utils import TestCase

import torch

HALF = ((torch.float32, 1e-5), (torch.float16, 4e-3), (torch.bfloat16, 3e-2))


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def on_npu(tensors, dtype):
    """Copies on npu that take gradients, and what the CPU computes with: the same numbers in fp64."""
    there = [t.to(dtype).npu().requires_grad_() for t in tensors]
    return there, [t.detach().cpu().double().requires_grad_() for t in there]


class OpCase(TestCase):
    def close(self, actual, expected, tolerance):
        self.assertEqual(actual.shape, expected.shape)
        scale = max(1.0, expected.abs().max().item()) if expected.numel() else 1.0
        self.assertEqual(actual.detach().cpu().double() / scale, expected.detach() / scale, prec=tolerance)

    def check(self, op, formula, tensors, dtypes=HALF, grads=None):
        """Compare value and gradients; `grads(grad, inputs, outputs)` are those of the operator for the gradient."""
        for dtype, tolerance in dtypes:
            with self.subTest(dtype=dtype):
                inputs, reference = on_npu(tensors, dtype)
                result = op(*inputs)
                outputs = result if isinstance(result, tuple) else (result,)
                y, expected = outputs[0], formula(*reference)
                self.assertEqual(y.dtype, dtype)
                self.close(y, expected, tolerance)
                grad = draw(*y.shape, seed=9).to(dtype)
                found = torch.autograd.grad(y, inputs, grad.npu())
                wanted = torch.autograd.grad(expected, reference, grad.double())
                for a, b in zip(found, wanted, strict=True):
                    self.assertEqual(a.dtype, dtype)
                    self.close(a, b, 2 * tolerance)
                if grads is not None:
                    with torch.no_grad():
                        explicit = grads(grad.npu(), inputs, outputs)
                    for a, b in zip(explicit, wanted, strict=False):
                        self.close(a, b, 2 * tolerance)
