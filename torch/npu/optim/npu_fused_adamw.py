"""AdamW over flat tensors."""

import torch

from .npu_fused_adam import NpuFusedAdam

__all__ = ["NpuFusedAdamW"]


class NpuFusedAdamW(NpuFusedAdam):
    r"""``torch.optim.AdamW`` over flat tensors: Adam whose weight decay acts on the parameters alone.

    Args:
        params, lr, betas, eps, amsgrad: as for :class:`NpuFusedAdam`.
        weight_decay (float, optional): each step multiplies the parameters by 1 - lr * weight_decay. Default: 1e-2.
    """

    _step = staticmethod(torch._fused_adamw_)

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=1e-2, amsgrad=False):
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad)
