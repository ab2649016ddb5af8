r"""The routing of tokens to experts."""

import torch
from torch import Tensor

from ._checks import FLOATING, check, check_dtype, check_none
from ._registration import operator


@operator(
    "npu_moe_gating_top_k(Tensor x, int k, *, Tensor? bias=None, Tensor? input_ids=None, Tensor? tid2eid=None, "
    "int k_group=1, int group_count=1, int group_select_mode=0, int renorm=0, int norm_type=0, bool out_flag=False, "
    "float routed_scaling_factor=1.0, float eps=1e-20) -> (Tensor, Tensor, Tensor)"
)
def npu_moe_gating_top_k(
    x,
    k,
    *,
    bias=None,
    input_ids=None,
    tid2eid=None,
    k_group=1,
    group_count=1,
    group_select_mode=0,
    renorm=0,
    norm_type=0,
    out_flag=False,
    routed_scaling_factor=1.0,
    eps=1e-20,
) -> tuple[Tensor, Tensor, Tensor]:
    r"""
    Chooses k experts for each token by the softmax or the sigmoid of its scores, within the best groups of experts.

    Args:
        x: scores, of shape (tokens, experts); float16, bfloat16 or float32.
        k: experts for a token, 1 to the experts of ``k_group`` groups.
        bias: added to the normalised scores for the choice alone; of shape (experts) and the dtype of ``x``.
        input_ids: must be None.
        tid2eid: must be None.
        k_group: groups that a token may choose from, 1 to ``group_count``.
        group_count: groups that the experts, in order, are divided into.
        group_select_mode: a group is worth 0: its largest score; 1: the sum of its two largest ones.
        renorm: must be 0.
        norm_type: scores are normalised by 0: softmax; 1: sigmoid, and the chosen ones are divided by their sum.
        out_flag: whether the third result holds the normalised scores.
        routed_scaling_factor: factor of the first result.
        eps: added to the sum that is divided by.

    Returns:
        The chosen scores, (tokens, k), of the dtype of ``x``; their experts, (tokens, k), int32, best first; the
        normalised scores, (tokens, experts), float32, or an empty tensor.

    Raises:
        RuntimeError: for shapes, dtypes or counts that do not fit.
    """
    name = "npu_moe_gating_top_k"
    check_none(name, "experts by token are not supported", input_ids=input_ids, tid2eid=tid2eid)
    check_dtype(name, "x", x, FLOATING)
    check(x.dim() == 2, name, f"x must be of two dimensions, but is {tuple(x.shape)}")
    tokens, experts = x.shape
    check(
        group_count > 0 and experts % group_count == 0,
        name,
        f"group_count must divide the {experts} experts, but is {group_count}",
    )
    members = experts // group_count
    check(0 < k_group <= group_count, name, f"k_group must be 1 to group_count, {group_count}, but is {k_group}")
    check(0 < k <= k_group * members, name, f"k must be 1 to the {k_group * members} experts, but is {k}")
    check(group_select_mode in (0, 1), name, f"group_select_mode must be 0 or 1, but is {group_select_mode}")
    check(group_select_mode == 0 or members > 1, name, "group_select_mode 1 needs groups of two experts or more")
    check(norm_type in (0, 1), name, f"norm_type must be 0 or 1, but is {norm_type}")
    check(renorm == 0, name, f"renorm must be 0, but is {renorm}")
    wide = x.float()
    scores = torch.sigmoid(wide) if norm_type == 1 else torch.softmax(wide, -1)
    choice = scores
    if bias is not None:
        check(bias.shape == (experts,), name, f"bias must be of shape ({experts},), but is {tuple(bias.shape)}")
        choice = scores + bias.float()
    if group_count > 1:
        grouped = choice.view(tokens, group_count, members)
        worth = grouped.amax(-1) if group_select_mode == 0 else grouped.topk(2, -1).values.sum(-1)
        kept = torch.sort(worth, dim=-1, descending=True, stable=True).indices[:, :k_group]
        hidden = torch.ones_like(worth, dtype=torch.bool).scatter(1, kept, False)
        choice = grouped.masked_fill(hidden.unsqueeze(-1), float("-inf")).view(tokens, experts)
    # Of equal scores the first expert is chosen.
    chosen = torch.sort(choice, dim=-1, descending=True, stable=True).indices[:, :k]
    weights = scores.gather(1, chosen)
    if norm_type == 1:
        weights = weights / (weights.sum(-1, keepdim=True) + eps)
    weights = (weights * routed_scaling_factor).to(x.dtype)
    return weights, chosen.int(), scores if out_flag else scores.new_empty(0)
