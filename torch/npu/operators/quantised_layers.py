r"""Layers whose result is quantised, and a convolution of bytes."""

import torch
from torch import Tensor

from ._checks import FLOATING, check, check_dtype, check_none
from ._numbers import FLOAT8, blocks_rounded, numbered, rounded, rows_rounded
from ._registration import operator

_HALVES = (torch.float16, torch.bfloat16)
_FLOAT4 = torch.float4_e2m1fn_x2


@operator(
    "npu_quant_conv2d(Tensor input, Tensor weight, Tensor scale, int[2] strides=1, int[2] pads=0, int[2] dilations=1, "
    "int groups=1, int offset_x=0, str round_mode='rint', int? output_dtype=None, Tensor? bias=None, "
    "Tensor? offset=None, int? input_dtype=None, int? weight_dtype=None) -> Tensor"
)
def npu_quant_conv2d(
    input,
    weight,
    scale,
    strides=(1, 1),
    pads=(0, 0),
    dilations=(1, 1),
    groups=1,
    offset_x=0,
    round_mode="rint",
    output_dtype=None,
    bias=None,
    offset=None,
    input_dtype=None,
    weight_dtype=None,
) -> Tensor:
    r"""
    (the convolution of bytes + bias) * scale; the sums are exact.

    Args:
        input: (batch, channels, height, width), int8.
        weight: (outputs, channels, height, width), int8.
        scale: a factor of each output, (outputs); float32, or what npu_trans_quant_param makes.
        strides: steps of the kernel.
        pads: rows and columns that are added on both sides.
        dilations: steps within the kernel.
        groups: must be 1.
        offset_x: the number that pads hold.
        round_mode: must be "rint".
        output_dtype: float16 (5); needed.
        bias: (outputs), int32.
        offset: must be None.
        input_dtype: must be None.
        weight_dtype: must be None.

    Returns:
        (batch, outputs, height, width), float16.

    Raises:
        RuntimeError: for shapes or dtypes that do not fit.
        NotImplementedError: for what must have one value and has another.
    """
    name = "npu_quant_conv2d"
    check_none(name, "it is reserved", offset=offset, input_dtype=input_dtype, weight_dtype=weight_dtype)
    if groups != 1 or round_mode != "rint":
        raise NotImplementedError(f"{name}: groups must be 1 and round_mode 'rint', not {groups} and {round_mode!r}")
    if output_dtype is None:
        raise NotImplementedError(f"{name}: output_dtype must be given")
    result = numbered(name, "output_dtype", output_dtype, (torch.float16,))
    check_dtype(name, "input", input, (torch.int8,))
    check_dtype(name, "weight", weight, (torch.int8,))
    check_dtype(name, "scale", scale, (torch.float32, torch.int64))
    outputs = weight.shape[0]
    check(
        input.dim() == 4 and weight.dim() == 4 and scale.shape == (outputs,),
        name,
        f"input and weight must be of four dimensions and scale ({outputs},), but they are {tuple(input.shape)}, "
        f"{tuple(weight.shape)} and {tuple(scale.shape)}",
    )
    rows, columns = pads
    padded = torch.nn.functional.pad(input.double(), (columns, columns, rows, rows), value=float(offset_x))
    out = torch.nn.functional.conv2d(padded, weight.double(), None, list(strides), 0, list(dilations))
    if bias is not None:
        check_dtype(name, "bias", bias, (torch.int32,))
        check(bias.shape == (outputs,), name, f"bias must be of shape ({outputs},), but is {tuple(bias.shape)}")
        out = out + bias.double().view(1, outputs, 1, 1)
    if scale.dtype is torch.int64:
        low = scale & 0xFFFFFFFF
        scale = torch.where(low > 0x7FFFFFFF, low - (1 << 32), low).to(torch.int32).view(torch.float32)
    return (out * scale.double().view(1, outputs, 1, 1)).to(result)


