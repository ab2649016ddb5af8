r"""What upstream's trace files say of npu, put right."""

import json
import os
import tempfile
from typing import Any


def finish(path: str, simple: bool = False, lines: tuple[list, list] | None = None) -> None:
    r"""Rewrite a trace file: rows of devices are called NPU, operators have the line that called them; see
    :func:`innermost` for ``simple``."""
    with open(path, encoding="utf-8") as file:
        trace = json.load(file)
    events = trace["traceEvents"]
    devices = {event["pid"] for event in events if event.get("cat") in DEVICE_CATEGORIES}
    places, calls = lines or ([], [])
    called_at = {handle: "{}:{} {}".format(*places[number]) for handle, number in calls}
    for event in events:
        if event.get("ph") == "M":
            name_row(event, devices)
        elif called_at and event.get("cat") in ("cpu_op", "user_annotation"):
            arguments = event.get("args", {})
            if (at := called_at.get(arguments.get("Record function id"))) is not None:
                arguments["Called at"] = at
    if simple:
        events = trace["traceEvents"] = innermost(events)
    replace(path, json.dumps(trace))


DEVICE_CATEGORIES = ("kernel", "gpu_memcpy", "gpu_memset", "gpu_user_annotation")


def name_row(event: dict[str, Any], devices: set) -> None:
    r"""Call upstream's row of a GPU one of an NPU."""
    arguments = event.get("args", {})
    if event["name"] == "process_labels":
        arguments["labels"] = arguments["labels"].replace("GPU ", "NPU ")
    elif event["name"] == "process_name" and event["pid"] in devices:
        arguments["name"] = f"NPU {event['pid']}"


def innermost(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    r"""Leave out host operators that hold others, with what belongs to the host alone: one row of operators that never
    overlap, and what the device did."""
    rows: dict[tuple, list[dict[str, Any]]] = {}
    for event in events:
        if event.get("ph") == "X" and event.get("cat") == "cpu_op":
            rows.setdefault((event["pid"], event["tid"]), []).append(event)
    outer = set()
    for row in rows.values():
        row.sort(key=lambda event: (event["ts"], -event["dur"]))
        open_events: list[dict[str, Any]] = []
        for event in row:
            while open_events and open_events[-1]["ts"] + open_events[-1]["dur"] <= event["ts"]:
                open_events.pop()
            if open_events:
                outer.add(id(open_events[-1]))
            open_events.append(event)
    hidden = ("python_function", "user_annotation", "privateuse1_runtime", "Trace")
    return [event for event in events if id(event) not in outer and event.get("cat") not in hidden]


def replace(path: str, text: str) -> None:
    r"""Write a file whole or not at all: a full disk leaves what was there."""
    folder = os.path.dirname(os.path.abspath(path))
    handle, beside = tempfile.mkstemp(dir=folder, prefix=".", suffix=".tmp")
    try:
        with open(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(beside, path)
    except BaseException:
        os.unlink(beside)
        raise
