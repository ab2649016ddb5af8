#!/usr/bin/env python3
"""The guide's way from slow to fast, measured: ShuffleNet's channel shuffle, as docs/profiling.md walks through it.

Profiles a training step of a small ShuffleNet, prints what the analysis finds, replaces the shuffle by an index_select
(the same numbers), profiles again, and prints what changed, be it a gain or not. Traces and pages go to --output.
"""

import argparse
import time
from pathlib import Path

from torch.profiler import ProfilerActivity, profile, schedule

import torch
from torch import nn
from torch.npu._profile import events, report


def shuffle_by_views(x: torch.Tensor, groups: int = 2) -> torch.Tensor:
    """The usual form: view, transpose, contiguous. The transposed view has to be copied."""
    n, c, h, w = x.shape
    return x.view(n, groups, c // groups, h, w).transpose(1, 2).contiguous().view(n, c, h, w)


class ShuffleByIndex(nn.Module):
    """The same as one operator that computes: picks the channels in their new order."""

    def __init__(self, channels: int, groups: int = 2):
        super().__init__()
        order = torch.arange(channels).view(groups, channels // groups).t().reshape(-1)
        self.register_buffer("order", order.to(torch.int32))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.index_select(1, self.order)


class Unit(nn.Module):
    """A ShuffleNet v2 unit: half of the channels pass by, the others are convolved, then all are shuffled."""

    def __init__(self, channels: int, fast: bool):
        super().__init__()
        half = channels // 2
        self.branch = nn.Sequential(
            nn.Conv2d(half, half, 1, bias=False),
            nn.ReLU(inplace=True),
            nn.Conv2d(half, half, 3, padding=1, groups=half, bias=False),
            nn.Conv2d(half, half, 1, bias=False),
            nn.ReLU(inplace=True),
        )
        self.shuffle = ShuffleByIndex(channels) if fast else shuffle_by_views

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        passed, taken = x.chunk(2, dim=1)
        return self.shuffle(torch.cat((passed, self.branch(taken)), dim=1))


class Net(nn.Module):
    """A stem, units, a classifier."""

    def __init__(self, channels: int = 32, units: int = 4, fast: bool = False):
        super().__init__()
        self.stem = nn.Conv2d(3, channels, 3, padding=1)
        self.units = nn.Sequential(*(Unit(channels, fast) for _ in range(units)))
        self.head = nn.Linear(channels, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.units(self.stem(x)).mean((2, 3)))


def train(model: nn.Module, x: torch.Tensor, y: torch.Tensor, optimizer: torch.optim.Optimizer) -> None:
    """One step."""
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()


def measure(name: str, fast: bool, output: Path, steps: int) -> tuple[dict, float, Net]:
    """The report of a profile of two steps, the best time of a step without profiling, and the network."""
    torch.manual_seed(0)
    model = Net(fast=fast).npu()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, foreach=True)
    x, y = torch.randn(8, 3, 32, 32).npu(), torch.randint(0, 10, (8,)).npu()
    first = Net(fast=fast)
    first.load_state_dict({key: value.cpu() for key, value in model.state_dict().items()})
    for _ in range(3):
        train(model, x, y, optimizer)
    times = []
    for _ in range(steps):
        torch.npu.synchronize()
        start = time.perf_counter()
        train(model, x, y, optimizer)
        torch.npu.synchronize()
        times.append(time.perf_counter() - start)
    trace = output / f"{name}.json"
    with profile(
        activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1],
        schedule=schedule(wait=0, warmup=1, active=2),
        on_trace_ready=lambda prof: prof.export_chrome_trace(str(trace)),
        record_shapes=True,
        with_stack=True,
    ) as prof:
        for _ in range(3):
            train(model, x, y, optimizer)
            torch.npu.synchronize()
            prof.step()
    found = report.analyze(events.read(trace))
    (output / f"{name}.html").write_text(report.page(found))
    return found, min(times), first


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", default="profile_output", help="folder for traces and pages (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=10, help="steps that are timed (default: %(default)s)")
    options = parser.parse_args()
    output = Path(options.output)
    output.mkdir(exist_ok=True)

    slow, slow_time, slow_net = measure("slow", False, output, options.steps)
    print(report.text(slow))
    fast, fast_time, fast_net = measure("fast", True, output, options.steps)
    x = torch.randn(2, 3, 32, 32)
    torch.testing.assert_close(fast_net(x), slow_net(x))

    def layout(found: dict) -> float:
        return sum(row["us"] for row in found["families"] if row["name"] == "layout and conversion") / 2000

    def kinds(found: dict) -> str:
        return ", ".join(sorted({finding["kind"] for finding in found["findings"]})) or "none"

    print("\nThe same step with channel_shuffle as index_select:")
    print(f"  findings          {kinds(slow)}  ->  {kinds(fast)}")
    print(f"  layout operators  {layout(slow):.3f} ms  ->  {layout(fast):.3f} ms of a step's device time")
    gain = f"{slow_time / fast_time:.2f} times as fast"
    print(f"  a step            {slow_time * 1e3:.3f} ms  ->  {fast_time * 1e3:.3f} ms ({gain})")
    print(f"Traces and pages: {output}/slow.json, slow.html, fast.json, fast.html")


if __name__ == "__main__":
    main()
