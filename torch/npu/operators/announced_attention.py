r"""What npu_fusion_attention_v3 writes its results into, and the memory that it works in."""

import torch
from torch import Tensor

from ._checks import check
from ._registration import operator
from .fusion_attention import _FIVE, _grad_v3, _v3

_STATISTICS = 8


@operator(
    "_npu_fusion_attention_v3_infer_output(Tensor query, Tensor key, Tensor value, int head_num, str input_layout) -> "
    "(Tensor, Tensor, Tensor)"
)
def _npu_fusion_attention_v3_infer_output(query, key, value, head_num, input_layout) -> tuple[Tensor, Tensor, Tensor]:
    r"""
    Empty tensors for the first three results of :func:`npu_fusion_attention_v3`.

    Args:
        query: as there.
        key: as there.
        value: as there.
        head_num: as there.
        input_layout: as there.

    Returns:
        Tensors of the shapes and dtypes of its results.
    """
    name = "_npu_fusion_attention_v3_infer_output"
    layouts = ("BSH", "SBH", "BSND", "BNSD", "TND")
    check(input_layout in layouts, name, f"input_layout must be one of {', '.join(layouts)}, but is '{input_layout}'")
    check(
        query.dim() == len(input_layout),
        name,
        f"query of layout {input_layout} must have {len(input_layout)} dimensions, but is {tuple(query.shape)}",
    )
    sizes = dict(zip(input_layout, query.shape, strict=True))
    if "H" in sizes:
        check(query.shape[2] % head_num == 0, name, f"query must have {head_num} heads, but is {tuple(query.shape)}")
        key_heads = key.shape[2] // (query.shape[2] // head_num)
        shape = (*query.shape[:2], value.shape[2] // key_heads * head_num)
    else:
        shape = (*query.shape[:-1], value.shape[-1])
    rows = (sizes["T"], head_num) if "T" in sizes else (sizes["B"], head_num, sizes["S"])
    statistics = query.new_empty((*rows, _STATISTICS), dtype=torch.float32)
    return query.new_empty(shape), statistics, torch.empty_like(statistics)


@operator(
    "_npu_fusion_attention_grad_v3_infer_output(Tensor query, Tensor key, Tensor value, Tensor? pse=None, "
    f"Tensor? sink=None) -> {_FIVE}"
)
def _npu_fusion_attention_grad_v3_infer_output(
    query, key, value, pse=None, sink=None
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    r"""
    Empty tensors for the results of :func:`npu_fusion_attention_grad_v3`.

    Args:
        query: as there.
        key: as there.
        value: as there.
        pse: as there.
        sink: as there.

    Returns:
        Tensors of the shapes and dtypes of its results.
    """
    dpse, dsink = (query.new_empty(0) if t is None else torch.empty_like(t) for t in (pse, sink))
    return torch.empty_like(query), torch.empty_like(key), torch.empty_like(value), dpse, dsink


def _memory(query: Tensor) -> Tensor:
    return query.new_empty(0, dtype=torch.uint8)


@operator(f"_npu_fusion_attention_v3_get_max_workspace({_v3('int')}) -> Tensor")
def _npu_fusion_attention_v3_get_max_workspace(query, *args, **kwargs) -> Tensor:
    r"""
    Memory that :func:`npu_fusion_attention_v3` works in: none, as its steps take their own.

    Args:
        query: as there.
        key: as there.
        value: as there.
        head_num: as there.
        input_layout: as there.
        pse: as there.
        padding_mask: as there.
        atten_mask: as there.
        scale: as there.
        keep_prob: as there.
        pre_tockens: as there.
        next_tockens: as there.
        inner_precise: as there.
        prefix: as there.
        actual_seq_qlen: as there.
        actual_seq_kvlen: as there.
        sparse_mode: as there.
        gen_mask_parallel: as there.
        sync: as there.
        softmax_layout: as there.
        sink: as there.

    Returns:
        An empty tensor.
    """
    return _memory(query)


@operator(f"_npu_fusion_attention_grad_v3_get_max_workspace({_grad_v3('int')}) -> Tensor")
def _npu_fusion_attention_grad_v3_get_max_workspace(query, *args, **kwargs) -> Tensor:
    r"""
    Memory that :func:`npu_fusion_attention_grad_v3` works in: none, as its steps take their own.

    Args:
        query: as there.
        key: as there.
        value: as there.
        dy: as there.
        head_num: as there.
        input_layout: as there.
        pse: as there.
        padding_mask: as there.
        atten_mask: as there.
        softmax_max: as there.
        softmax_sum: as there.
        softmax_in: as there.
        attention_in: as there.
        scale_value: as there.
        keep_prob: as there.
        pre_tockens: as there.
        next_tockens: as there.
        inner_precise: as there.
        seed: as there.
        offset: as there.
        prefix: as there.
        actual_seq_qlen: as there.
        actual_seq_kvlen: as there.
        sparse_mode: as there.
        gen_mask_parallel: as there.
        sync: as there.
        softmax_layout: as there.
        sink: as there.

    Returns:
        An empty tensor.
    """
    return _memory(query)
