r"""Overlaps of boxes that count the distance of their centres and their shapes, and their gradients."""

import math

import torch
from torch import Tensor

from ._attention import wide
from ._checks import FLOATING, check, check_dtype
from ._registration import operator


def _check_boxes(name: str, boxes: Tensor, truth: Tensor, is_cross: bool, mode: int) -> None:
    check_dtype(name, "boxes", boxes, (*FLOATING, torch.float64))
    check(
        boxes.dim() == 2
        and truth.dim() == 2
        and boxes.shape[0] == 4
        and truth.shape[0] == 4
        and (is_cross or boxes.shape == truth.shape)
        and boxes.dtype == truth.dtype,
        name,
        f"boxes must be (4, n) and (4, m), of one dtype, and as many without is_cross, but are {tuple(boxes.shape)}, "
        f"{boxes.dtype} and {tuple(truth.shape)}, {truth.dtype}",
    )
    check(mode in (0, 1), name, f"mode must be 0 or 1, but is {mode}")


def _corners(boxes: Tensor, centred: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    x, y, right, lower = boxes.unbind(0)
    return (x - right / 2, y - lower / 2, x + right / 2, y + lower / 2) if centred else (x, y, right, lower)


def _overlap(
    name: str, boxes: Tensor, truth: Tensor, trans: bool, is_cross: bool, mode: int
) -> tuple[Tensor, Tensor, Tensor]:
    r"""The overlap less the distance of the centres; the overlap; the difference of the shapes' angles."""
    _check_boxes(name, boxes, truth, is_cross, mode)
    one = wide(boxes).unsqueeze(1)
    other = wide(truth).unsqueeze(2 if is_cross else 1)
    ax, ay, ar, al = _corners(one, trans)
    bx, by, br, bl = _corners(other, trans)
    width, height, of_truth = ar - ax, al - ay, (br - bx) * (bl - by)
    shared = (torch.minimum(ar, br) - torch.maximum(ax, bx)).clamp(min=0) * (
        torch.minimum(al, bl) - torch.maximum(ay, by)
    ).clamp(min=0)
    iou = shared / (of_truth if mode == 1 else width * height + of_truth - shared)
    diagonal = (torch.maximum(ar, br) - torch.minimum(ax, bx)).square() + (
        torch.maximum(al, bl) - torch.minimum(ay, by)
    ).square()
    apart = ((ax + ar - bx - br).square() + (ay + al - by - bl).square()) / 4
    angle = torch.atan((br - bx) / (bl - by)) - torch.atan(width / height)
    return iou - apart / diagonal, iou, angle


def _complete(name, boxes, truth, trans, is_cross, mode) -> Tensor:
    distant, iou, angle = _overlap(name, boxes, truth, trans, is_cross, mode)
    shape = 4 / math.pi**2 * angle.square()
    # The share of the shape is a constant for gradients, as the definition has it.
    share = (shape / (1 - iou + shape)).detach()
    # Equal boxes: nothing over nothing.
    share = torch.where(shape.detach() == 0, 0.0, share)
    return (distant - share * shape).to(boxes.dtype)


_CIOU = "bool trans=False, bool is_cross=True, int mode=0"
_DIOU = "bool trans=False, bool is_cross=False, int mode=0"


@operator(f"npu_diou(Tensor self, Tensor gtboxes, {_DIOU}) -> Tensor")
def npu_diou(self, gtboxes, trans=False, is_cross=False, mode=0) -> Tensor:
    r"""
    The overlap of boxes, less the squared distance of their centres over that of the corners of what holds both.

    Args:
        self: (4, n), floating: corners x1, y1, x2, y2, or with ``trans`` centre, width and height.
        gtboxes: (4, m), of the dtype of ``self``; (4, n) without ``is_cross``.
        trans: whether boxes are told by their centres.
        is_cross: whether each box meets each other.
        mode: what the shared area is divided by: 0: that of both, 1: that of the box of ``gtboxes``.

    Returns:
        (m, n), or (1, n) without ``is_cross``; of the dtype of ``self``.

    Raises:
        RuntimeError: for shapes, dtypes and modes that do not fit.
    """
    return _overlap("npu_diou", self, gtboxes, trans, is_cross, mode)[0].to(self.dtype)


def _gradients(name: str, function, grad: Tensor, bboxes: Tensor, gtboxes: Tensor, trans, is_cross, mode):
    if is_cross or mode != 0:
        raise NotImplementedError(f"{name}: is_cross must be False and mode 0, not {is_cross} and {mode}")
    # Also where the caller records no gradients.
    with torch.inference_mode(False), torch.enable_grad():
        inputs = bboxes.detach().clone().requires_grad_(), gtboxes.detach().clone().requires_grad_()
        out = function(name, *inputs, trans, False, 0)
        check(grad.numel() == out.numel(), name, f"grad must have {out.numel()} elements, but is {tuple(grad.shape)}")
        first, second = torch.autograd.grad(out, inputs, grad.detach().clone().reshape(out.shape).to(out.dtype))
    return first, second


@operator(f"npu_diou_backward(Tensor grad, Tensor bboxes, Tensor gtboxes, {_DIOU}) -> (Tensor, Tensor)")
def npu_diou_backward(grad, bboxes, gtboxes, trans=False, is_cross=False, mode=0) -> tuple[Tensor, Tensor]:
    r"""
    The gradient of :func:`npu_diou`.

    Args:
        grad: gradient of its result.
        bboxes: ``self`` there.
        gtboxes: as there.
        trans: as there.
        is_cross: must be False.
        mode: must be 0.

    Returns:
        The gradients of ``bboxes`` and ``gtboxes``.

    Raises:
        NotImplementedError: for ``is_cross`` and ``mode`` 1.
    """

    def distant(*given):
        return _overlap(*given)[0].to(bboxes.dtype)

    return _gradients("npu_diou_backward", distant, grad, bboxes, gtboxes, trans, is_cross, mode)


@operator(f"npu_ciou(Tensor self, Tensor gtboxes, {_CIOU}, bool atan_sub_flag=False) -> Tensor")
def npu_ciou(self, gtboxes, trans=False, is_cross=True, mode=0, atan_sub_flag=False) -> Tensor:
    r"""
    :func:`npu_diou` less the share of v = 4 / pi ** 2 * (the difference of atan(width / height)) ** 2.

    The share is v / (1 - overlap + v); gradients take it as a constant.

    Args:
        self: as there.
        gtboxes: as there.
        trans: as there.
        is_cross: as there.
        mode: as there.
        atan_sub_flag: whether a gradient reads the difference again; without effect.

    Returns:
        (m, n), or (1, n) without ``is_cross``; of the dtype of ``self``.

    Raises:
        RuntimeError: for shapes, dtypes and modes that do not fit.
    """
    return _complete("npu_ciou", self, gtboxes, trans, is_cross, mode)


@operator(f"_npu_ciou(Tensor self, Tensor gtboxes, {_CIOU}, bool atan_sub_flag=False) -> (Tensor, Tensor)")
def _npu_ciou(self, gtboxes, trans=False, is_cross=True, mode=0, atan_sub_flag=False) -> tuple[Tensor, Tensor]:
    r"""
    :func:`npu_ciou`, and a place for the difference of the angles.

    Args:
        self: as there.
        gtboxes: as there.
        trans: as there.
        is_cross: as there.
        mode: as there.
        atan_sub_flag: must be False: the sign of the difference is not documented.

    Returns:
        Its result, and an empty tensor.

    Raises:
        RuntimeError: for shapes, dtypes and modes that do not fit.
        NotImplementedError: for ``atan_sub_flag``.
    """
    if atan_sub_flag:
        raise NotImplementedError(
            "_npu_ciou: atan_sub_flag must be False: the sign of the difference is not documented"
        )
    return _complete("_npu_ciou", self, gtboxes, trans, is_cross, mode), self.new_empty(0)


@operator(
    f"npu_ciou_backward(Tensor grad, Tensor bboxes, Tensor gtboxes, Tensor? atan_sub, {_CIOU}) -> (Tensor, Tensor)"
)
def npu_ciou_backward(grad, bboxes, gtboxes, atan_sub, trans=False, is_cross=True, mode=0) -> tuple[Tensor, Tensor]:
    r"""
    The gradient of :func:`npu_ciou`.

    Args:
        grad: gradient of its result.
        bboxes: ``self`` there.
        gtboxes: as there.
        atan_sub: not read: the difference is made again.
        trans: as there.
        is_cross: must be False.
        mode: must be 0.

    Returns:
        The gradients of ``bboxes`` and ``gtboxes``.

    Raises:
        NotImplementedError: for ``is_cross`` and ``mode`` 1.
    """
    return _gradients("npu_ciou_backward", _complete, grad, bboxes, gtboxes, trans, is_cross, mode)
