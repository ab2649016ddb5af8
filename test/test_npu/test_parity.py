"""ResNet-50's training step on npu:0 against the same step on the CPU, for 20 steps of a run on the CPU.

Whole trajectories diverge even between two memory layouts of one CPU, so each step starts from the CPU run's own state:
weights, buffers and momentum are loaded into the npu's model. The yardstick for the gradients is measured in the same
run: the distance between the CPU's NCHW and channels_last steps. PARITY_STEPS, PARITY_PIXELS and PARITY_BATCH change
the size (the main job: 64 pixels, batch 64); PARITY_VERBOSE=1 prints the distances.

Note [Steps that decide alike]
The gradient is not a continuous function of the roundings: one ReLU whose input lies within a rounding of zero, or one
maximum of two nearly equal values, moves a gradient by up to 1e-2, whatever computes it. So the test compares these
decisions. Where npu and CPU take all of them alike, every gradient must keep to the yardstick; a quarter of the steps
at least have to be such ones, and in the others only a few units in a million may decide differently. The batch is
small so that there are such steps: at the main job's size hardly any step is without a changed decision.

There, at the recipe's batch of 32, both layouts and npu change decisions in most steps, and the comparison is over the
run: the root mean square of each gradient's error in the 20 steps against the same of the yardstick
(test_gradients_over_a_run, NPU_SLOW_TESTS=1).
"""

import copy
import os
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from common_utils import TestCase, run_tests

import torch
from torch import nn

STEPS = int(os.environ.get("PARITY_STEPS", "20"))
PIXELS = int(os.environ.get("PARITY_PIXELS", "64"))
BATCH = int(os.environ.get("PARITY_BATCH", "8"))
VERBOSE = os.environ.get("PARITY_VERBOSE") == "1"
CLASSES = 10
# A yardstick of nothing (both layouts may agree to the bit) still leaves a few roundings of fp32.
ROUNDING = 2e-6


