"""Indexing, gather and scatter, masks, selection on npu against the CPU."""

import unittest

import torch
import torch.npu

DEVICE = "npu:0"


class IndexTest(unittest.TestCase):
    def same(self, actual, expected, note=""):
        self.assertEqual(actual.device.type, "npu", note)
        self.assertEqual(actual.dtype, expected.dtype, note)
        self.assertEqual(actual.shape, expected.shape, note)
        torch.testing.assert_close(actual.cpu(), expected, msg=lambda m: f"{note}: {m}")

    def keys(self):
        i, j = torch.tensor([0, 2, 1]), torch.tensor([1, 3, 0])
        mask = torch.tensor([True, False, True])
        yield "one", (i,)
        yield "two", (i, j)
        yield "apart", (i, slice(None), j)
        yield "second", (slice(None), j)
        yield "matrix", (i.view(3, 1), j)
        yield "negative", (torch.tensor([-1, -2]),)
        yield "mask", (mask,)
        yield "mask and slice", (mask, slice(1, 3))
        yield "mask and none", (mask, None)
        yield "mask and index", (mask, torch.tensor([1, 2]))
        yield "empty mask", (torch.zeros(3, dtype=torch.bool),)
        yield "two-dimensional mask", (torch.rand(3, 4) > 0.5,)
        yield "inner mask", (slice(None), torch.tensor([True, False, True, True]))
        yield "full mask", (torch.rand(3, 4, 5) > 0.5,)
        yield "int32", (i.int(),)
        yield "number and index", (1, j)
        yield "ellipsis", (Ellipsis, torch.tensor([4, 0]))
        yield "no element", (torch.zeros(0, dtype=torch.int64),)

    @staticmethod
    def moved(key):
        return tuple(k.to(DEVICE) if isinstance(k, torch.Tensor) else k for k in key)

    def test_read(self):
        for x in (torch.randn(3, 4, 5), torch.arange(60).view(5, 4, 3).transpose(0, 2), torch.randn(6, 8, 5)[::2, ::2]):
            y = torch.as_strided(
                torch.as_strided(x, (x.untyped_storage().nbytes() // x.element_size(),), (1,), 0).to(DEVICE),
                x.size(),
                x.stride(),
                x.storage_offset(),
            )
            for name, key in self.keys():
                self.same(y[self.moved(key)], x[key], name)
                self.same(y[key], x[key], f"{name} with indices of the host")

    def test_write(self):
        for name, key in self.keys():
            x = torch.randn(3, 4, 5)
            y = x.to(DEVICE)
            shape = x[key].shape
            values = torch.randn(shape)
            x[key], y[self.moved(key)] = values, values.to(DEVICE)
            self.same(y, x, name)
            x[key], y[self.moved(key)] = 7.0, 7.0
            self.same(y, x, f"{name} with a number")
            x[key] *= 2
            y[self.moved(key)] *= 2
            self.same(y, x, f"{name} in place")
        x = torch.zeros(4, 6)
        y = x.to(DEVICE)
        x[:, ::2][torch.tensor([1, 3])] = 1
        y[:, ::2][torch.tensor([1, 3], device=DEVICE)] = 1
        self.same(y, x)

    def test_accumulate(self):
        x = torch.zeros(5)
        index, values = torch.tensor([1, 1, 3]), torch.tensor([1.0, 2.0, 3.0])
        self.same(
            x.to(DEVICE).index_put_((index.to(DEVICE),), values.to(DEVICE), accumulate=True),
            x.clone().index_put_((index,), values, accumulate=True),
        )

    def test_errors(self):
        y = torch.zeros(3, 4, device=DEVICE)
        with self.assertRaisesRegex(IndexError, "too many indices"):
            y[torch.tensor([0]), torch.tensor([0]), torch.tensor([0])]
        with self.assertRaisesRegex(IndexError, "does not match the shape of the indexed tensor"):
            y[torch.tensor([True, False], device=DEVICE)]
        with self.assertRaisesRegex(IndexError, "could not be broadcast"):
            y[torch.tensor([0, 1]), torch.tensor([0, 1, 2])]
        with self.assertRaises(IndexError):
            y[torch.tensor([0.5], device=DEVICE)]

    def test_gather_scatter(self):
        x = torch.randn(4, 5)
        for index in (torch.randint(0, 4, (3, 5)), torch.randint(0, 4, (5, 3)).t()):
            source = torch.randn(3, 5)
            y, i, s = x.to(DEVICE), index.to(DEVICE), source.to(DEVICE)
            self.same(y.gather(0, i), x.gather(0, index))
            self.same(y.scatter_add(0, i, s), x.scatter_add(0, index, source))
            self.same(y.scatter(0, i, 2.5), x.scatter(0, index, 2.5))
            for reduce in ("sum", "prod", "mean", "amax", "amin"):
                for include in (True, False):
                    self.same(
                        y.scatter_reduce(0, i, s, reduce, include_self=include),
                        x.scatter_reduce(0, index, source, reduce, include_self=include),
                        reduce,
                    )
        index = torch.stack([torch.randperm(4) for _ in range(5)], 1)[:3]
        source = torch.randn(3, 5)
        self.same(x.to(DEVICE).scatter(0, index.to(DEVICE), source.to(DEVICE)), x.scatter(0, index, source))
        self.same(x.to(DEVICE).scatter_(0, index.to(DEVICE), source.to(DEVICE)), x.scatter(0, index, source))
        self.same(
            x.to(DEVICE).scatter(0, index.to(DEVICE), source.to(DEVICE), reduce="add"),
            x.scatter(0, index, source, reduce="add"),
        )
        self.same(torch.nn.functional.one_hot(index.to(DEVICE), 5), torch.nn.functional.one_hot(index, 5))
        with self.assertRaises(RuntimeError):
            x.to(DEVICE).gather(0, index.float().to(DEVICE))

    def test_along_one_dimension(self):
        x = torch.randn(4, 5, 6)
        index = torch.tensor([3, 0, 3])
        y, i = x.to(DEVICE), index.to(DEVICE)
        for dim in (0, 1, -1):
            shape = list(x.shape)
            shape[dim] = 3
            source = torch.randn(shape)
            s = source.to(DEVICE)
            self.same(y.index_select(dim, i), x.index_select(dim, index))
            self.same(y.transpose(0, 2).index_select(dim, i), x.transpose(0, 2).index_select(dim, index))
            self.same(y.index_add(dim, i, s, alpha=2), x.index_add(dim, index, source, alpha=2))
            self.same(y.index_fill(dim, i, 9), x.index_fill(dim, index, 9))
            self.same(
                y.index_copy(dim, torch.tensor([2, 0, 1], device=DEVICE), s),
                x.index_copy(dim, torch.tensor([2, 0, 1]), source),
            )
        self.same(y.index_select(0, i.int()), x.index_select(0, index.int()))
        self.same(y.take(i), x.take(index))
        self.same(y.take_along_dim(y.argsort(1), 1), x.take_along_dim(x.argsort(1), 1))
        self.same(
            y.clone().put_(i, torch.ones(3, device=DEVICE), accumulate=True),
            x.clone().put_(index, torch.ones(3), accumulate=True),
        )

    def test_masks(self):
        x = torch.randn(4, 5)
        mask = x > 0
        y, m = x.to(DEVICE), mask.to(DEVICE)
        self.same(y.masked_select(m), x.masked_select(mask))
        self.same(y.masked_select(m[:, :1]), x.masked_select(mask[:, :1]))
        self.same(m.nonzero(), mask.nonzero())
        self.same(y.nonzero(), x.nonzero())
        for a, b in zip(torch.where(m), torch.where(mask), strict=True):
            self.same(a, b)
        source = torch.randn(20)
        self.same(y.masked_scatter(m, source.to(DEVICE)), x.masked_scatter(mask, source))
        self.assertEqual(torch.zeros(3, device=DEVICE).nonzero().shape, (0, 1))
        self.assertEqual(torch.tensor(1.0, device=DEVICE).nonzero().shape, (1, 0))

    def test_out_of_range_is_reported(self):
        code = (
            "import torch, torch.npu\n"
            "x = torch.zeros(3, device='npu:0')\n"
            "try:\n"
            "    x.index_select(0, torch.tensor([7], device='npu:0'))\n"
            "    torch.npu.synchronize()\n"
            "except Exception as error:\n"
            "    print('7' in str(error) and '3' in str(error), (x + 1).sum().item())\n"
        )
        import subprocess
        import sys

        result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
        self.assertEqual(result.stdout.split()[:1], ["True"], result.stdout + result.stderr)

    def test_no_place_for_an_index(self):
        """Where the result has no elements no operator is issued: shapes alone tell that an index is out of range."""
        index, source = torch.tensor([[5, 1, 2], [1, 1, 1]]), torch.ones(2, 3)
        vector = torch.tensor([4, 1])
        refused = {
            "scatter": lambda x, i, s, v: x.scatter_(0, i, s),
            "scatter a number": lambda x, i, s, v: x.scatter(0, i, 1.0),
            "scatter another dimension": lambda x, i, s, v: x.t().scatter_(1, i.t(), s.t()),
            "scatter and add": lambda x, i, s, v: x.scatter_(0, i, s, reduce="add"),
            "scatter and multiply": lambda x, i, s, v: x.scatter_(0, i, 2.0, reduce="multiply"),
            "scatter_add": lambda x, i, s, v: x.scatter_add_(0, i, s),
            "scatter_reduce": lambda x, i, s, v: x.scatter_reduce_(0, i, s, "amax"),
            "index_copy": lambda x, i, s, v: x.index_copy_(0, v, s),
            "index_fill": lambda x, i, s, v: x.index_fill_(0, v, 1.0),
            "index_reduce": lambda x, i, s, v: x.index_reduce_(0, v, s, "amax"),
            "index_add": lambda x, i, s, v: x[:, 0].index_add_(0, v, s[:, 0]),
            "index_select": lambda x, i, s, v: x.index_select(0, v),
            "index_select of a vector": lambda x, i, s, v: x[:, 0].index_select(0, v),
        }
        for name, call in refused.items():
            with self.subTest(name):
                with self.assertRaises(Exception) as expected:
                    call(torch.empty(0, 3), index, source, vector)
                with self.assertRaises(type(expected.exception)) as caught:
                    call(torch.empty(0, 3, device=DEVICE), index.to(DEVICE), source.to(DEVICE), vector.to(DEVICE))
                self.assertIs(type(caught.exception), type(expected.exception))
                if name.startswith("scatter"):
                    self.assertEqual(str(caught.exception), str(expected.exception))
        none = torch.empty(0, 3, dtype=torch.int64, device=DEVICE)
        x = torch.empty(0, 3, device=DEVICE)
        self.assertEqual(x.scatter_(0, none, x.clone()).shape, (0, 3))
        self.assertEqual(x.index_copy_(0, none[:, 0], x.clone()).shape, (0, 3))
        self.assertEqual(x.index_add_(0, vector.to(DEVICE), source.to(DEVICE)).shape, (0, 3))  # as on the CPU

    def test_what_is_written_must_not_be_read(self):
        for call in (
            lambda t, i: t.index_put_((i,), t),
            lambda t, i: t.index_put_((i,), t, accumulate=True),
            lambda t, i: i.index_put_((i,), i.clone()),
        ):
            for device in ("cpu", DEVICE):
                with self.assertRaisesRegex(RuntimeError, "refer to a single memory location"):
                    call(torch.arange(4.0, device=device), torch.arange(3, -1, -1, device=device))

    def test_gradients(self):
        x = torch.randn(4, 5, dtype=torch.float64)
        index = torch.tensor([0, 2, 2])
        for call in (
            lambda t, i: t[i],
            lambda t, i: t.index_select(0, i),
            lambda t, i: t.gather(0, i.view(1, 3)),
            lambda t, i: t[:, i] * 2,
            lambda t, i: t.masked_fill(t > 0, 0),
            lambda t, i: t[t > 0],
            lambda t, i: t.index_add(0, i, t[:3]),
            lambda t, i: t.unfold(1, 3, 1),
            lambda t, i: t.take(i),
        ):
            a, b = x.clone().requires_grad_(), x.to(DEVICE).requires_grad_()
            call(a, index).exp().sum().backward()
            call(b, index.to(DEVICE)).exp().sum().backward()
            self.same(b.grad, a.grad)


if __name__ == "__main__":
    unittest.main()
