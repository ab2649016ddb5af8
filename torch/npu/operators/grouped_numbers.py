r"""Rows in groups as numbers of eight and four bits, with scales for blocks that end where a group ends."""

import torch
from torch import Tensor

from ._checks import check, check_dtype
from ._numbers import (
    BLOCK,
    FLOAT8,
    LARGEST,
    block_exponents,
    check_round_mode,
    group_ends,
    group_of_rows,
    numbered,
    over_powers,
    rounded,
)
from ._registration import operator

_HALVES = (torch.float16, torch.bfloat16)
_FLOAT4 = torch.float4_e2m1fn_x2
# What comes out for a pair of blocks has one row.
_PAIR = 2 * BLOCK


class RowBlocks:
    r"""
    Blocks of rows that lie within groups. The first block of a group comes after as many as whole ones fit before it,
    and one more for each group before; so a group's blocks do not depend on how the groups before are filled.
    """

    def __init__(self, ends: Tensor, rows: int, size: int, unit: int):
        r"""``unit``: blocks of ``size`` rows that lie side by side."""
        groups, device = ends.shape[0], ends.device
        starts = torch.nn.functional.pad(ends, (1, 0))[:-1]
        first = (torch.div(starts, size * unit, rounding_mode="floor") + torch.arange(groups, device=device)) * unit
        self.count = (rows // (size * unit) + groups) * unit
        at = torch.arange(self.count, device=device)
        group = (torch.searchsorted(first, at, right=True) - 1).clamp(min=0)
        within = (at - first[group]).unsqueeze(1) * size + torch.arange(size, device=device)
        held = starts[group].unsqueeze(1) + within
        self.valid = held < ends[group].unsqueeze(1)
        self.rows = torch.where(self.valid, held, 0)
        own = group_of_rows(ends, rows)
        self.grouped = own < groups
        own = own.clamp(max=groups - 1)
        block = first[own] + torch.div(torch.arange(rows, device=device) - starts[own], size, rounding_mode="floor")
        self.of_row = torch.where(self.grouped, block, 0)

    def largest(self, x: Tensor) -> Tensor:
        r"""Of x, (..., rows, n), the largest absolute numbers of each block, (..., blocks, n)."""
        held = x.abs().index_select(-2, self.rows.flatten()).unflatten(-2, self.rows.shape)
        return torch.where(self.valid.unsqueeze(-1), held, 0.0).amax(-2)


def grouped_blocks_rounded(
    name: str, x: Tensor, ends: Tensor, dtype: torch.dtype, round_mode: str, scale_alg: int
) -> tuple[Tensor, Tensor]:
    r"""Blocks of 32 rows of x, (rows, n), within groups; numbers, and bytes of E8M0, (rows // 64 + groups, n, 2)."""
    check_round_mode(name, round_mode, dtype)
    wide = x.detach().float()
    blocks = RowBlocks(ends, x.shape[0], BLOCK, 2)
    largest = blocks.largest(wide)
    exponent, byte = block_exponents(largest, dtype, scale_alg)
    finite = torch.isfinite(largest).index_select(0, blocks.of_row) & blocks.grouped.unsqueeze(1)
    each = exponent.index_select(0, blocks.of_row)
    numbers = over_powers(name, wide, each, finite, dtype, round_mode, x.shape)
    return numbers, byte.unflatten(0, (blocks.count // 2, 2)).movedim(1, -1).contiguous()


@operator(
    "npu_grouped_dynamic_mx_quant(Tensor x, Tensor group_index, *, str round_mode='rint', int dst_type=23, "
    "int blocksize=32, int? scale_alg=0, float? dst_type_max=0.0) -> (Tensor, Tensor)"
)
def npu_grouped_dynamic_mx_quant(
    x, group_index, *, round_mode="rint", dst_type=23, blocksize=32, scale_alg=0, dst_type_max=0.0
) -> tuple[Tensor, Tensor]:
    r"""
    npu_dynamic_mx_quant along the rows, with blocks that end where a group of rows ends.

    Args:
        x: (rows, n); float16 or bfloat16.
        group_index: where each group of rows ends, (groups), int32; the last one is the number of rows.
        round_mode: "rint", and for float4_e2m1fn_x2 "round" and "floor".
        dst_type: float8_e5m2 (23 or 291), float8_e4m3fn (24 or 292) or float4_e2m1fn_x2 (296).
        blocksize: must be 32.
        scale_alg: 0, or with float8 1: the first power of two by which nothing exceeds the dtype's largest number.
        dst_type_max: must be 0.

    Returns:
        The numbers, like ``x``; float4_e2m1fn_x2 is uint8, two in each along the last dimension. The scales, bytes of
        E8M0 as uint8, (rows // 64 + groups, n, 2): those of a group begin at row (its first row) // 64 + its number;
        what belongs to no block is 0.

    Raises:
        RuntimeError: for dtypes or shapes that do not fit.
        NotImplementedError: for another ``blocksize``, ``scale_alg`` or ``dst_type_max``.
    """
    name = "npu_grouped_dynamic_mx_quant"
    check_dtype(name, "x", x, _HALVES)
    check(x.dim() == 2, name, f"x must be of two dimensions, but is {tuple(x.shape)}")
    dtype = numbered(name, "dst_type", dst_type, (torch.float8_e5m2, torch.float8_e4m3fn, _FLOAT4))
    algs = (0, 1) if dtype in FLOAT8 else (0,)
    for argument, value, allowed in (
        ("blocksize", blocksize, (BLOCK,)),
        ("scale_alg", scale_alg or 0, algs),
        ("dst_type_max", dst_type_max or 0.0, (0.0,)),
    ):
        if value not in allowed:
            raise NotImplementedError(f"{name}: {argument} must be one of {allowed}, not {value}")
    ends = group_ends(name, group_index, 0)
    return grouped_blocks_rounded(name, x, ends, dtype, round_mode, scale_alg or 0)


@operator(
    "npu_grouped_dynamic_block_quant(Tensor x, Tensor group_list, *, float min_scale=0.0, str round_mode='rint', "
    "int dst_type=291, int row_block_size=1, int col_block_size=128, int group_list_type=0, float dst_type_max=0.0) "
    "-> (Tensor, Tensor)"
)
def npu_grouped_dynamic_block_quant(
    x,
    group_list,
    *,
    min_scale=0.0,
    round_mode="rint",
    dst_type=291,
    row_block_size=1,
    col_block_size=128,
    group_list_type=0,
    dst_type_max=0.0,
) -> tuple[Tensor, Tensor]:
    r"""
    x / scale as float8, with scale = min(largest number / the dtype's largest, 1 / ``min_scale``) of each block.

    Args:
        x: (rows, n) or (batch, rows, n); float16 or bfloat16.
        group_list: where each group of rows ends, (groups), int32; the last one is the number of rows.
        min_scale: 0 or more; 0: scales have no bound.
        round_mode: must be "rint".
        dst_type: float8_e5m2 (291 or 23) or float8_e4m3fn (292 or 24).
        row_block_size: 1, 128, 256 or 512; blocks end where a group ends.
        col_block_size: 64, 128, 192 or 256.
        group_list_type: must be 0: ends.
        dst_type_max: must be 0.

    Returns:
        The numbers, like ``x``; the scales, float32, (rows // row_block_size + groups, blocks of columns), batched as
        ``x`` is: those of a group begin at row (its first row) // row_block_size + its number; others are 0.

    Raises:
        RuntimeError: for dtypes, shapes or numbers that do not fit.
        NotImplementedError: for another ``group_list_type``, ``dst_type_max`` or ``round_mode``.
    """
    name = "npu_grouped_dynamic_block_quant"
    check_dtype(name, "x", x, _HALVES)
    check(x.dim() in (2, 3), name, f"x must be of two or three dimensions, but is {tuple(x.shape)}")
    check(min_scale >= 0, name, f"min_scale must be 0 or more, but is {min_scale}")
    check(
        row_block_size in (1, 128, 256, 512) and col_block_size in (64, 128, 192, 256),
        name,
        "row_block_size must be 1, 128, 256 or 512 and col_block_size 64, 128, 192 or 256, but they are "
        f"{row_block_size} and {col_block_size}",
    )
    dtype = numbered(name, "dst_type", dst_type, (torch.float8_e5m2, torch.float8_e4m3fn))
    check_round_mode(name, round_mode, dtype)
    if group_list_type != 0 or dst_type_max != 0:
        raise NotImplementedError(
            f"{name}: group_list_type and dst_type_max must be 0, not {group_list_type} and {dst_type_max}"
        )
    ends = group_ends(name, group_list, 0)
    rows, columns = x.shape[-2:]
    wide = x.detach().float()
    blocks = RowBlocks(ends, rows, row_block_size, 1)
    across = -(-columns // col_block_size)
    largest = torch.nn.functional.pad(blocks.largest(wide), (0, across * col_block_size - columns))
    scale = largest.unflatten(-1, (across, col_block_size)).amax(-1) / LARGEST[dtype]
    if min_scale > 0:
        scale = scale.clamp(max=1 / min_scale)
    each = scale.index_select(-2, blocks.of_row).repeat_interleave(col_block_size, -1)[..., :columns]
    numbers = torch.where(blocks.grouped.unsqueeze(1), wide / torch.where(each == 0, 1.0, each), 0.0)
    return rounded(name, numbers, dtype), scale
