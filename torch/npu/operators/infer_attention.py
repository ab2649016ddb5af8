r"""npu_fused_infer_attention_score: attention of inference over caches, and what belongs to it."""

import torch
from torch import Tensor

from ._checks import check, check_none
from ._inference import Inference, Small, output_shapes, run
from ._registration import operator

_V1 = (
    "Tensor query, Tensor key, Tensor value, *, Tensor? pse_shift=None, Tensor? atten_mask=None, "
    "SymInt[]? actual_seq_lengths=None, SymInt[]? actual_seq_lengths_kv=None, Tensor? dequant_scale1=None, "
    "Tensor? quant_scale1=None, Tensor? dequant_scale2=None, Tensor? quant_scale2=None, Tensor? quant_offset2=None, "
    "Tensor? antiquant_scale=None, Tensor? antiquant_offset=None, Tensor? key_antiquant_scale=None, "
    "Tensor? key_antiquant_offset=None, Tensor? value_antiquant_scale=None, Tensor? value_antiquant_offset=None, "
    "Tensor? block_table=None, Tensor? query_padding_size=None, Tensor? kv_padding_size=None, "
    "Tensor? key_shared_prefix=None, Tensor? value_shared_prefix=None, SymInt[]? actual_shared_prefix_len=None, "
    "Tensor? query_rope=None, Tensor? key_rope=None, Tensor? key_rope_antiquant_scale=None, int num_heads=1, "
    "float scale=1.0, int pre_tokens=2147483647, int next_tokens=2147483647, str input_layout='BSH', "
    "int num_key_value_heads=0, int sparse_mode=0, int inner_precise=0, int block_size=0, int antiquant_mode=0, "
    "int key_antiquant_mode=0, int value_antiquant_mode=0, bool softmax_lse_flag=False"
)
_V2 = (
    "Tensor query, Tensor key, Tensor value, *, Tensor? query_rope=None, Tensor? key_rope=None, "
    "Tensor? pse_shift=None, Tensor? atten_mask=None, SymInt[]? actual_seq_qlen=None, "
    "SymInt[]? actual_seq_kvlen=None, Tensor? block_table=None, Tensor? dequant_scale_query=None, "
    "Tensor? dequant_scale_key=None, Tensor? dequant_offset_key=None, Tensor? dequant_scale_value=None, "
    "Tensor? dequant_offset_value=None, Tensor? dequant_scale_key_rope=None, Tensor? quant_scale_out=None, "
    "Tensor? quant_offset_out=None, Tensor? quant_scale_p=None, Tensor? learnable_sink=None, int num_query_heads=1, "
    "int num_key_value_heads=0, float softmax_scale=1.0, int pre_tokens=2147483647, int next_tokens=2147483647, "
    "str input_layout='BSH', int sparse_mode=0, int block_size=0, int query_quant_mode=0, int key_quant_mode=0, "
    "int value_quant_mode=0, int inner_precise=0, bool return_softmax_lse=False, int? query_dtype=None, "
    "int? key_dtype=None, int? value_dtype=None, int? query_rope_dtype=None, int? key_rope_dtype=None, "
    "int? key_shared_prefix_dtype=None, int? value_shared_prefix_dtype=None, int? dequant_scale_query_dtype=None, "
    "int? dequant_scale_key_dtype=None, int? dequant_scale_value_dtype=None, int? dequant_scale_key_rope_dtype=None, "
    "int? out_dtype=None"
)
_OUT = ", Tensor? workspace=None, Tensor(a!) attention_out, Tensor(b!) softmax_lse) -> (Tensor(a!), Tensor(b!))"
_NAMES_V2 = {
    "num_heads": "num_query_heads",
    "actual_seq_lengths": "actual_seq_qlen",
    "actual_seq_lengths_kv": "actual_seq_kvlen",
    "key_antiquant_scale": "dequant_scale_key",
    "key_antiquant_offset": "dequant_offset_key",
    "value_antiquant_scale": "dequant_scale_value",
    "value_antiquant_offset": "dequant_offset_value",
    "key_antiquant_mode": "key_quant_mode",
    "value_antiquant_mode": "value_quant_mode",
}


