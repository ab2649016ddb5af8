r"""Keys and values written into caches in blocks and read from them."""

import torch
from torch import Tensor

from ._attention import wide
from ._checks import check, check_dtype, check_none
from ._registration import operator
from ._slots import write_slots

_COMPRESSION = "Tensor? compress_lens=None, Tensor? compress_seq_offsets=None, Tensor? seq_lens=None"
_SCATTER = f"Tensor slot_mapping, *, {_COMPRESSION}, str? cache_mode='PA_NZ'"
_GATHER = "Tensor block_tables, Tensor seq_lens"
_INTEGERS = (torch.int32, torch.int64)


def _scatter(name: str, what: str, tokens: Tensor, cache: Tensor, slots: Tensor, mode: str | None) -> None:
    if tokens.dim() == 4:
        raise NotImplementedError(f"{name}: {what} of four dimensions is compressed, which is not documented in full")
    check(tokens.dim() == 3, name, f"{what} must be (tokens, heads, width), but is {tuple(tokens.shape)}")
    check(
        slots.shape == tokens.shape[:1] and slots.dtype in _INTEGERS,
        name,
        f"slot_mapping must be ({tokens.shape[0]}) of int32 or int64, but is {tuple(slots.shape)} of {slots.dtype}",
    )
    check(cache.dtype == tokens.dtype, name, f"{what} is {tokens.dtype}, but {what}_cache {cache.dtype}")
    check(mode in (None, "Norm", "PA_NZ"), name, f"cache_mode must be Norm or PA_NZ, but is '{mode}'")
    elements = tokens.shape[1] * tokens.shape[2]
    if mode == "PA_NZ":
        check(
            cache.dim() == 4 and cache.shape[1] * cache.shape[3] == elements,
            name,
            f"{what}_cache must be (blocks, {elements} / c, block_size, c), but is {tuple(cache.shape)}",
        )
    else:
        check(
            cache.dim() == 4 and cache.shape[2:] == tokens.shape[1:],
            name,
            f"{what}_cache must be (blocks, block_size, {tokens.shape[1]}, {tokens.shape[2]}), but is "
            f"{tuple(cache.shape)}",
        )
    write_slots(cache, slots, tokens, mode == "PA_NZ")


@operator(
    f"npu_scatter_pa_kv_cache(Tensor key, Tensor value, Tensor(a!) key_cache, Tensor(b!) value_cache, {_SCATTER}) -> ()"
)
def npu_scatter_pa_kv_cache(
    key,
    value,
    key_cache,
    value_cache,
    slot_mapping,
    *,
    compress_lens=None,
    compress_seq_offsets=None,
    seq_lens=None,
    cache_mode="PA_NZ",
) -> None:
    r"""
    Writes the keys and values of tokens into their slots of caches.

    Args:
        key: (tokens, heads, width), of any number or bool.
        value: (tokens, heads, width of values), of the dtype of ``key``.
        key_cache: (blocks, block_size, heads, width), or (blocks, heads * width / c, block_size, c) of PA_NZ.
        value_cache: like it.
        slot_mapping: (tokens), int32 or int64: block * block_size + place in the block, each once; negative ones are
            left out.
        compress_lens: must be None.
        compress_seq_offsets: must be None.
        seq_lens: must be None.
        cache_mode: None, Norm or PA_NZ.

    Returns:
        Nothing; the caches are written.

    Raises:
        RuntimeError: for shapes and dtypes that do not fit.
        NotImplementedError: for compressed tokens, of four dimensions.
    """
    name = "npu_scatter_pa_kv_cache"
    why = "compression is not documented in full"
    check_none(name, why, compress_lens=compress_lens, compress_seq_offsets=compress_seq_offsets, seq_lens=seq_lens)
    _scatter(name, "key", key, key_cache, slot_mapping, cache_mode)
    _scatter(name, "value", value, value_cache, slot_mapping, cache_mode)


