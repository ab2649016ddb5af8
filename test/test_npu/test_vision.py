"""Resizing, padding, pooling, sampling, unfolding, margin losses and CTC on npu: what upstream's samples leave out.

The samples themselves, over all dtypes and with gradients, are in test_ops.py and test_op_db.py.
"""

import itertools
import os
import unittest

os.environ["NPU_FALLBACK"] = "0"  # read when torch.npu loads

import torch.nn.functional as F

import torch

FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


class VisionTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)

    def same(self, actual, expected, tolerance=0.0):
        self.assertEqual((actual.device.type, actual.dtype), ("npu", expected.dtype))
        torch.testing.assert_close(
            actual.detach().cpu(), expected.detach(), rtol=tolerance, atol=tolerance, equal_nan=True
        )

    def both(self, function, *operands, tolerance=1e-6):
        """Values and gradients of ``function`` on npu and on the CPU."""
        here = [t.detach().clone().requires_grad_(t.is_floating_point()) for t in operands]
        there = [t.detach().to("npu").requires_grad_(t.is_floating_point()) for t in operands]
        expected, actual = function(*here), function(*there)
        self.same(actual, expected, tolerance)
        weights = torch.rand_like(expected)
        wanted = [t for t in here if t.requires_grad]
        grads = torch.autograd.grad(expected, wanted, weights)
        again = torch.autograd.grad(actual, [t for t in there if t.requires_grad], weights.to("npu"))
        for a, e in zip(again, grads, strict=True):
            self.same(a, e, tolerance)


class TestResizing(VisionTest):
    def test_scales_are_exact(self):
        # One bit in the scale moves a nearest pixel: 3 * (1 / 0.6) is 5, or just below it.
        for scale, dtype in itertools.product((0.6, 0.7, 1.1, 1.3, 1.9, 2.7, 1 / 3), (torch.float64, torch.float32)):
            for size, modes in (
                ((2, 3, 37), ("nearest", "nearest-exact", "linear")),
                ((2, 3, 19, 23), ("nearest", "nearest-exact", "bilinear", "bicubic")),
                ((1, 2, 9, 11, 13), ("nearest", "nearest-exact", "trilinear")),
            ):
                x = torch.randn(size, dtype=dtype)
                for mode in modes:
                    with self.subTest(scale=scale, dtype=dtype, mode=mode):
                        expected = F.interpolate(x, scale_factor=scale, mode=mode)
                        exact = mode.startswith("nearest")
                        self.same(
                            F.interpolate(x.to("npu"), scale_factor=scale, mode=mode), expected, 0 if exact else 1e-5
                        )

    def test_antialias_in_half_precision_rounds_the_float32_result(self):
        x = torch.randn(1, 3, 16, 16).half()
        for mode in ("bilinear", "bicubic"):
            expected = F.interpolate(x.float(), size=(5, 7), mode=mode, antialias=True).half()
            self.same(F.interpolate(x.to("npu"), size=(5, 7), mode=mode, antialias=True), expected)

    def test_channels_last_stays(self):
        x = torch.randn(2, 3, 6, 8).contiguous(memory_format=torch.channels_last)
        for mode in ("nearest", "bilinear", "nearest-exact"):
            y = F.interpolate(x.to("npu"), scale_factor=2, mode=mode)
            self.assertTrue(y.is_contiguous(memory_format=torch.channels_last), mode)
            self.same(y, F.interpolate(x, scale_factor=2, mode=mode), 1e-6)

    def test_integers_raise_at_the_call(self):
        for mode, size in (("nearest", (1, 1, 4)), ("bilinear", (1, 1, 4, 4)), ("trilinear", (1, 1, 4, 4, 4))):
            with self.assertRaisesRegex(NotImplementedError, "not implemented for 'Long'"):
                F.interpolate(torch.ones(size, dtype=torch.int64, device="npu"), scale_factor=2, mode=mode)


