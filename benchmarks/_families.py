"""Small networks of twelve families, each with a batch that a user would take and an optimizer that fits."""

from collections.abc import Callable
from dataclasses import dataclass

from torch.nn import functional as F

import torch
from torch import Tensor, nn


@dataclass
class Family:
    """`make()` is the network, `batch()` its inputs and targets; the loss is of (output, target)."""

    make: Callable[[], nn.Module]
    batch: Callable[[], tuple[Tensor, Tensor]]
    optimizer: type[torch.optim.Optimizer] = torch.optim.AdamW
    loss: Callable[[Tensor, Tensor], Tensor] = F.cross_entropy


class Words(nn.Module):
    """A language model around a recurrent network."""

    def __init__(self, kind: type[nn.RNNBase], words: int = 1000, width: int = 128) -> None:
        super().__init__()
        self.embed, self.network = nn.Embedding(words, width), kind(width, width, 2, batch_first=True)
        self.head = nn.Linear(width, words)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.network(self.embed(x))[0]).transpose(1, 2)


class Block(nn.Module):
    """A decoder's block: GPT's, or with RMSNorm, rotary positions and a gated perceptron, Llama's."""

    def __init__(self, width: int, heads: int, llama: bool) -> None:
        super().__init__()
        norm, bias = (nn.RMSNorm, False) if llama else (nn.LayerNorm, True)
        self.heads, self.llama = heads, llama
        self.norm1, self.norm2 = norm(width), norm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width, bias), nn.Linear(width, width, bias)
        self.up, self.down = nn.Linear(width, 4 * width, bias), nn.Linear((2 if llama else 4) * width, width, bias)

    def forward(self, x: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.qkv(self.norm1(x)).chunk(3, -1))
        if self.llama:
            q, k = (t * turn[0] + torch.cat([-t.chunk(2, -1)[1], t.chunk(2, -1)[0]], -1) * turn[1] for t in (q, k))
        attention = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attention.transpose(1, 2).flatten(2))
        h = self.up(self.norm2(x))
        if self.llama:
            gate, value = h.chunk(2, -1)
            return x + self.down(F.silu(gate) * value)
        return x + self.down(F.gelu(h))


class Decoder(nn.Module):
    def __init__(self, llama: bool, words: int = 1000, width: int = 192, heads: int = 6, length: int = 64) -> None:
        super().__init__()
        self.embed, self.place = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads, llama) for _ in range(3))
        self.head = nn.Linear(width, words, bias=False)
        rates = 10000.0 ** -torch.linspace(0, 1, width // heads // 2).repeat(2)
        angles = torch.arange(length)[:, None] * rates
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())
        self.llama = llama

    def forward(self, x: Tensor) -> Tensor:
        h = self.embed(x)
        if not self.llama:
            h = h + self.place.weight
        turn = self.cos.to(h.dtype), self.sin.to(h.dtype)
        for block in self.blocks:
            h = block(h, turn)
        return self.head(h).transpose(1, 2)


class Encoder(nn.Module):
    def __init__(self, words: int = 1000, width: int = 192) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(width, 6, 4 * width, 0.0, "gelu", batch_first=True)
        self.embed, self.body = nn.Embedding(words, width), nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
        self.head = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(self.embed(x)).mean(1))


def normed(inputs: int, outputs: int) -> nn.Sequential:
    """U-Net's block."""
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1), nn.GroupNorm(8, outputs), nn.SiLU())


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.deep = normed(3, 32), nn.Sequential(normed(32, 64), normed(64, 64))
        self.up, self.last = nn.ConvTranspose2d(64, 32, 2, 2), nn.Sequential(normed(64, 32), nn.Conv2d(32, 3, 1))

    def forward(self, x: Tensor) -> Tensor:
        level = self.first(x)
        return self.last(torch.cat([level, self.up(self.deep(F.max_pool2d(level, 2)))], 1))


