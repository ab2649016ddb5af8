"""Batch, layer, group and instance normalisation on npu against fp64 on the CPU."""

# ruff: noqa: B023 - functions made in a loop are called in the same round

import unittest

import nn_checks
import torch.nn.functional as F
from nn_checks import check, randn, relative_error

import torch


class TestBatchNorm(unittest.TestCase):
    SHAPES = ((4, 6), (4, 6, 5), (8, 64, 9, 7), (9, 3, 1, 1), (3, 100, 2, 2), (2, 6, 3, 4, 5))

    def test_training(self):
        for shape in self.SHAPES:
            with self.subTest(shape=shape):
                c = shape[1]
                check(
                    self,
                    lambda x, w, b: F.batch_norm(x, None, None, w, b, True),
                    [randn(*shape), randn(c), randn(c)],
                    tolerance=5e-6,
                )

    def test_evaluation(self):
        for shape in self.SHAPES:
            c = shape[1]
            mean, var = randn(c, grad=False), randn(c, grad=False).detach().square() + 0.5
            with self.subTest(shape=shape):
                check(
                    self,
                    lambda x, w, b, m, v: F.batch_norm(x, m, v, w, b, False),
                    [randn(*shape), randn(c), randn(c, seed=5), mean, var],
                    tolerance=5e-6,
                )

    def test_running_statistics(self):
        cpu, npu = torch.nn.BatchNorm2d(16).double(), torch.nn.BatchNorm2d(16).npu()
        for step in range(3):
            x = randn(4, 16, 6, 5, grad=False, seed=step) * 3 + 2
            cpu(x.double())
            npu(x.npu())
        self.assertLess(relative_error(npu.running_mean, cpu.running_mean), 1e-6)
        self.assertLess(relative_error(npu.running_var, cpu.running_var), 1e-6)
        self.assertEqual(npu.num_batches_tracked.item(), 3)
        npu.eval()
        cpu.eval()
        self.assertLess(relative_error(npu(x.npu()), cpu(x.double())), 1e-6)

    def test_large_mean_keeps_its_digits(self):
        x = randn(16, 32, 8, 8, grad=False) + 1000
        check(self, lambda x: F.batch_norm(x, None, None, training=True), [x], tolerance=1e-4)

    def test_gradients_are_accurate_for_many_rows(self):
        check(
            self,
            lambda x, w, b: F.batch_norm(x, None, None, w, b, True),
            [randn(16, 64, 28, 28), randn(64), randn(64, seed=2)],
            tolerance=2e-6,
        )

    def test_without_affine_or_statistics(self):
        for module in (torch.nn.BatchNorm2d(5, affine=False), torch.nn.BatchNorm2d(5, track_running_stats=False)):
            x = randn(3, 5, 4, 4, grad=False)
            want = module.double()(x.double())
            got = module.float().npu()(x.npu())
            self.assertLess(relative_error(got, want), 2e-6)

    def test_half_precision_computes_in_fp32(self):
        for shape in ((8, 16, 6, 6), (40, 16), (8, 16, 9)):
            for training in (True, False):
                with self.subTest(shape=shape, training=training):
                    x, w, b = (t.detach().half().float() for t in (randn(*shape), randn(16), randn(16, seed=4)))
                    mean, var = torch.zeros(16), torch.ones(16)
                    check(
                        self,
                        lambda x, w, b, m, v: F.batch_norm(x, m, v, w, b, training),
                        [x.requires_grad_(), w.requires_grad_(), b.requires_grad_(), mean, var],
                        dtype=torch.float16,
                        tolerance=2e-3,
                    )
        x = randn(8, 16, 6, 6, grad=False).half()
        self.assertEqual(F.batch_norm(x.npu(), None, None, training=True).dtype, torch.float16)

    def test_halves_are_rounded_once(self):
        for dtype in (torch.float16, torch.bfloat16):
            for shape in ((5, 3, 7, 7), (64, 17), (700, 64, 1, 2)):
                with self.subTest(dtype=dtype, shape=shape):
                    c = shape[1]
                    x, grad = (randn(*shape, grad=False, seed=s).to(dtype) for s in (1, 2))
                    # Subnormal, as many gradients of fp16 are, and large.
                    grad[0] *= 2.0**-16
                    x[1] *= 100
                    exact = x.double().requires_grad_()
                    want = F.batch_norm(exact, None, None, training=True)
                    want.backward(grad.double())
                    mine = x.npu().requires_grad_()
                    got = F.batch_norm(mine, torch.zeros(c).npu(), torch.ones(c).npu(), training=True)
                    got.backward(grad.npu())
                    for value, result in ((want, got), (exact.grad, mine.grad)):
                        # One rounding, and now and then a neighbour where fp32 lay on the other side of the middle.
                        error = (result.detach().cpu().double() - value.detach()).abs()
                        spacing = torch.finfo(dtype).eps * value.detach().abs() * 0.51 + 2.0**-25 + 2e-6
                        self.assertFalse((error > spacing).any().item(), (error - spacing).max())
        for special in (float("inf"), float("nan")):
            x = torch.ones(4, 16, 2, 2, dtype=torch.bfloat16)
            x[0, 0] = special
            result = F.batch_norm(x.npu(), None, None, training=True).cpu()
            self.assertTrue(result[:, 0].isnan().any().item())
            self.assertTrue(result[:, 1:].eq(0).all().item())

    def test_out(self):
        x = randn(4, 3, 5, 5, grad=False)
        for name in ("native_batch_norm", "_native_batch_norm_legit"):
            for training in (True, False):
                # Shapes and dtypes of the out= tensors.
                for shapes, dtypes in (
                    (((4, 3, 5, 5), (3,), (3,)), ("f", "f", "f")),
                    (((0,), (0,), (0,)), ("f", "f", "f")),
                    (((4, 3, 5, 5, 2), (3,), (5,)), ("f", "f", "f")),
                    (((4, 3, 5, 5), (3, 2), (3, 2)), ("f", "f", "f")),
                    (((4, 3, 5, 5), (3,), (3,)), ("d", "f", "f")),
                    (((4, 3, 5, 5), (3,), (3,)), ("f", "i", "f")),
                    (((4, 3, 5, 5), (3,), (3,)), ("f", "f", "d")),
                ):
                    with self.subTest(name, training=training, shapes=shapes, dtypes=dtypes):
                        found = []
                        for device in ("cpu", "npu"):
                            types = {"f": torch.float32, "d": torch.float64, "i": torch.int16}
                            outs = tuple(
                                torch.zeros(s, dtype=types[t], device=device)
                                for s, t in zip(shapes, dtypes, strict=True)
                            )
                            running = torch.zeros(3, device=device), torch.ones(3, device=device)
                            try:
                                getattr(torch, name)(x.to(device), None, None, *running, training, 0.1, 1e-5, out=outs)
                            except RuntimeError as error:
                                found.append(str(error).startswith(("expected scalar type", "native_batch_norm")))
                            else:
                                found.append([tuple(o.shape) for o in outs])
                                last = outs
                        self.assertEqual(found[1], found[0] if isinstance(found[0], list) else True)
                        if isinstance(found[0], list):
                            mean = x.mean((0, 2, 3)) if training else torch.zeros(3)
                            var = x.var((0, 2, 3), correction=0) if training else torch.ones(3)
                            expected = (x - mean.view(-1, 1, 1)) / (var.view(-1, 1, 1) + 1e-5).sqrt()
                            self.assertLess(relative_error(last[0], expected), 1e-5)

    def test_wrong_weight_is_refused(self):
        with self.assertRaisesRegex(RuntimeError, "weight should contain 4 elements"):
            F.batch_norm(torch.zeros(2, 4, 3, 3, device="npu"), None, None, torch.ones(3, device="npu"), training=True)


