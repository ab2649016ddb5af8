r"""
Finds races between streams: memory that operators on two streams use, one of them writing, without an event or a wait
that orders them. Switched on by :func:`enable_npu_sanitizer`, or for a whole program by ``TORCH_NPU_SANITIZER=1``; the
first race found is printed with the stacks of both accesses, and raises :class:`NPUSanitizerErrors`. It sees the thread
that switched it on and that thread's backward passes, as torch.cuda's does, not what threads started by hand do.

Note [Order]
Each operator has a number. Of each stream it is known up to which operator of every other stream its next operator
comes after: an event carries that from stream to stream, and a wait of the host to all streams. Two accesses are
ordered when the later one's stream knows of the earlier one.

Note [Freed memory]
The allocator hands memory out again at once to the stream that it was allocated for. What another stream did with it
is remembered beyond the free, unless ``record_stream`` had the allocator wait for that stream.
"""

import enum
import io
import itertools
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._traceback import CapturedTraceback

import torch
from torch.utils import _pytree as pytree

from . import _gpu_trace

_MOST_ACCESSES = 1024  # kept of one allocation, the latest

# Operators that make a tensor without writing it, or change nothing but what a tensor says of itself.
_UNWRITTEN = {"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"}
_METADATA = {"_resize_output_", "resize_", "resize_as_", "set_"}
# Arguments that operators change though their schemas do not say so: running statistics, if there are any.
_STATISTICS = {"running_mean", "running_var"}
_CHANGES_STATISTICS = {
    "native_batch_norm",
    "cudnn_batch_norm",
    "miopen_batch_norm",
    "batch_norm_gather_stats",
    "batch_norm_gather_stats_with_counts",
}


class AccessType(enum.Enum):
    r"""Whether an operator reads or writes."""

    READ = enum.auto()
    WRITE = enum.auto()

    def __str__(self) -> str:
        return "reading from" if self is AccessType.READ else "writing to"


@dataclass(frozen=True)
class Extent:
    r"""What a tensor has of its storage: bytes ``[begin, end)`` from the storage's start, with gaps or without."""

    begin: int
    end: int
    sizes: tuple[int, ...] = ()  # without dimensions of 1; of a tensor with gaps only
    strides: tuple[int, ...] = ()
    itemsize: int = 1

    @staticmethod
    def of(tensor: torch.Tensor) -> "Extent":
        item = tensor.element_size()
        begin = int(tensor.storage_offset()) * item
        if tensor.numel() == 0:
            return Extent(begin, begin)
        dims = [(n, s) for n, s in zip(tensor.shape, tensor.stride(), strict=True) if n > 1 and s != 0]
        end = begin + (1 + sum((n - 1) * s for n, s in dims)) * item
        elements = 1
        for n, _ in dims:
            elements *= n
        if elements * item == end - begin:
            return Extent(begin, end)
        return Extent(begin, end, tuple(n for n, _ in dims), tuple(s for _, s in dims), item)

    def covers(self, other: "Extent") -> bool:
        return self == other or (not self.sizes and self.begin <= other.begin and other.end <= self.end)

    def meets(self, other: "Extent") -> bool:
        if self.begin >= other.end or other.begin >= self.end:
            return False
        if not self.sizes and not other.sizes:
            return True
        return bool((self._bytes(other) & other._bytes(self)).any())

    def _bytes(self, other: "Extent") -> torch.Tensor:
        # One flag a byte, over what both span.
        begin, end = min(self.begin, other.begin), max(self.end, other.end)
        flags = torch.zeros(end - begin, dtype=torch.bool, device="cpu")
        if not self.sizes:
            flags[self.begin - begin : self.end - begin] = True
            return flags
        sizes = (*self.sizes, self.itemsize)
        strides = (*(s * self.itemsize for s in self.strides), 1)
        flags.as_strided(sizes, strides, self.begin - begin).fill_(True)
        return flags


@dataclass
class Access:
    r"""One operator's use of one allocation.

    ``operator`` is its schema, ``aliases`` the names of the arguments, ``seq_num`` the operator's number.
    """

    type: AccessType
    seq_num: int
    stream: int
    operator: Any
    aliases: list[str]
    is_output: bool
    stack_trace: CapturedTraceback
    extent: Extent


class SynchronizationError(Exception):
    r"""What the sanitizer finds."""


