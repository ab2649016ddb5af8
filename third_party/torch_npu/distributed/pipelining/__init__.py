"""torch.distributed.pipelining's pipeline, with the plug-in's further arguments."""

from typing import Any

from torch.distributed import pipelining as _upstream

import torch

__all__ = ["pipeline"]


def pipeline(
    module: torch.nn.Module,
    mb_args: tuple[Any, ...],
    mb_kwargs: dict[str, Any] | None = None,
    split_spec=None,
    split_policy=None,
    mode: str | None = None,
    atomic_units: list[str] | None = None,
):
    """Split a model into stages; the first five arguments are those of torch.distributed.pipelining.pipeline.

    Raises:
        NotImplementedError: ``mode`` or ``atomic_units`` is given: the plug-in's own ways to find stages.
    """
    if mode is not None or atomic_units is not None:
        raise NotImplementedError("pipeline: mode and atomic_units are not supported; use split_spec or split_policy")
    return _upstream.pipeline(module, mb_args, mb_kwargs, split_spec, split_policy)
