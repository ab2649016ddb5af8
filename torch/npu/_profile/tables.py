r"""The tables of a profile, in the columns of CANN's and the plug-in's files."""

import csv
import statistics
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .device import METRIC_COLUMNS
from .events import Call, HostOp, Profile, Task

NOT_AVAILABLE = "N/A"

# How an operator was launched and with what: the end of its row in both tables.
_LAUNCH_COLUMNS = (
    "Block Dim",
    "Mix Block Dim",
    "HF32 Eligible",
    "Input Shapes",
    "Input Data Types",
    "Input Formats",
    "Output Shapes",
    "Output Data Types",
    "Output Formats",
    "Context ID",
)
KERNEL_COLUMNS = (
    "Step Id",
    "Device_id",
    "Model ID",
    "Task ID",
    "Stream ID",
    "Name",
    "Type",
    "OP State",
    "Accelerator Core",
    "Start Time(us)",
    "Duration(us)",
    "Wait Time(us)",
    *_LAUNCH_COLUMNS,
)
SUMMARY_COLUMNS = (
    "Device_id",
    "Model ID",
    "Task ID",
    "Stream ID",
    "Op Name",
    "OP Type",
    "OP State",
    "Task Type",
    "Task Start Time(us)",
    "Task Duration(us)",
    "Task Wait Time(us)",
    *_LAUNCH_COLUMNS,
)
OP_STATISTIC_COLUMNS = (
    "Device_id",
    "OP Type",
    "Core Type",
    "Count",
    "Total Time(us)",
    "Min Time(us)",
    "Avg Time(us)",
    "Max Time(us)",
    "Ratio(%)",
)
API_COLUMNS = ("Device_id", "Level", "API Name", "Time(us)", "Count", "Avg(us)", "Min(us)", "Max(us)", "Variance")
TASK_TIME_COLUMNS = (
    "Device_id",
    "kernel_name",
    "kernel_type",
    "stream_id",
    "task_id",
    "task_time(us)",
    "task_start(us)",
    "task_stop(us)",
)
OPERATOR_COLUMNS = (
    "Name",
    "Input Shapes",
    "Call Stack",
    "Host Self Duration(us)",
    "Host Total Duration(us)",
    "Device Self Duration(us)",
    "Device Total Duration(us)",
    "Device Self Duration With AICore(us)",
    "Device Total Duration With AICore(us)",
)
STEP_COLUMNS = (
    "Device_id",
    "Step",
    "Computing",
    "Communication(Not Overlapped)",
    "Overlapped",
    "Communication",
    "Free",
    "Stage",
    "Bubble",
    "Communication(Not Overlapped and Exclude Receive)",
    "Preparing",
)
MEMORY_COLUMNS = (
    "Component",
    "Timestamp(us)",
    "Total Allocated(MB)",
    "Total Reserved(MB)",
    "Total Active(MB)",
    "Stream Ptr",
    "Device Type",
)
OPERATOR_MEMORY_COLUMNS = (
    "Name",
    "Size(KB)",
    "Allocation Time(us)",
    "Release Time(us)",
    "Active Release Time(us)",
    "Duration(us)",
    "Active Duration(us)",
    "Allocation Total Allocated(MB)",
    "Allocation Total Reserved(MB)",
    "Allocation Total Active(MB)",
    "Release Total Allocated(MB)",
    "Release Total Reserved(MB)",
    "Release Total Active(MB)",
    "Stream Ptr",
    "Device Type",
)


