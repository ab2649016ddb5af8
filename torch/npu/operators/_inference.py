r"""Attention of inference: layouts, lengths, pages, shared prefixes and small integers of keys and values."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ._attention import (
    Band,
    attend,
    either,
    from_heads,
    hidden_by_mode,
    lengths_of,
    pages,
    per_batch,
    ranges_of,
    to_heads,
    wide,
)
from ._checks import check, check_dtype, check_none

HALF = (torch.float16, torch.bfloat16)
MASKS = (torch.bool, torch.int8, torch.uint8)
# Layout of the inputs and of the result.
LAYOUTS = {
    "BSH": ("BSH", "BSH"),
    "BSND": ("BSND", "BSND"),
    "BNSD": ("BNSD", "BNSD"),
    "BNSD_BSND": ("BNSD", "BSND"),
    "BSH_BNSD": ("BSH", "BNSD"),
    "BSND_BNSD": ("BSND", "BNSD"),
    "BSH_NBSD": ("BSH", "NBSD"),
    "BSND_NBSD": ("BSND", "NBSD"),
    "BNSD_NBSD": ("BNSD", "NBSD"),
    "TND": ("TND", "TND"),
    "NTD": ("NTD", "NTD"),
    "TND_NTD": ("TND", "NTD"),
    "NTD_TND": ("NTD", "TND"),
}


@dataclass
class Small:
    r"""What turns small integers into numbers: (integer + offset) * scale."""

    scale: Tensor
    offset: Tensor | None
    mode: int


@dataclass
class Inference:
    r"""A call; ``names`` are the operator's names of the arguments that errors tell."""

    name: str
    query: Tensor
    key: Tensor
    value: Tensor
    heads: int
    key_heads: int
    layout: str
    scale: float
    mask: Tensor | None = None
    mode: int = 0
    before: int = 2147483647
    after: int = 2147483647
    query_lengths: Sequence[int] | None = None
    key_lengths: Sequence[int] | None = None
    block_table: Tensor | None = None
    block_size: int = 0
    query_rope: Tensor | None = None
    key_rope: Tensor | None = None
    query_padding: Tensor | None = None
    key_padding: Tensor | None = None
    key_prefix: Tensor | None = None
    value_prefix: Tensor | None = None
    prefix_lengths: Sequence[int] | None = None
    small_key: Small | None = None
    small_value: Small | None = None
    sink: Tensor | None = None
    # Whether a query of one position has rules of its own.
    steps: bool = True
    names: dict[str, str] = field(default_factory=dict)

    def named(self, argument: str) -> str:
        return self.names.get(argument, argument)

    @property
    def inner(self) -> str:
        return LAYOUTS[self.layout][0]

    @property
    def outer(self) -> str:
        return LAYOUTS[self.layout][1]

    @property
    def by_sequence(self) -> bool:
        return "T" in self.inner


def run(call: Inference) -> tuple[Tensor, Tensor]:
    r"""
    The result in the layout and dtype that the call asks for, and the logarithms of the sums of exponentials, fp32.

    Positions of the query behind its length give 0, and -inf as logarithm; so do rows that see nothing.
    """
    _check(call)
    query = _of_query(call, call.query)
    if call.query_rope is not None:
        rope = _of_query(call, call.query_rope)
        check(
            query.shape[-1] in (128, 512) and rope.shape[-1] == 64,
            call.name,
            "with query_rope a head must have 128 or 512 elements and 64 rotated ones, but has "
            f"{query.shape[-1]} and {rope.shape[-1]}",
        )
        query = torch.cat([query, rope], -1)
    elif query.shape[-1] > 512:
        raise RuntimeError(f"{call.name}: a head must have at most 512 elements, but has {query.shape[-1]}")
    if not call.by_sequence:
        out, sums = _batch(call, query, call.query_lengths)
        return from_heads(out, call.outer).to(call.query.dtype), sums
    out, sums = _sequences(call, query)
    out = out.to(call.query.dtype)
    return out.contiguous() if call.outer == "NTD" else out.transpose(0, 1).contiguous(), sums.transpose(0, 1)


