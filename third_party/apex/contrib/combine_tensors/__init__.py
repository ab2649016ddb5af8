r"""Many tensors as parts of one, as ``torch.npu.utils`` has it."""

from torch.npu.utils.combine_tensors import (
    get_part_combined_tensor,
    is_combined_tensor_valid,
    npu_combine_tensors as combine_npu,
)

__all__ = ["combine_npu", "get_part_combined_tensor", "is_combined_tensor_valid"]
