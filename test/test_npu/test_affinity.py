"""Each name of the affinity library computes what its plain form computes, forwards and backwards."""

import importlib
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

import torch_npu
from _affinity_modules import CASES, Kit
from common_utils import TestCase, run_tests

import torch
from torch import nn
from torch.contrib.npu import optimized_lib as lib

# Names without a plain form to compare with: an error each, or tested by themselves.
ELSEWHERE = {
    "function.npu_fused_attention": "below",
    "function.npu_fused_attention_with_layernorm": "below",
    "module.DCNv2": "is ModulatedDeformConv",
    "module.FusedColorJitter": "below",
    "module.FastSyncBatchNorm": "below",
}

LARGE = ("function.matmul_transpose", "function.fuse_add_softmax_dropout", "module.Prefetcher", "PreLoader")


def results(y) -> list[torch.Tensor]:
    return list(y) if isinstance(y, tuple) else [y]


def numbers(x: torch.Tensor) -> torch.Tensor:
    return x.detach().cpu().double()


class TestPlainForms(TestCase):
    def compare(self, case, dtype: torch.dtype, tolerance: float, large: bool = False):
        made = case.make(Kit("npu", dtype, large))
        expected = case.make(Kit("cpu", torch.float32, large))
        found, wanted = results(made.affinity()), results(expected.plain())
        self.assertEqual(len(found), len(wanted))
        for own, plain in zip(found, wanted, strict=True):
            self.assertEqual(own.shape, plain.shape)
            self.assertEqual(own.device.type, "npu")
            torch.testing.assert_close(numbers(own), numbers(plain), atol=tolerance, rtol=tolerance)
        if not made.wanted:
            return
        generator = torch.Generator().manual_seed(1)
        slopes = [torch.rand(y.shape, generator=generator).half().float() for y in wanted]
        there = torch.autograd.grad(
            found, made.wanted, [s.to("npu", y.dtype) for s, y in zip(slopes, found, strict=True)]
        )
        here = torch.autograd.grad(wanted, expected.wanted, slopes)
        for own, plain in zip(there, here, strict=True):
            torch.testing.assert_close(numbers(own), numbers(plain), atol=tolerance, rtol=tolerance)

    def test_float32(self):
        for case in CASES:
            with self.subTest(case.name):
                self.compare(case, torch.float32, case.tolerance)

    def test_float16(self):
        for case in CASES:
            if case.half:
                with self.subTest(case.name):
                    self.compare(case, torch.float16, case.half_tolerance)

    def test_large(self):
        # These do something else with many elements.
        for case in CASES:
            if case.name in LARGE:
                with self.subTest(case.name):
                    self.compare(case, torch.float32, 1e-3, large=True)

    def test_plain_forms_on_npu(self):
        # What the benchmark measures against computes the same there.
        for case in CASES:
            with self.subTest(case.name):
                made, expected = case.make(Kit("npu")), case.make(Kit("cpu"))
                for own, plain in zip(results(made.plain()), results(expected.plain()), strict=True):
                    torch.testing.assert_close(numbers(own), numbers(plain), atol=case.tolerance, rtol=case.tolerance)

    def test_every_name_has_a_case(self):
        names = {f"function.{n}" for n in lib.function.__all__} | {f"module.{n}" for n in lib.module.__all__}
        names |= set(lib.__all__) - set(lib.function.__all__) - set(lib.module.__all__)
        compared = {case.name.partition(",")[0] for case in CASES}
        self.assertEqual(names, compared | set(ELSEWHERE))
        self.assertEqual(compared & set(ELSEWHERE), set())


class TestNames(TestCase):
    def test_one_library_under_two_names(self):
        for package in ("function", "module"):
            own = importlib.import_module(f"torch.contrib.npu.optimized_lib.{package}")
            self.assertIs(importlib.import_module(f"torch_npu.contrib.{package}"), own)
            for name in own.__all__:
                self.assertIs(getattr(torch_npu.contrib, name), getattr(own, name))
                self.assertIs(getattr(lib, name), getattr(own, name))
        from torch_npu.contrib.module.channel_shuffle import ChannelShuffle

        self.assertIs(ChannelShuffle, lib.ChannelShuffle)
        self.assertIs(lib.DCNv2, lib.ModulatedDeformConv)


