r"""Attention with an added mask and a dropout whose mask is a result, as BERT's layers have it."""

import torch
from torch import Tensor

from ._attention import wide
from ._checks import check, check_dtype
from ._registration import operator

_HALF = (torch.float16,)


def _check(name, query, key, value, keep_prob, transposed: dict[str, bool]) -> None:
    for argument, tensor in (("query_layer", query), ("key_layer", key), ("value_layer", value)):
        check_dtype(name, argument, tensor, _HALF)
        check(tensor.dim() == 4, name, f"{argument} must be of four dimensions, but is {tuple(tensor.shape)}")
    check(
        key.shape[:2] == query.shape[:2] and key.shape[3] == query.shape[3] and value.shape == key.shape,
        name,
        "query_layer must be (batch, heads, queries, width), key_layer and value_layer (batch, heads, keys, width), "
        f"but they are {tuple(query.shape)}, {tuple(key.shape)} and {tuple(value.shape)}",
    )
    check(0 < keep_prob <= 1, name, f"keep_prob must be above 0 and up to 1, but is {keep_prob}")
    for argument, given in transposed.items():
        if given:
            raise NotImplementedError(f"{name}: {argument} must be False")


def _kept(weights: Tensor, mask: Tensor, keep_prob: float) -> Tensor:
    return weights * mask.view(weights.shape).to(weights.dtype) / keep_prob


def _forward(name, query, key, value, attention_mask, scale, keep_prob) -> tuple[Tensor, Tensor, Tensor]:
    check_dtype(name, "attention_mask", attention_mask, _HALF)
    scores = wide(query) @ wide(key).transpose(-1, -2) * scale + wide(attention_mask)
    check(
        scores.shape == (*query.shape[:3], key.shape[2]),
        name,
        f"attention_mask must broadcast to {(*query.shape[:3], key.shape[2])}, but is {tuple(attention_mask.shape)}",
    )
    weights = torch.softmax(scores, -1)
    if keep_prob == 1:
        mask = torch.ones(weights.numel(), dtype=torch.uint8, device=weights.device)
        kept = weights
    else:
        mask = (torch.rand(weights.numel(), device=weights.device) < keep_prob).to(torch.uint8)
        kept = _kept(weights, mask, keep_prob)
    out = (kept @ wide(value)).transpose(1, 2)
    return out.reshape(out.shape[0] * out.shape[1], -1).to(query.dtype), weights.to(query.dtype), mask


_TRANSPOSED = (
    "bool query_transpose=False, bool key_transpose=False, bool bmm_score_transpose_a=False, "
    "bool bmm_score_transpose_b=False, bool value_transpose=False, bool dx_transpose=False"
)
_ARGUMENTS = (
    "Tensor query_layer, Tensor key_layer, Tensor value_layer, Tensor attention_mask, Scalar scale, float keep_prob"
)


def _transposes(names: str, values: tuple[bool, ...]) -> dict[str, bool]:
    return dict(zip(names.split(), values, strict=True))


_FORWARD = "query_transpose key_transpose bmm_score_transpose_a bmm_score_transpose_b value_transpose dx_transpose"
_BACKWARD = "query_transpose key_transpose value_transpose dx_transpose"


@operator(f"npu_fused_attention_score_fwd({_ARGUMENTS}, {_TRANSPOSED}) -> (Tensor, Tensor, Tensor)")
def npu_fused_attention_score_fwd(
    query_layer,
    key_layer,
    value_layer,
    attention_mask,
    scale,
    keep_prob,
    query_transpose=False,
    key_transpose=False,
    bmm_score_transpose_a=False,
    bmm_score_transpose_b=False,
    value_transpose=False,
    dx_transpose=False,
) -> tuple[Tensor, Tensor, Tensor]:
    r"""
    dropout(softmax(query @ key' * scale + attention_mask)) @ value, and what its gradient needs.

    Args:
        query_layer: (batch, heads, queries, width), float16.
        key_layer: (batch, heads, keys, width), float16.
        value_layer: like ``key_layer``.
        attention_mask: what is added to the scores, float16; broadcasts to (batch, heads, queries, keys).
        scale: factor of the products.
        keep_prob: the probability with which a weight stays.
        query_transpose: must be False.
        key_transpose: must be False.
        bmm_score_transpose_a: must be False.
        bmm_score_transpose_b: must be False.
        value_transpose: must be False.
        dx_transpose: must be False.

    Returns:
        The result, (batch * queries, heads * width), float16; the softmax before the dropout, float16; the dropout's
        mask, a byte of 0 or 1 for each element of the softmax.

    Raises:
        RuntimeError: for shapes, dtypes and probabilities that do not fit.
        NotImplementedError: for what is transposed.
    """
    name = "npu_fused_attention_score_fwd"
    given = (
        query_transpose,
        key_transpose,
        bmm_score_transpose_a,
        bmm_score_transpose_b,
        value_transpose,
        dx_transpose,
    )
    _check(name, query_layer, key_layer, value_layer, keep_prob, _transposes(_FORWARD, given))
    return _forward(name, query_layer, key_layer, value_layer, attention_mask, scale, keep_prob)


