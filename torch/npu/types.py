r"""``torch.npu.FloatTensor`` and its siblings, the typed constructors and storages of PyTorch's early days."""

from typing import Any

from torch._utils import classproperty
from torch.storage import _LegacyStorage, _warn_typed_storage_removal

import torch


class _LegacyTensorMeta(type):
    dtype: torch.dtype

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, torch.Tensor) and instance.device.type == "npu" and instance.dtype == cls.dtype


def _new_tensor(cls, *args, device: Any = None) -> torch.Tensor:
    r"""Make a tensor of this type on an NPU.

    Args:
        *args: a sequence or a scalar array of values; or sizes (ints or a ``torch.Size``), for uninitialised memory;
            or a tensor of this very type, which is aliased; or nothing, for an empty tensor.
        device (torch.device, str or int, optional): default the current NPU.

    Raises:
        TypeError: the arguments are none of these, or a tensor of another type.
    """
    where = torch.device("npu", torch.npu._utils._get_device_index(device, optional=True))
    if len(args) == 1 and not isinstance(args[0], int):
        (data,) = args
        if isinstance(data, torch.Size):
            return torch.empty(data, dtype=cls.dtype, device=where)
        if isinstance(data, torch.Tensor):
            if not isinstance(data, cls):
                raise TypeError(f"expected {cls.__name__} (got {data.type()})")
            return data.alias() if hasattr(data, "alias") else data.view(data.shape)
        if isinstance(data, float):
            raise TypeError(f"{cls.__name__}: sizes are ints, values come as a sequence, not a float")
        return torch.tensor(data, dtype=cls.dtype, device=where)
    if not all(isinstance(size, int) for size in args):
        raise TypeError(f"{cls.__name__}: expected a sequence of values or int sizes, got {args!r}")
    return torch.empty(args or (0,), dtype=cls.dtype, device=where)


class _NpuLegacyStorage(_LegacyStorage):
    @classmethod
    def from_buffer(cls, *args, **kwargs):
        _warn_typed_storage_removal()
        raise RuntimeError("from_buffer: Not available for NPU storage")

    @classmethod
    def _new_with_weak_ptr(cls, *args, **kwargs):
        raise RuntimeError("_new_with_weak_ptr: Not available for NPU storage")

    @classmethod
    def _new_shared_filename(cls, manager, obj, size, *, device=None, dtype=None):
        raise RuntimeError("_new_shared_filename: Not available for NPU storage")


def _storage_class(name: str, dtype: torch.dtype) -> type:
    @classproperty
    def public_dtype(self):
        _warn_typed_storage_removal()
        return self._dtype

    members = {
        "__module__": "torch.npu",
        "__doc__": f"Typed storage of {dtype} on an NPU, as old files and scripts name it.",
        "dtype": public_dtype,
        "_dtype": classproperty(lambda self: dtype),
    }
    return type(name, (_NpuLegacyStorage,), members)


for _name, _dtype in {
    "BFloat16": torch.bfloat16,
    "Bool": torch.bool,
    "Byte": torch.uint8,
    "Char": torch.int8,
    "ComplexDouble": torch.cdouble,
    "ComplexFloat": torch.cfloat,
    "Double": torch.double,
    "Float": torch.float,
    "Half": torch.half,
    "Int": torch.int,
    "Long": torch.long,
    "Short": torch.short,
}.items():
    globals()[f"{_name}Storage"] = _storage_class(f"{_name}Storage", _dtype)
    # Tensor.type() finds the type by its C name, which has to be the whole dotted one.
    globals()[f"{_name}Tensor"] = _LegacyTensorMeta(
        f"torch.npu.{_name}Tensor",
        (),
        {
            "__module__": "torch.npu",
            "__qualname__": f"{_name}Tensor",
            "__doc__": _new_tensor.__doc__,
            "__new__": _new_tensor,
            "dtype": _dtype,
            "is_npu": True,
            "is_sparse": False,
        },
    )
