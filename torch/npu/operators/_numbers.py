r"""Small numbers: what dtypes arguments name, numbers of four bits in words, rounding, scales of rows and of blocks."""

import torch
from torch import Tensor

# The numbers of dtypes that arguments give: those of c10::ScalarType, and the plug-in's own from 256 on.
_NUMBERED = {
    0: torch.uint8,
    1: torch.int8,
    3: torch.int32,
    5: torch.float16,
    6: torch.float32,
    12: torch.int8,
    15: torch.bfloat16,
    16: torch.quint4x2,
    23: torch.float8_e5m2,
    24: torch.float8_e4m3fn,
    44: torch.float8_e8m0fnu,
    45: torch.float4_e2m1fn_x2,
    291: torch.float8_e5m2,
    292: torch.float8_e4m3fn,
    293: torch.float8_e8m0fnu,
    296: torch.float4_e2m1fn_x2,
}
# The largest number of a dtype, and the exponent of it.
LARGEST = {
    torch.int8: 127.0,
    torch.quint4x2: 7.0,
    torch.float8_e5m2: 57344.0,
    torch.float8_e4m3fn: 448.0,
    torch.float4_e2m1fn_x2: 6.0,
}
FLOAT8 = (torch.float8_e4m3fn, torch.float8_e5m2)
_EXPONENT = {torch.float8_e5m2: 15, torch.float8_e4m3fn: 8, torch.float4_e2m1fn_x2: 2}
BLOCK = 32
# Sums of so many products of bytes are exact in float32.
_EXACT_PRODUCTS = 1024


def numbered(
    name: str, argument: str, number: int | torch.dtype | None, allowed: tuple[torch.dtype, ...]
) -> torch.dtype:
    r"""The dtype that an argument names; None is the first of those allowed, another one is refused."""
    if number is None:
        return allowed[0]
    dtype = number if isinstance(number, torch.dtype) else _NUMBERED.get(number)
    dtype = torch.int8 if dtype is torch.qint8 else dtype
    if dtype not in allowed:
        told = ", ".join(str(one) for one in allowed)
        raise NotImplementedError(f"{name}: {argument} must be one of {told}, not {dtype or number}")
    return dtype


