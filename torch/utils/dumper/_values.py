# One value <-> one data set: how tensors of every dtype and layout, numbers, lists and None are kept so that a call can
# be made again from the file alone.
"""Encoding of arguments and results."""

import json

import numpy as np

import torch

# Dtypes that numpy lacks, and the integers of the same size that hold their bits.
_BITS = {torch.bfloat16: torch.uint16, torch.bits16: torch.uint16}
_BYTES = "float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz float8_e8m0fnu float4_e2m1fn_x2"
for _name in f"{_BYTES} bits8 bits1x8 bits2x4 bits4x2".split():
    if hasattr(torch, _name):
        _BITS[getattr(torch, _name)] = torch.uint8
_DTYPES = {str(value).removeprefix("torch."): value for value in vars(torch).values() if isinstance(value, torch.dtype)}
_NAMES = {value: name for name, value in _DTYPES.items()}
for _name in ("float32", "float64", "float16", "int64", "int32", "int16", "complex64", "complex128", "complex32"):
    _NAMES[_DTYPES[_name]] = _name  # not the second names float, half, ...
_PLAIN = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex64 complex128"
_NUMPY = {_DTYPES[_name]: np.dtype(_name) for _name in _PLAIN.split()}
STATISTICS = ("min", "max", "mean", "std", "norm", "count", "nan", "inf")


class NotKeptError(ValueError):
    """The file does not hold a value: it was recorded without, or is of a type that files do not keep."""


def dtype_name(dtype: torch.dtype) -> str:
    """float32 for torch.float32."""
    return _NAMES[dtype]


def dtype_of(name: str) -> torch.dtype:
    """torch.float32 for float32; raises KeyError for an unknown name."""
    return _DTYPES[name]


def format_name(tensor: torch.Tensor) -> str:
    """The format that the device stores the tensor in: ND, NCHW, NC1HWC0, ...; the data in the file is logical."""
    if tensor.device.type != "npu" or not hasattr(torch, "get_npu_format") or not storable(tensor):
        return "ND"
    number = torch.get_npu_format(tensor)
    return _FORMATS.get(number, str(number))


# AscendCL's numbers of formats.
_FORMATS = {
    0: "NCHW",
    1: "NHWC",
    2: "ND",
    3: "NC1HWC0",
    4: "FRACTAL_Z",
    12: "NC1HWC0_C04",
    27: "NDHWC",
    29: "FRACTAL_NZ",
    30: "NCDHW",
    32: "NDC1HWC0",
    33: "FRACTAL_Z_3D",
}


def tensor_kind(tensor: torch.Tensor) -> str:
    """What goes into the attribute Type."""
    if tensor.layout is not torch.strided:
        return str(tensor.layout).removeprefix("torch.")
    if tensor.is_nested:
        return "nested"
    if not _is_plain(tensor):
        return type(tensor).__name__
    return "Parameter" if isinstance(tensor, torch.nn.Parameter) else "Tensor"


def storable(tensor: torch.Tensor) -> bool:
    """Whether the tensor has values that can be read: not meta, sparse, nested, quantized, or made up in Python."""
    if tensor.layout is not torch.strided or tensor.device.type == "meta":
        return False
    return not tensor.is_quantized and not tensor.is_nested and _is_plain(tensor)


def _is_plain(tensor: torch.Tensor) -> bool:
    """Whether there is memory behind the tensor; fake tensors and wrappers are Python objects with a shape."""
    if type(tensor) in (torch.Tensor, torch.nn.Parameter):
        return True
    return not torch._C._dispatch_keys(tensor).has(torch._C.DispatchKey.Python)


def shape(tensor: torch.Tensor) -> tuple[int, ...]:
    """The sizes, -1 for symbolic ones; () for nested tensors."""
    return () if tensor.is_nested else tuple(n if type(n) is int else -1 for n in tensor.shape)


def has_strides(tensor: torch.Tensor) -> bool:
    """Whether the tensor has strides that are plain numbers."""
    return tensor.layout is torch.strided and not tensor.is_nested and all(type(n) is int for n in tensor.stride())


