#!/usr/bin/env python3
"""The porting guide's two tables of ShuffleNet V2's optimisation, measured: forward pass and whole training step.

    python examples/shufflenet/study.py [--batch-size 16] [--size 96] [--rounds 5] [--markdown] [--cpu-time]

All forms of the channel shuffle begin with the same weights and give the same losses; they take turns, and the best
of the rounds counts. What the guide changed inside of the framework (formats of concat, weights and gradients) shows
here as the number of conversions that a step runs. Times are those of the device at hand, usually the simulated one.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable

if "--cpu-time" in sys.argv:
    os.environ["OMP_NUM_THREADS"] = "1"  # before torch reads it

import forms
import network
from torch.profiler import ProfilerActivity, profile

import torch
from torch import nn

CONVERSIONS = ("TransData", "Cast")


class Training:
    """A network and what a step of it needs."""

    def __init__(
        self, form: type[nn.Module], batch_size: int, size: int, level: str | None = None, waits: bool = False
    ):
        torch.manual_seed(0)
        self.model = network.ShuffleNetV2(form, classes=10).npu()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9, foreach=True)
        self.x = torch.randn(batch_size, 3, size, size).npu()
        self.y = torch.randint(0, 10, (batch_size,)).npu()
        self.level, self.waits = level, waits
        if level:
            from apex import amp

            self.amp = amp
            self.model, self.optimizer = amp.initialize(
                self.model, self.optimizer, opt_level=level, loss_scale=128.0, verbosity=0
            )

    def forward(self) -> torch.Tensor:
        with torch.no_grad():
            return self.model(self.x)

    def step(self) -> torch.Tensor:
        self.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(self.model(self.x).float(), self.y)
        self.wait()
        if self.level:
            with self.amp.scale_loss(loss, self.optimizer) as scaled:
                scaled.backward()
        else:
            loss.backward()
        self.wait()
        self.optimizer.step()
        self.wait()
        return loss

    def wait(self) -> None:
        if self.waits:
            torch.npu.current_stream().synchronize()


def best(candidates: dict[str, Callable[[], object]], options: argparse.Namespace) -> dict[str, float]:
    """Milliseconds of each, turn by turn, after one that compiles."""
    clock = time.process_time if options.cpu_time else time.perf_counter
    times = dict.fromkeys(candidates, float("inf"))
    for turn in range(options.rounds + 1):
        for name, run in candidates.items():
            torch.npu.synchronize()
            start = clock()
            run()
            torch.npu.synchronize()
            if turn:
                times[name] = min(times[name], 1e3 * (clock() - start))
    return times


def conversions(run: Callable[[], object]) -> dict[str, int]:
    """How many of the device's operators only convert."""
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]) as prof:
        run()
        torch.npu.synchronize()
    counts = dict.fromkeys(CONVERSIONS, 0)
    for event in prof.events():
        if event.device_type != torch.autograd.DeviceType.CPU and event.name in counts:
            counts[event.name] += 1
    return counts


def forward_rows(options: argparse.Namespace) -> list[tuple]:
    """Table 1: what was done, milliseconds, batch size."""
    trainings = {name: Training(form, options.batch_size, options.size) for name, form in forms.FORMS.items()}
    times = best({name: training.forward for name, training in trainings.items()}, options)
    texts = {
        "views": "as torchvision has it: view, transpose, contiguous",
        "index_select": "1: channel_shuffle_index_select instead of channel_shuffle",
        "two index_selects": "2: two of them, no non-contiguous halves of chunk",
        "library": "the affinity library's ChannelShuffle",
    }
    rows = [(texts[name], times[name], options.batch_size) for name in trainings]
    found = conversions(trainings["library"].forward)
    rows.append((f"3-5: formats of concat, weights, DWCONV: {found['TransData']} TransData left to remove", None, None))
    return rows


def step_rows(options: argparse.Namespace) -> list[tuple]:
    """Table 2."""
    size, count = options.size, options.batch_size
    trainings = {
        "torchvision's form": Training(forms.ByViews, count, size),
        "1: the index is made on the host and copied at every call": Training(forms.ByIndexAtEveryCall, count, size),
        "2: the index is made beforehand, in a buffer": Training(forms.ByIndex, count, size),
        "3: gather and chunk combined: two gathers": Training(forms.ByTwoIndices, count, size),
        "4, 7: cat, shuffle and chunk combined, gathers as gradients (the library)": Training(
            forms.ByLibrary, count, size
        ),
        "the same with stream synchronisation, which 13 takes away": Training(forms.ByLibrary, count, size, None, True),
        "5, 6: batch size doubled (the library)": Training(forms.ByLibrary, 2 * count, size),
        "10: amp O1 (apex.amp), batch size doubled": Training(forms.ByLibrary, 2 * count, size, "O1"),
        "11: amp O2 (apex.amp), batch size doubled": Training(forms.ByLibrary, 2 * count, size, "O2"),
    }
    check_losses(list(trainings.values()))
    times = best({name: training.step for name, training in trainings.items()}, options)
    rows = [(name, times[name], len(training.y)) for name, training in trainings.items()]
    found = conversions(list(trainings.values())[4].step)
    rows.append((f"8, 9, 12: formats of gradients and AXPY: {found['TransData']} TransData left to remove", None, None))
    return rows


def check_losses(trainings: list[Training]) -> None:
    """Two steps of each form: the same losses; the first one close to it in mixed precision."""
    losses = [[training.step().item() for _ in range(2)] for training in trainings]
    for training, found in zip(trainings, losses, strict=True):
        alike = next(i for i, other in enumerate(trainings) if len(other.y) == len(training.y))
        count, bound = (1, 2e-2) if training.level else (2, 1e-4)
        pair = (torch.tensor(each[:count]) for each in (found, losses[alike]))
        torch.testing.assert_close(*pair, rtol=bound, atol=bound)


def show(title: str, rows: list[tuple], markdown: bool) -> None:
    if markdown:
        print(f"\n{title}\n\n| what | ms | batch |\n|---|---|---|")
    else:
        print(f"\n{title}")
    for what, took, batch in rows:
        cells = ("" if took is None else f"{took:.1f}", "" if batch is None else f"{batch}")
        print(f"| {what} | {cells[0]} | {cells[1]} |" if markdown else f"  {cells[0]:>9}  {cells[1]:>5}  {what}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch-size", type=int, default=16, help="(default: %(default)s; the guide's: 512)")
    parser.add_argument("--size", type=int, default=96, help="pixels (default: %(default)s; the guide's: 224)")
    parser.add_argument("--rounds", type=int, default=5, help="turns that count (default: %(default)s)")
    parser.add_argument("--cpu-time", action="store_true", help="count seconds of the process on one core instead")
    parser.add_argument("--markdown", action="store_true", help="print tables for a document")
    options = parser.parse_args()
    print(f"ShuffleNet V2 x1.0, {options.size} x {options.size} pixels, on {torch.npu.get_device_name()}")
    show("Forward pass", forward_rows(options), options.markdown)
    show("Training step", step_rows(options), options.markdown)


if __name__ == "__main__":
    main()