@operator(
    "npu_scatter_pa_kv_cache_functional(Tensor key, Tensor value, Tensor key_cache, Tensor value_cache, "
    f"{_SCATTER}) -> (Tensor, Tensor)"
)
def npu_scatter_pa_kv_cache_functional(
    key,
    value,
    key_cache,
    value_cache,
    slot_mapping,
    *,
    compress_lens=None,
    compress_seq_offsets=None,
    seq_lens=None,
    cache_mode="PA_NZ",
) -> tuple[Tensor, Tensor]:
    r"""
    :func:`npu_scatter_pa_kv_cache` that leaves the caches as they are.

    Args:
        key: as there.
        value: as there.
        key_cache: as there.
        value_cache: as there.
        slot_mapping: as there.
        compress_lens: must be None.
        compress_seq_offsets: must be None.
        seq_lens: must be None.
        cache_mode: as there.

    Returns:
        The caches with what is written.
    """
    caches = key_cache.clone(), value_cache.clone()
    npu_scatter_pa_kv_cache(
        key,
        value,
        *caches,
        slot_mapping,
        compress_lens=compress_lens,
        compress_seq_offsets=compress_seq_offsets,
        seq_lens=seq_lens,
        cache_mode=cache_mode,
    )
    return caches


@operator(
    f"npu_scatter_pa_cache.value(Tensor key, Tensor slot_mapping, *, {_COMPRESSION}, Tensor(a!) key_cache) -> "
    "Tensor(a!)"
)
def npu_scatter_pa_cache(
    key, slot_mapping, *, compress_lens=None, compress_seq_offsets=None, seq_lens=None, key_cache
) -> Tensor:
    r"""
    Writes what belongs to tokens into their slots of one cache.

    Args:
        key: (tokens, heads, width).
        slot_mapping: as of :func:`npu_scatter_pa_kv_cache`.
        compress_lens: must be None.
        compress_seq_offsets: must be None.
        seq_lens: must be None.
        key_cache: (blocks, block_size, heads, width).

    Returns:
        ``key_cache``.
    """
    name = "npu_scatter_pa_cache"
    why = "compression is not documented in full"
    check_none(name, why, compress_lens=compress_lens, compress_seq_offsets=compress_seq_offsets, seq_lens=seq_lens)
    _scatter(name, "key", key, key_cache, slot_mapping, "Norm")
    return key_cache


@operator(
    f"npu_gather_pa_kv_cache(Tensor key_cache, Tensor value_cache, {_GATHER}, Tensor(a!) key, Tensor(b!) value, *, "
    "Tensor? seq_offset=None, bool is_seq_lens_cumsum=False) -> ()"
)
def npu_gather_pa_kv_cache(
    key_cache, value_cache, block_tables, seq_lens, key, value, *, seq_offset=None, is_seq_lens_cumsum=False
) -> None:
    r"""
    Reads the keys and values of sequences from caches, one sequence behind the other.

    Args:
        key_cache: (blocks, block_size, ...).
        value_cache: (blocks, block_size, ...).
        block_tables: (sequences, columns), int32: the blocks of each sequence, in order.
        seq_lens: (sequences), int32: tokens of each; or (sequences + 1) with ``is_seq_lens_cumsum``.
        key: (tokens, ...), of the elements of a slot of ``key_cache``; is written. Tokens behind the last sequence
            stay as they are.
        value: the same of ``value_cache``.
        seq_offset: (sequences), int32: the token that each starts from, a multiple of block_size.
        is_seq_lens_cumsum: whether ``seq_lens`` holds the starts of the sequences and the end of the last one.

    Returns:
        Nothing; a token whose block isn't in the table or in the cache is 0.

    Raises:
        RuntimeError: for shapes that do not fit.
    """
    name = "npu_gather_pa_kv_cache"
    sequences, columns = block_tables.shape
    expected = sequences + int(is_seq_lens_cumsum)
    check(seq_lens.shape == (expected,), name, f"seq_lens must be ({expected}), but is {tuple(seq_lens.shape)}")
    ends = seq_lens.long()[1:] if is_seq_lens_cumsum else seq_lens.long().cumsum(0)
    starts = seq_lens.long()[:-1] if is_seq_lens_cumsum else ends - seq_lens.long()
    for what, cache, out in (("key", key_cache, key), ("value", value_cache, value)):
        blocks, size = cache.shape[:2]
        check(
            out.shape[1:].numel() == cache.shape[2:].numel() and out.dtype == cache.dtype,
            name,
            f"{what} of {tuple(out.shape)} doesn't fit {what}_cache of {tuple(cache.shape)}",
        )
        if out.shape[0] == 0 or sequences == 0:
            continue
        token = torch.arange(out.shape[0], device=out.device)
        sequence = (token.unsqueeze(1) >= ends).sum(1)
        there = sequence < sequences
        sequence = sequence.clamp(max=sequences - 1)
        at = token - starts[sequence]
        column = at // size
        if seq_offset is not None:
            column = column + seq_offset.long()[sequence] // size
        block = block_tables.long()[sequence, column.clamp(max=columns - 1)]
        found = (column < columns) & (block >= 0) & (block < blocks)
        rows = cache[block.clamp(0, blocks - 1), at.clamp(min=0) % size].reshape(out.shape)
        shape = (-1, *(1,) * (out.dim() - 1))
        rows = rows.masked_fill(~found.view(shape), 0)
        out.copy_(torch.where(there.view(shape), rows, out))


