r"""Switches of torch.backends.cuda for NPUs: which kernel attention takes, and the cache of Fourier transforms' plans.

Attention's switches are one set for all devices, so ``torch.backends.cuda.enable_flash_sdp`` and its like, and
:func:`torch.nn.attention.sdpa_kernel`, act on npu as well. On npu the flash back end is the fused kernel; there is no
memory-efficient and no cuDNN one.
"""

from torch.backends.cuda import (
    SDPAParams,
    allow_fp16_bf16_reduction_math_sdp,
    enable_flash_sdp,
    enable_math_sdp,
    enable_mem_efficient_sdp,
    flash_sdp_enabled,
    fp16_bf16_reduction_math_sdp_allowed,
    math_sdp_enabled,
    mem_efficient_sdp_enabled,
    sdp_kernel,
)

import torch

__all__ = [
    "SDPAParams",
    "allow_fp16_bf16_reduction_math_sdp",
    "enable_flash_sdp",
    "enable_math_sdp",
    "enable_mem_efficient_sdp",
    "fft_plan_cache",
    "flash_sdp_enabled",
    "fp16_bf16_reduction_math_sdp_allowed",
    "is_available",
    "is_built",
    "is_flash_attention_available",
    "math_sdp_enabled",
    "mem_efficient_sdp_enabled",
    "sdp_kernel",
]

_MOST_PLANS = 4096  # what CUDA's cache holds unless it is told otherwise


def is_built() -> bool:
    r"""Return whether torch was built with NPU support."""
    return True


def is_available() -> bool:
    r"""Return :func:`torch.npu.is_available`."""
    return torch.npu.is_available()


def is_flash_attention_available() -> bool:
    r"""Return True: npu has a fused kernel for scaled_dot_product_attention."""
    return True


class FFTPlanCache:
    r"""The plans of one NPU's Fourier transforms, as ``torch.backends.cuda.cufft_plan_cache`` shows cuFFT's.

    An NPU keeps its transforms with its other compiled operators and needs no plans of ours: ``size`` is always 0,
    :meth:`clear` has nothing to do, and ``max_size`` is only remembered.
    """

    def __init__(self) -> None:
        self._max_size = _MOST_PLANS

    @property
    def size(self) -> int:
        r"""The number of plans now: 0."""
        return 0

    @property
    def max_size(self) -> int:
        r"""The most plans; 0 or more."""
        return self._max_size

    @max_size.setter
    def max_size(self, value: int) -> None:
        if value < 0:
            raise RuntimeError(f"fft_plan_cache: max_size must not be negative, but got {value}")
        self._max_size = value

    def clear(self) -> None:
        r"""Forget all plans."""


class FFTPlanCacheManager:
    r"""The plan caches of all NPUs: indexed by a device, or used as that of the current one."""

    def __init__(self) -> None:
        self.__dict__["_caches"] = {}

    def __getitem__(self, device: torch.device | str | int) -> FFTPlanCache:
        from torch.npu._utils import _get_device_index

        index, count = _get_device_index(device), torch.npu.device_count()
        if not 0 <= index < count:
            raise RuntimeError(
                f"fft_plan_cache: expected 0 <= device index < {count}, but got device with index {index}"
            )
        return self._caches.setdefault(index, FFTPlanCache())

    def __getattr__(self, name: str):
        return getattr(self[torch.npu.current_device()], name)

    def __setattr__(self, name: str, value) -> None:
        setattr(self[torch.npu.current_device()], name, value)


fft_plan_cache = FFTPlanCacheManager()
