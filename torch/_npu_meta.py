r"""Results of meta and fake tensors laid out as the kernels of CPU and npu lay them out.

Upstream takes Python decompositions for meta functions. One of several steps often arranges its result in another way
than the kernel, and some look at the gradient where the kernel looks at the input. Here upstream's function checks the
operands and tells shape and dtype, and only the strides are told anew. torch._meta_registrations asks for
:func:`corrected` before it registers its table; nothing here needs a device.
"""

import functools
from collections.abc import Callable
from typing import Any

from torch._dispatch.python import enable_python_dispatcher
from torch._prims_common import (
    compute_elementwise_output_strides,
    get_computation_dtype,
    infer_size,
    is_non_overlapping_and_dense_or_false,
    suggest_memory_format,
)

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
# Marked as such, but a contiguous copy is made and written to: upstream's meta functions say so.
_COPIED_FIRST = (aten.masked_fill.Scalar, aten.masked_fill.Tensor)
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
# Whose images without a batch have as many dimensions as the images of other operators with one.
_VOLUMES = (aten.replication_pad3d_backward.default,)
# The first result lies as this argument does, where the losses are not reduced.
_LIKE_INPUT = {
    aten.binary_cross_entropy.default: 0,
    aten.binary_cross_entropy_backward.default: 1,
}
# The second and the third result are statistics of the first argument, in half precision where all operands are.
_NORMALISATIONS = (
    aten._batch_norm_with_update.default,
    aten._native_batch_norm_legit.default,
    aten._native_batch_norm_legit.no_stats,
    aten.native_batch_norm.default,
    aten.native_group_norm.default,
    aten.native_layer_norm.default,
)


def _surely(condition: Any) -> bool:
    r"""A condition on sizes; False where they are symbols of which it is not known."""
    from torch.fx.experimental.symbolic_shapes import guard_or_false  # costs time where nothing is traced

    return guard_or_false(condition)


def conv_memory_format(image: torch.Tensor, weight: torch.Tensor) -> torch.memory_format:
    r"""The memory format of a convolution's result: channels-last where the image's strides or the weight's are."""
    if image.dim() in (4, 5):
        for t in (image, weight):
            if suggest_memory_format(t) is not torch.contiguous_format:
                return torch.channels_last if image.dim() == 4 else torch.channels_last_3d
    return torch.contiguous_format


def _formatted(
    t: torch.Tensor | None, memory_format: torch.memory_format, dtype: torch.dtype | None = None
) -> torch.Tensor | None:
    if t is None:
        return None
    return torch.empty(t.shape, dtype=dtype or t.dtype, device=t.device, memory_format=memory_format)


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


def _is_pointwise(op: Any) -> bool:
    r"""Whether a function of the table is of an operator of one result, of which each element follows from the elements
    at its place."""
    if not isinstance(op, torch._ops.OpOverload) or torch.Tag.pointwise not in op.tags or op in _COPIED_FIRST:
        return False
    schema = op._schema
    composite = torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), "CompositeImplicitAutograd")
    return (
        not composite  # their parts are announced
        and not schema.is_mutable
        and len(schema.returns) == 1
        and isinstance(schema.returns[0].type, torch.TensorType)
        and all(a.name != "memory_format" for a in schema.arguments)
    )


def _pointwise(upstream: Callable) -> Callable:
    r"""Upstream converts operands to the dtype that it computes in first, which gives elements to expanded ones; the
    kernels look at the operands that they are given."""
    anew = _elementwise(upstream)

    @functools.wraps(upstream)
    def meta(*args, **kwargs):
        operands = [t for t in args if isinstance(t, torch.Tensor) and t.dim()]
        known = len(operands) < 2 or all(is_non_overlapping_and_dense_or_false(t) for t in operands)
        # Without Python's dispatcher an operand cannot be expanded to a size that is a symbol.
        with enable_python_dispatcher():
            return (upstream if known else anew)(*args, **kwargs)

    return meta


def _contiguous(upstream: Callable) -> Callable:
    @functools.wraps(upstream)
    def meta(*args, **kwargs):
        return _first_formatted(upstream(*args, **kwargs), torch.contiguous_format)

    return meta


def _like_image(op: torch._ops.OpOverload, place: int, upstream: Callable) -> Callable:
    names = [a.name for a in op._schema.arguments]
    normalises = place == 0 and "training" in names
    batched = 5 if op in _VOLUMES else 4

    @functools.wraps(upstream)
    def meta(*args, **kwargs):
        image = _argument(op, place, args, kwargs)
        memory_format = suggest_memory_format(image) if image.dim() >= batched else torch.contiguous_format
        result = _first_formatted(upstream(*args, **kwargs), memory_format)
        if normalises and not _argument(op, names.index("training"), args, kwargs):
            # In evaluation no statistics of the batch are saved.
            return result[0], result[1].new_empty(0), result[2].new_empty(0)
        return result

    return meta


