r"""The training of what chooses keys: its gradient, and the divergence of its softmax from the attention's."""

import torch
from torch import Tensor

from ._attention import HIDDEN, ranges_of, wide
from ._checks import check, check_dtype, check_none
from ._registration import operator
from .sparse_attention import Keys, Tokens, chosen_rows

_HALF = (torch.float16, torch.bfloat16)
_ALL = 9223372036854775807


def _check_common(name: str, query_index: Tensor, key_index: Tensor, weights: Tensor, layout, sparse_mode, modes):
    check(layout in ("BSND", "TND"), name, f"layout must be BSND or TND, but is {layout!r}")
    check_dtype(name, "query_index", query_index, _HALF)
    check_dtype(name, "key_index", key_index, (query_index.dtype,))
    check_dtype(name, "weights", weights, (query_index.dtype, torch.float32))
    rank = 4 if layout == "BSND" else 3
    check(
        query_index.dim() == rank
        and key_index.dim() == rank
        and key_index.shape[-2] == 1
        and key_index.shape[-1] == query_index.shape[-1]
        and weights.shape == query_index.shape[:-1],
        name,
        f"query_index, key_index and weights of layout {layout} do not fit: {tuple(query_index.shape)}, "
        f"{tuple(key_index.shape)} and {tuple(weights.shape)}",
    )
    check(sparse_mode in modes, name, f"sparse_mode must be one of {modes}, but is {sparse_mode}")


def _check_unlimited(name: str, pre_tokens: int, next_tokens: int) -> None:
    if pre_tokens != _ALL or next_tokens != _ALL:
        raise NotImplementedError(f"{name}: pre_tokens and next_tokens must be their defaults")


class _Sequences:
    r"""What belongs to each sequence of a layout: slices of queries and of keys, without the batch."""

    def __init__(self, name, layout, query, key, query_ends, key_ends):
        self.layout = layout
        if layout == "BSND":
            check(query.shape[0] == key.shape[0], name, "queries and keys must have one batch")
            self.queries = [(i, query.shape[1]) for i in range(query.shape[0])]
            self.keys = [(i, key.shape[1]) for i in range(key.shape[0])]
        else:
            self.queries = ranges_of(name, "actual_seq_qlen", query_ends, query.shape[0])
            self.keys = ranges_of(name, "actual_seq_klen", key_ends, key.shape[0])
            check(len(self.queries) == len(self.keys), name, "actual_seq_qlen and actual_seq_klen must be as long")

    def split(self, tensor: Tensor, of_keys: bool = False) -> list[Tensor]:
        ranges = self.keys if of_keys else self.queries
        if self.layout == "BSND":
            return list(tensor.unbind(0))
        return [tensor[start : start + length] for start, length in ranges]

    def split_statistics(self, tensor: Tensor) -> list[Tensor]:
        r"""Of (batch, heads, queries, ...) or (heads, queries, ...), (heads, queries, ...) of each sequence."""
        if self.layout == "BSND":
            return list(tensor.unbind(0))
        return [tensor[:, start : start + length] for start, length in self.queries]

    def joined(self, parts: list[Tensor], like: Tensor, of_keys: bool = False) -> Tensor:
        r"""The parts in the layout; zeros behind the last sequence."""
        if self.layout == "BSND":
            return torch.stack(parts).to(like.dtype)
        found = torch.cat(parts)
        return torch.cat([found, found.new_zeros(like.shape[0] - found.shape[0], *found.shape[1:])]).to(like.dtype)

    def joined_statistics(self, parts: list[Tensor], total: int) -> Tensor:
        if self.layout == "BSND":
            return torch.stack(parts)
        found = torch.cat(parts, 1)
        return torch.cat([found, found.new_zeros(found.shape[0], total - found.shape[1])], 1)


def _unseen(queries: int, keys: int, device: torch.device) -> Tensor:
    r"""The keys that a query doesn't see: those behind it, where the last query is at the last key."""
    row = torch.arange(queries, device=device).unsqueeze(1)
    return torch.arange(keys, device=device) > row + keys - queries


