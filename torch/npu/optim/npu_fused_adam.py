"""Adam over flat tensors."""

from typing import Any

import torch

from .npu_fused_optim_base import NpuFusedOptimizerBase, Run

__all__ = ["NpuFusedAdam"]


def check_adam_options(lr: float, betas: tuple[float, float], eps: float, weight_decay: float) -> None:
    """Raises ValueError for what no optimizer of Adam's family takes."""
    if lr < 0.0:
        raise ValueError(f"Invalid learning rate: {lr}")
    if eps < 0.0:
        raise ValueError(f"Invalid epsilon value: {eps}")
    for index, beta in enumerate(betas):
        if not 0.0 <= beta < 1.0:
            raise ValueError(f"Invalid beta parameter at index {index}: {beta}")
    if weight_decay < 0.0:
        raise ValueError(f"Invalid weight_decay value: {weight_decay}")


class NpuFusedAdam(NpuFusedOptimizerBase):
    r"""``torch.optim.Adam`` over flat tensors: the same numbers, one operator for each dtype of a group.

    Args:
        params (iterable): parameters or parameter groups.
        lr (float, optional): learning rate. Default: 1e-3.
        betas (tuple, optional): decay of the means of gradients and of their squares. Default: (0.9, 0.999).
        eps (float, optional): added to the denominator. Default: 1e-8.
        weight_decay (float, optional): factor of the parameters that is added to the gradients. Default: 0.
        amsgrad (bool, optional): the AMSGrad variant. Default: False.

    Raises ValueError for a negative option or a beta outside of [0, 1).
    """

    _step = staticmethod(torch._fused_adam_)

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0, amsgrad=False):
        check_adam_options(lr, betas, eps, weight_decay)
        super().__init__(
            params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "amsgrad": amsgrad}
        )

    def _state_names(self, group: dict[str, Any]) -> dict[str, float]:
        names = {"exp_avg": 0.0, "exp_avg_sq": 0.0}
        return names | {"max_exp_avg_sq": 0.0} if group["amsgrad"] else names

    def _update(self, group: dict[str, Any], run: Run) -> None:
        amsgrad = group["amsgrad"]
        beta1, beta2 = group["betas"]
        self._step(
            [run.param],
            [run.grad],
            [run.states["exp_avg"]],
            [run.states["exp_avg_sq"]],
            [run.states["max_exp_avg_sq"]] if amsgrad else [],
            [run.step_tensor()],
            lr=group["lr"],
            beta1=beta1,
            beta2=beta2,
            weight_decay=group["weight_decay"],
            eps=group["eps"],
            amsgrad=amsgrad,
            maximize=group.get("maximize", False),
        )
