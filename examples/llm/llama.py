"""A byte-level language model of Llama's kind: RMS norm, rotary positions, grouped-query attention, SwiGLU.

Three ways to compute it, chosen by `attention`: "eager" writes everything out, "sdpa" takes upstream's fused functions,
"npu" the operators that only an NPU has: npu_fusion_attention, npu_rms_norm, npu_rotary_mul, npu_swiglu.
"""

import functools
import math
from dataclasses import dataclass

import torch_npu
from torch.nn import functional as F

import torch
from torch import Tensor, nn

KINDS = ("eager", "sdpa", "npu")
CAUSAL = 2  # npu_fusion_attention's sparse_mode: hidden is what comes later
COMPRESSED = 2048  # side of the mask that this mode wants, whatever the lengths are


@dataclass(frozen=True)
class Config:
    """Sizes of a model; `length` is its longest sequence."""

    width: int = 128
    layers: int = 4
    heads: int = 4
    key_heads: int = 2
    hidden: int = 352
    length: int = 512
    vocabulary: int = 256
    base: float = 10000.0
    epsilon: float = 1e-5


class Norm(nn.Module):
    """x / sqrt(mean(x^2) + epsilon) * weight over the last dimension."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(config.width))
        self.epsilon = config.epsilon

    def forward(self, x: Tensor, kind: str) -> Tensor:
        if kind == "npu":
            return torch_npu.npu_rms_norm(x, self.weight, self.epsilon)[0]
        if kind == "sdpa":
            return F.rms_norm(x, self.weight.shape, self.weight, self.epsilon)
        scale = torch.rsqrt(x.float().square().mean(-1, keepdim=True) + self.epsilon)
        return (x.float() * scale).to(x.dtype) * self.weight


@functools.cache
def angles(config: Config, device: torch.device) -> tuple[Tensor, Tensor]:
    """Cosines and sines of every position, fp32 of shape (length, width of a head)."""
    head = config.width // config.heads
    steps = config.base ** (-torch.arange(0, head, 2).float() / head)
    turned = torch.outer(torch.arange(config.length).float(), torch.cat([steps, steps]))
    return turned.cos().to(device), turned.sin().to(device)


def rotate(x: Tensor, cos: Tensor, sin: Tensor, kind: str) -> Tensor:
    """Turns the halves of x (batch, heads, positions, width) by angles of shape (batch or 1, 1, positions, width).

    Computed in fp32: rounded angles would blur far positions.
    """
    wide = x.float()
    if kind == "npu":
        return torch_npu.npu_rotary_mul(wide, cos, sin).to(x.dtype)
    left, right = wide.chunk(2, -1)
    return (wide * cos + torch.cat([-right, left], -1) * sin).to(x.dtype)


@functools.cache
def later(device: torch.device, side: int = COMPRESSED) -> Tensor:
    """The mask that hides what comes later."""
    return torch.ones(side, side, dtype=torch.bool, device=device).triu(1)


def attend(q: Tensor, k: Tensor, v: Tensor, visible: Tensor | None, kind: str) -> Tensor:
    """Attention of (batch, heads, queries, width) to keys and values (batch, fewer heads, keys, width).

    Args:
        visible: bool of shape (batch, 1, queries, keys); None: all keys up to the query's own position.
    """
    scale = 1.0 / math.sqrt(q.shape[-1])
    if kind == "npu":
        mask = {"atten_mask": later(q.device), "sparse_mode": CAUSAL} if visible is None else {"atten_mask": ~visible}
        return torch_npu.npu_fusion_attention(q, k, v, q.shape[1], "BNSD", scale=scale, **mask)[0]
    if kind == "sdpa":
        return F.scaled_dot_product_attention(q, k, v, visible, is_causal=visible is None, enable_gqa=True)
    k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], 1) for x in (k, v))
    scores = q @ k.transpose(-1, -2) * scale
    if visible is None:
        visible = ~later(q.device)[: q.shape[2], : k.shape[2]]
    return scores.masked_fill(~visible, -math.inf).softmax(-1, dtype=torch.float32).to(v.dtype) @ v


class Attention(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.heads, self.key_heads = config.heads, config.key_heads
        head = config.width // config.heads
        self.query = nn.Linear(config.width, config.heads * head, bias=False)
        self.key = nn.Linear(config.width, config.key_heads * head, bias=False)
        self.value = nn.Linear(config.width, config.key_heads * head, bias=False)
        self.output = nn.Linear(config.heads * head, config.width, bias=False)

    def forward(self, x: Tensor, turn: tuple[Tensor, Tensor], kind: str, cache=None, layer: int = 0) -> Tensor:
        q = self.query(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        k = self.key(x).unflatten(-1, (self.key_heads, -1)).transpose(1, 2)
        v = self.value(x).unflatten(-1, (self.key_heads, -1)).transpose(1, 2)
        q, k = rotate(q, *turn, kind), rotate(k, *turn, kind)
        visible = None
        if cache is not None:
            k, v = cache.update(layer, k, v)
            visible = cache.visible
        return self.output(attend(q, k, v, visible, kind).transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    """silu(gate) * up, and back to the model's width; gate and up are one product."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.gate_up = nn.Linear(config.width, 2 * config.hidden, bias=False)
        self.down = nn.Linear(config.hidden, config.width, bias=False)

    def forward(self, x: Tensor, kind: str) -> Tensor:
        both = self.gate_up(x)
        if kind == "npu":
            return self.down(torch_npu.npu_swiglu(both))
        gate, up = both.chunk(2, -1)
        return self.down(F.silu(gate) * up)


