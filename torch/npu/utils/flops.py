r"""Counting the floating-point operations of products, convolutions and attention."""

from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

import torch

__all__ = ["FlopsCounter"]


class _Counting(TorchDispatchMode):
    def __init__(self, counter: "FlopsCounter"):
        super().__init__()
        self.counter = counter

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        formula = flop_registry.get(func._overloadpacket)
        if formula is not None:
            self.counter._add(formula(*args, **kwargs, out_val=out))
        return out


class FlopsCounter:
    r"""The number of floating-point operations since :meth:`start`, with and without what a model computes again.

    There is one in a process: each call of the class returns the same. Between :meth:`pause` and :meth:`resume`
    (around a recomputation) only the total grows. It counts in the thread that starts it, and in its backward passes;
    torch.utils.flop_counter has the formulas, a multiplication and an addition being two operations.
    """

    _one: "FlopsCounter | None" = None
    _mode: _Counting | None
    _paused: bool
    _recorded: int
    _traversed: int

    def __new__(cls) -> "FlopsCounter":
        if cls._one is None:
            cls._one = super().__new__(cls)
            cls._one._mode, cls._one._paused = None, False
            cls._one._recorded = cls._one._traversed = 0
        return cls._one

    def _add(self, flops: Any) -> None:
        self._traversed += int(flops)
        if not self._paused:
            self._recorded += int(flops)

    def start(self) -> None:
        r"""Begin to count; goes on where it does."""
        if self._mode is None:
            self._mode = _Counting(self)
            self._mode.__enter__()

    def stop(self) -> None:
        r"""Stop, and set both numbers to zero.

        Raises:
            RuntimeError: another mode of torch's dispatcher was entered after :meth:`start` and is still there.
        """
        if self._mode is not None:
            modes = torch.utils._python_dispatch._get_current_dispatch_mode_stack()
            if not modes or modes[-1] is not self._mode:
                raise RuntimeError("FlopsCounter.stop: leave what was entered after start() first")
            self._mode.__exit__(None, None, None)
        self._mode, self._paused = None, False
        self._recorded = self._traversed = 0

    def pause(self) -> None:
        r"""Count what follows in the total only."""
        self._paused = True

    def resume(self) -> None:
        r"""End :meth:`pause`."""
        self._paused = False

    def get_flops(self) -> list[int]:
        r"""Return two numbers: without what was computed between pause and resume, and the total."""
        return [self._recorded, self._traversed]
