"""Convolutions whose windows have learned displacements and weights of their samples."""

from torch.nn.modules.utils import _pair

import torch


def _deformed(x, offset, mask, weight, bias, stride, padding, dilation, groups, deformable_groups):
    # The operator takes all displacements in x, then those in y; layers hold pairs of y and x.
    samples = torch.cat([offset[:, 1::2], offset[:, 0::2], mask], 1)
    (h, w), (above, left) = _pair(stride), _pair(padding)
    return torch.npu_deformable_conv2d(
        x,
        weight,
        samples,
        bias,
        kernel_size=list(weight.shape[2:]),
        stride=[1, 1, h, w],
        padding=[above, above, left, left],
        dilation=[1, 1, *_pair(dilation)],
        groups=groups,
        deformable_groups=deformable_groups,
    )[0]


class ModulatedDeformConv2dFunction(torch.autograd.Function):
    """The convolution by its operands: displacements as pairs of y and x for each sample of a window, and masks."""

    @staticmethod
    def forward(
        ctx,
        input_tensor,
        offset_ori,
        mask,
        weight,
        bias=None,
        with_bias=False,
        stride=1,
        padding=0,
        dilation=1,
        groups=1,
        deformable_groups=1,
        sort_index_for_npu_fp=None,
        sort_index_for_npu_bp=None,
    ):
        ctx.options = stride, padding, dilation, groups, deformable_groups
        ctx.with_bias = with_bias and bias is not None
        operands = input_tensor, offset_ori, mask, weight, bias if ctx.with_bias else None
        ctx.save_for_backward(*operands)
        return _deformed(*operands, *ctx.options)

    @staticmethod
    def backward(ctx, grad_output):
        wanted = [i for i in range(5) if ctx.needs_input_grad[i] and ctx.saved_tensors[i] is not None]
        with torch.enable_grad():
            operands = [None if t is None else t.detach().requires_grad_() for t in ctx.saved_tensors]
            y = _deformed(*operands, *ctx.options)
        grads: list[torch.Tensor | None] = [None] * 13
        for i, grad in zip(wanted, torch.autograd.grad(y, [operands[i] for i in wanted], grad_output), strict=True):
            grads[i] = grad
        return tuple(grads)


class ModulatedDeformConv(torch.nn.Module):
    """Modulated deformable convolution (DCN v2) on an NPU, in float32.

    Args:
        in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias: as of torch.nn.Conv2d.
        deformable_groups: groups of channels with displacements of their own.
        pack: True: a convolution ``conv_offset`` makes displacements and masks of the input; False: the input is a
            tuple of features, displacements (pairs of y and x) and masks.
    """

    def __init__(
        self,
        in_channels,
        out_channels,
        kernel_size,
        stride=1,
        padding=0,
        dilation=1,
        groups=1,
        deformable_groups=1,
        bias=True,
        pack=True,
    ):
        super().__init__()
        self.kernel_size, self.stride, self.padding, self.dilation = map(
            _pair, (kernel_size, stride, padding, dilation)
        )
        self.groups, self.deformable_groups, self.pack, self.with_bias = groups, deformable_groups, pack, bias
        self.weight = torch.nn.Parameter(torch.empty(out_channels, in_channels // groups, *self.kernel_size))
        self.bias = torch.nn.Parameter(torch.zeros(out_channels)) if bias else None
        if pack:
            samples = deformable_groups * self.kernel_size[0] * self.kernel_size[1]
            self.conv_offset = torch.nn.Conv2d(
                in_channels, 3 * samples, self.kernel_size, self.stride, self.padding, self.dilation
            )
        self.init_param()

    def init_param(self):
        """Draw the weight evenly by its fan; displacements begin at zero."""
        bound = 1 / self.weight[0].numel() ** 0.5
        torch.nn.init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            torch.nn.init.zeros_(self.bias)
        if self.pack:
            torch.nn.init.zeros_(self.conv_offset.weight)
            torch.nn.init.zeros_(self.conv_offset.bias)

    def forward(self, x):
        if self.pack:
            samples = self.conv_offset(x)
            pairs = samples.shape[1] // 3 * 2
            offset, mask = samples[:, :pairs], samples[:, pairs:].sigmoid()
        else:
            x, offset, mask = x
        options = self.stride, self.padding, self.dilation, self.groups, self.deformable_groups
        # The operator keeps what its gradient needs; the function above, for those who call it, samples once more.
        return _deformed(x, offset, mask, self.weight, self.bias, *options)


DCNv2 = ModulatedDeformConv
