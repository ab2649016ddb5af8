r"""Activations of gated units, and activations whose results are quantised."""

import torch
from torch import Tensor

from ._checks import FLOATING, check, check_dtype
from ._numbers import by_group, group_ends, group_of_rows, numbered, rounded, rows_rounded
from ._registration import operator

_RESULTS = (torch.int8, torch.quint4x2)


def _swish(x: Tensor, alpha: float = 1.0) -> Tensor:
    return x * torch.sigmoid(x * alpha)


def _gated(x: Tensor, activate_left: bool) -> Tensor:
    left, right = x.chunk(2, -1)
    return _swish(left) * right if activate_left else _swish(right) * left


def _clipped(gate: Tensor, linear: Tensor, limit: float, alpha: float, bias: float) -> Tensor:
    return _swish(gate.clamp(max=limit), alpha) * (linear.clamp(-limit, limit) + bias)


def _as_rows(name: str, x: Tensor) -> Tensor:
    check(x.dim() > 1 and x.shape[-1] % 2 == 0, name, f"the last dimension must be even, but x is {tuple(x.shape)}")
    return x.reshape(-1, x.shape[-1])


def _table(name: str, argument: str, table: Tensor, groups: int, widths: tuple[int, ...]) -> Tensor:
    r"""Factors of each group, (groups, width); one for a whole group if there is one dimension."""
    rows = table.float().unsqueeze(-1) if table.dim() == 1 and table.shape[0] == groups else table.float()
    check(
        rows.dim() == 2 and rows.shape[0] == groups and rows.shape[1] in widths,
        name,
        f"{argument} must be of shape ({groups}, {widths[0]}), but is {tuple(table.shape)}",
    )
    return rows


def _finished(name, x, wide, dtype, quant_mode, factor, offset) -> tuple[Tensor, Tensor]:
    r"""The results of a gated unit, scaled and quantised, as x without half of its last dimension."""
    if factor is not None:
        wide = wide * factor
    if quant_mode == 1:
        numbers, scales = rows_rounded(name, wide, dtype)
    else:
        numbers = rounded(name, wide if offset is None else wide + offset, dtype)
        scales = torch.zeros(wide.shape[:1], dtype=torch.float32, device=x.device)
    return numbers.view(*x.shape[:-1], numbers.shape[-1]), scales.view(x.shape[:-1])


@operator(
    "npu_swiglu_quant(Tensor x, *, Tensor? smooth_scales=None, Tensor? offsets=None, Tensor? group_index=None, "
    "bool activate_left=False, int quant_mode=0, int group_list_type=0, ScalarType? dst_type=None) -> (Tensor, Tensor)"
)
def npu_swiglu_quant(
    x,
    *,
    smooth_scales=None,
    offsets=None,
    group_index=None,
    activate_left=False,
    quant_mode=0,
    group_list_type=0,
    dst_type=None,
) -> tuple[Tensor, Tensor]:
    r"""
    The gated unit silu(a) * b of the halves of the last dimension, quantised.

    Args:
        x: (..., 2 n); float16, bfloat16 or float32.
        smooth_scales: factors of the result, (groups, n) or (groups), float32.
        offsets: like ``smooth_scales``, added with ``quant_mode`` 0.
        group_index: groups of rows, (groups), int32; None: one group.
        activate_left: whether a is the left half, else the right one.
        quant_mode: 0: round(y * smooth_scales + offsets); 1: with a scale for each row.
        group_list_type: ``group_index`` holds 0: where groups end; 1: their sizes.
        dst_type: int8 (None), or quint4x2: eight numbers of four bits in each int32.

    Returns:
        The numbers, (..., n); the scales of the rows, float32, of the shape without the last dimension, or zeros with
        ``quant_mode`` 0. Rows of no group are 0 if there are ``smooth_scales``.

    Raises:
        RuntimeError: for shapes or dtypes that do not fit.
        NotImplementedError: for another ``dst_type``.
    """
    name = "npu_swiglu_quant"
    check_dtype(name, "x", x, FLOATING)
    dtype = numbered(name, "dst_type", dst_type, _RESULTS)
    check(quant_mode in (0, 1), name, f"quant_mode must be 0 or 1, but is {quant_mode}")
    check(offsets is None or quant_mode == 0 or smooth_scales is not None, name, "offsets go with smooth_scales")
    wide = _gated(_as_rows(name, x).detach().float(), activate_left)
    factor = offset = None
    if smooth_scales is not None:
        groups = 1 if group_index is None else group_index.shape[0]
        widths = (wide.shape[1], 1)
        factor = _table(name, "smooth_scales", smooth_scales, groups, widths)
        offset = None if offsets is None else _table(name, "offsets", offsets, groups, widths)
        if group_index is not None:
            group = group_of_rows(group_ends(name, group_index, group_list_type), wide.shape[0])
            factor = by_group(factor, group)
            offset = None if offset is None else by_group(offset, group)
    else:
        check(offsets is None, name, "offsets go with smooth_scales")
    return _finished(name, x, wide, dtype, quant_mode, factor, offset)


