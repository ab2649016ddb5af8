"""Channel shuffle by gathers of channels, whose gradients are gathers as well."""

import torch
from torch.contrib.npu.optimized_lib import ChannelShuffle as _ChannelShuffle


class ChannelShuffle(_ChannelShuffle):
    """``channel_shuffle(torch.cat((x1, x2), 1), groups)``; see torch.contrib.npu.optimized_lib.

    The module follows its operands to their device.
    """

    def check_self(self, x):
        """Move the module to the device of ``x``."""
        if self.forwards.device != x.device:
            self.to(x.device)

    def forward(self, x1, x2):
        self.check_self(x1)
        return super().forward(x1, x2)


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


def indexselect_full_implementation_forward(x1, x2, fp_index):
    """Return the channels ``fp_index`` of ``torch.cat((x1, x2), 1)``."""
    return torch.cat([x1, x2], 1).index_select(1, fp_index)


def indexselect_half_implementation_forward(x1, x2, fp_index1, fp_index2):
    """Return the channels ``fp_index1``, and those ``fp_index2``, of ``torch.cat((x1, x2), 1)``."""
    both = torch.cat([x1, x2], 1)
    return both.index_select(1, fp_index1), both.index_select(1, fp_index2)
