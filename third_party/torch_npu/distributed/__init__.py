"""`torch_npu.distributed`: what the plug-in adds to torch.distributed."""

from torch.distributed import is_available

from .distributed_c10d import (
    all_gather_into_tensor_uneven,
    is_hccl_available,
    reduce_scatter_tensor_uneven,
    reinit_process_group,
)

__all__ = [
    "all_gather_into_tensor_uneven",
    "is_available",
    "is_hccl_available",
    "reduce_scatter_tensor_uneven",
    "reinit_process_group",
]
