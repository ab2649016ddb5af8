# The class that users call: checks the arguments, opens the files, puts the session in force. Imported with torch, so
# everything that costs time is imported when a dumper is made.
"""`torch.utils.dumper`."""

import contextlib
import fnmatch
import os
import threading
import time

_active_lock = threading.Lock()
_active = None  # the dumper whose block is being run in this process
_written: dict[str, int] = {}  # path -> number of blocks of this process that have written it
_dated = 0  # time-stamped names handed out by this process


def _rank() -> int:
    """This process's rank in the default group, or as torchrun sets it, else 0."""
    import torch.distributed as dist

    if dist.is_available() and dist.is_initialized():
        return dist.get_rank()
    rank = os.environ.get("RANK", "0")
    return int(rank) if rank.isdigit() else 0


def _of_rank(path: str, rank: int) -> str:
    """model.h5 for rank 0, model_rank1.h5 for rank 1."""
    stem, suffix = os.path.splitext(path)
    return path if rank == 0 else f"{stem}_rank{rank}{suffix}"


def _path(name: str, value) -> str:
    """The argument as a path; RuntimeError when it is none."""
    try:
        path = os.fsdecode(value)
    except TypeError:
        raise RuntimeError(f"torch.utils.dumper: {name}={value!r} is not a path") from None
    if "\0" in path:
        raise RuntimeError(f"torch.utils.dumper: {name}={value!r}: a path holds no null character")
    return path


def _accept(wanted):
    """The argument `filter` as a function of the name, or None."""
    if wanted is None or callable(wanted):
        return wanted
    names = [wanted] if isinstance(wanted, str) else wanted
    if not isinstance(names, (list, tuple, set, frozenset)) or not all(isinstance(name, str) for name in names):
        raise RuntimeError(
            f"torch.utils.dumper: filter={wanted!r}: a list of operators' names, such as ['conv*'], or a function"
        )
    return lambda name: any(fnmatch.fnmatchcase(name, pattern) for pattern in names)


def _same_file(a: str, b: str) -> bool:
    return os.path.realpath(a) == os.path.realpath(b) or os.path.exists(b) and os.path.samefile(a, b)


def _dump_file(dump_path, rank: int) -> str:
    """The file that `dump_path` (a file, a directory or None) stands for; RuntimeError for a missing directory."""
    global _dated
    path = _path("dump_path", dump_path) if dump_path else "."
    if os.path.isdir(path):
        _dated += 1
        stamp = time.strftime("%Y%m%d%H%M%S")
        return os.path.join(path, _of_rank(f"dump_{stamp}_{os.getpid()}_{_dated}.h5", rank))
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        raise RuntimeError(f"torch.utils.dumper: dump_path={path}: there is no directory {folder}")
    if not os.path.splitext(path)[1] or path.endswith(os.sep):
        raise RuntimeError(
            f"torch.utils.dumper: dump_path={path}: there is no such directory (a file's name ends in .h5)"
        )
    return _of_rank(path, rank)


