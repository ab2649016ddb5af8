r"""Checks of arguments that several operators have; their errors name the operator and what was given."""

import torch

FLOATING = (torch.float16, torch.bfloat16, torch.float32)


def check(condition: bool, name: str, message: str) -> None:
    r"""Raises RuntimeError with ``name: message`` unless the condition holds."""
    if not condition:
        raise RuntimeError(f"{name}: {message}")


def check_dtype(name: str, argument: str, tensor: torch.Tensor, dtypes: tuple[torch.dtype, ...]) -> None:
    r"""Raises RuntimeError unless the tensor has one of the dtypes."""
    if tensor.dtype not in dtypes:
        allowed = ", ".join(str(dtype) for dtype in dtypes)
        raise RuntimeError(f"{name}: {argument} must be one of {allowed}, but is {tensor.dtype}")


def check_none(name: str, why: str, **arguments: object) -> None:
    r"""Raises NotImplementedError that names the first of the arguments that is given."""
    for argument, value in arguments.items():
        if value is not None:
            raise NotImplementedError(f"{name}: {argument} must be None: {why}")
