#!/usr/bin/env python3
"""Measures the host's cost of one small operator on npu:0, and of `import torch`, against upstream's CPU build.

- one-element add: the host's time to issue x + x on npu, against the whole x + x on the CPU;
- (x + x).item(): issue, wait and read, on both;
- import torch: fresh processes of this wheel and of the pristine upstream one, in turn.
Exit status 0 says that the figures are valid, whether or not they meet the targets.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from _common import Machine, Targets, add_arguments, best_of, describe_machine, require_npu

import torch

ROOT = Path(__file__).resolve().parent.parent
CALLS = 2000
IMPORT = "import time; t = time.perf_counter(); import torch; print(time.perf_counter() - t, torch.__version__)"


def add_loop(x) -> Callable[[], None]:
    """CALLS times x + x; on a device that runs behind the host, the host's share only."""

    def run() -> None:
        for _ in range(CALLS):
            x + x

    return run


def item_loop(x) -> Callable[[], None]:
    def run() -> None:
        for _ in range(CALLS):
            (x + x).item()

    return run


def compare(targets: Targets, what: str, candidates: dict[str, Callable[[], None]], rounds: int, target: float) -> None:
    best = best_of(candidates, rounds, warm_up=2, settle=torch.npu.synchronize)
    cpu, npu = (best[name] / CALLS * 1e6 for name in ("cpu", "npu"))
    print(f"{what}: cpu {cpu:.2f} us, npu {npu:.2f} us", flush=True)
    targets.at_most(f"npu / cpu, {what}", npu / cpu, target)


def upstream_environment(cache: Path) -> dict[str, str] | None:
    """Variables that make this interpreter import the build's pristine base tree instead of this fork's wheel."""
    base = ROOT / "build" / "base"
    if not (base / "torch" / "__init__.py").is_file():
        return None
    return {"PYTHONPATH": str(base), "PYTHONPYCACHEPREFIX": str(cache)}


def import_seconds(python: str, extra: dict[str, str]) -> tuple[float, str]:
    """(seconds of `import torch` in a fresh process, the version imported)."""
    done = subprocess.run(
        [python, "-c", IMPORT], env=os.environ | extra, cwd="/", check=True, capture_output=True, text=True
    )
    seconds, version = done.stdout.split()
    return float(seconds), version


def compare_import(targets: Targets, upstream_python: str | None, rounds: int) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        extra = {} if upstream_python else upstream_environment(Path(scratch, "upstream"))
        if extra is None:
            print(
                "import torch: not compared: no build/base here; "
                "give an interpreter with upstream's wheel as --upstream-python"
            )
            return
        sides = {
            "upstream": (upstream_python or sys.executable, extra),
            "this wheel": (
                sys.executable,
                {"PYTHONPYCACHEPREFIX": str(Path(scratch, "own"))} if not upstream_python else {},
            ),
        }
        best, versions = dict.fromkeys(sides, float("inf")), {}
        for turn in range(rounds + 1):
            for name, (python, environment) in sides.items():
                seconds, versions[name] = import_seconds(python, environment)
                # The first turn writes the byte code and reads the libraries from the disk.
                best[name] = min(best[name], seconds) if turn else best[name]
    if "ascend" in versions["upstream"]:
        sys.exit(f"op_overhead.py: {sides['upstream'][0]} imports torch {versions['upstream']}, not upstream's")
    print(
        f"import torch: upstream {best['upstream'] * 1e3:.0f} ms ({versions['upstream']}), "
        f"this wheel {best['this wheel'] * 1e3:.0f} ms ({versions['this wheel']})",
        flush=True,
    )
    targets.at_most("this wheel / upstream, import torch", best["this wheel"] / best["upstream"], 1.05)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_arguments(parser)
    parser.add_argument(
        "--rounds", type=int, default=25, help="turns of each candidate that count (default: %(default)s)"
    )
    parser.add_argument(
        "--import-rounds", type=int, default=9, help="imports of each wheel that count (default: %(default)s)"
    )
    parser.add_argument(
        "--upstream-python", metavar="PYTHON", help="an interpreter that has upstream's wheel (default: build/base)"
    )
    args = parser.parse_args()
    require_npu()
    targets = Targets()
    with Machine(args) as machine:
        print(describe_machine(), flush=True)
        x, y = torch.ones(1), torch.ones(1, device="npu:0")
        with torch.no_grad():
            compare(targets, "one-element add, host time", {"cpu": add_loop(x), "npu": add_loop(y)}, args.rounds, 0.8)
            compare(targets, "(x + x).item()", {"cpu": item_loop(x), "npu": item_loop(y)}, args.rounds, 1.0)
        compare_import(targets, args.upstream_python, args.import_rounds)
    print(f"other processes used {machine.foreign:.2f} cores")
    targets.show()


if __name__ == "__main__":
    main()
