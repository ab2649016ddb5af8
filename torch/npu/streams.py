r"""Streams and events of an NPU: ``torch.Stream`` and ``torch.Event`` with the names that torch.cuda gives them."""

import ctypes
import os
import time
import warnings
from typing import Any

from torch._C import _NPUExternalEvent

import torch

from . import _refused
from ._utils import _get_device_index

# Beyond this many milliseconds the 24 bits of an elapsed time are coarser than a microsecond.
_FINE_MS = 8000.0
_marks: dict[torch.device, tuple["Event", int]] = {}  # an event of each device, and when it was recorded


def _launches_directly(name: str) -> None:
    # A stream cannot leave the task queue where there is one for all.
    if not torch._C._npu_isSimulator() or os.environ.get("TASK_QUEUE_ENABLE") == "2":
        raise NotImplementedError(f"{name}: the task queue serves all streams; TASK_QUEUE_ENABLE=0 launches directly")


class Stream(torch.Stream):
    r"""A queue of work of one NPU, executed in order, independently of the device's other streams.

    It is a context manager that makes the stream (and its device) current.

    Args:
        device (torch.device, str or int, optional): the NPU to make it on, default the current one.
        priority (int, optional): lower numbers are more urgent; values out of the device's range are clamped.
    """

    def __new__(cls, device: Any = None, priority: int = 0, **kwargs):
        if "stream_id" in kwargs and "device_index" in kwargs:
            kwargs.setdefault("device_type", torch._C._npu_deviceType)
            return super().__new__(cls, **kwargs)
        torch.npu._lazy_init()
        index = _get_device_index(device, optional=True)
        if index < 0:
            index = torch.npu.current_device()
        # There are two levels, 0 and the more urgent -1; torch.Stream refuses what is above 0.
        return super().__new__(cls, device=torch.device("npu", index), priority=min(priority, 0), **kwargs)

    @property
    def npu_stream(self) -> int:
        r"""The ``aclrtStream`` as an int; 0 for the default stream."""
        return torch._C._npu_streamHandle(self.stream_id, self.device_index)

    @property
    def _as_parameter_(self):
        return ctypes.c_void_p(self.npu_stream)

    @property
    def priority(self) -> int:
        r"""The stream's priority; lower is more urgent."""
        return torch._C._npu_streamPriority(self.stream_id, self.device_index)

    @staticmethod
    def priority_range() -> tuple[int, int]:
        r"""Return ``(least urgent, most urgent)`` priority."""
        return torch._C._npu_streamPriorityRange()

    def wait_event(self, event: torch.Event) -> None:
        r"""Make work submitted to this stream from now on wait for ``event``. Does not block the host."""
        event.wait(self)

    def wait_stream(self, stream: torch.Stream) -> None:
        r"""Make work submitted to this stream from now on wait for all that ``stream`` holds now."""
        self.wait_event(stream.record_event())

    def record_event(self, event: torch.Event | None = None) -> torch.Event:
        r"""Record ``event`` (default a new :class:`Event`) on this stream and return it."""
        if event is None:
            event = Event()
        event.record(self)
        return event

    def set_data_preprocess_stream(self, is_data_preprocess_stream: bool = False) -> None:
        r"""Say whether the stream prepares data, so that its operators are launched by the calling thread.

        They are in any case unless a task queue launches them.

        Raises:
            NotImplementedError: it is to be one, and there is a task queue (on a card, or ``TASK_QUEUE_ENABLE=2``).
        """
        if is_data_preprocess_stream:
            _launches_directly("Stream.set_data_preprocess_stream")

    def __eq__(self, other) -> bool:
        return isinstance(other, torch.Stream) and super().__eq__(other)

    def __hash__(self):
        return super().__hash__()

    def __repr__(self):
        return f"<torch.npu.Stream device={self.device} npu_stream={self.npu_stream:#x}>"


class ExternalStream(Stream):
    r"""A stream that another library made; who made it keeps it alive.

    Args:
        stream_ptr (int): the ``aclrtStream``.
        device (torch.device, str or int, optional): the NPU it was made on, default the current one.
    """

    def __new__(cls, stream_ptr: int, device: Any = None, **kwargs):
        torch.npu._lazy_init()
        index = _get_device_index(device, optional=True)
        stream_id, device_index, device_type = torch._C._npu_getStreamFromExternal(stream_ptr, index)
        return super().__new__(cls, stream_id=stream_id, device_index=device_index, device_type=device_type)


