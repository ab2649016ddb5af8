"""Dropout as fairseq's modules name it."""

import torch


class NpuFairseqDropout(torch.nn.Module):
    """Dropout while training.

    Args:
        p: probability of dropping an element.
        module_name: of the module that it belongs to; kept.
    """

    def __init__(self, p, module_name=None):
        super().__init__()
        self.p, self.module_name = p, module_name

    @classmethod
    def enable_dropout_ensemble(cls, model):
        """The plug-in draws the masks of all layers beforehand with it. They are drawn when needed here: no effect."""

    def forward(self, x):
        return torch.nn.functional.dropout(x, self.p, self.training)


class NpuCachedDropout(NpuFairseqDropout):
    """The same; the plug-in keeps masks that were drawn beforehand in it."""
