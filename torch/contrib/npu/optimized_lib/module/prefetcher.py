"""Batches that are on the device before they are asked for."""

from ..preloader import PreLoader


class Prefetcher:
    """Copies the next pair of input and target to the current NPU while the model computes.

    Args:
        loader: yields pairs.
        stream: the stream for the copies; default a new one.
    """

    def __init__(self, loader, stream=None):
        self._ahead = PreLoader(loader)
        if stream is not None:
            self._ahead.stream = stream
        self.stream = self._ahead.stream
        self._batches = None
        self.next_input = self.next_target = None
        self.preload()

    def preload(self):
        """Start the copy of the next pair; after the last one both are None."""
        if self._batches is None:
            self._batches = iter(self._ahead)
        self.next_input, self.next_target = next(self._batches, (None, None))

    def next(self):
        """Return the next pair, ``(None, None)`` after the last."""
        pair = self.next_input, self.next_target
        if pair[0] is not None:
            self.preload()
        return pair
