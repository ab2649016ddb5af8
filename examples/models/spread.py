"""How exact the CPU's own float32 trainings of a network are: the yardstick for a network that magnifies rounding.

Deep networks on few samples magnify the last bit of a first layer until losses differ in the third digit, between two
memory layouts of the CPU as between devices. The training in float64 is nearest to the truth. The CPU trains in float32
as it is, with channels last, and without oneDNN, both too; another device's order of sums is one more draw of the same
kind, which may be off the truth twice as far as the worst of these four.
"""

import contextlib
import dataclasses
from collections.abc import Callable

from harness import Batch, Outcome, Task, silence_dropout, train

import torch

DRAWS = 2.0  # of one more draw against the worst of four: were it 1, a fifth of right devices would be called wrong
# Each way's memory layout, and whether oneDNN computes.
WAYS = {
    "channels last": (torch.channels_last, True),
    "no oneDNN": (torch.contiguous_format, False),
    "channels last, no oneDNN": (torch.channels_last, False),
}


def relative(value: float, reference: float) -> float:
    """How far a number is from the reference; numbers that are not finite are infinitely far."""
    difference = abs(value - reference) / max(abs(reference), 1e-3)
    return difference if difference == difference else float("inf")


@dataclasses.dataclass
class Spread:
    """Distances from the training in float64, of each step's loss and last of the held-out one, relative."""

    cpu: dict[str, list[float]]  # of each way
    npu: list[float]

    @property
    def allowed(self) -> list[float]:
        """For each loss: by the CPU's largest error of it or of an earlier one, as errors grow."""
        worst = [max(errors) for errors in zip(*self.cpu.values(), strict=True)]
        return [DRAWS * max(worst[: i + 1]) for i in range(len(worst))]

    def explains(self, number: int) -> bool:
        """Whether the npu's loss of this number is as near to the truth as such a training gets."""
        return self.npu[number] <= self.allowed[number]


def losses_of(outcome: Outcome) -> list[float]:
    return [*outcome.losses, outcome.measures["loss"]]


def in_double(task: Task) -> None:
    """Makes the task one in float64."""
    task.model.double()
    single = task.batch

    def batch(generator: torch.Generator) -> Batch:
        return tuple(t.double() if t.is_floating_point() else t for t in single(generator))

    task.batch = batch  # type: ignore[method-assign]


def own_spread(make: Callable[[], Task], steps: int, cpu: Outcome, npu: Outcome) -> Spread:
    """Trains the tasks that ``make`` gives, all in one state, on the CPU in its several ways."""

    def on_cpu(prepare: Callable[[Task], object], onednn: bool = True) -> list[float]:
        task = make()
        silence_dropout(task.model)
        prepare(task)
        # The flags of oneDNN are touched only where it is switched off: setting them warns about other devices.
        with contextlib.nullcontext() if onednn else torch.backends.mkldnn.flags(enabled=False):
            return losses_of(train(task, task.model, "cpu", steps))

    exact = on_cpu(in_double)
    trained = {"as it is": losses_of(cpu)}
    for name, (layout, onednn) in WAYS.items():
        trained[name] = on_cpu(lambda task, layout=layout: task.model.to(memory_format=layout), onednn)
    errors = {name: [relative(*pair) for pair in zip(losses, exact, strict=True)] for name, losses in trained.items()}
    return Spread(errors, [relative(*pair) for pair in zip(losses_of(npu), exact, strict=True)])
