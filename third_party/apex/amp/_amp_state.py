"""What amp knows between its calls, in one object; scripts and tools read it as `apex.amp._amp_state._amp_state`."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from .frontend import Properties
    from .scaler import LossScaler

__all__ = ["AmpState", "master_params", "maybe_print", "warn_or_err"]


class AmpState:
    """
    Attributes:
        opt_properties (Properties): what `initialize` was told, None before it.
        loss_scalers (list): one LossScaler for each loss.
        verbosity (int): 0 for no output.
        hard_override (bool): what is refused is only warned of; for experiments.
    """

    def __init__(self) -> None:
        self.opt_properties: Properties | None = None
        self.loss_scalers: list[LossScaler] = []
        self.verbosity = 1
        self.hard_override = False
        self.allow_incoming_model_not_fp32 = False
        # Of O1: the device type whose operators are cast, and to what.
        self.cast_device: str | None = None
        self.cast_dtype = torch.float16
        # Threads without casts: how deep they are in disable_casts().
        self._local = threading.local()

    @property
    def enabled(self) -> bool:
        return self.opt_properties is not None and self.opt_properties.enabled

    def cast_here(self) -> None:
        """Makes this thread cast, if it has not begun to and amp is set to O1: autocast belongs to a thread."""
        if self.cast_device is None or getattr(self._local, "without_casts", 0):
            return
        if not torch.is_autocast_enabled(self.cast_device):
            self._local.dtype_before = torch.get_autocast_dtype(self.cast_device)
            torch.set_autocast_dtype(self.cast_device, self.cast_dtype)
            torch.set_autocast_enabled(self.cast_device, True)
            # A kept cast of a weight would outlive the step that changes the weight.
            torch.set_autocast_cache_enabled(False)

    @property
    def casts(self) -> bool:
        """Whether this thread casts now."""
        return self.cast_device is not None and not getattr(self._local, "without_casts", 0)

    @contextlib.contextmanager
    def without_casts(self) -> Iterator[None]:
        self._local.without_casts = getattr(self._local, "without_casts", 0) + 1
        device = self.cast_device
        before = device is not None and torch.is_autocast_enabled(device)
        if before:
            torch.set_autocast_enabled(device, False)
        try:
            yield
        finally:
            self._local.without_casts -= 1
            if before:
                torch.set_autocast_enabled(device, True)

    def stop_casts(self) -> None:
        """Ends casts of O1 in this thread, before another `initialize`."""
        if self.cast_device is not None and torch.is_autocast_enabled(self.cast_device):
            torch.set_autocast_enabled(self.cast_device, False)
            torch.set_autocast_dtype(self.cast_device, self._local.dtype_before)
            torch.set_autocast_cache_enabled(True)
        self.cast_device = None


_amp_state = AmpState()


def maybe_print(text: str, rank0: bool = False) -> None:
    """Prints where `verbosity` is not 0; with `rank0` only in the first process of a distributed run."""
    if _amp_state.verbosity <= 0:
        return
    if (
        rank0
        and torch.distributed.is_available()
        and torch.distributed.is_initialized()
        and torch.distributed.get_rank()
    ):
        return
    print(text, flush=True)


def warn_or_err(text: str) -> None:
    """Raises RuntimeError, or prints a warning where `_amp_state.hard_override` is set."""
    if not _amp_state.hard_override:
        raise RuntimeError(f"{text}  (To go on at your own risk: apex.amp._amp_state._amp_state.hard_override = True)")
    print(f"Warning:  {text}")


def master_params(optimizer: torch.optim.Optimizer) -> Iterator[torch.Tensor]:
    r"""The parameters that ``optimizer`` steps: of O2 the fp32 masters, else the model's own.

    Clip these: ``torch.nn.utils.clip_grad_norm_(amp.master_params(optimizer), max_norm)``.
    """
    for group in optimizer.param_groups:
        yield from group["params"]
