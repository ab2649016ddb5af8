"""Collectives over pieces of different sizes, and the plug-in's calls about HCCL's groups."""

import torch.distributed as dist
from torch.distributed.distributed_c10d import _get_default_group


def is_hccl_available() -> bool:
    """Whether this build has the `hccl` back end of torch.distributed."""
    return dist.is_hccl_available()


def _pieces(tensor, sizes, group):
    # The tensor cut along its first dimension, a piece for each rank.
    ranks = dist.get_world_size(group)
    if sizes is None:
        if tensor.shape[0] % ranks:
            raise RuntimeError(f"Tensor's dim 0 of {tensor.shape[0]} does not divide equally across group size {ranks}")
        sizes = [tensor.shape[0] // ranks] * ranks
    if len(sizes) != ranks:
        raise RuntimeError(f"Number of tensor splits not equal to group size: {len(sizes)} and {ranks}")
    if sum(sizes) != tensor.shape[0]:
        raise RuntimeError(f"Split sizes doesn't match total dim 0 size: {sum(sizes)} and {tensor.shape[0]}")
    return list(tensor.split(list(sizes)))


def all_gather_into_tensor_uneven(output, input, output_split_sizes=None, group=None, async_op=False):
    """Gather the ranks' tensors one below the other, ``output_split_sizes`` rows of each (default: all alike).

    Args: as of torch.distributed.all_gather_into_tensor.

    Returns:
        A work handle with ``async_op``, else None.

    Raises:
        RuntimeError: the sizes do not fit the group or the output.
    """
    return dist.all_gather(_pieces(output, output_split_sizes, group), input, group, async_op)


def reduce_scatter_tensor_uneven(
    output, input, input_split_sizes=None, op=dist.ReduceOp.SUM, group=None, async_op=False
):
    """Reduce the ranks' inputs and give each rank its ``input_split_sizes`` rows (default: all alike).

    Args: as of torch.distributed.reduce_scatter_tensor.

    Returns:
        A work handle with ``async_op``, else None.

    Raises:
        RuntimeError: the sizes do not fit the group or the input.
    """
    return dist.reduce_scatter(output, _pieces(input, input_split_sizes, group), op, group, async_op)


def reinit_process_group(group=None, rebuild_link=True) -> None:
    """Go on with a group after a device was restarted: with its links as they are (``rebuild_link=False``).

    Raises:
        NotImplementedError: the links are to be built anew, which happens to no group that is in use.
    """
    group = group or _get_default_group()
    if rebuild_link:
        raise NotImplementedError(
            "reinit_process_group: links are not built anew in place; torch.distributed.destroy_process_group() and "
            "init_process_group() make a group that has new ones"
        )
