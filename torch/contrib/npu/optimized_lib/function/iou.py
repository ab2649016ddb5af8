"""How much boxes overlap: IoU, and what bounding-box losses make of it."""

import math

import torch

from .anchor_generator import box_dtype_check


def npu_iou(boxes1, boxes2, mode="ptiou", is_normalized=False, normalized_scale=100.0) -> torch.Tensor:
    """Return the intersection over union of each of ``boxes1`` with each of ``boxes2``, of shape (n, m).

    Args:
        boxes1: of shape (n, 4), corners ``x1, y1, x2, y2``, on an NPU; integers become float32.
        boxes2: of shape (m, 4), likewise.
        mode: "iou" or "ptiou". The plug-in adds 0.001 to the areas, by one as by the other; here nothing is added, so
            that both are the same, and boxes without an area overlap nothing.
        is_normalized: coordinates lie between 0 and 1 and are multiplied by ``normalized_scale`` before.

    There is no gradient: :func:`npu_giou`, :func:`npu_diou` and :func:`npu_ciou` have one.

    Raises:
        ValueError: another mode.
    """
    if mode not in ("iou", "ptiou"):
        raise ValueError(f"npu_iou: mode is 'iou' or 'ptiou', not {mode!r}")
    boxes1, boxes2 = box_dtype_check(boxes1), box_dtype_check(boxes2)
    if is_normalized:
        boxes1, boxes2 = boxes1 * normalized_scale, boxes2 * normalized_scale
    return (torch.npu_iou if mode == "iou" else torch.npu_ptiou)(boxes2, boxes1)


npu_ptiou = npu_iou


def npu_giou(boxes1, boxes2, is_permuted=True) -> torch.Tensor:
    """Return the generalised IoU of pairs of boxes, of shape (n, 1): see ``torch.npu_giou``.

    Args:
        boxes1, boxes2: centre, width and height of each box, of shape (n, 4), or (4, n) without ``is_permuted``.

    Raises:
        ValueError: the shapes differ.
    """
    if boxes1.shape != boxes2.shape:
        raise ValueError(f"npu_giou: pairs of boxes expected, got {tuple(boxes1.shape)} and {tuple(boxes2.shape)}")
    boxes1, boxes2 = box_dtype_check(boxes1), box_dtype_check(boxes2)
    if is_permuted:
        boxes1, boxes2 = boxes1.permute(1, 0), boxes2.permute(1, 0)
    return torch.npu_giou(boxes1, boxes2, trans=True, is_cross=False)


def _pairs(name, boxes1, boxes2, is_cross, mode):
    if mode != 0 or is_cross:
        raise NotImplementedError(f"{name}: is_cross=False and mode=0 are supported, not {is_cross} and {mode}")
    if boxes1.shape != boxes2.shape or boxes1.dim() != 2 or boxes1.shape[0] != 4:
        raise ValueError(
            f"{name}: two tensors of shape (4, n) expected, got {tuple(boxes1.shape)} and {tuple(boxes2.shape)}"
        )
    return box_dtype_check(boxes1), box_dtype_check(boxes2)


def _distance_iou(boxes1, boxes2, trans):
    # Both coordinates at once, rows 0 and 1 of each tensor; what is returned besides: IoU, and both sizes.
    if trans:
        size1, size2 = boxes1[2:], boxes2[2:]
        low1, low2 = torch.sub(boxes1[:2], size1, alpha=0.5), torch.sub(boxes2[:2], size2, alpha=0.5)
        high1, high2 = low1 + size1, low2 + size2
        apart = boxes2[:2] - boxes1[:2]
    else:
        low1, high1, low2, high2 = boxes1[:2], boxes1[2:], boxes2[:2], boxes2[2:]
        size1, size2 = high1 - low1, high2 - low2
        apart = (low2 + high2 - low1 - high1) / 2
    inner = (torch.minimum(high1, high2) - torch.maximum(low1, low2)).clamp(min=0).prod(0)
    hull = torch.maximum(high1, high2) - torch.minimum(low1, low2)
    # What keeps 0 / 0 away is far below a pixel, and not 0 in float16.
    least = 1e-9 if boxes1.dtype == torch.float32 else 6e-8
    iou = inner / (size1.prod(0) + size2.prod(0) - inner + least)
    return iou - apart.square().sum(0) / (hull.square().sum(0) + least), iou, size1, size2


def npu_diou(boxes1, boxes2, trans=True, is_cross=False, mode=0) -> torch.Tensor:
    """Return the distance IoU of pairs of boxes, of shape (1, n): IoU less ``d² / c²`` (Zheng et al., 2020).

    ``d`` is the distance of the centres, ``c`` the diagonal of the smallest box around both.

    Args:
        boxes1, boxes2: of shape (4, n): centre, width and height; corners ``x1, y1, x2, y2`` without ``trans``.
        is_cross, mode: only False and 0.

    Raises:
        ValueError: shapes do not fit.
        NotImplementedError: for what is said to have one value only.
    """
    boxes1, boxes2 = _pairs("npu_diou", boxes1, boxes2, is_cross, mode)
    return _distance_iou(boxes1, boxes2, trans)[0][None]


def npu_ciou(boxes1, boxes2, trans=True, is_cross=False, mode=0) -> torch.Tensor:
    """Return the complete IoU of pairs of boxes, of shape (1, n): :func:`npu_diou` less ``a * v`` (Zheng et al., 2020).

    ``v`` is how much the proportions differ, ``4 / pi² * (atan(w2 / h2) - atan(w1 / h1))²``; its weight
    ``a = v / (1 - IoU + v)`` is a constant to the gradient, as losses have it. A loss is ``1 - npu_ciou(...)``.
    Arguments and errors are those of :func:`npu_diou`.
    """
    boxes1, boxes2 = _pairs("npu_ciou", boxes1, boxes2, is_cross, mode)
    distance_iou, iou, size1, size2 = _distance_iou(boxes1, boxes2, trans)
    least = 1e-9 if boxes1.dtype == torch.float32 else 6e-8
    turned = torch.atan(size2[0] / (size2[1] + least)) - torch.atan(size1[0] / (size1[1] + least))
    v = turned.square() * (4 / math.pi**2)
    with torch.no_grad():
        weight = v / (v - iou).add_(1).add_(least)  # both at once are 1, and boxes that agree 0 / 0
    return torch.addcmul(distance_iou, weight, v, value=-1)[None]
