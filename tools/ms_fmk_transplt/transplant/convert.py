# From the bytes of one file to the bytes of its npu version and a report; nothing here touches the file system.
"""Conversion of one source: fast path, rules in order, result."""

import inspect
import re
import sys
import threading
import warnings
from operator import attrgetter

import libcst as cst

from . import api_table
from .compat import CompatRules
from .contexts import literal
from .distributed import DistributedRules
from .records import FileReport
from .rules_calls import CallRules
from .rules_names import NameRules, ensure_import
from .rules_strings import StringRules
from .source import ASYNC, Source, SourceError, looks_like_python2
from .unit import Options, Unit, explain

_WORDS = r"cuda|nccl|\bapex\b|\bgpu:|DataParallel|GradScaler|cudnn|\bamp_C\b|torch\.compile\b"
_NPU_WORDS = re.compile(rb"(?<![A-Za-z0-9])npu(?![A-Za-z0-9])|hccl|torch_npu|is_npu|NpuFused")
_NPU_NAMES = {"is_npu_available", "is_torch_npu_available", "is_ascend_npu_available", "torch_npu"}
_DEEP = 12000  # libcst recurses several frames per node; Python's default of 1000 stops at long "elif" chains
_SHALLOW = 300  # nesting that the main thread's stack takes with ease


class Converter:
    """Converts sources with one set of options."""

    def __init__(self, options: Options, respect_npu: bool = True):
        self.options = options
        self.respect_npu = respect_npu
        packages = "|".join(re.escape(name.split(".")[0]) for name in api_table.PACKAGES)
        words = [_WORDS, rf"^\s*(?:from|import)\s+(?:{packages})\b"]
        # Names of the table that none of the usual words would find.
        others = (name for name in api_table.NAMES if not re.search(_WORDS, name, re.IGNORECASE))
        words += [rf"\b{name.rpartition('.')[2]}\b" for name in others]
        words += [re.escape(word) for word in sorted(options.custom.words())]
        if options.compat:
            words.append("DataLoader|init_process_group")
        if options.operators:
            names = "|".join(sorted(options.operators.words()))
            words.append(rf"\b(?:torch|linalg|fft|special|F|functional|nn)\.(?:{names})\b")
            words.append(rf"^\s*from\s+torch[\w.]*\s+import\b.*\b(?:{names})\b")
        self._interesting = re.compile("|".join(words).encode(), re.IGNORECASE | re.MULTILINE)

    def is_interesting(self, raw: bytes) -> bool:
        """Whether a file can hold anything to change; the others take the fast path (one regular expression)."""
        return bool(self._interesting.search(raw))

    def convert(self, raw: bytes, path: str, is_main: bool = False) -> tuple[bytes, FileReport]:
        """Convert the bytes of one Python file.

        Returns:
            The new bytes (``raw`` itself where nothing changes) and the report.
        """
        report = FileReport(path, lines=raw.count(b"\n") + (0 if raw.endswith(b"\n") else bool(raw)))
        if not is_main and not self.is_interesting(raw) and b"\0" not in raw:
            return raw, report
        try:
            source = Source(raw)
            if not is_main and not self.is_interesting(source.data):
                return raw, report
            compiles = _compiles(source.data)
            if not compiles:
                source.mask_async()
                compiles = _compiles(source.data)
            if not compiles and looks_like_python2(source.text):
                raise SourceError(explain(source.text))
            new = with_room(source.data, self._convert_source, source, report, raw, is_main, compiles)
        except SourceError as error:
            report.status, report.reason = "failed", str(error)
            return raw, report
        except RecursionError:
            report.status, report.reason = "failed", "nests too deep to be converted"
            return raw, report
        return (source.encode(new), report) if report.status == "converted" else (raw, report)

    def _convert_source(self, source: Source, report: FileReport, raw: bytes, is_main: bool, compiles: bool) -> bytes:
        unit = self.rewrite(source, report, is_main)
        new = unit.edits.apply(source.data)
        if ASYNC.encode() in new and ASYNC.encode() not in raw:
            raise SourceError("an argument is called async, which Python 3.7 made a keyword; rename it first")
        if report.status != "converted":
            return source.data
        if compiles and not _compiles(new):
            report.changes.clear()
            report.status, report.reason = "failed", "the converted text does not compile; left as it is"
            return source.data
        return new

    def rewrite(self, source: Source, report: FileReport, is_main: bool = False) -> Unit:
        """Run the rules and fill the report; the edits are in the returned unit."""
        unit = Unit(source, self.options)
        npu_line = names_npu(unit) if self.respect_npu else None
        if npu_line is not None:
            report.status, report.reason = "ported", f"already names npu in line {npu_line}; left alone"
            return unit
        CallRules(unit).apply()
        names = NameRules(unit)
        names.apply()
        StringRules(unit).apply()
        CompatRules(unit).apply()
        ensure_import(unit, names.needs_torch)
        if is_main:
            DistributedRules(unit).apply()
        report.changes = unit.changes()
        report.hints = sorted(unit.hints, key=attrgetter("line"))
        report.unsupported = sorted(unit.unsupported, key=attrgetter("line"))
        if len(unit.edits):
            report.status = "converted"
        return unit


