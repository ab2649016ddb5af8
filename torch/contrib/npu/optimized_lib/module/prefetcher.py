"""Batches that are on the device before they are asked for."""

from ..preloader import PreLoader


class Prefetcher:
    """Copies the next pair of input and target to the current NPU while the model computes.

    Args:
        loader: yields pairs.
        stream: the stream for the copies; default one for all loaders of the device.
    """

    def __init__(self, loader, stream=None):
        self._ahead = PreLoader(loader)
        if stream is not None:
            self._ahead.stream = stream
        self.stream = self._ahead.stream
        self._batches = iter(loader)
        self.preload()

    def preload(self):
        """Start the copy of the next pair; after the last one both are None."""
        self._pair = self._ahead.load(self._batches)
        self.next_input, self.next_target = (None, None) if self._pair is None else self._pair.batch

    def next(self):
        """Return the next pair, ``(None, None)`` after the last."""
        if self._pair is None:
            return None, None
        # Only now does the current stream wait: what was queued before goes on beside the copy.
        pair = self._ahead.ready(self._pair)
        self.preload()
        return tuple(pair)
