r"""Norms and gated units whose result gets a power of two for each 32 numbers, as npu_dynamic_mx_quant gives it."""

import torch
from torch import Tensor

from ._attention import wide
from ._checks import check, check_dtype
from ._numbers import FLOAT8, blocks_rounded, group_ends, numbered
from ._registration import operator
from ._slots import rms_norm
from .grouped_numbers import grouped_blocks_rounded

_HALVES = (torch.float16, torch.bfloat16)
_FLOAT4 = torch.float4_e2m1fn_x2


def _norm_rounded(name, x, total, gamma, beta, epsilon, scale_alg, round_mode, dst_type):
    dtype = numbered(name, "dst_type", dst_type, (_FLOAT4, *FLOAT8))
    if scale_alg != 0:
        raise NotImplementedError(f"{name}: scale_alg must be 0, not {scale_alg}")
    for argument, tensor in (("gamma", gamma), ("beta", beta)):
        if tensor is not None:
            check(
                tensor.shape == x.shape[-1:],
                name,
                f"{argument} must be of shape {tuple(x.shape[-1:])}, but is {tuple(tensor.shape)}",
            )
            check_dtype(name, argument, tensor, (x.dtype, torch.float32))
    norm, factor = rms_norm(total, wide(gamma), epsilon)
    if beta is not None:
        norm = norm + wide(beta)
    # The norm has the dtype of x before it is divided into blocks.
    numbers, scales = blocks_rounded(name, norm.to(x.dtype), -1, dtype, round_mode)
    return numbers, scales, factor.detach() if x.requires_grad else factor.new_empty(0)


@operator(
    "npu_rms_norm_dynamic_mx_quant(Tensor x, Tensor gamma, *, Tensor? beta=None, float epsilon=1e-06, "
    "int scale_alg=0, str round_mode='rint', int dst_type=296) -> (Tensor, Tensor, Tensor)"
)
def npu_rms_norm_dynamic_mx_quant(
    x, gamma, *, beta=None, epsilon=1e-06, scale_alg=0, round_mode="rint", dst_type=296
) -> tuple[Tensor, Tensor, Tensor]:
    r"""
    The root-mean-square norm of the last dimension, then npu_dynamic_mx_quant.

    Args:
        x: float16 or bfloat16.
        gamma: (last dimension), of the dtype of ``x`` or float32.
        beta: added to the norm, like ``gamma``.
        epsilon: added to the mean of squares.
        scale_alg: must be 0.
        round_mode: "rint", and for float4_e2m1fn_x2 "round" and "floor".
        dst_type: float4_e2m1fn_x2 (296), float8_e5m2 (291 or 23) or float8_e4m3fn (292 or 24).

    Returns:
        The numbers and the bytes of the scales, as npu_dynamic_mx_quant gives them of the last axis; the factors of
        the rows, float32, which are empty unless ``x`` requires a gradient.

    Raises:
        RuntimeError: for dtypes or shapes that do not fit.
        NotImplementedError: for another ``scale_alg`` or ``dst_type``.
    """
    name = "npu_rms_norm_dynamic_mx_quant"
    check_dtype(name, "x", x, _HALVES)
    return _norm_rounded(name, x, wide(x), gamma, beta, epsilon, scale_alg, round_mode, dst_type)


