#!/usr/bin/env python3
"""What tuning gains: training steps of small networks on npu:0 without a knowledge base, and with one.

For each network one process writes the graphs of its operators (torch.npu.set_aoe), python -m torch.npu.aoe tunes them
into a knowledge base of its own, and two processes make steps, one that uses it and one that does not. They take turns
of a few steps; each turn's best step is compared with that of the other's turn beside it, and the median of these
ratios counts, so that what slows the machine down for a while slows both. Exit status 0 says that the figures are
valid, whether or not they meet the targets; 3 that other processes were in the way.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from math import prod
from statistics import median

from _common import Machine, Targets, add_arguments, best_of, describe_machine, require_npu, training_step

import torch
from torch import nn

LEAST = 1.03  # acceptable time without / time with knowledge, geometric mean


def mlp() -> tuple[nn.Module, torch.Tensor]:
    return nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)), (
        torch.randn(128, 784)
    )


def convolutions() -> tuple[nn.Module, torch.Tensor]:
    channels = (3, 16, 32, 64)
    layers = [
        layer
        for i, o in zip(channels, channels[1:], strict=False)
        for layer in (nn.Conv2d(i, o, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
    ]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(64 * 16, 10)), torch.randn(32, 3, 32, 32)


def thin_convolutions() -> tuple[nn.Module, torch.Tensor]:
    layers = [layer for _ in range(4) for layer in (nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 3, 1))]
    return nn.Sequential(*layers), torch.randn(32, 3, 32, 32)


def transformer() -> tuple[nn.Module, torch.Tensor]:
    layer = nn.TransformerEncoderLayer(256, 4, 1024, dropout=0.0, batch_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), torch.randn(8, 64, 256)


NETWORKS = {
    "MLP": mlp,
    "convolutions": convolutions,
    "thin convolutions": thin_convolutions,
    "transformer": transformer,
}


def step_of(name: str) -> Callable[[], None]:
    torch.manual_seed(0)
    net, x = NETWORKS[name]()
    net = net.to("npu:0")
    return training_step(net, x.to("npu:0"), torch.optim.SGD(net.parameters(), lr=1e-3))


def child(name: str, folder: str, steps: int) -> None:
    """Writes graphs into a folder, or prints for each line that it reads the best seconds of so many steps."""
    if folder:
        torch.npu.set_aoe(folder)
        step_of(name)()
        return
    step = step_of(name)
    for _ in range(5):
        step()
    for _ in sys.stdin:
        print(best_of({"": step}, steps, warm_up=1)[""], flush=True)


def run(*command: str, **variables: str) -> str:
    result = subprocess.run([sys.executable, *command], env=os.environ | variables, capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(result.stdout + result.stderr)
    return result.stdout


class Stepper:
    """A process that makes steps when it is told to."""

    def __init__(self, name: str, steps: int, **variables: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--child", name, "--steps", str(steps)],
            env=os.environ | variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def turn(self) -> float:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"a process that makes steps has ended: {self.process.wait()}")
        return float(line)

    def end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def compare(name: str, rounds: int, steps: int) -> float:
    """Time without / time with knowledge."""
    with tempfile.TemporaryDirectory() as graphs, tempfile.TemporaryDirectory() as bank:
        run(__file__, "--child", name, "--folder", graphs)
        print(run("-m", "torch.npu.aoe", "--job_type=2", f"--model_path={graphs}", TUNE_BANK_PATH=bank), end="")
        untuned, tuned = (Stepper(name, steps, TUNE_BANK_PATH=bank, ENABLE_TUNE_BANK=use) for use in ("False", "True"))
        turns = [(untuned.turn(), tuned.turn()) for _ in range(rounds)]
        untuned.end()
        tuned.end()
    without, with_it = (min(seconds) * 1e3 for seconds in zip(*turns, strict=True))
    ratio = median(a / b for a, b in turns)
    print(f"{name:14} untuned {without:8.3f} ms  tuned {with_it:8.3f} ms  median of ratios {ratio:.3f}", flush=True)
    return ratio


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    parser.add_argument("--rounds", type=int, default=25, help="turns of each process (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=6, help="steps in a turn (default: %(default)s)")
    parser.add_argument("--only", choices=NETWORKS, action="append", help="a network (default: all)")
    parser.add_argument("--child", choices=NETWORKS, help=argparse.SUPPRESS)
    parser.add_argument("--folder", default="", help=argparse.SUPPRESS)
    args = parser.parse_args()
    require_npu()
    if args.child:
        child(args.child, args.folder, args.steps)
        return
    print(describe_machine())
    targets = Targets()
    with Machine(args):
        ratios = {name: compare(name, args.rounds, args.steps) for name in args.only or NETWORKS}
    for name, ratio in ratios.items():
        targets.at_least(f"untuned / tuned, {name}", ratio, 1.0)
    targets.at_least("untuned / tuned, geometric mean", prod(ratios.values()) ** (1 / len(ratios)), LEAST)
    targets.show()


if __name__ == "__main__":
    main()