class Block(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.attention_norm, self.attention = Norm(config), Attention(config)
        self.forward_norm, self.feed_forward = Norm(config), FeedForward(config)

    def forward(self, x: Tensor, turn: tuple[Tensor, Tensor], kind: str, cache=None, layer: int = 0) -> Tensor:
        x = x + self.attention(self.attention_norm(x, kind), turn, kind, cache, layer)
        return x + self.feed_forward(self.forward_norm(x, kind), kind)


class Llama(nn.Module):
    """Scores of the next byte for each byte of a sequence.

    Args:
        config: its sizes.
        attention: one of :data:`KINDS`; it can be changed at any time, the parameters are the same.
    """

    def __init__(self, config: Config, attention: str = "sdpa") -> None:
        super().__init__()
        self.config, self.attention = config, attention
        self.embedding = nn.Embedding(config.vocabulary, config.width)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = Norm(config)
        self.head = nn.Linear(config.width, config.vocabulary, bias=False)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                ends_block = name.endswith(("output.weight", "down.weight"))
                nn.init.normal_(parameter, std=0.02 / math.sqrt(2 * config.layers) if ends_block else 0.02)

    @property
    def device(self) -> torch.device:
        return self.embedding.weight.device

    def forward(self, tokens: Tensor, cache=None) -> Tensor:
        """Scores (batch, positions, vocabulary) for int64 tokens (batch, positions).

        Raises:
            ValueError: more positions than the model's `length`; "npu" on another device.
        """
        if self.attention == "npu" and tokens.device.type != "npu":
            raise ValueError(f"attention 'npu' computes on npu devices; the tokens are on {tokens.device}")
        if tokens.shape[1] > self.config.length:
            raise ValueError(f"{tokens.shape[1]} positions, but the model has {self.config.length}")
        tables = angles(self.config, tokens.device)
        if cache is None:
            turn = tuple(table[None, None, : tokens.shape[1]] for table in tables)
        else:
            turn = tuple(table[cache.positions].unsqueeze(1) for table in tables)
        x = self.embedding(tokens)
        for layer, block in enumerate(self.blocks):
            x = block(x, turn, self.attention, cache, layer)
        return self.head(self.norm(x, self.attention))


def default_attention(device: str | torch.device) -> str:
    """The fastest way that a device has."""
    return "npu" if torch.device(device).type == "npu" else "sdpa"
