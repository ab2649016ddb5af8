"""Finding and reading text: EAST, AdvancedEAST, PSENet, DB, FOTS, CRNN, LPRNet.

Generated lines of striped characters; detectors are measured by the overlap of the text's area, readers by the share of
wrong characters.
"""

from collections.abc import Callable

import generated
import ocr_nets as own
import torch.nn.functional as F
from harness import Batch, Task, main
from losses import CTC, dice_loss, symbol_errors

import torch
from torch import Tensor, nn

SYMBOLS = 10
REACH = 128.0  # the longest distance to a side that is learned, in pixels


def area_iou(logits: Tensor, truth: Tensor) -> Tensor:
    """Intersection over union of the area found to be text."""
    found, truth = logits > 0, truth > 0.5
    return (found & truth).sum().float() / (found | truth).sum().clamp(min=1)


def balanced_bce(logits: Tensor, target: Tensor) -> Tensor:
    """Binary cross entropy in which the pixels of text weigh as much as all others together."""
    share = target.mean()
    weight = target * (1 - share) + (1 - target) * share
    return (F.binary_cross_entropy_with_logits(logits, target, reduction="none") * weight).sum() / weight.sum()


class TextDetection(Task):
    """Pictures with two tilted lines of text."""

    def __init__(self, model: nn.Module, size: int = 128, rate: float = 0.005):
        self.model, self.size, self.rate = model, size, rate

    def scenes(self, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
        return generated.text_scenes(self.batch_size, self.size, SYMBOLS, 6, generator)

    def coarse(self, maps: Tensor) -> Tensor:
        """Maps at a 4th of the size, which is where EAST works."""
        return maps[..., 2::4, 2::4]

    def rectangles(self, places: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """What EAST learns: area (batch, 1, h, w), distances to the sides (batch, 4, h, w), angle (batch, 1, h, w)."""
        inside = generated.within(places, self.size, 0.7)
        along, across = generated.own_coordinates(places, self.size)
        half_width, half_height = places[..., 2, None, None] / 2, places[..., 3, None, None] / 2
        sides = torch.stack([half_height + across, half_width - along, half_height - across, half_width + along], 2)
        picked = (sides * inside[:, :, None]).sum(1).clamp(min=0)
        angle = (places[..., 4, None, None] * inside).sum(1, keepdim=True)
        area = inside.any(1, keepdim=True).float()
        return self.coarse(area), self.coarse(picked), self.coarse(angle)

    def measure(self, model: nn.Module, batch: Batch) -> dict[str, float]:
        return {"area IoU": area_iou(self.logits(model, batch[0]), batch[1])}

    def logits(self, model: nn.Module, images: Tensor) -> Tensor:
        raise NotImplementedError


def rectangle_loss(answer: tuple[Tensor, Tensor, Tensor], area: Tensor, sides: Tensor, angle: Tensor) -> Tensor:
    """EAST's loss: overlap of the area, of the boxes, and the angle."""
    score, found, turned = (part.float() for part in answer)
    up, right, down, left = sides.unbind(1)
    up_f, right_f, down_f, left_f = found.unbind(1)
    width = torch.minimum(left, left_f) + torch.minimum(right, right_f)
    height = torch.minimum(up, up_f) + torch.minimum(down, down_f)
    both = width * height
    either = (up + down) * (left + right) + (up_f + down_f) * (left_f + right_f) - both
    box = -((both + 1) / (either + 1)).log()
    cost = (box[:, None] + 10 * (1 - (turned - angle).cos())) * area
    return dice_loss(score.sigmoid(), area) + cost.sum() / area.sum()


class EASTTask(TextDetection):
    def batch(self, generator: torch.Generator) -> Batch:
        images, places, _ = self.scenes(generator)
        return images, *self.rectangles(places)

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        images, *targets = batch
        return rectangle_loss(model(images), *targets)

    def logits(self, model: nn.Module, images: Tensor) -> Tensor:
        return model(images)[0]


class AdvancedEASTTask(TextDetection):
    def batch(self, generator: torch.Generator) -> Batch:
        images, places, _ = self.scenes(generator)
        inside = generated.within(places, self.size, 0.9)
        along, across = generated.own_coordinates(places, self.size)
        width, height = places[..., 2, None, None], places[..., 3, None, None]
        head, tail = inside & (along < -0.35 * width), inside & (along > 0.35 * width)
        side = torch.where(head, -0.5, 0.5) * width
        cos, sin = places[..., 4, None, None].cos(), places[..., 4, None, None].sin()
        corners = []
        for half in (-0.5 * height, 0.5 * height):
            du, dv = side - along, half - across
            corners += [du * cos - dv * sin, du * sin + dv * cos]
        ends = head | tail
        offsets = (torch.stack(corners, 2) * ends[:, :, None]).sum(1) / self.size
        maps = [inside.any(1), ends.any(1), tail.any(1)]
        return images, *(self.coarse(m[:, None].float()) for m in maps), self.coarse(offsets)

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        images, inside, ends, tail, offsets = batch
        answer = model(images).float()
        kind = F.binary_cross_entropy_with_logits(answer[:, 2:3], tail, reduction="none")
        corners = F.smooth_l1_loss(answer[:, 3:], offsets, reduction="none").mean(1, keepdim=True)
        at_ends = ((kind + 10 * corners) * ends).sum() / ends.sum()
        return 4 * balanced_bce(answer[:, :1], inside) + balanced_bce(answer[:, 1:2], ends) + at_ends

    def logits(self, model: nn.Module, images: Tensor) -> Tensor:
        return model(images)[:, :1]


class PSENetTask(TextDetection):
    """Dice loss of each kernel; of what is no text, only the hardest pixels count for the whole text's map."""

    shares = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5)

    def batch(self, generator: torch.Generator) -> Batch:
        images, places, _ = self.scenes(generator)
        kernels = [generated.within(places, self.size, share).any(1) for share in self.shares]
        return images, torch.stack(kernels, 1).float()

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        images, kernels = batch
        found = model(images).float().sigmoid()
        text, whole = kernels[:, 0], found[:, 0]
        negatives = whole.detach().masked_fill(text > 0, -1.0).flatten(1)
        limit = negatives.topk(negatives.shape[1] // 2, 1)[0][:, -1, None, None]
        counted = ((text > 0) | (whole.detach() >= limit)).float()
        shrunk = dice_loss(found[:, 1:].flatten(0, 1), kernels[:, 1:].flatten(0, 1), text.repeat_interleave(5, 0))
        return 0.7 * dice_loss(whole, text, counted) + 0.3 * shrunk

    def logits(self, model: nn.Module, images: Tensor) -> Tensor:
        return model(images)[:, 0]

    def measure(self, model: nn.Module, batch: Batch) -> dict[str, float]:
        images, kernels = batch
        return {"area IoU": area_iou(self.logits(model, images), kernels[:, 0])}


class DBTask(TextDetection):
    def batch(self, generator: torch.Generator) -> Batch:
        images, places, _ = self.scenes(generator)
        shrunk = generated.within(places, self.size, 0.7).any(1, keepdim=True)
        wide = generated.within(places, self.size, 1.1).any(1, keepdim=True)
        border = (wide & ~shrunk).float()
        return images, shrunk.float(), border, 0.3 + 0.4 * border

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        images, shrunk, border, wanted = batch
        logits, threshold, binary = (part.float() for part in model(images))
        cost = F.binary_cross_entropy_with_logits(logits, shrunk, reduction="none")
        positive = shrunk.sum()
        hardest = (cost * (1 - shrunk)).flatten().topk(cost.numel() // 4)[0]
        mined = ((cost * shrunk).sum() + hardest.sum()) / (positive + hardest.numel())
        line = ((threshold - wanted).abs() * (border + shrunk)).sum() / (border + shrunk).sum()
        return 5 * mined + 10 * line + dice_loss(binary, shrunk)

    def logits(self, model: nn.Module, images: Tensor) -> Tensor:
        return model(images)[0]


class FOTSTask(TextDetection):
    """The detector's loss, and CTC's of what is read at the true places."""

    def __init__(self):
        super().__init__(own.FOTS(SYMBOLS, REACH))
        self.ctc = CTC()

    def batch(self, generator: torch.Generator) -> Batch:
        images, places, labels = self.scenes(generator)
        scaled = places / places.new_tensor([self.size] * 4 + [1.0])
        return images, *self.rectangles(places), scaled, labels.flatten(0, 1)

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        images, area, sides, angle, places, labels = batch
        features, answer = model(images)
        return rectangle_loss(answer, area, sides, angle) + self.ctc(model.read(features, places), labels)

    def measure(self, model: nn.Module, batch: Batch) -> dict[str, float]:
        images, area, *_, places, labels = batch
        features, answer = model(images)
        wrong = symbol_errors(model.read(features, places), labels)
        return {"area IoU": area_iou(answer[0], area), "wrong characters": wrong}


class Recognition(Task):
    """Lines of text of a fixed height and length, learned by CTC."""

    def __init__(self, model: nn.Module, height: int, width: int, length: int, rate: float):
        self.model, self.height, self.width, self.length, self.rate = model, height, width, length, rate
        self.ctc = CTC()

    def batch(self, generator: torch.Generator) -> Batch:
        return generated.text_lines(self.batch_size, self.height, self.width, SYMBOLS, self.length, generator)

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        return self.ctc(model(batch[0]), batch[1])

    def measure(self, model: nn.Module, batch: Batch) -> dict[str, float]:
        return {"wrong characters": symbol_errors(model(batch[0]), batch[1])}


NETWORKS: dict[str, Callable[[], Task]] = {
    "east": lambda: EASTTask(own.EAST(REACH)),
    "advanced_east": lambda: AdvancedEASTTask(own.AdvancedEAST(), 64),
    "psenet": lambda: PSENetTask(own.PSENet(len(PSENetTask.shares))),
    "db": lambda: DBTask(own.DB()),
    "fots": lambda: FOTSTask(),
    "crnn": lambda: Recognition(own.CRNN(SYMBOLS), 32, 96, 8, 0.01),
    "lprnet": lambda: Recognition(own.LPRNet(SYMBOLS), 24, 94, 7, 0.003),
}

if __name__ == "__main__":
    main(NETWORKS, __doc__)
