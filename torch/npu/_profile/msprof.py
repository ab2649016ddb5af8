r"""``msprof``: makes time lines and tables of a folder ``PROF_*`` that ``torch.npu.profile`` or aclprof* left.

msprof --export=on --output=FOLDER      FOLDER is a PROF_* or holds some
msprof --application="python train.py" --output=FOLDER   runs it under the profiler, then exports
"""

import argparse
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

from . import tables
from .events import Profile, Task, read_folder

ROWS = ("MsprofTx", "AscendCL", "Task Scheduler", "AI CPU")


def timeline(profile: Profile) -> dict[str, Any]:
    r"""A trace with the four rows of the device layer, from top to bottom; arrows lead from the host to the device."""
    pids = {name: 1 + index for index, name in enumerate(ROWS)}
    events: list[dict[str, Any]] = []
    for name, pid in pids.items():
        events.append({"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": name}})
        events.append({"ph": "M", "name": "process_sort_index", "pid": pid, "tid": 0, "args": {"sort_index": pid}})
    named: set[tuple[int, int]] = set()

    def complete(row: str, tid: int, label: str, name: str, start: float, end: float, args: dict[str, Any]) -> None:
        pid = pids[row]
        if (pid, tid) not in named:
            named.add((pid, tid))
            events.append({"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": label}})
        events.append({"ph": "X", "name": name, "pid": pid, "tid": tid, "ts": start, "dur": end - start, "args": args})

    def arrow(phase: str, row: str, tid: int, at: float, number: int, kind: str) -> None:
        event = {
            "ph": phase,
            "cat": kind,
            "name": kind,
            "id": f"{kind}{number}",
            "pid": pids[row],
            "tid": tid,
            "ts": at,
        }
        events.append(event | ({"bp": "e"} if phase == "f" else {}))

    for op in profile.ops:
        complete("MsprofTx", op.thread, f"Thread {op.thread}", op.name, op.start, op.end, {"range": op.id})
    for at, text in profile.marks:
        events.append({"ph": "i", "s": "p", "name": text, "pid": pids["MsprofTx"], "tid": 0, "ts": at})
    issued: dict[int, tuple[int, float]] = {}
    for call in profile.calls:
        args = {"task": call.task, "range": call.link}
        complete("AscendCL", call.thread, f"Thread {call.thread}", call.name, call.start, call.end, args)
        if call.task:
            issued[call.task] = (call.thread, call.start)
    ranges = {op.id: op for op in profile.ops}
    for task in profile.tasks:
        row = "AI CPU" if task.core == "AI_CPU" else "Task Scheduler"
        tid = task.device * 10000 + task.stream
        complete(row, tid, f"Device {task.device}, stream {task.stream}", task.name, task.start, task.end, about(task))
        if task.id in issued:
            thread, at = issued[task.id]
            arrow("s", "AscendCL", thread, at, task.id, "HostToDevice")
            arrow("f", row, tid, task.start, task.id, "HostToDevice")
        held = ranges.get(task.link)
        if held is not None and task.id:
            arrow("s", "MsprofTx", held.thread, held.start, task.id, "MsTx")
            arrow("f", row, tid, task.start, task.id, "MsTx")
    return {"traceEvents": events, "displayTimeUnit": "ms", "baseTimeNanoseconds": profile.origin}


def about(task: Task) -> dict[str, Any]:
    r"""What a time line says of a task."""
    args: dict[str, Any] = {"Task Type": task.core or task.kind, "Task Id": task.id, "Stream Id": task.stream}
    if task.bytes:
        args["bytes"] = task.bytes
        if task.duration > 0:
            args["bandwidth (GB/s)"] = round(task.bytes / task.duration / 1000, 3)
    if task.inputs[0]:
        args |= dict(zip(("Input Shapes", "Input Data Types", "Input Formats"), task.inputs, strict=True))
        args |= dict(zip(("Output Shapes", "Output Data Types", "Output Formats"), task.outputs, strict=True))
    if task.submitted is not None:
        args["waited in the stream (us)"] = round(task.start - task.submitted, 3)
    return args


