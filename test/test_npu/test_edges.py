"""Edges that upstream's operator database leaves out, by family: empty batches, NaN and infinities, denormals, integer
division by zero and overflow, many dimensions, more than 2^31 elements (those only with NPU_SLOW_TESTS=1)."""

import gc
import os
import unittest

import torch.nn.functional as F

import torch
import torch.npu

DEVICE = "npu:0"
NAN, INF = float("nan"), float("inf")


class EdgeCase(unittest.TestCase):
    def same(self, function, *inputs, grad=False, **tolerance):
        """The function's results (and gradients of floating-point inputs) on npu are the CPU's."""
        found = []
        for device in ("cpu", DEVICE):
            torch.manual_seed(0)
            given = [t.detach().clone().to(device) if isinstance(t, torch.Tensor) else t for t in inputs]
            leaves = [
                t.requires_grad_() for t in given if grad and isinstance(t, torch.Tensor) and t.is_floating_point()
            ]
            result = function(*given)
            result = list(result) if isinstance(result, (tuple, list)) else [result]
            if grad:
                result += torch.autograd.grad(sum(r.sum() for r in result if r.requires_grad), leaves)
            found.append(result)
        for expected, actual in zip(*found, strict=True):
            self.assertEqual(actual.device.type, "npu")
            self.assertEqual((actual.dtype, actual.shape), (expected.dtype, expected.shape))
            torch.testing.assert_close(actual.detach().cpu(), expected.detach(), equal_nan=True, **tolerance)

    def module(self, module, *inputs, grad=True):
        torch.manual_seed(0)
        module = module.train()

        def call(*given):
            return module.to(given[0].device)(*given)

        self.same(call, *inputs, grad=grad, rtol=1e-4, atol=1e-5)


class TestEmptyBatch(EdgeCase):
    def test_modules(self):
        nn = torch.nn
        image, row = torch.empty(0, 4, 8, 8), torch.empty(0, 6)
        for module, value in (
            (nn.Conv2d(4, 3, 3), image),
            (nn.ConvTranspose2d(4, 3, 3), image),
            (nn.Linear(6, 2), row),
            (nn.LayerNorm(6), row),
            (nn.GroupNorm(2, 4), image),
            (nn.BatchNorm2d(4).eval(), image),
            (nn.AdaptiveAvgPool2d(2), image),
            (nn.AvgPool2d(2), image),
            (nn.MaxPool2d(2), image),
            (nn.ReflectionPad2d(1), image),
            (nn.PReLU(), row),
            (nn.Softmax(1), row),
            (nn.LogSoftmax(1), row),
            (nn.GELU(), row),
            (nn.Flatten(), image),
        ):
            with self.subTest(type(module).__name__):
                if isinstance(module, nn.BatchNorm2d):
                    module.train = lambda module=module: module
                self.module(module, value)

    def test_interpolation(self):
        for mode in ("nearest", "bilinear", "bicubic"):
            self.same(lambda t, m=mode: F.interpolate(t, scale_factor=2, mode=m), torch.empty(0, 2, 4, 4), grad=True)

    def test_losses(self):
        x, y, labels = torch.empty(0, 5), torch.empty(0, 5), torch.empty(0, dtype=torch.int64)
        for reduction in ("none", "sum", "mean"):
            for loss in (F.mse_loss, F.l1_loss, F.smooth_l1_loss, F.huber_loss, F.binary_cross_entropy_with_logits):
                self.same(lambda a, b, f=loss, r=reduction: f(a, b.detach(), reduction=r), x, y, grad=False)
            self.same(lambda a, b, r=reduction: F.cross_entropy(a, b, reduction=r), x, labels, grad=reduction != "mean")

    def test_matrix_products(self):
        for shapes in (((0, 3), (3, 2)), ((2, 0), (0, 3)), ((0, 2, 3), (0, 3, 4)), ((5, 0), (0,)), ((2, 3), (3, 0))):
            self.same(torch.matmul, *(torch.ones(s) for s in shapes), grad=True)

    def test_attention(self):
        self.same(F.scaled_dot_product_attention, *(torch.empty(0, 2, 3, 4) for _ in range(3)), grad=True)

    def test_embedding(self):
        self.module(torch.nn.Embedding(5, 3), torch.empty(0, 2, dtype=torch.int64), grad=False)

    def test_reductions(self):
        x = torch.empty(0, 3)
        for function in (torch.sum, torch.prod, torch.mean, torch.all, torch.any, torch.norm, torch.logsumexp):
            if function is not torch.logsumexp:
                self.same(function, x)
            self.same(lambda t, f=function: f(t, 0) if f is not torch.norm else f(t, 2, 0), x)
        self.same(lambda t: t.amax(1), x)
        for function in (torch.max, torch.min, torch.argmax, torch.amax):
            with self.assertRaises((RuntimeError, IndexError)):
                function(x.npu())
        self.same(torch.cumsum, x, 0)
        self.same(torch.sort, x, 0)
        self.same(torch.topk, torch.empty(0, 3), 2)

    def test_selection(self):
        x = torch.empty(0, 3)
        self.same(torch.nonzero, x)
        self.same(torch.unique, x)
        self.same(lambda t: t[t > 0], x)
        self.same(lambda a, b: torch.cat([a, b]), x, torch.ones(2, 3))
        self.same(lambda t, i: t.index_select(0, i), torch.ones(2, 3), torch.empty(0, dtype=torch.int64))
        self.same(lambda t, i: t.index_add(0, i, t[:0]), torch.ones(2, 3), torch.empty(0, dtype=torch.int64))


