"""Many tensors in one: each keeps its shape and values, its memory becomes a part of one flat tensor.

What is done to the flat tensor is done to all of them, so an operation over a network's parameters is one operator
whatever their number. Tensors lie one behind the other at multiples of 64 bytes; the gaps hold zeros.
"""

import weakref
from collections.abc import Iterable, Sequence

from torch.utils.weak import WeakIdKeyDictionary

import torch
from torch import Tensor

__all__ = ["Combined", "Layout", "can_combine", "group_by_kind"]

# In elements, so that flat tensors of two dtypes (a half and its fp32 master) have the same offsets.
_ALIGNMENT = 64
# npu formats whose memory is arranged as the tensor sees it: undefined, NCHW, NHWC, ND, NCDHW.
_PLAIN_FORMATS = frozenset((-1, 0, 1, 2, 30))

# Part -> its Combined; not an attribute, which would be saved with the tensor.
_OWNERS = WeakIdKeyDictionary()


def _is_dense(tensor: Tensor) -> bool:
    """Whether the tensor's elements fill their memory without gaps or overlaps, in whatever order of dimensions."""
    expected = 1
    for stride, size in sorted((st, si) for st, si in zip(tensor.stride(), tensor.size(), strict=True) if si != 1):
        if stride != expected:
            return False
        expected *= size
    return True


def can_combine(tensor: Tensor) -> bool:
    """Whether the tensor's memory may become part of a flat tensor: dense, strided, and in no private npu format."""
    if tensor.layout is not torch.strided or tensor.numel() == 0 or not _is_dense(tensor):
        return False
    return tensor.device.type != "npu" or torch.ops.npu.get_npu_format(tensor) in _PLAIN_FORMATS


def group_by_kind(tensors: Iterable[Tensor]) -> list[list[Tensor]]:
    """The tensors by device and dtype, in order; one that cannot be combined is a group of its own."""
    groups: dict[tuple, list[Tensor]] = {}
    for index, tensor in enumerate(tensors):
        alone = index if not can_combine(tensor) else None
        groups.setdefault((tensor.device, tensor.dtype, alone), []).append(tensor)
    return list(groups.values())


class Layout:
    """Where each of some tensors lies in a flat tensor, whatever its dtype: at multiples of `alignment` elements."""

    def __init__(self, tensors: Sequence[Tensor], alignment: int = _ALIGNMENT):
        self.shapes = [(tuple(t.size()), tuple(t.stride())) for t in tensors]
        self.offsets = []
        end = 0
        for tensor in tensors:
            self.offsets.append(end)
            end += -(-tensor.numel() // alignment) * alignment
        self.numel = end

    def __len__(self) -> int:
        return len(self.offsets)

    def is_as(self, other: "Layout") -> bool:
        """Whether tensors of both lie in the same places."""
        return self.shapes == other.shapes and self.offsets == other.offsets

    def slice(self, begin: int, end: int) -> tuple[int, int]:
        """(start, length) in the flat tensor of the tensors `begin` to `end - 1`."""
        start = self.offsets[begin]
        stop = self.offsets[end] if end < len(self.offsets) else self.numel
        return start, stop - start


class Combined:
    """A flat tensor and, for each tensor of a layout, its part as a tensor of that shape and those strides.

    Args:
        layout (Layout): where the parts lie.
        dtype, device: of the flat tensor.
        value (float, optional): what it holds at first.
    """

    def __init__(self, layout: Layout, dtype: torch.dtype, device: torch.device, value: float = 0.0):
        self.layout = layout
        self.flat = torch.full((layout.numel,), value, dtype=dtype, device=device)
        # `.data` gives each part a version counter of its own: writing one does not make the others look changed.
        self.parts = [
            torch.as_strided(self.flat, shape, strides, offset).data
            for (shape, strides), offset in zip(layout.shapes, layout.offsets, strict=True)
        ]
        for part in self.parts:
            _OWNERS[part] = weakref.ref(self)

    @staticmethod
    def of(part: Tensor) -> "Combined | None":
        """What a tensor is a part of, None where that is not known."""
        reference = _OWNERS.get(part)
        return reference() if reference is not None else None

    def run(self, begin: int, end: int) -> Tensor:
        """The parts `begin` to `end - 1` as one flat tensor."""
        if begin == 0 and end == len(self.parts):
            return self.flat
        start, length = self.layout.slice(begin, end)
        return self.flat.narrow(0, start, length)

    def take_values(self, indices: Sequence[int], tensors: Sequence[Tensor]) -> None:
        """Copies the tensors into the parts of these indices."""
        if indices:
            with torch.no_grad():
                torch._foreach_copy_([self.parts[i] for i in indices], list(tensors))

    def adopt(self, tensors: Sequence[Tensor]) -> None:
        """Copies the tensors' values in and makes each tensor's memory its part."""
        self.take_values(range(len(tensors)), [t.detach() for t in tensors])
        self.replace(tensors)

    def replace(self, tensors: Sequence[Tensor]) -> None:
        """Makes each tensor's memory its part, whatever that holds."""
        for tensor, part in zip(tensors, self.parts, strict=True):
            tensor.data = part

    def holds(self, tensors: Sequence[Tensor]) -> bool:
        """Whether each tensor's memory is still its part."""
        return all(
            t.data_ptr() == p.data_ptr() and t.dtype is p.dtype and t.stride() == p.stride()
            for t, p in zip(tensors, self.parts, strict=True)
        )
