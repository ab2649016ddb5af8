"""How the benchmarks of this folder measure: candidates take turns in one process, the best of N counts, and a machine
on which something else computes gives no figures.

Note [Foreign load]
Two threads that meet at a barrier run several times slower when a third process takes a core, and not in proportion for
both candidates. So the share of the cores that other processes use is read from /proc/stat before and over the whole
measurement; above the limit the benchmark says so and reports nothing (exit status 3), unless --allow-load is given.
"""

import argparse
import os
import platform
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

LIMIT_CORES = 0.15
STATUS_LOADED = 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options that every benchmark here has."""
    parser.add_argument("--allow-load", action="store_true", help="report although other processes take the cores")
    parser.add_argument(
        "--wait",
        type=float,
        default=60.0,
        metavar="S",
        help="seconds to wait for a quiet machine before giving up (default: %(default)s)",
    )


def _busy_seconds() -> tuple[float, float]:
    """(CPU seconds of the whole machine, CPU seconds of this process and the children it has waited for) so far."""
    with open("/proc/stat") as file:
        user, nice, system, _idle, _iowait, irq, softirq, steal = (int(n) for n in file.readline().split()[1:9])
    machine = (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")
    own = sum(
        usage.ru_utime + usage.ru_stime
        for usage in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )
    return machine, own


class Machine:
    """Watches what other processes take of the cores (Note [Foreign load]); a context manager around a measurement."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.allow, self.wait = args.allow_load, args.wait
        self.foreign = 0.0

    def _foreign_cores(self, since: tuple[float, float], seconds: float) -> float:
        machine, own = _busy_seconds()
        return max((machine - since[0]) - (own - since[1]), 0.0) / seconds

    def _refuse(self, when: str) -> None:
        print(f"other processes used {self.foreign:.2f} cores {when} (limit {LIMIT_CORES})", end="")
        if not self.allow:
            print(": no figures; stop them, or pass --allow-load to see figures that mean little")
            sys.exit(STATUS_LOADED)
        print(": the figures mean little")

    def __enter__(self) -> "Machine":
        give_up, said = time.monotonic() + self.wait, False
        while True:
            since, start = _busy_seconds(), time.monotonic()
            time.sleep(1.0)
            self.foreign = self._foreign_cores(since, time.monotonic() - start)
            if self.foreign <= LIMIT_CORES or time.monotonic() > give_up or self.allow:
                break
            if not said:
                print(
                    f"waiting up to {self.wait:.0f} s for processes that use {self.foreign:.2f} cores", file=sys.stderr
                )
                said = True
        if self.foreign > LIMIT_CORES:
            self._refuse("before the measurement")
        self._since, self._start = _busy_seconds(), time.monotonic()
        return self

    def __exit__(self, kind, value, traceback) -> None:
        if kind is None:
            self.foreign = self._foreign_cores(self._since, time.monotonic() - self._start)
            if self.foreign > LIMIT_CORES:
                self._refuse("during the measurement")


def describe_machine() -> str:
    """One line: processor, cores, load average, torch, and what is set for malloc."""
    import torch

    model = platform.processor() or platform.machine()
    with open("/proc/cpuinfo") as file:
        model = next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), model)
    malloc = " ".join(f"{name}={value}" for name, value in sorted(os.environ.items()) if name.startswith("MALLOC_"))
    return (
        f"{model}, {len(os.sched_getaffinity(0))} cores, {torch.get_num_threads()} threads, "
        f"load {os.getloadavg()[0]:.2f}, torch {torch.__version__}, malloc {malloc or 'untuned'}"
    )


def training_step(net: "torch.nn.Module", x: "torch.Tensor", optimizer: "torch.optim.Optimizer") -> Callable[[], None]:
    """A step on the mean square of the network's output, the loss read on the host, so that its end is seen."""

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
        loss.item()

    return step


def best_of(
    candidates: dict[str, Callable[[], None]],
    rounds: int,
    warm_up: int = 1,
    settle: Callable[[], None] | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, float]:
    """Best seconds of each candidate: they take turns, `rounds` times, after `warm_up` turns that do not count.

    `settle` runs after each turn, outside its time: it waits for what a candidate has left running.
    """
    best = dict.fromkeys(candidates, float("inf"))
    for turn in range(warm_up + rounds):
        for name, run in candidates.items():
            start = clock()
            run()
            if turn >= warm_up:
                best[name] = min(best[name], clock() - start)
            if settle is not None:
                settle()
    return best


@dataclass
class Targets:
    """Collects the comparisons of a benchmark and prints each with whether its target is met."""

    lines: list[str] = field(default_factory=list)
    missed: int = 0

    def at_least(self, what: str, value: float, target: float) -> None:
        self._add(what, value, f"at least {target:g}", value >= target)

    def at_most(self, what: str, value: float, target: float) -> None:
        self._add(what, value, f"at most {target:g}", value <= target)

    def _add(self, what: str, value: float, target: str, met: bool) -> None:
        self.missed += not met
        self.lines.append(f"{'met   ' if met else 'MISSED'}  {what}: {value:.3f} (target: {target})")

    def show(self) -> None:
        print("\n".join(self.lines))
        print(f"targets: {len(self.lines) - self.missed} of {len(self.lines)} met")


def require_npu() -> None:
    """Exits with a message where this interpreter's torch has no npu device."""
    import torch

    if not (hasattr(torch, "npu") and torch.npu.is_available()):
        name = os.path.basename(sys.argv[0])
        sys.exit(f"{name}: torch {torch.__version__} has no npu device; run it with .venv/bin/python")
