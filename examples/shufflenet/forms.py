"""Four forms of ShuffleNet's channel shuffle that compute the same: from views to the affinity library.

Each form is a module: the two branches of a unit in, their channels shuffled out, as the halves that the next unit
wants, or as one tensor (``split=False``) where it wants a whole.
"""

import torch
from torch import Tensor, nn
from torch.contrib.npu.optimized_lib import ChannelShuffle

Halves = tuple[Tensor, Tensor]


def shuffle_by_views(x: Tensor, groups: int = 2) -> Tensor:
    """The usual form: view, transpose, contiguous. The transposed view has to be copied."""
    n, c, h, w = x.shape
    return x.view(n, groups, c // groups, h, w).transpose(1, 2).contiguous().view(n, c, h, w)


def shuffled_order(channels: int, groups: int = 2) -> Tensor:
    """Which channel each place of the shuffled tensor has."""
    return torch.arange(channels).view(groups, channels // groups).t().reshape(-1)


class ByViews(nn.Module):
    """torchvision's form; halves are cut off as views, which what reads them has to copy."""

    def __init__(self, channels: int, split: bool = True):
        super().__init__()
        self.split = split

    def shuffled(self, x: Tensor) -> Tensor:
        return shuffle_by_views(x)

    def forward(self, x1: Tensor, x2: Tensor) -> Halves | Tensor:
        y = self.shuffled(torch.cat((x1, x2), dim=1))
        return y.chunk(2, dim=1) if self.split else y


class ByIndex(ByViews):
    """One operator that computes picks the channels in their new order, which lies on the device from the start."""

    def __init__(self, channels: int, split: bool = True):
        super().__init__(channels, split)
        self.register_buffer("order", shuffled_order(channels), persistent=False)

    def shuffled(self, x: Tensor) -> Tensor:
        return x.index_select(1, self.order)


class ByIndexAtEveryCall(ByViews):
    """The same, but the order is made on the host and copied at every call."""

    def shuffled(self, x: Tensor) -> Tensor:
        return x.index_select(1, shuffled_order(x.shape[1]).to(x.device))


class ByTwoIndices(ByIndex):
    """Each half is picked by itself: no half is a view."""

    def forward(self, x1: Tensor, x2: Tensor) -> Halves | Tensor:
        both = torch.cat((x1, x2), dim=1)
        if not self.split:
            return self.shuffled(both)
        first, second = self.order.chunk(2)
        return both.index_select(1, first), both.index_select(1, second)


class ByLibrary(ChannelShuffle):
    """The affinity library's: the gradients are gathers, too, where autograd's own add to zeros."""

    def __init__(self, channels: int, split: bool = True):
        super().__init__(channels, split_shuffle=split)


FORMS: dict[str, type[nn.Module]] = {
    "views": ByViews,
    "index_select": ByIndex,
    "two index_selects": ByTwoIndices,
    "library": ByLibrary,
}
