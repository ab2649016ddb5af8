#!/usr/bin/env python3
"""What the profilers cost: a ResNet-50 step and a small operator with them off and on, events a second, a trace's size.

Exit status 0 says that the figures are valid, whether or not they meet the target (at most 10 % of a ResNet-50 step).
"""

import argparse
import contextlib
import json
import os
import tempfile
import time
from collections.abc import Callable

from _common import Machine, Targets, add_arguments, describe_machine, require_npu
from torch.profiler import ProfilerActivity

import torch

ACTIVITIES = [ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]
OPS = 20000


def resnet_step(batch: int, size: int) -> Callable[[], None]:
    import torchvision

    model = torchvision.models.resnet50(num_classes=10).npu()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, foreach=True)
    x, y = torch.randn(batch, 3, size, size).npu(), torch.randint(0, 10, (batch,)).npu()

    def step() -> None:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        torch.npu.synchronize()

    return step


def inside(profiler: Callable, step: Callable[[], None]) -> Callable[[], float]:
    """A run of the step in a profile of its own; returns the step's time, without the profiler's start and end."""

    def run() -> float:
        with profiler():
            start = time.perf_counter()
            step()
            return time.perf_counter() - start

    return run


def best(candidates: dict[str, Callable[[], float]], rounds: int) -> dict[str, float]:
    """The best time of each; they take turns, and the first turn does not count."""
    found = dict.fromkeys(candidates, float("inf"))
    for turn in range(rounds + 1):
        for name, run in candidates.items():
            spent = run()
            if turn > 0:
                found[name] = min(found[name], spent)
    return found


def measure(step: Callable[[], None], folder: str, rounds: int) -> dict[str, float]:
    return best(
        {
            "off": inside(contextlib.nullcontext, step),
            "device layer": inside(lambda: torch.npu.profile(folder), step),
            "torch.profiler": inside(lambda: torch.profiler.profile(activities=ACTIVITIES), step),
        },
        rounds,
    )


def small_ops(count: int) -> Callable[[], None]:
    x = torch.ones(4).npu()

    def step() -> None:
        for _ in range(count):
            x + x
        torch.npu.synchronize()

    return step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_arguments(parser)
    parser.add_argument("--rounds", type=int, default=8, help="turns that count (default: %(default)s)")
    parser.add_argument("--batch", type=int, default=8, help="images of a step (default: %(default)s)")
    parser.add_argument("--size", type=int, default=128, help="their height and width (default: %(default)s)")
    args = parser.parse_args()
    require_npu()
    targets = Targets()
    step = resnet_step(args.batch, args.size)
    with Machine(args) as machine, tempfile.TemporaryDirectory() as folder:
        print(describe_machine(), flush=True)
        times = measure(step, folder, args.rounds)
        print(f"ResNet-50 step, batch {args.batch}, {args.size} x {args.size}: off {times['off'] * 1e3:.1f} ms")
        for name in ("device layer", "torch.profiler"):
            more = 100 * (times[name] / times["off"] - 1)
            print(f"  {name}: {times[name] * 1e3:.1f} ms, {more:+.1f} %")
            targets.at_most(f"{name} on, more time of a ResNet-50 step, %", more, 10)
        trace = os.path.join(folder, "trace.json")
        with torch.profiler.profile(activities=ACTIVITIES) as prof:
            step()
        start = time.perf_counter()
        prof.export_chrome_trace(trace)
        spent = time.perf_counter() - start
        with open(trace, encoding="utf-8") as file:
            count = len(json.load(file)["traceEvents"])
        print(f"  its trace: {count} events, {os.path.getsize(trace) / 2**20:.2f} MB, written in {spent:.2f} s")
        times = measure(small_ops(OPS), folder, 3)
        for name, seconds in times.items():
            print(f"one-element add, {name}: {seconds / OPS * 1e6:.2f} us, {OPS / seconds:,.0f} a second")
    print(f"other processes used {machine.foreign:.2f} cores")
    targets.show()


if __name__ == "__main__":
    main()