def vgg() -> nn.Module:
    layers: list[nn.Module] = []
    for inputs, outputs in ((3, 32), (32, 64), (64, 128)):
        layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU(), nn.Conv2d(outputs, outputs, 3, padding=1)]
        layers += [nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(128 * 16, 256), nn.ReLU(), nn.Linear(256, 10))


def lenet() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.Tanh(), nn.AvgPool2d(2), nn.Conv2d(6, 16, 5), nn.Tanh(), nn.AvgPool2d(2)
    ).extend([nn.Flatten(), nn.Linear(400, 120), nn.Tanh(), nn.Linear(120, 84), nn.Tanh(), nn.Linear(84, 10)])


def dcgan() -> nn.Module:
    """Its generator."""
    layers: list[nn.Module] = [nn.ConvTranspose2d(64, 128, 4, 1, 0, bias=False), nn.BatchNorm2d(128), nn.ReLU()]
    for inputs, outputs in ((128, 64), (64, 32)):
        layers += [nn.ConvTranspose2d(inputs, outputs, 4, 2, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]
    return nn.Sequential(*layers, nn.ConvTranspose2d(32, 3, 4, 2, 1, bias=False), nn.Tanh())


def mobilenet() -> nn.Module:
    layers: list[nn.Module] = [nn.Conv2d(3, 32, 3, 2, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU6()]
    for inputs, outputs, stride in ((32, 64, 1), (64, 128, 2), (128, 128, 1), (128, 256, 2)):
        layers += [nn.Conv2d(inputs, inputs, 3, stride, 1, groups=inputs, bias=False), nn.BatchNorm2d(inputs)]
        layers += [nn.Hardswish(), nn.Conv2d(inputs, outputs, 1, bias=False), nn.BatchNorm2d(outputs), nn.Hardswish()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 10))


class ConvNeXtBlock(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.depth, self.norm = nn.Conv2d(width, width, 7, padding=3, groups=width), nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        h = self.norm(self.depth(x).permute(0, 2, 3, 1))
        return x + self.down(F.gelu(self.up(h))).permute(0, 3, 1, 2)


def convnext() -> nn.Module:
    layers = [nn.Conv2d(3, 64, 4, 4), ConvNeXtBlock(64), ConvNeXtBlock(64), nn.Conv2d(64, 128, 2, 2)]
    return nn.Sequential(*layers, ConvNeXtBlock(128), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10))


def images(batch: int, channels: int, side: int) -> Callable[[], tuple[Tensor, Tensor]]:
    return lambda: (torch.randn(batch, channels, side, side), torch.randint(10, (batch,)))


def sentences(batch: int, length: int) -> Callable[[], tuple[Tensor, Tensor]]:
    return lambda: (torch.randint(1000, (batch, length)), torch.randint(1000, (batch, length)))


def families() -> dict[str, Family]:
    sgd = torch.optim.SGD
    return {
        "lstm language model": Family(lambda: Words(nn.LSTM), sentences(16, 32)),
        "gru language model": Family(lambda: Words(nn.GRU), sentences(16, 32)),
        "unet": Family(UNet, lambda: (torch.randn(8, 3, 32, 32), torch.randn(8, 3, 32, 32)), loss=F.mse_loss),
        "mlp": Family(
            lambda: nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10)),
            lambda: (torch.randn(64, 784), torch.randint(10, (64,))),
            sgd,
        ),
        "gpt": Family(lambda: Decoder(False), sentences(8, 64)),
        "llama": Family(lambda: Decoder(True), sentences(8, 64)),
        "encoder": Family(Encoder, lambda: (torch.randint(1000, (8, 64)), torch.randint(10, (8,)))),
        "vgg": Family(vgg, images(32, 3, 32), sgd),
        "lenet": Family(lenet, images(64, 1, 28), sgd),
        "dcgan": Family(dcgan, lambda: (torch.randn(32, 64, 1, 1), torch.randn(32, 3, 32, 32)), loss=F.mse_loss),
        "mobilenet": Family(mobilenet, images(16, 3, 64), sgd),
        "convnext": Family(convnext, images(16, 3, 64)),
    }
