# Reads dump files back into tensors and arguments: for `use_load`, for replay, and for whoever looks at one.
"""Reader of dump files."""

import threading

import torch

from . import _calls, _values
from ._writer import import_h5py


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
            raise RuntimeError(f"torch.utils.dumper: {path} cannot be read as a dump file: {error}") from error
        if not any(isinstance(item, h5py.Group) for item in self._file.values()):
            self._file.close()
            raise RuntimeError(f"torch.utils.dumper: {path} holds no operators (groups /op/seqid/)")
        self.with_regions = self._with_regions()

    def _with_regions(self) -> bool:
        """Whether Note [Regions] was in force; a file that h5copy made has only its groups' attributes."""
        if "Regions" in self._file.attrs:
            return bool(self._file.attrs["Regions"])
        calls = (call for group in self._file.values() if hasattr(group, "values") for call in group.values())
        return all(call.attrs.get("Regions", 1) for call in calls)

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
        found = []
        for name, group in self._file.items():
            for seqid, call in group.items():
                if seqid.isdigit():
                    found.append((int(call.attrs.get("Index", 0)), f"/{name}/{seqid}"))
        return [path for _, path in sorted(found)]

    def call(self, path: str):
        """The recorded call of `/op/seqid`, or None."""
        with self._lock:
            group = self._file.get(path)
            return None if group is None or "input" not in group else Call(self, path, group)


class Call:
    """One recorded call; values are read when asked for."""

    def __init__(self, reader: Reader, path: str, group) -> None:
        self.path, self._reader, self._group = path, reader, group

    @property
    def attributes(self) -> dict:
        """The group's attributes: Index, Overload, Phase, Step, ..."""
        with self._reader._lock:
            return dict(self._group.attrs)

    def names(self, part: str = "input") -> list[str]:
        """Names of the arguments or results."""
        with self._reader._lock:
            return list(self._group[part])

    def header(self, name: str, part: str = "input"):
        """(shape, dtype name) of a tensor with data, else None."""
        with self._reader._lock:
            item = self._group[part].get(name)
            if item is None or "DataType" not in item.attrs or "Summary" in item.attrs or item.shape is None:
                return None
            dtype = item.attrs["DataType"]
            return (item.shape[:-1] if dtype == "complex32" else item.shape), dtype

    def attribute(self, name: str, key: str, part: str = "input", default=None):
        """One attribute of a data set."""
        with self._reader._lock:
            return self._group[part][name].attrs.get(key, default)

    def value(self, name: str, part: str = "input", device=None):
        """A tensor on `device` (CPU by default) in the recorded strides, or the recorded argument.

        Raises:
            ValueError: the file does not hold the value (summary, sparse or meta tensor, unknown type).
        """
        with self._reader._lock:
            item = self._group[part][name]
            attrs = dict(item.attrs)
            data = item[()] if item.shape is not None else None
        if "DataType" not in attrs:
            return _values.decode(attrs["Type"], data, device)
        if data is None or "Summary" in attrs:
            raise ValueError(f"{self._reader.path}: {self.path}/{part}/{name} was recorded without its values")
        tensor = _values.from_numpy(data, attrs["DataType"])
        if device is not None:
            tensor = tensor.to(device)
        return _values.with_strides(tensor, attrs["Stride"])

    def arguments(self, device=None, requires_grad: bool = False):
        """(OpOverload, args, kwargs) to make the call again.

        Recorded devices are replaced by `device`; with `requires_grad`, tensors that required a gradient are leaves.

        Raises:
            LookupError: this torch lacks the operator. ValueError: a value was not kept.
        """
        overload = self.attributes["Overload"]
        func = _calls.resolve(overload)
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
            else:
                positional = False
                continue
            if positional and not argument.kwarg_only:
                args.append(value)
            else:
                kwargs[argument.name] = value
        return func, args, kwargs
