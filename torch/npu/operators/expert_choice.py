r"""The choice of experts: by softmax of the scores, its gradient, and the choice among an expert's copies."""

import torch
from torch import Tensor

from ._checks import FLOATING, check, check_dtype
from ._registration import operator


@operator(
    "npu_moe_gating_top_k_softmax_v2(Tensor x, *, int k=1, Tensor? finished=None, int? renorm=0, "
    "bool? output_softmax=False) -> (Tensor, Tensor, Tensor)"
)
def npu_moe_gating_top_k_softmax_v2(
    x, *, k=1, finished=None, renorm=0, output_softmax=False
) -> tuple[Tensor, Tensor, Tensor]:
    r"""
    Chooses the k experts with the largest scores for each token, and weighs them by softmax.

    Args:
        x: scores, (..., experts), of two or three dimensions; float16, bfloat16 or float32.
        k: experts for a token, 1 to 1024.
        finished: bool, (...); the experts of a token that is marked become the number of experts.
        renorm: the softmax is taken 0: of all scores; 1: of the chosen ones.
        output_softmax: whether the third result holds the softmax of all scores; with ``renorm`` 0 alone.

    Returns:
        The weights, (..., k), of the dtype of ``x``; their experts, int32, best first, of equal ones the first; the
        softmax of all scores, (..., experts), float32, or an empty tensor.

    Raises:
        RuntimeError: for shapes, dtypes or counts that do not fit.
        NotImplementedError: for ``output_softmax`` with ``renorm`` 1.
    """
    name = "npu_moe_gating_top_k_softmax_v2"
    check_dtype(name, "x", x, FLOATING)
    check(x.dim() in (2, 3), name, f"x must be of two or three dimensions, but is {tuple(x.shape)}")
    experts = x.shape[-1]
    check(0 < k <= min(experts, 1024), name, f"k must be 1 to {min(experts, 1024)}, but is {k}")
    check(renorm in (None, 0, 1), name, f"renorm must be 0 or 1, but is {renorm}")
    if renorm and output_softmax:
        raise NotImplementedError(f"{name}: output_softmax goes with renorm 0")
    scores = torch.sort(x.float(), dim=-1, descending=True, stable=True)
    chosen = scores.indices[..., :k]
    everything = None
    if renorm:
        weights = torch.softmax(scores.values[..., :k], -1)
    else:
        everything = torch.softmax(x.float(), -1)
        weights = everything.gather(-1, chosen)
    experts_of = chosen.int()
    if finished is not None:
        check(
            finished.dtype is torch.bool and finished.shape == x.shape[:-1],
            name,
            f"finished must be bool of shape {tuple(x.shape[:-1])}, but is {finished.dtype} of {tuple(finished.shape)}",
        )
        experts_of = experts_of.masked_fill(finished.unsqueeze(-1), experts)
    out = everything if everything is not None and output_softmax else x.new_empty(0, dtype=torch.float32)
    return weights.to(x.dtype), experts_of, out


@operator(
    "npu_moe_gating_top_k_backward(Tensor x_norm, Tensor grad_y, Tensor expertIdx, *, int renorm=0, int norm_type=0, "
    "float routed_scaling_factor=1.0, float eps=1e-20) -> Tensor"
)
def npu_moe_gating_top_k_backward(
    x_norm, grad_y, expertIdx, *, renorm=0, norm_type=0, routed_scaling_factor=1.0, eps=1e-20
) -> Tensor:
    r"""
    The gradient of npu_moe_gating_top_k by its scores.

    Args:
        x_norm: the normalised scores, (tokens, experts), float32: the third result.
        grad_y: gradient of the first result, (tokens, k).
        expertIdx: the second result, (tokens, k).
        renorm: must be 0.
        norm_type: 0: softmax; 1: sigmoid, the chosen ones divided by their sum.
        routed_scaling_factor: as it was.
        eps: as it was.

    Returns:
        The gradient of the scores, (tokens, experts), of the dtype of ``grad_y``.

    Raises:
        RuntimeError: for shapes that do not fit.
    """
    name = "npu_moe_gating_top_k_backward"
    check(renorm == 0, name, f"renorm must be 0, but is {renorm}")
    check(norm_type in (0, 1), name, f"norm_type must be 0 or 1, but is {norm_type}")
    check(
        x_norm.dim() == 2 and grad_y.shape == expertIdx.shape and grad_y.shape[:1] == x_norm.shape[:1],
        name,
        f"x_norm, grad_y and expertIdx do not fit: {tuple(x_norm.shape)}, {tuple(grad_y.shape)}, "
        f"{tuple(expertIdx.shape)}",
    )
    norm, chosen = x_norm.float(), expertIdx.long()
    grad = grad_y.float() * routed_scaling_factor
    if norm_type == 1:
        weights = norm.gather(1, chosen)
        total = weights.sum(-1, keepdim=True) + eps
        grad = grad / total - (grad * weights).sum(-1, keepdim=True) / total.square()
    by_norm = torch.zeros_like(norm).scatter_add(1, chosen, grad)
    if norm_type == 1:
        by_score = by_norm * norm * (1 - norm)
    else:
        by_score = norm * (by_norm - (by_norm * norm).sum(-1, keepdim=True))
    return by_score.to(grad_y.dtype)


