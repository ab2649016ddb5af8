"""What affinity.py measures and test_affinity.py compares: each name of the affinity library beside its plain form.

The plain form is what models write without the library. Both take the same tensors, which come from CPU generators, and
the same parameters, so that results and gradients are comparable on any device.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from torch.nn import functional as F

import torch
from torch import Tensor, nn
from torch.contrib.npu import optimized_lib as lib
from torch.contrib.npu.optimized_lib import function


@dataclass
class Kit:
    """Makes the operands of a case: small for comparing, large for measuring."""

    device: str = "cpu"
    dtype: torch.dtype = torch.float32
    large: bool = False
    draws: bool = False  # dropout drops: for measuring; for comparing it does not
    generator: torch.Generator = field(default_factory=lambda: torch.Generator().manual_seed(7))

    def size(self, small: int, large: int) -> int:
        return large if self.large else small

    def put(self, x: Tensor, grad: bool = False) -> Tensor:
        """On the device; numbers are those that float16 has, so that they are alike in every dtype."""
        if x.is_floating_point():
            x = x.half().to(self.dtype)
        return x.to(self.device).requires_grad_(grad)

    def rand(self, *shape: int, grad: bool = False) -> Tensor:
        return self.put(torch.rand(*shape, generator=self.generator) * 2 - 1, grad)

    def whole(self, low: int, high: int, *shape: int, dtype: torch.dtype = torch.int64) -> Tensor:
        return torch.randint(low, high, shape, generator=self.generator, dtype=dtype).to(self.device)

    def boxes(self, n: int, grad: bool = False) -> Tensor:
        """Corners within 256 pixels."""
        corner = torch.rand(n, 2, generator=self.generator) * 200
        size = 8 + torch.rand(n, 2, generator=self.generator) * 48
        return self.put(torch.cat([corner, corner + size], 1), grad)

    def centred(self, n: int, grad: bool = False) -> Tensor:
        """Centre, width, height in four rows."""
        centre = torch.rand(2, n, generator=self.generator) * 16
        return self.put(torch.cat([centre, 4 + torch.rand(2, n, generator=self.generator) * 16]), grad)

    def place(self, layer: nn.Module) -> nn.Module:
        with torch.no_grad():
            for p in layer.parameters():
                if p.is_floating_point():
                    p.copy_(torch.rand(p.shape, generator=self.generator).sub_(0.5).half())
        return layer.to(self.device, self.dtype)


@dataclass
class Made:
    """A case on a device: two callables of the same operands, and what gradients are wanted of."""

    affinity: Callable[[], Tensor | tuple[Tensor, ...]]
    plain: Callable[[], Tensor | tuple[Tensor, ...]]
    wanted: list[Tensor] = field(default_factory=list)


@dataclass
class Case:
    """One name. ``half``: whether it takes float16; ``same``: it is the plain operator under another name."""

    name: str
    make: Callable[[Kit], Made]
    half: bool = True
    same: bool = False
    tolerance: float = 1e-4
    half_tolerance: float = 2e-2


# --- functions ---


def matmul_transpose(k: Kit) -> Made:
    a, b = (k.rand(k.size(2, 8), 4, k.size(5, 128), k.size(8, 64), grad=True) for _ in range(2))
    return Made(lambda: function.matmul_transpose(a, b), lambda: torch.matmul(a, b.transpose(-2, -1)), [a, b])


def fuse_add_softmax_dropout(k: Kit) -> Made:
    batch, length, p = k.size(2, 8), k.size(6, 128), 0.1 if k.draws else 0.0
    scores, mask = k.rand(batch, 4, length, length, grad=True), k.rand(batch, 1, 1, length).expand(-1, 4, length, -1)
    mask = mask.contiguous()
    dropout = nn.Dropout(p)

    def plain():
        return F.dropout(torch.softmax(scores / math.sqrt(64) + mask, -1), p, True)

    return Made(lambda: function.fuse_add_softmax_dropout(True, dropout, mask, scores, 64, p=p), plain, [scores])


def condition_index_put(k: Kit) -> Made:
    x = k.rand(k.size(3, 64), k.size(5, 100), 4)
    condition = x.abs() > 0.5

    def plain():
        y = x.clone()
        y[condition] = 2.0
        return y

    return Made(lambda: function.npu_fast_condition_index_put(x, condition, 2.0), plain)


def roll(k: Kit) -> Made:
    x = k.rand(k.size(2, 16), k.size(6, 56), k.size(6, 56), k.size(3, 96), grad=True)
    return Made(lambda: function.roll(x, (-3, -3), (1, 2)), lambda: torch.roll(x, (-3, -3), (1, 2)), [x])


def byte_mask(k: Kit) -> Made:
    x, p = k.rand(k.size(4, 256), k.size(5, 1024), grad=True), 0.3 if k.draws else 0.0
    return Made(lambda: function.dropout_with_byte_mask(x, p), lambda: F.dropout(x, p), [x])


def box_iou(a: Tensor, b: Tensor) -> Tensor:
    """As torchvision and detectron2 write it, for each box with each."""
    area_a, area_b = ((x[:, 2] - x[:, 0]) * (x[:, 3] - x[:, 1]) for x in (a, b))
    low, high = torch.max(a[:, None, :2], b[:, :2]), torch.min(a[:, None, 2:], b[:, 2:])
    size = (high - low).clamp(min=0)
    inner = size[..., 0] * size[..., 1]
    return inner / (area_a[:, None] + area_b - inner)


def overlaps(affinity: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Kit], Made]:
    def make(k: Kit) -> Made:
        a, b = k.boxes(k.size(9, 512)), k.boxes(k.size(5, 128))
        return Made(lambda: affinity(a, b), lambda: box_iou(a, b))

    return make


def bbox_iou(a: Tensor, b: Tensor, kind: str) -> Tensor:
    """As YOLO's losses write it: pairs of centre, width and height, (4, n)."""
    ax1, ax2, ay1, ay2 = a[0] - a[2] / 2, a[0] + a[2] / 2, a[1] - a[3] / 2, a[1] + a[3] / 2
    bx1, bx2, by1, by2 = b[0] - b[2] / 2, b[0] + b[2] / 2, b[1] - b[3] / 2, b[1] + b[3] / 2
    wide = (torch.min(ax2, bx2) - torch.max(ax1, bx1)).clamp(0)
    high = (torch.min(ay2, by2) - torch.max(ay1, by1)).clamp(0)
    inner, least = wide * high, 1e-9 if a.dtype == torch.float32 else 6e-8
    w1, h1, w2, h2 = ax2 - ax1, ay2 - ay1 + least, bx2 - bx1, by2 - by1 + least
    union = w1 * h1 + w2 * h2 - inner + least
    iou = inner / union
    cw, ch = torch.max(ax2, bx2) - torch.min(ax1, bx1), torch.max(ay2, by2) - torch.min(ay1, by1)
    if kind == "giou":
        hull = cw * ch + least
        return iou - (hull - union) / hull
    diagonal = cw**2 + ch**2 + least
    apart = ((bx1 + bx2 - ax1 - ax2) ** 2 + (by1 + by2 - ay1 - ay2) ** 2) / 4
    if kind == "diou":
        return iou - apart / diagonal
    v = (4 / math.pi**2) * torch.pow(torch.atan(w2 / h2) - torch.atan(w1 / h1), 2)
    with torch.no_grad():
        weight = v / ((1 - iou + v) + least)
    return iou - (apart / diagonal + v * weight)


