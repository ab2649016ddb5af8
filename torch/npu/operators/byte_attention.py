r"""Latent attention whose cache holds bytes, the rotated part and the scales of each position side by side."""

import torch
from torch import Tensor

from ._attention import attend
from ._checks import check, check_dtype, check_none
from ._registration import operator
from .sparse_attention import Keys, Tokens, chosen_rows

_HALF = (torch.float16, torch.bfloat16)
_ALL = 9223372036854775807
_LATENT, _ROTATED, _TILE = 512, 64, 128
# Bytes of a position: the latent numbers, the rotated ones of two bytes, a scale of four for each tile.
_STORED = _LATENT + 2 * _ROTATED + 4 * (_LATENT // _TILE)


@operator(
    "npu_kv_quant_sparse_flash_attention(Tensor query, Tensor key, Tensor value, Tensor sparse_indices, "
    "float scale_value, int key_quant_mode, int value_quant_mode, *, Tensor? key_dequant_scale=None, "
    "Tensor? value_dequant_scale=None, Tensor? block_table=None, Tensor? actual_seq_lengths_query=None, "
    "Tensor? actual_seq_lengths_kv=None, int sparse_block_size=1, str layout_query='BSND', str layout_kv='BSND', "
    "int sparse_mode=3, int pre_tokens=9223372036854775807, int next_tokens=9223372036854775807, "
    "int attention_mode=0, int quant_scale_repo_mode=1, int tile_size=128, int rope_head_dim=64, "
    "int? key_dtype=None, int? value_dtype=None, Tensor? sinks=None) -> Tensor"
)
def npu_kv_quant_sparse_flash_attention(
    query,
    key,
    value,
    sparse_indices,
    scale_value,
    key_quant_mode,
    value_quant_mode,
    *,
    key_dequant_scale=None,
    value_dequant_scale=None,
    block_table=None,
    actual_seq_lengths_query=None,
    actual_seq_lengths_kv=None,
    sparse_block_size=1,
    layout_query="BSND",
    layout_kv="BSND",
    sparse_mode=3,
    pre_tokens=_ALL,
    next_tokens=_ALL,
    attention_mode=0,
    quant_scale_repo_mode=1,
    tile_size=128,
    rope_head_dim=64,
    key_dtype=None,
    value_dtype=None,
    sinks=None,
) -> Tensor:
    r"""
    npu_sparse_flash_attention with keys, which are the values too, of bytes: each 128 of them have a scale.

    Args:
        query: (batch, positions, heads, 576) of BSND, or (positions, heads, 576) of TND: 512 elements, and 64 of the
            rotated part; float16 or bfloat16.
        key: of one head, int8 or float8_e4m3fn, 656 bytes for a position: 512 numbers, the 64 of the rotated part in
            the dtype of ``query``, 4 scales of float32; like ``query``, or (blocks, block_size, 1, 656) of PA_BSND.
        value: of the dtype of ``key``; not read, as keys are the values.
        sparse_indices: int32, (..., 1, blocks): the blocks of keys that a query sees; negative ones are none.
        scale_value: factor of the products.
        key_quant_mode: must be 2: a scale for each tile.
        value_quant_mode: must be 2.
        key_dequant_scale: must be None.
        value_dequant_scale: must be None.
        block_table: int32, (batch, columns): the cache's blocks of each sequence, of PA_BSND.
        actual_seq_lengths_query: as in npu_sparse_flash_attention.
        actual_seq_lengths_kv: as there.
        sparse_block_size: keys of a block of ``sparse_indices``, a power of 2 up to 128.
        layout_query: BSND or TND.
        layout_kv: that of the query, or PA_BSND.
        sparse_mode: 0: all that are named; 3: causal up to the last positions.
        pre_tokens: must be the default.
        next_tokens: must be the default.
        attention_mode: must be 2.
        quant_scale_repo_mode: must be 1: scales lie behind the numbers.
        tile_size: must be 128.
        rope_head_dim: must be 64.
        key_dtype: must be None.
        value_dtype: must be None.
        sinks: float32, one score for each head that takes its share of the softmax, and has no value.

    Returns:
        (..., heads, 512), of the dtype of ``query``; 0 in rows that see nothing.

    Raises:
        RuntimeError: for shapes, dtypes, modes and layouts that do not fit.
        NotImplementedError: for hifloat8, and scales that lie elsewhere.
    """
    name = "npu_kv_quant_sparse_flash_attention"
    check_none(name, "scales lie behind the numbers", key_dequant_scale=key_dequant_scale)
    check_none(name, "scales lie behind the numbers", value_dequant_scale=value_dequant_scale)
    check_none(name, "hifloat8 is not supported", key_dtype=key_dtype, value_dtype=value_dtype)
    check_dtype(name, "query", query, _HALF)
    check_dtype(name, "key", key, (torch.int8, torch.float8_e4m3fn))
    check_dtype(name, "value", value, (key.dtype,))
    for argument, given, wanted in (
        ("key_quant_mode", key_quant_mode, 2),
        ("value_quant_mode", value_quant_mode, 2),
        ("pre_tokens", pre_tokens, _ALL),
        ("next_tokens", next_tokens, _ALL),
        ("attention_mode", attention_mode, 2),
        ("quant_scale_repo_mode", quant_scale_repo_mode, 1),
        ("tile_size", tile_size, _TILE),
        ("rope_head_dim", rope_head_dim, _ROTATED),
    ):
        check(given == wanted, name, f"{argument} must be {wanted}, but is {given}")
    check(
        query.shape[-1] == _LATENT + _ROTATED and key.shape[-1] == _STORED,
        name,
        f"query must have heads of {_LATENT + _ROTATED} elements and key of {_STORED} bytes, but they are "
        f"{tuple(query.shape)} and {tuple(key.shape)}",
    )
    check(layout_query in ("BSND", "TND"), name, f"layout_query must be BSND or TND, but is '{layout_query}'")
    check(
        layout_kv in (layout_query, "PA_BSND"),
        name,
        f"layout_kv must be {layout_query} or PA_BSND, but is '{layout_kv}'",
    )
    keys = Keys(name, layout_kv, key, actual_seq_lengths_kv, block_table)
    tokens = Tokens(name, layout_query, query, actual_seq_lengths_query, keys.lengths)
    rows, hidden = chosen_rows(name, tokens, keys, sparse_indices, sparse_block_size, sparse_mode)
    heads = query.shape[-2]
    stored = key.view(torch.uint8).reshape(-1, _STORED)[rows]
    numbers, rotated, scales = stored.split([_LATENT, 2 * _ROTATED, 4 * (_LATENT // _TILE)], -1)
    scale = scales.contiguous().view(torch.float32).repeat_interleave(_TILE, -1)
    latent = numbers.contiguous().view(key.dtype).float() * scale
    latent = latent.masked_fill(hidden.unsqueeze(-1), 0.0)
    turned = rotated.contiguous().view(query.dtype).float().masked_fill(hidden.unsqueeze(-1), 0.0)
    out, _ = attend(
        query.detach().reshape(-1, heads, 1, _LATENT + _ROTATED),
        torch.cat([latent, turned], -1).unsqueeze(1),
        latent.unsqueeze(1),
        scale_value,
        hidden.view(-1, 1, 1, hidden.shape[1]),
        sinks,
    )
    return out.to(query.dtype).view(*query.shape[:-1], _LATENT)
