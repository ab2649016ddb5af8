"""Losses and measures that several families use."""

import torch.nn.functional as F

import torch
from torch import Tensor, nn


def accuracy(scores: Tensor, labels: Tensor) -> Tensor:
    """The share of samples whose largest score (dimension 1) is at their label."""
    return (scores.argmax(1) == labels).float().mean()


def dice_loss(probabilities: Tensor, targets: Tensor, weight: Tensor | None = None) -> Tensor:
    """One minus the overlap of each sample's map with its target, averaged; ``weight`` masks pixels."""
    p, t = probabilities.flatten(1), targets.flatten(1)
    if weight is not None:
        p, t = p * weight.flatten(1), t * weight.flatten(1)
    return 1 - ((2 * (p * t).sum(1) + 1) / (p.square().sum(1) + t.square().sum(1) + 1)).mean()


def mean_iou(scores: Tensor, labels: Tensor) -> Tensor:
    """Intersection over union, averaged over the classes of ``scores`` (batch, classes, ...) that occur."""
    classes = scores.shape[1]
    guess, truth = (F.one_hot(x.flatten(), classes).float() for x in (scores.argmax(1), labels))
    both = (guess * truth).sum(0)
    either = guess.sum(0) + truth.sum(0) - both
    return (both / either.clamp(min=1)).sum() / (either > 0).sum()


def heatmap_focal(logits: Tensor, target: Tensor) -> Tensor:
    """CenterNet's focal loss: pixels near a centre (target just below 1) count less as negatives."""
    p = logits.float().sigmoid().clamp(1e-4, 1 - 1e-4)
    centre = (target == 1).float()
    hits = centre * (1 - p).square() * p.log()
    misses = (1 - centre) * (1 - target).pow(4) * p.square() * (1 - p).log()
    return -(hits.sum() + misses.sum()) / centre.sum().clamp(min=1)


def focal_loss(logits: Tensor, targets: Tensor, alpha: float = 0.25) -> Tensor:
    """Sigmoid focal loss with gamma 2, summed."""
    plain = F.binary_cross_entropy_with_logits(logits, targets, reduction="none")
    p = logits.sigmoid()
    hit = p * targets + (1 - p) * (1 - targets)
    return ((alpha * targets + (1 - alpha) * (1 - targets)) * (1 - hit).square() * plain).sum()


def smoothed_cross_entropy(scores: Tensor, labels: Tensor, smoothing: float = 0.1) -> Tensor:
    return F.cross_entropy(scores, labels, label_smoothing=smoothing)


def pairwise_distances(a: Tensor, b: Tensor) -> Tensor:
    """Euclidean distances (rows of a, rows of b); by products, so that it is one matrix product."""
    squares = a.square().sum(1)[:, None] + b.square().sum(1)[None] - 2 * a @ b.t()
    return squares.clamp(min=1e-6).sqrt()


def hardest_triplets(distances: Tensor, labels: Tensor, margin: float = 0.3) -> Tensor:
    """Batch-hard triplet loss: each sample against its farthest friend and its nearest stranger.

    With a margin of 0 the soft form, log(1 + exp(friend - stranger)).
    """
    same = labels[:, None] == labels[None]
    friend = distances.masked_fill(~same, float("-inf")).amax(1)
    stranger = distances.masked_fill(same, float("inf")).amin(1)
    if margin == 0:
        return F.softplus(friend - stranger).mean()
    return F.relu(friend - stranger + margin).mean()


def all_triplets(distances: Tensor, labels: Tensor, margin: float = 0.2) -> Tensor:
    """Triplet loss over all triplets, averaged over those that still cost something (GaitSet)."""
    same = labels[:, None] == labels[None]
    cost = F.relu(margin + distances[:, :, None] - distances[:, None, :])
    cost = cost * (same[:, :, None] & ~same[:, None, :])
    return cost.sum() / (cost > 0).sum().clamp(min=1)


