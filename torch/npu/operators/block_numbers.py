r"""Numbers of eight and four bits with a scale for each block, and numbers made of them again."""

import torch
from torch import Tensor

from ._checks import check, check_dtype
from ._numbers import (
    BLOCK,
    FLOAT8,
    LARGEST,
    block_exponents,
    block_scales,
    blocks_rounded,
    check_round_mode,
    float4,
    numbered,
    over_powers,
    rounded,
)
from ._registration import operator

_HALVES = (torch.float16, torch.bfloat16)
_FLOAT4 = torch.float4_e2m1fn_x2
_COLUMNS = 128
_WIDE_BLOCK = 512


def _check_plain(name: str, scale_alg: int | None, **others: float | None) -> None:
    if scale_alg not in (None, 0):
        raise NotImplementedError(f"{name}: scale_alg must be 0, not {scale_alg}")
    for argument, value in others.items():
        if value not in (None, 0.0):
            raise NotImplementedError(f"{name}: {argument} must be 0, not {value}")


@operator(
    "npu_dynamic_block_quant(Tensor x, *, float min_scale=0.0, str round_mode='rint', int dst_type=1, "
    "int row_block_size=1, int col_block_size=128, float dst_type_max=0.0) -> (Tensor y, Tensor scale)"
)
def npu_dynamic_block_quant(
    x, *, min_scale=0.0, round_mode="rint", dst_type=1, row_block_size=1, col_block_size=128, dst_type_max=0.0
) -> tuple[Tensor, Tensor]:
    r"""
    round(x / scale) with scale = max(largest number / 127, ``min_scale``) of each 128 columns of a row.

    Args:
        x: of two or three dimensions; float16 or bfloat16.
        min_scale: the smallest scale, 0 or more.
        round_mode: must be "rint".
        dst_type: must be 1, int8.
        row_block_size: must be 1.
        col_block_size: must be 128.
        dst_type_max: must be 0.

    Returns:
        int8, like ``x``; the scales, float32, one for each 128 columns. Blocks of zeros have the scale 0.

    Raises:
        RuntimeError: for shapes, dtypes or numbers that do not fit.
        NotImplementedError: for another ``dst_type``, ``dst_type_max`` or size of the blocks.
    """
    name = "npu_dynamic_block_quant"
    check_dtype(name, "x", x, _HALVES)
    check(x.dim() in (2, 3), name, f"x must be of two or three dimensions, but is {tuple(x.shape)}")
    check(min_scale >= 0, name, f"min_scale must be 0 or more, but is {min_scale}")
    check(round_mode == "rint", name, f"round_mode must be 'rint', but is {round_mode!r}")
    dtype = numbered(name, "dst_type", dst_type, (torch.int8,))
    _check_plain(name, None, dst_type_max=dst_type_max)
    if (row_block_size, col_block_size) != (1, _COLUMNS):
        raise NotImplementedError(
            f"{name}: row_block_size and col_block_size must be 1 and 128, not {row_block_size} and {col_block_size}"
        )
    columns = x.shape[-1]
    blocks = -(-columns // _COLUMNS)
    wide = torch.nn.functional.pad(x.detach().float(), (0, blocks * _COLUMNS - columns))
    wide = wide.unflatten(-1, (blocks, _COLUMNS))
    scale = (wide.abs().amax(-1, keepdim=True) / LARGEST[dtype]).clamp(min=min_scale)
    numbers = rounded(name, wide / torch.where(scale == 0, 1.0, scale), dtype)
    return numbers.flatten(-2)[..., :columns].contiguous(), scale.squeeze(-1)


@operator(
    "npu_dynamic_mx_quant(Tensor input, *, int axis=-1, str round_mode='rint', int dst_type=296, int block_size=32, "
    "int? scale_alg=0, float dst_type_max=0.0, float max_low_bound=0.0) -> (Tensor, Tensor)"
)
def npu_dynamic_mx_quant(
    input,
    *,
    axis=-1,
    round_mode="rint",
    dst_type=296,
    block_size=32,
    scale_alg=0,
    dst_type_max=0.0,
    max_low_bound=0.0,
) -> tuple[Tensor, Tensor]:
    r"""
    Each 32 numbers along an axis over a power of two: 2 ** (floor(log2(largest)) - exponent of the dtype's largest).

    Args:
        input: float16 or bfloat16.
        axis: where the blocks lie.
        round_mode: "rint", and for float4_e2m1fn_x2 "round" and "floor".
        dst_type: float4_e2m1fn_x2 (296), float8_e5m2 (291 or 23) or float8_e4m3fn (292 or 24).
        block_size: must be 32.
        scale_alg: must be 0.
        dst_type_max: must be 0.
        max_low_bound: must be 0.

    Returns:
        The numbers, like ``input``; float4_e2m1fn_x2 is uint8, two in each along the last dimension, the first in the
        lower bits. The scales, bytes of E8M0 as uint8: pairs of blocks along the axis, and a dimension of 2 at the end;
        a block too many has 0.

    Raises:
        RuntimeError: for dtypes or shapes that do not fit.
        NotImplementedError: for what must be 0 and is not, another ``dst_type`` or ``block_size``.
    """
    name = "npu_dynamic_mx_quant"
    check_dtype(name, "input", input, _HALVES)
    check(-input.dim() <= axis < input.dim(), name, f"axis must lie within the {input.dim()} dimensions, but is {axis}")
    dtype = numbered(name, "dst_type", dst_type, (_FLOAT4, *FLOAT8))
    if block_size != BLOCK:
        raise NotImplementedError(f"{name}: block_size must be {BLOCK}, not {block_size}")
    _check_plain(name, scale_alg, dst_type_max=dst_type_max, max_low_bound=max_low_bound)
    return blocks_rounded(name, input, axis, dtype, round_mode)


@operator(
    "npu_dynamic_mx_quant_with_dual_axis(Tensor input, *, str round_mode='rint', int dst_type=296, int scale_alg=0, "
    "float? dst_type_max=0.0) -> (Tensor, Tensor, Tensor, Tensor)"
)
def npu_dynamic_mx_quant_with_dual_axis(
    input, *, round_mode="rint", dst_type=296, scale_alg=0, dst_type_max=0.0
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    r"""
    npu_dynamic_mx_quant along the last axis, and along the last but one.

    Args:
        input: of two dimensions or more; float16 or bfloat16.
        round_mode: "rint", and for float4_e2m1fn_x2 "round" and "floor".
        dst_type: float4_e2m1fn_x2 (296), float8_e5m2 (291 or 23) or float8_e4m3fn (292 or 24).
        scale_alg: must be 0.
        dst_type_max: must be 0.

    Returns:
        The numbers and the scales of the last axis, then those of the last but one.

    Raises:
        RuntimeError: for dtypes or shapes that do not fit.
        NotImplementedError: for what must be 0 and is not, and another ``dst_type``.
    """
    name = "npu_dynamic_mx_quant_with_dual_axis"
    check_dtype(name, "input", input, _HALVES)
    check(input.dim() > 1, name, f"input must be of two dimensions or more, but is {tuple(input.shape)}")
    dtype = numbered(name, "dst_type", dst_type, (_FLOAT4, *FLOAT8))
    _check_plain(name, scale_alg, dst_type_max=dst_type_max)
    return (
        *blocks_rounded(name, input, -1, dtype, round_mode),
        *blocks_rounded(name, input, -2, dtype, round_mode),
    )


@operator(
    "npu_dynamic_block_mx_quant(Tensor input, *, str round_mode='rint', int dst_type=296, int scale_alg=0, "
    "float dst_type_max=0.0) -> (Tensor, Tensor, Tensor)"
)
def npu_dynamic_block_mx_quant(
    input, *, round_mode="rint", dst_type=296, scale_alg=0, dst_type_max=0.0
) -> tuple[Tensor, Tensor, Tensor]:
    r"""
    Each 32 by 32 numbers of the last two axes over a power of two, which npu_dynamic_mx_quant tells.

    Args:
        input: of two or three dimensions; float16 or bfloat16.
        round_mode: "rint", and for float4_e2m1fn_x2 "round" and "floor".
        dst_type: float4_e2m1fn_x2 (296), float8_e5m2 (291 or 23) or float8_e4m3fn (292 or 24).
        scale_alg: must be 0.
        dst_type_max: must be 0.

    Returns:
        The numbers, as npu_dynamic_mx_quant gives them; the scale of each block for each of its rows, in pairs along
        the last axis, and for each of its columns, in pairs along the last but one: bytes of E8M0 as uint8.

    Raises:
        RuntimeError: for dtypes or shapes that do not fit.
        NotImplementedError: for what must be 0 and is not, and another ``dst_type``.
    """
    name = "npu_dynamic_block_mx_quant"
    check_dtype(name, "input", input, _HALVES)
    check(input.dim() in (2, 3), name, f"input must be of two or three dimensions, but is {tuple(input.shape)}")
    dtype = numbered(name, "dst_type", dst_type, (_FLOAT4, *FLOAT8))
    check_round_mode(name, round_mode, dtype)
    _check_plain(name, scale_alg, dst_type_max=dst_type_max)
    rows, columns = input.shape[-2:]
    down, across = -(-rows // BLOCK), -(-columns // BLOCK)
    wide = input.detach().float()
    filled = torch.nn.functional.pad(wide, (0, across * BLOCK - columns, 0, down * BLOCK - rows))
    largest = filled.unflatten(-1, (across, BLOCK)).unflatten(-3, (down, BLOCK)).abs().amax((-3, -1))
    exponent, byte = block_exponents(largest, dtype)

    def over_rows(table: Tensor) -> Tensor:
        return table.repeat_interleave(BLOCK, -2)[..., :rows, :]

    def over_columns(table: Tensor) -> Tensor:
        return table.repeat_interleave(BLOCK, -1)[..., :columns]

    each, finite = over_rows(over_columns(exponent)), over_rows(over_columns(torch.isfinite(largest)))
    numbers = over_powers(name, wide, each, finite, dtype, round_mode, input.shape)
    by_row = torch.nn.functional.pad(over_rows(byte), (0, across % 2)).unflatten(-1, (-1, 2))
    by_column = torch.nn.functional.pad(over_columns(byte), (0, 0, 0, down % 2)).unflatten(-2, (-1, 2))
    return numbers, by_row, by_column.movedim(-2, -1).contiguous()


@operator(
    "npu_dynamic_dual_level_mx_quant(Tensor input, *, Tensor? smooth_scale=None, str round_mode='rint') "
    "-> (Tensor, Tensor, Tensor)"
)
def npu_dynamic_dual_level_mx_quant(input, *, smooth_scale=None, round_mode="rint") -> tuple[Tensor, Tensor, Tensor]:
    r"""
    Each 512 numbers of a row over largest / 6, in the dtype of ``input``; then each 32 of them over a power of two, as
    float4_e2m1fn_x2.

    Args:
        input: of 1 to 7 dimensions, the last one even; float16 or bfloat16.
        smooth_scale: must be None.
        round_mode: "rint", "round" or "floor".

    Returns:
        The numbers, uint8, two in each along the last dimension, the first in the lower bits; the first scales,
        float32, one for each 512 numbers; the second ones, bytes of E8M0 as uint8, in pairs of blocks.

    Raises:
        RuntimeError: for dtypes or shapes that do not fit.
        NotImplementedError: for ``smooth_scale`` and another ``round_mode``.
    """
    name = "npu_dynamic_dual_level_mx_quant"
    if smooth_scale is not None:
        raise NotImplementedError(f"{name}: smooth_scale must be None")
    check_dtype(name, "input", input, _HALVES)
    length = input.shape[-1]
    blocks = -(-length // _WIDE_BLOCK)
    wide = torch.nn.functional.pad(input.detach().float(), (0, blocks * _WIDE_BLOCK - length))
    wide = wide.unflatten(-1, (blocks, _WIDE_BLOCK))
    scale = wide.abs().amax(-1, keepdim=True) / LARGEST[_FLOAT4]
    level = (wide / torch.where(scale == 0, 1.0, scale)).to(input.dtype).flatten(-2)[..., :length]
    numbers, bytes_of = blocks_rounded(name, level, -1, _FLOAT4, round_mode)
    return numbers, scale.squeeze(-1), bytes_of


@operator("npu_anti_mx_quant(Tensor x, Tensor mxscale, *, int? axis=-1, int? dst_type=15, int? src_type=292) -> Tensor")
def npu_anti_mx_quant(x, mxscale, *, axis=-1, dst_type=15, src_type=292) -> Tensor:
    r"""
    The numbers again that npu_dynamic_mx_quant made small: each times the scale of its block.

    Args:
        x: float8_e4m3fn or float8_e5m2; or uint8 that holds two numbers of float4_e2m1fn_x2.
        mxscale: bytes of E8M0, as npu_dynamic_mx_quant gives them.
        axis: where the blocks lie.
        dst_type: bfloat16 (15), float16 (5) or float32 (6).
        src_type: what x holds: float8_e4m3fn (292 or 24), float8_e5m2 (291 or 23) or float4_e2m1fn_x2 (296).

    Returns:
        A tensor of ``dst_type``, like ``x`` or with twice its last dimension.

    Raises:
        RuntimeError: for dtypes or shapes that do not fit.
        NotImplementedError: for another ``dst_type`` or ``src_type``.
    """
    name = "npu_anti_mx_quant"
    result = numbered(name, "dst_type", dst_type, (torch.bfloat16, torch.float16, torch.float32))
    source = numbered(name, "src_type", src_type, (torch.float8_e4m3fn, torch.float8_e5m2, _FLOAT4))
    if source is _FLOAT4:
        numbers = float4(x.view(torch.uint8))
    else:
        check_dtype(name, "x", x, (source, torch.uint8))
        numbers = (x if x.dtype is source else x.view(source)).float()
    axis = (-1 if axis is None else axis) % numbers.dim()
    check(
        mxscale.dim() == numbers.dim() + 1,
        name,
        f"mxscale must have a dimension more than x, but they are {tuple(mxscale.shape)} and {tuple(x.shape)}",
    )
    return (numbers * block_scales(name, "mxscale", mxscale, axis, numbers.shape[axis])).to(result)
