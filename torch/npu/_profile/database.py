r"""``ascend_pytorch_profiler*.db``: a profile as the SQLite tables that CANN's documentation describes.

Times are nanoseconds of the epoch, sizes bytes, texts numbers of ``STRING_IDS``. What the simulated device does not
have, such as block dimensions or the algorithm of a collective, is NULL.
"""

import os
import sqlite3
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from . import tables
from .events import Profile, Task

TABLES: dict[str, tuple[str, ...]] = {
    "STRING_IDS": ("id", "value"),
    "ENUM_API_TYPE": ("id", "name"),
    "PYTORCH_API": (
        "startNs",
        "endNs",
        "globalTid",
        "connectionId",
        "name",
        "sequenceNumber",
        "fwdThreadId",
        "inputDtypes",
        "inputShapes",
        "callchainId",
        "type",
    ),
    "CONNECTION_IDS": ("id", "connectionId"),
    "PYTORCH_CALLCHAINS": ("id", "stack", "stackDepth"),
    "CANN_API": ("startNs", "endNs", "type", "globalTid", "connectionId", "name"),
    "TASK": (
        "startNs",
        "endNs",
        "deviceId",
        "connectionId",
        "globalTaskId",
        "globalPid",
        "taskType",
        "contextId",
        "streamId",
        "taskId",
        "modelId",
    ),
    "COMPUTE_TASK_INFO": (
        "name",
        "globalTaskId",
        "blockDim",
        "mixBlockDim",
        "taskType",
        "opType",
        "inputFormats",
        "inputDataTypes",
        "inputShapes",
        "outputFormats",
        "outputDataTypes",
        "outputShapes",
        "attrInfo",
        "opState",
        "hf32Eligible",
    ),
    "COMMUNICATION_OP": (
        "opName",
        "startNs",
        "endNs",
        "connectionId",
        "groupName",
        "opId",
        "relay",
        "retry",
        "dataType",
        "algType",
        "count",
        "opType",
        "deviceId",
    ),
    "MEMORY_RECORD": (
        "component",
        "timestamp",
        "totalAllocated",
        "totalReserved",
        "totalActive",
        "streamPtr",
        "deviceId",
    ),
    "OP_MEMORY": (
        "name",
        "size",
        "allocationTime",
        "releaseTime",
        "activeReleaseTime",
        "duration",
        "activeDuration",
        "allocationTotalAllocated",
        "allocationTotalReserved",
        "allocationTotalActive",
        "releaseTotalAllocated",
        "releaseTotalReserved",
        "releaseTotalActive",
        "streamPtr",
        "deviceId",
    ),
    "STEP_TIME": ("id", "startNs", "endNs"),
    "RANK_DEVICE_MAP": ("rankId", "deviceId"),
    "SESSION_TIME_INFO": ("startTimeNs", "endTimeNs"),
}
_TEXTS = {("STRING_IDS", "value"), ("ENUM_API_TYPE", "name")}
_ACL, _OP, _PYTHON = 20000, 50001, 50003
_API_TYPES = ((_ACL, "acl"), (_OP, "op"), (50002, "queue"), (_PYTHON, "trace"), (50004, "mstx"))
_NONE = 0xFFFFFFFF  # no context, no model


class _Texts:
    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def __call__(self, text: str) -> int | None:
        return self.numbers.setdefault(text, len(self.numbers)) if text else None


def write(path: Path, profile: Profile, rank: int = -1) -> None:
    r"""Write a profile, whole or not at all.

    Raises:
        OSError: it cannot be written.
    """
    beside = path.with_name(f".{path.name}.tmp")
    beside.unlink(missing_ok=True)
    try:
        connection = sqlite3.connect(beside)
        try:
            _fill(connection, profile, rank)
            connection.commit()
        finally:
            connection.close()
        os.replace(beside, path)
    except sqlite3.Error as error:
        raise OSError(f"{str(path)!r} cannot be written: {error}") from error
    finally:
        beside.unlink(missing_ok=True)


