r"""Who hears of an NPU's events, streams, waits and memory: lists of callbacks with the names of torch.cuda._gpu_trace.

The device layer calls them once ``torch._C._activate_gpu_trace()`` has been called. Streams are numbered by their
handle, default streams, which have none, by their NPU's index.
"""

from collections.abc import Callable

from torch._utils import CallbackRegistry

EventCreationCallbacks: "CallbackRegistry[int]" = CallbackRegistry("NPU event creation")
EventDeletionCallbacks: "CallbackRegistry[int]" = CallbackRegistry("NPU event deletion")
EventRecordCallbacks: "CallbackRegistry[int, int]" = CallbackRegistry("NPU event record")
EventWaitCallbacks: "CallbackRegistry[int, int]" = CallbackRegistry("NPU event wait")
MemoryAllocationCallbacks: "CallbackRegistry[int]" = CallbackRegistry("NPU memory allocation")
MemoryDeallocationCallbacks: "CallbackRegistry[int]" = CallbackRegistry("NPU memory deallocation")
StreamCreationCallbacks: "CallbackRegistry[int]" = CallbackRegistry("NPU stream creation")
DeviceSynchronizationCallbacks: "CallbackRegistry[[]]" = CallbackRegistry("NPU device synchronization")
StreamSynchronizationCallbacks: "CallbackRegistry[int]" = CallbackRegistry("NPU stream synchronization")
EventSynchronizationCallbacks: "CallbackRegistry[int]" = CallbackRegistry("NPU event synchronization")


def register_callback_for_event_creation(cb: Callable[[int], None]) -> None:
    r"""``cb(event)``"""
    EventCreationCallbacks.add_callback(cb)


def register_callback_for_event_deletion(cb: Callable[[int], None]) -> None:
    r"""``cb(event)``"""
    EventDeletionCallbacks.add_callback(cb)


def register_callback_for_event_record(cb: Callable[[int, int], None]) -> None:
    r"""``cb(event, stream)``"""
    EventRecordCallbacks.add_callback(cb)


def register_callback_for_event_wait(cb: Callable[[int, int], None]) -> None:
    r"""``cb(event, stream)``: later work of the stream waits for the event."""
    EventWaitCallbacks.add_callback(cb)


def register_callback_for_memory_allocation(cb: Callable[[int], None]) -> None:
    r"""``cb(address)``"""
    MemoryAllocationCallbacks.add_callback(cb)


def register_callback_for_memory_deallocation(cb: Callable[[int], None]) -> None:
    r"""``cb(address)``"""
    MemoryDeallocationCallbacks.add_callback(cb)


def register_callback_for_stream_creation(cb: Callable[[int], None]) -> None:
    r"""``cb(stream)``"""
    StreamCreationCallbacks.add_callback(cb)


def register_callback_for_device_synchronization(cb: Callable[[], None]) -> None:
    r"""``cb()``: the host has waited for the current NPU."""
    DeviceSynchronizationCallbacks.add_callback(cb)


def register_callback_for_stream_synchronization(cb: Callable[[int], None]) -> None:
    r"""``cb(stream)``: the host has waited for the stream."""
    StreamSynchronizationCallbacks.add_callback(cb)


def register_callback_for_event_synchronization(cb: Callable[[int], None]) -> None:
    r"""``cb(event)``: the host has waited for the event, or seen that it has passed."""
    EventSynchronizationCallbacks.add_callback(cb)
