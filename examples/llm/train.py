"""Trains the byte-level model on the language reference that the interpreter ships.

    python examples/llm/train.py --steps 200                  # on npu:0
    python examples/llm/train.py --steps 20 --parity          # beside it on the CPU: each step's loss

Exit status 1 with --parity if the losses part by more than --tolerance.
"""

import argparse
import math
import sys
import time
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path

import corpus
from llama import KINDS, Config, Llama, default_attention
from torch.nn import functional as F

import torch
from torch import Tensor, nn

CHECKPOINT = Path("data/llm/model.pt")
SHOWN = 20  # losses are read, and the host waits for the device, every so many steps


@dataclass
class Result:
    """What a training run came to: losses of its steps, that of the held-out text, and how fast it was."""

    losses: list[float]
    held_out: float
    tokens_per_second: float


def loss_of(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Mean of the cross entropy of each next byte, in nats, computed in fp32."""
    return F.cross_entropy(model(x).flatten(0, 1).float(), y.flatten())


@torch.no_grad()
def measure(model: nn.Module, text: Tensor, device: str, length: int = 128, batch: int = 8, most: int = 8) -> float:
    """The loss over up to `most` batches of a text that was not learned."""
    windows = (len(text) - 1) // length
    rows = text[: windows * length + 1].long()
    x, y = rows[:-1].view(windows, length), rows[1:].view(windows, length)
    pairs = list(zip(x.split(batch), y.split(batch), strict=True))[:most]
    losses = torch.stack([loss_of(model, a.to(device), b.to(device)) * len(a) for a, b in pairs])
    return losses.sum().item() / sum(len(a) for a, _ in pairs)


def learning_rate(step: int, steps: int, peak: float) -> float:
    """Rises over the first tenth of the steps, then falls as a cosine to a tenth of its peak."""
    warm = max(steps // 10, 1)
    if step < warm:
        return peak * (step + 1) / warm
    return peak * (0.55 + 0.45 * math.cos(math.pi * (step - warm) / max(steps - warm, 1)))


def fit(model: nn.Module, text: tuple[Tensor, Tensor], device: str, args: argparse.Namespace, quiet=False) -> Result:
    """Trains the parameters that want gradients, with AdamW; args: steps, batch, length, lr, amp, seed."""
    model.to(device).train()
    learned, kept = text
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], betas=(0.9, 0.95))
    mixed = torch.autocast(torch.device(device).type, torch.bfloat16) if args.amp else nullcontext()
    wait = torch.npu.synchronize if torch.device(device).type == "npu" else lambda: None
    losses: list[Tensor] = []
    start = told = time.perf_counter()
    for step, (x, y) in enumerate(corpus.batches(learned, args.batch, args.length, args.steps, args.seed)):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, args.steps, args.lr)
        optimizer.zero_grad()
        with mixed:
            loss = loss_of(model, x.to(device), y.to(device))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.detach())
        if not quiet and ((step + 1) % SHOWN == 0 or step + 1 == args.steps):
            mean, now = torch.stack(losses[-SHOWN:]).mean().item(), time.perf_counter()
            rate = (step % SHOWN + 1) * args.batch * args.length / (now - told)
            print(f"step {step + 1:5}  loss {mean:.4f}  {rate:8.0f} bytes/s", flush=True)
            told = time.perf_counter()
    wait()
    seconds = time.perf_counter() - start
    model.eval()
    with mixed:
        held_out = measure(model, kept, device, args.length)
    return Result(torch.stack(losses).tolist(), held_out, args.steps * args.batch * args.length / seconds)


def show_parity(npu: Result, cpu: Result, tolerance: float) -> int:
    """Prints both devices' losses; the number of them that differ by more than a share of the CPU's."""
    print(f"{'step':>9} {'npu':>9} {'cpu':>9} {'difference':>11}")
    rows = [(str(n), a, b) for n, (a, b) in enumerate(zip(npu.losses, cpu.losses, strict=True), 1)]
    for name, a, b in [*rows, ("held out", npu.held_out, cpu.held_out)]:
        print(f"{name:>9} {a:9.5f} {b:9.5f} {abs(a - b):11.2e}")
    off = sum(abs(a - b) > tolerance * abs(b) for _, a, b in [*rows, ("", npu.held_out, cpu.held_out)])
    print(f"bytes/s: npu {npu.tokens_per_second:.0f}, cpu {cpu.tokens_per_second:.0f}")
    print(f"losses that differ by more than {tolerance:g} of the CPU's: {off} of {len(rows) + 1}")
    return off


def save(path: Path, model: Llama) -> None:
    """Sizes and weights; the file appears whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    state = {name: value.cpu() for name, value in model.state_dict().items()}
    part = path.with_name(path.name + ".part")
    torch.save({"config": asdict(model.config), "model": state}, part)
    part.replace(path)


def restore(path: Path, device: str, attention: str | None = None) -> Llama:
    """The model that train.py has written, ready to be asked."""
    if not path.is_file():
        sys.exit(f"{path} is not there: run examples/llm/train.py first, or name a checkpoint with --checkpoint")
    found = torch.load(path, map_location=device, weights_only=True)
    model = Llama(Config(**found["config"]), attention or default_attention(device)).to(device)
    model.load_state_dict(found["model"])
    return model.eval()


def add_training(parser: argparse.ArgumentParser, steps: int, lr: float) -> None:
    """The options that fit() reads."""
    parser.add_argument("--device", default="npu", help="npu, npu:1, cpu, ... (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=steps, help="(default: %(default)s)")
    parser.add_argument("--batch", type=int, default=8, help="sequences of a step (default: %(default)s)")
    parser.add_argument("--length", type=int, default=128, help="bytes of a sequence (default: %(default)s)")
    parser.add_argument("--lr", type=float, default=lr, help="the highest learning rate (default: %(default)s)")
    parser.add_argument("--amp", action="store_true", help="bfloat16 by torch.autocast")
    parser.add_argument("--attention", choices=KINDS, help="(default: npu on an npu device, else sdpa)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--parity", action="store_true", help="train on the CPU, too, and compare each step's loss")
    parser.add_argument("--tolerance", type=float, default=0.05, help="of --parity, relative (default: %(default)s)")


def cpu_attention(kind: str | None) -> str:
    """What the CPU computes beside an NPU's `kind`."""
    return "sdpa" if kind in (None, "npu") else kind


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_training(parser, steps=200, lr=3e-3)
    parser.add_argument("--width", type=int, default=Config.width, help="(default: %(default)s)")
    parser.add_argument("--layers", type=int, default=Config.layers, help="(default: %(default)s)")
    parser.add_argument("--checkpoint", type=Path, default=CHECKPOINT, help="written at the end (default: %(default)s)")
    args = parser.parse_args(argv)
    config = Config(width=args.width, layers=args.layers, hidden=32 * round(args.width / 12))
    text = corpus.load()

    def fresh(kind: str) -> Llama:
        torch.manual_seed(args.seed)
        return Llama(config, kind)

    model = fresh(args.attention or default_attention(args.device))
    size = sum(p.numel() for p in model.parameters())
    print(f"{size / 1e6:.2f} M parameters, {len(text[0])} bytes of text, attention {model.attention} on {args.device}")
    result = fit(model, text, args.device, args)
    print(
        f"held-out text: loss {result.held_out:.4f}, {result.held_out / math.log(2):.3f} bits per byte; "
        f"{result.tokens_per_second:.0f} bytes/s on {args.device}"
    )
    save(args.checkpoint, model)
    print(f"saved: {args.checkpoint}")
    if not args.parity:
        return 0
    beside = fit(fresh(cpu_attention(args.attention)), text, "cpu", args, quiet=True)
    return 1 if show_parity(result, beside, args.tolerance) else 0


if __name__ == "__main__":
    sys.exit(main())
