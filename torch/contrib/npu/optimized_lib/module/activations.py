"""Activations by the plug-in's names."""

import torch


class Mish(torch.nn.Module):
    """``x * tanh(softplus(x))``."""

    def forward(self, x):
        return torch.nn.functional.mish(x)


class SiLU(torch.nn.Module):
    """``x * sigmoid(x)``."""

    def forward(self, x):
        return torch.nn.functional.silu(x)


class Swish(SiLU):
    """``x * sigmoid(x)``, by its other name."""
