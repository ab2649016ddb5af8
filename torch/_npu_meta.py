r"""Results of meta and fake tensors laid out as the kernels of CPU and npu lay them out.

Upstream takes Python decompositions for meta functions. One of several steps often arranges its result in another way
than the kernel, and some look at the gradient where the kernel looks at the input. Here upstream's function checks the
operands and tells shape and dtype, and only the strides are told anew. torch._meta_registrations asks for
:func:`corrected` before it registers its table; nothing here needs a device.
"""

import functools
from collections.abc import Callable
from typing import Any

from torch._prims_common import compute_elementwise_output_strides, suggest_memory_format

import torch

aten = torch.ops.aten

# One pass over all operands: strides are TensorIterator's.
_ELEMENTWISE = (
    aten.copysign.Tensor,
    aten.div.Tensor_mode,
    aten.floor_divide.default,
    aten.hardswish_backward.default,
    aten.hardtanh_backward.default,
    aten.heaviside.default,
    aten.logaddexp.default,
    aten.logical_and.default,
    aten.logical_or.default,
    aten.logical_xor.default,
    aten.logit_backward.default,
    aten.native_dropout_backward.default,
    aten.special_xlog1py.default,
    aten.xlogy.Tensor,
)
# Contiguous whatever the operands are (the first result, where there are several).
_CONTIGUOUS = (
    aten._log_softmax_backward_data.default,
    aten._softmax_backward_data.default,
    aten.glu_backward.default,
    aten.huber_loss_backward.default,
    aten.mse_loss_backward.default,
    aten.nll_loss2d_forward.default,
    aten.normal.Tensor_Tensor,
    aten.pow.Scalar,
    aten.smooth_l1_loss_backward.default,
)
# The first result is channels-last where this argument is, else contiguous.
_LIKE_IMAGE = {
    aten._batch_norm_with_update.default: 0,
    aten._native_batch_norm_legit.default: 0,
    aten._native_batch_norm_legit.no_stats: 0,
    aten.batch_norm_backward.default: 1,
    aten.channel_shuffle.default: 0,
    aten.max_unpool2d.default: 0,
    aten.native_batch_norm.default: 0,
    aten.native_batch_norm_backward.default: 1,
    aten.reflection_pad2d.default: 0,
    aten.reflection_pad2d_backward.default: 1,
    aten.replication_pad2d.default: 0,
    aten.replication_pad2d_backward.default: 1,
    aten.replication_pad3d_backward.default: 1,
}


def conv_memory_format(image: torch.Tensor, weight: torch.Tensor) -> torch.memory_format:
    r"""The memory format of a convolution's result: channels-last where the image's strides or the weight's are."""
    if image.dim() in (4, 5):
        for t in (image, weight):
            if suggest_memory_format(t) is not torch.contiguous_format:
                return torch.channels_last if image.dim() == 4 else torch.channels_last_3d
    return torch.contiguous_format


def _formatted(t: torch.Tensor | None, memory_format: torch.memory_format) -> torch.Tensor | None:
    if t is None:
        return None
    return torch.empty(t.shape, dtype=t.dtype, device=t.device, memory_format=memory_format)


def _first_formatted(result: Any, memory_format: torch.memory_format) -> Any:
    if isinstance(result, torch.Tensor):
        return _formatted(result, memory_format)
    return (_formatted(result[0], memory_format), *result[1:])


def _argument(op: torch._ops.OpOverload, place: int, args: tuple, kwargs: dict) -> Any:
    return args[place] if place < len(args) else kwargs[op._schema.arguments[place].name]


def _elementwise(upstream: Callable) -> Callable:
    @functools.wraps(upstream)
    def meta(*args, **kwargs):
        result = upstream(*args, **kwargs)
        operands = [t for t in (*args, *kwargs.values()) if isinstance(t, torch.Tensor) and t.dim()]
        if not operands:
            return result
        strides = compute_elementwise_output_strides(*(t.expand(result.shape) for t in operands))
        return result.new_empty_strided(result.shape, strides)

    return meta


