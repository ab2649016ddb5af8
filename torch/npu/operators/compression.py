r"""Keys of native sparse attention, compressed: weighted sums over windows of positions."""

import torch
from torch import Tensor

from ._attention import ranges_of, wide
from ._checks import check, check_dtype
from ._registration import operator

_HALF = (torch.float16, torch.bfloat16)


def _check(name: str, input: Tensor, weight: Tensor, size: int, stride: int) -> None:
    check_dtype(name, "input", input, _HALF)
    check_dtype(name, "weight", weight, (input.dtype,))
    check(
        input.dim() == 3 and input.shape[1] <= 128 and input.shape[2] % 16 == 0 and input.shape[2] <= 256,
        name,
        "input must be (positions, heads, width) of at most 128 heads and a width that is a multiple of 16 up to 256, "
        f"but is {tuple(input.shape)}",
    )
    check(
        size % 16 == 0 and 0 < size <= 128 and stride % 16 == 0 and 0 < stride <= size,
        name,
        "compress_block_size must be a multiple of 16 up to 128, and compress_stride one up to that, but are "
        f"{size} and {stride}",
    )
    check(
        tuple(weight.shape) == (size, input.shape[1]),
        name,
        f"weight must be ({size}, {input.shape[1]}), but is {tuple(weight.shape)}",
    )


def _windows(start: int, length: int, size: int, stride: int, device: torch.device) -> Tensor | None:
    r"""The positions of each window of a sequence, (windows, size), or None where it is too short for one."""
    if length < size:
        return None
    first = torch.arange(start, start + length - size + 1, stride, device=device)
    return first.unsqueeze(1) + torch.arange(size, device=device)


@operator(
    "npu_nsa_compress(Tensor input, Tensor weight, int compress_block_size, int compress_stride, *, "
    "int[]? actual_seq_len=None) -> Tensor"
)
def npu_nsa_compress(input, weight, compress_block_size, compress_stride, *, actual_seq_len=None) -> Tensor:
    r"""
    Sums over windows of each sequence, with a weight for each place in a window and each head.

    Args:
        input: (positions, heads, width), float16 or bfloat16: sequences one behind the other.
        weight: (compress_block_size, heads), of its dtype.
        compress_block_size: positions of a window, a multiple of 16 up to 128.
        compress_stride: positions between the starts of windows, a multiple of 16 up to ``compress_block_size``.
        actual_seq_len: the ends of the sequences; must be given. Positions that fill no window count nowhere.

    Returns:
        The sums, (windows of all sequences, heads, width), of the dtype of ``input``.

    Raises:
        RuntimeError: for shapes, dtypes and numbers that do not fit.
    """
    name = "npu_nsa_compress"
    _check(name, input, weight, compress_block_size, compress_stride)
    parts = []
    for start, length in ranges_of(name, "actual_seq_len", actual_seq_len, input.shape[0]):
        windows = _windows(start, length, compress_block_size, compress_stride, input.device)
        if windows is not None:
            parts.append(torch.einsum("wkhd,kh->whd", wide(input)[windows], wide(weight)))
    out = torch.cat(parts) if parts else wide(input)[:0]
    return out.to(input.dtype)


@operator(
    "npu_nsa_compress_grad(Tensor grad, Tensor input, Tensor weight, int compress_block_size, int compress_stride, *, "
    "int[]? actual_seq_len=None) -> (Tensor, Tensor)"
)
def npu_nsa_compress_grad(
    grad, input, weight, compress_block_size, compress_stride, *, actual_seq_len=None
) -> tuple[Tensor, Tensor]:
    r"""
    The gradient of :func:`npu_nsa_compress`.

    Args:
        grad: the gradient of its result.
        input: as there.
        weight: as there.
        compress_block_size: as there.
        compress_stride: as there.
        actual_seq_len: as there.

    Returns:
        The gradients of ``input`` and ``weight``.
    """
    name = "npu_nsa_compress_grad"
    _check(name, input, weight, compress_block_size, compress_stride)
    dinput, dweight = torch.zeros_like(wide(input)), torch.zeros_like(wide(weight))
    at = 0
    for start, length in ranges_of(name, "actual_seq_len", actual_seq_len, input.shape[0]):
        windows = _windows(start, length, compress_block_size, compress_stride, input.device)
        if windows is None:
            continue
        part = wide(grad)[at : at + windows.shape[0]]
        at += windows.shape[0]
        spread = torch.einsum("whd,kh->wkhd", part, wide(weight))
        dinput = dinput.index_add(0, windows.flatten(), spread.flatten(0, 1))
        dweight = dweight + torch.einsum("wkhd,whd->kh", wide(input)[windows], part)
    return dinput.to(input.dtype), dweight.to(weight.dtype)
