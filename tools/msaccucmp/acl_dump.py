"""Reading and writing ACL dump files: what the device leaves of an operator's inputs and outputs.

A file is the length of its header (8 bytes, little-endian), the header (the protobuf message DumpData, read and written
here by hand), and the bytes of the inputs, then of the outputs. Its name is
``{op_type}.{op_name}.{taskid}.{stream_id}.{timestamp}``, or the same without the stream. Only numpy is needed.
"""

import math
import os
import re
import struct
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

# Numbers of DumpData's data types. bfloat16 has no numpy type: arrays of it are float32, its bytes are uint16.
BF16 = 27
DTYPES: dict[int, np.dtype] = {
    1: np.dtype(np.float32),
    2: np.dtype(np.float16),
    3: np.dtype(np.int8),
    4: np.dtype(np.uint8),
    5: np.dtype(np.int16),
    6: np.dtype(np.uint16),
    7: np.dtype(np.int32),
    8: np.dtype(np.int64),
    9: np.dtype(np.uint32),
    10: np.dtype(np.uint64),
    11: np.dtype(np.bool_),
    12: np.dtype(np.float64),
    16: np.dtype(np.complex64),
    17: np.dtype(np.complex128),
    BF16: np.dtype(np.uint16),
}
DTYPE_NAMES = {number: dtype.name for number, dtype in DTYPES.items()} | {
    BF16: "bfloat16",
    13: "string",
    28: "int4",
    29: "uint1",
    32: "complex32",
    33: "hifloat8",
    34: "float8_e5m2",
    35: "float8_e4m3fn",
    36: "float8_e8m0",
}
# Types that numpy lacks are given as their bytes.
_RAW_BYTES: dict[int, np.dtype] = {
    32: np.dtype(np.uint32),
    33: np.dtype(np.uint8),
    34: np.dtype(np.uint8),
    35: np.dtype(np.uint8),
}
_RAW_BYTES[36] = np.dtype(np.uint8)

# Numbers of ACL's formats.
FORMATS = {
    0: "NCHW",
    1: "NHWC",
    2: "ND",
    3: "NC1HWC0",
    4: "FRACTAL_Z",
    12: "NC1HWC0_C04",
    16: "HWCN",
    27: "NDHWC",
    29: "FRACTAL_NZ",
    30: "NCDHW",
    32: "NDC1HWC0",
    33: "FRACTAL_Z_3D",
    35: "NC",
    47: "NCL",
}
_FORMAT_NUMBERS = {name: number for number, name in FORMATS.items()}
PRIVATE = frozenset(("NC1HWC0", "NC1HWC0_C04", "FRACTAL_Z", "FRACTAL_NZ", "NDC1HWC0", "FRACTAL_Z_3D"))

_NAME = re.compile(r"^(?P<op_type>[^.]+)\.(?P<op_name>[^.]+)\.(?P<task>\d+)(\.(?P<stream>\d+))?\.(?P<time>\d+)$")
_MOST_HEADER = 64 << 20


@dataclass
class DumpTensor:
    """One input or output.

    ``stored`` is the numpy array as the device keeps it (of a private format: its own dims; bfloat16 as uint16);
    ``format`` ACL's name of its format; ``dtype`` the name of its type; ``original_shape`` its dims as the host sees
    them. ``absent`` says that an optional input was not given; ``stored`` is then empty.
    """

    stored: np.ndarray
    format: str = "ND"
    dtype: str = ""
    original_shape: tuple[int, ...] = ()
    absent: bool = False

    def __post_init__(self):
        if not self.dtype:
            self.dtype = self.stored.dtype.name

    @property
    def values(self) -> np.ndarray:
        """``stored`` with bfloat16 widened to float32."""
        if self.dtype == "bfloat16" and self.stored.dtype == np.uint16:
            return (self.stored.astype(np.uint32) << 16).view(np.float32)
        return self.stored

    @property
    def array(self) -> np.ndarray:
        """The values in the host's layout: ``original_shape`` if the format is private, else as stored."""
        return to_logical(self.values, self.format, self.original_shape) if self.format in PRIVATE else self.values


