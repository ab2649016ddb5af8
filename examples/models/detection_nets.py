"""Detectors of objects with anchors on a grid: YOLOv3, YOLOv4, R-FCN, RefineDet."""

from collections.abc import Sequence

import torch.nn.functional as F
from blocks import ConvNorm, damp, resize_to, resnet_stages, vgg16_stages
from boxes import grid_anchors

import torch
from torch import Tensor, nn


class Leaky(nn.LeakyReLU):
    """Darknet's activation."""

    def __init__(self):
        super().__init__(0.1)


class DarkResidual(nn.Module):
    """A narrow 1 x 1 and a 3 x 3 convolution, added to the input."""

    def __init__(self, width: int, narrow: int, activation: type[nn.Module]):
        super().__init__()
        self.body = nn.Sequential(
            ConvNorm(width, narrow, 1, activation=activation), ConvNorm(narrow, width, 3, activation=activation)
        )
        damp(self.body)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x)


class CrossStage(nn.Module):
    """One half of the channels goes through residual blocks, the other past them (CSPDarknet)."""

    def __init__(self, width: int, blocks: int):
        super().__init__()
        half = width // 2
        self.past = ConvNorm(width, half, 1, activation=nn.Mish)
        self.through = nn.Sequential(
            ConvNorm(width, half, 1, activation=nn.Mish),
            *(DarkResidual(half, half, nn.Mish) for _ in range(blocks)),
            ConvNorm(half, half, 1, activation=nn.Mish),
        )
        self.join = ConvNorm(width, width, 1, activation=nn.Mish)

    def forward(self, x: Tensor) -> Tensor:
        return self.join(torch.cat([self.through(x), self.past(x)], 1))