@operator(
    f"npu_gather_pa_kv_cache_functional(Tensor key_cache, Tensor value_cache, {_GATHER}, Tensor key, Tensor value, *, "
    "Tensor? seq_offset=None, bool is_seq_lens_cumsum=False) -> (Tensor, Tensor)"
)
def npu_gather_pa_kv_cache_functional(
    key_cache, value_cache, block_tables, seq_lens, key, value, *, seq_offset=None, is_seq_lens_cumsum=False
) -> tuple[Tensor, Tensor]:
    r"""
    :func:`npu_gather_pa_kv_cache` that leaves ``key`` and ``value`` as they are.

    Args:
        key_cache: as there.
        value_cache: as there.
        block_tables: as there.
        seq_lens: as there.
        key: as there.
        value: as there.
        seq_offset: as there.
        is_seq_lens_cumsum: as there.

    Returns:
        The keys and the values.
    """
    outs = key.clone(), value.clone()
    npu_gather_pa_kv_cache(
        key_cache,
        value_cache,
        block_tables,
        seq_lens,
        *outs,
        seq_offset=seq_offset,
        is_seq_lens_cumsum=is_seq_lens_cumsum,
    )
    return outs


def _scatter_list(
    name: str, targets, indices: Tensor, updates: Tensor, mask: Tensor | None, reduce: str, axis: int
) -> None:
    check(reduce == "update", name, f"reduce must be 'update', but is '{reduce}'")
    check(axis in (-2, -1), name, f"axis must be -2 or -1, but is {axis}")
    if indices.dim() != 1 or updates.shape[axis] != 1:
        raise NotImplementedError(
            f"{name}: indices must be of one dimension, and updates of one place along axis {axis}; they are "
            f"{tuple(indices.shape)} and {tuple(updates.shape)}"
        )
    check(
        indices.shape[0] == len(targets) and updates.shape[0] == len(targets),
        name,
        f"indices and updates must have an element for each of the {len(targets)} tensors, but are "
        f"{tuple(indices.shape)} and {tuple(updates.shape)}",
    )
    for i, target in enumerate(targets):
        index = indices[i : i + 1].long()
        update = updates[i]
        if mask is not None:
            update = torch.where(mask[i] != 0, update, target.index_select(axis, index))
        target.index_copy_(axis, index, update.to(target.dtype))


@operator(
    "npu_scatter_list(Tensor[] self, Tensor indices, Tensor updates, Tensor? mask=None, str reduce='update', "
    "int axis=-2) -> Tensor[]"
)
def npu_scatter_list(self, indices, updates, mask=None, reduce="update", axis=-2) -> list[Tensor]:
    r"""
    Copies of tensors, each with one place along a dimension replaced.

    Args:
        self: tensors of one shape, (..., places, width).
        indices: (tensors), int32 or int64: the place in each.
        updates: (tensors, ...), with 1 place along ``axis``.
        mask: (tensors), uint8; 0 leaves a tensor as it is.
        reduce: must be update.
        axis: -2 or -1.

    Returns:
        The copies.

    Raises:
        RuntimeError: for shapes that do not fit.
        NotImplementedError: for other indices, or updates of several places.
    """
    copies = [t.clone() for t in self]
    _scatter_list("npu_scatter_list", copies, indices, updates, mask, reduce, axis)
    return copies


@operator(
    "npu_scatter_list_(Tensor(a!)[] self, Tensor indices, Tensor updates, Tensor? mask=None, str reduce='update', "
    "int axis=-2) -> ()"
)
def npu_scatter_list_(self, indices, updates, mask=None, reduce="update", axis=-2) -> None:
    r"""
    :func:`npu_scatter_list` in place.

    Args:
        self: as there; is written.
        indices: as there.
        updates: as there.
        mask: as there.
        reduce: must be update.
        axis: as there.

    Returns:
        Nothing.
    """
    _scatter_list("npu_scatter_list_", self, indices, updates, mask, reduce, axis)


