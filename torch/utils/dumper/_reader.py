# Reads dump files back into tensors and arguments: for `use_load`, for replay, and for whoever looks at one.
"""Reader of dump files."""

import contextlib
import os
import threading

import torch

from . import _calls, _values
from ._writer import import_h5py


class ReadError(RuntimeError):
    """A dump file is damaged, or not one; the text names file and place."""


class Reader:
    """An open dump file.

    Raises:
        RuntimeError: the file is missing, is no HDF5 file, or holds no operators.
    """

    def __init__(self, path: str) -> None:
        h5py = import_h5py()
        self.path = path
        self._lock = threading.RLock()
        try:
            self._file = h5py.File(path, "r")
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else error
            raise RuntimeError(f"torch.utils.dumper: {path} cannot be read as a dump file: {reason}") from error
        try:
            with self.errors("/"):
                self._calls = {place: int(call.attrs.get("Index", 0)) for place, call in self._find_calls(h5py.Group)}
                self.with_regions = self._with_regions()
            if not self._calls:
                raise RuntimeError(f"torch.utils.dumper: {path} holds no operators (groups /op/seqid/)")
        except RuntimeError:
            self._file.close()
            raise

    @contextlib.contextmanager
    def errors(self, where: str):
        """Turns what h5py raises for damaged or foreign content into a ReadError."""
        try:
            yield
        except _values.NotKeptError:
            raise
        except (OSError, RuntimeError, LookupError, TypeError, AttributeError, ValueError) as error:
            raise ReadError(f"torch.utils.dumper: {self.path}: {where} cannot be read as a dump's: {error}") from error

    def _find_calls(self, kind):
        for name in self._file:
            group = self._file.get(name)  # None behind a broken link
            for seqid in group if isinstance(group, kind) else ():
                call = group.get(seqid)
                if seqid.isdecimal() and isinstance(call, kind) and isinstance(call.get("input"), kind):
                    yield f"/{name}/{seqid}", call

    def _with_regions(self) -> bool:
        """Whether Note [Regions] was in force; a file that h5copy made has only its groups' attributes."""
        if "Regions" in self._file.attrs:
            return bool(self._file.attrs["Regions"])
        return all(self._file[place].attrs.get("Regions", 1) for place in self._calls)

    def close(self) -> None:
        """Closes the file."""
        with self._lock:
            self._file.close()

    def __enter__(self) -> "Reader":
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def operators(self) -> list[str]:
        """Paths of all calls, in the order in which they were made."""
        return [path for _, path in sorted((index, path) for path, index in self._calls.items())]

    def call(self, path: str):
        """The recorded call of `/op/seqid`, or None."""
        if path not in self._calls:
            return None
        with self._lock, self.errors(path):
            return Call(self, path, self._file[path])


class Call:
    """One recorded call; values are read when asked for."""

    def __init__(self, reader: Reader, path: str, group) -> None:
        self.path, self._reader, self._group = path, reader, group

    @contextlib.contextmanager
    def _reading(self, *parts: str):
        with self._reader._lock, self._reader.errors("/".join((self.path, *parts))):
            yield

    @property
    def attributes(self) -> dict:
        """The group's attributes: Index, Overload, Phase, Step, ..."""
        with self._reading():
            return dict(self._group.attrs)

    def names(self, part: str = "input") -> list[str]:
        """Names of the arguments or results."""
        with self._reading(part):
            return list(self._group[part])

    def header(self, name: str, part: str = "input"):
        """(shape, dtype name) of a tensor with data, else None."""
        with self._reading(part, name):
            item = self._group[part].get(name)
            if item is None or "DataType" not in item.attrs or "Summary" in item.attrs or item.shape is None:
                return None
            dtype = item.attrs["DataType"]
            return (item.shape[:-1] if dtype == "complex32" else item.shape), dtype

    def attribute(self, name: str, key: str, part: str = "input", default=None):
        """One attribute of a data set."""
        with self._reading(part, name):
            return self._group[part][name].attrs.get(key, default)

    def value(self, name: str, part: str = "input", device=None):
        """A tensor on `device` (CPU by default) in the recorded strides, or the recorded argument.

        Raises:
            ValueError: the file does not hold the value (summary, sparse or meta tensor, unknown type).
        """
        with self._reading(part, name):
            item = self._group[part][name]
            attrs = dict(item.attrs)
            data = item[()] if item.shape is not None else None
            if "DataType" not in attrs:
                return _values.decode(attrs["Type"], data, device)
        if data is None or "Summary" in attrs:
            where = f"{self.path}/{part}/{name}"
            raise _values.NotKeptError(f"{self._reader.path}: {where} was recorded without its values")
        with self._reading(part, name):
            tensor, strides = _values.from_numpy(data, attrs["DataType"]), attrs["Stride"]
            strides = [int(stride) for stride in strides]
        if device is not None:
            tensor = tensor.to(device)
        with self._reading(part, name):
            return _values.with_strides(tensor, strides)

    def arguments(self, device=None, requires_grad: bool = False):
        """(OpOverload, args, kwargs) to make the call again.

        Recorded devices are replaced by `device`; with `requires_grad`, tensors that required a gradient are leaves.

        Raises:
            LookupError: this torch lacks the operator. ValueError: a value was not kept.
        """
        overload = self.attributes.get("Overload")
        if overload is None:
            raise ReadError(
                f"torch.utils.dumper: {self._reader.path}: {self.path} does not say which overload it is of"
            )
        func, missing = _calls.common(overload)
        names = set(self.names())
        made: dict[str, object] = {}

        def one(name):
            twin = self.attribute(name, "SameAs")
            value = made[twin] if twin else self.value(name, device=device)
            if requires_grad and isinstance(value, torch.Tensor) and self.attribute(name, "RequiresGrad"):
                value.requires_grad_(True)
            made[name] = value
            return value

        args, kwargs, positional = [], {}, True
        for argument, name in zip(func._schema.arguments, _calls.describe(func).arguments, strict=True):
            if name in names:
                value = one(name)
            elif f"{name}_0" in names and "List" in str(argument.type):
                value = [one(f"{name}_{i}") for i in range(len(names)) if f"{name}_{i}" in names]
            elif name in missing:
                value = missing[name]
            else:
                positional = False
                continue
            if positional and not argument.kwarg_only:
                args.append(value)
            else:
                kwargs[argument.name] = value
        return func, args, kwargs
