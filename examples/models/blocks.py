"""Building blocks that several families use: convolutions, attention over channels, pyramids, feature extractors."""

from collections import OrderedDict
from collections.abc import Sequence

import torch.nn.functional as F
from torchvision import models
from torchvision.models.mnasnet import _InvertedResidual as MNASNetResidual
from torchvision.models.mobilenetv2 import InvertedResidual as TorchvisionInvertedResidual
from torchvision.models.regnet import ResBottleneckBlock
from torchvision.models.resnet import BasicBlock, Bottleneck

import torch
from torch import Tensor, nn


class ConvNorm(nn.Sequential):
    """Convolution without bias, batch normalisation, activation; "same" padding for odd kernels unless it is given."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel: int | tuple[int, int] = 3,
        stride: int | tuple[int, int] = 1,
        padding: int | tuple[int, int] | None = None,
        groups: int = 1,
        dilation: int = 1,
        activation: type[nn.Module] | None = nn.ReLU,
    ):
        if padding is None:
            sides = (kernel, kernel) if isinstance(kernel, int) else kernel
            padding = tuple(dilation * (side - 1) // 2 for side in sides)
        layers = [
            nn.Conv2d(inputs, outputs, kernel, stride, padding, dilation, groups, bias=False),
            nn.BatchNorm2d(outputs),
        ]
        if activation is not None:
            layers.append(activation())
        super().__init__(*layers)
        # Steps on weights before a normalisation are the longer the smaller the weights are; torch's default is small.
        nn.init.kaiming_normal_(self[0].weight, nonlinearity="relu")


def damp(branch: nn.Module) -> None:
    """Let a residual branch begin small, by a fifth of its last normalisation's scale.

    Otherwise deep networks amplify rounding at their first steps: ResNet-50's gradients of a few small pictures have
    errors of a percent then, in float32 on any device.
    """
    norms = [module for module in branch.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]
    nn.init.constant_(norms[-1].weight, 0.2)


def damp_residuals(model: nn.Module) -> nn.Module:
    """``damp`` for the residual blocks of torchvision's networks; returns the model."""
    for module in model.modules():
        if isinstance(module, Bottleneck):
            damp(module.bn3)
        elif isinstance(module, BasicBlock):
            damp(module.bn2)
        elif isinstance(module, TorchvisionInvertedResidual) and module.use_res_connect:
            damp(module.conv)
        elif isinstance(module, MNASNetResidual) and module.apply_residual:
            damp(module.layers)
        elif isinstance(module, ResBottleneckBlock):
            damp(module.f)
    return model


class Separable(nn.Sequential):
    """A depthwise convolution, then a pointwise one, each normalised."""

    def __init__(
        self, inputs: int, outputs: int, kernel: int = 3, stride: int = 1, dilation: int = 1, activation=nn.ReLU
    ):
        super().__init__(
            ConvNorm(inputs, inputs, kernel, stride, groups=inputs, dilation=dilation, activation=activation),
            ConvNorm(inputs, outputs, 1, activation=activation),
        )


class InvertedResidual(nn.Module):
    """Widen, filter depthwise, narrow again; added to the input where the shapes allow it (MobileNetV2's block)."""

    def __init__(self, inputs: int, outputs: int, stride: int = 1, widen: int = 6):
        super().__init__()
        wide = inputs * widen
        self.body = nn.Sequential(
            ConvNorm(inputs, wide, 1, activation=nn.ReLU6),
            ConvNorm(wide, wide, 3, stride, groups=wide, activation=nn.ReLU6),
            ConvNorm(wide, outputs, 1, activation=None),
        )
        self.skips = stride == 1 and inputs == outputs
        if self.skips:
            damp(self.body)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x) if self.skips else self.body(x)


class Branches(nn.Module):
    """The same input through several branches, the results side by side as channels (Inception's block)."""

    def __init__(self, *branches: nn.Module):
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([branch(x) for branch in self.branches], 1)


