"""Which anchors of a feature map answer for a box."""

import torch


def box_dtype_check(box: torch.Tensor) -> torch.Tensor:
    """Return boxes in float32, unless they are in float32 or float16."""
    return box if box.dtype in (torch.float32, torch.float16) else box.float()


def npu_single_level_responsible_flags(featmap_size, gt_bboxes, stride, num_base_anchors) -> torch.Tensor:
    """Return 1 for each anchor of each cell of one feature map in which a box has its centre (uint8).

    Args:
        featmap_size: height and width of the map.
        gt_bboxes: boxes of shape (n, 4), corners ``x1, y1, x2, y2``, on an NPU.
        stride: pixels of a cell in x and y.
        num_base_anchors: anchors of a cell.
    """
    return torch.npu_anchor_response_flags(box_dtype_check(gt_bboxes), featmap_size, stride, num_base_anchors)
