"""Motion and depth: 3D AttentionNet, 3D Nested_UNet, RAFT, TSM.

Generated volumes with balls, and moving pictures. torchvision has RAFT; the others are below.
"""

import math
from collections.abc import Callable

import torch.nn.functional as F
from blocks import damp_residuals
from generated import smooth_images, volumes
from harness import Batch, Task, main
from losses import accuracy, dice_loss
from torchvision import models

import torch
from torch import Generator, Tensor, nn

KINDS = 4


class Conv3dNorm(nn.Sequential):
    def __init__(self, inputs: int, outputs: int, stride: int = 1):
        super().__init__(nn.Conv3d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm3d(outputs), nn.ReLU())


class Residual3d(nn.Module):
    """Activation before each of two convolutions, added to the input."""

    def __init__(self, inputs: int, outputs: int, stride: int = 1):
        super().__init__()
        self.body = nn.Sequential(
            nn.BatchNorm3d(inputs),
            nn.ReLU(),
            nn.Conv3d(inputs, outputs, 3, stride, 1, bias=False),
            nn.BatchNorm3d(outputs),
            nn.ReLU(),
            nn.Conv3d(outputs, outputs, 3, padding=1, bias=False),
        )
        plain = inputs == outputs and stride == 1
        self.skip = nn.Identity() if plain else nn.Conv3d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x) + self.skip(x)


class AttentionModule3d(nn.Module):
    """A trunk, and a mask found by going down and up again; (1 + mask) * trunk keeps what the mask does not know."""

    def __init__(self, width: int):
        super().__init__()
        self.trunk = nn.Sequential(Residual3d(width, width), Residual3d(width, width))
        self.down = nn.Sequential(nn.MaxPool3d(3, 2, 1), Residual3d(width, width))
        self.up = Residual3d(width, width)
        self.mask = nn.Sequential(nn.BatchNorm3d(width), nn.ReLU(), nn.Conv3d(width, width, 1), nn.Sigmoid())

    def forward(self, x: Tensor) -> Tensor:
        grown = F.interpolate(self.up(self.down(x)), size=x.shape[2:], mode="trilinear", align_corners=False)
        return (1 + self.mask(grown + x)) * self.trunk(x)


class AttentionNet3d(nn.Module):
    """A residual attention network: volumes (batch, 1, D, H, W), three attention modules -> scores (batch, classes)."""

    def __init__(self, classes: int, width: int = 8):
        super().__init__()
        w = width
        self.body = nn.Sequential(
            Conv3dNorm(1, w),
            AttentionModule3d(w),
            Residual3d(w, 2 * w, 2),
            AttentionModule3d(2 * w),
            Residual3d(2 * w, 4 * w, 2),
            AttentionModule3d(4 * w),
            Residual3d(4 * w, 4 * w),
            nn.BatchNorm3d(4 * w),
            nn.ReLU(),
        )
        self.head = nn.Linear(4 * w, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x).mean((2, 3, 4)))


class NestedUNet3d(nn.Module):
    """UNet++ on volumes: nodes between the two paths, each fed by all before it and the one below.

    (batch, 1, D, H, W) -> a list of logits of the same shape, one for each depth.
    """

    def __init__(self, width: int = 8, levels: int = 3):
        super().__init__()
        widths = [width << level for level in range(levels)]
        self.nodes, self.rise = nn.ModuleDict(), nn.ModuleDict()
        for column in range(levels):
            for row in range(levels - column):
                if column:
                    before = (column + 1) * widths[row]
                    self.rise[f"{row}_{column}"] = nn.ConvTranspose3d(widths[row + 1], widths[row], 2, 2)
                else:
                    before = widths[row - 1] if row else 1
                self.nodes[f"{row}_{column}"] = nn.Sequential(
                    Conv3dNorm(before, widths[row]), Conv3dNorm(widths[row], widths[row])
                )
        self.heads = nn.ModuleList(nn.Conv3d(width, 1, 1) for _ in range(levels - 1))
        self.levels = levels

    def forward(self, x: Tensor) -> list[Tensor]:
        found: dict[tuple[int, int], Tensor] = {}
        for row in range(self.levels):
            found[row, 0] = self.nodes[f"{row}_0"](F.max_pool3d(found[row - 1, 0], 2) if row else x)
        for column in range(1, self.levels):
            for row in range(self.levels - column):
                below = self.rise[f"{row}_{column}"](found[row + 1, column - 1])
                earlier = [found[row, before] for before in range(column)]
                found[row, column] = self.nodes[f"{row}_{column}"](torch.cat([*earlier, below], 1))
        return [head(found[0, column]) for column, head in enumerate(self.heads, 1)]


class VolumeSegmentation(Task):
    batch_size = 2
    rate = 0.05

    def __init__(self):
        self.model = NestedUNet3d()

    def batch(self, generator: Generator) -> Batch:
        return volumes(self.batch_size, 24, generator)

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        maps = [logits.float() for logits in model(batch[0])]
        return sum(F.binary_cross_entropy_with_logits(m, batch[1]) + dice_loss(m.sigmoid(), batch[1]) for m in maps)

    def measure(self, model: nn.Module, batch: Batch) -> dict[str, float]:
        found = model(batch[0])[-1].sigmoid()
        return {"Dice": 1 - dice_loss((found > 0.5).float(), batch[1]), "soft Dice": 1 - dice_loss(found, batch[1])}