class Darknet53(nn.Module):
    """Stages of 1, 2, 8, 8 and 4 blocks; gives the last three results. ``cross`` makes it CSPDarknet53."""

    def __init__(self, width: int, cross: bool):
        super().__init__()
        activation = nn.Mish if cross else Leaky
        self.stem = ConvNorm(3, width, 3, activation=activation)
        self.stages = nn.ModuleList()
        for blocks in (1, 2, 8, 8, 4):
            wide = 2 * width
            body = [CrossStage(wide, blocks)] if cross else [DarkResidual(wide, width, Leaky) for _ in range(blocks)]
            self.stages.append(nn.Sequential(ConvNorm(width, wide, 3, 2, activation=activation), *body))
            width = wide
        self.channels = [width // 4, width // 2, width]

    def forward(self, x: Tensor) -> list[Tensor]:
        x, results = self.stem(x), []
        for stage in self.stages:
            x = stage(x)
            results.append(x)
        return results[-3:]


def five(inputs: int, width: int) -> nn.Sequential:
    """YOLO's neck: five convolutions of alternating 1 x 1 and 3 x 3."""
    layers = []
    for kernel in (1, 3, 1, 3, 1):
        outputs = width if kernel == 1 else 2 * width
        layers.append(ConvNorm(inputs, outputs, kernel, activation=Leaky))
        inputs = outputs
    return nn.Sequential(*layers)


class YOLOHead(nn.Sequential):
    """Three boxes for each cell: (batch, 3, height, width, 5 + classes)."""

    def __init__(self, width: int, classes: int):
        super().__init__(ConvNorm(width, 2 * width, 3, activation=Leaky), nn.Conv2d(2 * width, 3 * (5 + classes), 1))
        with torch.no_grad():
            self[1].bias.view(3, -1)[:, 4] = -4.6  # one place in a hundred is an object, until learning says otherwise

    def forward(self, x: Tensor) -> Tensor:
        x = super().forward(x)
        return x.unflatten(1, (3, -1)).permute(0, 1, 3, 4, 2)


class YOLOv3(nn.Module):
    """Darknet-53 and a path from coarse to fine. Gives a head's result for strides 8, 16 and 32."""

    def __init__(self, classes: int, width: int = 16):
        super().__init__()
        self.body = Darknet53(width, cross=False)
        c3, c4, c5 = self.body.channels
        self.necks = nn.ModuleList([five(c3 + c4 // 4, c3 // 2), five(c4 + c5 // 4, c4 // 2), five(c5, c5 // 2)])
        self.narrow = nn.ModuleList(
            [ConvNorm(c4 // 2, c4 // 4, 1, activation=Leaky), ConvNorm(c5 // 2, c5 // 4, 1, activation=Leaky)]
        )
        self.heads = nn.ModuleList(YOLOHead(c // 2, classes) for c in (c3, c4, c5))

    def forward(self, x: Tensor) -> list[Tensor]:
        features = self.body(x)
        results: list[Tensor] = []
        path = None
        for level in (2, 1, 0):
            feature = features[level]
            if path is not None:
                coarser = resize_to(self.narrow[level](path), feature, "nearest")
                feature = torch.cat([coarser, feature], 1)
            path = self.necks[level](feature)
            results.insert(0, self.heads[level](path))
        return results


class YOLOv4(nn.Module):
    """CSPDarknet-53, pooling of several extents (SPP), a path down and one up again (PANet). Results as YOLOv3's."""

    def __init__(self, classes: int, width: int = 16):
        super().__init__()
        self.body = Darknet53(width, cross=True)
        c3, c4, c5 = self.body.channels
        self.before = ConvNorm(c5, c5 // 2, 1, activation=Leaky)
        self.after = five(2 * c5, c5 // 2)
        self.lateral = nn.ModuleList(ConvNorm(c, c // 2, 1, activation=Leaky) for c in (c3, c4))
        self.narrow = nn.ModuleList(ConvNorm(c // 2, c // 4, 1, activation=Leaky) for c in (c4, c5))
        self.down = nn.ModuleList([five(c3, c3 // 2), five(c4, c4 // 2)])
        self.shrink = nn.ModuleList(ConvNorm(c // 2, c, 3, 2, activation=Leaky) for c in (c3, c4))
        self.up = nn.ModuleList([five(c3 + c4 // 2, c4 // 2), five(c4 + c5 // 2, c5 // 2)])
        self.heads = nn.ModuleList(YOLOHead(c // 2, classes) for c in (c3, c4, c5))

    def forward(self, x: Tensor) -> list[Tensor]:
        c3, c4, c5 = self.body(x)
        x = self.before(c5)
        p5 = self.after(torch.cat([x, *(F.max_pool2d(x, side, 1, side // 2) for side in (5, 9, 13))], 1))
        p4 = torch.cat([self.lateral[1](c4), resize_to(self.narrow[1](p5), c4, "nearest")], 1)
        p4 = self.down[1](p4)
        p3 = torch.cat([self.lateral[0](c3), resize_to(self.narrow[0](p4), c3, "nearest")], 1)
        p3 = self.down[0](p3)
        n4 = self.up[0](torch.cat([self.shrink[0](p3), p4], 1))
        n5 = self.up[1](torch.cat([self.shrink[1](n4), p5], 1))
        return [head(level) for head, level in zip(self.heads, (p3, n4, n5), strict=True)]


class RFCN(nn.Module):
    """Region proposals from the third stage, and position-sensitive score maps instead of a head for each region.

    Gives (objectness (batch, n), offsets (batch, n, 4), class maps, box maps), the maps at a 16th of the size for
    position-sensitive pooling into ``side`` x ``side`` cells.
    """

    side = 3

    def __init__(self, classes: int, size: int):
        super().__init__()
        self.stages = resnet_stages("resnet50", last_stride=1)
        for module in self.stages.stages[3].modules():
            if isinstance(module, nn.Conv2d) and module.kernel_size == (3, 3):
                module.dilation = module.padding = (2, 2)
        self.register_buffer("anchors", grid_anchors(size, 16, (24, 40, 56)))
        self.proposal = nn.Sequential(nn.Conv2d(1024, 128, 3, padding=1), nn.ReLU())
        self.objectness, self.offsets = nn.Conv2d(128, 3, 1), nn.Conv2d(128, 12, 1)
        self.narrow = nn.Sequential(nn.Conv2d(2048, 256, 1), nn.ReLU())
        cells = self.side**2
        self.class_maps, self.box_maps = nn.Conv2d(256, (classes + 1) * cells, 1), nn.Conv2d(256, 4 * cells, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        *_, third, fourth = self.stages(x)
        shared, region = self.narrow(fourth), self.proposal(third)
        objectness = self.objectness(region).permute(0, 2, 3, 1).flatten(1)
        offsets = self.offsets(region).permute(0, 2, 3, 1).reshape(x.shape[0], -1, 4)
        return objectness, offsets, self.class_maps(shared), self.box_maps(shared)


class L2Norm(nn.Module):
    """Features of length one at every pixel, times a learned scale for each channel."""

    def __init__(self, channels: int, scale: float):
        super().__init__()
        self.scale = nn.Parameter(torch.full((1, channels, 1, 1), scale))

    def forward(self, x: Tensor) -> Tensor:
        return F.normalize(x, dim=1) * self.scale


class TransferBlock(nn.Module):
    """What links the two steps of RefineDet: convolutions on the anchors' features, plus the coarser level's."""

    def __init__(self, inputs: int, width: int, last: bool):
        super().__init__()
        self.enter = nn.Sequential(
            nn.Conv2d(inputs, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, width, 3, padding=1)
        )
        self.grow = None if last else nn.ConvTranspose2d(width, width, 2, 2)
        self.leave = nn.Sequential(nn.ReLU(), nn.Conv2d(width, width, 3, padding=1), nn.ReLU())

    def forward(self, x: Tensor, coarser: Tensor | None) -> Tensor:
        x = self.enter(x)
        return self.leave(x if coarser is None else x + self.grow(coarser))


class RefineDet(nn.Module):
    """Anchors are first refined and judged (object or not), then classified and moved once more, on VGG16.

    Gives (objectness (batch, n, 2), offsets (batch, n, 4), scores (batch, n, classes + 1), offsets (batch, n, 4)).
    """

    sides = (1.0, 1.6, 2.4)  # of the anchors, in units of two strides

    def __init__(self, classes: int, size: int, width: int = 64):
        super().__init__()
        self.stages = vgg16_stages()
        self.sixth = nn.Sequential(nn.MaxPool2d(2), ConvNorm(512, 256, 3, dilation=3), ConvNorm(256, 256, 1))
        self.norms = nn.ModuleList([L2Norm(512, 10.0), L2Norm(512, 8.0)])
        channels, count = (512, 512, 256), len(self.sides)
        anchors = [grid_anchors(size, s, [2 * s * side for side in self.sides]) for s in (8, 16, 32)]
        self.register_buffer("anchors", torch.cat(anchors))
        self.first = nn.ModuleList(nn.Conv2d(c, count * 6, 3, padding=1) for c in channels)
        self.link = nn.ModuleList(TransferBlock(c, width, level == 2) for level, c in enumerate(channels))
        self.second = nn.ModuleList(nn.Conv2d(width, count * (classes + 5), 3, padding=1) for _ in channels)

    @staticmethod
    def rows(maps: Sequence[Tensor], width: int) -> Tensor:
        return torch.cat([m.permute(0, 2, 3, 1).reshape(m.shape[0], -1, width) for m in maps], 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        fourth, fifth = self.stages(x)[3:]
        features = [self.norms[0](fourth), self.norms[1](fifth), self.sixth(fifth)]
        first = self.rows([layer(f) for layer, f in zip(self.first, features, strict=True)], 6)
        linked: list[Tensor] = []
        coarser = None
        for level in (2, 1, 0):
            coarser = self.link[level](features[level], coarser)
            linked.insert(0, coarser)
        maps = [layer(f) for layer, f in zip(self.second, linked, strict=True)]
        second = self.rows(maps, maps[0].shape[1] // len(self.sides))
        return first[..., :2], first[..., 2:], second[..., :-4], second[..., -4:]
