r"""What stands before latent attention: norms, rotations and projections that fill its caches."""

import torch
from torch import Tensor

from ._attention import wide
from ._checks import check, check_dtype, check_none
from ._registration import operator
from ._slots import fractal_view, interleaved_half, rms_norm, write_slots

_HALF = (torch.float16, torch.bfloat16)
_PAGED = ("PA", "PA_BNSD", "PA_NZ", "PA_BLK_BNSD", "PA_BLK_NZ")
_CACHE_ARGUMENTS = (
    "*, Tensor? k_rope_scale=None, Tensor? c_kv_scale=None, Tensor? k_rope_offset=None, Tensor? c_kv_offset=None, "
    "Tensor? v=None, float epsilon=1e-5, str cache_mode='Norm', bool is_output_kv=False"
)
_V2_ARGUMENTS = f"{_CACHE_ARGUMENTS}, int? k_cache_dtype=None, int? ckv_cache_dtype=None"


def _slots_of_blocks(name: str, index: Tensor, batch: int, tokens: int, size: int, scale: int) -> Tensor:
    r"""The slots of (batch, tokens) where the index has the start of each block of a sequence."""
    columns = -(-tokens // size)
    check(
        index.numel() == batch * columns,
        name,
        f"index must have {batch * columns} elements, but is {tuple(index.shape)}",
    )
    at = torch.arange(tokens, device=index.device)
    starts = index.reshape(batch, columns).long()[:, at // size] * scale
    return torch.where(starts >= 0, starts + at % size, starts)


def _rotate_and_store(name, kv, gamma, cos, sin, index, k_cache, ckv_cache, options) -> tuple[Tensor, Tensor]:
    r"""Writes the caches; the rotated and the normalised part of kv."""
    epsilon, mode = options["epsilon"], options["cache_mode"]
    why = "how a cache of small integers is made is not documented"
    check_none(name, why, k_rope_scale=options["k_rope_scale"], c_kv_scale=options["c_kv_scale"])
    check_none(name, "it is not supported", k_rope_offset=options["k_rope_offset"], c_kv_offset=options["c_kv_offset"])
    check_none(name, "its meaning is not documented", v=options["v"])
    check_dtype(name, "kv", kv, _HALF)
    check(
        kv.dim() == 4 and kv.shape[1] == 1 and kv.shape[3] == 576 and gamma.shape == (512,),
        name,
        f"kv must be (batch, 1, tokens, 576) and gamma (512), but are {tuple(kv.shape)} and {tuple(gamma.shape)}",
    )
    batch, _, tokens, _ = kv.shape
    for argument, tensor in (("cos", cos), ("sin", sin)):
        check(
            tensor.shape == (batch, 1, tokens, 64),
            name,
            f"{argument} must be ({batch}, 1, {tokens}, 64), but is {tuple(tensor.shape)}",
        )
    for argument, cache, width in (("k_cache", k_cache, 64), ("ckv_cache", ckv_cache, 512)):
        check_dtype(name, argument, cache, (kv.dtype,))
        check(
            cache.dim() == 4 and cache.shape[3] == width and cache.shape[1 if mode == "Norm" else 2] == 1,
            name,
            f"{argument} must have four dimensions, the last of {width}, and one head, but is {tuple(cache.shape)}",
        )
    check(
        mode == "Norm" or mode in _PAGED,
        name,
        f"cache_mode must be Norm or one of {', '.join(_PAGED)}, but is '{mode}'",
    )
    plain = wide(kv)
    normalised = rms_norm(plain[..., :512], wide(gamma), epsilon)[0].to(kv.dtype)
    rotated = interleaved_half(plain[..., 512:], wide(cos), wide(sin)).to(kv.dtype)
    for cache, rows in ((k_cache, rotated), (ckv_cache, normalised)):
        if mode == "Norm":
            check(
                index.shape == (batch, tokens), name, f"index must be ({batch}, {tokens}), but is {tuple(index.shape)}"
            )
            places = torch.arange(batch, device=index.device).unsqueeze(1) * cache.shape[2]
            slots = torch.where(index >= 0, index + places, index)
            # The head is one, so a sequence of a batch is a block.
            write_slots(cache.transpose(1, 2), slots, rows)
            continue
        fractal = mode.endswith("NZ")
        if mode.startswith("PA_BLK"):
            slots = _slots_of_blocks(name, index, batch, tokens, cache.shape[1], 1)
        else:
            check(
                index.numel() == batch * tokens,
                name,
                f"index must have {batch * tokens} elements, but is {tuple(index.shape)}",
            )
            slots = index
        write_slots(fractal_view(name, "cache", cache) if fractal else cache, slots, rows, fractal)
    return rotated, normalised


def _outputs(options, parts: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    wanted = options["is_output_kv"] and options["cache_mode"] != "Norm"
    return parts if wanted else (parts[0].new_empty(0), parts[1].new_empty(0))


_DEFAULTS = {
    "k_rope_scale": None,
    "c_kv_scale": None,
    "k_rope_offset": None,
    "c_kv_offset": None,
    "v": None,
    "epsilon": 1e-5,
    "cache_mode": "Norm",
    "is_output_kv": False,
}


@operator(
    "npu_kv_rmsnorm_rope_cache(Tensor kv, Tensor gamma, Tensor cos, Tensor sin, Tensor index, Tensor k_cache, "
    f"Tensor ckv_cache, {_CACHE_ARGUMENTS}) -> (Tensor, Tensor, Tensor, Tensor)"
)
def npu_kv_rmsnorm_rope_cache(
    kv, gamma, cos, sin, index, k_cache, ckv_cache, **options
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    r"""
    Normalises one part of latent keys, rotates the other, and writes both into caches, in place.

    Pairs of neighbours are rotated, and the first ones of the pairs come first in what is stored.

    Args:
        kv: (batch, 1, tokens, 576), float16 or bfloat16: 512 elements for the norm, then 64 for the rotation.
        gamma: (512), factors of the norm.
        cos: (batch, 1, tokens, 64).
        sin: (batch, 1, tokens, 64).
        index: int64; (batch, tokens) of Norm: places in each sequence; (batch * tokens) of the pages: slots; or, of
            PA_BLK, (batch * blocks of a sequence): the slots that its blocks start at. Each once; negative ones are
            left out.
        k_cache: of the dtype of ``kv``: (batch, 1, places, 64) of Norm, else (blocks, block_size, 1, 64).
        ckv_cache: the same with 512 elements.
        k_rope_scale: must be None.
        c_kv_scale: must be None.
        k_rope_offset: must be None.
        c_kv_offset: must be None.
        v: must be None.
        epsilon: added to the mean of squares.
        cache_mode: Norm, PA or PA_BNSD, PA_NZ (the memory of a block is fractal), PA_BLK_BNSD, PA_BLK_NZ.
        is_output_kv: whether the last two results are wanted, which are of the pages alone.

    Returns:
        ``k_cache``, ``ckv_cache``; what was written into them, (batch, 1, tokens, 64) and (batch, 1, tokens, 512), or
        empty tensors.

    Raises:
        RuntimeError: for shapes, dtypes and modes that do not fit.
        NotImplementedError: for caches of small integers, and ``v``.
    """
    options = {**_DEFAULTS, **options}
    name = "npu_kv_rmsnorm_rope_cache"
    parts = _rotate_and_store(name, kv, gamma, cos, sin, index, k_cache, ckv_cache, options)
    return k_cache, ckv_cache, *_outputs(options, parts)


@operator(
    "npu_kv_rmsnorm_rope_cache_v2(Tensor kv, Tensor gamma, Tensor cos, Tensor sin, Tensor index, Tensor(a!) k_cache, "
    f"Tensor(b!) ckv_cache, {_V2_ARGUMENTS}) -> (Tensor, Tensor)"
)
def npu_kv_rmsnorm_rope_cache_v2(
    kv, gamma, cos, sin, index, k_cache, ckv_cache, k_cache_dtype=None, ckv_cache_dtype=None, **options
) -> tuple[Tensor, Tensor]:
    r"""
    :func:`npu_kv_rmsnorm_rope_cache` that returns what it wrote alone.

    Args:
        kv: as there.
        gamma: as there.
        cos: as there.
        sin: as there.
        index: as there.
        k_cache: as there.
        ckv_cache: as there.
        k_rope_scale: must be None.
        c_kv_scale: must be None.
        k_rope_offset: must be None.
        c_kv_offset: must be None.
        v: must be None.
        epsilon: as there.
        cache_mode: as there.
        is_output_kv: as there.
        k_cache_dtype: must be None.
        ckv_cache_dtype: must be None.

    Returns:
        The last two results of that operator.
    """
    name = "npu_kv_rmsnorm_rope_cache_v2"
    why = "caches of other types are not supported"
    check_none(name, why, k_cache_dtype=k_cache_dtype, ckv_cache_dtype=ckv_cache_dtype)
    options = {**_DEFAULTS, **options}
    parts = _rotate_and_store(name, kv, gamma, cos, sin, index, k_cache, ckv_cache, options)
    return _outputs(options, parts)


@operator(
    "npu_kv_rmsnorm_rope_cache_v2_functional(Tensor kv, Tensor gamma, Tensor cos, Tensor sin, Tensor index, "
    "Tensor k_cache, "
    f"Tensor ckv_cache, {_V2_ARGUMENTS}) -> (Tensor, Tensor, Tensor, Tensor)"
)
def npu_kv_rmsnorm_rope_cache_v2_functional(
    kv, gamma, cos, sin, index, k_cache, ckv_cache, **options
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    r"""
    :func:`npu_kv_rmsnorm_rope_cache_v2` that leaves the caches as they are.

    Args:
        kv: as there.
        gamma: as there.
        cos: as there.
        sin: as there.
        index: as there.
        k_cache: as there.
        ckv_cache: as there.
        k_rope_scale: must be None.
        c_kv_scale: must be None.
        k_rope_offset: must be None.
        c_kv_offset: must be None.
        v: must be None.
        epsilon: as there.
        cache_mode: as there.
        is_output_kv: as there.
        k_cache_dtype: must be None.
        ckv_cache_dtype: must be None.

    Returns:
        Its results, then the caches with what is written.
    """
    caches = k_cache.clone(), ckv_cache.clone()
    return *npu_kv_rmsnorm_rope_cache_v2(kv, gamma, cos, sin, index, *caches, **options), *caches


_PROLOG_WEIGHTS = (
    "Tensor token_x, Tensor weight_dq, Tensor weight_uq_qr, Tensor weight_uk, Tensor weight_dkv_kr, "
    "Tensor rmsnorm_gamma_cq, Tensor rmsnorm_gamma_ckv, Tensor rope_sin, Tensor rope_cos"
)
_PROLOG_SCALES = (
    "Tensor? dequant_scale_x=None, Tensor? dequant_scale_w_dq=None, Tensor? dequant_scale_w_uq_qr=None, "
    "Tensor? dequant_scale_w_dkv_kr=None, Tensor? quant_scale_ckv=None, Tensor? quant_scale_ckr=None, "
    "Tensor? smooth_scales_cq=None"
)
_EPSILONS = "float rmsnorm_epsilon_cq=1e-05, float rmsnorm_epsilon_ckv=1e-05, str cache_mode='PA_BSND'"


def _prolog(name, weights, kv_cache, kr_cache, cache_index, epsilons, mode) -> tuple[Tensor, Tensor, Tensor]:
    r"""The query, its rotated part and its norm; the caches are written."""
    x, dq, uq_qr, uk, dkv_kr, gamma_q, gamma_kv, sin, cos = weights
    for argument, tensor in zip(
        ("token_x", "weight_dq", "weight_uq_qr", "weight_uk", "weight_dkv_kr", "kv_cache", "kr_cache"),
        (x, dq, uq_qr, uk, dkv_kr, kv_cache, kr_cache),
        strict=True,
    ):
        if tensor.dtype != torch.bfloat16:
            raise NotImplementedError(f"{name}: {argument} must be torch.bfloat16, but is {tensor.dtype}")
    heads, plain, latent = uk.shape
    rotary = sin.shape[-1]
    check(
        x.dim() in (2, 3), name, f"token_x must be (tokens, width) or (batch, tokens, width), but is {tuple(x.shape)}"
    )
    for argument, tensor, shape in (
        ("weight_dq", dq, (x.shape[-1], gamma_q.shape[0])),
        ("weight_uq_qr", uq_qr, (gamma_q.shape[0], heads * (plain + rotary))),
        ("weight_dkv_kr", dkv_kr, (x.shape[-1], latent + rotary)),
        ("rmsnorm_gamma_ckv", gamma_kv, (latent,)),
        ("rope_sin", sin, (*x.shape[:-1], rotary)),
        ("rope_cos", cos, (*x.shape[:-1], rotary)),
    ):
        check(tuple(tensor.shape) == shape, name, f"{argument} must be {shape}, but is {tuple(tensor.shape)}")
    tokens, sine, cosine = wide(x), wide(sin), wide(cos)
    norm, _ = rms_norm(tokens @ wide(dq), wide(gamma_q), epsilons[0])
    query = (norm @ wide(uq_qr)).unflatten(-1, (heads, plain + rotary))
    rotated = interleaved_half(query[..., plain:], cosine.unsqueeze(-2), sine.unsqueeze(-2))
    query = torch.einsum("...nd,ndc->...nc", query[..., :plain], wide(uk))
    keys = tokens @ wide(dkv_kr)
    latent_key, _ = rms_norm(keys[..., :latent], wide(gamma_kv), epsilons[1])
    rotated_key = interleaved_half(keys[..., latent:], cosine, sine)
    for argument, cache, rows in (("kv_cache", kv_cache, latent_key), ("kr_cache", kr_cache, rotated_key)):
        _store(name, argument, cache, rows, cache_index, mode)
    return query.to(x.dtype), rotated.to(x.dtype), norm.to(x.dtype)


def _store(name: str, argument: str, cache: Tensor, rows: Tensor, index: Tensor | None, mode: str) -> None:
    modes = ("PA_BSND", "PA_NZ", "PA_BLK_BSND", "PA_BLK_NZ", "BSND", "TND")
    check(mode in modes, name, f"cache_mode must be one of {', '.join(modes)}, but is '{mode}'")
    width = rows.shape[-1]
    if mode in ("BSND", "TND"):
        check(
            tuple(cache.shape) == (*rows.shape[:-1], 1, width),
            name,
            f"{argument} must be {(*rows.shape[:-1], 1, width)}, but is {tuple(cache.shape)}",
        )
        cache.copy_(rows.unsqueeze(-2))
        return
    check(
        cache.dim() == 4 and tuple(cache.shape[2:]) == (1, width),
        name,
        f"{argument} must be (blocks, block_size, 1, {width}), but is {tuple(cache.shape)}",
    )
    check(index is not None, name, f"cache_mode {mode} needs cache_index")
    assert index is not None
    if cache.numel() == 0 or rows.numel() == 0:
        return
    if mode.startswith("PA_BLK"):
        if rows.dim() == 2:
            raise NotImplementedError(f"{name}: cache_mode {mode} needs token_x of (batch, tokens, width)")
        slots = _slots_of_blocks(name, index, rows.shape[0], rows.shape[1], cache.shape[1], cache.shape[1])
    else:
        check(
            index.shape == rows.shape[:-1],
            name,
            f"cache_index must be {tuple(rows.shape[:-1])}, but is {tuple(index.shape)}",
        )
        slots = index
    fractal = mode.endswith("NZ")
    write_slots(fractal_view(name, argument, cache) if fractal else cache, slots, rows, fractal)


def _check_plain(name: str, scales: dict[str, Tensor | None]) -> None:
    check_none(name, "products in small integers are not supported", **scales)


_SCALE_NAMES = (
    "dequant_scale_x",
    "dequant_scale_w_dq",
    "dequant_scale_w_uq_qr",
    "dequant_scale_w_dkv_kr",
    "quant_scale_ckv",
    "quant_scale_ckr",
    "smooth_scales_cq",
)


def _plain_prolog(name, args, rmsnorm_epsilon_cq=1e-05, rmsnorm_epsilon_ckv=1e-05, cache_mode="PA_BSND", **scales):
    _check_plain(name, scales)
    *weights, cache_index, kv_cache, kr_cache = args
    check(cache_mode in ("PA_BSND", "PA_NZ"), name, f"cache_mode must be PA_BSND or PA_NZ, but is '{cache_mode}'")
    epsilons = (rmsnorm_epsilon_cq, rmsnorm_epsilon_ckv)
    query, rotated, _ = _prolog(name, weights, kv_cache, kr_cache, cache_index, epsilons, cache_mode)
    return query, rotated, kv_cache, kr_cache


@operator(
    f"npu_mla_prolog({_PROLOG_WEIGHTS}, Tensor cache_index, Tensor kv_cache, Tensor kr_cache, *, {_PROLOG_SCALES}, "
    f"{_EPSILONS}) -> (Tensor, Tensor, Tensor, Tensor)"
)
def npu_mla_prolog(*args, **options) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    r"""
    The query of latent attention, and the latent keys of its caches, from hidden states; sums are made in fp32.

    Args:
        token_x: (tokens, width) or (batch, tokens, width), bfloat16.
        weight_dq: (width, latent query).
        weight_uq_qr: (latent query, heads * (head + rotary)): for each head the plain part, then the rotated one.
        weight_uk: (heads, head, latent key).
        weight_dkv_kr: (width, latent key + rotary).
        rmsnorm_gamma_cq: (latent query).
        rmsnorm_gamma_ckv: (latent key).
        rope_sin: (tokens, rotary) or (batch, tokens, rotary). Pairs of neighbours are rotated, and the first ones of
            the pairs come first in the result.
        rope_cos: like it.
        cache_index: (tokens) or (batch, tokens), int64: slots, each once; negative ones are left out.
        kv_cache: (blocks, block_size, 1, latent key), bfloat16; is written.
        kr_cache: (blocks, block_size, 1, rotary), bfloat16; is written.
        dequant_scale_x: must be None.
        dequant_scale_w_dq: must be None.
        dequant_scale_w_uq_qr: must be None.
        dequant_scale_w_dkv_kr: must be None.
        quant_scale_ckv: must be None.
        quant_scale_ckr: must be None.
        smooth_scales_cq: must be None.
        rmsnorm_epsilon_cq: added to the mean of squares of the latent query.
        rmsnorm_epsilon_ckv: that of the latent key.
        cache_mode: PA_BSND, or PA_NZ, where the memory of a block is fractal.

    Returns:
        The query, (..., heads, latent key); its rotated part, (..., heads, rotary); ``kv_cache`` and ``kr_cache``.

    Raises:
        RuntimeError: for shapes and modes that do not fit.
        NotImplementedError: for small integers.
    """
    return _plain_prolog("npu_mla_prolog", args, **options)


@operator(
    f"npu_mla_prolog_v2({_PROLOG_WEIGHTS}, Tensor cache_index, Tensor kv_cache, Tensor kr_cache, *, {_PROLOG_SCALES}, "
    f"{_EPSILONS}) -> (Tensor, Tensor, Tensor, Tensor, Tensor)"
)
def npu_mla_prolog_v2(*args, **options) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    r"""
    :func:`npu_mla_prolog` with a fifth result, which is of small integers.

    Args:
        token_x: as there.
        weight_dq: as there.
        weight_uq_qr: as there.
        weight_uk: as there.
        weight_dkv_kr: as there.
        rmsnorm_gamma_cq: as there.
        rmsnorm_gamma_ckv: as there.
        rope_sin: as there.
        rope_cos: as there.
        cache_index: as there.
        kv_cache: as there.
        kr_cache: as there.
        dequant_scale_x: must be None.
        dequant_scale_w_dq: must be None.
        dequant_scale_w_uq_qr: must be None.
        dequant_scale_w_dkv_kr: must be None.
        quant_scale_ckv: must be None.
        quant_scale_ckr: must be None.
        smooth_scales_cq: must be None.
        rmsnorm_epsilon_cq: as there.
        rmsnorm_epsilon_ckv: as there.
        cache_mode: as there.

    Returns:
        Its results, and one element of 0, fp32.
    """
    results = _plain_prolog("npu_mla_prolog_v2", args, **options)
    return *results, args[0].new_zeros(1, dtype=torch.float32)


_V3_ARGUMENTS = (
    f"*, Tensor? cache_index=None, {_PROLOG_SCALES}, Tensor? actual_seq_len=None, Tensor? k_nope_clip_alpha=None, "
    f"{_EPSILONS}, bool query_norm_flag=False, int weight_quant_mode=0, int kv_cache_quant_mode=0, "
    "int query_quant_mode=0, int ckvkr_repo_mode=0, int quant_scale_repo_mode=0, int tile_size=128, "
    "float qc_qr_scale=1.0, float kc_scale=1.0, int? token_x_dtype=None, int? weight_dq_dtype=None, "
    "int? weight_uq_qr_dtype=None, int? weight_dkv_kr_dtype=None, int? kv_cache_dtype=None"
)


@operator(
    f"npu_mla_prolog_v3({_PROLOG_WEIGHTS}, Tensor(a!) kv_cache, Tensor(b!) kr_cache, {_V3_ARGUMENTS}) -> "
    "(Tensor, Tensor, Tensor, Tensor, Tensor)"
)
def npu_mla_prolog_v3(
    *args,
    cache_index=None,
    actual_seq_len=None,
    rmsnorm_epsilon_cq=1e-05,
    rmsnorm_epsilon_ckv=1e-05,
    cache_mode="PA_BSND",
    query_norm_flag=False,
    tile_size=128,
    qc_qr_scale=1.0,
    kc_scale=1.0,
    **quantised,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    r"""
    :func:`npu_mla_prolog` with more kinds of caches, and with the normalised latent query as a result.

    Args:
        token_x: as there.
        weight_dq: as there.
        weight_uq_qr: as there.
        weight_uk: as there.
        weight_dkv_kr: as there.
        rmsnorm_gamma_cq: as there.
        rmsnorm_gamma_ckv: as there.
        rope_sin: as there.
        rope_cos: as there.
        kv_cache: as there; or (batch, tokens, 1, latent key) of BSND, (tokens, 1, latent key) of TND.
        kr_cache: like it.
        cache_index: as there; of PA_BLK (batch, blocks of a sequence): blocks; not for BSND and TND.
        dequant_scale_x: must be None.
        dequant_scale_w_dq: must be None.
        dequant_scale_w_uq_qr: must be None.
        dequant_scale_w_dkv_kr: must be None.
        quant_scale_ckv: must be None.
        quant_scale_ckr: must be None.
        smooth_scales_cq: must be None.
        actual_seq_len: must be None.
        k_nope_clip_alpha: must be None.
        rmsnorm_epsilon_cq: as there.
        rmsnorm_epsilon_ckv: as there.
        cache_mode: PA_BSND, PA_NZ, PA_BLK_BSND, PA_BLK_NZ, BSND or TND.
        query_norm_flag: whether the fourth result is wanted.
        weight_quant_mode: must be 0.
        kv_cache_quant_mode: must be 0.
        query_quant_mode: must be 0.
        ckvkr_repo_mode: must be 0.
        quant_scale_repo_mode: must be 0.
        tile_size: without effect.
        qc_qr_scale: must be 1.
        kc_scale: must be 1.
        token_x_dtype: must be None.
        weight_dq_dtype: must be None.
        weight_uq_qr_dtype: must be None.
        weight_dkv_kr_dtype: must be None.
        kv_cache_dtype: must be None.

    Returns:
        The query and its rotated part; an empty tensor; the normalised latent query, (..., latent query), or an empty
        tensor; an empty tensor.

    Raises:
        RuntimeError: for shapes and modes that do not fit.
        NotImplementedError: for small integers, PA_BLK of joined sequences, and factors other than 1, whose places are
            not documented.
    """
    name = "npu_mla_prolog_v3"
    for argument, value in quantised.items():
        if value is not None and value != 0:
            raise NotImplementedError(f"{name}: {argument}: products in small integers are not supported")
    check_none(name, "sequences one behind the other are not supported", actual_seq_len=actual_seq_len)
    for argument, value in (("qc_qr_scale", qc_qr_scale), ("kc_scale", kc_scale)):
        if value != 1:
            raise NotImplementedError(f"{name}: {argument} must be 1: where it is multiplied is not documented")
    *weights, kv_cache, kr_cache = args
    epsilons = (rmsnorm_epsilon_cq, rmsnorm_epsilon_ckv)
    query, rotated, norm = _prolog(name, weights, kv_cache, kr_cache, cache_index, epsilons, cache_mode)
    empty = query.new_empty(0, dtype=torch.float32)
    return query, rotated, empty, norm if query_norm_flag else query.new_empty(0), empty.clone()


@operator(
    f"npu_mla_prolog_v3_functional({_PROLOG_WEIGHTS}, Tensor kv_cache, Tensor kr_cache, {_V3_ARGUMENTS}) -> "
    "(Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)"
)
def npu_mla_prolog_v3_functional(*args, **options) -> tuple[Tensor, ...]:
    r"""
    :func:`npu_mla_prolog_v3` that leaves the caches as they are.

    Args:
        token_x: as there.
        weight_dq: as there.
        weight_uq_qr: as there.
        weight_uk: as there.
        weight_dkv_kr: as there.
        rmsnorm_gamma_cq: as there.
        rmsnorm_gamma_ckv: as there.
        rope_sin: as there.
        rope_cos: as there.
        kv_cache: as there.
        kr_cache: as there.
        cache_index: as there.
        dequant_scale_x: must be None.
        dequant_scale_w_dq: must be None.
        dequant_scale_w_uq_qr: must be None.
        dequant_scale_w_dkv_kr: must be None.
        quant_scale_ckv: must be None.
        quant_scale_ckr: must be None.
        smooth_scales_cq: must be None.
        actual_seq_len: must be None.
        k_nope_clip_alpha: must be None.
        rmsnorm_epsilon_cq: as there.
        rmsnorm_epsilon_ckv: as there.
        cache_mode: as there.
        query_norm_flag: as there.
        weight_quant_mode: must be 0.
        kv_cache_quant_mode: must be 0.
        query_quant_mode: must be 0.
        ckvkr_repo_mode: must be 0.
        quant_scale_repo_mode: must be 0.
        tile_size: without effect.
        qc_qr_scale: must be 1.
        kc_scale: must be 1.
        token_x_dtype: must be None.
        weight_dq_dtype: must be None.
        weight_uq_qr_dtype: must be None.
        weight_dkv_kr_dtype: must be None.
        kv_cache_dtype: must be None.

    Returns:
        Its results, then the caches with what is written.
    """
    caches = [t.clone() for t in args[-2:]]
    return *npu_mla_prolog_v3(*args[:-2], *caches, **options), *caches
