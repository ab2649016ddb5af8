"""Adadelta over flat tensors."""

from typing import Any

from torch.optim.adadelta import adadelta

from .npu_fused_optim_base import NpuFusedOptimizerBase, Run

__all__ = ["NpuFusedAdadelta"]


class NpuFusedAdadelta(NpuFusedOptimizerBase):
    r"""``torch.optim.Adadelta`` over flat tensors: the same numbers, a few operators for each dtype of a group.

    Args:
        params (iterable): parameters or parameter groups.
        lr (float, optional): factor of the step. Default: 1.0.
        rho (float, optional): decay of the means of squares. Default: 0.9.
        eps (float, optional): added under the roots. Default: 1e-6.
        weight_decay (float, optional): factor of the parameters that is added to the gradients. Default: 0.

    Raises ValueError for a negative option or a ``rho`` outside of [0, 1].
    """

    def __init__(self, params, lr=1.0, rho=0.9, eps=1e-6, weight_decay=0):
        if lr < 0.0:
            raise ValueError(f"Invalid learning rate: {lr}")
        if not 0.0 <= rho <= 1.0:
            raise ValueError(f"Invalid rho value: {rho}")
        if eps < 0.0:
            raise ValueError(f"Invalid epsilon value: {eps}")
        if weight_decay < 0.0:
            raise ValueError(f"Invalid weight_decay value: {weight_decay}")
        super().__init__(params, {"lr": lr, "rho": rho, "eps": eps, "weight_decay": weight_decay})

    def _state_names(self, group: dict[str, Any]) -> dict[str, float]:
        return {"square_avg": 0.0, "acc_delta": 0.0}

    def _update(self, group: dict[str, Any], run: Run) -> None:
        adadelta(
            [run.param],
            [run.grad],
            [run.states["square_avg"]],
            [run.states["acc_delta"]],
            [run.step_tensor()],
            foreach=False,
            lr=group["lr"],
            rho=group["rho"],
            eps=group["eps"],
            weight_decay=group["weight_decay"],
            maximize=group.get("maximize", False),
        )
