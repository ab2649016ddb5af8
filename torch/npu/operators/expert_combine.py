r"""What experts of other ranks made of tokens, brought back to the ranks of these."""

import torch
from torch import Tensor

from ._checks import check, check_none
from ._exchange import active, combined, exchange
from ._registration import operator


@operator(
    "npu_moe_distribute_combine(Tensor expand_x, Tensor expert_ids, Tensor expand_idx, Tensor ep_send_counts, "
    "Tensor expert_scales, str group_ep, int ep_world_size, int ep_rank_id, int moe_expert_num, *, "
    "Tensor? tp_send_counts=None, Tensor? x_active_mask=None, Tensor? activation_scale=None, "
    "Tensor? weight_scale=None, Tensor? group_list=None, Tensor? expand_scales=None, Tensor? shared_expert_x=None, "
    "str group_tp='', int tp_world_size=0, int tp_rank_id=0, int expert_shard_type=0, int shared_expert_num=1, "
    "int shared_expert_rank_num=0, int global_bs=0, int out_dtype=0, int comm_quant_mode=0, int group_list_type=0) "
    "-> Tensor"
)
def npu_moe_distribute_combine(
    expand_x,
    expert_ids,
    expand_idx,
    ep_send_counts,
    expert_scales,
    group_ep,
    ep_world_size,
    ep_rank_id,
    moe_expert_num,
    *,
    tp_send_counts=None,
    x_active_mask=None,
    activation_scale=None,
    weight_scale=None,
    group_list=None,
    expand_scales=None,
    shared_expert_x=None,
    group_tp="",
    tp_world_size=0,
    tp_rank_id=0,
    expert_shard_type=0,
    shared_expert_num=1,
    shared_expert_rank_num=0,
    global_bs=0,
    out_dtype=0,
    comm_quant_mode=0,
    group_list_type=0,
) -> Tensor:
    r"""
    Brings back the rows that npu_moe_distribute_dispatch has sent, and sums those of each token with its weights.

    Args:
        expand_x: what the experts have made of the rows, (rows, width); float16 or bfloat16.
        expert_ids: as they were dispatched, (tokens, k), int32.
        expand_idx: the third result of the dispatch.
        ep_send_counts: the fifth result of the dispatch.
        expert_scales: a weight for each choice, (tokens, k), float32.
        group_ep: what get_hccl_comm_name of the group's back end gives.
        ep_world_size: the group's ranks.
        ep_rank_id: this rank.
        moe_expert_num: the number of experts.
        tp_send_counts: of no effect.
        x_active_mask: must be None.
        activation_scale: must be None.
        weight_scale: must be None.
        group_list: must be None.
        expand_scales: of no effect: ``expert_scales`` has the weights.
        shared_expert_x: must be None.
        group_tp: of no effect.
        tp_world_size: must be 0 or 1.
        tp_rank_id: must be 0.
        expert_shard_type: must be 0.
        shared_expert_num: of no effect without ranks for shared experts.
        shared_expert_rank_num: must be 0.
        global_bs: as it was.
        out_dtype: must be 0.
        comm_quant_mode: must be 0.
        group_list_type: must be 0.

    Returns:
        (tokens, width), of the dtype of ``expand_x``.

    Raises:
        RuntimeError: for shapes, dtypes or numbers that do not fit, and a group that does not exist.
        NotImplementedError: for shared experts, and what must be None or 0 and is not.
    """
    name = "npu_moe_distribute_combine"
    check_none(
        name,
        "it is reserved",
        x_active_mask=x_active_mask,
        activation_scale=activation_scale,
        weight_scale=weight_scale,
        group_list=group_list,
        shared_expert_x=shared_expert_x,
    )
    reserved = {
        "tp_world_size": tp_world_size > 1,
        "tp_rank_id": tp_rank_id,
        "expert_shard_type": expert_shard_type,
        "shared_expert_rank_num": shared_expert_rank_num,
        "out_dtype": out_dtype,
        "comm_quant_mode": comm_quant_mode,
        "group_list_type": group_list_type,
    }
    where = exchange(name, expert_ids, group_ep, ep_world_size, ep_rank_id, moe_expert_num, global_bs, reserved)
    out = combined(name, where, expand_x, expert_ids, expand_idx, ep_send_counts, expert_scales)
    return out.to(expand_x.dtype)


