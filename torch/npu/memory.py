r"""Memory of the NPUs: the caching allocator's counters and switches, and those of pinned host memory."""

import contextlib
import ctypes
import pickle
import sys
from typing import Any

from typing_extensions import deprecated

import torch

from ._memory_summary import format_memory_summary
from ._utils import _get_device_index

__all__ = [
    "MemPool",
    "NPUPluggableAllocator",
    "caching_allocator_alloc",
    "caching_allocator_delete",
    "change_current_allocator",
    "device_memory_used",
    "empty_cache",
    "empty_virt_addr_cache",
    "get_allocator_backend",
    "get_per_process_memory_fraction",
    "host_empty_cache",
    "host_memory_stats",
    "host_memory_stats_as_nested_dict",
    "max_memory_allocated",
    "max_memory_cached",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_cached",
    "memory_reserved",
    "memory_snapshot",
    "memory_stats",
    "memory_stats_as_nested_dict",
    "memory_summary",
    "reset_accumulated_host_memory_stats",
    "reset_accumulated_memory_stats",
    "reset_max_memory_allocated",
    "reset_max_memory_cached",
    "reset_peak_host_memory_stats",
    "reset_peak_memory_stats",
    "set_per_process_memory_fraction",
    "use_mem_pool",
]


def _flatten(prefix: str, value: Any, into: list[tuple[str, Any]]) -> None:
    if isinstance(value, dict):
        for key, inner in value.items():
            _flatten(f"{prefix}.{key}" if prefix else key, inner, into)
    else:
        into.append((prefix, value))


def caching_allocator_alloc(size: int, device: Any = None, stream: Any = None) -> int:
    r"""Take memory from the caching allocator, for use by other libraries.

    Args:
        size (int): bytes.
        device (torch.device, str or int, optional): default the current NPU.
        stream (torch.npu.Stream or int, optional): the stream that will use it (an int is an ``aclrtStream``, 0 the
            default stream); default the current stream.

    Returns:
        int: the device address; give it back with :func:`caching_allocator_delete`.

    Raises:
        TypeError: ``stream`` is neither.
        torch.OutOfMemoryError: the device has not that much left.
    """
    torch.npu._lazy_init()
    index = _get_device_index(device, optional=True)
    if stream is None:
        stream = torch.npu.current_stream(index)
    if isinstance(stream, torch.Stream):
        stream = torch._C._npu_streamHandle(stream.stream_id, stream.device_index)
    if not isinstance(stream, int):
        raise TypeError(
            "Invalid type for stream argument, must be `torch.npu.Stream` or `int` representing a pointer "
            f"to an existing stream, not {type(stream).__name__}"
        )
    with torch.npu.device(index):
        return torch._C._npu_cachingAllocatorRawAlloc(size, stream)


def caching_allocator_delete(mem_ptr: int) -> None:
    r"""Give back memory of :func:`caching_allocator_alloc`."""
    torch._C._npu_cachingAllocatorRawDelete(mem_ptr)


def get_allocator_backend() -> str:
    r"""Return the allocator's name: ``native``, or ``pluggable`` after :func:`change_current_allocator`."""
    return torch._C._npu_getAllocatorBackend()


def set_per_process_memory_fraction(fraction: float, device: Any = None) -> None:
    r"""Bound what this process takes of an NPU's memory; beyond, it is out of memory.

    Args:
        fraction (float): in [0, 1], of the total.
        device (torch.device, str or int, optional): default the current NPU.

    Raises:
        TypeError, ValueError: ``fraction`` is not such a number.
    """
    torch.npu._lazy_init()
    if not isinstance(fraction, float):
        raise TypeError("Invalid type for fraction argument, must be `float`")
    if not 0 <= fraction <= 1:
        raise ValueError(f"Invalid fraction value: {fraction}. Allowed range: 0~1")
    torch._C._npu_setMemoryFraction(fraction, _get_device_index(device, optional=True))


def get_per_process_memory_fraction(device: Any = None) -> float:
    r"""Return the bound set by :func:`set_per_process_memory_fraction`, 1.0 if none was."""
    torch.npu._lazy_init()
    return torch._C._npu_getMemoryFraction(_get_device_index(device, optional=True))


def empty_cache() -> None:
    r"""Give all cached memory that no tensor uses back to the devices. Does nothing before initialisation."""
    if torch.npu.is_initialized():
        torch._C._npu_emptyCache()


