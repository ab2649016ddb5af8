"""Networks that find and read text: EAST, AdvancedEAST, PSENet, DB, FOTS, CRNN, LPRNet."""

import math
from collections.abc import Sequence

import torch.nn.functional as F
from blocks import BidirectionalLSTM, ConvNorm, FeaturePyramid, resize_to, resnet_stages, vgg16_stages

import torch
from torch import Tensor, nn


class Merge(nn.Module):
    """EAST's way up: the coarser features are unpooled, put beside the finer ones, and narrowed."""

    def __init__(self, channels: Sequence[int], widths: Sequence[int]):
        super().__init__()
        self.steps = nn.ModuleList()
        inputs = channels[-1]
        for finer, width in zip(reversed(channels[:-1]), widths, strict=True):
            self.steps.append(nn.Sequential(ConvNorm(inputs + finer, width, 1), ConvNorm(width, width)))
            inputs = width
        self.last = ConvNorm(inputs, inputs)
        self.channels = inputs

    def forward(self, features: Sequence[Tensor]) -> Tensor:
        x = features[-1]
        for step, finer in zip(self.steps, reversed(features[:-1]), strict=True):
            x = step(torch.cat([resize_to(x, finer), finer], 1))
        return self.last(x)


class EAST(nn.Module):
    """One map of text and a rotated box for each of its pixels, at a 4th of the size, on ResNet-50.

    Gives score logits (batch, 1, h, w), distances to the box's four sides in pixels (batch, 4, h, w) and its angle
    (batch, 1, h, w).
    """

    def __init__(self, reach: float):
        super().__init__()
        self.stages = resnet_stages("resnet50")
        self.merge = Merge(self.stages.channels, (128, 64, 32))
        self.heads = nn.ModuleList(nn.Conv2d(32, outputs, 1) for outputs in (1, 4, 1))
        self.reach = reach

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x = self.merge(self.stages(x))
        score, sides, angle = (head(x) for head in self.heads)
        return score, sides.sigmoid() * self.reach, (angle.sigmoid() - 0.5) * (math.pi / 2)


class AdvancedEAST(nn.Module):
    """EAST on VGG16, with the ends of a text found apart from its inside.

    Gives (batch, 7, h, w) at a 4th of the size: logits of inside, of head or tail, and of which of both it is, then two
    corners as offsets from the pixel.
    """

    def __init__(self):
        super().__init__()
        self.stages = vgg16_stages()
        self.merge = Merge(self.stages.channels[2:], (128, 64))
        self.heads = nn.ModuleList(nn.Conv2d(64, outputs, 1) for outputs in (1, 2, 4))

    def forward(self, x: Tensor) -> Tensor:
        x = self.merge(self.stages(x)[2:])
        return torch.cat([head(x) for head in self.heads], 1)


class FusedPyramid(nn.Module):
    """ResNet with a feature pyramid whose levels are put side by side at the finest one's size."""

    def __init__(self, body: str, width: int):
        super().__init__()
        self.stages = resnet_stages(body)
        self.pyramid = FeaturePyramid(self.stages.channels, width)
        self.channels = 4 * width

    def forward(self, x: Tensor) -> Tensor:
        first, *rest = self.pyramid(self.stages(x))
        return torch.cat([first, *(resize_to(level, first) for level in rest)], 1)


class PSENet(nn.Module):
    """The same text in several sizes, from which expansion separates lines: logits (batch, kernels, H, W)."""

    def __init__(self, kernels: int):
        super().__init__()
        self.body = FusedPyramid("resnet50", 64)
        self.head = nn.Sequential(ConvNorm(256, 64), nn.Conv2d(64, kernels, 1))

    def forward(self, x: Tensor) -> Tensor:
        return resize_to(self.head(self.body(x)), x)


class DB(nn.Module):
    """Differentiable binarization: a map of probabilities, one of thresholds, and a steep step between the two.

    Gives (probability logits, threshold, binary), each (batch, 1, H, W).
    """

    steepness = 50.0

    def __init__(self):
        super().__init__()
        self.body = FusedPyramid("resnet18", 64)
        self.probability, self.threshold = self.head(), self.head()

    @staticmethod
    def head() -> nn.Sequential:
        return nn.Sequential(
            ConvNorm(256, 64),
            nn.ConvTranspose2d(64, 64, 2, 2),
            nn.BatchNorm2d(64),
            nn.ReLU(),
            nn.ConvTranspose2d(64, 1, 2, 2),
        )

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x = self.body(x)
        logits, threshold = self.probability(x), self.threshold(x).sigmoid()
        return logits, threshold, (self.steepness * (logits.sigmoid() - threshold)).sigmoid()


