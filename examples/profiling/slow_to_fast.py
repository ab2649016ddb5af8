#!/usr/bin/env python3
"""The guide's way from slow to fast, measured: ShuffleNet's channel shuffle, as docs/profiling.md walks through it.

Profiles a training step of a small ShuffleNet, prints what the analysis finds and in which line, replaces the shuffle
by an index_select and then by the affinity library's ChannelShuffle (the same numbers each time), and after each step
prints what is left to find and what was gained, be it a gain or not. Traces and pages go to --output.
"""

import argparse
import sys
import time
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "shufflenet"))

import forms
from torch.profiler import ProfilerActivity, profile, schedule

import torch
from torch import nn
from torch.npu._profile import events, report

FORMS = {
    "views": "channel shuffle by view, transpose, contiguous",
    "index_select": "channel shuffle by index_select",
    "library": "channel shuffle by the affinity library's ChannelShuffle",
}


class Unit(nn.Module):
    """A ShuffleNet v2 unit: half of the channels pass by, the others are convolved, then all are shuffled."""

    def __init__(self, channels: int, form: str):
        super().__init__()
        half = channels // 2
        self.branch = nn.Sequential(
            nn.Conv2d(half, half, 1, bias=False),
            nn.ReLU(inplace=True),
            nn.Conv2d(half, half, 3, padding=1, groups=half, bias=False),
            nn.Conv2d(half, half, 1, bias=False),
            nn.ReLU(inplace=True),
        )
        # The library's gives both halves, as the next unit wants them, instead of a whole that is cut again.
        self.shuffle = forms.FORMS[form](channels)

    def forward(self, halves: forms.Halves) -> forms.Halves:
        passed, taken = halves
        return self.shuffle(passed, self.branch(taken))


class Net(nn.Module):
    """A stem, units, a classifier."""

    def __init__(self, form: str, channels: int = 32, units: int = 4):
        super().__init__()
        self.stem = nn.Conv2d(3, channels, 3, padding=1)
        self.units = nn.Sequential(*(Unit(channels, form) for _ in range(units)))
        self.head = nn.Linear(channels, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        halves = self.units(self.stem(x).chunk(2, dim=1))
        return self.head(torch.cat([half.mean((2, 3)) for half in halves], dim=1))


class Training:
    """A network and what a step of it needs; every form begins with the same weights and data."""

    def __init__(self, form: str):
        torch.manual_seed(0)
        self.form = form
        self.model = Net(form).npu()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, foreach=True)
        self.x, self.y = torch.randn(8, 3, 32, 32).npu(), torch.randint(0, 10, (8,)).npu()

    def step(self) -> torch.Tensor:
        self.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(self.model(self.x), self.y)
        loss.backward()
        self.optimizer.step()
        return loss

    def timed(self) -> float:
        torch.npu.synchronize()
        start = time.perf_counter()
        self.step()
        torch.npu.synchronize()
        return time.perf_counter() - start

    def profiled(self, output: Path) -> dict:
        """The report of two steps; leaves the trace and the page."""
        trace = output / f"{self.form}.json"
        with profile(
            activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1],
            schedule=schedule(wait=0, warmup=1, active=2),
            on_trace_ready=lambda prof: prof.export_chrome_trace(str(trace)),
            record_shapes=True,
            with_stack=True,
        ) as prof:
            for _ in range(3):
                self.step()
                torch.npu.synchronize()
                prof.step()
        found = report.analyze(events.read(trace))
        (output / f"{self.form}.html").write_text(report.page(found))
        return found


def moved(found: dict) -> float:
    """Milliseconds of a step in which the device only rearranges memory."""
    rows = [row for row in found["operators"] if report.family(row["name"]) == "layout and conversion"]
    gathers = [
        row for row in found["operators"] if row["name"] in ("GatherV2", "InplaceIndexAdd", "ZerosLike", "Zeros")
    ]
    return sum(row["us"] for row in rows + gathers) / 1000 / max(1, len(found["steps"]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", default="profile_output", help="folder for traces and pages (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=30, help="timed steps of each form (default: %(default)s)")
    options = parser.parse_args()
    output = Path(options.output)
    output.mkdir(exist_ok=True)

    trainings = [Training(form) for form in FORMS]
    losses = [[training.step().item() for _ in range(3)] for training in trainings]
    for other in losses[1:]:
        torch.testing.assert_close(torch.tensor(other), torch.tensor(losses[0]))
    # Turn by turn, so that what else the machine does hits all forms alike.
    times = {form: float("inf") for form in FORMS}
    for _ in range(options.steps):
        for training in trainings:
            times[training.form] = min(times[training.form], training.timed())

    first = before = times["views"]
    for number, training in enumerate(trainings):
        found, took = training.profiled(output), times[training.form]
        print(f"\n{number + 1}. {FORMS[training.form]}")
        for finding in found["findings"]:
            print(f"   found   {finding['kind']}: {finding['title']}")
            print(f"           at {finding['where']}" if finding["where"] else "           (line not known)")
        if not found["findings"]:
            print("   found   nothing")
        print(f"   device  {found['device_us'] / 2000:.3f} ms of a step, {moved(found):.3f} ms of it to move memory")
        gain = f", {before / took:.2f} times as fast as before, {first / took:.2f} times as fast as at first"
        print(f"   a step  {took * 1e3:.3f} ms{gain if number else ''}")
        before = took
    print(f"\nTraces and pages: {output}/{{{','.join(FORMS)}}}.json and .html")


if __name__ == "__main__":
    main()
