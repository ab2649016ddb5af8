r"""Further forms of npu_fusion_attention: with a rotated part of the heads (v2), and with tensors for numbers (v3)."""

import torch
from torch import Tensor

from ._checks import check, check_none
from ._registration import operator

_V2_TAIL = (
    "int inner_precise=0, int[]? prefix=None, int[]? actual_seq_qlen=None, int[]? actual_seq_kvlen=None, "
    "int sparse_mode=0, bool gen_mask_parallel=True, bool sync=False, int pse_type=1, int[]? q_start_idx=None, "
    "int[]? kv_start_idx=None, str softmax_layout='', Tensor? sink=None"
)
_GRAD_INPUTS = (
    "Tensor? pse=None, Tensor? padding_mask=None, Tensor? atten_mask=None, Tensor? softmax_max=None, "
    "Tensor? softmax_sum=None, Tensor? softmax_in=None, Tensor? attention_in=None"
)


def _v3(prefix: str) -> str:
    return (
        "Tensor query, Tensor key, Tensor value, int head_num, str input_layout, Tensor? pse=None, "
        "Tensor? padding_mask=None, Tensor? atten_mask=None, float scale=1.0, float keep_prob=1.0, "
        "int pre_tockens=2147483647, int next_tockens=2147483647, int inner_precise=0, "
        f"{prefix}[]? prefix=None, Tensor? actual_seq_qlen=None, Tensor? actual_seq_kvlen=None, int sparse_mode=0, "
        "bool gen_mask_parallel=True, bool sync=False, str softmax_layout='', Tensor? sink=None"
    )


def _grad_v3(prefix: str) -> str:
    return (
        f"Tensor query, Tensor key, Tensor value, Tensor dy, int head_num, str input_layout, *, {_GRAD_INPUTS}, "
        "float scale_value=1.0, float keep_prob=1.0, int pre_tockens=2147483647, int next_tockens=2147483647, "
        f"int inner_precise=0, Tensor? seed=None, Tensor? offset=None, {prefix}[]? prefix=None, "
        "Tensor? actual_seq_qlen=None, Tensor? actual_seq_kvlen=None, int sparse_mode=0, bool gen_mask_parallel=True, "
        "bool sync=False, str softmax_layout='', Tensor? sink=None"
    )


_FIVE = "(Tensor, Tensor, Tensor, Tensor, Tensor)"