def _like_input(op: torch._ops.OpOverload, place: int, upstream: Callable) -> Callable:
    @functools.wraps(upstream)
    def meta(*args, **kwargs):
        result = upstream(*args, **kwargs)
        model = _argument(op, place, args, kwargs)
        return torch.empty_like(model, dtype=result.dtype) if result.shape == model.shape else result

    return meta


def _ldexp(upstream: Callable) -> Callable:
    @functools.wraps(upstream)
    def meta(self, other):
        result = upstream(self, other)
        if other.dim() == 0:
            return result
        # 2 ** other is a power of a number, which is contiguous, or of a tensor of self's dtype, which lies as other.
        by_number = self.dtype is torch.float32 or not (self.is_floating_point() or self.is_complex())
        powers = (other.new_empty(other.shape) if by_number else torch.empty_like(other)).expand(result.shape)
        operands = [self.expand(result.shape), powers] if self.dim() else [powers]
        return result.new_empty_strided(result.shape, compute_elementwise_output_strides(*operands))

    return meta


def _roll(upstream: Callable) -> Callable:
    @functools.wraps(upstream)
    def meta(self, shifts, dims=()):
        result = upstream(self, shifts, dims)
        if not dims or _surely(self.numel() == 0):
            return result
        stays = any(_surely(shift % self.shape[dim] == 0) for shift, dim in zip(shifts, dims, strict=True))
        return _formatted(self, torch.contiguous_format if stays else suggest_memory_format(self))

    return meta


def _view_copy(upstream: Callable) -> Callable:
    @functools.wraps(upstream)
    def meta(self, size):
        return self.new_empty(infer_size(size, self.numel()))

    return meta


def _without_conjugate(upstream: Callable) -> Callable:
    r"""The CPU's kernel may mark its result as a conjugate, npu's does not."""

    @functools.wraps(upstream)
    def meta(*args, **kwargs):
        from torch._meta_registrations import device_hint  # which is being loaded when this module is

        result = upstream(*args, **kwargs)
        if result.is_conj() and device_hint(result) == "npu":
            return result.new_empty_strided(result.shape, result.stride())
        return result

    return meta


def _statistics(upstream: Callable) -> Callable:
    @functools.wraps(upstream)
    def meta(*args, **kwargs):
        output, *statistics = upstream(*args, **kwargs)
        image, *parameters = [t for t in (*args, *kwargs.values()) if isinstance(t, torch.Tensor)]
        mixed = any(t.dtype != image.dtype for t in parameters)
        dtype = get_computation_dtype(image.dtype) if mixed else image.dtype
        saved = [t if t.dtype == dtype else torch.empty_like(t, dtype=dtype) for t in statistics[:2]]
        return (output, *saved, *statistics[2:])

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
        first, *others = upstream(*args, **kwargs)  # the first in the parameters' dtype, where that is wider
        return (_formatted(first, memory_format, image.dtype), *others)

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
        if any(_surely(size == 0) for size in image.shape[:2]):
            # No kernel runs: the gradients are zeros_like() of the operands.
            operands = zip(gradients, (image, weight), strict=True)
            return (*(None if g is None else torch.empty_like(t) for g, t in operands), bias)
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
    new = {op: _pointwise(upstream) for op, upstream in table.items() if _is_pointwise(op)}
    new.update((op, _elementwise(table[op])) for op in _ELEMENTWISE)
    new.update((op, _contiguous(table[op])) for op in _CONTIGUOUS)
    new.update((op, _like_image(op, place, table[op])) for op, place in _LIKE_IMAGE.items())
    new.update((op, _like_input(op, place, table[op])) for op, place in _LIKE_INPUT.items())
    for op, place in ((aten.native_group_norm.default, 0), (aten.native_group_norm_backward.default, 1)):
        new[op] = _group_norm(op, place, table[op])
    for op in (aten.convolution.default, aten._convolution.default):
        new[op] = _convolution(op, table[op])
    op = aten.convolution_backward.default
    new[op] = _convolution_backward(op, table[op])
    for op in _NORMALISATIONS:
        new[op] = _statistics(new.get(op, table[op]))
    for op, change in (
        (aten.ldexp.Tensor, _ldexp),
        (aten.dot.default, _without_conjugate),
        (aten.linalg_lu_solve.default, _without_conjugate),
        (aten.roll.default, _roll),
        (aten.vdot.default, _without_conjugate),
        (aten.view_copy.default, _view_copy),
    ):
        new[op] = change(table[op])
    op = aten._native_multi_head_attention.default
    new[op] = _attention(op, table[op])
    return new
