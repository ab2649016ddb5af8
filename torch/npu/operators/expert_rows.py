r"""Tokens as rows in the order of their experts."""

import torch
from torch import Tensor

from ._checks import check, check_dtype, check_none
from ._numbers import blocks_rounded, by_group, group_of_rows, rounded, rows_rounded
from ._registration import operator

_BLOCK_DTYPES = {2: torch.float8_e5m2, 3: torch.float8_e4m3fn}


def _quantised(name, rows, valid, scale, offset, quant_mode, expert_of_row) -> tuple[Tensor, Tensor]:
    r"""The rows as small numbers, and the scales of the rows."""
    if quant_mode == 0:
        check(
            scale is not None and offset is not None and scale.numel() == 1 and offset.numel() == 1,
            name,
            "quant_mode 0 needs scale and offset of one element each",
        )
        # In float16 throughout, as the page's reference computes it.
        halves = rows.half() * scale.reshape(-1)[0].half() + offset.reshape(-1)[0].half()
        numbers, scales = rounded(name, halves, torch.int8), rows.new_empty(0, dtype=torch.float32)
    elif quant_mode == 1:
        check(offset is None, name, "quant_mode 1 has no offset")
        wide = rows.float()
        if scale is not None:
            check(
                scale.dim() == 2 and scale.shape[1] == rows.shape[1],
                name,
                f"with quant_mode 1 scale must be of shape (1 or experts, {rows.shape[1]}), but is "
                f"{tuple(scale.shape)}",
            )
            wide = wide * (scale if scale.shape[0] == 1 else by_group(scale, expert_of_row))
        numbers, scales = rows_rounded(name, wide, torch.int8)
    else:
        check(scale is None and offset is None, name, f"quant_mode {quant_mode} has neither scale nor offset")
        numbers, scales = blocks_rounded(name, rows, -1, _BLOCK_DTYPES[quant_mode])
        return numbers, scales.flatten(-2).view(torch.float8_e8m0fnu)
    return torch.where(valid.unsqueeze(1), numbers, torch.zeros_like(numbers)), scales


