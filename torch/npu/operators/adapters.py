r"""Low-rank adapters that each row chooses for itself."""

import torch
from torch import Tensor

from ._attention import wide
from ._checks import FLOATING, check, check_dtype
from ._registration import operator


def _added(name, self, x, weight_b, indices, weight_a, layer_idx, scale, y_offset, y_slice_size) -> Tensor:
    check_dtype(name, "self", self, FLOATING)
    for argument, tensor in (("x", x), ("weight_b", weight_b), ("weight_a", weight_a)):
        if tensor is not None:
            check_dtype(name, argument, tensor, (self.dtype,))
    check_dtype(name, "indices", indices, (torch.int32, torch.int64))
    size = self.shape[-1] if y_slice_size == -1 else y_slice_size
    check(
        self.dim() == 2
        and x.dim() == 2
        and indices.shape == self.shape[:1]
        and x.shape[0] == self.shape[0]
        and weight_b.dim() == 4
        and weight_b.shape[2] == size,
        name,
        f"self, x, weight_b and indices do not fit: {tuple(self.shape)}, {tuple(x.shape)}, {tuple(weight_b.shape)} and "
        f"{tuple(indices.shape)}, of which {size} columns are changed",
    )
    check(
        y_offset >= 0 and y_offset + size <= self.shape[1],
        name,
        f"y_offset and y_slice_size must lie within {self.shape[1]} columns, but are {y_offset} and {y_slice_size}",
    )
    adapters, layers, _, rank = weight_b.shape
    check(0 <= layer_idx < layers, name, f"layer_idx must be below {layers}, but is {layer_idx}")
    down = (adapters, layers, rank, x.shape[1])
    if weight_a is None:
        check(x.shape[1] == rank, name, f"without weight_a x must have {rank} columns, but has {x.shape[1]}")
    else:
        check(weight_a.shape == down, name, f"weight_a must be {down}, but is {tuple(weight_a.shape)}")
    chosen = (indices >= 0) & (indices < adapters)
    at = torch.where(chosen, indices, 0).long()
    low = wide(x)
    if weight_a is not None:
        low = (wide(weight_a[:, layer_idx]).index_select(0, at) @ low.unsqueeze(-1)).squeeze(-1)
    made = (wide(weight_b[:, layer_idx]).index_select(0, at) @ low.unsqueeze(-1)).squeeze(-1) * scale
    made = torch.where(chosen.unsqueeze(1), made, 0.0)
    return (wide(self) + torch.nn.functional.pad(made, (y_offset, self.shape[1] - y_offset - size))).to(self.dtype)


_ARGUMENTS = (
    "Tensor x, Tensor weight_b, Tensor indices, Tensor? weight_a=None, int layer_idx=0, float scale=1e-3, "
    "int y_offset=0, int y_slice_size=-1"
)


@operator(f"npu_batch_gather_matmul(Tensor self, {_ARGUMENTS}) -> Tensor")
def npu_batch_gather_matmul(
    self, x, weight_b, indices, weight_a=None, layer_idx=0, scale=1e-3, y_offset=0, y_slice_size=-1
) -> Tensor:
    r"""
    self + scale * x @ a' @ b', where each row takes the matrices of the adapter that it names.

    Args:
        self: (rows, columns), floating.
        x: (rows, width), of the dtype of ``self``.
        weight_b: (adapters, layers, changed columns, rank), of the dtype of ``self``.
        indices: (rows), int32: the adapter of each row; a number that is none leaves the row as it is.
        weight_a: (adapters, layers, rank, width), of the dtype of ``self``; None: ``x`` has the rank's columns.
        layer_idx: the layer.
        scale: factor of what is added.
        y_offset: the first column that is changed.
        y_slice_size: how many; -1: all.

    Returns:
        Like ``self``.

    Raises:
        RuntimeError: for shapes, dtypes and numbers that do not fit.
    """
    given = (self, x, weight_b, indices, weight_a, layer_idx, scale, y_offset, y_slice_size)
    return _added("npu_batch_gather_matmul", *given)


@operator(f"npu_batch_gather_matmul_(Tensor(a!) self, {_ARGUMENTS}) -> Tensor(a!)")
def npu_batch_gather_matmul_(
    self, x, weight_b, indices, weight_a=None, layer_idx=0, scale=1e-3, y_offset=0, y_slice_size=-1
) -> Tensor:
    r"""
    :func:`npu_batch_gather_matmul` in place.

    Args:
        self: as there; is written.
        x: as there.
        weight_b: as there.
        indices: as there.
        weight_a: as there.
        layer_idx: as there.
        scale: as there.
        y_offset: as there.
        y_slice_size: as there.

    Returns:
        self.
    """
    given = (self, x, weight_b, indices, weight_a, layer_idx, scale, y_offset, y_slice_size)
    return self.copy_(_added("npu_batch_gather_matmul_", *given))
