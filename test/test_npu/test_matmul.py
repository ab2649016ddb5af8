"""Matrix products on npu against fp64 on the CPU."""

import unittest

import torch.nn.functional as F
from nn_checks import check, randn, relative_error

import torch


class TestMatMul(unittest.TestCase):
    def test_mm_in_every_orientation(self):
        a, b = randn(17, 33), randn(33, 9)
        check(self, torch.mm, [a, b])
        check(self, lambda a, b: torch.mm(a.t(), b.t()), [randn(33, 17), randn(9, 33)])
        check(self, lambda a, b: torch.mm(a[::2], b[:, 1:5]), [a, b])

    def test_matmul_ranks(self):
        for left, right in (
            ((5,), (5,)),
            ((4, 5), (5,)),
            ((5,), (5, 3)),
            ((2, 4, 5), (5, 3)),
            ((2, 1, 4, 5), (3, 5, 6)),
        ):
            with self.subTest(left=left, right=right):
                check(self, torch.matmul, [randn(*left), randn(*right, seed=2)])

    def test_bmm(self):
        check(self, torch.bmm, [randn(3, 4, 5), randn(3, 5, 6)])
        check(self, lambda a, b: torch.bmm(a.transpose(1, 2), b), [randn(3, 5, 4), randn(3, 5, 6)])
        check(
            self,
            lambda c, a, b: torch.baddbmm(c, a, b, beta=0.5, alpha=2),
            [randn(3, 4, 6), randn(3, 4, 5), randn(3, 5, 6)],
        )

    def test_addmm_and_linear(self):
        check(self, torch.addmm, [randn(6), randn(4, 5), randn(5, 6)])
        check(self, lambda c, a, b: torch.addmm(c, a, b, beta=0.5, alpha=-2), [randn(4, 6), randn(4, 5), randn(5, 6)])
        check(self, F.linear, [randn(2, 7, 5), randn(6, 5), randn(6)])
        check(self, F.linear, [randn(7, 5), randn(6, 5), None])

    def test_addr_in_place(self):
        a, b = torch.arange(2.0), torch.arange(3.0)
        for shape in ((), (3,), (2, 1), (3, 2)):
            texts = []
            for device in ("cpu", "npu"):
                target = torch.ones(shape, device=device)
                with self.assertRaises(RuntimeError) as caught:
                    target.addr_(a.to(device), b.to(device))
                texts.append(str(caught.exception))
                self.assertEqual(tuple(target.shape), shape)
            self.assertEqual(*texts)
        target = torch.ones(2, 3, device="npu")
        pointer = target.data_ptr()
        self.assertIs(target.addr_(a.npu(), b.npu(), beta=0.5, alpha=2), target)
        self.assertEqual(target.data_ptr(), pointer)
        self.assertTrue(torch.equal(target.cpu(), torch.ones(2, 3).addr_(a, b, beta=0.5, alpha=2)))
        with self.assertRaisesRegex(RuntimeError, "can't be cast"):
            torch.ones(2, 3, dtype=torch.int32, device="npu").addr_(a.npu(), b.npu())

    def test_addmm_in_place_and_out(self):
        a, b, c = randn(4, 5, grad=False), randn(5, 6, grad=False), randn(4, 6, grad=False)
        x = c.npu()
        x.addmm_(a.npu(), b.npu(), beta=0.5)
        self.assertLess(relative_error(x, torch.addmm(c.double(), a.double(), b.double(), beta=0.5)), 1e-6)
        out = torch.empty(0, device="npu")
        torch.mm(a.npu(), b.npu(), out=out)
        self.assertLess(relative_error(out, a.double() @ b.double()), 1e-6)

    def test_beta_zero_ignores_nan(self):
        c = torch.full((4, 6), float("nan"))
        a, b = randn(4, 5, grad=False), randn(5, 6, grad=False)
        got = torch.addmm(c.npu(), a.npu(), b.npu(), beta=0)
        self.assertLess(relative_error(got, a.double() @ b.double()), 1e-6)

    def test_vectors(self):
        check(self, torch.dot, [randn(40), randn(40, seed=1)])
        check(self, torch.mv, [randn(4, 5), randn(5)])
        check(self, lambda c, a, b: torch.addmv(c, a, b, beta=2, alpha=3), [randn(4), randn(4, 5), randn(5)])
        check(self, torch.outer, [randn(4), randn(5)])
        with self.assertRaisesRegex(RuntimeError, "inconsistent tensor size"):
            torch.dot(torch.zeros(3, device="npu"), torch.zeros(4, device="npu"))

    def test_half_accumulates_in_fp32(self):
        a = torch.full((4, 4096), 1.0)
        a[:, 1:] = 2.0**-11
        for dtype in (torch.float16, torch.bfloat16):
            got = torch.mm(a.to(dtype).npu(), torch.ones(4096, 4, dtype=dtype).npu())
            # In half precision the sum would stay at 1.
            self.assertAlmostEqual(got[0, 0].item(), 3.0, delta=0.02)

    def test_integers(self):
        a = torch.arange(12).reshape(3, 4)
        self.assertTrue(torch.equal((a.npu() @ a.t().npu()).cpu(), a @ a.t()))

    def test_einsum(self):
        check(self, lambda a, b: torch.einsum("bij,bjk->bik", a, b), [randn(3, 4, 5), randn(3, 5, 6)])

    def test_empty_sum_is_zero(self):
        got = torch.mm(torch.empty(3, 0, device="npu"), torch.empty(0, 4, device="npu"))
        self.assertTrue(torch.equal(got.cpu(), torch.zeros(3, 4)))

    def test_dtypes_are_checked_at_the_call(self):
        x, y = torch.ones(1, 2, 3, device="npu"), torch.ones(1, 3, 4, dtype=torch.int64, device="npu")
        for call in (
            lambda: torch.mm(x[0], y[0]),
            lambda: torch.bmm(x, y),
            lambda: torch.baddbmm(torch.ones(1, 2, 4, device="npu"), x, y),
        ):
            with self.assertRaisesRegex(RuntimeError, "same dtype"):
                call()

    def test_shapes_are_checked(self):
        with self.assertRaisesRegex(RuntimeError, "cannot be multiplied"):
            torch.mm(torch.zeros(2, 3, device="npu"), torch.zeros(2, 3, device="npu"))


if __name__ == "__main__":
    unittest.main()
