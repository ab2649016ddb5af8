r"""Attention of each query to a list of keys of its own, and what chooses them."""

import torch
from torch import Tensor

from ._attention import HIDDEN, attend, attention_grad, scores_of, wide
from ._checks import check, check_dtype, check_none
from ._registration import operator

_HALF = (torch.float16, torch.bfloat16)
_ALL = 9223372036854775807


class Tokens:
    r"""Which sequence each query belongs to, its place there, and the lengths, from tensors that stay on the device."""

    def __init__(self, name: str, layout: str, query: Tensor, lengths: Tensor | None, key_lengths: Tensor):
        count, device = query.shape[0] * (query.shape[1] if layout == "BSND" else 1), query.device
        token = torch.arange(count, device=device)
        if layout == "BSND":
            places = query.shape[1]
            self.sequence, self.at = token // places, token % places
            given = torch.full((query.shape[0],), places, device=device) if lengths is None else lengths.long()
            self.length = given[self.sequence]
            self.inside = self.at < self.length
        else:
            check(lengths is not None, name, "layout TND needs actual_seq_lengths_query")
            assert lengths is not None
            ends = lengths.long()
            starts = torch.nn.functional.pad(ends, (1, 0))[:-1]
            sequence = (token.unsqueeze(1) >= ends).sum(1)
            self.inside = sequence < ends.shape[0]
            self.sequence = sequence.clamp(max=ends.shape[0] - 1)
            self.at = token - starts[self.sequence]
            self.length = (ends - starts)[self.sequence]
        self.key_length = key_lengths[self.sequence]

    def last(self, mode: int) -> Tensor:
        r"""How many keys a query may see, (queries)."""
        seen = self.key_length if mode == 0 else self.key_length - self.length + self.at + 1
        return torch.where(self.inside, torch.minimum(seen, self.key_length), 0)


