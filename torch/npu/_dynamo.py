r"""What Dynamo has to know to trace code that uses torch.npu: loaded with :mod:`torch._dynamo`, never before."""

import functools
import inspect
from collections.abc import Callable
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
    exchange_device = staticmethod(torch.npu._exchange_device)  # type: ignore[assignment]
    maybe_exchange_device = staticmethod(torch.npu._maybe_exchange_device)  # type: ignore[assignment]
    memory_allocated = staticmethod(torch.npu.memory_allocated)

    @staticmethod
    def _set_stream_by_id(stream_id: int, device_index: int, device_type: int) -> None:
        torch._C._npu_setStream(stream_id=stream_id, device_index=device_index, device_type=device_type)

    @staticmethod
    def get_raw_stream(device_idx: int) -> int:
        return torch.npu.current_stream(device_idx).npu_stream


# Answered while tracing; of these a guard asks again, those do not change in a process.
_GUARDED = ("current_device", "is_initialized")
_CONSTANT = (
    *("is_available", "device_count", "get_device_properties", "get_device_name", "get_device_capability"),
    "is_bf16_supported",
)
# Calls that stay in the graph, besides those whose twins of torch.cuda do.
_IN_GRAPH = ("current_stream", "set_stream", "stream", "synchronize")
# Calls that break the graph and run in Python: what is drawn in the graph must not be seeded by it.
_SKIPPED = tuple(
    f"random.{name}"
    for name in ("get_rng_state", "manual_seed", "manual_seed_all", "seed", "seed_all", "set_rng_state")
)


def _load(name: str) -> Any:
    r"""What ``torch.npu.`` + name is, or None."""
    found: Any = torch.npu
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


def _rules() -> dict[str, Any]:
    r"""Rules for functions of torch.npu: those above, and for what torch.cuda has, too, the rule that it has there."""
    from torch._dynamo import trace_rules
    from torch._dynamo.variables import SkipFunctionVariable, TorchInGraphFunctionVariable

    rules: dict[str, Any] = dict.fromkeys((*_CONSTANT, *_GUARDED, *_IN_GRAPH), TorchInGraphFunctionVariable)
    rules.update(dict.fromkeys(_SKIPPED, SkipFunctionVariable))
    ruled = {_load(name) for name in rules}
    tables: list[dict[str, Any]] = trace_rules.torch_name_rule_map  # type: ignore[assignment]
    for table in tables:
        for name, rule in table.items():
            twin = name.removeprefix("torch.cuda.")
            if twin == name or ".py#" in name:
                continue
            function = _load(twin)
            if inspect.isfunction(function) and function.__module__.startswith("torch.npu") and function not in ruled:
                ruled.add(function)
                rules[twin] = rule
    return {f"torch.npu.{name}": rule for name, rule in rules.items()}


def drop_cuda_names() -> None:
    r"""Let names of torch.cuda that transfer_to_npu has made functions of torch.npu follow torch.npu's rules.

    Dynamo refuses one function with two rules.
    """
    from torch._dynamo import trace_rules

    tables: list[dict[str, Any]] = trace_rules.torch_name_rule_map  # type: ignore[assignment]
    ours = {trace_rules.load_object(name) for table in tables for name in table if name.startswith("torch.npu.")}
    for table in tables:
        for name in [name for name in table if name.startswith("torch.cuda.") and ".py#" not in name]:
            if trace_rules.load_object(name) in ours:
                del table[name]
    trace_rules.get_torch_obj_rule_map.cache_clear()  # importing Dynamo has used it already


@torch._disable_dynamo
def build(kind: str, args: tuple, kwargs: dict) -> Any:
    r"""Make the stream or event that a compiled function makes: called by its bytecode."""
    return getattr(torch.npu, kind)(*args, **kwargs)