class VolumeClassification(Task):
    """How large the ball in a volume is."""

    def __init__(self):
        self.model = AttentionNet3d(KINDS)

    def batch(self, generator: Generator) -> Batch:
        noisy, balls = volumes(self.batch_size, 16, generator)
        return noisy, (balls.mean((1, 2, 3, 4)) * 40).long().clamp(0, KINDS - 1)

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        return F.cross_entropy(model(batch[0]), batch[1])

    def measure(self, model: nn.Module, batch: Batch) -> dict[str, float]:
        return {"accuracy": accuracy(model(batch[0]), batch[1])}


class OpticalFlow(Task):
    """RAFT: the same soft picture twice, the second time moved by a whole number of pixels; every iteration counts."""

    batch_size = 2
    rate = 1e-4
    size = 128
    updates = 3

    def __init__(self):
        self.model = models.optical_flow.raft_small(weights=None)

    def batch(self, generator: Generator) -> Batch:
        still = smooth_images(self.batch_size, self.size, generator) * 2 - 1
        moves = torch.randint(-6, 7, (self.batch_size, 2), generator=generator)
        moved = [picture.roll((int(y), int(x)), (1, 2)) for picture, (x, y) in zip(still, moves, strict=True)]
        flow = moves.float()[:, :, None, None].expand(-1, -1, self.size, self.size).contiguous()
        return still, torch.stack(moved), flow

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        first, second, flow = batch
        guesses = model(first, second, num_flow_updates=self.updates)
        weights = [0.8 ** (self.updates - 1 - step) for step in range(self.updates)]
        return sum(w * (guess - flow).abs().mean() for w, guess in zip(weights, guesses, strict=True))

    def measure(self, model: nn.Module, batch: Batch) -> dict[str, float]:
        first, second, flow = batch
        guess = model(first, second, num_flow_updates=self.updates)[-1]
        return {"end-point error": (guess - flow).square().sum(1).sqrt().mean()}

    def optimizer(self, parameters) -> torch.optim.Optimizer:
        return torch.optim.AdamW(parameters, lr=self.rate)


class TemporalShift(nn.Module):
    """Before a convolution an eighth of the channels comes from the frame before, another from the one after."""

    def __init__(self, layer: nn.Module, frames: int):
        super().__init__()
        self.layer, self.frames = layer, frames

    def forward(self, x: Tensor) -> Tensor:
        clip = x.unflatten(0, (-1, self.frames))
        fold = x.shape[1] // 8
        earlier = F.pad(clip[:, 1:, :fold], (0, 0, 0, 0, 0, 0, 0, 1))
        later = F.pad(clip[:, :-1, fold : 2 * fold], (0, 0, 0, 0, 0, 0, 1, 0))
        return self.layer(torch.cat([earlier, later, clip[:, :, 2 * fold :]], 2).flatten(0, 1))


def tsm(classes: int, frames: int) -> nn.Module:
    """torchvision's ResNet-50 with a shift before the first convolution of every residual branch."""
    net = damp_residuals(models.resnet50(weights=None, num_classes=classes))
    for stage in (net.layer1, net.layer2, net.layer3, net.layer4):
        for block in stage:
            block.conv1 = TemporalShift(block.conv1, frames)
    return net


class Clips(Task):
    """In which of four directions a grating moves, which a single frame does not tell."""

    batch_size = 2
    frames, size = 4, 64

    def __init__(self):
        self.model = tsm(KINDS, self.frames)

    def batch(self, generator: Generator) -> Batch:
        labels = torch.randint(KINDS, (self.batch_size,), generator=generator)
        angle = labels * (2 * math.pi / KINDS)
        dx, dy = (part[:, None] * 2 * torch.arange(self.frames) for part in (angle.cos(), angle.sin()))
        start = 50 * torch.rand(self.batch_size, 2, 1, generator=generator)
        pixel = torch.arange(self.size)
        x = pixel[None, None, None, :] - (start[:, 0] + dx)[..., None, None]
        y = pixel[None, None, :, None] - (start[:, 1] + dy)[..., None, None]
        picture = ((0.5 * x).sin() + (0.5 * y).sin())[:, :, None].expand(-1, -1, 3, -1, -1)
        return picture + 0.3 * torch.randn(picture.shape, generator=generator), labels

    def scores(self, model: nn.Module, clips: Tensor) -> Tensor:
        return model(clips.flatten(0, 1)).unflatten(0, (len(clips), -1)).mean(1)

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        return F.cross_entropy(self.scores(model, batch[0]), batch[1])

    def measure(self, model: nn.Module, batch: Batch) -> dict[str, float]:
        return {"accuracy": accuracy(self.scores(model, batch[0]), batch[1])}


NETWORKS: dict[str, Callable[[], Task]] = {
    "attention_net_3d": VolumeClassification,
    "nested_unet_3d": VolumeSegmentation,
    "raft": OpticalFlow,
    "tsm": Clips,
}

if __name__ == "__main__":
    main(NETWORKS, __doc__)