def _check(c: Inference) -> None:
    name = c.name
    check(
        c.layout in LAYOUTS, name, f"{c.named('input_layout')} must be one of {', '.join(LAYOUTS)}, but is '{c.layout}'"
    )
    check_dtype(name, "query", c.query, HALF)
    for argument, tensor in (("key", c.key), ("value", c.value)):
        if tensor.dtype == torch.int32:
            raise NotImplementedError(
                f"{name}: {argument} of int32 holds numbers of four bits, which are not supported"
            )
        check_dtype(name, argument, tensor, (c.query.dtype, torch.int8))
    check(
        c.key.dtype == c.value.dtype,
        name,
        f"key and value must have one dtype, but are {c.key.dtype} and {c.value.dtype}",
    )
    check(
        (c.key.dtype == torch.int8) == (c.small_key is not None),
        name,
        f"{c.named('key_antiquant_scale')} goes with a key and value of int8, which are {c.key.dtype}",
    )
    heads, key_heads = c.heads, c.key_heads
    check(0 < heads <= 256, name, f"{c.named('num_heads')} must be 1 to 256, but is {heads}")
    check(
        key_heads > 0 and heads % key_heads == 0 and heads // key_heads <= (128 if c.query_rope is not None else 64),
        name,
        f"{c.named('num_key_value_heads')} must divide the {heads} heads of the query into groups of at most 64, "
        f"but is {key_heads}",
    )
    check(c.mode in range(5), name, f"sparse_mode must be 0, 1, 2, 3 or 4, but is {c.mode}")
    check(
        c.mode == 0 or c.mask is not None,
        name,
        f"sparse_mode {c.mode} needs atten_mask",
    )
    if c.mask is not None:
        check_dtype(name, "atten_mask", c.mask, MASKS)
        if c.mode in (2, 3, 4):
            shape = tuple(c.mask.shape)
            check(
                shape in ((2048, 2048), (1, 2048, 2048), (1, 1, 2048, 2048)),
                name,
                f"atten_mask of sparse_mode {c.mode} must be (2048, 2048), but is {shape}",
            )
        elif c.by_sequence:
            raise NotImplementedError(
                f"{name}: atten_mask of sparse_mode {c.mode} is not defined for layout {c.layout}"
            )
    check((c.query_rope is None) == (c.key_rope is None), name, "query_rope and key_rope go together")
    check(
        (c.key_prefix is None) == (c.value_prefix is None),
        name,
        "key_shared_prefix and value_shared_prefix go together",
    )
    if c.block_table is not None:
        check(c.key_lengths is not None, name, f"block_table needs {c.named('actual_seq_lengths_kv')}")
        check(c.block_table.dim() == 2, name, f"block_table must be a matrix, but is {tuple(c.block_table.shape)}")
        check(c.block_size > 0, name, f"block_size must be positive with block_table, but is {c.block_size}")
        why = "it does not go with block_table"
        check_none(
            name, why, query_padding_size=c.query_padding, kv_padding_size=c.key_padding, key_shared_prefix=c.key_prefix
        )
    if c.query_padding is not None or c.key_padding is not None:
        why = "it is not defined with padding on the left"
        check_none(name, why, atten_mask=c.mask if c.mode < 2 else None, key_shared_prefix=c.key_prefix)
    if c.by_sequence or c.query_rope is not None:
        why = "it is for layouts with a batch, without query_rope"
        check_none(name, why, query_padding_size=c.query_padding, kv_padding_size=c.key_padding)
        check_none(name, why, key_shared_prefix=c.key_prefix, key_antiquant_scale=c.small_key and c.small_key.scale)


def _of_query(c: Inference, tensor: Tensor) -> Tensor:
    r"""(batch, heads, positions, width), or (heads, positions, width) of sequences."""
    if not c.by_sequence:
        return to_heads(c.name, "query", tensor, c.inner, c.heads)
    return _of_sequences(c, "query", tensor, c.heads)


