r"""Environment variables of the plug-in that change nothing here: whoever sets one is told so, once, at the start."""

import os
import warnings

# The values that ask for nothing that is not so, and why others have no effect.
WITHOUT_EFFECT: dict[str, tuple[tuple[str, ...], str]] = {
    "COMBINED_ENABLE": (("0",), "operators take views as they are"),
    "PYTORCH_NO_NPU_MEMORY_CACHING": (("0",), "memory comes from the caching allocator"),
    "TORCH_HCCL_ASYNC_ERROR_HANDLING": (("1",), "a collective that fails is always raised by who waits for it"),
    "TORCH_HCCL_DESYNC_DEBUG": (("0",), "TORCH_HCCL_TRACE_BUFFER_SIZE keeps what ranks have called"),
    "TORCH_HCCL_ZERO_COPY": (("0",), "the ranks of a host never copy on the way"),
}


def warn() -> None:
    r"""Warn of each variable of the table that is set to something that it cannot do."""
    for name, (harmless, reason) in WITHOUT_EFFECT.items():
        value = os.environ.get(name, "")
        if value and value not in harmless:
            warnings.warn(f"{name}={value} has no effect here: {reason}", stacklevel=2)