@dataclass
class AclDump:
    """One operator's file. ``timestamp`` is in microseconds; ``stream_id`` is None where the name has none."""

    op_type: str
    op_name: str
    task_id: int = 0
    stream_id: int | None = 0
    timestamp: int = 0
    inputs: list[DumpTensor] = field(default_factory=list)
    outputs: list[DumpTensor] = field(default_factory=list)

    def tensors(self):
        """Yields ("input" or "output", index, tensor)."""
        for kind, tensors in (("input", self.inputs), ("output", self.outputs)):
            for i, tensor in enumerate(tensors):
                yield kind, i, tensor

    def npy_name(self, kind: str, index: int) -> str:
        """The name of a converted operand, such as ``Pooling.pool1.1147.1589195081588018.output.0.npy``."""
        parts = (name_part(self.op_type), name_part(self.op_name), self.task_id, self.timestamp, kind, index, "npy")
        return ".".join(map(str, parts))


def name_part(name: str) -> str:
    """A type or name as it stands in a file name: period, slash, backslash and space become underscores."""
    return re.sub(r"[./\\ ]", "_", name)


def is_dump_name(name: str) -> bool:
    """Whether a file's name is one of a dump file."""
    return _NAME.match(name) is not None


# ---- protobuf's wire format


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise ValueError("a number in the header is cut off")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, at
        shift += 7


def _fields(data: bytes):
    """Yields (number, value): an int, or the bytes of a length-delimited field."""
    value: int | bytes
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        number, kind = key >> 3, key & 7
        if number == 0:
            raise ValueError("the header has a field of number 0")
        if kind == 0:
            value, at = _varint(data, at)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
            value, at = data[at : at + size], at + size
        elif kind == 2:
            size, at = _varint(data, at)
            value, at = data[at : at + size], at + size
        else:
            raise ValueError(f"the header has a field of the unknown kind {kind}")
        if at > len(data):
            raise ValueError("a field of the header is cut off")
        yield number, value


def _dims(data: bytes) -> tuple[int, ...]:
    dims = []
    for number, value in _fields(data):
        if number != 1:
            continue
        if isinstance(value, int):  # written one by one
            dims.append(value)
            continue
        at = 0
        while at < len(value):
            dim, at = _varint(value, at)
            dims.append(dim)
    return tuple(dims)


def _put_varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _number(number: int, value: int) -> bytes:
    return _put_varint(number << 3) + _put_varint(value) if value else b""


def _block(number: int, value: bytes) -> bytes:
    return _put_varint(number << 3 | 2) + _put_varint(len(value)) + value


# ---- reading


def _read_tensor(data: bytes, size_field: int) -> dict:
    found = {"type": 0, "format": 0, "shape": (), "size": 0, "original": None}
    names = {1: "type", 2: "format", size_field: "size"}
    for number, value in _fields(data):
        if number in names and isinstance(value, int):
            found[names[number]] = value
        elif number == 3 and isinstance(value, bytes):
            found["shape"] = _dims(value)
        elif number == size_field + 1 and isinstance(value, bytes):
            found["original"] = _dims(value)
    return found


def _tensor(info: dict, data: bytes) -> DumpTensor:
    fmt = FORMATS.get(info["format"] & 0xFF, str(info["format"]))
    if info["type"] == 0 and not data:
        return DumpTensor(np.empty(0, np.float32), fmt, "undefined", absent=True)
    dtype = DTYPES.get(info["type"]) or _RAW_BYTES.get(info["type"])
    if dtype is None:
        name = DTYPE_NAMES.get(info["type"], str(info["type"]))
        raise ValueError(f"a tensor has the data type {name}, which is not supported")
    if len(data) % dtype.itemsize:
        raise ValueError(f"{len(data)} bytes are no whole number of {dtype.name}")
    array = np.frombuffer(data, dtype).copy()
    # A device may keep more than the dims say (padding of its memory): then the array stays flat.
    if array.size == math.prod(info["shape"]):
        array = array.reshape(info["shape"])
    original = info["original"] if info["original"] is not None else info["shape"]
    if any(dim >= 1 << 62 for dim in original):
        raise ValueError(f"a tensor has the dims {list(original)}")
    return DumpTensor(array, fmt, DTYPE_NAMES[info["type"]], original)


def read(path: str | os.PathLike) -> AclDump:
    """Reads a dump file.

    Raises:
        ValueError: the file is no dump file, or cut off; the text names it.
        OSError: it cannot be read.
    """
    path = Path(path)
    try:
        return _read(path)
    except ValueError as error:
        raise ValueError(f"{path}: this is not a complete ACL dump file: {error}") from None