def _chosen_scores(query: Tensor, keys: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    r"""relu(query key') of (queries, heads, width) and (queries or 1, keys, width), and its sums over the heads."""
    products = torch.relu(query @ keys.transpose(-1, -2))
    return (products * weights.unsqueeze(-1)).sum(1), products


def _index_gradients(dscore: Tensor, products: Tensor, query: Tensor, keys: Tensor, weights: Tensor):
    r"""Of gradients (queries, keys): those of the query, of the keys for each query, and of the weights."""
    dweights = (products * dscore.unsqueeze(1)).sum(-1)
    dproducts = torch.where(products > 0, dscore.unsqueeze(1) * weights.unsqueeze(-1), 0.0)
    return dproducts @ keys, dproducts.transpose(-1, -2) @ query, dweights


@operator(
    "npu_dense_lightning_indexer_softmax_lse(Tensor query_index, Tensor key_index, Tensor weights, *, "
    "SymInt[]? actual_seq_qlen=None, SymInt[]? actual_seq_klen=None, str? layout='BSND', int? sparse_mode=3, "
    "int? pre_tokens=9223372036854775807, int? next_tokens=9223372036854775807) -> (Tensor, Tensor)"
)
def npu_dense_lightning_indexer_softmax_lse(
    query_index,
    key_index,
    weights,
    *,
    actual_seq_qlen=None,
    actual_seq_klen=None,
    layout="BSND",
    sparse_mode=3,
    pre_tokens=_ALL,
    next_tokens=_ALL,
) -> tuple[Tensor, Tensor]:
    r"""
    Of each query's sums, over heads, of weights * relu(query key'): the maximum and the sum of exponentials.

    Args:
        query_index: (batch, queries, heads, width) of BSND or (queries, heads, width) of TND; float16 or bfloat16.
        key_index: like it, with one head and its own positions.
        weights: one for each head of each query; of the dtype of ``query_index`` or float32.
        actual_seq_qlen: of TND: where each sequence's queries end.
        actual_seq_klen: of TND: where its keys end; at least as many as queries.
        layout: BSND or TND.
        sparse_mode: must be 3: causal up to the last positions.
        pre_tokens: must be the default.
        next_tokens: must be the default.

    Returns:
        The maxima and the sums, float32, (batch, 1, queries) or (1, queries).

    Raises:
        RuntimeError: for shapes, dtypes, modes and layouts that do not fit.
        NotImplementedError: for other ``pre_tokens`` and ``next_tokens``.
    """
    name = "npu_dense_lightning_indexer_softmax_lse"
    _check_common(name, query_index, key_index, weights, layout, sparse_mode, (3,))
    _check_unlimited(name, pre_tokens, next_tokens)
    held = _Sequences(name, layout, query_index, key_index, actual_seq_qlen, actual_seq_klen)
    tops, sums = [], []
    parts = zip(held.split(query_index), held.split(key_index, True), held.split(weights), strict=True)
    for query, keys, share in parts:
        check(
            query.shape[0] <= keys.shape[0],
            name,
            f"a sequence must have as many keys as queries, but has {keys.shape[0]} and {query.shape[0]}",
        )
        score, _ = _chosen_scores(wide(query.detach()), wide(keys.detach()).transpose(0, 1), wide(share.detach()))
        score = score.masked_fill(_unseen(score.shape[0], score.shape[1], score.device), HIDDEN)
        top = score.amax(-1, keepdim=True)
        tops.append(top.squeeze(-1).unsqueeze(0))
        sums.append(torch.exp(score - top).sum(-1).unsqueeze(0))
    total = query_index.shape[0]
    return held.joined_statistics(tops, total), held.joined_statistics(sums, total)


def _divergence(target: Tensor, scores: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
    r"""
    The divergence of softmax(scores) from a target that is not normalised yet, and its gradient for the scores.

    What is hidden has no share; queries that see nothing have no divergence.
    """
    total = target.sum(-1, keepdim=True)
    target = target / torch.where(total == 0, 1.0, total)
    logs = torch.log_softmax(scores.masked_fill(hidden.all(-1, keepdim=True), 0.0), -1)
    nothing = hidden.all(-1, keepdim=True)
    lost = torch.xlogy(target, target) - torch.where(hidden | (target == 0), 0.0, target * logs)
    gradient = torch.where(hidden | nothing, 0.0, torch.exp(logs) - target)
    return torch.where(nothing, 0.0, lost).sum(), gradient


def _check_attention(name, query, key, query_rope, key_rope, query_index) -> None:
    check_dtype(name, "query", query, (query_index.dtype,))
    check_dtype(name, "key", key, (query_index.dtype,))
    check((query_rope is None) == (key_rope is None), name, "query_rope and key_rope go together")
    check(
        query.shape[-1] == key.shape[-1] and query.shape[:-2] == query_index.shape[:-2],
        name,
        f"query and key do not fit query_index: {tuple(query.shape)}, {tuple(key.shape)}, {tuple(query_index.shape)}",
    )


def _with_rope(part: Tensor, rope: Tensor | None) -> Tensor:
    return wide(part.detach()) if rope is None else torch.cat([wide(part.detach()), wide(rope.detach())], -1)


_TOKENS = (
    "*, Tensor? query_rope=None, Tensor? key_rope=None, SymInt[]? actual_seq_qlen=None, "
    "SymInt[]? actual_seq_klen=None, str? layout='BSND', int? sparse_mode=3, int? pre_tokens=9223372036854775807, "
    "int? next_tokens=9223372036854775807"
)


@operator(
    "npu_dense_lightning_indexer_grad_kl_loss(Tensor query, Tensor key, Tensor query_index, Tensor key_index, "
    "Tensor weights, Tensor softmax_max, Tensor softmax_sum, Tensor softmax_max_index, Tensor softmax_sum_index, "
    f"float scale_value, {_TOKENS}) -> (Tensor, Tensor, Tensor, Tensor)"
)
def npu_dense_lightning_indexer_grad_kl_loss(
    query,
    key,
    query_index,
    key_index,
    weights,
    softmax_max,
    softmax_sum,
    softmax_max_index,
    softmax_sum_index,
    scale_value,
    *,
    query_rope=None,
    key_rope=None,
    actual_seq_qlen=None,
    actual_seq_klen=None,
    layout="BSND",
    sparse_mode=3,
    pre_tokens=_ALL,
    next_tokens=_ALL,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    r"""
    The divergence of the indexer's softmax from the attention's, summed over its heads, and its gradients.

    Args:
        query: of the attention, (batch, queries, heads, width) of BSND or (queries, heads, width) of TND; float16 or
            bfloat16.
        key: like it, with as many heads.
        query_index: as in :func:`npu_dense_lightning_indexer_softmax_lse`.
        key_index: as there.
        weights: as there.
        softmax_max: the attention's maxima, float32, (batch, heads, queries, 1) or (heads, queries, 1).
        softmax_sum: its sums of exponentials, like them.
        softmax_max_index: the first result there; not read: the softmax is made again.
        softmax_sum_index: the second one; not read.
        scale_value: factor of the attention's products.
        query_rope: a further part of the heads of the query.
        key_rope: that of the key.
        actual_seq_qlen: as there.
        actual_seq_klen: as there.
        layout: BSND or TND.
        sparse_mode: must be 3.
        pre_tokens: must be the default.
        next_tokens: must be the default.

    Returns:
        The gradients of ``query_index``, ``key_index`` and ``weights``; the divergence, summed over the queries,
        float32, (1).

    Raises:
        RuntimeError: for shapes, dtypes, modes and layouts that do not fit.
        NotImplementedError: for other ``pre_tokens`` and ``next_tokens``.
    """
    name = "npu_dense_lightning_indexer_grad_kl_loss"
    _check_common(name, query_index, key_index, weights, layout, sparse_mode, (3,))
    _check_attention(name, query, key, query_rope, key_rope, query_index)
    _check_unlimited(name, pre_tokens, next_tokens)
    check(query.shape[-2] == key.shape[-2], name, "query and key must have as many heads")
    held = _Sequences(name, layout, query_index, key_index, actual_seq_qlen, actual_seq_klen)
    queries = held.split(_with_rope(query, query_rope))
    keys = held.split(_with_rope(key, key_rope), True)
    statistics = [held.split_statistics(t.squeeze(-1)) for t in (softmax_max, softmax_sum)]
    chosen = [held.split(t.detach(), k) for t, k in ((query_index, False), (key_index, True), (weights, False))]
    grads: tuple[list[Tensor], list[Tensor], list[Tensor]] = ([], [], [])
    loss = query.new_zeros((), dtype=torch.float32)
    for i, (one, other) in enumerate(zip(queries, keys, strict=True)):
        hidden = _unseen(one.shape[0], other.shape[0], one.device)
        scores = one.transpose(0, 1) @ other.permute(1, 2, 0) * scale_value
        top, total = (t[i].unsqueeze(-1) for t in statistics)
        target = (torch.exp(scores - top) / total).masked_fill(hidden, 0.0).sum(0)
        index, stored, share = (wide(t[i]) for t in chosen)
        stored = stored.transpose(0, 1)
        score, products = _chosen_scores(index, stored, share)
        lost, dscore = _divergence(target, score.masked_fill(hidden, HIDDEN), hidden)
        dquery, dkeys, dweights = _index_gradients(dscore, products, index, stored, share)
        loss = loss + lost
        for found, grad in zip(grads, (dquery, dkeys.sum(0).unsqueeze(1), dweights), strict=True):
            found.append(grad)
    return (
        held.joined(grads[0], query_index),
        held.joined(grads[1], key_index, True),
        held.joined(grads[2], weights),
        loss.view(1),
    )


def _at_indices(indices: Tensor, keys: int, queries: int, sparse_mode: int) -> tuple[Tensor, Tensor]:
    r"""The rows of keys that lists of (queries, count) name, and which of them a query doesn't see."""
    place = indices.long()
    last = keys - 1 if sparse_mode == 0 else torch.arange(queries, device=indices.device).unsqueeze(1) + keys - queries
    hidden = (place < 0) | (place > last) | (place >= keys)
    return torch.where(hidden, 0, place), hidden


def _scattered(grad: Tensor, rows: Tensor, keys: int) -> Tensor:
    r"""Gradients (queries, count, width) of rows, at the keys that they are of, (keys, 1, width)."""
    out = grad.new_zeros(keys, grad.shape[-1])
    return out.index_add(0, rows.flatten(), grad.flatten(0, 1)).unsqueeze(1)


def _lists(name: str, sparse_indices: Tensor, query_index: Tensor) -> Tensor:
    check_dtype(name, "sparse_indices", sparse_indices, (torch.int32, torch.int64))
    lead = query_index.shape[:-2]
    found = sparse_indices.squeeze(-2) if sparse_indices.dim() == len(lead) + 2 else sparse_indices
    check(
        found.dim() == len(lead) + 1 and found.shape[:-1] == lead,
        name,
        f"sparse_indices must be {(*lead, 1)} and the keys of a query, but is {tuple(sparse_indices.shape)}",
    )
    return found


@operator(
    "npu_sparse_lightning_indexer_grad_kl_loss(Tensor query, Tensor key, Tensor query_index, Tensor key_index, "
    "Tensor weights, Tensor sparse_indices, Tensor softmax_max, Tensor softmax_sum, float scale_value, "
    f"{_TOKENS}, Tensor? sinks=None) -> (Tensor, Tensor, Tensor, Tensor)"
)
def npu_sparse_lightning_indexer_grad_kl_loss(
    query,
    key,
    query_index,
    key_index,
    weights,
    sparse_indices,
    softmax_max,
    softmax_sum,
    scale_value,
    *,
    query_rope=None,
    key_rope=None,
    actual_seq_qlen=None,
    actual_seq_klen=None,
    layout="BSND",
    sparse_mode=3,
    pre_tokens=_ALL,
    next_tokens=_ALL,
    sinks=None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    r"""
    :func:`npu_dense_lightning_indexer_grad_kl_loss` over the keys that a list of each query names.

    Args:
        query: as there.
        key: of one head.
        query_index: as there.
        key_index: as there.
        weights: as there.
        sparse_indices: int32, (..., 1, count): the keys of each query; negative ones are none.
        softmax_max: the attention's maxima, float32, (batch, 1, queries, heads) or (1, queries, heads).
        softmax_sum: its sums of exponentials, like them.
        scale_value: as there.
        query_rope: as there.
        key_rope: as there.
        actual_seq_qlen: as there.
        actual_seq_klen: as there.
        layout: BSND or TND.
        sparse_mode: 0: all that are named; 3: causal up to the last positions.
        pre_tokens: without effect in these modes.
        next_tokens: without effect in these modes.
        sinks: must be None.

    Returns:
        As there.

    Raises:
        RuntimeError: for shapes, dtypes, modes and layouts that do not fit.
        NotImplementedError: for ``sinks``.
    """
    name = "npu_sparse_lightning_indexer_grad_kl_loss"
    check_none(name, "how it changes the norm is not documented", sinks=sinks)
    _check_common(name, query_index, key_index, weights, layout, sparse_mode, (0, 3))
    _check_attention(name, query, key, query_rope, key_rope, query_index)
    check(key.shape[-2] == 1, name, f"key must have one head, but is {tuple(key.shape)}")
    held = _Sequences(name, layout, query_index, key_index, actual_seq_qlen, actual_seq_klen)
    queries = held.split(_with_rope(query, query_rope))
    keys = held.split(_with_rope(key, key_rope), True)
    statistics = [held.split_statistics(t) for t in (softmax_max, softmax_sum)]
    lists = held.split(_lists(name, sparse_indices, query_index))
    chosen = [held.split(t.detach(), k) for t, k in ((query_index, False), (key_index, True), (weights, False))]
    grads: tuple[list[Tensor], list[Tensor], list[Tensor]] = ([], [], [])
    loss = query.new_zeros((), dtype=torch.float32)
    for i, (one, other) in enumerate(zip(queries, keys, strict=True)):
        rows, hidden = _at_indices(lists[i], other.shape[0], one.shape[0], sparse_mode)
        scores = one @ other.squeeze(1)[rows].transpose(-1, -2) * scale_value
        top, total = (wide(t[i]).squeeze(0).unsqueeze(-1) for t in statistics)
        target = (torch.exp(scores - top) / total).masked_fill(hidden.unsqueeze(1), 0.0).sum(1)
        index, stored, share = (wide(t[i]) for t in chosen)
        found = stored.squeeze(1)[rows]
        score, products = _chosen_scores(index, found, share)
        lost, dscore = _divergence(target, score.masked_fill(hidden, HIDDEN), hidden)
        dquery, dkeys, dweights = _index_gradients(dscore, products, index, found, share)
        loss = loss + lost
        for into, grad in zip(grads, (dquery, _scattered(dkeys, rows, stored.shape[0]), dweights), strict=True):
            into.append(grad)
    return (
        held.joined(grads[0], query_index),
        held.joined(grads[1], key_index, True),
        held.joined(grads[2], weights),
        loss.view(1),
    )


@operator(
    "npu_lightning_indexer_grad(Tensor query, Tensor key, Tensor dy, Tensor sparse_indices, Tensor weights, "
    "Tensor? actual_seq_lengths_query=None, Tensor? actual_seq_lengths_key=None, str? layout='BSND', "
    "int? sparse_mode=3, int? pre_tokens=9223372036854775807, int? next_tokens=9223372036854775807) "
    "-> (Tensor, Tensor, Tensor)"
)
def npu_lightning_indexer_grad(
    query,
    key,
    dy,
    sparse_indices,
    weights,
    actual_seq_lengths_query=None,
    actual_seq_lengths_key=None,
    layout="BSND",
    sparse_mode=3,
    pre_tokens=_ALL,
    next_tokens=_ALL,
) -> tuple[Tensor, Tensor, Tensor]:
    r"""
    The gradient of npu_lightning_indexer. The lengths stay on the device.

    Args:
        query: as there, of BSND or TND.
        key: as there, of the layout of ``query``.
        dy: the gradient of its second result, of the shape of ``sparse_indices``.
        sparse_indices: its first result, int32.
        weights: as there.
        actual_seq_lengths_query: as there.
        actual_seq_lengths_key: as there.
        layout: BSND or TND.
        sparse_mode: 0 or 3, as there.
        pre_tokens: without effect in these modes.
        next_tokens: without effect in these modes.

    Returns:
        The gradients of ``query``, ``key`` and ``weights``.

    Raises:
        RuntimeError: for shapes, dtypes, modes and layouts that do not fit.
    """
    name = "npu_lightning_indexer_grad"
    _check_common(name, query, key, weights, layout, sparse_mode, (0, 3))
    check(
        dy.shape == sparse_indices.shape,
        name,
        f"dy must have the shape of sparse_indices, {tuple(sparse_indices.shape)}, but is {tuple(dy.shape)}",
    )
    keys = Keys(name, layout, key, actual_seq_lengths_key, None)
    tokens = Tokens(name, layout, query, actual_seq_lengths_query, keys.lengths)
    rows, hidden = chosen_rows(name, tokens, keys, sparse_indices, 1, sparse_mode)
    heads, width = query.shape[-2:]
    flat, share = wide(query.detach()).reshape(-1, heads, width), wide(weights.detach()).reshape(-1, heads)
    stored = wide(key.detach()).reshape(-1, width)
    found = stored[rows]
    _, products = _chosen_scores(flat, found, share)
    dscore = wide(dy.detach()).reshape(rows.shape).masked_fill(hidden, 0.0)
    dquery, dkeys, dweights = _index_gradients(dscore, products, flat, found, share)
    return (
        dquery.reshape(query.shape).to(query.dtype),
        _scattered(dkeys, rows, stored.shape[0]).reshape(key.shape).to(key.dtype),
        dweights.reshape(weights.shape).to(weights.dtype),
    )
