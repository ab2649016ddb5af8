r"""What of apex.parallel has its place in torch by now, under the names that scripts import."""

import torch
from torch import nn

__all__ = ["DistributedDataParallel", "SyncBatchNorm", "convert_syncbn_model", "create_syncbn_process_group"]

SyncBatchNorm = nn.SyncBatchNorm


def convert_syncbn_model(module: nn.Module, process_group=None, channel_last: bool = False) -> nn.Module:
    r"""``torch.nn.SyncBatchNorm.convert_sync_batchnorm``: batch norms whose statistics go over all processes.

    Args:
        module (Module): converted in place where it holds batch norms, else replaced.
        process_group (ProcessGroup, optional): over which processes. Default: all.
        channel_last (bool, optional): accepted; the layout is the tensor's own.
    """
    return nn.SyncBatchNorm.convert_sync_batchnorm(module, process_group)


def create_syncbn_process_group(group_size: int):
    r"""The process group of this process among neighbours of ``group_size``; None (all processes) for 0.

    Raises ValueError where the number of processes is no multiple of ``group_size``.
    """
    if group_size == 0:
        return None
    world = torch.distributed.get_world_size()
    if group_size < 0 or world % group_size != 0:
        raise ValueError(f"group_size={group_size} does not divide the {world} processes")
    own = None
    for first in range(0, world, group_size):
        group = torch.distributed.new_group(ranks=list(range(first, first + group_size)))
        if first <= torch.distributed.get_rank() < first + group_size:
            own = group
    return own


class DistributedDataParallel(nn.parallel.DistributedDataParallel):
    r"""``torch.nn.parallel.DistributedDataParallel`` with apex's arguments.

    Args:
        module (Module): on the device of this process.
        delay_allreduce (bool, optional): for parameters that a pass may not reach: find_unused_parameters.
        message_size and the others: accepted; buckets and streams are torch's.
    """

    def __init__(
        self,
        module: nn.Module,
        message_size: int = 10000000,
        delay_allreduce: bool = False,
        shared_param=None,
        allreduce_trigger_params=None,
        retain_allreduce_buffers: bool = False,
        allreduce_always_fp32: bool = False,
        num_allreduce_streams: int = 1,
        allreduce_communicators=None,
        gradient_average: bool = True,
        gradient_predivide_factor: float = 1.0,
        gradient_average_split_factor=None,
        prof: bool = False,
    ) -> None:
        if not gradient_average or gradient_predivide_factor != 1.0:
            raise ValueError(
                "apex.parallel.DistributedDataParallel averages gradients here: gradient_average=True and "
                "gradient_predivide_factor=1.0 are what it takes; register a communication hook for others"
            )
        super().__init__(module, find_unused_parameters=delay_allreduce)


def __getattr__(name: str):
    if name == "LARC":
        raise ImportError("apex.parallel.LARC needs a CUDA kernel, which an npu does not have; use NpuFusedLamb")
    raise AttributeError(f"module 'apex.parallel' has no attribute '{name}'; it has {', '.join(__all__)}")
