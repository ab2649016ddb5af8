r"""Products whose left operand is quantised on the way, with a weight of bytes."""

import torch
from torch import Tensor

from ._between import packed_factor
from ._checks import check, check_dtype, check_none
from ._numbers import exact, group_ends, grouped_product, rounded, rows_rounded
from ._registration import operator


def _check(name, x, weight, weight_scale, bias, x_scale, x_offset, smooth_scale, quant_mode, groups):
    check_none(name, "it is reserved", bias=bias, x_offset=x_offset)
    check_dtype(name, "x", x, (torch.float16,))
    check_dtype(name, "quantized_weight", weight, (torch.int8,))
    check_dtype(name, "weight_scale", weight_scale, (torch.float32, torch.int64))
    check(
        x.dim() == 2
        and weight.dim() == len(groups) + 2
        and weight.shape[-1] == x.shape[1]
        and weight.shape[: len(groups)] == groups
        and weight_scale.shape == weight.shape[:-1],
        name,
        "x must be (m, k), quantized_weight (n, k) and weight_scale (n), behind the groups if there are some; they are "
        f"{tuple(x.shape)}, {tuple(weight.shape)} and {tuple(weight_scale.shape)}",
    )
    check(
        quant_mode in (None, "pertoken", "pertensor"),
        name,
        f"quant_mode must be pertoken or pertensor, but is {quant_mode!r}",
    )
    if smooth_scale is not None:
        check_dtype(name, "smooth_scale", smooth_scale, (torch.float16,))
        check(smooth_scale.shape == x.shape[1:], name, f"smooth_scale must be of shape {tuple(x.shape[1:])}")
    per_row = quant_mode != "pertensor"
    if x_scale is None:
        check(per_row, name, "quant_mode pertensor needs x_scale")
        check(weight_scale.dtype is torch.float32, name, "weight_scale of torch.int64 needs x_scale")
        return
    wanted = (x.shape[0] if per_row else 1,)
    check(x_scale.shape == wanted, name, f"x_scale must be of shape {wanted}, but is {tuple(x_scale.shape)}")
    joined = weight_scale.dtype is torch.int64
    check_dtype(name, "x_scale", x_scale, (torch.float16,) if joined else (torch.float32,))
    check(not (joined and per_row), name, "weight_scale of torch.int64 goes with quant_mode pertensor")


def _quantised(name: str, x: Tensor, x_scale: Tensor | None, smooth_scale: Tensor | None) -> tuple[Tensor, Tensor]:
    numbers = x.detach().float()
    if smooth_scale is not None:
        numbers = numbers * smooth_scale.float()
    if x_scale is None:
        return rows_rounded(name, numbers, torch.int8)
    scale = x_scale.float()
    return rounded(name, numbers / scale.unsqueeze(-1), torch.int8), scale


_OPTIONS = (
    "*, Tensor? bias=None, Tensor? x_scale=None, Tensor? x_offset=None, Tensor? smooth_scale=None, "
    "str? quant_mode='pertoken'"
)


@operator(f"npu_quant_matmul_dequant(Tensor x, Tensor quantized_weight, Tensor weight_scale, {_OPTIONS}) -> Tensor")
def npu_quant_matmul_dequant(
    x,
    quantized_weight,
    weight_scale,
    *,
    bias=None,
    x_scale=None,
    x_offset=None,
    smooth_scale=None,
    quant_mode="pertoken",
) -> Tensor:
    r"""
    round(x * smooth_scale / x_scale) @ quantized_weight' * weight_scale * x_scale.

    Args:
        x: (m, k), float16.
        quantized_weight: (n, k), int8.
        weight_scale: a factor of each column, (n): float32; or int64 that holds the bits of one of float32 in which
            ``x_scale`` is a factor already.
        bias: must be None.
        x_scale: what rows are divided by, (m), float32; with pertensor (1), and float16 with ``weight_scale`` of int64.
            None: the largest number of a row / 127.
        x_offset: must be None.
        smooth_scale: a factor of each column of ``x``, (k), float16.
        quant_mode: pertoken or pertensor.

    Returns:
        (m, n), float16.

    Raises:
        RuntimeError: for shapes and dtypes that do not fit.
        NotImplementedError: for ``bias`` and ``x_offset``.
    """
    name = "npu_quant_matmul_dequant"
    _check(name, x, quantized_weight, weight_scale, bias, x_scale, x_offset, smooth_scale, quant_mode, torch.Size(()))
    numbers, scale = _quantised(name, x, x_scale, smooth_scale)
    sums = exact(x.shape[1])
    out = numbers.to(sums) @ quantized_weight.detach().mT.to(sums) * packed_factor(weight_scale, sums)
    if weight_scale.dtype is not torch.int64:
        out = out * scale.to(sums).unsqueeze(-1)
    return out.to(torch.float16)


@operator(
    "npu_quant_grouped_matmul_dequant(Tensor x, Tensor quantized_weight, Tensor weight_scale, Tensor group_list, "
    f"{_OPTIONS}) -> Tensor"
)
def npu_quant_grouped_matmul_dequant(
    x,
    quantized_weight,
    weight_scale,
    group_list,
    *,
    bias=None,
    x_scale=None,
    x_offset=None,
    smooth_scale=None,
    quant_mode="pertoken",
) -> Tensor:
    r"""
    :func:`npu_quant_matmul_dequant` with a weight for each group of rows.

    Args:
        x: as there.
        quantized_weight: (groups, n, k), int8.
        weight_scale: (groups, n), as there.
        group_list: where each group of rows ends, (groups), int64.
        bias: must be None.
        x_scale: as there.
        x_offset: must be None.
        smooth_scale: as there.
        quant_mode: as there.

    Returns:
        (m, n), float16; 0 after the last group.

    Raises:
        RuntimeError: for shapes and dtypes that do not fit.
        NotImplementedError: for ``bias`` and ``x_offset``.
    """
    name = "npu_quant_grouped_matmul_dequant"
    ends = group_ends(name, group_list, 0)
    _check(name, x, quantized_weight, weight_scale, bias, x_scale, x_offset, smooth_scale, quant_mode, group_list.shape)
    numbers, scale = _quantised(name, x, x_scale, smooth_scale)
    sums = exact(x.shape[1])
    # A factor of a column belongs to the weight, but products of bytes are exact only without it.
    out = grouped_product(numbers.to(sums), quantized_weight.detach().mT.to(sums), ends)
    rows = torch.arange(x.shape[0], device=x.device)
    group = torch.searchsorted(ends, rows, right=True)
    factors = packed_factor(weight_scale, sums)
    each = factors.index_select(0, group.clamp(max=ends.shape[0] - 1))
    out = torch.where((group < ends.shape[0]).unsqueeze(1), out * each, 0.0)
    if weight_scale.dtype is not torch.int64:
        out = out * scale.to(sums).unsqueeze(-1)
    return out.to(torch.float16)
