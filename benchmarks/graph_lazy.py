"""A part of graph.py: torch.npu's graph mode against eager mode, in steps of a network of 30 layers of small operators.

Each layer is a linear map, a scale and a shift, a gate and a residual. Both modes take turns in one process; the best
of N counts.
"""

from collections.abc import Callable

from _common import Targets, best_of, training_step

import torch
from torch import Tensor, nn

LAYERS = 30
MOST = 0.7  # acceptable time in graph mode / time in eager mode


class Layer(nn.Module):
    def __init__(self, width: int, linear: bool) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width) if linear else nn.Identity()
        self.scale, self.shift = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        h = self.linear(x) * self.scale + self.shift
        return x + 0.1 * (h.clamp(-3, 3) * (h + 1).relu() - 0.5 * h)


def network(width: int, linear: bool) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(*(Layer(width, linear) for _ in range(LAYERS))).to("npu:0")


def inference(net: nn.Module, x: Tensor) -> Callable[[], None]:
    def step() -> None:
        with torch.no_grad():
            net(x).sum().item()

    return step


def training(net: nn.Module, x: Tensor) -> Callable[[], None]:
    return training_step(net, x, torch.optim.SGD(net.parameters(), lr=1e-3))


def lazily(step: Callable[[], None]) -> Callable[[], None]:
    def run() -> None:
        torch.npu.enable_graph_mode()
        try:
            step()
        finally:
            torch.npu.disable_graph_mode()

    return run


CASES = {
    "element-wise, inference": (256, 512, False, inference),
    "MLP, inference": (256, 128, True, inference),
    "element-wise, training": (256, 512, False, training),
    "MLP, training": (256, 128, True, training),
}


def run(targets: Targets, rounds: int) -> None:
    for name, (batch, width, linear, make) in CASES.items():
        step = make(network(width, linear), torch.randn(batch, width).to("npu:0"))
        best = best_of({"eager": step, "graph": lazily(step)}, 2 * rounds, warm_up=3)
        print(f"{name:26} eager {best['eager'] * 1e3:8.3f} ms  graph mode {best['graph'] * 1e3:8.3f} ms", flush=True)
        targets.at_most(f"graph mode / eager, {name}", best["graph"] / best["eager"], MOST)
