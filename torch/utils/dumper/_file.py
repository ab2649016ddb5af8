# The disk side of a dump file: HDF5 writes through this object, which decides when old bytes of the file are replaced.
"""A file whose content is a complete HDF5 file at (nearly) every moment.

Note [A file that always opens]
HDF5 changes its structures in place, one write after another, so a process that is killed in between leaves a file that
does not open. Here HDF5 gets to write its metadata only in `commit` (the writer switches evictions off). What it writes
beyond the end that the file had at the last commit is not referred to yet and goes to the disk at once. What replaces
older bytes is kept back, and written in one burst at the end of the commit: some microseconds, a few times a second.
"""

import os


class CommittedFile:
    """A file object for h5py; only one thread uses it at a time. `error` says that the disk refused a write.

    Args:
        path: the file.
        keep: open what is there instead of starting empty.
    """

    def __init__(self, path, keep: bool) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | (0 if keep else os.O_TRUNC), 0o666)
        self._end = os.fstat(self._fd).st_size  # where the file ends for HDF5
        self._committed = self._end if keep else 0
        self._place = 0
        self._late: dict[int, bytes] = {}  # offset -> bytes that replace committed ones
        self.error: OSError | None = None  # why the disk refused a write

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Sets the position."""
        self._place = offset + (0 if whence == os.SEEK_SET else self._place if whence == os.SEEK_CUR else self._end)
        return self._place

    def tell(self) -> int:
        """The position."""
        return self._place

    def write(self, data) -> int:
        """Writes at the position; replacements of committed bytes wait for `commit`."""
        view = memoryview(data).cast("B")
        start = self._place
        self._place += len(view)
        self._end = max(self._end, self._place)
        if self.error is not None:
            return len(view)
        if start < self._committed:
            self._late.pop(start, None)  # the newest write comes last in the order
            self._late[start] = bytes(view)
        else:
            try:
                self._put(view, start)
            except OSError as error:  # h5py's C code cannot take it; the writer asks after each of its calls
                self.abandon(error)
        return len(view)

    def _put(self, view, start: int) -> None:
        while view:
            done = os.pwrite(self._fd, view, start)
            view, start = view[done:], start + done

    def readinto(self, buffer) -> int:
        """Reads at the position, with what is kept back."""
        view = memoryview(buffer).cast("B")
        start, data = self._place, bytearray(os.pread(self._fd, len(view), self._place))
        data.extend(bytes(len(view) - len(data)))
        for offset, late in self._late.items():
            low, high = max(offset, start), min(offset + len(late), start + len(view))
            if low < high:
                data[low - start : high - start] = late[low - offset : high - offset]
        view[:] = data
        self._place += len(view)
        return len(view)

    def read(self, size: int = -1) -> bytes:
        """Reads up to the end."""
        left = max(self._end - self._place, 0)
        buffer = bytearray(left if size < 0 else min(size, left))
        self.readinto(buffer)
        return bytes(buffer)

    def truncate(self, size: int | None = None) -> int:
        """Sets the end; the disk is told when the file is closed, or when it grows."""
        self._end = self._place if size is None else size
        if self.error is None and self._end > os.fstat(self._fd).st_size:
            try:
                os.ftruncate(self._fd, self._end)
            except OSError as error:
                self.abandon(error)
        return self._end

    def space(self) -> os.statvfs_result:
        """What the file's disk says of its size."""
        return os.fstatvfs(self._fd)

    def flush(self) -> None:
        """Nothing: see `commit`."""

    def abandon(self, error: OSError) -> None:
        """A write has failed: the file stays what it was at the last commit, and takes nothing more."""
        self.error = error
        self._late = {}

    def commit(self) -> None:
        """Replaces the old bytes: what has been written since the last commit is now part of the file."""
        if self.error is not None:
            return
        late, self._late = self._late, {}
        for start, data in late.items():
            self._put(memoryview(data), start)
        self._committed = self._end

    def close(self) -> None:
        """Commits and closes. Does nothing the second time."""
        if self._fd < 0:
            return
        try:
            self.commit()
            os.ftruncate(self._fd, self._end if self.error is None else self._committed)
        finally:
            os.close(self._fd)
            self._fd = -1