def _with_memory(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor without its graph; forward-mode differentiation makes zeros that have no memory."""
    tensor = tensor.detach()
    return torch.zeros(tensor.shape, dtype=tensor.dtype) if tensor._is_zerotensor() else tensor


class _Memory:
    """A tensor's memory for numpy. `Tensor.numpy()` would forbid the program to resize its tensor for good."""

    def __init__(self, tensor: torch.Tensor, dtype: np.dtype) -> None:
        self._tensor = tensor  # numpy keeps this object, and with it the memory
        address = (tensor.data_ptr(), False)
        self.__array_interface__ = {"shape": tuple(tensor.shape), "typestr": dtype.str, "data": address, "version": 3}


def to_numpy(tensor: torch.Tensor) -> np.ndarray:
    """The values, C-contiguous, in the logical shape; dtypes that numpy lacks as integers of their size."""
    tensor = _with_memory(tensor)
    if tensor.device.type != "cpu":
        tensor = tensor.cpu()
    tensor = tensor.resolve_conj().resolve_neg()
    if tensor.dtype is torch.complex32:
        tensor = torch.view_as_real(tensor)
    tensor = tensor.contiguous()
    if tensor.dtype in _BITS:
        tensor = tensor.view(_BITS[tensor.dtype])
    return np.asarray(_Memory(tensor, _NUMPY[tensor.dtype]))


def from_numpy(array: np.ndarray, dtype: str) -> torch.Tensor:
    """A CPU tensor of a data set's values and its DataType."""
    wanted = dtype_of(dtype)
    tensor = torch.from_numpy(np.ascontiguousarray(array).reshape(np.shape(array)))
    if wanted is torch.complex32:
        return torch.view_as_complex(tensor)
    if wanted in _BITS:
        return tensor.view(wanted)
    return tensor if tensor.dtype is wanted else tensor.to(wanted)


def with_strides(tensor: torch.Tensor, strides) -> torch.Tensor:
    """The tensor in the given strides where they do not overlap otherwise than by expansion, else as it is."""
    size, strides = list(tensor.shape), [int(s) for s in strides]
    if strides == list(tensor.stride()) or len(strides) != len(size):
        return tensor
    source = tensor
    for d, stride in enumerate(strides):
        if stride == 0 and size[d] > 1:
            source = source.narrow(d, 0, 1)
    pairs = sorted((stride, n) for stride, n in zip(strides, source.shape, strict=True) if n > 1)
    end = 1
    for stride, n in pairs:
        if stride < end:
            return tensor
        end = stride * (n - 1) + end
    own = torch.empty_strided(source.shape, strides, dtype=tensor.dtype, device=tensor.device)
    own.copy_(source)
    return own.as_strided(size, strides)


def statistics(tensor: torch.Tensor) -> np.ndarray | None:
    """float64 array of STATISTICS; the first five are over the finite elements, NaN where there is none.

    None for dtypes that are no numbers: bits, and packed ones.
    """
    if str(tensor.dtype).startswith(("torch.bits", "torch.float4")):
        return None
    flat = _with_memory(tensor).cpu().flatten()
    flat = flat.abs() if flat.is_complex() else flat
    wide = flat.double()
    finite = wide[torch.isfinite(wide)]
    counts = [wide.numel(), int(wide.isnan().sum()), int(wide.isinf().sum())]
    if not finite.numel():
        return np.array([np.nan] * 5 + counts)
    values = [finite.min(), finite.max(), finite.mean(), finite.std(correction=0), finite.norm()]
    return np.array([v.item() for v in values] + counts)


def encode(value):
    """(Type, array or None) of an argument that is no tensor."""
    if value is None:
        return "None", None
    if isinstance(value, bool):
        return "bool", np.array(value)
    if isinstance(value, int) and -(2**63) <= value < 2**63:
        return "int", np.array(value, np.int64)
    if isinstance(value, float):
        return "float", np.array(value)
    if isinstance(value, complex):
        return "complex", np.array(value)
    if isinstance(value, str):
        return "str", value
    for kind, type_ in _TEXT_TYPES.items():
        if isinstance(value, type_):
            return kind, str(value)
    if isinstance(value, torch.Generator):
        return "Generator", None
    if isinstance(value, torch.UntypedStorage) and value.device.type != "meta":
        return "UntypedStorage", to_numpy(torch.empty(0, dtype=torch.uint8, device=value.device).set_(value))
    if isinstance(value, (list, tuple)):
        if value and all(type(item) is int for item in value):
            return "int[]", np.array(value, np.int64)
        if value and all(type(item) is float for item in value):
            return "float[]", np.array(value)
        if value and all(type(item) is bool for item in value):
            return "bool[]", np.array(value)
        if all(item is None or isinstance(item, (int, float, str)) for item in value):
            return "json", json.dumps(list(value))
    return type(value).__name__, None


_TEXT_TYPES = {
    "dtype": torch.dtype,
    "device": torch.device,
    "layout": torch.layout,
    "memory_format": torch.memory_format,
}


def decode(kind: str, data, device=None):
    """The value that `encode` took apart; `device` replaces a recorded device.

    Raises:
        NotKeptError: it was not kept.
    """
    if kind in ("None", "Generator"):
        return None
    if kind == "UntypedStorage" and data is not None:
        return torch.from_numpy(data).to("cpu" if device is None else device).untyped_storage()
    if kind in ("bool", "int", "float", "complex"):
        return {"bool": bool, "int": int, "float": float, "complex": complex}[kind](data)
    if kind in ("int[]", "float[]", "bool[]"):
        return data.tolist()
    if kind in ("str", "json", "dtype", "device", "layout", "memory_format"):
        text = data.decode() if isinstance(data, bytes) else str(data)
        if kind == "str":
            return text
        if kind == "json":
            return json.loads(text)
        if kind == "device":
            return torch.device(text if device is None else device)
        return getattr(torch, text.removeprefix("torch."))
    raise NotKeptError(f"an argument of type {kind} is not kept in the file")
