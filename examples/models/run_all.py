"""Trains every listed network a few steps on npu and on the CPU, from the same state, and compares the losses.

    python examples/models/run_all.py --steps 3                    # the guide's 55 networks, a table
    python examples/models/run_all.py --listed all --write-docs    # also those of the release notes; docs/networks.md
    python examples/models/run_all.py --only U-Net --only GRU --json
    python examples/models/run_all.py --with-amp                   # also a training in mixed precision on npu

Operators without an npu kernel raise instead of running on the CPU (NPU_FALLBACK=0), unless that variable is set.
``--rows FILE`` keeps finished rows, so that an interrupted run goes on where it was.
Dropout is off and all noise is part of the data, so that both devices compute the same. Exit status 1 if a network
fails, a step's losses differ by more than 1e-3 of the loss, or the losses on a held-out batch by more than 1e-2, and
the npu is further from the numbers of float64 than the CPU's own layouts and libraries explain (spread.py).
"""

import argparse
import copy
import dataclasses
import functools
import gc
import importlib
import json
import os
import platform
import sys
import time
from pathlib import Path

os.environ.setdefault("NPU_FALLBACK", "0")  # before torch reads it

import harness
import spread
import yaml
from spread import relative

import torch

HERE = Path(__file__).resolve().parent
DOCS = HERE.parents[1] / "docs" / "networks.md"
LOSS_TOLERANCE = 1e-3  # relative, per step: from one state, before rounding has grown
AMP_TOLERANCE = 3e-2  # in float16
HELD_OUT_TOLERANCE = 1e-2


@dataclasses.dataclass
class Network:
    """An entry of networks.yaml."""

    name: str
    script: str
    network: str
    listed: list[str]

    @property
    def in_guide(self) -> bool:
        return "guide" in self.listed

    @property
    def command(self) -> str:
        return f"{self.script} --network {self.network}"


def read_networks() -> list[Network]:
    return [Network(**entry) for entry in yaml.safe_load((HERE / "networks.yaml").read_text())["networks"]]


def compare(network: Network, *args) -> dict:
    """One row of the table, as ``measure`` gives it, and the seconds that it took."""
    began = time.perf_counter()
    row = measure(network, *args)
    return row | {"seconds": time.perf_counter() - began}


def measure(
    network: Network,
    steps: int,
    device: str,
    batch_size: int | None = None,
    amp: bool = False,
    with_amp: bool = False,
) -> dict:
    """One row of the table; ``failure`` says what is wrong with it, "" if nothing is."""
    row = {"name": network.name, "script": network.script, "network": network.network, "listed": network.listed}
    row |= {"failure": "", "loss_error": None, "held_out_error": None}
    torch.npu.reset_fallback_stats()
    try:
        task = harness.make(tasks_of(network.script), network.network, batch_size)
        harness.silence_dropout(task.model)
        row["parameters"] = sum(parameter.numel() for parameter in task.model.parameters())
        other = copy.deepcopy(task.model)
        half = copy.deepcopy(task.model) if with_amp else None
        cpu = harness.train(task, task.model, "cpu", steps, amp)
        task.model = None
        npu = harness.train(task, other, device, steps, amp)
        del other
        mixed = harness.train(task, half, device, steps, amp=True) if with_amp else None
    except Exception as error:
        row["failure"] = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"[:300]
        row["fallbacks"] = torch.npu.fallback_stats()
        return row
    row["fallbacks"] = torch.npu.fallback_stats()
    for name, outcome in (("cpu", cpu), ("npu", npu), *([("amp", mixed)] if mixed else [])):
        row[name] = {"losses": outcome.losses, "measures": outcome.measures, "step_seconds": outcome.step_seconds}
        row[name]["first_seconds"] = outcome.seconds[0]
    row["loss_errors"] = [relative(*pair) for pair in zip(npu.losses, cpu.losses, strict=True)]
    row["loss_error"] = max(row["loss_errors"])
    # Only the loss: shares of what was found jump, where the answers of hardly trained networks are close.
    row["held_out_error"] = relative(npu.measures["loss"], cpu.measures["loss"])
    if mixed:
        row["amp_error"] = max(relative(*pair) for pair in zip(mixed.losses, npu.losses, strict=True))
    row["speed"] = cpu.step_seconds / npu.step_seconds if steps > 1 else None
    tolerance = AMP_TOLERANCE if amp else LOSS_TOLERANCE
    far = [number for number, error in enumerate(row["loss_errors"]) if error > tolerance]
    if not amp and row["held_out_error"] > HELD_OUT_TOLERANCE:
        far.append(steps)
    if far and not amp:
        make = functools.partial(harness.make, tasks_of(network.script), network.network, batch_size)
        own = spread.own_spread(make, steps, cpu, npu)
        row["spread"] = {"cpu": own.cpu, "npu": own.npu, "allowed": own.allowed}
        far = [number for number in far if not own.explains(number)]
    row["failure"] = "; ".join(complaints(row, far, steps))
    return row


