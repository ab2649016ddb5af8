"""Face detectors: MTCNN's PNet and RNet, CenterFace, FaceBoxes, RetinaFace."""

from blocks import Branches, ConvNorm, FeaturePyramid, InvertedResidual, Separable
from boxes import grid_anchors

import torch
from torch import Tensor, nn


class Headed(nn.Module):
    """A body, and heads that all read what it gives."""

    body: nn.Module
    heads: nn.ModuleList

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        x = self.body(x)
        return tuple(head(x) for head in self.heads)


class PNet(Headed):
    """The proposal network of MTCNN: fully convolutional, from 12 x 12 patches on.

    Gives for each place scores (batch, 2, h, w), boxes (batch, 4, h, w) and landmarks (batch, 10, h, w).
    """

    size = 12

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 10, 3),
            nn.PReLU(10),
            nn.MaxPool2d(2, 2, ceil_mode=True),
            nn.Conv2d(10, 16, 3),
            nn.PReLU(16),
            nn.Conv2d(16, 32, 3),
            nn.PReLU(32),
        )
        self.heads = nn.ModuleList(nn.Conv2d(32, outputs, 1) for outputs in (2, 4, 10))


class RNet(Headed):
    """The refinement network of MTCNN, on 24 x 24 patches. Gives scores (batch, 2), boxes and landmarks."""

    size = 24

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 28, 3),
            nn.PReLU(28),
            nn.MaxPool2d(3, 2, ceil_mode=True),
            nn.Conv2d(28, 48, 3),
            nn.PReLU(48),
            nn.MaxPool2d(3, 2, ceil_mode=True),
            nn.Conv2d(48, 64, 2),
            nn.PReLU(64),
            nn.Flatten(),
            nn.Linear(576, 128),
            nn.PReLU(128),
        )
        self.heads = nn.ModuleList(nn.Linear(128, outputs) for outputs in (2, 4, 10))


class CenterFace(nn.Module):
    """Faces as points: MobileNetV2, a path up to a 4th of the size, and four maps there.

    Gives heat (batch, 1, h, w) as logits, log extents (batch, 2, h, w), offsets of the centre (batch, 2, h, w) and
    landmarks (batch, 10, h, w).
    """

    plan = (((16, 1, 1), (24, 2, 2)), ((32, 2, 3),), ((64, 2, 4), (96, 1, 3)), ((160, 2, 3), (320, 1, 1)))

    def __init__(self, width: int = 24):
        super().__init__()
        self.stem = ConvNorm(3, 32, 3, 2, activation=nn.ReLU6)
        self.stages, channels, inputs = nn.ModuleList(), [], 32
        for stage in self.plan:
            blocks = []
            for outputs, stride, count in stage:
                for place in range(count):
                    blocks.append(
                        InvertedResidual(inputs, outputs, stride if place == 0 else 1, 1 if outputs == 16 else 6)
                    )
                    inputs = outputs
            self.stages.append(nn.Sequential(*blocks))
            channels.append(inputs)
        self.lateral = nn.ModuleList(ConvNorm(c, width, 1) for c in channels)
        self.grow = nn.ModuleList(
            nn.Sequential(nn.ConvTranspose2d(width, width, 2, 2, bias=False), nn.BatchNorm2d(width), nn.ReLU())
            for _ in channels[1:]
        )
        self.shared = ConvNorm(width, width)
        self.heads = nn.ModuleList(nn.Conv2d(width, outputs, 1) for outputs in (1, 2, 2, 10))
        nn.init.constant_(self.heads[0].bias, -2.19)  # one pixel in ten is a centre, until learning says otherwise

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        x, features = self.stem(x), []
        for stage in self.stages:
            x = stage(x)
            features.append(x)
        path = self.lateral[-1](features[-1])
        for level in (2, 1, 0):
            path = self.grow[level](path) + self.lateral[level](features[level])
        path = self.shared(path)
        return tuple(head(path) for head in self.heads)


