r"""Attention as the operators of this package share it: heads of a layout, pages of a cache, masks, the sum itself."""

from collections.abc import Sequence
from typing import NamedTuple

from torch.utils._python_dispatch import _get_current_dispatch_mode

import torch
from torch import Tensor

from ._checks import check

HIDDEN = float("-inf")
# Greatest distance that counts as "no limit" of a band.
UNLIMITED = 2147483647


def wide(tensor: Tensor) -> Tensor:
    r"""The tensor in the type that sums are computed in."""
    return tensor if tensor.dtype == torch.float64 else tensor.float()


def to_heads(name: str, argument: str, tensor: Tensor, layout: str, heads: int) -> Tensor:
    r"""A view of shape (batch, heads, positions, width) of a tensor of layout BSH, SBH, BSND or BNSD."""
    rank = len(layout)
    check(
        tensor.dim() == rank,
        name,
        f"{argument} of layout {layout} must have {rank} dimensions, but is {_shape(tensor)}",
    )
    if layout in ("BSH", "SBH"):
        check(
            tensor.shape[2] % heads == 0,
            name,
            f"the last dimension of {argument}, {tensor.shape[2]}, must be a multiple of its {heads} heads",
        )
        split = tensor.unflatten(2, (heads, tensor.shape[2] // heads))
        return split.transpose(1, 2) if layout == "BSH" else split.permute(1, 2, 0, 3)
    found = tensor.transpose(1, 2) if layout == "BSND" else tensor
    check(
        found.shape[1] == heads, name, f"{argument} of layout {layout} must have {heads} heads, but is {_shape(tensor)}"
    )
    return found


def from_heads(tensor: Tensor, layout: str) -> Tensor:
    r"""The tensor of shape (batch, heads, positions, width) in another layout."""
    if layout == "BNSD":
        return tensor.contiguous()
    if layout == "NBSD":
        return tensor.transpose(0, 1).contiguous()
    if layout == "SBH":
        return tensor.permute(2, 0, 1, 3).flatten(2)
    by_position = tensor.transpose(1, 2)
    return by_position.contiguous() if layout == "BSND" else by_position.flatten(2)


def pages(name: str, argument: str, cache: Tensor, table: Tensor, heads: int, block_size: int) -> Tensor:
    r"""
    The keys or values that a table names, of shape (batch, heads, table's columns * block_size, width).

    Args:
        name: the operator.
        argument: the name of ``cache`` there.
        cache: (blocks, block_size, heads * width), (blocks, heads, block_size, width), or the fractal form of the
            latter, (blocks, heads, width / c, block_size, c).
        table: blocks of each sequence, in order; of shape (batch, columns).
        heads: heads of the cache.
        block_size: positions of a block.
    """
    if cache.dim() == 3:
        fits = cache.shape[1] == block_size and cache.shape[2] % heads == 0
    else:
        fits = cache.dim() in (4, 5) and cache.shape[1] == heads and cache.shape[cache.dim() - 2] == block_size
    check(
        fits,
        name,
        f"{argument} must be (blocks, {block_size}, heads * width), (blocks, {heads}, {block_size}, width) or "
        f"(blocks, {heads}, width / c, {block_size}, c), but is {_shape(cache)}",
    )
    batch, columns = table.shape
    found = cache[table.long()]
    if cache.dim() == 3:
        return found.reshape(batch, columns * block_size, heads, -1).transpose(1, 2)
    if cache.dim() == 5:
        found = found.transpose(3, 4).flatten(4)
    return found.transpose(1, 2).reshape(batch, heads, columns * block_size, -1)


def lengths_of(name: str, argument: str, lengths: Sequence[int] | None, batch: int, total: int) -> list[int]:
    r"""One length for each sequence: all of it by default; one number stands for all."""
    if lengths is None or len(lengths) == 0:
        return [total] * batch
    check(
        len(lengths) == 1 or len(lengths) >= batch,
        name,
        f"{argument} must have one element or one for each of the {batch} sequences, but has {len(lengths)}",
    )
    found = list(lengths)[:batch] if len(lengths) >= batch else [lengths[0]] * batch
    check(
        all(0 <= length <= total for length in found),
        name,
        f"{argument} must be 0 to the {total} positions there are, but is {list(lengths)}",
    )
    return found


def ranges_of(name: str, argument: str, ends: Sequence[int] | None, total: int) -> list[tuple[int, int]]:
    r"""(start, length) of the sequences that end at ``ends`` in a tensor of ``total`` positions."""
    check(ends is not None and len(ends) > 0, name, f"layout TND needs {argument}")
    found, start = [], 0
    for end in ends or ():
        check(start <= end <= total, name, f"{argument} must rise to at most {total}, but is {list(ends or ())}")
        found.append((start, end - start))
        start = end
    return found


def per_batch(lengths: Sequence[int], like: Tensor) -> Tensor | int:
    r"""The lengths as one number if they are equal, else as a tensor that broadcasts to (batch, 1, 1, 1)."""
    if all(length == lengths[0] for length in lengths):
        return lengths[0]
    # Filled on the device, so that a graph can capture it; and lengths may be symbols of a compiled program.
    each = [torch.full((1,), length, dtype=torch.int64, device=like.device) for length in lengths]
    return torch.cat(each).view(-1, 1, 1, 1)


def hidden_by_mode(
    mode: int,
    before: int,
    after: int,
    query_at: Tensor,
    key_at: Tensor,
    query_length: Tensor | int,
    key_length: Tensor | int,
) -> Tensor | None:
    r"""
    The pairs of positions that a sparse mode hides, or None where it hides none.

    Args:
        mode: 0: a band from the first positions; 1: none; 2: causal from the first positions; 3: causal up to the last
            ones; 4: a band from the last positions.
        before: keys that the bands show before a query's position.
        after: keys that they show behind it.
        query_at: positions of queries, of a shape that broadcasts to (batch, 1, queries, 1).
        key_at: positions of keys, of a shape that broadcasts to (batch, 1, 1, keys).
        query_length: queries of each sequence.
        key_length: keys of each sequence.
    """
    if mode == 1 or (mode == 0 and before >= UNLIMITED and after >= UNLIMITED):
        return None
    distance = key_at - query_at
    if mode == 2:
        return distance > 0
    if mode == 0:
        return (distance > after) | (distance < -before)
    distance = distance - (key_length - query_length)
    return distance > 0 if mode == 3 else (distance > after) | (distance < -before)


def either(first: Tensor | None, second: Tensor | None) -> Tensor | None:
    r"""What one of two masks hides."""
    if first is None or second is None:
        return second if first is None else first
    return first | second


def scores_of(query: Tensor, key: Tensor, scale: float) -> Tensor:
    r"""Scaled products of (batch, heads, queries, width) with (batch, heads or fewer, keys, width)."""
    groups = key.shape[1]
    grouped = wide(query).unflatten(1, (groups, query.shape[1] // groups))
    return (grouped @ wide(key).unsqueeze(2).transpose(-1, -2)).flatten(1, 2) * scale


def weighted(weights: Tensor, value: Tensor) -> Tensor:
    r"""Sums of values, (batch, heads or fewer, keys, width), with weights of (batch, heads, queries, keys)."""
    groups = value.shape[1]
    grouped = weights.unflatten(1, (groups, weights.shape[1] // groups))
    return (grouped @ wide(value).unsqueeze(2)).flatten(1, 2)


class Band(NamedTuple):
    r"""A sparse mode for whole sequences, with the mask that goes with it."""

    mode: int
    before: int
    after: int
    mask: Tensor


def _in_blocks(*tensors: Tensor) -> bool:
    r"""Whether npu_fusion_attention may compute it: it gives no gradient to the sums, and no symbols to a program."""
    return (
        _get_current_dispatch_mode() is None
        and all(type(t) in (Tensor, torch.nn.Parameter) and t.device.type == "npu" and t.numel() > 0 for t in tensors)
        and not (torch.is_grad_enabled() and any(t.requires_grad for t in tensors))
    )


def _attend_in_blocks(query, key, value, scale, hidden, sink, band) -> tuple[Tensor, Tensor]:
    options = {}
    if band is not None:
        mask = band.mask.view(torch.uint8) if band.mask.dtype == torch.int8 else band.mask
        options = {"sparse_mode": band.mode, "pre_tockens": band.before, "next_tockens": band.after}
        options["atten_mask"] = mask.view(mask.shape[-2:])
    elif hidden is not None:
        while hidden.dim() < 4:
            hidden = hidden.unsqueeze(0)
        options["atten_mask"] = hidden.expand(*hidden.shape[:2], query.shape[2], key.shape[2])
    operands = (wide(t) for t in (query, key, value))
    out, top, total, *_ = torch.ops.npu.npu_fusion_attention(
        *operands, query.shape[1], "BNSD", scale=scale, sink=sink, **options
    )
    return out, top[..., :1] + torch.log(total[..., :1])


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    scale: float,
    hidden: Tensor | None = None,
    sink: Tensor | None = None,
    band: Band | None = None,
) -> tuple[Tensor, Tensor]:
    r"""
    Attention of heads, in fp32. A row that sees nothing gives 0.

    Args:
        query: (batch, heads, queries, width).
        key: (batch, heads that divide those of the query, keys, width).
        value: like ``key``; the width may be another one.
        scale: factor of the products.
        hidden: True where a query doesn't see a key; broadcasts to (batch, heads, queries, keys).
        sink: a score for each head that takes its share of the sum, and has no value.
        band: what a sparse mode hides, instead of ``hidden``.

    Returns:
        The result, (batch, heads, queries, width of the value), and the logarithm of the sums of exponentials,
        (batch, heads, queries, 1); both in fp32.
    """
    if _in_blocks(query, key, value, *(t for t in (hidden, sink) if t is not None)):
        return _attend_in_blocks(query, key, value, scale, hidden, sink, band)
    if band is not None:
        queries, keys = query.shape[2], key.shape[2]
        query_at, key_at = (torch.arange(n, device=query.device) for n in (queries, keys))
        hidden = hidden_by_mode(band.mode, band.before, band.after, query_at.unsqueeze(-1), key_at, queries, keys)
    scores = scores_of(query, key, scale)
    if scores.shape[-1] == 0:
        sums = scores.new_full((*scores.shape[:-1], 1), HIDDEN)
        if sink is not None:
            sums = sums.zero_() + wide(sink).view(1, -1, 1, 1)
        return weighted(scores, value), sums
    nothing = None
    if hidden is not None:
        scores = scores.masked_fill(hidden, HIDDEN)
        if sink is None:
            # Rows that see nothing are taken out of the way of the exponentials, and of their gradients.
            nothing = hidden.all(-1, keepdim=True)
            scores = scores.masked_fill(nothing, 0)
    sums = torch.logsumexp(scores, -1, keepdim=True)
    if sink is not None:
        sums = torch.logaddexp(sums, wide(sink).view(1, -1, 1, 1))
    weights = torch.exp(scores - sums)
    if nothing is not None:
        weights, sums = weights.masked_fill(nothing, 0), sums.masked_fill(nothing, HIDDEN)
    return weighted(weights, value), sums


def attention_grad(
    query: Tensor, key: Tensor, value: Tensor, grad: Tensor, scale: float, hidden: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    r"""The gradients of attention, of (batch, heads, positions, width), in fp32."""
    scores = scores_of(query, key, scale).masked_fill(hidden, HIDDEN)
    if scores.shape[-1] == 0:
        return tuple(torch.zeros_like(wide(t)) for t in (query, key, value))  # type: ignore[return-value]
    weights = torch.softmax(scores, -1).masked_fill(hidden.all(-1, keepdim=True), 0)
    dy, groups = wide(grad), key.shape[1]
    dweights = scores_of(dy, value, 1.0)
    dscores = weights * (dweights - (dweights * weights).sum(-1, keepdim=True)) * scale

    def of_keys(by: Tensor, rows: Tensor) -> Tensor:
        share = by.shape[1] // groups
        return (by.transpose(-1, -2) @ wide(rows)).unflatten(1, (groups, share)).sum(2)

    return weighted(dscores, key), of_keys(dscores, query), of_keys(weights, dy)


def _shape(tensor: Tensor) -> tuple[int, ...]:
    return tuple(tensor.shape)