def _quantised_updates(name, self, indices, updates, scales, zero_points, axis, quant_axis, reduce, others) -> Tensor:
    r"""``self`` with the small updates, each at the place of its index along the axis."""
    check(reduce == "update", name, f"reduce must be 'update', but is {reduce!r}")
    for argument, (value, wanted) in others.items():
        if value not in (None, wanted):
            raise NotImplementedError(f"{name}: {argument} must be {wanted!r}, not {value!r}")
    check_dtype(name, "self", self, (torch.int8,))
    check_dtype(name, "updates", updates, (torch.float16, torch.bfloat16))
    rank = self.dim()
    along = axis % rank if -rank <= axis < rank else 0
    check(
        rank >= 3 and updates.dim() == rank and 0 < along < rank - 1 and quant_axis % rank == rank - 1,
        name,
        "self and updates must have 3 dimensions or more, axis be neither the first nor the last one, and quant_axis "
        f"the last one; they are {tuple(self.shape)}, {tuple(updates.shape)}, {axis} and {quant_axis}",
    )
    count, places = updates.shape[0], updates.shape[along]
    check(
        places <= self.shape[along]
        and count <= self.shape[0]
        and all(updates.shape[i] == self.shape[i] for i in range(1, rank) if i != along),
        name,
        f"updates do not fit self: {tuple(updates.shape)} and {tuple(self.shape)}",
    )
    check(
        indices.shape in ((count,), (count, 2)),
        name,
        f"indices must be ({count},) or ({count}, 2), but are {tuple(indices.shape)}",
    )
    for argument, table in (("quant_scales", scales), ("quant_zero_points", zero_points)):
        if table is not None:
            check(
                table.numel() == self.shape[-1],
                name,
                f"{argument} must have {self.shape[-1]} elements, but has {table.numel()}",
            )
    numbers = wide(updates.detach()) / wide(scales).reshape(-1)
    if zero_points is not None:
        numbers = numbers + wide(zero_points).reshape(-1)
    small = numbers.round().clamp(-128, 127).to(torch.int8)
    where = indices.long()
    if where.dim() == 2:
        batch, first = where.unbind(1)
    else:
        batch, first = torch.arange(count, device=self.device), where
    place = first.unsqueeze(1) + torch.arange(places, device=self.device)
    moved = self.movedim(along, 1).index_put((batch.unsqueeze(1), place), small.movedim(along, 1))
    return moved.movedim(1, along)


_QUANT_SCATTER = (
    "Tensor indices, Tensor updates, Tensor quant_scales, Tensor? quant_zero_points=None, int axis=-2, "
    "int quant_axis=-1, str reduce='update', int? dst_type=None, str? round_mode='rint'"
)


@operator(f"npu_quant_scatter(Tensor self, {_QUANT_SCATTER}) -> Tensor")
def npu_quant_scatter(
    self,
    indices,
    updates,
    quant_scales,
    quant_zero_points=None,
    axis=-2,
    quant_axis=-1,
    reduce="update",
    dst_type=None,
    round_mode="rint",
) -> Tensor:
    r"""
    A copy in which updates, as round(updates / quant_scales + quant_zero_points), replace places along a dimension.

    Args:
        self: of 3 dimensions or more, int8.
        indices: int32: the first place of each update, (n), in the first n elements of the first dimension; or (n, 2),
            which element and the first place.
        updates: (n, ...), float16 or bfloat16; like ``self`` but for the first dimension and ``axis``.
        quant_scales: a number for each element of the last dimension; float32 or bfloat16.
        quant_zero_points: like it; int32 or bfloat16.
        axis: neither the first nor the last dimension.
        quant_axis: must be the last dimension.
        reduce: must be update.
        dst_type: must be None or torch.int8.
        round_mode: must be rint.

    Returns:
        The copy.

    Raises:
        RuntimeError: for shapes and dtypes that do not fit.
        NotImplementedError: for another ``dst_type`` or ``round_mode``.
    """
    others = {"dst_type": (dst_type, 1), "round_mode": (round_mode, "rint")}
    given = (self, indices, updates, quant_scales, quant_zero_points, axis, quant_axis, reduce, others)
    return _quantised_updates("npu_quant_scatter", *given).contiguous()