def _of_sequences(c: Inference, argument: str, tensor: Tensor, heads: int) -> Tensor:
    found = tensor.transpose(0, 1) if c.inner == "TND" and tensor.dim() == 3 else tensor
    check(
        found.dim() == 3 and found.shape[0] == heads,
        c.name,
        f"{argument} of layout {c.inner} must have three dimensions and {heads} heads, but is {tuple(tensor.shape)}",
    )
    return found


def _plain(c: Inference, tensor: Tensor, small: Small | None, what: str) -> Tensor:
    r"""Numbers of small integers of shape (batch, heads, positions, width)."""
    if small is None:
        return tensor
    batch, heads, positions, width = tensor.shape

    def spread(argument: str, factors: Tensor) -> Tensor:
        if small.mode == 0 and factors.numel() == 1:
            shape: tuple[int, ...] = (1, 1, 1, 1)
        elif small.mode == 0 and factors.numel() == heads * width:
            shape = (1, heads, 1, width)
        elif small.mode == 1 and factors.dim() in (2, 3) and factors.shape[-2] == batch:
            shape = (batch, 1, factors.shape[-1], 1)
        elif small.mode == 2 and factors.numel() == heads:
            shape = (1, heads, 1, 1)
        elif small.mode == 3 and factors.dim() == 3 and tuple(factors.shape[:2]) == (batch, heads):
            shape = (batch, heads, factors.shape[-1], 1)
        else:
            raise RuntimeError(
                f"{c.name}: {argument} of shape {tuple(factors.shape)} doesn't fit {what} of {tuple(tensor.shape)} "
                f"(batch, heads, positions, width) in mode {small.mode}"
            )
        found = wide(factors).reshape(shape)
        check(found.shape[2] in (1, *range(positions, found.shape[2] + 1)), c.name, f"{argument} has too few positions")
        return found[:, :, :positions]

    if small.mode > 3:
        raise NotImplementedError(f"{c.name}: {c.named(what + '_antiquant_mode')} {small.mode} is not supported")
    numbers = tensor.float()
    if small.offset is not None:
        numbers = numbers + spread(c.named(f"{what}_antiquant_offset"), small.offset)
    return numbers * spread(c.named(f"{what}_antiquant_scale"), small.scale)


def _keys(c: Inference, batch: int) -> tuple[Tensor, Tensor, int]:
    r"""Keys with their rotated part and values, (batch, heads, positions, width), and how many are of a prefix."""
    heads = c.key_heads

    def plain(argument: str, tensor: Tensor) -> Tensor:
        if c.block_table is None:
            return to_heads(c.name, argument, tensor, c.inner, heads)
        return pages(c.name, argument, tensor, _used(c), heads, c.block_size)

    key, value = plain("key", c.key), plain("value", c.value)
    check(
        key.shape[:3] == value.shape[:3],
        c.name,
        f"key and value don't fit: {tuple(c.key.shape)}, {tuple(c.value.shape)}",
    )
    check(key.shape[0] == batch, c.name, f"key has {key.shape[0]} sequences, but the query has {batch}")
    key, value = _plain(c, key, c.small_key, "key"), _plain(c, value, c.small_value, "value")
    if c.key_rope is not None:
        key = torch.cat([key, plain("key_rope", c.key_rope)], -1)
    shared = 0
    if c.key_prefix is not None:
        prefixes = []
        for argument, tensor, small in (
            ("key", c.key_prefix, c.small_key),
            ("value", c.value_prefix, c.small_value),
        ):
            assert tensor is not None
            if small is not None and small.mode in (1, 3):
                raise NotImplementedError(f"{c.name}: {argument}_shared_prefix has no scales of its own positions")
            found = to_heads(c.name, f"{argument}_shared_prefix", tensor, c.inner, heads)
            check(found.shape[0] == 1, c.name, f"{argument}_shared_prefix must be a batch of one")
            shared = lengths_of(c.name, "actual_shared_prefix_len", c.prefix_lengths, 1, found.shape[2])[0]
            found = _plain(c, found[:, :, :shared], small, argument)
            prefixes.append(found.expand(batch, -1, -1, -1))
        key, value = torch.cat([prefixes[0], key], 2), torch.cat([prefixes[1], value], 2)
    return key, value, shared


