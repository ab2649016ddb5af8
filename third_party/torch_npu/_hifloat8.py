"""`torch_npu.HiFloat8Tensor`: tensors of HiFloat8, an 8-bit format of newer chips whose precision tapers off.

A code is a sign, a prefix that tells how many bits the exponent has, the exponent and the rest as fraction, published
as "Ascend HiFloat8 Format for Deep Learning" (arXiv:2409.16626):

| prefix | exponent's bits | exponent | fraction's bits |
| --- | --- | --- | --- |
| 11, 10, 01, 001 | 4, 3, 2, 1 | sign and magnitude; the magnitude's first bit is 1 and not stored | 1, 2, 3, 3 |
| 0001 | 0 | 0 | 3 |
| 0000 | 3 | the number M says 2^(M - 23), 0 says zero (with the sign: no number) | 0 |

The largest exponent with its fraction set, 1.5 * 2^15, stands for infinity. Rounding is to the nearest, ties away from
zero. torch has no dtype of it, so a tensor holds codes as bytes, and operators compute in its nominal dtype.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

_aten = torch.ops.aten
_INFINITY = 0x6F
_NAN = 0x80


# Prefix, how many bits are below it, how many of these are exponent.
_PREFIXES = ((0b11, 5, 4), (0b10, 5, 3), (0b01, 5, 2), (0b001, 4, 1))


def _magnitude(code: int) -> float:
    # What the seven bits below the sign stand for; infinity as the number whose place it takes.
    if code < 8:
        return 2.0 ** (code - 23) if code else 0.0
    if code < 16:
        return 1 + (code - 8) / 8
    below, bits = next((below, bits) for prefix, below, bits in _PREFIXES if code >> below == prefix)
    fraction = below - bits
    stored = code >> fraction & (1 << bits) - 1
    leading = 1 << (bits - 1)
    size = leading | stored & leading - 1
    exponent = -size if stored & leading else size
    return (1 + (code & (1 << fraction) - 1) / (1 << fraction)) * 2.0**exponent


@functools.cache
def _tables(device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    # The value of each code; half-way points between the magnitudes in order; the codes in that order.
    ordered = sorted(range(128), key=_magnitude)
    sizes = [_magnitude(code) for code in ordered]
    middles = [(low + high) / 2 for low, high in zip(sizes, sizes[1:], strict=False)]
    values = [float("inf") if code == _INFINITY else _magnitude(code) for code in range(128)]
    values += [-value for value in values]
    values[_NAN] = float("nan")
    return (
        torch.tensor(values, device=device),
        torch.tensor(middles, device=device),
        torch.tensor(ordered, dtype=torch.uint8, device=device),
    )


def encode(values: Tensor) -> Tensor:
    """Return the codes of numbers as bytes: the nearest, of two the one away from zero; too large ones are infinite."""
    wide = values.detach().float()
    _, middles, ordered = _tables(wide.device)
    codes = ordered[torch.bucketize(wide.abs(), middles, right=True)]
    # Zero has no sign: its code with the sign is the one of no number.
    codes = torch.where((wide < 0) & (codes != 0), codes | 0x80, codes)
    return torch.where(wide.isnan(), torch.full_like(codes, _NAN), codes)


def decode(codes: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the numbers of codes."""
    return _tables(codes.device)[0][codes.long()].to(dtype)


class _From(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: "HiFloat8Tensor", dtype: torch.dtype) -> Tensor:
        return decode(tensor._data, dtype)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return grads[0], None


class _To(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor) -> "HiFloat8Tensor":
        kept = tensor.dtype if tensor.dtype in (torch.float32, torch.float16, torch.bfloat16) else torch.float32
        return HiFloat8Tensor(data=encode(tensor.detach().npu()), dtype=kept)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        return grads[0]