class UnsynchronizedAccessError(SynchronizationError):
    r"""Two accesses to the same memory that nothing orders."""

    def __init__(
        self,
        data_ptr: int,
        allocation_stack_trace: CapturedTraceback | None,
        current_access: Access,
        previous_access: Access,
        freed_between: bool = False,
    ):
        super().__init__(data_ptr)
        self.data_ptr = data_ptr
        self.allocation_stack_trace = allocation_stack_trace
        self.current_access = current_access
        self.previous_access = previous_access
        self.freed_between = freed_between

    def __str__(self) -> str:
        out = io.StringIO()

        def tell(head: str, access: Access) -> None:
            what = [f"argument {name}" for name in access.aliases] + ["the result"] * access.is_output
            out.write(f"{head} on stream {access.stream}, {access.type} {', '.join(what)}:\n  {access.operator}\n")
            out.write("".join(access.stack_trace.format()))

        out.write(f"The NPU sanitizer found a possible data race on memory at {self.data_ptr:#x}\n")
        tell("Now", self.current_access)
        tell("Before", self.previous_access)
        if self.freed_between:
            out.write(
                "In between the memory was freed and allocated again; record_stream() would have prevented that.\n"
            )
        if self.allocation_stack_trace is None:
            out.write("The allocation was not seen: it is older than the sanitizer.\n")
        else:
            out.write("It was allocated here:\n" + "".join(self.allocation_stack_trace.format()))
        return out.getvalue()


class NPUSanitizerErrors(Exception):
    r"""Raised by the operator that races; ``errors`` has all that was found with it."""

    def __init__(self, errors: list[SynchronizationError]):
        super().__init__(errors)
        self.errors = errors

    def __str__(self) -> str:
        return f"detected {len(self.errors)} errors"


class StreamSynchronizations:
    r"""What each stream, each event and the host know of: ``{stream: number of its last operator}`` (Note [Order])."""

    def __init__(self) -> None:
        self.streams: dict[int, dict[int, int]] = {}
        self.events: dict[int, dict[int, int]] = {}
        self.host: dict[int, int] = {}

    @staticmethod
    def _learn(state: dict[int, int], other: dict[int, int]) -> None:
        for stream, number in other.items():
            if state.get(stream, -1) < number:
                state[stream] = number

    def _state(self, stream: int) -> dict[int, int]:
        # What the host knows, every operator launched from now on comes after.
        state = self.streams.setdefault(stream, {})
        self._learn(state, self.host)
        return state

    def launch(self, stream: int, number: int) -> None:
        self._state(stream)[stream] = number

    def record(self, event: int, stream: int) -> None:
        self.events[event] = dict(self._state(stream))

    def forget_event(self, event: int) -> None:
        self.events.pop(event, None)

    def stream_waits(self, stream: int, event: int) -> None:
        self._learn(self._state(stream), self.events.get(event, {}))

    def host_waits_for_event(self, event: int) -> None:
        self._learn(self.host, self.events.get(event, {}))

    def host_waits_for_stream(self, stream: int) -> None:
        self._learn(self.host, self._state(stream))

    def is_ordered_after(self, stream: int, access: Access) -> bool:
        return stream == access.stream or access.seq_num <= self._state(stream).get(access.stream, -1)

    def is_known_to_host(self, access: Access) -> bool:
        return access.seq_num <= self.host.get(access.stream, -1)


@dataclass
class _Allocation:
    stream: int | None = None  # that it was allocated for; None: not seen
    stack_trace: CapturedTraceback | None = None
    recorded: set[int] = field(default_factory=set)  # streams that record_stream() named
    accesses: list[Access] = field(default_factory=list)


@dataclass
class _Use:
    # What one operator does with one extent of one allocation.
    base: int
    extent: Extent
    writes: bool = False
    reads: bool = False
    aliases: list[str] = field(default_factory=list)
    is_output: bool = False


