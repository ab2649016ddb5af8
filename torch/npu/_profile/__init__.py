r"""
What stands behind the profilers: device activities for upstream's, result folders, and reading both again.

- ``trace.py`` finishes upstream's trace files; ``events.py`` reads traces and result folders into one shape;
- ``cost.py`` counts floating-point operations and models the time of a named card, ``cards.yaml`` describes it;
- ``findings.py`` and ``report.py`` are what ``torch.npu.analyze`` tells, ``roofline.py`` draws;
- ``tables.py``, ``database.py``, ``communication.py`` and ``folder.py`` write the files of ``torch.npu.profiler``,
  ``msprof.py`` those of the device layer.
"""

import torch


def records_activities() -> bool:
    r"""Return whether the device tells what it did: the simulated one does.

    Where it does not, upstream's fallback measures: events around each operator, on the device.
    """
    return torch._C._npu_recordsActivities()


def finish_trace(path: str, simple: bool = False, lines: tuple[list, list] | None = None) -> None:
    r"""Name the devices in a trace file that upstream has written, say which line called each operator, as
    ``torch._C._npu_takeLines()`` has it, and leave the innermost operators if ``simple``."""
    from .trace import finish

    finish(path, simple, lines)
