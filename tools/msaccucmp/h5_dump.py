# Reads operator dumps (torch.utils.dumper) with h5py and numpy alone.
"""Reader of .h5 dump files."""

import contextlib
import os
from dataclasses import dataclass

import numpy as np


class DumpFileError(Exception):
    """A file that cannot be compared; the text names it."""


@dataclass
class Operator:
    """One recorded call: name, seqid, place in the order of all calls, and how it is to be judged."""

    name: str
    seqid: int
    index: int
    kind: str
    phase: str
    autocast: str = ""  # the dtype that autocast computed it in, of operators that are recorded above autocast

    @property
    def path(self) -> str:
        """op/seqid"""
        return f"{self.name}/{self.seqid}"


@dataclass
class Value:
    """One tensor. `array` is float32 for dtypes that numpy lacks; None where the file has no values."""

    name: str
    dtype: str
    shape: tuple
    array: np.ndarray | None
    remark: str = ""


def import_h5py():
    """h5py; raises ImportError that says where it comes from."""
    try:
        import h5py
    except ImportError as error:
        raise ImportError("h5py is missing: pip install h5py (part of the extra torch[npu-tools])") from error
    return h5py


def _text(value) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


class DumpFile:
    """An open dump file; raises DumpFileError when it is none."""

    def __init__(self, path: str) -> None:
        h5py = import_h5py()
        self.path = path
        try:
            self._file = h5py.File(path, "r")
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else error
            raise DumpFileError(f"{path}: not readable as an .h5 file: {reason}") from error
        self.operators: dict[str, Operator] = {}
        with self._errors("its groups"):
            for name in self._file:
                group = self._file.get(name)  # None behind a broken link
                for seqid in group if isinstance(group, h5py.Group) else ():
                    call = group.get(seqid)
                    if seqid.isdecimal() and isinstance(call, h5py.Group) and "output" in call:
                        a = call.attrs
                        kind, phase = _text(a.get("Kind", "")), _text(a.get("Phase", ""))
                        autocast = _text(a.get("Autocast", ""))
                        op = Operator(name, int(seqid), int(a.get("Index", 0)), kind, phase, autocast)
                        self.operators[op.path] = op
        if not self.operators:
            raise DumpFileError(f"{path}: no operators (groups /op/seqid/ of torch.utils.dumper)")

    def __enter__(self) -> "DumpFile":
        return self

    def __exit__(self, *_) -> None:
        self._file.close()

    @contextlib.contextmanager
    def _errors(self, where: str):
        """What h5py and numpy raise for damaged or foreign content, as a DumpFileError that names file and place."""
        try:
            yield
        except (OSError, RuntimeError, ValueError, LookupError, TypeError, AttributeError) as error:
            raise DumpFileError(f"{self.path}: {where} cannot be read as a dump's: {error}") from error

    def in_order(self) -> list[Operator]:
        """All calls in the order in which they were made."""
        return sorted(self.operators.values(), key=lambda op: (op.index, op.path))

    def names(self, op: Operator, part: str) -> list[str]:
        """Names of the tensors among the inputs or outputs."""
        with self._errors(f"{op.path}/{part}"):
            group = self._file[op.path].get(part) or {}  # h5copy may have been asked for a part only
            return sorted((n for n in group if "DataType" in group[n].attrs), key=_natural)

    def value(self, op: Operator, part: str, name: str) -> Value:
        """One tensor with its values."""
        with self._errors(f"{op.path}/{part}/{name}"):
            item = self._file[op.path][part][name]
            dtype = _text(item.attrs["DataType"])
            if item.shape is None or "Summary" in item.attrs:
                shape = tuple(int(n) for n in np.atleast_1d(item.attrs.get("Shape", ())))
                if item.shape is None:
                    return Value(name, dtype, shape, None, "the values were not recorded.")
                return Value(name, "float64", shape, item[()], "statistics only.")
            array = decode(item[()], dtype)
            if array.dtype.kind not in "biufc":
                raise ValueError(f"it holds {array.dtype}, not numbers")
            return Value(name, dtype, array.shape, array)


def _natural(name: str):
    head, _, tail = name.rpartition("_")
    return (head, int(tail)) if tail.isdigit() else (name, -1)


def decode(stored, dtype: str) -> np.ndarray:
    """The values of a data set in a dtype that numpy computes with."""
    stored = np.asarray(stored)
    if dtype == "bfloat16":
        return (stored.astype(np.uint32) << 16).view(np.float32)
    if dtype.startswith("float8_"):
        return _float8(stored, dtype)
    if dtype == "complex32":
        return stored[..., 0].astype(np.float32) + 1j * stored[..., 1].astype(np.float32)
    return stored


def _float8(stored: np.ndarray, dtype: str) -> np.ndarray:
    """Values of OCP 8-bit floats; other kinds are compared bit by bit."""
    bits = stored.astype(np.int32)
    if dtype not in ("float8_e4m3fn", "float8_e5m2"):
        return stored
    mantissa_bits, bias = (3, 7) if dtype == "float8_e4m3fn" else (2, 15)
    exponent = (bits >> mantissa_bits) & ((1 << (7 - mantissa_bits)) - 1)
    mantissa = bits & ((1 << mantissa_bits) - 1)
    fraction = mantissa / (1 << mantissa_bits)
    value = np.where(exponent == 0, fraction * 2.0 ** (1 - bias), (1 + fraction) * 2.0 ** (exponent - bias))
    if dtype == "float8_e4m3fn":
        value = np.where((bits & 0x7F) == 0x7F, np.nan, value)
    else:
        value = np.where(exponent == 31, np.where(mantissa == 0, np.inf, np.nan), value)
    return np.where(bits & 0x80, -value, value).astype(np.float32)