def paired(kind: str) -> Callable[[Kit], Made]:
    def make(k: Kit) -> Made:
        a, b = (k.centred(k.size(7, 4096), grad=True) for _ in range(2))
        if kind == "giou":
            return Made(lambda: function.npu_giou(a, b, is_permuted=False), lambda: bbox_iou(a, b, kind)[:, None], [a])
        own = getattr(function, f"npu_{kind}")
        return Made(lambda: own(a, b), lambda: bbox_iou(a, b, kind)[None], [a])

    return make


def encode(k: Kit) -> Made:
    anchors, truth = k.boxes(k.size(6, 4096)), k.boxes(k.size(6, 4096))
    means, stds = [0.0, 0.1, 0.0, 0.1], [0.1, 0.1, 0.2, 0.2]

    def plain():  # mmdetection's first bbox2delta, which counts the last pixel
        px, py = (anchors[..., 0] + anchors[..., 2]) * 0.5, (anchors[..., 1] + anchors[..., 3]) * 0.5
        pw, ph = anchors[..., 2] - anchors[..., 0] + 1, anchors[..., 3] - anchors[..., 1] + 1
        gx, gy = (truth[..., 0] + truth[..., 2]) * 0.5, (truth[..., 1] + truth[..., 3]) * 0.5
        gw, gh = truth[..., 2] - truth[..., 0] + 1, truth[..., 3] - truth[..., 1] + 1
        deltas = torch.stack([(gx - px) / pw, (gy - py) / ph, torch.log(gw / pw), torch.log(gh / ph)], dim=-1)
        return (deltas - deltas.new_tensor(means)) / deltas.new_tensor(stds)

    return Made(lambda: function.npu_bbox_coder_encode_xyxy2xywh(anchors, truth, means, stds), plain)


