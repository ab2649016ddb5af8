r"""Mixed precision of npu without the device's name: what the plug-in era calls :func:`torch.get_autocast_dtype` and
kin by."""

import torch

from . import get_amp_supported_dtype

__all__ = [
    "get_amp_supported_dtype",
    "get_autocast_dtype",
    "is_autocast_enabled",
    "set_autocast_dtype",
    "set_autocast_enabled",
]


def get_autocast_dtype() -> torch.dtype:
    r"""Return the dtype of ``torch.autocast("npu")``."""
    return torch.get_autocast_dtype("npu")


def set_autocast_dtype(dtype: torch.dtype) -> None:
    r"""Set the dtype of ``torch.autocast("npu")``: float16, bfloat16 or float32."""
    torch.set_autocast_dtype("npu", dtype)


def is_autocast_enabled() -> bool:
    r"""Return whether ``torch.autocast("npu")`` is in force."""
    return torch.is_autocast_enabled("npu")


def set_autocast_enabled(enable: bool) -> None:
    r"""Switch ``torch.autocast("npu")`` on or off for this thread."""
    torch.set_autocast_enabled("npu", enable)
