r"""What a profile holds, in one shape, whether it was a trace file of torch.profiler or a folder ``PROF_*``.

Times are microseconds; :attr:`Profile.origin` says what is zero.
"""

import gzip
import json
import os
import re
import struct
from bisect import bisect_right
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# aclsimRecord of acl_simulator.h
RECORD = struct.Struct("<QQqqqQIIIhBB")
OP, COPY, FILL, EVENT, WAIT, CALLBACK, EXTERNAL = range(7)
API, RANGE, MARK = 16, 17, 18
COPY_NAMES = {0: "Memcpy HtoH", 1: "Memcpy HtoD", 2: "Memcpy DtoH", 3: "Memcpy DtoD"}

_DTYPES = {
    "float32": "FLOAT",
    "float16": "FLOAT16",
    "bfloat16": "DT_BF16",
    "float64": "DOUBLE",
    "complex64": "COMPLEX64",
    "complex128": "COMPLEX128",
    "undefined": "DT_UNDEFINED",
}


@dataclass(slots=True)
class Task:
    r"""Something that a device did. ``kind``: op, copy, fill, hccl or wait. ``core``: AI_CORE, AI_CPU, HCCL, or ""."""

    name: str
    kind: str
    device: int
    stream: int
    start: float
    end: float
    submitted: float | None = None
    id: int = 0
    core: str = ""
    bytes: int = 0
    inputs: tuple[str, str, str] = ("", "", "")  # shapes, dtypes, formats
    outputs: tuple[str, str, str] = ("", "", "")
    attributes: str = ""
    failed: bool = False
    link: int = 0  # the host's operator or range that it belongs to
    op: "HostOp | None" = None

    @property
    def duration(self) -> float:
        return self.end - self.start


@dataclass(slots=True)
class Call:
    r"""A call of the device's library by a thread of the host."""

    name: str
    thread: int
    start: float
    end: float
    task: int = 0
    link: int = 0
    op: "HostOp | None" = None

    @property
    def duration(self) -> float:
        return self.end - self.start


@dataclass(slots=True)
class HostOp:
    r"""An operator of the framework, a range of the user's, or a Python function (``kind`` op, range, python)."""

    name: str
    kind: str
    thread: int
    start: float
    end: float
    id: int = 0
    shapes: Any = None
    dtypes: Any = None
    sequence: int = -1
    stack: str = ""
    called_at: str = ""  # file:line function, where the trace says it
    parent: "HostOp | None" = None
    children: list["HostOp"] = field(default_factory=list)
    tasks: list[Task] = field(default_factory=list)

    @property
    def duration(self) -> float:
        return self.end - self.start

    @property
    def self_duration(self) -> float:
        return self.duration - sum(child.duration for child in self.children)

    def ancestors(self) -> list["HostOp"]:
        r"""Itself, then what holds it."""
        found: list[HostOp] = []
        at: HostOp | None = self
        while at is not None:
            found.append(at)
            at = at.parent
        return found


@dataclass
class Profile:
    r"""All of one profile, each list by start."""

    source: str
    tasks: list[Task] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    ops: list[HostOp] = field(default_factory=list)
    functions: list[HostOp] = field(default_factory=list)
    marks: list[tuple[float, str]] = field(default_factory=list)
    memory: list[dict[str, Any]] = field(default_factory=list)
    info: dict[str, Any] = field(default_factory=dict)
    origin: int = 0  # nanoseconds of the epoch
    process: int = 0

    @property
    def steps(self) -> list[HostOp]:
        r"""The steps of a schedule, by ``ProfilerStep#``; else the stretches between marks of optimizers' steps."""
        steps = [op for op in self.ops if op.name.startswith("ProfilerStep#")]
        if steps or not self.tasks:
            return steps
        ends = [at for at, text in self.marks if text == "optimizer step"]
        begin = min(task.start for task in self.tasks)
        for number, end in enumerate(ends):
            steps.append(HostOp(f"step {number}", "range", 0, begin, end))
            begin = end
        return steps

    @property
    def span(self) -> tuple[float, float]:
        r"""From the first thing that happened to the last."""
        everything: list[Any] = [*self.tasks, *self.calls, *self.ops]
        if not everything:
            return 0.0, 0.0
        return min(event.start for event in everything), max(event.end for event in everything)

    def link(self) -> None:
        r"""Tell tasks and calls whose operator they are, and operators what holds them."""
        self.tasks.sort(key=lambda task: task.start)
        self.calls.sort(key=lambda call: call.start)
        for events in (self.ops, self.functions):
            nest(events)
        known = {op.id: op for op in self.ops if op.id}
        for task in self.tasks:
            task.op = known.get(task.link)
            if task.op is not None:
                task.op.tasks.append(task)
        for call in self.calls:
            call.op = known.get(call.link)