class MirroredReLU(nn.Module):
    """ReLU of the input and of its negative, side by side: early filters come in pairs of opposite sign."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, -x], 1).relu()


class AnchorHeads(nn.Module):
    """Convolutions on several levels, read as rows: (batch, anchors, outputs)."""

    def __init__(self, channels: list[int], counts: list[int], outputs: int):
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Conv2d(c, n * outputs, 3, padding=1) for c, n in zip(channels, counts, strict=True)
        )
        self.outputs = outputs

    def forward(self, features: list[Tensor]) -> Tensor:
        maps = [layer(feature) for layer, feature in zip(self.layers, features, strict=True)]
        return torch.cat([m.permute(0, 2, 3, 1).reshape(m.shape[0], -1, self.outputs) for m in maps], 1)


class FaceBoxes(nn.Module):
    """Rapid digestion to a 32nd of the size, Inception blocks there, three levels of densified anchors.

    Gives scores (batch, n, 2) and offsets (batch, n, 4) for ``anchors`` (n, 4).
    """

    def __init__(self, size: int):
        super().__init__()
        self.digest = nn.Sequential(
            ConvNorm(3, 24, 7, 4, activation=MirroredReLU),
            nn.MaxPool2d(3, 2, 1),
            ConvNorm(48, 64, 5, 2, activation=MirroredReLU),
            nn.MaxPool2d(3, 2, 1),
            *(self.inception() for _ in range(3)),
        )
        self.further = nn.ModuleList(
            nn.Sequential(ConvNorm(inputs, 128, 1), ConvNorm(128, 256, 3, 2)) for inputs in (128, 256)
        )
        anchors = [
            grid_anchors(size, 32, (32, 64, 128), (4, 2, 1)),
            grid_anchors(size, 64, (256,)),
            grid_anchors(size, 128, (512,)),
        ]
        self.register_buffer("anchors", torch.cat(anchors))
        self.scores = AnchorHeads([128, 256, 256], [21, 1, 1], 2)
        self.offsets = AnchorHeads([128, 256, 256], [21, 1, 1], 4)

    @staticmethod
    def inception() -> Branches:
        return Branches(
            ConvNorm(128, 32, 1),
            nn.Sequential(nn.AvgPool2d(3, 1, 1), ConvNorm(128, 32, 1)),
            nn.Sequential(ConvNorm(128, 24, 1), ConvNorm(24, 32)),
            nn.Sequential(ConvNorm(128, 24, 1), ConvNorm(24, 32), ConvNorm(32, 32)),
        )

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        features = [self.digest(x)]
        for stage in self.further:
            features.append(stage(features[-1]))
        return self.scores(features), self.offsets(features)


class ContextModule(nn.Module):
    """Convolutions that see 3, 5 and 7 pixels wide, side by side (SSH)."""

    def __init__(self, width: int):
        super().__init__()
        self.three = ConvNorm(width, width // 2, activation=None)
        self.five = ConvNorm(width, width // 4)
        self.five_out = ConvNorm(width // 4, width // 4, activation=None)
        self.seven_out = nn.Sequential(
            ConvNorm(width // 4, width // 4), ConvNorm(width // 4, width // 4, activation=None)
        )

    def forward(self, x: Tensor) -> Tensor:
        five = self.five(x)
        return torch.cat([self.three(x), self.five_out(five), self.seven_out(five)], 1).relu()


class RetinaFace(nn.Module):
    """MobileNet of a quarter's width, a feature pyramid, context modules; classes, boxes and landmarks at once.

    Gives scores (batch, n, 2), offsets (batch, n, 4) and landmarks (batch, n, 10) for ``anchors`` (n, 4).
    """

    def __init__(self, size: int, width: int = 64):
        super().__init__()
        plan = (
            ((8, 16, 1), (16, 32, 2), (32, 32, 1), (32, 64, 2), (64, 64, 1)),
            ((64, 128, 2), *[(128, 128, 1)] * 5),
            ((128, 256, 2), (256, 256, 1)),
        )
        stages = [nn.Sequential(*(Separable(a, b, stride=s) for a, b, s in stage)) for stage in plan]
        self.stages = nn.ModuleList([nn.Sequential(ConvNorm(3, 8, 3, 2), stages[0]), *stages[1:]])
        self.pyramid = FeaturePyramid((64, 128, 256), width)
        self.context = nn.ModuleList(ContextModule(width) for _ in range(3))
        anchors = [grid_anchors(size, stride, (2 * stride, 4 * stride)) for stride in (8, 16, 32)]
        self.register_buffer("anchors", torch.cat(anchors))
        self.heads = nn.ModuleList(AnchorHeads([width] * 3, [2] * 3, outputs) for outputs in (2, 4, 10))

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        features = []
        for stage in self.stages:
            x = stage(x)
            features.append(x)
        levels = [module(level) for module, level in zip(self.context, self.pyramid(features), strict=True)]
        return tuple(head(levels) for head in self.heads)
