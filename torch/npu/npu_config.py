r"""``torch.npu.npu_config``: where the plug-in keeps the switches of CANN; they are those of torch.npu."""

from ._limits import get_device_limit, get_stream_limit, reset_stream_limit, set_device_limit, set_stream_limit
from .dump import finalize_dump, init_dump, set_dump
from .options import (
    get_mm_bmm_format_nd,
    is_jit_compile_false,
    set_aoe,
    set_compile_mode,
    set_mm_bmm_format_nd,
    set_option,
)

__all__ = [
    "finalize_dump",
    "get_device_limit",
    "get_mm_bmm_format_nd",
    "get_stream_limit",
    "init_dump",
    "is_jit_compile_false",
    "reset_stream_limit",
    "set_aoe",
    "set_compile_mode",
    "set_device_limit",
    "set_dump",
    "set_mm_bmm_format_nd",
    "set_option",
    "set_stream_limit",
]