class TestSpecialValues(EdgeCase):
    x = torch.tensor([[1.0, NAN, -INF, 2.0], [INF, -INF, 0.0, -0.0], [-1.0, 3.0, 3.0, INF]])

    def test_points_that_are_nowhere(self):
        """The CPU's gradient of a grid with such points ends the process."""
        for padding in ("border", "reflection"):
            for value in (NAN, INF, -INF):
                x = torch.rand(1, 1, 4, 4, device=DEVICE, requires_grad=True)
                grid = torch.zeros(1, 2, 2, 2, device=DEVICE)
                grid[0, 0, 0] = value
                grid.requires_grad_()
                F.grid_sample(x, grid, padding_mode=padding, align_corners=False).sum().backward()
                self.assertTrue(torch.isfinite(x.grad).all().item())
                self.assertAlmostEqual(x.grad.sum().item(), 4, places=4)
                self.assertEqual(grid.grad[0, 0, 0].tolist(), [0.0, 0.0])
                self.assertNotEqual(grid.grad[0, 1, 1].tolist(), [0.0, 0.0])

    def test_counts_that_are_no_numbers(self):
        with self.assertRaisesRegex(RuntimeError, "a count is not a number"):
            torch.binomial(torch.full((3,), NAN, device=DEVICE), torch.full((3,), 0.5, device=DEVICE)).cpu()

    def test_pointwise(self):
        for name in (
            *("abs", "neg", "exp", "log", "sqrt", "rsqrt", "sin", "tanh", "sigmoid", "erf", "floor", "round", "sign"),
            *("relu", "reciprocal", "square", "isnan", "isinf", "isfinite", "logical_not", "signbit", "nan_to_num"),
        ):
            with self.subTest(name):
                self.same(getattr(torch, name), self.x)
        for name in ("relu", "relu6", "gelu", "silu", "elu", "leaky_relu", "hardtanh", "softplus", "hardswish", "mish"):
            with self.subTest(name):
                self.same(getattr(F, name), self.x)

    def test_binary(self):
        y = torch.tensor([0.0, -0.0, INF, NAN])
        for name in (
            *("add", "sub", "mul", "div", "pow", "maximum", "minimum", "fmax", "fmin", "atan2", "fmod", "remainder"),
            *("floor_divide", "copysign", "hypot", "eq", "ne", "lt", "ge", "logical_and", "nextafter", "heaviside"),
        ):
            with self.subTest(name):
                self.same(getattr(torch, name), self.x, y)

    def test_clamp(self):
        self.same(torch.clamp, self.x, -1, 1)
        self.same(torch.clamp, self.x, NAN)
        self.same(torch.where, self.x > 0, self.x, torch.tensor(NAN))

    def test_reductions(self):
        for name in (
            *("sum", "mean", "prod", "amax", "amin", "argmax", "argmin", "nansum", "logsumexp", "all", "any", "std"),
            *("max", "min", "median", "nanmedian", "cumsum", "cumprod", "cummax", "cummin", "logcumsumexp", "norm"),
        ):
            with self.subTest(name):
                # The index of one of two equal values may differ, its value may not.
                function = getattr(torch, name)
                if name == "norm":
                    self.same(lambda t: torch.norm(t, 2, 1), self.x)
                elif name in ("median", "nanmedian"):
                    self.same(lambda t, f=function: f(t, 1)[0], self.x)
                else:
                    self.same(lambda t, f=function: f(t, 1), self.x)

    def test_order(self):
        self.same(lambda t: torch.sort(t, stable=True), self.x)
        self.same(lambda t: torch.sort(t, descending=True, stable=True), self.x)
        self.same(lambda t: torch.topk(t, 2)[0], self.x)
        self.same(lambda t: torch.kthvalue(t, 2)[0], self.x)
        self.same(torch.unique, torch.tensor([1.0, INF, -INF, INF, 1.0]))

    def test_softmax(self):
        rows = torch.tensor([[-INF, 0.0, 1.0], [-INF, -INF, -INF], [INF, 0.0, 0.0], [NAN, 0.0, 1.0], [1e30, 1e30, 0.0]])
        for function in (torch.softmax, torch.log_softmax):
            self.same(lambda t, f=function: f(t, 1), rows, grad=True)

    def test_norms_and_pools(self):
        x = torch.randn(2, 4, 6, 6)
        x[0, 1, 2, 3], x[1, 2, 0, 0] = NAN, INF
        self.same(lambda t: F.layer_norm(t, (6,)), x)
        self.same(lambda t: F.group_norm(t, 2), x)
        self.same(lambda t: F.batch_norm(t, None, None, training=True), x)
        self.same(lambda t: F.max_pool2d(t, 2), x)
        self.same(lambda t: F.avg_pool2d(t, 2), x)
        self.same(lambda t: F.adaptive_max_pool2d(t, 3)[0], x)

    def test_losses(self):
        x = torch.tensor([[0.5, INF, -1.0], [NAN, 0.0, 1.0]])
        y = torch.tensor([0, 2])
        self.same(lambda a, b: F.cross_entropy(a, b, reduction="none"), x, y)
        for loss in (F.mse_loss, F.l1_loss, F.smooth_l1_loss, F.binary_cross_entropy_with_logits):
            self.same(lambda a, f=loss: f(a, torch.ones_like(a), reduction="none"), x, grad=True)

    def test_matrix_products(self):
        a, b = torch.eye(3), torch.ones(3, 3)
        b[1, 1], b[2, 0] = NAN, INF
        self.same(torch.mm, a, b)
        # beta 0 leaves the addend out, NaN or not.
        self.same(lambda m, n: torch.addmm(torch.full_like(m, NAN), m, n, beta=0), a, a)

    def test_complex(self):
        z = torch.complex(torch.tensor([NAN, INF, 0.0]), torch.tensor([0.0, -INF, -0.0]))
        for function in (torch.abs, torch.angle, torch.conj_physical, torch.isnan, torch.isfinite):
            self.same(function, z)

    def test_casts(self):
        self.same(lambda t: t.half(), torch.tensor([70000.0, -70000.0, 1e-8, NAN, INF]))
        self.same(lambda t: t.bfloat16(), torch.tensor([3.4e38, 1e-40, NAN, INF]))
        self.same(lambda t: t.float(), torch.tensor([1e300, -1e300, 1e-300, NAN], dtype=torch.float64))
        self.same(lambda t: t.bool(), torch.tensor([0.0, -0.0, NAN, 1e-40]))