class EventHandler:
    r"""The books: what was allocated, who accessed it, and what is ordered."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.syncs = StreamSynchronizations()
        self.allocations: dict[int, _Allocation] = {}
        self.freed: list[tuple[int, Access]] = []  # (address of the allocation, access); Note [Freed memory]
        self.devices: dict[int, int] = {}  # of streams
        self.numbers = itertools.count(1)

    # ---- what operators do

    def launch(
        self, streams: dict[int, int], uses: list[tuple[int, _Use]], operator: Any, stack_trace: CapturedTraceback
    ) -> list[SynchronizationError]:
        r"""Books one operator. ``streams``: the current stream of each NPU; ``uses``: ``(npu, use)``."""
        with self.lock:
            number = next(self.numbers)
            for device in {device for device, _ in uses}:
                self.devices[streams[device]] = device
                self.syncs.launch(streams[device], number)
            errors: list[SynchronizationError] = []
            for device, use in uses:
                kind = AccessType.WRITE if use.writes else AccessType.READ
                access = Access(
                    kind, number, streams[device], operator, use.aliases, use.is_output, stack_trace, use.extent
                )
                errors += self._enter(use.base, access)
            return errors

    def _enter(self, base: int, access: Access) -> list[SynchronizationError]:
        allocation = self.allocations.setdefault(base, _Allocation())
        errors: list[SynchronizationError] = []
        kept = []
        for before in allocation.accesses:
            ordered = self.syncs.is_ordered_after(access.stream, before)
            if not ordered and before.seq_num != access.seq_num and self._conflict(access, before, 0):
                errors.append(
                    UnsynchronizedAccessError(base + access.extent.begin, allocation.stack_trace, access, before)
                )
            # Whoever comes after this access comes after those that it replaces.
            replaced = ordered and access.extent.covers(before.extent)
            if not (replaced and (access.type is AccessType.WRITE or before.type is AccessType.READ)):
                kept.append(before)
        kept.append(access)
        if len(kept) > _MOST_ACCESSES:
            kept = [a for a in kept if not self.syncs.is_known_to_host(a)][-_MOST_ACCESSES // 2 :]
        allocation.accesses = kept
        for old_base, before in list(self.freed):
            if self._conflict(access, before, old_base - base):
                self.freed.remove((old_base, before))
                if not self.syncs.is_ordered_after(access.stream, before):
                    errors.append(
                        UnsynchronizedAccessError(
                            base + access.extent.begin, allocation.stack_trace, access, before, freed_between=True
                        )
                    )
        return errors

    @staticmethod
    def _conflict(access: Access, before: Access, shift: int) -> bool:
        if AccessType.WRITE not in (access.type, before.type):
            return False
        if shift:
            # Of freed memory only where it lay counts.
            return before.extent.begin + shift < access.extent.end and access.extent.begin < before.extent.end + shift
        return access.extent.meets(before.extent)

    # ---- what torch.npu tells

    def allocated(self, base: int) -> None:
        with self.lock:
            stream = _trace_key(torch.npu.current_stream())
            self.allocations[base] = _Allocation(stream, CapturedTraceback.extract(skip=1))

    def deallocated(self, base: int) -> None:
        with self.lock:
            allocation = self.allocations.pop(base, None)
            if allocation is None or allocation.stream is None:
                return
            self.freed = [entry for entry in self.freed if not self.syncs.is_known_to_host(entry[1])]
            for access in allocation.accesses:
                if access.stream not in allocation.recorded and not self.syncs.is_ordered_after(
                    allocation.stream, access
                ):
                    self.freed.append((base, access))

    def recorded_on_stream(self, base: int, stream: int) -> None:
        with self.lock:
            self.allocations.setdefault(base, _Allocation()).recorded.add(stream)

    def event_deleted(self, event: int) -> None:
        with self.lock:
            self.syncs.forget_event(event)

    def event_recorded(self, event: int, stream: int) -> None:
        with self.lock:
            self.syncs.record(event, stream)

    def event_waited(self, event: int, stream: int) -> None:
        with self.lock:
            self.syncs.stream_waits(stream, event)

    def stream_synchronized(self, stream: int) -> None:
        with self.lock:
            self.syncs.host_waits_for_stream(stream)

    def event_synchronized(self, event: int) -> None:
        with self.lock:
            self.syncs.host_waits_for_event(event)

    def device_synchronized(self) -> None:
        with self.lock:
            device = torch.npu.current_device()
            for stream in list(self.syncs.streams):
                if self.devices.get(stream, device) == device:
                    self.syncs.host_waits_for_stream(stream)


def _trace_key(stream: torch.Stream) -> int:
    # As c10/npu/impl/Trace.h numbers streams.
    return torch._C._npu_streamHandle(stream.stream_id, stream.device_index) or stream.device_index


def _arguments(schema: Any, args: tuple, kwargs: dict) -> Iterator[tuple[Any, Any]]:
    for position, argument in enumerate(schema.arguments):
        if position < len(args):
            yield argument, args[position]
        elif argument.name in kwargs:
            yield argument, kwargs[argument.name]


class ArgumentHandler:
    r"""What one call of an operator reads and writes."""

    def __init__(self, func: Any) -> None:
        self.schema = func._schema
        name = self.schema.name.split("::")[-1]
        self.is_metadata = torch.Tag.inplace_view in func.tags or name in _METADATA
        self.is_factory = name.startswith("new_") or name.endswith("_like")
        self.is_unwritten = name in _UNWRITTEN
        self.changes_statistics = name in _CHANGES_STATISTICS
        self.uses: dict[tuple[int, int, Extent], _Use] = {}

    def _add(self, value: Any, name: str | None, reads: bool, writes: bool) -> None:
        if not isinstance(value, torch.Tensor) or value.device.type != "npu" or not (reads or writes):
            return
        for part in _plain_parts(value):
            extent = Extent.of(part)
            if extent.begin == extent.end:
                continue
            base = torch._C._data_address(part)  # type: ignore[attr-defined]
            use = self.uses.setdefault((part.device.index, base, extent), _Use(base, extent))
            use.reads |= reads
            use.writes |= writes
            if name is None:
                use.is_output = True
            elif name not in use.aliases:
                use.aliases.append(name)

    def parse_inputs(self, args: tuple, kwargs: dict) -> None:
        if self.is_metadata:
            return
        given = list(_arguments(self.schema, args, kwargs))
        # In evaluation a normalisation only reads them.
        self.changes_statistics &= all(value for a, value in given if a.name in ("training", "train"))
        for argument, value in given:
            writes = argument.alias_info is not None and argument.alias_info.is_write
            writes |= self.changes_statistics and argument.name in _STATISTICS
            reads = not (self.is_factory or argument.alias_info is not None)
            pytree.tree_map_(lambda v, a=argument, r=reads, w=writes: self._add(v, a.name, r, w), value)

    def parse_outputs(self, outputs: Any) -> None:
        if self.is_metadata or self.is_unwritten:
            return
        returns = self.schema.returns
        for result, value in zip(returns, (outputs,) if len(returns) == 1 else (outputs or ()), strict=False):
            if result.alias_info is None:
                pytree.tree_map_(lambda v: self._add(v, None, False, True), value)


def _plain_parts(tensor: torch.Tensor) -> list[torch.Tensor]:
    # The tensor if it has memory: a nested one has it in its buffer, a made-up one (fake, functional) has none.
    if tensor.is_nested:
        return _plain_parts(tensor.values()) if tensor.layout is torch.strided else []
    if tensor.layout is not torch.strided or not torch._C._has_storage(tensor):
        return []
    return [tensor] if type(tensor) in (torch.Tensor, torch.nn.Parameter) else []


class NPUSanitizerDispatchMode(TorchDispatchMode):
    r"""Sees every operator, in backward too, and books what it does."""

    _started = False

    def __init__(self) -> None:
        super().__init__()
        self.event_handler = EventHandler()

    def start(self) -> None:
        r"""Has torch.npu tell of its events, streams and memory, from then on."""
        if self._started:
            return
        self._started = True
        torch._C._activate_gpu_trace()
        handler = self.event_handler
        registrations: tuple[tuple[Callable, Callable], ...] = (
            (_gpu_trace.register_callback_for_event_deletion, handler.event_deleted),
            (_gpu_trace.register_callback_for_event_record, handler.event_recorded),
            (_gpu_trace.register_callback_for_event_wait, handler.event_waited),
            (_gpu_trace.register_callback_for_memory_allocation, handler.allocated),
            (_gpu_trace.register_callback_for_memory_deallocation, handler.deallocated),
            (_gpu_trace.register_callback_for_device_synchronization, handler.device_synchronized),
            (_gpu_trace.register_callback_for_stream_synchronization, handler.stream_synchronized),
            (_gpu_trace.register_callback_for_event_synchronization, handler.event_synchronized),
        )
        for register, callback in registrations:
            register(callback)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func is torch.ops.aten.record_stream.default:
            for part in _plain_parts(args[0]):
                address = torch._C._data_address(part)
                self.event_handler.recorded_on_stream(address, _trace_key(args[1]))
            return func(*args, **kwargs)
        handler = ArgumentHandler(func)
        handler.parse_inputs(args, kwargs)
        outputs = func(*args, **kwargs)
        handler.parse_outputs(outputs)
        if handler.uses:
            uses = [(device, use) for (device, _, _), use in handler.uses.items()]
            streams = {device: _trace_key(torch.npu.current_stream(device)) for device, _ in uses}
            stack = CapturedTraceback.extract(skip=1)
            if errors := self.event_handler.launch(streams, uses, func._schema, stack):
                for error in errors:
                    print(error, file=sys.stderr)
                raise NPUSanitizerErrors(errors)
        return outputs


class NPUSanitizer:
    r"""Switches the sanitizer on and off; on, it is a mode of the thread, and of the backwards that it starts."""

    def __init__(self) -> None:
        self.dispatch = NPUSanitizerDispatchMode()
        self.enabled = False

    def enable(self) -> None:
        if not self.enabled:
            self.dispatch.start()
            self.dispatch.__enter__()
            self.enabled = True

    def disable(self) -> None:
        if self.enabled:
            self.dispatch.__exit__(None, None, None)
            self.enabled = False

    def __del__(self) -> None:
        if sys is not None and not sys.is_finalizing():
            self.disable()


def enable_npu_sanitizer() -> None:
    r"""Look for races from now on, in this thread and the backwards that it starts; best at the program's beginning."""
    npu_sanitizer.enable()


npu_sanitizer = NPUSanitizer()
