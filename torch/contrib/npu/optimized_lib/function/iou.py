"""How much boxes overlap: IoU, and what bounding-box losses make of it."""

import math

import torch

from .anchor_generator import box_dtype_check

_PER_TURN = 4 / math.pi**2


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


class _Overlap(torch.autograd.Function):
    # IoU less penalties. Both boxes and both directions are rows of tensors (2, 2, n), and the gradient is written out:
    # a third of the operators that autograd would run. Where sides coincide, one of the boxes gets all of it.

    @staticmethod
    def forward(ctx, boxes1, boxes2, trans, complete):
        # What keeps 0 / 0 away is far below a pixel, and not 0 in float16.
        least = 1e-9 if boxes1.dtype == torch.float32 else 6e-8
        first, second = torch.stack((boxes1[:2], boxes2[:2])), torch.stack((boxes1[2:], boxes2[2:]))
        if trans:
            size, low = second, torch.sub(first, second, alpha=0.5)
            high = low + size
            gap = first[1] - first[0]
        else:
            low, high, size = first, second, second - first
            gap = (low[1] + high[1] - low[0] - high[0]) / 2
        inside = (torch.minimum(high[0], high[1]) - torch.maximum(low[0], low[1])).clamp_(min=0)
        inner = inside[0] * inside[1]
        union = (size[:, 0] * size[:, 1]).sum(0).sub_(inner).add_(least)
        iou = inner / union
        hull = torch.maximum(high[0], high[1]) - torch.minimum(low[0], low[1])
        diagonal = hull.square().sum(0).add_(least)
        penalty = gap.square().sum(0).div_(diagonal)
        y = iou - penalty
        turn = weight = None
        if complete:
            angle = torch.atan(size[:, 0] / (size[:, 1] + least))
            turn = angle[1] - angle[0]
            v = turn.square().mul_(_PER_TURN)
            weight = v / (v - iou).add_(1).add_(least)  # both at once are 1, and boxes that agree 0 / 0
            y.addcmul_(weight, v, value=-1)
        ctx.trans = trans
        ctx.save_for_backward(low, high, size, gap, inside, union, iou, hull, diagonal, penalty, turn, weight)
        return y[None]

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad):
        low, high, size, gap, inside, union, iou, hull, diagonal, penalty, turn, weight = ctx.saved_tensors
        grad = grad[0]
        by_inner, by_distance = grad / union, grad / diagonal
        by_area = (by_inner * iou).neg_()
        by_inside = (inside.flip(0) * (by_inner - by_area)).mul_(inside > 0)
        by_hull = hull * (by_distance * penalty).mul_(2)
        by_gap = gap * by_distance.mul_(-2)
        # The nearer side bounds what is shared, the farther one the box around both.
        nearer, below = high[0] < high[1], low[0] < low[1]
        by_high = torch.stack((torch.where(nearer, by_inside, by_hull), torch.where(nearer, by_hull, by_inside)))
        by_low = torch.stack((torch.where(below, by_hull, by_inside), torch.where(below, by_inside, by_hull))).neg_()
        by_size = size.flip(1) * by_area
        if turn is not None:
            spin = (grad * weight).mul_(turn).mul_(-2 * _PER_TURN) / size.square().sum(1)
            spin[0].neg_()
            by_size[:, 0].addcmul_(size[:, 1], spin)
            by_size[:, 1].addcmul_(size[:, 0], spin, value=-1)
        if ctx.trans:
            by_first, by_second = by_high + by_low, by_size.add_(by_high - by_low, alpha=0.5)
            by_first[0].sub_(by_gap)
            by_first[1].add_(by_gap)
        else:
            by_first, by_second = by_low - by_size, by_high + by_size
            for part in (by_first, by_second):
                part[0].sub_(by_gap, alpha=0.5)
                part[1].add_(by_gap, alpha=0.5)
        return torch.cat((by_first[0], by_second[0])), torch.cat((by_first[1], by_second[1])), None, None


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
    return _Overlap.apply(boxes1, boxes2, trans, False)


def npu_ciou(boxes1, boxes2, trans=True, is_cross=False, mode=0) -> torch.Tensor:
    """Return the complete IoU of pairs of boxes, of shape (1, n): :func:`npu_diou` less ``a * v`` (Zheng et al., 2020).

    ``v`` is how much the proportions differ, ``4 / pi² * (atan(w2 / h2) - atan(w1 / h1))²``; its weight
    ``a = v / (1 - IoU + v)`` is a constant to the gradient, as losses have it. A loss is ``1 - npu_ciou(...)``.
    Arguments and errors are those of :func:`npu_diou`.
    """
    boxes1, boxes2 = _pairs("npu_ciou", boxes1, boxes2, is_cross, mode)
    return _Overlap.apply(boxes1, boxes2, trans, True)