class SqueezeExcite(nn.Module):
    """Channels weighed by what the whole picture holds of them."""

    def __init__(self, channels: int, reduction: int = 16):
        super().__init__()
        narrow = max(channels // reduction, 4)
        self.weigh = nn.Sequential(
            nn.AdaptiveAvgPool2d(1),
            nn.Conv2d(channels, narrow, 1),
            nn.ReLU(),
            nn.Conv2d(narrow, channels, 1),
            nn.Sigmoid(),
        )

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weigh(x)


class Stages(nn.Module):
    """A network cut into named stages; gives the result of each of them."""

    def __init__(self, stages: Sequence[nn.Module], channels: Sequence[int]):
        super().__init__()
        self.stages = nn.ModuleList(stages)
        self.channels = list(channels)

    def forward(self, x: Tensor) -> list[Tensor]:
        results = []
        for stage in self.stages:
            x = stage(x)
            results.append(x)
        return results


def resnet_stages(name: str = "resnet18", last_stride: int = 2) -> Stages:
    """torchvision's ResNet without its classifier: four results, at a 4th, 8th, 16th and 32nd of the size.

    ``last_stride=1`` leaves the last one at a 16th, as re-identification does.
    """
    net = damp_residuals(getattr(models, name)(weights=None))
    if last_stride == 1:
        for module in net.layer4.modules():
            if isinstance(module, nn.Conv2d) and module.stride == (2, 2):
                module.stride = (1, 1)
    stem = nn.Sequential(OrderedDict(conv1=net.conv1, bn1=net.bn1, relu=net.relu, maxpool=net.maxpool))
    width = net.fc.in_features // 8
    return Stages([nn.Sequential(stem, net.layer1), net.layer2, net.layer3, net.layer4], [width << i for i in range(4)])


def vgg16_stages() -> Stages:
    """torchvision's VGG16 with batch normalisation, cut before each pooling: five results, from the full size on."""
    stages, current, channels = [], [], []
    for layer in models.vgg16_bn(weights=None).features:
        if isinstance(layer, nn.MaxPool2d):
            stages.append(nn.Sequential(*current))
            channels.append(next(m.out_channels for m in reversed(current) if isinstance(m, nn.Conv2d)))
            current = []
        current.append(layer)
    return Stages(stages, channels)


def resize_to(x: Tensor, like: Tensor, mode: str = "bilinear") -> Tensor:
    """``x`` at the height and width of ``like``."""
    corners = None if mode == "nearest" else False
    return F.interpolate(x, size=like.shape[-2:], mode=mode, align_corners=corners)


class FeaturePyramid(nn.Module):
    """Top-down sums: every level gets what the coarser ones know. Lists of feature maps in and out, finest first."""

    def __init__(self, channels: Sequence[int], width: int, activation: type[nn.Module] = nn.ReLU):
        super().__init__()
        self.lateral = nn.ModuleList(ConvNorm(c, width, 1, activation=activation) for c in channels)
        self.smooth = nn.ModuleList(ConvNorm(width, width, 3, activation=activation) for _ in channels)

    def forward(self, features: Sequence[Tensor]) -> list[Tensor]:
        levels = [lateral(feature) for lateral, feature in zip(self.lateral, features, strict=True)]
        for fine in range(len(levels) - 2, -1, -1):
            levels[fine] = levels[fine] + resize_to(levels[fine + 1], levels[fine], "nearest")
        return [smooth(level) for smooth, level in zip(self.smooth, levels, strict=True)]


class PyramidPooling(nn.Module):
    """Averages over grids of several sizes beside the input (PSPNet)."""

    def __init__(self, channels: int, width: int, bins: Sequence[int] = (1, 2, 3, 6)):
        super().__init__()
        # No normalisation on a grid of one cell: with few pictures in a batch it would amplify noise.
        self.pools = nn.ModuleList(
            nn.Sequential(nn.AdaptiveAvgPool2d(b), nn.Conv2d(channels, width, 1), nn.ReLU()) for b in bins
        )
        self.channels = channels + width * len(bins)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, *(resize_to(pool(x), x) for pool in self.pools)], 1)


class BidirectionalLSTM(nn.Module):
    """An LSTM that reads both ways, then a linear layer: (time, batch, inputs) -> (time, batch, outputs)."""

    def __init__(self, inputs: int, hidden: int, outputs: int):
        super().__init__()
        self.lstm = nn.LSTM(inputs, hidden, bidirectional=True)
        self.linear = nn.Linear(2 * hidden, outputs)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(self.lstm(x)[0])