def complaints(row: dict, far: list[int], steps: int) -> list[str]:
    """What is wrong with a row; ``far`` are the steps whose losses are, and ``steps`` if the held-out one is."""
    found = []
    if any(number < steps for number in far):
        found.append(f"losses differ by {row['loss_error']:.1e}")
    if steps in far:
        found.append(f"held-out losses differ by {row['held_out_error']:.1e}")
    if row.get("amp_error", 0.0) > AMP_TOLERANCE:
        found.append(f"losses in mixed precision differ by {row['amp_error']:.1e}")
    if row["fallbacks"]:
        found.append(f"operators ran on the CPU: {', '.join(sorted(row['fallbacks']))}")
    return found


def milliseconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{1e3 * seconds:.0f}"


def explanation(row: dict) -> str:
    """For a row that is right although its losses differ: what both devices are off."""
    if "spread" not in row or row["failure"]:
        return ""
    npu, cpu = max(row["spread"]["npu"]), max(max(errors) for errors in row["spread"]["cpu"].values())
    return f"off float64: npu {npu:.0e}, cpu {cpu:.0e}"


def line_of(row: dict) -> str:
    if row["loss_error"] is None:
        return f"{row['name']:26}{row['failure']}"
    times = f"{milliseconds(row['cpu']['step_seconds']):>8}{milliseconds(row['npu']['step_seconds']):>8}"
    speed = "-" if row["speed"] is None else f"{row['speed']:.2f}"
    return (
        f"{row['name']:26}{row['loss_error']:>10.1e}{row['held_out_error']:>10.1e}{times}{speed:>7}  "
        f"{row['failure'] or explanation(row)}"
    )


HEAD = f"{'network':26}{'loss':>10}{'held out':>10}{'cpu ms':>8}{'npu ms':>8}{'speed':>7}"


def markdown(rows: list[dict], steps: int, seconds: float) -> str:
    """docs/networks.md."""
    cores, threads = len(os.sched_getaffinity(0)), torch.get_num_threads()
    listed = "" if all("guide" in row["listed"] for row in rows) else " --listed all"
    with_amp = any("amp_error" in row for row in rows)
    listed += " --with-amp" if with_amp else ""
    text = f"""# The listed networks

Written by `python examples/models/run_all.py --steps {steps}{listed} --write-docs`; do not edit. What it trains
and how is said in [examples/models](../examples/models/README.md).

Every network was trained {steps} steps in float32 on npu and on the CPU, from the same state, with `NPU_FALLBACK=0` (an
operator without an npu kernel raises), then evaluated on a held-out batch. Loss: the largest difference of a step's
losses, relative; above {LOSS_TOLERANCE:.0e} it counts as wrong. Held out: the difference of the loss on that batch, of
which {HELD_OUT_TOLERANCE:.0e} is allowed. If a network magnifies rounding so far that losses differ by more, it is
trained on the CPU in float64, too, and in float32 with both memory layouts, with and without oneDNN: the npu's losses
may be {spread.DRAWS:.0f} times as far from those of float64 as the worst of these, and the last column says how far.
Times are those of the fastest step after the first, in milliseconds; speed is the CPU's time divided by npu's. Measured
with the simulated NPU, torch {torch.__version__}, {threads} of {cores} cores ({platform.machine()}), {seconds / 60:.0f}
minutes in all, beside other work: ratios of speed are rough.
"""
    if with_amp:
        text += f"""
Amp: the same steps once more on npu in float16 where autocast allows it, with a scaled loss (`--amp` of the scripts):
the largest difference of a step's loss from float32's, relative; above {AMP_TOLERANCE:.0e}, or not finite, it counts
as wrong.
"""
    for title, chosen in (
        ("The 55 networks of the porting guide", [row for row in rows if "guide" in row["listed"]]),
        ("Networks that only release notes list", [row for row in rows if "guide" not in row["listed"]]),
    ):
        if not chosen:
            continue
        good = sum(not row["failure"] for row in chosen)
        text += f"\n## {title}\n{good} of {len(chosen)} agree with the CPU.\n\n"
        text += (
            f"| network | script | parameters | loss | held out | cpu ms | npu ms | speed |{' amp |' * with_amp} |\n"
        )
        text += f"|---|---|---|---|---|---|---|---|{'---|' * with_amp}---|\n"
        for row in chosen:
            text += markdown_row(row, with_amp)
    return text


