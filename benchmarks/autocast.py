#!/usr/bin/env python3
"""Host time that autocast adds to a small operator: torch.autocast("npu") on npu tensors against torch.autocast("cpu")
on CPU tensors, which has the same rules in the same C++.

What is added is the difference between the call inside and outside of an autocast region, with operands that are in
the region's dtype already, so that nothing is cast. All take turns in this process; the median of the N differences
counts. Exit status 0 says that the figures are valid, whether or not they meet the targets.
"""

import argparse
import statistics
import time
from collections.abc import Callable

from _common import Machine, Targets, add_arguments, describe_machine, require_npu

import torch

# Short turns, of which some run through without an interruption.
CALLS = 100
TARGET = 1.0


def operators(device: str) -> dict[str, Callable[[], torch.Tensor]]:
    """By the rule that autocast has for it."""
    half = torch.ones(2, 2, dtype=torch.bfloat16, device=device)
    wide = torch.ones(2, 2, device=device)
    index = torch.zeros(2, dtype=torch.int64, device=device)
    return {
        "mm (lower precision)": lambda: torch.mm(half, half),
        "cat of two (promotes)": lambda: torch.cat([half, half]),
        "prod (fp32)": lambda: torch.prod(wide),
        "add (no rule)": lambda: torch.add(half, half),
        "index_select (no rule)": lambda: torch.index_select(half, 0, index),
    }


def loop(call: Callable[[], torch.Tensor], device: str, enabled: bool) -> Callable[[], None]:
    def run() -> None:
        with torch.no_grad(), torch.autocast(device, torch.bfloat16, enabled=enabled):
            for _ in range(CALLS):
                call()

    return run


def added_by_autocast(calls: dict[str, Callable[[], torch.Tensor]], rounds: int) -> dict[str, float]:
    """Microseconds that a region adds to a call, by device.

    A turn's two times are taken one after the other and subtracted: what the machine does meanwhile is in both.
    """
    loops = {d: [loop(call, d, enabled) for enabled in (False, True)] for d, call in calls.items()}
    differences: dict[str, list[float]] = {device: [] for device in loops}
    for turn in range(rounds + 3):
        for device, both in loops.items():
            seconds = []
            for run in both if turn % 2 else both[::-1]:
                torch.npu.synchronize()
                start = time.perf_counter()
                run()
                seconds.append(time.perf_counter() - start)
            outside, inside = seconds if turn % 2 else seconds[::-1]
            if turn >= 3:
                differences[device].append((inside - outside) / CALLS * 1e6)
    return {device: statistics.median(taken) for device, taken in differences.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_arguments(parser)
    parser.add_argument("--rounds", type=int, default=300, help="turns that count (default: %(default)s)")
    args = parser.parse_args()
    require_npu()
    targets = Targets()
    with Machine(args) as machine:
        print(describe_machine(), flush=True)
        calls = {device: operators(device) for device in ("cpu", "npu")}
        for name in calls["npu"]:
            added = added_by_autocast({device: calls[device][name] for device in calls}, args.rounds)
            print(f"{name}: autocast adds {added['cpu']:.2f} us on cpu, {added['npu']:.2f} us on npu", flush=True)
            # A tenth of a microsecond is what two runs of the same differ by.
            targets.at_most(f"added on npu / on cpu, {name}", max(added["npu"], 0.1) / max(added["cpu"], 0.1), TARGET)
    print(f"other processes used {machine.foreign:.2f} cores")
    targets.show()


if __name__ == "__main__":
    main()