def construct(tx: Any, made: Any, args: Any, kwargs: Any) -> Any:
    r"""The variable of a ``torch.npu.Stream`` or ``Event`` that the traced function makes with these arguments.

    ``made`` stands for it while tracing; each run makes its own, of the same class.
    """
    from torch._dynamo import graph_bytecode_inputs
    from torch._dynamo.bytecode_transformation import create_call_function
    from torch._dynamo.variables import streams as stream_variables
    from torch._dynamo.variables.builder import set_example_value
    from torch._dynamo.variables.constant import ConstantVariable

    def load(codegen: Any, module: str, name: str) -> None:
        codegen.add_push_null(lambda: codegen.load_import_from(module, name))

    def emit(index: int, codegen: Any) -> None:
        load(codegen, graph_bytecode_inputs.__name__, "stash_graph_created_object")
        load(codegen, __name__, "build")
        codegen(ConstantVariable.create(type(made).__name__))
        codegen(args)
        codegen(kwargs)
        codegen.extend_output(create_call_function(3, False))
        codegen.extend_output(create_call_function(1, False))

    index = graph_bytecode_inputs.register_graph_created_object(made, emit)
    proxy = tx.output.create_proxy("call_function", graph_bytecode_inputs.get_external_object_by_index, (index,), {})
    set_example_value(proxy.node, made)
    kind = stream_variable() if isinstance(made, torch.Stream) else stream_variables.EventVariable
    return kind(proxy, made, index)


@functools.cache
def stream_variable() -> type:
    r"""The class of variables that stand for a ``torch.npu.Stream``."""
    from torch._dynamo.variables import streams as stream_variables

    class NPUStreamVariable(stream_variables.StreamVariable):
        _cpython_type = torch.npu.Stream
        _device_handle_attr = "npu_stream"

    return NPUStreamVariable


def _stream_context(self: Any, tx: Any, stream: Any) -> Any:
    r"""``torch.npu.stream(s)``, which does nothing for None."""
    from torch._dynamo.variables.ctx_manager import NullContextVariable
    from torch._dynamo.variables.streams import StreamContextVariable

    if stream.is_constant_none():
        return NullContextVariable()
    return StreamContextVariable.create(tx, stream)


def add_handlers(handlers: dict[Callable[..., Any], Callable[..., Any]]) -> None:
    r"""Put torch.npu's functions of streams into Dynamo's table, beside what they are named after."""
    for name in ("current_stream", "synchronize"):
        handlers[getattr(torch.npu, name)] = handlers[getattr(torch.accelerator, name)]
    handlers[torch.npu.stream] = _stream_context


def register() -> None:
    r"""Tell Dynamo about torch.npu's classes and functions. Called once, by torch._dynamo."""
    from importlib.metadata import EntryPoint

    from torch._dynamo import trace_rules, utils
    from torch._dynamo.backends import registry
    from torch._dynamo.variables import (
        UserDefinedClassVariable,
        streams as stream_variables,
        torch as torch_variables,
    )
    from torch._dynamo.variables.ctx_manager import GenericDeviceVariable, _device_context_manager_map

    class NPUDeviceVariable(GenericDeviceVariable):
        _exchange_fn = staticmethod(torch.npu._exchange_device)
        _maybe_exchange_fn = staticmethod(torch.npu._maybe_exchange_device)
        _get_device_index_fn = staticmethod(torch.npu._get_device_index)

        def module_name(self) -> str:
            return "torch.npu"

        def python_type(self) -> type:
            return torch.npu.device

    for name, function in (
        ("npu", "torch.npu._compile:npu"),
        ("npugraph_ex", "torch.npu.npugraph_ex._compiler:npugraph_ex"),
        ("npugraphs", "torch.npu._npugraphs:npugraphs"),
    ):
        registry._BACKENDS.setdefault(name, EntryPoint(name, function, "torch_dynamo_backends"))
    utils.common_constant_types.add(torch._C._NPUDeviceProperties)
    # Under transfer_to_npu torch.cuda.device is this class and has CUDA's entry, which this one takes the place of.
    _device_context_manager_map[torch.npu.device] = NPUDeviceVariable
    UserDefinedClassVariable._in_graph_classes().update({torch.npu.Stream, torch.npu.Event})
    stream_variables._stream_fn_to_variable_cls[torch.npu.current_stream] = stream_variable()
    trace_rules.torch_non_c_binding_in_graph_functions.update(_rules())
    drop_cuda_names()
    guarded = dict.fromkeys(getattr(torch.npu, name) for name in _GUARDED)
    # Declared as lists, and made dicts where they are declared.
    constant: dict[Any, None] = torch_variables.constant_fold_functions  # type: ignore[assignment]
    constant_with_guards: dict[Any, None] = torch_variables.constant_fold_functions_need_guards  # type: ignore[assignment]
    constant_with_guards.update(guarded)
    constant.update(guarded)
    constant.update(dict.fromkeys(getattr(torch.npu, name) for name in _CONSTANT))
