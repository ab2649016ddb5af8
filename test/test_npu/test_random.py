"""Random numbers on npu: distributions, reproducibility, generators."""

import math
import unittest

import torch.nn.functional as F

import torch

N = 100_000


def fresh(dtype=torch.float32, n=N):
    return torch.empty(n, device="npu", dtype=dtype)


class TestDistributions(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(3)

    def moments(self, x, mean, std):
        x = x.double().cpu()
        self.assertAlmostEqual(x.mean().item(), mean, delta=5 * std / math.sqrt(N))
        self.assertAlmostEqual(x.std().item(), std, delta=0.03 * std)

    def test_uniform(self):
        for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
            x = fresh(dtype).uniform_()
            self.assertGreaterEqual(x.min().item(), 0)
            self.assertLess(x.max().item(), 1)
        self.moments(fresh().uniform_(), 0.5, 1 / math.sqrt(12))
        y = fresh().uniform_(1, 2)
        self.assertGreaterEqual(y.min().item(), 1)
        self.assertLess(y.max().item(), 2)
        with self.assertRaisesRegex(RuntimeError, "uniform_ expects"):
            fresh().uniform_(2, 1)

    def test_normal(self):
        self.moments(fresh().normal_(), 0, 1)
        self.moments(fresh().normal_(3, 0.5), 3, 0.5)
        self.moments(torch.randn(N, device="npu"), 0, 1)
        self.moments(torch.normal(torch.full((N,), 2.0, device="npu"), 3.0), 2, 3)
        self.assertAlmostEqual((fresh().normal_().abs() > 3).float().mean().item(), 0.0027, delta=0.001)

    def test_other_continuous(self):
        self.moments(fresh().exponential_(2.0), 0.5, 0.5)
        self.moments(fresh().log_normal_(0, 0.25).log(), 0, 0.25)
        self.assertAlmostEqual(fresh().cauchy_(1.0, 2.0).cpu().median().item(), 1.0, delta=0.1)
        self.assertGreater(fresh().exponential_().min().item(), 0)

    def test_bernoulli(self):
        self.moments(fresh().bernoulli_(0.3), 0.3, math.sqrt(0.21))
        self.assertEqual(fresh(torch.bool).bernoulli_(1.0).sum().item(), N)
        self.moments(torch.bernoulli(torch.full((N,), 0.8, device="npu")), 0.8, 0.4)

    def test_integers(self):
        x = torch.randint(-3, 4, (N,), device="npu")
        self.assertEqual(sorted(set(x.tolist())), list(range(-3, 4)))
        self.moments(x, 0, 2)
        self.assertLessEqual(fresh(torch.uint8).random_().max().item(), 255)
        self.assertEqual(fresh(torch.int64).random_(5, 6).unique().tolist(), [5])
        self.assertLessEqual(fresh().random_().max().item(), 2**24)
        self.moments(fresh().geometric_(0.25), 4, math.sqrt(12))

    def test_randperm(self):
        for n in (0, 1, 1000):
            p = torch.randperm(n, device="npu")
            self.assertEqual(sorted(p.tolist()), list(range(n)))
        self.assertEqual(torch.randperm(5, device="npu", dtype=torch.int32).dtype, torch.int32)
        self.assertNotEqual(torch.randperm(1000, device="npu").tolist(), list(range(1000)))

    def test_multinomial(self):
        weights = torch.tensor([[0.0, 1.0, 3.0], [2.0, 0.0, 2.0]], device="npu")
        picks = torch.multinomial(weights, N // 4, replacement=True).cpu()
        self.assertAlmostEqual((picks[0] == 2).double().mean().item(), 0.75, delta=0.02)
        self.assertFalse((picks[0] == 0).any() or (picks[1] == 1).any())
        once = torch.multinomial(torch.ones(50, device="npu"), 50)
        self.assertEqual(sorted(once.tolist()), list(range(50)))
        with self.assertRaisesRegex(RuntimeError, "cannot sample"):
            torch.multinomial(torch.ones(3, device="npu"), 4)

    def test_dropout(self):
        x = torch.ones(N, device="npu", requires_grad=True)
        y = F.dropout(x, 0.25)
        self.moments(y.detach(), 1, math.sqrt(1 / 3))
        y.sum().backward()
        self.assertTrue(torch.equal(x.grad, y.detach()))
        z, mask = torch.native_dropout(x.detach(), 0.5, True)
        self.assertTrue(torch.equal(z, mask * 2.0))
        self.assertTrue(torch.equal(F.dropout(x, 0.5, training=False), x))
        wide, mask = torch.native_dropout(x.detach().double(), 1 / 3, True)
        self.assertTrue(torch.equal(wide.cpu(), mask.cpu().double() * (1 / (1 - 1 / 3))))


class TestReproducibility(unittest.TestCase):
    DRAWS = {
        "uniform": lambda g: torch.rand(1000, device="npu", generator=g),
        "normal": lambda g: torch.randn(1000, device="npu", generator=g),
        "randint": lambda g: torch.randint(0, 99, (1000,), device="npu", generator=g),
        "bernoulli": lambda g: torch.empty(1000, device="npu").bernoulli_(0.5, generator=g),
        "exponential": lambda g: torch.empty(1000, device="npu").exponential_(generator=g),
        "randperm": lambda g: torch.randperm(1000, device="npu", generator=g),
        "multinomial": lambda g: torch.multinomial(torch.ones(9, device="npu"), 100, True, generator=g),
        "normal_tensor": lambda g: torch.normal(torch.zeros(9, device="npu"), 1.0, generator=g),
    }

    def test_same_seed_same_numbers(self):
        for name, draw in self.DRAWS.items():
            with self.subTest(draw=name):
                first = draw(torch.Generator("npu").manual_seed(7))
                generator = torch.Generator("npu").manual_seed(7)
                again, other = draw(generator), draw(generator)
                self.assertTrue(torch.equal(first, again))
                self.assertFalse(torch.equal(first, other))

    def test_thread_count_does_not_matter(self):
        threads = torch.get_num_threads()
        results = []
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            torch.manual_seed(5)
            results.append(torch.randn(300_001, device="npu").cpu())
        torch.set_num_threads(threads)
        self.assertTrue(torch.equal(results[0], results[1]) and torch.equal(results[0], results[2]))

    def test_a_longer_draw_begins_alike(self):
        short = torch.rand(10, device="npu", generator=torch.Generator("npu").manual_seed(1))
        long = torch.rand(1000, device="npu", generator=torch.Generator("npu").manual_seed(1))
        self.assertTrue(torch.equal(short, long[:10]))

    def test_another_devices_generator_is_refused(self):
        for name, draw in self.DRAWS.items():
            with self.subTest(draw=name), self.assertRaises(RuntimeError):
                draw(torch.Generator("cpu"))

    def test_strided_target(self):
        x = torch.zeros(10, 10, device="npu")
        x.t()[::2].uniform_(1, 2)
        self.assertTrue((x[:, ::2] >= 1).all() and (x[:, 1::2] == 0).all())


if __name__ == "__main__":
    unittest.main()