@operator(f"npu_fused_attention_score({_ARGUMENTS}, {_TRANSPOSED}) -> Tensor")
def npu_fused_attention_score(
    query_layer,
    key_layer,
    value_layer,
    attention_mask,
    scale,
    keep_prob,
    query_transpose=False,
    key_transpose=False,
    bmm_score_transpose_a=False,
    bmm_score_transpose_b=False,
    value_transpose=False,
    dx_transpose=False,
) -> Tensor:
    r"""
    The first result of :func:`npu_fused_attention_score_fwd`.

    Args:
        query_layer: as there.
        key_layer: as there.
        value_layer: as there.
        attention_mask: as there.
        scale: as there.
        keep_prob: as there.
        query_transpose: must be False.
        key_transpose: must be False.
        bmm_score_transpose_a: must be False.
        bmm_score_transpose_b: must be False.
        value_transpose: must be False.
        dx_transpose: must be False.

    Returns:
        (batch * queries, heads * width), float16.
    """
    name = "npu_fused_attention_score"
    given = (
        query_transpose,
        key_transpose,
        bmm_score_transpose_a,
        bmm_score_transpose_b,
        value_transpose,
        dx_transpose,
    )
    _check(name, query_layer, key_layer, value_layer, keep_prob, _transposes(_FORWARD, given))
    return _forward(name, query_layer, key_layer, value_layer, attention_mask, scale, keep_prob)[0]


def _backward(name, grad, weights, query, key, value, mask, scale, keep_prob) -> tuple[Tensor, Tensor, Tensor]:
    batch, heads, queries, width = query.shape
    check(
        grad.shape == (batch * queries, heads * width)
        and weights.shape == (batch, heads, queries, key.shape[2])
        and mask.numel() == weights.numel(),
        name,
        f"grad_output must be {(batch * queries, heads * width)}, softmax_output {(*query.shape[:3], key.shape[2])} "
        f"and mask have as many elements, but they are {tuple(grad.shape)}, {tuple(weights.shape)} and "
        f"{tuple(mask.shape)}",
    )
    dy = wide(grad).view(batch, queries, heads, width).transpose(1, 2)
    share = wide(weights)
    dvalue = _kept(share, mask, keep_prob).transpose(-1, -2) @ dy
    dweights = _kept(dy @ wide(value).transpose(-1, -2), mask, keep_prob)
    dscores = share * (dweights - (dweights * share).sum(-1, keepdim=True)) * scale
    dquery, dkey = dscores @ wide(key), dscores.transpose(-1, -2) @ wide(query)
    return dquery.to(query.dtype), dkey.to(query.dtype), dvalue.to(query.dtype)


_GRADIENT = (
    "Tensor grad_output, Tensor softmax_output, Tensor query_layer, Tensor key_layer, Tensor value_layer, "
    "Tensor mask, Scalar scale, float keep_prob, bool query_transpose=False, bool key_transpose=False, "
    "bool value_transpose=False, bool dx_transpose=False"
)


@operator(f"npu_fused_attention_score_backward({_GRADIENT}) -> (Tensor, Tensor, Tensor)")
def npu_fused_attention_score_backward(
    grad_output,
    softmax_output,
    query_layer,
    key_layer,
    value_layer,
    mask,
    scale,
    keep_prob,
    query_transpose=False,
    key_transpose=False,
    value_transpose=False,
    dx_transpose=False,
) -> tuple[Tensor, Tensor, Tensor]:
    r"""
    The gradient of :func:`npu_fused_attention_score_fwd`.

    Args:
        grad_output: the gradient of its first result.
        softmax_output: its second result.
        query_layer: as there.
        key_layer: as there.
        value_layer: as there.
        mask: its third result.
        scale: as there.
        keep_prob: as there.
        query_transpose: must be False.
        key_transpose: must be False.
        value_transpose: must be False.
        dx_transpose: must be False.

    Returns:
        The gradients of ``query_layer``, ``key_layer`` and ``value_layer``, of their shapes.

    Raises:
        RuntimeError: for shapes, dtypes and probabilities that do not fit.
        NotImplementedError: for what is transposed.
    """
    name = "npu_fused_attention_score_backward"
    given = (query_transpose, key_transpose, value_transpose, dx_transpose)
    _check(name, query_layer, key_layer, value_layer, keep_prob, _transposes(_BACKWARD, given))
    return _backward(name, grad_output, softmax_output, query_layer, key_layer, value_layer, mask, scale, keep_prob)


@operator(f"npu_fused_attention_score_grad({_GRADIENT}) -> (Tensor, Tensor, Tensor)")
def npu_fused_attention_score_grad(
    grad_output,
    softmax_output,
    query_layer,
    key_layer,
    value_layer,
    mask,
    scale,
    keep_prob,
    query_transpose=False,
    key_transpose=False,
    value_transpose=False,
    dx_transpose=False,
) -> tuple[Tensor, Tensor, Tensor]:
    r"""
    :func:`npu_fused_attention_score_backward` with the gradients as matrices.

    Args:
        grad_output: as there.
        softmax_output: as there.
        query_layer: as there.
        key_layer: as there; with as many positions as ``query_layer``.
        value_layer: as there.
        mask: as there.
        scale: as there.
        keep_prob: as there.
        query_transpose: must be False.
        key_transpose: must be False.
        value_transpose: must be False.
        dx_transpose: must be False.

    Returns:
        The gradients of ``query_layer``, ``key_layer`` and ``value_layer``, (batch * positions, heads * width).
    """
    name = "npu_fused_attention_score_grad"
    given = (query_transpose, key_transpose, value_transpose, dx_transpose)
    _check(name, query_layer, key_layer, value_layer, keep_prob, _transposes(_BACKWARD, given))
    check(
        key_layer.shape == query_layer.shape,
        name,
        f"key_layer must be {tuple(query_layer.shape)}, but is {tuple(key_layer.shape)}",
    )
    grads = _backward(name, grad_output, softmax_output, query_layer, key_layer, value_layer, mask, scale, keep_prob)
    first, second, third = (grad.transpose(1, 2).reshape(grad_output.shape) for grad in grads)
    return first, second, third
