"""SGD over flat tensors."""

from typing import Any

from torch.optim.optimizer import required

import torch

from .npu_fused_optim_base import NpuFusedOptimizerBase, Run

__all__ = ["NpuFusedSGD"]


class NpuFusedSGD(NpuFusedOptimizerBase):
    r"""``torch.optim.SGD`` over flat tensors: the same numbers, one operator for each dtype of a group.

    Args:
        params (iterable): parameters or parameter groups.
        lr (float): learning rate.
        momentum, dampening, weight_decay (float, optional): as in ``torch.optim.SGD``. Default: 0.
        nesterov (bool, optional): Nesterov's momentum; wants a momentum and no dampening. Default: False.

    Raises ValueError for a negative ``lr``, ``momentum`` or ``weight_decay``.
    """

    _counts_steps = False

    def __init__(self, params, lr=required, momentum=0.0, dampening=0.0, weight_decay=0.0, nesterov=False):
        if lr is not required and lr < 0.0:
            raise ValueError(f"Invalid learning rate: {lr}")
        if momentum < 0.0:
            raise ValueError(f"Invalid momentum value: {momentum}")
        if weight_decay < 0.0:
            raise ValueError(f"Invalid weight_decay value: {weight_decay}")
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError("Nesterov momentum requires a momentum and zero dampening")
        super().__init__(
            params,
            {
                "lr": lr,
                "momentum": momentum,
                "dampening": dampening,
                "weight_decay": weight_decay,
                "nesterov": nesterov,
            },
        )

    def _state_names(self, group: dict[str, Any]) -> dict[str, float]:
        return {"momentum_buffer": 0.0} if group["momentum"] != 0 else {}

    def _update(self, group: dict[str, Any], run: Run) -> None:
        momentum = group["momentum"]
        torch._fused_sgd_(
            [run.param],
            [run.grad],
            [run.states["momentum_buffer"]] if momentum != 0 else [],
            weight_decay=group["weight_decay"],
            momentum=momentum,
            lr=group["lr"],
            dampening=group["dampening"],
            nesterov=group["nesterov"],
            maximize=group.get("maximize", False),
            is_first_step=run.steps == 1,
        )
