"""Boxes as differences from other boxes, and back."""

import torch

from .anchor_generator import box_dtype_check

_NO_LIMIT = (9999, 9999)


def _means_and_stds(means, stds) -> list[float]:
    return [*(means if means is not None else (0.0,) * 4), *(stds if stds is not None else (1.0,) * 4)]


def npu_bbox_coder_encode_yolo(bboxes, gt_bboxes, stride) -> torch.Tensor:
    """Return what YOLO's heads should say of boxes ``bboxes`` (n, 4) for the targets ``gt_bboxes``.

    ``stride`` (n) holds each box's pixels of a cell. The boxes are on an NPU; see ``torch.npu_yolo_boxes_encode``.
    """
    return torch.npu_yolo_boxes_encode(box_dtype_check(bboxes), box_dtype_check(gt_bboxes), stride)


def npu_bbox_coder_encode_xyxy2xywh(
    bboxes, gt_bboxes, means=None, stds=None, is_normalized=False, normalized_scale=10000.0
) -> torch.Tensor:
    """Return the difference of ``gt_bboxes`` from ``bboxes``, both (n, 4) corners on an NPU, as x, y, width, height.

    Args:
        means, stds: four numbers each, subtracted and divided by; default 0 and 1.
        is_normalized: coordinates lie between 0 and 1 and are multiplied by ``normalized_scale`` before.
    """
    bboxes, gt_bboxes = box_dtype_check(bboxes), box_dtype_check(gt_bboxes)
    if is_normalized:
        bboxes, gt_bboxes = bboxes * normalized_scale, gt_bboxes * normalized_scale
    return torch.npu_bounding_box_encode(bboxes, gt_bboxes, *_means_and_stds(means, stds))


def npu_bbox_coder_decode_xywh2xyxy(
    bboxes, pred_bboxes, means=None, stds=None, max_shape=None, wh_ratio_clip=16 / 1000
) -> torch.Tensor:
    """Return the boxes that differ from ``bboxes`` as ``pred_bboxes`` says, both (n, 4) on an NPU, as corners.

    Args:
        means, stds: those of the encoding.
        max_shape: height and width of the image; default 9999 each.
        wh_ratio_clip: bounds the change of width and height.
    """
    bboxes, pred_bboxes = box_dtype_check(bboxes), box_dtype_check(pred_bboxes)
    limits = list(_NO_LIMIT if max_shape is None else max_shape)
    return torch.npu_bounding_box_decode(bboxes, pred_bboxes, *_means_and_stds(means, stds), limits, wh_ratio_clip)