def _read(path: Path) -> AclDump:
    size = path.stat().st_size
    with path.open("rb") as file:
        head = file.read(8)
        if len(head) < 8:
            raise ValueError(f"it has {size} bytes")
        (length,) = struct.unpack("<Q", head)
        if not 0 < length <= min(size - 8, _MOST_HEADER):
            raise ValueError(f"its header would have {length} of {size} bytes")
        header = file.read(length)
        inputs, outputs, op_name, taken = [], [], None, 0
        more = False  # buffers or workspaces, whose bytes lie behind the outputs
        for number, value in _fields(header):
            if number == 2 and isinstance(value, int):
                taken = value
            elif number == 3 and isinstance(value, bytes):
                outputs.append(_read_tensor(value, 6))
            elif number == 4 and isinstance(value, bytes):
                inputs.append(_read_tensor(value, 5))
            elif number == 6 and isinstance(value, bytes):
                op_name = value.decode("utf-8", "replace")
            elif number > 4:
                more = True
        payload = sum(t["size"] for t in inputs + outputs)
        whole = 8 + length + payload
        if whole > size or (whole < size and not more):
            raise ValueError(f"it has {size} bytes, its header tells of {whole}")
        dump = AclDump("", op_name or "", timestamp=taken)
        dump.inputs = [_tensor(t, file.read(t["size"])) for t in inputs]
        dump.outputs = [_tensor(t, file.read(t["size"])) for t in outputs]
    if name := _NAME.match(path.name):
        dump.op_type = name["op_type"]
        dump.op_name = op_name or name["op_name"]
        dump.task_id = int(name["task"])
        dump.stream_id = int(name["stream"]) if name["stream"] else None
        dump.timestamp = int(name["time"])
    return dump


# ---- writing


def _tensor_header(tensor: DumpTensor, size_field: int) -> bytes:
    if tensor.absent:
        return _block(3, b"") + _block(size_field + 1, b"")
    number = next((n for n, name in DTYPE_NAMES.items() if name == tensor.dtype), None)
    if number is None:
        raise ValueError(f"a dump file cannot hold {tensor.dtype}")
    shapes = [tensor.stored.shape, tensor.original_shape if tensor.format in PRIVATE else tensor.stored.shape]
    packed = [_block(1, b"".join(map(_put_varint, shape))) if shape else b"" for shape in shapes]
    return (
        _number(1, number)
        + _number(2, _FORMAT_NUMBERS[tensor.format])
        + _block(3, packed[0])
        + _number(size_field, tensor.stored.nbytes)
        + _block(size_field + 1, packed[1])
    )


def write(folder: str | os.PathLike, dump: AclDump) -> Path:
    """Writes a dump file into a folder under the name that the device would give it, and returns its path."""
    dump.timestamp = dump.timestamp or time.time_ns() // 1000
    header = _block(1, b"2.0") + _number(2, dump.timestamp)
    header += b"".join(_block(3, _tensor_header(t, 6)) for t in dump.outputs)
    header += b"".join(_block(4, _tensor_header(t, 5)) for t in dump.inputs)
    header += _block(6, dump.op_name.encode())
    stream = () if dump.stream_id is None else (dump.stream_id,)
    parts = (name_part(dump.op_type), name_part(dump.op_name), dump.task_id, *stream, dump.timestamp)
    path = Path(folder) / ".".join(map(str, parts))
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        for _, _, tensor in dump.tensors():
            if not tensor.absent:
                file.write(np.ascontiguousarray(tensor.stored).tobytes())
    return path


# ---- formats


