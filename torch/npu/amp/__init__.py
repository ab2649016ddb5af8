r"""``torch.npu.amp``: mixed precision under the names of torch.cuda.amp; ``torch.autocast("npu")`` is the same."""

import functools
from importlib.util import find_spec

import torch

__all__ = ["GradScaler", "amp_definitely_not_available", "autocast", "custom_bwd", "custom_fwd"]


def amp_definitely_not_available() -> bool:
    r"""Return whether mixed precision cannot work, for want of an NPU."""
    return not (torch.npu.is_available() or find_spec("torch_xla"))


class autocast(torch.amp.autocast_mode.autocast):
    r"""Context manager and decorator: operators of npu tensors run in ``dtype`` where that is safe.

    Args:
        enabled (bool, optional): default True.
        dtype (torch.dtype, optional): ``torch.float16`` (default) or ``torch.bfloat16``.
        cache_enabled (bool, optional): keep the casts of parameters inside the region.
    """

    def __init__(self, enabled: bool = True, dtype: torch.dtype = torch.float16, cache_enabled: bool = True):
        super().__init__("npu", enabled=enabled, dtype=dtype, cache_enabled=cache_enabled)


class GradScaler(torch.amp.GradScaler):
    r"""``torch.amp.GradScaler("npu", ...)``: scales the loss so that small float16 gradients survive.

    Args:
        init_scale, growth_factor, backoff_factor, growth_interval, enabled: as of :class:`torch.amp.GradScaler`.
        dynamic (bool, optional): False: the scale stays as it is; steps whose gradients overflow are still left out.
    """

    def __init__(
        self,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
        dynamic: bool = True,
    ) -> None:
        self._dynamic = dynamic
        super().__init__(
            "npu",
            init_scale=init_scale,
            growth_factor=growth_factor,
            backoff_factor=backoff_factor,
            growth_interval=growth_interval,
            enabled=enabled,
        )

    def update(self, new_scale: "float | torch.Tensor | None" = None) -> None:
        r"""As :meth:`torch.amp.GradScaler.update`; without ``dynamic`` only ``new_scale`` changes the scale."""
        if new_scale is None and not self._dynamic and self._enabled and self._scale is not None:
            new_scale = self._scale.clone()
        super().update(new_scale)

    @staticmethod
    def get_npu_overflow_flag() -> bool:
        r"""See :func:`torch.npu.utils.get_npu_overflow_flag`."""
        return torch.npu.utils.get_npu_overflow_flag()

    @staticmethod
    def clear_npu_overflow_flag() -> None:
        r"""See :func:`torch.npu.utils.clear_npu_overflow_flag`."""
        torch.npu.utils.clear_npu_overflow_flag()


def custom_fwd(fwd=None, *, cast_inputs: torch.dtype | None = None):
    r"""``torch.amp.custom_fwd(..., device_type="npu")``, for the forward of an autograd.Function."""
    return functools.partial(torch.amp.custom_fwd, device_type="npu")(fwd=fwd, cast_inputs=cast_inputs)


def custom_bwd(bwd):
    r"""``torch.amp.custom_bwd(..., device_type="npu")``, for the backward of an autograd.Function."""
    return torch.amp.custom_bwd(bwd, device_type="npu")
