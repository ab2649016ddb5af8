"""Dropout by the plug-in's name for it."""

import torch


def dropout_with_byte_mask(input1, p=0.5, training=True, inplace=False) -> torch.Tensor:
    """``torch.nn.functional.dropout``; how the mask is kept is the device's affair."""
    return torch.nn.functional.dropout(input1, p, training, inplace)
