r"""npu_prompt_flash_attention and npu_incre_flash_attention: attention of inference in its older forms."""

from torch import Tensor

from ._checks import check, check_none
from ._inference import Inference, Small, run
from ._registration import operator

_NAMES_PROMPT = {"scale": "scale_value"}
_NAMES_INCRE = {
    "actual_seq_lengths_kv": "actual_seq_lengths",
    "key_antiquant_scale": "antiquant_scale",
    "key_antiquant_offset": "antiquant_offset",
    "value_antiquant_scale": "antiquant_scale",
    "value_antiquant_offset": "antiquant_offset",
}


@operator(
    "npu_prompt_flash_attention(Tensor query, Tensor key, Tensor value, *, Tensor? padding_mask=None, "
    "Tensor? atten_mask=None, Tensor? pse_shift=None, int[]? actual_seq_lengths=None, Tensor? deq_scale1=None, "
    "Tensor? quant_scale1=None, Tensor? deq_scale2=None, Tensor? quant_scale2=None, Tensor? quant_offset2=None, "
    "int num_heads=1, float scale_value=1.0, int pre_tokens=2147483647, int next_tokens=0, str input_layout='BSH', "
    "int num_key_value_heads=0, int[]? actual_seq_lengths_kv=None, int sparse_mode=0) -> Tensor"
)
def npu_prompt_flash_attention(
    query,
    key,
    value,
    *,
    padding_mask=None,
    atten_mask=None,
    pse_shift=None,
    actual_seq_lengths=None,
    deq_scale1=None,
    quant_scale1=None,
    deq_scale2=None,
    quant_scale2=None,
    quant_offset2=None,
    num_heads=1,
    scale_value=1.0,
    pre_tokens=2147483647,
    next_tokens=0,
    input_layout="BSH",
    num_key_value_heads=0,
    actual_seq_lengths_kv=None,
    sparse_mode=0,
) -> Tensor:
    r"""
    Attention of whole prompts, softmax(scale_value * query key' + mask) value; sums are made in fp32.

    Args:
        query: float16 or bfloat16, of the layout of ``input_layout``; at most 256 heads.
        key: of the dtype of ``query``.
        value: like ``key``.
        padding_mask: must be None.
        atten_mask: bool, int8 or uint8; not 0 hides. Of sparse modes 0 and 1: (queries, keys), (1 or batch, queries,
            keys) or (1 or batch, 1, queries, keys); it may be larger than needed. Of modes 2, 3 and 4 a matrix of 2048
            rows, of which nothing is read.
        pse_shift: must be None; where it is added is not documented.
        actual_seq_lengths: positions of each query, from its first one; with TND the ends of the sequences, which must
            be given. Positions behind give 0.
        deq_scale1: must be None.
        quant_scale1: must be None.
        deq_scale2: must be None.
        quant_scale2: must be None.
        quant_offset2: must be None.
        num_heads: heads of the query.
        scale_value: factor of the products.
        pre_tokens: keys that bands (modes 0 with a mask, and 4) show before a position.
        next_tokens: keys that they show behind it.
        input_layout: BSH, BSND, BNSD, TND, or BNSD_BSND, whose result is BSND.
        num_key_value_heads: heads of key and value, which divide those of the query; 0: as many.
        actual_seq_lengths_kv: positions of each key; with TND their ends.
        sparse_mode: 0: the mask and a band; 1: the mask; 2: causal from the first positions; 3: causal up to the last
            ones; 4: a band from the last positions.

    Returns:
        The result, of the dtype of ``query``; 0 in rows that see nothing.

    Raises:
        RuntimeError: for dtypes, shapes and lengths that do not fit.
        NotImplementedError: for small integers, and for what has no documented meaning.
    """
    name = "npu_prompt_flash_attention"
    check_none(name, "it is reserved", padding_mask=padding_mask)
    check_none(name, "where it is added is not documented", pse_shift=pse_shift)
    check_none(
        name,
        "results and products in small integers are not supported",
        deq_scale1=deq_scale1,
        quant_scale1=quant_scale1,
        deq_scale2=deq_scale2,
        quant_scale2=quant_scale2,
        quant_offset2=quant_offset2,
    )
    layouts = ("BSH", "BSND", "BNSD", "BNSD_BSND", "TND")
    check(input_layout in layouts, name, f"input_layout must be one of {', '.join(layouts)}, but is '{input_layout}'")
    call = Inference(
        name,
        query,
        key,
        value,
        num_heads,
        num_key_value_heads or num_heads,
        input_layout,
        scale_value,
        atten_mask,
        sparse_mode,
        pre_tokens,
        next_tokens,
        actual_seq_lengths,
        actual_seq_lengths_kv,
        steps=False,
        names=_NAMES_PROMPT,
    )
    return run(call)[0]


