#!/usr/bin/env python3
"""Compares networks on npu:0 that torch.compile(backend="npu") has compiled with the same in eager mode.

The twelve families of models.py, training and inference. Both take turns in one process, the best of N counts; the
first calls, which compile, do not. Exit status 0 says that the figures are valid, whether or not they meet the targets;
3 that other processes were in the way.
"""

from collections.abc import Callable

from _common import Targets, best_of
from _families import Family
from _figures import Figure, geometric_mean
from models import inference, measure, training

import torch

LEAST = 1.0  # acceptable eager time / compiled time
MODES = ("train", "inference")


def candidates(family: Family, mode: str) -> dict[str, Callable[[], None]]:
    make = training if mode == "train" else inference
    return {
        "eager": make(family, "npu:0"),
        "compiled": make(family, "npu:0", wrap=lambda net: torch.compile(net, backend="npu")),
    }


def compare(name: str, mode: str, family: Family, rounds: int) -> Figure:
    torch._dynamo.reset()
    best = best_of(candidates(family, mode), rounds, warm_up=3)
    figure = Figure(name, mode, best["eager"] * 1e3, best["compiled"] * 1e3)
    figure.show(("eager", "compiled"))
    return figure


def main() -> None:
    figures = measure(__doc__, MODES, compare)
    targets = Targets()
    for mode in dict.fromkeys(f.mode for f in figures):
        ratios = {f.name: f.ratio for f in figures if f.mode == mode}
        print(f"eager / compiled, {mode}, geometric mean: {geometric_mean(list(ratios.values())):.2f}")
        for name, ratio in ratios.items():
            targets.at_least(f"eager / compiled, {mode}, {name}", ratio, LEAST)
    targets.show()


if __name__ == "__main__":
    main()
