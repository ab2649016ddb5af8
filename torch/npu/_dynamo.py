r"""What Dynamo has to know to trace code that uses torch.npu: loaded with :mod:`torch._dynamo`, never before."""

from typing import Any

from torch._dynamo.device_interface import DeviceInterface

import torch


class NPUInterface(DeviceInterface):
    r"""torch.npu under the names that Dynamo calls every device by."""

    device = torch.npu.device
    Event = torch.npu.Event
    Stream = torch.npu.Stream

    class Worker:
        @staticmethod
        def set_device(device: int) -> None:
            torch.npu.set_device(device)

        @staticmethod
        def current_device() -> int:
            return torch.npu.current_device()

        @staticmethod
        def get_device_properties(device: Any = None) -> Any:
            return torch.npu.get_device_properties(device)

    current_device = staticmethod(torch.npu.current_device)
    set_device = staticmethod(torch.npu.set_device)
    device_count = staticmethod(torch.npu.device_count)
    is_available = staticmethod(torch.npu.is_available)
    stream = staticmethod(torch.npu.stream)
    current_stream = staticmethod(torch.npu.current_stream)
    set_stream = staticmethod(torch.npu.set_stream)
    synchronize = staticmethod(torch.npu.synchronize)
    get_device_properties = staticmethod(torch.npu.get_device_properties)
    get_compute_capability = staticmethod(torch.npu.get_device_capability)
    is_bf16_supported = staticmethod(torch.npu.is_bf16_supported)
    exchange_device = staticmethod(torch.npu._exchange_device)
    maybe_exchange_device = staticmethod(torch.npu._maybe_exchange_device)
    memory_allocated = staticmethod(torch.npu.memory_allocated)

    @staticmethod
    def _set_stream_by_id(stream_id: int, device_index: int, device_type: int) -> None:
        torch._C._npu_setStream(stream_id=stream_id, device_index=device_index, device_type=device_type)

    @staticmethod
    def get_raw_stream(device_idx: int) -> int:
        return torch.npu.current_stream(device_idx).npu_stream


# Answered while tracing; they do not change in a process.
_GUARDED = ("current_device", "is_initialized")  # answered while tracing, asked again by a guard
_CONSTANT = ("is_available", "device_count", "get_device_properties", "get_device_name", "get_device_capability")
# Calls that stay in the graph.
_IN_GRAPH = (
    "current_stream",
    "is_bf16_supported",
    "memory.empty_cache",
    "memory.max_memory_allocated",
    "memory.max_memory_reserved",
    "memory.mem_get_info",
    "memory.memory_allocated",
    "memory.memory_reserved",
    "memory.reset_peak_memory_stats",
    "set_stream",
    "stream",
    "synchronize",
)
# Calls that break the graph and run in Python, as torch.cuda's do.
_SKIPPED = tuple(
    f"random.{name}"
    for name in ("get_rng_state", "manual_seed", "manual_seed_all", "seed", "seed_all", "set_rng_state")
)


def drop_cuda_names() -> None:
    r"""Let names of torch.cuda that transfer_to_npu has made functions of torch.npu follow torch.npu's rules.

    Dynamo refuses one function with two rules.
    """
    from torch._dynamo import trace_rules

    ours = {trace_rules.load_object(f"torch.npu.{name}") for name in (*_CONSTANT, *_GUARDED, *_IN_GRAPH, *_SKIPPED)}
    for table in trace_rules.torch_name_rule_map:
        for name in [name for name in table if name.startswith("torch.cuda.") and ".py#" not in name]:
            if trace_rules.load_object(name) in ours:
                del table[name]
    trace_rules.get_torch_obj_rule_map.cache_clear()  # importing Dynamo has used it already


def register() -> None:
    r"""Tell Dynamo about ``torch.npu.device`` and the functions above. Called once, by torch._dynamo."""
    from torch._dynamo import trace_rules
    from torch._dynamo.variables import SkipFunctionVariable, TorchInGraphFunctionVariable
    from torch._dynamo.variables import streams as stream_variables
    from torch._dynamo.variables import torch as torch_variables
    from torch._dynamo.variables.ctx_manager import GenericDeviceVariable, _device_context_manager_map

    class NPUStreamVariable(stream_variables.StreamVariable):
        _cpython_type = torch.npu.Stream
        _device_handle_attr = "npu_stream"

    class NPUDeviceVariable(GenericDeviceVariable):
        _exchange_fn = staticmethod(torch.npu._exchange_device)
        _maybe_exchange_fn = staticmethod(torch.npu._maybe_exchange_device)
        _get_device_index_fn = staticmethod(torch.npu._get_device_index)

        def module_name(self) -> str:
            return "torch.npu"

        def python_type(self) -> type:
            return torch.npu.device

    # Under transfer_to_npu torch.cuda.device is this class and has CUDA's entry, which this one takes the place of.
    _device_context_manager_map[torch.npu.device] = NPUDeviceVariable
    stream_variables._stream_fn_to_variable_cls[torch.npu.current_stream] = NPUStreamVariable
    handlers = TorchInGraphFunctionVariable._get_handlers()
    for name in ("current_stream", "synchronize"):
        handlers[getattr(torch.npu, name)] = handlers[getattr(torch.accelerator, name)]
    names = [f"torch.npu.{name}" for name in (*_CONSTANT, *_GUARDED, *_IN_GRAPH)]
    rules = dict.fromkeys(names, TorchInGraphFunctionVariable)
    rules.update((f"torch.npu.{name}", SkipFunctionVariable) for name in _SKIPPED)
    trace_rules.torch_non_c_binding_in_graph_functions.update(rules)
    drop_cuda_names()
    guarded = dict.fromkeys(getattr(torch.npu, name) for name in _GUARDED)
    torch_variables.constant_fold_functions_need_guards.update(guarded)
    torch_variables.constant_fold_functions.update(guarded)
    torch_variables.constant_fold_functions.update(dict.fromkeys(getattr(torch.npu, name) for name in _CONSTANT))
