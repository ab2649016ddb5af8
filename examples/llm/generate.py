"""Continues texts with the trained model, on npu and on the CPU, with a static and a paged cache.

    python examples/llm/train.py --steps 200 && python examples/llm/generate.py
    python examples/llm/generate.py --device npu --cache paged --temperature 0.8 --prompt "The import statement"

Prints the continuations, and for each device and cache the time of the prompt, bytes a second after it, and the cache's
memory. The noise of --temperature is drawn on the host, so that devices choose alike.
"""

import argparse
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from kv_cache import PagedCache, StaticCache
from llama import KINDS, Llama, default_attention
from train import CHECKPOINT, cpu_attention, restore

import torch
from torch import Tensor

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
PROMPTS = ('The "for" statement is used to', "Python")


@dataclass
class Answer:
    """Continuations as bytes, seconds of the prompts' step and of the others, bytes of the cache."""

    texts: list[bytes]
    prompt_seconds: float
    seconds: float
    cache_bytes: int
    blocks: int | None = None  # that a paged cache held at the end

    @property
    def rate(self) -> float:
        """Bytes a second after the first."""
        return sum(len(text) - 1 for text in self.texts) / self.seconds


def noise(count: int, batch: int, vocabulary: int, temperature: float, seed: int) -> Tensor | None:
    """What makes the largest score a draw from the scores' distribution: Gumbel noise, (count, batch, vocabulary)."""
    if temperature <= 0:
        return None
    uniform = torch.rand(count, batch, vocabulary, generator=torch.Generator().manual_seed(seed))
    return -(-uniform.clamp(1e-20, 1 - 1e-7).log()).log() * temperature


def padded(prompts: list[bytes], device: str) -> Tensor:
    """int64 (prompts, longest); what is behind a prompt's end is never looked at."""
    longest = max(map(len, prompts))
    return torch.tensor([list(text.ljust(longest, b" ")) for text in prompts], device=device)


@torch.no_grad()
def generate(model: Llama, prompts: list[bytes], count: int, cache, temperature: float = 0.0, seed: int = 0) -> Answer:
    """`count` bytes that follow on each prompt, the likeliest ones without a temperature.

    The host does not wait for the device between the first byte and the last.
    """
    if not prompts or not all(prompts) or count < 1:
        raise ValueError("wants prompts of one byte or more, and at least one byte to make")
    device = model.device
    wait = torch.npu.synchronize if device.type == "npu" else lambda: None
    drawn = noise(count, len(prompts), model.config.vocabulary, temperature, seed)
    drawn = None if drawn is None else drawn.to(device)

    def choose(scores: Tensor, step: int) -> Tensor:
        return (scores.float() if drawn is None else scores.float() + drawn[step]).argmax(-1)

    start = time.perf_counter()
    tokens, lengths = padded(prompts, device), [len(text) for text in prompts]
    cache.advance([0] * len(prompts), tokens.shape[1])
    scores = model(tokens, cache)
    last = torch.tensor(lengths, device=device) - 1
    made = [choose(scores[torch.arange(len(prompts), device=device), last], 0)]
    wait()
    first = time.perf_counter()
    for step in range(1, count):
        cache.advance(lengths, 1)
        made.append(choose(model(made[-1].unsqueeze(1), cache)[:, 0], step))
        lengths = [length + 1 for length in lengths]
    texts = [bytes(row) for row in torch.stack(made, 1).tolist()]
    return Answer(texts, first - start, time.perf_counter() - first, cache.bytes, getattr(cache, "used", None))


def make_cache(kind: str, model: Llama, prompts: list[bytes], count: int, size: int, dtype: torch.dtype):
    """A cache for these texts: reserved for the longest that the model knows, or just enough blocks of `size`."""
    device = model.device
    if kind == "static":
        return StaticCache(model.config, len(prompts), model.config.length, device, dtype)
    # The prompts' common step writes as far as the longest of them.
    longest = max(map(len, prompts))
    blocks = sum(-(-max(len(text) + count, longest) // size) for text in prompts)
    return PagedCache(model.config, blocks, size, device, dtype)


def agreement(texts: list[bytes], expected: list[bytes]) -> str:
    """How far texts are those that the CPU wrote."""
    same = [
        next((n for n, (x, y) in enumerate(zip(a, b, strict=True)) if x != y), len(a))
        for a, b in zip(texts, expected, strict=True)
    ]
    if all(n == len(text) for n, text in zip(same, texts, strict=True)):
        return "the CPU's bytes"
    return "the CPU's for " + ", ".join(f"{n} of {len(text)}" for n, text in zip(same, texts, strict=True)) + " bytes"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--checkpoint", type=Path, default=CHECKPOINT, help="(default: %(default)s)")
    parser.add_argument("--device", choices=("npu", "cpu", "both"), default="both", help="(default: %(default)s)")
    parser.add_argument("--cache", choices=("static", "paged", "both"), default="both", help="(default: %(default)s)")
    parser.add_argument("--attention", choices=KINDS, help="on npu (default: npu)")
    parser.add_argument("--dtype", choices=DTYPES, default="float32", help="(default: %(default)s)")
    parser.add_argument("--prompt", nargs="+", default=PROMPTS, metavar="TEXT", help="one text or several at a time")
    parser.add_argument("--tokens", type=int, default=128, help="bytes to make of each (default: %(default)s)")
    parser.add_argument("--block-size", type=int, default=16, help="places of a paged block (default: %(default)s)")
    parser.add_argument("--temperature", type=float, default=0.7, help="0: the likeliest byte (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    prompts = [text.encode() for text in args.prompt]
    expected: list[bytes] | None = None
    shown: list[bytes] | None = None
    lines = []
    for device in ("cpu", "npu") if args.device == "both" else (args.device,):
        asked = args.attention or default_attention(device)
        model = restore(args.checkpoint, device, asked if device == "npu" else cpu_attention(args.attention))
        model = model.to(DTYPES[args.dtype])
        for kind in ("static", "paged") if args.cache == "both" else (args.cache,):
            for _ in range(2):  # the first run compiles operators, and does not count
                cache = make_cache(kind, model, prompts, args.tokens, args.block_size, DTYPES[args.dtype])
                answer = generate(model, prompts, args.tokens, cache, args.temperature, args.seed)
            expected = answer.texts if device == "cpu" and expected is None else expected
            shown = shown or answer.texts
            held = "" if answer.blocks is None else f" in {answer.blocks} blocks"
            lines.append(
                f"{device} {kind:6} prompt {answer.prompt_seconds * 1e3:7.1f} ms, then {answer.rate:7.1f} bytes/s, "
                f"cache {answer.cache_bytes / 1024:.0f} KiB{held}"
                + ("" if expected is None else f"; {agreement(answer.texts, expected)}")
            )
    for prompt, text in zip(prompts, shown, strict=True):
        print(f"--- {prompt.decode()}|{text.decode(errors='replace')}")
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