def markdown_row(row: dict, with_amp: bool) -> str:
    size = f"{row['parameters'] / 1e6:.1f} M" if "parameters" in row else "-"
    also = ", ".join(where for where in row["listed"] if where != "guide")
    note = "; ".join(part for part in (also, row["failure"], explanation(row)) if part)
    first = f"| {row['name']} | `{row['script']} --network {row['network']}` | {size} |"
    if row["loss_error"] is None:
        return f"{first} | | | | |{' |' * with_amp} {note} |\n"
    speed = "" if row["speed"] is None else f"{row['speed']:.2f}"
    times = " | ".join(milliseconds(row[device]["step_seconds"]) for device in ("cpu", "npu"))
    errors = f"{row['loss_error']:.0e} | {row['held_out_error']:.0e}"
    mixed = f" {row['amp_error']:.0e} |" if "amp_error" in row else " |" * with_amp
    return f"{first} {errors} | {times} | {speed} |{mixed} {note} |\n"


def parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--device", default="npu")
    parser.add_argument("--batch-size", type=int, help="instead of each network's own")
    parser.add_argument("--amp", action="store_true", help="float16 where autocast allows it, on both devices")
    parser.add_argument("--with-amp", action="store_true", help="besides, train in float16 on npu and compare losses")
    parser.add_argument("--only", action="append", metavar="NAME", help="a network as it is listed; may be repeated")
    parser.add_argument(
        "--listed", choices=("guide", "notes", "all"), default="guide", help="which documents' networks"
    )
    parser.add_argument("--list", action="store_true", help="only print names and commands")
    parser.add_argument("--json", action="store_true", help="print rows as JSON instead of the table")
    parser.add_argument(
        "--rows", type=Path, metavar="FILE", help="finished rows, one JSON object a line; read and added to"
    )
    parser.add_argument("--write-docs", action="store_true", help=f"write docs/{DOCS.name}")
    args = parser.parse_args(argv)
    if args.steps < 1:
        parser.error("--steps must be at least 1")
    if args.write_docs and (args.only or args.amp):
        parser.error("--write-docs writes the whole table, in float32")
    return args


def choose(args: argparse.Namespace) -> list[Network]:
    networks = read_networks()
    if args.only:
        names = {network.name.lower(): network for network in networks}
        unknown = [name for name in args.only if name.lower() not in names]
        if unknown:
            raise SystemExit(f"run_all.py: not listed: {', '.join(unknown)}; the names are in networks.yaml")
        return [names[name.lower()] for name in args.only]
    return [n for n in networks if args.listed == "all" or n.in_guide == (args.listed == "guide")]


def tasks_of(script: str) -> dict:
    """The networks that a family's script has."""
    return importlib.import_module(script.removesuffix(".py")).NETWORKS


def read_rows(path: Path | None) -> dict[str, dict]:
    """Rows of an earlier run, by the network's name."""
    if path is None or not path.exists():
        return {}
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return {row["name"]: row for row in rows}


def list_networks(networks: list[Network]) -> int:
    """Print how each is run; exit status 1 if a script does not have what the list says."""
    missing = [network.name for network in networks if network.network not in tasks_of(network.script)]
    for network in networks:
        print(f"{network.name:26}{network.command:50}{', '.join(network.listed)}")
    if missing:
        print(f"without a task: {', '.join(missing)}")
    return 1 if missing else 0


def main(argv: list[str] | None = None) -> int:
    args = parse(argv)
    networks = choose(args)
    if args.list:
        return list_networks(networks)
    if not args.json:
        print(HEAD, flush=True)
    finished = read_rows(args.rows)
    rows = []
    for network in networks:
        if network.name in finished:
            row = finished[network.name]
        else:
            row = compare(network, args.steps, args.device, args.batch_size, args.amp, args.with_amp)
            if args.rows:
                with args.rows.open("a") as file:
                    file.write(json.dumps(row) + "\n")
        rows.append(row)
        if not args.json:
            print(line_of(row), flush=True)
        gc.collect()
        torch.npu.empty_cache()
    seconds = sum(row["seconds"] for row in rows)
    failures = [row["name"] for row in rows if row["failure"]]
    if args.json:
        print(json.dumps(rows))
    else:
        print(f"{len(rows)} networks, {len(failures)} failures, {seconds:.0f} s")
    if args.write_docs:
        DOCS.write_text(markdown(rows, args.steps, seconds))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
