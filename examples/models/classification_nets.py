"""Classifiers that torchvision does not have, each with what makes it that network."""

import torch.nn.functional as F
from blocks import Branches, ConvNorm, Separable, damp, damp_residuals
from torchvision import models
from torchvision.models.resnet import Bottleneck

import torch
from torch import Tensor, nn


class InceptionV2(nn.Module):
    """Inception with batch normalisation: 5 x 5 filters are two 3 x 3, and reducing blocks also pool their input.

    Images (batch, 3, 64 or more, 64 or more) -> scores (batch, classes).
    """

    # In, then for each branch its widths: 1x1; 3x3; double 3x3; projection of the pooled input. 0 in the first and last
    # marks a block that halves the picture.
    BLOCKS = (
        (192, 64, (64, 64), (64, 96), 32),
        (256, 64, (64, 96), (64, 96), 64),
        (320, 0, (128, 160), (64, 96), 0),
        (576, 224, (64, 96), (96, 128), 128),
        (576, 192, (96, 128), (96, 128), 128),
        (576, 160, (128, 160), (128, 160), 96),
        (576, 96, (128, 192), (160, 192), 96),
        (576, 0, (128, 192), (192, 256), 0),
        (1024, 352, (192, 320), (160, 224), 128),
        (1024, 352, (192, 320), (192, 224), 128),
    )

    def __init__(self, classes: int):
        super().__init__()
        self.stem = nn.Sequential(
            ConvNorm(3, 64, 7, 2),
            nn.MaxPool2d(3, 2, 1),
            ConvNorm(64, 64, 1),
            ConvNorm(64, 192, 3),
            nn.MaxPool2d(3, 2, 1),
        )
        self.body = nn.Sequential(*(self.block(*widths, last=i >= 9) for i, widths in enumerate(self.BLOCKS)))
        self.head = nn.Linear(1024, classes)

    @staticmethod
    def block(inputs: int, plain: int, single: tuple[int, int], double: tuple[int, int], pooled: int, last: bool):
        stride = 1 if plain else 2
        branches = [
            nn.Sequential(ConvNorm(inputs, single[0], 1), ConvNorm(single[0], single[1], 3, stride)),
            nn.Sequential(
                ConvNorm(inputs, double[0], 1),
                ConvNorm(double[0], double[1], 3),
                ConvNorm(double[1], double[1], 3, stride),
            ),
        ]
        if plain:
            pool = nn.MaxPool2d(3, 1, 1) if last else nn.AvgPool2d(3, 1, 1)
            branches = [ConvNorm(inputs, plain, 1), *branches, nn.Sequential(pool, ConvNorm(inputs, pooled, 1))]
        else:
            branches.append(nn.MaxPool2d(3, 2, 1))
        return Branches(*branches)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(self.stem(x)).mean((2, 3)))


