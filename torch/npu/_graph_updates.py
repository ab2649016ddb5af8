r"""Operators of a captured graph that get other arguments later: :meth:`torch.npu.NPUGraph.update`, what is under it.

A captured operator keeps the numbers that the host gave it, the lengths of sequences among them. A group of captured
work can be captured anew and take the place of the old one, see Note [Updates of a graph] in ATen/npu/NPUGraphTasks.h.
"""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch._C import (
    _npu_graphTaskGroupBegin,
    _npu_graphTaskGroupEnd,
    _npu_graphTaskUpdateBegin,
    _npu_graphTaskUpdateEnd,
)
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import torch

__all__ = [
    "NpuGraphOpHandler",
    "graph_task_group_begin",
    "graph_task_group_end",
    "graph_task_update_begin",
    "graph_task_update_end",
    "register_npu_graph_handler",
]


def _ids(stream: torch.Stream) -> tuple[int, int]:
    if not isinstance(stream, torch.Stream):
        raise TypeError(f"expected a torch.npu.Stream, but got {type(stream).__name__}")
    return stream.stream_id, stream.device_index


def graph_task_group_begin(stream: torch.Stream) -> None:
    r"""Begin a group: what is captured on ``stream`` until :func:`graph_task_group_end` can be replaced later.

    Raises:
        RuntimeError: the stream is not being captured, or a group has begun already.
    """
    _npu_graphTaskGroupBegin(*_ids(stream))


def graph_task_group_end(stream: torch.Stream) -> int:
    r"""End the group of ``stream`` and return its handle, which is good as long as the graph.

    Raises:
        RuntimeError: no group has begun on the stream.
    """
    return _npu_graphTaskGroupEnd(*_ids(stream))


def graph_task_update_begin(stream: torch.Stream, handle: int) -> None:
    r"""Begin an update: what is put on ``stream`` until :func:`graph_task_update_end` replaces a group's work.

    It writes where the group wrote if it is given the same outputs: use the operators' ``out=`` forms. A replay that
    has begun takes what stands in the group when it comes there, so let it wait for a
    :class:`torch.npu.ExternalEvent` in front of the group, which is recorded behind the update.

    Args:
        stream (torch.npu.Stream): not the one of the capture, and no default stream.
        handle (int): of the group, from :func:`graph_task_group_end`.

    Raises:
        RuntimeError: the handle is none, or the stream is being captured or is the capture's.
    """
    _npu_graphTaskUpdateBegin(*_ids(stream), handle)


def graph_task_update_end(stream: torch.Stream) -> None:
    r"""End the update of ``stream``; replays take the new work from now on.

    Raises:
        RuntimeError: no update has begun on the stream.
    """
    _npu_graphTaskUpdateEnd(*_ids(stream))


class NpuGraphOpHandler:
    r"""How the arguments of an operator are changed by :meth:`torch.npu.NPUGraph.update`; subclass and register it.

    Keyword-only arguments change by their names without any more ado. All methods are class methods and keep nothing.

    Attributes:
        UPDATE_SPECS (dict): by the operator's name (``"npu_op.default"``) a list of ``("arg", index, key)``: the
            positional argument ``index`` is changed by ``key`` of an update.
    """

    UPDATE_SPECS: dict[str, list[tuple[str, int, str]]] = {}

    @classmethod
    def get_update_specs(cls, op_name: str) -> list[tuple[str, int, str]]:
        r"""Return the entry of an operator in :attr:`UPDATE_SPECS`, or an empty list."""
        return cls.UPDATE_SPECS.get(op_name, [])

    @classmethod
    def prepare_capture(cls, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any, Any]:
        r"""Return what is captured for a call: function, arguments and keyword arguments. Default: the call itself.

        It runs in front of the group, so what it allocates or computes is not part of an update.
        """
        return func, args, kwargs

    @classmethod
    def postprocess_result(cls, result: Any, kwargs: dict[str, Any]) -> Any:
        r"""Return what the caller gets for what the captured function returned. Default: that."""
        return result

    @classmethod
    def update_args(cls, dispatch_record: "_DispatchRecord", update_input: dict[str, Any]) -> None:
        r"""Change ``dispatch_record.args`` by an update. Default: as :attr:`UPDATE_SPECS` has it."""
        for _, index, key in cls.get_update_specs(dispatch_record.op_cache_entry.__name__):
            if key in update_input and index < len(dispatch_record.args):
                dispatch_record.args[index] = update_input[key]

    @classmethod
    def record_wrap_kwarg(cls, key: str, value: Any, tensor_param_names: list[str]) -> Any:
        r"""Return what is kept of a keyword argument. Default: tensors as they are, a copy of everything else."""
        if key in tensor_param_names or any(isinstance(leaf, torch.Tensor) for leaf in tree_leaves(value)):
            return value
        return copy.deepcopy(value)


_NPU_GRAPH_OP_HANDLERS: dict[str, type[NpuGraphOpHandler]] = {}


def register_npu_graph_handler(op_names: str | Sequence[str]) -> Callable[[type], type]:
    r"""Decorate a :class:`NpuGraphOpHandler` for operators by their names, such as ``"npu_op.default"``.

    Raises:
        TypeError: what is decorated is no subclass of :class:`NpuGraphOpHandler`.
    """
    names = [op_names] if isinstance(op_names, str) else list(op_names)

    def register(handler: type) -> type:
        if not (isinstance(handler, type) and issubclass(handler, NpuGraphOpHandler)):
            raise TypeError(f"register_npu_graph_handler: {handler!r} is no subclass of NpuGraphOpHandler")
        for name in names:
            _NPU_GRAPH_OP_HANDLERS[name] = handler
        return handler

    return register


