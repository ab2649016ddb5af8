r"""How a function of this package becomes an operator."""

import re
from collections.abc import Callable

import torch

_library = torch.library.Library("npu", "FRAGMENT")
# The functions by their operator's name, for documentation: an overload is described with its operator.
FUNCTIONS: dict[str, Callable] = {}


def operator(schema: str) -> Callable[[Callable], Callable]:
    r"""
    Registers a function as the operator that ``schema`` describes, for every device and with the gradient of what it
    is made of.

    Args:
        schema (str): name, arguments and results as in native_functions.yaml, without the namespace.

    Returns:
        A decorator that returns the function as it is. The docstring of the function says what the operator
        computes, with the sections Args, Returns and Raises.
    """

    def register(function: Callable) -> Callable:
        _library.define(schema)
        name = schema[: schema.index("(")]
        _library.impl(name, function, "CompositeImplicitAutograd")
        FUNCTIONS.setdefault(re.sub(r"\..*", "", name), function)
        return function

    return register
