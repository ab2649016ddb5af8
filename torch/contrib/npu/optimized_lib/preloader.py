r"""Batches that are on the device before they are asked for."""

import functools
from typing import Any, NamedTuple

import torch

# Bytes of a batch below which a stream of its own, and waiting for it, costs more than a copy in front of the model.
_SMALL = 1 << 16


class Ahead(NamedTuple):
    r"""A batch whose copy is under way, and on which stream; None: the current one."""

    batch: Any
    stream: Any


@functools.cache
def _stream_of(index: int):
    return torch.npu.Stream(torch.device("npu", index))


def _side_stream(device: torch.device):
    # One for each device: memory that a loader has freed on it serves the next loader, which one of its own would not.
    return _stream_of(torch.npu.current_device() if device.index is None else device.index)


def _tensors_of(batch) -> list[torch.Tensor]:
    if type(batch) in (tuple, list) and all(isinstance(part, torch.Tensor) for part in batch):
        return list(batch)
    return [leaf for leaf in torch.utils._pytree.tree_leaves(batch) if isinstance(leaf, torch.Tensor)]


def _bytes_of(batch) -> int:
    return sum(tensor.nbytes for tensor in _tensors_of(batch))


class PreLoader:
    r"""Iterate over a loader's batches with the next one's copy to the device already under way.

    Copies run on a stream beside the model's, one for all loaders of a device. Iterating again begins the loader anew.

    Args:
        loader (iterable): yields batches: tensors, or tuples, lists and dicts that hold some; pinned memory helps
        device (torch.device or str): where batches go, default the current NPU
        mean (sequence of float, optional): subtracted from each channel of the first tensor of a batch
        std (sequence of float, optional): the channels are then divided by these

    ``next()`` returns the next batch, ``(None, None)`` after the last, as loops of that kind expect.
    """

    def __init__(self, loader, device="npu", mean=None, std=None):
        self.loader = loader
        self.device = torch.device(device)
        self.stream = _side_stream(self.device) if self.device.type == "npu" else None
        self.mean, self.std = (
            None if v is None else torch.tensor(v, dtype=torch.float32, device=self.device).view(1, -1, 1, 1)
            for v in (mean, std)
        )
        self._batches = None

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self):
        batches = iter(self.loader)
        ahead = self.load(batches)
        while ahead is not None:
            batch = self.ready(ahead)
            ahead = self.load(batches)
            yield batch

    def next(self):
        if self._batches is None:
            self._batches = iter(self)
        try:
            return next(self._batches)
        except StopIteration:
            self._batches = None
            return None, None

    def load(self, batches) -> "Ahead | None":
        """Begin the copy of the iterator's next batch; None after the last."""
        try:
            batch = next(batches)
        except StopIteration:
            return None
        if self.stream is None or _bytes_of(batch) < _SMALL:
            return Ahead(self._normalised(self._moved(batch)), None)
        with torch.npu.stream(self.stream):
            return Ahead(self._normalised(self._moved(batch)), self.stream)

    def ready(self, ahead: "Ahead"):
        """Return the batch, for which the current stream waits from now on."""
        if ahead.stream is not None:
            current = torch.npu.current_stream(self.device)
            current.wait_stream(ahead.stream)
            for tensor in _tensors_of(ahead.batch):
                tensor.record_stream(current)  # memory of the side stream, used on this one
        return ahead.batch

    def _moved(self, batch):
        if isinstance(batch, torch.Tensor):
            return batch.to(self.device, non_blocking=True)
        if type(batch) in (tuple, list):
            return type(batch)(self._moved(part) for part in batch)
        return torch.utils._pytree.tree_map_only(torch.Tensor, lambda t: t.to(self.device, non_blocking=True), batch)

    def _normalised(self, batch):
        if self.mean is None and self.std is None:
            return batch
        leaves, spec = torch.utils._pytree.tree_flatten(batch)
        at = next(i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor))
        x = leaves[at].float()
        x = x if self.mean is None else x - self.mean
        leaves[at] = x if self.std is None else x / self.std
        return torch.utils._pytree.tree_unflatten(leaves, spec)