def _used(c: Inference) -> Tensor:
    r"""The table of blocks, with the first block where a sequence has none."""
    assert c.block_table is not None
    table = c.block_table
    batch, columns = table.shape
    lengths = lengths_of(c.name, c.named("actual_seq_lengths_kv"), c.key_lengths, batch, columns * c.block_size)
    limit = per_batch(lengths, table)
    start = torch.arange(columns, device=table.device) * c.block_size
    return table.masked_fill(start >= (limit.view(-1, 1) if isinstance(limit, Tensor) else limit), 0)


def _batch(c: Inference, query: Tensor, query_lengths: Sequence[int] | None) -> tuple[Tensor, Tensor]:
    batch, _, queries, _ = query.shape
    key, value, shared = _keys(c, batch)
    keys = key.shape[2]
    single = c.steps and queries == 1 and not c.by_sequence
    decoding = single and c.query_rope is None
    if single:
        query_lengths = None
    if decoding and c.mode in (2, 4):
        raise NotImplementedError(f"{c.name}: sparse_mode {c.mode} is not defined for a query of one position")
    query_names, key_names = c.named("actual_seq_lengths"), c.named("actual_seq_lengths_kv")
    if c.query_padding is not None:
        check(query_lengths is not None, c.name, f"query_padding_size needs {query_names}")
    if c.key_padding is not None:
        check(c.key_lengths is not None, c.name, f"kv_padding_size needs {key_names}")
    query_count = per_batch(lengths_of(c.name, query_names, query_lengths, batch, queries), query)
    key_lengths = lengths_of(c.name, key_names, c.key_lengths, batch, keys - shared)
    key_count = per_batch([length + shared for length in key_lengths], query)

    def places(total: int, count: Tensor | int, padding: Tensor | None) -> tuple[Tensor, Tensor | None]:
        r"""Positions within the sequences, and which are outside of them."""
        at = torch.arange(total, device=query.device)
        if padding is None:
            full = not isinstance(count, Tensor) and count == total
            return at, None if full else at.view(1, 1, 1, -1) >= count
        start = total - padding.clamp(min=0).view(-1, 1, 1, 1) - count
        at = at - start
        # What starts before the first position has no result.
        return at, (at < 0) | (at >= count) | (start < 0)

    query_at, no_query = places(queries, query_count, c.query_padding)
    key_at, hidden = places(keys, key_count, c.key_padding)
    no_key = hidden
    whole = no_key is None and no_query is None and not decoding
    band = _band(c) if whole else None
    if c.mask is not None and band is None:
        if c.mode < 2:
            hidden = either(hidden, _given_mask(c, batch, queries, keys))
        if not decoding:
            at = query_at.unsqueeze(-1) if query_at.dim() == 1 else query_at.transpose(-1, -2)
            beyond = hidden_by_mode(c.mode, c.before, c.after, at, key_at, query_count, key_count)
            hidden = either(hidden, beyond)
    if no_key is not None:
        # What lies behind a sequence may be anything, and 0 times it need not be 0.
        value = value.masked_fill(no_key.transpose(-1, -2), 0)
    out, sums = attend(query, key, value, c.scale, hidden, c.sink, band)
    if no_query is not None:
        rows = no_query.transpose(-1, -2)
        out, sums = out.masked_fill(rows, 0), sums.masked_fill(rows, float("-inf"))
    return out, sums


def _band(c: Inference) -> Band | None:
    r"""What the sparse mode hides of whole sequences, where it means the same in training."""
    return Band(c.mode, c.before, c.after, c.mask) if c.mask is not None and c.mode in (2, 3, 4) else None


