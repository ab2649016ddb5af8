r"""Products with a weight for each group of rows, and what follows them in mixtures of experts."""

import torch
from torch import Tensor

from ._checks import check, check_dtype, check_none
from ._numbers import (
    FLOAT8,
    by_group,
    exact,
    group_ends,
    group_of_rows,
    grouped_product,
    integers,
    numbered,
    rows_rounded,
)
from ._registration import operator

_ACTIVATIONS = {
    "relu": torch.relu,
    "silu": torch.nn.functional.silu,
    "gelu": torch.nn.functional.gelu,
    "fastgelu": lambda x: x * torch.sigmoid(1.702 * x),
}
_HALVES = (torch.float16, torch.bfloat16)


def _check_product(name: str, x: Tensor, weight: Tensor, ends: Tensor) -> None:
    check(
        x.dim() == 2 and weight.dim() == 3 and x.shape[1] == weight.shape[1] and ends.shape == weight.shape[:1],
        name,
        "x must be (m, k), the weight (groups, k, n) and the group list (groups), but they are "
        f"{tuple(x.shape)}, {tuple(weight.shape)} and {tuple(ends.shape)}",
    )


def _sums(name: str, x: Tensor, weight: Tensor, ends: Tensor) -> Tensor:
    r"""Products of integers or of float8 without rounding, each group of rows with its weight."""
    if x.dtype in FLOAT8:
        a, b, wide = x, weight, torch.float32
    else:
        a, b = integers(name, "x", x), integers(name, "weight", weight)
        wide = exact(a.shape[-1])
    _check_product(name, a, b, ends)
    return grouped_product(a.to(wide), b.to(wide), ends)


def _check_table(name: str, argument: str, table: Tensor, shape: tuple[int, ...]) -> None:
    check(table.shape == shape, name, f"{argument} must be of shape {shape}, but is {tuple(table.shape)}")