def rank_one(features: Tensor, labels: Tensor) -> Tensor:
    """The share of samples whose nearest other sample is of the same identity."""
    distances = pairwise_distances(features.float(), features.float())
    nearest = distances.masked_fill(torch.eye(len(labels), dtype=torch.bool, device=labels.device), 1e9).argmin(1)
    return (labels[nearest] == labels).float().mean()


def peak_signal_to_noise(result: Tensor, truth: Tensor) -> Tensor:
    """In decibels, for pictures in 0..1."""
    return -10 * (result.clamp(0, 1) - truth).square().mean().log10()


class CTC(nn.Module):
    """Connectionist temporal classification of sequences that all have the same length.

    Scores (time, batch, symbols with the blank as number 0), labels (batch, length).
    """

    def forward(self, scores: Tensor, labels: Tensor) -> Tensor:
        time, batch = scores.shape[:2]
        # The lengths stay on the host, where the operator needs them.
        times = torch.full((batch,), time, dtype=torch.long)
        lengths = torch.full((batch,), labels.shape[1], dtype=torch.long)
        return F.ctc_loss(scores.float().log_softmax(2), labels, times, lengths, zero_infinity=True)


def greedy_text(scores: Tensor) -> list[list[int]]:
    """The best symbol of each moment, repetitions merged and blanks left out: (time, batch, symbols) -> texts."""
    texts = []
    for line in scores.argmax(2).t().tolist():
        changes = [symbol for place, symbol in enumerate(line) if place == 0 or symbol != line[place - 1]]
        texts.append([symbol for symbol in changes if symbol != 0])
    return texts


def edit_distance(a: list[int], b: list[int]) -> int:
    """How many symbols must be changed, put in or left out to turn one into the other."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        previous, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            previous, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, previous + (x != y))
    return row[-1]


def symbol_errors(scores: Tensor, labels: Tensor) -> float:
    """Wrong symbols for each symbol of the labels, after greedy decoding."""
    texts = greedy_text(scores)
    wrong = sum(edit_distance(text, label) for text, label in zip(texts, labels.tolist(), strict=True))
    return wrong / labels.numel()


def centre_iou(a: Tensor, b: Tensor, kind: str = "plain") -> Tensor:
    """Overlap of boxes (..., 4) given as x1, y1, x2, y2, pairwise along the leading dimensions.

    ``kind`` is plain, or ciou: less for boxes whose centres and proportions differ (YOLOv4).
    """
    x1, y1 = torch.maximum(a[..., 0], b[..., 0]), torch.maximum(a[..., 1], b[..., 1])
    x2, y2 = torch.minimum(a[..., 2], b[..., 2]), torch.minimum(a[..., 3], b[..., 3])
    both = (x2 - x1).clamp(min=0) * (y2 - y1).clamp(min=0)
    wa, ha = a[..., 2] - a[..., 0], a[..., 3] - a[..., 1]
    wb, hb = b[..., 2] - b[..., 0], b[..., 3] - b[..., 1]
    iou = both / (wa * ha + wb * hb - both + 1e-7)
    if kind == "plain":
        return iou
    hull_w = torch.maximum(a[..., 2], b[..., 2]) - torch.minimum(a[..., 0], b[..., 0])
    hull_h = torch.maximum(a[..., 3], b[..., 3]) - torch.minimum(a[..., 1], b[..., 1])
    diagonal = hull_w.square() + hull_h.square() + 1e-7
    dx = (a[..., 0] + a[..., 2] - b[..., 0] - b[..., 2]) / 2
    dy = (a[..., 1] + a[..., 3] - b[..., 1] - b[..., 3]) / 2
    shape = 0.405284735 * (torch.atan(wb / (hb + 1e-7)) - torch.atan(wa / (ha + 1e-7))).square()  # 4 / pi ** 2
    with torch.no_grad():
        weight = shape / (1 - iou + shape + 1e-7)
    return iou - (dx.square() + dy.square()) / diagonal - weight * shape