@operator(
    "npu_dequant_swiglu_quant(Tensor x, *, Tensor? weight_scale=None, Tensor? activation_scale=None, "
    "Tensor? bias=None, Tensor? quant_scale=None, Tensor? quant_offset=None, Tensor? group_index=None, "
    "bool activate_left=False, int quant_mode=0, int? dst_type=None, int? round_mode=None, int? activate_dim=None, "
    "int swiglu_mode=0, float clamp_limit=7.0, float glu_alpha=1.702, float glu_bias=1.0) -> (Tensor, Tensor)"
)
def npu_dequant_swiglu_quant(
    x,
    *,
    weight_scale=None,
    activation_scale=None,
    bias=None,
    quant_scale=None,
    quant_offset=None,
    group_index=None,
    activate_left=False,
    quant_mode=0,
    dst_type=None,
    round_mode=None,
    activate_dim=None,
    swiglu_mode=0,
    clamp_limit=7.0,
    glu_alpha=1.702,
    glu_bias=1.0,
) -> tuple[Tensor, Tensor]:
    r"""
    Sums of integer products made numbers again, a gated unit of their halves, quantised.

    Args:
        x: (tokens, 2 h); int32, float16 or bfloat16.
        weight_scale: factors, (groups, 2 h), float32.
        activation_scale: a factor of each row, (tokens, 1), float32; with x of int32, and needed there.
        bias: int32, (2 h), added to x of int32 before the factors; without ``group_index``.
        quant_scale: factors of the unit's result, (groups, h).
        quant_offset: (1, h), added with ``quant_mode`` 0; without ``group_index``.
        group_index: sizes of the groups of rows, int64; None: one group.
        activate_left: whether the left half is activated, with ``swiglu_mode`` 0 and 2.
        quant_mode: 0: round(y * quant_scale + quant_offset); 1: with a scale for each row.
        dst_type: must be None or int8.
        round_mode: must be None or 0: halves to even numbers.
        activate_dim: must be None or the last dimension.
        swiglu_mode: 0: silu(a) * b; 1: of even and odd columns a and b, a * sigmoid(glu_alpha * a) * (b + glu_bias)
            with a and b clamped; 2: the same of halves.
        clamp_limit: a is at most this, b lies within it.
        glu_alpha: see ``swiglu_mode``.
        glu_bias: see ``swiglu_mode``.

    Returns:
        int8, (tokens, h); the scales of the rows, (tokens), float32, zeros with ``quant_mode`` 0. Rows after the last
        group are 0.

    Raises:
        RuntimeError: for shapes or dtypes that do not fit.
        NotImplementedError: for another ``dst_type``, ``round_mode`` or ``activate_dim``.
    """
    name = "npu_dequant_swiglu_quant"
    check_dtype(name, "x", x, (torch.int32, torch.float16, torch.bfloat16))
    check(x.dim() == 2, name, f"x must be of two dimensions, but is {tuple(x.shape)}")
    numbered(name, "dst_type", dst_type, (torch.int8,))
    if round_mode not in (None, 0):
        raise NotImplementedError(f"{name}: round_mode must be 0, not {round_mode}")
    if activate_dim not in (None, -1, x.dim() - 1):
        raise NotImplementedError(f"{name}: activate_dim must be the last dimension, not {activate_dim}")
    check(quant_mode in (0, 1), name, f"quant_mode must be 0 or 1, but is {quant_mode}")
    check(swiglu_mode in (0, 1, 2), name, f"swiglu_mode must be 0, 1 or 2, but is {swiglu_mode}")
    check(
        group_index is None or (bias is None and quant_offset is None), name, "group_index has no bias or quant_offset"
    )
    rows = _as_rows(name, x)
    tokens, width = rows.shape
    groups = 1 if group_index is None else group_index.shape[0]
    group = None if group_index is None else group_of_rows(group_ends(name, group_index, 1), tokens)

    def each(argument: str, table: Tensor | None, columns: int) -> Tensor | None:
        if table is None:
            return None
        table = table.reshape(1, -1) if group is None and table.dim() == 1 else table
        found = _table(name, argument, table, groups, (columns,))
        return found if group is None else by_group(found, group)

    if x.dtype is torch.int32:
        check(activation_scale is not None, name, "x of torch.int32 needs activation_scale")
        check(
            activation_scale.numel() == tokens,
            name,
            f"activation_scale must be of shape ({tokens}, 1), but is {tuple(activation_scale.shape)}",
        )
    else:
        check(activation_scale is None and bias is None, name, f"x of {x.dtype} has no activation_scale and no bias")
    if bias is not None:
        check_dtype(name, "bias", bias, (torch.int32,))
        check(bias.numel() == width, name, f"bias must be of shape ({width},), but is {tuple(bias.shape)}")
        rows = rows + bias.reshape(1, width)
    wide = rows.detach().float()
    factor = each("weight_scale", weight_scale, width)
    if factor is not None:
        wide = wide * factor
    if activation_scale is not None:
        wide = wide * activation_scale.float().reshape(tokens, 1)
    if swiglu_mode == 0:
        out = _gated(wide, activate_left)
    elif swiglu_mode == 1:
        out = _clipped(wide[:, ::2], wide[:, 1::2], clamp_limit, glu_alpha, glu_bias)
    else:
        left, right = wide.chunk(2, -1)
        gate, linear = (left, right) if activate_left else (right, left)
        out = _clipped(gate, linear, clamp_limit, glu_alpha, glu_bias)
    if group is not None:
        out = torch.where((group < groups).unsqueeze(1), out, 0.0)
    smooth = each("quant_scale", quant_scale, width // 2)
    offset = each("quant_offset", quant_offset, width // 2)
    return _finished(name, x, out, torch.int8, quant_mode, smooth, offset)


@operator(
    "npu_clipped_swiglu(Tensor x, *, Tensor? group_index=None, int dim=-1, float alpha=1.702, float limit=7.0, "
    "float bias=1.0, bool interleaved=True) -> Tensor"
)
def npu_clipped_swiglu(x, *, group_index=None, dim=-1, alpha=1.702, limit=7.0, bias=1.0, interleaved=True) -> Tensor:
    r"""
    a * sigmoid(alpha * a) * (b + bias), a being at most ``limit`` and b within it. Differentiable.

    Args:
        x: of two dimensions or more, ``dim`` being even; float16, bfloat16 or float32.
        group_index: sizes of groups of rows, int64; the dimensions before ``dim`` are the rows, and those after the
            groups' sum give zeros.
        dim: what is split into a and b, together with what follows it.
        alpha: see above.
        limit: see above.
        bias: see above.
        interleaved: whether a and b are the even and the odd numbers, or the halves.

    Returns:
        A tensor like ``x`` with half of ``dim``.

    Raises:
        RuntimeError: for shapes or dtypes that do not fit.
    """
    name = "npu_clipped_swiglu"
    check_dtype(name, "x", x, FLOATING)
    check(x.dim() > 1, name, f"x must be of two dimensions or more, but is {tuple(x.shape)}")
    check(-x.dim() <= dim < x.dim(), name, f"dim must lie within the {x.dim()} dimensions, but is {dim}")
    dim = dim % x.dim()
    check(x.shape[dim] % 2 == 0, name, f"dim {dim} must be even, but x is {tuple(x.shape)}")
    rows = x.reshape(*x.shape[:dim], -1).reshape(-1, x.shape[dim:].numel()).float()
    gate, linear = (rows[:, ::2], rows[:, 1::2]) if interleaved else rows.chunk(2, 1)
    out = _clipped(gate, linear, limit, alpha, bias)
    if group_index is not None:
        used = torch.arange(out.shape[0], device=x.device) < group_index.sum()
        out = torch.where(used.unsqueeze(1), out, 0.0)
    shape = list(x.shape)
    shape[dim] //= 2
    return out.to(x.dtype).view(shape)


@operator(
    "npu_gelu_quant(Tensor self, *, Tensor? input_scale=None, Tensor? input_offset=None, str approximate='none', "
    "str quant_mode='dynamic', int? dst_type=None, str round_mode='rint') -> (Tensor, Tensor)"
)
def npu_gelu_quant(
    self,
    *,
    input_scale=None,
    input_offset=None,
    approximate="none",
    quant_mode="dynamic",
    dst_type=None,
    round_mode="rint",
) -> tuple[Tensor, Tensor]:
    r"""
    The gelu of numbers, quantised.

    Args:
        self: any shape; float16, bfloat16 or float32.
        input_scale: factors of the gelu, (1) or (last dimension); needed for "static".
        input_offset: like ``input_scale``, added with "static".
        approximate: "none" or "tanh".
        quant_mode: "static": round(y * input_scale + input_offset); "dynamic": with a scale for each row.
        dst_type: int8 (None), float8_e4m3fn or float8_e5m2.
        round_mode: must be "rint".

    Returns:
        The numbers, like ``self``; the scales, float32, of the shape without the last dimension, or an empty tensor
        with "static".

    Raises:
        RuntimeError: for shapes or dtypes that do not fit.
        NotImplementedError: for another ``dst_type`` or ``round_mode``.
    """
    name = "npu_gelu_quant"
    check_dtype(name, "self", self, FLOATING)
    check(approximate in ("none", "tanh"), name, f"approximate must be 'none' or 'tanh', but is {approximate!r}")
    check(quant_mode in ("static", "dynamic"), name, f"quant_mode must be 'static' or 'dynamic', but is {quant_mode!r}")
    if round_mode != "rint":
        raise NotImplementedError(f"{name}: round_mode must be 'rint', not {round_mode!r}")
    dtype = numbered(name, "dst_type", dst_type, (torch.int8, torch.float8_e4m3fn, torch.float8_e5m2))
    for argument, table in (("input_scale", input_scale), ("input_offset", input_offset)):
        check(
            table is None or (table.dim() == 1 and table.shape[0] in (1, self.shape[-1])),
            name,
            f"{argument} must be of shape (1) or ({self.shape[-1]}), but is {None if table is None else table.shape}",
        )
    out = torch.nn.functional.gelu(self.detach().float(), approximate=approximate)
    if input_scale is not None:
        out = out * input_scale.float()
    if quant_mode == "dynamic":
        check(input_offset is None, name, "quant_mode 'dynamic' has no input_offset")
        return rows_rounded(name, out, dtype)
    check(input_scale is not None, name, "quant_mode 'static' needs input_scale")
    out = out if input_offset is None else out + input_offset.float()
    return rounded(name, out, dtype), self.new_empty(0, dtype=torch.float32)