# The further arguments of the operators below.
_FURTHER = {
    "tp_send_counts": None,
    "x_active_mask": None,
    "activation_scale": None,
    "weight_scale": None,
    "group_list": None,
    "expand_scales": None,
    "shared_expert_x": None,
    "elastic_info": None,
    "ori_x": None,
    "const_expert_alpha_1": None,
    "const_expert_alpha_2": None,
    "const_expert_v": None,
    "performance_info": None,
    "group_tp": "",
    "tp_world_size": 0,
    "tp_rank_id": 0,
    "expert_shard_type": 0,
    "shared_expert_num": 1,
    "shared_expert_rank_num": 0,
    "global_bs": 0,
    "out_dtype": 0,
    "comm_quant_mode": 0,
    "group_list_type": 0,
    "comm_alg": "",
    "norm_eps": 1e-6,
    "zero_expert_num": 0,
    "copy_expert_num": 0,
    "const_expert_num": 0,
}
# Of these, those that have an effect or may have any value.
_TAKEN = (
    "tp_send_counts",
    "x_active_mask",
    "expand_scales",
    "ori_x",
    "const_expert_alpha_1",
    "const_expert_alpha_2",
    "const_expert_v",
    "group_tp",
    "shared_expert_num",
    "global_bs",
    "comm_alg",
    "zero_expert_num",
    "copy_expert_num",
    "const_expert_num",
)


def _checked(name: str, further: dict, *taken: str) -> dict:
    r"""The further arguments with their defaults, none of which differs but those taken."""
    given = {**_FURTHER, **further}
    for argument, default in _FURTHER.items():
        value = given[argument]
        if argument == "tp_world_size" and value == 1:
            continue
        if argument not in (*_TAKEN, *taken) and (value is not None if default is None else value != default):
            raise NotImplementedError(f"{name}: {argument} must be {default!r}, another one is not supported")
    return given


def _without_ranks(name: str, expert_ids: Tensor, scales: Tensor, expert_num: int, given: dict) -> Tensor | None:
    r"""What experts that are on no rank add to each token, float32: nothing, the token, or the token and a constant,
    each with a factor."""
    copies, constants, ori_x = given["copy_expert_num"], given["const_expert_num"], given["ori_x"]
    if not copies and not constants:
        return None
    tokens = expert_ids.shape[0]
    check(ori_x is not None and ori_x.dim() == 2 and ori_x.shape[0] == tokens, name, f"ori_x must be ({tokens}, width)")
    weights, x = scales.float(), ori_x.detach().float()
    if given["x_active_mask"] is not None:
        weights = torch.where(active(name, expert_ids, given["x_active_mask"]), weights, 0.0)
    first_copy = expert_num + given["zero_expert_num"]
    first_constant = first_copy + copies
    ids = expert_ids.long()
    out = torch.where((ids >= first_copy) & (ids < first_constant), weights, 0.0).sum(1, keepdim=True) * x
    if not constants:
        return out
    tables = [given[one] for one in ("const_expert_alpha_1", "const_expert_alpha_2", "const_expert_v")]
    shape = (constants, x.shape[1])
    check(
        all(table is not None and table.shape == shape for table in tables),
        name,
        f"const_expert_alpha_1, const_expert_alpha_2 and const_expert_v must be of shape {shape}",
    )
    of_token, of_constant, constant = (table.detach().float() for table in tables)
    number = ids - first_constant
    weights = torch.where((number >= 0) & (number < constants), weights, 0.0).unsqueeze(-1)
    number = number.clamp(0, constants - 1)
    return out + (weights * (of_token[number] * x.unsqueeze(1) + (of_constant * constant)[number])).sum(1)


def _assisted(name: str, expand_x, expert_ids, assist, ends, scales, group, ranks, rank, expert_num, given) -> Tensor:
    r"""npu_moe_distribute_combine_v2 in float32."""
    where = exchange(name, expert_ids, group, ranks, rank, expert_num, given["global_bs"], {})
    slots = assist[: expert_ids.numel()]
    out = combined(name, where, expand_x, expert_ids, slots, ends, scales, given["x_active_mask"])
    more = _without_ranks(name, expert_ids, scales, expert_num, given)
    return out if more is None else out + more