class TestDenormals(EdgeCase):
    def test_are_kept(self):
        tiny = torch.tensor([1e-40, -3e-42, 1.4e-45, 1.2e-38])
        for function in (
            lambda t: t + t,
            lambda t: t * 0.5,
            lambda t: t / 3,
            lambda t: t.abs().sqrt(),
            lambda t: t > 0,
            lambda t: t.sum(),
            lambda t: t.amin(),
            lambda t: t.clone(),
            lambda t: torch.where(t > 0, t, -t),
            lambda t: t.double(),
            lambda t: t.cumsum(0),
        ):
            self.same(function, tiny, rtol=0, atol=0)
            self.same(function, tiny.double() * 1e-270, rtol=0, atol=0)

    def test_halves(self):
        tiny = torch.tensor([6e-8, 3e-6, -6e-8], dtype=torch.float16)
        for function in (lambda t: t + t, lambda t: t * 0.5, torch.abs, lambda t: t.float()):
            self.same(function, tiny, rtol=0, atol=0)


class TestIntegers(EdgeCase):
    def test_division_by_zero_raises(self):
        for dtype in (torch.int8, torch.uint8, torch.int32, torch.int64):
            x, zero = torch.tensor([1, 0, 7]).to(dtype), torch.tensor([1, 0, 2]).to(dtype)
            for name in ("floor_divide", "remainder", "fmod"):
                with self.subTest(f"{name} {dtype}"):
                    with self.assertRaises(RuntimeError):
                        getattr(torch, name)(x, zero)
                    with self.assertRaisesRegex(RuntimeError, "(?i)zero"):
                        getattr(torch, name)(x.npu(), zero.npu())
                        torch.npu.synchronize()
                    self.assertEqual((x.npu() + 1).tolist(), (x + 1).tolist())

    def test_true_division_by_zero(self):
        self.same(torch.div, torch.tensor([1, 0, -1]), torch.tensor([0, 0, 0]))

    def test_overflow_wraps(self):
        for dtype in (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64):
            info = torch.iinfo(dtype)
            x = torch.tensor([info.max, info.min, info.max - 1, 3], dtype=dtype)
            for function in (lambda t: t + t, lambda t: t * t, lambda t: t - 1, lambda t: 2 - t, torch.abs, torch.neg):
                self.same(function, x)
            self.same(lambda t: t.sum(), x)
            self.same(lambda t: t.cumsum(0), x)

    def test_large_values_are_exact(self):
        x = torch.tensor([2**62 + 1, -(2**62) - 1, 2**53 + 1])
        for function in (torch.abs, torch.neg, torch.sort, lambda t: t.max(), lambda t: t // 3, lambda t: t % 7):
            self.same(function, x)
        for function in (lambda t: t.amin(), lambda t: t == t + 1, lambda t: t.clamp(max=2**53 + 1), lambda t: t >> 1):
            self.same(function, x)

    def test_rounding_of_negative_numbers(self):
        x, y = torch.tensor([7, -7, 7, -7]), torch.tensor([2, 2, -2, -2])
        for mode in ("floor", "trunc"):
            self.same(lambda a, b, m=mode: torch.div(a, b, rounding_mode=m), x, y)
        self.same(torch.remainder, x, y)
        self.same(torch.fmod, x, y)


class TestIndicesOutOfRange(EdgeCase):
    def test_index_and_size_are_named(self):
        x, i = torch.zeros(3, 4, device=DEVICE), torch.tensor([[0, 7]], device=DEVICE)
        one = torch.ones(1, 2, device=DEVICE)
        for name, function, size in (
            ("gather", lambda: x.gather(0, i), 3),
            ("index_select", lambda: x.index_select(1, i[0]), 4),
            ("index", lambda: x[i[0]], 3),
            ("index_put", lambda: x.clone().index_put((i[0],), torch.ones(4, device=DEVICE)), 3),
            ("scatter", lambda: x.clone().scatter_(1, i, one), 4),
            ("scatter_add", lambda: x.clone().scatter_add_(0, i, one), 3),
            ("index_add", lambda: x.clone().index_add_(1, i[0], torch.ones(3, 2, device=DEVICE)), 4),
            ("index_copy", lambda: x.clone().index_copy_(1, i[0], torch.ones(3, 2, device=DEVICE)), 4),
            ("take", lambda: x.take(i * 2), 12),
            ("embedding", lambda: F.embedding(i, x), 3),
            ("cross_entropy", lambda: F.cross_entropy(x, torch.tensor([0, 7, 1], device=DEVICE)), 4),
        ):
            with self.subTest(name):
                with self.assertRaises((RuntimeError, IndexError)) as caught:
                    function()
                    torch.npu.synchronize()
                text = str(caught.exception)
                self.assertRegex(text, r"\b7\b|\b14\b")
                if name != "cross_entropy":  # upstream's text names the class alone
                    self.assertRegex(text, rf"\b{size}\b")
                self.assertEqual((torch.ones(2, device=DEVICE) + 1).tolist(), [2, 2])


class TestDimensions(EdgeCase):
    def test_many(self):
        x = torch.randn([2, 1, 3, 1, 2, 2, 1, 2, 3, 1, 2])
        self.same(lambda t: t.permute(10, 8, 0, 2, 4, 6, 1, 3, 5, 7, 9).contiguous(), x)
        self.same(lambda t: t.sum((0, 2, 4, 8)), x)
        self.same(lambda t: t + t.transpose(0, 10), x)
        self.same(lambda t: t.flip(0, 5)[..., 1].exp(), x)

    def test_numbers_as_tensors(self):
        x = torch.tensor(2.5)
        for function in (torch.sum, torch.amax, torch.sort, torch.cumsum, torch.softmax, torch.argmax, torch.flip):
            arguments = {torch.flip: ([],), torch.sum: (), torch.amax: ()}.get(function, (0,))
            self.same(lambda t, f=function, a=arguments: f(t, *a), x)
        self.same(lambda t: t.expand(2, 3).contiguous(), x)

    def test_expanded_memory(self):
        x = torch.randn(1, 1).expand(300, 200)
        self.same(lambda t: t.sum(), x)
        self.same(lambda t: t.t().contiguous() @ t.contiguous(), x[:, :5], rtol=1e-4, atol=1e-4)
        for device in ("cpu", DEVICE):
            x = torch.ones(4, 1, device=device)
            x.expand(4, 3).fill_(3)
            x[:2].expand(2, 3).zero_()
            self.assertEqual(x.flatten().tolist(), [0.0, 0.0, 3.0, 3.0])
        for write in (lambda t: t.add_(1), lambda t: t.normal_(), lambda t: t.copy_(torch.ones(4, 3))):
            with self.assertRaisesRegex(RuntimeError, "more than one element of the written-to tensor"):
                write(torch.ones(1, device=DEVICE).expand(4, 3))


@unittest.skipUnless(os.environ.get("NPU_SLOW_TESTS") == "1", "gigabytes of memory: NPU_SLOW_TESTS=1")
class TestMoreThanTwoToTheThirtyOne(EdgeCase):
    """One-byte tensors, so that two of them fit a device."""

    size = 2**31 + 7

    def setUp(self):
        self.tearDown()

    def tearDown(self):
        gc.collect()
        torch.npu.synchronize()
        torch.npu.empty_cache()

    def test_bool(self):
        x = torch.zeros(self.size, dtype=torch.bool, device=DEVICE)
        self.assertFalse(x.any().item())
        x[-3:] = True
        self.assertEqual(x.nonzero().flatten().tolist(), [self.size - 3, self.size - 2, self.size - 1])
        self.assertTrue(x.any().item())
        self.assertFalse(x.all().item())
        self.assertEqual(x.logical_not_()[-4:].tolist(), [True, False, False, False])
        x[-3:] = True
        self.assertTrue(x.all().item())

    def test_pointwise_and_reductions(self):
        x = torch.ones(self.size, dtype=torch.int8, device=DEVICE)
        x[-1] = 5
        x += 1
        self.assertEqual(x[-2:].tolist(), [2, 6])
        self.assertEqual(x.argmax().item(), self.size - 1)
        self.assertEqual((x.amax().item(), x.amin().item()), (6, 2))
        self.assertEqual((x == 6).nonzero().tolist(), [[self.size - 1]])
        # A sum is taken in int64, so only a part of it fits.
        self.assertEqual(x[-(2**28) :].sum().item(), 2 * 2**28 + 4)

    def test_copies_and_views(self):
        x = torch.zeros(2, self.size // 2 + 1, dtype=torch.int8, device=DEVICE)
        x[1, -1] = 7
        self.assertEqual(x.view(-1)[-1].item(), 7)
        y = x.t().contiguous()
        self.assertEqual(y[-1].tolist(), [0, 7])
        del y
        self.assertEqual(x[:, -5:].cpu().tolist(), [[0] * 5, [0, 0, 0, 0, 7]])

    def test_index(self):
        x = torch.zeros(self.size, dtype=torch.int8, device=DEVICE)
        places = torch.tensor([0, 2**31 - 1, 2**31, self.size - 1], device=DEVICE)
        x[places] = torch.tensor([1, 2, 3, 4], dtype=torch.int8, device=DEVICE)
        self.assertEqual(x[places].tolist(), [1, 2, 3, 4])
        self.assertEqual(x.index_select(0, places).tolist(), [1, 2, 3, 4])
        self.assertEqual(x.gather(0, places).tolist(), [1, 2, 3, 4])
        self.assertEqual(x.nonzero().flatten().tolist(), places.tolist())

    def test_cat_and_fill(self):
        half = torch.full((2**30 + 4,), 3, dtype=torch.int8, device=DEVICE)
        x = torch.cat([half, half])
        del half
        self.assertEqual(x[-1].item(), 3)
        x.masked_fill_(x == 3, 4)
        self.assertEqual((x.amin().item(), x.amax().item()), (4, 4))


if __name__ == "__main__":
    unittest.main()
