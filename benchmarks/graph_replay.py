"""Part "npugraph" of graph.py: the host's time for a replay of torch.npu.graphs against that for an eager run, and the
time of whole steps. An MLP of 30 layers in small batches, and a chain of small operators."""

from collections.abc import Callable
from functools import partial

from _common import Targets, best_of

import torch
from torch import nn

HOST_TARGET = 0.2  # of the eager host time
STEPS = 20


def mlp_step() -> Callable[[], object]:
    """Forward, backward and update of a deep network whose operators are small."""
    layers = [layer for _ in range(30) for layer in (nn.Linear(64, 64), nn.ReLU())]
    model = nn.Sequential(*layers, nn.Linear(64, 10)).to("npu")
    optimizer = torch.optim.SGD(model.parameters(), 1e-3, momentum=0.9)
    x, target = torch.randn(16, 64, device="npu"), torch.randint(10, (16,), device="npu")

    def step() -> object:
        optimizer.zero_grad(set_to_none=True)
        loss = nn.functional.cross_entropy(model(x), target)
        loss.backward()
        optimizer.step()
        return loss

    return step


def chain() -> Callable[[], object]:
    """A hundred element-wise operators of 4096 elements."""
    x = torch.randn(64, 64, device="npu")

    def step() -> object:
        y = x
        for _ in range(25):
            y = torch.tanh(y * 0.5 + 1).abs()
        return y

    return step


def captured(step: Callable[[], object]) -> torch.npu.NPUGraph:
    side = torch.npu.Stream()
    side.wait_stream(torch.npu.current_stream())
    with torch.npu.stream(side):
        for _ in range(3):
            step()
    torch.npu.current_stream().wait_stream(side)
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        step()
    return graph


def whole(step: Callable[[], object]) -> None:
    for _ in range(STEPS):
        step()
    torch.npu.synchronize()


def run(targets: Targets, rounds: int) -> None:
    for name, make in (("training step of an MLP", mlp_step), ("chain of small operators", chain)):
        step = make()
        replay = captured(step).replay
        # On a card both are the host's share; on the simulated NPU the host itself computes some of an eager run.
        host = best_of({"eager": step, "replay": replay}, 5 * rounds, warm_up=3, settle=torch.npu.synchronize)
        both = {"eager": partial(whole, step), "replay": partial(whole, replay)}
        time = best_of(both, rounds, warm_up=1)
        eager, replayed = host["eager"] * 1e6, host["replay"] * 1e6
        print(f"{name}, host: eager {eager:.1f} us, replay {replayed:.1f} us", flush=True)
        eager, replayed = (time[k] / STEPS * 1e6 for k in ("eager", "replay"))
        print(f"{name}, whole: eager {eager:.1f} us, replay {replayed:.1f} us: {replayed / eager:.2f}", flush=True)
        targets.at_most(f"replay / eager, host time, {name}", host["replay"] / host["eager"], HOST_TARGET)
