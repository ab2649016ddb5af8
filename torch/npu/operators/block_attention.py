r"""Attention to the blocks of keys that a mask shows."""

import torch
from torch import Tensor

from ._attention import attend, attention_grad, lengths_of
from ._checks import check, check_dtype
from ._registration import operator

_HALF = (torch.float16, torch.bfloat16)
_BLOCK_LENGTHS = "int[]? actual_seq_lengths=None, int[]? actual_seq_lengths_kv=None"


def _heads_of_blocks(name, layout, key_heads, query, key, value, lengths, key_lengths):
    r"""(query, key, value) of each sequence or of the batch, (batch, heads, positions, width), and their lengths."""
    check(layout in ("TND", "BNSD"), name, f"q_input_layout must be TND or BNSD, but is '{layout}'")
    check((lengths is None) == (key_lengths is None), name, "actual_seq_lengths and actual_seq_lengths_kv go together")
    heads_at = 1
    for argument, tensor in (("query", query), ("key", key), ("value", value)):
        check_dtype(name, argument, tensor, (query.dtype,) if tensor is not query else _HALF)
        check(tensor.dim() == len(layout), name, f"{argument} of layout {layout} must not be {tuple(tensor.shape)}")
    check(
        key.shape == value.shape,
        name,
        f"key and value must have one shape, but are {tuple(key.shape)}, {tuple(value.shape)}",
    )
    check(
        key.shape[heads_at] == key_heads and query.shape[heads_at] % key_heads == 0,
        name,
        f"num_key_value_heads, {key_heads}, must be the heads of key, {tuple(key.shape)}, and divide those of query, "
        f"{tuple(query.shape)}",
    )
    check(query.shape[-1] in (64, 128), name, f"a head must have 64 or 128 elements, but has {query.shape[-1]}")
    if layout == "BNSD":
        batch = query.shape[0]
        counts = (
            lengths_of(name, "actual_seq_lengths", lengths, batch, query.shape[2]),
            lengths_of(name, "actual_seq_lengths_kv", key_lengths, batch, key.shape[2]),
        )
        parts = [tuple(t[b : b + 1] for t in (query, key, value)) for b in range(batch)]
        return [(q[:, :, :n], k[:, :, :m], v[:, :, :m]) for (q, k, v), n, m in zip(parts, *counts, strict=True)]
    check(lengths is not None, name, "layout TND needs actual_seq_lengths and actual_seq_lengths_kv")
    check(
        len(lengths) == len(key_lengths) and sum(lengths) == query.shape[0] and sum(key_lengths) == key.shape[0],
        name,
        f"actual_seq_lengths and actual_seq_lengths_kv must add up to {query.shape[0]} and {key.shape[0]}, but are "
        f"{lengths} and {key_lengths}",
    )
    split = [t.transpose(0, 1).unsqueeze(0).split(list(n), 2) for t, n in ((query, lengths), (key, key_lengths))]
    values = value.transpose(0, 1).unsqueeze(0).split(list(key_lengths), 2)
    return list(zip(*split, values, strict=True))


