"""A convolution of 8-bit integers."""

from torch.nn.modules.utils import _pair

import torch

from ._fixed import fixed

_EXACT_PRODUCTS = 1024


class QuantConv2d(torch.nn.Module):
    """A convolution of int8 by int8, with a scale for each channel of the result; for inference.

    Sums of products are exact, whatever their number.

    Args:
        in_channels, out_channels, kernel_size, stride, padding, dilation, bias: as of torch.nn.Conv2d.
        output_dtype: of the result, torch.float16.
        groups: only 1.
        offset_x: the number that the padding is filled with.
        offset, round_mode, input_dtype, weight_dtype, device, dtype: not used, as in the plug-in.

    ``weight`` (int8), ``scale`` (float32) and ``bias`` (int32) are parameters without gradients, to be set.

    Raises:
        NotImplementedError: another output_dtype, or groups.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | tuple[int, int],
        output_dtype,
        stride: int | tuple[int, int] = 1,
        padding: int | tuple[int, int] = 0,
        dilation: int | tuple[int, int] = 1,
        groups: int = 1,
        bias: bool = True,
        offset: bool = False,
        offset_x: int = 0,
        round_mode: str = "rint",
        input_dtype=None,
        weight_dtype=None,
        device=None,
        dtype=None,
    ) -> None:
        super().__init__()
        if output_dtype != torch.float16 or groups != 1:
            raise NotImplementedError(
                f"QuantConv2d: a result of float16 and 1 group are supported, not {output_dtype} and {groups}"
            )
        self.stride, self.padding, self.dilation = _pair(stride), _pair(padding), _pair(dilation)
        self.output_dtype, self.offset_x = output_dtype, offset_x

        self.weight = fixed(out_channels, in_channels, *_pair(kernel_size), dtype=torch.int8)
        self.scale = fixed(out_channels, dtype=torch.float32)
        self.bias = fixed(out_channels, dtype=torch.int32) if bias else None
        self._kept = None

    def forward(self, quant_conv2d_input: torch.Tensor) -> torch.Tensor:
        # Integers below 2 ** 24 are exact in float32: so are the sums of up to 1024 products of bytes.
        dtype = torch.float32 if self.weight[0].numel() <= _EXACT_PRODUCTS else torch.float64
        x, padding = quant_conv2d_input.to(dtype), self.padding
        if self.offset_x:
            high, wide = padding
            x, padding = torch.nn.functional.pad(x, (wide, wide, high, high), value=self.offset_x), 0
        weight, bias, scale = self._converted(dtype)
        sums = torch.nn.functional.conv2d(x, weight, bias, self.stride, padding, self.dilation)
        return (sums * scale).to(self.output_dtype)

    def _converted(self, dtype):
        # The parameters as floating point, kept until one of them is changed or set.
        parameters = self.weight, self.bias, self.scale
        state = [None if p is None else (p.data_ptr(), p.device, p._version) for p in parameters]
        if self._kept is None or self._kept[0] != state:
            weight, bias, scale = (None if p is None else p.detach().to(dtype) for p in parameters)
            self._kept = state, (weight, bias, scale.view(-1, 1, 1))
        return self._kept[1]
