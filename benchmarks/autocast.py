#!/usr/bin/env python3
"""Host time that autocast adds to a small operator: torch.autocast("npu") on npu tensors against torch.autocast("cpu")
on CPU tensors, which has the same rules in the same C++.

What is added is the difference between the call inside and outside of an autocast region, with operands that are in
the region's dtype already, so that nothing is cast. All take turns in this process; the best of N counts. Exit status 0
says that the figures are valid, whether or not they meet the targets.
"""

import argparse
from collections.abc import Callable

from _common import Machine, Targets, add_arguments, best_of, describe_machine, require_npu

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
        "logsumexp (fp32)": lambda: torch.logsumexp(wide, 0),
        "add (no rule)": lambda: torch.add(half, half),
        "index_select (no rule)": lambda: torch.index_select(half, 0, index),
    }


def loop(call: Callable[[], torch.Tensor], device: str, enabled: bool) -> Callable[[], None]:
    def run() -> None:
        with torch.no_grad(), torch.autocast(device, torch.bfloat16, enabled=enabled):
            for _ in range(CALLS):
                call()

    return run


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
            candidates = {
                f"{device} {state}": loop(calls[device][name], device, state == "inside")
                for device in calls
                for state in ("outside", "inside")
            }
            best = best_of(candidates, args.rounds, settle=torch.npu.synchronize)
            added = {d: (best[f"{d} inside"] - best[f"{d} outside"]) / CALLS * 1e6 for d in calls}
            print(f"{name}: autocast adds {added['cpu']:.2f} us on cpu, {added['npu']:.2f} us on npu", flush=True)
            # A tenth of a microsecond is what two runs of the same differ by.
            targets.at_most(f"added on npu / on cpu, {name}", max(added["npu"], 0.1) / max(added["cpu"], 0.1), TARGET)
    print(f"other processes used {machine.foreign:.2f} cores")
    targets.show()


if __name__ == "__main__":
    main()