class dumper:
    """Context manager that records what every aten operator gets and gives, forward and backward, in an HDF5 file.

    The file holds groups ``/{operator}/{seqid}/input`` and ``/output``; seqid counts the calls of one operator from 1.
    It works on tensors of CPU, npu and cuda. Threads started inside the block are recorded as well. Put the parameter
    update outside of the block, take a small batch and one step: every operator's data goes to the disk.

    Args:
        enabled: False makes the block do nothing.
        use_dump: record. Together with ``load_file_path``: load and record.
        use_load: take each operator's inputs from ``load_file_path`` (by operator and seqid), compute here, record.
            What the file lacks, or has in another shape or dtype, is reported and computed from the program's values.
        check_overflow: print the IR name of each operator of an NPU that overflows or underflows, and record its inputs
            and outputs; ``"overflow"`` or ``"underflow"`` for that alone. AI Core operators only. Underflows are
            counted by the simulated NPU; CANN documents no flag of a card for them. Not together with dynamic loss
            scaling or combined tensors.
        dump_path: the file to write, or a directory in which a time-stamped ``.h5`` is made (default: the current one).
            A second block of this process adds to the file; ranks above 0 write ``{name}_rank{rank}.h5``.
        load_file_path: the file to load; empty means none.
        load_with_acl_dump: with a loaded file: each operator found in it is run under ACL dump as ``acl.json`` in the
            current directory says, which shows the device's operators behind it. ``ACL_DUMP_DATA`` must be 0 and
            ``torch.npu.init_dump()`` not in force.
        filter: names of operators (with ``*`` and ``?``) or a function of the name; others are counted, not recorded.
        summary_only: keep statistics (min, max, mean, std, norm, count, nan, inf) instead of the values.
        progress: show a line with what has been written.

    Raises:
        RuntimeError: two modes at once, a block inside a block, a missing directory, a file that cannot be read as a
            dump, equal paths, a filter that is none, h5py missing, or a disk that is full (naming operator and path).

    Attributes:
        path: the file written, None while there is none.
        problems: texts on operators that could not be fed from the loaded file.
        overflows: one dict for each overflow or underflow (kind, op_type, op_name, device, operator; lost: how many
            results an underflow turned into zeros).
        operators, bytes_written: what has been recorded.

    Example::

        with torch.utils.dumper(use_dump=True, dump_path="./model_gpu.h5") as dump:
            loss = model(x).sum()
            loss.backward()
    """

    def __init__(
        self,
        enabled=True,
        use_dump=False,
        use_load=False,
        check_overflow=False,
        dump_path=None,
        load_file_path=None,
        load_with_acl_dump=False,
        *,
        filter=None,
        summary_only=False,
        progress=True,
    ):
        self.path = None
        self.problems: list[str] = []
        self.overflows: list[dict] = []
        self.operators = self.bytes_written = 0
        self._step = 1
        self._session = self._writer = self._reader = self._sink = None
        self._summary_only, self._progress = summary_only, progress
        self._accept = _accept(filter)
        self._dump_path = dump_path
        self._acl = load_with_acl_dump
        load_file_path = _path("load_file_path", load_file_path) if load_file_path else None
        chosen = [
            n for n, v in (("use_dump", use_dump), ("use_load", use_load), ("check_overflow", check_overflow)) if v
        ]
        self._mode = None
        if not enabled:
            return
        if len(chosen) > 1:
            raise RuntimeError(f"torch.utils.dumper: {' and '.join(chosen)} are different modes; choose one")
        if check_overflow not in (False, True, None, "overflow", "underflow"):
            raise RuntimeError(
                f"torch.utils.dumper: check_overflow={check_overflow!r} is none of True, False, 'overflow', 'underflow'"
            )
        if check_overflow and load_file_path:
            raise RuntimeError("torch.utils.dumper: check_overflow takes no load_file_path")
        if use_load and not load_file_path:
            raise RuntimeError("torch.utils.dumper: use_load=True needs load_file_path")
        if load_file_path and not chosen:
            raise RuntimeError("torch.utils.dumper: load_file_path needs use_load=True (or use_dump=True)")
        if load_with_acl_dump and not load_file_path:
            raise RuntimeError("torch.utils.dumper: load_with_acl_dump=True needs use_load=True and load_file_path")
        if not chosen:
            return
        self._kinds = (check_overflow,) if isinstance(check_overflow, str) else ("overflow", "underflow")
        self._mode = "overflow" if check_overflow else "load" if load_file_path else "dump"
        from ._writer import import_h5py

        import_h5py()
        rank = _rank()
        self._target = _dump_file(dump_path, rank)
        self._source = load_file_path
        if load_file_path:
            own = _of_rank(load_file_path, rank)
            self._source = own if os.path.exists(own) else load_file_path
            from ._reader import Reader

            Reader(self._source).close()  # so that a bad file is named here
            if _same_file(self._source, self._target):
                raise RuntimeError(f"torch.utils.dumper: dump_path and load_file_path are the same file {self._source}")
        if load_with_acl_dump:
            from ._acl import check

            check()

    def __enter__(self):
        global _active
        if self._mode is None:
            return self
        with _active_lock:
            if _active is not None and _active._pid == os.getpid():
                raise RuntimeError("torch.utils.dumper: a block is being recorded already; blocks cannot be nested")
            self._pid = os.getpid()
            _active = self
        try:
            self._open()
        except BaseException:
            self._close_files()
            _active = None
            raise
        return self

    def __exit__(self, kind, error, traceback):
        global _active
        if self._mode is None or self._session is None or os.getpid() != self._pid:
            return False
        _active = None
        self._session.stop()
        if self._mode == "overflow":
            self._sink.stop()
            self.overflows = self._sink.found
            self._writer = self._sink.writer
        if self._mode == "load":
            self.problems = self._sink.problems
        failed = self._close_files()
        self._session = None
        if self._progress:
            self._tell()
        if failed is not None and kind is None:
            raise failed
        return False

    def _open(self) -> None:
        from ._session import Session

        regions = self._mode != "overflow"
        if self._mode == "load":
            from ._reader import Reader
            from ._sinks import LoadSink

            self._reader = Reader(self._source)
            regions = self._reader.with_regions
            from . import _acl

            self._writer = self._make_writer(regions)
            self._sink = LoadSink(self._writer, self._reader, self._step, _acl.around if self._acl else None)
        elif self._mode == "dump":
            from ._sinks import DumpSink

            self._writer = self._make_writer(regions)
            self._sink = DumpSink(self._writer, self._step)
        else:
            from ._overflow import OverflowSink

            self._sink = OverflowSink(lambda: self._make_writer(False), self._kinds)
            self._sink.start()
        again = self._writer is not None and self._step > 1
        self._session = Session(
            self._sink,
            regions=regions,
            accept=self._accept,
            sequence=self._writer.last_sequence() if again else None,
            index=self._writer.last_index() if again else 0,
        )
        self._session.start()

    def _make_writer(self, regions: bool):
        import torch

        from ._writer import FORMAT_VERSION, Writer

        key = os.path.realpath(self._target)
        append = _written.get(key, 0) > 0 and os.path.exists(self._target)
        self._step = _written[key] = (_written.get(key, 0) if append else 0) + 1
        writer = Writer(
            self._target,
            append=append,
            summary_only=self._summary_only,
            progress=self._progress,
            attributes={
                "FormatVersion": FORMAT_VERSION,
                "Torch": str(torch.__version__),
                "Rank": _rank(),
                "Regions": int(regions),
            },
        )
        self.path = self._target
        return writer

    def _close_files(self):
        """Closes what is open; returns an error of the dump file instead of raising it."""
        from ._writer import DumpError

        failed = None
        if self._writer is not None:
            self.operators, self.bytes_written = self._writer.operators, self._writer.bytes_written
            try:
                self._writer.close(self._session.index if self._session is not None else None)
            except DumpError as error:
                failed = error
            except (OSError, RuntimeError, ValueError) as error:
                failed = DumpError(f"torch.utils.dumper: closing {self._writer.path} failed: {error}")
        if self._reader is not None:
            self._reader.close()
        return failed

    def _tell(self) -> None:
        import sys

        lines = []
        if self._writer is not None:
            lines.append(self._writer.progress_line())
        if self.problems:
            lines.append(f"dumper: {len(self.problems)} operators were not fed from {self._source}:")
            lines += [f"  {text}" for text in self.problems[:20]]
            if len(self.problems) > 20:
                lines.append(f"  and {len(self.problems) - 20} more (attribute `problems`)")
        with contextlib.suppress(ValueError):  # a closed stderr is no reason to fail
            print("\n".join(lines), file=sys.stderr, end="\n" if lines else "")

    # What `torch.utils.dumper.NAME` reaches, since the class hides the package of its name.

    @staticmethod
    def replay(path, operator, device="cpu"):
        """See :func:`torch.utils.dumper._replay.replay`."""
        from ._replay import replay

        return replay(path, operator, device)

    @staticmethod
    def write_unittest(path, operator, target, devices=("cpu", "npu")):
        """See :func:`torch.utils.dumper._unittest_writer.write_unittest`."""
        from ._unittest_writer import write_unittest

        return write_unittest(path, operator, target, devices)

    @staticmethod
    def hook_network(model, report=print):
        """See :func:`torch.utils.dumper.network.hook_network`."""
        from .network import hook_network

        return hook_network(model, report)

    @staticmethod
    def compare_network(model, *inputs, devices=("cpu", "npu"), **options):
        """See :func:`torch.utils.dumper.network.compare_network`."""
        from .network import compare_network

        return compare_network(model, *inputs, devices=devices, **options)

    @staticmethod
    def parameter_report(model, report=print):
        """See :func:`torch.utils.dumper.network.parameter_report`."""
        from .network import parameter_report

        return parameter_report(model, report)
