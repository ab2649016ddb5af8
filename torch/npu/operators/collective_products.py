r"""Products of matrices with a collective before or after them. Without gradients: each rank has its own."""

import torch
from torch import Tensor

from ._between import by_expert, check_defaults, check_matrices, check_mode, packed_factor, rows_by_rank
from ._checks import check, check_dtype, check_none
from ._groups import all_gather, all_reduce, all_to_all, exchanged, group_named, reduce_scatter
from ._numbers import exact, grouped_product
from ._registration import operator

_HALVES = (torch.float16, torch.bfloat16)


def _integer_product(x1: Tensor, x2: Tensor, bias: Tensor | None) -> Tensor:
    wide = exact(x1.shape[-1])
    out = x1.to(wide) @ x2.to(wide)
    return out if bias is None else out + bias.to(wide)


def _floating_product(x1: Tensor, x2: Tensor, bias: Tensor | None) -> Tensor:
    out = x1.float() @ x2.float()
    return out if bias is None else out + bias.float()


@operator(
    "npu_mm_all_reduce_base(Tensor x1, Tensor x2, str hcom, *, str reduce_op='sum', Tensor? bias=None, "
    "Tensor? antiquant_scale=None, Tensor? antiquant_offset=None, Tensor? x3=None, Tensor? dequant_scale=None, "
    "Tensor? pertoken_scale=None, Tensor? comm_quant_scale_1=None, Tensor? comm_quant_scale_2=None, "
    "int antiquant_group_size=0, int comm_turn=0, int[]? group_sizes=None, int? y_dtype=None, int? x1_dtype=None, "
    "int? x2_dtype=None, int? dequant_scale_dtype=None, int? pertoken_scale_dtype=None, int comm_quant_mode=0, "
    "str? comm_mode=None) -> Tensor"
)
def npu_mm_all_reduce_base(
    x1,
    x2,
    hcom,
    *,
    reduce_op="sum",
    bias=None,
    antiquant_scale=None,
    antiquant_offset=None,
    x3=None,
    dequant_scale=None,
    pertoken_scale=None,
    comm_quant_scale_1=None,
    comm_quant_scale_2=None,
    antiquant_group_size=0,
    comm_turn=0,
    group_sizes=None,
    y_dtype=None,
    x1_dtype=None,
    x2_dtype=None,
    dequant_scale_dtype=None,
    pertoken_scale_dtype=None,
    comm_quant_mode=0,
    comm_mode=None,
) -> Tensor:
    r"""
    The sum over a group's ranks of x1 @ x2 + bias + x3, where x2 may be integers with scales, or both may.

    Args:
        x1: (m, k) or (b, s, k); float16, bfloat16 or int8.
        x2: (k, n), of the dtype of ``x1``, or int8.
        hcom: what get_hccl_comm_name of the group's back end gives.
        reduce_op: must be "sum".
        bias: (n); int32 with x1 of int8.
        antiquant_scale: with x2 of int8 alone: x2 becomes (x2 + antiquant_offset) * this; (1), (n), (1, n) or
            (groups, n).
        antiquant_offset: like ``antiquant_scale``.
        x3: like the result.
        dequant_scale: with x1 of int8: a factor of each column, (1), (n) or (1, n); bfloat16, float32 with
            ``pertoken_scale``, or what npu_trans_quant_param makes.
        pertoken_scale: with x1 of int8: a factor of each row, (rows), float32.
        comm_quant_scale_1: must be None.
        comm_quant_scale_2: must be None.
        antiquant_group_size: rows of x2 that share a factor; 0: all.
        comm_turn: must be 0.
        group_sizes: must be None.
        y_dtype: must be None.
        x1_dtype: must be None.
        x2_dtype: must be None.
        dequant_scale_dtype: must be None.
        pertoken_scale_dtype: must be None.
        comm_quant_mode: must be 0.
        comm_mode: of no effect.

    Returns:
        (m, n) or (b, s, n), of the dtype of ``x1``; with integers bfloat16 if ``dequant_scale`` is, else float16.

    Raises:
        RuntimeError: for shapes or dtypes that do not fit, and a group that does not exist.
        NotImplementedError: for what must be None or 0 and is not.
    """
    name = "npu_mm_all_reduce_base"
    check_none(
        name,
        "what is sent is not quantised, and dtypes that torch does not have are not supported",
        comm_quant_scale_1=comm_quant_scale_1,
        comm_quant_scale_2=comm_quant_scale_2,
        group_sizes=group_sizes,
        y_dtype=y_dtype,
        x1_dtype=x1_dtype,
        x2_dtype=x2_dtype,
        dequant_scale_dtype=dequant_scale_dtype,
        pertoken_scale_dtype=pertoken_scale_dtype,
    )
    check_defaults(name, reduce_op=(reduce_op, "sum"), comm_turn=(comm_turn, 0), comm_quant_mode=(comm_quant_mode, 0))
    check_dtype(name, "x1", x1, (*_HALVES, torch.int8))
    check_matrices(name, x1, x2, dims=(2, 3))
    group, n = group_named(name, hcom), x2.shape[1]
    check(bias is None or bias.shape == (n,), name, f"bias must be of shape ({n},)")
    small = x1.dtype is torch.int8
    check(small or (dequant_scale is None and pertoken_scale is None), name, "dequant_scale goes with x1 of torch.int8")
    if small:
        check_dtype(name, "x2", x2, (torch.int8,))
        check(dequant_scale is not None, name, "x1 of torch.int8 needs dequant_scale")
        check_dtype(name, "dequant_scale", dequant_scale, (torch.int64, torch.bfloat16, torch.float32))
        check(bias is None or bias.dtype is torch.int32, name, "with x1 of torch.int8 bias must be of torch.int32")
        out = _integer_product(x1, x2, bias)
        out = out * packed_factor(dequant_scale, out.dtype).reshape(-1)
        if pertoken_scale is not None:
            out = out * pertoken_scale.to(out.dtype).view(*x1.shape[:-1], 1)
        result = torch.bfloat16 if dequant_scale.dtype is torch.bfloat16 else torch.float16
    else:
        check_dtype(name, "x2", x2, (x1.dtype, torch.int8))
        weight = x2.float()
        if x2.dtype is torch.int8:
            check(antiquant_scale is not None, name, "x2 of torch.int8 needs antiquant_scale")

            def spread(table: Tensor) -> Tensor:
                if antiquant_group_size == 0:
                    return table.float()
                wanted = (-(-x2.shape[0] // antiquant_group_size), n)
                check(table.shape == wanted, name, f"antiquant_scale must be {wanted}, but is {tuple(table.shape)}")
                return table.float().repeat_interleave(antiquant_group_size, 0)[: x2.shape[0]]

            if antiquant_offset is not None:
                weight = weight + spread(antiquant_offset)
            weight = weight * spread(antiquant_scale)
        else:
            check(
                antiquant_scale is None and antiquant_offset is None, name, "antiquant_scale goes with x2 of torch.int8"
            )
        out, result = _floating_product(x1, weight, bias), x1.dtype
    if x3 is not None:
        check(x3.shape == out.shape, name, f"x3 must be of shape {tuple(out.shape)}, but is {tuple(x3.shape)}")
        out = out + x3.to(out.dtype)
    return all_reduce(out.float(), group).to(result)


def _scaled_result(name, out, x1_scale, x2_scale, output_dtype, n) -> tuple[Tensor, torch.dtype]:
    r"""Sums of integer products times their factors, and the dtype of the result."""
    check(x2_scale is not None, name, "integers need x2_scale")
    check_dtype(name, "x2_scale", x2_scale, (torch.float32, torch.int64))
    check(x2_scale.numel() == n, name, f"x2_scale must be of shape (1, {n}), but is {tuple(x2_scale.shape)}")
    out = out * packed_factor(x2_scale, out.dtype).reshape(1, n)
    if x1_scale is not None:
        check(
            x1_scale.numel() == out.shape[0],
            name,
            f"x1_scale must be of shape ({out.shape[0]}, 1), but is {tuple(x1_scale.shape)}",
        )
        out = out * x1_scale.to(out.dtype).reshape(-1, 1)
    if output_dtype is not None:
        check(output_dtype in _HALVES, name, f"output_dtype must be float16 or bfloat16, but is {output_dtype}")
    return out, output_dtype or torch.bfloat16


@operator(
    "npu_all_gather_base_mm(Tensor self, Tensor x2, str hcom, int world_size, *, Tensor? bias=None, "
    "Tensor? x1_scale=None, Tensor? x2_scale=None, int gather_index=0, bool gather_output=True, int comm_turn=0, "
    "ScalarType? output_dtype=None, str? comm_mode=None) -> (Tensor, Tensor)"
)
def npu_all_gather_base_mm(
    self,
    x2,
    hcom,
    world_size,
    *,
    bias=None,
    x1_scale=None,
    x2_scale=None,
    gather_index=0,
    gather_output=True,
    comm_turn=0,
    output_dtype=None,
    comm_mode=None,
) -> tuple[Tensor, Tensor]:
    r"""
    The rows of all ranks of a group times x2, plus bias; integers times their scales.

    Args:
        self: the rank's rows, (m, k); float16, bfloat16 or int8.
        x2: (k, n), of the dtype of ``self``.
        hcom: what get_hccl_comm_name of the group's back end gives.
        world_size: the group's ranks.
        bias: (n), of the dtype of ``self``.
        x1_scale: with int8: a factor of each row, (m, 1), float32; gathered too.
        x2_scale: with int8: a factor of each column, (1, n); float32, or what npu_trans_quant_param makes.
        gather_index: must be 0: ``self`` is gathered.
        gather_output: whether the second result holds the gathered rows.
        comm_turn: must be 0.
        output_dtype: with int8 and x2_scale of float32: bfloat16 (None) or float16.
        comm_mode: None, "ai_cpu" or "aiv"; int8 needs "aiv".

    Returns:
        (ranks * m, n), of the dtype of ``self``, or with int8 ``output_dtype``, float16 for x2_scale of int64; the
        gathered rows, or an empty tensor.

    Raises:
        RuntimeError: for shapes or dtypes that do not fit, and a group that does not exist.
        NotImplementedError: for what must be 0 and is not.
    """
    name = "npu_all_gather_base_mm"
    check_defaults(name, gather_index=(gather_index, 0), comm_turn=(comm_turn, 0))
    check_mode(name, comm_mode)
    check_dtype(name, "self", self, (*_HALVES, torch.int8))
    check_dtype(name, "x2", x2, (self.dtype,))
    check_matrices(name, self, x2)
    group, n = group_named(name, hcom, world_size), x2.shape[1]
    check(bias is None or bias.shape == (n,), name, f"bias must be of shape ({n},)")
    rows = all_gather(self, world_size, group)
    if self.dtype is torch.int8:
        check(comm_mode == "aiv", name, "self of torch.int8 needs comm_mode 'aiv'")
        by_row = None if x1_scale is None else all_gather(x1_scale.reshape(-1, 1), world_size, group)
        out, result = _scaled_result(name, _integer_product(rows, x2, bias), by_row, x2_scale, output_dtype, n)
        result = torch.float16 if x2_scale.dtype is torch.int64 else result
    else:
        check_none(name, "self is not of torch.int8", x1_scale=x1_scale, x2_scale=x2_scale, output_dtype=output_dtype)
        out, result = _floating_product(rows, x2, bias), self.dtype
    return out.to(result), rows if gather_output else self.new_empty(0)


@operator(
    "npu_mm_reduce_scatter_base(Tensor self, Tensor x2, str hcom, int world_size, *, str reduce_op='sum', "
    "Tensor? bias=None, Tensor? x1_scale=None, Tensor? x2_scale=None, int comm_turn=0, "
    "ScalarType? output_dtype=None, str? comm_mode=None) -> Tensor"
)
def npu_mm_reduce_scatter_base(
    self,
    x2,
    hcom,
    world_size,
    *,
    reduce_op="sum",
    bias=None,
    x1_scale=None,
    x2_scale=None,
    comm_turn=0,
    output_dtype=None,
    comm_mode=None,
) -> Tensor:
    r"""
    The sum over a group's ranks of self @ x2 + bias, of which each rank gets its rows; integers times their scales.

    Args:
        self: (m, k), m being a multiple of the ranks; float16, bfloat16 or int8.
        x2: (k, n), of the dtype of ``self``.
        hcom: what get_hccl_comm_name of the group's back end gives.
        world_size: the group's ranks.
        reduce_op: must be "sum".
        bias: (n), of the dtype of ``self``.
        x1_scale: with int8: a factor of each row, (m, 1), float32.
        x2_scale: with int8: a factor of each column, (1, n); float32, or what npu_trans_quant_param makes.
        comm_turn: must be 0.
        output_dtype: with int8: bfloat16 (None) or float16.
        comm_mode: None, "ai_cpu" or "aiv"; int8 needs "aiv".

    Returns:
        (m / ranks, n), of the dtype of ``self``, or with int8 ``output_dtype``.

    Raises:
        RuntimeError: for shapes or dtypes that do not fit, and a group that does not exist.
        NotImplementedError: for what must be 0 and is not, and x2_scale of int64 without ``output_dtype``.
    """
    name = "npu_mm_reduce_scatter_base"
    check_defaults(name, reduce_op=(reduce_op, "sum"), comm_turn=(comm_turn, 0))
    check_mode(name, comm_mode)
    check_dtype(name, "self", self, (*_HALVES, torch.int8))
    check_dtype(name, "x2", x2, (self.dtype,))
    check_matrices(name, self, x2)
    group, n = group_named(name, hcom, world_size), x2.shape[1]
    check(self.shape[0] % world_size == 0, name, f"the {self.shape[0]} rows must be a multiple of {world_size}")
    check(bias is None or bias.shape == (n,), name, f"bias must be of shape ({n},)")
    if self.dtype is torch.int8:
        check(comm_mode == "aiv", name, "self of torch.int8 needs comm_mode 'aiv'")
        # The page tells two dtypes for a result without output_dtype here.
        if x2_scale is not None and x2_scale.dtype is torch.int64 and output_dtype is None:
            raise NotImplementedError(f"{name}: with x2_scale of torch.int64 output_dtype must be given")
        out, result = _scaled_result(name, _integer_product(self, x2, bias), x1_scale, x2_scale, output_dtype, n)
    else:
        check_none(name, "self is not of torch.int8", x1_scale=x1_scale, x2_scale=x2_scale, output_dtype=output_dtype)
        out, result = _floating_product(self, x2, bias), self.dtype
    return reduce_scatter(out.float(), world_size, group).to(result)


@operator(
    "npu_all_to_all_matmul(Tensor x1, Tensor x2, str hcom, int world_size, Tensor? bias=None, "
    "int[]? all2all_axes=None, bool all2all_out_flag=True, str? comm_mode=None) -> (Tensor, Tensor)"
)
def npu_all_to_all_matmul(
    x1, x2, hcom, world_size, bias=None, all2all_axes=None, all2all_out_flag=True, comm_mode=None
) -> tuple[Tensor, Tensor]:
    r"""
    Rows become those of one rank, their columns those of all ranks; times x2, plus bias.

    Args:
        x1: (rows, width), the rows being a multiple of the ranks; float16 or bfloat16.
        x2: (width * ranks, n), of the dtype of ``x1``.
        hcom: what get_hccl_comm_name of the group's back end gives.
        world_size: the group's ranks.
        bias: (n); float16, or float32 with bfloat16.
        all2all_axes: None or (-2, -1).
        all2all_out_flag: whether there is a second result.
        comm_mode: of no effect.

    Returns:
        (rows / ranks, n), of the dtype of ``x1``; what is multiplied, (rows / ranks, width * ranks), or an empty
        tensor.

    Raises:
        RuntimeError: for shapes or dtypes that do not fit, and a group that does not exist.
    """
    name = "npu_all_to_all_matmul"
    check(list(all2all_axes or (-2, -1)) == [-2, -1], name, f"all2all_axes must be [-2, -1], but is {all2all_axes}")
    check_dtype(name, "x1", x1, _HALVES)
    check_dtype(name, "x2", x2, (x1.dtype,))
    group = group_named(name, hcom, world_size)
    check_matrices(name, x1, x2, depth=x1.shape[-1] * world_size)
    rows, width = x1.shape
    check(rows % world_size == 0, name, f"the {rows} rows must be a multiple of {world_size}")
    got = exchanged(x1.reshape(world_size, rows // world_size, width), group)
    permuted = got.permute(1, 0, 2).reshape(rows // world_size, world_size * width)
    out = _floating_product(permuted, x2, bias).to(x1.dtype)
    return out, permuted if all2all_out_flag else x1.new_empty(0)


@operator(
    "npu_matmul_all_to_all(Tensor x1, Tensor x2, str hcom, int world_size, Tensor? bias=None, "
    "int[]? all2all_axes=None, str? comm_mode=None) -> Tensor"
)
def npu_matmul_all_to_all(x1, x2, hcom, world_size, bias=None, all2all_axes=None, comm_mode=None) -> Tensor:
    r"""
    x1 @ x2 + bias, of which each rank gets its columns of all ranks' rows.

    Args:
        x1: (rows, k); float16 or bfloat16.
        x2: (k, n), n being a multiple of the ranks; of the dtype of ``x1``.
        hcom: what get_hccl_comm_name of the group's back end gives.
        world_size: the group's ranks.
        bias: (n); float16, or float32 with bfloat16.
        all2all_axes: None or (-1, -2).
        comm_mode: of no effect.

    Returns:
        (rows * ranks, n / ranks), of the dtype of ``x1``.

    Raises:
        RuntimeError: for shapes or dtypes that do not fit, and a group that does not exist.
    """
    name = "npu_matmul_all_to_all"
    check(list(all2all_axes or (-1, -2)) == [-1, -2], name, f"all2all_axes must be [-1, -2], but is {all2all_axes}")
    check_dtype(name, "x1", x1, _HALVES)
    check_dtype(name, "x2", x2, (x1.dtype,))
    check_matrices(name, x1, x2)
    group, (rows, n) = group_named(name, hcom, world_size), (x1.shape[0], x2.shape[1])
    check(n % world_size == 0, name, f"the {n} columns must be a multiple of {world_size}")
    out = _floating_product(x1, x2, bias).to(x1.dtype)
    parts = out.view(rows, world_size, n // world_size).permute(1, 0, 2)
    return exchanged(parts, group).reshape(world_size * rows, n // world_size)


def _shared(name: str, mm_x, mm_weight, transposed: bool, empty: Tensor) -> Tensor:
    check((mm_x is None) == (mm_weight is None), name, "mm_x and mm_weight go together")
    if mm_x is None:
        return empty
    weight = mm_weight.t() if transposed else mm_weight
    check_matrices(name, mm_x, weight)
    return _floating_product(mm_x.detach(), weight.detach(), None).to(mm_x.dtype)


def _expert_weights(name: str, gmm_x: Tensor, gmm_weight: Tensor, transposed: bool) -> Tensor:
    check_dtype(name, "gmm_x", gmm_x, _HALVES)
    check_dtype(name, "gmm_weight", gmm_weight, (gmm_x.dtype,))
    weight = gmm_weight.mT if transposed else gmm_weight
    check(
        gmm_x.dim() == 2 and weight.dim() == 3 and gmm_x.shape[1] == weight.shape[1],
        name,
        f"gmm_x and gmm_weight do not fit: {tuple(gmm_x.shape)} and {tuple(gmm_weight.shape)}",
    )
    return weight.detach().float()


@operator(
    "npu_alltoallv_gmm(Tensor gmm_x, Tensor gmm_weight, str hcom, int ep_world_size, int[] send_counts, "
    "int[] recv_counts, *, Tensor? send_counts_tensor=None, Tensor? recv_counts_tensor=None, Tensor? mm_x=None, "
    "Tensor? mm_weight=None, bool trans_gmm_weight=False, bool trans_mm_weight=False, bool permute_out_flag=False, "
    "str? comm_mode=None) -> (Tensor, Tensor, Tensor)"
)
def npu_alltoallv_gmm(
    gmm_x,
    gmm_weight,
    hcom,
    ep_world_size,
    send_counts,
    recv_counts,
    *,
    send_counts_tensor=None,
    recv_counts_tensor=None,
    mm_x=None,
    mm_weight=None,
    trans_gmm_weight=False,
    trans_mm_weight=False,
    permute_out_flag=False,
    comm_mode=None,
) -> tuple[Tensor, Tensor, Tensor]:
    r"""
    Sends tokens to the ranks of their experts, where each expert multiplies its tokens; and mm_x @ mm_weight.

    Args:
        gmm_x: tokens by rank and expert, (rows, width); float16 or bfloat16.
        gmm_weight: of the rank's experts, (experts, width, n), of the dtype of ``gmm_x``.
        hcom: what get_hccl_comm_name of the group's back end gives.
        ep_world_size: the group's ranks.
        send_counts: rows for each rank's experts, by rank and expert.
        recv_counts: rows that come from each rank for the experts here, by rank and expert.
        send_counts_tensor: must be None.
        recv_counts_tensor: must be None.
        mm_x: (m, k); float16 or bfloat16.
        mm_weight: (k, n), of the dtype of ``mm_x``.
        trans_gmm_weight: whether ``gmm_weight`` is (experts, n, width).
        trans_mm_weight: whether ``mm_weight`` is (n, k).
        permute_out_flag: whether there is a third result.
        comm_mode: of no effect.

    Returns:
        The products, (rows that came, n), by expert; mm_x @ mm_weight, or an empty tensor; what is multiplied, or an
        empty tensor.

    Raises:
        RuntimeError: for shapes, dtypes or counts that do not fit, and a group that does not exist.
        NotImplementedError: for counts as tensors.
    """
    name = "npu_alltoallv_gmm"
    check_none(
        name,
        "counts are lists",
        send_counts_tensor=send_counts_tensor,
        recv_counts_tensor=recv_counts_tensor,
    )
    weight = _expert_weights(name, gmm_x, gmm_weight, trans_gmm_weight)
    experts = weight.shape[0]
    group = group_named(name, hcom, ep_world_size)
    sent = rows_by_rank(name, "send_counts", send_counts, ep_world_size, experts, gmm_x.shape[0])
    received = rows_by_rank(name, "recv_counts", recv_counts, ep_world_size, experts, None)
    rows = all_to_all(gmm_x, received, sent, group)
    order, ends = by_expert(recv_counts, ep_world_size, experts, gmm_x.device)
    permuted = rows.index_select(0, order)
    out = grouped_product(permuted.float(), weight, ends).to(gmm_x.dtype)
    empty = gmm_x.new_empty(0)
    return out, _shared(name, mm_x, mm_weight, trans_mm_weight, empty), permuted if permute_out_flag else empty


@operator(
    "npu_gmm_alltoallv(Tensor gmm_x, Tensor gmm_weight, str hcom, int ep_world_size, int[] send_counts, "
    "int[] recv_counts, *, Tensor? send_counts_tensor=None, Tensor? recv_counts_tensor=None, Tensor? mm_x=None, "
    "Tensor? mm_weight=None, bool trans_gmm_weight=False, bool trans_mm_weight=False, str? comm_mode=None) "
    "-> (Tensor, Tensor)"
)
def npu_gmm_alltoallv(
    gmm_x,
    gmm_weight,
    hcom,
    ep_world_size,
    send_counts,
    recv_counts,
    *,
    send_counts_tensor=None,
    recv_counts_tensor=None,
    mm_x=None,
    mm_weight=None,
    trans_gmm_weight=False,
    trans_mm_weight=False,
    comm_mode=None,
) -> tuple[Tensor, Tensor]:
    r"""
    Each expert multiplies its tokens, which then go back to the ranks that they came from; and mm_x @ mm_weight.

    Args:
        gmm_x: tokens by expert and rank, (rows, width); float16 or bfloat16.
        gmm_weight: of the rank's experts, (experts, width, n), of the dtype of ``gmm_x``.
        hcom: what get_hccl_comm_name of the group's back end gives.
        ep_world_size: the group's ranks.
        send_counts: rows of the experts here for each rank, by rank and expert.
        recv_counts: rows that come from each rank's experts, by rank and expert.
        send_counts_tensor: must be None.
        recv_counts_tensor: must be None.
        mm_x: (m, k); float16 or bfloat16.
        mm_weight: (k, n), of the dtype of ``mm_x``.
        trans_gmm_weight: whether ``gmm_weight`` is (experts, n, width).
        trans_mm_weight: whether ``mm_weight`` is (n, k).
        comm_mode: of no effect.

    Returns:
        The products of this rank's tokens, (rows that come, n), by rank and expert; mm_x @ mm_weight, or an empty
        tensor.

    Raises:
        RuntimeError: for shapes, dtypes or counts that do not fit, and a group that does not exist.
        NotImplementedError: for counts as tensors.
    """
    name = "npu_gmm_alltoallv"
    check_none(
        name,
        "counts are lists",
        send_counts_tensor=send_counts_tensor,
        recv_counts_tensor=recv_counts_tensor,
    )
    weight = _expert_weights(name, gmm_x, gmm_weight, trans_gmm_weight)
    experts = weight.shape[0]
    group = group_named(name, hcom, ep_world_size)
    sent = rows_by_rank(name, "send_counts", send_counts, ep_world_size, experts, gmm_x.shape[0])
    received = rows_by_rank(name, "recv_counts", recv_counts, ep_world_size, experts, None)
    order, ends = by_expert(send_counts, ep_world_size, experts, gmm_x.device)
    out = grouped_product(gmm_x.detach().float(), weight, ends).to(gmm_x.dtype)
    by_rank = torch.empty_like(out).index_copy(0, order, out)
    back = all_to_all(by_rank, received, sent, group)
    return back, _shared(name, mm_x, mm_weight, trans_mm_weight, gmm_x.new_empty(0))
