"""Inputs and conditions of operator tests, with the plug-in's arguments."""

import contextlib
import functools
import itertools
import json
import os
import unittest
from pathlib import Path

import numpy as np

import torch

# ND and NCHW are how the host sees every tensor; the others are private to the device.
PLAIN_FORMATS = (-1, 0, 1, 2, 30)
PRIVATE_FORMATS = (3, 4, 29, 32, 33)


def get_npu_device() -> str:
    """Return the NPU that tests run on: ``npu:0``, or the one that SET_NPU_DEVICE names."""
    return f"npu:{os.environ.get('SET_NPU_DEVICE', '0').removeprefix('npu:')}"


def set_npu_device() -> None:
    """Make :func:`get_npu_device` the current one."""
    torch.npu.set_device(get_npu_device())


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


def test_2args_broadcast(fn):
    """Call ``fn`` with pairs of random tensors whose shapes broadcast, on the CPU and on the NPU.

    Returns:
        For each pair ``[result of the CPU, result of the NPU]``, as NumPy arrays.
    """
    results = []
    for shape in ((1, 1, 1), (4, 5)):
        pair = torch.rand(2, 3, 4, 5), torch.rand(shape)
        results.append([fn(*pair).numpy(), fn(*(x.to(get_npu_device()) for x in pair)).cpu().numpy()])
    return results


test_2args_broadcast.__test__ = False  # pytest would take it for a test where it is imported


def check_operators_in_prof(expected_operators, prof, unexpected_operators=None) -> bool:
    """Return whether a profile holds each of ``expected_operators`` and none of ``unexpected_operators``."""
    names = {event.key for event in prof.key_averages()}
    return all(op in names for op in expected_operators) and not any(op in names for op in unexpected_operators or ())


@contextlib.contextmanager
def freeze_rng_state():
    """Context manager after which the generators of the CPU and of the current NPU are as before."""
    cpu, npu = torch.get_rng_state(), torch.npu.get_rng_state()
    try:
        yield
    finally:
        torch.npu.set_rng_state(npu)
        torch.set_rng_state(cpu)


def get_cycles_per_ms() -> float:
    """Return how many cycles of ``torch.npu._sleep`` take a millisecond, as measured.

    Raises:
        NotImplementedError: on a card, which has no operator that waits.
    """
    cycles = 1_000_000
    begin, end = (torch.npu.Event(enable_timing=True) for _ in range(2))
    torch.npu._sleep(cycles)
    begin.record()
    torch.npu._sleep(cycles)
    end.record()
    end.synchronize()
    return cycles / begin.elapsed_time(end)


def is_iterable(obj) -> bool:
    """Return whether one can iterate over ``obj``."""
    try:
        iter(obj)
    except TypeError:
        return False
    return True


def iter_indices(tensor):
    """Return the places of a tensor's elements: numbers for one dimension, else tuples."""
    if tensor.dim() == 0:
        return range(0)
    if tensor.dim() == 1:
        return range(tensor.size(0))
    return itertools.product(*map(range, tensor.size()))


class Baseline:
    """Numbers by name in a JSON file, such as times to compare with.

    Args:
        baselineFile: the file; it need not be there.
    """

    def __init__(self, baselineFile):
        self._path = Path(baselineFile)
        self._values = json.loads(self._path.read_text()) if self._path.is_file() else {}

    def get_baseline(self, resourceId):
        """Return what is kept for a name, or None."""
        return self._values.get(resourceId)

    def set_baseline(self, resourceId, baseline):
        """Keep a number for a name, until :meth:`save_baseline` in memory only."""
        self._values[resourceId] = baseline

    def save_baseline(self):
        """Write the file."""
        self._path.write_text(json.dumps(self._values, indent=4))


baseline = Baseline("performance_baseline.json")


def dump_baseline() -> None:
    """Write the numbers of this module's ``baseline``."""
    baseline.save_baseline()


class SkipIfNoLapack:
    """``@SkipIfNoLapack()``: a test that needs LAPACK."""

    def __call__(self, fn):
        return unittest.skipIf(not torch._C.has_lapack, "PyTorch compiled without Lapack")(fn)


class SkipIfNotRegistered:
    """``@SkipIfNotRegistered()("ns::op", "why")``: a test that needs an operator."""

    def __call__(self, op_name, message):
        is_there = torch._C._jit_get_schemas_for_operator(op_name)
        return unittest.skipIf(not is_there, f"{op_name} is not registered: {message}")


class SupportedDevices:
    """A test for some chips only.

    Args:
        supported_devices: beginnings of their names, such as ``"Ascend910B"``.
    """

    def __init__(self, supported_devices: list[str]):
        self._names = tuple(supported_devices)

    def __call__(self, fn):
        @functools.wraps(fn)
        def checked(*args, **kwargs):
            if not torch.npu.get_device_name().startswith(self._names):
                raise unittest.SkipTest(f"only for {', '.join(self._names)}")
            return fn(*args, **kwargs)

        return checked


class SkipIfNotGteCANNVersion:
    """A test that needs a version of CANN, or a later one. The simulated device counts as the latest.

    Args:
        base_version: such as ``"8.3.RC1"``.
        module: see torch.npu.utils.get_cann_version.
    """

    def __init__(self, base_version, module="CANN"):
        self._wanted, self._module = base_version, module

    def __call__(self, fn):
        @functools.wraps(fn)
        def checked(*args, **kwargs):
            found = torch.npu.utils.get_cann_version(self._module)
            if not torch._C._npu_isSimulator() and _numbers(found) < _numbers(self._wanted):
                raise unittest.SkipTest(f"{self._module} {found or 'of no known version'} is older than {self._wanted}")
            return fn(*args, **kwargs)

        return checked


def _numbers(version: str) -> list[tuple[int, int]]:
    # 8.3.RC1 before 8.3.0: a candidate precedes its release.
    parts = version.upper().split(".") if version else []
    return [
        (0, int(p[2:] or 0)) if p.startswith("RC") else (1, int(p)) for p in parts if p.removeprefix("RC").isdigit()
    ]
