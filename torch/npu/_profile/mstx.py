r"""Ranges and marks of a script's own in the profiles of the device layer and of ``torch.npu.profiler``."""

import functools
import threading
from typing import Any

import torch

_DEFAULT = "default"
_depths = threading.local()


def _named(message: str, domain: str) -> str:
    if not isinstance(message, str) or not message:
        raise ValueError(f"mstx: the message must be a text that is not empty, not {message!r}")
    return message if domain == _DEFAULT else f"{domain}: {message}"


class mstx:
    r"""Marks and ranges; a range costs nothing that matters while no profile runs.

    ``stream`` is accepted as in the plug-in. Ranges are of the host; work that is submitted inside one is linked to it.
    """

    @staticmethod
    def mark(message: str, stream: Any = None, domain: str = _DEFAULT) -> None:
        r"""Mark this moment."""
        torch._C._npu_mark(_named(message, domain))

    @staticmethod
    def range_start(message: str, stream: Any = None, domain: str = _DEFAULT) -> int:
        r"""Begin a range that any thread may end; return its number."""
        return torch._C._npu_rangeStart(_named(message, domain))

    @staticmethod
    def range_end(range_id: int, domain: str = _DEFAULT) -> None:
        r"""End a range of :meth:`range_start`.

        Raises:
            RuntimeError: no such range is open.
        """
        torch._C._npu_rangeStop(range_id)

    @staticmethod
    def range_push(message: str, stream: Any = None, domain: str = _DEFAULT) -> int:
        r"""Begin a range inside those that are open on this thread; return its depth, 0 for the outermost."""
        torch._C._npu_rangePush(_named(message, domain))
        depth = getattr(_depths, "value", 0)
        _depths.value = depth + 1
        return depth

    @staticmethod
    def range_pop(domain: str = _DEFAULT) -> int:
        r"""End the innermost range of this thread; return its depth.

        Raises:
            RuntimeError: none is open.
        """
        torch._C._npu_rangePop()
        _depths.value = getattr(_depths, "value", 1) - 1
        return _depths.value

    class mstx_range:
        r"""Context manager and decorator of a range."""

        def __init__(self, message: str, stream: Any = None, domain: str = _DEFAULT):
            self.message, self.stream, self.domain = message, stream, domain

        def __enter__(self) -> "mstx.mstx_range":
            mstx.range_push(self.message, self.stream, self.domain)
            return self

        def __exit__(self, *_: Any) -> None:
            mstx.range_pop(self.domain)

        def __call__(self, function: Any) -> Any:
            @functools.wraps(function)
            def inside(*args: Any, **kwargs: Any) -> Any:
                with mstx.mstx_range(self.message or function.__name__, self.stream, self.domain):
                    return function(*args, **kwargs)

            return inside

    class annotate(mstx_range):
        r"""The same with a message that may be left out where it decorates a function: then its name."""

        def __init__(self, message: str = "", stream: Any = None, domain: str = _DEFAULT):
            super().__init__(message, stream, domain)


class emit_msprof:
    r"""Context manager: each operator of the framework is a range in profiles of the device layer, as ``emit_nvtx``
    makes ranges for NVIDIA's tools. ``torch.npu.profile(use_e2e_profiler=True)`` does it by itself.

    Args:
        enabled (bool): False makes it do nothing; default True.

    Raises:
        RuntimeError: it is entered again while it is open.
    """

    def __init__(self, enabled: bool = True):
        self.enabled = enabled
        self._handle: int | None = None

    def __enter__(self) -> "emit_msprof":
        if self._handle is not None:
            raise RuntimeError("emit_msprof is not reentrant")
        if self.enabled:
            torch.npu.synchronize()
            self._handle = torch._C._npu_markOperators()
        return self

    def __exit__(self, kind: Any, value: Any, traceback: Any) -> None:
        handle, self._handle = self._handle, None
        if handle is not None:
            torch._C._npu_unmarkOperators(handle)
            if kind is None:
                torch.npu.synchronize()


mstx.mstx = mstx  # type: ignore[attr-defined]  # the plug-in's module of the same name
