"""Teaches the trained model another kind of text (Python's own sources) through adapters of low rank.

    python examples/llm/train.py --steps 200 && python examples/llm/lora.py --parity

Only the adapters learn and are saved. Prints the loss on held-out text of both kinds, before and after, and that
the merged weights answer like model and adapters. Exit status 1 with --parity if the losses part.
"""

import argparse
import math
import sys
from pathlib import Path

import corpus
from llama import Llama, default_attention
from train import CHECKPOINT, add_training, cpu_attention, fit, measure, restore, show_parity

import torch
from torch import Tensor, nn

ADAPTER = Path("data/llm/adapter.pt")
TARGETS = ("query", "value")


class Adapter(nn.Module):
    """A linear layer that stays as it is, plus scale * up(down(x)), which learns and begins as nothing."""

    def __init__(self, base: nn.Linear, rank: int, scale: float) -> None:
        super().__init__()
        self.base, self.scale = base.requires_grad_(False), scale
        self.down = nn.Parameter(torch.empty(rank, base.in_features, device=base.weight.device))
        self.up = nn.Parameter(torch.zeros(base.out_features, rank, device=base.weight.device))
        # On the host: devices draw differently, and are to begin alike.
        self.down.data.copy_(torch.empty(self.down.shape).uniform_(-1, 1) / math.sqrt(base.in_features))

    def forward(self, x: Tensor) -> Tensor:
        low = nn.functional.linear(x, self.down)
        return self.base(x) + nn.functional.linear(low, self.up) * self.scale

    def merged(self) -> nn.Linear:
        """One linear layer that gives the same."""
        self.base.weight.data += self.scale * (self.up @ self.down).detach().to(self.base.weight.dtype)
        return self.base


def adapt(model: Llama, rank: int, scale: float, targets: tuple[str, ...] = TARGETS) -> Llama:
    """Freezes the model, and puts an adapter on each linear layer whose name is in `targets`."""
    model.requires_grad_(False)
    for module in list(model.modules()):
        for name in targets:
            if isinstance(getattr(module, name, None), nn.Linear):
                setattr(module, name, Adapter(getattr(module, name), rank, scale))
    return model


def adapter_state(model: nn.Module) -> dict[str, Tensor]:
    """What was learned, and nothing else."""
    return {name: p.detach().cpu() for name, p in model.named_parameters() if p.requires_grad}


@torch.no_grad()
def merge(model: Llama) -> Llama:
    """Adapters become part of the weights; the model is as fast as before it had them."""
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, Adapter):
                setattr(module, name, child.merged())
    return model


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_training(parser, steps=60, lr=1e-2)
    parser.add_argument("--rank", type=int, default=8, help="(default: %(default)s)")
    parser.add_argument("--alpha", type=float, default=16.0, help="scale times rank (default: %(default)s)")
    parser.add_argument("--targets", nargs="+", default=TARGETS, metavar="NAME", help="layers that get an adapter")
    parser.add_argument("--checkpoint", type=Path, default=CHECKPOINT, help="(default: %(default)s)")
    parser.add_argument("--adapter", type=Path, default=ADAPTER, help="written at the end (default: %(default)s)")
    args = parser.parse_args(argv)
    sources, documentation = corpus.load("sources"), corpus.load()[1]

    def adapted(device: str, kind: str) -> Llama:
        model = restore(args.checkpoint, device, kind)
        torch.manual_seed(args.seed)
        return adapt(model, args.rank, args.alpha / args.rank, tuple(args.targets))

    model = adapted(args.device, args.attention or default_attention(args.device))
    learning = sum(p.numel() for p in model.parameters() if p.requires_grad)
    if not learning:
        parser.error(f"no layer is called {' or '.join(args.targets)}")
    print(f"{learning} of {sum(p.numel() for p in model.parameters())} parameters learn, on {args.device}")
    before = [measure(model, text, args.device) for text in (sources[1], documentation)]
    result = fit(model, sources, args.device, args)
    after = [measure(model, text, args.device) for text in (sources[1], documentation)]
    for name, a, b in zip(("sources", "documentation"), before, after, strict=True):
        print(f"held-out {name}: loss {a:.4f} before, {b:.4f} after")
    args.adapter.parent.mkdir(parents=True, exist_ok=True)
    torch.save(adapter_state(model), args.adapter)
    print(
        f"saved: {args.adapter}, {args.adapter.stat().st_size / 1024:.0f} KiB; {result.tokens_per_second:.0f} bytes/s"
    )
    tokens = sources[1][:128].long().unsqueeze(0).to(args.device)
    with torch.no_grad():
        apart, together = model(tokens), merge(model)(tokens)
    print(f"merged: scores differ by at most {(apart - together).abs().max().item():.1e}")
    if not args.parity:
        return 0
    beside = fit(adapted("cpu", cpu_attention(args.attention)), sources, "cpu", args, quiet=True)
    return 1 if show_parity(result, beside, args.tolerance) else 0


if __name__ == "__main__":
    sys.exit(main())