def decode(k: Kit) -> Made:
    anchors, deltas = k.boxes(k.size(6, 4096)), k.rand(k.size(6, 4096), 4, grad=True)
    stds, limit = [0.1, 0.1, 0.2, 0.2], abs(math.log(16 / 1000))

    def plain():  # mmdetection's first delta2bbox
        d = deltas * deltas.new_tensor(stds)
        size = anchors[:, 2:] - anchors[:, :2] + 1
        centre = (anchors[:, :2] + anchors[:, 2:]) * 0.5 + d[:, :2] * size
        half = size * d[:, 2:].clamp(-limit, limit).exp() * 0.5 - 0.5
        boxes = torch.cat([centre - half, centre + half], 1)
        return boxes.clamp(0, 255)

    def affinity():
        return function.npu_bbox_coder_decode_xywh2xyxy(anchors, deltas, stds=stds, max_shape=(256, 256))

    return Made(affinity, plain, [deltas])


def encode_yolo(k: Kit) -> Made:
    n = k.size(6, 4096)
    anchors, truth = k.boxes(n), k.boxes(n)
    stride = 2 ** k.whole(3, 6, n, dtype=torch.int32)

    def plain():  # mmdetection's YOLOBBoxCoder
        centre, size = (anchors[..., :2] + anchors[..., 2:]) * 0.5, anchors[..., 2:] - anchors[..., :2]
        t_centre, t_size = (truth[..., :2] + truth[..., 2:]) * 0.5, truth[..., 2:] - truth[..., :2]
        w = torch.log((t_size[..., 0] / size[..., 0]).clamp(min=1e-6))
        h = torch.log((t_size[..., 1] / size[..., 1]).clamp(min=1e-6))
        x = ((t_centre[..., 0] - centre[..., 0]) / stride + 0.5).clamp(1e-6, 1 - 1e-6)
        y = ((t_centre[..., 1] - centre[..., 1]) / stride + 0.5).clamp(1e-6, 1 - 1e-6)
        return torch.stack([x, y, w, h], dim=-1)

    return Made(lambda: function.npu_bbox_coder_encode_yolo(anchors, truth, stride), plain)


def responsible(k: Kit) -> Made:
    boxes, (height, width) = k.boxes(k.size(5, 256)), (k.size(32, 64), k.size(32, 64))
    step = 256 // height

    def plain():  # mmdetection's YOLOAnchorGenerator
        cell = torch.floor((boxes[:, :2] + boxes[:, 2:]) * 0.5 / step).long()
        grid = torch.zeros(height * width, dtype=torch.uint8, device=boxes.device)
        grid[cell[:, 1] * width + cell[:, 0]] = 1
        return grid[:, None].expand(grid.size(0), 3).contiguous().view(-1)

    return Made(lambda: function.npu_single_level_responsible_flags((height, width), boxes, (step, step), 3), plain)


def suppressed(boxes: Tensor, scores: Tensor, threshold: float) -> Tensor:
    """Greedy suppression, best first: a loop on the host over a matrix of overlaps, as scripts without torchvision."""
    order = scores.argsort(descending=True)
    covers = (box_iou(boxes[order], boxes[order]) > threshold).tolist()
    kept: list[int] = []
    for i in range(len(covers)):
        if not any(covers[other][i] for other in kept):
            kept.append(i)
    return order[torch.tensor(kept, dtype=torch.int64, device=boxes.device)]


