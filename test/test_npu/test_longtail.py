"""Rarely used operators on npu: embedding bags, distributions, histograms, segments, sets of slices, fake quantisation,
operators whose faults only the device sees."""

import os
import unittest
import warnings

os.environ["NPU_FALLBACK"] = "0"

import torch.nn.functional as F
import torch.utils._pytree as pytree

import torch
import torch.npu

DEVICE = "npu:0"


def moved(value):
    return pytree.tree_map(lambda t: t.to(DEVICE) if isinstance(t, torch.Tensor) else t, value)


class LongtailTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)

    def same(self, actual, expected):
        for a, e in zip(pytree.tree_leaves(actual), pytree.tree_leaves(expected), strict=True):
            if isinstance(e, torch.Tensor):
                self.assertEqual(a.device.type, "npu")
                torch.testing.assert_close(a.cpu(), e, equal_nan=True)
            else:
                self.assertEqual(a, e)

    def check(self, function, *args, **kwargs):
        self.same(function(*moved(args), **moved(kwargs)), function(*args, **kwargs))

    def test_embedding_bag(self):
        indices = torch.tensor([1, 2, 4, 5, 4, 3, 2, 9, 0, 1])
        for dtype in (torch.int64, torch.int32):
            for mode in ("sum", "mean", "max"):
                for padding in (None, 4):
                    for last in (False, True):
                        offsets = torch.tensor([0, 4, 4, 10] if last else [0, 4, 4], dtype=dtype)
                        grads = []
                        for device in ("cpu", DEVICE):
                            weight = torch.linspace(-1, 1, 40).reshape(10, 4).to(device).requires_grad_()
                            out = F.embedding_bag(
                                indices.to(device, dtype),
                                weight,
                                offsets.to(device),
                                mode=mode,
                                padding_idx=padding,
                                include_last_offset=last,
                            )
                            out.sin().sum().backward()
                            grads.append((out.detach(), weight.grad))
                        with self.subTest(dtype=dtype, mode=mode, padding=padding, last=last):
                            self.same(grads[1], grads[0])

    def test_embedding_bag_of_weighted_samples(self):
        results = []
        for device in ("cpu", DEVICE):
            weight = torch.linspace(-1, 1, 40).reshape(10, 4).to(device).requires_grad_()
            factors = torch.linspace(0, 2, 6).to(device).requires_grad_()
            indices = torch.tensor([[1, 2, 4], [4, 0, 9]], device=device)
            out = F.embedding_bag(indices, weight, per_sample_weights=factors.view(2, 3), mode="sum")
            out.sin().sum().backward()
            results.append((out.detach(), weight.grad, factors.grad))
        self.same(results[1], results[0])

    def test_embedding_renormalises_its_weight(self):
        weights = [torch.linspace(-3, 3, 20).reshape(5, 4).to(d) for d in ("cpu", DEVICE)]
        results = [F.embedding(torch.tensor([0, 4, 4], device=w.device), w, max_norm=1.0) for w in weights]
        self.same(results[1], results[0])
        self.same(weights[1], weights[0])

    def test_distributions(self):
        n = 20000
        for name, draw, mean, variance in (
            ("poisson", lambda: torch.poisson(torch.full((n,), 3.0, device=DEVICE)), 3, 3),
            (
                "binomial",
                lambda: torch.binomial(torch.full((n,), 10.0, device=DEVICE), torch.full((n,), 0.3, device=DEVICE)),
                3,
                2.1,
            ),
            ("gamma", lambda: torch._standard_gamma(torch.full((n,), 2.0, device=DEVICE)), 2, 2),
            ("dirichlet", lambda: torch._sample_dirichlet(torch.ones(n, 4, device=DEVICE))[:, 0], 0.25, 0.0375),
        ):
            with self.subTest(name):
                torch.manual_seed(3)
                first, second = draw(), draw()
                torch.manual_seed(3)
                self.assertTrue(torch.equal(draw(), first))
                self.assertFalse(torch.equal(first, second))
                self.assertAlmostEqual(first.mean().item(), mean, delta=5 * (variance / n) ** 0.5)
                self.assertAlmostEqual(first.var().item(), variance, delta=0.1 * variance)
        generator = torch.Generator(DEVICE).manual_seed(1)
        rates = torch.ones(50, device=DEVICE)
        first = torch.poisson(rates, generator)
        self.assertTrue(torch.equal(torch.poisson(rates, generator.manual_seed(1)), first))
        with self.assertRaises(RuntimeError):
            torch.poisson(rates, torch.Generator())

    def test_gradients_of_distributions(self):
        alpha, sample = torch.rand(3, 4) + 0.5, torch.rand(3, 4)
        self.check(torch._standard_gamma_grad, alpha, sample)
        self.check(torch._dirichlet_grad, sample / sample.sum(-1, True), alpha, alpha.sum(-1, True).expand_as(alpha))
        concentration = torch.rand(5, device=DEVICE).add(1).requires_grad_()
        torch.distributions.Dirichlet(concentration).rsample().square().sum().backward()
        self.assertTrue(concentration.grad.isfinite().all().item())

    def test_histograms(self):
        x, weight = torch.randn(100), torch.rand(100)
        self.check(torch.histogram, x, 10)
        self.check(torch.histogram, x, 7, range=(-1.0, 1.5), weight=weight, density=True)
        self.check(torch.histogram, x, torch.linspace(-2, 2, 6))
        points = torch.randn(50, 2)
        self.check(lambda p: tuple(torch.histogramdd(p, [3, 4])), points)
        self.check(lambda p, b: tuple(torch.histogramdd(p, [b, b])), points, torch.linspace(-1, 1, 4))
        out = (torch.empty(0, device=DEVICE), torch.empty(0, device=DEVICE))
        torch.histogram(x.to(DEVICE), 10, out=out)
        self.same(out, tuple(torch.histogram(x, 10)))
        with self.assertRaisesRegex(RuntimeError, "innermost dimension"):
            torch.histogramdd(points.to(DEVICE), [3, 4, 5])

    def test_segments_and_sets(self):
        data = torch.randn(6, 3)
        for reduce in ("sum", "mean", "max", "min", "prod"):
            self.check(torch.segment_reduce, data, reduce, lengths=torch.tensor([2, 0, 4]), unsafe=False)
        rows = torch.tensor([[1, 2], [3, 4], [1, 2], [0, 5], [3, 4]])
        for dim in (0, 1):
            self.check(torch.unique, rows, dim=dim, return_inverse=True, return_counts=True)
            self.check(torch.unique_consecutive, rows, dim=dim, return_inverse=True, return_counts=True)
        self.check(torch.hash_tensor, data)
        self.check(torch.isin, 3, rows)

    def test_fake_quantisation(self):
        x = torch.randn(4, 3)
        self.check(torch.fake_quantize_per_tensor_affine, x, 0.1, 3, 0, 255)
        self.check(torch.fake_quantize_per_channel_affine, x, torch.rand(3) + 0.1, torch.zeros(3), 1, -8, 7)

    def test_fused_adagrad(self):
        steps = []
        for device in ("cpu", DEVICE):
            parameter = torch.linspace(-1, 1, 12).reshape(3, 4).to(device).requires_grad_()
            optimizer = torch.optim.Adagrad([parameter], lr=0.1, lr_decay=0.01, weight_decay=0.1, foreach=False)
            for _ in range(3):
                optimizer.zero_grad()
                parameter.sin().sum().backward()
                if device == "cpu":
                    optimizer.step()
                    continue
                state = optimizer.state[parameter]
                arguments = {"lr": 0.1, "lr_decay": 0.01, "weight_decay": 0.1, "eps": 1e-10, "maximize": False}
                state["step"] = state["step"].to(device)
                with torch.no_grad():
                    state["step"] += 1
                    torch._fused_adagrad_([parameter], [parameter.grad], [state["sum"]], [state["step"]], **arguments)
            steps.append(parameter.detach())
        self.same(steps[1], steps[0])

    def test_encoder_in_evaluation(self):
        layer = torch.nn.TransformerEncoderLayer(16, 4, 32, batch_first=True).eval()
        x = torch.randn(2, 5, 16)
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = layer(x)
            actual = layer.to(DEVICE)(x.to(DEVICE))
        torch.testing.assert_close(actual.cpu(), expected, rtol=1e-4, atol=1e-5)

    def test_faults_that_the_device_finds(self):
        x, far = torch.randn(4, 5, device=DEVICE), torch.tensor([0, 7], device=DEVICE)
        bags = torch.tensor([0], device=DEVICE)
        wide = far.reshape(2, 1)
        for name, call in (
            ("index", lambda: x[far]),
            ("index_put", lambda: x.index_put((far,), x[:2])),
            ("index_select", lambda: x.index_select(0, far)),
            ("gather", lambda: x.gather(0, wide)),
            ("scatter", lambda: x.scatter(0, wide, 1.0)),
            ("scatter_add", lambda: x.scatter_add(0, wide, x)),
            ("index_add", lambda: x.index_add(0, far, x[:2])),
            ("index_copy", lambda: x.index_copy(0, far, x[:2])),
            ("index_fill", lambda: x.index_fill(0, far, 1.0)),
            ("embedding", lambda: F.embedding(far, x)),
            ("embedding_bag", lambda: F.embedding_bag(far, x, bags)),
        ):
            with self.subTest(name), self.assertRaisesRegex(RuntimeError, r"7.*\b4\b"):
                call()
                torch.npu.synchronize()
        with self.assertRaisesRegex(RuntimeError, "100.*20"):
            torch.take(x, torch.tensor([100], device=DEVICE))
            torch.npu.synchronize()
        with self.assertRaisesRegex(RuntimeError, "p_in"):
            torch.bernoulli(torch.tensor([2.0], device=DEVICE))
            torch.npu.synchronize()
        # The process goes on.
        self.same(x + 0, x.cpu())

    def test_assertions(self):
        torch._assert_async(torch.tensor(True, device=DEVICE), "fine")
        torch.npu.synchronize()
        with self.assertRaisesRegex(RuntimeError, "not so"):
            torch._assert_async(torch.tensor(False, device=DEVICE), "not so")
            torch.npu.synchronize()


if __name__ == "__main__":
    unittest.main()
