"""Numbers drawn in half precision are fp32's, rounded once: zeros, distinct values, moments and the distribution itself
agree with what the CPU draws in fp64 and rounds. And what each dtype may be asked for is checked at the call."""

import math
import warnings

import torch.nn.functional as F
from common_utils import TestCase, run_tests

import torch

N = 100_000
HALVES = (torch.float16, torch.bfloat16)
LEVEL = math.sqrt(-math.log(1e-7 / 2) / 2)  # of the Kolmogorov-Smirnov test, by the square root of 2 / N
RATE = 0.1


def fresh(device, dtype, n=N):
    return torch.empty(n, device=device, dtype=dtype)


def full(value, device, dtype):
    return torch.full((N,), value, device=device, dtype=dtype)


# Each draws N numbers on a device in a dtype.
DRAWS = {
    "uniform_": lambda d, t: fresh(d, t).uniform_(),
    "uniform_ of a range": lambda d, t: fresh(d, t).uniform_(-1, 3),
    "rand": lambda d, t: torch.rand(N, device=d, dtype=t),
    "rand_like": lambda d, t: torch.rand_like(fresh(d, t)),
    "randn": lambda d, t: torch.randn(N, device=d, dtype=t),
    "normal_": lambda d, t: fresh(d, t).normal_(2, 3),
    "normal of a mean": lambda d, t: torch.normal(full(2.0, d, t), 3.0),
    "normal of a deviation": lambda d, t: torch.normal(2.0, full(3.0, d, t)),
    "normal of both": lambda d, t: torch.normal(full(2.0, d, t), full(3.0, d, t)),
    "exponential_": lambda d, t: fresh(d, t).exponential_(),
    "exponential_ of a rate": lambda d, t: fresh(d, t).exponential_(RATE),
    "log_normal_": lambda d, t: fresh(d, t).log_normal_(0, 0.5),
    "cauchy_": lambda d, t: fresh(d, t).cauchy_(1, 2),
    "geometric_": lambda d, t: fresh(d, t).geometric_(RATE),
    "dropout": lambda d, t: F.dropout(full(1.0, d, t), 0.3),
    "alpha_dropout": lambda d, t: F.alpha_dropout(full(1.0, d, t), 0.3),
    "rrelu": lambda d, t: F.rrelu(full(-1.0, d, t), 0.1, 0.4, training=True),
    "dirichlet": lambda d, t: torch._sample_dirichlet(torch.full((N // 4, 4), 2.0, device=d, dtype=t)).flatten(),
    "binomial": lambda d, t: torch.binomial(full(9.0, d, t), full(0.3, d, t)),
    "poisson": lambda d, t: torch.poisson(full(3.0, d, t)),
    "gamma": lambda d, t: torch._standard_gamma(full(2.0, d, t)),
    "random_": lambda d, t: fresh(d, t).random_(0, 200),
    "bernoulli_": lambda d, t: fresh(d, t).bernoulli_(0.3),
}
NO_MOMENTS = {"cauchy_"}


def distance(a, b):
    """The Kolmogorov-Smirnov statistic of two samples."""
    a, b = a.sort().values, b.sort().values
    both = torch.cat([a, b])
    return (
        (torch.searchsorted(a, both, right=True) / len(a) - torch.searchsorted(b, both, right=True) / len(b))
        .abs()
        .max()
        .item()
    )


class TestHalves(TestCase):
    def setUp(self):
        super().setUp()
        torch.manual_seed(5)

    def test_distributions(self):
        for name, draw in DRAWS.items():
            wide = draw("cpu", torch.float64)
            for dtype in HALVES:
                with self.subTest(name, dtype=dtype):
                    ours = draw("npu", dtype).cpu()
                    self.assertIs(ours.dtype, dtype)
                    ours, right = ours.double(), wide.to(dtype).double()
                    self.assertFalse(ours.isnan().any())
                    self.assertLess(distance(ours, right), LEVEL * math.sqrt(2 / N))
                    self.assertGreaterEqual(len(ours.unique()), 0.9 * len(right.unique()) - 2)
                    zeros = int((right == 0).sum())
                    self.assertLessEqual(abs(int((ours == 0).sum()) - zeros), 6 * math.sqrt(2 * zeros) + 3)
                    if name not in NO_MOMENTS:
                        spread = right.std().item()
                        self.assertAlmostEqual(
                            ours.mean().item(), right.mean().item(), delta=6 * spread * math.sqrt(2 / N)
                        )
                        self.assertAlmostEqual(ours.std().item(), spread, delta=0.05 * spread)

    def test_ranges_are_half_open(self):
        for low, high in ((0, 1), (0, 0.1), (1, 2), (-1, 1), (0.1, 0.3), (0, 60000), (-3, 0), (1, 1)):
            for dtype in (*HALVES, torch.float32, torch.float64):
                with self.subTest(dtype, low=low, high=high):
                    x = fresh("npu", dtype).uniform_(low, high).double()
                    least = torch.tensor(low, dtype=dtype).double().item()
                    self.assertGreaterEqual(x.min().item(), least)
                    if high > low:
                        self.assertLess(x.max().item(), high)

    def test_exponential(self):
        for dtype in (*HALVES, torch.float32, torch.float64):
            with self.subTest(dtype):
                self.assertGreater(fresh("npu", dtype, 10 * N).exponential_().min().item(), 0)
                self.assertTrue((fresh("npu", dtype).exponential_(math.inf) == 0).all())
                logits = torch.zeros(10000, 8, device="npu", dtype=dtype)
                soft = F.gumbel_softmax(logits)
                self.assertFalse(soft.isnan().any())
                self.assertAlmostEqual(soft.double().mean(0).sub(1 / 8).abs().max().item(), 0, delta=0.01)
                self.assertTrue((F.gumbel_softmax(logits, hard=True).sum(1) == 1).all())

    def test_complex(self):
        for dtype, real in ((torch.complex32, 2e-3), (torch.complex64, 0)):
            x = torch.randn(N, device="npu", dtype=dtype).cpu().to(torch.complex128)
            self.assertAlmostEqual(x.abs().square().mean().item(), 1, delta=0.02 + real)
            self.assertGreater(len(x.real.unique()), 1000)
            y = torch.empty(N, device="npu", dtype=torch.complex64).normal_(2, 0.1).cpu()
            self.assertAlmostEqual((y.mean() - (2 + 2j)).abs().item(), 0, delta=0.01)


class TestRanges(TestCase):
    """Errors and warnings of the CPU for what a dtype cannot hold."""

    CALLS = {
        "random_ below uint8": lambda d: torch.empty(3, dtype=torch.uint8, device=d).random_(-1, 2),
        "random_ above int8": lambda d: torch.empty(3, dtype=torch.int8, device=d).random_(0, 129),
        "random_ of bool": lambda d: torch.empty(3, dtype=torch.bool, device=d).random_(0, 3),
        "random_ above half": lambda d: torch.empty(3, dtype=torch.half, device=d).random_(0, 2**40),
        "random_ of a half's integers": lambda d: torch.empty(3, dtype=torch.half, device=d).random_(0, 5000),
        "random_ of nothing": lambda d: torch.empty(3, device=d).random_(3, 3),
        "random_ of complex": lambda d: torch.empty(3, dtype=torch.complex64, device=d).random_(0, 3),
        "random_ from": lambda d: torch.empty(3, dtype=torch.int16, device=d).random_(2**20, None),
        "random_ to": lambda d: torch.empty(3, dtype=torch.int16, device=d).random_(2**20),
        "randint": lambda d: torch.randint(0, 300, (3,), dtype=torch.uint8, device=d),
        "randint of uint16": lambda d: torch.randint(-5, 3, (3,), dtype=torch.uint16, device=d),
        "uniform_ whose span overflows": lambda d: torch.empty(3, device=d).uniform_(-3e38, 3e38),
        "uniform_ out of bounds": lambda d: torch.empty(3, dtype=torch.half, device=d).uniform_(0, 1e6),
        "uniform_ the wrong way": lambda d: torch.empty(3, device=d).uniform_(2, 1),
        "uniform_ of integers": lambda d: torch.empty(3, dtype=torch.int64, device=d).uniform_(),
        "normal_ of integers": lambda d: torch.empty(3, dtype=torch.int64, device=d).normal_(),
        "normal_ of a negative deviation": lambda d: torch.empty(3, device=d).normal_(0, -1),
        "exponential_ of no rate": lambda d: torch.empty(3, device=d).exponential_(0),
        "exponential_ of integers": lambda d: torch.empty(3, dtype=torch.int64, device=d).exponential_(),
        "cauchy_ of integers": lambda d: torch.empty(3, dtype=torch.int64, device=d).cauchy_(),
        "log_normal_ of complex": lambda d: torch.empty(3, dtype=torch.complex64, device=d).log_normal_(),
        "geometric_ of certainty": lambda d: torch.empty(3, device=d).geometric_(1),
        "geometric_ of complex": lambda d: torch.empty(3, dtype=torch.complex64, device=d).geometric_(0.5),
        "bernoulli_ of complex": lambda d: torch.empty(3, dtype=torch.complex64, device=d).bernoulli_(0.5),
        "bernoulli_ beyond one": lambda d: torch.empty(3, device=d).bernoulli_(1.5),
        "randperm of uint8": lambda d: torch.randperm(300, dtype=torch.uint8, device=d),
        "randperm of half": lambda d: torch.randperm(3000, dtype=torch.half, device=d),
        "randperm of bool": lambda d: torch.randperm(2, dtype=torch.bool, device=d),
        "randperm of complex": lambda d: torch.randperm(2, dtype=torch.complex64, device=d),
        "randperm of a negative number": lambda d: torch.randperm(-1, device=d),
        "multinomial of integers": lambda d: torch.multinomial(torch.ones(3, dtype=torch.int64, device=d), 1),
    }

    def outcome(self, call, device):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                call(device)
                torch.npu.synchronize()
                error = None
            except Exception as e:  # the class that is compared
                error = e
        said = str(error).split("[")[0].split(" not implemented for")[-1]
        return type(error), said, [str(w.message)[:60] for w in caught]

    def test_as_on_the_cpu(self):
        for name, call in self.CALLS.items():
            with self.subTest(name):
                expected = self.outcome(call, "cpu")
                self.assertEqual(self.outcome(call, "npu"), expected)
                self.assertEqual((torch.ones(3, device="npu") + 1).sum().item(), 6)


if __name__ == "__main__":
    run_tests()