@operator(
    "npu_moe_distribute_combine_v2(Tensor expand_x, Tensor expert_ids, Tensor assist_info_for_combine, "
    "Tensor ep_send_counts, Tensor expert_scales, str group_ep, int ep_world_size, int ep_rank_id, "
    "int moe_expert_num, *, Tensor? tp_send_counts=None, Tensor? x_active_mask=None, Tensor? expand_scales=None, "
    "Tensor? shared_expert_x=None, Tensor? elastic_info=None, Tensor? ori_x=None, Tensor? const_expert_alpha_1=None, "
    "Tensor? const_expert_alpha_2=None, Tensor? const_expert_v=None, Tensor? performance_info=None, "
    "str group_tp='', int tp_world_size=0, int tp_rank_id=0, int expert_shard_type=0, int shared_expert_num=1, "
    "int shared_expert_rank_num=0, int global_bs=0, int comm_quant_mode=0, str comm_alg='', int zero_expert_num=0, "
    "int copy_expert_num=0, int const_expert_num=0) -> Tensor"
)
def npu_moe_distribute_combine_v2(
    expand_x,
    expert_ids,
    assist_info_for_combine,
    ep_send_counts,
    expert_scales,
    group_ep,
    ep_world_size,
    ep_rank_id,
    moe_expert_num,
    **further,
) -> Tensor:
    r"""
    Brings back the rows that npu_moe_distribute_dispatch_v2 has sent, and sums those of each token with its weights.

    Args:
        expand_x: what the experts have made of the rows, (rows, width); float16 or bfloat16.
        expert_ids: as they were dispatched, (tokens, k), int32.
        assist_info_for_combine: the third result of the dispatch.
        ep_send_counts: the fifth result of the dispatch.
        expert_scales: a weight for each choice, (tokens, k), float32.
        group_ep: what get_hccl_comm_name of the group's back end gives.
        ep_world_size: the group's ranks.
        ep_rank_id: this rank.
        moe_expert_num: the number of experts.
        tp_send_counts: of no effect.
        x_active_mask: as it was; what was not sent counts nothing.
        expand_scales: of no effect: ``expert_scales`` has the weights.
        shared_expert_x: must be None.
        elastic_info: must be None.
        ori_x: the tokens that were dispatched, (tokens, width); with ``copy_expert_num`` and ``const_expert_num``.
        const_expert_alpha_1: factors of the token, (constant experts, width).
        const_expert_alpha_2: factors of the constants, (constant experts, width).
        const_expert_v: constants, (constant experts, width).
        performance_info: must be None.
        group_tp: of no effect.
        tp_world_size: must be 0 or 1.
        tp_rank_id: must be 0.
        expert_shard_type: must be 0.
        shared_expert_num: of no effect without ranks for shared experts.
        shared_expert_rank_num: must be 0.
        global_bs: as it was.
        comm_quant_mode: must be 0.
        comm_alg: of no effect: there is one way.
        zero_expert_num: experts that give nothing, whose numbers follow ``moe_expert_num``.
        copy_expert_num: experts that give the token, with the numbers after those.
        const_expert_num: experts that give alpha_1 * token + alpha_2 * v, with the numbers after those.

    Returns:
        (tokens, width), of the dtype of ``expand_x``.

    Raises:
        RuntimeError: for shapes, dtypes or numbers that do not fit, and a group that does not exist.
        NotImplementedError: for shared experts, and what must be None or 0 and is not.
    """
    name = "npu_moe_distribute_combine_v2"
    where = (group_ep, ep_world_size, ep_rank_id, moe_expert_num, _checked(name, further))
    out = _assisted(name, expand_x, expert_ids, assist_info_for_combine, ep_send_counts, expert_scales, *where)
    return out.to(expand_x.dtype)


