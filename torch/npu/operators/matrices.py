r"""Products with what follows them, gradients of products and of gathers, and copies of tensors."""

import torch
from torch import Tensor

from ._checks import FLOATING, check, check_dtype
from ._registration import operator

_FUSED = {
    "": lambda y: y,
    "relu": torch.relu,
    "gelu_erf": torch.nn.functional.gelu,
    "gelu_tanh": lambda y: torch.nn.functional.gelu(y, approximate="tanh"),
}


@operator(
    "npu_fused_matmul(Tensor x1, Tensor x2, *, Tensor? bias=None, Tensor? x3=None, str fused_op_type='') -> Tensor"
)
def npu_fused_matmul(x1, x2, *, bias=None, x3=None, fused_op_type="") -> Tensor:
    r"""
    x1 @ x2 + bias, and an operator on it. Differentiable.

    Args:
        x1: (..., m, k); float16, bfloat16 or float32.
        x2: (..., k, n), of the dtype of ``x1``.
        bias: broadcast to the product; not with the gelus.
        x3: broadcast to the product, with "add" and "mul"; of the dtype of ``x1``.
        fused_op_type: "", "16cast32", "add", "mul", "relu", "gelu_erf" or "gelu_tanh".

    Returns:
        (..., m, n), of the dtype of ``x1``; float32 for "16cast32".

    Raises:
        RuntimeError: for dtypes or arguments that do not fit.
    """
    name = "npu_fused_matmul"
    kinds = (*_FUSED, "16cast32", "add", "mul")
    check(fused_op_type in kinds, name, f"fused_op_type must be one of {kinds}, but is {fused_op_type!r}")
    check_dtype(name, "x1", x1, FLOATING)
    check_dtype(name, "x2", x2, (x1.dtype,))
    check((x3 is not None) == (fused_op_type in ("add", "mul")), name, "x3 goes with fused_op_type 'add' and 'mul'")
    check(bias is None or not fused_op_type.startswith("gelu"), name, f"{fused_op_type!r} has no bias")
    if fused_op_type in ("16cast32", "gelu_erf", "gelu_tanh"):
        check(x1.dtype is not torch.float32, name, f"{fused_op_type!r} is for torch.float16 and torch.bfloat16")
    out = torch.matmul(x1.float(), x2.float())
    if bias is not None:
        out = out + bias.float()
    if x3 is not None:
        check_dtype(name, "x3", x3, (x1.dtype,))
        out = out + x3.float() if fused_op_type == "add" else out * x3.float()
    if fused_op_type == "16cast32":
        return out
    return _FUSED.get(fused_op_type, _FUSED[""])(out).to(x1.dtype)


@operator("npu_bmm_v2_mat1_backward(Tensor grad, Tensor mat1, Tensor mat2, SymInt[] size) -> Tensor")
def npu_bmm_v2_mat1_backward(grad, mat1, mat2, size) -> Tensor:
    r"""
    The gradient of npu_bmmV2 by its first factor.

    Args:
        grad: gradient of the product.
        mat1: the first factor.
        mat2: the second factor, of two dimensions or more.
        size: the shape of the first factor.

    Returns:
        grad @ mat2^T, summed to ``size``.

    Raises:
        RuntimeError: for factors of one dimension.
    """
    check(grad.dim() > 1 and mat2.dim() > 1, "npu_bmm_v2_mat1_backward", "factors must be of two dimensions or more")
    return torch.matmul(grad, mat2.mT).sum_to_size(size)


@operator("npu_bmm_v2_mat2_backward(Tensor grad, Tensor mat1, Tensor mat2, SymInt[] size) -> Tensor")
def npu_bmm_v2_mat2_backward(grad, mat1, mat2, size) -> Tensor:
    r"""
    The gradient of npu_bmmV2 by its second factor.

    Args:
        grad: gradient of the product.
        mat1: the first factor, of two dimensions or more.
        mat2: the second factor.
        size: the shape of the second factor.

    Returns:
        mat1^T @ grad, summed to ``size``.

    Raises:
        RuntimeError: for factors of one dimension.
    """
    check(grad.dim() > 1 and mat1.dim() > 1, "npu_bmm_v2_mat2_backward", "factors must be of two dimensions or more")
    return torch.matmul(mat1.mT, grad).sum_to_size(size)


@operator("npu_gather_sparse_index(Tensor input, Tensor index) -> Tensor")
def npu_gather_sparse_index(input, index) -> Tensor:
    r"""
    The rows of a tensor that an index names. Differentiable.

    Args:
        input: of one dimension or more.
        index: int32 or int64, 0 or more, of up to 7 dimensions.

    Returns:
        The shape of ``index``, followed by that of ``input`` without its first dimension.

    Raises:
        RuntimeError: for other dtypes, and results of more than 8 dimensions.
    """
    name = "npu_gather_sparse_index"
    check_dtype(name, "index", index, (torch.int32, torch.int64))
    check(
        input.dim() > 0 and index.dim() < 8 and input.dim() + index.dim() <= 9,
        name,
        f"the result must be of 8 dimensions or less, but input is {tuple(input.shape)} and index {tuple(index.shape)}",
    )
    return input.index_select(0, index.reshape(-1)).view(*index.shape, *input.shape[1:])


