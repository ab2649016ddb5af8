r"""Facts about the chip and CANN that scripts of the plug-in era ask for, and tools for those who write operators
(:mod:`torch.npu.utils.cpp_extension`)."""

import importlib
import os
import re
from pathlib import Path
from typing import Any

import torch

from .overflow import clear_npu_overflow_flag, get_npu_overflow_flag, is_support_inf_nan, npu_check_overflow

__all__ = [
    "clear_npu_overflow_flag",
    "get_cann_version",
    "get_npu_overflow_flag",
    "get_soc_version",
    "is_support_inf_nan",
    "npu_check_overflow",
]

# Parts that are loaded when they are asked for, and what the plug-in has here and torch.npu itself.
_LAZY = {
    "FlopsCounter": "flops",
    "get_part_combined_tensor": "combine_tensors",
    "is_combined_tensor_valid": "combine_tensors",
    "npu_combine_tensors": "combine_tensors",
    "reset_thread_affinity": "affinity",
    "save_async": "serialization",
    "set_thread_affinity": "affinity",
}
_MODULES = (
    "affinity",
    "collect_env",
    "combine_tensors",
    "cpp_extension",
    "flops",
    "profiler",
    "serialization",
    "storage",
    "syncbatchnorm",
)
_OF_NPU = frozenset(
    (
        "StreamContext",
        "check_uce_in_memory",
        "current_blas_handle",
        "current_device",
        "current_stream",
        "default_stream",
        "device",
        "device_of",
        "finalize_dump",
        "get_sync_debug_mode",
        "init_dump",
        "ipc_collect",
        "is_bf16_supported",
        "obfuscation_calculate",
        "obfuscation_finalize",
        "obfuscation_initialize",
        "set_device",
        "set_dump",
        "set_op_timeout_ms",
        "set_stream",
        "set_sync_debug_mode",
        "stream",
        "stress_detect",
        "synchronize",
    )
)

# CANN's numbers of its chips.
_SOC_VERSIONS = {
    "Ascend910PremiumA": 100,
    "Ascend910ProA": 101,
    "Ascend910A": 102,
    "Ascend910ProB": 103,
    "Ascend910B": 104,
    "Ascend310P1": 200,
    "Ascend310P2": 201,
    "Ascend310P3": 202,
    "Ascend310P4": 203,
    "Ascend310P5": 204,
    "Ascend310P7": 205,
    "Ascend910B1": 220,
    "Ascend910B2": 221,
    "Ascend910B2C": 222,
    "Ascend910B3": 223,
    "Ascend910B4": 224,
    "Ascend910B4-1": 225,
    "Ascend310B1": 240,
    "Ascend310B2": 241,
    "Ascend310B3": 242,
    "Ascend310B4": 243,
    "Ascend910_9391": 250,
    "Ascend910_9392": 251,
    "Ascend910_9381": 252,
    "Ascend910_9382": 253,
    "Ascend910_9372": 254,
    "Ascend910_9362": 255,
}
_INFO_FILES = {
    "CANN": ("ascend_toolkit_install.info", "ascend_nnae_install.info", "ascend_nnrt_install.info"),
    "TOOLKIT": ("ascend_toolkit_install.info",),
    "RUNTIME": ("runtime/version.info",),
    "COMPILER": ("compiler/version.info",),
    "HCCL": ("hccl/version.info",),
    "OPP": ("opp/version.info",),
    "OPP_KERNEL": ("opp_kernel/version.info",),
    "DRIVER": ("/usr/local/Ascend/driver/version.info",),
}
_ROOTS = ("ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME", "ASCEND_NNAE_PATH", "ASCEND_NNRT_PATH")


def get_soc_version() -> int:
    r"""Return CANN's number of the chip, -1 for one that is not known: 104 an Ascend910B of the first generation, 220
    and above an Ascend910B1 and its successors. The simulated device, which computes bfloat16, counts as a 910B1.
    """
    if torch._C._npu_isSimulator():
        return _SOC_VERSIONS["Ascend910B1"]
    return _SOC_VERSIONS.get(torch.npu.get_device_name(), -1)


def get_cann_version(module: str = "CANN") -> str:
    r"""Return the version of CANN, or of one of its parts, such as ``"8.3.RC1"``; empty if it is not known.

    It is read from the files that CANN's packages install below ``ASCEND_HOME_PATH``. The simulated device has none.

    Args:
        module (str): CANN, RUNTIME, COMPILER, HCCL, TOOLKIT, OPP, OPP_KERNEL or DRIVER.
    """
    if torch._C._npu_isSimulator():
        return ""
    roots = [Path(os.environ[name]) for name in _ROOTS if os.environ.get(name)]
    for name in _INFO_FILES.get(module, ()):
        for root in roots or [Path("/")]:
            for path in (root / name, *sorted(root.glob(f"*-linux/{name}"))):
                found = _version_in(path)
                if found:
                    return found
    return ""


def _version_in(path: Path) -> str:
    try:
        text = path.read_text(errors="replace")
    except OSError:
        return ""
    found = re.search(r"^version\s*=\s*(\S+)", text, re.MULTILINE | re.IGNORECASE)
    return found[1].strip("[]") if found else ""


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    if name in _LAZY:
        return getattr(importlib.import_module(f"{__name__}.{_LAZY[name]}"), name)
    if name in _OF_NPU:
        return getattr(torch.npu, name)
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY, *_MODULES, *_OF_NPU})
