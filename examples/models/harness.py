"""What all scripts of this folder share: a task (network, data, loss, measure), its training, its command line.

A family's script holds ``NETWORKS``, a dictionary from a network's name to the function that makes its Task, and calls
``main``. Everything random comes from CPU generators with fixed seeds, so that every device sees the same numbers.
"""

import argparse
import dataclasses
import time
from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor, nn

HELD_OUT = 1_000_000  # the number of the batch that is measured on and never trained on
Batch = tuple[Tensor, ...]


@dataclasses.dataclass
class Phase:
    """One loss and the parameters that a step on it moves; a GAN has two of them, most networks one."""

    loss: Callable[[nn.Module, Batch], Tensor]
    parameters: Iterable[nn.Parameter]


class Task:
    """A network with what is needed to train it. Subclasses set ``model`` and define batch, loss and measure."""

    batch_size = 4
    rate = 0.01
    longest_gradient: float | None = None  # longer ones are shortened to this norm
    warmup = 1  # steps over which the learning rate rises to what the optimizer says
    model: nn.Module

    def batch(self, generator: torch.Generator) -> Batch:
        """``batch_size`` samples, as tensors on the CPU."""
        raise NotImplementedError

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """The number to minimise, a tensor without dimensions."""
        raise NotImplementedError

    def measure(self, model: nn.Module, batch: Batch) -> dict[str, float]:
        """How good an evaluated model is; called without gradients and in evaluation mode."""
        raise NotImplementedError

    def phases(self, model: nn.Module) -> Sequence[Phase]:
        """What one step consists of."""
        return [Phase(self.loss, model.parameters())]

    def optimizer(self, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        """One for each phase."""
        return torch.optim.SGD(parameters, lr=self.rate, momentum=0.9)

    def numbered_batch(self, number: int) -> Batch:
        """The batch of this number, the same whenever it is asked for."""
        return self.batch(torch.Generator().manual_seed(17 * number + 3))


@dataclasses.dataclass
class Outcome:
    """What a training leaves: a loss and the seconds for each step, and the measures at its end."""

    losses: list[float]
    seconds: list[float]
    measures: dict[str, float]

    @property
    def step_seconds(self) -> float | None:
        """Of the fastest step after the first, which compiles operators and fills caches; None if there is none."""
        return min(self.seconds[1:], default=None)


def silence_dropout(model: nn.Module) -> None:
    """Switch dropout off: devices draw different random numbers, and losses could not be compared."""
    for module in model.modules():
        if isinstance(module, nn.modules.dropout._DropoutNd):
            module.p = 0.0
        elif isinstance(module, (nn.MultiheadAttention, nn.RNNBase)):
            module.dropout = 0.0


def train(
    task: Task,
    model: nn.Module,
    device: str,
    steps: int,
    amp: bool = False,
    report: Callable[[int, float, float], None] | None = None,
) -> Outcome:
    """Train ``model`` in place for ``steps`` batches, then measure it on the held-out one.

    ``amp`` computes in float16 where autocast allows it, with a scaled loss. ``report`` is called after every step with
    its number, loss and seconds.
    """
    kind = torch.device(device).type
    model.to(device).train()
    phases = task.phases(model)
    optimizers = [task.optimizer(phase.parameters) for phase in phases]
    scaler = torch.amp.GradScaler(kind, init_scale=1024.0, enabled=amp)
    rates = [[group["lr"] for group in optimizer.param_groups] for optimizer in optimizers]
    losses, seconds = [], []
    for step in range(steps):
        batch = to_device(task.numbered_batch(step), device)
        began = time.perf_counter()
        for optimizer, own in zip(optimizers, rates, strict=True):
            for group, rate in zip(optimizer.param_groups, own, strict=True):
                group["lr"] = rate * min((step + 1) / task.warmup, 1.0)
        parts = []
        for phase, optimizer in zip(phases, optimizers, strict=True):
            with torch.autocast(kind, torch.float16, enabled=amp):
                loss = phase.loss(model, batch)
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            if task.longest_gradient is not None:
                scaler.unscale_(optimizer)
                parameters = [p for group in optimizer.param_groups for p in group["params"]]
                nn.utils.clip_grad_norm_(parameters, task.longest_gradient)
            scaler.step(optimizer)
            parts.append(loss.detach().float())
        scaler.update()
        losses.append(float(sum(parts)))  # waits for the device
        seconds.append(time.perf_counter() - began)
        if report:
            report(step, losses[-1], seconds[-1])
    return Outcome(losses, seconds, evaluate(task, model, device))


@torch.no_grad()
def evaluate(task: Task, model: nn.Module, device: str, number: int = HELD_OUT) -> dict[str, float]:
    """The task's measures on a batch that was not trained on, and the loss there."""
    model.eval()
    batch = to_device(task.numbered_batch(number), device)
    measures = task.measure(model, batch)
    measures["loss"] = sum(phase.loss(model, batch) for phase in task.phases(model))
    model.train()
    return {name: float(value) for name, value in measures.items()}


def to_device(batch: Batch, device: str) -> Batch:
    return tuple(tensor.to(device) for tensor in batch)


def make(networks: dict[str, Callable[[], Task]], name: str, batch_size: int | None = None, seed: int = 0) -> Task:
    """The task of this name with initial weights that only the seed decides."""
    torch.manual_seed(seed)
    task = networks[name]()
    if batch_size is not None:
        task.batch_size = batch_size
    return task


def main(networks: dict[str, Callable[[], Task]], description: str, argv: list[str] | None = None) -> Outcome:
    """The command line of a family's script."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--network", choices=sorted(networks), default=next(iter(networks)))
    parser.add_argument("--device", default="npu", help="npu, npu:N or cpu (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=10, help="batches to train on (default: %(default)s)")
    parser.add_argument("--batch-size", type=int, help="samples in a batch (default: the network's own)")
    parser.add_argument("--amp", action="store_true", help="float16 where autocast allows it, with a scaled loss")
    parser.add_argument("--no-dropout", action="store_true", help="losses that are comparable between devices")
    parser.add_argument("--seed", type=int, default=0, help="of the initial weights")
    args = parser.parse_args(argv)
    if args.steps < 1:
        parser.error("--steps must be at least 1")
    if args.batch_size is not None and args.batch_size < 2:
        parser.error("--batch-size must be at least 2: normalisation over a batch needs two samples")

    task = make(networks, args.network, args.batch_size, args.seed)
    if args.no_dropout:
        silence_dropout(task.model)
    count = sum(parameter.numel() for parameter in task.model.parameters())
    print(f"{args.network}: {count / 1e6:.1f} million parameters, batches of {task.batch_size}, on {args.device}")

    def report(step: int, loss: float, seconds: float) -> None:
        print(f"step {step:3}  loss {loss:.5f}  {seconds * 1e3:.0f} ms", flush=True)

    outcome = train(task, task.model, args.device, args.steps, args.amp, report)
    print("evaluation: " + ", ".join(f"{name} {value:.4f}" for name, value in outcome.measures.items()))
    return outcome
