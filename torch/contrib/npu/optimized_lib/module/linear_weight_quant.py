"""A linear layer whose weight alone is of integers."""

import torch

from ._fixed import fixed


class LinearWeightQuant(torch.nn.Module):
    """``torch_npu.npu_weight_quant_batchmatmul`` with a weight of int8; made for inference.

    Args:
        in_features, out_features, bias, device: as of torch.nn.Linear.
        dtype: of bias, scale and offset of the weight.
        antiquant_offset: whether the weight has an offset.
        quant_scale, quant_offset: whether the result is quantised, and with an offset.
        antiquant_group_size: rows of the weight that share a scale; 0: all.
        inner_precise: of no effect.
        weight_dtype: only None or torch.int8.

    ``weight`` (out, in), ``antiquant_scale``, ``antiquant_offset`` (out, groups), ``quant_scale``, ``quant_offset``
    (1, out) and ``bias`` are parameters without gradients, to be set.

    Raises:
        NotImplementedError: the weight is to be of another dtype.
    """

    def __init__(
        self,
        in_features,
        out_features,
        bias: bool = True,
        device=None,
        dtype=None,
        antiquant_offset: bool = False,
        quant_scale: bool = False,
        quant_offset: bool = False,
        antiquant_group_size: int = 0,
        inner_precise: int = 0,
        weight_dtype=None,
    ) -> None:
        super().__init__()
        if weight_dtype not in (None, torch.int8):
            raise NotImplementedError(f"LinearWeightQuant: a weight of {weight_dtype} is not supported, only int8")
        self.in_features, self.out_features = in_features, out_features
        self.antiquant_group_size, self.inner_precise = antiquant_group_size, inner_precise
        groups = -(-in_features // antiquant_group_size) if antiquant_group_size else 1

        self.weight = fixed(out_features, in_features, dtype=torch.int8, device=device)
        self.antiquant_scale = fixed(out_features, groups, dtype=dtype, device=device)
        self.antiquant_offset = fixed(out_features, groups, dtype=dtype, device=device) if antiquant_offset else None
        self.quant_scale = fixed(1, out_features, dtype=torch.float32, device=device) if quant_scale else None
        self.quant_offset = fixed(1, out_features, dtype=torch.float32, device=device) if quant_offset else None
        self.bias = (
            fixed(out_features, dtype=torch.float32 if dtype == torch.bfloat16 else dtype, device=device)
            if bias
            else None
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        def by_columns(parameter):
            if parameter is None:
                return None
            return parameter.transpose(-1, -2) if self.antiquant_group_size else parameter.flatten()

        return torch.npu_weight_quant_batchmatmul(
            x,
            self.weight.transpose(-1, -2),
            by_columns(self.antiquant_scale),
            antiquant_offset=by_columns(self.antiquant_offset),
            quant_scale=self.quant_scale,
            quant_offset=self.quant_offset,
            bias=self.bias,
            antiquant_group_size=self.antiquant_group_size,
            inner_precise=self.inner_precise,
        )