@operator(
    "npu_add_rms_norm_dynamic_mx_quant(Tensor x1, Tensor x2, Tensor gamma, *, Tensor? beta=None, "
    "float epsilon=1e-06, int scale_alg=0, str round_mode='rint', int dst_type=296) "
    "-> (Tensor, Tensor, Tensor, Tensor)"
)
def npu_add_rms_norm_dynamic_mx_quant(
    x1, x2, gamma, *, beta=None, epsilon=1e-06, scale_alg=0, round_mode="rint", dst_type=296
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    r"""
    :func:`npu_rms_norm_dynamic_mx_quant` of a sum.

    Args:
        x1: float16 or bfloat16.
        x2: like ``x1``.
        gamma: as there.
        beta: as there.
        epsilon: as there.
        scale_alg: must be 0.
        round_mode: as there.
        dst_type: as there.

    Returns:
        The numbers; the sum, of the dtype of ``x1``; the bytes of the scales; the factors of the rows, float32, which
        are empty unless ``x1`` requires a gradient.

    Raises:
        RuntimeError: for dtypes or shapes that do not fit.
        NotImplementedError: for another ``scale_alg`` or ``dst_type``.
    """
    name = "npu_add_rms_norm_dynamic_mx_quant"
    check_dtype(name, "x1", x1, _HALVES)
    check(
        x1.shape == x2.shape and x1.dtype == x2.dtype,
        name,
        f"x1 and x2 must have one shape and dtype, but are {tuple(x1.shape)}, {x1.dtype} and {tuple(x2.shape)}, "
        f"{x2.dtype}",
    )
    total = wide(x1) + wide(x2)
    numbers, scales, factor = _norm_rounded(name, x1, total, gamma, beta, epsilon, scale_alg, round_mode, dst_type)
    return numbers, total.to(x1.dtype), scales, factor


def _both_axes(name, x, out, group_index, round_mode, scale_alg, dst_type, dst_type_max):
    r"""Blocks along the last axis, and along the rows, within groups if there are some."""
    dtype = numbered(name, "dst_type", dst_type, (torch.float8_e4m3fn, torch.float8_e5m2, _FLOAT4))
    algs = (0, 1) if dtype in FLOAT8 else (0,)
    if scale_alg not in algs or dst_type_max != 0:
        raise NotImplementedError(
            f"{name}: scale_alg must be one of {algs} for {dtype} and dst_type_max 0, not {scale_alg} and "
            f"{dst_type_max}"
        )
    columns = blocks_rounded(name, out, -1, dtype, round_mode, scale_alg)
    if group_index is None:
        return *columns, *blocks_rounded(name, out, -2, dtype, round_mode, scale_alg)
    ends = group_ends(name, group_index, 0)
    return *columns, *grouped_blocks_rounded(name, out, ends, dtype, round_mode, scale_alg)


def _gates(name: str, x: Tensor, activate_left: bool) -> tuple[Tensor, Tensor]:
    check_dtype(name, "x", x, _HALVES)
    check(
        x.dim() == 2 and x.shape[1] % 2 == 0, name, f"x must be of two dimensions, the last one even: {tuple(x.shape)}"
    )
    left, right = x.detach().float().chunk(2, -1)
    return (left, right) if activate_left else (right, left)


_DUAL = (
    "Tensor? group_index=None, bool activate_left=True, str round_mode='rint', int scale_alg=1, int dst_type=24, "
    "float dst_type_max=0) -> (Tensor, Tensor, Tensor, Tensor)"
)


@operator(f"npu_swiglu_mx_quant_with_dual_axis(Tensor x, *, {_DUAL}")
def npu_swiglu_mx_quant_with_dual_axis(
    x, *, group_index=None, activate_left=True, round_mode="rint", scale_alg=1, dst_type=24, dst_type_max=0.0
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    r"""
    silu(a) * b of the halves of the last dimension, with a power of two for each 32 numbers, once along the rows' own
    axis and once along the other.

    Args:
        x: (rows, 2 n); float16 or bfloat16.
        group_index: where each group of rows ends, (groups); the last one is the number of rows. Blocks of rows end
            there too.
        activate_left: whether a is the left half.
        round_mode: "rint", and for float4_e2m1fn_x2 "round" and "floor".
        scale_alg: 0: as in npu_dynamic_mx_quant; 1, with float8: the first power of two by which nothing exceeds the
            dtype's largest number.
        dst_type: float8_e4m3fn (24 or 292), float8_e5m2 (23 or 291) or float4_e2m1fn_x2 (296).
        dst_type_max: must be 0.

    Returns:
        The numbers of the last axis and their scales, as npu_dynamic_mx_quant gives them; the numbers of the rows'
        axis and theirs, (ceil(rows / 64), n, 2), or with groups as npu_grouped_dynamic_mx_quant gives them.

    Raises:
        RuntimeError: for dtypes or shapes that do not fit.
        NotImplementedError: for another ``scale_alg``, ``dst_type`` or ``dst_type_max``.
    """
    name = "npu_swiglu_mx_quant_with_dual_axis"
    gate, linear = _gates(name, x, activate_left)
    out = torch.nn.functional.silu(gate) * linear
    return _both_axes(name, x, out, group_index, round_mode, scale_alg, dst_type, dst_type_max)


@operator(f"_npu_swiglu_backward_mx_quant_with_dual_axis(Tensor x, Tensor y_grad, *, {_DUAL}")
def _npu_swiglu_backward_mx_quant_with_dual_axis(
    x, y_grad, *, group_index=None, activate_left=True, round_mode="rint", scale_alg=1, dst_type=24, dst_type_max=0.0
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    r"""
    The gradient of the gated unit of :func:`npu_swiglu_mx_quant_with_dual_axis`, with the same powers of two.

    Args:
        x: as there.
        y_grad: the gradient of silu(a) * b, (rows, n), of the dtype of ``x``.
        group_index: as there.
        activate_left: as there.
        round_mode: as there.
        scale_alg: as there.
        dst_type: as there.
        dst_type_max: must be 0.

    Returns:
        As there, of the gradient of ``x``, (rows, 2 n).

    Raises:
        RuntimeError: for dtypes or shapes that do not fit.
        NotImplementedError: for another ``scale_alg``, ``dst_type`` or ``dst_type_max``.
    """
    name = "_npu_swiglu_backward_mx_quant_with_dual_axis"
    gate, linear = _gates(name, x, activate_left)
    check_dtype(name, "y_grad", y_grad, (x.dtype,))
    check(y_grad.shape == gate.shape, name, f"y_grad must be {tuple(gate.shape)}, but is {tuple(y_grad.shape)}")
    grad, share = y_grad.detach().float(), torch.sigmoid(gate)
    dgate = grad * linear * share * (1 + gate * (1 - share))
    dlinear = grad * gate * share
    out = torch.cat((dgate, dlinear) if activate_left else (dlinear, dgate), -1)
    return _both_axes(name, x, out, group_index, round_mode, scale_alg, dst_type, dst_type_max)