def empty_virt_addr_cache() -> None:
    r"""Give back the cached memory of expandable segments that no tensor uses: address ranges and what is mapped there.

    On a card the plug-in keeps the physical memory for the next mapping; here both go, as by :func:`empty_cache`.

    Raises:
        RuntimeError: segments are not expandable (``PYTORCH_NPU_ALLOC_CONF=expandable_segments:True``).
    """
    if "expandable_segments:true" not in torch._C._accelerator_getAllocatorSettings().lower().replace(" ", ""):
        raise RuntimeError(
            "torch.npu.empty_virt_addr_cache: it needs PYTORCH_NPU_ALLOC_CONF=expandable_segments:True; "
            "torch.npu.empty_cache() gives back the memory of other segments"
        )
    empty_cache()


def host_empty_cache() -> None:
    r"""Give back all cached pinned host memory that no tensor uses. Does nothing before initialisation."""
    if torch.npu.is_initialized():
        torch._C._npu_hostEmptyCache()


def memory_stats_as_nested_dict(device: Any = None) -> dict[str, Any]:
    r"""Return :func:`memory_stats` as nested dictionaries; empty before initialisation."""
    if not torch.npu.is_initialized():
        return {}
    return torch._C._npu_memoryStats(_get_device_index(device, optional=True))


def memory_stats(device: Any = None) -> dict[str, Any]:
    r"""Return the allocator's counters for an NPU, as sorted ``{name: int}``; empty before initialisation.

    ``{allocation,segment,active,inactive_split}.{all,large_pool,small_pool}.{current,peak,allocated,freed}`` count
    blocks; ``{allocated_bytes,reserved_bytes,active_bytes,inactive_split_bytes,requested_bytes}...`` are bytes;
    ``num_alloc_retries``, ``num_ooms``, ``num_sync_all_streams``, ``num_device_alloc`` and ``num_device_free`` count
    events. ``current`` is now, ``peak`` the maximum since :func:`reset_peak_memory_stats`; ``allocated`` and
    ``freed`` are totals since :func:`reset_accumulated_memory_stats`.
    """
    result: list[tuple[str, Any]] = []
    _flatten("", memory_stats_as_nested_dict(device), result)
    return dict(sorted(result))


def reset_accumulated_memory_stats(device: Any = None) -> None:
    r"""Set the totals in :func:`memory_stats` to zero."""
    torch.npu._lazy_init()
    torch._C._npu_resetAccumulatedMemoryStats(_get_device_index(device, optional=True))


def reset_peak_memory_stats(device: Any = None) -> None:
    r"""Start the peaks in :func:`memory_stats` again from the current values."""
    torch.npu._lazy_init()
    torch._C._npu_resetPeakMemoryStats(_get_device_index(device, optional=True))


def host_memory_stats_as_nested_dict() -> dict[str, Any]:
    r"""Return :func:`host_memory_stats` as nested dictionaries; empty before memory was pinned for the first time."""
    # Pinning memory opens a device by itself, without torch.npu's initialisation.
    stats = torch._C._npu_hostMemoryStats()
    return stats if torch.npu.is_initialized() or stats["num_host_alloc"] else {}


def host_memory_stats() -> dict[str, Any]:
    r"""Return the counters of pinned host memory, as sorted ``{name: int}``; empty before any was pinned.

    ``{allocation,segment,allocated_bytes,reserved_bytes}.{current,peak,allocated,freed}`` mean what they mean in
    :func:`memory_stats`; ``num_host_alloc`` and ``num_host_free`` count calls to the driver, and
    ``host_alloc_time``/``host_free_time.{total,max,min,count,avg}`` their microseconds.
    """
    result: list[tuple[str, Any]] = []
    _flatten("", host_memory_stats_as_nested_dict(), result)
    return dict(sorted(result))


def reset_accumulated_host_memory_stats() -> None:
    r"""Set the totals in :func:`host_memory_stats` to zero."""
    torch.npu._lazy_init()
    torch._C._npu_resetAccumulatedHostMemoryStats()


def reset_peak_host_memory_stats() -> None:
    r"""Start the peaks in :func:`host_memory_stats` again from the current values."""
    torch.npu._lazy_init()
    torch._C._npu_resetPeakHostMemoryStats()


@deprecated(
    "`torch.npu.reset_max_memory_allocated` resets all peaks; use `reset_peak_memory_stats`", category=FutureWarning
)
def reset_max_memory_allocated(device: Any = None) -> None:
    r"""Deprecated; see :func:`reset_peak_memory_stats`."""
    reset_peak_memory_stats(device)


@deprecated(
    "`torch.npu.reset_max_memory_cached` resets all peaks; use `reset_peak_memory_stats`", category=FutureWarning
)
def reset_max_memory_cached(device: Any = None) -> None:
    r"""Deprecated; see :func:`reset_peak_memory_stats`."""
    reset_peak_memory_stats(device)