class TestFusedAttention(TestCase):
    """BERT's attention against the same in fp64 on the CPU: results, gradients, what is refused."""

    def operands(self, batch=2, length=16, width=128):
        torch.manual_seed(0)
        shapes = [(batch * length, width), *[(width, width)] * 3, *[(width,)] * 3]
        parts = [(torch.randn(shape) * 0.2).half().requires_grad_() for shape in shapes]
        mask = torch.where(torch.rand(batch, 1, length, length) < 0.2, -10000.0, 0.0).half()
        return parts, mask, (torch.rand(width).half().requires_grad_(), torch.rand(width).half().requires_grad_())

    @staticmethod
    def wanted(parts, mask, scale):
        hidden, *rest = parts
        batch, _, length, _ = mask.shape
        layers = [
            (hidden @ kernel + bias).view(batch, length, -1, 64).transpose(1, 2)
            for kernel, bias in zip(rest[:3], rest[3:], strict=True)
        ]
        weights = torch.softmax(layers[0] @ layers[1].transpose(-1, -2) * scale + mask, -1)
        return (weights @ layers[2]).transpose(1, 2).reshape(hidden.shape)

    def compare(self, norm):
        parts, mask, affine = self.operands()
        leaves = [*parts, *affine] if norm else parts
        on_npu = [x.detach().npu().requires_grad_() for x in leaves]
        wide = [x.detach().double().requires_grad_() for x in leaves]
        if norm:
            first = torch.nn.functional.layer_norm(wide[0], (128,), *wide[7:])
            wanted = self.wanted([first, *wide[1:7]], mask.double(), 0.125)
            found, normed = lib.npu_fused_attention_with_layernorm(
                on_npu[0], mask.npu(), *on_npu[1:7], *on_npu[7:], scale=0.125, keep_prob=1
            )
            self.assertEqual(normed.cpu().double(), first, atol=5e-3, rtol=1e-2)
        else:
            wanted = self.wanted(wide, mask.double(), 0.125)
            found = lib.npu_fused_attention(on_npu[0], mask.npu(), *on_npu[1:], scale=0.125, keep_prob=1)
        self.assertEqual(found.cpu().double(), wanted, atol=5e-3, rtol=1e-2)
        for outcome in (found, wanted):
            outcome.square().mean().backward()
        for ours, theirs in zip(on_npu, wide, strict=True):
            # The bias of the keys changes nothing: its gradient is zero, but for rounding.
            close = 0.02 * theirs.grad.abs().max().item() + 2e-5
            self.assertEqual(ours.grad.cpu().double(), theirs.grad, atol=close, rtol=0.05)

    def test_attention(self):
        self.compare(norm=False)

    def test_with_layernorm(self):
        self.compare(norm=True)

    def test_errors(self):
        parts, mask, _ = self.operands()
        parts, mask = [x.detach().npu() for x in parts], mask.npu()
        with self.assertRaisesRegex(RuntimeError, "keep_prob must be above 0"):
            lib.npu_fused_attention(parts[0], mask, *parts[1:])
        with self.assertRaisesRegex(RuntimeError, "a multiple of 64"):
            lib.npu_fused_attention(parts[0][:, :100], mask, *parts[1:], keep_prob=1)
        with self.assertRaisesRegex(RuntimeError, "attention_mask"):
            lib.npu_fused_attention(parts[0], mask[0], *parts[1:], keep_prob=1)


class TestErrors(TestCase):
    def test_overlaps(self):
        boxes = torch.rand(4, 5).npu()
        with self.assertRaisesRegex(ValueError, "mode is 'iou' or 'ptiou'"):
            lib.npu_iou(boxes.t(), boxes.t(), mode="giou")
        with self.assertRaisesRegex(ValueError, "pairs of boxes"):
            lib.npu_giou(boxes.t(), boxes.t()[:2])
        for form in (lib.npu_diou, lib.npu_ciou):
            with self.assertRaisesRegex(ValueError, r"shape \(4, n\)"):
                form(boxes.t(), boxes.t())
            with self.assertRaisesRegex(NotImplementedError, "is_cross"):
                form(boxes, boxes, is_cross=True)

    def test_corners_and_scales(self):
        centre, size = torch.rand(2, 5) * 10, 2 + torch.rand(2, 5) * 10
        a = torch.cat([centre, size]).npu()
        b = (a + torch.rand(4, 5).npu()).contiguous()
        corners = [torch.cat([x[:2] - x[2:] / 2, x[:2] + x[2:] / 2]) for x in (a, b)]
        for form in (lib.npu_diou, lib.npu_ciou):
            self.assertEqual(form(*corners, trans=False), form(a, b), prec=1e-4)
            self.assertEqual(form(a, a), torch.ones(1, 5), prec=1e-4)
        boxes = [c.t().contiguous() / 100 for c in corners]
        self.assertEqual(lib.npu_iou(*boxes, is_normalized=True), lib.pairwise_iou(*boxes), prec=1e-4)
        whole = torch.tensor([[0, 0, 4, 4], [0, 0, 2, 4]]).npu()
        self.assertEqual(lib.npu_iou(whole, whole), torch.tensor([[1, 0.5], [0.5, 1]]), prec=1e-4)