def _hidden_blocks(name: str, mask: Tensor, shape, parts) -> list[Tensor]:
    r"""What the mask of blocks hides of each sequence, (1, heads, queries, keys)."""
    check_dtype(name, "block_sparse_mask", mask, (torch.int8,))
    check(
        shape is not None and len(shape) >= 2 and shape[0] > 0 and shape[1] > 0 and shape[1] % 128 == 0,
        name,
        f"block_shape must be two numbers above 0, the second a multiple of 128, but is {shape}",
    )
    rows = max(-(-q.shape[2] // shape[0]) for q, _, _ in parts)
    columns = max(-(-k.shape[2] // shape[1]) for _, k, _ in parts)
    heads = parts[0][0].shape[1]
    check(
        mask.dim() == 4
        and mask.shape[:2] == (len(parts), heads)
        and mask.shape[2] >= rows
        and mask.shape[3] >= columns,
        name,
        f"block_sparse_mask must be ({len(parts)}, {heads}, {rows}, {columns}), but is {tuple(mask.shape)}",
    )
    found = []
    for b, (query, key, _) in enumerate(parts):
        row = torch.arange(query.shape[2], device=mask.device) // shape[0]
        column = torch.arange(key.shape[2], device=mask.device) // shape[1]
        found.append(mask[b : b + 1].index_select(2, row).index_select(3, column) == 0)
    return found


def _as_given(parts: list[Tensor], like: Tensor, layout: str) -> Tensor:
    r"""Sequences, (1, heads, positions, width) each, as one tensor of the layout; 0 behind their lengths."""
    if layout == "TND":
        return torch.cat(parts, 2).squeeze(0).transpose(0, 1).contiguous()
    total = like.shape[2]
    return torch.cat([torch.nn.functional.pad(p, (0, 0, 0, total - p.shape[2])) for p in parts], 0)


@operator(
    "npu_block_sparse_attention(Tensor query, Tensor key, Tensor value, Tensor block_sparse_mask, int[] "
    "block_shape, *, "
    "str q_input_layout='TND', str kv_input_layout='TND', int num_key_value_heads=1, float scale_value=0.0, "
    f"int inner_precise=1, {_BLOCK_LENGTHS}, int? softmax_lse_flag=0) -> (Tensor, Tensor)"
)
def npu_block_sparse_attention(
    query,
    key,
    value,
    block_sparse_mask,
    block_shape,
    *,
    q_input_layout="TND",
    kv_input_layout="TND",
    num_key_value_heads=1,
    scale_value=0.0,
    inner_precise=1,
    actual_seq_lengths=None,
    actual_seq_lengths_kv=None,
    softmax_lse_flag=0,
) -> tuple[Tensor, Tensor]:
    r"""
    Attention to the blocks of keys that a mask shows to each block of queries; sums are made in fp32.

    Args:
        query: (positions, heads, width) of TND, or (batch, heads, positions, width) of BNSD; float16 or bfloat16; a
            head has 64 or 128 elements.
        key: like ``query``, of heads that divide those of the query.
        value: like ``key``.
        block_sparse_mask: int8, (batch, heads, blocks of queries, blocks of keys); 0 hides.
        block_shape: queries and keys of a block; keys are a multiple of 128.
        q_input_layout: TND or BNSD.
        kv_input_layout: that of the query.
        num_key_value_heads: heads of key and value.
        scale_value: factor of the products.
        inner_precise: 0, or 1 for float16; without effect.
        actual_seq_lengths: positions of each query; must be given with TND.
        actual_seq_lengths_kv: positions of each key; goes with the former.
        softmax_lse_flag: 1: the second result is wanted.

    Returns:
        The result, of the layout and dtype of ``query``, 0 in rows that see nothing; the logarithms of the sums of
        exponentials, float32, with 1 for the width, or an empty tensor.

    Raises:
        RuntimeError: for shapes, dtypes and lengths that do not fit.
    """
    name = "npu_block_sparse_attention"
    check(kv_input_layout == q_input_layout, name, f"kv_input_layout must be that of query, {q_input_layout}")
    check(
        inner_precise == 0 or (inner_precise == 1 and query.dtype != torch.bfloat16),
        name,
        f"inner_precise must be 0, or 1 for torch.float16, but is {inner_precise}",
    )
    lengths = (actual_seq_lengths, actual_seq_lengths_kv)
    parts = _heads_of_blocks(name, q_input_layout, num_key_value_heads, query, key, value, *lengths)
    outs, sums = [], []
    masks = _hidden_blocks(name, block_sparse_mask, block_shape, parts)
    for (queries, keys, values), hidden in zip(parts, masks, strict=True):
        out, total = attend(queries, keys, values, scale_value, hidden)
        outs.append(out.to(query.dtype))
        sums.append(total)
    out = _as_given(outs, query, q_input_layout)
    return out, _as_given(sums, query, q_input_layout) if softmax_lse_flag else sums[0].new_empty(0)


@operator(
    "npu_block_sparse_attention_backward(Tensor d_out, Tensor query, Tensor key, Tensor value, Tensor attention_out, "
    "Tensor softmax_lse, Tensor block_sparse_mask, int[]? block_shape, int[]? actual_seq_lengths, "
    "int[]? actual_seq_lengths_kv, str q_input_layout, str kv_input_layout, int num_key_value_heads, "
    "float scale_value) -> (Tensor, Tensor, Tensor)"
)
def npu_block_sparse_attention_backward(
    d_out,
    query,
    key,
    value,
    attention_out,
    softmax_lse,
    block_sparse_mask,
    block_shape,
    actual_seq_lengths,
    actual_seq_lengths_kv,
    q_input_layout,
    kv_input_layout,
    num_key_value_heads,
    scale_value,
) -> tuple[Tensor, Tensor, Tensor]:
    r"""
    The gradient of :func:`npu_block_sparse_attention`.

    Args:
        d_out: the gradient of its first result.
        query: as there.
        key: as there.
        value: as there.
        attention_out: its first result.
        softmax_lse: its second result; not read: the softmax is made again.
        block_sparse_mask: as there.
        block_shape: as there.
        actual_seq_lengths: as there.
        actual_seq_lengths_kv: as there.
        q_input_layout: as there.
        kv_input_layout: as there.
        num_key_value_heads: as there.
        scale_value: as there.

    Returns:
        The gradients of ``query``, ``key`` and ``value``.
    """
    name = "npu_block_sparse_attention_backward"
    check(kv_input_layout == q_input_layout, name, f"kv_input_layout must be that of query, {q_input_layout}")
    lengths = (actual_seq_lengths, actual_seq_lengths_kv)
    layout, heads = q_input_layout, num_key_value_heads
    parts = _heads_of_blocks(name, layout, heads, query, key, value, *lengths)
    # The queries' heads take the place of the keys', which need not be fewer.
    of_out = _heads_of_blocks(name, layout, query.shape[1], query, d_out, d_out, lengths[0], lengths[0])
    grads: list[list[Tensor]] = [[], [], []]
    hidden = _hidden_blocks(name, block_sparse_mask, block_shape, parts)
    for (q, k, v), (_, dy, _), hide in zip(parts, of_out, hidden, strict=True):
        dq, dk, dv = attention_grad(q, k, v, dy, scale_value, hide)
        for found, grad in zip(grads, (dq, dk, dv), strict=True):
            found.append(grad.to(query.dtype))
    return (
        _as_given(grads[0], query, layout),
        _as_given(grads[1], key, layout),
        _as_given(grads[2], value, layout),
    )