class SyncLaunchStream(Stream):
    r"""A stream whose operators are launched by the calling thread, whose call raises what goes wrong there.

    Args: as of :class:`Stream`.

    Raises:
        NotImplementedError: there is a task queue (on a card, or ``TASK_QUEUE_ENABLE=2``), which serves all streams.
    """

    def __new__(cls, device: Any = None, priority: int = 0, **kwargs):
        _launches_directly("torch.npu.SyncLaunchStream")
        return super().__new__(cls, device, priority, **kwargs)


class Event(torch.Event):
    r"""A mark in a stream: it orders streams, and says when the stream reached it.

    Args:
        enable_timing (bool, optional): whether :meth:`elapsed_time` will be used. NPU events always carry a time
            stamp, so an event made without saying works too, with a warning; one made with ``False`` does not.
        blocking (bool, optional): accepted for symmetry with torch.cuda; waiting never spins here.
        interprocess (bool, optional): must be False: events cannot be shared between processes yet.
        external (bool, optional): accepted for symmetry with torch.cuda, where it is about graph capture.
    """

    _timing: bool | None
    _device: torch.device | None

    def __new__(cls, enable_timing=None, blocking=False, interprocess=False, external=False):
        if interprocess:
            raise RuntimeError("torch.npu.Event: interprocess events are not supported on npu")
        event = super().__new__(cls, device="npu", enable_timing=enable_timing is not False)
        event._timing = enable_timing
        event._device = None
        return event

    @property
    def device(self) -> torch.device | None:  # type: ignore[override]
        r"""The NPU on which the event was recorded; None before."""
        return self._device

    @property
    def npu_event(self) -> int:
        r"""The ``aclrtEvent`` as an int; 0 before the first record."""
        return torch._C._npu_eventHandle(self.event_id) if self.event_id else 0

    @property
    def _as_parameter_(self):
        return ctypes.c_void_p(self.npu_event)

    def record(self, stream: torch.Stream | None = None) -> None:
        r"""Record the event on ``stream``, default the current stream.

        Raises:
            RuntimeError: the event was recorded on another device before.
        """
        stream = _stream_or_current(stream)
        super().record(stream)
        self._device = stream.device

    def wait(self, stream: torch.Stream | None = None) -> None:
        r"""Make later work of ``stream`` (default the current one) wait for the event. Does not block the host."""
        super().wait(_stream_or_current(stream))

    def elapsed_time(self, end_event: torch.Event) -> float:
        r"""Return the milliseconds from this event to ``end_event``.

        Raises:
            ValueError: one of them has not been recorded, or was made with ``enable_timing=False``.
            RuntimeError: one of them has not been reached yet.
        """
        for event in (self, end_event):
            if event.event_id in (None, 0):
                raise ValueError("Both events must be recorded before calculating elapsed time.")
            if getattr(event, "_timing", True) is False:
                raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        if None in (self._timing, getattr(end_event, "_timing", True)):
            warnings.warn(
                "elapsed_time of an event made without enable_timing=True: NPU events carry time stamps anyway, "
                "other devices' do not",
                stacklevel=2,
            )
        return torch._C._npu_eventElapsedTime(self.event_id, end_event.event_id)

    def recorded_time(self) -> int:
        r"""Return when the stream reached the event, in microseconds of the host's clock that never goes back.

        Waits until it does. Times of events of one device that were recorded within seconds are exact to a microsecond
        among each other.

        Raises:
            RuntimeError: the event has not been recorded.
            ValueError: it was made with ``enable_timing=False``.
        """
        if self.event_id in (None, 0) or self._device is None:
            raise RuntimeError("InternalError: recorded_time of an event that has not been recorded")
        self.synchronize()
        if self._device not in _marks:
            _marks[self._device] = _mark(self._device), time.monotonic_ns() // 1000
        mark, at = _marks[self._device]
        elapsed = _signed_ms(mark, self)
        if elapsed > _FINE_MS:
            nearer = _mark(self._device)
            mark, at = _marks[self._device] = nearer, at + round(1000 * mark.elapsed_time(nearer))
            elapsed = _signed_ms(mark, self)
        return at + round(1000 * elapsed)

    ipc_handle = _refused.function("torch.npu.Event.ipc_handle")
    from_ipc_handle = staticmethod(_refused.function("torch.npu.Event.from_ipc_handle"))

    def __repr__(self) -> str:
        if self.npu_event:
            return f"<torch.npu.Event {self.npu_event:#x}>"
        return "<torch.npu.Event uninitialized>"


