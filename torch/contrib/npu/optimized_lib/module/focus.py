"""The first layer of YOLOv5."""

import torch


def autopad(k, p=None):
    """Return the padding ``p``; None: what keeps the size with a window ``k``, a number or several."""
    if p is not None:
        return p
    return k // 2 if isinstance(k, int) else [size // 2 for size in k]


def fast_slice(x):
    """Return the four images that every second row and column make of ``x`` (n, c, h, w): (n, 4 * c, h / 2, w / 2)."""
    n, c, h, w = x.shape
    # One copy forwards and one backwards, where four slices are four, and four additions besides.
    return x.view(n, c, h // 2, 2, w // 2, 2).permute(0, 5, 3, 1, 2, 4).reshape(n, 4 * c, h // 2, w // 2)


class Conv(torch.nn.Module):
    """Convolution, batch norm, activation.

    Args:
        c1, c2: channels before and after.
        k, s, p, g: window, stride, padding (see :func:`autopad`), groups.
        act: True: SiLU; a module: that one; otherwise none.
    """

    def __init__(self, c1, c2, k=1, s=1, p=None, g=1, act=True):
        super().__init__()
        self.conv = torch.nn.Conv2d(c1, c2, k, s, autopad(k, p), groups=g, bias=False)
        self.bn = torch.nn.BatchNorm2d(c2)
        if act is True:
            act = torch.nn.SiLU()
        self.act = act if isinstance(act, torch.nn.Module) else torch.nn.Identity()

    def forward(self, x):
        return self.act(self.bn(self.conv(x)))

    def fuseforward(self, x):
        """Where the batch norm is part of the convolution."""
        return self.act(self.conv(x))


class Focus(torch.nn.Module):
    """:func:`fast_slice`, then :class:`Conv`, whose arguments it takes; ``c1`` counts the channels of the image."""

    def __init__(self, c1, c2, k=1, s=1, p=None, g=1, act=True):
        super().__init__()
        self.conv = Conv(c1 * 4, c2, k, s, p, g, act)

    def forward(self, x):
        return self.conv(fast_slice(x))