def memory_allocated(device: Any = None) -> int:
    r"""Return the bytes that tensors occupy on an NPU now."""
    return memory_stats(device).get("allocated_bytes.all.current", 0)


def max_memory_allocated(device: Any = None) -> int:
    r"""Return the most bytes that tensors occupied since :func:`reset_peak_memory_stats` (or the start)."""
    return memory_stats(device).get("allocated_bytes.all.peak", 0)


def memory_reserved(device: Any = None) -> int:
    r"""Return the bytes that the caching allocator holds of an NPU now, used or not."""
    return memory_stats(device).get("reserved_bytes.all.current", 0)


def max_memory_reserved(device: Any = None) -> int:
    r"""Return the most bytes that the caching allocator held since :func:`reset_peak_memory_stats` (or the start)."""
    return memory_stats(device).get("reserved_bytes.all.peak", 0)


@deprecated("`torch.npu.memory_cached` is `torch.npu.memory_reserved`", category=FutureWarning)
def memory_cached(device: Any = None) -> int:
    r"""Deprecated; see :func:`memory_reserved`."""
    return memory_reserved(device)


@deprecated("`torch.npu.max_memory_cached` is `torch.npu.max_memory_reserved`", category=FutureWarning)
def max_memory_cached(device: Any = None) -> int:
    r"""Deprecated; see :func:`max_memory_reserved`."""
    return max_memory_reserved(device)


def memory_snapshot(mempool_id: Any = None, include_traces: bool = True) -> list[dict[str, Any]]:
    r"""Return one dict per segment of all NPUs: ``device``, ``address``, ``segment_type`` (``large``/``small``),
    ``segment_pool_id``, ``is_expandable``, ``stream``, ``total_size``, ``allocated_size``, ``active_size``,
    ``requested_size`` (bytes), and ``blocks`` with ``address``, ``size``, ``requested_size`` and ``state``.

    Args:
        mempool_id (tuple of two ints, optional): the :attr:`MemPool.id` of a pool, for its segments only; default all.
        include_traces (bool, optional): for symmetry with torch.cuda; the segments hold no history.
    """
    if not torch.npu.is_initialized():
        return []
    pool = (0, 0) if mempool_id is None else tuple(mempool_id)
    return torch._C._npu_memorySnapshot(pool, include_traces)["segments"]


def _record_memory_history(
    enabled: str | None = "all",
    context: str | None = "all",
    stacks: str = "all",
    max_entries: int = sys.maxsize,
    device: Any = None,
    clear_history: bool = False,
) -> None:
    r"""Keep, for :func:`_snapshot`, the history of allocations on all NPUs and the stacks that made them.

    Args:
        enabled (str or None): None stops; ``"state"`` keeps what is needed for live blocks, ``"all"`` the history too.
        context (str or None): the stacks to keep: None, ``"state"`` (live blocks), ``"alloc"``, ``"all"`` (also frees).
        stacks (str): ``"python"`` or ``"all"`` (with C++ frames).
        max_entries (int): of the history.
        device: for symmetry with torch.cuda.
        clear_history (bool): forget what was kept before.

    Raises:
        ValueError: an argument is none of these.
    """
    for name, value, allowed in (
        ("enabled", enabled, (None, "state", "all")),
        ("context", context, (None, "state", "alloc", "all")),
        ("stacks", stacks, ("python", "all")),
    ):
        if value not in allowed:
            raise ValueError(f"_record_memory_history: {name} is one of {allowed}, not {value!r}")
    torch.npu._lazy_init()
    entries = max_entries if enabled == "all" else 1
    torch._C._npu_recordMemoryHistory(enabled is not None, context or "", stacks == "all", entries, clear_history)


def _snapshot(device: Any = None) -> dict[str, Any]:
    r"""Return ``segments`` as :func:`memory_snapshot` does, and ``device_traces``: per NPU the history that
    :func:`_record_memory_history` keeps, one dict per event with ``action``, ``addr``, ``size``, ``stream``,
    ``time_us`` and ``frames``.
    """
    torch.npu._lazy_init()
    return torch._C._npu_memorySnapshot((0, 0), True)


def _dump_snapshot(filename: str = "dump_snapshot.pickle") -> None:
    r"""Write :func:`_snapshot` to a pickle file, which pytorch.org/memory_viz shows."""
    with open(filename, "wb") as file:
        pickle.dump(_snapshot(), file)


@deprecated(
    "torch.npu._set_allocator_settings is deprecated. Use torch._C._accelerator_setAllocatorSettings instead.",
    category=FutureWarning,
)
def _set_allocator_settings(env: str) -> None:
    r"""Apply a string in the form of ``PYTORCH_NPU_ALLOC_CONF`` to the running allocator.

    Raises:
        ValueError: a key is unknown, or a value wrong.
    """
    torch._C._npu_setAllocatorSettings(env)


