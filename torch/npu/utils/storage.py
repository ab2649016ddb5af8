r"""What files of the plug-in name: it writes a tensor of an npu as one of the CPU and this function."""

from typing import Any

import torch

__all__: list[str] = []


def _rebuild_npu_tensor(
    storage: Any,
    storage_offset: int,
    size: tuple[int, ...],
    stride: tuple[int, ...],
    requires_grad: bool,
    backward_hooks: Any,
    npu_storage_info: Any,
) -> torch.Tensor:
    r"""Make the tensor that the plug-in has saved.

    It goes where ``map_location`` puts its storage; without one to the current npu, as the plug-in loads it (files of
    ``_use_new_zipfile_serialization=False`` stay on the CPU).

    Args:
        npu_storage_info (int or bool): the format of the memory that it had, or a bool in files of old versions.
    """
    tensor = torch.tensor([], dtype=storage.dtype, device=storage._untyped_storage.device)
    tensor.set_(storage, storage_offset, size, stride)
    if tensor.device.type == "cpu" and getattr(torch.serialization._serialization_tls, "plugin_to_npu", False):
        # Plain memory stands for every format: what the plug-in's memory was arranged for is not known here.
        tensor = tensor.to("npu")
    tensor.requires_grad = requires_grad
    tensor._backward_hooks = backward_hooks
    return tensor
