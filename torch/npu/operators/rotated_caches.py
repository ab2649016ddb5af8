r"""Queries, keys and values of one projection, normalised, rotated and written into fractal caches."""

import torch
from torch import Tensor

from ._attention import wide
from ._checks import check, check_dtype
from ._registration import operator
from ._slots import rms_norm, write_slots

_HALF = (torch.float16, torch.bfloat16)
_OPTIONS = (
    "Tensor? k_scale=None, Tensor? v_scale=None, Tensor? k_offset=None, Tensor? v_offset=None, float epsilon=1e-6, "
    "str cache_mode='PA_NZ', bool is_output_qkv=False"
)


@operator(
    "npu_qkv_rms_norm_rope_cache(Tensor qkv, Tensor q_gamma, Tensor k_gamma, Tensor cos, Tensor sin, Tensor index, "
    "Tensor(a!) q_out, Tensor(b!) k_cache, Tensor(c!) v_cache, int[4] qkv_size, int[3] head_nums, *, "
    f"{_OPTIONS}) -> (Tensor, Tensor, Tensor)"
)
def npu_qkv_rms_norm_rope_cache(
    qkv,
    q_gamma,
    k_gamma,
    cos,
    sin,
    index,
    q_out,
    k_cache,
    v_cache,
    qkv_size,
    head_nums,
    *,
    k_scale=None,
    v_scale=None,
    k_offset=None,
    v_offset=None,
    epsilon=1e-6,
    cache_mode="PA_NZ",
    is_output_qkv=False,
) -> tuple[Tensor, Tensor, Tensor]:
    r"""
    Norms and rotations of queries and keys; keys and values go into caches, as they are or as int8.

    Args:
        qkv: (tokens, heads * width), float16 or bfloat16: the heads of queries, then of keys, then of values.
        q_gamma: (width): factors of the norm of a query's head.
        k_gamma: (width): those of a key's.
        cos: (tokens, width). An element is rotated with the one width / 2 behind it.
        sin: like it.
        index: (tokens), int64: slots, each once; negative ones are left out.
        q_out: (tokens, heads of queries * width), of the dtype of ``qkv``; is written.
        k_cache: (blocks, heads of keys * width / c, block_size, c), of the dtype of ``qkv``, or int8 with ``k_scale``;
            is written.
        v_cache: the same of values.
        qkv_size: batch, positions, heads of all three, and width.
        head_nums: heads of queries, keys and values.
        k_scale: (heads of keys, width), float32: what keys are divided by.
        v_scale: (heads of values, width), float32: what values are divided by.
        k_offset: like ``k_scale``; added behind it.
        v_offset: like ``v_scale``; added behind it.
        epsilon: added to the mean of squares.
        cache_mode: must be PA_NZ.
        is_output_qkv: whether the results are wanted.

    Returns:
        Queries, keys and values before they were made small, (tokens, heads * width) each, or empty tensors.

    Raises:
        RuntimeError: for shapes and dtypes that do not fit.
        NotImplementedError: for another ``cache_mode``.
    """
    name = "npu_qkv_rms_norm_rope_cache"
    if cache_mode != "PA_NZ":
        raise NotImplementedError(f"{name}: cache_mode must be PA_NZ, but is '{cache_mode}'")
    check_dtype(name, "qkv", qkv, _HALF)
    batch, positions, total, width = qkv_size
    tokens = batch * positions
    check(sum(head_nums) == total, name, f"head_nums must add up to {total}, but is {head_nums}")
    of_query, of_key, of_value = head_nums
    for argument, tensor, shape in (
        ("qkv", qkv, (tokens, total * width)),
        ("q_gamma", q_gamma, (width,)),
        ("k_gamma", k_gamma, (width,)),
        ("cos", cos, (tokens, width)),
        ("sin", sin, (tokens, width)),
        ("index", index, (tokens,)),
        ("q_out", q_out, (tokens, of_query * width)),
        ("k_scale", k_scale, (of_key, width)),
        ("v_scale", v_scale, (of_value, width)),
        ("k_offset", k_offset, (of_key, width)),
        ("v_offset", v_offset, (of_value, width)),
    ):
        if tensor is not None:
            check(tuple(tensor.shape) == shape, name, f"{argument} must be {shape}, but is {tuple(tensor.shape)}")
    heads = wide(qkv).unflatten(1, (total, width))
    query, key, value = heads.split(list(head_nums), 1)
    cosine, sine = wide(cos).unsqueeze(1), wide(sin).unsqueeze(1)

    def turned(part: Tensor, gamma: Tensor) -> Tensor:
        norm, _ = rms_norm(part, wide(gamma), epsilon)
        first, second = norm.chunk(2, -1)
        return norm * cosine + torch.cat([-second, first], -1) * sine

    query, key = turned(query, q_gamma), turned(key, k_gamma)
    q_out.copy_(query.flatten(1))
    for argument, cache, rows, scale, offset in (
        ("k_cache", k_cache, key, k_scale, k_offset),
        ("v_cache", v_cache, value, v_scale, v_offset),
    ):
        check(
            cache.dim() == 4 and cache.shape[1] * cache.shape[3] == rows.shape[1] * width,
            name,
            f"{argument} must be (blocks, {rows.shape[1] * width} / c, block_size, c), but is {tuple(cache.shape)}",
        )
        check_dtype(name, argument, cache, (qkv.dtype if scale is None else torch.int8,))
        check(scale is not None or offset is None, name, f"the offset of {argument} needs its scale")
        if scale is not None:
            rows = rows / scale if offset is None else rows / scale + offset
            rows = rows.round().clamp(-128, 127)
        write_slots(cache, index, rows, True)
    if not is_output_qkv:
        return qkv.new_empty(0), qkv.new_empty(0), qkv.new_empty(0)
    first, second, third = (part.flatten(1).to(qkv.dtype) for part in (query, key, value))
    return first, second, third


@operator(
    "npu_qkv_rms_norm_rope_cache_functional(Tensor qkv, Tensor q_gamma, Tensor k_gamma, Tensor cos, Tensor sin, "
    "Tensor index, Tensor q_out, Tensor k_cache, Tensor v_cache, int[4] qkv_size, int[3] head_nums, *, "
    f"{_OPTIONS}) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)"
)
def npu_qkv_rms_norm_rope_cache_functional(
    qkv, q_gamma, k_gamma, cos, sin, index, q_out, k_cache, v_cache, qkv_size, head_nums, **options
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    r"""
    :func:`npu_qkv_rms_norm_rope_cache` that leaves ``q_out`` and the caches as they are.

    Args:
        qkv: as there.
        q_gamma: as there.
        k_gamma: as there.
        cos: as there.
        sin: as there.
        index: as there.
        q_out: as there.
        k_cache: as there.
        v_cache: as there.
        qkv_size: as there.
        head_nums: as there.
        k_scale: as there.
        v_scale: as there.
        k_offset: as there.
        v_offset: as there.
        epsilon: as there.
        cache_mode: must be PA_NZ.
        is_output_qkv: as there.

    Returns:
        Its results, then the queries and the caches with what is written.
    """
    written = q_out.clone(), k_cache.clone(), v_cache.clone()
    given = (qkv, q_gamma, k_gamma, cos, sin, index, *written, qkv_size, head_nums)
    return *npu_qkv_rms_norm_rope_cache(*given, **options), *written
