#!/usr/bin/env python3
"""Compares 45 layers, forward and backward, on npu:0 with upstream's CPU kernels at two sizes.

Both devices take turns in one process, the best of N counts. "small" fits the cache, "large" does not. Exit status 0
says that the figures are valid, whether or not they meet the targets; 3 that other processes were in the way.
"""

import argparse
from collections.abc import Callable

import _figures
from _common import Machine, Targets, add_arguments, best_of, describe_machine, require_npu
from _figures import Figure, geometric_mean
from torch.nn import functional as F

import torch
from torch import Tensor, nn

SIZES = ("small", "large")
MEAN, LEAST = 1.2, 0.9

# Shapes of inputs: images (batch, channels, side, side), which may lie channels last, rows (batch, width), sequences
# (batch, length, width).
SHAPES = {
    "images": {"small": (8, 32, 16, 16), "large": (16, 64, 56, 56)},
    "channels last": {"small": (8, 32, 16, 16), "large": (16, 64, 56, 56)},
    "volumes": {"small": (2, 8, 8, 8, 8), "large": (4, 16, 16, 32, 32)},
    "rows": {"small": (64, 256), "large": (4096, 1024)},
    "sequences": {"small": (8, 32, 64), "large": (16, 128, 512)},
    "words": {"small": (8, 32), "large": (64, 256)},
}
Layer = tuple[str, Callable[[tuple[int, ...]], Callable[[Tensor], Tensor]]]


class Called(nn.Module):
    """A function as a layer, with or without the first of its layer's results."""

    def __init__(self, function: Callable[[Tensor], Tensor], layer: nn.Module | None = None) -> None:
        super().__init__()
        self.function, self.layer = function, layer

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x if self.layer is None else self.layer(x))


def first(layer: nn.Module) -> nn.Module:
    return Called(lambda out: out[0], layer)


def attention(causal: bool) -> nn.Module:
    def run(x: Tensor) -> Tensor:
        heads = x.unflatten(-1, (-1, 32)).transpose(1, 2)
        return F.scaled_dot_product_attention(heads, heads, heads, is_causal=causal)

    return Called(run)


def layers() -> dict[str, Layer]:
    """Name: (kind of input, what makes the layer for a shape)."""
    table: dict[str, Layer] = {
        "conv 3x3": ("images", lambda s: nn.Conv2d(s[1], s[1], 3, padding=1)),
        "conv 1x1": ("images", lambda s: nn.Conv2d(s[1], s[1], 1)),
        "conv 3x3 stride 2": ("images", lambda s: nn.Conv2d(s[1], s[1], 3, 2, 1)),
        "conv depthwise": ("images", lambda s: nn.Conv2d(s[1], s[1], 3, padding=1, groups=s[1])),
        "conv grouped": ("images", lambda s: nn.Conv2d(s[1], s[1], 3, padding=1, groups=4)),
        "conv transposed": ("images", lambda s: nn.ConvTranspose2d(s[1], s[1], 2, 2)),
        "conv 3d": ("volumes", lambda s: nn.Conv3d(s[1], s[1], 3, padding=1)),
        "conv 1d": ("sequences", lambda s: nn.Conv1d(s[1], s[1], 3, padding=1)),
        "batch norm": ("images", lambda s: nn.BatchNorm2d(s[1])),
        "batch norm channels last": ("channels last", lambda s: nn.BatchNorm2d(s[1])),
        "conv 3x3 channels last": ("channels last", lambda s: nn.Conv2d(s[1], s[1], 3, padding=1)),
        "max pool channels last": ("channels last", lambda s: nn.MaxPool2d(2)),
        "batch norm of rows": ("rows", lambda s: nn.BatchNorm1d(s[1])),
        "group norm": ("images", lambda s: nn.GroupNorm(8, s[1])),
        "instance norm": ("images", lambda s: nn.InstanceNorm2d(s[1], affine=True)),
        "layer norm": ("sequences", lambda s: nn.LayerNorm(s[2])),
        "rms norm": ("sequences", lambda s: nn.RMSNorm(s[2])),
        "local response norm": ("images", lambda s: nn.LocalResponseNorm(5)),
        "max pool": ("images", lambda s: nn.MaxPool2d(2)),
        "average pool": ("images", lambda s: nn.AvgPool2d(2)),
        "adaptive pool": ("images", lambda s: nn.AdaptiveAvgPool2d(4)),
        "upsample nearest": ("images", lambda s: nn.Upsample(scale_factor=2)),
        "upsample bilinear": ("images", lambda s: nn.Upsample(scale_factor=2, mode="bilinear")),
        "pixel shuffle": ("images", lambda s: nn.PixelShuffle(2)),
        "reflection pad": ("images", lambda s: nn.ReflectionPad2d(2)),
        "cat": ("images", lambda s: Called(lambda x: torch.cat([x, x], 1))),
        "residual": ("images", lambda s: Called(lambda x: F.relu(x + x))),
        "linear": ("rows", lambda s: nn.Linear(s[1], s[1])),
        "bilinear": ("rows", lambda s: Called(lambda x: torch.einsum("bi,bj->ij", x, x))),
        "embedding": ("words", lambda s: nn.Embedding(1000, 128)),
        "embedding bag": ("words", lambda s: nn.EmbeddingBag(1000, 128)),
        "lstm": ("sequences", lambda s: first(nn.LSTM(s[2], s[2], batch_first=True))),
        "gru": ("sequences", lambda s: first(nn.GRU(s[2], s[2], batch_first=True))),
        "rnn": ("sequences", lambda s: first(nn.RNN(s[2], s[2], batch_first=True))),
        "encoder layer": ("sequences", lambda s: nn.TransformerEncoderLayer(s[2], 2, 2 * s[2], 0.0, batch_first=True)),
        "attention": ("sequences", lambda s: attention(False)),
        "attention causal": ("sequences", lambda s: attention(True)),
        "cross entropy": ("rows", lambda s: Called(lambda x: F.cross_entropy(x, x.detach().argmax(1)))),
    }
    functions = {
        "relu": nn.ReLU(),
        "gelu": nn.GELU(),
        "silu": nn.SiLU(),
        "hardswish": nn.Hardswish(),
        "sigmoid": nn.Sigmoid(),
        "tanh": nn.Tanh(),
        "leaky relu": nn.LeakyReLU(),
        "elu": nn.ELU(),
        "softmax": nn.Softmax(-1),
        "log softmax": nn.LogSoftmax(-1),
    }
    return table | {name: ("rows", lambda s, f=function: f) for name, function in functions.items()}