class Keys:
    r"""Keys of any layout as rows, where each sequence starts, and how long it is."""

    def __init__(self, name, layout, key, lengths, table):
        self.name, self.table, self.layout = name, table, layout
        check(
            layout in ("BSND", "TND", "PA_BSND"),
            name,
            f"the layout of key must be BSND, TND or PA_BSND, but is '{layout}'",
        )
        check((table is not None) == (layout == "PA_BSND"), name, "block_table goes with PA_BSND")
        check(
            key.dim() == (3 if layout == "TND" else 4) and key.shape[-2] == 1,
            name,
            f"key of layout {layout} must have one head, but is {tuple(key.shape)}",
        )
        check(layout == "BSND" or lengths is not None, name, f"layout {layout} needs the lengths of the keys")
        self.size = key.shape[1]
        if layout == "TND":
            ends = lengths.long()
            self.starts = torch.nn.functional.pad(ends, (1, 0))[:-1]
            self.lengths = ends - self.starts
        elif layout == "BSND":
            self.starts = torch.arange(key.shape[0], device=key.device) * self.size
            self.lengths = (
                torch.full((key.shape[0],), self.size, device=key.device) if lengths is None else lengths.long()
            )
        else:
            self.starts, self.lengths = None, lengths.long()

    def rows(self, sequence: Tensor, place: Tensor) -> Tensor:
        r"""Rows of the keys at places of sequences."""
        if self.starts is not None:
            return self.starts[sequence] + place
        column = (place // self.size).clamp(max=self.table.shape[1] - 1)
        return self.table.long()[sequence, column] * self.size + place % self.size


def chosen_rows(name, tokens: Tokens, keys: Keys, indices: Tensor, block: int, mode: int) -> tuple[Tensor, Tensor]:
    r"""For each query the rows of its keys, and which of them it doesn't see; (queries, keys)."""
    check_dtype(name, "sparse_indices", indices, (torch.int32,))
    check(indices.shape[-2] == 1, name, f"sparse_indices must have one head, but is {tuple(indices.shape)}")
    check(
        block in (1, 2, 4, 8, 16, 32, 64, 128),
        name,
        f"sparse_block_size must be a power of 2 up to 128, but is {block}",
    )
    check(mode in (0, 3), name, f"sparse_mode must be 0 or 3, but is {mode}")
    flat = indices.reshape(-1, indices.shape[-1], 1).long()
    check(
        flat.shape[0] == tokens.at.shape[0],
        name,
        f"sparse_indices must have the queries' positions, but is {tuple(indices.shape)}",
    )
    place = (flat * block + torch.arange(block, device=indices.device)).flatten(1)
    valid = (flat >= 0).expand(-1, -1, block).flatten(1) & (place < tokens.last(mode).unsqueeze(1))
    rows = keys.rows(tokens.sequence.unsqueeze(1), torch.where(valid, place, 0))
    return torch.where(valid, rows, 0), ~valid


def _check_sparse(name, query, key, value, query_rope, key_rope, attention_mode, pre_tokens, next_tokens) -> None:
    check_dtype(name, "query", query, _HALF)
    for argument, tensor in (("key", key), ("value", value), ("query_rope", query_rope), ("key_rope", key_rope)):
        check(tensor is not None, name, f"attention_mode 2 needs {argument}")
        check_dtype(name, argument, tensor, (query.dtype,))
    check(attention_mode == 2, name, f"attention_mode must be 2, but is {attention_mode}")
    check(pre_tokens == _ALL and next_tokens == _ALL, name, "pre_tokens and next_tokens must be their defaults")
    check(
        key.shape == value.shape and query.shape[-1] == 512 and key.shape[-1] == 512 and query_rope.shape[-1] == 64,
        name,
        f"heads must have 512 elements, and 64 of the rotated part, but query, key, value and query_rope are "
        f"{tuple(query.shape)}, {tuple(key.shape)}, {tuple(value.shape)} and {tuple(query_rope.shape)}",
    )


_SPARSE = (
    "int? sparse_mode=3, int? pre_tokens=9223372036854775807, int? next_tokens=9223372036854775807, "
    "int? attention_mode=0"
)


@operator(
    "npu_sparse_flash_attention(Tensor query, Tensor key, Tensor value, Tensor sparse_indices, float scale_value, *, "
    "Tensor? block_table=None, Tensor? actual_seq_lengths_query=None, Tensor? actual_seq_lengths_kv=None, "
    "Tensor? query_rope=None, Tensor? key_rope=None, int sparse_block_size=1, str layout_query='BSND', "
    f"str layout_kv='BSND', {_SPARSE.replace('?', '')}, bool return_softmax_lse=False, Tensor? sinks=None) -> "
    "(Tensor, Tensor, Tensor)"
)
def npu_sparse_flash_attention(
    query,
    key,
    value,
    sparse_indices,
    scale_value,
    *,
    block_table=None,
    actual_seq_lengths_query=None,
    actual_seq_lengths_kv=None,
    query_rope=None,
    key_rope=None,
    sparse_block_size=1,
    layout_query="BSND",
    layout_kv="BSND",
    sparse_mode=3,
    pre_tokens=_ALL,
    next_tokens=_ALL,
    attention_mode=0,
    return_softmax_lse=False,
    sinks=None,
) -> tuple[Tensor, Tensor, Tensor]:
    r"""
    Latent attention of each query to the keys that a list of its own names. The lengths stay on the device.

    Args:
        query: (batch, positions, heads, 512) of BSND, or (positions, heads, 512) of TND; float16 or bfloat16.
        key: of one head: like ``query``, or (blocks, block_size, 1, 512) of PA_BSND.
        value: the tensor of ``key``, or one like it.
        sparse_indices: int32, (..., 1, blocks): the blocks of keys that a query sees; negative ones are none.
        scale_value: factor of the products.
        block_table: int32, (batch, columns): the cache's blocks of each sequence, of PA_BSND.
        actual_seq_lengths_query: int32: positions of each query; with TND the ends of the sequences, which must be
            given.
        actual_seq_lengths_kv: int32: positions of each key; with TND their ends; needed with TND and PA_BSND.
        query_rope: a further part of the heads of the query, of 64 elements.
        key_rope: that of the key.
        sparse_block_size: keys of a block of ``sparse_indices``, a power of 2 up to 128.
        layout_query: BSND or TND.
        layout_kv: that of the query, or PA_BSND.
        sparse_mode: 0: all that are named; 3: causal up to the last positions.
        pre_tokens: must be the default.
        next_tokens: must be the default.
        attention_mode: must be 2.
        return_softmax_lse: whether the last two results are wanted; not with PA_BSND.
        sinks: float32, one score for each head that takes its share of the softmax, and has no value.

    Returns:
        The result, of the shape and dtype of ``query``, 0 in rows that see nothing; the maxima of the scores and the
        sums of the exponentials, float32, (batch, 1, positions, heads) or (1, positions, heads), or empty tensors.

    Raises:
        RuntimeError: for shapes, dtypes, modes and layouts that do not fit.
        NotImplementedError: for ``sinks`` with ``return_softmax_lse``.
    """
    name = "npu_sparse_flash_attention"
    _check_sparse(name, query, key, value, query_rope, key_rope, attention_mode, pre_tokens, next_tokens)
    check(layout_query in ("BSND", "TND"), name, f"layout_query must be BSND or TND, but is '{layout_query}'")
    check(
        layout_kv in (layout_query, "PA_BSND"),
        name,
        f"layout_kv must be {layout_query} or PA_BSND, but is '{layout_kv}'",
    )
    if return_softmax_lse:
        check(layout_kv != "PA_BSND", name, "return_softmax_lse is not for PA_BSND")
        check_none(name, "whether the sums count it is not documented", sinks=sinks)
    keys = Keys(name, layout_kv, key, actual_seq_lengths_kv, block_table)
    tokens = Tokens(name, layout_query, query, actual_seq_lengths_query, keys.lengths)
    rows, hidden = chosen_rows(name, tokens, keys, sparse_indices, sparse_block_size, sparse_mode)
    heads = query.shape[-2]
    plain, turned = query.reshape(-1, heads, 1, 512), query_rope.reshape(-1, heads, 1, 64)
    found, found_rope = key.reshape(-1, 512)[rows], key_rope.reshape(-1, 64)[rows]
    values = value.reshape(-1, 512)[rows].masked_fill(hidden.unsqueeze(-1), 0)
    hide = hidden.view(-1, 1, 1, hidden.shape[1])
    joined = torch.cat([plain, turned], -1), torch.cat([found, found_rope], -1).unsqueeze(1)
    out, sums = attend(*joined, values.unsqueeze(1), scale_value, hide, sinks)
    out = out.to(query.dtype).view(query.shape)
    if not return_softmax_lse:
        return out, sums.new_empty(0), sums.new_empty(0)
    top = scores_of(*joined, scale_value).masked_fill(hide, HIDDEN).amax(-1)
    top = top.masked_fill(top == HIDDEN, 0)
    total = torch.exp(sums.squeeze(-1) - top)
    shape = (query.shape[0], 1, query.shape[1], heads) if layout_query == "BSND" else (1, query.shape[0], heads)
    return out, top.view(shape).detach(), total.view(shape).detach()


@operator(
    "npu_sparse_flash_attention_grad(Tensor query, Tensor key, Tensor value, Tensor sparse_indices, Tensor d_out, "
    "Tensor out, Tensor softmax_max, Tensor softmax_sum, float scale_value, int sparse_block_size, "
    "Tensor? query_rope=None, Tensor? key_rope=None, Tensor? actual_seq_qlen=None, Tensor? actual_seq_kvlen=None, "
    f"str? layout='BSND', {_SPARSE}) -> (Tensor, Tensor, Tensor, Tensor, Tensor)"
)
def npu_sparse_flash_attention_grad(
    query,
    key,
    value,
    sparse_indices,
    d_out,
    out,
    softmax_max,
    softmax_sum,
    scale_value,
    sparse_block_size,
    query_rope=None,
    key_rope=None,
    actual_seq_qlen=None,
    actual_seq_kvlen=None,
    layout="BSND",
    sparse_mode=3,
    pre_tokens=_ALL,
    next_tokens=_ALL,
    attention_mode=0,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    r"""
    The gradient of :func:`npu_sparse_flash_attention`.

    Args:
        query: as there.
        key: as there.
        value: as there.
        sparse_indices: as there.
        d_out: the gradient of its first result.
        out: its first result; not read.
        softmax_max: its second result; not read: the softmax is made again.
        softmax_sum: its third result; not read.
        scale_value: as there.
        sparse_block_size: as there.
        query_rope: as there.
        key_rope: as there.
        actual_seq_qlen: ``actual_seq_lengths_query`` there.
        actual_seq_kvlen: ``actual_seq_lengths_kv`` there.
        layout: BSND or TND.
        sparse_mode: as there.
        pre_tokens: must be the default.
        next_tokens: must be the default.
        attention_mode: must be 2.

    Returns:
        The gradients of ``query``, ``key``, ``value``, ``query_rope`` and ``key_rope``.
    """
    name = "npu_sparse_flash_attention_grad"
    _check_sparse(name, query, key, value, query_rope, key_rope, attention_mode, pre_tokens, next_tokens)
    check(layout in ("BSND", "TND"), name, f"layout must be BSND or TND, but is '{layout}'")
    keys = Keys(name, layout, key, actual_seq_kvlen, None)
    tokens = Tokens(name, layout, query, actual_seq_qlen, keys.lengths)
    rows, hidden = chosen_rows(name, tokens, keys, sparse_indices, sparse_block_size, sparse_mode)
    heads = query.shape[-2]
    joined = torch.cat([query.reshape(-1, heads, 1, 512), query_rope.reshape(-1, heads, 1, 64)], -1)
    found = torch.cat([key.reshape(-1, 512)[rows], key_rope.reshape(-1, 64)[rows]], -1).unsqueeze(1)
    values = value.reshape(-1, 512)[rows].unsqueeze(1)
    hide = hidden.view(-1, 1, 1, hidden.shape[1])
    dq, dk, dv = attention_grad(joined, found, values, d_out.reshape(-1, heads, 1, 512), scale_value, hide)

    def gathered(grad: Tensor, like: Tensor) -> Tensor:
        flat = torch.zeros_like(wide(like)).reshape(-1, like.shape[-1])
        return flat.index_add(0, rows.flatten(), grad.reshape(-1, like.shape[-1])).view(like.shape).to(like.dtype)

    return (
        dq[..., :512].reshape(query.shape).to(query.dtype),
        gathered(dk[..., :512], key),
        gathered(dv, value),
        dq[..., 512:].reshape(query_rope.shape).to(query.dtype),
        gathered(dk[..., 512:], key_rope),
    )


def _best(
    name: str,
    query: Tensor,
    key: Tensor,
    weights: Tensor,
    lengths: tuple[Tensor | None, Tensor | None, Tensor | None],
    layouts: tuple[str, str],
    most: int,
    mode: int,
) -> tuple[Tensor, Tensor]:
    r"""The greatest sums of each query over its heads, fp32, and the keys that they are of; -inf and -1 behind them."""
    check(layouts[0] in ("BSND", "TND"), name, f"layout_query must be BSND or TND, but is '{layouts[0]}'")
    check(
        layouts[1] in (layouts[0], "PA_BSND"),
        name,
        f"layout_key must be {layouts[0]} or PA_BSND, but is '{layouts[1]}'",
    )
    check(
        query.shape[-1] == 128 and key.shape[-1] == 128 and query.shape[-2] <= 64,
        name,
        "query and key must have heads of 128 elements, at most 64, but are "
        f"{tuple(query.shape)} and {tuple(key.shape)}",
    )
    check(
        weights.shape == query.shape[:-1],
        name,
        f"weights must be {tuple(query.shape[:-1])}, but is {tuple(weights.shape)}",
    )
    check(mode in (0, 3), name, f"sparse_mode must be 0 or 3, but is {mode}")
    query_lengths, key_lengths, block_table = lengths
    layout_query, layout_key = layouts
    keys = Keys(name, layout_key, key, key_lengths, block_table)
    tokens = Tokens(name, layout_query, query, query_lengths, keys.lengths)
    count = tokens.at.shape[0]
    if layout_key == "TND":
        places = key.shape[0]
        stored = key.reshape(-1, 128)
    else:
        batch, places = (
            (block_table.shape[0], block_table.shape[1] * keys.size) if block_table is not None else key.shape[:2]
        )
        sequence = torch.arange(batch, device=key.device).unsqueeze(1)
        stored = key.reshape(-1, 128)[
            keys.rows(sequence, torch.arange(places, device=key.device)).clamp(0, key.numel() // 128 - 1)
        ]
    if layout_key != "TND" and layout_query == "BSND":
        # Each sequence has keys of its own.
        grouped, share = query, weights
        scores = torch.zeros(*query.shape[:2], places, device=query.device)
    else:
        grouped, share = query.reshape(1, count, *query.shape[-2:]), weights.reshape(1, count, -1)
        stored = stored.reshape(1, -1, 128)
        scores = torch.zeros(1, count, stored.shape[1], device=query.device)
    for head in range(query.shape[-2]):
        products = torch.relu(wide(grouped[:, :, head]) @ wide(stored).transpose(-1, -2))
        scores = scores + products * wide(share[:, :, head]).unsqueeze(-1)
    scores = scores.reshape(count, -1)
    # The place of the first key of each query's sequence among the columns.
    base = torch.zeros_like(tokens.at)
    if layout_key == "TND":
        base = keys.starts[tokens.sequence]
    elif layout_query == "TND":
        base = tokens.sequence * places
    at = torch.arange(scores.shape[1], device=query.device) - base.unsqueeze(1)
    scores = scores.masked_fill((at < 0) | (at >= tokens.last(mode).unsqueeze(1)), HIDDEN)
    kept = min(most, scores.shape[1])
    best, chosen = (t[:, :kept] for t in torch.sort(scores, dim=-1, descending=True, stable=True))
    chosen = torch.where(best == HIDDEN, -1, chosen - base.unsqueeze(1))
    missing = (0, most - kept)
    shape = (*query.shape[:-2], 1, most)
    chosen = torch.nn.functional.pad(chosen, missing, value=-1).int().view(shape)
    return torch.nn.functional.pad(best, missing, value=HIDDEN).view(shape), chosen


@operator(
    "npu_lightning_indexer(Tensor query, Tensor key, Tensor weights, *, Tensor? actual_seq_lengths_query=None, "
    "Tensor? actual_seq_lengths_key=None, Tensor? block_table=None, str layout_query='BSND', str layout_key='BSND', "
    "int sparse_count=2048, int sparse_mode=3, int pre_tokens=9223372036854775807, "
    "int next_tokens=9223372036854775807, bool return_value=False) -> (Tensor, Tensor)"
)
def npu_lightning_indexer(
    query,
    key,
    weights,
    *,
    actual_seq_lengths_query=None,
    actual_seq_lengths_key=None,
    block_table=None,
    layout_query="BSND",
    layout_key="BSND",
    sparse_count=2048,
    sparse_mode=3,
    pre_tokens=_ALL,
    next_tokens=_ALL,
    return_value=False,
) -> tuple[Tensor, Tensor]:
    r"""
    The keys that each query should see: those of the greatest sums, over heads, of weights * relu(query key').

    The lengths stay on the device. Scores of every query with every key are made, head by head.

    Args:
        query: (batch, positions, heads, 128) of BSND, or (positions, heads, 128) of TND; float16 or bfloat16; at most
            64 heads.
        key: of one head: like ``query``, or (blocks, block_size, 1, 128) of PA_BSND.
        weights: one for each head of each query; of the dtype of ``query`` or float32.
        actual_seq_lengths_query: int32: positions of each query; with TND the ends of the sequences, which must be
            given.
        actual_seq_lengths_key: int32: positions of each key; with TND their ends; needed with TND and PA_BSND.
        block_table: int32, (batch, columns): the cache's blocks of each sequence, of PA_BSND.
        layout_query: BSND or TND.
        layout_key: that of the query, or PA_BSND.
        sparse_count: how many keys are chosen.
        sparse_mode: 0: of all; 3: causal up to the last positions.
        pre_tokens: must be the default.
        next_tokens: must be the default.
        return_value: whether the second result is wanted; not with PA_BSND.

    Returns:
        The chosen keys, best first, int32, (..., 1, sparse_count), -1 where a query sees fewer; their scores, of the
        dtype of ``query``, -inf there, or an empty tensor.

    Raises:
        RuntimeError: for shapes, dtypes, modes and layouts that do not fit.
    """
    name = "npu_lightning_indexer"
    check_dtype(name, "query", query, _HALF)
    check_dtype(name, "key", key, (query.dtype,))
    check_dtype(name, "weights", weights, (query.dtype, torch.float32))
    check(pre_tokens == _ALL and next_tokens == _ALL, name, "pre_tokens and next_tokens must be their defaults")
    check(
        1 <= sparse_count <= 2048 or sparse_count in range(3072, 8193, 1024),
        name,
        f"sparse_count must be 1 to 2048 or a multiple of 1024 up to 8192, but is {sparse_count}",
    )
    check(not (return_value and layout_key == "PA_BSND"), name, "return_value is not for PA_BSND")
    lengths = (actual_seq_lengths_query, actual_seq_lengths_key, block_table)
    best, chosen = _best(name, query, key, weights, lengths, (layout_query, layout_key), sparse_count, sparse_mode)
    return chosen, best.to(query.dtype) if return_value else query.new_empty(0)


@operator(
    "npu_quant_lightning_indexer(Tensor query, Tensor key, Tensor weights, Tensor query_dequant_scale, "
    "Tensor key_dequant_scale, int query_quant_mode, int key_quant_mode, *, Tensor? actual_seq_lengths_query=None, "
    "Tensor? actual_seq_lengths_key=None, Tensor? block_table=None, str layout_query='BSND', str layout_key='BSND', "
    "int sparse_count=2048, int sparse_mode=3, int pre_tokens=9223372036854775807, "
    "int next_tokens=9223372036854775807, int? query_dtype=None, int? key_dtype=None) -> Tensor"
)
def npu_quant_lightning_indexer(
    query,
    key,
    weights,
    query_dequant_scale,
    key_dequant_scale,
    query_quant_mode,
    key_quant_mode,
    *,
    actual_seq_lengths_query=None,
    actual_seq_lengths_key=None,
    block_table=None,
    layout_query="BSND",
    layout_key="BSND",
    sparse_count=2048,
    sparse_mode=3,
    pre_tokens=_ALL,
    next_tokens=_ALL,
    query_dtype=None,
    key_dtype=None,
) -> Tensor:
    r"""
    :func:`npu_lightning_indexer` of small integers that have a scale for each head of each position.

    Args:
        query: int8, of the shape there.
        key: int8, of the shape there.
        weights: as there; float16 or bfloat16.
        query_dequant_scale: float16 or float32; of the shape of ``query`` but its last dimension.
        key_dequant_scale: float16 or float32; of the shape of ``key`` but its last dimension.
        query_quant_mode: must be 0.
        key_quant_mode: must be 0.
        actual_seq_lengths_query: as there.
        actual_seq_lengths_key: as there.
        block_table: as there.
        layout_query: as there.
        layout_key: as there.
        sparse_count: 1 to 2048.
        sparse_mode: as there.
        pre_tokens: must be the default.
        next_tokens: must be the default.
        query_dtype: must be None or torch.int8.
        key_dtype: must be None or torch.int8.

    Returns:
        The chosen keys, best first, int32, (..., 1, sparse_count), -1 where a query sees fewer.

    Raises:
        RuntimeError: for shapes, dtypes, modes and layouts that do not fit.
    """
    name = "npu_quant_lightning_indexer"
    for argument, tensor, scale in (("query", query, query_dequant_scale), ("key", key, key_dequant_scale)):
        check_dtype(name, argument, tensor, (torch.int8,))
        check_dtype(name, f"{argument}_dequant_scale", scale, (torch.float16, torch.float32))
        check(
            scale.shape == tensor.shape[:-1],
            name,
            f"{argument}_dequant_scale must be {tuple(tensor.shape[:-1])}, but is {tuple(scale.shape)}",
        )
    check_dtype(name, "weights", weights, _HALF)
    for argument, value, allowed in (
        ("query_quant_mode", query_quant_mode, (0,)),
        ("key_quant_mode", key_quant_mode, (0,)),
        ("query_dtype", query_dtype, (None, 1)),
        ("key_dtype", key_dtype, (None, 1)),
    ):
        check(value in allowed, name, f"{argument} must be {allowed[-1]}, but is {value}")
    check(1 <= sparse_count <= 2048, name, f"sparse_count must be 1 to 2048, but is {sparse_count}")
    check(pre_tokens == _ALL and next_tokens == _ALL, name, "pre_tokens and next_tokens must be their defaults")
    numbers = (
        query.float() * wide(query_dequant_scale).unsqueeze(-1),
        key.float() * wide(key_dequant_scale).unsqueeze(-1),
    )
    lengths = (actual_seq_lengths_query, actual_seq_lengths_key, block_table)
    return _best(name, *numbers, weights, lengths, (layout_query, layout_key), sparse_count, sparse_mode)[1]