def nest(events: list[HostOp]) -> None:
    r"""Find each event's parent: the innermost of the same thread that holds it."""
    events.sort(key=lambda event: (event.start, -event.end))
    rows: dict[int, list[HostOp]] = {}
    for event in events:
        row = rows.setdefault(event.thread, [])
        # Clocks are exact to a fraction of a microsecond, which adjacent events may share.
        while row and row[-1].end < event.end - 0.0015:
            row.pop()
        while row and row[-1].end <= event.start:
            row.pop()
        if row:
            event.parent = row[-1]
            row[-1].children.append(event)
        row.append(event)


def upper_dtypes(text: str) -> str:
    r"""Dtypes as CANN's tables call them."""
    return ";".join(_DTYPES.get(name, name.upper()) for name in text.split(";")) if text else ""


def read(path: str | os.PathLike) -> Profile:
    r"""Read a trace file (``.json`` or ``.json.gz``), a folder ``PROF_*``, or one of ``torch.npu.profiler``.

    Raises:
        FileNotFoundError: there is nothing of that name.
        ValueError: it is no profile.
    """
    place = Path(path)
    if not place.exists():
        raise FileNotFoundError(f"there is no profile {str(place)!r}")
    if place.is_file():
        return read_trace(place)
    if (place / "info.json").is_file() and (place / "host").is_dir():
        return read_folder(place)
    for pattern in (
        "ASCEND_PROFILER_OUTPUT/trace_view.json",
        "trace_view.json",
        "*/ASCEND_PROFILER_OUTPUT/trace_view.json",
    ):
        if found := sorted(place.glob(pattern)):
            return read_trace(found[-1])
    if folders := sorted(folder for folder in place.glob("PROF_*") if (folder / "info.json").is_file()):
        return read_folder(folders[-1])
    if traces := sorted(place.glob("*.pt.trace.json*")):
        return read_trace(traces[-1])
    raise ValueError(
        f"{str(place)!r} holds no profile: neither trace_view.json, nor a folder PROF_* with an info.json, nor a "
        "*.pt.trace.json"
    )


# ---- folders PROF_*


def read_records(path: Path) -> list[tuple]:
    r"""The whole records of a file: one that a dying process left half is left out."""
    if not path.is_file():
        return []
    data = path.read_bytes()
    return list(RECORD.iter_unpack(data[: len(data) - len(data) % RECORD.size]))


def read_folder(folder: Path) -> Profile:
    r"""Read a folder ``PROF_*``."""
    try:
        info = json.loads((folder / "info.json").read_text())
    except ValueError as error:
        raise ValueError(f"{folder / 'info.json'} cannot be read: {error}") from error
    if info.get("format") != "simulated npu profile" or info.get("record_bytes") != RECORD.size:
        raise ValueError(f"{folder} has another format than this tool reads: {info.get('format')!r}")
    texts_file = folder / "texts.txt"
    texts = ["", *(texts_file.read_text().split("\n") if texts_file.is_file() else [])]
    origin = info["started_ns"]
    profile = Profile(str(folder), info=info, origin=origin)

    def text(number: int) -> list[str]:
        return (texts[number] if number < len(texts) else "").split("\t")

    def at(ns: int) -> float:
        return (ns - origin) / 1000

    for device in sorted(folder.glob("device_*")):
        for record in read_records(device / "records.bin"):
            number, link, submitted, started, ended, size, label, stream, _, index, kind, detail = record
            fields = text(label)
            task = Task(fields[0], "op", index, stream, at(started), at(ended), id=number, link=link, bytes=size)
            if submitted:
                task.submitted = at(submitted)
            if kind == OP and len(fields) >= 9:
                task.core = fields[1]
                task.inputs = (fields[2], upper_dtypes(fields[3]), fields[4])
                task.outputs = (fields[5], upper_dtypes(fields[6]), fields[7])
                task.attributes, task.failed = fields[8], detail == 1
            elif kind == COPY:
                task.kind, task.name = "copy", COPY_NAMES.get(detail, "Memcpy")
            elif kind == FILL:
                task.kind, task.name = "fill", "Memset"
            elif kind == EXTERNAL:
                task.kind, task.core = "hccl", "HCCL"
            elif kind == WAIT:
                task.kind, task.name = "wait", "Event Wait"
            elif kind != OP:
                continue
            profile.tasks.append(task)
    for number, link, _, started, ended, _, label, _, thread, _, kind, _ in read_records(
        folder / "host" / "records.bin"
    ):
        name = text(label)[0]
        if kind == API:
            profile.calls.append(Call(name, thread, at(started), at(ended), number, link))
        elif kind == RANGE:
            profile.ops.append(HostOp(name, "op" if "::" in name else "range", thread, at(started), at(ended), number))
        elif kind == MARK:
            profile.marks.append((at(started), name))
    profile.link()
    return profile


