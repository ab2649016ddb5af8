r"""Results of attention over parts of the keys, put together."""

import torch
from torch import Tensor

from ._attention import wide
from ._checks import FLOATING, check, check_dtype
from ._registration import operator


@operator("npu_attention_update(Tensor[] lse, Tensor[] local_out, int update_type) -> (Tensor, Tensor)")
def npu_attention_update(lse, local_out, update_type) -> tuple[Tensor, Tensor]:
    r"""
    The attention over all keys, from the attention over each of several parts of them.

    Args:
        lse: the logarithm of the sum of exponentials of each row, (rows), float32; of 1 to 16 parts.
        local_out: the results of the parts, (rows, width); float16, bfloat16 or float32. The width is a multiple of 8
            from 8 to 512.
        update_type: 0: the second result is empty; 1: it is the logarithm of all sums.

    Returns:
        The result, (rows, width), of the dtype of ``local_out``, and the logarithms, (rows), float32, or an empty
        tensor.

    Raises:
        RuntimeError: for numbers of parts, shapes or dtypes that do not fit.
    """
    name = "npu_attention_update"
    check(1 <= len(lse) <= 16, name, f"lse must have 1 to 16 parts, but has {len(lse)}")
    check(len(lse) == len(local_out), name, f"lse has {len(lse)} parts, but local_out has {len(local_out)}")
    check(update_type in (0, 1), name, f"update_type must be 0 or 1, but is {update_type}")
    for sums, part in zip(lse, local_out, strict=True):
        check_dtype(name, "lse", sums, (torch.float32,))
        check_dtype(name, "local_out", part, FLOATING)
        check(
            sums.dim() == 1 and part.dim() == 2 and part.shape[0] == sums.shape[0] and part.dtype == local_out[0].dtype,
            name,
            f"lse must be (rows) and local_out (rows, width) of one dtype, but are {tuple(sums.shape)} and "
            f"{tuple(part.shape)}",
        )
        check(
            part.shape[1] % 8 == 0 and 8 <= part.shape[1] <= 512,
            name,
            f"the width of local_out must be a multiple of 8 from 8 to 512, but is {part.shape[1]}",
        )
    stacked = torch.stack(list(lse))
    total = torch.logsumexp(stacked, 0)
    # A row that no part saw has no weight anywhere.
    weights = torch.exp(stacked - total.masked_fill(total == float("-inf"), 0))
    parts = torch.stack([wide(part) for part in local_out])
    # A part without weight may hold anything.
    parts = parts.masked_fill((weights == 0).unsqueeze(-1), 0)
    out = (parts * weights.unsqueeze(-1)).sum(0).to(local_out[0].dtype)
    return out, total if update_type == 1 else total.new_empty(0)


