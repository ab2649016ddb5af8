r"""Weights packed for products, and products of quantised matrices."""

import torch
from torch import Tensor

from ._checks import FLOATING, check, check_dtype
from ._numbers import FLOAT8, block_scales, exact, integers, nibbles_packed, numbered, rounded
from ._registration import operator

_HALVES = (torch.float16, torch.bfloat16)


def _shape(tensor: Tensor | None) -> tuple[int, ...] | None:
    return None if tensor is None else tuple(tensor.shape)


@operator("npu_convert_weight_to_int4pack(Tensor weight, int inner_k_tiles=0) -> Tensor")
def npu_convert_weight_to_int4pack(weight, inner_k_tiles=0) -> Tensor:
    r"""
    Packs a matrix of small integers, eight numbers of four bits along the last dimension into an int32, the first in
    the lowest bits. npu_weight_quant_batchmatmul takes the result, or its transposed view.

    Args:
        weight: of two dimensions, the last one a multiple of 8; int32, within -8 and 7.
        inner_k_tiles: of no effect.

    Returns:
        int32, with an eighth of the last dimension.

    Raises:
        RuntimeError: for another shape or dtype.
    """
    name = "npu_convert_weight_to_int4pack"
    check_dtype(name, "weight", weight, (torch.int32,))
    check(weight.dim() == 2, name, f"weight must be of two dimensions, but is {tuple(weight.shape)}")
    return nibbles_packed(name, weight)


@operator(
    "npu_quant_matmul_gelu(Tensor x1, Tensor x2, Tensor x1_scale, Tensor x2_scale, *, Tensor? bias=None, "
    "str? approximate='gelu_erf') -> Tensor"
)
def npu_quant_matmul_gelu(x1, x2, x1_scale, x2_scale, *, bias=None, approximate="gelu_erf") -> Tensor:
    r"""
    The gelu of (x1 @ x2 + bias) * x2_scale * x1_scale, or with a floating bias of x1 @ x2 * x2_scale * x1_scale + bias.

    Args:
        x1: (..., m, k); int8, or int32 that hold eight numbers of four bits along the last dimension.
        x2: (..., k, n); like ``x1``, or a view that transposes such.
        x1_scale: a factor of each row, (m), float32.
        x2_scale: a factor of each column, (n) or (1); float32 or bfloat16.
        bias: (n) or (batch, 1, n); int32, added before the factors, or floating.
        approximate: "gelu_erf" or "gelu_tanh".

    Returns:
        (..., m, n); bfloat16 if ``bias`` or ``x2_scale`` is, else float16.

    Raises:
        RuntimeError: for shapes or dtypes that do not fit.
    """
    name = "npu_quant_matmul_gelu"
    check(
        approximate in ("gelu_erf", "gelu_tanh"), name, f"approximate must be gelu_erf or gelu_tanh, not {approximate}"
    )
    check(x1.dim() > 1 and x2.dim() > 1, name, "x1 and x2 must be of two dimensions or more")
    check(x1.dtype == x2.dtype, name, f"x1 and x2 must have one dtype, but have {x1.dtype} and {x2.dtype}")
    check_dtype(name, "x1_scale", x1_scale, (torch.float32,))
    check_dtype(name, "x2_scale", x2_scale, (torch.float32, torch.bfloat16))
    packed = x1.dtype is torch.int32
    check(not packed or bias is None or bias.dtype is torch.int32, name, "with numbers of four bits bias must be int32")
    a, b = integers(name, "x1", x1), integers(name, "x2", x2)
    m, n = a.shape[-2], b.shape[-1]
    check(a.shape[-1] == b.shape[-2], name, f"x1 and x2 do not fit: {tuple(a.shape)} and {tuple(b.shape)}")
    check(
        x1_scale.shape == (m,) and x2_scale.shape in ((n,), (1,)),
        name,
        f"x1_scale must be ({m},) and x2_scale ({n},) or (1,), but are {_shape(x1_scale)} and {_shape(x2_scale)}",
    )
    check(
        bias is None or bias.shape == (n,) or (bias.dim() == 3 and bias.shape[1:] == (1, n)),
        name,
        f"bias must be ({n},) or (batch, 1, {n}), but is {_shape(bias)}",
    )
    wide = exact(a.shape[-1])
    out = torch.matmul(a.to(wide), b.to(wide))
    early = bias is not None and bias.dtype is torch.int32
    if early:
        out = out + bias.to(wide)
    out = out * x2_scale.to(wide) * x1_scale.to(wide).unsqueeze(-1)
    if bias is not None and not early:
        out = out + bias.to(wide)
    out = torch.nn.functional.gelu(out, approximate="tanh" if approximate == "gelu_tanh" else "none")
    brain = x2_scale.dtype is torch.bfloat16 or (bias is not None and bias.dtype is torch.bfloat16)
    return out.to(torch.bfloat16 if brain else torch.float16)


