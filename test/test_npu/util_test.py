"""Inputs for operator tests, as the fork's tests make them from ``[dtype, format, shape]`` triples."""

import numpy as np

import torch

# ND and NCHW are how the host sees every tensor; the others are private to the device.
PLAIN_FORMATS = (-1, 0, 1, 2, 30)
PRIVATE_FORMATS = (3, 4, 29, 32, 33)


def create_common_tensor(item, minValue, maxValue, device=None):
    """Return the same random values as a CPU tensor and as an NPU tensor.

    Args:
        item: ``[numpy dtype, format number, shape]``; a shape may be an int.
        minValue, maxValue: bounds of the values.
        device: default ``"npu"``.

    Raises:
        ValueError: there is no format of that number.
    """
    dtype, npu_format, shape = item
    if npu_format not in PLAIN_FORMATS + PRIVATE_FORMATS:
        raise ValueError(f"there is no format {npu_format}")
    values = np.random.uniform(minValue, maxValue, shape).astype(dtype)
    cpu_input = torch.from_numpy(np.asarray(values))
    npu_input = cpu_input.to("npu" if device is None else device)
    if npu_format in PRIVATE_FORMATS and hasattr(npu_input, "npu_format_cast"):
        npu_input = npu_input.npu_format_cast(npu_format)
    return cpu_input, npu_input


def create_dtype_tensor(shape, dtype, npu_format=-1, min_value=-5, max_value=5, no_zero=False, device=None):
    """Return random values of a torch dtype as a CPU tensor and as an NPU tensor; ``no_zero`` puts ones for zeros."""
    if dtype == torch.bool:
        cpu_input = torch.randint(0, 2, shape).bool()
    elif dtype.is_floating_point:
        cpu_input = torch.rand(shape).mul(max_value - min_value).add(min_value).to(dtype)
    else:
        cpu_input = torch.randint(int(min_value), int(max_value), shape).to(dtype)
    if no_zero:
        cpu_input = torch.where(cpu_input == 0, torch.ones_like(cpu_input), cpu_input)
    return cpu_input, cpu_input.to("npu" if device is None else device)


def check_operators_in_prof(expected_operators, prof, unexpected_operators=None) -> bool:
    """Return whether a profile holds each of ``expected_operators`` and none of ``unexpected_operators``."""
    names = {event.key for event in prof.key_averages()}
    return all(op in names for op in expected_operators) and not any(op in names for op in unexpected_operators or ())
