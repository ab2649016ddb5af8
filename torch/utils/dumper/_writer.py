# The one place that writes the HDF5 file: groups /{op}/{seqid}/{input,output}, one data set per value.
"""Writer of dump files."""

import errno
import os
import sys
import threading
import time
from typing import Any

import numpy as np

import torch

from . import _values
from ._file import CommittedFile

FORMAT_VERSION = 1
_COMMIT_EVERY = 0.5  # seconds
_CHECK_EVERY = 16 << 20  # bytes between two looks at the free space
_RESERVE = 8 << 20  # what is left free, so that the file can be closed


class DumpError(RuntimeError):
    """The file could not be written; the text names operator and path."""


def import_h5py():
    """h5py, or RuntimeError that says where it comes from."""
    try:
        import h5py
    except ImportError as error:
        raise DumpError(
            "torch.utils.dumper needs h5py: pip install h5py (part of the extra torch[npu-tools])"
        ) from error
    return h5py


def size_text(count: float) -> str:
    """1.2 MB for 1234567."""
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.2f} GB"


class Writer:
    """Writes calls into one file, which is up to date on the disk every half second (see _file.py)."""

    def __init__(self, path: str, *, append: bool, summary_only: bool, progress: bool, attributes: dict) -> None:
        h5py = import_h5py()
        from h5py import h5a, h5d, h5g, h5p, h5s, h5t

        self._h5a, self._h5d, self._h5g, self._h5s, self._h5t = h5a, h5d, h5g, h5s, h5t
        self.path = path
        self.summary_only, self.progress = summary_only, progress and sys.stderr.isatty()
        self.bytes_written = self._since_check = 0
        self.operators = 0
        self._lock = threading.RLock()
        self._failure: DumpError | None = None  # the disk refused a write; the file ends at the last commit
        self._shown = 0.0
        self._committed = 0.0
        try:
            self._disk = CommittedFile(path, append)
            # The old superblock, since the new one refuses a file whose writer did not close it.
            self._file = h5py.File(self._disk, "r+" if append else "w", libver="earliest")
        except OSError as error:
            raise RuntimeError(f"torch.utils.dumper: cannot write {path}: {error}") from error
        config = self._file.id.get_mdc_config()
        config.evictions_enabled = False
        config.incr_mode = config.decr_mode = config.flash_incr_mode = 0
        self._file.id.set_mdc_config(config)
        self._links = h5p.create(h5p.LINK_CREATE)
        self._links.set_create_intermediate_group(True)
        self._early = h5p.create(h5p.DATASET_CREATE)
        self._early.set_fill_time(h5d.FILL_TIME_NEVER)
        self._scalar, self._null = h5s.create(h5s.SCALAR), h5s.create(h5s.NULL)
        self._text = h5t.py_create(h5py.string_dtype(), logical=True)
        self._types: dict[np.dtype, Any] = {}
        for name, value in attributes.items():
            self._file.attrs[name] = value
        try:
            with self._errors("the head"):
                self._free_space("the head")
                self._commit()
        except DumpError:
            self._file.close()
            self._disk.close()
            if not append:
                os.unlink(path)
            raise

    def last_index(self) -> int:
        """The number of operators that the file holds already."""
        return int(self._file.attrs.get("Operators", 0))

    def last_sequence(self) -> dict[str, int]:
        """The highest seqid of each operator that the file holds already."""
        return {name: max((int(s) for s in group if s.isdigit()), default=0) for name, group in self._file.items()}

    def begin(self, name: str, seqid: int, attributes: dict):
        """Makes the group of a call and returns a handle for `value`."""
        where = f"/{name}/{seqid}"
        with self._lock, self._errors(where):
            group = self._h5g.create(self._file.id, where.encode(), lcpl=self._links)
            for key, value in attributes.items():
                self._attribute(group, key, value)
            for part in (b"input", b"output"):
                self._h5g.create(group, part)
            self.operators += 1
            return where

    def value(self, where: str, part: str, name: str, value, *, without_data=False, same_as=None, like=None) -> None:
        """Writes one argument or result; part is "input" or "output". `like` is the tensor whose attributes count."""
        place = f"{where}/{part}/{name}"
        if isinstance(value, torch.Tensor):
            data = None  # read before the guard: an error of the device is not one of the file
            if _values.storable(value) and not without_data:
                data = _values.statistics(value) if self.summary_only else _values.to_numpy(value)
            with self._lock, self._errors(place):
                self._tensor(place, value if like is None else like, data, same_as)
            return
        kind, data = _values.encode(value)
        if self.summary_only and kind == "UntypedStorage":
            data = None
        with self._lock, self._errors(place):
            self._attribute(self._dataset(place, data), "Type", kind)

    def end(self, where: str) -> None:
        """The call is complete."""
        if time.monotonic() - self._committed > _COMMIT_EVERY:
            with self._lock, self._errors(where):
                self._commit()
        if self.progress and time.monotonic() - self._shown > 0.2:
            self._shown = time.monotonic()
            sys.stderr.write(f"\r{self.progress_line()}\x1b[K")
            sys.stderr.flush()

    def progress_line(self) -> str:
        """What has been written so far, in one line."""
        return f"dumper: {self.operators} operators, {size_text(self.bytes_written)} written to {self.path}"

    def mark(self, where: str, key: str, value) -> None:
        """Sets an attribute of a call's group."""
        with self._lock, self._errors(where):
            self._file[where].attrs[key] = value

    def close(self, count: int | None = None) -> None:
        """Closes the file; `count` is the number of operators in it. Does nothing the second time.

        Raises DumpError again when the disk has refused a write, in case that the script went on.
        """
        with self._lock:
            if not self._file:
                return
            if self.progress and self._shown:
                sys.stderr.write("\r\x1b[K")
            try:
                if self._disk.error is None:
                    if count is not None:
                        self._file.attrs["Operators"] = count
                    self._commit()
            finally:
                try:
                    self._file.close()
                finally:
                    self._disk.close()
            if self._failure is None and self._disk.error is not None:
                raise self._disk.error
            if self._failure is not None:
                raise self._failure

    def _commit(self) -> None:
        self._file.flush()
        self._disk.commit()
        self._committed = time.monotonic()

    def _errors(self, where):
        return _Errors(self, where)

    def _free_space(self, where: str, wanted: int = 0) -> None:
        """Raises OSError before the disk is full, so that what is there stays readable."""
        disk = self._disk.space()  # asked of the file: the script may be in another directory by now
        if disk.f_bavail * disk.f_frsize < wanted + _RESERVE:
            raise OSError(errno.ENOSPC, f"{os.strerror(errno.ENOSPC)} ({size_text(wanted)} wanted)")
        self._since_check = 0

    def _attribute(self, place, key: str, value) -> None:
        name = key.encode()
        if isinstance(value, str):
            attribute = self._h5a.create(place, name, self._text, self._scalar)
            attribute.write(np.array(value, dtype=object))
            return
        array = np.asarray(value, dtype=np.int64)
        space = self._h5s.create_simple(array.shape) if array.ndim else self._scalar
        attribute = self._h5a.create(place, name, self._h5t.NATIVE_INT64, space)
        if array.size:
            attribute.write(array, self._h5t.NATIVE_INT64)

    def _dataset(self, place: str, data):
        if data is None:
            return self._h5d.create(self._file.id, place.encode(), self._h5t.NATIVE_INT8, self._null)
        if isinstance(data, str):
            dataset = self._h5d.create(self._file.id, place.encode(), self._text, self._scalar)
            dataset.write(self._h5s.ALL, self._h5s.ALL, np.array(data, dtype=object))
            return dataset
        kind = self._types.get(data.dtype)
        if kind is None:
            kind = self._types[data.dtype] = self._h5t.py_create(data.dtype, logical=True)
        self._since_check += data.nbytes
        if self._since_check > _CHECK_EVERY:
            self._free_space(place, data.nbytes)
        space = self._h5s.create_simple(data.shape) if data.ndim else self._scalar
        dataset = self._h5d.create(self._file.id, place.encode(), kind, space, self._early)
        if data.size:
            dataset.write(self._h5s.ALL, self._h5s.ALL, data, kind)
        self.bytes_written += data.nbytes
        return dataset

    def _tensor(self, place: str, tensor: torch.Tensor, data, same_as) -> None:
        dataset = self._dataset(place, data)
        self._attribute(dataset, "DeviceType", tensor.device.type)
        self._attribute(dataset, "DataType", _values.dtype_name(tensor.dtype))
        self._attribute(dataset, "FormatType", _values.format_name(tensor))
        self._attribute(dataset, "Type", _values.tensor_kind(tensor))
        self._attribute(dataset, "Stride", tensor.stride() if _values.has_strides(tensor) else ())
        self._attribute(dataset, "RequiresGrad", int(tensor.requires_grad))
        if data is None or self.summary_only:
            self._attribute(dataset, "Shape", _values.shape(tensor))
        if data is not None and self.summary_only:
            self._attribute(dataset, "Summary", ",".join(_values.STATISTICS))
        if same_as:
            self._attribute(dataset, "SameAs", same_as)


class _Errors:
    """Turns an error of the file into one that names the operator and the path."""

    def __init__(self, writer: Writer, where: str) -> None:
        self.writer, self.where = writer, where

    def __enter__(self) -> None:
        if self.writer._failure is not None:
            raise self.writer._failure

    def __exit__(self, kind, error, traceback) -> None:
        error = self.writer._disk.error if error is None else error
        if isinstance(error, DumpError) or not isinstance(error, (OSError, RuntimeError, ValueError)):
            return
        written = size_text(self.writer.bytes_written)
        failure = DumpError(
            f"torch.utils.dumper: writing {self.where} to {self.writer.path} failed after {written}: {error}"
        )
        if isinstance(error, OSError):
            self.writer._failure = failure
        raise failure from error