@operator(f"npu_quant_scatter_(Tensor(a!) self, {_QUANT_SCATTER}) -> Tensor(a!)")
def npu_quant_scatter_(
    self,
    indices,
    updates,
    quant_scales,
    quant_zero_points=None,
    axis=-2,
    quant_axis=-1,
    reduce="update",
    dst_type=None,
    round_mode="rint",
) -> Tensor:
    r"""
    :func:`npu_quant_scatter` in place.

    Args:
        self: as there; is written.
        indices: as there.
        updates: as there.
        quant_scales: as there.
        quant_zero_points: as there.
        axis: as there.
        quant_axis: must be the last dimension.
        reduce: must be update.
        dst_type: must be None or torch.int8.
        round_mode: must be rint.

    Returns:
        self.
    """
    others = {"dst_type": (dst_type, 1), "round_mode": (round_mode, "rint")}
    given = (self, indices, updates, quant_scales, quant_zero_points, axis, quant_axis, reduce, others)
    return self.copy_(_quantised_updates("npu_quant_scatter_", *given))


@operator(
    "npu_advance_step_flashattn(Tensor(a!) input_tokens, Tensor sampled_token_ids, Tensor(b!) input_positions, "
    "Tensor(c!) seq_lens, Tensor(d!) slot_mapping, Tensor block_tables, int num_seqs, int num_queries, int "
    "block_size, *, "
    "Tensor? spec_token=None, Tensor? accepted_num=None) -> ()"
)
def npu_advance_step_flashattn(
    input_tokens,
    sampled_token_ids,
    input_positions,
    seq_lens,
    slot_mapping,
    block_tables,
    num_seqs,
    num_queries,
    block_size,
    *,
    spec_token=None,
    accepted_num=None,
) -> None:
    r"""
    Moves the sequences of a decoder one token on, as vLLM's function of this name does.

    Args:
        input_tokens: (num_seqs), int64; the first num_queries elements become the sampled tokens.
        sampled_token_ids: (num_queries, 1), int64.
        input_positions: (num_seqs), int64; become the lengths before this step.
        seq_lens: (num_seqs), int64; grow by one.
        slot_mapping: (num_seqs), int64; become the slots of the new positions.
        block_tables: (num_seqs, columns), int64: the blocks of each sequence, in order.
        num_seqs: sequences.
        num_queries: sequences that are moved, the first ones; fewer than ``num_seqs``, or as many.
        block_size: positions of a block.
        spec_token: must be None.
        accepted_num: must be None.

    Returns:
        Nothing; the first, third, fourth and fifth argument are written.

    Raises:
        RuntimeError: for shapes that do not fit.
        NotImplementedError: for speculative decoding.
    """
    name = "npu_advance_step_flashattn"
    check_none(name, "speculative decoding is not documented in full", spec_token=spec_token, accepted_num=accepted_num)
    check(0 < num_queries <= num_seqs, name, f"num_queries must be 1 to num_seqs, {num_seqs}, but is {num_queries}")
    check(block_size > 0, name, f"block_size must be positive, but is {block_size}")
    for what, tensor in (
        ("input_tokens", input_tokens),
        ("input_positions", input_positions),
        ("seq_lens", seq_lens),
        ("slot_mapping", slot_mapping),
    ):
        check(tensor.shape == (num_seqs,), name, f"{what} must be ({num_seqs}), but is {tuple(tensor.shape)}")
    check(
        sampled_token_ids.shape == (num_queries, 1),
        name,
        f"sampled_token_ids must be ({num_queries}, 1), but is {tuple(sampled_token_ids.shape)}",
    )
    check(
        block_tables.dim() == 2 and block_tables.shape[0] == num_seqs,
        name,
        f"block_tables must be ({num_seqs}, columns), but is {tuple(block_tables.shape)}",
    )
    positions = seq_lens[:num_queries].clone()
    blocks = block_tables[:num_queries].gather(1, (positions // block_size).unsqueeze(1).long()).squeeze(1)
    input_tokens[:num_queries].copy_(sampled_token_ids.squeeze(1))
    input_positions[:num_queries].copy_(positions)
    seq_lens[:num_queries].copy_(positions + 1)
    slot_mapping[:num_queries].copy_(blocks * block_size + positions % block_size)