class FOTS(nn.Module):
    """Text is found and read with the same features: EAST's maps, RoIRotate, and a recogniser on what that cuts out.

    ``forward`` gives (features, EAST's three maps); ``read`` the scores (time, regions, symbols + 1) of text regions.
    """

    height, width = 8, 32  # of what is cut out

    def __init__(self, symbols: int, reach: float):
        super().__init__()
        self.stages = resnet_stages("resnet50")
        self.merge = Merge(self.stages.channels, (128, 64, 32))
        self.heads = nn.ModuleList(nn.Conv2d(32, outputs, 1) for outputs in (1, 4, 1))
        self.reach = reach
        self.recognise = nn.Sequential(
            ConvNorm(32, 64),
            ConvNorm(64, 64),
            nn.MaxPool2d((2, 1)),
            ConvNorm(64, 128),
            ConvNorm(128, 128),
            nn.MaxPool2d((2, 1)),
        )
        self.sequence = BidirectionalLSTM(256, 64, symbols + 1)

    def forward(self, x: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor, Tensor]]:
        features = self.merge(self.stages(x))
        score, sides, angle = (head(features) for head in self.heads)
        return features, (score, sides.sigmoid() * self.reach, (angle.sigmoid() - 0.5) * (math.pi / 2))

    def rotate(self, features: Tensor, places: Tensor) -> Tensor:
        """RoIRotate: upright cuts of tilted rectangles.

        Features (batch, C, h, w), places (batch, n, 5) in units of the features' whole extent -> (batch * n, C, 8, 32).
        """
        x, y, width, height, angle = places.flatten(0, 1).unbind(-1)
        cos, sin = angle.cos(), angle.sin()
        rows = [width * cos, -height * sin, 2 * x - 1, width * sin, height * cos, 2 * y - 1]
        matrix = torch.stack(rows, -1).view(-1, 2, 3)
        repeated = features.repeat_interleave(places.shape[1], 0)
        grid = F.affine_grid(matrix, [len(matrix), features.shape[1], self.height, self.width], align_corners=False)
        return F.grid_sample(repeated.float(), grid.float(), align_corners=False)

    def read(self, features: Tensor, places: Tensor) -> Tensor:
        x = self.recognise(self.rotate(features, places))
        return self.sequence(x.flatten(1, 2).permute(2, 0, 1))


class CRNN(nn.Module):
    """A column of convolutions that ends one pixel high, then two bidirectional LSTMs over its columns.

    Images (batch, 3, 32, W) -> scores (W / 4 + 1, batch, symbols + 1).
    """

    def __init__(self, symbols: int, hidden: int = 128, width: int = 64):
        super().__init__()
        w = width
        self.columns = nn.Sequential(
            nn.Conv2d(3, w, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(w, 2 * w, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            ConvNorm(2 * w, 4 * w),
            nn.Conv2d(4 * w, 4 * w, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2, (2, 1), (0, 1)),
            ConvNorm(4 * w, 8 * w),
            nn.Conv2d(8 * w, 8 * w, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2, (2, 1), (0, 1)),
            ConvNorm(8 * w, 8 * w, 2, padding=0),
        )
        self.sequence = nn.Sequential(
            BidirectionalLSTM(8 * w, hidden, hidden), BidirectionalLSTM(hidden, hidden, symbols + 1)
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.sequence(self.columns(x).squeeze(2).permute(2, 0, 1))


class SmallBlock(nn.Sequential):
    """LPRNet's block: narrow, 3 x 1, 1 x 3, wide."""

    def __init__(self, inputs: int, outputs: int):
        narrow = outputs // 4
        super().__init__(
            nn.Conv2d(inputs, narrow, 1),
            nn.ReLU(),
            nn.Conv2d(narrow, narrow, (3, 1), padding=(1, 0)),
            nn.ReLU(),
            nn.Conv2d(narrow, narrow, (1, 3), padding=(0, 1)),
            nn.ReLU(),
            nn.Conv2d(narrow, outputs, 1),
        )


class LPRNet(nn.Module):
    """Number plates without recurrence: small blocks, pooling over channels too, a global context beside each stage.

    Images (batch, 3, 24, 94) -> scores (18, batch, symbols + 1).
    """

    def __init__(self, symbols: int):
        super().__init__()

        def after(channels: int) -> list[nn.Module]:
            return [nn.BatchNorm2d(channels), nn.ReLU()]

        # Pooling in three dimensions: the first of them is the channels.
        self.one = nn.Sequential(nn.Conv2d(3, 64, 3), *after(64))
        self.two = nn.Sequential(nn.MaxPool3d((1, 3, 3), 1), SmallBlock(64, 128), *after(128))
        self.three = nn.Sequential(
            nn.MaxPool3d((1, 3, 3), (2, 1, 2)), SmallBlock(64, 256), *after(256), SmallBlock(256, 256), *after(256)
        )
        self.four = nn.Sequential(
            nn.MaxPool3d((1, 3, 3), (4, 1, 2)),
            nn.Dropout(0.5),
            nn.Conv2d(64, 256, (1, 4)),
            *after(256),
            nn.Dropout(0.5),
            nn.Conv2d(256, symbols + 1, (13, 1)),
            *after(symbols + 1),
        )
        self.head = nn.Conv2d(64 + 128 + 256 + symbols + 1, symbols + 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        one = self.one(x)
        two = self.two(one)
        three = self.three(two)
        four = self.four(three)
        size = four.shape[-2:]
        context = [F.adaptive_avg_pool2d(stage, size) for stage in (one, two, three)]
        scores = self.head(torch.cat([part / part.square().mean() for part in (*context, four)], 1))
        return scores.mean(2).permute(2, 0, 1)
