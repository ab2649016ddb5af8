"""Programs that are saved with their code: torch.export and torch.jit on npu, and what AOTInductor says."""

import io
import os
import sys
import tempfile
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from common_utils import TestCase, run_tests
from torch.nn import functional as F

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.drop = nn.Dropout(0.5)
        self.linear = nn.Linear(4, 5)

    def forward(self, x):
        return self.linear(self.drop(torch.relu(self.norm(self.conv(x))).mean((2, 3))))


class Branches(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x, n: int):
        for _ in range(n):
            x = self.linear(x) if bool(x.sum() > 0) else torch.tanh(x)
        return x


def net():
    torch.manual_seed(0)
    return Net().npu().eval()


def image(batch=2):
    return torch.randn(batch, 3, 6, 6, generator=torch.Generator().manual_seed(batch)).npu()


class TestExport(TestCase):
    def saved(self, program):
        file = io.BytesIO()
        torch.export.save(program, file)
        file.seek(0)
        return torch.export.load(file)

    def test_save_and_load(self):
        model = net()
        program = torch.export.export(model, (image(),), dynamic_shapes=({0: torch.export.Dim("batch")},))
        again = self.saved(program).module()
        for batch in (1, 2, 5):
            result = again(image(batch))
            self.assertTrue(result.is_npu)
            self.assertEqual(result, model(image(batch)), prec=1e-5)

    def test_core_operators(self):
        model = net()
        program = self.saved(torch.export.export(model, (image(),)).run_decompositions())
        self.assertEqual(program.module()(image()), model(image()), prec=1e-5)

    def test_to_another_device(self):
        from torch.export.passes import move_to_device_pass

        model = net()
        program = torch.export.export(model, (image(),))
        for device in ("npu:1", "cpu"):
            moved = move_to_device_pass(program, device)
            result = moved.module()(image().to(device))
            self.assertEqual(result.device, torch.device(device))
            self.assertEqual(result.cpu(), model(image()).cpu(), prec=1e-5)
        program = torch.export.export(net().cpu(), (image().cpu(),))
        result = move_to_device_pass(program, "npu:0").module()(image())
        self.assertEqual(result, model(image()), prec=1e-5)

    def test_npu_operators(self):
        class Norm(nn.Module):
            def forward(self, x, w):
                return torch.npu_rms_norm(x, w)[0] + torch.ops.npu.npu_iou(x[:, :4].abs(), x[:, :4].abs()).sum()

        x, w = torch.randn(3, 8).npu(), torch.rand(8).npu()
        program = self.saved(torch.export.export(Norm(), (x, w)))
        self.assertEqual(program.module()(x, w), Norm()(x, w), prec=1e-5)

    def test_sizes_of_npu_operators_stay_symbols(self):
        class Block(nn.Module):
            def forward(self, x, w):
                y, _, total = torch.npu_add_rms_norm(x, x, w)
                return torch.npu_swiglu(y) + torch.npu_geglu(total)[0] + torch.npu_gelu_mul(y)

        x, w = torch.randn(3, 8).npu(), torch.rand(8).npu()
        program = torch.export.export(Block(), (x, w), dynamic_shapes=({0: torch.export.Dim("batch")}, None))
        for batch in (2, 5):
            x = torch.randn(batch, 8).npu()
            self.assertEqual(program.module()(x, w), Block()(x, w), prec=1e-6)

    def test_training_program(self):
        model = net().train()
        program = torch.export.export(model, (image(),)).module()
        program.drop = model.drop
        loss = program(image()).sum()
        loss.backward()
        self.assertTrue(all(parameter.grad.is_npu for parameter in program.parameters()))


class JitCase(TestCase):
    def setUp(self):
        context = warnings.catch_warnings()
        context.__enter__()
        self.addCleanup(context.__exit__, None, None, None)
        warnings.simplefilter("ignore", DeprecationWarning)  # upstream's, of torch.jit

    def loaded(self, program, **options):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "program.pt")
            program.save(path)
            return torch.jit.load(path, **options)