@operator(
    "npu_moe_init_routing_v2(Tensor x, Tensor expert_idx, *, Tensor? scale=None, Tensor? offset=None, "
    "int active_num=-1, int expert_capacity=-1, int expert_num=-1, int drop_pad_mode=0, "
    "int expert_tokens_num_type=0, bool expert_tokens_num_flag=False, int quant_mode=-1, "
    "int[2] active_expert_range=[], int row_idx_type=0, int? x_dtype=None) -> (Tensor, Tensor, Tensor, Tensor)"
)
def npu_moe_init_routing_v2(
    x,
    expert_idx,
    *,
    scale=None,
    offset=None,
    active_num=-1,
    expert_capacity=-1,
    expert_num=-1,
    drop_pad_mode=0,
    expert_tokens_num_type=0,
    expert_tokens_num_flag=False,
    quant_mode=-1,
    active_expert_range=(),
    row_idx_type=0,
    x_dtype=None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    r"""
    Copies each token for each of its experts, in the order of the experts, and may quantise the copies.

    The experts before the active ones sort behind all others; rows that no active expert takes are zeros.

    Args:
        x: tokens, (tokens, width); float16, bfloat16, float32 or int8.
        expert_idx: experts of each token, (tokens, k), int32.
        scale: float32; without quantising a number for each token, (tokens), which is copied along; for ``quant_mode``
            0 a factor, (1); for 1 factors before, (1, width) or (active experts, width).
        offset: float32, (1), for ``quant_mode`` 0 alone.
        active_num: rows of the result at most, all for 0 or -1.
        expert_capacity: rows of each expert, for ``drop_pad_mode`` 1.
        expert_num: the number of experts.
        drop_pad_mode: 0: as many rows as an expert has; 1: ``expert_capacity`` rows, of the first tokens.
        expert_tokens_num_type: the third result holds 0: ends of the experts' rows; 1: their counts; 2: pairs of an
            expert and its count, of those that have rows. 1 with ``drop_pad_mode`` 1, before rows are dropped.
        expert_tokens_num_flag: whether there is a third result.
        quant_mode: -1: none; 0: round(x * scale + offset), int8; 1: int8 with a scale for each row; 2, 3: float8_e5m2,
            float8_e4m3fn with a power of two for each 32 numbers.
        active_expert_range: the first active expert, and the one after the last; empty: all.
        row_idx_type: the second result holds 0: the row of each copy, -1 for none; 1: the copy of each row.
        x_dtype: must be None.

    Returns:
        The rows, (tokens * k or ``active_num``, width), or (experts, capacity, width) with ``drop_pad_mode`` 1; int32,
        (tokens * k); int64, (active experts) or (experts, 2), or an empty tensor; the scales of the rows.

    Raises:
        RuntimeError: for shapes, dtypes or numbers that do not fit.
        NotImplementedError: for another ``quant_mode``.
    """
    name = "npu_moe_init_routing_v2"
    check_none(name, "dtypes that torch does not have are not supported", x_dtype=x_dtype)
    check_dtype(name, "x", x, (torch.float16, torch.bfloat16, torch.float32, torch.int8))
    check_dtype(name, "expert_idx", expert_idx, (torch.int32,))
    check(
        x.dim() == 2 and expert_idx.dim() == 2 and x.shape[0] == expert_idx.shape[0],
        name,
        f"x must be (tokens, width) and expert_idx (tokens, k), but they are {tuple(x.shape)} and "
        f"{tuple(expert_idx.shape)}",
    )
    check(expert_num > 0, name, f"expert_num must be positive, but is {expert_num}")
    check(drop_pad_mode in (0, 1), name, f"drop_pad_mode must be 0 or 1, but is {drop_pad_mode}")
    check(row_idx_type in (0, 1), name, f"row_idx_type must be 0 or 1, but is {row_idx_type}")
    check(expert_tokens_num_type in (0, 1, 2), name, "expert_tokens_num_type must be 0, 1 or 2")
    if quant_mode not in (-1, 0, 1, 2, 3):
        raise NotImplementedError(f"{name}: quant_mode must be -1, 0, 1, 2 or 3, not {quant_mode}")
    check(quant_mode == -1 or x.dtype is not torch.int8, name, "x of int8 cannot be quantised: quant_mode must be -1")
    (tokens, width), k = x.shape, expert_idx.shape[1]
    first, after = active_expert_range or (0, expert_num)
    check(
        0 <= first < after <= expert_num,
        name,
        f"active_expert_range must lie within the {expert_num} experts, but is {(first, after)}",
    )
    rows = tokens * k
    flat = expert_idx.reshape(-1).long()
    flat = torch.where(flat < first, 2**31 - 1, flat)
    in_order = torch.sort(flat, stable=True)
    copy_of_row, expert_of_row = in_order.indices, in_order.values - first
    active = expert_of_row < after - first
    experts = torch.arange(after - first, device=x.device)
    ends = torch.searchsorted(expert_of_row, experts, right=True)
    counts = torch.diff(ends, prepend=ends.new_zeros(1))
    if drop_pad_mode == 1:
        check(first == 0 and after == expert_num, name, "with drop_pad_mode 1 all experts must be active")
        check(row_idx_type == 0, name, "with drop_pad_mode 1 row_idx_type must be 0")
        check(expert_capacity > 0, name, f"expert_capacity must be positive, but is {expert_capacity}")
        if expert_tokens_num_flag and expert_tokens_num_type != 1:
            raise NotImplementedError(f"{name}: with drop_pad_mode 1 expert_tokens_num_type must be 1")
        place = torch.arange(expert_capacity, device=x.device)
        at = (ends - counts).unsqueeze(1) + place
        valid = (place < counts.unsqueeze(1)).reshape(-1)
        source = copy_of_row.index_select(0, at.clamp(max=rows - 1).reshape(-1))
        expert = experts.repeat_interleave(expert_capacity)
        slots = torch.arange(expert_num * expert_capacity, device=x.device)
        # One place more takes the slots that are not filled.
        row_idx = torch.full((rows + 1,), -1, dtype=torch.int64, device=x.device)
        row_idx = row_idx.scatter(0, torch.where(valid, source, rows), slots)[:rows]
    else:
        check(active_num >= -1, name, f"active_num must be -1 or more, but is {active_num}")
        kept = min(active_num, rows) if active_num > 0 else rows
        source, valid, expert = copy_of_row[:kept], active[:kept], expert_of_row[:kept].clamp(max=after - first)
        row_idx = copy_of_row
        if row_idx_type == 0:
            numbers = torch.arange(rows, device=x.device)
            row_idx = torch.empty_like(copy_of_row).scatter(0, copy_of_row, torch.where(active, numbers, -1))
    token = torch.div(source, k, rounding_mode="floor")
    expanded = torch.where(valid.unsqueeze(1), x.index_select(0, token), torch.zeros_like(x[:1]))
    scales = x.new_empty(0, dtype=torch.float32)
    if quant_mode != -1:
        expanded, scales = _quantised(name, expanded, valid, scale, offset, quant_mode, expert)
    else:
        check(offset is None, name, "without quantising there is no offset")
        if scale is not None:
            check(scale.shape == (tokens,), name, f"scale must be of shape ({tokens},), but is {tuple(scale.shape)}")
            scales = torch.where(valid, scale.index_select(0, token), torch.zeros_like(scale[:1]))
    if drop_pad_mode == 1:
        expanded = expanded.view(expert_num, expert_capacity, width)
    if not expert_tokens_num_flag:
        told = counts.new_empty(0)
    elif expert_tokens_num_type == 2:
        # Those that have rows first, in their order; then zeros.
        present = torch.sort((counts > 0).long(), descending=True, stable=True).indices
        pairs = torch.stack(((experts + first).index_select(0, present), counts.index_select(0, present)), 1)
        pairs = torch.where(pairs[:, 1:] > 0, pairs, torch.zeros_like(pairs))
        told = torch.nn.functional.pad(pairs, (0, 0, 0, expert_num - pairs.shape[0]))
    else:
        told = counts if expert_tokens_num_type == 1 else ends
    return expanded, row_idx.int(), told, scales


@operator(
    "npu_moe_re_routing(Tensor tokens, Tensor expert_token_num_per_rank, *, Tensor? per_token_scales=None, "
    "int expert_token_num_type=1, int idx_type=0, int? tokens_dtype=None) -> (Tensor, Tensor, Tensor, Tensor)"
)
def npu_moe_re_routing(
    tokens,
    expert_token_num_per_rank,
    *,
    per_token_scales=None,
    expert_token_num_type=1,
    idx_type=0,
    tokens_dtype=None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    r"""
    Reorders tokens that came by rank, and by expert within a rank, so that they lie by expert.

    Args:
        tokens: (tokens, width); float16, bfloat16 or int8.
        expert_token_num_per_rank: the tokens for each expert from each rank, (ranks, experts); int32 or int64.
        per_token_scales: a number for each token, (tokens), float32.
        expert_token_num_type: must be 1: counts.
        idx_type: must be 0: the place that a token had.
        tokens_dtype: must be None.

    Returns:
        The tokens; their scales, or an empty tensor; the place that each had, (tokens), int32; the tokens of each
        expert, (experts), like ``expert_token_num_per_rank``. Tokens after the last count stay where they are.

    Raises:
        RuntimeError: for shapes or dtypes that do not fit.
    """
    name = "npu_moe_re_routing"
    check_none(name, "dtypes that torch does not have are not supported", tokens_dtype=tokens_dtype)
    check_dtype(name, "tokens", tokens, (torch.float16, torch.bfloat16, torch.int8))
    counts = expert_token_num_per_rank
    check_dtype(name, "expert_token_num_per_rank", counts, (torch.int32, torch.int64))
    check(
        tokens.dim() == 2 and counts.dim() == 2,
        name,
        f"tokens must be (tokens, width) and expert_token_num_per_rank (ranks, experts), but they are "
        f"{tuple(tokens.shape)} and {tuple(counts.shape)}",
    )
    check(expert_token_num_type == 1, name, f"expert_token_num_type must be 1, but is {expert_token_num_type}")
    check(idx_type == 0, name, f"idx_type must be 0, but is {idx_type}")
    ranks, experts = counts.shape
    run = group_of_rows(counts.reshape(-1).long().cumsum(0), tokens.shape[0])
    expert = torch.where(run < ranks * experts, run % experts, experts)
    places = torch.sort(expert, stable=True).indices
    scales = tokens.new_empty(0, dtype=torch.float32)
    if per_token_scales is not None:
        check(
            per_token_scales.shape == tokens.shape[:1],
            name,
            f"per_token_scales must be of shape ({tokens.shape[0]},), but is {tuple(per_token_scales.shape)}",
        )
        scales = per_token_scales.index_select(0, places)
    return tokens.index_select(0, places), scales, places.int(), counts.sum(0, dtype=counts.dtype)


@operator(
    "npu_moe_init_routing_quant(Tensor x, Tensor expert_idx, *, Tensor? scale=None, Tensor? offset=None, "
    "int active_num=1024, int expert_capacity=0, int expert_num=256, int drop_pad_mode=0, "
    "int expert_tokens_num_mode=0, bool expert_tokens_before_capacity_flag=False, int quant_mode=1) "
    "-> (Tensor, Tensor, Tensor, Tensor, Tensor)"
)
def npu_moe_init_routing_quant(
    x,
    expert_idx,
    *,
    scale=None,
    offset=None,
    active_num=1024,
    expert_capacity=0,
    expert_num=256,
    drop_pad_mode=0,
    expert_tokens_num_mode=0,
    expert_tokens_before_capacity_flag=False,
    quant_mode=1,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    r"""
    npu_moe_init_routing_v2 of all experts with bytes as result.

    Args:
        x: tokens, (tokens, width); float16, bfloat16 or float32.
        expert_idx: experts of each token, (tokens, k), int32.
        scale: float32; for ``quant_mode`` 0 a factor, (1); for 1 factors before, (1, width) or (experts, width).
        offset: float32, (1), for ``quant_mode`` 0 alone.
        active_num: rows of the result at most, all for 0; with ``drop_pad_mode`` 0.
        expert_capacity: rows of each expert, for ``drop_pad_mode`` 1.
        expert_num: the number of experts.
        drop_pad_mode: 0: as many rows as an expert has; 1: ``expert_capacity`` rows, of the first tokens.
        expert_tokens_num_mode: with ``drop_pad_mode`` 0 the third result holds 0: nothing; 1: ends of the experts'
            rows; 2: their counts.
        expert_tokens_before_capacity_flag: with ``drop_pad_mode`` 1: whether the fourth result holds the counts.
        quant_mode: 0: round(x * scale + offset); 1: with a scale for each row.

    Returns:
        int8, (tokens * k or ``active_num``, width), or (experts, capacity, width); the row of each copy, -1 for none,
        int32; two results of (experts), int32, or empty tensors; the scales of the rows.

    Raises:
        RuntimeError: for shapes, dtypes or numbers that do not fit.
    """
    name = "npu_moe_init_routing_quant"
    check(quant_mode in (0, 1), name, f"quant_mode must be 0 or 1, but is {quant_mode}")
    check(
        expert_tokens_num_mode in (0, 1, 2),
        name,
        f"expert_tokens_num_mode must be 0, 1 or 2, but is {expert_tokens_num_mode}",
    )
    check(active_num >= 0, name, f"active_num must be 0 or more, but is {active_num}")
    rows, places, counts, scales = npu_moe_init_routing_v2(
        x,
        expert_idx,
        scale=scale,
        offset=offset,
        active_num=active_num,
        expert_capacity=expert_capacity,
        expert_num=expert_num,
        drop_pad_mode=drop_pad_mode,
        expert_tokens_num_type=1,
        expert_tokens_num_flag=True,
        quant_mode=quant_mode,
    )
    counts = counts.int()
    told = before = counts.new_empty(0)
    if drop_pad_mode == 1:
        before = counts if expert_tokens_before_capacity_flag else before
    elif expert_tokens_num_mode:
        told = counts if expert_tokens_num_mode == 2 else counts.cumsum(0, dtype=torch.int32)
    return rows, places, told, before, scales
