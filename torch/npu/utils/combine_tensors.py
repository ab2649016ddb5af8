r"""Many tensors as parts of one flat tensor, so that what is done to it is done to all of them."""

from collections.abc import Sequence

from torch import Tensor

__all__ = ["get_part_combined_tensor", "is_combined_tensor_valid", "npu_combine_tensors"]


def npu_combine_tensors(list_of_tensor: Sequence[Tensor], require_copy_value: bool = True) -> Tensor | None:
    r"""Makes the tensors' memory parts of one flat tensor, one behind the other, and returns that.

    Args:
        list_of_tensor (list): of one dtype on one device, dense, in no private format; each keeps shape and strides.
        require_copy_value (bool, optional): the tensors keep their values; else they become zeros. Default: True.

    Returns a 1-D tensor as large as all of them together, or None for an empty list.

    Raises RuntimeError for several dtypes or devices, and for a tensor that cannot be part of another.
    """
    from torch.npu.optim._combined import Combined, Layout, can_combine

    if not list_of_tensor:
        return None
    first = list_of_tensor[0]
    for tensor in list_of_tensor:
        if tensor.dtype is not first.dtype or tensor.device != first.device:
            raise RuntimeError(
                f"npu_combine_tensors: expected tensors of one dtype on one device, got {tensor.dtype} on "
                f"{tensor.device} beside {first.dtype} on {first.device}"
            )
        if tensor.numel() and not can_combine(tensor):
            raise RuntimeError(
                f"npu_combine_tensors: a tensor of shape {list(tensor.shape)} and strides {list(tensor.stride())} has "
                "gaps or a private format; give it .contiguous(), or npu_format_cast(x, 2)"
            )
    combined = Combined(Layout(list_of_tensor, alignment=1), first.dtype, first.device)
    if require_copy_value:
        combined.adopt(list_of_tensor)
    else:
        combined.replace(list_of_tensor)
    return combined.flat


def get_part_combined_tensor(combined_tensor: Tensor | None, index: int, size: int) -> Tensor | None:
    r"""``size`` elements of a combined tensor from element ``index`` on, sharing its memory; None for None.

    Raises RuntimeError where that goes past the end.
    """
    if combined_tensor is None or size == 0:
        return None
    if index < 0 or size < 0 or index + size > combined_tensor.numel():
        raise RuntimeError(
            f"get_part_combined_tensor: elements {index} to {index + size} of a tensor that has "
            f"{combined_tensor.numel()}"
        )
    return combined_tensor.narrow(0, index, size)


def is_combined_tensor_valid(combined_tensor: Tensor | None, list_of_tensor: Sequence[Tensor]) -> bool:
    r"""Whether the tensors are still the parts of ``combined_tensor`` that :func:`npu_combine_tensors` made them."""
    if combined_tensor is None:
        return not list_of_tensor
    address = combined_tensor.data_ptr()
    for tensor in list_of_tensor:
        if tensor.dtype is not combined_tensor.dtype or (tensor.numel() and tensor.data_ptr() != address):
            return False
        address += tensor.numel() * tensor.element_size()
    return address == combined_tensor.data_ptr() + combined_tensor.numel() * combined_tensor.element_size()
