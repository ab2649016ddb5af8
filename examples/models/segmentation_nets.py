"""Segmentation networks, each with what makes it that network.

Images (batch, 3, H, W) -> scores (batch, classes, H, W).
"""

import torch.nn.functional as F
from blocks import ConvNorm, InvertedResidual, PyramidPooling, Separable, damp, resize_to, resnet_stages, vgg16_stages

import torch
from torch import Tensor, nn


def double(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(ConvNorm(inputs, outputs), ConvNorm(outputs, outputs))


class UNet(nn.Module):
    """A contracting path and an expanding one that gets the same level's features beside its own."""

    def __init__(self, classes: int, width: int = 16, levels: int = 5):
        super().__init__()
        widths = [width << level for level in range(levels)]
        self.down = nn.ModuleList(double(a, b) for a, b in zip([3, *widths], widths, strict=False))
        self.rise = nn.ModuleList(nn.ConvTranspose2d(2 * w, w, 2, 2) for w in widths[:-1])
        self.up = nn.ModuleList(double(2 * w, w) for w in widths[:-1])
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        kept = []
        for level, block in enumerate(self.down):
            x = block(x if level == 0 else F.max_pool2d(x, 2))
            kept.append(x)
        for level in reversed(range(len(self.up))):
            x = self.up[level](torch.cat([kept[level], self.rise[level](x)], 1))
        return self.head(x)


class NestedUNet(nn.Module):
    """UNet++: between the two paths a triangle of nodes, each fed by all nodes before it and the one below.

    In training a list of scores, one of each node of the top row (deep supervision); else the last one's.
    """

    def __init__(self, classes: int, width: int = 16, levels: int = 4):
        super().__init__()
        widths = [width << level for level in range(levels)]
        self.nodes = nn.ModuleDict()
        for column in range(levels):
            for row in range(levels - column):
                before = (3 if row == 0 else widths[row - 1]) if column == 0 else column * widths[row] + widths[row + 1]
                self.nodes[f"{row}_{column}"] = double(before, widths[row])
        self.heads = nn.ModuleList(nn.Conv2d(width, classes, 1) for _ in range(levels - 1))
        self.levels = levels

    def forward(self, x: Tensor) -> Tensor | list[Tensor]:
        found: dict[tuple[int, int], Tensor] = {}
        for row in range(self.levels):
            found[row, 0] = self.nodes[f"{row}_0"](x if row == 0 else F.max_pool2d(found[row - 1, 0], 2))
        for column in range(1, self.levels):
            for row in range(self.levels - column):
                earlier = [found[row, before] for before in range(column)]
                below = resize_to(found[row + 1, column - 1], earlier[0])
                found[row, column] = self.nodes[f"{row}_{column}"](torch.cat([*earlier, below], 1))
        scores = [head(found[0, column]) for column, head in enumerate(self.heads, 1)]
        return scores if self.training else scores[-1]


def bilinear_filter(channels: int, side: int) -> Tensor:
    """Weights with which a transposed convolution interpolates linearly, each channel for itself."""
    ramp = 1 - (torch.arange(side) - (side - 1) / 2).abs() / ((side + 1) // 2)
    weight = torch.zeros(channels, channels, side, side)
    for channel in range(channels):
        weight[channel, channel] = ramp[:, None] * ramp[None]
    return weight


class FCN8s(nn.Module):
    """VGG16, scores at a 32nd of the size, added up with those at a 16th and an 8th by learned interpolation."""

    def __init__(self, classes: int):
        super().__init__()
        self.stages = vgg16_stages()
        self.pool = nn.MaxPool2d(2)
        self.deep = nn.Sequential(ConvNorm(512, 512, 7), nn.Dropout2d(), ConvNorm(512, 512, 1), nn.Dropout2d())
        self.scores = nn.ModuleList(nn.Conv2d(c, classes, 1) for c in (256, 512, 512))
        self.grow = nn.ModuleList(nn.ConvTranspose2d(classes, classes, 2 * s, s, s // 2, bias=False) for s in (8, 2, 2))
        with torch.no_grad():
            for layer in self.grow:
                layer.weight.copy_(bilinear_filter(classes, layer.kernel_size[0]))

    def forward(self, x: Tensor) -> Tensor:
        features = self.stages(x)
        third, fourth = self.pool(features[2]), self.pool(features[3])
        deep = self.scores[2](self.deep(self.pool(features[4])))
        fused = self.grow[1](deep) + self.scores[1](fourth)
        return self.grow[0](self.grow[2](fused) + self.scores[0](third))


class XceptionBlock(nn.Module):
    """Three separable convolutions and a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int = 1, dilation: int = 1, shortcut: str = "conv"):
        super().__init__()
        self.body = nn.Sequential(
            Separable(inputs, outputs, dilation=dilation),
            Separable(outputs, outputs, dilation=dilation),
            Separable(outputs, outputs, stride=stride, dilation=dilation),
        )
        damp(self.body)
        self.shortcut = ConvNorm(inputs, outputs, 1, stride, activation=None) if shortcut == "conv" else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x) + self.shortcut(x)


class DeepLabV3Plus(nn.Module):
    """Atrous spatial pyramid pooling on a modified aligned Xception, then a decoder that uses its early features.

    Xception is narrower and its middle flow shorter than the published one (4 of 16 blocks). JFT, the data set of the
    listed name's weights, was never published; weights are random.
    """

    def __init__(self, classes: int, width: int = 32, middle: int = 4):
        super().__init__()
        w = width
        self.stem = nn.Sequential(ConvNorm(3, w, 3, 2), ConvNorm(w, 2 * w))
        self.early = XceptionBlock(2 * w, 4 * w, 2)
        self.entry = nn.Sequential(XceptionBlock(4 * w, 8 * w, 2), XceptionBlock(8 * w, 12 * w, 2))
        self.middle = nn.Sequential(*(XceptionBlock(12 * w, 12 * w, shortcut="sum") for _ in range(middle)))
        self.leave = nn.Sequential(XceptionBlock(12 * w, 16 * w, dilation=2), Separable(16 * w, 16 * w, dilation=2))
        self.atrous = nn.ModuleList(
            [ConvNorm(16 * w, 64, 1), *(ConvNorm(16 * w, 64, 3, dilation=rate) for rate in (6, 12, 18))]
        )
        self.whole = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(16 * w, 64, 1), nn.ReLU())
        self.join = nn.Sequential(ConvNorm(320, 64, 1), nn.Dropout(0.1))
        self.detail = ConvNorm(4 * w, 24, 1)
        self.decode = nn.Sequential(Separable(88, 64), Separable(64, 64), nn.Conv2d(64, classes, 1))

    def forward(self, x: Tensor) -> Tensor:
        early = self.early(self.stem(x))
        deep = self.leave(self.middle(self.entry(early)))
        pyramid = [branch(deep) for branch in self.atrous] + [resize_to(self.whole(deep), deep)]
        context = resize_to(self.join(torch.cat(pyramid, 1)), early)
        return resize_to(self.decode(torch.cat([self.detail(early), context], 1)), x)


class PSPNet(nn.Module):
    """Pyramid pooling on ResNet-50 that keeps an 8th of the size. In training (scores, scores of the third stage)."""

    def __init__(self, classes: int):
        super().__init__()
        self.stages = resnet_stages("resnet50")
        for stage, dilation in ((self.stages.stages[2], 2), (self.stages.stages[3], 4)):
            for module in stage.modules():
                if isinstance(module, nn.Conv2d):
                    module.stride = (1, 1)
                    if module.kernel_size == (3, 3):
                        module.dilation = module.padding = (dilation, dilation)
        self.pyramid = PyramidPooling(2048, 128)
        self.head = nn.Sequential(ConvNorm(self.pyramid.channels, 128), nn.Dropout2d(0.1), nn.Conv2d(128, classes, 1))
        self.auxiliary = nn.Sequential(ConvNorm(1024, 64), nn.Dropout2d(0.1), nn.Conv2d(64, classes, 1))

    def forward(self, x: Tensor) -> Tensor | list[Tensor]:
        *_, third, fourth = self.stages(x)
        scores = resize_to(self.head(self.pyramid(fourth)), x)
        return [resize_to(self.auxiliary(third), x), scores] if self.training else scores


class FastSCNN(nn.Module):
    """Learning to down-sample is shared by a deep branch at low resolution and a shortcut; their sum is classified."""

    def __init__(self, classes: int):
        super().__init__()
        self.shrink = nn.Sequential(ConvNorm(3, 32, 3, 2), Separable(32, 48, stride=2), Separable(48, 64, stride=2))
        plan = (
            (64, 64, 2),
            (64, 64, 1),
            (64, 64, 1),
            (64, 96, 2),
            (96, 96, 1),
            (96, 96, 1),
            (96, 128, 1),
            (128, 128, 1),
        )
        self.context = nn.Sequential(*(InvertedResidual(a, b, stride) for a, b, stride in plan))
        self.pyramid = PyramidPooling(128, 32)
        self.squeeze = ConvNorm(self.pyramid.channels, 128, 1)
        self.low = nn.Sequential(
            ConvNorm(128, 128, 3, groups=128, dilation=4), nn.Conv2d(128, 128, 1, bias=False), nn.BatchNorm2d(128)
        )
        self.high = ConvNorm(64, 128, 1, activation=None)
        self.head = nn.Sequential(Separable(128, 128), Separable(128, 128), nn.Dropout(0.1), nn.Conv2d(128, classes, 1))

    def forward(self, x: Tensor) -> Tensor:
        high = self.shrink(x)
        deep = self.squeeze(self.pyramid(self.context(high)))
        fused = F.relu(self.high(high) + self.low(resize_to(deep, high)))
        return resize_to(self.head(fused), x)


class PreActivation(nn.Module):
    """RefineNet's residual unit: activation before each of two convolutions, no normalisation."""

    def __init__(self, width: int):
        super().__init__()
        self.body = nn.Sequential(
            nn.ReLU(), nn.Conv2d(width, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, width, 3, padding=1)
        )

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x)


class ChainedPooling(nn.Module):
    """Each of a chain of pooled convolutions is added to the sum."""

    def __init__(self, width: int, links: int = 2):
        super().__init__()
        self.links = nn.ModuleList(
            nn.Sequential(nn.MaxPool2d(5, 1, 2), nn.Conv2d(width, width, 3, padding=1, bias=False))
            for _ in range(links)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = result = F.relu(x)
        for link in self.links:
            x = link(x)
            result = result + x
        return result


class RefineBlock(nn.Module):
    """Residual units on each input, their fusion at the finer one's size, chained pooling, an output unit."""

    def __init__(self, channels: int, coarser: int | None, width: int):
        super().__init__()
        self.adapt = nn.Sequential(
            nn.Conv2d(channels, width, 3, padding=1, bias=False), PreActivation(width), PreActivation(width)
        )
        self.fine = nn.Conv2d(width, width, 3, padding=1)
        self.coarse = None
        if coarser is not None:
            self.coarse = nn.Sequential(
                PreActivation(coarser), PreActivation(coarser), nn.Conv2d(coarser, width, 3, padding=1)
            )
        self.after = nn.Sequential(ChainedPooling(width), PreActivation(width))

    def forward(self, feature: Tensor, coarser: Tensor | None = None) -> Tensor:
        fused = self.fine(self.adapt(feature))
        if coarser is not None:
            fused = fused + resize_to(self.coarse(coarser), fused)
        return self.after(fused)


class RefineNet(nn.Module):
    """Four refinement blocks, from ResNet-50's coarsest features to the finest."""

    def __init__(self, classes: int, width: int = 48):
        super().__init__()
        self.stages = resnet_stages("resnet50")
        self.blocks = nn.ModuleList(
            RefineBlock(c, None if level == 3 else width, width) for level, c in enumerate(self.stages.channels)
        )
        self.head = nn.Sequential(PreActivation(width), nn.Dropout(0.2), nn.Conv2d(width, classes, 3, padding=1))

    def forward(self, x: Tensor) -> Tensor:
        refined = None
        for block, feature in reversed(list(zip(self.blocks, self.stages(x), strict=True))):
            refined = block(feature, refined)
        return resize_to(self.head(refined), x)
