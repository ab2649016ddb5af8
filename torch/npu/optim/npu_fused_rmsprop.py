"""RMSprop over flat tensors."""

from typing import Any

from torch.optim.rmsprop import rmsprop

from .npu_fused_optim_base import NpuFusedOptimizerBase, Run

__all__ = ["NpuFusedRMSprop"]


def check_rmsprop_options(lr: float, eps: float, momentum: float, weight_decay: float, alpha: float) -> None:
    """Raises ValueError for a negative option."""
    names = ("learning rate", "epsilon value", "momentum value", "weight_decay value", "alpha value")
    for name, value in zip(names, (lr, eps, momentum, weight_decay, alpha), strict=True):
        if value < 0.0:
            raise ValueError(f"Invalid {name}: {value}")


def rmsprop_state_names(group: dict[str, Any], mean_square: float) -> dict[str, float]:
    """The states that the group's options ask for; means of squares begin at `mean_square`."""
    names = {"square_avg": mean_square}
    if group["momentum"] > 0:
        names["momentum_buffer"] = 0.0
    if group["centered"]:
        names["grad_avg"] = 0.0
    return names


class NpuFusedRMSprop(NpuFusedOptimizerBase):
    r"""``torch.optim.RMSprop`` over flat tensors: the same numbers, a few operators for each dtype of a group.

    Args:
        params (iterable): parameters or parameter groups.
        lr (float, optional): learning rate. Default: 1e-2.
        alpha (float, optional): decay of the mean of squares. Default: 0.99.
        eps (float, optional): added to the denominator. Default: 1e-8.
        weight_decay (float, optional): factor of the parameters that is added to the gradients. Default: 0.
        momentum (float, optional): factor of the last step. Default: 0.
        centered (bool, optional): the gradients' variance instead of their mean square. Default: False.

    Raises ValueError for a negative option.
    """

    def __init__(self, params, lr=1e-2, alpha=0.99, eps=1e-8, weight_decay=0, momentum=0, centered=False):
        check_rmsprop_options(lr, eps, momentum, weight_decay, alpha)
        super().__init__(
            params,
            {
                "lr": lr,
                "alpha": alpha,
                "eps": eps,
                "weight_decay": weight_decay,
                "momentum": momentum,
                "centered": centered,
            },
        )

    def _state_names(self, group: dict[str, Any]) -> dict[str, float]:
        return rmsprop_state_names(group, 0.0)

    def _update(self, group: dict[str, Any], run: Run) -> None:
        states = run.states
        rmsprop(
            [run.param],
            [run.grad],
            [states["square_avg"]],
            [states["grad_avg"]] if group["centered"] else [],
            [states["momentum_buffer"]] if group["momentum"] > 0 else [],
            [run.step_tensor()],
            foreach=False,
            maximize=group.get("maximize", False),
            lr=group["lr"],
            alpha=group["alpha"],
            eps=group["eps"],
            weight_decay=group["weight_decay"],
            momentum=group["momentum"],
            centered=group["centered"],
        )