def _fill(connection: sqlite3.Connection, profile: Profile, rank: int) -> None:
    texts = _Texts()

    def at(time: float) -> int:
        return profile.origin + round(time * 1000)

    def thread(number: int) -> int:
        return profile.process << 32 | number & 0xFFFFFFFF

    def insert(name: str, rows: Iterable[Sequence[Any]]) -> None:
        columns = TABLES[name]
        kinds = ", ".join(f"{column} {'TEXT' if (name, column) in _TEXTS else 'INTEGER'}" for column in columns)
        connection.execute(f"CREATE TABLE {name} ({kinds})")
        connection.executemany(f"INSERT INTO {name} VALUES ({', '.join('?' * len(columns))})", rows)

    tasks = [task for task in profile.tasks if task.kind != "wait"]
    chains: dict[str, int] = {}

    def chain(text: str) -> int | None:
        return chains.setdefault(text, len(chains)) if text else None

    insert("ENUM_API_TYPE", _API_TYPES)
    apis = [
        (at(op.start), at(op.end), thread(op.thread), op.id if op.tasks else None, texts(op.name),
         op.sequence if op.sequence >= 0 else None, None, texts(tables.joined(op.dtypes)),
         texts(tables.shapes_text(op.shapes)), chain(op.stack or op.called_at), _PYTHON if op.kind == "python" else _OP)
        for op in (*profile.ops, *profile.functions)
    ]  # fmt: skip
    insert("PYTORCH_API", apis)
    insert("CONNECTION_IDS", [(task.op.id, task.id) for task in tasks if task.op is not None])
    insert(
        "PYTORCH_CALLCHAINS",
        [
            (number, texts(line), depth)
            for text, number in chains.items()
            for depth, line in enumerate(part for part in text.replace(";", "\n").split("\n") if part)
        ],
    )
    insert(
        "CANN_API",
        [
            (at(call.start), at(call.end), _ACL, thread(call.thread), call.task or None, texts(call.name))
            for call in profile.calls
        ],
    )
    insert(
        "TASK",
        [
            (at(task.start), at(task.end), task.device, task.id, number, profile.process, texts(tables.core(task)),
             _NONE, task.stream, task.id, _NONE)
            for number, task in enumerate(tasks)
        ],
    )  # fmt: skip
    insert("COMPUTE_TASK_INFO", [_compute(number, t, texts) for number, t in enumerate(tasks) if t.kind == "op"])
    insert(
        "COMMUNICATION_OP",
        [
            (texts(task.name), at(task.start), at(task.end), task.id, None, number, None, None, None, None, None,
             texts(task.name), task.device)
            for number, task in enumerate(task for task in tasks if task.kind == "hccl")
        ],
    )  # fmt: skip
    insert(
        "MEMORY_RECORD",
        [
            (texts("PTA"), at(event["ts"]), *tables.totals_of(event), None, int(event.get("Device Id", 0)))
            for event in tables.memory_events(profile)
        ],
    )
    insert(
        "OP_MEMORY",
        [
            (texts(life.name), life.size, at(life.begin), None if life.end is None else at(life.end),
             None if life.end is None else at(life.end), None if life.end is None else at(life.end) - at(life.begin),
             None if life.end is None else at(life.end) - at(life.begin), *life.at_begin,
             *(life.at_end or (None, None, None)), None, life.device)
            for life in tables.lives(profile)
        ],
    )  # fmt: skip
    numbers = [step.name.rpartition("#")[2].removeprefix("step ") for step in profile.steps]
    insert("STEP_TIME", [(int(n), at(s.start), at(s.end)) for n, s in zip(numbers, profile.steps, strict=True)])
    insert("RANK_DEVICE_MAP", [(rank, device) for device in sorted({task.device for task in tasks}) or [-1]])
    insert("SESSION_TIME_INFO", [tuple(map(at, profile.span))])
    # Last, since all others add to it.
    insert("STRING_IDS", [(number, text) for text, number in texts.numbers.items()])


def _compute(number: int, task: Task, texts: _Texts) -> tuple[Any, ...]:
    (shapes, dtypes, formats), (out_shapes, out_dtypes, out_formats) = task.inputs, task.outputs
    operands = (formats, dtypes, shapes, out_formats, out_dtypes, out_shapes, task.attributes)
    name, kind = texts(task.name), texts(tables.core(task))
    return name, number, None, None, kind, name, *map(texts, operands), texts("dynamic"), texts("NO")