def _swiglu_rows(name, x, weight, weight_scale, x_scale, ends, smooth_scale, dtype) -> tuple[Tensor, Tensor]:
    sums = _sums(name, x, weight, ends)
    rows, columns = sums.shape
    groups = ends.shape[0]
    check(columns % 2 == 0, name, f"the weight must have an even number of columns, but has {columns}")
    _check_table(name, "weight_scale", weight_scale, (groups, columns))
    _check_table(name, "x_scale", x_scale, (rows,))
    group = group_of_rows(ends, rows)
    out = sums * by_group(weight_scale.to(sums.dtype), group) * x_scale.to(sums.dtype).unsqueeze(1)
    # What belongs to rows after the last group may hold anything.
    out = torch.where((group < groups).unsqueeze(1), out, 0.0)
    gate, linear = out.float().chunk(2, 1)
    out = torch.nn.functional.silu(gate) * linear
    if smooth_scale is not None:
        smooth = smooth_scale.unsqueeze(1) if smooth_scale.dim() == 1 else smooth_scale
        check(
            smooth.dim() == 2 and smooth.shape[0] == groups and smooth.shape[1] in (1, columns // 2),
            name,
            f"smooth_scale must be ({groups}, {columns // 2}) or ({groups},), but is {tuple(smooth_scale.shape)}",
        )
        out = out * by_group(smooth.float(), group)
    return rows_rounded(name, out, dtype)


@operator(
    "npu_grouped_matmul_swiglu_quant(Tensor x, Tensor weight, Tensor group_list, Tensor weight_scale, "
    "Tensor x_scale, *, Tensor? bias=None, Tensor? offset=None) -> (Tensor, Tensor, Tensor)"
)
def npu_grouped_matmul_swiglu_quant(
    x, weight, group_list, weight_scale, x_scale, *, bias=None, offset=None
) -> tuple[Tensor, Tensor, Tensor]:
    r"""
    silu(a) * b of the halves a and b of (x @ weight) * weight_scale * x_scale, quantised with a scale for each row.

    Args:
        x: (m, k), int8.
        weight: (groups, k, n), int8.
        group_list: where each group of rows ends, (groups).
        weight_scale: a factor of each column, (groups, n).
        x_scale: a factor of each row, (m), float32.
        bias: must be None.
        offset: must be None.

    Returns:
        int8, (m, n / 2); the scales, (m), float32; an empty tensor. Rows after the last group are 0.

    Raises:
        RuntimeError: for shapes or dtypes that do not fit.
        NotImplementedError: for ``bias`` and ``offset``.
    """
    name = "npu_grouped_matmul_swiglu_quant"
    check_none(name, "its place in the formula is not told", bias=bias, offset=offset)
    check_dtype(name, "x", x, (torch.int8,))
    ends = group_ends(name, group_list, 0)
    numbers, scales = _swiglu_rows(name, x, weight, weight_scale, x_scale, ends, None, torch.int8)
    return numbers, scales, scales.new_empty(0)


@operator(
    "npu_grouped_matmul_swiglu_quant_v2(Tensor x, Tensor[] weight, Tensor[] weight_scale, Tensor x_scale, "
    "Tensor group_list, *, Tensor? smooth_scale=None, Tensor[]? weight_assist_matrix=None, Tensor? bias=None, "
    "int? dequant_mode=0, int? dequant_dtype=0, int? quant_mode=0, int? quant_dtype=1, int? group_list_type=0, "
    "int[]? tuning_config=None, int? x_dtype=None, int? weight_dtype=None, int? weight_scale_dtype=None, "
    "int? x_scale_dtype=None) -> (Tensor, Tensor)"
)
def npu_grouped_matmul_swiglu_quant_v2(
    x,
    weight,
    weight_scale,
    x_scale,
    group_list,
    *,
    smooth_scale=None,
    weight_assist_matrix=None,
    bias=None,
    dequant_mode=0,
    dequant_dtype=0,
    quant_mode=0,
    quant_dtype=1,
    group_list_type=0,
    tuning_config=None,
    x_dtype=None,
    weight_dtype=None,
    weight_scale_dtype=None,
    x_scale_dtype=None,
) -> tuple[Tensor, Tensor]:
    r"""
    silu(a) * b of the halves a and b of (x @ weight) * weight_scale * x_scale, times smooth_scale, quantised with a
    scale for each row.

    Args:
        x: (m, k); int8, int32 that hold eight numbers of four bits, float8_e4m3fn or float8_e5m2.
        weight: one tensor, (groups, k, n), of the dtype of ``x``, packed along n.
        weight_scale: one tensor, a factor of each column, (groups, n).
        x_scale: a factor of each row, (m), float32.
        group_list: the groups of rows, (groups).
        smooth_scale: factors of the unit's result, (groups, n / 2) or (groups); with numbers of four bits.
        weight_assist_matrix: must be None.
        bias: must be None.
        dequant_mode: must be 0: a factor for each row and each column.
        dequant_dtype: 0, or float32 (6).
        quant_mode: must be 0: a scale for each row.
        quant_dtype: of the result: int8 (0 or 1), or with a float8 ``x`` float8_e4m3fn or float8_e5m2.
        group_list_type: ``group_list`` holds 0: where groups end; 1: their sizes.
        tuning_config: of no effect.
        x_dtype: must be None.
        weight_dtype: must be None.
        weight_scale_dtype: must be None.
        x_scale_dtype: must be None.

    Returns:
        The numbers, (m, n / 2); the scales, (m), float32. Rows after the last group are 0.

    Raises:
        RuntimeError: for shapes or dtypes that do not fit.
        NotImplementedError: for int8 with a weight of four bits, scales of blocks, and dtypes that torch does not have.
    """
    name = "npu_grouped_matmul_swiglu_quant_v2"
    check_none(
        name,
        "only products of two equally small dtypes with a factor for each row and column are supported",
        weight_assist_matrix=weight_assist_matrix or None,
        bias=bias,
        x_dtype=x_dtype,
        weight_dtype=weight_dtype,
        weight_scale_dtype=weight_scale_dtype,
        x_scale_dtype=x_scale_dtype,
    )
    for argument, value, allowed in (
        ("dequant_mode", dequant_mode, (None, 0)),
        ("dequant_dtype", dequant_dtype, (None, 0, 6)),
        ("quant_mode", quant_mode, (None, 0)),
    ):
        if value not in allowed:
            raise NotImplementedError(f"{name}: {argument} must be 0, not {value}")
    check(len(weight) == 1 and len(weight_scale) == 1, name, "weight and weight_scale must be lists of one tensor")
    if weight[0].dtype != x.dtype:
        raise NotImplementedError(f"{name}: weight must be of {x.dtype} as x is, not of {weight[0].dtype}")
    check(smooth_scale is None or x.dtype is torch.int32, name, "smooth_scale goes with numbers of four bits")
    if x.dtype in FLOAT8:
        dtype = numbered(name, "quant_dtype", quant_dtype, FLOAT8)
    else:
        dtype = torch.int8 if quant_dtype == 0 else numbered(name, "quant_dtype", quant_dtype, (torch.int8,))
    ends = group_ends(name, group_list, group_list_type or 0)
    return _swiglu_rows(name, x, weight[0], weight_scale[0], x_scale, ends, smooth_scale, dtype)


@operator(
    "npu_grouped_matmul_finalize_routing(Tensor x, Tensor w, Tensor group_list, *, Tensor? scale=None, "
    "Tensor? bias=None, Tensor? offset=None, Tensor? pertoken_scale=None, Tensor? shared_input=None, "
    "Tensor? logit=None, Tensor? row_index=None, ScalarType? dtype=None, float? shared_input_weight=1.0, "
    "int? shared_input_offset=0, int? output_bs=0, int? group_list_type=1, int[]? tuning_config=None, "
    "int? x_dtype=None, int? w_dtype=None, int? scale_dtype=None, int? pertoken_scale_dtype=None) -> Tensor"
)
def npu_grouped_matmul_finalize_routing(
    x,
    w,
    group_list,
    *,
    scale=None,
    bias=None,
    offset=None,
    pertoken_scale=None,
    shared_input=None,
    logit=None,
    row_index=None,
    dtype=None,
    shared_input_weight=1.0,
    shared_input_offset=0,
    output_bs=0,
    group_list_type=1,
    tuning_config=None,
    x_dtype=None,
    w_dtype=None,
    scale_dtype=None,
    pertoken_scale_dtype=None,
) -> Tensor:
    r"""
    The rows (x @ w) * scale * pertoken_scale * logit, each added to the row of its token, and shared_input *
    shared_input_weight.

    Args:
        x: (m, k), int8.
        w: (groups, k, n), int8.
        group_list: the groups of rows, (groups), int64.
        scale: a factor of each column, (groups, n), float32; needed.
        bias: must be None.
        offset: must be None.
        pertoken_scale: a factor of each row, (m), float32; needed.
        shared_input: added to the rows from ``shared_input_offset`` on, (rows, n), bfloat16.
        logit: a factor of each row, (m), float32; needed.
        row_index: the token of each row, (m), int32 or int64; needed.
        dtype: None or float32.
        shared_input_weight: factor of ``shared_input``.
        shared_input_offset: see ``shared_input``.
        output_bs: the number of tokens; needed.
        group_list_type: ``group_list`` holds 0: where groups end; 1: their sizes.
        tuning_config: of no effect.
        x_dtype: must be None.
        w_dtype: must be None.
        scale_dtype: must be None.
        pertoken_scale_dtype: must be None.

    Returns:
        (output_bs, n), float32. Rows after the last group count nothing.

    Raises:
        RuntimeError: for shapes or dtypes that do not fit.
        NotImplementedError: for weights of four bits, and what must be None and is not.
    """
    name = "npu_grouped_matmul_finalize_routing"
    check_none(
        name,
        "weights of four bits are not supported",
        bias=bias,
        offset=offset,
        x_dtype=x_dtype,
        w_dtype=w_dtype,
        scale_dtype=scale_dtype,
        pertoken_scale_dtype=pertoken_scale_dtype,
    )
    if x.dtype is not torch.int8 or w.dtype is not torch.int8:
        raise NotImplementedError(f"{name}: x and w must be of torch.int8, not of {x.dtype} and {w.dtype}")
    if dtype not in (None, torch.float32):
        raise NotImplementedError(f"{name}: dtype must be torch.float32, not {dtype}")
    if not output_bs:
        raise NotImplementedError(f"{name}: output_bs must be given")
    needed = {"scale": scale, "pertoken_scale": pertoken_scale, "logit": logit, "row_index": row_index}
    for argument, value in needed.items():
        check(value is not None, name, f"{argument} is needed")
    check_dtype(name, "row_index", row_index, (torch.int32, torch.int64))
    ends = group_ends(name, group_list, 1 if group_list_type is None else group_list_type)
    sums = _sums(name, x, w, ends)
    rows, columns = sums.shape
    _check_table(name, "scale", scale, (w.shape[0], columns))
    for argument in ("pertoken_scale", "logit", "row_index"):
        _check_table(name, argument, needed[argument], (rows,))
    group = group_of_rows(ends, rows)
    factor = by_group(scale.to(sums.dtype), group) * pertoken_scale.to(sums.dtype).unsqueeze(1)
    each = (sums * factor).float() * logit.float().unsqueeze(1)
    # What belongs to rows after the last group may hold anything.
    used = group < w.shape[0]
    each, row_index = torch.where(used.unsqueeze(1), each, 0.0), torch.where(used, row_index, 0)
    out = torch.zeros((output_bs, columns), dtype=torch.float32, device=x.device)
    if shared_input is not None:
        check_dtype(name, "shared_input", shared_input, (torch.bfloat16,))
        first = shared_input_offset or 0
        after = first + shared_input.shape[0]
        check(
            shared_input.dim() == 2 and shared_input.shape[1] == columns and first >= 0 and after <= output_bs,
            name,
            f"shared_input of {tuple(shared_input.shape)} from row {first} on does not fit {(output_bs, columns)}",
        )
        weight = 1.0 if shared_input_weight is None else shared_input_weight
        shared = shared_input.float() * weight
        out = torch.nn.functional.pad(shared, (0, 0, first, output_bs - after))
    return out.index_add(0, row_index, each)


def _check_inner(name: str, self: Tensor, x: Tensor, weight: Tensor, group_type: int) -> None:
    if group_type != 2:
        raise NotImplementedError(f"{name}: group_type must be 2 (groups of k), not {group_type}")
    check_dtype(name, "self", self, (torch.float32,))
    check_dtype(name, "x", x, _HALVES)
    check_dtype(name, "weight", weight, (x.dtype,))


def _inner_product(name, self, x, weight, group_list, transpose_x, transpose_weight, group_type, group_list_type):
    _check_inner(name, self, x, weight, group_type)
    if not transpose_x or transpose_weight:
        raise NotImplementedError(f"{name}: transpose_x must be True and transpose_weight False")
    ends = group_ends(name, group_list, group_list_type or 0)
    check(
        x.dim() == 2 and weight.dim() == 2 and x.shape[0] == weight.shape[0],
        name,
        f"x must be (k, m) and weight (k, n), but they are {tuple(x.shape)} and {tuple(weight.shape)}",
    )
    groups, m, n = ends.shape[0], x.shape[1], weight.shape[1]
    check(
        self.shape in ((groups, m, n), (groups * m, n)),
        name,
        f"self must be {(groups, m, n)} or {(groups * m, n)}, but is {tuple(self.shape)}",
    )
    return torch.ops.npu._npu_grouped_product(x.float().t(), weight.float(), ends, 2).view(self.shape)


@operator(
    "npu_grouped_matmul_add(Tensor self, Tensor x, Tensor weight, Tensor group_list, *, bool transpose_x=True, "
    "bool transpose_weight=False, int group_type=2, int? group_list_type=0) -> Tensor"
)
def npu_grouped_matmul_add(
    self, x, weight, group_list, *, transpose_x=True, transpose_weight=False, group_type=2, group_list_type=0
) -> Tensor:
    r"""
    self + x^T @ weight for each group of k, as the gradients of an expert's weight are summed.

    Args:
        self: (groups, m, n) or (groups * m, n), float32.
        x: (k, m); float16 or bfloat16.
        weight: (k, n), of the dtype of ``x``.
        group_list: the groups of k, (groups).
        transpose_x: must be True.
        transpose_weight: must be False.
        group_type: must be 2.
        group_list_type: ``group_list`` holds 0: where groups end; 1: their sizes.

    Returns:
        A tensor like ``self``.

    Raises:
        RuntimeError: for shapes or dtypes that do not fit.
        NotImplementedError: for other orders and groups.
    """
    name = "npu_grouped_matmul_add"
    return self + _inner_product(
        name, self, x, weight, group_list, transpose_x, transpose_weight, group_type, group_list_type
    )


@operator(
    "npu_grouped_matmul_add_(Tensor(a!) self, Tensor x, Tensor weight, Tensor group_list, *, bool transpose_x=True, "
    "bool transpose_weight=False, int group_type=2, int? group_list_type=0) -> Tensor(a!)"
)
def npu_grouped_matmul_add_(
    self, x, weight, group_list, *, transpose_x=True, transpose_weight=False, group_type=2, group_list_type=0
) -> Tensor:
    r"""
    npu_grouped_matmul_add in place.

    Args:
        self: (groups, m, n) or (groups * m, n), float32; changed.
        x: (k, m); float16 or bfloat16.
        weight: (k, n), of the dtype of ``x``.
        group_list: the groups of k, (groups).
        transpose_x: must be True.
        transpose_weight: must be False.
        group_type: must be 2.
        group_list_type: ``group_list`` holds 0: where groups end; 1: their sizes.

    Returns:
        self.

    Raises:
        RuntimeError: for shapes or dtypes that do not fit.
        NotImplementedError: for other orders and groups.
    """
    name = "npu_grouped_matmul_add_"
    return self.add_(
        _inner_product(name, self, x, weight, group_list, transpose_x, transpose_weight, group_type, group_list_type)
    )


def _ffn_factors(name: str, table: Tensor, group: Tensor | None, groups: int, width: int) -> Tensor:
    r"""A table of a feed-forward network, by rows: of (groups, width), (groups) or without groups (width) or (1)."""
    expected = ((groups, width), (groups,)) if group is not None else ((width,), (1,))
    check(tuple(table.shape) in expected, name, f"a table must be one of {expected}, but is {tuple(table.shape)}")
    wide = table.float()
    if group is None:
        return wide
    return by_group(wide.unsqueeze(1) if wide.dim() == 1 else wide, group)


@operator(
    "npu_ffn(Tensor x, Tensor weight1, Tensor weight2, str activation, *, int[]? expert_tokens=None, "
    "int[]? expert_tokens_index=None, Tensor? bias1=None, Tensor? bias2=None, Tensor? scale=None, "
    "Tensor? offset=None, Tensor? deq_scale1=None, Tensor? deq_scale2=None, Tensor? antiquant_scale1=None, "
    "Tensor? antiquant_scale2=None, Tensor? antiquant_offset1=None, Tensor? antiquant_offset2=None, "
    "int? inner_precise=None, ScalarType? output_dtype=None) -> Tensor"
)
def npu_ffn(
    x,
    weight1,
    weight2,
    activation,
    *,
    expert_tokens=None,
    expert_tokens_index=None,
    bias1=None,
    bias2=None,
    scale=None,
    offset=None,
    deq_scale1=None,
    deq_scale2=None,
    antiquant_scale1=None,
    antiquant_scale2=None,
    antiquant_offset1=None,
    antiquant_offset2=None,
    inner_precise=None,
    output_dtype=None,
) -> Tensor:
    r"""
    activation(x @ weight1 + bias1) @ weight2 + bias2, or with integers
    (round(activation((x @ weight1 + bias1) * deq_scale1) * scale + offset) @ weight2 + bias2) * deq_scale2.

    Args:
        x: (..., k1); float16, bfloat16 or int8.
        weight1: (k1, n1), or with experts (experts, k1, n1); of the dtype of ``x``, or int8.
        weight2: (n1, n2), or with experts (experts, n1, n2); of the dtype of ``weight1``.
        activation: "gelu", "fastgelu", "relu" or "silu".
        expert_tokens: the rows of each expert, which lie one after another.
        expert_tokens_index: where the rows of each expert end, instead.
        bias1: (n1) or (experts, n1).
        bias2: (n2) or (experts, n2).
        scale: with int8: (1), (n1), (experts) or (experts, n1), float32.
        offset: with int8: (1) or (experts), float32.
        deq_scale1: with int8: (n1) or (experts, n1); float32 or bfloat16.
        deq_scale2: with int8: (n2) or (experts, n2), of the dtype of ``deq_scale1``.
        antiquant_scale1: with int8 weights alone: weight1 becomes (weight1 + antiquant_offset1) * this; like ``bias1``.
        antiquant_scale2: likewise.
        antiquant_offset1: likewise.
        antiquant_offset2: likewise.
        inner_precise: of no effect: sums are of float32.
        output_dtype: with int8: float16 (None) or bfloat16.

    Returns:
        (..., n2), of the dtype of ``x`` or ``output_dtype``.

    Raises:
        RuntimeError: for shapes or dtypes that do not fit.
        NotImplementedError: for the activations of gated units, and factors of int64.
    """
    name = "npu_ffn"
    if activation not in _ACTIVATIONS:
        raise NotImplementedError(f"{name}: activation must be one of {sorted(_ACTIVATIONS)}, not {activation!r}")
    check_dtype(name, "x", x, (*_HALVES, torch.int8))
    small = x.dtype is torch.int8
    check_dtype(name, "weight1", weight1, (torch.int8,) if small else (x.dtype, torch.int8))
    check_dtype(name, "weight2", weight2, (weight1.dtype,))
    check(expert_tokens is None or expert_tokens_index is None, name, "expert_tokens or expert_tokens_index, not both")
    for argument, value in (("deq_scale1", deq_scale1), ("deq_scale2", deq_scale2)):
        if value is not None and value.dtype not in (torch.float32, torch.bfloat16):
            raise NotImplementedError(f"{name}: {argument} must be of torch.float32 or torch.bfloat16")
    integer = (scale, offset, deq_scale1, deq_scale2)
    check(small or all(one is None for one in integer), name, "scale, offset and deq_scale1, 2 go with x of torch.int8")
    check(not small or None not in (scale, deq_scale1, deq_scale2), name, "int8 needs scale, deq_scale1 and deq_scale2")
    if output_dtype is not None and small:
        check(
            output_dtype in _HALVES, name, f"output_dtype must be torch.float16 or torch.bfloat16, not {output_dtype}"
        )
    experts = weight1.dim() == 3
    rows = x.reshape(-1, x.shape[-1])
    counts = expert_tokens if expert_tokens is not None else expert_tokens_index
    check(experts == (counts is not None), name, "weights of experts go with expert_tokens or expert_tokens_index")
    group = ends = None
    groups = weight1.shape[0] if experts else 1
    if experts:
        ends = torch.tensor(counts, dtype=torch.int64, device=x.device)
        ends = ends.cumsum(0) if expert_tokens is not None else ends
        total = sum(counts) if expert_tokens is not None else counts[-1]
        check(
            len(counts) == groups and total == rows.shape[0],
            name,
            f"the {groups} experts must take the {rows.shape[0]} rows, but take {list(counts)}",
        )
        group = group_of_rows(ends, rows.shape[0])

    def layer(values: Tensor, weight: Tensor, bias: Tensor | None, factor, shift) -> Tensor:
        wide = weight.float()
        if shift is not None:
            wide = wide + shift.float().unsqueeze(-2)
        if factor is not None:
            wide = wide * factor.float().unsqueeze(-2)
        check(
            weight.dim() == (3 if experts else 2) and values.shape[1] == weight.shape[-2],
            name,
            f"a weight of {tuple(weight.shape)} does not fit rows of {values.shape[1]}",
        )
        depth = exact(values.shape[1]) if small else torch.float32
        a, b = values.to(depth), wide.to(depth)
        out = a @ b if ends is None else grouped_product(a, b, ends)
        if bias is not None:
            out = out + _ffn_factors(name, bias, group, groups, weight.shape[-1]).to(depth)
        return out

    inner = layer(rows, weight1, bias1, antiquant_scale1, antiquant_offset1)
    width = inner.shape[1]
    if not small:
        out = layer(_ACTIVATIONS[activation](inner), weight2, bias2, antiquant_scale2, antiquant_offset2)
        return out.to(x.dtype).view(*x.shape[:-1], -1)
    inner = _ACTIVATIONS[activation](inner.float() * _ffn_factors(name, deq_scale1, group, groups, width))
    inner = inner * _ffn_factors(name, scale, group, groups, width)
    if offset is not None:
        inner = inner + _ffn_factors(name, offset, group, groups, 1)
    numbers = torch.round(inner).clamp(-128, 127)
    out = layer(numbers, weight2, bias2, None, None).float()
    out = out * _ffn_factors(name, deq_scale2, group, groups, out.shape[1])
    return out.to(output_dtype or torch.float16).view(*x.shape[:-1], -1)