class InceptionV4(nn.Module):
    """Three kinds of Inception blocks (4 of A, 7 of B, 3 of C) behind a stem that itself branches.

    Asymmetric filters (1 x 7, 7 x 1, 1 x 3, 3 x 1), average pooling inside of the blocks, two reductions.
    Images (batch, 3, 96 or more, 96 or more) -> scores (batch, classes).
    """

    def __init__(self, classes: int):
        super().__init__()
        self.stem = nn.Sequential(
            ConvNorm(3, 32, 3, 2, 0),
            ConvNorm(32, 32, 3, 1, 0),
            ConvNorm(32, 64, 3),
            Branches(nn.MaxPool2d(3, 2), ConvNorm(64, 96, 3, 2, 0)),
            Branches(
                nn.Sequential(ConvNorm(160, 64, 1), ConvNorm(64, 96, 3, 1, 0)),
                nn.Sequential(
                    ConvNorm(160, 64, 1), ConvNorm(64, 64, (1, 7)), ConvNorm(64, 64, (7, 1)), ConvNorm(64, 96, 3, 1, 0)
                ),
            ),
            Branches(ConvNorm(192, 192, 3, 2, 0), nn.MaxPool2d(3, 2)),
        )
        self.body = nn.Sequential(
            *(self.block_a() for _ in range(4)),
            Branches(
                nn.MaxPool2d(3, 2),
                ConvNorm(384, 384, 3, 2, 0),
                nn.Sequential(ConvNorm(384, 192, 1), ConvNorm(192, 224, 3), ConvNorm(224, 256, 3, 2, 0)),
            ),
            *(self.block_b() for _ in range(7)),
            Branches(
                nn.MaxPool2d(3, 2),
                nn.Sequential(ConvNorm(1024, 192, 1), ConvNorm(192, 192, 3, 2, 0)),
                nn.Sequential(
                    ConvNorm(1024, 256, 1),
                    ConvNorm(256, 256, (1, 7)),
                    ConvNorm(256, 320, (7, 1)),
                    ConvNorm(320, 320, 3, 2, 0),
                ),
            ),
            *(self.block_c() for _ in range(3)),
        )
        self.head = nn.Sequential(nn.Dropout(0.2), nn.Linear(1536, classes))

    @staticmethod
    def pooled(inputs: int, outputs: int) -> nn.Sequential:
        return nn.Sequential(nn.AvgPool2d(3, 1, 1, count_include_pad=False), ConvNorm(inputs, outputs, 1))

    @classmethod
    def block_a(cls) -> Branches:
        return Branches(
            cls.pooled(384, 96),
            ConvNorm(384, 96, 1),
            nn.Sequential(ConvNorm(384, 64, 1), ConvNorm(64, 96, 3)),
            nn.Sequential(ConvNorm(384, 64, 1), ConvNorm(64, 96, 3), ConvNorm(96, 96, 3)),
        )

    @classmethod
    def block_b(cls) -> Branches:
        return Branches(
            cls.pooled(1024, 128),
            ConvNorm(1024, 384, 1),
            nn.Sequential(ConvNorm(1024, 192, 1), ConvNorm(192, 224, (1, 7)), ConvNorm(224, 256, (7, 1))),
            nn.Sequential(
                ConvNorm(1024, 192, 1),
                ConvNorm(192, 192, (1, 7)),
                ConvNorm(192, 224, (7, 1)),
                ConvNorm(224, 224, (1, 7)),
                ConvNorm(224, 256, (7, 1)),
            ),
        )

    @classmethod
    def block_c(cls) -> Branches:
        return Branches(
            cls.pooled(1536, 256),
            ConvNorm(1536, 256, 1),
            nn.Sequential(ConvNorm(1536, 384, 1), Branches(ConvNorm(384, 256, (1, 3)), ConvNorm(384, 256, (3, 1)))),
            nn.Sequential(
                ConvNorm(1536, 384, 1),
                ConvNorm(384, 448, (1, 3)),
                ConvNorm(448, 512, (3, 1)),
                Branches(ConvNorm(512, 256, (1, 3)), ConvNorm(512, 256, (3, 1))),
            ),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(self.stem(x)).mean((2, 3)))


