"""O1: what computes in half precision, what in fp32, and functions of the user's that join either.

torch.autocast has the lists (convolutions and matrix products in half; softmax, norms, losses in fp32; the widest dtype
for what takes several); amp switches it on for good and adds batch and instance norm in fp32.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from torch.utils._pytree import tree_leaves

import torch
from torch import Tensor

from ._amp_state import _amp_state
from .models import convert

__all__ = [
    "disable_casts",
    "float_function",
    "half_function",
    "promote_function",
    "register_float_function",
    "register_half_function",
    "register_promote_function",
]

# (module, name, kind), to be wrapped when O1 begins.
_registered: list[tuple[Any, str, str]] = []
# What autocast refuses rather than casts; with a cast of the user's it computes.
_BANNED = ("binary_cross_entropy",)


def _widest(values: Any) -> torch.dtype | None:
    kinds = [leaf.dtype for leaf in tree_leaves(values) if isinstance(leaf, Tensor) and leaf.is_floating_point()]
    return functools.reduce(torch.promote_types, kinds) if kinds else None


def _dtype_for(kind: str, values: Any) -> torch.dtype | None:
    if kind == "promote":
        return _widest(values)
    return torch.float32 if kind == "float" else _amp_state.cast_dtype


def _wrap(function: Callable, kind: str, alone: bool = False) -> Callable:
    """`function` whose floating-point arguments are cast while amp casts; `alone`: nothing inside is cast again."""

    @functools.wraps(function)
    def cast_function(*args, **kwargs):
        if not _amp_state.casts:
            return function(*args, **kwargs)
        dtype = _dtype_for(kind, (args, kwargs))
        if dtype is not None:
            args, kwargs = convert(args, dtype), convert(kwargs, dtype)
        preferred = _amp_state.opt_properties is not None and _amp_state.opt_properties.user_cast_preferred
        with _amp_state.without_casts() if alone or preferred else contextlib.nullcontext():
            return function(*args, **kwargs)

    cast_function._amp_original = function
    # torch.jit.script compiles the function itself: a script casts nothing.
    cast_function.__prepare_scriptable__ = lambda: function  # type: ignore[attr-defined]
    return cast_function


def half_function(function: Callable) -> Callable:
    r"""Decorator: with O1 the function's floating-point arguments are cast to half precision."""
    return _wrap(function, "half")


def float_function(function: Callable) -> Callable:
    r"""Decorator: with O1 the function's floating-point arguments are cast to fp32."""
    return _wrap(function, "float")


def promote_function(function: Callable) -> Callable:
    r"""Decorator: with O1 the function's floating-point arguments are cast to the widest dtype among them."""
    return _wrap(function, "promote")


def _register(module: Any, name: str, kind: str) -> None:
    if not hasattr(module, name):
        raise ValueError(f"No function named {name} in module {getattr(module, '__name__', module)}.")
    _registered.append((module, name, kind))
    if _amp_state.cast_device is not None:
        _patch(module, name, kind)


def register_half_function(module: ModuleType, name: str) -> None:
    r"""As :func:`half_function` for ``module.name``, from :func:`initialize` on. Raises ValueError for no such name."""
    _register(module, name, "half")


def register_float_function(module: ModuleType, name: str) -> None:
    r"""As :func:`float_function` for ``module.name``, from :func:`initialize` on. Raises ValueError for no such name.

    ``register_float_function(torch.nn.functional, "binary_cross_entropy")`` makes O1 take what it else refuses.
    """
    _register(module, name, "float")


def register_promote_function(module: ModuleType, name: str) -> None:
    r"""As :func:`promote_function` for ``module.name``, from :func:`initialize` on. ValueError for no such name."""
    _register(module, name, "promote")


def _patch(module: Any, name: str, kind: str) -> None:
    function = getattr(module, name)
    function = getattr(function, "_amp_original", function)
    setattr(module, name, _wrap(function, kind, alone=name in _BANNED))


def start(device: str, dtype: torch.dtype) -> None:
    """Begins to cast: in this thread at once, in others when they call a model."""
    for name in ("batch_norm", "instance_norm"):
        _patch(torch.nn.functional, name, "float")
    for module, name, kind in _registered:
        _patch(module, name, kind)
    _amp_state.cast_device, _amp_state.cast_dtype = device, dtype
    _amp_state.cast_here()


@contextlib.contextmanager
def disable_casts() -> Iterator[None]:
    r"""Context manager: inside, O1 casts nothing."""
    with _amp_state.without_casts():
        yield
