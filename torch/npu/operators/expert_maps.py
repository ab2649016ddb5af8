r"""Tokens in the order of their experts, by a map of which expert takes which token, and back."""

import torch
from torch import Tensor

from ._checks import FLOATING, check, check_dtype
from ._registration import operator


def _check_map(name: str, routing_map: Tensor, tokens: int) -> None:
    check_dtype(name, "routing_map", routing_map, (torch.bool, torch.int8))
    check(
        routing_map.dim() == 2 and routing_map.shape[0] == tokens,
        name,
        f"routing_map must be of shape ({tokens}, experts), but is {tuple(routing_map.shape)}",
    )


def _entries(routing_map: Tensor, rows: int) -> Tensor:
    r"""Where the transposed map is set: the flat places, expert by expert, of the first ``rows`` entries."""
    flat = routing_map.t().reshape(-1).to(torch.int8)
    return torch.sort(flat, descending=True, stable=True).indices[:rows]


def _entries_padded(sorted_indices: Tensor, tokens: int, experts: int) -> Tensor:
    r"""The flat places in the transposed map of as many tokens for each expert."""
    capacity = sorted_indices.shape[0] // experts
    expert = torch.arange(experts, device=sorted_indices.device).repeat_interleave(capacity)
    return expert * tokens + sorted_indices


def _restored(name: str, restore_shape, width: int, rows: int) -> int:
    check(
        len(restore_shape) == 2 and restore_shape[1] == width,
        name,
        f"restore_shape must be (tokens, {width}), but is {tuple(restore_shape)}",
    )
    tokens = restore_shape[0]
    check(tokens > 0, name, f"restore_shape must have tokens, but is {tuple(restore_shape)}")
    return tokens