@operator(
    "npu_ring_attention_update(Tensor prev_attn_out, Tensor prev_softmax_max, Tensor prev_softmax_sum, "
    "Tensor cur_attn_out, Tensor cur_softmax_max, Tensor cur_softmax_sum, *, Tensor? actual_seq_qlen=None, "
    "str input_layout='SBH', str input_softmax_layout='') -> (Tensor, Tensor, Tensor)"
)
def npu_ring_attention_update(
    prev_attn_out,
    prev_softmax_max,
    prev_softmax_sum,
    cur_attn_out,
    cur_softmax_max,
    cur_softmax_sum,
    *,
    actual_seq_qlen=None,
    input_layout="SBH",
    input_softmax_layout="",
) -> tuple[Tensor, Tensor, Tensor]:
    r"""
    Two results of ``npu_fusion_attention`` over different keys, as one over all of them.

    Args:
        prev_attn_out: a result, (queries, batch, heads * width), or (positions, heads, width) of layout TND; float16,
            bfloat16 or float32.
        prev_softmax_max: its maxima, (batch, heads, queries, 8), or (positions, heads, 8); float32.
        prev_softmax_sum: its sums, like them.
        cur_attn_out: the other result.
        cur_softmax_max: its maxima.
        cur_softmax_sum: its sums.
        actual_seq_qlen: the ends of the sequences of TND, a tensor of int64; needed to find the statistics where these
            lie by sequence, then head, then position. It is read on the host then.
        input_layout: SBH or TND.
        input_softmax_layout: TND where the statistics lie by position first; else by sequence.

    Returns:
        The result, its maxima and its sums, of the shapes and dtypes of the first three arguments. A row that neither
        saw any key is 0.

    Raises:
        RuntimeError: for shapes, dtypes or layouts that do not fit.
    """
    name = "npu_ring_attention_update"
    statistics = (prev_softmax_max, prev_softmax_sum, cur_softmax_max, cur_softmax_sum)
    for argument, tensor in (("prev_attn_out", prev_attn_out), ("cur_attn_out", cur_attn_out)):
        check_dtype(name, argument, tensor, FLOATING)
    check(
        prev_attn_out.shape == cur_attn_out.shape and prev_attn_out.dim() == 3,
        name,
        "prev_attn_out and cur_attn_out must be of one shape of three dimensions, but are "
        f"{tuple(prev_attn_out.shape)} "
        f"and {tuple(cur_attn_out.shape)}",
    )
    check(input_layout in ("SBH", "TND"), name, f"input_layout must be SBH or TND, but is '{input_layout}'")
    check(
        input_softmax_layout in ("", "TND"),
        name,
        f"input_softmax_layout must be '' or TND, but is '{input_softmax_layout}'",
    )
    for tensor in statistics:
        check_dtype(name, "statistics", tensor, (torch.float32,))
        check(
            tensor.shape == prev_softmax_max.shape and tensor.dim() == (4 if input_layout == "SBH" else 3),
            name,
            f"maxima and sums must be of one shape, (batch, heads, queries, 8) or (positions, heads, 8), but are "
            f"{[tuple(t.shape) for t in statistics]}",
        )
    if input_layout == "SBH":
        queries, batch, _ = prev_attn_out.shape
        fits = prev_softmax_max.shape[0] == batch and prev_softmax_max.shape[2] == queries
    else:
        fits = prev_softmax_max.shape[:2] == prev_attn_out.shape[:2]
    check(
        fits, name, f"statistics of {tuple(prev_softmax_max.shape)} don't fit results of {tuple(prev_attn_out.shape)}"
    )
    # A row that saw nothing has the sum 0, and whatever maximum.
    old_max, new_max = (
        top.masked_fill(total == 0, float("-inf"))
        for top, total in ((prev_softmax_max, prev_softmax_sum), (cur_softmax_max, cur_softmax_sum))
    )
    top = torch.maximum(old_max, new_max)
    top = top.masked_fill(top == float("-inf"), 0)
    old, new = prev_softmax_sum * torch.exp(old_max - top), cur_softmax_sum * torch.exp(new_max - top)
    total = old + new
    divisor = total.masked_fill(total == 0, 1)
    factors = torch.stack([old / divisor, new / divisor])[..., :1]
    if input_layout == "SBH":
        heads = prev_softmax_max.shape[1]
        factors = factors.permute(0, 3, 1, 2, 4)
        split = (heads, prev_attn_out.shape[2] // heads)
        previous, current = (wide(t).unflatten(2, split) for t in (prev_attn_out, cur_attn_out))
        out = (previous * factors[0] + current * factors[1]).flatten(2)
    else:
        if input_softmax_layout == "":
            factors = _by_position(name, factors, actual_seq_qlen)
        out = wide(prev_attn_out) * factors[0] + wide(cur_attn_out) * factors[1]
    return out.to(prev_attn_out.dtype), top, total


def _by_position(name: str, factors: Tensor, ends: Tensor | None) -> Tensor:
    r"""Statistics of (2, positions, heads, 1), of which each sequence lies by head first, by position first."""
    check(ends is not None, name, "layout TND needs actual_seq_qlen")
    _, total, heads, _ = factors.shape
    flat = factors.reshape(2, total * heads, 1)
    parts, start = [], 0
    assert ends is not None
    for end in (*ends.tolist(), total):
        if end > start:
            part = flat[:, start * heads : end * heads]
            parts.append(part.unflatten(1, (heads, end - start)).transpose(1, 2))
            start = end
    return torch.cat(parts, 1)