@operator(
    "npu_moe_distribute_combine_add_rms_norm(Tensor expand_x, Tensor expert_ids, Tensor expand_idx, "
    "Tensor ep_send_counts, Tensor expert_scales, Tensor residual_x, Tensor gamma, str group_ep, int ep_world_size, "
    "int ep_rank_id, int moe_expert_num, *, Tensor? tp_send_counts=None, Tensor? x_active_mask=None, "
    "Tensor? activation_scale=None, Tensor? weight_scale=None, Tensor? group_list=None, Tensor? expand_scales=None, "
    "Tensor? shared_expert_x=None, Tensor? elastic_info=None, Tensor? ori_x=None, Tensor? const_expert_alpha_1=None, "
    "Tensor? const_expert_alpha_2=None, Tensor? const_expert_v=None, str group_tp='', int tp_world_size=0, "
    "int tp_rank_id=0, int expert_shard_type=0, int shared_expert_num=1, int shared_expert_rank_num=0, "
    "int global_bs=0, int out_dtype=0, int comm_quant_mode=0, int group_list_type=0, str comm_alg='', "
    "float norm_eps=1e-06, int zero_expert_num=0, int copy_expert_num=0, int const_expert_num=0) "
    "-> (Tensor, Tensor, Tensor)"
)
def npu_moe_distribute_combine_add_rms_norm(
    expand_x,
    expert_ids,
    expand_idx,
    ep_send_counts,
    expert_scales,
    residual_x,
    gamma,
    group_ep,
    ep_world_size,
    ep_rank_id,
    moe_expert_num,
    **further,
) -> tuple[Tensor, Tensor, Tensor]:
    r"""
    npu_moe_distribute_combine_v2 plus residual_x, and its RMS norm.

    Args:
        expand_x: what the experts have made of the rows, (rows, width); float16 or bfloat16.
        expert_ids: as they were dispatched, (tokens, k), int32.
        expand_idx: the third result of npu_moe_distribute_dispatch_v2.
        ep_send_counts: the fifth result of the dispatch.
        expert_scales: a weight for each choice, (tokens, k), float32.
        residual_x: added, (tokens, 1, width), of the dtype of ``expand_x``.
        gamma: factor of the norm, (width).
        group_ep: what get_hccl_comm_name of the group's back end gives.
        ep_world_size: the group's ranks.
        ep_rank_id: this rank.
        moe_expert_num: the number of experts.
        tp_send_counts: of no effect.
        x_active_mask: as it was; what was not sent counts nothing.
        activation_scale: must be None.
        weight_scale: must be None.
        group_list: must be None.
        expand_scales: of no effect: ``expert_scales`` has the weights.
        shared_expert_x: must be None.
        elastic_info: must be None.
        ori_x: the tokens that were dispatched, (tokens, width); with ``copy_expert_num`` and ``const_expert_num``.
        const_expert_alpha_1: factors of the token, (constant experts, width).
        const_expert_alpha_2: factors of the constants, (constant experts, width).
        const_expert_v: constants, (constant experts, width).
        group_tp: of no effect.
        tp_world_size: must be 0 or 1.
        tp_rank_id: must be 0.
        expert_shard_type: must be 0.
        shared_expert_num: of no effect without ranks for shared experts.
        shared_expert_rank_num: must be 0.
        global_bs: as it was.
        out_dtype: must be 0.
        comm_quant_mode: must be 0.
        group_list_type: must be 0.
        comm_alg: of no effect: there is one way.
        norm_eps: added to the mean of squares.
        zero_expert_num: experts that give nothing, whose numbers follow ``moe_expert_num``.
        copy_expert_num: experts that give the token, with the numbers after those.
        const_expert_num: experts that give alpha_1 * token + alpha_2 * v, with the numbers after those.

    Returns:
        The norm, (tokens, 1, width), of the dtype of ``residual_x``; the inverse of the root, (tokens, 1, 1), float32;
        the sum, like the first one.

    Raises:
        RuntimeError: for shapes, dtypes or numbers that do not fit, and a group that does not exist.
        NotImplementedError: for shared experts, and what must be None or 0 and is not.
    """
    name = "npu_moe_distribute_combine_add_rms_norm"
    shape = (expert_ids.shape[0], 1, expand_x.shape[-1])
    check(
        residual_x.shape == shape and gamma.shape == shape[2:],
        name,
        f"residual_x must be {shape} and gamma {shape[2:]}, but they are {tuple(residual_x.shape)} and "
        f"{tuple(gamma.shape)}",
    )
    given = _checked(name, further, "norm_eps")
    where = (group_ep, ep_world_size, ep_rank_id, moe_expert_num, given)
    out = _assisted(name, expand_x, expert_ids, expand_idx, ep_send_counts, expert_scales, *where)
    out = out.unsqueeze(1) + residual_x.float()
    inverse = torch.rsqrt(out.square().mean(-1, keepdim=True) + given["norm_eps"])
    return (out * inverse * gamma.float()).to(residual_x.dtype), inverse, out.to(residual_x.dtype)