def best_of_classes(boxes: Tensor, scores: Tensor, least: float, threshold: float, most: int) -> tuple[Tensor, Tensor]:
    """mmdetection's multiclass_nms: classes moved apart, one suppression, the best."""
    chosen = (scores[:, :-1] > least).nonzero()
    found, kinds = boxes[chosen[:, 0]], chosen[:, 1]
    confidence = scores[chosen[:, 0], kinds]
    kept = suppressed(found.float() + kinds[:, None] * 4096.0, confidence, threshold)[:most]
    return torch.cat([found[kept], confidence[kept, None]], 1), kinds[kept]


def spread(k: Kit, images: int, n: int, classes: int) -> tuple[Tensor, Tensor]:
    """Boxes, and scores no two of which are the same in float16."""
    order = torch.randperm(n * (classes + 1), generator=k.generator).view(n, classes + 1)
    scores = (order + 1).float() / (n * (classes + 1) + 1)
    return torch.stack([k.boxes(n) for _ in range(images)]), torch.stack([k.put(scores)] * images)


def multiclass_nms(k: Kit) -> Made:
    (boxes,), (scores,) = spread(k, 1, k.size(8, 64), 3)
    most = 6

    def plain():
        found, kinds = best_of_classes(boxes, scores, 0.3, 0.5, most)
        return F.pad(found, (0, 0, 0, most - len(found))), F.pad(kinds, (0, most - len(kinds)))

    return Made(lambda: function.npu_multiclass_nms(boxes, scores, 0.3, 0.5, most), plain)


def batched_nms(k: Kit) -> Made:
    boxes, scores = spread(k, 2, k.size(8, 64), 3)
    most = 6

    def plain():
        rows = [best_of_classes(b, s, 0.3, 0.5, most) for b, s in zip(boxes, scores, strict=True)]
        return (
            torch.stack([F.pad(found, (0, 0, 0, most - len(found))) for found, _ in rows]),
            torch.stack([F.pad(kinds, (0, most - len(kinds))) for _, kinds in rows]),
        )

    return Made(lambda: function.npu_batched_multiclass_nms(boxes, scores, 0.3, 0.5, most), plain)


def single_image(k: Kit) -> Made:
    (boxes,), (scores,) = spread(k, 1, k.size(12, 64), 3)

    def affinity():
        found, rows = lib.fast_rcnn_inference_single_image(boxes, scores, (240, 256), 0.3, 0.5, 20)
        return found.pred_boxes, found.scores, found.pred_classes

    def plain():
        limit = torch.tensor([256, 240, 256, 240], dtype=boxes.dtype, device=boxes.device)
        found, kinds = best_of_classes(torch.minimum(boxes.clamp(min=0), limit), scores, 0.3, 0.5, 20)
        return found[:, :4], found[:, 4], kinds

    return Made(affinity, plain)


FUNCTIONS = [
    Case("function.matmul_transpose", matmul_transpose),
    Case("function.fuse_add_softmax_dropout", fuse_add_softmax_dropout),
    Case("function.npu_fast_condition_index_put", condition_index_put),
    Case("function.roll", roll, same=True),
    Case("function.dropout_with_byte_mask", byte_mask, same=True),
    Case("function.npu_iou", overlaps(lambda a, b: function.npu_iou(a, b, mode="iou")), half_tolerance=5e-2),
    Case("function.npu_ptiou", overlaps(function.npu_ptiou), half_tolerance=5e-2),
    Case("pairwise_iou", overlaps(lib.pairwise_iou), half_tolerance=5e-2),
    Case("function.npu_giou", paired("giou"), half_tolerance=5e-2),
    Case("function.npu_diou", paired("diou"), half_tolerance=5e-2),
    Case("function.npu_ciou", paired("ciou"), half_tolerance=5e-2),
    Case("function.npu_bbox_coder_encode_xyxy2xywh", encode, half_tolerance=0.3),
    Case("function.npu_bbox_coder_decode_xywh2xyxy", decode, half_tolerance=0.5, tolerance=1e-3),
    Case("function.npu_bbox_coder_encode_yolo", encode_yolo),
    Case("function.npu_single_level_responsible_flags", responsible),
    Case("function.npu_multiclass_nms", multiclass_nms),
    Case("function.npu_batched_multiclass_nms", batched_nms),
    Case("fast_rcnn_inference_single_image", single_image),
]
