#!/usr/bin/env python3
"""Compares twelve families of networks on npu:0 with upstream's CPU kernels: training, bf16 autocast, inference.

Both devices take turns in one process, the best of N counts. Autocast is compared with the CPU's better dtype, fp32 or
bf16. Exit status 0 says that the figures are valid, whether or not they meet the targets; 3 that other processes were
in the way.
"""

import argparse
from collections.abc import Callable, Iterable

import _figures
from _common import Machine, Targets, add_arguments, best_of, describe_machine, require_npu
from _families import Family, families
from _figures import Figure, geometric_mean

import torch
from torch import nn

# least acceptable geometric mean of cpu time / npu time, and of a single family
MODES = {"train": (1.3, 1.0), "autocast": (1.2, None), "inference": (1.3, None)}


def training(
    family: Family, device: str, autocast: bool = False, wrap: Callable[[nn.Module], nn.Module] = lambda net: net
) -> Callable[[], None]:
    """One step of training, of what `wrap` makes of the network; its loss is read on the host: its end is seen."""
    torch.manual_seed(0)
    net = wrap(family.make().to(device))
    rate = {"momentum": 0.9} if family.optimizer is torch.optim.SGD else {}
    optimizer = family.optimizer(net.parameters(), lr=1e-3, **rate)
    inputs, target = (t.to(device) for t in family.batch())
    kind = device.split(":")[0]

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(kind, torch.bfloat16, enabled=autocast):
            loss = family.loss(net(inputs), target)
        loss.backward()
        optimizer.step()
        loss.item()

    return step


def inference(
    family: Family, device: str, wrap: Callable[[nn.Module], nn.Module] = lambda net: net
) -> Callable[[], None]:
    """One forward pass of the network in eval mode, waited for."""
    torch.manual_seed(0)
    net = wrap(family.make().to(device).eval())
    inputs = family.batch()[0].to(device)

    def step() -> None:
        with torch.no_grad():
            net(inputs).sum().item()

    return step


def candidates(family: Family, mode: str) -> dict[str, Callable[[], None]]:
    if mode == "inference":
        return {device: inference(family, device) for device in ("cpu", "npu:0")}
    if mode == "train":
        return {device: training(family, device) for device in ("cpu", "npu:0")}
    return {
        "cpu": training(family, "cpu"),
        "cpu bf16": training(family, "cpu", autocast=True),
        "npu:0": training(family, "npu:0", autocast=True),
    }


def measure(description: str, modes: Iterable[str], case: Callable[[str, str, Family, int], Figure]) -> list[Figure]:
    """The figures of `case`(name, mode, family, rounds) for the families and modes that the command line asks for."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    add_arguments(parser)
    _figures.add_arguments(parser)
    parser.add_argument("--rounds", type=int, default=10, help="turns of each that count (default: %(default)s)")
    parser.add_argument("--only", metavar="NAME", nargs="+", choices=list(families()), help="these families only")
    parser.add_argument("--modes", metavar="MODE", nargs="+", choices=modes, default=list(modes), help=", ".join(modes))
    args = parser.parse_args()
    require_npu()
    figures: list[Figure] = []
    with Machine(args) as machine:
        print(describe_machine(), flush=True)
        for mode in args.modes:
            for name, family in families().items():
                if not args.only or name in args.only:
                    figures.append(case(name, mode, family, args.rounds))
    print(f"other processes used {machine.foreign:.2f} cores")
    _figures.keep(figures, args)
    return figures


def compare(name: str, mode: str, family: Family, rounds: int) -> Figure:
    best = best_of(candidates(family, mode), rounds, warm_up=3)
    npu = best.pop("npu:0")
    figure = Figure(name, mode, min(best.values()) * 1e3, npu * 1e3)
    figure.show()
    return figure


def main() -> None:
    figures = measure(__doc__, MODES, compare)
    targets = Targets()
    for mode in dict.fromkeys(f.mode for f in figures):
        ratios = {f.name: f.ratio for f in figures if f.mode == mode}
        mean, least = MODES[mode]
        targets.at_least(f"cpu / npu, {mode}, geometric mean", geometric_mean(list(ratios.values())), mean)
        if least is not None:
            for name, ratio in ratios.items():
                targets.at_least(f"cpu / npu, {mode}, {name}", ratio, least)
    targets.show()


if __name__ == "__main__":
    main()
