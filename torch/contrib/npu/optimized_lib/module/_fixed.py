"""Parameters of layers that are made for inference."""

import torch


def fixed(*shape: int, dtype: torch.dtype | None, device=None) -> torch.nn.Parameter:
    """Return a parameter of zeros, without a gradient, that the user sets."""
    return torch.nn.Parameter(torch.zeros(shape, dtype=dtype, device=device), requires_grad=False)
