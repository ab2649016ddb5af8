r"""``communication.json`` and ``communication_matrix.json``: each collective of each step.

Their time is measured. How much of it a collective waits for others, and what goes over which link, the simulated
device does not record: those entries are missing, and the matrix has no links.
"""

import json
from pathlib import Path
from typing import Any

from . import tables
from .events import Profile, Task

_PAIRS = ("HcclSend", "HcclRecv", "HcclBatchSendRecv")


def label(task: Task) -> str:
    r"""``HcclAllReduce`` as these files call it: ``hcom_allReduce``."""
    plain = task.name.removeprefix("Hccl")
    return f"hcom_{plain[:1].lower()}{plain[1:]}"


def collectives(profile: Profile) -> dict[str, dict[str, dict[str, Task]]]:
    r"""By step ("step", or "step" and its number) and kind ("p2p", "collective") the tasks by their names."""
    steps = profile.steps
    found: dict[str, dict[str, dict[str, Task]]] = {}
    for number, task in enumerate(task for task in profile.tasks if task.kind == "hccl"):
        step = found.setdefault(f"step{tables.step_of(steps, task)}", {"p2p": {}, "collective": {}})
        kind = "p2p" if task.name in _PAIRS else "collective"
        step[kind][f"{label(task)}__{number}@{tables.NOT_AVAILABLE}"] = task
    return found


def _info(elapsed: float, **start: float) -> dict[str, Any]:
    return {
        "Communication Time Info": {**start, "Elapse Time(ms)": round(elapsed / 1000, 6)},
        "Communication Bandwidth Info": {},
    }


def write(folder: Path, profile: Profile) -> None:
    r"""Write both files, if there were collectives."""
    found = collectives(profile)
    if not found:
        return
    times: dict[str, Any] = {}
    matrix: dict[str, Any] = {}
    for step, kinds in found.items():
        times[step], matrix[step] = {}, {}
        for kind, tasks in kinds.items():
            rows = {
                name: _info(task.duration, **{"Start Timestamp(us)": float(tables.absolute(profile, task.start))})
                for name, task in tasks.items()
            }
            if tasks:
                rows["Total Op Info"] = _info(sum(task.duration for task in tasks.values()))
            times[step][kind] = rows
            matrix[step][kind] = {name: {} for name in tasks}
    (folder / "communication.json").write_text(json.dumps(times, indent=1), encoding="utf-8")
    (folder / "communication_matrix.json").write_text(json.dumps(matrix, indent=1), encoding="utf-8")
