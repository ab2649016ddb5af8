"""What detectors have in common: anchors, their matching with true boxes, multibox loss, choice of results, recall.

Boxes are x1, y1, x2, y2 in pixels unless said otherwise. Every picture of a batch has the same number of true boxes, so
that matching is a few operators on dense tensors instead of a loop.
"""

from collections.abc import Sequence

import torch.nn.functional as F
from losses import centre_iou
from torchvision.ops import batched_nms

import torch
from torch import Tensor

VARIANCES = (0.1, 0.2)


def grid_anchors(size: int, stride: int, sides: Sequence[float], dense: Sequence[int] | None = None) -> Tensor:
    """Square anchors of each side at each cell of a grid: (cells * sides, 4) as centre x, centre y, width, height.

    ``dense`` repeats a side n x n times within its cell (FaceBoxes' densification).
    """
    cells = -(-size // stride)
    y, x = torch.meshgrid(torch.arange(cells), torch.arange(cells), indexing="ij")
    rows = []
    for side, repeat in zip(sides, dense or [1] * len(sides), strict=True):
        for place in range(repeat * repeat):
            shift = [(index + 0.5) / repeat for index in (place % repeat, place // repeat)]
            extent = torch.full(x.shape, float(side))
            rows.append(torch.stack([(x + shift[0]) * stride, (y + shift[1]) * stride, extent, extent], -1))
    return torch.stack(rows, 2).reshape(-1, 4)


def to_corners(boxes: Tensor) -> Tensor:
    """Centre and extent -> corners."""
    half = boxes[..., 2:] / 2
    return torch.cat([boxes[..., :2] - half, boxes[..., :2] + half], -1)


def to_centres(boxes: Tensor) -> Tensor:
    """Corners -> centre and extent."""
    return torch.cat([(boxes[..., :2] + boxes[..., 2:]) / 2, boxes[..., 2:] - boxes[..., :2]], -1)


def encode(boxes: Tensor, anchors: Tensor) -> Tensor:
    """True boxes (corners) as offsets from anchors (centre and extent), the numbers a detector learns."""
    centred = to_centres(boxes)
    shift = (centred[..., :2] - anchors[..., :2]) / (anchors[..., 2:] * VARIANCES[0])
    scale = (centred[..., 2:] / anchors[..., 2:]).clamp(min=1e-3).log() / VARIANCES[1]
    return torch.cat([shift, scale], -1)


def decode(offsets: Tensor, anchors: Tensor) -> Tensor:
    """The inverse of ``encode``: corners."""
    centre = anchors[..., :2] + offsets[..., :2] * VARIANCES[0] * anchors[..., 2:]
    extent = anchors[..., 2:] * (offsets[..., 2:] * VARIANCES[1]).clamp(max=4).exp()
    return to_corners(torch.cat([centre, extent], -1))


def match(anchors: Tensor, boxes: Tensor, labels: Tensor, threshold: float) -> tuple[Tensor, Tensor, Tensor]:
    """For each anchor the true box it stands for.

    Anchors (n, 4) or (batch, n, 4) as centre and extent, boxes (batch, m, 4), labels (batch, m). Returns labels
    (batch, n), 0 for background and else the box's plus 1, the boxes (batch, n, 4) and their numbers (batch, n). Every
    box gets at least the anchor that overlaps it most.
    """
    corners = to_corners(anchors)
    corners = corners[None].expand(boxes.shape[0], -1, -1) if corners.dim() == 2 else corners
    overlap = centre_iou(corners[:, :, None], boxes[:, None])
    best, number = overlap.max(2)
    own = F.one_hot(overlap.argmax(1), overlap.shape[1]).transpose(1, 2)  # batch, n, m
    forced = own.amax(2) > 0
    number = torch.where(forced, own.argmax(2), number)
    chosen = boxes.gather(1, number[..., None].expand(-1, -1, 4))
    found = labels.gather(1, number) + 1
    return torch.where(forced | (best >= threshold), found, torch.zeros_like(found)), chosen, number


def multibox_loss(scores: Tensor, offsets: Tensor, labels: Tensor, targets: Tensor, ratio: int = 3) -> Tensor:
    """SSD's loss: boxes of positives, classes of positives and of the ``ratio`` times as many hardest negatives.

    Scores (batch, n, classes with background first), offsets and targets (batch, n, 4), labels (batch, n).
    """
    positive = labels > 0
    count = positive.sum().clamp(min=1)
    place = F.smooth_l1_loss(offsets, targets, reduction="none").sum(2)
    kind = F.cross_entropy(scores.transpose(1, 2), labels, reduction="none")
    hardness = kind.detach().masked_fill(positive, -1.0)
    rank = hardness.argsort(dim=1, descending=True, stable=True).argsort(dim=1)
    negative = (rank < ratio * positive.sum(1, keepdim=True)) & ~positive
    return ((place * positive).sum() + (kind * (positive | negative)).sum()) / count


def choose(boxes: Tensor, scores: Tensor, threshold: float = 0.5, most: int = 10, candidates: int = 100) -> Tensor:
    """The best boxes of one picture after non-maximum suppression in each class: (up to most, 4).

    Boxes (n, 4), scores (n, classes) without background.
    """
    best, label = scores.max(1)
    best, order = best.topk(min(candidates, len(best)))
    boxes = boxes[order]
    return boxes[batched_nms(boxes, best, label[order], threshold)[:most]]


def recall(found: Sequence[Tensor], truth: Tensor, threshold: float = 0.5) -> dict[str, Tensor]:
    """How well true boxes (batch, m, 4) are covered by the chosen ones: the share found, and the mean best overlap."""
    best = torch.stack([centre_iou(t[:, None], f[None]).amax(1) for t, f in zip(truth, found, strict=True)])
    return {"recall": (best >= threshold).float().mean(), "mean best IoU": best.mean()}


def landmarks_of(boxes: Tensor) -> Tensor:
    """Five points of a face in each box: (..., 4) -> (..., 10)."""
    spots = boxes.new_tensor([[0.3, 0.35], [0.7, 0.35], [0.5, 0.55], [0.35, 0.8], [0.65, 0.8]])
    extent = boxes[..., 2:] - boxes[..., :2]
    return (boxes[..., None, :2] + spots * extent[..., None, :]).flatten(-2)