def nibbles_packed(name: str, numbers: Tensor) -> Tensor:
    r"""Eight numbers of four bits along the last dimension as an int32, the first in the lowest bits."""
    if numbers.shape[-1] % 8:
        raise RuntimeError(f"{name}: the last dimension must be a multiple of 8, but is {numbers.shape[-1]}")
    bits = (numbers.to(torch.int64) & 15).unflatten(-1, (numbers.shape[-1] // 8, 8))
    whole = (bits << (4 * torch.arange(8, device=numbers.device))).sum(-1)
    return torch.where(whole > 0x7FFFFFFF, whole - (1 << 32), whole).to(torch.int32)


def nibbles(words: Tensor) -> Tensor:
    r"""The numbers of four bits in words of int32: along the last dimension, or along the last but one in a view that
    transposes packed rows."""
    if words.dim() > 1 and not words.is_contiguous() and words.mT.is_contiguous():
        return nibbles(words.mT).mT
    places = 4 * torch.arange(8, device=words.device, dtype=torch.int32)
    bits = (words.unsqueeze(-1) >> places) & 15
    return ((bits ^ 8) - 8).flatten(-2)


def integers(name: str, argument: str, tensor: Tensor) -> Tensor:
    r"""An integer matrix as numbers: of int8, or of int32 that hold eight numbers of four bits."""
    if tensor.dtype is torch.int32:
        return nibbles(tensor)
    if tensor.dtype is not torch.int8:
        raise RuntimeError(f"{name}: {argument} must be of torch.int8 or of packed torch.int32, but is {tensor.dtype}")
    return tensor


def exact(depth: int) -> torch.dtype:
    r"""A dtype in which products of bytes are summed without rounding."""
    return torch.float32 if depth <= _EXACT_PRODUCTS else torch.float64


def rounded(name: str, x: Tensor, dtype: torch.dtype) -> Tensor:
    r"""Numbers of the dtype, the nearest ones within its bounds, halves to even; without gradient."""
    x = x.detach()
    if dtype in FLOAT8:
        return x.clamp(-LARGEST[dtype], LARGEST[dtype]).to(dtype)
    most = LARGEST[dtype]
    whole = torch.round(x).clamp(-most - 1, most)
    return nibbles_packed(name, whole.to(torch.int32)) if dtype is torch.quint4x2 else whole.to(dtype)


def rows_rounded(name: str, x: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    r"""Each row by the scale that makes its largest number the dtype's largest; and the scales, float32. Rows of zeros
    stay zeros."""
    scale = x.detach().abs().amax(-1, keepdim=True) / LARGEST[dtype]
    divisor = torch.where(scale == 0, 1.0, scale)
    return rounded(name, x / divisor, dtype), scale.squeeze(-1).float()


def _float4_packed(x: Tensor, round_mode: str) -> Tensor:
    # The numbers of E2M1 are 0, 0.5, 1, 1.5, 2, 3, 4 and 6: a step of 0.5 below 2, of 1 below 4, and of 2.
    size = x.abs().clamp(max=6.0)
    step = torch.where(size < 2.0, 0.5, torch.where(size < 4.0, 1.0, 2.0))
    steps = size / step
    if round_mode == "rint":
        size = torch.round(steps) * step
    elif round_mode == "floor":
        size = torch.where(torch.signbit(x), torch.ceil(steps), torch.floor(steps)) * step
    else:
        size = torch.floor(steps + 0.5) * step
    code = torch.where(size < 2.0, size * 2, torch.where(size < 4.0, size + 2, size / 2 + 4)).to(torch.uint8)
    code = code | torch.where(torch.signbit(x), 8, 0).to(torch.uint8)
    pairs = code.unflatten(-1, (code.shape[-1] // 2, 2))
    return pairs[..., 0] | (pairs[..., 1] << 4)


def float4(pairs: Tensor) -> Tensor:
    r"""The numbers of E2M1, two in each byte along the last dimension, the first in the lower bits; float32."""
    code = torch.stack((pairs & 15, pairs >> 4), -1).flatten(-2)
    size = (code & 7).float()
    size = torch.where(size < 4, size / 2, torch.where(size < 6, size - 2, size * 2 - 8))
    return torch.where(code > 7, -size, size)


def power_of_two(bits: Tensor) -> Tensor:
    r"""The scale that a byte of E8M0 holds, float32; the byte 255 is NaN."""
    exponent = bits.view(torch.uint8).float() - 127
    return torch.where(exponent > 127, torch.nan, torch.exp2(exponent))


def block_exponents(largest: Tensor, dtype: torch.dtype, scale_alg: int = 0) -> tuple[Tensor, Tensor]:
    r"""
    The power of two that each block is divided by.

    Args:
        largest: the largest absolute number of each block, float32.
        dtype: of the numbers that come out.
        scale_alg: 0: floor(log2(largest)) - exponent of the dtype's largest; 1: the first one by which nothing exceeds
            the dtype's largest number.

    Returns:
        The exponents, and their bytes of E8M0; 255 for blocks that hold infinities or NaN.
    """
    if scale_alg == 0:
        # frexp's exponent is one more than that of a number written 1.x * 2 ** e.
        exponent = torch.frexp(largest).exponent - 1 - _EXPONENT[dtype]
    else:
        fraction, exponent = torch.frexp(largest / LARGEST[dtype])
        exponent = torch.where(fraction > 0.5, exponent, exponent - 1)
    exponent = torch.where(largest == 0, -127, exponent).clamp(min=-127)
    return exponent, torch.where(torch.isfinite(largest), exponent + 127, 255).to(torch.uint8)


def over_powers(
    name: str, x: Tensor, exponent: Tensor, finite: Tensor, dtype: torch.dtype, round_mode: str, shape: tuple[int, ...]
) -> Tensor:
    r"""Numbers of the dtype: x / 2 ** exponent in the given shape, 0 where a block isn't finite."""
    # Halves of the exponent, as 2 ** 127 and its inverse together leave float32.
    half = torch.div(exponent, 2, rounding_mode="floor")
    scaled = x * torch.exp2(-half.float()) * torch.exp2((half - exponent).float())
    scaled = torch.where(finite, scaled, 0.0).reshape(shape)
    if dtype is not torch.float4_e2m1fn_x2:
        return rounded(name, scaled, dtype)
    check_even(name, shape)
    return _float4_packed(scaled, round_mode)


def check_even(name: str, shape: tuple[int, ...]) -> None:
    if shape[-1] % 2:
        raise RuntimeError(f"{name}: the last dimension must be even, but the shape is {tuple(shape)}")


def check_round_mode(name: str, round_mode: str, dtype: torch.dtype) -> None:
    modes = ("rint", "round", "floor") if dtype is torch.float4_e2m1fn_x2 else ("rint",)
    if round_mode not in modes:
        raise NotImplementedError(f"{name}: round_mode must be one of {modes} for {dtype}, not {round_mode!r}")


def blocks_rounded(
    name: str, x: Tensor, axis: int, dtype: torch.dtype, round_mode: str = "rint", scale_alg: int = 0
) -> tuple[Tensor, Tensor]:
    r"""
    Blocks of 32 numbers along an axis by a power of two each: 2 ** (floor(log2(largest)) - exponent of the dtype).

    Args:
        name: the operator.
        x: numbers.
        axis: where the blocks lie; the last one is filled with zeros.
        dtype: of the numbers that come out.
        round_mode: "rint", and for float4_e2m1fn_x2 "round" (halves away from zero) and "floor" (down).
        scale_alg: as in :func:`block_exponents`.

    Returns:
        The numbers (float4_e2m1fn_x2: uint8, two in each byte along the last dimension); the scales as bytes of E8M0,
        the axis holding pairs of blocks and one dimension of 2 more at the end. A block too many has the byte 0.

    Raises:
        NotImplementedError: for a round_mode that the dtype does not have.
    """
    check_round_mode(name, round_mode, dtype)
    axis = axis % x.dim()
    length = x.shape[axis]
    blocks = -(-length // BLOCK)
    rows = x.detach().float().movedim(axis, -1)
    filled = torch.nn.functional.pad(rows, (0, blocks * BLOCK - length)).unflatten(-1, (blocks, BLOCK))
    largest = filled.abs().amax(-1)
    exponent, byte = block_exponents(largest, dtype, scale_alg)

    def spread(table: Tensor) -> Tensor:
        return table.repeat_interleave(BLOCK, -1)[..., :length].movedim(-1, axis)

    numbers = over_powers(
        name, x.detach().float(), spread(exponent), spread(torch.isfinite(largest)), dtype, round_mode, x.shape
    )
    byte = torch.nn.functional.pad(byte, (0, blocks % 2)).unflatten(-1, (-1, 2))
    return numbers, byte.movedim(-2, axis)


def block_scales(name: str, argument: str, scale: Tensor, axis: int, length: int) -> Tensor:
    r"""The factor of each number along an axis, from the bytes of :func:`blocks_rounded`."""
    if scale.dtype.itemsize != 1:
        raise RuntimeError(f"{name}: {argument} must hold bytes of E8M0, but is {scale.dtype}")
    pairs = power_of_two(scale).movedim(axis, -2).flatten(-2)
    each = pairs.repeat_interleave(BLOCK, -1)
    if each.shape[-1] < length:
        raise RuntimeError(f"{name}: {argument} of shape {tuple(scale.shape)} has too few blocks for {length} numbers")
    return each[..., :length].movedim(-1, axis)


def group_ends(name: str, group_list: Tensor, kind: int) -> Tensor:
    r"""Where each group of rows ends; from the ends (kind 0) or the sizes (kind 1) of the groups."""
    if kind not in (0, 1):
        raise NotImplementedError(f"{name}: the kind of the group list must be 0 (ends) or 1 (sizes), not {kind}")
    if group_list.dim() != 1:
        raise RuntimeError(f"{name}: the group list must have one dimension, but is {tuple(group_list.shape)}")
    ends = group_list.to(torch.int64)
    return ends.cumsum(0) if kind else ends


def group_of_rows(ends: Tensor, rows: int) -> Tensor:
    r"""The group of each row; rows after the last group get the number of groups."""
    return torch.searchsorted(ends, torch.arange(rows, device=ends.device), right=True)


def by_group(table: Tensor, group: Tensor) -> Tensor:
    r"""The row of a table for each row's group; zeros for rows of no group."""
    padded = torch.cat((table, torch.zeros_like(table[:1])))
    return padded.index_select(0, group)


def grouped_product(x: Tensor, weight: Tensor, ends: Tensor) -> Tensor:
    r"""The product of each group of rows with the group's weight, (groups, k, n); zeros after the last group."""
    return torch.ops.npu._npu_grouped_product(x, weight, ends, 0)
