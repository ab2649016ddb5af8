"""LAMB over flat tensors."""

from typing import Any

import torch

from .npu_fused_adam import check_adam_options
from .npu_fused_optim_base import NpuFusedOptimizerBase, Run

__all__ = ["NpuFusedLamb"]


class NpuFusedLamb(NpuFusedOptimizerBase):
    r"""LAMB (You et al., "Large Batch Optimization for Deep Learning") over flat tensors, without bias correction.

    Each parameter steps by lr * r * u with u = m / (sqrt(v) + eps) + weight_decay * w and
    r = min(|w|, 10) / |u|, or 1 where either norm is 0.

    Args:
        params (iterable): parameters or parameter groups.
        lr (float, optional): learning rate. Default: 1e-3.
        betas (tuple, optional): decay of the means of gradients and of their squares. Default: (0.9, 0.999).
        eps (float, optional): added to the denominator. Default: 1e-6.
        weight_decay (float, optional): see above. Default: 0.
        adam (bool, optional): r is 1 always. Default: False.
        use_global_grad_norm (bool, optional): gradients whose norm over all parameters is above 1 are scaled down to
            it before the step. Default: False.

    Raises ValueError for a negative option or a beta outside of [0, 1).
    """

    def __init__(
        self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-6, weight_decay=0, adam=False, use_global_grad_norm=False
    ):
        check_adam_options(lr, betas, eps, weight_decay)
        self.adam, self.use_global_grad_norm = adam, use_global_grad_norm
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    def _state_names(self, group: dict[str, Any]) -> dict[str, float]:
        return {"exp_avg": 0.0, "exp_avg_sq": 0.0}

    def _before_updates(self) -> None:
        if self.use_global_grad_norm:
            self.clip_grad_norm_fused_(1.0)

    def _update(self, group: dict[str, Any], run: Run) -> None:
        beta1, beta2 = group["betas"]
        layout = run.pack.layout
        start = layout.offsets[run.indices.start]
        begins = [layout.offsets[i] - start for i in run.indices]
        sizes = [run.pack.params[i].numel() for i in run.indices]
        bounds = [bound for begin, size in zip(begins, sizes, strict=True) for bound in (begin, begin + size)]
        torch.ops.npu._npu_lamb_step_(
            run.param,
            run.grad,
            run.states["exp_avg"],
            run.states["exp_avg_sq"],
            bounds,
            lr=group["lr"],
            beta1=beta1,
            beta2=beta2,
            eps=group["eps"],
            weight_decay=group["weight_decay"],
            adam=self.adam,
        )
