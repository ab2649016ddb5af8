r"""How many of an NPU's cores the operators of a process or of a stream may use.

The simulated device computes with the host's threads, whatever number of cores it tells: a limit is kept and told, and
a warning says that it changes nothing.
"""

import warnings
from typing import Any

import torch

from ._utils import _get_device_index

__all__ = ["get_device_limit", "get_stream_limit", "reset_stream_limit", "set_device_limit", "set_stream_limit"]

_KINDS = ("cube_core_num", "vector_core_num")
_devices: dict[int, dict[str, int]] = {}
_streams: dict[tuple[int, int], dict[str, int]] = {}


def _simulated(name: str, index: int) -> int:
    # The number of cores of a simulated NPU.
    properties = torch.npu.get_device_properties(index)
    if not properties.is_simulated:
        raise NotImplementedError(f"torch.npu.{name}: the cores of a card are not limited here")
    return properties.multi_processor_count


def _checked(name: str, index: int, cube_num: int, vector_num: int) -> dict[str, int]:
    cores = _simulated(name, index)
    limit = {}
    for kind, number in zip(_KINDS, (cube_num, vector_num), strict=True):
        if not isinstance(number, int) or not (number == -1 or number >= 1):
            raise ValueError(f"{name}: a number of cores is at least 1, or -1 for no limit, not {number!r}")
        if number != -1:
            limit[kind] = min(number, cores)
    warnings.warn(f"torch.npu.{name}: a simulated NPU computes with threads of the host, not with cores", stacklevel=3)
    return limit


def set_device_limit(device: Any, cube_num: int = -1, vector_num: int = -1) -> None:
    r"""Limit the cores that this process uses of an NPU; once in a process.

    Args:
        device (torch.device, str or int): the NPU.
        cube_num (int): cores for matrix products; -1 (default): no limit.
        vector_num (int): cores for everything else; -1 (default): no limit.

    Raises:
        ValueError: a number is none.
        RuntimeError: a limit was set before.
        NotImplementedError: the NPU is a card.
    """
    index = _get_device_index(device, optional=True)
    limit = _checked("set_device_limit", index, cube_num, vector_num)
    if index in _devices:
        raise RuntimeError(f"set_device_limit: npu:{index} has a limit already, and it is set only once in a process")
    _devices[index] = limit


def get_device_limit(device: Any) -> dict[str, int]:
    r"""Return ``cube_core_num`` and ``vector_core_num``: what :func:`set_device_limit` set, or all cores.

    Raises:
        NotImplementedError: the NPU is a card.
    """
    index = _get_device_index(device, optional=True)
    return dict.fromkeys(_KINDS, _simulated("get_device_limit", index)) | _devices.get(index, {})


def set_stream_limit(stream: torch.Stream, cube_num: int = -1, vector_num: int = -1) -> None:
    r"""Limit the cores that the operators of a stream use; the last call counts.

    Args:
        stream (torch.npu.Stream): the stream.
        cube_num (int): cores for matrix products; -1 (default): no limit.
        vector_num (int): cores for everything else; -1 (default): no limit.

    Raises:
        ValueError: a number is none.
        NotImplementedError: the NPU is a card.
    """
    limit = _checked("set_stream_limit", stream.device_index, cube_num, vector_num)
    _streams[stream.device_index, stream.stream_id] = limit


def get_stream_limit(stream: torch.Stream) -> dict[str, int]:
    r"""Return ``cube_core_num`` and ``vector_core_num`` of a stream; what it has no limit for is the device's.

    Raises:
        NotImplementedError: the NPU is a card.
    """
    return get_device_limit(stream.device_index) | _streams.get((stream.device_index, stream.stream_id), {})


def reset_stream_limit(stream: torch.Stream) -> None:
    r"""Forget what :func:`set_stream_limit` set for a stream."""
    _streams.pop((stream.device_index, stream.stream_id), None)