class TestSampling(VisionTest):
    def test_modes_with_gradients(self):
        for mode, padding, corners in itertools.product(
            ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection"), (False, True)
        ):
            with self.subTest(mode=mode, padding=padding, corners=corners):
                image, grid = torch.randn(2, 3, 5, 7).double(), torch.rand(2, 4, 6, 2).double() * 3 - 1.5

                def sample(x, g):
                    return F.grid_sample(x, g, mode, padding, corners)  # noqa: B023

                self.both(sample, image, grid)
                if mode != "bicubic":
                    self.both(sample, torch.randn(1, 2, 4, 5, 6).double(), torch.rand(1, 3, 4, 2, 3).double() * 3 - 1.5)

    def test_gradient_of_the_grid_alone(self):
        x, grid = torch.randn(1, 2, 4, 4), torch.rand(1, 3, 3, 2, requires_grad=True)
        on_npu = grid.detach().to("npu").requires_grad_()
        F.grid_sample(x, grid, align_corners=False).sum().backward()
        F.grid_sample(x.to("npu"), on_npu, align_corners=False).sum().backward()
        self.same(on_npu.grad, grid.grad, 1e-5)

    def test_empty_batch_and_wrong_operands(self):
        x = torch.randn(0, 2, 4, 4, device="npu", requires_grad=True)
        y = F.grid_sample(x, torch.rand(0, 3, 3, 2, device="npu"), align_corners=False)
        y.sum().backward()
        self.assertEqual((y.shape, x.grad.shape), ((0, 2, 3, 3), x.shape))
        with self.assertRaisesRegex(RuntimeError, "same batch size"):
            F.grid_sample(
                torch.ones(2, 1, 4, 4, device="npu"), torch.ones(1, 3, 3, 2, device="npu"), align_corners=False
            )


class TestCtc(VisionTest):
    def test_forms_of_targets_and_lengths(self):
        for dtype, kind in itertools.product((torch.float64, torch.float32), (torch.int64, torch.int32)):
            log_probs = torch.randn(12, 3, 5, dtype=dtype).log_softmax(2)
            padded = torch.randint(1, 5, (3, 6), dtype=kind)
            lengths = [6, 4, 0]
            row = torch.cat([padded[i, :n] for i, n in enumerate(lengths)])
            for targets, reduction in itertools.product((padded, row), ("none", "mean", "sum")):
                for inputs, outputs in (
                    ((12, 9, 7), tuple(lengths)),
                    (torch.tensor([12, 9, 7]), torch.tensor(lengths)),
                    (torch.tensor([12, 9, 7], dtype=torch.int32), torch.tensor(lengths, dtype=torch.int32)),
                ):
                    with self.subTest(dtype=dtype, kind=kind, reduction=reduction, lengths=type(inputs)):
                        self.both(
                            lambda p: F.ctc_loss(p, targets.to(p.device), inputs, outputs, 0, reduction),  # noqa: B023
                            log_probs,
                            tolerance=1e-4 if dtype == torch.float32 else 1e-9,
                        )

    def test_lengths_on_the_device(self):
        log_probs, targets = torch.randn(10, 2, 4).log_softmax(2), torch.randint(1, 4, (2, 3))
        lengths = torch.tensor([10, 8]), torch.tensor([3, 2])

        def run(device):
            leaf = log_probs.detach().to(device).requires_grad_()
            loss, _ = torch.ops.aten._ctc_loss.Tensor(leaf, targets.to(device), *(t.to(device) for t in lengths))
            return loss, torch.autograd.grad(loss.sum(), leaf)[0]

        for a, e in zip(run("npu"), run("cpu"), strict=True):
            self.same(a, e, 1e-5)

    def test_impossible_alignments(self):
        log_probs, targets = torch.randn(3, 1, 4, dtype=torch.float64).log_softmax(2), torch.tensor([[1, 1, 2]])
        self.assertEqual(F.ctc_loss(log_probs.to("npu"), targets.to("npu"), (3,), (3,)).item(), float("inf"))
        self.both(lambda p: F.ctc_loss(p, targets.to(p.device), (3,), (3,), zero_infinity=True), log_probs)

    def test_wrong_operands_raise_at_the_call(self):
        log_probs, targets = torch.randn(5, 2, 4, device="npu"), torch.ones(2, 3, dtype=torch.int64, device="npu")
        for message, arguments in (
            ("blank must be in label range", ((5, 5), (3, 3), 4)),
            ("input_lengths must be of size batch_size", ((5,), (3, 3))),
            ("target_lengths must be of size batch_size", ((5, 5), (3,))),
            ("input_lengths", ((6, 5), (3, 3))),
            ("target_lengths", ((5, 5), (-1, 3))),
            ("size at least 4", ((5, 5), (4, 3))),
        ):
            with self.subTest(message), self.assertRaisesRegex(RuntimeError, message):
                F.ctc_loss(log_probs, targets, *arguments)
        with self.assertRaisesRegex(NotImplementedError, "not implemented for 'Half'"):
            F.ctc_loss(log_probs.half(), targets, (5, 5), (3, 3))


