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
    # Both tensors at once, and both directions: rows of a tensor (2, 2, n). Returned besides: IoU, and all sizes.
    first, second = torch.stack((boxes1, boxes2)).view(2, 2, 2, -1).unbind(1)
    if trans:
        centre, size = first, second
        low = torch.sub(centre, size, alpha=0.5)
        high = low + size
    else:
        low, high = first, second
        size = high - low
        centre = torch.add(low, size, alpha=0.5)
    (low1, low2), (high1, high2), (centre1, centre2) = low.unbind(0), high.unbind(0), centre.unbind(0)
    wide, tall = (torch.minimum(high1, high2) - torch.maximum(low1, low2)).clamp(min=0).unbind(0)
    inner = wide * tall
    width, height = size.unbind(1)
    hull = torch.maximum(high1, high2) - torch.minimum(low1, low2)
    # What keeps 0 / 0 away is far below a pixel, and not 0 in float16.
    least = _least(boxes1)
    iou = inner / ((width * height).sum(0) - inner + least)
    squares = torch.stack((centre2 - centre1, hull)).square().sum(1)
    apart, diagonal = squares.unbind(0)
    return iou - apart / (diagonal + least), iou, width, height


def _least(boxes) -> float:
    return 1e-9 if boxes.dtype == torch.float32 else 6e-8


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
    distance_iou, iou, width, height = _distance_iou(boxes1, boxes2, trans)
    first, second = torch.atan(width / (height + _least(boxes1))).unbind(0)
    v = (second - first).square() * (4 / math.pi**2)
    with torch.no_grad():
        weight = v / (v - iou).add_(1).add_(_least(boxes1))  # both at once are 1, and boxes that agree 0 / 0
    return torch.addcmul(distance_iou, weight, v, value=-1)[None]
