r"""
``torch.npu``: Ascend NPUs as a device of PyTorch, shaped like :mod:`torch.cuda`.

The module is lazily initialised: importing it, :func:`is_available` and :func:`device_count` neither open a device
nor start a thread, so a process may fork after them. The first call that needs a device opens it.
``import torch`` imports this module, hence everything here is cheap: sub-modules are loaded when first used.
"""

import importlib
import os
import sys
import threading
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torch._utils import _LazySeedTracker

import torch

from . import _C  # type: ignore[attr-defined]  # noqa: F401  (adds torch._C._npu_*)
from ._lazy import MODULES as _LAZY_MODULES, NAMES as _LAZY_NAMES
from ._utils import _get_device_index

_initialized = False
_tls = threading.local()
_initialization_lock = threading.Lock()
_queued_calls: list[tuple[Any, list[str]]] = []  # run once, when the device is initialised
_lazy_seed_tracker = _LazySeedTracker()
_is_in_bad_fork = torch._C._npu_isInBadFork
_exchange_device: Callable[[int], int] = torch._C._npu_exchangeDevice
_maybe_exchange_device: Callable[[int], int] = torch._C._npu_maybeExchangeDevice

has_half: bool = True
has_magma: bool = False  # MAGMA is a CUDA library

default_generators: tuple[torch._C.Generator, ...] = ()

# The plug-in's name of the activity that upstream calls PrivateUse1.
torch._C._profiler.ProfilerActivity.NPU = torch._C._profiler.ProfilerActivity.PrivateUse1  # type: ignore[attr-defined]

AcceleratorError = torch._C.AcceleratorError
OutOfMemoryError = torch._C.OutOfMemoryError


class DeferredNpuCallError(Exception):
    r"""A call queued before initialisation failed when it was run; the text holds where it was made."""


def _is_compiled() -> bool:
    r"""Return True: this build has NPU support."""
    return True


def is_available() -> bool:
    r"""Return whether at least one NPU (a card, or the simulator's) can be used. Initialises nothing."""
    return device_count() > 0


def device_count() -> int:
    r"""Return the number of visible NPUs, 0 if there is none or it cannot be asked. Initialises nothing.

    ``ASCEND_RT_VISIBLE_DEVICES`` selects and orders the visible devices.
    """
    return torch._C._npu_getDeviceCount()


def is_initialized() -> bool:
    r"""Return whether this process has initialised the NPU."""
    return _initialized and not _is_in_bad_fork()


def _lazy_call(callable, **kwargs) -> None:
    r"""Run ``callable`` now if the NPU is initialised, else once it is; of ``seed``/``seed_all`` calls the last one."""
    with _initialization_lock:
        if not is_initialized():
            if kwargs.get("seed_all", False):
                _lazy_seed_tracker.queue_seed_all(callable, traceback.format_stack())
            elif kwargs.get("seed", False):
                _lazy_seed_tracker.queue_seed(callable, traceback.format_stack())
            else:
                # The formatted text, not the traceback object, so that no frame is kept alive.
                _queued_calls.append((callable, traceback.format_stack()))
            return
    callable()  # without the lock: Dynamo, compiling the callable, saves and restores random states by calls like this


def init() -> None:
    r"""Initialise the NPU now; otherwise the first call that needs it does. Does nothing the second time.

    Raises:
        RuntimeError: in a child forked after initialisation, or when there is no device.
    """
    _lazy_init()


def _lazy_init() -> None:
    global _initialized, default_generators
    if is_initialized() or hasattr(_tls, "is_initializing"):
        return
    with _initialization_lock:
        if is_initialized():
            return
        if _is_in_bad_fork():
            raise RuntimeError(
                "Cannot re-initialize NPU in forked subprocess. To use NPU with multiprocessing, "
                "you must use the 'spawn' start method"
            )
        torch._C._npu_init()
        importlib.import_module(f"{__name__}._variables").warn()
        # Queued calls may come back here from this thread; other threads wait at the lock.
        _tls.is_initializing = True
        try:
            default_generators = tuple(torch._C._npu_getDefaultGenerator(i) for i in range(device_count()))
            _queued_calls.extend(calls for calls in _lazy_seed_tracker.get_calls() if calls)
            for queued_call, where in _queued_calls:
                try:
                    queued_call()
                except Exception as e:
                    raise DeferredNpuCallError(
                        f"NPU call failed lazily at initialization with error: {e}\n\n"
                        f"NPU call was originally invoked at:\n\n{''.join(where)}"
                    ) from e
        finally:
            del _tls.is_initializing
        _queued_calls.clear()
        _initialized = True