@operator("npu_gather_sparse_index_backward(Tensor grad, SymInt[] self_sizes, Tensor index) -> Tensor")
def npu_gather_sparse_index_backward(grad, self_sizes, index) -> Tensor:
    r"""
    The gradient of npu_gather_sparse_index.

    Args:
        grad: gradient of the result.
        self_sizes: the shape of ``input``.
        index: as it was.

    Returns:
        The gradient of ``input``, of the dtype of ``grad``.

    Raises:
        RuntimeError: for shapes that do not fit.
    """
    name = "npu_gather_sparse_index_backward"
    check(
        list(grad.shape) == [*index.shape, *self_sizes[1:]],
        name,
        f"grad of {tuple(grad.shape)} does not fit index of {tuple(index.shape)} and input of {tuple(self_sizes)}",
    )
    rows = grad.reshape(index.numel(), *self_sizes[1:])
    return grad.new_zeros(self_sizes).index_add(0, index.reshape(-1), rows)


@operator("npu_gather_backward(Tensor grad, SymInt[] self_size, int dim, Tensor index, bool sparse_grad) -> Tensor")
def npu_gather_backward(grad, self_size, dim, index, sparse_grad) -> Tensor:
    r"""
    The gradient of gather.

    Args:
        grad: gradient of the result.
        self_size: the shape of the tensor that was gathered from.
        dim: as it was.
        index: as it was.
        sparse_grad: must be False.

    Returns:
        A tensor of ``self_size``.

    Raises:
        NotImplementedError: for ``sparse_grad``.
    """
    if sparse_grad:
        raise NotImplementedError("npu_gather_backward: sparse_grad must be False")
    return grad.new_zeros(self_size).scatter_add(dim, index, grad)


@operator("_npu_index_add(Tensor self, Tensor index, Tensor source, *, Scalar alpha=1) -> Tensor")
def _npu_index_add(self, index, source, *, alpha=1) -> Tensor:
    r"""
    self with the rows of source added to the rows that an index names. Differentiable.

    Args:
        self: of one dimension or more.
        index: int32 or int64, of one dimension.
        source: a row for each element of ``index``.
        alpha: factor of ``source``.

    Returns:
        A tensor like ``self``.
    """
    return torch.index_add(self, 0, index, source, alpha=alpha)


@operator("_npu_index_add_(Tensor(a!) self, Tensor index, Tensor source, *, Scalar alpha=1) -> Tensor(a!)")
def _npu_index_add_(self, index, source, *, alpha=1) -> Tensor:
    r"""
    _npu_index_add in place.

    Args:
        self: of one dimension or more; changed.
        index: int32 or int64, of one dimension.
        source: a row for each element of ``index``.
        alpha: factor of ``source``.

    Returns:
        self.
    """
    return self.index_add_(0, index, source, alpha=alpha)


@operator("_npu_dtype_cast(Tensor self, ScalarType dtype) -> Tensor")
def _npu_dtype_cast(self, dtype) -> Tensor:
    r"""
    The numbers of a tensor in another dtype. Differentiable.

    Args:
        self: any tensor.
        dtype: that of the result.

    Returns:
        A tensor like ``self``.
    """
    return self.to(dtype)


@operator("_npu_dtype_cast_backward(Tensor grad, ScalarType dtype) -> Tensor")
def _npu_dtype_cast_backward(grad, dtype) -> Tensor:
    r"""
    The gradient of a change of the dtype.

    Args:
        grad: gradient of the result.
        dtype: that of what was changed.

    Returns:
        ``grad`` in ``dtype``.
    """
    return grad.to(dtype)


@operator(
    "npu_dtype_cast_backward(Tensor grad, ScalarType dtype, int? grad_dtype=None, int? input_dtype=None) -> Tensor"
)
def npu_dtype_cast_backward(grad, dtype, grad_dtype=None, input_dtype=None) -> Tensor:
    r"""
    The gradient of npu_dtype_cast.

    Args:
        grad: gradient of the result.
        dtype: that of what was changed.
        grad_dtype: must be None.
        input_dtype: must be None.

    Returns:
        ``grad`` in ``dtype``.

    Raises:
        NotImplementedError: for dtypes that torch does not have.
    """
    for argument, value in (("grad_dtype", grad_dtype), ("input_dtype", input_dtype)):
        if value is not None:
            raise NotImplementedError(
                f"npu_dtype_cast_backward: {argument} stands for a dtype that torch does not have"
            )
    return grad.to(dtype)


@operator("npu_dtype_cast_(Tensor(a!) self, Tensor src) -> Tensor(a!)")
def npu_dtype_cast_(self, src) -> Tensor:
    r"""
    Copies a tensor into another, in the dtype that this one has.

    Args:
        self: changed.
        src: broadcast to ``self``.

    Returns:
        self.
    """
    return self.copy_(src)


@operator("npu_view_copy(Tensor(a!) self, Tensor other, bool non_blocking) -> Tensor(a!)")
def npu_view_copy(self, other, non_blocking) -> Tensor:
    r"""
    Copies a tensor into another, or into a view.

    Args:
        self: changed.
        other: broadcast to ``self``.
        non_blocking: as in copy_.

    Returns:
        self.
    """
    return self.copy_(other, non_blocking)


@operator("npu_prefetch(Tensor self, Tensor? dependency, int max_size, int offset=0) -> ()")
def npu_prefetch(self, dependency, max_size, offset=0) -> None:
    r"""
    Tells the device that a weight will be read soon. The simulated device has no cache of its own: nothing happens.

    Args:
        self: the weight.
        dependency: what is computed before, or None.
        max_size: bytes at most, positive.
        offset: the first byte, within the weight.

    Returns:
        None.

    Raises:
        RuntimeError: for sizes that do not fit.
    """
    name = "npu_prefetch"
    check(max_size > 0, name, f"max_size must be positive, but is {max_size}")
    size = self.numel() * self.element_size()
    check(0 <= offset < size, name, f"offset must lie within the {size} bytes, but is {offset}")