# ---- traces

_KINDS = {"kernel": "op", "gpu_memcpy": "copy", "gpu_memset": "fill"}
_FRAME = re.compile(r"^(.*\.py)\((\d+)\): (.*)$")


def frame(name: str) -> tuple[str, int, str] | None:
    r"""File, line and function of a Python frame's name, or None."""
    match = _FRAME.match(name)
    return (match[1], int(match[2]), match[3]) if match else None


def read_trace(path: Path) -> Profile:
    r"""Read a trace file of torch.profiler."""
    opened = gzip.open if path.suffix == ".gz" else open
    try:
        with opened(path, "rt", encoding="utf-8") as file:
            trace = json.load(file)
    except (ValueError, OSError) as error:
        raise ValueError(f"{str(path)!r} is no trace: {error}") from error
    if isinstance(trace, list):
        trace = {"traceEvents": trace}
    if not isinstance(trace, dict) or "traceEvents" not in trace:
        raise ValueError(f"{str(path)!r} is no trace: it has no traceEvents")
    base = int(trace.get("baseTimeNanoseconds", 0))
    profile = Profile(str(path), info={k: v for k, v in trace.items() if k != "traceEvents"}, origin=base)
    threads: dict[Any, int] = {}
    for event in trace["traceEvents"]:
        category, arguments = event.get("cat"), event.get("args", {})
        if category == "cpu_instant_event" and event.get("name") == "[memory]":
            profile.memory.append({"ts": float(event["ts"]), **arguments})
        if event.get("ph") != "X":
            continue
        start, end = float(event["ts"]), float(event["ts"]) + float(event.get("dur", 0))
        link = int(arguments.get("External id", 0) or 0)
        thread = event["tid"] if isinstance(event["tid"], int) else threads.setdefault(event["tid"], -1 - len(threads))
        if category in _KINDS:
            task = Task(event["name"], _KINDS[category], int(event["pid"]), int(event["tid"]), start, end, link=link)
            task.id, task.bytes = int(arguments.get("correlation", 0)), int(arguments.get("bytes", 0))
            task.core = arguments.get("Task Type", "")
            task.kind = "hccl" if task.core == "HCCL" else task.kind
            if "queued (us)" in arguments:
                task.submitted = start - float(arguments["queued (us)"])
            task.inputs, task.outputs = _side(arguments, "Input"), _side(arguments, "Output")
            task.attributes, task.failed = arguments.get("Attributes", ""), bool(arguments.get("failed"))
            profile.tasks.append(task)
        elif category == "privateuse1_runtime":
            number = int(arguments.get("correlation", 0))
            profile.calls.append(Call(event["name"], thread, start, end, number, link))
        elif category in ("cpu_op", "user_annotation"):
            profile.process = profile.process or int(event["pid"])
            op = HostOp(event["name"], "op" if category == "cpu_op" else "range", thread, start, end, link)
            op.shapes, op.dtypes = arguments.get("Input Dims"), arguments.get("Input type")
            op.sequence, op.stack = int(arguments.get("Sequence number", -1)), arguments.get("Call stack", "")
            op.called_at = arguments.get("Called at", "")
            profile.ops.append(op)
        elif category == "python_function":
            profile.functions.append(HostOp(event["name"], "python", thread, start, end))
    profile.link()
    return profile


def _side(arguments: dict[str, Any], side: str) -> tuple[str, str, str]:
    return (
        arguments.get(f"{side} Shapes", ""),
        upper_dtypes(arguments.get(f"{side} Data Types", "")),
        arguments.get(f"{side} Formats", ""),
    )


class Frames:
    r"""Which Python frames were open at a time, by thread."""

    def __init__(self, functions: list[HostOp]):
        self.rows: dict[int, list[HostOp]] = {}
        for function in functions:
            self.rows.setdefault(function.thread, []).append(function)
        self.starts = {thread: [event.start for event in row] for thread, row in self.rows.items()}

    def at(self, thread: int, time: float) -> list[HostOp]:
        r"""From the innermost to the outermost."""
        row = self.rows.get(thread)
        if row is None:
            return []
        place = bisect_right(self.starts[thread], time) - 1
        at: HostOp | None = row[place] if place >= 0 else None
        found = []
        while at is not None:
            if at.end >= time:
                found.append(at)
            at = at.parent
        return found