class _DeviceGuard:
    def __init__(self, index: int):
        self.idx = index
        self.prev_idx = -1

    def __enter__(self):
        self.prev_idx = _exchange_device(self.idx)

    def __exit__(self, type: Any, value: Any, traceback: Any):
        self.idx = _maybe_exchange_device(self.prev_idx)
        return False


class device(_DeviceGuard):
    r"""Context manager that changes the current NPU.

    Args:
        device (torch.device, str or int): the NPU to select; nothing happens for ``None`` or a negative index.
    """

    def __init__(self, device: Any):
        super().__init__(_get_device_index(device, optional=True))


class device_of(device):
    r"""Context manager that makes the NPU of ``obj`` (a tensor or storage) current; nothing happens if it has none."""

    def __init__(self, obj):
        super().__init__(obj.get_device() if obj.device.type == "npu" else -1)


def set_device(device: Any) -> None:
    r"""Make an NPU current for this thread. Initialises the NPU, as its CUDA twin does, but opens no device.

    Args:
        device (torch.device, str or int): e.g. ``"npu:0"`` or ``0``. Nothing happens for a negative index.

    Raises:
        ValueError: the device is not an NPU.
        RuntimeError: there is no NPU of that index.
    """
    index = _get_device_index(device)
    if index >= 0:
        _lazy_init()  # so that whoever asks, as init_device_mesh does, sees that a device was chosen
        torch._C._npu_setDevice(index)


def current_device() -> int:
    r"""Return the index of the current NPU; 0 unless :func:`set_device` changed it."""
    _lazy_init()
    return torch._C._npu_getDevice()


def synchronize(device: Any = None) -> None:
    r"""Wait until all work on all streams of an NPU is done.

    Args:
        device (torch.device, str or int, optional): default the current one.

    Raises:
        ValueError: the device is not an NPU.
        RuntimeError: work failed on the device; the text names the operator.
    """
    _lazy_init()
    with torch.npu.device(device):
        torch._C._npu_synchronize()


def get_device_properties(device: Any = None):
    r"""Return the properties of an NPU: ``name``, ``total_memory`` (bytes), ``multi_processor_count`` (AI cores),
    ``major`` and ``minor`` (see :func:`get_device_capability`), ``uuid``, ``is_simulated``.

    ``uuid`` has ``bytes`` (16) and, as text, their usual form. AscendCL tells none: it is made of the host's id and
    the NPU's number on the host, so it is the same in every process, and differs between NPUs.

    Raises:
        AssertionError: there is no NPU of that index.
    """
    _lazy_init()
    index = _get_device_index(device, optional=True)
    if index < 0 or index >= device_count():
        raise AssertionError("Invalid device id")
    return torch._C._npu_getDeviceProperties(index)


def get_device_name(device: Any = None) -> str:
    r"""Return the name of an NPU's chip, such as ``Ascend910B``. Initialises nothing."""
    index = 0 if device is None and not is_initialized() else _get_device_index(device, optional=True)
    if index < 0 or index >= device_count():
        raise AssertionError("Invalid device id")
    return torch._C._npu_getDeviceName(index)


def get_device_capability(device: Any = None) -> tuple[int, int]:
    r"""Return ``(major, minor)``: the number in the chip's name split in two, (9, 10) for an Ascend910."""
    properties = get_device_properties(device)
    return properties.major, properties.minor


def can_device_access_peer(device: Any, peer_device: Any) -> bool:
    r"""Return whether one NPU can read another's memory.

    Raises:
        AssertionError: one of the two does not exist.
    """
    _lazy_init()
    first = _get_device_index(device, optional=True)
    second = _get_device_index(peer_device)
    if not 0 <= first < device_count():
        raise AssertionError("Invalid device id")
    if not 0 <= second < device_count():
        raise AssertionError("Invalid peer device id")
    return torch._C._npu_canDeviceAccessPeer(first, second)


