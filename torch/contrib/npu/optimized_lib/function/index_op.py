"""Assignment by a mask without data-dependent shapes."""

import torch


def npu_fast_condition_index_put(x, condition, value) -> torch.Tensor:
    """Return a copy of ``x`` with ``copy[condition] = value``.

    Raises:
        TypeError: ``condition`` is not a tensor of bools.
    """
    if condition.dtype is not torch.bool:
        raise TypeError(f"npu_fast_condition_index_put: condition holds bools, not {condition.dtype}")
    return x.masked_fill(condition, value)
