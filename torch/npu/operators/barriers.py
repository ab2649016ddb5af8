r"""What ranks of a group wait for each other with."""

import torch
from torch import Tensor

from ._checks import check_none
from ._groups import all_reduce, group_named
from ._registration import operator


@operator(
    "_npu_distribute_barrier(Tensor x_ref, str group, int world_size, *, Tensor? time_out=None, "
    "Tensor? elastic_info=None) -> Tensor"
)
def _npu_distribute_barrier(x_ref, group, world_size, *, time_out=None, elastic_info=None) -> Tensor:
    r"""
    A tensor that is there when every rank of a group has come here.

    Args:
        x_ref: any tensor.
        group: what get_hccl_comm_name of the group's back end gives.
        world_size: the group's ranks.
        time_out: must be None.
        elastic_info: must be None.

    Returns:
        A copy of ``x_ref``.

    Raises:
        RuntimeError: for a group that does not exist, or has other ranks.
        NotImplementedError: for ``time_out`` and ``elastic_info``.
    """
    name = "_npu_distribute_barrier"
    check_none(name, "what becomes of missing ranks is not documented", time_out=time_out, elastic_info=elastic_info)
    token = all_reduce(x_ref.new_ones(1, dtype=torch.float32), group_named(name, group, world_size))
    # The copy needs the sum, so that no compiler moves it before the others have come.
    return x_ref.masked_fill(token < 0, 0)
