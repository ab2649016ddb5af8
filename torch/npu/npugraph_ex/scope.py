r"""Settings of a part of a program, for :mod:`torch.npu.npugraph_ex`."""

import contextlib
from collections.abc import Iterator

import torch

__all__ = ["deterministic", "limit_core_num"]


@contextlib.contextmanager
def deterministic(level: int) -> Iterator[None]:
    r"""Context manager with another level of :func:`torch.npu.set_deterministic_level`; it goes back to the one before.

    Raises:
        ValueError, NotImplementedError: as of that function.
    """
    was = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    torch.npu.set_deterministic_level(level)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(was[0], warn_only=was[1])


@contextlib.contextmanager
def limit_core_num(
    op_aicore_num: int, op_vectorcore_num: int, stream: "torch.npu.Stream | None" = None
) -> Iterator[None]:
    r"""Context manager with another limit of a stream, see :func:`torch.npu.set_stream_limit`; it goes back.

    Args:
        op_aicore_num, op_vectorcore_num (int): cores for matrix products and for everything else; -1: no limit.
        stream (torch.npu.Stream): default the current one.

    Raises:
        ValueError, NotImplementedError: as of that function.
    """
    from .. import _limits

    chosen = torch.npu.current_stream() if stream is None else stream
    key = chosen.device_index, chosen.stream_id
    was = _limits._streams.get(key)
    torch.npu.set_stream_limit(chosen, op_aicore_num, op_vectorcore_num)
    try:
        yield
    finally:
        if was is None:
            torch.npu.reset_stream_limit(chosen)
        else:
            _limits._streams[key] = was
