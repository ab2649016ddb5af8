"""Dropout by the plug-in's name for it."""

import torch

from ..function.npu_functional import dropout_with_byte_mask


class DropoutWithByteMask(torch.nn.Module):
    """``torch.nn.Dropout``.

    Args:
        p: probability of dropping an element.
        inplace: whether the operand is changed.
        max_seed: not used, as in the plug-in.
    """

    def __init__(self, p=0.5, inplace=False, max_seed=2**10 - 1):
        super().__init__()
        self.p, self.inplace, self.max_seed = p, inplace, max_seed

    def forward(self, input1):
        return dropout_with_byte_mask(input1, self.p, self.training, self.inplace)