def _contiguous(upstream: Callable) -> Callable:
    @functools.wraps(upstream)
    def meta(*args, **kwargs):
        return _first_formatted(upstream(*args, **kwargs), torch.contiguous_format)

    return meta


def _like_image(op: torch._ops.OpOverload, place: int, upstream: Callable) -> Callable:
    names = [a.name for a in op._schema.arguments]
    normalises = place == 0 and "training" in names

    @functools.wraps(upstream)
    def meta(*args, **kwargs):
        image = _argument(op, place, args, kwargs)
        result = _first_formatted(upstream(*args, **kwargs), suggest_memory_format(image))
        if normalises and not _argument(op, names.index("training"), args, kwargs):
            # In evaluation no statistics of the batch are saved.
            return result[0], result[1].new_empty(0), result[2].new_empty(0)
        return result

    return meta


def _group_norm(op: torch._ops.OpOverload, place: int, upstream: Callable) -> Callable:
    names = [a.name for a in op._schema.arguments]

    # The operator takes any shape of N x C x HxW elements; only what is a batch by its shape keeps its format.
    @functools.wraps(upstream)
    def meta(*args, **kwargs):
        image = _argument(op, place, args, kwargs)
        batch = tuple(_argument(op, names.index(name), args, kwargs) for name in ("N", "C"))
        is_batch = image.dim() > 1 and tuple(image.shape[:2]) == batch
        memory_format = suggest_memory_format(image) if is_batch else torch.contiguous_format
        return _first_formatted(upstream(*args, **kwargs), memory_format)

    return meta


def _convolved(image: torch.Tensor, weight: torch.Tensor, *results: torch.Tensor | None) -> tuple:
    r"""The results of a convolution laid out by its operands; one dimension is two, the first of one element."""
    if image.dim() != 3:
        memory_format = conv_memory_format(image, weight)
        return tuple(_formatted(t, memory_format) for t in results)
    memory_format = suggest_memory_format(weight.unsqueeze(2))
    return tuple(None if t is None else _formatted(t.unsqueeze(2), memory_format).squeeze(2) for t in results)


def _convolution(op: torch._ops.OpOverload, upstream: Callable) -> Callable:
    @functools.wraps(upstream)
    def meta(*args, **kwargs):
        image, weight = (_argument(op, place, args, kwargs) for place in (0, 1))
        return _convolved(image, weight, upstream(*args, **kwargs))[0]

    return meta


def _convolution_backward(op: torch._ops.OpOverload, upstream: Callable) -> Callable:
    @functools.wraps(upstream)
    def meta(*args, **kwargs):
        image, weight = (_argument(op, place, args, kwargs) for place in (1, 2))
        *gradients, bias = upstream(*args, **kwargs)
        return (*_convolved(image, weight, *gradients), bias)

    return meta


def _attention(op: torch._ops.OpOverload, upstream: Callable) -> Callable:
    need_weights = [a.name for a in op._schema.arguments].index("need_weights")

    @functools.wraps(upstream)
    def meta(*args, **kwargs):
        result, weights = upstream(*args, **kwargs)
        given = args[need_weights] if need_weights < len(args) else kwargs.get("need_weights", True)
        return result, weights if given and result.numel() != 0 else None

    return meta


def corrected(table: dict) -> dict:
    r"""The meta functions of ``table`` (operator to function) that need a correction, corrected."""
    new = {op: _elementwise(table[op]) for op in _ELEMENTWISE}
    new.update((op, _contiguous(table[op])) for op in _CONTIGUOUS)
    new.update((op, _like_image(op, place, table[op])) for op, place in _LIKE_IMAGE.items())
    for op, place in ((aten.native_group_norm.default, 0), (aten.native_group_norm_backward.default, 1)):
        new[op] = _group_norm(op, place, table[op])
    for op in (aten.convolution.default, aten._convolution.default):
        new[op] = _convolution(op, table[op])
    op = aten.convolution_backward.default
    new[op] = _convolution_backward(op, table[op])
    op = aten._native_multi_head_attention.default
    new[op] = _attention(op, table[op])
    return new