def _with_rope(name: str, what: str, tensor: Tensor, rope: Tensor, layout: str, heads: int) -> Tensor:
    r"""Heads with a further part."""
    if layout not in ("BSH", "SBH"):
        return torch.cat([tensor, rope], -1)
    check(
        tensor.shape[2] % heads == 0 and rope.shape[2] % heads == 0,
        name,
        f"{what} and {what}_rope must have {heads} heads, but are {tuple(tensor.shape)} and {tuple(rope.shape)}",
    )
    parts = [t.unflatten(2, (heads, t.shape[2] // heads)) for t in (tensor, rope)]
    return torch.cat(parts, -1).flatten(2)


def _without_rope(grad: Tensor, rope: Tensor, layout: str, heads: int) -> tuple[Tensor, Tensor]:
    r"""The gradients of heads and of their further part."""
    if layout not in ("BSH", "SBH"):
        width = rope.shape[-1]
        return grad[..., :-width].contiguous(), grad[..., -width:].contiguous()
    width = rope.shape[2] // heads
    split = grad.unflatten(2, (heads, grad.shape[2] // heads))
    return split[..., :-width].flatten(2), split[..., -width:].flatten(2)


def _joined(name, query, key, head_num, input_layout, query_rope, key_rope) -> tuple[Tensor, Tensor, int]:
    r"""Query and key with their further parts, and the heads of the key."""
    check((query_rope is None) == (key_rope is None), name, "query_rope and key_rope go together")
    if query_rope is None:
        return query, key, head_num
    key_heads = head_num
    if input_layout in ("BSH", "SBH"):
        check(query.shape[2] % head_num == 0, name, f"query must have {head_num} heads, but is {tuple(query.shape)}")
        key_heads = key.shape[2] // (query.shape[2] // head_num)
    return (
        _with_rope(name, "query", query, query_rope, input_layout, head_num),
        _with_rope(name, "key", key, key_rope, input_layout, key_heads),
        key_heads,
    )


def _check_v2(name: str, pse_type: int, q_start_idx, kv_start_idx) -> None:
    if pse_type != 1:
        raise NotImplementedError(f"{name}: pse_type {pse_type} is not documented; only 1 is supported")
    check_none(name, "its meaning is not documented", q_start_idx=q_start_idx, kv_start_idx=kv_start_idx)


@operator(
    "npu_fusion_attention_v2(Tensor query, Tensor key, Tensor value, int head_num, str input_layout, *, Tensor? "
    "pse=None, "
    "Tensor? padding_mask=None, Tensor? atten_mask=None, Tensor? query_rope=None, Tensor? key_rope=None, "
    "float scale=1.0, float keep_prob=1.0, int pre_tokens=2147483647, int next_tokens=2147483647, "
    f"{_V2_TAIL}, Tensor? dropout_mask=None, int seed=0, int offset=0) -> (Tensor, Tensor, Tensor, Tensor, int, "
    "int, int)"
)
def npu_fusion_attention_v2(
    query,
    key,
    value,
    head_num,
    input_layout,
    *,
    pse=None,
    padding_mask=None,
    atten_mask=None,
    query_rope=None,
    key_rope=None,
    scale=1.0,
    keep_prob=1.0,
    pre_tokens=2147483647,
    next_tokens=2147483647,
    inner_precise=0,
    prefix=None,
    actual_seq_qlen=None,
    actual_seq_kvlen=None,
    sparse_mode=0,
    gen_mask_parallel=True,
    sync=False,
    pse_type=1,
    q_start_idx=None,
    kv_start_idx=None,
    softmax_layout="",
    sink=None,
    dropout_mask=None,
    seed=0,
    offset=0,
) -> tuple[Tensor, Tensor, Tensor, Tensor, int, int, int]:
    r"""
    ``npu_fusion_attention`` whose heads may have a further, rotated part.

    Args:
        query: as of ``npu_fusion_attention``.
        key: as there.
        value: as there.
        head_num: as there.
        input_layout: as there.
        pse: as there.
        padding_mask: must be None.
        atten_mask: as there.
        query_rope: a further part of the heads of the query, of the same layout.
        key_rope: that of the key.
        scale: as there.
        keep_prob: as there.
        pre_tokens: ``pre_tockens`` there.
        next_tokens: ``next_tockens`` there.
        inner_precise: without effect.
        prefix: as there.
        actual_seq_qlen: as there.
        actual_seq_kvlen: as there.
        sparse_mode: as there.
        gen_mask_parallel: without effect.
        sync: without effect.
        pse_type: must be 1: ``pse`` is added to the products before they are scaled.
        q_start_idx: must be None.
        kv_start_idx: must be None.
        softmax_layout: as there.
        sink: as there.
        dropout_mask: as there.
        seed: as there.
        offset: as there.

    Returns:
        As ``npu_fusion_attention``.

    Raises:
        RuntimeError: as there, and where one further part is missing.
        NotImplementedError: for another ``pse_type``, ``q_start_idx`` and ``kv_start_idx``.
    """
    name = "npu_fusion_attention_v2"
    _check_v2(name, pse_type, q_start_idx, kv_start_idx)
    query, key, _ = _joined(name, query, key, head_num, input_layout, query_rope, key_rope)
    return torch.ops.npu.npu_fusion_attention(
        query,
        key,
        value,
        head_num,
        input_layout,
        pse=pse,
        padding_mask=padding_mask,
        atten_mask=atten_mask,
        scale=scale,
        keep_prob=keep_prob,
        pre_tockens=pre_tokens,
        next_tockens=next_tokens,
        prefix=prefix,
        actual_seq_qlen=actual_seq_qlen,
        actual_seq_kvlen=actual_seq_kvlen,
        sparse_mode=sparse_mode,
        softmax_layout=softmax_layout,
        sink=sink,
        dropout_mask=dropout_mask,
        seed=seed,
        offset=offset,
    )


@operator(
    "npu_fusion_attention_grad_v2(Tensor query, Tensor key, Tensor value, Tensor dy, int head_num, str "
    "input_layout, *, "
    f"{_GRAD_INPUTS}, Tensor? query_rope=None, Tensor? key_rope=None, float scale_value=1.0, float keep_prob=1.0, "
    "int pre_tokens=2147483647, int next_tokens=2147483647, int inner_precise=0, int seed=0, int offset=0, int "
    "numels=0, "
    f"{_V2_TAIL.removeprefix('int inner_precise=0, ')}) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)"
)
def npu_fusion_attention_grad_v2(
    query,
    key,
    value,
    dy,
    head_num,
    input_layout,
    *,
    pse=None,
    padding_mask=None,
    atten_mask=None,
    softmax_max=None,
    softmax_sum=None,
    softmax_in=None,
    attention_in=None,
    query_rope=None,
    key_rope=None,
    scale_value=1.0,
    keep_prob=1.0,
    pre_tokens=2147483647,
    next_tokens=2147483647,
    inner_precise=0,
    seed=0,
    offset=0,
    numels=0,
    prefix=None,
    actual_seq_qlen=None,
    actual_seq_kvlen=None,
    sparse_mode=0,
    gen_mask_parallel=True,
    sync=False,
    pse_type=1,
    q_start_idx=None,
    kv_start_idx=None,
    softmax_layout="",
    sink=None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    r"""
    The gradient of :func:`npu_fusion_attention_v2`.

    Args:
        query: as there.
        key: as there.
        value: as there.
        dy: the gradient of its first result.
        head_num: as there.
        input_layout: as there.
        pse: as there.
        padding_mask: must be None.
        atten_mask: as there.
        softmax_max: the second result there, from which weights are made again; as of ``npu_fusion_attention_grad``.
        softmax_sum: the third result there.
        softmax_in: not read.
        attention_in: the first result there.
        query_rope: as there.
        key_rope: as there.
        scale_value: ``scale`` there.
        keep_prob: as there.
        pre_tokens: as there.
        next_tokens: as there.
        inner_precise: without effect.
        seed: that of its results.
        offset: that of its results.
        numels: not read.
        prefix: as there.
        actual_seq_qlen: as there.
        actual_seq_kvlen: as there.
        sparse_mode: as there.
        gen_mask_parallel: without effect.
        sync: without effect.
        pse_type: must be 1.
        q_start_idx: must be None.
        kv_start_idx: must be None.
        softmax_layout: as there.
        sink: as there.

    Returns:
        The gradients of ``query``, ``key``, ``value``, ``pse``, ``query_rope``, ``key_rope`` and ``sink``; empty
        tensors for those that are not given.
    """
    name = "npu_fusion_attention_grad_v2"
    _check_v2(name, pse_type, q_start_idx, kv_start_idx)
    joined_query, joined_key, key_heads = _joined(name, query, key, head_num, input_layout, query_rope, key_rope)
    dq, dk, dv, dpse, dsink = torch.ops.npu.npu_fusion_attention_grad(
        joined_query,
        joined_key,
        value,
        dy,
        head_num,
        input_layout,
        pse=pse,
        padding_mask=padding_mask,
        atten_mask=atten_mask,
        softmax_max=softmax_max,
        softmax_sum=softmax_sum,
        attention_in=attention_in,
        scale_value=scale_value,
        keep_prob=keep_prob,
        pre_tockens=pre_tokens,
        next_tockens=next_tokens,
        seed=seed,
        offset=offset,
        prefix=prefix,
        actual_seq_qlen=actual_seq_qlen,
        actual_seq_kvlen=actual_seq_kvlen,
        sparse_mode=sparse_mode,
        softmax_layout=softmax_layout,
        sink=sink,
    )
    if query_rope is None:
        return dq, dk, dv, dpse, query.new_empty(0), key.new_empty(0), dsink
    dq, dq_rope = _without_rope(dq, query_rope, input_layout, head_num)
    dk, dk_rope = _without_rope(dk, key_rope, input_layout, key_heads)
    return dq, dk, dv, dpse, dq_rope, dk_rope, dsink


def _numbers(tensor: Tensor | None) -> list[int] | None:
    r"""The numbers of a tensor, which the operator takes on the host."""
    return None if tensor is None else tensor.tolist()


@operator(f"npu_fusion_attention_v3({_v3('SymInt')}) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)")
def npu_fusion_attention_v3(
    query,
    key,
    value,
    head_num,
    input_layout,
    pse=None,
    padding_mask=None,
    atten_mask=None,
    scale=1.0,
    keep_prob=1.0,
    pre_tockens=2147483647,
    next_tockens=2147483647,
    inner_precise=0,
    prefix=None,
    actual_seq_qlen=None,
    actual_seq_kvlen=None,
    sparse_mode=0,
    gen_mask_parallel=True,
    sync=False,
    softmax_layout="",
    sink=None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    r"""
    ``npu_fusion_attention`` that takes and gives tensors where that has numbers.

    Sequences of layout TND have lengths that are read on the host, so they aren't for compiled programs.

    Args:
        query: as of ``npu_fusion_attention``.
        key: as there.
        value: as there.
        head_num: as there.
        input_layout: as there.
        pse: as there.
        padding_mask: must be None.
        atten_mask: as there.
        scale: as there.
        keep_prob: as there.
        pre_tockens: as there.
        next_tockens: as there.
        inner_precise: without effect.
        prefix: as there.
        actual_seq_qlen: the ends of the sequences of TND, a tensor of int64 on the CPU.
        actual_seq_kvlen: like it.
        sparse_mode: as there.
        gen_mask_parallel: without effect.
        sync: without effect.
        softmax_layout: as there.
        sink: as there.
        workspace: without effect.
        attention_score: of the form ``.out``: where the first result goes.
        softmax_max: of the form ``.out``: where the second one goes.
        softmax_sum: of the form ``.out``: where the third one goes.
        softmax_out: of the form ``.out``: it is made empty.
        seed: of the form ``.out``: where the fifth one goes.
        offset: of the form ``.out``: where the sixth one goes.

    Returns:
        The first four results of ``npu_fusion_attention``, and the seed and the offset of its dropout, int64, on the
        CPU.
    """
    out, top, total, rest, seed, offset, _ = torch.ops.npu.npu_fusion_attention(
        query,
        key,
        value,
        head_num,
        input_layout,
        pse=pse,
        padding_mask=padding_mask,
        atten_mask=atten_mask,
        scale=scale,
        keep_prob=keep_prob,
        pre_tockens=pre_tockens,
        next_tockens=next_tockens,
        prefix=prefix,
        actual_seq_qlen=_numbers(actual_seq_qlen),
        actual_seq_kvlen=_numbers(actual_seq_kvlen),
        sparse_mode=sparse_mode,
        softmax_layout=softmax_layout,
        sink=sink,
    )
    drawn = (torch.full((1,), number, dtype=torch.int64, device="cpu") for number in (seed, offset))
    return out, top, total, rest, *drawn


@operator(
    f"npu_fusion_attention_v3.out({_v3('int')}, Tensor? workspace=None, *, Tensor(a!) attention_score, "
    "Tensor(b!) softmax_max, Tensor(c!) softmax_sum, Tensor(d!) softmax_out, Tensor(e!) seed, Tensor(f!) offset) -> "
    "(Tensor(a!), Tensor(b!), Tensor(c!), Tensor(d!), Tensor(e!), Tensor(f!))"
)
def npu_fusion_attention_v3_out(
    *args, attention_score, softmax_max, softmax_sum, softmax_out, seed, offset, workspace=None, **kwargs
) -> tuple[Tensor, ...]:
    # The memory to work in is the last argument by position.
    results = npu_fusion_attention_v3(*args[:21], **kwargs)
    targets = (attention_score, softmax_max, softmax_sum, softmax_out, seed, offset)
    return _write(targets, results)


def _write(targets: tuple[Tensor, ...], results: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    for target, result in zip(targets, results, strict=True):
        if result.numel() == 0:
            target.resize_(0)
        else:
            target.copy_(result.view(target.shape))
    return targets


@operator(f"npu_fusion_attention_grad_v3({_grad_v3('SymInt')}) -> {_FIVE}")
def npu_fusion_attention_grad_v3(
    query,
    key,
    value,
    dy,
    head_num,
    input_layout,
    *,
    pse=None,
    padding_mask=None,
    atten_mask=None,
    softmax_max=None,
    softmax_sum=None,
    softmax_in=None,
    attention_in=None,
    scale_value=1.0,
    keep_prob=1.0,
    pre_tockens=2147483647,
    next_tockens=2147483647,
    inner_precise=0,
    seed=None,
    offset=None,
    prefix=None,
    actual_seq_qlen=None,
    actual_seq_kvlen=None,
    sparse_mode=0,
    gen_mask_parallel=True,
    sync=False,
    softmax_layout="",
    sink=None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    r"""
    The gradient of :func:`npu_fusion_attention_v3`. The seed and the offset are read on the host where there is
    dropout.

    Args:
        query: as there.
        key: as there.
        value: as there.
        dy: the gradient of its first result.
        head_num: as there.
        input_layout: as there.
        pse: as there.
        padding_mask: must be None.
        atten_mask: as there.
        softmax_max: the second result there, from which weights are made again; as of ``npu_fusion_attention_grad``.
        softmax_sum: the third result there.
        softmax_in: not read.
        attention_in: the first result there.
        scale_value: ``scale`` there.
        keep_prob: as there.
        pre_tockens: as there.
        next_tockens: as there.
        inner_precise: without effect.
        seed: the fifth result.
        offset: the sixth result.
        prefix: as there.
        actual_seq_qlen: as there.
        actual_seq_kvlen: as there.
        sparse_mode: as there.
        gen_mask_parallel: without effect.
        sync: without effect.
        softmax_layout: as there.
        sink: as there.
        workspace: without effect.
        dq: of the form ``.out``: where the first result goes.
        dk: of the form ``.out``: where the second one goes.
        dv: of the form ``.out``: where the third one goes.
        dpse: of the form ``.out``: where the fourth one goes.
        dsink: of the form ``.out``: where the fifth one goes.

    Returns:
        The gradients of ``query``, ``key``, ``value``, ``pse`` and ``sink``; empty tensors for those that are not
        given.

    Raises:
        RuntimeError: where there is dropout without its seed and offset.
    """
    name = "npu_fusion_attention_grad_v3"
    drawn = keep_prob < 1
    check(not drawn or (seed is not None and offset is not None), name, "keep_prob below 1 needs seed and offset")
    return torch.ops.npu.npu_fusion_attention_grad(
        query,
        key,
        value,
        dy,
        head_num,
        input_layout,
        pse=pse,
        padding_mask=padding_mask,
        atten_mask=atten_mask,
        softmax_max=softmax_max,
        softmax_sum=softmax_sum,
        attention_in=attention_in,
        scale_value=scale_value,
        keep_prob=keep_prob,
        pre_tockens=pre_tockens,
        next_tockens=next_tockens,
        seed=int(seed.item()) if drawn else 0,
        offset=int(offset.item()) if drawn else 0,
        prefix=prefix,
        actual_seq_qlen=_numbers(actual_seq_qlen),
        actual_seq_kvlen=_numbers(actual_seq_kvlen),
        sparse_mode=sparse_mode,
        softmax_layout=softmax_layout,
        sink=sink,
    )


@operator(
    f"npu_fusion_attention_grad_v3.out({_grad_v3('int')}, Tensor? workspace=None, Tensor(a!) dq, Tensor(b!) dk, "
    "Tensor(c!) dv, Tensor(d!) dpse, Tensor(e!) dsink) -> (Tensor(a!), Tensor(b!), Tensor(c!), Tensor(d!), Tensor(e!))"
)
def npu_fusion_attention_grad_v3_out(*args, dq, dk, dv, dpse, dsink, workspace=None, **kwargs) -> tuple[Tensor, ...]:
    return _write((dq, dk, dv, dpse, dsink), npu_fusion_attention_grad_v3(*args, **kwargs))
