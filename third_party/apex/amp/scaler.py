"""The loss scale: a number, or one that shrinks after an overflow and grows after a while without."""

from __future__ import annotations

import torch
from torch import Tensor

from ._amp_state import maybe_print

__all__ = ["LossScaler"]


class LossScaler:
    """
    Args:
        loss_scale (float or "dynamic"): the rest matters for a dynamic one alone.
        init_scale, growth_factor, backoff_factor (float), scale_window (int), min_loss_scale, max_loss_scale: see
            `amp.initialize`.

    Attributes:
        dynamic (bool): whether the scale changes.
    """

    def __init__(
        self,
        loss_scale: float | str,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        scale_window: int = 2000,
        min_loss_scale: float | None = None,
        max_loss_scale: float = 2.0**24,
    ) -> None:
        self.dynamic = loss_scale == "dynamic"
        if self.dynamic:
            if growth_factor < 1.0 or not 0.0 < backoff_factor <= 1.0 or scale_window < 1 or init_scale <= 0.0:
                raise ValueError(
                    f"a dynamic loss scale needs dynamic_init_scale > 0 (is {init_scale}), scale_growth_factor >= 1 "
                    f"(is {growth_factor}), 0 < scale_backoff_factor <= 1 (is {backoff_factor}), scale_window >= 1 "
                    f"(is {scale_window})"
                )
            if min_loss_scale is not None and min_loss_scale > max_loss_scale:
                raise ValueError(f"min_loss_scale {min_loss_scale} is above max_loss_scale {max_loss_scale}")
            self._loss_scale = min(max_loss_scale, float(init_scale))
        else:
            self._loss_scale = float(loss_scale)
        self._growth_factor, self._backoff_factor = growth_factor, backoff_factor
        self._scale_seq_len = scale_window
        self._min_loss_scale, self._max_loss_scale = min_loss_scale, max_loss_scale
        self._unskipped = 0
        self._status: Tensor | None = None

    def loss_scale(self) -> float:
        """The scale of the next loss."""
        return self._loss_scale

    def restore(self, loss_scale: float, unskipped: int) -> None:
        self._loss_scale, self._unskipped = float(loss_scale), int(unskipped)

    def begin(self, device: torch.device) -> None:
        """Forgets overflows of the past: called before the backward pass."""
        if not self.dynamic or device.type != "npu":
            return
        if self._status is None or self._status.device != device:
            self._status = torch.npu_alloc_float_status(torch.empty(1, device=device))
        torch.npu_clear_float_status(self._status)

    def overflowed(self, found_inf: Tensor | None) -> bool:
        """Whether the pass overflowed: by the device's status, and by non-finite gradients. The one wait of a step."""
        if not self.dynamic:
            return False
        found = [found_inf.reshape(1)] if found_inf is not None else []
        if self._status is not None:
            torch.npu_get_float_status(self._status)
            found.append(self._status[:1].abs())
        if not found:
            return False
        if len(found) == 2 and found[0].device != found[1].device:
            found[0] = found[0].to(found[1].device)
        return bool((found[0] if len(found) == 1 else found[0] + found[1]).item())

    def update(self, overflow: bool, index: int) -> bool:
        """Changes the scale after a pass and says whether the step is to be skipped."""
        if not self.dynamic:
            return False
        if overflow:
            lowest = self._min_loss_scale or 0.0
            self._loss_scale = max(lowest, self._loss_scale * self._backoff_factor)
            self._unskipped = 0
            maybe_print(
                f"Gradient overflow.  Skipping step, loss scaler {index} reducing loss scale to {self._loss_scale}"
            )
            if self._loss_scale == 0.0:
                raise RuntimeError(
                    f"amp: the loss scale of loss scaler {index} has shrunk to 0, every step overflows: the loss or a "
                    "gradient is infinite or NaN whatever the scale; look for it with "
                    "torch.autograd.set_detect_anomaly(True)"
                )
            return True
        self._unskipped += 1
        if self._unskipped == self._scale_seq_len:
            self._loss_scale = min(self._max_loss_scale, self._loss_scale * self._growth_factor)
            self._unskipped = 0
        return False
