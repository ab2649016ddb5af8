"""Beside processes that compute without end the simulated device arranges its threads otherwise; results stay."""

import os
import subprocess
import sys
import time
from contextlib import contextmanager

from common_utils import TestCase, run_tests

import torch
from torch import nn

DEVICE = "npu:0"
BUSY = "import os, sys\nwhile os.getppid() == int(sys.argv[1]):\n    for i in range(10**6):\n        pass"


@contextmanager
def busy_machine():
    """As many such processes as there are cores, and time enough for the device to have seen them."""
    cores = len(os.sched_getaffinity(0))
    started = [subprocess.Popen([sys.executable, "-c", BUSY, str(os.getpid())]) for _ in range(cores)]
    try:
        until = time.monotonic() + 20
        while not runs_at_once() and time.monotonic() < until:
            time.sleep(0.3)
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


def runs_at_once() -> bool:
    """Whether the calling thread runs an operator that a worker runs on a quiet machine."""
    x = torch.ones(200_000, device=DEVICE)
    torch.npu.synchronize()
    before = torch._C._npu_simulatorCounters(0)["ops_run_by_caller"]
    x.mul_(2)
    return torch._C._npu_simulatorCounters(0)["ops_run_by_caller"] > before


def train(steps: int = 4) -> list[torch.Tensor]:
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(16 * 256, 64),
        nn.LayerNorm(64),
        nn.Linear(64, 10),
    ).to(DEVICE)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    images, labels = torch.randn(16, 3, 32, 32).to(DEVICE), torch.randint(10, (16,)).to(DEVICE)
    side = torch.npu.Stream()
    for _ in range(steps):
        optimizer.zero_grad()
        side.wait_stream(torch.npu.current_stream())
        with torch.npu.stream(side):
            loss = nn.functional.cross_entropy(net(images), labels)
        torch.npu.current_stream().wait_stream(side)
        loss.backward()
        optimizer.step()
    return [loss.detach().cpu(), *(p.detach().cpu() for p in net.parameters())]


class TestBusyMachine(TestCase):
    def test_same_results(self):
        before = train()
        with busy_machine():
            self.assertTrue(runs_at_once(), "the load was not noticed")
            beside = train()
        for a, b in zip(before, beside, strict=True):
            self.assertTrue(torch.equal(a, b))

    def test_large_operators_leave_the_host_free(self):
        with busy_machine():
            x = torch.ones(3_000_000, device=DEVICE)
            torch.npu.synchronize()
            before = torch._C._npu_simulatorCounters(0)["ops_run_by_caller"]
            torch.npu._sleep(100_000_000)
            x.mul_(2)
            self.assertEqual(torch._C._npu_simulatorCounters(0)["ops_run_by_caller"], before)
            self.assertEqual(x.sum().item(), 6_000_000)

    def test_errors_and_events_come_as_always(self):
        with busy_machine():
            start, end = torch.npu.Event(enable_timing=True), torch.npu.Event(enable_timing=True)
            start.record()
            x = torch.ones(400_000, device=DEVICE) + 1
            end.record()
            end.synchronize()
            self.assertGreaterEqual(start.elapsed_time(end), 0)
            x[torch.full((200_000,), 500_000, device=DEVICE)]
            with self.assertRaisesRegex(RuntimeError, "index 500000 is out of bounds"):
                torch.npu.synchronize()
            self.assertEqual(x.sum().item(), 800_000)


if __name__ == "__main__":
    run_tests()