def is_bf16_supported(including_emulation: bool = True) -> bool:
    r"""Return whether bfloat16 tensors work on the NPU."""
    return is_available()


def is_tf32_supported() -> bool:
    r"""Return False: an NPU computes float32 in float32."""
    return False


def set_sync_debug_mode(debug_mode: int | str) -> None:
    r"""Say what happens when an operation (not an explicit wait) makes the host wait for an NPU.

    Args:
        debug_mode (str or int): ``"default"`` or 0 nothing, ``"warn"`` or 1 a warning, ``"error"`` or 2 an error.

    Raises:
        RuntimeError, ValueError: there is no such mode.
    """
    modes = {"default": 0, "warn": 1, "error": 2}
    if isinstance(debug_mode, str):
        if debug_mode not in modes:
            raise RuntimeError("invalid value of debug_mode, expected one of `default`, `warn`, `error`")
        debug_mode = modes[debug_mode]
    torch._C._npu_setSyncDebugMode(debug_mode)


def get_sync_debug_mode() -> int:
    r"""Return the mode set by :func:`set_sync_debug_mode` as an int."""
    return torch._C._npu_getSyncDebugMode()


def get_amp_supported_dtype() -> list[torch.dtype]:
    r"""Return the dtypes that ``torch.autocast("npu", dtype=...)`` accepts."""
    return [torch.float16, torch.bfloat16, torch.float32]


def fallback_stats() -> dict[str, int]:
    r"""Return how often each aten operator without an NPU kernel ran on the CPU, by the operator's name."""
    return torch._C._npu_fallbackStats()


def reset_fallback_stats() -> None:
    r"""Set the counts of :func:`fallback_stats` to zero."""
    torch._C._npu_resetFallbackStats()


def _sleep(cycles: int) -> None:
    r"""Keep the current stream busy for ``cycles`` of the simulated NPU's clock, a thousand million a second.

    Raises:
        NotImplementedError: on a card, whose CANN has no operator that waits.
    """
    _lazy_init()
    torch._C._npu_sleep(cycles)


def ipc_collect() -> None:
    r"""Give back memory that other processes have released; nothing to do, since NPU memory is not shared yet."""
    _lazy_init()


def _shutdown() -> None:
    # Queued work ends and devices close while Python objects (generators, streams) still live.
    torch._C._npu_shutdown()


