r"""On which cores of the host a thread runs. Only where ``CPU_AFFINITY_CONF`` asks for it, as in the plug-in."""

import os
import re
import threading

__all__ = ["reset_thread_affinity", "set_thread_affinity"]

_at_start = sorted(os.sched_getaffinity(0))


def _is_on() -> bool:
    mode = re.search(r"mode:\s*(\d)", os.environ.get("CPU_AFFINITY_CONF", ""))
    return mode is not None and mode[1] in ("1", "2")


def _cores(ranges: list[int] | list[list[int]]) -> set[int]:
    pairs = [ranges] if ranges and isinstance(ranges[0], int) else ranges
    cores: set[int] = set()
    for pair in pairs:
        if not isinstance(pair, (list, tuple)) or len(pair) != 2 or not 0 <= pair[0] <= pair[1]:
            raise ValueError(f"set_thread_affinity: a range is [first core, last core], not {pair!r}")
        cores.update(range(pair[0], pair[1] + 1))
    return cores


def set_thread_affinity(core_range: list[int] | list[list[int]] | None = None) -> None:
    r"""Keep the calling thread, and those that it starts, on some of the host's cores.

    Does nothing unless the environment has ``CPU_AFFINITY_CONF=mode:1`` or ``mode:2``.

    Args:
        core_range: ``[0, 3]`` for the cores 0 to 3, or several of those; default all that the process started with but
            the first, which is left to the main thread.

    Raises:
        ValueError: it is no range of cores, or the process may use none of them.
    """
    if not _is_on():
        return
    cores = set(_at_start[1:] or _at_start) if core_range is None else _cores(core_range)
    allowed = cores & set(_at_start)
    if not allowed:
        raise ValueError(f"set_thread_affinity: the process may use none of the cores {sorted(cores)}")
    os.sched_setaffinity(threading.get_native_id(), allowed)


def reset_thread_affinity() -> None:
    r"""Let the calling thread run on all cores that the process started with. Does nothing unless
    :func:`set_thread_affinity` does something.
    """
    if _is_on():
        os.sched_setaffinity(threading.get_native_id(), _at_start)