@operator(
    "npu_quant_matmul_reduce_sum(Tensor x1, Tensor x2, *, Tensor? x1_scale=None, Tensor? x2_scale=None) -> Tensor"
)
def npu_quant_matmul_reduce_sum(x1, x2, *, x1_scale=None, x2_scale=None) -> Tensor:
    r"""
    The sum over the batch of x1 @ x2 * x1_scale * x2_scale.

    Args:
        x1: (batch, m, k), int8.
        x2: (batch, k, n), int8.
        x1_scale: a factor of each row, (batch, m), float32; needed.
        x2_scale: a factor of each column, (n), bfloat16; needed.

    Returns:
        (m, n), bfloat16.

    Raises:
        RuntimeError: for shapes or dtypes that do not fit.
    """
    name = "npu_quant_matmul_reduce_sum"
    check(x1_scale is not None and x2_scale is not None, name, "x1_scale and x2_scale are needed")
    for argument, tensor, dtype in (
        ("x1", x1, torch.int8),
        ("x2", x2, torch.int8),
        ("x1_scale", x1_scale, torch.float32),
        ("x2_scale", x2_scale, torch.bfloat16),
    ):
        check_dtype(name, argument, tensor, (dtype,))
    check(
        x1.dim() == 3
        and x2.dim() == 3
        and x1.shape[::2] == x2.shape[:2]
        and x1_scale.shape == x1.shape[:2]
        and x2_scale.shape == x2.shape[2:],
        name,
        f"x1, x2, x1_scale and x2_scale do not fit: {_shape(x1)}, {_shape(x2)}, {_shape(x1_scale)}, {_shape(x2_scale)}",
    )
    wide = exact(x1.shape[2])
    each = torch.matmul(x1.to(wide), x2.to(wide)) * x1_scale.to(wide).unsqueeze(-1)
    return (each.sum(0) * x2_scale.to(wide)).to(torch.bfloat16)


@operator(
    "npu_dequant_bias(Tensor x, Tensor weight_scale, Tensor? activation_scale, Tensor? bias, *, "
    "ScalarType? output_dtype=None) -> Tensor"
)
def npu_dequant_bias(x, weight_scale, activation_scale, bias, *, output_dtype=None) -> Tensor:
    r"""
    (x + bias) * weight_scale * activation_scale, or with a floating bias x * weight_scale * activation_scale + bias.

    Args:
        x: sums of integer products, (m, n), int32.
        weight_scale: a factor of each column, (n); float32 or bfloat16.
        activation_scale: a factor of each row, (m), float32.
        bias: (n); int32 or floating.
        output_dtype: float16 or bfloat16; needed.

    Returns:
        (m, n), of ``output_dtype``.

    Raises:
        RuntimeError: for shapes or dtypes that do not fit.
        NotImplementedError: without ``output_dtype``.
    """
    name = "npu_dequant_bias"
    check_dtype(name, "x", x, (torch.int32,))
    check(x.dim() == 2, name, f"x must be of two dimensions, but is {tuple(x.shape)}")
    if output_dtype not in _HALVES:
        raise NotImplementedError(f"{name}: output_dtype must be torch.float16 or torch.bfloat16, not {output_dtype}")
    m, n = x.shape
    check(
        weight_scale.shape == (n,)
        and (activation_scale is None or activation_scale.shape == (m,))
        and (bias is None or bias.shape == (n,)),
        name,
        f"weight_scale, activation_scale and bias do not fit x of {(m, n)}: {_shape(weight_scale)}, "
        f"{_shape(activation_scale)}, {_shape(bias)}",
    )
    early = bias is not None and bias.dtype is torch.int32
    out = (x + bias if early else x).float() * weight_scale.float()
    if activation_scale is not None:
        out = out * activation_scale.float().unsqueeze(1)
    if bias is not None and not early:
        out = out + bias.float()
    return out.to(output_dtype)


