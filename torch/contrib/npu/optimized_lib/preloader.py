r"""Batches that are on the device before they are asked for."""

import torch


class PreLoader:
    r"""Iterate over a loader's batches with the next one's copy to the device already under way.

    Copies run on a stream of their own while the model computes. Iterating again begins the loader anew.

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
        self.stream = torch.npu.Stream(self.device) if self.device.type == "npu" else None
        self.mean, self.std = (
            None if v is None else torch.tensor(v, dtype=torch.float32, device=self.device).view(1, -1, 1, 1)
            for v in (mean, std)
        )
        self._batches = None

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self):
        batches = iter(self.loader)
        ahead = self._load(batches)
        while ahead is not None:
            batch = self._ready(ahead)
            ahead = self._load(batches)
            yield batch

    def next(self):
        if self._batches is None:
            self._batches = iter(self)
        try:
            return next(self._batches)
        except StopIteration:
            self._batches = None
            return None, None

    def _load(self, batches):
        # The next batch on its way, as a list of one, or None after the last.
        try:
            batch = next(batches)
        except StopIteration:
            return None
        if self.stream is None:
            return [self._normalised(self._moved(batch))]
        with torch.npu.stream(self.stream):
            return [self._normalised(self._moved(batch))]

    def _moved(self, batch):
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

    def _ready(self, ahead):
        if self.stream is not None:
            current = torch.npu.current_stream(self.device)
            current.wait_stream(self.stream)
            # Memory of the side stream, used on this one.
            torch.utils._pytree.tree_map_only(torch.Tensor, lambda t: t.record_stream(current), ahead[0])
        return ahead[0]
