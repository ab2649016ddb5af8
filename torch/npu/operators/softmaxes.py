r"""Softmaxes of attention scores that stand by themselves."""

import torch
from torch import Tensor

from ._attention import wide
from ._checks import FLOATING, check, check_dtype
from ._registration import operator


@operator("npu_attn_softmax_(Tensor(a!) self) -> Tensor(a!)")
def npu_attn_softmax_(self) -> Tensor:
    r"""
    The softmax of the last dimension, in place; sums are made in fp32.

    Args:
        self: scores, float16, bfloat16 or float32; is written.

    Returns:
        ``self``.
    """
    check_dtype("npu_attn_softmax_", "self", self, FLOATING)
    return self.copy_(torch.softmax(self.float(), -1))


@operator("npu_attn_softmax_backward_(Tensor(a!) self, Tensor grad_output, Tensor values) -> Tensor(a!)")
def npu_attn_softmax_backward_(self, grad_output, values) -> Tensor:
    r"""
    The gradient of scores whose softmax was multiplied with values, in the place of the softmax.

    Args:
        self: the softmax, (..., queries, keys), float16, bfloat16 or float32; is written.
        grad_output: the gradient of the product, (..., queries, width).
        values: (..., keys, width).

    Returns:
        ``self``.

    Raises:
        RuntimeError: for shapes and dtypes that do not fit.
    """
    name = "npu_attn_softmax_backward_"
    check_dtype(name, "self", self, FLOATING)
    grad = wide(grad_output) @ wide(values).transpose(-1, -2)
    check(
        grad.shape == self.shape,
        name,
        f"grad_output and values must give {tuple(self.shape)}, but are {tuple(grad_output.shape)} and "
        f"{tuple(values.shape)}",
    )
    weights = wide(self)
    return self.copy_(weights * (grad - (grad * weights).sum(-1, keepdim=True)))


@operator(
    "npu_masked_softmax_with_rel_pos_bias(Tensor x, Tensor? atten_mask, Tensor relative_pos_bias, "
    "float scale_value=1.0, int inner_precision_mode=0) -> Tensor"
)
def npu_masked_softmax_with_rel_pos_bias(
    x, atten_mask, relative_pos_bias, scale_value=1.0, inner_precision_mode=0
) -> Tensor:
    r"""
    The softmax of window attention, of scale_value * x + atten_mask + relative_pos_bias; sums are made in fp32.

    Args:
        x: (batch, windows, heads, queries, keys), or (batch * windows, heads, queries, keys); float16, bfloat16 or
            float32.
        atten_mask: added to the scores of each window: (windows, queries, keys), (windows, 1, queries, keys) or
            (1, windows, 1, queries, keys), of the dtype of ``x``.
        relative_pos_bias: added to those of each head: (heads, queries, keys), with or without ones before them, of the
            dtype of ``x``.
        scale_value: factor of ``x``.
        inner_precision_mode: without effect.

    Returns:
        The weights, of the shape and dtype of ``x``.

    Raises:
        RuntimeError: for shapes and dtypes that do not fit.
    """
    name = "npu_masked_softmax_with_rel_pos_bias"
    check_dtype(name, "x", x, FLOATING)
    check(x.dim() in (4, 5), name, f"x must have four or five dimensions, but is {tuple(x.shape)}")
    heads, places = x.shape[-3], tuple(x.shape[-2:])
    check_dtype(name, "relative_pos_bias", relative_pos_bias, (x.dtype,))
    check(
        relative_pos_bias.numel() == heads * places[0] * places[1] and tuple(relative_pos_bias.shape[-2:]) == places,
        name,
        f"relative_pos_bias must be {(heads, *places)}, but is {tuple(relative_pos_bias.shape)}",
    )
    scores = wide(x) * scale_value
    if atten_mask is not None:
        check_dtype(name, "atten_mask", atten_mask, (x.dtype,))
        check(
            tuple(atten_mask.shape[-2:]) == places and atten_mask.dim() in (3, 4, 5),
            name,
            f"atten_mask must be (windows, {places[0]}, {places[1]}), but is {tuple(atten_mask.shape)}",
        )
        mask = wide(atten_mask).reshape(-1, 1, *places)
        windows = mask.shape[0]
        fits = x.shape[1] == windows if x.dim() == 5 else windows > 0 and x.shape[0] % windows == 0
        check(fits, name, f"atten_mask of {windows} windows doesn't fit x, which is {tuple(x.shape)}")
        scores = (scores.reshape(-1, windows, heads, *places) + mask).reshape(x.shape)
    return torch.softmax(scores + wide(relative_pos_bias).reshape(heads, *places), -1).to(x.dtype)