def write(path: Path, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    r"""Write one table."""
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(rows)


def us(time: float) -> str:
    return f"{time:.3f}"


def absolute(profile: Profile, time: float) -> str:
    r"""Microseconds of the epoch. They need more digits than a float has."""
    ns = profile.origin + round(time * 1000)
    return f"{ns // 1000}.{ns % 1000:03d}"


def merged(tasks: Iterable[Task] | Iterable[Call]) -> list[tuple[float, float]]:
    r"""The stretches in which at least one of the tasks runs."""
    stretches: list[tuple[float, float]] = []
    for start, end in sorted((task.start, task.end) for task in tasks):
        if stretches and start <= stretches[-1][1]:
            stretches[-1] = (stretches[-1][0], max(stretches[-1][1], end))
        else:
            stretches.append((start, end))
    return stretches


def length(stretches: Iterable[tuple[float, float]]) -> float:
    return sum(end - start for start, end in stretches)


def common(first: list[tuple[float, float]], second: list[tuple[float, float]]) -> float:
    r"""How long both run."""
    total, i, k = 0.0, 0, 0
    while i < len(first) and k < len(second):
        total += max(0.0, min(first[i][1], second[k][1]) - max(first[i][0], second[k][0]))
        if first[i][1] < second[k][1]:
            i += 1
        else:
            k += 1
    return total


def waits(tasks: list[Task]) -> list[float]:
    r"""For each task how long its stream did nothing before it; 0 for the first."""
    ends: dict[tuple[int, int], float] = {}
    found = []
    for task in tasks:
        place = (task.device, task.stream)
        found.append(max(0.0, task.start - ends.get(place, task.start)))
        ends[place] = max(task.end, ends.get(place, task.end))
    return found


def core(task: Task) -> str:
    r"""What a task ran on, as the tables call it."""
    return task.core or {"copy": "MEMCPY_ASYNC", "fill": "MEMSET", "wait": "EVENT_WAIT"}.get(task.kind, NOT_AVAILABLE)


def _quoted(shapes: str) -> str:
    return f'"{shapes}"' if shapes else NOT_AVAILABLE


def _identity(task: Task) -> list[Any]:
    return [task.device, NOT_AVAILABLE, task.id, task.stream]


def _operands(task: Task) -> list[str]:
    (shapes, dtypes, formats), (out_shapes, out_dtypes, out_formats) = task.inputs, task.outputs
    return [
        _quoted(shapes),
        dtypes or NOT_AVAILABLE,
        formats or NOT_AVAILABLE,
        _quoted(out_shapes),
        out_dtypes or NOT_AVAILABLE,
        out_formats or NOT_AVAILABLE,
        NOT_AVAILABLE,
    ]


def step_of(steps: list[HostOp], task: Task) -> str:
    r"""The step in which the host issued a task, "" if it is in none."""
    at = task.op.start if task.op is not None else task.submitted if task.submitted is not None else task.start
    for step in steps:
        if step.start <= at < step.end:
            return step.name.rpartition("#")[2].removeprefix("step ")
    return ""


def kernel_details(profile: Profile, metrics: int | None = None) -> tuple[Sequence[str], list[list[Any]]]:
    r"""Columns and rows of kernel_details.csv; counters of the hardware are not available on the simulated device."""
    extra = METRIC_COLUMNS.get(metrics, ()) if metrics is not None else ()
    steps = profile.steps
    rows = []
    for task, wait in zip(profile.tasks, waits(profile.tasks), strict=True):
        if task.kind == "wait":
            continue
        row = [step_of(steps, task), *_identity(task), task.name, task.name, "dynamic", core(task)]
        row += [absolute(profile, task.start), us(task.duration), us(wait)]
        row += [NOT_AVAILABLE, NOT_AVAILABLE, "NO", *_operands(task), *(NOT_AVAILABLE for _ in extra)]
        rows.append(row if steps else row[1:])
    return (*(KERNEL_COLUMNS if steps else KERNEL_COLUMNS[1:]), *extra), rows


def op_summary(profile: Profile, metrics: int | None = None) -> tuple[Sequence[str], list[list[Any]]]:
    r"""Columns and rows of op_summary.csv, the device layer's table of kernels."""
    extra = METRIC_COLUMNS.get(metrics, ()) if metrics is not None else ()
    rows = []
    for task, wait in zip(profile.tasks, waits(profile.tasks), strict=True):
        if task.kind not in ("op", "hccl"):
            continue
        row = [*_identity(task), f"{task.name}_{task.id}", task.name, "dynamic", core(task)]
        row += [absolute(profile, task.start), us(task.duration), us(wait)]
        rows.append([*row, NOT_AVAILABLE, NOT_AVAILABLE, "NO", *_operands(task), *(NOT_AVAILABLE for _ in extra)])
    return (*SUMMARY_COLUMNS, *extra), rows


def op_statistic(profile: Profile) -> list[list[Any]]:
    r"""Rows of op_statistic.csv: the longest first."""
    groups: dict[tuple[int, str, str], list[float]] = {}
    for task in profile.tasks:
        if task.kind in ("op", "hccl"):
            groups.setdefault((task.device, task.name, core(task)), []).append(task.duration)
    totals: dict[int, float] = {}
    for (device, _, _), times in groups.items():
        totals[device] = totals.get(device, 0) + sum(times)
    rows = [
        [device, name, unit, len(times), us(sum(times)), us(min(times)), us(sum(times) / len(times)), us(max(times)),
         us(100 * sum(times) / totals[device] if totals[device] else 0)]
        for (device, name, unit), times in groups.items()
    ]  # fmt: skip
    return sorted(rows, key=lambda row: -float(row[4]))


def api_statistic(profile: Profile) -> list[list[Any]]:
    r"""Rows of api_statistic.csv: the longest first."""
    groups: dict[str, list[float]] = {}
    for call in profile.calls:
        groups.setdefault(call.name, []).append(call.duration)
    rows = [
        ["host", "AscendCL", name, us(sum(times)), len(times), us(sum(times) / len(times)), us(min(times)),
         us(max(times)), us(statistics.pvariance(times))]
        for name, times in groups.items()
    ]  # fmt: skip
    return sorted(rows, key=lambda row: -float(row[3]))


def task_time(profile: Profile) -> list[list[Any]]:
    r"""Rows of task_time.csv."""
    return [
        [task.device, task.name, core(task), task.stream, task.id, us(task.duration), absolute(profile, task.start),
         absolute(profile, task.end)]
        for task in profile.tasks
    ]  # fmt: skip


def joined(parts: Any) -> str:
    r"""A list of texts as one, "" for what is no list."""
    return ";".join(map(str, parts)) if isinstance(parts, list) else ""


def shapes_text(shapes: Any) -> str:
    r"""[[2, 3], [4]] as ``"2,3;4"``, "" where a trace has something else."""
    if not isinstance(shapes, list) or not all(isinstance(shape, list) for shape in shapes):
        return ""
    return joined([",".join(map(str, shape)) for shape in shapes])


def operator_details(profile: Profile) -> list[list[Any]]:
    r"""Rows of operator_details.csv: each of the framework's operators with its own and all device time."""

    def device(op: HostOp, whole: bool, ai_core: bool) -> float:
        own = sum(task.duration for task in op.tasks if not ai_core or task.core == "AI_CORE")
        return own + (sum(device(child, True, ai_core) for child in op.children) if whole else 0)

    rows = []
    for op in profile.ops:
        if op.kind != "op":
            continue
        times = [op.self_duration, op.duration]
        times += [device(op, whole, ai_core) for ai_core in (False, True) for whole in (False, True)]
        rows.append([op.name, shapes_text(op.shapes), op.stack or op.called_at, *map(us, times)])
    return rows


def step_trace(profile: Profile) -> list[list[Any]]:
    r"""Rows of step_trace_time.csv, for each device and step; the whole profile is one step where none are marked."""
    rows = []
    steps = profile.steps or [HostOp("", "range", 0, *profile.span)]
    for device in sorted({task.device for task in profile.tasks}):
        for step in steps:
            own = [t for t in profile.tasks if t.device == device and t.kind != "wait"]
            if step.name:
                label = step.name.rpartition("#")[2].removeprefix("step ")
                own = [task for task in own if step_of(steps, task) == label]
            else:
                label = ""
            if not own:
                continue
            computing = merged(task for task in own if task.kind == "op")
            communication = merged(task for task in own if task.kind == "hccl")
            both = common(computing, communication)
            busy = length(computing) + length(communication) - both
            begin, end = min(task.start for task in own), max(task.end for task in own)
            stage = max(end, step.end) - min(begin, step.start)
            apart = length(communication) - both
            rows.append(
                [device, label, us(length(computing)), us(apart), us(both), us(length(communication)),
                 us(stage - busy), us(stage), us(0), us(apart), us(max(0.0, begin - step.start))]
            )  # fmt: skip
    return rows


def _mb(size: float) -> str:
    return f"{size / 2**20:.3f}"


def memory_events(profile: Profile) -> list[dict[str, Any]]:
    r"""What the caching allocators of the devices did, by time."""
    own = [event for event in profile.memory if int(event.get("Device Type", 0)) == 20]  # DeviceType::PrivateUse1
    return sorted(own, key=lambda event: event["ts"])


def totals_of(event: dict[str, Any]) -> tuple[int, int, int]:
    r"""Bytes allocated, reserved and active after an event; upstream tells active ones as allocated."""
    total, reserved = int(event.get("Total Allocated", 0)), int(event.get("Total Reserved", 0))
    return total, reserved, total


def memory_record(profile: Profile) -> list[list[Any]]:
    r"""Rows of memory_record.csv: the totals of the caching allocator at each allocation and release."""
    return [
        ["PTA", absolute(profile, event["ts"]), *map(_mb, totals_of(event)), "", f"NPU:{event.get('Device Id', 0)}"]
        for event in memory_events(profile)
    ]


@dataclass
class Life:
    r"""A block of a device's memory: who allocated it, and from when until when; None while it is held."""

    name: str
    size: int
    begin: float
    at_begin: tuple[int, int, int]
    device: int
    end: float | None = None
    at_end: tuple[int, int, int] | None = None


def lives(profile: Profile) -> list[Life]:
    r"""The blocks that were allocated while the profile ran."""
    found, held = [], {}
    ops = [op for op in profile.ops if op.kind == "op"]
    starts = [op.start for op in ops]
    for event in memory_events(profile):
        address, size = event.get("Addr"), int(event.get("Bytes", 0))
        if size > 0:
            name = _innermost(ops, starts, event["ts"])
            life = Life(name, size, event["ts"], totals_of(event), int(event.get("Device Id", 0)))
            held[address] = life
            found.append(life)
        elif address in held:
            life = held.pop(address)
            life.end, life.at_end = event["ts"], totals_of(event)
    return found


def operator_memory(profile: Profile) -> list[list[Any]]:
    r"""Rows of operator_memory.csv: what was allocated on a device, by which operator, and how long it lived."""
    rows = []
    for life in lives(profile):
        row = [life.name, f"{life.size / 1024:.3f}", absolute(profile, life.begin)]
        if life.end is None or life.at_end is None:
            row += ["", "", "", "", *map(_mb, life.at_begin), "", "", ""]
        else:
            row += [absolute(profile, life.end)] * 2 + [us(life.end - life.begin)] * 2
            row += [*map(_mb, life.at_begin), *map(_mb, life.at_end)]
        rows.append([*row, "", f"NPU:{life.device}"])
    return rows


def _innermost(ops: list[HostOp], starts: list[float], at: float) -> str:
    op: HostOp | None = ops[place] if (place := bisect_right(starts, at) - 1) >= 0 else None
    while op is not None and op.end < at:
        op = op.parent
    return op.name if op is not None else ""