if TYPE_CHECKING:  # the same names for type checkers and editors; test_typing.py compares
    from . import (
        _gpu_trace as _gpu_trace,
        _profile as _profile,
        _refused as _refused,
        _sanitizer as _sanitizer,
        aclnn as aclnn,
        amp as amp,
        autocast_utils as autocast_utils,
        comm as comm,
        config as config,
        deterministic as deterministic,
        dump as dump,
        graphs as graphs,
        memory as memory,
        npu_config as npu_config,
        npugraph_ex as npugraph_ex,
        onnx as onnx,
        optim as optim,
        options as options,
        profiler as profiler,
        random as random,
        streams as streams,
        types as types,
        utils as utils,
    )
    from ._graph_updates import (
        NpuGraphOpHandler as NpuGraphOpHandler,
        graph_task_group_begin as graph_task_group_begin,
        graph_task_group_end as graph_task_group_end,
        graph_task_update_begin as graph_task_update_begin,
        graph_task_update_end as graph_task_update_end,
        register_npu_graph_handler as register_npu_graph_handler,
    )
    from ._health import (
        set_op_timeout_ms as set_op_timeout_ms,
        stress_detect as stress_detect,
    )
    from ._limits import (
        get_device_limit as get_device_limit,
        get_stream_limit as get_stream_limit,
        reset_stream_limit as reset_stream_limit,
        set_device_limit as set_device_limit,
        set_stream_limit as set_stream_limit,
    )
    from ._monitor import (
        clock_rate as clock_rate,
        memory_usage as memory_usage,
        power_draw as power_draw,
        temperature as temperature,
        utilization as utilization,
    )
    from ._profile.device import profile as profile, profileConfig as profileConfig
    from ._profile.mstx import emit_msprof as emit_msprof, mstx as mstx
    from .autocast_utils import (
        get_autocast_dtype as get_autocast_dtype,
        is_autocast_enabled as is_autocast_enabled,
        set_autocast_dtype as set_autocast_dtype,
        set_autocast_enabled as set_autocast_enabled,
    )
    from .deterministic import (
        disable_deterministic_with_backward as disable_deterministic_with_backward,
        enable_deterministic_with_backward as enable_deterministic_with_backward,
        set_deterministic_level as set_deterministic_level,
    )
    from .dump import (
        _acl_dump_active as _acl_dump_active,
        finalize_dump as finalize_dump,
        init_dump as init_dump,
        set_dump as set_dump,
    )
    from .graphs import (
        NPUGraph as NPUGraph,
        graph as graph,
        graph_pool_handle as graph_pool_handle,
        is_current_stream_capturing as is_current_stream_capturing,
        make_graphed_callables as make_graphed_callables,
    )
    from .memory import (
        MemPool as MemPool,
        NPUPluggableAllocator as NPUPluggableAllocator,
        caching_allocator_alloc as caching_allocator_alloc,
        caching_allocator_delete as caching_allocator_delete,
        change_current_allocator as change_current_allocator,
        device_memory_used as device_memory_used,
        empty_cache as empty_cache,
        empty_virt_addr_cache as empty_virt_addr_cache,
        get_allocator_backend as get_allocator_backend,
        get_per_process_memory_fraction as get_per_process_memory_fraction,
        host_empty_cache as host_empty_cache,
        host_memory_stats as host_memory_stats,
        host_memory_stats_as_nested_dict as host_memory_stats_as_nested_dict,
        max_memory_allocated as max_memory_allocated,
        max_memory_cached as max_memory_cached,
        max_memory_reserved as max_memory_reserved,
        mem_get_info as mem_get_info,
        memory_allocated as memory_allocated,
        memory_cached as memory_cached,
        memory_reserved as memory_reserved,
        memory_snapshot as memory_snapshot,
        memory_stats as memory_stats,
        memory_stats_as_nested_dict as memory_stats_as_nested_dict,
        memory_summary as memory_summary,
        reset_accumulated_host_memory_stats as reset_accumulated_host_memory_stats,
        reset_accumulated_memory_stats as reset_accumulated_memory_stats,
        reset_max_memory_allocated as reset_max_memory_allocated,
        reset_max_memory_cached as reset_max_memory_cached,
        reset_peak_host_memory_stats as reset_peak_host_memory_stats,
        reset_peak_memory_stats as reset_peak_memory_stats,
        set_per_process_memory_fraction as set_per_process_memory_fraction,
        use_mem_pool as use_mem_pool,
    )
    from .options import (
        are_compatible_impl_enabled as are_compatible_impl_enabled,
        conv as conv,
        current_blas_handle as current_blas_handle,
        disable_graph_mode as disable_graph_mode,
        enable_graph_mode as enable_graph_mode,
        get_mm_bmm_format_nd as get_mm_bmm_format_nd,
        get_option as get_option,
        global_step_inc as global_step_inc,
        is_graph_mode as is_graph_mode,
        is_jit_compile_false as is_jit_compile_false,
        launch_graph as launch_graph,
        matmul as matmul,
        set_aoe as set_aoe,
        set_compile_mode as set_compile_mode,
        set_mm_bmm_format_nd as set_mm_bmm_format_nd,
        set_option as set_option,
        set_start_fuzz_compile_step as set_start_fuzz_compile_step,
        use_compatible_impl as use_compatible_impl,
    )
    from .random import (
        _get_rng_state_offset as _get_rng_state_offset,
        _set_rng_state_offset as _set_rng_state_offset,
        get_rng_state as get_rng_state,
        get_rng_state_all as get_rng_state_all,
        initial_seed as initial_seed,
        manual_seed as manual_seed,
        manual_seed_all as manual_seed_all,
        seed as seed,
        seed_all as seed_all,
        set_rng_state as set_rng_state,
        set_rng_state_all as set_rng_state_all,
    )
    from .streams import (
        Event as Event,
        ExternalEvent as ExternalEvent,
        ExternalStream as ExternalStream,
        Stream as Stream,
        StreamContext as StreamContext,
        SyncLaunchStream as SyncLaunchStream,
        current_stream as current_stream,
        default_stream as default_stream,
        get_stream_from_external as get_stream_from_external,
        set_stream as set_stream,
        stream as stream,
    )
    from .utils import (
        clear_npu_overflow_flag as clear_npu_overflow_flag,
        get_cann_version as get_cann_version,
        get_npu_overflow_flag as get_npu_overflow_flag,
        get_soc_version as get_soc_version,
    )