class HiFloat8Tensor(Tensor):
    """A tensor of HiFloat8 codes that looks like one of ``dtype``, on an NPU.

    Operators compute with its numbers in ``dtype`` and return plain tensors; what only moves elements (views, copies,
    slices) returns HiFloat8. What writes into it rounds. Gradients pass the conversions as they are.

    Args:
        data: the codes, uint8; it goes to the NPU if it is elsewhere.
        dtype: the nominal dtype.

    Raises:
        ValueError: ``data`` is not of bytes, or ``dtype`` is no floating-point dtype.
    """

    _data: Tensor

    @staticmethod
    def __new__(cls, *, data: Tensor, dtype: torch.dtype = torch.float32) -> "HiFloat8Tensor":
        if data.dtype != torch.uint8:
            raise ValueError(f"HiFloat8Tensor: data must be the codes as uint8, but is {data.dtype}")
        if not dtype.is_floating_point:
            raise ValueError(f"HiFloat8Tensor: dtype must be a floating-point dtype, but is {dtype}")
        data = data if data.device.type == "npu" else data.npu()
        made = torch.Tensor._make_wrapper_subclass(
            cls,
            data.size(),
            strides=data.stride(),
            storage_offset=data.storage_offset(),
            dtype=dtype,
            layout=data.layout,
            device=data.device,
        )
        made._data = data
        return made

    @classmethod
    def make_like(cls, tensor: "HiFloat8Tensor", *, data: Tensor, **kwargs: Any) -> "HiFloat8Tensor":
        """Return a tensor of other codes with the nominal dtype of ``tensor``, unless ``dtype`` is given."""
        return cls(data=data, **{"dtype": tensor.dtype, **kwargs})

    @classmethod
    def to_hifloat8(cls, tensor: Tensor) -> "HiFloat8Tensor":
        """Return ``tensor``, rounded; its nominal dtype is the tensor's, or float32 where that is not a narrow one."""
        return _To.apply(tensor)

    def from_hifloat8(self, dtype: torch.dtype | None = None) -> Tensor:
        """Return the numbers as a plain tensor of ``dtype``, default the nominal one."""
        return _From.apply(self, self.dtype if dtype is None else dtype)

    def float(self) -> Tensor:  # type: ignore[override]
        """Return the numbers in float32."""
        return self.from_hifloat8(torch.float32)

    def bfloat16(self) -> Tensor:  # type: ignore[override]
        """Return the numbers in bfloat16."""
        return self.from_hifloat8(torch.bfloat16)

    def half(self) -> Tensor:  # type: ignore[override]
        """Return the numbers in float16."""
        return self.from_hifloat8(torch.float16)

    def cpu(self) -> Tensor:  # type: ignore[override]
        """Return the numbers as a plain tensor of the CPU."""
        return self.from_hifloat8().cpu()

    def clone(self) -> "HiFloat8Tensor":  # type: ignore[override]
        """Return a copy of the codes."""
        return _aten.clone.default(self)

    def view(self, *shape: Any) -> "HiFloat8Tensor":  # type: ignore[override]
        """Return the same codes in another shape."""
        return _aten.view.default(self, _sizes(shape))

    def reshape(self, *shape: Any) -> "HiFloat8Tensor":  # type: ignore[override]
        """Return the codes in another shape, copied if need be."""
        return self.make_like(self, data=self._data.reshape(_sizes(shape)))

    def transpose(self, dim0: int, dim1: int) -> "HiFloat8Tensor":  # type: ignore[override]
        """Return the same codes with two dimensions exchanged."""
        return _aten.transpose.int(self, dim0, dim1)

    def contiguous(  # type: ignore[override]
        self, *, memory_format: torch.memory_format = torch.contiguous_format
    ) -> "HiFloat8Tensor":
        """Return the tensor, or a copy of it that is contiguous."""
        if self._data.is_contiguous(memory_format=memory_format):
            return self
        return self.make_like(self, data=self._data.contiguous(memory_format=memory_format))

    def to_dtype(self, dtype: torch.dtype) -> "HiFloat8Tensor":
        """Return the same codes under another nominal dtype."""
        return self.make_like(self, data=self._data, dtype=dtype)

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return f"HiFloat8Tensor(data={self.from_hifloat8()})"

    def __reduce_ex__(self, protocol: int) -> tuple[Any, ...]:
        return _rebuild, (self._data.cpu(), self.dtype)

    def __tensor_flatten__(self) -> tuple[list[str], dict[str, Any]]:
        return ["_data"], {"dtype": self.dtype}

    @staticmethod
    def __tensor_unflatten__(parts: dict[str, Tensor], meta: dict[str, Any], size: Any, stride: Any) -> Tensor:
        return HiFloat8Tensor(data=parts["_data"], dtype=meta["dtype"])

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in _MOVES:
            return cls.make_like(args[0], data=func(args[0]._data, *args[1:], **kwargs))
        plain_args, plain_kwargs = pytree.tree_map_only(cls, lambda t: decode(t._data, t.dtype), (args, kwargs))
        result = func(*plain_args, **plain_kwargs)
        # What has been written goes back, and an operator that returns what it wrote to returns the tensor itself.
        for place, argument in enumerate(func._schema.arguments):
            if argument.alias_info is None or not argument.alias_info.is_write:
                continue
            given = kwargs[argument.name] if argument.name in kwargs else args[place] if place < len(args) else None
            computed = plain_kwargs.get(argument.name, plain_args[place] if place < len(plain_args) else None)
            if isinstance(given, cls):
                given._data.copy_(encode(computed))
                result = given if result is computed else result
        return result


# Operators that only move elements.
_MOVES: frozenset[Callable[..., Any]] = frozenset(
    (
        _aten._unsafe_view.default,
        _aten.alias.default,
        _aten.as_strided.default,
        _aten.clone.default,
        _aten.detach.default,
        _aten.expand.default,
        _aten.permute.default,
        _aten.select.int,
        _aten.slice.Tensor,
        _aten.squeeze.dim,
        _aten.t.default,
        _aten.transpose.int,
        _aten.unsqueeze.default,
        _aten.view.default,
    )
)


def _sizes(shape: Sequence[Any]) -> Sequence[int]:
    return shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape


def _rebuild(data: Tensor, dtype: torch.dtype) -> HiFloat8Tensor:
    return HiFloat8Tensor(data=data, dtype=dtype)
