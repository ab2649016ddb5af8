"""What the tests of graphs share: the folder above on the path, captures with a warm-up, whole steps of a network."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from common_utils import TestCase, run_tests  # noqa: F401

import torch
import torch.npu
from torch import nn

DEVICE = "npu:0"


def captured(function, pool=None, stream=None, warm_up=1):
    """A graph of function(), after runs beside the current stream, and what the captured run returned."""
    side = torch.npu.Stream()
    side.wait_stream(torch.npu.current_stream())
    with torch.npu.stream(side):
        for _ in range(warm_up):
            function()
    torch.npu.current_stream().wait_stream(side)
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph, pool=pool, stream=stream):
        result = function()
    return graph, result


class Net(nn.Module):
    """Some operators of each kind that training has."""

    def __init__(self, dropout=0.0):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.drop = nn.Dropout(dropout)
        self.hidden = nn.Linear(8 * 8 * 8, 32)
        self.last = nn.Linear(32, 10)

    def forward(self, x):
        x = nn.functional.max_pool2d(torch.relu(self.norm(self.conv(x))), 2)
        return self.last(self.drop(nn.functional.gelu(self.hidden(x.flatten(1)))))


def batches(count, seed=0):
    source = torch.Generator().manual_seed(seed)
    return [
        (torch.randn(4, 3, 16, 16, generator=source).to(DEVICE), torch.randint(10, (4,), generator=source).to(DEVICE))
        for _ in range(count)
    ]