class TestPaddingAndBlocks(VisionTest):
    def test_padding_modes(self):
        for mode, (size, pads) in itertools.product(
            ("reflect", "replicate"),
            (
                ((2, 5), (3, 1)),
                ((2, 3, 5, 6), (1, 2, 0, 3)),
                ((1, 2, 4, 5, 6), (1, 2, 0, 3, 2, 1)),
                ((2, 4, 5, 6), (1, 0, 2, 3, 1, 1)),
            ),
        ):
            for dtype in (torch.float64, torch.complex64, torch.int16):
                x = torch.randint(-9, 9, size).to(dtype)
                with self.subTest(mode=mode, size=size, dtype=dtype):
                    self.same(F.pad(x.to("npu"), pads, mode), F.pad(x, pads, mode))
            self.both(lambda t: F.pad(t, pads, mode), torch.randn(size, dtype=torch.float64))  # noqa: B023

    def test_channels_last_stays(self):
        x = torch.randn(2, 3, 5, 6).contiguous(memory_format=torch.channels_last)
        for mode in ("reflect", "replicate"):
            y = F.pad(x.to("npu"), (1, 2, 0, 3), mode)
            self.assertTrue(y.is_contiguous(memory_format=torch.channels_last), mode)
            self.same(y, F.pad(x, (1, 2, 0, 3), mode))

    def test_shuffles(self):
        """Values, strides and gradients; channels-last stays."""
        last, last_3d = torch.channels_last, torch.channels_last_3d
        for call, operands in (
            (
                lambda t: F.pixel_shuffle(t, 2),
                [
                    torch.randn(2, 8, 3, 5),
                    torch.randn(2, 8, 3, 5).contiguous(memory_format=last),
                    torch.randn(2, 4, 3, 5).contiguous(memory_format=last),
                    torch.randn(2, 8, 3, 5).transpose(2, 3),
                    torch.randn(4, 3, 5),
                    torch.randn(2, 3, 4, 3, 5),
                    torch.randn(0, 8, 3, 5).contiguous(memory_format=last),
                ],
            ),
            (
                lambda t: F.pixel_unshuffle(t, 2),
                [
                    torch.randn(2, 3, 4, 6),
                    torch.randn(2, 3, 4, 6).contiguous(memory_format=last),
                    torch.randn(2, 3, 4, 12)[..., ::2],
                    torch.randn(3, 4, 6),
                    torch.randn(2, 3, 1, 4, 6),
                ],
            ),
            (
                lambda t: F.channel_shuffle(t, 2),
                [
                    torch.randn(2, 8, 3, 5),
                    torch.randn(2, 8, 3, 5).contiguous(memory_format=last),
                    torch.randn(2, 8, 3, 5).transpose(2, 3),
                    torch.randn(2, 8, 2, 3, 4).contiguous(memory_format=last_3d),
                    torch.randn(2, 8, 3),
                ],
            ),
        ):
            for x in operands:
                with self.subTest(shape=x.shape, strides=x.stride()):
                    self.assertEqual(call(x.to("npu")).stride(), call(x).stride())
                    if x.numel():  # the CPU's gradient of nothing has another shape
                        self.both(call, x, tolerance=0)
        with self.assertRaisesRegex(RuntimeError, "divisible by the square"):
            F.pixel_shuffle(torch.ones(1, 3, 2, 2, device="npu"), 2)

    def test_out(self):
        x = torch.randn(2, 3, 5, 6)
        expected = torch.ops.aten.reflection_pad2d(x, (1, 2, 0, 3))
        for out in (torch.empty(0, device="npu"), torch.empty(2, 3, 9, 8, device="npu").transpose(2, 3)):
            torch.ops.aten.reflection_pad2d.out(x.to("npu"), (1, 2, 0, 3), out=out)
            self.same(out, expected)

    def test_too_much_padding(self):
        for size, pads in (((1, 1, 3), (3, 0)), ((1, 1, 3, 3), (0, 0, 3, 0)), ((1, 1, 3, 3, 3), (0, 0, 0, 0, 0, 3))):
            with self.assertRaisesRegex(RuntimeError, "Padding size should be less"):
                F.pad(torch.ones(size, device="npu"), pads, "reflect")

    def test_unfold_of_bools_and_back(self):
        x = torch.rand(2, 3, 6, 7) > 0.5
        self.same(F.unfold(x.to("npu"), (2, 3), padding=1, stride=2), F.unfold(x, (2, 3), padding=1, stride=2))
        self.both(lambda t: F.fold(F.unfold(t, 2, stride=2), (6, 8), 2, stride=2), torch.randn(2, 3, 6, 8))