class TestJit(JitCase):
    def test_trace(self):
        model = net()
        traced = torch.jit.trace(model, image())
        self.assertEqual(traced(image(4)), model(image(4)), prec=1e-6)
        for target in (None, "npu:1", "cpu", torch.device("npu:0")):
            again = self.loaded(traced, map_location=target)
            device = torch.device("npu:0" if target is None else target)
            self.assertEqual({p.device for p in again.parameters()}, {device})
            self.assertEqual(again(image(3).to(device)).cpu(), model(image(3)).cpu(), prec=1e-5)

    def test_a_file_of_the_cpu(self):
        model = net()
        traced = torch.jit.trace(net().cpu(), image().cpu())
        again = self.loaded(traced, map_location="npu:0")
        self.assertEqual(again(image(3)), model(image(3)), prec=1e-5)
        self.assertEqual(self.loaded(traced).to("npu")(image(3)), model(image(3)), prec=1e-5)

    def test_script_keeps_branches(self):
        torch.manual_seed(0)
        model = Branches().npu()
        scripted = torch.jit.script(model)
        again = self.loaded(scripted, map_location="npu:0")
        for seed in range(4):
            x = torch.randn(2, 3, generator=torch.Generator().manual_seed(seed)).npu()
            for n in (0, 1, 3):
                for program in (scripted, again):
                    self.assertEqual(program(x, n), model(x, n), prec=1e-6)

    def test_script_trains(self):
        model = torch.jit.script(net().train())
        model(image()).sum().backward()
        model(image()).sum().backward()  # the second run is the optimised one
        self.assertTrue(all(parameter.grad.is_npu for parameter in model.parameters()))

    def test_freeze(self):
        model = net()
        for program in (torch.jit.script(model), torch.jit.trace(model, image())):
            frozen = torch.jit.freeze(program.eval())
            self.assertEqual(list(frozen.parameters()), [])
            for _ in range(3):
                self.assertEqual(frozen(image()), model(image()), prec=1e-5)
            self.assertEqual(self.loaded(frozen, map_location="npu:0")(image()), model(image()), prec=1e-5)
            ready = torch.jit.optimize_for_inference(program)
            self.assertEqual(ready(image()), model(image()), prec=1e-5)

    def test_frozen_weights_stay_on_their_device(self):
        frozen = torch.jit.freeze(torch.jit.script(net()))
        # Constants of a frozen program are in its code: map_location moves them as it moves parameters.
        self.assertEqual(self.loaded(frozen, map_location="cpu")(image().cpu()), net()(image()).cpu(), prec=1e-5)

    def test_npu_operators(self):
        @torch.jit.script
        def function(x, w):
            return torch.ops.npu.npu_rms_norm(x, w)[0]

        x, w = torch.randn(3, 8).npu(), torch.rand(8).npu()
        expected = torch.npu_rms_norm(x, w)[0]
        self.assertEqual(function(x, w), expected, prec=1e-6)
        traced = torch.jit.trace(lambda x, w: torch.npu_rms_norm(x, w)[0], (x, w))
        self.assertIn("npu::npu_rms_norm", str(traced.graph))
        self.assertEqual(traced(x, w), expected, prec=1e-6)

    def test_functions_with_fused_chains(self):
        @torch.jit.script
        def chain(x, y):
            return torch.sigmoid(x * y + 1.5) * F.relu(x) - y

        x, y = torch.randn(4, 5).npu(), torch.randn(4, 5).npu()
        for _ in range(4):
            result = chain(x, y)
        self.assertEqual(result, torch.sigmoid(x * y + 1.5) * torch.relu(x) - y, prec=1e-6)


class TestAotInductor(TestCase):
    def test_it_refuses(self):
        program = torch.export.export(net(), (image(),))
        with tempfile.TemporaryDirectory() as folder, self.assertRaises(Exception) as caught:
            torch._inductor.aoti_compile_and_package(program, package_path=os.path.join(folder, "model.pt2"))
        self.assertIn("npu", str(caught.exception))
        self.assertIn("AOTInductor", str(caught.exception))


if __name__ == "__main__":
    run_tests()
