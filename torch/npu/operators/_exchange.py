r"""
Tokens sent to the ranks of their experts, and what the experts made of them brought back.

Each rank sends every other one as many rows, those that it has for it first, so that the host need not know how many
there are. Both ways a row takes the same place among the rows of two ranks: `slots` tells it to the rank that the
token is of, `counts` to the rank of the expert.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from ._checks import check, check_dtype
from ._groups import exchanged, group_named
from ._numbers import by_group, group_of_rows, rows_rounded

_HALVES = (torch.float16, torch.bfloat16)
# What npu_moe_distribute_dispatch_v2 hands on for each row; one number of it is used.
ASSIST = 128


@dataclass
class Exchange:
    r"""What both ways of the exchange need to know."""

    group: str
    ranks: int
    experts: int
    # Rows between two ranks.
    block: int

    @property
    def rows(self) -> int:
        return self.ranks * self.block


def exchange(name, expert_ids, group_ep, ranks, rank, expert_num, global_bs, reserved: dict) -> Exchange:
    check_dtype(name, "expert_ids", expert_ids, (torch.int32,))
    check(expert_ids.dim() == 2, name, f"expert_ids must be of two dimensions, but is {tuple(expert_ids.shape)}")
    for argument, value in reserved.items():
        if value:
            raise NotImplementedError(f"{name}: {argument} must have its default, not {value!r}")
    check(0 <= rank < ranks, name, f"ep_rank_id must be below ep_world_size, {ranks}, but is {rank}")
    check(
        expert_num > 0 and expert_num % ranks == 0,
        name,
        f"moe_expert_num must be a multiple of the {ranks} ranks, but is {expert_num}",
    )
    tokens, k = expert_ids.shape
    check(global_bs % ranks == 0, name, f"global_bs must be a multiple of the {ranks} ranks, but is {global_bs}")
    most = global_bs // ranks or tokens
    check(tokens <= most, name, f"global_bs is for {most} tokens of a rank, but there are {tokens}")
    experts = expert_num // ranks
    return Exchange(group_named(name, group_ep, ranks), ranks, experts, most * min(experts, k))


def active(name: str, expert_ids: Tensor, mask: Tensor) -> Tensor:
    check(
        mask.dtype is torch.bool and mask.shape in (expert_ids.shape, expert_ids.shape[:1]),
        name,
        f"x_active_mask must be bool of shape {tuple(expert_ids.shape)} or {tuple(expert_ids.shape[:1])}",
    )
    return mask if mask.dim() == 2 else mask.unsqueeze(1).expand(expert_ids.shape)


def _slots(name: str, where: Exchange, expert_ids: Tensor, mask: Tensor | None) -> Tensor:
    r"""The slot of each choice, or the number of slots if it is not sent."""
    flat = expert_ids.reshape(-1).long()
    expert_num = where.ranks * where.experts
    if mask is not None:
        flat = torch.where(active(name, expert_ids, mask).reshape(-1), flat, expert_num)
    # Experts that are on no rank have the numbers after the others.
    in_order = torch.sort(flat.clamp(max=expert_num), stable=True)
    rank = torch.div(in_order.values, where.experts, rounding_mode="floor")
    first = torch.searchsorted(rank, torch.arange(where.ranks + 1, device=flat.device))
    place = torch.arange(flat.shape[0], device=flat.device) - first.index_select(0, rank)
    slots_in_order = torch.where(in_order.values < expert_num, rank * where.block + place, where.rows)
    return torch.empty_like(slots_in_order).scatter(0, in_order.indices, slots_in_order)


def _in_slots(where: Exchange, rows: Tensor, slots: Tensor, fill: int = 0) -> Tensor:
    r"""Rows at their slots, by rank; one slot more takes what is not sent."""
    made = torch.full((where.rows + 1, *rows.shape[1:]), fill, dtype=rows.dtype, device=rows.device)
    return made.index_copy(0, slots, rows)[: where.rows].unflatten(0, (where.ranks, where.block))


def dispatched(name, where, rank, x, expert_ids, scales, mask, expert_scales, quant_mode, nums_type):
    check_dtype(name, "x", x, _HALVES)
    check(
        x.dim() == 2 and x.shape[0] == expert_ids.shape[0],
        name,
        f"x must be (tokens, width) as expert_ids are (tokens, k), but they are {tuple(x.shape)} and "
        f"{tuple(expert_ids.shape)}",
    )
    if quant_mode not in (0, 2):
        raise NotImplementedError(f"{name}: quant_mode must be 0 or 2, not {quant_mode}")
    check(nums_type in (0, 1), name, f"expert_token_nums_type must be 0 or 1, but is {nums_type}")
    check(scales is None or quant_mode == 2, name, "scales go with quant_mode 2")
    tokens, k = expert_ids.shape
    expert_num = where.ranks * where.experts
    x = x.detach()
    slots = _slots(name, where, expert_ids, mask)
    copies = x.unsqueeze(1).expand(-1, k, -1).reshape(tokens * k, -1)
    by_row = None
    if quant_mode == 2:
        copies = copies.float()
        if scales is not None:
            wanted = (expert_num, x.shape[1])
            check(scales.shape == wanted, name, f"scales must be of shape {wanted}, but are {tuple(scales.shape)}")
            copies = copies * scales.float().index_select(0, expert_ids.reshape(-1).long().clamp(max=expert_num - 1))
        copies, by_row = rows_rounded(name, copies, torch.int8)
    rows = exchanged(_in_slots(where, copies, slots), where.group).flatten(0, 1)
    ids = expert_ids.reshape(-1).int()
    ids = exchanged(_in_slots(where, ids, slots, fill=expert_num), where.group).reshape(-1)
    # Rows by expert here, those of a rank in the order in which it has sent them; empty slots last.
    local = torch.where(ids == expert_num, where.experts, ids.long() - rank * where.experts)
    in_order = torch.sort(local, stable=True)

    def arrived(values: Tensor | None) -> Tensor:
        if values is None:
            return x.new_empty(0, dtype=torch.float32)
        got = exchanged(_in_slots(where, values, slots), where.group).reshape(-1)
        return got.index_select(0, in_order.indices)

    runs = in_order.values * where.ranks + torch.div(in_order.indices, where.block, rounding_mode="floor")
    ends = torch.searchsorted(runs, torch.arange(where.experts * where.ranks, device=x.device), right=True)
    expert_ends = ends[where.ranks - 1 :: where.ranks]
    nums = expert_ends if nums_type == 0 else torch.diff(expert_ends, prepend=expert_ends.new_zeros(1))
    if expert_scales is not None:
        check(expert_scales.shape == expert_ids.shape, name, "expert_scales must have the shape of expert_ids")
        expert_scales = expert_scales.float().reshape(-1)
    return (
        rows.index_select(0, in_order.indices),
        arrived(by_row),
        slots.int(),
        nums,
        ends.int(),
        x.new_zeros(1, dtype=torch.int32),
        arrived(expert_scales),
    )


def combined(name, where, expand_x, expert_ids, slots, ends, expert_scales, mask=None) -> Tensor:
    r"""The sum of what the experts made of each token, float32."""
    check_dtype(name, "expand_x", expand_x, _HALVES)
    check(
        expand_x.dim() == 2 and expand_x.shape[0] >= where.rows,
        name,
        f"expand_x must have the {where.rows} rows that were dispatched, but is {tuple(expand_x.shape)}",
    )
    check(
        ends.shape == (where.ranks * where.experts,),
        name,
        f"ep_send_counts must be of shape ({where.ranks * where.experts},), but is {tuple(ends.shape)}",
    )
    check(expert_scales.shape == expert_ids.shape, name, "expert_scales must have the shape of expert_ids")
    tokens, k = expert_ids.shape
    rows, ends = expand_x.detach()[: where.rows], ends.long()
    run = group_of_rows(ends, where.rows)
    empty = run == where.ranks * where.experts
    source = torch.where(empty, where.ranks, run % where.ranks)
    # The place of a row among those of its rank: how many of them come before it.
    by_source = torch.sort(source, stable=True)
    first = torch.searchsorted(by_source.values, torch.arange(where.ranks + 1, device=rows.device))
    place = torch.arange(where.rows, device=rows.device) - first.index_select(0, by_source.values)
    slot = torch.where(by_source.values < where.ranks, by_source.values * where.block + place, where.rows)
    back = exchanged(_in_slots(where, rows.index_select(0, by_source.indices), slot), where.group).flatten(0, 1)
    # The slot after the last one belongs to what was not sent, and is zero.
    each = by_group(back, slots.long()).view(tokens, k, -1).float()
    weights = expert_scales.float()
    if mask is not None:
        weights = torch.where(active(name, expert_ids, mask), weights, 0.0)
    return (each * weights.unsqueeze(-1)).sum(1)