class Run:
    """A model with its optimizer on one device and in one memory format."""

    def __init__(self, model: nn.Module, device: str, memory_format=torch.contiguous_format) -> None:
        self.device, self.memory_format = device, memory_format
        self.model = copy.deepcopy(model).to(device, memory_format=memory_format)
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.05, momentum=0.9, weight_decay=1e-4)
        self.decisions: list[torch.Tensor] = []

    def record_decisions(self) -> None:
        """Keeps, for each step, which ReLUs are open and which value each maximum of the max pooling takes."""
        for module in self.model.modules():
            if isinstance(module, nn.ReLU):
                module.register_forward_hook(lambda _, inputs, output: self.decisions.append(output.detach().cpu() > 0))
            elif isinstance(module, nn.MaxPool2d):
                module.register_forward_hook(lambda pool, inputs, output: self.decisions.append(taken(pool, inputs[0])))

    def load(self, model_state: dict, optimizer_state: dict) -> None:
        self.model.load_state_dict(model_state)
        # An optimizer takes over the tensors it is given where their device is its own.
        self.optimizer.load_state_dict(copy.deepcopy(optimizer_state))

    def step(self, images: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """Runs a step and returns its loss, a scalar on the device; the gradients stay in the model."""
        self.decisions.clear()
        images = images.to(self.device).contiguous(memory_format=self.memory_format)
        loss = nn.functional.cross_entropy(self.model(images), target.to(self.device))
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def gradients(self) -> dict[str, torch.Tensor]:
        return {name: parameter.grad.cpu() for name, parameter in self.model.named_parameters()}


def taken(pool: nn.MaxPool2d, values: torch.Tensor) -> torch.Tensor:
    values = values.detach().cpu().contiguous()
    return nn.functional.max_pool2d(values, pool.kernel_size, pool.stride, pool.padding, return_indices=True)[1]


def distance(value: torch.Tensor, reference: torch.Tensor) -> float:
    """Norm of the difference / norm of the reference, computed in fp64."""
    value, reference = value.cpu().double(), reference.cpu().double()
    norm = reference.norm().item()
    difference = (value - reference).norm().item()
    return difference / norm if norm else difference


def different_decisions(a: Run, b: Run) -> int:
    return sum((x != y).sum().item() for x, y in zip(a.decisions, b.decisions, strict=True))


def batches(count: int, batch: int = BATCH):
    """Batches of noisy pictures, each of which shows its class: a run on them learns."""
    generator = torch.Generator().manual_seed(7)
    coarse = torch.randn(CLASSES, 3, 8, 8, generator=generator)
    pictures = nn.functional.interpolate(coarse, size=(PIXELS, PIXELS), mode="bilinear")
    for _ in range(count):
        target = torch.randint(CLASSES, (batch,), generator=generator)
        yield pictures[target] + 0.5 * torch.randn(batch, 3, PIXELS, PIXELS, generator=generator), target


def resnet50() -> nn.Module:
    from torchvision.models import resnet50 as build

    torch.manual_seed(3)
    return build(num_classes=CLASSES, zero_init_residual=True)


class TestParity(TestCase):
    def setUp(self):
        super().setUp()
        torch.npu.reset_fallback_stats()

    def test_steps_of_resnet50(self):
        model = resnet50()
        cpu, last, npu = Run(model, "cpu"), Run(model, "cpu", torch.channels_last), Run(model, "npu:0")
        cpu.record_decisions()
        npu.record_decisions()
        alike, worst = 0, []
        for number, (images, target) in enumerate(batches(STEPS)):
            for other in (last, npu):
                other.load(cpu.model.state_dict(), cpu.optimizer.state_dict())
            loss, _, npu_loss = (run.step(images, target) for run in (cpu, last, npu))
            self.assertLessEqual(distance(npu_loss, loss), 1e-4, f"loss of step {number}")
            different = different_decisions(npu, cpu)
            self.assertLessEqual(different, 1 + 5e-6 * sum(d.numel() for d in cpu.decisions), f"step {number}")
            reference, layouts, ours = cpu.gradients(), last.gradients(), npu.gradients()
            for name, gradient in reference.items():
                yardstick, error = distance(layouts[name], gradient), distance(ours[name], gradient)
                worst.append((error / (yardstick + ROUNDING), error, yardstick, different, name, number))
                if not different:
                    self.assertLessEqual(error, 3 * yardstick + ROUNDING, f"gradient of {name}, step {number}")
            alike += not different
            after = npu.model.state_dict()
            for name, value in cpu.model.state_dict().items():
                self.assertEqual(after[name].dtype, value.dtype)
                self.assertLessEqual(
                    distance(after[name], value), 1e-2 if different else 1e-4, f"{name}, step {number}"
                )
        self.assertGreaterEqual(alike, STEPS / 4, "steps in which npu and CPU decide alike")
        self.assertEqual(torch.npu.fallback_stats(), {})
        if VERBOSE:
            print(f"{alike} of {STEPS} steps decide alike")
            for _, error, yardstick, different, name, number in sorted(worst, reverse=True)[:8]:
                print(f"step {number} {name}: error {error:.2e}, layouts {yardstick:.2e}, decisions {different}")

    @unittest.skipUnless(os.environ.get("NPU_SLOW_TESTS") == "1", "half a minute of three runs: NPU_SLOW_TESTS=1")
    def test_gradients_over_a_run(self):
        """Whatever the ReLUs decide: as far from the CPU as its own convolutions are from oneDNN's."""
        model = resnet50()
        cpu, plain, npu = Run(model, "cpu"), Run(model, "cpu"), Run(model, "npu:0")
        for run in (cpu, plain, npu):
            run.record_decisions()
        error = yardstick = 0.0
        ours_different = theirs_different = 0
        for number, (images, target) in enumerate(batches(STEPS, batch=32)):
            for other in (plain, npu):
                other.load(cpu.model.state_dict(), cpu.optimizer.state_dict())
            loss, npu_loss = cpu.step(images, target), npu.step(images, target)
            with torch.backends.mkldnn.flags(enabled=False):
                plain.step(images, target)
            self.assertLessEqual(distance(npu_loss, loss), 1e-4, f"loss of step {number}")
            ours_different += different_decisions(npu, cpu)
            theirs_different += different_decisions(plain, cpu)
            reference, without, ours = cpu.gradients(), plain.gradients(), npu.gradients()
            error += sum(distance(ours[name], gradient) ** 2 for name, gradient in reference.items())
            yardstick += sum(distance(without[name], gradient) ** 2 for name, gradient in reference.items())
        if VERBOSE:
            print(f"error {error**0.5:.1e} for {yardstick**0.5:.1e}, decisions {ours_different} for {theirs_different}")
        self.assertLessEqual(error**0.5, 3 * yardstick**0.5)
        self.assertLessEqual(ours_different, 3 * theirs_different)

    def test_nothing_of_a_step_leaves_the_device(self):
        counters = torch._C._npu_simulatorCounters
        if counters(0) is None:
            self.skipTest("a card does not count its copies")
        run = Run(resnet50(), "npu:0")
        data = list(batches(3))
        run.step(*data[0])
        torch.npu.synchronize()
        before = counters(0)
        for images, target in data[1:]:
            loss = run.step(images, target)
        torch.npu.synchronize()
        after = counters(0)
        self.assertEqual(after["device_to_host_copies"], before["device_to_host_copies"])
        self.assertEqual(after["host_to_device_copies"] - before["host_to_device_copies"], 4, "images, target; twice")
        loss.item()
        self.assertEqual(counters(0)["device_to_host_copies"], before["device_to_host_copies"] + 1)
        self.assertEqual(torch.npu.fallback_stats(), {})


if __name__ == "__main__":
    run_tests()
