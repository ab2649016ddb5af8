"""BertAdam over flat tensors."""

import math
from collections.abc import Callable
from typing import Any

from torch.optim.optimizer import required

import torch

from .npu_fused_optim_base import NpuFusedOptimizerBase, Run

__all__ = ["NpuFusedBertAdam"]


def _warmup_cosine(x: float, warmup: float) -> float:
    return x / warmup if x < warmup else 0.5 * (1.0 + math.cos(math.pi * x))


def _warmup_constant(x: float, warmup: float) -> float:
    return x / warmup if x < warmup else 1.0


def _warmup_linear(x: float, warmup: float) -> float:
    return x / warmup if x < warmup else max((x - 1.0) / (warmup - 1.0), 0.0)


SCHEDULES: dict[str, Callable[[float, float], float]] = {
    "warmup_cosine": _warmup_cosine,
    "warmup_constant": _warmup_constant,
    "warmup_linear": _warmup_linear,
}


class NpuFusedBertAdam(NpuFusedOptimizerBase):
    r"""The Adam that BERT was trained with, over flat tensors: no bias correction, decoupled decay, its own schedule.

    Args:
        params (iterable): parameters or parameter groups.
        lr (float): learning rate.
        warmup (float, optional): share of ``t_total`` over which the learning rate rises; -1 for none. Default: -1.
        t_total (int, optional): number of steps of the schedule; -1 for a constant learning rate. Default: -1.
        schedule (str, optional): ``warmup_cosine``, ``warmup_constant`` or ``warmup_linear`` (the default).
        b1, b2 (float, optional): decay of the means of gradients and of their squares. Default: 0.9, 0.999.
        e (float, optional): added to the denominator. Default: 1e-6.
        weight_decay (float, optional): factor of the parameters that is added to the step. Default: 0.01.
        max_grad_norm (float, optional): each parameter's gradient is scaled down to this norm; -1 for none.
            Default: 1.0.

    Raises ValueError for an unknown schedule, a negative ``lr`` or ``e``, a ``warmup`` or beta outside of [0, 1).
    """

    def __init__(
        self,
        params,
        lr=required,
        warmup=-1,
        t_total=-1,
        schedule="warmup_linear",
        b1=0.9,
        b2=0.999,
        e=1e-6,
        weight_decay=0.01,
        max_grad_norm=1.0,
    ):
        if lr is not required and lr < 0.0:
            raise ValueError(f"Invalid learning rate: {lr} - should be >= 0.0")
        if schedule not in SCHEDULES:
            raise ValueError(f"Invalid schedule parameter: {schedule}; it is one of {', '.join(SCHEDULES)}")
        if not 0.0 <= warmup < 1.0 and warmup != -1:
            raise ValueError(f"Invalid warmup: {warmup} - should be in [0.0, 1.0[ or -1")
        for name, value in (("b1", b1), ("b2", b2)):
            if not 0.0 <= value < 1.0:
                raise ValueError(f"Invalid {name} parameter: {value} - should be in [0.0, 1.0[")
        if e < 0.0:
            raise ValueError(f"Invalid epsilon value: {e} - should be >= 0.0")
        super().__init__(
            params,
            {
                "lr": lr,
                "warmup": warmup,
                "t_total": t_total,
                "schedule": schedule,
                "b1": b1,
                "b2": b2,
                "e": e,
                "weight_decay": weight_decay,
                "max_grad_norm": max_grad_norm,
            },
        )

    def _state_names(self, group: dict[str, Any]) -> dict[str, float]:
        return {"next_m": 0.0, "next_v": 0.0}

    @staticmethod
    def _learning_rate(group: dict[str, Any], done: int) -> float:
        """The learning rate of a step that `done` steps went before."""
        if group["t_total"] == -1:
            return group["lr"]
        return group["lr"] * SCHEDULES[group["schedule"]](done / group["t_total"], group["warmup"])

    def get_lr(self) -> list[float]:
        r"""The learning rate of the next step for each parameter that has had one, or ``[0]`` before the first."""
        rates = []
        for index, group in enumerate(self.param_groups):
            steps = {id(p): n for pack in self._packs_of(index) for p, n in zip(pack.params, pack.steps, strict=True)}
            if any(steps[id(p)] == 0 for p in group["params"]):
                return [0]
            rates += [self._learning_rate(group, steps[id(p)]) for p in group["params"]]
        return rates

    def _update(self, group: dict[str, Any], run: Run) -> None:
        grad, mean, mean_square = run.grad, run.states["next_m"], run.states["next_v"]
        limit = group["max_grad_norm"]
        if limit > 0:
            norms = torch.stack(torch._foreach_norm(run.parts_of(grad)))
            factors = torch.clamp(limit / (norms + 1e-6), max=1.0)
            torch._foreach_mul_(run.parts_of(grad), list(factors.unbind()))
        mean.mul_(group["b1"]).add_(grad, alpha=1 - group["b1"])
        mean_square.mul_(group["b2"]).addcmul_(grad, grad, value=1 - group["b2"])
        update = mean / mean_square.sqrt().add_(group["e"])
        if group["weight_decay"] > 0.0:
            update.add_(run.param, alpha=group["weight_decay"])
        run.param.add_(update, alpha=-self._learning_rate(group, run.steps - 1))
