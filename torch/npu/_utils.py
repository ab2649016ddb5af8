r"""Helpers of torch.npu that need no device."""

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
