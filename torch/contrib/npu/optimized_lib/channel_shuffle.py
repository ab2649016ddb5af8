r"""Channel shuffle without non-contiguous tensors: one gather of channels, whose gradient is a gather as well."""

import torch


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x1, x2, backwards, *parts):
        ctx.save_for_backward(backwards)
        ctx.split = x1.shape[1]
        x = torch.cat([x1, x2], 1)
        return tuple(x.index_select(1, part) for part in parts)

    @staticmethod
    def backward(ctx, *grads):
        (backwards,) = ctx.saved_tensors
        grad = torch.cat(grads, 1) if len(grads) > 1 else grads[0]
        first, second = backwards[: ctx.split], backwards[ctx.split :]
        return grad.index_select(1, first), grad.index_select(1, second), None, *(None for _ in grads)


class ChannelShuffle(torch.nn.Module):
    r"""Concatenate two tensors and shuffle their channels: ``channel_shuffle(torch.cat((x1, x2), 1), groups)``.

    Args:
        in_channels (int): channels of both tensors together
        groups (int): groups that channels are dealt to, a divisor of ``in_channels``
        split_shuffle (bool): whether the result is returned as two halves, as ShuffleNetV2's next block wants it

    Shape:
        ``x1``, ``x2``: (n, c1, ...) and (n, c2, ...) with c1 + c2 = in_channels. Result: (n, in_channels, ...), or two
        of (n, in_channels / 2, ...).

    Raises:
        ValueError: ``in_channels`` does not divide as asked.
    """

    def __init__(self, in_channels: int, groups: int = 2, split_shuffle: bool = True):
        super().__init__()
        if in_channels % groups or (split_shuffle and in_channels % 2):
            raise ValueError(f"{in_channels} channels do not divide into {groups} groups or two halves")
        self.split_shuffle = split_shuffle
        forwards = torch.arange(in_channels).view(groups, in_channels // groups).t().reshape(-1)
        self.register_buffer("forwards", forwards, persistent=False)
        self.register_buffer("backwards", forwards.argsort(), persistent=False)

    def forward(self, x1: torch.Tensor, x2: torch.Tensor):
        # Each half is gathered by itself, so that neither is a view that its reader has to copy.
        parts = self.forwards.chunk(2) if self.split_shuffle else (self.forwards,)
        y = _Gather.apply(x1, x2, self.backwards, *parts)
        return y if self.split_shuffle else y[0]
