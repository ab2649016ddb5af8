r"""Collectives in the group that a name of HCCL stands for, as operators that graphs take."""

import torch.distributed.distributed_c10d as c10d

import torch
from torch import Tensor

from ._checks import check

_npu = torch.device("npu")
_functional = torch.ops._c10d_functional


def group_named(name: str, hcom: str, size: int | None = None) -> str:
    r"""
    The group_name of torch.distributed for a name of HCCL.

    Args:
        name: the operator.
        hcom: what get_hccl_comm_name gives, or a group_name itself.
        size: the number of ranks that the caller expects.

    Returns:
        The group_name.

    Raises:
        RuntimeError: if there is no such group, or it has another number of ranks.
    """
    for group in c10d._world.pg_map if c10d.is_initialized() else ():
        backend = group._get_backend(_npu) if _npu in group._device_types else None
        # Asking for the name would make the communicator, for which all ranks of the group are waited for.
        has_comm = getattr(backend, "_has_hccl_comm", None)
        if hcom == group.group_name or (has_comm is not None and has_comm(hcom)):
            check(
                size in (None, group.size()),
                name,
                f"the group {hcom!r} has {group.size()} ranks, but {size} are told",
            )
            return group.group_name
    raise RuntimeError(
        f"{name}: there is no group {hcom!r}: it must be what get_hccl_comm_name of a group's back end gives"
    )


def all_reduce(x: Tensor, group: str) -> Tensor:
    return _functional.wait_tensor(_functional.all_reduce(x.detach().contiguous(), "sum", group))


def all_gather(x: Tensor, size: int, group: str) -> Tensor:
    r"""The tensors of all ranks, one after another along the first dimension."""
    return _functional.wait_tensor(_functional.all_gather_into_tensor(x.detach().contiguous(), size, group))


def reduce_scatter(x: Tensor, size: int, group: str) -> Tensor:
    r"""The sum over the ranks, of which each rank gets its part of the first dimension."""
    return _functional.wait_tensor(_functional.reduce_scatter_tensor(x.detach().contiguous(), "sum", size, group))


def all_to_all(x: Tensor, received: list[int], sent: list[int], group: str) -> Tensor:
    r"""Rows to each rank, and the rows that came from each."""
    return _functional.wait_tensor(_functional.all_to_all_single(x.detach().contiguous(), received, sent, group))


def exchanged(x: Tensor, group: str) -> Tensor:
    r"""The parts of the first dimension, one for each rank, and those that came from each."""
    parts = [1] * x.shape[0]
    return all_to_all(x, parts, parts, group)