class _NPUAllocator:
    r"""An allocator of device memory: the caching one, or one made of a library's functions."""

    def __init__(self, allocator: Any):
        self._allocator = allocator

    def allocator(self) -> Any:
        r"""Return the object that :class:`MemPool` takes."""
        return self._allocator


class NPUPluggableAllocator(_NPUAllocator):
    r"""An allocator made of two functions of a shared library.

    Args:
        path_to_so_file (str): the library.
        alloc_fn_name (str): ``void* alloc(ssize_t size, int device, aclrtStream stream)``; null where there is no
            memory.
        free_fn_name (str): ``void free(void* ptr, ssize_t size, int device, aclrtStream stream)``.

    Raises:
        OSError: the library cannot be loaded.
        AttributeError: it has no such function.
    """

    def __init__(self, path_to_so_file: str, alloc_fn_name: str, free_fn_name: str):
        library = ctypes.CDLL(path_to_so_file)
        functions = (getattr(library, name) for name in (alloc_fn_name, free_fn_name))
        super().__init__(torch._C._npu_customAllocator(*(ctypes.cast(f, ctypes.c_void_p).value for f in functions)))


def change_current_allocator(allocator: _NPUAllocator) -> None:
    r"""Put ``allocator`` in the place of the caching allocator. What it does not offer (statistics, snapshots, pools)
    raises from then on.

    Raises:
        RuntimeError: the present allocator has been used already.
    """
    torch._C._npu_changeCurrentAllocator(allocator.allocator())


def _get_current_allocator() -> _NPUAllocator:
    r"""Return the allocator in use."""
    return _NPUAllocator(torch._C._npu_getAllocator())


class MemPool(torch._C._NPUMemPool):
    r"""A pool of memory of its own in the caching allocator: what is allocated inside :func:`use_mem_pool` shares no
    segment with anything else.

    Args:
        allocator (optional): where its segments come from, an ``allocator()`` of :class:`NPUPluggableAllocator`;
            default the device.
        use_on_oom (bool, optional): what is free in the pool also serves requests from outside that would be out of
            memory otherwise.
        no_split (bool, optional): a segment is one block, whatever of it is asked for.
    """

    def __init__(self, allocator: Any = None, use_on_oom: bool = False, no_split: bool = False):
        torch.npu._lazy_init()
        super().__init__(allocator, True, use_on_oom, no_split)

    @property
    def id(self) -> tuple[int, int]:
        r"""The pool's id: two ints."""
        return super().id

    @property
    def allocator(self) -> Any:
        r"""The allocator that was given for its segments, or None."""
        return super().allocator

    def use_count(self) -> int:
        r"""Return 1, and one more for each :func:`use_mem_pool` of it that is under way."""
        return super().use_count()

    def snapshot(self, include_traces: bool = True) -> list[dict[str, Any]]:
        r"""Return :func:`memory_snapshot` of the pool."""
        return memory_snapshot(self.id, include_traces)


@contextlib.contextmanager
def use_mem_pool(pool: MemPool, device: Any = None):
    r"""Context manager in which this thread's allocations go to ``pool``; those of other threads, such as a backward's,
    do not.

    Args:
        pool (MemPool): the pool.
        device (torch.device, str or int, optional): the NPU whose allocations go there, default the current one.
    """
    index = _get_device_index(device, optional=True)
    torch._C._npu_beginAllocateCurrentThreadToPool(index, pool.id)
    try:
        yield
    finally:
        torch._C._npu_endAllocateToPool(index, pool.id)
        torch._C._npu_releasePool(index, pool.id)


def memory_summary(device: Any = None, abbreviated: bool = False) -> str:
    r"""Return the counters of :func:`memory_stats` as a table.

    Args:
        device (torch.device, str or int, optional): default the current NPU.
        abbreviated (bool, optional): leave out the rows of the two pools.
    """
    torch.npu._lazy_init()
    index = _get_device_index(device, optional=True)
    return format_memory_summary(memory_stats(index), index, abbreviated)


def mem_get_info(device: Any = None) -> tuple[int, int]:
    r"""Return ``(free, total)`` bytes of an NPU, whoever uses it."""
    torch.npu._lazy_init()
    return torch._C._npu_memGetInfo(_get_device_index(device, optional=True))


def device_memory_used(device: Any = None) -> int:
    r"""Return the bytes in use of an NPU, whoever uses it."""
    free, total = mem_get_info(device)
    return total - free