class ExternalEvent:
    r"""A flag between captured graphs and other work. It begins as not set; each method is work of a stream.

    Captured into a graph, it is part of each replay: a replay may wait for what happens outside of the graph, such as
    an update of the work behind it (:func:`torch.npu.graph_task_update_begin`). Work behind a wait does not run before
    the flag is set, whenever that is; ``ACL_DEVICE_SYNC_TIMEOUT`` bounds what waits for such a stream.
    """

    def __init__(self) -> None:
        self._event = _NPUExternalEvent()

    def record(self, stream: torch.Stream | None = None) -> None:
        r"""Set it when ``stream`` (default the current one) comes here."""
        self._event.record(*_ids(stream))

    def wait(self, stream: torch.Stream | None = None) -> None:
        r"""Make later work of ``stream`` (default the current one) wait until it is set."""
        self._event.wait(*_ids(stream))

    def reset(self, stream: torch.Stream | None = None) -> None:
        r"""Take it back when ``stream`` (default the current one) comes here."""
        self._event.reset(*_ids(stream))


def _ids(stream: torch.Stream | None) -> tuple[int, int]:
    stream = _stream_or_current(stream)
    return stream.stream_id, stream.device_index


def _mark(device: torch.device) -> Event:
    # An event that the device has just reached.
    event = Event(enable_timing=True)
    event.record(Stream(device))
    event.synchronize()
    return event


def _signed_ms(first: Event, second: Event) -> float:
    # The time from one to the other, whichever was reached before: the device tells only how much later one was.
    try:
        return first.elapsed_time(second)
    except torch.AcceleratorError:
        return -second.elapsed_time(first)


def _stream_or_current(stream: torch.Stream | None) -> torch.Stream:
    if stream is None:
        return current_stream()
    if not isinstance(stream, torch.Stream):  # torch.Event takes whatever object it is for a stream
        raise TypeError(f"expected a torch.Stream or None, but got {type(stream).__name__}")
    return stream


def _wrap(data: tuple[int, int, int]) -> Stream:
    return Stream(stream_id=data[0], device_index=data[1], device_type=data[2])


def current_stream(device: Any = None) -> Stream:
    r"""Return the current stream of an NPU, which need not be the current NPU; the current device does not change.

    Raises:
        ValueError: the device is not an NPU.
    """
    torch.npu._lazy_init()
    return _wrap(torch._C._npu_getCurrentStream(_get_device_index(device, optional=True)))


def default_stream(device: Any = None) -> Stream:
    r"""Return the default stream of an NPU.

    Raises:
        ValueError: the device is not an NPU.
    """
    torch.npu._lazy_init()
    return _wrap(torch._C._npu_getDefaultStream(_get_device_index(device, optional=True)))


def get_stream_from_external(data_ptr: int, device: Any = None) -> Stream:
    r"""Return a stream for the ``aclrtStream`` at ``data_ptr``, which another library made and keeps alive."""
    return ExternalStream(data_ptr, device)


def set_stream(stream: torch.Stream | None) -> None:
    r"""Make ``stream`` the current stream of its device, and its device current. Nothing happens for None."""
    if stream is not None:
        torch._C._npu_setStream(stream.stream_id, stream.device_index, stream.device_type)


class StreamContext:
    r"""Context manager that makes a stream current, and puts the old one (and device) back.

    Args:
        stream (Stream): nothing happens for None.
    """

    def __init__(self, stream: torch.Stream | None):
        self.stream = stream
        self.src_prev_stream = None
        self.dst_prev_stream = None

    def __enter__(self):
        if self.stream is None:
            return
        self.src_prev_stream = current_stream()
        if self.src_prev_stream.device != self.stream.device:
            self.dst_prev_stream = current_stream(self.stream.device)
        set_stream(self.stream)

    def __exit__(self, type: Any, value: Any, traceback: Any):
        if self.stream is None:
            return
        if self.dst_prev_stream is not None:
            set_stream(self.dst_prev_stream)
        set_stream(self.src_prev_stream)


def stream(stream: torch.Stream | None) -> StreamContext:
    r"""Return a context manager in which ``stream`` is current; see :class:`StreamContext`."""
    return StreamContext(stream)
