"""How the scripts of this folder compare a library on npu with the same on the CPU.

A script registers functions by :func:`check`. Each takes a device and returns numbers (losses, scores, tensors of
them); both devices' are compared, and timed after a first run. All is random and tiny; nothing is downloaded.
"""

import argparse
import dataclasses
import importlib.metadata
import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass

os.environ.setdefault("ASCEND_SIM_DEVICE_COUNT", "2")

import torch
from torch import Tensor, nn

Numbers = Iterable["float | Tensor"]


@dataclass
class Check:
    """One thing that a library does: run on a device it gives numbers, which may differ by `tolerance` of the largest.

    `limit` is the reason where a library or npu refuses; then the run must raise. `once`: a first run warms nothing up.
    """

    what: str
    run: Callable[[str], Numbers]
    tolerance: float = 1e-4
    limit: str = ""
    slow: bool = False
    once: bool = False


@dataclass
class Row:
    """What came of a check: the largest difference and the times of both devices, or what went wrong."""

    what: str
    difference: float | None = None
    cpu_ms: float | None = None
    npu_ms: float | None = None
    failure: str = ""
    limit: str = ""
    on_cpu: tuple[str, ...] = ()

    @property
    def fine(self) -> bool:
        return not self.failure


CHECKS: list[Check] = []


def check(what: str, tolerance: float = 1e-4, limit: str = "", slow: bool = False, once: bool = False):
    """Registers a function of a device as a check; see :class:`Check`."""

    def register(run: Callable[[str], Numbers]) -> Callable[[str], Numbers]:
        CHECKS.append(Check(what, run, tolerance, limit, slow, once))
        return run

    return register


def listed(numbers: Numbers) -> list[Tensor]:
    """Each number or tensor in fp64, in host memory."""
    parts = [n if isinstance(n, Tensor) else torch.tensor(n, dtype=torch.float64) for n in numbers]
    if not parts:
        raise ValueError("a check gave no numbers")
    return [part.detach().cpu().double() for part in parts]


def timed(each: Check, device: str) -> tuple[list[Tensor], float]:
    """(numbers, milliseconds): the best of up to three runs after a first one, which compiles and loads."""
    if not each.once:
        listed(each.run(device))
    best, start = float("inf"), time.perf_counter()
    for _ in range(1 if each.once else 3):
        began = time.perf_counter()
        found = listed(each.run(device))
        best = min(best, time.perf_counter() - began)
        if time.perf_counter() - start > 1.0:
            break
    return found, best * 1e3


def difference(found: list[Tensor], expected: list[Tensor]) -> float:
    """The largest of all, each relative to the largest of its own tensor (or to 0.001, where all are smaller)."""
    shapes = [[tuple(n.shape) for n in numbers] for numbers in (found, expected)]
    if shapes[0] != shapes[1]:
        raise AssertionError(f"shapes {shapes[0]} on npu, {shapes[1]} on the CPU")
    pairs = [(a, b) for a, b in zip(found, expected, strict=True) if b.numel()]
    return max(((a - b).abs().max() / b.abs().max().clamp_min(1e-3)).item() for a, b in pairs)


def compare(each: Check) -> Row:
    """Runs a check on both devices."""
    row = Row(each.what, limit=each.limit)
    try:
        expected, row.cpu_ms = timed(each, "cpu")
        torch.npu.reset_fallback_stats()
        before = torch.npu.memory_stats().get("allocation.all.allocated", 0)
        found, row.npu_ms = timed(each, "npu")
        if torch.npu.memory_stats()["allocation.all.allocated"] == before:
            raise AssertionError("nothing was computed on npu")
        row.on_cpu = tuple(sorted(torch.npu.fallback_stats()))
        row.difference = difference(found, expected)
        if not row.difference <= each.tolerance:
            row.failure = f"differs by {row.difference:.1e}, more than {each.tolerance:g}"
    except Exception as error:
        if not each.limit:
            traceback.print_exc()
            row.failure = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"[:200]
        return row
    if each.limit and row.fine:
        row.failure = "works, although it is listed as a limit"
    return row


def train(
    model: nn.Module, loss_of: Callable[[nn.Module, int], Tensor], steps: int = 3, lr: float = 1e-3
) -> list[float]:
    """Losses of some steps of AdamW; `loss_of` takes the model and the step's number."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    losses = []
    for step in range(steps):
        optimizer.zero_grad()
        loss = loss_of(model, step)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return [loss.item() for loss in losses]


def seeded(seed: int = 0) -> torch.Generator:
    """A host generator: what it draws is the same for both devices."""
    torch.manual_seed(seed)
    return torch.Generator().manual_seed(seed)


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def randint(high: int, *shape: int, seed: int = 0) -> Tensor:
    return torch.randint(high, shape, generator=torch.Generator().manual_seed(seed))


def main(*distributions: str) -> None:
    """Runs a script's checks; the exit status is 1 if one failed. run_all.py reads the distributions, too."""
    parser = argparse.ArgumentParser(description=sys.modules["__main__"].__doc__)
    parser.add_argument("--only", nargs="+", metavar="TEXT", help="checks whose names contain one of these")
    parser.add_argument("--quick", action="store_true", help="leave the long ones out")
    parser.add_argument("--json", metavar="FILE", help="write the results there")
    args = parser.parse_args()
    versions = {name: importlib.metadata.version(name) for name in distributions}
    rows = []
    for each in list(CHECKS):  # some libraries import the script again
        if (args.quick and each.slow) or (args.only and not any(text in each.what for text in args.only)):
            continue
        rows.append(compare(each))
        show(rows[-1])
    if args.json:
        with open(args.json, "w") as file:
            json.dump({"versions": versions, "rows": [dataclasses.asdict(row) for row in rows]}, file)
    sys.exit(not all(row.fine for row in rows))


def show(row: Row) -> None:
    """One line."""
    if row.failure:
        told = f"FAILED: {row.failure}"
    elif row.limit:
        told = f"refuses: {row.limit}"
    else:
        told = f"off by {row.difference:.1e}, npu {row.npu_ms:.0f} ms, cpu {row.cpu_ms:.0f} ms"
        if row.on_cpu:
            told += f"; on the CPU: {', '.join(row.on_cpu)}"
    print(f"{row.what:44} {told}", flush=True)
