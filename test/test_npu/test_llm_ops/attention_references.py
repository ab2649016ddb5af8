"""Attention row by row in float64 with NumPy, for the tests of this folder."""

import numpy as np

import torch


def rows(query, key, value, scale, visible, sink=None):
    """One head: (queries, width), (keys, width), (keys, width of values), (queries, keys) of bool."""
    out = np.zeros((query.shape[0], value.shape[1]))
    sums = np.full((query.shape[0], 1), -np.inf)
    for i in range(query.shape[0]):
        seen = np.flatnonzero(visible[i])
        if len(seen) == 0:
            continue
        scores = [scale * float(np.dot(query[i], key[j])) for j in seen]
        terms = scores if sink is None else [*scores, float(sink)]
        top = max(terms)
        total = sum(np.exp(s - top) for s in terms)
        for s, j in zip(scores, seen, strict=True):
            out[i] += np.exp(s - top) / total * value[j]
        sums[i] = top + np.log(total)
    return out, sums


def heads(query, key, value, scale, visible, sink=None):
    """(heads, queries, width), (fewer heads, keys, width) twice; visible: (queries, keys) or with heads."""
    query, key, value = (torch.as_tensor(t).double().numpy() for t in (query, key, value))
    share = query.shape[0] // key.shape[0]
    visible = np.broadcast_to(np.asarray(visible, dtype=bool), (query.shape[0], query.shape[1], key.shape[1]))
    each = [
        rows(query[h], key[h // share], value[h // share], scale, visible[h], None if sink is None else sink[h])
        for h in range(query.shape[0])
    ]
    return np.stack([e[0] for e in each]), np.stack([e[1] for e in each])


def shown(mode, queries, keys, before=10**9, after=10**9):
    """Which keys a sparse mode shows, (queries, keys)."""
    found = np.zeros((queries, keys), dtype=bool)
    for i in range(queries):
        for j in range(keys):
            from_top, from_end = j - i, j - i - (keys - queries)
            found[i, j] = {
                0: -before <= from_top <= after,
                1: True,
                2: from_top <= 0,
                3: from_end <= 0,
                4: -before <= from_end <= after,
            }[mode]
    return found


def laid_out(tensor, layout):
    """(batch, heads, positions, width) in a layout."""
    order = {"BSH": "BSND", "SBH": "SBND"}.get(layout, layout)
    moved = tensor.permute(["BNSD".index(axis) for axis in order]).contiguous()
    return moved.flatten(2) if layout in ("BSH", "SBH") else moved


def paged(tensor, block_size, form, generator):
    """(batch, heads, positions, width) as blocks in random order, and their table."""
    batch, count, positions, width = tensor.shape
    columns = -(-positions // block_size)
    blocks = torch.randperm(batch * columns + 2, generator=generator)[: batch * columns].view(batch, columns)
    cache = torch.full(
        (batch * columns + 2, count, block_size, width), float("nan") if tensor.is_floating_point() else 0
    )
    cache = cache.to(tensor.dtype)
    for b in range(batch):
        for c in range(columns):
            part = tensor[b, :, c * block_size : (c + 1) * block_size]
            cache[blocks[b, c], :, : part.shape[1]] = part
    if form == "BnBsH":
        cache = cache.transpose(1, 2).flatten(2)
    elif form == "NZ":
        cache = cache.unflatten(3, (width // 16, 16)).transpose(2, 3)
    return cache.contiguous(), blocks.int()