def __getattr__(name: str) -> Any:
    if name in _LAZY_MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    if name in _LAZY_NAMES:
        value = getattr(importlib.import_module(f"{__name__}.{_LAZY_NAMES[name]}"), name)
        globals()[name] = value
        return value
    if not name.startswith("_"):
        refused = importlib.import_module(f"{__name__}._refused").members(__name__)
        if name in refused:
            globals().update(refused)
            return refused[name]
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY_NAMES, *_LAZY_MODULES})


def _module_to_npu(self, device: Any = None):
    r"""Move all parameters and buffers of the module to an NPU, in place, and return the module.

    Args:
        device (int, str or torch.device, optional): default the current NPU
    """
    self._apply(lambda t: t.npu(device))
    self.cast_weight(torch.device("npu"))
    return self


def _module_cast_weight(self, device: Any) -> None:
    r"""Put the weights of convolutions and linear layers on an NPU into the formats of its cube unit.

    :meth:`to` and ``npu()`` call it; it does something only while ``torch.npu.config.allow_internal_format`` is True.
    See :func:`torch.npu.config.cast_weight`.

    Args:
        device (torch.device): where the module has gone; nothing happens unless it is an NPU
    """
    if device is not None and torch.device(device).type == "npu":
        torch.npu.config.cast_weight(self)


def _sanitizer_wanted() -> bool:
    return os.environ.get("TORCH_NPU_SANITIZER", "") not in ("", "0")


def _register() -> None:
    # The device type's name, torch.npu as its module, and the methods that upstream generates for it.
    torch.utils.rename_privateuse1_backend("npu")
    torch._register_device_module("npu", sys.modules[__name__])
    torch.utils.generate_methods_for_privateuse1_backend(for_storage=True)
    # Set here, not by a graft: torch.jit, loaded before, refuses on ScriptModules what Module had by then.
    torch.nn.Module.npu = _module_to_npu  # type: ignore[attr-defined]
    torch.nn.Module.cast_weight = _module_cast_weight  # type: ignore[attr-defined]
    # A lazy module's parameters may be moved before they have a shape, as by cuda().
    torch.nn.parameter.UninitializedTensorMixin._allowed_methods.append(torch.Tensor.npu)  # type: ignore[attr-defined]

    importlib.import_module("torch.backends.npu")  # there by its name alone, as torch.backends.cuda is

    from . import _custom_ops

    _custom_ops.attach()

    if _sanitizer_wanted():
        from . import _sanitizer

        _sanitizer.enable_npu_sanitizer()

    from . import _distributed

    _distributed.register()

    import atexit

    atexit.register(_shutdown)


_register()

__all__ = sorted(
    {
        *(name for name in _LAZY_NAMES if not name.startswith("_")),
        "AcceleratorError",
        "DeferredNpuCallError",
        "OutOfMemoryError",
        "amp",
        "can_device_access_peer",
        "config",
        "current_device",
        "default_generators",
        "device",
        "device_count",
        "device_of",
        "dump",
        "fallback_stats",
        "get_amp_supported_dtype",
        "get_device_capability",
        "get_device_name",
        "get_device_properties",
        "get_sync_debug_mode",
        "has_half",
        "has_magma",
        "init",
        "ipc_collect",
        "is_available",
        "is_bf16_supported",
        "is_initialized",
        "is_tf32_supported",
        "memory",
        "options",
        "random",
        "reset_fallback_stats",
        "set_device",
        "set_sync_debug_mode",
        "streams",
        "synchronize",
    }
)
