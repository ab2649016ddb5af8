r"""Norms with a sum before them, with small integers behind them, and their gradients."""

import torch
from torch import Tensor

from ._attention import wide
from ._checks import FLOATING, check, check_dtype
from ._registration import operator
from ._slots import rms_norm

_HALF = (torch.float16, torch.bfloat16)


def _check_last(name: str, x: Tensor, **parameters: Tensor | None) -> None:
    r"""Each parameter has the shape of the first one, which is that of the last dimensions of x."""
    first = next(iter(parameters.values()))
    assert first is not None
    for argument, tensor in parameters.items():
        if tensor is None:
            continue
        check(
            tensor.shape == first.shape
            and 0 < tensor.dim() <= x.dim()
            and tensor.shape == x.shape[x.dim() - tensor.dim() :],
            name,
            f"{argument} must have the shape of the last dimensions of x, but is {tuple(tensor.shape)} for "
            f"{tuple(x.shape)}",
        )


def _summands(name: str, x1: Tensor, x2: Tensor, dtypes: tuple[torch.dtype, ...]) -> Tensor:
    check_dtype(name, "x1", x1, dtypes)
    check(
        x1.shape == x2.shape and x1.dtype == x2.dtype,
        name,
        f"x1 and x2 must have one shape and dtype, but are {tuple(x1.shape)}, {x1.dtype} and {tuple(x2.shape)}, "
        f"{x2.dtype}",
    )
    return wide(x1) + wide(x2)


def _int8(name: str, argument: str, dtype: int | None) -> None:
    if dtype not in (None, 1):
        raise NotImplementedError(f"{name}: {argument} must be torch.int8, but is {dtype}")


def _rounded(numbers: Tensor) -> Tensor:
    return numbers.round().clamp(-128, 127).to(torch.int8)


@operator(
    "npu_add_rms_norm_quant(Tensor x1, Tensor x2, Tensor gamma, Tensor scales1, Tensor? zero_points1, "
    "Tensor? beta=None, Tensor? scales2=None, Tensor? zero_points2=None, *, int axis=-1, float epsilon=1e-06, "
    "bool div_mode=True, int? dst_type=None) -> (Tensor, Tensor, Tensor)"
)
def npu_add_rms_norm_quant(
    x1,
    x2,
    gamma,
    scales1,
    zero_points1,
    beta=None,
    scales2=None,
    zero_points2=None,
    *,
    axis=-1,
    epsilon=1e-06,
    div_mode=True,
    dst_type=None,
) -> tuple[Tensor, Tensor, Tensor]:
    r"""
    The root-mean-square norm of a sum, once or twice in small integers: round(norm / scales + zero_points).

    Args:
        x1: float16 or bfloat16.
        x2: like ``x1``.
        gamma: factors of the norm, of the shape of the last dimensions of ``x1``, which are normalised.
        scales1: float32 or bfloat16, of the shape of ``gamma``.
        zero_points1: int32 or bfloat16, of the shape of ``gamma``.
        beta: added to the norm, of the shape of ``gamma``.
        scales2: of the second result; like ``scales1``.
        zero_points2: of the second result; like ``zero_points1``.
        axis: must be -1.
        epsilon: added to the mean of squares.
        div_mode: whether the norm is divided by the scales; else it is multiplied.
        dst_type: must be None or torch.int8.

    Returns:
        The integers, int8, saturated; those of the second scales, or zeros without them; the sum, of the dtype of
        ``x1``.

    Raises:
        RuntimeError: for shapes and dtypes that do not fit.
        NotImplementedError: for another ``dst_type``.
    """
    name = "npu_add_rms_norm_quant"
    _int8(name, "dst_type", dst_type)
    check(axis == -1, name, f"axis must be -1, but is {axis}")
    total = _summands(name, x1, x2, _HALF)
    _check_last(
        name,
        x1,
        gamma=gamma,
        scales1=scales1,
        zero_points1=zero_points1,
        beta=beta,
        scales2=scales2,
        zero_points2=zero_points2,
    )
    norm, _ = rms_norm(total, wide(gamma), epsilon)
    if beta is not None:
        norm = norm + wide(beta)

    def small(scales: Tensor, zero_points: Tensor | None) -> Tensor:
        numbers = norm / wide(scales) if div_mode else norm * wide(scales)
        return _rounded(numbers if zero_points is None else numbers + wide(zero_points))

    first = small(scales1, zero_points1)
    second = torch.zeros_like(first) if scales2 is None else small(scales2, zero_points2)
    return first, second, total.to(x1.dtype)