def step(name: str, size: str, device: str) -> Callable[[], None]:
    """Forward and backward of a layer, waited for; the gradient that it starts from is ready."""
    torch.manual_seed(0)
    kind, make = layers()[name]
    shape = SHAPES[kind][size]
    layer = make(shape).to(device)
    words = kind == "words"
    x = torch.randint(1000, shape) if words else torch.randn(shape)
    if kind == "channels last":
        x, layer = x.contiguous(memory_format=torch.channels_last), layer.to(memory_format=torch.channels_last)
    x = x.to(device).requires_grad_(not words)
    gradient = torch.ones_like(layer(x))
    wanted = [*([] if words else [x]), *layer.parameters()]
    wait = torch.npu.synchronize if device.startswith("npu") else lambda: None

    def run() -> None:
        torch.autograd.grad(layer(x), wanted, gradient)
        wait()

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_arguments(parser)
    _figures.add_arguments(parser)
    parser.add_argument("--rounds", type=int, default=7, help="turns of each that count (default: %(default)s)")
    parser.add_argument("--only", metavar="NAME", nargs="+", choices=list(layers()), help="these layers only")
    parser.add_argument("--sizes", metavar="SIZE", nargs="+", choices=SIZES, default=list(SIZES), help=", ".join(SIZES))
    args = parser.parse_args()
    require_npu()
    figures: list[Figure] = []
    with Machine(args) as machine:
        print(describe_machine(), flush=True)
        for size in args.sizes:
            for name in args.only or layers():
                best = best_of({d: step(name, size, d) for d in ("cpu", "npu:0")}, args.rounds, warm_up=2)
                figures.append(Figure(name, size, best["cpu"] * 1e3, best["npu:0"] * 1e3))
                figures[-1].show()
    print(f"{len(figures)} cases; other processes used {machine.foreign:.2f} cores")
    _figures.keep(figures, args)
    targets = Targets()
    targets.at_least("cpu / npu, geometric mean", geometric_mean([f.ratio for f in figures]), MEAN)
    for f in figures:
        targets.at_least(f"cpu / npu, {f.name}, {f.mode}", f.ratio, LEAST)
    targets.show()


if __name__ == "__main__":
    main()
