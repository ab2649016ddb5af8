r"""Tokens sent to the ranks of their experts."""

import torch
from torch import Tensor

from ._checks import check_none
from ._exchange import ASSIST, dispatched, exchange
from ._registration import operator


@operator(
    "npu_moe_distribute_dispatch(Tensor x, Tensor expert_ids, str group_ep, int ep_world_size, int ep_rank_id, "
    "int moe_expert_num, *, Tensor? scales=None, Tensor? x_active_mask=None, Tensor? expert_scales=None, "
    "str group_tp='', int tp_world_size=0, int tp_rank_id=0, int expert_shard_type=0, int shared_expert_num=1, "
    "int shared_expert_rank_num=0, int quant_mode=0, int global_bs=0, int expert_token_nums_type=1) "
    "-> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)"
)
def npu_moe_distribute_dispatch(
    x,
    expert_ids,
    group_ep,
    ep_world_size,
    ep_rank_id,
    moe_expert_num,
    *,
    scales=None,
    x_active_mask=None,
    expert_scales=None,
    group_tp="",
    tp_world_size=0,
    tp_rank_id=0,
    expert_shard_type=0,
    shared_expert_num=1,
    shared_expert_rank_num=0,
    quant_mode=0,
    global_bs=0,
    expert_token_nums_type=1,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    r"""
    Sends each token to the ranks of its experts. npu_moe_distribute_combine brings back what these make of it.

    Args:
        x: tokens of the rank, (tokens, width); float16 or bfloat16.
        expert_ids: different experts for each token, (tokens, k), int32.
        group_ep: what get_hccl_comm_name of the group's back end gives.
        ep_world_size: the group's ranks.
        ep_rank_id: this rank.
        moe_expert_num: the number of experts, a multiple of the ranks, which have as many each.
        scales: with ``quant_mode`` 2: factors before, (experts, width), float32.
        x_active_mask: must be None.
        expert_scales: a number for each choice, (tokens, k), which is sent along.
        group_tp: of no effect.
        tp_world_size: must be 0 or 1.
        tp_rank_id: must be 0.
        expert_shard_type: must be 0.
        shared_expert_num: of no effect without ranks for shared experts.
        shared_expert_rank_num: must be 0.
        quant_mode: 0: none; 2: int8 with a scale for each row.
        global_bs: the tokens of all ranks, if these have different numbers: the largest number times the ranks.
        expert_token_nums_type: the fourth result holds 0: where an expert's rows end; 1: their number.

    Returns:
        The rows, (ranks * tokens * min(experts of a rank, k), width), by expert, those after the last one being zeros;
        the scales of the rows, or an empty tensor; three results for npu_moe_distribute_combine, the second of them
        for the caller too: (tokens * k), int32; (experts of the rank), int64; (ranks * experts of the rank), int32;
        a tensor of no meaning; ``expert_scales`` of the rows, or an empty tensor.

    Raises:
        RuntimeError: for shapes, dtypes or numbers that do not fit, and a group that does not exist.
        NotImplementedError: for shared experts and other ``quant_mode``.
    """
    name = "npu_moe_distribute_dispatch"
    check_none(name, "it is reserved", x_active_mask=x_active_mask)
    reserved = {
        "tp_world_size": tp_world_size > 1,
        "tp_rank_id": tp_rank_id,
        "expert_shard_type": expert_shard_type,
        "shared_expert_rank_num": shared_expert_rank_num,
    }
    where = exchange(name, expert_ids, group_ep, ep_world_size, ep_rank_id, moe_expert_num, global_bs, reserved)
    return dispatched(
        name, where, ep_rank_id, x, expert_ids, scales, None, expert_scales, quant_mode, expert_token_nums_type
    )


@operator(
    "npu_moe_distribute_dispatch_v2(Tensor x, Tensor expert_ids, str group_ep, int ep_world_size, int ep_rank_id, "
    "int moe_expert_num, *, Tensor? scales=None, Tensor? x_active_mask=None, Tensor? expert_scales=None, "
    "Tensor? elastic_info=None, Tensor? performance_info=None, str group_tp='', int tp_world_size=0, "
    "int tp_rank_id=0, int expert_shard_type=0, int shared_expert_num=1, int shared_expert_rank_num=0, "
    "int quant_mode=0, int global_bs=0, int expert_token_nums_type=1, str comm_alg='', int zero_expert_num=0, "
    "int copy_expert_num=0, int const_expert_num=0, int? y_dtype=None, int? x_dtype=None, int? scales_dtype=None) "
    "-> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)"
)
def npu_moe_distribute_dispatch_v2(
    x,
    expert_ids,
    group_ep,
    ep_world_size,
    ep_rank_id,
    moe_expert_num,
    *,
    scales=None,
    x_active_mask=None,
    expert_scales=None,
    elastic_info=None,
    performance_info=None,
    group_tp="",
    tp_world_size=0,
    tp_rank_id=0,
    expert_shard_type=0,
    shared_expert_num=1,
    shared_expert_rank_num=0,
    quant_mode=0,
    global_bs=0,
    expert_token_nums_type=1,
    comm_alg="",
    zero_expert_num=0,
    copy_expert_num=0,
    const_expert_num=0,
    y_dtype=None,
    x_dtype=None,
    scales_dtype=None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    r"""
    npu_moe_distribute_dispatch for npu_moe_distribute_combine_v2, with tokens that are not sent.

    Args:
        x: tokens of the rank, (tokens, width); float16 or bfloat16.
        expert_ids: different experts for each token, (tokens, k), int32.
        group_ep: what get_hccl_comm_name of the group's back end gives.
        ep_world_size: the group's ranks.
        ep_rank_id: this rank.
        moe_expert_num: the number of experts, a multiple of the ranks, which have as many each.
        scales: with ``quant_mode`` 2: factors before, (experts, width), float32.
        x_active_mask: whether a token, (tokens), or a choice, (tokens, k), is sent, bool; None: all.
        expert_scales: a number for each choice, (tokens, k), which is sent along.
        elastic_info: must be None.
        performance_info: must be None.
        group_tp: of no effect.
        tp_world_size: must be 0 or 1.
        tp_rank_id: must be 0.
        expert_shard_type: must be 0.
        shared_expert_num: of no effect without ranks for shared experts.
        shared_expert_rank_num: must be 0.
        quant_mode: 0: none; 2: int8 with a scale for each row.
        global_bs: the tokens of all ranks, if these have different numbers: the largest number times the ranks.
        expert_token_nums_type: the fourth result holds 0: where an expert's rows end; 1: their number.
        comm_alg: of no effect: there is one way.
        zero_expert_num: experts of no rank, whose numbers follow ``moe_expert_num``; nothing is sent for them.
        copy_expert_num: likewise, with the numbers after those.
        const_expert_num: likewise, with the numbers after those.
        y_dtype: must be None.
        x_dtype: must be None.
        scales_dtype: must be None.

    Returns:
        As npu_moe_distribute_dispatch; the third result is of shape (rows * 128).

    Raises:
        RuntimeError: for shapes, dtypes or numbers that do not fit, and a group that does not exist.
        NotImplementedError: for shared experts and other ``quant_mode``.
    """
    name = "npu_moe_distribute_dispatch_v2"
    check_none(
        name,
        "it is not supported",
        elastic_info=elastic_info,
        performance_info=performance_info,
        y_dtype=y_dtype,
        x_dtype=x_dtype,
        scales_dtype=scales_dtype,
    )
    reserved = {
        "tp_world_size": tp_world_size > 1,
        "tp_rank_id": tp_rank_id,
        "expert_shard_type": expert_shard_type,
        "shared_expert_rank_num": shared_expert_rank_num,
    }
    where = exchange(name, expert_ids, group_ep, ep_world_size, ep_rank_id, moe_expert_num, global_bs, reserved)
    found = dispatched(
        name, where, ep_rank_id, x, expert_ids, scales, x_active_mask, expert_scales, quant_mode, expert_token_nums_type
    )
    slots = found[2]
    assist = torch.nn.functional.pad(slots, (0, where.rows * ASSIST - slots.shape[0]))
    return *found[:2], assist, *found[3:]