class TestPooling(VisionTest):
    def test_dtypes_that_the_cpu_refuses(self):
        x = torch.randn(1, 2, 4, 4, 4)
        for dtype in (torch.float16, torch.bfloat16):  # the device averages volumes in half precision, too
            y = F.avg_pool3d(x.to(dtype).to("npu"), 2)
            self.same(y, F.avg_pool3d(x.to(dtype).float(), 2).to(dtype))
        for pool in (
            lambda t: F.avg_pool2d(t[0], 2),
            lambda t: F.avg_pool3d(t, 2),
            lambda t: F.adaptive_avg_pool3d(t, 2),
        ):
            with self.assertRaisesRegex(NotImplementedError, "not implemented for 'Int'"):
                pool(torch.ones(1, 2, 4, 4, 4, dtype=torch.int32, device="npu"))

    def test_integers(self):
        x = torch.randint(-20, 20, (1, 2, 6, 6, 6))
        self.same(F.avg_pool3d(x.to("npu"), 2), F.avg_pool3d(x, 2))
        self.same(F.avg_pool2d(x[0].to("npu"), 2), F.avg_pool2d(x[0], 2))
        for dtype in (torch.int64, torch.int32, torch.uint8):
            y, places = F.max_pool3d(x.to(dtype).to("npu"), 2, return_indices=True)
            expected, where = F.max_pool3d(x.to(dtype), 2, return_indices=True)
            self.same(y, expected)
            self.same(places, where)

    def test_checks_of_max_pool3d(self):
        x = torch.randn(1, 2, 4, 4, 4, device="npu")
        for message, call in (
            ("stride should not be zero", lambda: F.max_pool3d(x, 2, stride=0)),
            ("pad should be at most half", lambda: F.max_pool3d(x, 2, padding=2)),
            ("Output size is too small", lambda: F.max_pool3d(x, 5)),
            ("Expected 4D or 5D", lambda: torch.ops.aten.max_pool3d_with_indices(x[0, 0], [2, 2, 2])),
            ("must be one int or 3 ints", lambda: torch.ops.aten.max_pool3d_with_indices(x, [2, 2])),
        ):
            with self.subTest(message), self.assertRaisesRegex(RuntimeError, message):
                call()

    def test_unpooling(self):
        x = torch.randn(2, 3, 6, 8)
        y, places = F.max_pool2d(x, 2, return_indices=True)
        self.same(F.max_unpool2d(y.to("npu"), places.to("npu"), 2), F.max_unpool2d(y, places, 2))
        F.max_unpool2d(y.to("npu"), (places + 1000).to("npu"), 2)
        with self.assertRaisesRegex(RuntimeError, "invalid max index"):
            torch.npu.synchronize()
        self.assertEqual(torch.ones(2, device="npu").sum().item(), 2.0)

    def test_strides_of_unpooling(self):
        for pool, unpool, size, last in (
            (F.max_pool2d, F.max_unpool2d, (2, 3, 4, 6), torch.channels_last),
            (F.max_pool3d, F.max_unpool3d, (2, 3, 4, 6, 4), torch.channels_last_3d),
        ):
            for memory_format in (torch.contiguous_format, last):
                x = torch.randn(size).contiguous(memory_format=memory_format)
                y, places = pool(x, 2, return_indices=True)
                for indices in (places, places.contiguous(memory_format=last)):
                    there = unpool(y.to("npu"), indices.to("npu"), 2)
                    here = unpool(y, indices, 2)
                    self.same(there, here)
                    self.assertEqual(there.stride(), here.stride())

    def test_random_windows(self):
        for pool, size, dims in (
            (F.fractional_max_pool2d, (2, 3, 9, 11), 2),
            (F.fractional_max_pool3d, (2, 3, 7, 8, 9), 3),
        ):
            x, samples = torch.randn(size, dtype=torch.float64), torch.rand(2, 3, dims, dtype=torch.float64)
            self.both(lambda t: pool(t, 2, output_size=4, _random_samples=samples.to(t.device)), x)  # noqa: B023
            torch.manual_seed(3)
            first = pool(x.to("npu"), 2, output_size=4)
            torch.manual_seed(3)
            self.assertTrue(torch.equal(first, pool(x.to("npu"), 2, output_size=4)))

    def test_zero_batch(self):
        for pool, size in (
            (F.max_pool3d, (0, 2, 4, 4, 4)),
            (F.avg_pool3d, (0, 2, 4, 4, 4)),
            (F.max_pool2d, (0, 2, 4, 4)),
        ):
            x = torch.empty(size, device="npu", requires_grad=True)
            y = pool(x, 2)
            y.sum().backward()
            self.assertEqual((y.shape[0], x.grad.shape), (0, x.shape))