def _given_mask(c: Inference, batch: int, queries: int, keys: int) -> Tensor:
    mask = c.mask
    assert mask is not None
    shape = tuple(mask.shape)
    if len(shape) == 2 and queries == 1 and shape[0] in (1, batch):
        mask = mask.view(shape[0], 1, 1, shape[1])
    elif len(shape) in (2, 3):
        mask = mask.view((1,) * (3 - len(shape)) + shape).unsqueeze(1)
    check(
        mask.dim() == 4
        and mask.shape[0] in (1, batch)
        and mask.shape[1] == 1
        and mask.shape[2] >= queries
        and mask.shape[3] >= keys,
        c.name,
        f"atten_mask must be (1 or {batch}, 1, {queries}, {keys}) or one without leading ones, but is {shape}",
    )
    return mask[:, :, :queries, :keys] != 0


def _sequences(c: Inference, query: Tensor) -> tuple[Tensor, Tensor]:
    r"""(heads, positions, width) and (heads, positions, 1) of sequences one behind the other."""
    heads, total, _ = query.shape
    queries = ranges_of(c.name, c.named("actual_seq_lengths"), c.query_lengths, total)
    batch = len(queries)
    lengths = [length for _, length in queries]
    if c.block_table is not None and all(length == lengths[0] for length in lengths) and lengths[0] * batch == total:
        # Sequences of one length in pages are a batch.
        out, sums = _batch(c, query.unflatten(1, (batch, lengths[0])).transpose(0, 1), None)
        return out.transpose(0, 1).flatten(1, 2), sums.transpose(0, 1).flatten(1, 2)
    if c.block_table is not None:
        key, value, _ = _keys(c, batch)
        key_lengths = lengths_of(c.name, c.named("actual_seq_lengths_kv"), c.key_lengths, batch, key.shape[2])
        parts = [(key[i : i + 1, :, :n], value[i : i + 1, :, :n]) for i, n in enumerate(key_lengths)]
    else:
        key, value = (_of_sequences(c, what, t, c.key_heads) for what, t in (("key", c.key), ("value", c.value)))
        if c.key_rope is not None:
            key = torch.cat([key, _of_sequences(c, "key_rope", c.key_rope, c.key_heads)], -1)
        keys = ranges_of(c.name, c.named("actual_seq_lengths_kv"), c.key_lengths, key.shape[1])
        parts = [(key[:, s : s + n].unsqueeze(0), value[:, s : s + n].unsqueeze(0)) for s, n in keys]
    check(len(parts) == batch, c.name, f"the query has {batch} sequences, but key has {len(parts)}")
    outs, all_sums = [], []
    for (start, length), (part_key, part_value) in zip(queries, parts, strict=True):
        part = query[:, start : start + length].unsqueeze(0)
        out, sums = attend(part, part_key, part_value, c.scale, sink=c.sink, band=_band(c))
        outs.append(out.squeeze(0))
        all_sums.append(sums.squeeze(0))
    rest = total - queries[-1][0] - queries[-1][1]
    if rest > 0:
        outs.append(outs[0].new_zeros(heads, rest, outs[0].shape[-1]))
        all_sums.append(all_sums[0].new_full((heads, rest, 1), float("-inf")))
    return torch.cat(outs, 1), torch.cat(all_sums, 1)


def output_shapes(c: Inference) -> tuple[tuple[int, ...], tuple[int, ...]]:
    r"""Shapes of the result and of the logarithms, from the query and the value alone."""
    check(c.layout in LAYOUTS, c.name, f"input_layout must be one of {', '.join(LAYOUTS)}, but is '{c.layout}'")
    if c.value.dim() == 5:
        width = c.value.shape[2] * c.value.shape[4]
    elif c.value.dim() == 3 and (c.block_table is not None or c.inner == "BSH"):
        width = c.value.shape[2] // c.key_heads
    else:
        width = c.value.shape[-1]
    sizes = dict(zip(c.inner, c.query.shape, strict=True))
    sizes |= {"N": c.heads, "D": width, "H": c.heads * width}
    sums = ("T", "N") if c.by_sequence else ("B", "N", "S")
    return tuple(sizes[axis] for axis in c.outer), (*(sizes[axis] for axis in sums), 1)
