"""Networks for super-resolution: EDSR, RDN and SRFlow. Pictures (batch, 3, h, w) -> (batch, 3, 2 h, 2 w)."""

import math

import torch.nn.functional as F

import torch
from torch import Tensor, nn


def conv(inputs: int, outputs: int, kernel: int = 3) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2)


class EDSR(nn.Module):
    """Residual blocks without normalisation, a long skip, and growth by shuffling channels into pixels."""

    def __init__(self, width: int = 64, blocks: int = 16, scale: float = 1.0):
        super().__init__()
        self.enter = conv(3, width)
        self.blocks = nn.ModuleList(
            nn.Sequential(conv(width, width), nn.ReLU(), conv(width, width)) for _ in range(blocks)
        )
        self.last = conv(width, width)
        self.grow = nn.Sequential(conv(width, 4 * width), nn.PixelShuffle(2), conv(width, 3))
        self.scale = scale

    def forward(self, x: Tensor) -> Tensor:
        first = x = self.enter(x - 0.5)
        for block in self.blocks:
            x = x + self.scale * block(x)
        return self.grow(first + self.last(x)) + 0.5


class DenseBlock(nn.Module):
    """Every convolution sees all results before it; narrowed to the input's width and added to it."""

    def __init__(self, width: int, growth: int, layers: int):
        super().__init__()
        self.layers = nn.ModuleList(conv(width + place * growth, growth) for place in range(layers))
        self.fuse = conv(width + layers * growth, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        results = [x]
        for layer in self.layers:
            results.append(layer(torch.cat(results, 1)).relu())
        return x + self.fuse(torch.cat(results, 1))


class RDN(nn.Module):
    """Residual dense blocks whose results are all fused; the published one has 16 blocks of 8 layers, this 6 of 6."""

    def __init__(self, width: int = 48, growth: int = 24, blocks: int = 6, layers: int = 6):
        super().__init__()
        self.enter = nn.ModuleList([conv(3, width), conv(width, width)])
        self.blocks = nn.ModuleList(DenseBlock(width, growth, layers) for _ in range(blocks))
        self.fuse = nn.Sequential(conv(blocks * width, width, 1), conv(width, width))
        self.grow = nn.Sequential(conv(width, 4 * width), nn.PixelShuffle(2), conv(width, 3))

    def forward(self, x: Tensor) -> Tensor:
        first = self.enter[0](x)
        x, results = self.enter[1](first), []
        for block in self.blocks:
            x = block(x)
            results.append(x)
        return self.grow(first + self.fuse(torch.cat(results, 1)))


class ActNorm(nn.Module):
    """A scale and a shift for each channel. Gives the result and the logarithm of the Jacobian's determinant."""

    def __init__(self, channels: int):
        super().__init__()
        self.shift = nn.Parameter(torch.zeros(1, channels, 1, 1))
        self.scale = nn.Parameter(torch.zeros(1, channels, 1, 1))  # logarithms

    def forward(self, x: Tensor, backwards: bool) -> tuple[Tensor, Tensor]:
        area = x.shape[2] * x.shape[3]
        if backwards:
            return x * (-self.scale).exp() - self.shift, -area * self.scale.sum()
        return (x + self.shift) * self.scale.exp(), area * self.scale.sum()


class MixChannels(nn.Module):
    """An invertible 1 x 1 convolution, kept as the LU factors of its matrix: its determinant is then a product."""

    def __init__(self, channels: int):
        super().__init__()
        rotation = torch.linalg.qr(torch.randn(channels, channels))[0]
        permutation, lower, upper = torch.linalg.lu(rotation)
        diagonal = upper.diagonal()
        self.register_buffer("permutation", permutation)
        self.register_buffer("sign", diagonal.sign())
        self.register_buffer("unit", torch.eye(channels))
        self.lower, self.upper = nn.Parameter(lower.tril(-1)), nn.Parameter(upper.triu(1))
        self.scale = nn.Parameter(diagonal.abs().log())

    def forward(self, x: Tensor, backwards: bool) -> tuple[Tensor, Tensor]:
        area = x.shape[2] * x.shape[3]
        lower = self.lower.tril(-1) + self.unit
        upper = self.upper.triu(1) + torch.diag(self.sign * self.scale.exp())
        if backwards:
            half = torch.linalg.solve_triangular(lower, self.permutation.t(), upper=False, unitriangular=True)
            matrix = torch.linalg.solve_triangular(upper, half, upper=True)
        else:
            matrix = self.permutation @ lower @ upper
        determinant = area * self.scale.sum()
        return F.conv2d(x, matrix[:, :, None, None]), -determinant if backwards else determinant


class Conditional(nn.Module):
    """The step in which a flow learns what a high resolution may hold, given the low one.

    First all channels are scaled and shifted by numbers that only the low resolution decides, then one half of the
    channels by numbers that it and the other half decide.
    """

    def __init__(self, channels: int, condition: int, hidden: int = 32):
        super().__init__()
        self.half = channels // 2
        self.inject = self.numbers(condition, 2 * channels, hidden)
        self.couple = self.numbers(condition + self.half, 2 * (channels - self.half), hidden)

    @staticmethod
    def numbers(inputs: int, outputs: int, hidden: int) -> nn.Sequential:
        last = conv(hidden, outputs)
        nn.init.zeros_(last.weight)  # a flow begins as the identity
        nn.init.zeros_(last.bias)
        return nn.Sequential(conv(inputs, hidden), nn.ReLU(), conv(hidden, hidden, 1), nn.ReLU(), last)

    @staticmethod
    def move(x: Tensor, numbers: Tensor, backwards: bool) -> tuple[Tensor, Tensor]:
        shift, scale = numbers.chunk(2, 1)
        scale = (scale + 2).sigmoid() + 1e-3
        change = scale.log().flatten(1).sum(1)
        return (x / scale - shift, -change) if backwards else ((x + shift) * scale, change)

    def forward(self, x: Tensor, condition: Tensor, backwards: bool) -> tuple[Tensor, Tensor]:
        total = torch.zeros((), device=x.device)
        for step in reversed(range(2)) if backwards else range(2):
            if step == 0:
                x, change = self.move(x, self.inject(condition), backwards)
            else:
                kept, moved = x[:, : self.half], x[:, self.half :]
                moved, change = self.move(moved, self.couple(torch.cat([condition, kept], 1)), backwards)
                x = torch.cat([kept, moved], 1)
            total = total + change
        return x, total


class SRFlow(nn.Module):
    """A normalising flow from high-resolution pictures to noise, conditioned on features of the low resolution.

    ``forward`` gives the negative logarithm of the likelihood in bits for each number of the picture, ``sample`` turns
    noise into a picture. Dense residual blocks find the features; one level of 6 steps stands for 3 of 16.
    """

    def __init__(self, width: int = 32, steps: int = 6):
        super().__init__()
        self.features = nn.Sequential(conv(3, width), *(DenseBlock(width, 16, 4) for _ in range(3)))
        self.steps = nn.ModuleList(
            nn.ModuleList([ActNorm(12), MixChannels(12), Conditional(12, width)]) for _ in range(steps)
        )

    def forward(self, high: Tensor, low: Tensor) -> Tensor:
        condition = self.features(low)
        x = F.pixel_unshuffle(high - F.interpolate(low, scale_factor=2, mode="bilinear", align_corners=False), 2)
        total = torch.zeros((), device=x.device)
        for norm, mix, conditional in self.steps:
            for layer, extra in ((norm, ()), (mix, ()), (conditional, (condition,))):
                x, change = layer(x, *extra, False)
                total = total + change
        likelihood = -0.5 * (x.square() + math.log(2 * math.pi)).flatten(1).sum(1) + total
        return -likelihood.mean() / (math.log(2) * x[0].numel())

    def sample(self, noise: Tensor, low: Tensor) -> Tensor:
        """Noise (batch, 12, h, w) -> pictures (batch, 3, 2 h, 2 w)."""
        condition, x = self.features(low), noise
        for norm, mix, conditional in reversed(self.steps):
            for layer, extra in ((conditional, (condition,)), (mix, ()), (norm, ())):
                x, _ = layer(x, *extra, True)
        return F.pixel_shuffle(x, 2) + F.interpolate(low, scale_factor=2, mode="bilinear", align_corners=False)