class GatherExciteBottleneck(Bottleneck):
    """ResNet's bottleneck with its result gated by the context of the whole picture, before the sum."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        channels = self.bn3.num_features
        self.excite = nn.Sequential(
            nn.Conv2d(channels, channels // 16, 1), nn.ReLU(), nn.Conv2d(channels // 16, channels, 1), nn.Sigmoid()
        )

    def forward(self, x: Tensor) -> Tensor:
        result = self.relu(self.bn1(self.conv1(x)))
        result = self.relu(self.bn2(self.conv2(result)))
        result = self.bn3(self.conv3(result))
        gathered = F.adaptive_avg_pool2d(result, 1)
        result = result * self.excite(gathered)
        return self.relu(result + (x if self.downsample is None else self.downsample(x)))


def genet(classes: int) -> nn.Module:
    """GENet, the form that gathers over the whole extent with parameters in the excitation (theta+), on ResNet-50."""
    return damp_residuals(models.ResNet(GatherExciteBottleneck, [3, 4, 6, 3], num_classes=classes))


class MobileNetV1(nn.Module):
    """Thirteen depthwise separable convolutions. Images (batch, 3, H, W) -> scores (batch, classes)."""

    LAYERS = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5, (1024, 2), (1024, 1))

    def __init__(self, classes: int):
        super().__init__()
        layers: list[nn.Module] = [ConvNorm(3, 32, 3, 2)]
        inputs = 32
        for outputs, stride in self.LAYERS:
            layers.append(Separable(inputs, outputs, stride=stride))
            inputs = outputs
        self.features = nn.Sequential(*layers)
        self.head = nn.Linear(inputs, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.features(x).mean((2, 3)))


class OneShotAggregation(nn.Module):
    """Five convolutions in a row whose results are put side by side once, at the end (VoVNet's block)."""

    def __init__(self, inputs: int, width: int, outputs: int, layers: int = 5):
        super().__init__()
        self.layers = nn.ModuleList(ConvNorm(inputs if i == 0 else width, width, 3) for i in range(layers))
        self.gather = ConvNorm(inputs + layers * width, outputs, 1)
        self.skips = inputs == outputs
        if self.skips:
            damp(self.gather)

    def forward(self, x: Tensor) -> Tensor:
        results = [x]
        for layer in self.layers:
            results.append(layer(results[-1]))
        result = self.gather(torch.cat(results, 1))
        return x + result if self.skips else result


class VoVNet39(nn.Module):
    """VoVNet-39: stages of 1, 1, 2 and 2 one-shot aggregations. Images (batch, 3, H, W) -> scores (batch, classes)."""

    def __init__(self, classes: int):
        super().__init__()
        layers: list[nn.Module] = [ConvNorm(3, 64, 3, 2), ConvNorm(64, 64), ConvNorm(64, 128, 3, 2)]
        inputs = 128
        for stage, (width, outputs, count) in enumerate(((128, 256, 1), (160, 512, 1), (192, 768, 2), (224, 1024, 2))):
            if stage:
                layers.append(nn.MaxPool2d(3, 2, 1))
            for _ in range(count):
                layers.append(OneShotAggregation(inputs, width, outputs))
                inputs = outputs
        self.features = nn.Sequential(*layers)
        self.head = nn.Linear(inputs, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.features(x).mean((2, 3)))


class ReluSeparable(nn.Sequential):
    """Activation first, and the separable convolution applied twice, as the searched cells have it."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int = 1):
        super().__init__()
        for first, step in ((inputs, stride), (outputs, 1)):
            self.append(nn.ReLU())
            self.append(nn.Conv2d(first, first, kernel, step, kernel // 2, groups=first, bias=False))
            self.append(nn.Conv2d(first, outputs, 1, bias=False))
            self.append(nn.BatchNorm2d(outputs, eps=1e-3))


class PNASCell(nn.Module):
    """The cell that progressive search found: five sums of two operations each, side by side.

    Takes the results of the two cells before; with stride 2 it halves the picture.
    """

    def __init__(self, before: int, inputs: int, width: int, stride: int, shrink_before: bool):
        super().__init__()
        self.before = nn.Sequential(nn.ReLU(), ConvNorm(before, width, 1, 2 if shrink_before else 1, activation=None))
        self.now = nn.Sequential(nn.ReLU(), ConvNorm(inputs, width, 1, activation=None))
        pool = lambda: nn.MaxPool2d(3, stride, 1)  # noqa: E731
        self.left = nn.ModuleList(
            [
                ReluSeparable(width, width, 5, stride),
                ReluSeparable(width, width, 7, stride),
                ReluSeparable(width, width, 5, stride),
                ReluSeparable(width, width, 3),
                ReluSeparable(width, width, 3, stride),
            ]
        )
        self.right = nn.ModuleList(
            [pool(), pool(), ReluSeparable(width, width, 3, stride), pool()]
            + [
                nn.Sequential(nn.ReLU(), ConvNorm(width, width, 1, stride, activation=None))
                if stride == 2
                else nn.Identity()
            ]
        )

    def forward(self, before: Tensor, now: Tensor) -> Tensor:
        before, now = self.before(before), self.now(now)
        sums = [
            self.left[0](before) + self.right[0](before),
            self.left[1](now) + self.right[1](now),
            self.left[2](now) + self.right[2](now),
        ]
        sums.append(self.left[3](sums[2]) + self.right[3](now))
        sums.append(self.left[4](before) + self.right[4](now))
        return torch.cat(sums, 1)


class PNASNet(nn.Module):
    """PNASNet: a convolution, two shrinking cells, three stacks of cells with a shrinking cell before the later two.

    The published 5-large has stacks of four cells of width 216; the defaults are smaller so that it runs on two cores.
    Images (batch, 3, H, W) -> scores (batch, classes).
    """

    def __init__(self, classes: int, width: int = 24, cells: int = 2):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 32, 3, 2, 1, bias=False), nn.BatchNorm2d(32, eps=1e-3))
        plan = [(width // 4, 2), (width // 2, 2)]
        for stack in range(3):
            plan += [(width << stack, 2)] if stack else []
            plan += [(width << stack, 1)] * cells
        self.cells = nn.ModuleList()
        before, inputs, shrunk = 32, 32, False
        for wide, stride in plan:
            self.cells.append(PNASCell(before, inputs, wide, stride, shrunk))
            before, inputs, shrunk = inputs, 5 * wide, stride == 2
        self.head = nn.Sequential(nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes))

    def forward(self, x: Tensor) -> Tensor:
        before = now = self.stem(x)
        for cell in self.cells:
            before, now = now, cell(before, now)
        return self.head(now)