@operator(
    "npu_moe_token_permute_with_routing_map(Tensor tokens, Tensor routing_map, *, Tensor? probs=None, "
    "int? num_out_tokens=None, bool drop_and_pad=False) -> (Tensor, Tensor, Tensor)"
)
def npu_moe_token_permute_with_routing_map(
    tokens, routing_map, *, probs=None, num_out_tokens=None, drop_and_pad=False
) -> tuple[Tensor, Tensor, Tensor]:
    r"""
    Copies each token for each of its experts, expert by expert. Differentiable by ``tokens`` and ``probs``.

    Args:
        tokens: (tokens, width); float16, bfloat16 or float32.
        routing_map: which expert takes which token, (tokens, experts), bool or int8; without ``drop_and_pad`` every
            token has as many experts as every other.
        probs: a number for each entry of the map, (tokens, experts).
        num_out_tokens: rows of the result; None: one for each token. It is cut to a multiple of the tokens, or with
            ``drop_and_pad`` of the experts.
        drop_and_pad: whether each expert takes the same number of rows: its first tokens, and tokens that it does not
            want where it has too few.

    Returns:
        The rows, (rows, width); the numbers of ``probs`` for them, or an empty tensor; int32, (rows): the row of each
        copy of each token, or with ``drop_and_pad`` the token of each row.

    Raises:
        RuntimeError: for shapes or dtypes that do not fit.
    """
    name = "npu_moe_token_permute_with_routing_map"
    check_dtype(name, "tokens", tokens, FLOATING)
    check(tokens.dim() == 2, name, f"tokens must be of two dimensions, but are {tuple(tokens.shape)}")
    count = tokens.shape[0]
    _check_map(name, routing_map, count)
    check(
        probs is None or probs.shape == routing_map.shape,
        name,
        f"probs must be of shape {tuple(routing_map.shape)}, but are {None if probs is None else tuple(probs.shape)}",
    )
    experts = routing_map.shape[1]
    wanted = count if num_out_tokens is None else num_out_tokens
    if drop_and_pad:
        order = torch.sort(routing_map.t().to(torch.int8), dim=-1, descending=True, stable=True).indices
        sorted_indices = order[:, : wanted // experts].reshape(-1)
        token, entries = sorted_indices, _entries_padded(sorted_indices, count, experts)
    else:
        entries = _entries(routing_map, wanted // max(count, 1) * count)
        token = entries % max(count, 1)
        sorted_indices = torch.sort(token, stable=True).indices
    taken = tokens.new_empty(0) if probs is None else probs.t().reshape(-1).index_select(0, entries)
    return tokens.index_select(0, token), taken, sorted_indices.int()


@operator(
    "npu_moe_token_permute_with_routing_map_grad(Tensor permuted_token_out_grad, Tensor? probs_grad, "
    "Tensor sorted_indices, Tensor routing_map, SymInt experts_num, SymInt tokens_num, bool drop_and_pad) "
    "-> (Tensor, Tensor)"
)
def npu_moe_token_permute_with_routing_map_grad(
    permuted_token_out_grad, probs_grad, sorted_indices, routing_map, experts_num, tokens_num, drop_and_pad
) -> tuple[Tensor, Tensor]:
    r"""
    The gradient of npu_moe_token_permute_with_routing_map.

    Args:
        permuted_token_out_grad: gradient of the first result, (rows, width).
        probs_grad: gradient of the second result, (rows), or None.
        sorted_indices: the third result.
        routing_map: as it was.
        experts_num: the number of experts.
        tokens_num: the number of tokens.
        drop_and_pad: as it was.

    Returns:
        The gradients of the tokens, and of ``probs`` or an empty tensor.

    Raises:
        RuntimeError: for shapes or dtypes that do not fit.
    """
    name = "npu_moe_token_permute_with_routing_map_grad"
    grad, places = permuted_token_out_grad, sorted_indices.long()
    _check_map(name, routing_map, tokens_num)
    check(
        grad.dim() == 2 and places.shape == grad.shape[:1],
        name,
        f"as many sorted_indices as rows expected, but they are {tuple(places.shape)} and {tuple(grad.shape)}",
    )
    rows, width = grad.shape
    if drop_and_pad:
        by_token = torch.zeros((tokens_num, width), dtype=torch.float32, device=grad.device)
        by_token = by_token.index_add(0, places, grad.float())
        entries = _entries_padded(places, tokens_num, experts_num)
    else:
        by_token = grad.float().index_select(0, places).view(tokens_num, -1, width).sum(1)
        entries = _entries(routing_map, rows)
    by_probs = grad.new_empty(0)
    if probs_grad is not None:
        flat = torch.zeros(experts_num * tokens_num, dtype=probs_grad.dtype, device=grad.device)
        by_probs = flat.scatter(0, entries, probs_grad).view(experts_num, tokens_num).t().contiguous()
    return by_token.to(grad.dtype), by_probs


def _unpermuted(name, permuted_tokens, sorted_indices, restore_shape, probs, routing_map, drop_and_pad):
    r"""The tokens again, and the number of ``probs`` for each row or None."""
    check_dtype(name, "permuted_tokens", permuted_tokens, FLOATING)
    check(
        permuted_tokens.dim() == 2 and sorted_indices.shape == permuted_tokens.shape[:1],
        name,
        "permuted_tokens must be (rows, width) and sorted_indices (rows), but they are "
        f"{tuple(permuted_tokens.shape)} and {tuple(sorted_indices.shape)}",
    )
    rows, width = permuted_tokens.shape
    tokens = _restored(name, restore_shape, width, rows)
    places = sorted_indices.long()
    wide, taken = permuted_tokens.float(), None
    if probs is not None:
        check(probs.dim() == 2 and probs.shape[0] == tokens, name, f"probs must be of shape ({tokens}, experts)")
        if drop_and_pad:
            entries = _entries_padded(places, tokens, probs.shape[1])
        else:
            check(routing_map is not None, name, "probs need routing_map")
            _check_map(name, routing_map, tokens)
            entries = _entries(routing_map, rows)
        taken = probs.t().reshape(-1).index_select(0, entries)
        wide = wide * taken.float().unsqueeze(1)
    if drop_and_pad:
        out = torch.zeros((tokens, width), dtype=torch.float32, device=wide.device).index_add(0, places, wide)
    else:
        check(rows % tokens == 0, name, f"the {rows} rows must be a multiple of the {tokens} tokens")
        out = wide.index_select(0, places).view(tokens, -1, width).sum(1)
    return out.to(permuted_tokens.dtype), taken


@operator(
    "npu_moe_token_unpermute_with_routing_map(Tensor permuted_tokens, Tensor sorted_indices, int[] restore_shape, *, "
    "Tensor? probs=None, Tensor? routing_map=None, bool drop_and_pad=False) -> Tensor"
)
def npu_moe_token_unpermute_with_routing_map(
    permuted_tokens, sorted_indices, restore_shape, *, probs=None, routing_map=None, drop_and_pad=False
) -> Tensor:
    r"""
    Adds the rows of each token, weighed by ``probs``; what npu_moe_token_permute_with_routing_map copied comes back.
    Differentiable by ``permuted_tokens`` and ``probs``.

    Args:
        permuted_tokens: (rows, width); float16, bfloat16 or float32.
        sorted_indices: the third result of the permutation, (rows).
        restore_shape: (tokens, width).
        probs: a weight for each entry of the map, (tokens, experts).
        routing_map: as it was, (tokens, experts); with ``probs``.
        drop_and_pad: as it was.

    Returns:
        The tokens, (tokens, width).

    Raises:
        RuntimeError: for shapes or dtypes that do not fit.
    """
    name = "npu_moe_token_unpermute_with_routing_map"
    return _unpermuted(name, permuted_tokens, sorted_indices, restore_shape, probs, routing_map, drop_and_pad)[0]


@operator(
    "_npu_moe_token_unpermute_with_routing_map(Tensor permuted_tokens, Tensor sorted_indices, int[] restore_shape, *, "
    "Tensor? probs=None, Tensor? routing_map=None, bool drop_and_pad=False) -> (Tensor, Tensor, Tensor, Tensor)"
)
def _npu_moe_token_unpermute_with_routing_map(
    permuted_tokens, sorted_indices, restore_shape, *, probs=None, routing_map=None, drop_and_pad=False
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    r"""
    npu_moe_token_unpermute_with_routing_map with what its gradient takes.

    Args:
        permuted_tokens: (rows, width); float16, bfloat16 or float32.
        sorted_indices: the third result of the permutation, (rows).
        restore_shape: (tokens, width).
        probs: a weight for each entry of the map, (tokens, experts).
        routing_map: as it was, (tokens, experts); with ``probs``.
        drop_and_pad: as it was.

    Returns:
        The tokens, (tokens, width); int32, (rows): the rows by their tokens, and the tokens of these; without
        ``drop_and_pad`` both are ``sorted_indices``; the weight of each row, or an empty tensor.

    Raises:
        RuntimeError: for shapes or dtypes that do not fit.
    """
    name = "_npu_moe_token_unpermute_with_routing_map"
    out, taken = _unpermuted(name, permuted_tokens, sorted_indices, restore_shape, probs, routing_map, drop_and_pad)
    if drop_and_pad:
        by_token = torch.sort(sorted_indices, stable=True)
        out_index, token_id = by_token.indices.int(), by_token.values.int()
    else:
        out_index, token_id = sorted_indices.clone(), sorted_indices.clone()
    return out, out_index, token_id, permuted_tokens.new_empty(0) if taken is None else taken


@operator(
    "npu_moe_token_unpermute_with_routing_map_grad(Tensor unpermuted_tokens_grad, Tensor out_index, "
    "Tensor permuted_token_id, Tensor? routing_map, Tensor? permuted_tokens, Tensor? probs, bool drop_and_pad, "
    "int[] restore_shape) -> (Tensor, Tensor)"
)
def npu_moe_token_unpermute_with_routing_map_grad(
    unpermuted_tokens_grad,
    out_index,
    permuted_token_id,
    routing_map,
    permuted_tokens,
    probs,
    drop_and_pad,
    restore_shape,
) -> tuple[Tensor, Tensor]:
    r"""
    The gradient of npu_moe_token_unpermute_with_routing_map.

    Args:
        unpermuted_tokens_grad: gradient of the tokens, (tokens, width).
        out_index: (rows): the second result of the operator with the underscore, or ``sorted_indices``.
        permuted_token_id: (rows): the third result, used with ``drop_and_pad`` alone.
        routing_map: as it was; with ``probs``.
        permuted_tokens: as they were; with ``probs``.
        probs: as they were, or None.
        drop_and_pad: as it was.
        restore_shape: (tokens, width).

    Returns:
        The gradients of the rows, (rows, width), and of ``probs`` or an empty tensor.

    Raises:
        RuntimeError: for shapes that do not fit.
    """
    name = "npu_moe_token_unpermute_with_routing_map_grad"
    grad = unpermuted_tokens_grad
    check(grad.dim() == 2, name, f"unpermuted_tokens_grad must have two dimensions, but is {tuple(grad.shape)}")
    tokens = _restored(name, restore_shape, grad.shape[1], out_index.shape[0])
    check(tokens == grad.shape[0], name, f"restore_shape must be {tuple(grad.shape)}, but is {tuple(restore_shape)}")
    rows = out_index.shape[0]
    if drop_and_pad:
        token_of_copy = permuted_token_id.long()
    else:
        token_of_copy = torch.div(torch.arange(rows, device=grad.device), rows // tokens, rounding_mode="floor")
    token = torch.empty_like(token_of_copy).scatter(0, out_index.long(), token_of_copy)
    by_row = grad.float().index_select(0, token)
    if probs is None:
        return by_row.to(grad.dtype), grad.new_empty(0)
    check(permuted_tokens is not None, name, "probs need permuted_tokens")
    if not drop_and_pad:
        check(routing_map is not None, name, "probs need routing_map")
        _check_map(name, routing_map, tokens)
    experts = probs.shape[1]
    entries = _entries_padded(token, tokens, experts) if drop_and_pad else _entries(routing_map, rows)
    by_weight = (by_row * permuted_tokens.float()).sum(1).to(probs.dtype)
    flat = torch.zeros(experts * tokens, dtype=probs.dtype, device=grad.device)
    by_probs = flat.scatter(0, entries, by_weight).view(experts, tokens).t().contiguous()
    taken = probs.t().reshape(-1).index_select(0, entries)
    return (by_row * taken.float().unsqueeze(1)).to(grad.dtype), by_probs


def _rows_at(rows: Tensor, places: Tensor) -> Tensor:
    r"""Rows by their places; zeros for places past the end, of copies that were dropped."""
    padded = torch.cat((rows, rows.new_zeros((1, rows.shape[1]))))
    return padded.index_select(0, places.clamp(max=rows.shape[0]))


def _refuse_padded(name: str, padded_mode: bool) -> None:
    if padded_mode:
        raise NotImplementedError(f"{name}: padded_mode must be False")


@operator(
    "npu_moe_token_permute_grad_v2(Tensor grad_permuted_tokens, Tensor sorted_indices, int tokens_size_0, "
    "ScalarType tokens_dtype, int num_topK, bool padded_mode=False) -> Tensor"
)
def npu_moe_token_permute_grad_v2(
    grad_permuted_tokens, sorted_indices, tokens_size_0, tokens_dtype, num_topK, padded_mode=False
) -> Tensor:
    r"""
    The gradient of npu_moe_token_permute by its tokens.

    Args:
        grad_permuted_tokens: (rows, width).
        sorted_indices: the row of each copy, (tokens * experts of a token).
        tokens_size_0: the number of tokens.
        tokens_dtype: their dtype.
        num_topK: experts of a token.
        padded_mode: must be False.

    Returns:
        (tokens, width), of ``tokens_dtype``.

    Raises:
        RuntimeError: for shapes that do not fit.
        NotImplementedError: for ``padded_mode``.
    """
    name = "npu_moe_token_permute_grad_v2"
    _refuse_padded(name, padded_mode)
    check(
        grad_permuted_tokens.dim() == 2 and sorted_indices.numel() == tokens_size_0 * num_topK,
        name,
        f"sorted_indices must have {tokens_size_0} * {num_topK} elements, but are {tuple(sorted_indices.shape)}",
    )
    each = _rows_at(grad_permuted_tokens.float(), sorted_indices.long())
    return each.view(tokens_size_0, num_topK, -1).sum(1).to(tokens_dtype)


@operator(
    "npu_moe_token_unpermute_grad_v2(Tensor grad_unpermuted_tokens, Tensor sorted_indices, "
    "int permuted_tokens_size_0, ScalarType permuted_tokens_dtype, Tensor? probs=None, bool padded_mode=False, "
    "int[]? restore_shape=None, Tensor? permuted_tokens=None) -> (Tensor, Tensor)"
)
def npu_moe_token_unpermute_grad_v2(
    grad_unpermuted_tokens,
    sorted_indices,
    permuted_tokens_size_0,
    permuted_tokens_dtype,
    probs=None,
    padded_mode=False,
    restore_shape=None,
    permuted_tokens=None,
) -> tuple[Tensor, Tensor]:
    r"""
    The gradient of npu_moe_token_unpermute.

    Args:
        grad_unpermuted_tokens: (tokens, width).
        sorted_indices: the row of each copy, (tokens * experts of a token).
        permuted_tokens_size_0: the number of rows.
        permuted_tokens_dtype: their dtype.
        probs: weights, (tokens, experts of a token), or None for one copy of each token.
        padded_mode: must be False.
        restore_shape: belongs to ``padded_mode``.
        permuted_tokens: the rows, (rows, width); with ``probs``.

    Returns:
        The gradients of the rows, (rows, width), and of ``probs`` or an empty tensor.

    Raises:
        RuntimeError: for shapes that do not fit.
        NotImplementedError: for ``padded_mode``.
    """
    name = "npu_moe_token_unpermute_grad_v2"
    _refuse_padded(name, padded_mode)
    grad, places = grad_unpermuted_tokens.float(), sorted_indices.long()
    choices = 1 if probs is None else probs.shape[1]
    check(
        grad.dim() == 2 and places.shape == (grad.shape[0] * choices,),
        name,
        f"sorted_indices must have {grad.shape[0]} * {choices} elements, but are {tuple(places.shape)}",
    )
    each = grad.unsqueeze(1).expand(-1, choices, -1)
    by_probs = grad.new_empty(0)
    if probs is not None:
        check(permuted_tokens is not None, name, "probs need permuted_tokens")
        rows = _rows_at(permuted_tokens.float(), places).view(each.shape)
        by_probs = (rows * each).sum(-1).to(probs.dtype)
        each = each * probs.float().unsqueeze(-1)
    # One row more takes what was dropped.
    out = torch.zeros((permuted_tokens_size_0 + 1, grad.shape[1]), dtype=torch.float32, device=grad.device)
    out = out.index_add(0, places.clamp(max=permuted_tokens_size_0), each.reshape(-1, grad.shape[1]))
    return out[:permuted_tokens_size_0].to(permuted_tokens_dtype), by_probs


@operator(
    "_npu_moe_token_unpermute(Tensor permuted_tokens, Tensor sorted_indices, Tensor? probs=None, "
    "bool padded_mode=False, int[]? restore_shape=None) -> (Tensor unpermuted_tokens, "
    "Tensor permuted_tokens_for_backward)"
)
def _npu_moe_token_unpermute(
    permuted_tokens, sorted_indices, probs=None, padded_mode=False, restore_shape=None
) -> tuple[Tensor, Tensor]:
    r"""
    npu_moe_token_unpermute with what its gradient takes.

    Args:
        permuted_tokens: (rows, width).
        sorted_indices: the row of each copy, (tokens * experts of a token).
        probs: weights, (tokens, experts of a token), or None for one copy of each token.
        padded_mode: must be False.
        restore_shape: belongs to ``padded_mode``.

    Returns:
        The tokens, (tokens, width); the rows, which the gradient of ``probs`` needs, or an empty tensor.

    Raises:
        NotImplementedError: for ``padded_mode``.
    """
    _refuse_padded("_npu_moe_token_unpermute", padded_mode)
    out = torch.ops.npu.npu_moe_token_unpermute(permuted_tokens, sorted_indices, probs)
    return out, permuted_tokens.new_empty(0) if probs is None else permuted_tokens.clone()
