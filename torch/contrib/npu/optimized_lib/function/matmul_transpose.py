"""A product with the transpose of its second factor."""

import torch


class MatmulApply(torch.autograd.Function):
    """``tensor1 @ tensor2.transpose(-2, -1)``, whose gradients are two products as well."""

    @staticmethod
    def forward(ctx, tensor1, tensor2):
        ctx.save_for_backward(tensor1, tensor2)
        return torch.matmul(tensor1, tensor2.transpose(-2, -1))

    @staticmethod
    def backward(ctx, grad):
        tensor1, tensor2 = ctx.saved_tensors
        left = torch.matmul(grad, tensor2).sum_to_size(tensor1.shape)
        return left, torch.matmul(grad.transpose(-2, -1), tensor1).sum_to_size(tensor2.shape)


_SMALL = 1 << 14  # elements: below, the host's part of a Python function weighs more than what the device saves


def matmul_transpose(*args, **kwargs):
    """Return ``tensor1 @ tensor2.transpose(-2, -1)``."""
    tensor1, tensor2 = args or (kwargs["tensor1"], kwargs["tensor2"])
    if tensor1.numel() < _SMALL and tensor2.numel() < _SMALL:
        return torch.matmul(tensor1, tensor2.transpose(-2, -1))
    return MatmulApply.apply(tensor1, tensor2)
