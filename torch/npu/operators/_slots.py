r"""Rows of a cache in blocks: where a token's slot lies, and how rows are written there."""

import torch
from torch import Tensor

from ._checks import check


def write_slots(cache: Tensor, slots: Tensor, rows: Tensor, fractal: bool = False) -> None:
    r"""
    Writes rows into the slots of a cache, in place. Negative slots are left out.

    Args:
        cache: (blocks, block_size, ...), or (blocks, columns, block_size, c) where it is fractal.
        slots: (rows), of integers: block * block_size + place in the block.
        rows: (rows, ...), of the elements of a slot.
        fractal: whether the c elements of a column of all slots of a block lie together.
    """
    count = slots.numel()
    if count == 0:
        return
    slots, rows = slots.reshape(-1).long(), rows.reshape(count, -1).to(cache.dtype)
    size = cache.shape[2 if fractal else 1]
    block, place = slots.clamp(min=0) // size, slots.clamp(min=0) % size
    # Rows without a slot repeat one that has one, so that no slot is written twice with different values.
    has = slots >= 0
    source = torch.where(has, torch.arange(count, device=slots.device), has.long().argmax())
    block, place, rows = block[source], place[source], rows[source]
    at = (block, slice(None), place) if fractal else (block, place)
    old = cache[at].reshape(count, -1)
    cache[at] = torch.where(has.any(), rows, old).view(cache[at].shape)


def fractal_view(name: str, argument: str, cache: Tensor) -> Tensor:
    r"""A cache of (blocks, block_size, heads, width) whose memory is fractal, as (blocks, columns, block_size, c)."""
    lanes = 32 // cache.element_size()
    blocks, size = cache.shape[:2]
    width = cache.shape[2:].numel()
    check(width % lanes == 0, name, f"{argument} must have a multiple of {lanes} elements in a slot, but has {width}")
    return cache.view(blocks, width // lanes, size, lanes)


def interleaved_half(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    r"""Rotates pairs of neighbours; the first ones of the pairs come first in the result."""
    first, second = x[..., ::2], x[..., 1::2]
    return torch.cat([first, second], -1) * cos + torch.cat([-second, first], -1) * sin


def rms_norm(x: Tensor, gamma: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
    r"""The norm over the dimensions of gamma, and what the elements were multiplied by before it."""
    over = tuple(range(-gamma.dim(), 0))
    factor = torch.rsqrt(x.square().mean(over, keepdim=True) + epsilon)
    return x * factor * gamma, factor