class TestBatchNorms(TestCase):
    def test_counts_in_32_bits(self):
        for kind, plain in ((lib.FastBatchNorm2d, nn.BatchNorm2d), (lib.FastSyncBatchNorm, nn.SyncBatchNorm)):
            own, other = kind(3).npu(), plain(3).npu()
            self.assertIsInstance(own, plain)
            self.assertEqual(own.num_batches_tracked.dtype, torch.int32)
            x = torch.rand(2, 3, 4, 4).npu()
            self.assertEqual(own(x), other(x))
            self.assertEqual(own.num_batches_tracked.item(), 1)
            other.load_state_dict(own.state_dict())
            own.load_state_dict(other.state_dict())
            self.assertEqual(own.num_batches_tracked.dtype, torch.int32)
            self.assertEqual(own.eval()(x), other.eval()(x))
            self.assertIsNone(kind(3, track_running_stats=False).num_batches_tracked)


class TestColorJitter(TestCase):
    def test_single_changes(self):
        picture = torch.rand(3, 5, 6) * 0.4 + 0.3
        grey = (picture * torch.tensor([0.299, 0.587, 0.114]).view(3, 1, 1)).sum(0)
        for name, factor, expected in (
            ("brightness", 0.5, picture * 0.5),
            ("contrast", 1.3, picture * 1.3 - 0.3 * grey.mean()),
            ("saturation", 0.25, picture * 0.25 + 0.75 * grey),
        ):
            change = lib.FusedColorJitter(**{name: (factor, factor)})
            for device in ("cpu", "npu"):
                found = change(picture.to(device))
                self.assertEqual(found.device.type, device)
                self.assertEqual(found, expected.clamp(0, 1), prec=1e-4)

    def test_hue_turns_around_grey(self):
        picture = torch.rand(3, 4, 4) * 0.2 + 0.4
        turned = lib.FusedColorJitter(hue=(0.25, 0.25))(picture)
        grey = torch.tensor([0.299, 0.587, 0.114]).view(3, 1, 1)
        self.assertEqual((turned * grey).sum(0), (picture * grey).sum(0), prec=1e-4)
        self.assertGreater((turned - picture).abs().max().item(), 0.01)
        back = lib.FusedColorJitter(hue=(-0.25, -0.25))(turned)
        self.assertEqual(back, picture, prec=1e-3)

    def test_pictures(self):
        import numpy as np
        from PIL import Image

        pixels = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)
        self.assertTrue((np.array(lib.FusedColorJitter()(Image.fromarray(pixels))) == pixels).all())
        changed = np.array(lib.FusedColorJitter(0.4, 0.4, 0.4, 0.1).npu()(Image.fromarray(pixels)))
        self.assertEqual((changed.shape, changed.dtype), ((4, 4, 3), np.uint8))
        doubled = np.array(lib.FusedColorJitter((2, 2))(Image.fromarray(pixels)))
        self.assertTrue((doubled == 2 * pixels).all())
        for bad in ({"brightness": -1}, {"hue": 0.6}, {"contrast": (2, 1)}):
            with self.assertRaises(ValueError):
                lib.FusedColorJitter(**bad)


class TestSubmodules(TestCase):
    def test_a_submodule_does_not_take_the_name_of_its_function(self):
        import importlib

        from torch_npu.contrib import function

        for name in ("roll", "matmul_transpose", "fuse_add_softmax_dropout"):
            importlib.import_module(f"torch_npu.contrib.function.{name}")
            self.assertTrue(callable(getattr(function, name)), name)


if __name__ == "__main__":
    run_tests()
