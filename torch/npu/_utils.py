r"""Helpers of torch.npu that need no device."""

import threading
from typing import Any

import torch


def _get_device_index(device: Any, optional: bool = False, allow_cpu: bool = False) -> int:
    r"""Return the index that ``device`` (a ``torch.device``, a string, an int, ``torch.npu.device`` or None) means.

    ``None`` and ``"npu"`` without an index mean the current NPU if ``optional``; -1 is returned for the CPU if
    ``allow_cpu``.

    Raises:
        ValueError: the device is of another type, or has no index and ``optional`` is False.
    """
    if isinstance(device, int):
        return device
    if isinstance(device, str):
        device = torch.device(device)
    if isinstance(device, torch.npu.device):
        return device.idx
    if isinstance(device, torch.device):
        if allow_cpu and device.type == "cpu":
            return -1
        if device.type != "npu":
            raise ValueError(f"Expected a npu{' or cpu' if allow_cpu else ''} device, but got: {device}")
        if device.index is not None:
            return device.index
    elif device is not None:
        raise ValueError(f"Expected a npu device, a string, an int or None, but got: {device!r}")
    if not optional:
        raise ValueError(f"Expected a torch.device with a specified index or an integer, but got: {device}")
    return torch.npu.current_device()


def unshareable(reason: str) -> tuple:
    r"""Refuse to send npu memory to another process: raise, or, where nobody would see that, let the receiver raise.

    The thread that feeds a ``multiprocessing.Queue`` would print the error while the receiver waits forever, so what
    is returned there, for pickle, raises when it is unpickled.
    """
    if threading.current_thread().name != "QueueFeederThread":
        raise RuntimeError(reason)
    return raise_at_receiver, (reason,)


def raise_at_receiver(reason: str) -> None:
    r"""Raise what the sender of a queue's item could not raise."""
    raise RuntimeError(f"what was put into this queue: {reason}")


def export_to_dlpack(tensor: torch.Tensor, stream: int | None) -> None:
    r"""Make the consumer's ``stream`` wait for the current one before it reads ``tensor``, as ``__dlpack__`` promises.

    Args:
        tensor (Tensor): on an NPU.
        stream (int or None): an ``aclrtStream``; None or 0 the default stream; -1: the consumer orders the work.

    Raises:
        BufferError: device memory does not hold the tensor as its strides say.
    """
    if torch._C._npu_inPrivateFormat(tensor):
        raise BufferError("Can't export a tensor in a private format, use tensor.npu_format_cast(2)")
    if stream == -1:
        return
    current = torch.npu.current_stream(tensor.device)
    if stream in (None, 0):
        consumer = torch.npu.default_stream(tensor.device)
    else:
        consumer = torch.npu.ExternalStream(stream, tensor.device)
    if consumer != current:
        consumer.wait_stream(current)


def follow_format(source: torch.Tensor, copy: torch.Tensor) -> None:
    r"""Put ``copy``, a clone of ``source``, into the format of its memory."""
    if not torch.utils._python_dispatch.is_traceable_wrapper_subclass(source):
        torch._C._npu_followFormat(source.untyped_storage(), copy.untyped_storage())


def refuse_in_worker(batch: Any) -> None:
    r"""Raise if ``batch``, made by a DataLoader's worker, holds npu tensors: they cannot be sent to the loader."""
    # A worker that was spawned has used the device if it made one; one that was forked got them from its parent.
    if not (torch.npu.is_initialized() or torch.npu._is_in_bad_fork()):
        return
    for leaf in torch.utils._pytree.tree_leaves(batch):
        if isinstance(leaf, torch.Tensor) and leaf.device.type == "npu":
            raise RuntimeError(
                "the dataset returned npu tensors, which cannot be shared with another process; return CPU tensors and "
                "move each batch with .npu() in the training loop, or load with num_workers=0"
            )
