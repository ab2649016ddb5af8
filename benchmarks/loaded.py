#!/usr/bin/env python3
"""Compares training steps on npu:0 with upstream's CPU kernels while other processes take the cores.

Small networks and single layers take one step on the CPU and one on npu in turn, in one process, so that both meet the
same load; the medians are compared. It is done beside 0, 1 and 2 processes that compute without end, which the
benchmark starts and ends itself. Exit status 0 says that the figures are valid, whether or not they meet the target;
3 that processes of others were in the way (--allow-load reports all the same, which for this benchmark means: beside
those processes and its own).
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from _common import Machine, Targets, add_arguments, describe_machine, require_npu, training_step

import torch
from torch import nn

# Ends with its parent: nothing may go on computing after the benchmark was killed.
BUSY = """
import os, sys
parent = int(sys.argv[1])
while os.getppid() == parent:
    for i in range(10**6):
        pass
"""
TARGET = 1.0


class Last(nn.Module):
    """The last step's output of a recurrent layer."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)[0][:, -1]


def cases() -> dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]]:
    """Name: (what makes the network, shape of its input); each is trained on the mean square of its output."""

    def convnet() -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(4),
            nn.Flatten(),
            nn.Linear(32 * 16, 10),
        )

    return {
        "perceptron": (lambda: nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)), (32, 64)),
        "wide perceptron": (lambda: nn.Sequential(nn.Linear(512, 2048), nn.GELU(), nn.Linear(2048, 512)), (64, 512)),
        "convnet": (convnet, (32, 1, 28, 28)),
        "convolution": (lambda: nn.Conv2d(32, 32, 3, padding=1), (8, 32, 28, 28)),
        "encoder layer": (lambda: nn.TransformerEncoderLayer(128, 4, 256, 0.0, batch_first=True), (8, 32, 128)),
        "lstm": (lambda: Last(nn.LSTM(32, 64, batch_first=True)), (16, 20, 32)),
        "layer norm": (lambda: nn.Sequential(nn.LayerNorm(512), nn.Linear(512, 512), nn.LayerNorm(512)), (128, 512)),
    }


def step_of(make: Callable[[], nn.Module], shape: tuple[int, ...], device: str) -> Callable[[], None]:
    """A network's training step on random numbers."""
    torch.manual_seed(0)
    net = make().to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3, momentum=0.9)
    return training_step(net, torch.randn(shape).to(device), optimizer)


@contextmanager
def beside(count: int) -> Iterator[None]:
    """That many processes that take all the time they get."""
    import os

    started = [subprocess.Popen([sys.executable, "-c", BUSY, str(os.getpid())]) for _ in range(count)]
    try:
        time.sleep(0.5 if count else 0.0)  # until they compute
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


def alternate(steps: dict[str, Callable[[], None]], seconds: float, group: int = 4) -> dict[str, dict[str, float]]:
    """Milliseconds of a step: they take turns by `group` steps until `seconds` have gone."""
    times: dict[str, list[float]] = {name: [] for name in steps}
    for step in steps.values():
        for _ in range(3):
            step()
    end = time.monotonic() + seconds
    while time.monotonic() < end or any(len(taken) < 3 * group for taken in times.values()):
        for name, step in steps.items():
            for _ in range(group):
                start = time.perf_counter()
                step()
                times[name].append((time.perf_counter() - start) * 1e3)
    return {
        name: {
            "median_ms": statistics.median(taken),
            "mean_ms": statistics.fmean(taken),
            "worst_ms": max(taken),
            "steps": len(taken),
        }
        for name, taken in times.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_arguments(parser)
    parser.add_argument("--busy", type=int, nargs="+", default=[0, 1, 2], help="busy processes (default: 0 1 2)")
    parser.add_argument("--seconds", type=float, default=4.0, help="of each comparison (default: %(default)s)")
    parser.add_argument("--only", nargs="+", choices=list(cases()), metavar="NAME", help="these networks only")
    parser.add_argument("--json", metavar="FILE", help="write the figures there")
    args = parser.parse_args()
    require_npu()
    targets = Targets()
    figures: list[dict] = []
    chosen = {name: case for name, case in cases().items() if not args.only or name in args.only}
    with Machine(args) as machine:
        print(describe_machine(), flush=True)
        steps = {
            name: {device: step_of(make, shape, device) for device in ("cpu", "npu:0")}
            for name, (make, shape) in chosen.items()
        }
        for busy in args.busy:
            with beside(busy):
                for name, both in steps.items():
                    taken = alternate(both, args.seconds)
                    cpu, npu = taken["cpu"], taken["npu:0"]
                    ratio, mean = npu["median_ms"] / cpu["median_ms"], npu["mean_ms"] / cpu["mean_ms"]
                    figures.append({"network": name, "busy": busy, "ratio": ratio, "mean_ratio": mean, **taken})
                    print(
                        f"beside {busy}: {name:16} cpu {cpu['median_ms']:8.2f} ms  npu {npu['median_ms']:8.2f} ms  "
                        f"npu / cpu {ratio:5.2f} (of the means {mean:5.2f})",
                        flush=True,
                    )
                    targets.at_most(f"npu / cpu, {name}, beside {busy}", ratio, TARGET)
    print(f"other processes used {machine.foreign:.2f} cores")
    targets.show()
    if args.json:
        with open(args.json, "w") as file:
            json.dump({"foreign_cores": machine.foreign, "figures": figures}, file, indent=1)


if __name__ == "__main__":
    main()
