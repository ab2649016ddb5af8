"""npu operators that move, select and cast elements, against plain upstream on the CPU and numpy."""

import numpy as np
from common_utils import TestCase, run_tests

import torch


def both(x):
    return x.clone().requires_grad_(x.is_floating_point()), x.npu().requires_grad_(x.is_floating_point())


class TestShapes(TestCase):
    def check(self, op, reference, x, prec=0.0):
        """Values, contiguity, gradient; the input is not aliased."""
        c, n = both(x)
        expected, out = reference(c), op(n)
        self.assertEqual(out, expected, prec=prec or 1e-6)
        self.assertTrue(out.is_contiguous())
        self.assertNotEqual(out.data_ptr(), n.data_ptr())
        if x.is_floating_point():
            weight = torch.rand(expected.shape)
            (expected * weight).sum().backward()
            (out * weight.npu()).sum().backward()
            self.assertEqual(n.grad, c.grad, prec=1e-5)

    def test_broadcast(self):
        x = torch.randn(3, 1)
        self.check(lambda t: torch.npu_broadcast(t, [2, 3, 4]), lambda t: t.expand(2, 3, 4), x)
        self.check(lambda t: t.npu_broadcast([3, 4]), lambda t: t.expand(3, 4), x)
        self.assertEqual(x.npu().npu_broadcast(3, 4), x.expand(3, 4))
        out = torch.empty(0).npu()
        self.assertIs(torch.npu_broadcast(x.npu(), [3, 2], out=out), out)
        self.assertEqual(out, x.expand(3, 2))

    def test_transpose_and_reshape(self):
        x = torch.randn(2, 3, 5)
        self.check(lambda t: torch.npu_transpose(t, (2, 0, 1)), lambda t: t.permute(2, 0, 1), x)
        self.assertEqual(x.npu().npu_transpose(2, 0, 1), x.permute(2, 0, 1))
        self.check(lambda t: torch.npu_reshape(t, (5, 6)), lambda t: t.reshape(5, 6), x)
        self.check(lambda t: torch.npu_reshape(t, (-1, 2), can_refresh=True), lambda t: t.reshape(-1, 2), x)
        out = torch.empty(5, 2, 3).npu()
        torch.npu_transpose(x.npu(), (2, 0, 1), out=out)
        self.assertEqual(out, x.permute(2, 0, 1))
        torch.npu_reshape(x.npu(), (30,), out=(out := torch.empty(30).npu()))
        self.assertEqual(out, x.reshape(30))

    def test_slice(self):
        x = torch.arange(60.0).view(3, 4, 5)
        self.check(lambda t: torch.npu_slice(t, [1, 0, 2], [2, 3, -1]), lambda t: t[1:3, :3, 2:], x)
        out = torch.empty(0).npu()
        torch.npu_slice(x.npu(), [0, 0, 0], [1, 1, 2], out=out)
        self.assertEqual(out, x[:1, :1, :2])
        with self.assertRaisesRegex(RuntimeError, "npu_slice"):
            torch.npu_slice(x.npu(), [0, 0], [1, 1])

    def test_indexing(self):
        x = torch.randn(4, 5, 6)
        cases = [
            (([0, 1], [3, 5], [2, 1]), {}, np.s_[0:3:2, 1:5]),
            (([3, 0], [0, 5], [-1, 2]), {}, np.s_[3:0:-1, 0:5:2]),
            (([3, 0], [0, 5], [-2, 2]), {"end_mask": 1}, np.s_[3::-2, 0:5:2]),
            (([2, 2], [3, 3], [1, 1]), {"begin_mask": 2, "end_mask": 1}, np.s_[2:, :3]),
            (([0, 0, 1], [0, 0, 4], [1, 1, 2]), {"ellipsis_mask": 2, "shrink_axis_mask": 1}, np.s_[0, ..., 1:4:2]),
            (([0, 1, 2], [0, 3, 3], [1, 1, 1]), {"new_axis_mask": 1}, np.s_[None, 1:3, 2:3]),
            (([-1, 0], [0, 9], [1, 1]), {"shrink_axis_mask": 1}, np.s_[-1, 0:9]),
            (([3], [1], [1]), {}, np.s_[3:1]),
        ]
        for args, masks, index in cases:
            out = torch.npu_indexing(x.npu(), *args, **masks)
            self.assertEqual(out.shape, x.numpy()[index].shape, str(index))
            self.assertEqual(out, torch.from_numpy(x.numpy()[index].copy()))
        self.check(lambda t: torch.npu_indexing(t, [3], [0], [-1]), lambda t: t[1:4].flip(0), x)
        out = torch.empty(0).npu()
        torch.npu_indexing(x.npu(), [1], [3], [1], out=out)
        self.assertEqual(out, x[1:3])
        with self.assertRaisesRegex(RuntimeError, "stride 0 is 0"):
            torch.npu_indexing(x.npu(), [1], [3], [0])

    def test_pad(self):
        x = torch.randn(2, 3)
        self.check(
            lambda t: torch.npu_pad(t, [1, 2, 0, 3]),
            lambda t: torch.nn.functional.pad(t, (0, 3, 1, 2)),
            x,
        )
        with self.assertRaisesRegex(RuntimeError, "4 paddings"):
            torch.npu_pad(x.npu(), [1, 1])

    def test_one_hot(self):
        x = torch.tensor([5, 3, 2, 1], dtype=torch.int32)
        out = torch.npu_one_hot(x.npu(), depth=5)
        expected = torch.zeros(4, 5)
        for i, k in ((1, 3), (2, 2), (3, 1)):
            expected[i, k] = 1
        self.assertEqual((out.dtype, out.cpu()), (torch.float32, expected))
        first = torch.npu_one_hot(x.npu(), 0, 6, 2, -1)
        self.assertEqual(first, torch.nn.functional.one_hot(x.long(), 6).t().float() * 3 - 1)

    def test_scatter(self):
        x = torch.tensor([[1.6279, 0.1226], [0.9041, 1.0980]])
        out = torch.npu_scatter(
            x.npu(), torch.tensor([0, 1], dtype=torch.int32).npu(), torch.tensor([-1.1993, -1.5247]).npu(), 0
        )
        self.assertEqual(out, torch.tensor([[-1.1993, 0.1226], [0.9041, -1.5247]]))
        index = torch.tensor([[0, 1, 0], [1, 1, 0]])
        y, src = torch.randn(4, 3), torch.randn(2, 3)
        self.check(
            lambda t: torch.npu_scatter(t, index.int().npu(), src.npu(), 0), lambda t: t.scatter(0, index, src), y
        )

    def test_casts(self):
        x = torch.tensor([0, 0.5, -1.0])
        out = torch.npu_dtype_cast(x.npu(), dtype=torch.int)
        self.assertEqual((out.dtype, out.tolist()), (torch.int32, [0, 0, -1]))
        self.check(lambda t: torch.npu_dtype_cast(t, torch.float64), lambda t: t.double(), x)
        target = torch.zeros(3, dtype=torch.int32).npu()
        self.assertIs(target.npu_dtype_cast_(x.npu()), target)
        self.assertEqual(target.tolist(), [0, 0, -1])

    def test_confusion_transpose(self):
        x = torch.randn(2, 3, 4, 6)
        for perm, shape, first in (((0, 2, 1, 3), (2, 4, 18), True), ((0, 2, 1), (2, 12, 6), False)):

            def reference(t, perm=perm, shape=shape, first=first):
                return t.permute(perm).reshape(shape) if first else t.reshape(shape).permute(perm)

            self.check(lambda t: torch.npu_confusion_transpose(t, perm, shape, first), reference, x)  # noqa: B023
            c = x.clone().requires_grad_()
            y = reference(c)
            grad = torch.randn(y.shape)
            y.backward(grad)
            back = torch.npu_confusion_transpose_backward(grad.npu(), perm, x.shape, first)
            self.assertEqual(back, c.grad)

    def test_masked_fill_range(self):
        x = torch.rand(4, 4)
        start = torch.tensor([[0, 1, 2]], dtype=torch.int32)
        out = torch.npu_masked_fill_range(x.npu(), start.npu(), (start + 1).npu(), torch.tensor([1.0]).npu(), 1)
        expected = x.clone()
        expected[0, 0] = expected[1, 1] = expected[2, 2] = 1
        self.assertEqual(out, expected)
        y = torch.rand(2, 3, 6)
        start, end = torch.tensor([[0, 1], [4, 3]]), torch.tensor([[2, 2], [6, 3]])
        out = torch.npu_masked_fill_range(y.npu(), start.npu(), end.npu(), torch.tensor([5.0, 7.0]).npu(), -1)
        expected = y.clone()
        for r, value in enumerate((5, 7)):
            for n in range(2):
                expected[n, :, start[r, n] : end[r, n]] = value
        self.assertEqual(out, expected)
        flat = torch.npu_masked_fill_range(
            torch.arange(5).int().npu(), *(torch.tensor([[k]], dtype=torch.int32).npu() for k in (1, 3)),
            torch.tensor([9], dtype=torch.int32).npu(),
        )  # fmt: skip
        self.assertEqual(flat.tolist(), [0, 9, 9, 3, 4])

    def test_stride_copy_and_add(self):
        x = torch.randn(4, 5)
        self.check(lambda t: torch.npu_stride_copy(t, (3, 2), (5, 2), 1), lambda t: t.as_strided((3, 2), (5, 2), 1), x)
        out = torch.empty(0).npu()
        torch.npu_stride_copy(x.npu(), (2, 2), (1, 5), 0, out=out)
        self.assertEqual(out, x.as_strided((2, 2), (1, 5), 0))
        one = torch.tensor([[[[[1.0]]]]]).npu()
        summed = torch.npu_stride_add(one, one, 0, 0, 1)
        self.assertEqual((summed.shape, summed.flatten().tolist()), ((1, 16, 1, 1, 1), [2.0] + [0.0] * 15))
        a, b = torch.randn(2, 48, 3, 3), torch.randn(2, 32, 3, 3)
        self.check(
            lambda t: torch.npu_stride_add(t, b.npu(), 1, 0, 2),
            lambda t: t[:, 16:48] + b[:, 0:32],
            a,
        )

    def test_sort(self):
        x = torch.randn(3, 7)
        for dim, descending in ((-1, False), (0, True)):
            self.check(
                lambda t: torch.npu_sort_v2(t, dim, descending),  # noqa: B023
                lambda t: t.sort(dim, descending)[0],  # noqa: B023
                x,
            )
        out = torch.empty(0).npu()
        torch.npu_sort_v2(x.npu(), out=out)
        self.assertEqual(out, x.sort()[0])

    def test_max_and_min(self):
        x = torch.randn(2, 5, 3)
        for name in ("max", "min"):
            for keepdim in (False, True):
                c, n = both(x)
                expected = getattr(torch, name)(c, 1, keepdim)
                values, indices = getattr(torch, f"npu_{name}")(n, 1, keepdim)
                self.assertEqual((values, indices.dtype), (expected[0], torch.int32))
                self.assertEqual(indices.long(), expected[1])
                weight = torch.rand(values.shape)
                (expected[0] * weight).sum().backward()
                (values * weight.npu()).sum().backward()
                self.assertEqual(n.grad, c.grad)
                back = getattr(torch, f"npu_{name}_backward")(weight.npu(), 1, indices, x.shape, keepdim)
                self.assertEqual(back, c.grad)
            with self.assertRaisesRegex(NotImplementedError, "no named tensors"):
                getattr(torch, f"npu_{name}")(x.npu(), "C")


if __name__ == "__main__":
    run_tests()