class TestLossesAndOthers(VisionTest):
    def test_margin_losses_take_int32_targets_and_half(self):
        x, target = torch.randn(4, 5), torch.randint(0, 5, (4,))
        self.both(lambda t: F.multi_margin_loss(t, target.int().to(t.device).to(torch.int64), p=2, margin=0.3), x)
        expected = F.multi_margin_loss(x, target, p=2, margin=0.3)
        self.same(F.multi_margin_loss(x.to("npu"), target.int().to("npu"), p=2, margin=0.3), expected, 1e-6)
        half = F.multi_margin_loss(x.half().to("npu"), target.to("npu"))
        self.same(half, F.multi_margin_loss(x.half().float(), target).half(), 1e-3)

    def test_thresholds_of_losses_are_float64(self):
        x, y = torch.randn(2, 40, dtype=torch.float64) * 2
        for loss in (lambda a, b: F.huber_loss(a, b, delta=0.7), lambda a, b: F.smooth_l1_loss(a, b, beta=0.3)):
            self.both(loss, x, y, tolerance=1e-14)

    def test_rrelu(self):
        x = torch.randn(500, dtype=torch.float64)
        x[0] = float("nan")
        for inplace in (False, True):
            torch.manual_seed(5)
            leaf = x.to("npu").requires_grad_()
            y = F.rrelu(leaf * 1, 0.2, 0.6, training=True, inplace=inplace)
            y.nansum().backward()
            slopes = leaf.grad.cpu()[x <= 0]
            self.assertTrue(((slopes >= 0.2) & (slopes <= 0.6)).all())
            self.assertGreater(slopes.std().item(), 0.08)
            self.assertLess(abs(slopes.mean().item() - 0.4), 0.03)
            self.assertTrue((leaf.grad.cpu()[x > 0] == 1).all())
            torch.testing.assert_close(y.detach().cpu()[1:], (x * torch.where(x <= 0, leaf.grad.cpu(), 1))[1:])
            torch.manual_seed(5)
            again = F.rrelu(x.to("npu"), 0.2, 0.6, training=True)
            self.assertTrue(torch.equal(again[1:], y.detach()[1:]))
        self.both(lambda t: F.rrelu(t, 0.2, 0.6), torch.randn(20, dtype=torch.float64))

    def test_statistics_of_half_precision(self):
        for dtype in (torch.float16, torch.bfloat16):
            x, weight = torch.randn(4, 6, 8, dtype=dtype), torch.ones(8)
            for w in (None, weight.to(dtype), weight):
                for call in (
                    lambda t, p: torch.native_layer_norm(t, [8], p, None, 1e-5),
                    lambda t, p: torch.native_group_norm(t, None if p is None else p[:6], None, 4, 6, 8, 3, 1e-5),
                ):
                    expected = [t.dtype for t in call(x, w)]
                    self.assertEqual([t.dtype for t in call(x.to("npu"), None if w is None else w.to("npu"))], expected)

    def test_convolutions_by_the_names_of_the_cpu(self):
        image, volume = torch.randn(2, 3, 8, 9), torch.randn(2, 3, 6, 7, 8)
        filters, deep, bias = torch.randn(4, 3, 3, 2), torch.randn(4, 3, 3, 2, 2), torch.randn(4)
        turned = torch.randn(3, 4, 3, 2)
        aten = torch.ops.aten
        for call, operands in (
            (lambda x, w, b: aten.slow_conv_dilated2d(x, w, [3, 2], b, [2, 1], [1, 2], [2, 1]), (image, filters, bias)),
            (
                lambda x, w, b: aten.slow_conv_dilated3d(x, w, [3, 2, 2], b, [1] * 3, [1] * 3, [1, 2, 2]),
                (volume, deep, bias),
            ),
            (
                lambda x, w, b: aten.slow_conv_transpose2d(x, w, [3, 2], b, [2, 2], [1, 1], [1, 1]),
                (image, turned, bias),
            ),
            (lambda x, w, b: aten.slow_conv3d(x, w, [3, 2, 2], b, [2] * 3, [1] * 3), (volume, deep, bias)),
            (lambda x, w, b: aten.thnn_conv2d(x, w, [3, 2], b, [2, 2], [1, 1]), (image, filters, bias)),
        ):
            self.both(call, *(t.double() for t in operands))
        with self.assertRaisesRegex(RuntimeError, "kernel_size"):
            aten.slow_conv_dilated2d(image.to("npu"), filters.to("npu"), [2, 2])

    def test_convolution_of_int64(self):
        for dims, transposed in itertools.product((1, 2, 3), (False, True)):
            x, w = torch.randint(-5, 5, (2, 4, *[7] * dims)), torch.randint(-5, 5, (4, 2, *[3] * dims))
            call = getattr(F, f"conv{'_transpose' if transposed else ''}{dims}d")
            with self.subTest(dims=dims, transposed=transposed):
                self.same(
                    call(x.to("npu"), w.to("npu"), stride=2, padding=1, groups=2),
                    call(x, w, stride=2, padding=1, groups=2),
                )
        with self.assertRaisesRegex(NotImplementedError, "not implemented for 'Int'"):
            F.conv2d(
                torch.ones(1, 1, 4, 4, dtype=torch.int32, device="npu"),
                torch.ones(1, 1, 2, 2, dtype=torch.int32, device="npu"),
            )


if __name__ == "__main__":
    unittest.main()