@operator(
    "npu_rotate_quant(Tensor x, Tensor rotation, *, Tensor? alpha=None, int? dst_dtype=None, int? axis=-1, "
    "str? round_mode='rint', int? scale_alg=0, float? dst_type_max=0.0, bool? transpose_y=False) -> (Tensor, Tensor)"
)
def npu_rotate_quant(
    x,
    rotation,
    *,
    alpha=None,
    dst_dtype=None,
    axis=-1,
    round_mode="rint",
    scale_alg=0,
    dst_type_max=0.0,
    transpose_y=False,
) -> tuple[Tensor, Tensor]:
    r"""
    Each k numbers of a row times a matrix, and the rows quantised with a scale each.

    Args:
        x: (rows, width), width being a multiple of k; float16 or bfloat16.
        rotation: (k, k), of the dtype of ``x``.
        alpha: must be None.
        dst_dtype: int8 (None), or quint4x2: eight numbers of four bits in each int32.
        axis: must be the last one.
        round_mode: must be "rint".
        scale_alg: must be 0.
        dst_type_max: must be 0.
        transpose_y: must be False.

    Returns:
        The numbers, (rows, width); the scales, (rows), float32.

    Raises:
        RuntimeError: for shapes or dtypes that do not fit.
        NotImplementedError: for what must have one value and has another.
    """
    name = "npu_rotate_quant"
    check_none(name, "it has no effect where the result is of integers", alpha=alpha)
    dtype = numbered(name, "dst_dtype", dst_dtype, (torch.int8, torch.quint4x2))
    for argument, value, allowed in (
        ("axis", axis, (None, -1, 1)),
        ("round_mode", round_mode, (None, "rint")),
        ("scale_alg", scale_alg, (None, 0)),
        ("dst_type_max", dst_type_max, (None, 0.0)),
        ("transpose_y", transpose_y, (None, False)),
    ):
        if value not in allowed:
            raise NotImplementedError(f"{name}: {argument} must be {allowed[1]!r}, not {value!r}")
    check_dtype(name, "x", x, _HALVES)
    check_dtype(name, "rotation", rotation, (x.dtype,))
    check(
        x.dim() == 2
        and rotation.dim() == 2
        and rotation.shape[0] == rotation.shape[1]
        and x.shape[1] % rotation.shape[0] == 0,
        name,
        f"x must be (rows, n * k) and rotation (k, k), but they are {tuple(x.shape)} and {tuple(rotation.shape)}",
    )
    k = rotation.shape[0]
    turned = x.detach().float().unflatten(1, (x.shape[1] // k, k)) @ rotation.detach().float()
    return rows_rounded(name, turned.flatten(1), dtype)


@operator(
    "npu_kronecker_quant(Tensor x, Tensor kronecker_p1, Tensor kronecker_p2, float? clip_ratio=None, "
    "int? dst_dtype=None, float? dst_type_max=None) -> (Tensor out, Tensor quant_scale)"
)
def npu_kronecker_quant(
    x, kronecker_p1, kronecker_p2, clip_ratio=None, dst_dtype=None, dst_type_max=None
) -> tuple[Tensor, Tensor]:
    r"""
    kronecker_p1 @ x @ kronecker_p2, each matrix quantised to four bits with a scale.

    Args:
        x: (batch, m, n), n being a multiple of 8; float16 or bfloat16.
        kronecker_p1: (m, m), of the dtype of ``x``.
        kronecker_p2: (n, n), of the dtype of ``x``.
        clip_ratio: the share of the largest number that is kept, above 0 and up to 1 (None).
        dst_dtype: None or quint4x2: eight numbers of four bits in each int32.
        dst_type_max: must be None or 0.

    Returns:
        int32, (batch, m, n / 8); the scales, (batch), float32.

    Raises:
        RuntimeError: for shapes or dtypes that do not fit.
        NotImplementedError: for another ``dst_dtype`` or ``dst_type_max``.
    """
    name = "npu_kronecker_quant"
    dtype = numbered(name, "dst_dtype", dst_dtype, (torch.quint4x2,))
    if dst_type_max not in (None, 0.0):
        raise NotImplementedError(f"{name}: dst_type_max must be 0, not {dst_type_max}")
    check_dtype(name, "x", x, _HALVES)
    check_dtype(name, "kronecker_p1", kronecker_p1, (x.dtype,))
    check_dtype(name, "kronecker_p2", kronecker_p2, (x.dtype,))
    check(
        x.dim() == 3 and kronecker_p1.shape == (x.shape[1],) * 2 and kronecker_p2.shape == (x.shape[2],) * 2,
        name,
        f"x, kronecker_p1 and kronecker_p2 do not fit: {tuple(x.shape)}, {tuple(kronecker_p1.shape)}, "
        f"{tuple(kronecker_p2.shape)}",
    )
    ratio = 1.0 if clip_ratio is None else clip_ratio
    check(0 < ratio <= 1, name, f"clip_ratio must be above 0 and up to 1, but is {ratio}")
    out = kronecker_p1.detach().float() @ (x.detach().float() @ kronecker_p2.detach().float())
    scale = out.abs().amax((1, 2)) / (7.0 / ratio)
    divisor = torch.where(scale == 0, 1.0, scale).view(-1, 1, 1)
    return rounded(name, out / divisor, dtype), scale


@operator(
    "npu_quant_max(Tensor x, Tensor scale, *, str round_mode='rint', int dst_dtype=291, Tensor? group_list=None) "
    "-> (Tensor, Tensor)"
)
def npu_quant_max(x, scale, *, round_mode="rint", dst_dtype=291, group_list=None) -> tuple[Tensor, Tensor]:
    r"""
    x * scale as float8, and the largest absolute number of x.

    Args:
        x: float16, bfloat16 or float32.
        scale: (1), float32.
        round_mode: must be "rint".
        dst_dtype: float8_e5m2 (291) or float8_e4m3fn (292).
        group_list: must be None.

    Returns:
        The numbers, like ``x``; (1), of the dtype of ``x``.

    Raises:
        RuntimeError: for dtypes or shapes that do not fit.
        NotImplementedError: for ``group_list``, and another ``dst_dtype`` or ``round_mode``.
    """
    name = "npu_quant_max"
    check_none(name, "largest numbers of groups are not supported", group_list=group_list)
    if round_mode != "rint":
        raise NotImplementedError(f"{name}: round_mode must be 'rint', not {round_mode!r}")
    dtype = numbered(name, "dst_dtype", dst_dtype, FLOAT8)
    check_dtype(name, "x", x, FLOATING)
    check_dtype(name, "scale", scale, (torch.float32,))
    check(scale.shape == (1,), name, f"scale must be of shape (1,), but is {tuple(scale.shape)}")
    x = x.detach()
    return rounded(name, x.float() * scale, dtype), x.abs().amax().view(1)


@operator(
    "npu_swiglu_mx_quant(Tensor x, *, Tensor? group_index=None, int activate_dim=-1, bool activate_left=False, "
    "int swiglu_mode=0, float clamp_limit=7.0, float glu_alpha=1.702, float glu_bias=1.0, int group_mode=0, "
    "int axis=-1, int dst_type=296, str round_mode='rint', int scale_alg=0, float max_dtype_value=0) "
    "-> (Tensor, Tensor)"
)
def npu_swiglu_mx_quant(
    x,
    *,
    group_index=None,
    activate_dim=-1,
    activate_left=False,
    swiglu_mode=0,
    clamp_limit=7.0,
    glu_alpha=1.702,
    glu_bias=1.0,
    group_mode=0,
    axis=-1,
    dst_type=296,
    round_mode="rint",
    scale_alg=0,
    max_dtype_value=0.0,
) -> tuple[Tensor, Tensor]:
    r"""
    A gated unit of the last dimension, as npu_dequant_swiglu_quant has it, with a power of two for each 32 numbers.

    Args:
        x: of two dimensions or more; float16 or bfloat16.
        group_index: sizes of groups of rows; rows after their sum are 0.
        activate_dim: must be the last one.
        activate_left: whether the left half is activated, with ``swiglu_mode`` 0 and 2.
        swiglu_mode: 0: silu(a) * b of halves; 1: clamped, of even and odd numbers; 2: clamped, of halves.
        clamp_limit: as in npu_dequant_swiglu_quant.
        glu_alpha: as in npu_dequant_swiglu_quant.
        glu_bias: as in npu_dequant_swiglu_quant.
        group_mode: must be 0: sizes.
        axis: where the blocks lie: the last one, or without ``group_index`` the last but one.
        dst_type: float4_e2m1fn_x2 (296), float8_e5m2 (291 or 23) or float8_e4m3fn (292 or 24).
        round_mode: "rint", and for float4_e2m1fn_x2 "round" and "floor".
        scale_alg: must be 0.
        max_dtype_value: must be 0.

    Returns:
        The numbers and the bytes of the scales, as npu_dynamic_mx_quant gives them.

    Raises:
        RuntimeError: for dtypes or shapes that do not fit.
        NotImplementedError: for what must have one value and has another.
    """
    name = "npu_swiglu_mx_quant"
    check_dtype(name, "x", x, _HALVES)
    check(x.dim() > 1 and x.shape[-1] % 2 == 0, name, f"the last dimension must be even, but x is {tuple(x.shape)}")
    for argument, value, allowed in (
        ("activate_dim", activate_dim, (-1, x.dim() - 1)),
        ("swiglu_mode", swiglu_mode, (0, 1, 2)),
        ("group_mode", group_mode, (0,)),
        ("axis", axis, (-1, x.dim() - 1) if group_index is not None else (-1, -2, x.dim() - 1, x.dim() - 2)),
        ("scale_alg", scale_alg, (0,)),
        ("max_dtype_value", max_dtype_value, (0.0,)),
    ):
        if value not in allowed:
            raise NotImplementedError(f"{name}: {argument} must be one of {allowed}, not {value!r}")
    dtype = numbered(name, "dst_type", dst_type, (_FLOAT4, *FLOAT8))
    wide = x.detach().float()
    left, right = (wide[..., ::2], wide[..., 1::2]) if swiglu_mode == 1 else wide.chunk(2, -1)
    gate, linear = (left, right) if activate_left or swiglu_mode == 1 else (right, left)
    if swiglu_mode == 0:
        out = torch.nn.functional.silu(gate) * linear
    else:
        gate = gate.clamp(max=clamp_limit)
        out = gate * torch.sigmoid(glu_alpha * gate) * (linear.clamp(-clamp_limit, clamp_limit) + glu_bias)
    if group_index is not None:
        rows = out.flatten(0, -2)
        used = torch.arange(rows.shape[0], device=x.device) < group_index.sum()
        out = torch.where(used.unsqueeze(1), rows, 0.0).view(out.shape)
    return blocks_rounded(name, out, axis, dtype, round_mode)