@operator(
    "npu_transpose_batchmatmul(Tensor input, Tensor weight, *, Tensor? bias=None, Tensor? scale=None, "
    "int[]? perm_x1=None, int[]? perm_x2=None, int[]? perm_y=None, int? batch_split_factor=1) -> Tensor"
)
def npu_transpose_batchmatmul(
    input, weight, *, bias=None, scale=None, perm_x1=None, perm_x2=None, perm_y=None, batch_split_factor=1
) -> Tensor:
    r"""
    The products of a batch, the batch next to the columns in the result. Differentiable without ``scale``.

    Args:
        input: (batch, m, k), or (m, batch, k) with ``perm_x1`` (1, 0, 2); float16, bfloat16 or float32.
        weight: (batch, k, n), of the dtype of ``input``.
        bias: must be None.
        scale: factors of the columns as npu_trans_quant_param makes them, (batch * n), int64.
        perm_x1: (0, 1, 2) (None) or (1, 0, 2).
        perm_x2: (0, 1, 2) (None).
        perm_y: (1, 0, 2) (None).
        batch_split_factor: runs of the batch that lie one after another; 1 with ``scale``.

    Returns:
        (m, batch, n); with ``batch_split_factor`` f above 1 (f, m, batch * n / f); with ``scale`` int8, (m, 1,
        batch * n), rounded.

    Raises:
        RuntimeError: for shapes, dtypes or orders that do not fit.
        NotImplementedError: for ``bias``.
    """
    name = "npu_transpose_batchmatmul"
    if bias is not None:
        raise NotImplementedError(f"{name}: bias must be None")
    check_dtype(name, "input", input, FLOATING)
    check_dtype(name, "weight", weight, (input.dtype,))
    check(input.dim() == 3 and weight.dim() == 3, name, "input and weight must be of three dimensions")
    first = tuple(perm_x1 or (0, 1, 2))
    check(first in ((0, 1, 2), (1, 0, 2)), name, f"perm_x1 must be [0, 1, 2] or [1, 0, 2], but is {perm_x1}")
    check(tuple(perm_x2 or (0, 1, 2)) == (0, 1, 2), name, f"perm_x2 must be [0, 1, 2], but is {perm_x2}")
    check(tuple(perm_y or (1, 0, 2)) == (1, 0, 2), name, f"perm_y must be [1, 0, 2], but is {perm_y}")
    a = input.permute(first)
    check(
        a.shape[0] == weight.shape[0] and a.shape[2] == weight.shape[1],
        name,
        f"input and weight do not fit: {tuple(a.shape)} and {tuple(weight.shape)}",
    )
    (batch, m, _), n = a.shape, weight.shape[2]
    runs = 1 if batch_split_factor is None else batch_split_factor
    check(runs > 0 and batch * n % runs == 0, name, f"batch_split_factor must divide {batch * n}, but is {runs}")
    out = torch.matmul(a, weight).transpose(0, 1)
    if scale is None:
        flat = out.reshape(m, batch, n)
        return flat if runs == 1 else flat.reshape(m, runs, -1).transpose(0, 1).contiguous()
    check(runs == 1, name, f"with scale batch_split_factor must be 1, but is {runs}")
    check_dtype(name, "scale", scale, (torch.int64,))
    check(scale.shape == (batch * n,), name, f"scale must be of shape ({batch * n},), but is {tuple(scale.shape)}")
    low = scale & 0xFFFFFFFF
    factor = torch.where(low > 0x7FFFFFFF, low - (1 << 32), low).to(torch.int32).view(torch.float32)
    return rounded(name, out.float().reshape(m, 1, batch * n) * factor, torch.int8)