def _blocks(n: int, block: int) -> int:
    return -(-n // block)


def _arrangement(fmt: str, shape: tuple[int, ...], c0: int, n0: int):
    """How a plain array of `shape` becomes private: (padded sizes, their split, order of the split axes)."""
    if fmt == "FRACTAL_NZ":
        if len(shape) < 2:
            shape = (1,) * (2 - len(shape)) + tuple(shape)
        *batch, rows, columns = shape
        rows, columns = _blocks(rows, n0), _blocks(columns, c0)
        b = len(batch)
        order = (*range(b), b + 2, b, b + 1, b + 3)
        return (*batch, rows * n0, columns * c0), (*batch, rows, n0, columns, c0), order, shape
    volume = fmt in ("NDC1HWC0", "FRACTAL_Z_3D")
    rank = 5 if volume else 4
    if len(shape) < 4 and not volume:  # the device sees fewer dims as an image: (C,) and (H, W, ...) alike
        shape = tuple(shape)
        shape = ((1, *shape) + (1,) * 4)[:4]
    if len(shape) != rank:
        raise ValueError(f"{fmt} is no format of {len(shape)} dims")
    n, c, *space = shape
    n1, c1 = _blocks(n, n0), _blocks(c, c0)
    if fmt in ("NC1HWC0", "NC1HWC0_C04"):
        return (n, c1 * c0, *space), (n, c1, c0, *space), (0, 1, 3, 4, 2), shape
    if fmt == "NDC1HWC0":
        return (n, c1 * c0, *space), (n, c1, c0, *space), (0, 3, 1, 4, 5, 2), shape
    split = (n1, n0, c1, c0, *space)
    order = (2, 4, 5, 0, 1, 3) if fmt == "FRACTAL_Z" else (4, 2, 5, 6, 0, 1, 3)
    return (n1 * n0, c1 * c0, *space), split, order, shape


def to_logical(stored: np.ndarray, fmt: str, shape: tuple[int, ...]) -> np.ndarray:
    """A private array as the plain one of `shape` (NCHW, NCDHW or ND) that it was made from.

    Raises:
        ValueError: the sizes do not fit together, or the format is not known.
    """
    if fmt not in PRIVATE:
        raise ValueError(f"{fmt} is no private format")
    if stored.ndim == len(shape) and stored.shape == tuple(shape) and fmt != "FRACTAL_NZ":
        raise ValueError(f"the plain shape of a tensor in {fmt} is not known: the file has {stored.shape} only")
    c0 = stored.shape[-1] if stored.ndim > 1 else 16
    n0 = stored.shape[-2] if stored.ndim > 1 and fmt.startswith("FRACTAL") else 16
    padded, split, order, seen = _arrangement(fmt, tuple(shape), c0, n0)
    if math.prod(split) != stored.size:
        raise ValueError(f"{stored.size} elements of {stored.shape} cannot be {tuple(shape)} in {fmt}")
    moved = stored.reshape([split[axis] for axis in order])
    plain = moved.transpose(np.argsort(order)).reshape(padded)
    return np.ascontiguousarray(plain[tuple(slice(n) for n in seen)]).reshape(shape)


def from_logical(array: np.ndarray, fmt: str, c0: int = 16) -> np.ndarray:
    """The contrary of :func:`to_logical`; the private array has the dims that the device gives it."""
    padded, split, order, seen = _arrangement(fmt, array.shape, c0, 16)
    whole = np.zeros(padded, array.dtype)
    whole[tuple(slice(n) for n in seen)] = array.reshape(seen)
    stored = np.ascontiguousarray(whole.reshape(split).transpose(order))
    if fmt == "FRACTAL_Z":
        return stored.reshape(-1, *stored.shape[3:])
    if fmt == "FRACTAL_Z_3D":
        return stored.reshape(-1, *stored.shape[4:])
    return stored


def is_plain_format(fmt: str) -> bool:
    """Whether :func:`to_format` knows the format."""
    return fmt == "ND" or sorted(fmt) in (sorted("NCHW"), sorted("NCDHW"))


def to_format(item: DumpTensor, fmt: str) -> np.ndarray:
    """An operand in a plain format (``convert -f``): NCHW, NHWC, HWCN, CHWN, NCDHW, NDHWC, DHWCN or ND.

    Raises:
        ValueError: it has another number of dims, or the format is not one of these.
    """
    if fmt == item.format:
        return item.values
    array = item.array
    if fmt == "ND":
        return array
    if not is_plain_format(fmt):
        raise ValueError(f"cannot convert to {fmt}: possible are ND and the orders of NCHW and of NCDHW, such as NHWC")
    # A private format's logical layout is channels second; "ND" does not say, and means the same here.
    now = item.format if item.format not in PRIVATE and sorted(item.format) == sorted(fmt) else None
    now = now or ("NCHW" if len(fmt) == 4 else "NCDHW")
    if array.ndim != len(fmt):
        shape = list(array.shape)
        raise ValueError(f"cannot convert {item.format} of shape {shape} to {fmt}: it has {array.ndim} dims")
    return np.ascontiguousarray(array.transpose([now.index(axis) for axis in fmt]))
