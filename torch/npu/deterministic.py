r"""Deterministic algorithms for a part of a model, in both directions, and the plug-in's levels of them."""

from typing import Any

import torch

__all__ = ["disable_deterministic_with_backward", "enable_deterministic_with_backward", "set_deterministic_level"]


class _Switch(torch.autograd.Function):
    # Sets the mode where the forward passes, and the opposite where the backward passes on its way back.
    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, wanted: bool) -> torch.Tensor:
        ctx.wanted = wanted
        torch.use_deterministic_algorithms(wanted)
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None]:
        torch.use_deterministic_algorithms(not ctx.wanted)
        return grads[0], None


def enable_deterministic_with_backward(tensor: torch.Tensor) -> torch.Tensor:
    r"""Return ``tensor``, and use deterministic algorithms from here on; the backward stops using them here.

    Args:
        tensor (Tensor): what the rest of the model is computed from, so that gradients come back through it.
    """
    return _Switch.apply(tensor, True)


def disable_deterministic_with_backward(tensor: torch.Tensor) -> torch.Tensor:
    r"""Return ``tensor``, and stop using deterministic algorithms; the backward begins to use them here.

    Args:
        tensor (Tensor): what the rest of the model is computed from, so that gradients come back through it.
    """
    return _Switch.apply(tensor, False)


def set_deterministic_level(level: int) -> None:
    r"""Set how far results are determined: 0 not, 1 the same operands give the same result.

    They are :func:`torch.use_deterministic_algorithms` with False and True.

    Raises:
        ValueError: there is no such level.
        NotImplementedError: level 2 or 3, which promise one order of sums wherever data stands, or whatever the size of
            the batch: the kernels here do not.
    """
    if level not in (0, 1, 2, 3) or isinstance(level, bool):
        raise ValueError(f"set_deterministic_level: the level is 0, 1, 2 or 3, not {level!r}")
    if level > 1:
        raise NotImplementedError(
            f"set_deterministic_level({level}): levels 2 and 3 promise one order of sums wherever data stands and "
            "whatever the batch's size, which the kernels here do not; level 1 makes runs repeatable"
        )
    torch.use_deterministic_algorithms(level == 1)
