r"""How busy an NPU is, and what its sensors tell: the counterparts of what torch.cuda asks NVIDIA's library for."""

import time
from typing import Any, NoReturn

import torch

from ._utils import _get_device_index

# The shortest time over which a load is told.
_PERIOD_NS = 10**9 // 6
_samples: dict[int, tuple[int, int]] = {}  # of a device: when it was asked last, and its busy time until then


def _index(device: Any) -> int:
    torch.npu._lazy_init()
    index = _get_device_index(device, optional=True)
    if not 0 <= index < torch.npu.device_count():
        raise AssertionError("Invalid device id")
    return index


def _refuse(name: str, device: Any, card: str, simulated: str) -> NoReturn:
    if torch.npu.get_device_properties(_index(device)).is_simulated:
        raise NotImplementedError(f"torch.npu.{name}: a simulated NPU has no {simulated}")
    raise NotImplementedError(f"torch.npu.{name}: not read from the card; `npu-smi info -t {card} -i <card>` tells it")


def utilization(device: Any = None) -> int:
    r"""Return the percentage of time during which the simulated NPU was computing or copying, 0 to 100.

    It is measured since the previous call, or, if that is less than a sixth of a second ago or there was none, during
    the next sixth of a second, for which the call sleeps. It does not wait for the device. Operators so small that
    mostly the calling thread runs them count as the host's time. Streams that work at the same time count once each, up
    to 100.

    Args:
        device (int, str or torch.device, optional): default the current NPU

    Raises:
        NotImplementedError: on a card, whose load ``npu-smi info -t usages`` tells.
    """
    index = _index(device)

    def sample() -> tuple[int, int]:
        counters = torch._C._npu_simulatorCounters(index)
        if counters is None:
            _refuse("utilization", index, "usages", "load")
        return time.monotonic_ns(), counters["busy_ns"]

    begin, end = _samples.get(index), sample()
    if begin is None or end[0] - begin[0] < _PERIOD_NS or end[1] < begin[1]:
        begin = end
        time.sleep(_PERIOD_NS / 10**9)
        end = sample()
    _samples[index] = end
    return min(100, round(100 * (end[1] - begin[1]) / (end[0] - begin[0])))


def memory_usage(device: Any = None) -> int:
    r"""Percentage of time during which memory was read or written: not known of any NPU.

    Raises:
        NotImplementedError: always. On a card ``npu-smi info -t usages`` tells the bandwidth used.
    """
    _refuse("memory_usage", device, "usages", "counter of memory accesses; memory_reserved() tells what is in use")


def temperature(device: Any = None) -> int:
    r"""Temperature of the chip: not known of any NPU.

    Raises:
        NotImplementedError: always. On a card ``npu-smi info -t temp`` tells it.
    """
    _refuse("temperature", device, "temp", "temperature")


def power_draw(device: Any = None) -> int:
    r"""Power that the chip draws: not known of any NPU.

    Raises:
        NotImplementedError: always. On a card ``npu-smi info -t power`` tells it.
    """
    _refuse("power_draw", device, "power", "power draw")


def clock_rate(device: Any = None) -> int:
    r"""Frequency of the chip's clock: not known of any NPU.

    Raises:
        NotImplementedError: always. On a card ``npu-smi info`` tells it.
    """
    _refuse("clock_rate", device, "common", "clock")
