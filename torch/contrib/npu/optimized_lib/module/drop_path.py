"""Stochastic depth."""

import torch


class NpuDropPath(torch.nn.Module):
    """Lets each sample pass whole with a probability of ``1 - drop_prob``, divided by that, or not at all.

    Args:
        drop_prob: of dropping a sample; None: 0.
    """

    def __init__(self, drop_prob=None):
        super().__init__()
        self.drop_prob = drop_prob

    @classmethod
    def enable_droppath_ensemble(cls, model):
        """The plug-in draws the masks of all layers beforehand with it. They are drawn when needed here: no effect."""

    def forward(self, x):
        if not self.training or not self.drop_prob:
            return x
        keep = 1 - self.drop_prob
        mask = torch.empty(x.shape[0], *[1] * (x.dim() - 1), dtype=x.dtype, device=x.device).bernoulli_(keep)
        return x * (mask / keep)