@operator(
    "npu_incre_flash_attention(Tensor query, Tensor key, Tensor value, *, Tensor? padding_mask=None, "
    "Tensor? atten_mask=None, Tensor? pse_shift=None, SymInt[]? actual_seq_lengths=None, Tensor? antiquant_scale=None, "
    "Tensor? antiquant_offset=None, Tensor? block_table=None, Tensor? dequant_scale1=None, Tensor? quant_scale1=None, "
    "Tensor? dequant_scale2=None, Tensor? quant_scale2=None, Tensor? quant_offset2=None, Tensor? kv_padding_size=None, "
    "int num_heads=1, float scale_value=1.0, str input_layout='BSH', int num_key_value_heads=0, int block_size=0, "
    "int inner_precise=1) -> Tensor"
)
def npu_incre_flash_attention(
    query,
    key,
    value,
    *,
    padding_mask=None,
    atten_mask=None,
    pse_shift=None,
    actual_seq_lengths=None,
    antiquant_scale=None,
    antiquant_offset=None,
    block_table=None,
    dequant_scale1=None,
    quant_scale1=None,
    dequant_scale2=None,
    quant_scale2=None,
    quant_offset2=None,
    kv_padding_size=None,
    num_heads=1,
    scale_value=1.0,
    input_layout="BSH",
    num_key_value_heads=0,
    block_size=0,
    inner_precise=1,
) -> Tensor:
    r"""
    Attention of one step over what came before, softmax(scale_value * query key' + mask) value.

    Args:
        query: float16 or bfloat16, of the layout of ``input_layout``, of one position; at most 256 heads.
        key: of the dtype of ``query`` or int8. With ``block_table`` a cache: (blocks, block_size, heads * width), or
            (blocks, heads, block_size, width) for BNSD.
        value: like ``key``.
        padding_mask: must be None.
        atten_mask: bool, int8 or uint8; not 0 hides; (batch, keys), with or without ones in between.
        pse_shift: must be None; where it is added is not documented.
        actual_seq_lengths: positions of each key; one number stands for all.
        antiquant_scale: of an int8 key and value: a number = (integer + offset) * scale; (2, elements of all heads),
            with ones in between or not: first of the key, then of the value.
        antiquant_offset: like ``antiquant_scale``.
        block_table: int32, (batch, columns): the blocks of each sequence, in order; needs ``actual_seq_lengths``.
        dequant_scale1: must be None.
        quant_scale1: must be None.
        dequant_scale2: must be None.
        quant_scale2: must be None.
        quant_offset2: must be None.
        kv_padding_size: one integer: unused positions behind each key, which then ends there.
        num_heads: heads of the query.
        scale_value: factor of the products.
        input_layout: BSH, BNSD or BSND.
        num_key_value_heads: heads of key and value, which divide those of the query; 0: as many.
        block_size: positions of a block of the cache.
        inner_precise: without effect; sums are made in fp32.

    Returns:
        The result, of the shape and dtype of ``query``.

    Raises:
        RuntimeError: for dtypes, shapes and lengths that do not fit.
        NotImplementedError: for results in small integers, and for what has no documented meaning.
    """
    name = "npu_incre_flash_attention"
    check_none(name, "it is reserved", padding_mask=padding_mask)
    check_none(name, "where it is added is not documented", pse_shift=pse_shift)
    check_none(
        name,
        "results and products in small integers are not supported",
        dequant_scale1=dequant_scale1,
        quant_scale1=quant_scale1,
        dequant_scale2=dequant_scale2,
        quant_scale2=quant_scale2,
        quant_offset2=quant_offset2,
    )
    layouts = ("BSH", "BNSD", "BSND")
    check(input_layout in layouts, name, f"input_layout must be one of {', '.join(layouts)}, but is '{input_layout}'")
    places = query.shape[2 if input_layout == "BNSD" else 1]
    check(places == 1, name, f"query must be of one position, but is {tuple(query.shape)} of layout {input_layout}")
    if atten_mask is not None:
        check(atten_mask.dim() >= 2, name, f"atten_mask must be (batch, keys), but is {tuple(atten_mask.shape)}")
        atten_mask = atten_mask.reshape(-1, atten_mask.shape[-1])
    small_key = small_value = None
    if antiquant_scale is not None:
        check(
            antiquant_scale.shape[0] == 2,
            name,
            f"antiquant_scale must be (2, ...), but is {tuple(antiquant_scale.shape)}",
        )
        offsets = (None, None) if antiquant_offset is None else antiquant_offset.unbind(0)
        small_key, small_value = (Small(s, o, 0) for s, o in zip(antiquant_scale.unbind(0), offsets, strict=True))
    else:
        check_none(name, "it needs antiquant_scale", antiquant_offset=antiquant_offset)
    call = Inference(
        name,
        query,
        key,
        value,
        num_heads,
        num_key_value_heads or num_heads,
        input_layout,
        scale_value,
        atten_mask,
        key_lengths=actual_seq_lengths,
        block_table=block_table,
        block_size=block_size,
        key_padding=kv_padding_size,
        small_key=small_key,
        small_value=small_value,
        names=_NAMES_INCRE,
    )
    return run(call)[0]