def names_npu(unit: Unit) -> int | None:
    """First line whose code (not a comment) already speaks of npu, or None."""
    if not _NPU_WORDS.search(unit.source.data):
        return None
    for node in unit.names.nodes:
        if isinstance(node, cst.Attribute):
            if node.attr.value in ("npu", "is_npu") or node.attr.value.startswith("NpuFused"):
                return unit.line(node)
        elif isinstance(node, cst.Name):
            if node.value in _NPU_NAMES or node.value.startswith("NpuFused"):
                return unit.line(node)
        elif isinstance(node, cst.SimpleString):
            value = literal(node)
            speaks = value in ("npu", "hccl") or value and value.startswith(("npu:", "torch.npu."))
            if speaks and not unit.contexts.is_documentation(node):
                return unit.line(node)
        elif isinstance(node, cst.FormattedStringText) and node.value.startswith("npu:"):
            return unit.line(node)
    return None


def _compiles(data: bytes) -> bool:
    """Whether this Python compiles a text.

    Raises:
        RecursionError: it nests deeper than Python takes. libcst's parser needs quadratic time and much stack for such
            texts, so they must not reach it.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(data, "source", "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return False
    except MemoryError as error:
        raise RecursionError from error
    return True


def _is_deep(data: bytes) -> bool:
    """Whether a text nests so deep that it needs a larger stack. Asks the compiler, with little room to recurse."""
    limit = sys.getrecursionlimit()
    frames = len(inspect.stack(0))
    try:
        sys.setrecursionlimit(frames + _SHALLOW // 3)
        _compiles(data)
    except RecursionError:
        return True
    finally:
        sys.setrecursionlimit(limit)
    return False


def with_room(data: bytes, function, *args):
    """Call ``function`` with the recursion limit (and, for deep texts, the thread with the stack) that it needs."""
    limit = sys.getrecursionlimit()
    try:
        if _is_deep(data):
            return _in_thread(function, *args)
        sys.setrecursionlimit(max(limit, _DEEP))
        return function(*args)
    finally:
        sys.setrecursionlimit(limit)


def _in_thread(function, *args):
    result: list = []

    def run():
        try:
            result.append((function(*args), None))
        except BaseException as error:  # handed to the caller's thread below
            result.append((None, error))

    size = threading.stack_size(256 * 1024 * 1024)
    try:
        sys.setrecursionlimit(max(sys.getrecursionlimit(), _DEEP))
        thread = threading.Thread(target=run, name="ms_fmk_transplt")
        thread.start()
        thread.join()
    finally:
        threading.stack_size(size)
    value, error = result[0]
    if error is not None:
        raise error
    return value
