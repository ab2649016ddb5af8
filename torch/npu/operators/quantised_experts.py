r"""Products of experts, of float8 and float4, with their rows exchanged before or behind. Without gradients."""

import torch
from torch import Tensor

from ._between import by_expert, check_matrices, rows_by_rank
from ._checks import check, check_dtype, check_none
from ._groups import all_to_all, group_named
from ._numbers import BLOCK, block_scales, grouped_product
from ._registration import operator
from .quantised_collectives import E8M0, as_bytes, check_fits, check_scale_dtype, numbers_of, result_dtype


class _Experts:
    r"""What both products of experts check: numbers with a power of two for each 32 of them."""

    def __init__(self, name: str, given: dict):
        """``given``: the operator's arguments by their names."""
        self.name, self.given, self.ranks = name, given, given["ep_world_size"]
        tensors = {each: given[each] for each in ("send_counts_tensor", "recv_counts_tensor")}
        check_none(name, "counts are lists", **tensors)
        for argument in ("gmm_x", "gmm_weight", "mm_x", "mm_weight"):
            mode = given[f"{argument}_quant_mode"]
            if mode not in (None, 6):
                raise NotImplementedError(
                    f"{name}: {argument}_quant_mode must be 6, powers of two for blocks, not {mode}"
                )
        sizes = list(given["group_size"] or [0, 0, 0])
        check(sizes in ([0, 0, 0], [1, 1, BLOCK]), name, f"group_size must be [1, 1, {BLOCK}], but is {sizes}")
        self.group = group_named(name, given["hcom"], self.ranks)

    def weight(self, which: str, weight: Tensor, scale: Tensor) -> Tensor:
        numbers = numbers_of(self.name, f"{which}_weight", weight, self.given[f"{which}_weight_dtype"])
        argument = f"{which}_weight_scale"
        check_scale_dtype(self.name, argument, scale, self.given[f"{argument}_dtype"])
        check_dtype(self.name, argument, scale, (torch.uint8, E8M0))
        k, n = numbers.shape[-2:]
        check_fits(self.name, argument, scale, (*numbers.shape[:-2], -(-k // 64), n, 2))
        return numbers * block_scales(self.name, argument, scale, numbers.dim() - 2, k)

    def rows(self, which: str, x: Tensor, scale: Tensor) -> Tensor:
        numbers = numbers_of(self.name, f"{which}_x", x, self.given[f"{which}_x_dtype"])
        argument = f"{which}_x_scale"
        check_scale_dtype(self.name, argument, scale, self.given[f"{argument}_dtype"])
        check_dtype(self.name, argument, scale, (torch.uint8, E8M0))
        check_fits(self.name, argument, scale, (x.shape[0], -(-numbers.shape[1] // 64), 2))
        return numbers * block_scales(self.name, argument, scale, 1, numbers.shape[1])

    def counts(self, experts: int, rows: int) -> tuple[list[int], list[int]]:
        sent = rows_by_rank(self.name, "send_counts", self.given["send_counts"], self.ranks, experts, rows)
        return sent, rows_by_rank(self.name, "recv_counts", self.given["recv_counts"], self.ranks, experts, None)

    def result(self, which: str) -> torch.dtype:
        return result_dtype(self.name, f"{which}_y_dtype", self.given[f"{which}_y_dtype"])

    def shared(self, empty: Tensor) -> Tensor:
        x, weight, *scales = (self.given[f"mm_{each}"] for each in ("x", "weight", "x_scale", "weight_scale"))
        missing = [t is None for t in (x, weight, *scales)]
        check(all(missing) or not any(missing), self.name, "mm_x, mm_weight and their scales go together")
        if x is None:
            return empty
        right, left = self.weight("mm", weight, scales[1]), self.rows("mm", x, scales[0])
        check_matrices(self.name, left, right)
        return (left @ right).to(self.result("mm"))


_GMM = (
    "Tensor gmm_x, Tensor gmm_weight, Tensor gmm_x_scale, Tensor gmm_weight_scale, str hcom, int ep_world_size, "
    "int[] send_counts, int[] recv_counts, int gmm_y_dtype, *, Tensor? send_counts_tensor=None, "
    "Tensor? recv_counts_tensor=None, Tensor? mm_x=None, Tensor? mm_weight=None, Tensor? mm_x_scale=None, "
    "Tensor? mm_weight_scale=None"
)
_GMM_MODES = (
    "int? gmm_x_quant_mode=None, int? gmm_weight_quant_mode=None, int? mm_x_quant_mode=None, "
    "int? mm_weight_quant_mode=None"
)
_GMM_DTYPES = (
    "int? gmm_x_dtype=None, int? gmm_weight_dtype=None, int? gmm_x_scale_dtype=None, "
    "int? gmm_weight_scale_dtype=None, int? mm_x_dtype=None, int? mm_weight_dtype=None, int? mm_x_scale_dtype=None, "
    "int? mm_weight_scale_dtype=None"
)


@operator(
    f"npu_alltoallv_quant_gmm({_GMM}, {_GMM_MODES}, bool permute_out_flag=False, int[]? group_size=None, "
    f"{_GMM_DTYPES}, int? mm_y_dtype=None, str? comm_mode=None) "
    "-> (Tensor, Tensor, Tensor)"
)
def npu_alltoallv_quant_gmm(
    gmm_x,
    gmm_weight,
    gmm_x_scale,
    gmm_weight_scale,
    hcom,
    ep_world_size,
    send_counts,
    recv_counts,
    gmm_y_dtype,
    *,
    send_counts_tensor=None,
    recv_counts_tensor=None,
    mm_x=None,
    mm_weight=None,
    mm_x_scale=None,
    mm_weight_scale=None,
    gmm_x_quant_mode=None,
    gmm_weight_quant_mode=None,
    mm_x_quant_mode=None,
    mm_weight_quant_mode=None,
    permute_out_flag=False,
    group_size=None,
    gmm_x_dtype=None,
    gmm_weight_dtype=None,
    gmm_x_scale_dtype=None,
    gmm_weight_scale_dtype=None,
    mm_x_dtype=None,
    mm_weight_dtype=None,
    mm_x_scale_dtype=None,
    mm_weight_scale_dtype=None,
    mm_y_dtype=None,
    comm_mode=None,
) -> tuple[Tensor, Tensor, Tensor]:
    r"""
    Sends tokens to the ranks of their experts, where each expert multiplies its tokens; and mm_x @ mm_weight.

    Args:
        gmm_x: tokens by rank and expert, (rows, width): float8, or bytes of float4 of which ``gmm_x_dtype`` tells.
        gmm_weight: of the rank's experts, (experts, width, n): float8; float4 may be a view that transposes.
        gmm_x_scale: bytes of E8M0, (rows, width / 64, 2): for each 32 numbers of a row.
        gmm_weight_scale: bytes of E8M0, (experts, width / 64, n, 2).
        hcom: what get_hccl_comm_name of the group's back end gives.
        ep_world_size: the group's ranks.
        send_counts: rows for each rank, by rank and expert.
        recv_counts: rows from each rank, by rank and expert.
        gmm_y_dtype: of the first result: float16 or bfloat16.
        send_counts_tensor: must be None.
        recv_counts_tensor: must be None.
        mm_x: (m, k), like ``gmm_x``.
        mm_weight: (k, n), like ``gmm_weight``.
        mm_x_scale: (m, k / 64, 2).
        mm_weight_scale: (k / 64, n, 2).
        gmm_x_quant_mode: None or 6.
        gmm_weight_quant_mode: None or 6.
        mm_x_quant_mode: None or 6.
        mm_weight_quant_mode: None or 6.
        permute_out_flag: whether there is a third result.
        group_size: None, zeros, or (1, 1, 32).
        gmm_x_dtype: 296 for float4_e2m1fn_x2.
        gmm_weight_dtype: like ``gmm_x_dtype``.
        gmm_x_scale_dtype: 293 for E8M0.
        gmm_weight_scale_dtype: like ``gmm_x_scale_dtype``.
        mm_x_dtype: like ``gmm_x_dtype``.
        mm_weight_dtype: like ``gmm_x_dtype``.
        mm_x_scale_dtype: like ``gmm_x_scale_dtype``.
        mm_weight_scale_dtype: like ``gmm_x_scale_dtype``.
        mm_y_dtype: of the second result; needed with ``mm_x``.
        comm_mode: of no effect.

    Returns:
        The products, (rows that came, n), by expert; mm_x @ mm_weight, or an empty tensor; the rows that are
        multiplied, of the dtype of ``gmm_x``, or an empty tensor.

    Raises:
        RuntimeError: for shapes, dtypes or counts that do not fit, and a group that does not exist.
        NotImplementedError: for counts as tensors, hifloat8, and scales for whole tensors.
    """
    held = _Experts("npu_alltoallv_quant_gmm", locals())
    weight = held.weight("gmm", gmm_weight, gmm_weight_scale)
    result = held.result("gmm")
    experts = weight.shape[0]
    held.rows("gmm", gmm_x, gmm_x_scale)
    sent, received = held.counts(experts, gmm_x.shape[0])
    order, ends = by_expert(recv_counts, ep_world_size, experts, gmm_x.device)
    permuted, scale = (
        all_to_all(as_bytes(t), received, sent, held.group).index_select(0, order).view(t.dtype)
        for t in (gmm_x, gmm_x_scale)
    )
    out = grouped_product(held.rows("gmm", permuted, scale), weight, ends).to(result)
    shared = held.shared(out.new_empty(0))
    return out, shared, permuted if permute_out_flag else gmm_x.new_empty(0)


@operator(
    f"npu_quant_gmm_alltoallv({_GMM}, Tensor? comm_quant_scale=None, {_GMM_MODES}, int? comm_quant_mode=None, "
    f"int[]? group_size=None, {_GMM_DTYPES}, int? comm_quant_dtype=None, int? mm_y_dtype=None, str? comm_mode=None) "
    "-> (Tensor, Tensor)"
)
def npu_quant_gmm_alltoallv(
    gmm_x,
    gmm_weight,
    gmm_x_scale,
    gmm_weight_scale,
    hcom,
    ep_world_size,
    send_counts,
    recv_counts,
    gmm_y_dtype,
    *,
    send_counts_tensor=None,
    recv_counts_tensor=None,
    mm_x=None,
    mm_weight=None,
    mm_x_scale=None,
    mm_weight_scale=None,
    comm_quant_scale=None,
    gmm_x_quant_mode=None,
    gmm_weight_quant_mode=None,
    mm_x_quant_mode=None,
    mm_weight_quant_mode=None,
    comm_quant_mode=None,
    group_size=None,
    gmm_x_dtype=None,
    gmm_weight_dtype=None,
    gmm_x_scale_dtype=None,
    gmm_weight_scale_dtype=None,
    mm_x_dtype=None,
    mm_weight_dtype=None,
    mm_x_scale_dtype=None,
    mm_weight_scale_dtype=None,
    comm_quant_dtype=None,
    mm_y_dtype=None,
    comm_mode=None,
) -> tuple[Tensor, Tensor]:
    r"""
    Each expert multiplies its tokens, which then go back to the ranks that they came from; and mm_x @ mm_weight.

    Args:
        gmm_x: tokens by expert and rank, (rows, width): float8, or bytes of float4 of which ``gmm_x_dtype`` tells.
        gmm_weight: of the rank's experts, (experts, width, n): float8; float4 may be a view that transposes.
        gmm_x_scale: bytes of E8M0, (rows, width / 64, 2): for each 32 numbers of a row.
        gmm_weight_scale: bytes of E8M0, (experts, width / 64, n, 2).
        hcom: what get_hccl_comm_name of the group's back end gives.
        ep_world_size: the group's ranks.
        send_counts: rows for each rank, by rank and expert.
        recv_counts: rows from each rank, by rank and expert.
        gmm_y_dtype: of the first result: float16 or bfloat16.
        send_counts_tensor: must be None.
        recv_counts_tensor: must be None.
        mm_x: (m, k), like ``gmm_x``.
        mm_weight: (k, n), like ``gmm_weight``.
        mm_x_scale: (m, k / 64, 2).
        mm_weight_scale: (k / 64, n, 2).
        comm_quant_scale: must be None.
        gmm_x_quant_mode: None or 6.
        gmm_weight_quant_mode: None or 6.
        mm_x_quant_mode: None or 6.
        mm_weight_quant_mode: None or 6.
        comm_quant_mode: must be None or 0.
        comm_quant_dtype: must be None.
        group_size: None, zeros, or (1, 1, 32).
        gmm_x_dtype: 296 for float4_e2m1fn_x2.
        gmm_weight_dtype: like ``gmm_x_dtype``.
        gmm_x_scale_dtype: 293 for E8M0.
        gmm_weight_scale_dtype: like ``gmm_x_scale_dtype``.
        mm_x_dtype: like ``gmm_x_dtype``.
        mm_weight_dtype: like ``gmm_x_dtype``.
        mm_x_scale_dtype: like ``gmm_x_scale_dtype``.
        mm_weight_scale_dtype: like ``gmm_x_scale_dtype``.
        mm_y_dtype: of the second result; needed with ``mm_x``.
        comm_mode: of no effect.

    Returns:
        The products of this rank's tokens, (rows that come, n), by rank and expert; mm_x @ mm_weight, or an empty
        tensor.

    Raises:
        RuntimeError: for shapes, dtypes or counts that do not fit, and a group that does not exist.
        NotImplementedError: for counts as tensors, hifloat8, and scales for whole tensors.
    """
    held = _Experts("npu_quant_gmm_alltoallv", locals())
    unused = {"comm_quant_scale": comm_quant_scale, "comm_quant_dtype": comm_quant_dtype}
    check_none(held.name, "what is sent is not quantised", **unused)
    if comm_quant_mode not in (None, 0):
        raise NotImplementedError(f"{held.name}: comm_quant_mode must be 0, not {comm_quant_mode}")
    weight = held.weight("gmm", gmm_weight, gmm_weight_scale)
    result = held.result("gmm")
    experts = weight.shape[0]
    sent, received = held.counts(experts, gmm_x.shape[0])
    order, ends = by_expert(send_counts, ep_world_size, experts, gmm_x.device)
    out = grouped_product(held.rows("gmm", gmm_x, gmm_x_scale), weight, ends).to(result)
    by_rank = torch.empty_like(out).index_copy(0, order, out)
    back = all_to_all(by_rank, received, sent, held.group)
    return back, held.shared(out.new_empty(0))
