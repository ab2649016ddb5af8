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


matmul_transpose = MatmulApply.apply
