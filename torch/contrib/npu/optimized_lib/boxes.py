r"""Boxes of detectors: overlaps, and the last step of Faster and Mask R-CNN."""

from typing import NamedTuple

import torch

_APART = 4096.0  # no coordinate of an image is larger


def pairwise_iou(boxes1, boxes2) -> torch.Tensor:
    r"""Return the intersection over union of each box of ``boxes1`` with each of ``boxes2``.

    Args:
        boxes1 (Tensor or an object with a ``tensor``): corners ``x1, y1, x2, y2``, of shape (n, 4), floating point
        boxes2 (Tensor or an object with a ``tensor``): likewise, of shape (m, 4), on the same device

    Returns:
        Tensor of shape (n, m); 0 for boxes without an area.

    Raises:
        RuntimeError: shapes do not fit.
    """
    first, second = (b if isinstance(b, torch.Tensor) else b.tensor for b in (boxes1, boxes2))
    if first.device.type == "npu":
        return torch.npu_ptiou(second, first)
    size = (torch.min(first[:, None, 2:], second[:, 2:]) - torch.max(first[:, None, :2], second[:, :2])).clamp(min=0)
    inner = size.prod(2)
    areas = [(b[:, 2:] - b[:, :2]).prod(1) for b in (first, second)]
    union = areas[0][:, None] + areas[1] - inner
    return torch.where(inner > 0, inner / union, 0)


class Detections(NamedTuple):
    r"""What was found in one image, best first; each field has one row per object."""

    image_size: tuple[int, int]
    pred_boxes: torch.Tensor
    scores: torch.Tensor
    pred_classes: torch.Tensor


def _suppress(boxes: torch.Tensor, scores: torch.Tensor, threshold: float) -> torch.Tensor:
    # Indices of the surviving boxes, best first.
    if boxes.device.type == "npu":
        _, index, mask = torch.npu_nms_with_mask(torch.cat([boxes, scores[:, None]], 1), threshold)
        return index[mask.bool()].long()
    order = scores.argsort(descending=True, stable=True)
    covers = pairwise_iou(boxes[order], boxes[order]) > threshold
    kept: list[int] = []
    for i in range(len(order)):
        if not any(covers[k, i] for k in kept):
            kept.append(i)
    return order[kept]


def fast_rcnn_inference_single_image(
    boxes: torch.Tensor,
    scores: torch.Tensor,
    image_shape: tuple[int, int],
    score_thresh: float,
    nms_thresh: float,
    topk_per_image: int,
) -> tuple[Detections, torch.Tensor]:
    r"""Turn an R-CNN's predictions for one image into detections.

    Boxes are clipped to the image, those of a low score and of the background left out, those that overlap a better
    one of the same class suppressed, and the best returned. The number of detections is data, so the host waits.

    Args:
        boxes (Tensor): of shape (n, classes * 4), or (n, 4) for all classes alike
        scores (Tensor): of shape (n, classes + 1), the last column being the background's
        image_shape (tuple): height and width
        score_thresh (float): detections need a higher score
        nms_thresh (float): boxes that overlap a better one of their class by more are suppressed
        topk_per_image (int): the most detections, all if negative

    Returns:
        Detections, and the row of ``boxes`` that each comes from (int64).

    Raises:
        ValueError: shapes do not fit.
    """
    classes = scores.shape[1] - 1
    if boxes.dim() != 2 or boxes.shape[0] != scores.shape[0] or boxes.shape[1] not in (4, 4 * classes):
        raise ValueError(f"boxes of shape (n, 4) or (n, {4 * classes}) expected, got {tuple(boxes.shape)}")
    valid = torch.isfinite(boxes).all(1) & torch.isfinite(scores).all(1)
    boxes = boxes.view(boxes.shape[0], -1, 4)
    height, width = image_shape
    limit = torch.tensor([width, height, width, height], dtype=boxes.dtype, device=boxes.device)
    boxes = torch.minimum(boxes.clamp(min=0), limit)
    chosen = ((scores[:, :-1] > score_thresh) & valid[:, None]).nonzero()
    rows, kinds = chosen[:, 0], chosen[:, 1]
    found = boxes[rows, 0 if boxes.shape[1] == 1 else kinds]
    confidence = scores[rows, kinds]
    # Boxes of different classes are moved apart, so that one pass serves all classes.
    reach = max(_APART, float(max(image_shape)) + 1)
    kept = _suppress(found.float() + kinds[:, None] * reach, confidence.float(), nms_thresh)
    if topk_per_image >= 0:
        kept = kept[:topk_per_image]
    return Detections(tuple(image_shape), found[kept], confidence[kept], kinds[kept]), rows[kept]
