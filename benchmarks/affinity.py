#!/usr/bin/env python3
"""Compares each name of the affinity library on npu:0 with its plain form on npu:0, forward and backward.

Plain form and library take turns in one process, the best of N counts. Names that are the plain operator under another
name are in the table, and have no target. Exit status 0 says that the figures are valid, whether or not they meet the
targets; 3 that other processes were in the way. --cpu-time counts the process's seconds on one core, host and device
together, instead of the clock's: what it says holds on a machine on which others work, too.
"""

import argparse
import contextlib
import os
import sys
import time
from collections.abc import Callable

if "--cpu-time" in sys.argv:
    os.environ["OMP_NUM_THREADS"] = "1"  # before torch reads it

import _figures
from _affinity_modules import CASES, Case, Kit
from _common import Machine, Targets, add_arguments, best_of, describe_machine, require_npu
from _figures import Figure, geometric_mean

import torch

LEAST = 1.0  # acceptable time of the plain form / time of the library's
SIZES = ("small", "large")
EVEN = "the same"  # operator under another name


def step(call: Callable, wanted: list[torch.Tensor]) -> Callable[[], None]:
    """Forward and, where gradients are wanted, backward, waited for; the gradient that it starts from is ready."""
    y = call()
    outputs = y if isinstance(y, tuple) else (y,)
    slopes = [torch.ones_like(part) for part in outputs]

    def run() -> None:
        y = call()
        if wanted:
            torch.autograd.grad(y, wanted, slopes)
        torch.npu.synchronize()

    return run


def compare(case: Case, size: str, rounds: int, clock: Callable[[], float]) -> Figure:
    made = case.make(Kit("npu:0", large=size == "large", draws=True))
    candidates = {"plain": step(made.plain, made.wanted), "affinity": step(made.affinity, made.wanted)}
    best = best_of(candidates, rounds, warm_up=3, clock=clock)
    return Figure(case.name, size, best["plain"] * 1e3, best["affinity"] * 1e3)


def row(figure: Figure, case: Case) -> str:
    times = f"{figure.cpu_ms * 1e3:11.1f}{figure.npu_ms * 1e3:11.1f}{figure.ratio:8.2f}"
    return f"{figure.name:42}{figure.mode:7}{times}  {EVEN if case.same else f'> {LEAST:g}'}"


def markdown(figures: list[Figure], cases: dict[str, Case]) -> str:
    """The table of docs/affinity.md: both sizes of a name in a line."""
    text = "| name | plain us | affinity us | ratio | plain us, large | affinity us, large | ratio, large | goal |\n"
    text += "|---|---|---|---|---|---|---|---|\n"
    for name in dict.fromkeys(f.name for f in figures):
        cells = [
            f"{f.cpu_ms * 1e3:.0f} | {f.npu_ms * 1e3:.0f} | {f.ratio:.2f}"
            for size in SIZES
            for f in figures
            if f.name == name and f.mode == size
        ]
        text += f"| `{name}` | {' | '.join(cells)} | {EVEN if cases[name].same else f'> {LEAST:g}'} |\n"
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_arguments(parser)
    _figures.add_arguments(parser)
    cases = {case.name: case for case in CASES}
    parser.add_argument("--rounds", type=int, default=15, help="turns of each that count (default: %(default)s)")
    parser.add_argument("--only", metavar="NAME", nargs="+", choices=list(cases), help="these names only")
    parser.add_argument("--sizes", metavar="SIZE", nargs="+", choices=SIZES, default=list(SIZES), help=", ".join(SIZES))
    parser.add_argument("--cpu-time", action="store_true", help="count seconds of one core, on a busy machine, too")
    parser.add_argument("--markdown", action="store_true", help="print the table of docs/affinity.md, too")
    args = parser.parse_args()
    require_npu()
    clock = time.process_time if args.cpu_time else time.perf_counter
    figures: list[Figure] = []
    machine = contextlib.nullcontext() if args.cpu_time else Machine(args)
    with machine:
        print(describe_machine())
        print(f"{'name':42}{'size':7}{'plain us':>11}{'affinity us':>11}{'ratio':>8}  goal", flush=True)
        for name in args.only or cases:
            for size in args.sizes:
                figures.append(compare(cases[name], size, args.rounds, clock))
                print(row(figures[-1], cases[name]), flush=True)
    print(f"{len(figures)} cases" + ("" if args.cpu_time else f"; other processes used {machine.foreign:.2f} cores"))
    _figures.keep(figures, args)
    if args.markdown:
        print(markdown(figures, cases))
    targets = Targets()
    for size in args.sizes:
        ratios = [f.ratio for f in figures if f.mode == size and not cases[f.name].same]
        print(f"plain / affinity, {size}, geometric mean: {geometric_mean(ratios):.2f}")
    for f in figures:
        if not cases[f.name].same:
            targets.at_least(f"plain / affinity, {f.name}, {f.mode}", f.ratio, LEAST)
    targets.show()


if __name__ == "__main__":
    main()
