"""Detectors: MTCNN's PNet and RNet, CenterFace, FaceBoxes, RetinaFace, YOLOv3, YOLOv4, R-FCN, RefineDet.

Generated pictures with two coloured boxes each; measured by how many of them are found again.
"""

from collections.abc import Callable

import boxes as B
import detection_nets as own
import face_nets
import torch.nn.functional as F
from generated import box_images
from harness import Batch, Task, main
from losses import accuracy, centre_iou, focal_loss, heatmap_focal
from torchvision.ops import nms, ps_roi_align

import torch
from torch import Tensor, nn

CLASSES = 3


class Detection(Task):
    """Pictures with two boxes each; subclasses say how a network's answer becomes a loss, and boxes."""

    classes = CLASSES
    longest_gradient = 10.0
    warmup = 20

    def __init__(self, model: nn.Module, size: int = 128, rate: float = 0.0005):
        self.model, self.size, self.rate = model, size, rate

    def batch(self, generator: torch.Generator) -> Batch:
        return box_images(self.batch_size, self.size, self.classes, generator)

    def found(self, model: nn.Module, images: Tensor) -> list[Tensor]:
        """The boxes found in each picture, best first."""
        raise NotImplementedError

    def measure(self, model: nn.Module, batch: Batch) -> dict[str, float]:
        return B.recall(self.found(model, batch[0]), batch[1])


class Cascade(Task):
    """A network of MTCNN on patches: face or not, box and landmarks; hard examples are mined within a batch."""

    batch_size = 32

    def __init__(self, model: nn.Module):
        self.model, self.size = model, model.size

    def batch(self, generator: torch.Generator) -> Batch:
        images, boxes, _ = box_images(self.batch_size, self.size, 2, generator, 1)
        labels = torch.arange(self.batch_size) % 2  # every second patch is a face
        noise = 0.2 * torch.randn(images.shape, generator=generator)
        images = torch.where(labels[:, None, None, None] == 1, images, noise)
        return images, labels, boxes[:, 0] / self.size, B.landmarks_of(boxes[:, 0]) / self.size

    def answers(self, model: nn.Module, images: Tensor) -> tuple[Tensor, ...]:
        return tuple(part.flatten(1) for part in model(images))

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        images, labels, boxes, points = batch
        scores, place, marks = self.answers(model, images)
        cost = F.cross_entropy(scores, labels, reduction="none")
        hard = cost.topk(int(0.7 * len(cost)))[0].mean()
        face = labels.float()[:, None]
        count = face.sum()
        box_cost = ((place - boxes).square() * face).sum() / count
        mark_cost = ((marks - points).square() * face).sum() / count
        return hard + 0.5 * box_cost + 0.5 * mark_cost

    def measure(self, model: nn.Module, batch: Batch) -> dict[str, float]:
        images, labels, boxes, _ = batch
        scores, place, _ = self.answers(model, images)
        return {"accuracy": accuracy(scores, labels), "box IoU": centre_iou(place, boxes)[labels == 1].mean()}