class TestOtherNorms(unittest.TestCase):
    def test_layer_norm(self):
        for shape, normalized in (((4, 7, 33), (33,)), ((2, 3, 8, 5), (8, 5)), ((6, 10), (10,))):
            for affine in (True, False):
                with self.subTest(shape=shape, affine=affine):
                    parameters = [randn(*normalized), randn(*normalized, seed=9)] if affine else [None, None]
                    check(
                        self,
                        lambda x, w, b: F.layer_norm(x, normalized, w, b),
                        [randn(*shape), *parameters],
                        tolerance=3e-6,
                    )

    def test_half_precision(self):
        for dtype, tolerance in ((torch.float16, 2e-3), (torch.bfloat16, 2e-2)):
            x, w, b = (
                t.detach().to(dtype).float().requires_grad_() for t in (randn(4, 8, 6), randn(6), randn(6, seed=4))
            )
            check(self, lambda x, w, b: F.layer_norm(x, (6,), w, b), [x, w, b], dtype=dtype, tolerance=tolerance)
            w, b = (t.detach().to(dtype).float().requires_grad_() for t in (randn(8), randn(8, seed=4)))
            check(self, lambda x, w, b: F.group_norm(x, 2, w, b), [x, w, b], dtype=dtype, tolerance=tolerance)

    def test_layer_norm_refuses_another_shape(self):
        with self.assertRaisesRegex(RuntimeError, "normalized_shape"):
            F.layer_norm(torch.zeros(2, 3, device="npu"), (4,))

    def test_group_norm(self):
        for shape, groups in (((3, 6, 5, 5), 3), ((2, 8, 7), 4), ((4, 6), 2)):
            with self.subTest(shape=shape):
                c = shape[1]
                check(
                    self,
                    lambda x, w, b: F.group_norm(x, groups, w, b),
                    [randn(*shape), randn(c), randn(c, seed=4)],
                    tolerance=3e-6,
                )
        check(self, lambda x: F.group_norm(x, 2), [randn(2, 4, 3, 3)], tolerance=3e-6)

    def test_instance_norm(self):
        check(self, lambda x: F.instance_norm(x), [randn(2, 4, 6, 6)], tolerance=5e-6)

    def test_local_response_and_l2(self):
        check(self, lambda x: F.normalize(x, dim=1), [randn(3, 8)], tolerance=2e-6)
        check(self, lambda x: F.local_response_norm(x, 3), [randn(2, 6, 5, 5)], tolerance=2e-6)


if __name__ == "__main__":
    nn_checks.torch.manual_seed(0)
    unittest.main()
