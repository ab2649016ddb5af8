"""Channel shuffle without non-contiguous tensors: gathers of channels, whose gradients are gathers as well."""

import torch


def indexselect_full_implementation_forward(x1, x2, fp_index):
    """Return the channels ``fp_index`` of ``torch.cat((x1, x2), 1)``."""
    return torch.cat([x1, x2], 1).index_select(1, fp_index)


def indexselect_half_implementation_forward(x1, x2, fp_index1, fp_index2):
    """Return the channels ``fp_index1``, and those ``fp_index2``, of ``torch.cat((x1, x2), 1)``."""
    both = torch.cat([x1, x2], 1)
    return both.index_select(1, fp_index1), both.index_select(1, fp_index2)


class IndexSelectFullImplementation(torch.autograd.Function):
    """Channels ``fp_index`` of two tensors side by side; backwards they are taken by ``bp_index1``, ``bp_index2``."""

    @staticmethod
    def forward(ctx, x1, x2, fp_index, bp_index1, bp_index2):
        ctx.save_for_backward(bp_index1, bp_index2)
        return indexselect_full_implementation_forward(x1, x2, fp_index)

    @staticmethod
    def backward(ctx, grad_output):
        bp_index1, bp_index2 = ctx.saved_tensors
        return grad_output.index_select(1, bp_index1), grad_output.index_select(1, bp_index2), None, None, None


class IndexSelectHalfImplementation(torch.autograd.Function):
    """The same with two results, of the channels ``fp_index1`` and ``fp_index2``."""

    @staticmethod
    def forward(ctx, x1, x2, fp_index1, fp_index2, bp_index1, bp_index2):
        ctx.save_for_backward(bp_index1, bp_index2)
        return indexselect_half_implementation_forward(x1, x2, fp_index1, fp_index2)

    @staticmethod
    def backward(ctx, grad_output1, grad_output2):
        bp_index1, bp_index2 = ctx.saved_tensors
        grad = torch.cat([grad_output1, grad_output2], 1)
        return grad.index_select(1, bp_index1), grad.index_select(1, bp_index2), None, None, None, None


class _InTurn(torch.autograd.Function):
    # One channel of the one tensor, one of the other: the shuffle of two groups, in one pass over them.

    @staticmethod
    def forward(ctx, x1, x2, back1, back2):
        ctx.save_for_backward(back1, back2)
        return torch.stack((x1, x2), 2).flatten(1, 2)

    @staticmethod
    def backward(ctx, grad):
        back1, back2 = ctx.saved_tensors
        return grad.index_select(1, back1), grad.index_select(1, back2), None, None


class ChannelShuffle(torch.nn.Module):
    r"""Concatenate two tensors and shuffle their channels: ``channel_shuffle(torch.cat((x1, x2), 1), groups)``.

    Args:
        in_channels (int): channels of both tensors together
        groups (int): groups that channels are dealt to, a divisor of ``in_channels``
        split_shuffle (bool): whether the result is returned as two halves, as ShuffleNetV2's next block wants it

    Shape:
        ``x1``, ``x2``: (n, c1, ...) and (n, c2, ...) with c1 + c2 = in_channels. Result: (n, in_channels, ...), or two
        of (n, in_channels / 2, ...).

    The order of the channels follows the operands to their device.

    Raises:
        ValueError: ``in_channels`` does not divide as asked.
    """

    def __init__(self, in_channels: int, groups: int = 2, split_shuffle: bool = True):
        super().__init__()
        if in_channels % groups or (split_shuffle and in_channels % 2):
            raise ValueError(f"{in_channels} channels do not divide into {groups} groups or two halves")
        self.groups, self.split_shuffle = groups, split_shuffle
        forwards = torch.arange(in_channels).view(groups, in_channels // groups).t().reshape(-1)
        self.register_buffer("forwards", forwards, persistent=False)
        self.register_buffer("backwards", forwards.argsort(), persistent=False)

    def check_self(self, x: torch.Tensor) -> None:
        """Move the module to the device of ``x``."""
        if self.forwards.device != x.device:
            self.to(x.device)

    def forward(self, x1: torch.Tensor, x2: torch.Tensor):
        self.check_self(x1)
        split = x1.shape[1]
        back = self.backwards[:split], self.backwards[split:]
        if not self.split_shuffle:
            if self.groups == 2 and x1.shape == x2.shape:
                return _InTurn.apply(x1, x2, *back)
            return IndexSelectFullImplementation.apply(x1, x2, self.forwards, *back)
        # Each half is gathered by itself, so that neither is a view that its reader has to copy.
        return IndexSelectHalfImplementation.apply(x1, x2, *self.forwards.chunk(2), *back)
