r"""Attention over paths of two steps: a key and a value of each step (npu_fused_floyd_attention)."""

import torch
from torch import Tensor

from ._attention import wide
from ._checks import check, check_dtype
from ._registration import operator

_HALF = (torch.float16, torch.bfloat16)


def _check(name: str, query: Tensor, key_ij: Tensor, value_ij: Tensor, key_jk: Tensor, value_jk: Tensor) -> None:
    check_dtype(name, "query_ik", query, _HALF)
    check(query.dim() == 5, name, f"query_ik must have five dimensions, but is {tuple(query.shape)}")
    batch, heads, outer, inner, width = query.shape
    middle = key_ij.shape[3] if key_ij.dim() == 5 else 0
    first, second = (batch, heads, outer, middle, width), (batch, heads, middle, inner, width)
    for argument, tensor, shape in (
        ("key_ij", key_ij, first),
        ("value_ij", value_ij, first),
        ("key_jk", key_jk, second),
        ("value_jk", value_jk, second),
    ):
        check_dtype(name, argument, tensor, (query.dtype,))
        check(tuple(tensor.shape) == shape, name, f"{argument} must be {shape}, but is {tuple(tensor.shape)}")
    check(
        outer % 16 == 0 and inner % 128 == 0 and middle % 128 == 0 and width in (32, 64, 128),
        name,
        f"the dimensions must be multiples of 16 (i), 128 (k) and 128 (j), and a width of 32, 64 or 128, but are "
        f"{outer}, {inner}, {middle} and {width}",
    )


def _scores(name: str, query: Tensor, key_ij: Tensor, key_jk: Tensor, mask: Tensor | None, scale: float) -> Tensor:
    scores = torch.einsum("bhimd,bhijd->bhimj", query, key_ij) + torch.einsum("bhimd,bhjmd->bhimj", query, key_jk)
    scores = scores * scale
    if mask is None:
        return scores
    check_dtype(name, "atten_mask", mask, (torch.bool, torch.uint8))
    batch, _, outer, _, middle = scores.shape
    check(
        tuple(mask.shape) == (batch, 1, outer, 1, middle),
        name,
        f"atten_mask must be {(batch, 1, outer, 1, middle)}, but is {tuple(mask.shape)}",
    )
    return scores.masked_fill(mask != 0, float("-inf"))


@operator(
    "npu_fused_floyd_attention(Tensor query_ik, Tensor key_ij, Tensor value_ij, Tensor key_jk, Tensor value_jk, *, "
    "Tensor? atten_mask=None, float scale_value=1.) -> (Tensor, Tensor, Tensor)"
)
def npu_fused_floyd_attention(
    query_ik, key_ij, value_ij, key_jk, value_jk, *, atten_mask=None, scale_value=1.0
) -> tuple[Tensor, Tensor, Tensor]:
    r"""
    Attention of each pair (i, k) over what lies between, j: softmax(scale (q_ik k_ij + q_ik k_jk)) (v_ij + v_jk).

    Sums are made in fp32.

    Args:
        query_ik: (batch, heads, i, k, width), float16 or bfloat16; i is a multiple of 16, k and j of 128, and the
            width is 32, 64 or 128.
        key_ij: (batch, heads, i, j, width).
        value_ij: like ``key_ij``.
        key_jk: (batch, heads, j, k, width).
        value_jk: like ``key_jk``.
        atten_mask: (batch, 1, i, 1, j), bool or uint8; not 0 hides. A row in which everything is hidden gives 0.
        scale_value: factor of the products.

    Returns:
        The maxima of the scores and the sums of the exponentials, float32, (batch, heads, i, k, 8); the result, of the
        shape and dtype of ``query_ik``.

    Raises:
        RuntimeError: for shapes and dtypes that do not fit.
    """
    name = "npu_fused_floyd_attention"
    _check(name, query_ik, key_ij, value_ij, key_jk, value_jk)
    scores = _scores(name, wide(query_ik), wide(key_ij), wide(key_jk), atten_mask, scale_value)
    nothing = None
    if atten_mask is not None:
        nothing = (atten_mask != 0).all(-1, keepdim=True)
        scores = scores.masked_fill(nothing, 0)
    weights = torch.softmax(scores, -1)
    top = scores.detach().amax(-1, keepdim=True)
    total = weights.detach().amax(-1, keepdim=True).reciprocal()
    if nothing is not None:
        weights, top, total = (t.masked_fill(nothing, 0) for t in (weights, top, total))
    out = torch.einsum("bhimj,bhijd->bhimd", weights, wide(value_ij))
    out = out + torch.einsum("bhimj,bhjmd->bhimd", weights, wide(value_jk))
    stored = [t.expand(*t.shape[:-1], 8).contiguous() for t in (top, total)]
    return stored[0], stored[1], out.to(query_ik.dtype)


@operator(
    "npu_fused_floyd_attention_backward(Tensor grad_output, Tensor query_ik, Tensor key_ij, Tensor value_ij, "
    "Tensor key_jk, Tensor value_jk, Tensor attention_out, Tensor softmax_max, Tensor softmax_sum, *, "
    "Tensor? atten_mask=None, float scale_value=1.) -> (Tensor, Tensor, Tensor, Tensor, Tensor)"
)
def npu_fused_floyd_attention_backward(
    grad_output,
    query_ik,
    key_ij,
    value_ij,
    key_jk,
    value_jk,
    attention_out,
    softmax_max,
    softmax_sum,
    *,
    atten_mask=None,
    scale_value=1.0,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    r"""
    The gradient of :func:`npu_fused_floyd_attention`.

    Args:
        grad_output: the gradient of its third result.
        query_ik: as there.
        key_ij: as there.
        value_ij: as there.
        key_jk: as there.
        value_jk: as there.
        attention_out: its third result; not read: the softmax is made again.
        softmax_max: its first result; not read.
        softmax_sum: its second result; not read.
        atten_mask: as there.
        scale_value: as there.

    Returns:
        The gradients of ``query_ik``, ``key_ij``, ``value_ij``, ``key_jk`` and ``value_jk``.
    """
    name = "npu_fused_floyd_attention_backward"
    inputs = (query_ik, key_ij, value_ij, key_jk, value_jk)
    _check(name, *inputs)
    query, first_key, first_value, second_key, second_value = (wide(t) for t in inputs)
    scores = _scores(name, query, first_key, second_key, atten_mask, scale_value)
    if atten_mask is None:
        weights = torch.softmax(scores, -1)
    else:
        nothing = (atten_mask != 0).all(-1, keepdim=True)
        weights = torch.softmax(scores.masked_fill(nothing, 0), -1).masked_fill(nothing, 0)
    dy = wide(grad_output)
    dweights = torch.einsum("bhimd,bhijd->bhimj", dy, first_value) + torch.einsum(
        "bhimd,bhjmd->bhimj", dy, second_value
    )
    dscores = weights * (dweights - (dweights * weights).sum(-1, keepdim=True)) * scale_value
    grads = (
        torch.einsum("bhimj,bhijd->bhimd", dscores, first_key)
        + torch.einsum("bhimj,bhjmd->bhimd", dscores, second_key),
        torch.einsum("bhimj,bhimd->bhijd", dscores, query),
        torch.einsum("bhimj,bhimd->bhijd", weights, dy),
        torch.einsum("bhimj,bhimd->bhjmd", dscores, query),
        torch.einsum("bhimj,bhimd->bhjmd", weights, dy),
    )
    return tuple(grad.to(query_ik.dtype) for grad in grads)  # type: ignore[return-value]