@register_npu_graph_handler(
    [
        f"{op}{overload}"
        for op in ("npu_fused_infer_attention_score", "npu_fused_infer_attention_score_v2")
        for overload in ("", ".default", ".out")
    ]
)
class _Attention(NpuGraphOpHandler):
    # Its lengths are keyword arguments.
    pass


@dataclass
class _DispatchRecord:
    # A captured call: its group, and what an update calls again.
    handle: int
    op_cache_entry: Any
    args: list[Any]
    kwargs: dict[str, Any]
    outputs: list[torch.Tensor]


class _Functions(TorchFunctionMode):
    # Operators that are made of others are seen here only: a dispatch mode sees their parts.
    def __init__(self, updates: "GraphUpdates") -> None:
        super().__init__()
        self._updates = updates

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self._updates.call(_overload_of(func, kwargs or {}), func, args, kwargs or {})


class _Operators(TorchDispatchMode):
    def __init__(self, updates: "GraphUpdates") -> None:
        super().__init__()
        self._updates = updates

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self._updates.call(func, func, args, kwargs or {})


def _overload_of(func: Any, kwargs: dict[str, Any]) -> Any:
    r"""The overload that a call of ``torch.ops`` means, if a handler has its name; None for other functions."""
    if isinstance(func, torch._ops.OpOverload):
        return func
    if not isinstance(func, torch._ops.OpOverloadPacket):
        return None
    for name in func.overloads():
        overload = getattr(func, name)
        outs = {a.name for a in overload._schema.arguments if a.is_out}
        if f"{func.__name__}.{name}" in _NPU_GRAPH_OP_HANDLERS and outs == _outs_of(func) & set(kwargs):
            return overload
    return None


def _outs_of(packet: Any) -> set[str]:
    overloads = (getattr(packet, name) for name in packet.overloads())
    return {a.name for overload in overloads for a in overload._schema.arguments if a.is_out}


class GraphUpdates:
    r"""Captures, while it is entered, each operator that has a handler as a group of its own."""

    def __init__(self) -> None:
        self._records: list[_DispatchRecord] = []
        self._stream: torch.npu.Stream | None = None
        self._replayed: torch.npu.Event | None = None
        self._modes = (_Functions(self), _Operators(self))
        self._inside = False

    def __enter__(self) -> None:
        for mode in self._modes:
            mode.__enter__()

    def __exit__(self, *error: Any) -> None:
        for mode in reversed(self._modes):
            mode.__exit__(*error)

    def call(self, overload: Any, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        r"""Call ``func``, as a group if its overload has a handler."""
        handler = _NPU_GRAPH_OP_HANDLERS.get(getattr(overload, "__name__", ""))
        if handler is None or self._inside:
            return func(*args, **kwargs)
        self._inside = True
        try:
            return self._capture(handler, overload, args, dict(kwargs))
        finally:
            self._inside = False

    def _capture(
        self, handler: type[NpuGraphOpHandler], func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        func, args, kwargs = handler.prepare_capture(func, args, kwargs)
        stream = torch.npu.current_stream()
        graph_task_group_begin(stream)
        try:
            result = func(*args, **kwargs)
        finally:
            handle = graph_task_group_end(stream)
        tensors = [a.name for a in func._schema.arguments if "Tensor" in str(a.type)]
        self._records.append(
            _DispatchRecord(
                handle,
                func,
                [a if isinstance(a, torch.Tensor) else copy.copy(a) for a in args],
                {key: handler.record_wrap_kwarg(key, value, tensors) for key, value in kwargs.items()},
                _tensors(result),
            )
        )
        return handler.postprocess_result(result, kwargs)

    def replayed(self) -> None:
        r"""Note that the graph has been put on the current stream."""
        if self._records:
            self._replayed = torch.npu.Event()
            self._replayed.record()

    def update(self, inputs: Sequence[dict[str, Any]]) -> None:
        r"""See :meth:`torch.npu.NPUGraph.update`."""
        if len(inputs) == 1:
            inputs = [inputs[0]] * len(self._records)
        if len(inputs) != len(self._records):
            raise RuntimeError(
                f"NPUGraph.update: {len(self._records)} captured operators can be updated, but cpu_update_input has "
                f"{len(inputs)} entries; give one for each, or one for all"
            )
        if self._replayed is not None:
            self._replayed.synchronize()  # it takes the arguments of before
        if self._stream is None:
            self._stream = torch.npu.Stream()
        with torch.no_grad(), torch.npu.stream(self._stream):
            for record, given in zip(self._records, inputs, strict=True):
                self._renew(record, given, self._stream)

    @staticmethod
    def _renew(record: _DispatchRecord, given: dict[str, Any], stream: "torch.npu.Stream") -> None:
        known = {a.name for a in record.op_cache_entry._schema.arguments if a.kwarg_only}
        record.kwargs.update({key: value for key, value in given.items() if key in known})
        handler = _NPU_GRAPH_OP_HANDLERS.get(record.op_cache_entry.__name__)
        if handler is None:
            raise RuntimeError(f"NPUGraph.update: {record.op_cache_entry} has no handler any more")
        handler.update_args(record, given)
        graph_task_update_begin(stream, record.handle)
        try:
            results = _tensors(record.op_cache_entry(*record.args, **record.kwargs))
            # Later work of the graph reads what the captured call returned.
            for old, new in zip(record.outputs, results, strict=True):
                if old.data_ptr() != new.data_ptr():
                    old.copy_(new)
        finally:
            graph_task_update_end(stream)


def _tensors(values: Any) -> list[torch.Tensor]:
    return [v for v in tree_leaves(values) if isinstance(v, torch.Tensor)]