def export(folder: Path) -> Profile:
    r"""Write ``timeline`` and ``summary`` into a folder ``PROF_*``; return what is in it."""
    profile = read_folder(folder)
    for name in ("timeline", "summary"):
        (folder / name).mkdir(exist_ok=True)
    (folder / "timeline" / "msprof.json").write_text(json.dumps(timeline(profile)))
    metrics = profile.info.get("metrics")
    has_metrics = bool(profile.info.get("data", 0) & 0x4)
    summary = folder / "summary"
    tables.write(summary / "op_summary.csv", *tables.op_summary(profile, metrics if has_metrics else None))
    tables.write(summary / "op_statistic.csv", tables.OP_STATISTIC_COLUMNS, tables.op_statistic(profile))
    tables.write(summary / "api_statistic.csv", tables.API_COLUMNS, tables.api_statistic(profile))
    tables.write(summary / "task_time.csv", tables.TASK_TIME_COLUMNS, tables.task_time(profile))
    tables.write(summary / "step_trace.csv", tables.STEP_COLUMNS, tables.step_trace(profile))
    return profile


def folders(output: Path) -> list[Path]:
    r"""The folders ``PROF_*`` that a path means: itself, or those in it."""
    if (output / "info.json").is_file():
        return [output]
    return sorted(place for place in output.glob("PROF_*") if (place / "info.json").is_file())


# Runs a script as `python SCRIPT ARGUMENTS` would, in a profile.
_UNDER_PROFILER = """
import runpy, sys, torch
path, *sys.argv = sys.argv[1:]
with torch.npu.profile(path, use_e2e_profiler=True):
    if sys.argv[0] == "-m":
        sys.argv = sys.argv[1:]
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(sys.argv[0], run_name="__main__")
"""


def run_application(command: str, output: Path) -> int:
    r"""Run ``python [-m] SCRIPT ARGUMENTS`` under the profiler; return its exit status."""
    words = shlex.split(command)
    if len(words) < 2 or "python" not in os.path.basename(words[0]):
        raise ValueError(f"--application takes 'python SCRIPT ...', not {command!r}")
    return subprocess.run([words[0], "-c", _UNDER_PROFILER, str(output.resolve()), *words[1:]]).returncode


def main(arguments: list[str] | None = None) -> int:
    r"""The command; returns its exit status."""
    parser = argparse.ArgumentParser("msprof", description="Time lines and tables of a profile of the device layer.")
    parser.add_argument("--export", choices=("on", "off"), default="off", help="write timeline/ and summary/")
    parser.add_argument("--output", default=".", help="a folder PROF_*, or one that holds some; default here")
    parser.add_argument("--application", help="a command 'python SCRIPT ...' to run under the profiler first")
    options = parser.parse_args(arguments)
    output = Path(options.output)
    if not output.is_dir():
        print(f"msprof: there is no folder {options.output!r}", file=sys.stderr)
        return 2
    if options.application is None and options.export == "off":
        parser.error("say --export=on, or --application=...")
    status = 0
    wanted = folders(output)
    if options.application is not None:
        before = set(wanted)
        try:
            status = run_application(options.application, output)
        except (ValueError, OSError) as error:
            print(f"msprof: {error}", file=sys.stderr)
            return 2
        wanted = [folder for folder in folders(output) if folder not in before]
    if not wanted:
        print(f"msprof: {options.output!r} holds no folder PROF_* with results", file=sys.stderr)
        return status or 1
    for folder in wanted:
        try:
            profile = export(folder)
        except (ValueError, OSError) as error:
            print(f"msprof: {error}", file=sys.stderr)
            status = status or 1
            continue
        print(f"{folder}: {len(profile.tasks)} tasks, {len(profile.calls)} calls, {len(profile.ops)} ranges")
        if not profile.info.get("complete"):
            print(f"{folder}: the process ended before its profile did; what was written is shown")
    return status


if __name__ == "__main__":
    sys.exit(main())