def _scaled_by_blocks(name: str, argument: str, x: Tensor, scale: Tensor, axis: int) -> Tensor:
    return x.float() * block_scales(name, argument, scale, axis, x.shape[axis])


@operator(
    "npu_transpose_quant_batchmatmul(Tensor x1, Tensor x2, int dtype, *, Tensor? bias=None, Tensor? x1_scale=None, "
    "Tensor? x2_scale=None, int[]? group_sizes=None, int[]? perm_x1=None, int[]? perm_x2=None, int[]? perm_y=None, "
    "int? batch_split_factor=1, int? x1_dtype=None, int? x2_dtype=None) -> Tensor"
)
def npu_transpose_quant_batchmatmul(
    x1,
    x2,
    dtype,
    *,
    bias=None,
    x1_scale=None,
    x2_scale=None,
    group_sizes=None,
    perm_x1=None,
    perm_x2=None,
    perm_y=None,
    batch_split_factor=1,
    x1_dtype=None,
    x2_dtype=None,
) -> Tensor:
    r"""
    The products of a batch of float8 matrices, scaled, the batch next to the columns in the result.

    Args:
        x1: (m, batch, k); float8_e4m3fn or float8_e5m2.
        x2: (batch, k, n), or (batch, n, k) with ``perm_x2`` (0, 2, 1).
        dtype: of the result: float16 or bfloat16.
        bias: must be None.
        x1_scale: a factor of each row, (m), float32; or bytes of E8M0 for each 32 numbers, (m, batch, k / 64, 2).
        x2_scale: a factor of each column, (n), float32; or bytes, (batch, k / 64, n, 2), or (batch, n, k / 64, 2).
        group_sizes: with bytes (., ., 32), the others being 0 or 1.
        perm_x1: (1, 0, 2) (None).
        perm_x2: (0, 1, 2) (None), or with bytes (0, 2, 1).
        perm_y: (1, 0, 2) (None).
        batch_split_factor: must be 1.
        x1_dtype: None, or the dtype of ``x1``.
        x2_dtype: None, or the dtype of ``x2``.

    Returns:
        (m, batch, n), of ``dtype``.

    Raises:
        RuntimeError: for shapes, dtypes or orders that do not fit.
        NotImplementedError: for ``bias``, and dtypes that torch does not have.
    """
    name = "npu_transpose_quant_batchmatmul"
    if bias is not None:
        raise NotImplementedError(f"{name}: bias must be None")
    result = numbered(name, "dtype", dtype, _HALVES)
    for argument, tensor, number in (("x1", x1, x1_dtype), ("x2", x2, x2_dtype)):
        check_dtype(name, argument, tensor, FLOAT8)
        if number is not None:
            numbered(name, f"{argument}_dtype", number, (tensor.dtype,))
    check(x1.dim() == 3 and x2.dim() == 3, name, "x1 and x2 must be of three dimensions")
    check(x1_scale is not None and x2_scale is not None, name, "x1_scale and x2_scale are needed")
    check(tuple(perm_x1 or (1, 0, 2)) == (1, 0, 2), name, f"perm_x1 must be [1, 0, 2], but is {perm_x1}")
    check(tuple(perm_y or (1, 0, 2)) == (1, 0, 2), name, f"perm_y must be [1, 0, 2], but is {perm_y}")
    check(batch_split_factor in (None, 1), name, f"batch_split_factor must be 1, but is {batch_split_factor}")
    second = tuple(perm_x2 or (0, 1, 2))
    blocks = x1_scale.dim() == 4
    check(
        second == (0, 1, 2) or (blocks and second == (0, 2, 1)),
        name,
        f"perm_x2 must be [0, 1, 2], or with scales of blocks [0, 2, 1], but is {perm_x2}",
    )
    (m, batch, k), n = x1.shape, x2.shape[1 if second == (0, 2, 1) else 2]
    columns = x2.permute(second).shape
    check(columns[0] == batch and columns[1] == k, name, f"x1 and x2 do not fit: {_shape(x1)} and {_shape(x2)}")
    if blocks:
        check(
            group_sizes is not None and len(group_sizes) == 3 and group_sizes[2] == 32 and max(group_sizes[:2]) <= 1,
            name,
            f"with scales of blocks group_sizes must be [1, 1, 32], but is {group_sizes}",
        )
        check(k % 64 == 0, name, f"with scales of blocks k must be a multiple of 64, but is {k}")
        deep = 2 if second == (0, 2, 1) else 1
        expected = [batch, n, n, 2]
        expected[deep], expected[3 - deep] = k // 64, n
        check(
            x1_scale.shape == (m, batch, k // 64, 2) and list(x2_scale.shape) == expected,
            name,
            f"x1_scale must be {(m, batch, k // 64, 2)} and x2_scale {tuple(expected)}, but are {_shape(x1_scale)} "
            f"and {_shape(x2_scale)}",
        )
        a = _scaled_by_blocks(name, "x1_scale", x1, x1_scale, 2)
        b = _scaled_by_blocks(name, "x2_scale", x2, x2_scale, deep)
        return torch.matmul(a.transpose(0, 1), b.permute(second)).transpose(0, 1).contiguous().to(result)
    check_dtype(name, "x1_scale", x1_scale, (torch.float32,))
    check_dtype(name, "x2_scale", x2_scale, (torch.float32,))
    check(
        x1_scale.shape == (m,) and x2_scale.shape == (n,),
        name,
        f"x1_scale must be ({m},) and x2_scale ({n},), but are {_shape(x1_scale)} and {_shape(x2_scale)}",
    )
    out = torch.matmul(x1.float().transpose(0, 1), x2.float()) * x2_scale * x1_scale.unsqueeze(1)
    return out.transpose(0, 1).contiguous().to(result)


def _added(name, self, x1, x2, x2_scale, x1_scale, group_sizes, dtypes) -> Tensor:
    check_dtype(name, "self", self, (torch.float32,))
    for argument, tensor, number in (("x1", x1, dtypes[0]), ("x2", x2, dtypes[1])):
        check_dtype(name, argument, tensor, FLOAT8)
        if number is not None:
            numbered(name, f"{argument}_dtype", number, (tensor.dtype,))
    for argument, number in (("x1_scale_dtype", dtypes[2]), ("x2_scale_dtype", dtypes[3])):
        if number is not None:
            numbered(name, argument, number, (torch.float8_e8m0fnu,))
    check(x1_scale is not None, name, "x1_scale is needed")
    check(
        group_sizes is None or list(group_sizes) == [1, 1, 32],
        name,
        f"group_sizes must be [1, 1, 32], but is {group_sizes}",
    )
    check(
        x1.dim() == 2 and x2.dim() == 2 and x1.shape[0] == x2.shape[0] and self.shape == (x1.shape[1], x2.shape[1]),
        name,
        f"self must be (m, n), x1 (k, m) and x2 (k, n), but are {_shape(self)}, {_shape(x1)} and {_shape(x2)}",
    )
    (k, m), n = x1.shape, x2.shape[1]
    pairs = -(-k // 64)
    check(
        x1_scale.shape == (pairs, m, 2) and x2_scale.shape == (pairs, n, 2),
        name,
        f"x1_scale must be {(pairs, m, 2)} and x2_scale {(pairs, n, 2)}, but are {_shape(x1_scale)} and "
        f"{_shape(x2_scale)}",
    )
    a = _scaled_by_blocks(name, "x1_scale", x1, x1_scale, 0)
    b = _scaled_by_blocks(name, "x2_scale", x2, x2_scale, 0)
    return torch.matmul(a.t(), b)


@operator(
    "npu_add_quant_matmul(Tensor self, Tensor x1, Tensor x2, Tensor x2_scale, *, Tensor? x1_scale=None, "
    "int[]? group_sizes=None, int? x1_dtype=None, int? x2_dtype=None, int? x1_scale_dtype=None, "
    "int? x2_scale_dtype=None) -> Tensor"
)
def npu_add_quant_matmul(
    self,
    x1,
    x2,
    x2_scale,
    *,
    x1_scale=None,
    group_sizes=None,
    x1_dtype=None,
    x2_dtype=None,
    x1_scale_dtype=None,
    x2_scale_dtype=None,
) -> Tensor:
    r"""
    self + x1^T @ x2, the factors being float8 with a power of two for each 32 numbers along k.

    Args:
        self: (m, n), float32.
        x1: (k, m); float8_e4m3fn or float8_e5m2.
        x2: (k, n); float8_e4m3fn or float8_e5m2.
        x2_scale: bytes of E8M0, (ceil(k / 64), n, 2).
        x1_scale: bytes of E8M0, (ceil(k / 64), m, 2); needed.
        group_sizes: None or (1, 1, 32).
        x1_dtype: None, or the dtype of ``x1``.
        x2_dtype: None, or the dtype of ``x2``.
        x1_scale_dtype: None or float8_e8m0fnu.
        x2_scale_dtype: None or float8_e8m0fnu.

    Returns:
        (m, n), float32.

    Raises:
        RuntimeError: for shapes or dtypes that do not fit.
        NotImplementedError: for dtypes that torch does not have.
    """
    dtypes = (x1_dtype, x2_dtype, x1_scale_dtype, x2_scale_dtype)
    return self + _added("npu_add_quant_matmul", self, x1, x2, x2_scale, x1_scale, group_sizes, dtypes)


@operator(
    "npu_add_quant_matmul_(Tensor(a!) self, Tensor x1, Tensor x2, Tensor x2_scale, *, Tensor? x1_scale=None, "
    "int[]? group_sizes=None, int? x1_dtype=None, int? x2_dtype=None, int? x1_scale_dtype=None, "
    "int? x2_scale_dtype=None) -> Tensor(a!)"
)
def npu_add_quant_matmul_(
    self,
    x1,
    x2,
    x2_scale,
    *,
    x1_scale=None,
    group_sizes=None,
    x1_dtype=None,
    x2_dtype=None,
    x1_scale_dtype=None,
    x2_scale_dtype=None,
) -> Tensor:
    r"""
    npu_add_quant_matmul in place.

    Args:
        self: (m, n), float32; changed.
        x1: (k, m); float8_e4m3fn or float8_e5m2.
        x2: (k, n); float8_e4m3fn or float8_e5m2.
        x2_scale: bytes of E8M0, (ceil(k / 64), n, 2).
        x1_scale: bytes of E8M0, (ceil(k / 64), m, 2); needed.
        group_sizes: None or (1, 1, 32).
        x1_dtype: None, or the dtype of ``x1``.
        x2_dtype: None, or the dtype of ``x2``.
        x1_scale_dtype: None or float8_e8m0fnu.
        x2_scale_dtype: None or float8_e8m0fnu.

    Returns:
        self.

    Raises:
        RuntimeError: for shapes or dtypes that do not fit.
        NotImplementedError: for dtypes that torch does not have.
    """
    dtypes = (x1_dtype, x2_dtype, x1_scale_dtype, x2_scale_dtype)
    return self.add_(_added("npu_add_quant_matmul_", self, x1, x2, x2_scale, x1_scale, group_sizes, dtypes))
