r"""Rotary positions of queries and keys."""

import torch
from torch import Tensor

from ._attention import wide
from ._checks import FLOATING, check, check_dtype
from ._registration import operator


@operator(
    "npu_mrope(Tensor positions, Tensor query, Tensor key, Tensor cos_sin_cache, int head_size, *, "
    "int[]? mrope_section=None, str? rotary_mode='half', str? cache_mode='default') -> (Tensor, Tensor)"
)
def npu_mrope(
    positions,
    query,
    key,
    cos_sin_cache,
    head_size,
    *,
    mrope_section=None,
    rotary_mode="half",
    cache_mode="default",
) -> tuple[Tensor, Tensor]:
    r"""
    Rotates the heads of queries and keys by positions of one or of several axes.

    Args:
        positions: (tokens), or (axes, tokens) of three or four axes; int32 or int64, rows of ``cos_sin_cache``.
        query: (tokens, heads * head_size), float16, bfloat16 or float32.
        key: (tokens, heads * head_size), of its dtype; the heads may be fewer.
        cos_sin_cache: (rows, rotary), of its dtype: the cosines, then the sines. A head is rotated in its first rotary
            elements; rotary and ``head_size`` are multiples of 32, or of 16 for float32.
        head_size: elements of a head.
        mrope_section: how many of the rotary / 2 angles are of each axis; None or zeros for positions of one axis.
        rotary_mode: half: an element is rotated with the one rotary / 2 behind it; interleaved: with its neighbour.
        cache_mode: default: the angles of an axis lie together; interleave: every third one is of the second axis, and
            every third one of the third, as many as they have (as many each).

    Returns:
        Query and key, rotated.

    Raises:
        RuntimeError: for shapes, dtypes and modes that do not fit.
        NotImplementedError: for interleaved sections of different lengths.
    """
    name = "npu_mrope"
    check_dtype(name, "query", query, FLOATING)
    for argument, tensor in (("key", key), ("cos_sin_cache", cos_sin_cache)):
        check_dtype(name, argument, tensor, (query.dtype,))
    check_dtype(name, "positions", positions, (torch.int32, torch.int64))
    rotary, multiple = cos_sin_cache.shape[-1], 16 if query.dtype == torch.float32 else 32
    check(
        cos_sin_cache.dim() == 2 and rotary % multiple == 0 and head_size % multiple == 0 and rotary <= head_size,
        name,
        f"cos_sin_cache must be (rows, rotary) with rotary and head_size multiples of {multiple} and rotary at most "
        f"head_size, but is {tuple(cos_sin_cache.shape)} for head_size {head_size}",
    )
    check(
        rotary_mode in ("half", "interleaved"), name, f"rotary_mode must be half or interleaved, but is '{rotary_mode}'"
    )
    check(
        cache_mode in ("default", "interleave"),
        name,
        f"cache_mode must be default or interleave, but is '{cache_mode}'",
    )
    tokens = query.shape[0]
    for argument, tensor in (("query", query), ("key", key)):
        check(
            tensor.dim() == 2 and tensor.shape[0] == tokens and tensor.shape[1] % head_size == 0,
            name,
            f"{argument} must be ({tokens}, heads * {head_size}), but is {tuple(tensor.shape)}",
        )
    check(positions.shape[-1] == tokens, name, f"positions must have {tokens} tokens, but are {tuple(positions.shape)}")
    cos, sin = wide(cos_sin_cache[positions.long()]).chunk(2, -1)
    section = [] if mrope_section is None or not any(mrope_section) else list(mrope_section)
    if section:
        check(
            positions.dim() == 2 and positions.shape[0] == len(section) and len(section) in (3, 4),
            name,
            f"positions must be ({len(section)}, {tokens}) of 3 or 4 axes, but are {tuple(positions.shape)}",
        )
        check(sum(section) == rotary // 2, name, f"mrope_section must add up to {rotary // 2}, but is {section}")
        cos, sin = (_of_axes(name, t, section, cache_mode) for t in (cos, sin))
    else:
        check(
            positions.dim() == 1,
            name,
            f"positions must be ({tokens}) without mrope_section, but are {tuple(positions.shape)}",
        )
        check(cache_mode == "default", name, "cache_mode must be default without mrope_section")
    cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)

    def rotate(tensor: Tensor) -> Tensor:
        split = tensor.unflatten(1, (tensor.shape[1] // head_size, head_size))
        turned = wide(split[..., :rotary])
        if rotary_mode == "half":
            first, second = turned.chunk(2, -1)
        else:
            first, second = turned[..., ::2], turned[..., 1::2]
        parts = first * cos - second * sin, second * cos + first * sin
        turned = torch.cat(parts, -1) if rotary_mode == "half" else torch.stack(parts, -1).flatten(-2)
        return torch.cat([turned.to(tensor.dtype), split[..., rotary:]], -1).flatten(1)

    return rotate(query), rotate(key)


def _of_axes(name: str, table: Tensor, section: list[int], cache_mode: str) -> Tensor:
    r"""From (axes, tokens, angles) the angles of each token."""
    if cache_mode == "default":
        return torch.cat([part[axis] for axis, part in enumerate(table.split(section, -1))], -1)
    check(len(section) == 3, name, "cache_mode interleave is for three axes")
    if section[1] != section[2]:
        raise NotImplementedError(f"{name}: interleaved mrope_section must have as many angles of the last two axes")
    end = section[1] * 3
    axes = [i % 3 if i < end else 0 for i in range(table.shape[-1])]
    return torch.cat([table[axis, :, i : i + 1] for i, axis in enumerate(axes)], -1)
