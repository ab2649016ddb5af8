"""Operators on small operands take ways of their own on the simulated device: they give what the CPU gives."""

import itertools
import unittest

import torch


def numbers(*sizes: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    return torch.randn(sizes, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def off(got: torch.Tensor, exact: torch.Tensor) -> float:
    """The largest error as a share of the largest value."""
    got = got.cpu().double()
    return float((got - exact).abs().max() / exact.abs().max().clamp_min(1e-300))


class TestSmallOperators(unittest.TestCase):
    def test_numbers_and_repeated_operands(self):
        """Each element is exactly rounded: bit for bit what the CPU gives."""
        shapes = [
            ((5, 7), ()),
            ((5, 7), (7,)),
            ((5, 7), (5, 1)),
            ((5, 7), (1, 7)),
            ((3, 5, 7), (3, 1, 1)),
            ((3, 5, 7), (1, 5, 1)),
            ((3, 5, 7), (3, 1, 7)),
            ((3, 1, 7), (3, 5, 7)),
            ((1, 1), (1,)),
            ((2, 3, 40), (3, 40)),
            ((1, 5), (4, 1)),
        ]
        functions = [torch.add, torch.sub, torch.mul, torch.div]
        for dtype, (a, b), function in itertools.product((torch.float32, torch.float64), shapes, functions):
            with self.subTest(function.__name__, a=a, b=b, dtype=dtype):
                x, y = numbers(*a, dtype=dtype), numbers(*b, dtype=dtype, seed=1)
                for first, second in ((x, y), (y, x)):
                    got = function(first.npu(), second.npu())
                    self.assertTrue(torch.equal(got.cpu(), function(first, second)))
        x = numbers(33, 5)
        for function in functions:
            for number in (0.1, 3, float("nan"), float("inf"), 0.0):
                got, want = function(x.npu(), number), function(x, number)
                self.assertTrue(torch.equal(got.cpu().nan_to_num(7), want.nan_to_num(7)), (function, number))
        y = x.npu()
        self.assertTrue(torch.equal(y.mul_(0.3).add_(1).cpu(), x.mul(0.3).add(1)))  # in place

    def test_powers_and_rectifiers(self):
        x = numbers(9, 31)
        x[0, :4] = torch.tensor([float("nan"), float("inf"), -float("inf"), 0.0])
        for exponent in (1, 2, 2.0, 3, 0.5, -1, 0):
            got, want = x.npu().pow(exponent).cpu(), x.pow(exponent)
            self.assertTrue(torch.equal(got.nan_to_num(7), want.nan_to_num(7)), exponent)
        for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
            found = []
            for device in ("cpu", "npu"):
                leaf = x.to(device, dtype, copy=True).requires_grad_()
                torch.relu(leaf).backward(numbers(9, 31, seed=3).to(dtype).to(device))
                found.append(leaf.grad.cpu())
            self.assertTrue(torch.equal(*found), dtype)

    def test_sums_and_means(self):
        """Bit for bit what the CPU gives, over any dimensions: a sum may scale numbers of a wider type, as in cov."""
        shapes = [(7,), (6, 65), (65, 6), (4, 5, 6), (3, 4, 5, 6), (1, 9), (9, 1), (128, 200), (1,), (2, 1, 3)]
        for shape in shapes:
            x = numbers(*shape) + 1
            for count in range(1, len(shape) + 1):
                for dims in itertools.combinations(range(len(shape)), count):
                    for name, keep in itertools.product(("sum", "mean"), (False, True)):
                        with self.subTest(name, shape=shape, dims=dims, keep=keep):
                            got = getattr(x.npu(), name)(dims, keepdim=keep)
                            self.assertTrue(torch.equal(got.cpu(), getattr(x, name)(dims, keepdim=keep)))
        x = torch.ones(3, 4)
        x[0, 0], x[1, 1], x[2, :2] = float("nan"), float("inf"), torch.tensor([float("inf"), -float("inf")])
        for dim in (0, 1):
            self.assertEqual(x.npu().sum(dim).cpu().isnan().tolist(), x.sum(dim).isnan().tolist())
            self.assertEqual(x.npu().mean(dim).cpu().isinf().tolist(), x.mean(dim).isinf().tolist())
        large = torch.full((4,), 3e38)
        self.assertEqual(large.npu().mean().item(), large.mean().item())

    def test_products(self):
        """As near to fp64 as the CPU, whichever operand lies transposed, with and without a bias."""
        for dtype, most in ((torch.float32, 1e-6), (torch.float64, 1e-14)):
            for m, n, k in ((1, 1, 1), (3, 5, 7), (32, 10, 128), (17, 33, 1), (1, 40, 64), (40, 1, 64)):
                a, b = numbers(m, k, dtype=dtype), numbers(k, n, dtype=dtype, seed=1)
                bias = numbers(n, dtype=dtype, seed=2)
                exact = a.double() @ b.double()
                for turn_a, turn_b in itertools.product((False, True), repeat=2):
                    with self.subTest(m=m, n=n, k=k, turn_a=turn_a, turn_b=turn_b, dtype=dtype):
                        x = a.t().contiguous().npu().t() if turn_a else a.npu()
                        y = b.t().contiguous().npu().t() if turn_b else b.npu()
                        self.assertLess(off(x @ y, exact), most)
                        self.assertLess(off(torch.addmm(bias.npu(), x, y), exact + bias.double()), most)
        x = numbers(3, 4)
        x[0, 0], x[1, 1] = float("nan"), float("inf")
        self.assertEqual((x.npu() @ torch.ones(4, 2).npu()).cpu().isfinite().tolist(), [[False] * 2] * 2 + [[True] * 2])
        # Lazily conjugated operands keep what they stand for.
        z = torch.complex(numbers(3, 4), numbers(3, 4, seed=1))
        self.assertLess((z.npu().mH.mm(z.npu()).cpu() - z.mH.mm(z)).abs().max(), 1e-5)

    def test_one_thread(self):
        """Products of small matrices leave the caller's number of threads as it was."""
        before = torch.get_num_threads()
        (numbers(8, 8).npu() @ numbers(8, 8).npu()).cpu()
        self.assertEqual(torch.get_num_threads(), before)


if __name__ == "__main__":
    unittest.main()