@operator(
    "npu_add_rms_norm_dynamic_quant(Tensor x1, Tensor x2, Tensor gamma, *, Tensor? smooth_scale1=None, "
    "Tensor? smooth_scale2=None, Tensor? beta=None, float epsilon=1e-6, bool[2]? output_mask=None, "
    "int? y_dtype=None) -> (Tensor, Tensor, Tensor, Tensor, Tensor)"
)
def npu_add_rms_norm_dynamic_quant(
    x1,
    x2,
    gamma,
    *,
    smooth_scale1=None,
    smooth_scale2=None,
    beta=None,
    epsilon=1e-6,
    output_mask=None,
    y_dtype=None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    r"""
    The root-mean-square norm of a sum, once or twice in small integers by the greatest number of each row.

    Args:
        x1: float16 or bfloat16.
        x2: like ``x1``.
        gamma: factors of the norm, (last dimension).
        smooth_scale1: factors of the norm before it is made small, (last dimension).
        smooth_scale2: those of the second integers.
        beta: added to the norm, (last dimension).
        epsilon: added to the mean of squares.
        output_mask: which integers are wanted; without it the first, and the second where both factors are given.
        y_dtype: must be None or torch.int8.

    Returns:
        The integers, int8; the second ones; the sum, of the dtype of ``x1``; what a row of integers is to be multiplied
        by, float32, of the shape of ``x1`` but its last dimension; the same of the second ones. Empty tensors for what
        isn't wanted.

    Raises:
        RuntimeError: for shapes, dtypes and masks that do not fit.
        NotImplementedError: for another ``y_dtype``.
    """
    name = "npu_add_rms_norm_dynamic_quant"
    _int8(name, "y_dtype", y_dtype)
    total = _summands(name, x1, x2, _HALF)
    check(gamma.dim() == 1, name, f"gamma must have one dimension, but is {tuple(gamma.shape)}")
    smooth = (smooth_scale1, smooth_scale2)
    _check_last(name, x1, gamma=gamma, smooth_scale1=smooth_scale1, smooth_scale2=smooth_scale2, beta=beta)
    wanted = (True, None not in smooth) if not output_mask else tuple(output_mask)
    if output_mask:
        check(any(wanted), name, "output_mask must want one result at least")
        for i, scale in enumerate(smooth):
            check(scale is None or wanted[i], name, f"output_mask must want the result of smooth_scale{i + 1}")
    norm, _ = rms_norm(total, wide(gamma), epsilon)
    if beta is not None:
        norm = norm + wide(beta)
    integers, scales = [], []
    for scale, want in zip(smooth, wanted, strict=True):
        if not want:
            integers.append(x1.new_empty(0, dtype=torch.int8))
            scales.append(x1.new_empty(0, dtype=torch.float32))
            continue
        numbers = norm if scale is None else norm * wide(scale)
        step = numbers.abs().amax(-1) / 127
        integers.append(_rounded(numbers / step.masked_fill(step == 0, 1).unsqueeze(-1)))
        scales.append(step)
    return integers[0], integers[1], total.to(x1.dtype), scales[0], scales[1]


@operator(
    "npu_add_rms_norm_cast(Tensor x1, Tensor x2, Tensor gamma, float epsilon=1e-06) -> (Tensor, Tensor, Tensor, Tensor)"
)
def npu_add_rms_norm_cast(x1, x2, gamma, epsilon=1e-06) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    r"""
    ``npu_add_rms_norm``, with the norm in float32 too.

    Args:
        x1: float16 or bfloat16.
        x2: like ``x1``.
        gamma: factors of the norm, of the shape of the last dimensions of ``x1``.
        epsilon: added to the mean of squares.

    Returns:
        The norm as float32, the norm, the factors of its rows, float32, and the sum.
    """
    name = "npu_add_rms_norm_cast"
    check_dtype(name, "x1", x1, _HALF)
    norm, factor, total = torch.ops.npu.npu_add_rms_norm(x1, x2, gamma, epsilon)
    return norm.float(), norm, factor, total


@operator("npu_add_rms_norm_v2(Tensor(a!) x1, Tensor(b!) x2, Tensor gamma, float epsilon=1e-06) -> Tensor")
def npu_add_rms_norm_v2(x1, x2, gamma, epsilon=1e-06) -> Tensor:
    r"""
    ``npu_add_rms_norm`` in place.

    Args:
        x1: float16, bfloat16 or float32; becomes the norm.
        x2: like ``x1``; becomes the sum.
        gamma: factors of the norm, of the shape of the last dimensions of ``x1``.
        epsilon: added to the mean of squares.

    Returns:
        The factors of the rows, float32, with dimensions of 1 where they are normalised.
    """
    norm, factor, total = torch.ops.npu.npu_add_rms_norm(x1, x2, gamma, epsilon)
    x1.copy_(norm)
    x2.copy_(total)
    return factor


@operator(
    "npu_add_rms_norm_v2_functional(Tensor x1, Tensor x2, Tensor gamma, float epsilon=1e-06) -> (Tensor, Tensor, "
    "Tensor)"
)
def npu_add_rms_norm_v2_functional(x1, x2, gamma, epsilon=1e-06) -> tuple[Tensor, Tensor, Tensor]:
    r"""
    :func:`npu_add_rms_norm_v2` that leaves its summands as they are.

    Args:
        x1: as there.
        x2: as there.
        gamma: as there.
        epsilon: as there.

    Returns:
        The factors, the norm and the sum.
    """
    norm, factor, total = torch.ops.npu.npu_add_rms_norm(x1, x2, gamma, epsilon)
    return factor, norm, total


def _quantised(name, x, gamma, scale, offset, beta, epsilon, div_mode) -> tuple[Tensor, Tensor]:
    check_dtype(name, "x", x, FLOATING)
    width = x.shape[-1:]
    for argument, tensor in (("gamma", gamma), ("beta", beta)):
        if tensor is not None:
            check(
                tensor.numel() == x.shape[-1] and tensor.dim() in (1, 2),
                name,
                f"{argument} must be {tuple(width)} or {(1, *width)}, but is {tuple(tensor.shape)}",
            )
    for argument, tensor in (("scale", scale), ("offset", offset)):
        if tensor is not None:
            check(tensor.shape == (1,), name, f"{argument} must be (1), but is {tuple(tensor.shape)}")
    norm, factor = rms_norm(wide(x), wide(gamma).reshape(-1), epsilon)
    if beta is not None:
        norm = norm + wide(beta).reshape(-1)
    numbers = norm / wide(scale) if div_mode else norm * wide(scale)
    return _rounded(numbers if offset is None else numbers + wide(offset)), factor


@operator(
    "npu_rms_norm_quant(Tensor x, Tensor gamma, Tensor beta, Tensor scale, Tensor offset, float epsilon=1e-06, *, "
    "int? dst_dtype=None) -> Tensor"
)
def npu_rms_norm_quant(x, gamma, beta, scale, offset, epsilon=1e-06, *, dst_dtype=None) -> Tensor:
    r"""
    The root-mean-square norm in small integers: round((norm * gamma + beta) * scale + offset).

    Args:
        x: float16, bfloat16 or float32; its last dimension is normalised.
        gamma: (last dimension), or (1, last dimension).
        beta: like ``gamma``.
        scale: (1).
        offset: (1), int8 or of another type of numbers.
        epsilon: added to the mean of squares.
        dst_dtype: must be None or torch.int8.

    Returns:
        The integers, int8, saturated.

    Raises:
        RuntimeError: for shapes and dtypes that do not fit.
        NotImplementedError: for another ``dst_dtype``.
    """
    name = "npu_rms_norm_quant"
    _int8(name, "dst_dtype", dst_dtype)
    return _quantised(name, x, gamma, scale, offset, beta, epsilon, False)[0]


@operator(
    "npu_rms_norm_quant_v2(Tensor x, Tensor gamma, Tensor scale, *, Tensor? offset=None, Tensor? beta=None, "
    "float epsilon=1e-06, bool div_mode=True, int? dst_dtype=None) -> (Tensor, Tensor)"
)
def npu_rms_norm_quant_v2(
    x, gamma, scale, *, offset=None, beta=None, epsilon=1e-06, div_mode=True, dst_dtype=None
) -> tuple[Tensor, Tensor]:
    r"""
    :func:`npu_rms_norm_quant` that divides by its scale, and has the factors of the rows too.

    Args:
        x: as there.
        gamma: as there.
        scale: (1).
        offset: (1).
        beta: as there.
        epsilon: as there.
        div_mode: whether the norm is divided by the scale; else it is multiplied.
        dst_dtype: must be None or torch.int8.

    Returns:
        The integers, int8, and the factors of the rows, float32, which are empty unless ``x`` requires a gradient.
    """
    name = "npu_rms_norm_quant_v2"
    _int8(name, "dst_dtype", dst_dtype)
    integers, factor = _quantised(name, x, gamma, scale, offset, beta, epsilon, div_mode)
    return integers, factor.detach() if x.requires_grad else factor.new_empty(0)


def _norm_grad(grad: Tensor, normal: Tensor, gamma: Tensor | None, factor: Tensor, rank: int) -> Tensor:
    r"""The gradient of what was normalised to ``normal`` with ``factor`` over the last ``rank`` dimensions."""
    over = tuple(range(-rank, 0))
    scaled = grad if gamma is None else grad * gamma
    return factor * (scaled - scaled.mean(over, keepdim=True) - normal * (scaled * normal).mean(over, keepdim=True))


@operator(
    "npu_deep_norm_backward(Tensor dy, Tensor x, Tensor gx, Tensor gamma, Tensor mean, Tensor rstd, float "
    "alpha=0.3) -> "
    "(Tensor, Tensor, Tensor, Tensor)"
)
def npu_deep_norm_backward(dy, x, gx, gamma, mean, rstd, alpha=0.3) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    r"""
    The gradient of ``npu_deep_norm``.

    Args:
        dy: the gradient of its third result.
        x: as there.
        gx: as there.
        gamma: as there.
        mean: its first result.
        rstd: its second result.
        alpha: as there.

    Returns:
        The gradients of ``x``, ``gx``, ``beta`` and ``gamma``.
    """
    _check_last("npu_deep_norm_backward", x, gamma=gamma)
    grad, factor = wide(dy), wide(rstd)
    normal = (wide(x) * alpha + wide(gx) - wide(mean)) * factor
    dsum = _norm_grad(grad, normal, wide(gamma), factor, gamma.dim())
    dgamma = (grad * normal).sum_to_size(gamma.shape)
    dbeta = grad.sum_to_size(gamma.shape)
    return (dsum * alpha).to(x.dtype), dsum.to(gx.dtype), dbeta.to(gamma.dtype), dgamma.to(gamma.dtype)


@operator(
    "npu_layernorm_grad(Tensor grad_out, Tensor input, int[] normalized_shape, Tensor mean, Tensor rstd, "
    "Tensor? weight, Tensor? bias) -> (Tensor, Tensor, Tensor)"
)
def npu_layernorm_grad(grad_out, input, normalized_shape, mean, rstd, weight, bias) -> tuple[Tensor, Tensor, Tensor]:
    r"""
    The gradient of ``torch.nn.functional.layer_norm``.

    Args:
        grad_out: the gradient of its result.
        input: as there.
        normalized_shape: as there.
        mean: the means of the rows, with dimensions of 1 where they are normalised.
        rstd: the reciprocals of their deviations, of the same shape.
        weight: as there.
        bias: as there.

    Returns:
        The gradients of ``input``, ``weight`` and ``bias``; empty tensors for what isn't given.
    """
    name = "npu_layernorm_grad"
    rank = len(normalized_shape)
    check(
        0 < rank <= input.dim() and tuple(input.shape[input.dim() - rank :]) == tuple(normalized_shape),
        name,
        f"normalized_shape must be that of the last dimensions of input, {tuple(input.shape)}, but is "
        f"{normalized_shape}",
    )
    factor, grad = wide(rstd), wide(grad_out)
    outer = (*input.shape[: input.dim() - rank], *(1,) * rank)
    factor, middle = factor.reshape(outer), wide(mean).reshape(outer)
    normal = (wide(input) - middle) * factor
    dinput = _norm_grad(grad, normal, None if weight is None else wide(weight), factor, rank)
    dweight = None if weight is None else (grad * normal).sum_to_size(weight.shape).to(weight.dtype)
    dbias = None if bias is None else grad.sum_to_size(bias.shape).to(bias.dtype)
    empty = input.new_empty(0)
    return dinput.to(input.dtype), empty if dweight is None else dweight, empty.clone() if dbias is None else dbias


@operator(
    "npu_group_norm_swish_grad(Tensor grad, Tensor input, int num_groups, Tensor weight, Tensor bias, Tensor mean, "
    "Tensor rstd, bool[3] grad_input_mask, float? swish_scale=1.0) -> (Tensor, Tensor, Tensor)"
)
def npu_group_norm_swish_grad(
    grad, input, num_groups, weight, bias, mean, rstd, grad_input_mask, swish_scale=1.0
) -> tuple[Tensor, Tensor, Tensor]:
    r"""
    The gradient of ``npu_group_norm_swish``.

    Args:
        grad: the gradient of its first result.
        input: as there.
        num_groups: as there.
        weight: as there.
        bias: as there.
        mean: its second result.
        rstd: its third result.
        grad_input_mask: which results are wanted.
        swish_scale: as there.

    Returns:
        The gradients of ``input``, ``weight`` and ``bias``; empty tensors for what isn't wanted.
    """
    name = "npu_group_norm_swish_grad"
    check(
        num_groups > 0 and input.dim() >= 2 and input.shape[1] % num_groups == 0,
        name,
        f"{num_groups} groups must divide dimension 1 of input, which is {tuple(input.shape)}",
    )
    scale = 1.0 if swish_scale is None else swish_scale
    samples, channels = input.shape[:2]
    by_group = (samples, num_groups, -1)
    per_group = (samples, num_groups, 1)
    factor = wide(rstd).reshape(per_group)
    normal = ((wide(input).reshape(by_group) - wide(mean).reshape(per_group)) * factor).reshape(samples, channels, -1)
    gamma, beta = wide(weight).view(1, -1, 1), wide(bias).view(1, -1, 1)
    y = normal * gamma + beta
    gate = torch.sigmoid(y * scale)
    dy = wide(grad).reshape(y.shape) * (gate + y * scale * gate * (1 - gate))
    dinput = _norm_grad((dy * gamma).reshape(by_group), normal.reshape(by_group), None, factor, 1)
    results = (
        dinput.reshape(input.shape).to(input.dtype),
        (dy * normal).sum((0, 2)).to(weight.dtype),
        dy.sum((0, 2)).to(bias.dtype),
    )
    first, second, third = (
        result if want else input.new_empty(0) for result, want in zip(results, grad_input_mask, strict=True)
    )
    return first, second, third


@operator(
    "npu_add_layer_norm(Tensor x1, Tensor x2, Tensor gamma, Tensor beta, float epsilon=1e-05, "
    "bool additional_output=False) -> (Tensor, Tensor, Tensor, Tensor)"
)
def npu_add_layer_norm(
    x1, x2, gamma, beta, epsilon=1e-05, additional_output=False
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    r"""
    The layer norm of a sum.

    Args:
        x1: float16, bfloat16 or float32.
        x2: like ``x1``.
        gamma: factors of the norm, of the shape of the last dimensions of ``x1``.
        beta: added to the norm, of the same shape.
        epsilon: added to the variance.
        additional_output: whether the sum is wanted.

    Returns:
        The norm, of the dtype of ``x1``; the means of the rows and the reciprocals of their deviations, float32, with
        dimensions of 1 where they are normalised; the sum, or an empty tensor.

    Raises:
        RuntimeError: for shapes and dtypes that do not fit.
    """
    name = "npu_add_layer_norm"
    total = _summands(name, x1, x2, (*FLOATING, torch.float64))
    _check_last(name, x1, gamma=gamma, beta=beta)
    over = tuple(range(-gamma.dim(), 0))
    variance, mean = torch.var_mean(total, over, correction=0, keepdim=True)
    factor = torch.rsqrt(variance + epsilon)
    norm = ((total - mean) * factor * wide(gamma) + wide(beta)).to(x1.dtype)
    return norm, mean.detach(), factor.detach(), total.to(x1.dtype) if additional_output else x1.new_empty(0)


@operator(
    "npu_add_layer_norm_backward(Tensor? dy_opt, Tensor x1, Tensor x2, Tensor rstd, Tensor mean, Tensor gamma, "
    "Tensor? dsum_opt) -> (Tensor, Tensor, Tensor, Tensor)"
)
def npu_add_layer_norm_backward(dy_opt, x1, x2, rstd, mean, gamma, dsum_opt) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    r"""
    The gradient of :func:`npu_add_layer_norm`.

    Args:
        dy_opt: the gradient of its first result; None for zeros.
        x1: as there.
        x2: as there.
        rstd: its third result.
        mean: its second result.
        gamma: as there.
        dsum_opt: the gradient of its last result; None for zeros.

    Returns:
        The gradients of ``x1``, ``x2``, ``gamma`` and ``beta``.
    """
    name = "npu_add_layer_norm_backward"
    total = _summands(name, x1, x2, (*FLOATING, torch.float64))
    _check_last(name, x1, gamma=gamma)
    grad = torch.zeros_like(total) if dy_opt is None else wide(dy_opt)
    factor = wide(rstd)
    normal = (total - wide(mean)) * factor
    dsum = _norm_grad(grad, normal, wide(gamma), factor, gamma.dim())
    if dsum_opt is not None:
        dsum = dsum + wide(dsum_opt)
    dsum = dsum.to(x1.dtype)
    dgamma = (grad * normal).sum_to_size(gamma.shape).to(gamma.dtype)
    return dsum, dsum.clone(), dgamma, grad.sum_to_size(gamma.shape).to(gamma.dtype)