@operator(
    "npu_moe_update_expert(Tensor expert_ids, Tensor eplb_table, *, Tensor? expert_scales=None, "
    "Tensor? pruning_threshold=None, Tensor? active_mask=None, int local_rank_id=-1, int world_size=-1, "
    "int balance_mode=0) -> (Tensor, Tensor)"
)
def npu_moe_update_expert(
    expert_ids,
    eplb_table,
    *,
    expert_scales=None,
    pruning_threshold=None,
    active_mask=None,
    local_rank_id=-1,
    world_size=-1,
    balance_mode=0,
) -> tuple[Tensor, Tensor]:
    r"""
    Chooses one of the copies of each expert, and drops experts whose weight is small.

    Args:
        expert_ids: experts of each token, (tokens, k), int32 or int64.
        eplb_table: a row for each expert, int32: the number of its copies, and the place of each.
        expert_scales: weights of the experts, (tokens, k), with ``pruning_threshold``.
        pruning_threshold: an expert is kept if its weight exceeds this share of the token's weights; (k) or (1, k).
        active_mask: bool, (tokens): whether a token is sent at all; with ``expert_scales``.
        local_rank_id: this rank, with ``balance_mode`` 0.
        world_size: the number of ranks, with ``balance_mode`` 0.
        balance_mode: copies are spread 0: over ranks, a run of ranks for each copy; 1: over tokens in turn.

    Returns:
        The places, like ``expert_ids``; which of them are kept, bool, (tokens, k), or an empty tensor without
        ``expert_scales``.

    Raises:
        RuntimeError: for shapes or numbers that do not fit.
    """
    name = "npu_moe_update_expert"
    check_dtype(name, "expert_ids", expert_ids, (torch.int32, torch.int64))
    check(expert_ids.dim() == 2, name, f"expert_ids must be of two dimensions, but is {tuple(expert_ids.shape)}")
    check(
        eplb_table.dim() == 2 and eplb_table.shape[1] > 1,
        name,
        f"eplb_table must be of shape (experts, 1 + copies), but is {tuple(eplb_table.shape)}",
    )
    check(balance_mode in (0, 1), name, f"balance_mode must be 0 or 1, but is {balance_mode}")
    tokens, k = expert_ids.shape
    rows = eplb_table.to(torch.int64).index_select(0, expert_ids.reshape(-1).long())
    copies = rows[:, 0]
    if balance_mode == 0:
        check(
            world_size > 1 and 0 <= local_rank_id < world_size,
            name,
            f"balance_mode 0 needs local_rank_id below world_size, but they are {local_rank_id} and {world_size}",
        )
        run = torch.div(world_size + copies - 1, copies, rounding_mode="floor")
        place = torch.div(torch.full_like(run, local_rank_id), run, rounding_mode="floor")
    else:
        place = torch.arange(tokens, device=rows.device).repeat_interleave(k) % copies
    balanced = rows.gather(1, (1 + place).unsqueeze(1)).view(tokens, k).to(expert_ids.dtype)
    check(
        (expert_scales is None) == (pruning_threshold is None),
        name,
        "expert_scales and pruning_threshold go together",
    )
    check(active_mask is None or expert_scales is not None, name, "active_mask goes with expert_scales")
    if expert_scales is None:
        return balanced, torch.empty(0, dtype=torch.bool, device=expert_ids.device)
    check(
        expert_scales.shape == expert_ids.shape and pruning_threshold.numel() == k,
        name,
        f"expert_scales must be of shape {(tokens, k)} and pruning_threshold of ({k},), but they are "
        f"{tuple(expert_scales.shape)} and {tuple(pruning_threshold.shape)}",
    )
    wide = expert_scales.float()
    kept = wide.sum(-1, keepdim=True) * pruning_threshold.float().view(1, k) < wide
    if active_mask is not None:
        check(active_mask.shape == (tokens,), name, f"active_mask must be of shape ({tokens},)")
        kept = kept & active_mask.unsqueeze(1)
    return balanced, kept
