"""Scripts that the profilers' tests profile: one without a problem, and one for each problem that is to be found."""

from torch.profiler import ProfilerActivity, profile, record_function, schedule

import torch
from torch import nn

ACTIVITIES = [ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]


class Layers(nn.Module):
    """Sixteen small layers."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(*(nn.Linear(256, 256) for _ in range(16)))

    def forward(self, x):
        return self.layers(x)


class Clean:
    """A training step that does nothing wrong."""

    def __init__(self):
        torch.manual_seed(0)
        self.model = Layers().npu()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, foreach=True)
        self.x = torch.randn(128, 256).npu()

    def step(self, number: int) -> None:
        self.optimizer.zero_grad()
        self.model(self.x).square().mean().backward()
        self.optimizer.step()


class HiddenSync(Clean):
    """Reads a number of each of many batches."""

    def step(self, number: int) -> None:
        super().step(number)
        for _ in range(8):
            if (self.x @ self.x.t()).sum().item() < 0:
                self.x = -self.x


class CastBackAndForth(Clean):
    """Converts what was converted a moment ago."""

    def step(self, number: int) -> None:
        super().step(number)
        for _ in range(4):
            self.x = self.x.half().float()


class ChangingShapes(Clean):
    """Each step has a batch size of its own."""

    def step(self, number: int) -> None:
        self.x = torch.ones(32 + number, 256).npu()
        super().step(number)


class SmallOps(Clean):
    """Updates parameters one by one."""

    def step(self, number: int) -> None:
        super().step(number)
        for _ in range(4):
            for parameter in self.model.parameters():
                parameter.data.mul_(0.999)


class Shuffle(Clean):
    """Transposes and copies large images all the time."""

    def step(self, number: int) -> None:
        super().step(number)
        image = torch.ones(16, 64, 32, 32, device="npu")
        for _ in range(48):
            image = image.view(16, 2, 32, 32, 32).transpose(1, 2).contiguous().view(16, 64, 32, 32)


class TrainedShuffle(Clean):
    """The same with gradients: a backward pass copies as well."""

    def step(self, number: int) -> None:
        super().step(number)
        image = torch.ones(16, 64, 32, 32, device="npu", requires_grad=True)
        y = image * 2
        for _ in range(40):
            y = y.view(16, 2, 32, 32, 32).transpose(1, 2).contiguous().view(16, 64, 32, 32)
        y.sum().backward()


class Stall(Clean):
    """Waits for its data."""

    def __init__(self):
        super().__init__()
        self.loader = iter(torch.utils.data.DataLoader(Slow(), batch_size=4))

    def step(self, number: int) -> None:
        next(self.loader)
        super().step(number)


class Slow(torch.utils.data.Dataset):
    """Items that take their time."""

    def __len__(self):
        return 1000

    def __getitem__(self, index):
        import time

        time.sleep(0.04)
        return torch.zeros(4)


def trace(kind: type, path: str, steps: int = 3) -> profile:
    """Profile some steps of a script into a trace."""
    script = kind()
    for number in range(2):
        script.step(number)
    torch.npu.synchronize()
    with profile(
        activities=ACTIVITIES,
        schedule=schedule(wait=0, warmup=1, active=steps),
        on_trace_ready=lambda prof: prof.export_chrome_trace(path),
        record_shapes=True,
        with_stack=True,
        profile_memory=True,
    ) as prof:
        for number in range(steps + 1):
            script.step(2 + number)
            torch.npu.synchronize()
            prof.step()
    return prof


def small_step(device: str = "npu") -> None:
    """Forward and backward of one product."""
    x = torch.randn(64, 64, device=device, requires_grad=True)
    with record_function("forward"):
        y = (x @ x).relu().sum()
    y.backward()
