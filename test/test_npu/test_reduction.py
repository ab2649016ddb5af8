"""Reductions, scans, order statistics and sorting on npu against the CPU."""

import unittest

import torch
import torch.npu

DEVICE = "npu:0"


class ReductionTest(unittest.TestCase):
    def same(self, actual, expected, note="", **tolerance):
        if isinstance(expected, (tuple, list)):
            for a, e in zip(actual, expected, strict=True):
                self.same(a, e, note, **tolerance)
            return
        self.assertEqual(actual.device.type, "npu", note)
        self.assertEqual(actual.dtype, expected.dtype, note)
        self.assertEqual(actual.shape, expected.shape, note)
        torch.testing.assert_close(actual.cpu(), expected, equal_nan=True, msg=lambda m: f"{note}: {m}", **tolerance)

    def inputs(self):
        base = torch.randn(3, 4, 5)
        yield "contiguous", base
        yield "transposed", base.transpose(0, 2)
        yield "sliced", torch.randn(6, 8, 5)[::2, ::2]
        yield "expanded", torch.randn(3, 1, 5).expand(3, 4, 5)
        yield "scalar", torch.randn(())
        yield "channels_last", torch.randn(2, 3, 4, 5).contiguous(memory_format=torch.channels_last)

    def test_floating_point(self):
        names = "sum mean prod amax amin max min std var norm argmax argmin all any logsumexp"
        for layout, x in self.inputs():
            y = x.to(DEVICE)
            for name in names.split():
                op = getattr(torch, name)
                if name == "logsumexp":
                    continue
                self.same(op(y), op(x), f"{name} {layout}")
            for dim in (0, -1):
                for keepdim in (False, True):
                    for name in names.split():
                        op = getattr(torch, name)
                        kwargs = {"dim": dim, "keepdim": keepdim}
                        self.same(op(y, **kwargs), op(x, **kwargs), f"{name} {layout} {kwargs}")
            if x.dim() > 2:
                for name in ("sum", "mean", "amax", "amin", "std", "var", "logsumexp"):
                    op = getattr(torch, name)
                    self.same(op(y, dim=(0, 2)), op(x, dim=(0, 2)), f"{name} {layout} two dims")

    def test_dtypes(self):
        for dtype in (torch.float16, torch.bfloat16, torch.float64, torch.int32, torch.int64, torch.uint8, torch.bool):
            x = torch.randint(0, 2 if dtype == torch.bool else 9, (6, 7)).to(dtype)
            y = x.to(DEVICE)
            for name in ("sum", "prod", "amax", "amin", "max", "min", "all", "any", "cumsum", "argmax"):
                if name == "argmax" and dtype == torch.bool:
                    continue
                op = getattr(torch, name)
                arguments = (0,) if name == "cumsum" else ()
                self.same(op(y, *arguments), op(x, *arguments), f"{name} {dtype}")
            self.same(y.sum(0, dtype=torch.float64), x.sum(0, dtype=torch.float64), f"{dtype}")
        half = torch.full((4096,), 0.1, dtype=torch.float16)
        self.same(half.to(DEVICE).sum(), half.sum())
        with self.assertRaisesRegex(RuntimeError, "floating point or complex|could not infer output dtype"):
            torch.ones(3, dtype=torch.int64, device=DEVICE).mean()
        with self.assertRaisesRegex(RuntimeError, "only support floating point"):
            torch.ones(3, dtype=torch.int64, device=DEVICE).std()

    def test_empty(self):
        x = torch.zeros(0, 3)
        y = x.to(DEVICE)
        for name in ("sum", "prod", "mean", "all", "any"):
            self.same(getattr(torch, name)(y), getattr(torch, name)(x), name)
            self.same(getattr(torch, name)(y, dim=0), getattr(torch, name)(x, dim=0), name)
        self.same(y.amax(1), x.amax(1))
        for call in (lambda t: t.max(), lambda t: t.amax(0), lambda t: t.argmax(), lambda t: t.max(0)):
            with self.assertRaises((RuntimeError, IndexError)):
                call(y)

    def test_nan(self):
        x = torch.tensor([[1.0, float("nan"), 3.0], [float("inf"), 2.0, -1.0]])
        y = x.to(DEVICE)
        for call in (
            lambda t: t.max(1),
            lambda t: t.min(0),
            lambda t: t.argmax(1),
            lambda t: t.sum(),
            lambda t: t.nansum(),
            lambda t: t.nanmedian(),
            lambda t: t.median(1),
            lambda t: torch.aminmax(t, dim=1),
        ):
            self.same(call(y), call(x))

    def test_out(self):
        x = torch.randn(3, 4)
        y = x.to(DEVICE)
        out = torch.empty(4, device=DEVICE)
        self.assertIs(torch.sum(y, 0, out=out), out)
        self.same(out, x.sum(0))
        values, indices = torch.empty(3, device=DEVICE), torch.empty(3, dtype=torch.int64, device=DEVICE)
        torch.max(y, 1, out=(values, indices))
        self.same((values, indices), tuple(x.max(1)))
        self.same(torch.std(y, 1, out=torch.empty(0, device=DEVICE)), x.std(1))

    def test_mode_casts_to_no_out(self):
        x = torch.tensor([[1, 2, 2], [1, 1, 3]])
        for values, indices in ((torch.float16, torch.int64), (torch.int64, torch.int32)):
            texts = []
            for device in ("cpu", "npu"):
                out = torch.empty(2, dtype=values, device=device), torch.empty(2, dtype=indices, device=device)
                with self.assertRaises(RuntimeError) as caught:
                    torch.mode(x.to(device), 1, out=out)
                texts.append(str(caught.exception))
            self.assertEqual(*texts)
        out = torch.empty(0, dtype=torch.int64, device="npu"), torch.empty(2, dtype=torch.int64, device="npu")
        torch.mode(x.npu(), 1, out=out)
        self.assertEqual((out[0].tolist(), out[1].tolist()), ([2, 1], [2, 1]))

    def test_variance_into_a_wider_out(self):
        x = torch.randn(50, 3) + 100
        for name in ("std", "var"):
            expected, out = torch.empty(3, dtype=torch.float64), torch.empty(3, dtype=torch.float64, device="npu")
            getattr(torch, name)(x, 0, out=expected)
            getattr(torch, name)(x.npu(), 0, out=out)
            torch.testing.assert_close(out.cpu(), expected, rtol=1e-12, atol=0)

    def test_out_of_another_dtype(self):
        """What the CPU refuses is not cast to."""
        x, wrong = torch.rand(5), torch.float64
        for name, call in (
            ("kthvalue", lambda x: torch.kthvalue(x, 2, out=(x.new_empty(()), x.new_empty(())))),
            ("histc", lambda x: torch.histc(x, 4, out=x.new_empty(4, dtype=wrong))),
            ("histogram", lambda x: torch.histogram(x, 4, out=(x.new_empty(4, dtype=wrong), x.new_empty(5)))),
            ("logsigmoid", lambda x: torch._C._nn.log_sigmoid(x, out=x.new_empty(5, dtype=wrong))),
            ("cumsum", lambda x: torch.cumsum(x, 0, out=x.new_empty(5, dtype=torch.bool))),
            ("cumprod", lambda x: torch.cumprod(x, 0, out=x.new_empty(5, dtype=torch.bool))),
            ("bernoulli", lambda x: torch.bernoulli(x, out=x.new_empty(5, dtype=torch.complex64))),
            ("normal", lambda x: torch.normal(x, 1.0, out=x.new_empty(5, dtype=torch.int64))),
        ):
            with self.subTest(name):
                with self.assertRaises(RuntimeError) as expected:
                    call(x)
                with self.assertRaises(RuntimeError) as caught:
                    call(x.npu())
                self.assertIs(type(caught.exception), type(expected.exception))

    def test_norms(self):
        x = torch.randn(3, 4, 5)
        y = x.to(DEVICE)
        for p in (1, 2, 3.5, float("inf"), -float("inf"), 0):
            self.same(torch.linalg.vector_norm(y, p), torch.linalg.vector_norm(x, p), f"{p}")
            self.same(torch.linalg.vector_norm(y, p, dim=(0, 1)), torch.linalg.vector_norm(x, p, dim=(0, 1)), f"{p}")
            self.same(y.norm(p, dim=1), x.norm(p, dim=1), f"{p}")
        c = torch.randn(3, 4, dtype=torch.complex64)
        self.same(c.to(DEVICE).norm(), c.norm())
        self.same(torch.nn.functional.normalize(y), torch.nn.functional.normalize(x))

    def test_variance(self):
        x = torch.randn(3, 4, 5)
        y = x.to(DEVICE)
        for correction in (0, 1, 2):
            self.same(y.var((0, 2), correction=correction), x.var((0, 2), correction=correction))
            self.same(torch.std_mean(y, 1, correction=correction), torch.std_mean(x, 1, correction=correction))
            self.same(torch.var_mean(y, correction=correction), torch.var_mean(x, correction=correction))
        with self.assertWarnsRegex(UserWarning, "degrees of freedom"):
            torch.ones(1, device=DEVICE).var()

    def test_scans(self):
        x = torch.randn(3, 4)
        for source in (x, x.t()):
            y = source.to(DEVICE)
            for name in ("cumsum", "cumprod", "cummax", "cummin", "logcumsumexp"):
                for dim in (0, 1):
                    self.same(getattr(torch, name)(y, dim), getattr(torch, name)(source, dim), f"{name} {dim}")
        self.same(x.to(DEVICE).cumsum_(1), x.cumsum(1))
        self.same(torch.ones(3, dtype=torch.bool, device=DEVICE).cumsum(0), torch.ones(3, dtype=torch.bool).cumsum(0))

    def test_sort(self):
        x = torch.randperm(60).view(3, 4, 5)
        for dtype in (torch.float32, torch.int64, torch.float16):
            a = x.to(dtype)
            for source in (a, a.transpose(0, 2)):
                b = source.to(DEVICE)
                for dim in (0, -1):
                    for descending in (False, True):
                        self.same(b.sort(dim, descending), source.sort(dim, descending))
                        self.same(b.argsort(dim, descending), source.argsort(dim, descending))
                    self.same(b.topk(2, dim), source.topk(2, dim))
                    self.same(b.topk(2, dim, largest=False), source.topk(2, dim, largest=False))
                    self.same(b.kthvalue(2, dim), source.kthvalue(2, dim))
                    self.same(b.median(dim), source.median(dim))
        flags = torch.tensor([True, False, True, False])
        self.same(flags.to(DEVICE).sort(stable=True), flags.sort(stable=True))
        with self.assertRaisesRegex(RuntimeError, "out of range"):
            torch.zeros(3, device=DEVICE).topk(4)

    def test_counting(self):
        x = torch.tensor([3, 1, 1, 0, 2, 3, 3])
        y = x.to(DEVICE)
        self.same(y.bincount(), x.bincount())
        self.same(y.bincount(minlength=9), x.bincount(minlength=9))
        self.same(y.bincount(y.float()), x.bincount(x.float()))
        self.same(y.count_nonzero(), x.count_nonzero())
        self.same(torch.unique(y), torch.unique(x))
        self.same(
            torch.unique(y, return_inverse=True, return_counts=True),
            torch.unique(x, return_inverse=True, return_counts=True),
        )
        self.same(y.float().histc(4, 0, 3), x.float().histc(4, 0, 3))
        self.same(y.mode(), x.mode())
        edges = torch.tensor([0.5, 1.5, 2.5])
        for right in (False, True):
            self.same(
                torch.bucketize(y.float(), edges.to(DEVICE), right=right),
                torch.bucketize(x.float(), edges, right=right),
            )
            self.same(
                torch.searchsorted(edges.to(DEVICE), y.float(), right=right),
                torch.searchsorted(edges, x.float(), right=right),
            )

    def test_equal(self):
        x = torch.arange(4.0, device=DEVICE)
        self.assertTrue(torch.equal(x, x.clone()))
        self.assertFalse(torch.equal(x, x + 1))
        self.assertFalse(torch.equal(x, x[:2]))
        self.assertTrue(torch.allclose(x, x + 1e-9))
        self.assertTrue(bool((x == x).all()))
        self.assertTrue(torch.isclose(x, x).all().item())

    def test_gradients(self):
        x = torch.randn(3, 4, dtype=torch.float64)
        for call in (
            lambda t: t.sum(1),
            lambda t: t.mean(0),
            lambda t: t.max(1)[0],
            lambda t: t.amax(),
            lambda t: t.norm(),
            lambda t: t.prod(1),
            lambda t: t.std(0),
            lambda t: t.cumsum(1),
            lambda t: t.logsumexp(1),
            lambda t: t.sort(1)[0],
            lambda t: t.topk(2)[0],
            lambda t: t.var(),
        ):
            a, b = x.clone().requires_grad_(), x.to(DEVICE).requires_grad_()
            call(a).exp().sum().backward()
            call(b).exp().sum().backward()
            self.same(b.grad, a.grad)


if __name__ == "__main__":
    unittest.main()
