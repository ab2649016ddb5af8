"""Rolling a tensor, as shifted windows need it."""

import torch


def roll(x, shifts, dims) -> torch.Tensor:
    """``torch.roll``."""
    return torch.roll(x, shifts, dims)
