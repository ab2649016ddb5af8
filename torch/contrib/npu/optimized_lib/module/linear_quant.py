"""A linear layer of 8-bit integers."""

import torch

from ._fixed import fixed


class LinearQuant(torch.nn.Module):
    """``torch_npu.npu_quant_matmul`` with a weight of int8; made for inference.

    Args:
        in_features, out_features: as of torch.nn.Linear.
        bias: whether there is one, of int32.
        offset: whether there is one, of float32, for results of int8.
        pertoken_scale: whether each row has a scale of its own, of float32.
        device, dtype: not used, as in the plug-in.
        output_dtype: of the result; default int8.

    ``weight`` (out, in), ``scale`` (1 or out), ``bias`` and ``offset`` are parameters without gradients, to be set.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        bias: bool = True,
        offset: bool = False,
        pertoken_scale: bool = False,
        device=None,
        dtype=None,
        output_dtype=None,
    ) -> None:
        super().__init__()
        self.in_features, self.out_features, self.output_dtype = in_features, out_features, output_dtype

        self.weight = fixed(out_features, in_features, dtype=torch.int8)
        self.scale = fixed(out_features, dtype=torch.float32)
        self.offset = fixed(out_features, dtype=torch.float32) if offset else None
        self.pertoken_scale = fixed(1, dtype=torch.float32) if pertoken_scale else None
        self.bias = fixed(out_features, dtype=torch.int32) if bias else None

    def forward(self, linear_quant_input: torch.Tensor) -> torch.Tensor:
        return torch.npu_quant_matmul(
            linear_quant_input,
            self.weight.transpose(-1, -2),
            self.scale,
            offset=self.offset,
            pertoken_scale=self.pertoken_scale,
            bias=self.bias,
            output_dtype=self.output_dtype,
        )