class CenterFaceTask(Detection):
    """Focal loss on a map of centres; extents, offsets and landmarks are learned at the centres only."""

    classes = 1
    stride = 4

    def targets(self, boxes: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The map of centres (batch, 1, h, w), each box's cell (batch, boxes) and what to learn there."""
        side = self.size // self.stride
        centred = B.to_centres(boxes / self.stride)
        cell = centred[..., :2].floor().clamp(0, side - 1)
        grid = torch.arange(side, device=boxes.device)
        spread = (centred[..., 2:].amin(-1) / 6)[..., None, None]
        dx, dy = (
            grid[None, None, None, :] - cell[..., 0, None, None],
            grid[None, None, :, None] - cell[..., 1, None, None],
        )
        heat = (-(dx.square() + dy.square()) / (2 * spread.square())).exp().amax(1, keepdim=True)
        marks = (B.landmarks_of(boxes / self.stride) - cell.repeat(1, 1, 5)) / centred[..., 2:].repeat(1, 1, 5)
        wanted = torch.cat([centred[..., 2:].log(), centred[..., :2] - cell, marks], -1)
        return heat, (cell[..., 1] * side + cell[..., 0]).long(), wanted

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        images, boxes, _ = batch
        heat, *rest = model(images)
        target, cell, wanted = self.targets(boxes)
        maps = torch.cat(rest, 1).flatten(2)
        learned = maps.gather(2, cell[:, None].expand(-1, maps.shape[1], -1)).transpose(1, 2)
        cost = F.smooth_l1_loss(learned, wanted, reduction="none").mean((0, 1))
        return heatmap_focal(heat, target) + cost[:4].sum() + 0.1 * cost[4:].sum()

    def found(self, model: nn.Module, images: Tensor) -> list[Tensor]:
        heat, extent, offset, _ = model(images)
        heat = heat.sigmoid()
        peak = heat * (F.max_pool2d(heat, 3, 1, 1) == heat)  # stands for suppression
        score, place = peak.flatten(1).topk(10)
        side = heat.shape[-1]
        index = place[:, None].expand(-1, 2, -1)
        extent, offset = (m.flatten(2).gather(2, index).transpose(1, 2) for m in (extent, offset))
        cell = torch.stack([place % side, place // side], -1)
        return list(self.stride * B.to_corners(torch.cat([cell + offset, extent.clamp(max=6).exp()], -1)))


class AnchorFaces(Detection):
    """Multibox loss on anchors, with landmarks where the network gives them: FaceBoxes and RetinaFace."""

    classes = 1

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        images, boxes, labels = batch
        scores, offsets, *marks = model(images)
        kind, chosen, _ = B.match(model.anchors, boxes, labels, 0.35)
        total = B.multibox_loss(scores, offsets, kind, B.encode(chosen, model.anchors), 7)
        if marks:
            anchors, positive = model.anchors, kind > 0
            wanted = B.landmarks_of(chosen).unflatten(-1, (5, 2)) - anchors[:, None, :2]
            wanted = (wanted / (B.VARIANCES[0] * anchors[:, None, 2:])).flatten(-2)
            cost = F.smooth_l1_loss(marks[0], wanted, reduction="none").sum(2)
            total = total + (cost * positive).sum() / positive.sum()
        return total

    def found(self, model: nn.Module, images: Tensor) -> list[Tensor]:
        scores, offsets, *_ = model(images)
        boxes = B.decode(offsets, model.anchors)
        return [B.choose(b, s[:, 1:]) for b, s in zip(boxes, scores.softmax(2), strict=True)]


class YOLO(Detection):
    """Each true box belongs to the anchor of its shape, in its centre's cell.

    YOLOv3 learns centres and extents by themselves, YOLOv4 boxes as a whole by complete IoU.
    """

    anchors = ((12, 12), (18, 18), (26, 26)), ((32, 32), (38, 38), (44, 44)), ((50, 50), (56, 56), (64, 64))

    def __init__(self, model: nn.Module, complete: bool, **settings):
        super().__init__(model, **settings)
        self.complete = complete

    def decode(self, raw: Tensor, level: int) -> Tensor:
        """A head's result (batch, 3, h, w, 5 + classes) as boxes in pixels (batch, 3, h, w, 4)."""
        stride, side = 8 << level, raw.shape[2]
        grid = torch.arange(side, device=raw.device)
        x, y = (raw[..., 0].sigmoid() + grid) * stride, (raw[..., 1].sigmoid() + grid[:, None]) * stride
        shape = raw.new_tensor(self.anchors[level])[None, :, None, None]
        return B.to_corners(torch.cat([torch.stack([x, y], -1), raw[..., 2:4].clamp(max=4).exp() * shape], -1))

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        images, boxes, labels = batch
        centred = B.to_centres(boxes)
        shapes = boxes.new_tensor(self.anchors).flatten(0, 1)
        both = torch.minimum(centred[..., None, 2:], shapes).prod(-1)
        best = (both / (centred[..., None, 2:].prod(-1) + shapes.prod(-1) - both)).argmax(2)  # batch, boxes
        total = torch.zeros((), device=images.device)
        for level, raw in enumerate(model(images)):
            raw = raw.float()
            count, side, stride = len(boxes), raw.shape[2], 8 << level
            cell = (centred[..., :2] / stride).floor().clamp(0, side - 1)
            index = ((best % 3) * side + cell[..., 1]) * side + cell[..., 0]  # into the 3 * side * side places
            mine = (best // 3 == level).float()
            index = index.long()
            rows = raw.reshape(count, -1, raw.shape[-1])
            at = rows.gather(1, index[..., None].expand(-1, -1, rows.shape[-1]))
            decoded = self.decode(raw, level).reshape(count, -1, 4)
            place = decoded.gather(1, index[..., None].expand(-1, -1, 4))
            if self.complete:
                cost = 1 - centre_iou(place, boxes, "ciou")
            else:
                inside = centred[..., :2] / stride - cell
                scale = (centred[..., 2:] / shapes[best]).log()
                cost = F.binary_cross_entropy_with_logits(at[..., :2], inside, reduction="none").sum(-1)
                cost = cost + 0.5 * (at[..., 2:4] - scale).square().sum(-1)
            kind = F.one_hot(labels, self.classes).float()
            cost = cost + F.binary_cross_entropy_with_logits(at[..., 5:], kind, reduction="none").sum(-1)
            objects = torch.zeros_like(rows[..., 0]).scatter_reduce(1, index, mine, "amax")
            # A place that overlaps a true box well without being its own is neither right nor wrong.
            overlap = centre_iou(decoded.detach()[:, :, None], boxes[:, None]).amax(2)
            counted = ((overlap < 0.6) | (objects > 0)).float()
            object_cost = F.binary_cross_entropy_with_logits(rows[..., 4], objects, reduction="none")
            total = total + ((cost * mine).sum() + (object_cost * counted).sum()) / count
        return total

    def found(self, model: nn.Module, images: Tensor) -> list[Tensor]:
        parts = [(self.decode(raw, level).flatten(1, 3), raw.flatten(1, 3)) for level, raw in enumerate(model(images))]
        boxes, raw = torch.cat([p[0] for p in parts], 1), torch.cat([p[1] for p in parts], 1)
        scores = raw[..., 4:5].sigmoid() * raw[..., 5:].sigmoid()
        return [B.choose(b, s) for b, s in zip(boxes, scores, strict=True)]


class RFCNTask(Detection):
    """Proposals are learned and used at once: the best of them and the true boxes are pooled and classified."""

    batch_size = 2
    proposals = 24

    def regions(self, model: nn.Module, objectness: Tensor, offsets: Tensor) -> list[Tensor]:
        boxes = B.decode(offsets.detach(), model.anchors).clamp(0, self.size)
        score, order = objectness.detach().topk(3 * self.proposals)
        kept = []
        for picture, best, chosen in zip(boxes, score, order, strict=True):
            candidates = picture[chosen]
            kept.append(candidates[nms(candidates, best, 0.7)[: self.proposals]])
        return kept

    def heads(self, model: nn.Module, maps: tuple[Tensor, Tensor], regions: list[Tensor]) -> tuple[Tensor, Tensor]:
        """Scores (regions, classes + 1) and offsets (regions, 4), averages over the position-sensitive cells."""
        pooled = (ps_roi_align(m.float(), regions, model.side, 1 / 16, 2) for m in maps)
        return tuple(p.mean((2, 3)) for p in pooled)

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        images, boxes, labels = batch
        objectness, offsets, *maps = model(images)
        objectness, offsets = objectness.float(), offsets.float()
        kind, chosen, _ = B.match(model.anchors, boxes, labels, 0.5)
        positive = (kind > 0).float()
        count = positive.sum()
        proposal = focal_loss(objectness, positive) / count
        cost = F.smooth_l1_loss(offsets, B.encode(chosen, model.anchors), reduction="none").sum(2)
        proposal = proposal + (cost * positive).sum() / count

        regions = [torch.cat([r, b]) for r, b in zip(self.regions(model, objectness, offsets), boxes, strict=True)]
        scores, moves = self.heads(model, tuple(maps), regions)
        kinds, wanted = [], []
        for region, box, label in zip(regions, boxes, labels, strict=True):
            overlap, number = centre_iou(region[:, None], box[None]).max(1)
            kinds.append(torch.where(overlap >= 0.5, label[number] + 1, torch.zeros_like(number)))
            extent = torch.cat([region[:, :2], region[:, 2:].maximum(region[:, :2] + 1)], 1)
            wanted.append(B.encode(box[number], B.to_centres(extent)))
        kind, target = torch.cat(kinds), torch.cat(wanted)
        cost = F.smooth_l1_loss(moves, target, reduction="none").sum(1) * (kind > 0)
        return proposal + F.cross_entropy(scores, kind) + cost.sum() / (kind > 0).sum()

    def found(self, model: nn.Module, images: Tensor) -> list[Tensor]:
        objectness, offsets, *maps = model(images)
        regions = self.regions(model, objectness, offsets)
        scores, moves = self.heads(model, tuple(maps), regions)
        results, first = [], 0
        for region in regions:
            part = slice(first, first + len(region))
            first += len(region)
            results.append(B.choose(B.decode(moves[part], B.to_centres(region)), scores[part].softmax(1)[:, 1:]))
        return results


class RefineDetTask(Detection):
    """Both steps are multibox losses; the second one's anchors are the first one's results."""

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        images, boxes, labels = batch
        object_scores, first, scores, second = model(images)
        kind, chosen, _ = B.match(model.anchors, boxes, labels, 0.5)
        coarse = B.multibox_loss(object_scores, first, (kind > 0).long(), B.encode(chosen, model.anchors))
        refined = B.to_centres(B.decode(first.detach().float(), model.anchors))
        kind, chosen, _ = B.match(refined, boxes, labels, 0.5)
        # Anchors that the first step is sure to be background do not count.
        sure = object_scores.detach().softmax(2)[..., 1] < 0.01
        kind = kind.masked_fill(sure, 0)
        return coarse + B.multibox_loss(scores, second, kind, B.encode(chosen, refined))

    def found(self, model: nn.Module, images: Tensor) -> list[Tensor]:
        object_scores, first, scores, second = model(images)
        refined = B.to_centres(B.decode(first, model.anchors))
        scores = scores.softmax(2)[..., 1:] * object_scores.softmax(2)[..., 1:]
        return [B.choose(b, s) for b, s in zip(B.decode(second, refined), scores, strict=True)]


NETWORKS: dict[str, Callable[[], Task]] = {
    "pnet": lambda: Cascade(face_nets.PNet()),
    "rnet": lambda: Cascade(face_nets.RNet()),
    "centerface": lambda: CenterFaceTask(face_nets.CenterFace()),
    "faceboxes": lambda: AnchorFaces(face_nets.FaceBoxes(256), 256),
    "retinaface": lambda: AnchorFaces(face_nets.RetinaFace(128)),
    "yolov3": lambda: YOLO(own.YOLOv3(CLASSES), complete=False),
    "yolov4": lambda: YOLO(own.YOLOv4(CLASSES), complete=True),
    "rfcn": lambda: RFCNTask(own.RFCN(CLASSES, 128)),
    "refinedet": lambda: RefineDetTask(own.RefineDet(CLASSES, 64), 64),
}

if __name__ == "__main__":
    main(NETWORKS, __doc__)
