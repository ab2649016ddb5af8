#!/usr/bin/env python3
"""Compares networks on npu:0 that torch.compile(backend="npu") has compiled with the same in eager mode.

The twelve families of models.py, training and inference. Both take turns in one process, the best of N counts; the
first calls, which compile, do not. Exit status 0 says that the figures are valid, whether or not they meet the targets;
3 that other processes were in the way.
"""

import argparse
from collections.abc import Callable

import _figures
from _common import Machine, Targets, add_arguments, best_of, describe_machine, require_npu
from _families import Family, families
from _figures import Figure, geometric_mean
from models import inference, training

import torch

LEAST = 1.0  # acceptable eager time / compiled time
MODES = ("train", "inference")


def candidates(family: Family, mode: str) -> dict[str, Callable[[], None]]:
    make = training if mode == "train" else inference
    return {
        "eager": make(family, "npu:0"),
        "compiled": make(family, "npu:0", wrap=lambda net: torch.compile(net, backend="npu")),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_arguments(parser)
    _figures.add_arguments(parser)
    parser.add_argument("--rounds", type=int, default=10, help="turns of each that count (default: %(default)s)")
    parser.add_argument("--only", metavar="NAME", nargs="+", choices=list(families()), help="these families only")
    parser.add_argument("--modes", metavar="MODE", nargs="+", choices=MODES, default=list(MODES), help=", ".join(MODES))
    args = parser.parse_args()
    require_npu()
    figures: list[Figure] = []
    with Machine(args) as machine:
        print(describe_machine(), flush=True)
        for mode in args.modes:
            for name, family in families().items():
                if args.only and name not in args.only:
                    continue
                torch._dynamo.reset()
                best = best_of(candidates(family, mode), args.rounds, warm_up=3)
                figures.append(Figure(name, mode, best["eager"] * 1e3, best["compiled"] * 1e3))
                figures[-1].show(("eager", "compiled"))
    print(f"other processes used {machine.foreign:.2f} cores")
    _figures.keep(figures, args)
    targets = Targets()
    for mode in args.modes:
        ratios = {f.name: f.ratio for f in figures if f.mode == mode}
        print(f"eager / compiled, {mode}, geometric mean: {geometric_mean(list(ratios.values())):.2f}")
        for name, ratio in ratios.items():
            targets.at_least(f"eager / compiled, {mode}, {name}", ratio, LEAST)
    targets.show()


if __name__ == "__main__":
    main()