def _small(
    name: str, scales: tuple[Tensor | None, Tensor | None], offsets: tuple[Tensor | None, Tensor | None], modes
) -> tuple[Small | None, Small | None]:
    check((scales[0] is None) == (scales[1] is None), name, "the scales of key and of value go together")
    check((offsets[0] is None) == (offsets[1] is None), name, "the offsets of key and of value go together")
    if scales[0] is None or scales[1] is None:
        check_none(name, "it needs a scale", offset=offsets[0])
        return None, None
    check(
        modes[0] == modes[1] or tuple(modes) == (0, 1),
        name,
        f"key and value must be of one antiquant mode, or of 0 and 1, but are of {modes[0]} and {modes[1]}",
    )
    return Small(scales[0], offsets[0], modes[0]), Small(scales[1], offsets[1], modes[1])


def _result(call: Inference, with_sums: bool) -> tuple[Tensor, Tensor]:
    out, sums = run(call)
    return out, sums.contiguous() if with_sums else sums.new_zeros(1)


def _write(attention_out: Tensor, softmax_lse: Tensor, result: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    attention_out.copy_(result[0].view(attention_out.shape))
    softmax_lse.copy_(result[1].view(softmax_lse.shape))
    return attention_out, softmax_lse


@operator(f"npu_fused_infer_attention_score({_V1}) -> (Tensor, Tensor)")
def npu_fused_infer_attention_score(
    query,
    key,
    value,
    *,
    pse_shift=None,
    atten_mask=None,
    actual_seq_lengths=None,
    actual_seq_lengths_kv=None,
    dequant_scale1=None,
    quant_scale1=None,
    dequant_scale2=None,
    quant_scale2=None,
    quant_offset2=None,
    antiquant_scale=None,
    antiquant_offset=None,
    key_antiquant_scale=None,
    key_antiquant_offset=None,
    value_antiquant_scale=None,
    value_antiquant_offset=None,
    block_table=None,
    query_padding_size=None,
    kv_padding_size=None,
    key_shared_prefix=None,
    value_shared_prefix=None,
    actual_shared_prefix_len=None,
    query_rope=None,
    key_rope=None,
    key_rope_antiquant_scale=None,
    num_heads=1,
    scale=1.0,
    pre_tokens=2147483647,
    next_tokens=2147483647,
    input_layout="BSH",
    num_key_value_heads=0,
    sparse_mode=0,
    inner_precise=0,
    block_size=0,
    antiquant_mode=0,
    key_antiquant_mode=0,
    value_antiquant_mode=0,
    softmax_lse_flag=False,
) -> tuple[Tensor, Tensor]:
    r"""
    Attention of inference, softmax(scale * query key' + mask) value, of whole prompts and of single steps.

    Sums are made in fp32. Keys and values stand in a tensor each, or in blocks of a cache that a table names. The
    lengths are numbers of the host, so nothing is read back from the device.

    Args:
        query: float16 or bfloat16, of the layout of ``input_layout``; at most 256 heads.
        key: of the dtype of ``query`` or int8. With ``block_table`` a cache: (blocks, block_size, heads * width),
            (blocks, heads, block_size, width), or (blocks, heads, width / c, block_size, c).
        value: like ``key``; the width of its heads may be another one.
        pse_shift: must be None; where it is added is not documented.
        atten_mask: bool, int8 or uint8; not 0 hides. Of sparse modes 0 and 1: (queries, keys), (1 or batch, queries,
            keys), (1 or batch, 1, queries, keys), or (batch, keys) of single steps; it may be larger than needed. Of
            modes 2, 3 and 4 a matrix of 2048 rows, of which nothing is read.
        actual_seq_lengths: positions of each query, from its first one; with TND the ends of the sequences, which
            must be given. Positions behind give 0. Without effect for single steps of other layouts.
        actual_seq_lengths_kv: positions of each key; with TND their ends, but lengths with ``block_table``, which
            needs them.
        dequant_scale1: must be None.
        quant_scale1: must be None.
        dequant_scale2: must be None.
        quant_scale2: must be None; whether results are multiplied or divided by it is not documented.
        quant_offset2: must be None.
        antiquant_scale: two scales, of key and value, in one tensor: (2), (2, ...) for each channel with
            ``antiquant_mode`` 0, (2, batch, keys) with 1.
        antiquant_offset: added to the integers before they are multiplied; like ``antiquant_scale``.
        key_antiquant_scale: of an int8 key: a number = (integer + offset) * scale; goes before ``antiquant_scale``.
            Of mode 0 one element or heads * width ones, of 1 (batch, keys), of 2 (heads), of 3 (batch, heads, keys).
        key_antiquant_offset: like its scale.
        value_antiquant_scale: as that of the key.
        value_antiquant_offset: like its scale.
        block_table: int32, (batch, columns): the blocks of each sequence, in order.
        query_padding_size: one integer: unused positions behind each query, which then ends there.
        kv_padding_size: the same for keys and values; negative ones count as 0.
        key_shared_prefix: a batch of one that all sequences see first, of the layout of ``key``.
        value_shared_prefix: like it.
        actual_shared_prefix_len: one length, of the prefix.
        query_rope: a further part of the heads of the query, 64 wide; ``query`` is 128 or 512 wide then.
        key_rope: that of the key.
        key_rope_antiquant_scale: must be None.
        num_heads: heads of the query.
        scale: factor of the products.
        pre_tokens: keys that bands (modes 0 with a mask, and 4) show before a position.
        next_tokens: keys that they show behind it.
        input_layout: BSH, BSND, BNSD, TND or NTD, or two of them: that of the inputs and, behind ``_``, that of the
            result: BNSD_BSND, BSH_BNSD, BSND_BNSD, BSH_NBSD, BSND_NBSD, BNSD_NBSD, TND_NTD, NTD_TND.
        num_key_value_heads: heads of key and value, which divide those of the query; 0: as many.
        sparse_mode: 0: the mask and a band; 1: the mask; 2: causal from the first positions; 3: causal up to the last
            ones; 4: a band from the last positions. Without effect for single steps without ``query_rope``.
        inner_precise: without effect; a row that sees nothing gives 0 always.
        block_size: positions of a block of the cache.
        antiquant_mode: that of ``antiquant_scale``.
        key_antiquant_mode: 0: for each channel or for all; 1: for each position; 2: for each head; 3: for each position
            of each head.
        value_antiquant_mode: as that of the key, or 1 where that is 0.
        softmax_lse_flag: whether the second result is wanted.
        workspace: without effect.
        attention_out: of the form ``.out``: where the first result goes.
        softmax_lse: of the form ``.out``: where the second result goes.

    Returns:
        The result, of the dtype of ``query``; the logarithms of the sums of exponentials, (batch, heads, queries, 1) or
        (positions, heads, 1), fp32, -inf where a row sees nothing; [0] unless they are wanted.

    Raises:
        RuntimeError: for dtypes, shapes and lengths that do not fit.
        NotImplementedError: for int8 queries and results, key_antiquant_mode 4 and 5, numbers of four bits, and
            what has no documented meaning.
    """
    name = "npu_fused_infer_attention_score"
    check_none(name, "where it is added is not documented", pse_shift=pse_shift)
    check_none(
        name,
        "results and products in small integers are not supported",
        dequant_scale1=dequant_scale1,
        quant_scale1=quant_scale1,
        dequant_scale2=dequant_scale2,
        quant_scale2=quant_scale2,
        quant_offset2=quant_offset2,
        key_rope_antiquant_scale=key_rope_antiquant_scale,
    )
    scales, offsets = (key_antiquant_scale, value_antiquant_scale), (key_antiquant_offset, value_antiquant_offset)
    modes = (key_antiquant_mode, value_antiquant_mode)
    if scales == (None, None) and antiquant_scale is not None:
        check(
            antiquant_scale.shape[0] == 2,
            name,
            f"antiquant_scale must be (2, ...), but is {tuple(antiquant_scale.shape)}",
        )
        check(antiquant_mode in (0, 1), name, f"antiquant_mode must be 0 or 1, but is {antiquant_mode}")
        scales = tuple(antiquant_scale.unbind(0))
        offsets = (None, None) if antiquant_offset is None else tuple(antiquant_offset.unbind(0))
        modes = (antiquant_mode, antiquant_mode)
    small_key, small_value = _small(name, scales, offsets, modes)
    return _result(
        Inference(
            name,
            query,
            key,
            value,
            num_heads,
            num_key_value_heads or num_heads,
            input_layout,
            scale,
            atten_mask,
            sparse_mode,
            pre_tokens,
            next_tokens,
            actual_seq_lengths,
            actual_seq_lengths_kv,
            block_table,
            block_size,
            query_rope,
            key_rope,
            query_padding_size,
            kv_padding_size,
            key_shared_prefix,
            value_shared_prefix,
            actual_shared_prefix_len,
            small_key,
            small_value,
        ),
        softmax_lse_flag,
    )


@operator(f"npu_fused_infer_attention_score.out({_V1}{_OUT}")
def npu_fused_infer_attention_score_out(
    *args, workspace=None, attention_out, softmax_lse, **kwargs
) -> tuple[Tensor, Tensor]:
    return _write(attention_out, softmax_lse, npu_fused_infer_attention_score(*args, **kwargs))


@operator(f"npu_fused_infer_attention_score_v2({_V2}) -> (Tensor, Tensor)")
def npu_fused_infer_attention_score_v2(
    query,
    key,
    value,
    *,
    query_rope=None,
    key_rope=None,
    pse_shift=None,
    atten_mask=None,
    actual_seq_qlen=None,
    actual_seq_kvlen=None,
    block_table=None,
    dequant_scale_query=None,
    dequant_scale_key=None,
    dequant_offset_key=None,
    dequant_scale_value=None,
    dequant_offset_value=None,
    dequant_scale_key_rope=None,
    quant_scale_out=None,
    quant_offset_out=None,
    quant_scale_p=None,
    learnable_sink=None,
    num_query_heads=1,
    num_key_value_heads=0,
    softmax_scale=1.0,
    pre_tokens=2147483647,
    next_tokens=2147483647,
    input_layout="BSH",
    sparse_mode=0,
    block_size=0,
    query_quant_mode=0,
    key_quant_mode=0,
    value_quant_mode=0,
    inner_precise=0,
    return_softmax_lse=False,
    out_dtype=None,
    **reserved,
) -> tuple[Tensor, Tensor]:
    r"""
    :func:`npu_fused_infer_attention_score` with other names, and with a sink.

    Args:
        query: as there.
        key: as there.
        value: as there.
        query_rope: as there.
        key_rope: as there.
        pse_shift: must be None.
        atten_mask: as there.
        actual_seq_qlen: ``actual_seq_lengths`` there.
        actual_seq_kvlen: ``actual_seq_lengths_kv`` there.
        block_table: as there.
        dequant_scale_query: must be None.
        dequant_scale_key: ``key_antiquant_scale`` there.
        dequant_offset_key: ``key_antiquant_offset`` there.
        dequant_scale_value: ``value_antiquant_scale`` there.
        dequant_offset_value: ``value_antiquant_offset`` there.
        dequant_scale_key_rope: must be None.
        quant_scale_out: must be None.
        quant_offset_out: must be None.
        quant_scale_p: must be None.
        learnable_sink: bfloat16, one score for each head of the query, which takes its share of the softmax and has no
            value; of TND and NTD_TND, for values of at most 128 elements, without ``return_softmax_lse``.
        num_query_heads: ``num_heads`` there.
        num_key_value_heads: as there.
        softmax_scale: ``scale`` there.
        pre_tokens: as there.
        next_tokens: as there.
        input_layout: as there.
        sparse_mode: as there.
        block_size: as there.
        query_quant_mode: without effect without ``dequant_scale_query``.
        key_quant_mode: ``key_antiquant_mode`` there.
        value_quant_mode: ``value_antiquant_mode`` there.
        inner_precise: as there.
        return_softmax_lse: ``softmax_lse_flag`` there.
        query_dtype: must be None.
        key_dtype: must be None.
        value_dtype: must be None.
        query_rope_dtype: must be None.
        key_rope_dtype: must be None.
        key_shared_prefix_dtype: must be None.
        value_shared_prefix_dtype: must be None.
        dequant_scale_query_dtype: must be None.
        dequant_scale_key_dtype: must be None.
        dequant_scale_value_dtype: must be None.
        dequant_scale_key_rope_dtype: must be None.
        out_dtype: must be None.
        workspace: without effect.
        attention_out: of the form ``.out``: where the first result goes.
        softmax_lse: of the form ``.out``: where the second result goes.

    Returns:
        As :func:`npu_fused_infer_attention_score`.

    Raises:
        RuntimeError: as there.
        NotImplementedError: as there; and for sparse_mode 9.
    """
    name = "npu_fused_infer_attention_score_v2"
    check_none(name, "where it is added is not documented", pse_shift=pse_shift)
    check_none(
        name,
        "results and products in small integers are not supported",
        dequant_scale_query=dequant_scale_query,
        dequant_scale_key_rope=dequant_scale_key_rope,
        quant_scale_out=quant_scale_out,
        quant_offset_out=quant_offset_out,
        quant_scale_p=quant_scale_p,
        out_dtype=out_dtype,
    )
    check_none(name, "it is reserved", **reserved)
    if sparse_mode == 9:
        raise NotImplementedError(f"{name}: sparse_mode 9: which keys a tree's mask stands for is not documented")
    if learnable_sink is not None:
        check(input_layout in ("TND", "NTD_TND"), name, "learnable_sink is for layouts TND and NTD_TND")
        check(
            learnable_sink.shape == (num_query_heads,),
            name,
            f"learnable_sink must have one element for each of the {num_query_heads} heads, but is "
            f"{tuple(learnable_sink.shape)}",
        )
        if return_softmax_lse:
            raise NotImplementedError(f"{name}: whether return_softmax_lse counts learnable_sink is not documented")
    scales, offsets = (dequant_scale_key, dequant_scale_value), (dequant_offset_key, dequant_offset_value)
    small_key, small_value = _small(name, scales, offsets, (key_quant_mode, value_quant_mode))
    return _result(
        Inference(
            name,
            query,
            key,
            value,
            num_query_heads,
            num_key_value_heads or num_query_heads,
            input_layout,
            softmax_scale,
            atten_mask,
            sparse_mode,
            pre_tokens,
            next_tokens,
            actual_seq_qlen,
            actual_seq_kvlen,
            block_table,
            block_size,
            query_rope,
            key_rope,
            small_key=small_key,
            small_value=small_value,
            sink=learnable_sink,
            names=_NAMES_V2,
        ),
        return_softmax_lse,
    )


@operator(f"npu_fused_infer_attention_score_v2.out({_V2}{_OUT}")
def npu_fused_infer_attention_score_v2_out(
    *args, workspace=None, attention_out, softmax_lse, **kwargs
) -> tuple[Tensor, Tensor]:
    return _write(attention_out, softmax_lse, npu_fused_infer_attention_score_v2(*args, **kwargs))


def _empty_output(call: Inference, with_sums: bool) -> tuple[Tensor, Tensor]:
    shape, sums = output_shapes(call)
    return call.query.new_empty(shape), call.query.new_empty(sums if with_sums else (1,), dtype=torch.float32)


@operator(
    "_npu_fused_infer_attention_score_infer_output(Tensor query, Tensor value, *, str input_layout='BSH', "
    "Tensor? quant_scale2=None, Tensor? block_table=None, int num_heads=1, int num_key_value_heads=0, "
    "bool softmax_lse_flag=False, Tensor? query_rope=None) -> (Tensor, Tensor)"
)
def _npu_fused_infer_attention_score_infer_output(
    query,
    value,
    *,
    input_layout="BSH",
    quant_scale2=None,
    block_table=None,
    num_heads=1,
    num_key_value_heads=0,
    softmax_lse_flag=False,
    query_rope=None,
) -> tuple[Tensor, Tensor]:
    r"""
    Empty tensors that :func:`npu_fused_infer_attention_score` can write its results into.

    Args:
        query: as there.
        value: as there.
        input_layout: as there.
        quant_scale2: must be None.
        block_table: as there.
        num_heads: as there.
        num_key_value_heads: as there.
        softmax_lse_flag: as there.
        query_rope: as there.

    Returns:
        Tensors of the shapes and dtypes of its results.
    """
    name = "_npu_fused_infer_attention_score_infer_output"
    check_none(name, "results in small integers are not supported", quant_scale2=quant_scale2)
    key_heads = num_key_value_heads or num_heads
    call = Inference(name, query, value, value, num_heads, key_heads, input_layout, 1.0, block_table=block_table)
    return _empty_output(call, softmax_lse_flag)


@operator(
    "_npu_fused_infer_attention_score_v2_infer_output(Tensor query, Tensor value, *, int? query_dtype=None, "
    "int? value_dtype=None, str input_layout='BSH', Tensor? quant_scale_out=None, Tensor? block_table=None, "
    "int num_query_heads=1, int num_key_value_heads=0, bool return_softmax_lse=False, Tensor? query_rope=None, "
    "int? out_dtype=None) -> (Tensor, Tensor)"
)
def _npu_fused_infer_attention_score_v2_infer_output(
    query,
    value,
    *,
    query_dtype=None,
    value_dtype=None,
    input_layout="BSH",
    quant_scale_out=None,
    block_table=None,
    num_query_heads=1,
    num_key_value_heads=0,
    return_softmax_lse=False,
    query_rope=None,
    out_dtype=None,
) -> tuple[Tensor, Tensor]:
    r"""
    Empty tensors that :func:`npu_fused_infer_attention_score_v2` can write its results into.

    Args:
        query: as there.
        value: as there.
        query_dtype: must be None.
        value_dtype: must be None.
        input_layout: as there.
        quant_scale_out: must be None.
        block_table: as there.
        num_query_heads: as there.
        num_key_value_heads: as there.
        return_softmax_lse: as there.
        query_rope: as there.
        out_dtype: must be None.

    Returns:
        Tensors of the shapes and dtypes of its results.
    """
    name = "_npu_fused_infer_attention_score_v2_infer_output"
    check_none(name, "it is reserved", query_dtype=query_dtype, value_dtype=value_dtype)
    check_none(
        name, "results in small integers are not supported", quant_scale_out=quant_scale_out, out_dtype=out_dtype
    )
    key_heads = num_key_value_heads or num_query_heads
    call = Inference(name, query, value, value, num_query_heads, key_heads, input_layout, 1.0, block_table=block_table)
    return _empty_output(call, return_softmax_lse)


@operator(f"_npu_fused_infer_attention_score_get_max_workspace({_V1}) -> Tensor")
def _npu_fused_infer_attention_score_get_max_workspace(query, *args, **kwargs) -> Tensor:
    return query.new_empty(0, dtype=torch.uint8)


@operator(f"_npu_fused_infer_attention_score_v2_get_max_workspace({_V2}) -> Tensor")
def _npu_fused_infer_attention_score_v2_get_max_workspace(query, *args, **kwargs) -> Tensor:
    return query.new_empty(0, dtype=torch.uint8)


def _workspace_doc(name: str, arguments: str | None) -> str:
    lines = [part.split("=")[0].split()[-1] for part in (arguments or "").split(", ") if part != "*"]
    listed = "\n".join(f"    {argument}: as there." for argument in lines)
    return (
        f"Memory that :func:`{name}` works in: none, as its steps take their own.\n\nArgs:\n{listed}\n\n"
        "Returns:\n    An empty tensor.\n"
    )


_npu_fused_infer_attention_score_get_max_workspace.__doc__ = _workspace_doc("npu_fused_infer_attention_score", _V1)
_npu_fused_infer_attention_score_v2_get_max_workspace.__doc__ = _workspace_doc(
    "npu_fused_infer_attention_score_v2", _V2
)
