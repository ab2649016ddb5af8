"""Losses on npu against fp64 on the CPU."""

# ruff: noqa: B023 - functions made in a loop are called in the same round

import unittest

import torch.nn.functional as F
from nn_checks import check, randn, relative_error

import torch

REDUCTIONS = ("none", "mean", "sum")


class TestClassLosses(unittest.TestCase):
    def test_cross_entropy(self):
        x, target = randn(6, 5), torch.tensor([0, 4, 2, 2, 1, 3])
        weight = torch.rand(5, generator=torch.Generator().manual_seed(1)) + 0.5
        for reduction in REDUCTIONS:
            for options in ({}, {"ignore_index": 2}, {"label_smoothing": 0.1}):
                with self.subTest(reduction=reduction, **options):
                    check(self, lambda x, t: F.cross_entropy(x, t, reduction=reduction, **options), [x, target])
                    check(
                        self,
                        lambda x, t, w: F.cross_entropy(x, t, w, reduction=reduction, **options),
                        [x, target, weight],
                    )

    def test_int32_targets(self):
        x, target = randn(6, 5), torch.tensor([0, 4, 2, 2, 1, 3])
        a = x.detach().npu().requires_grad_()
        loss = F.cross_entropy(a, target.int().npu())
        loss.backward()
        y = x.detach().double().requires_grad_()
        want = F.cross_entropy(y, target)
        want.backward()
        self.assertLess(relative_error(loss, want), 1e-6)
        self.assertLess(relative_error(a.grad, y.grad), 1e-6)

    def test_images(self):
        target = torch.randint(0, 4, (2, 5, 6), generator=torch.Generator().manual_seed(1))
        for reduction in REDUCTIONS:
            check(
                self,
                lambda x, t: F.cross_entropy(x, t, reduction=reduction, ignore_index=1),
                [randn(2, 4, 5, 6), target],
            )
            check(self, lambda x, t: F.nll_loss(x, t, reduction=reduction), [randn(2, 4, 5, 6), target])

    def test_one_sample(self):
        check(self, lambda x, t: F.cross_entropy(x, t), [randn(5), torch.tensor(3)])

    def test_probabilities(self):
        check(
            self, lambda x, p: F.cross_entropy(x, p), [randn(6, 5), torch.softmax(randn(6, 5, grad=False, seed=9), 1)]
        )

    def test_a_wrong_class_is_reported_and_the_process_stays_usable(self):
        with self.assertRaises(RuntimeError):
            F.nll_loss(torch.zeros(2, 3, device="npu"), torch.tensor([0, 7], device="npu"))
            torch.npu.synchronize()
        self.assertEqual((torch.ones(2, device="npu") + 1).tolist(), [2.0, 2.0])


class TestElementwiseLosses(unittest.TestCase):
    def test_regression(self):
        x, y = randn(4, 7), randn(4, 7, seed=8)
        losses = {
            "mse": F.mse_loss,
            "l1": F.l1_loss,
            "smooth_l1": F.smooth_l1_loss,
            "huber": F.huber_loss,
            "smooth_l1_beta": lambda a, b, reduction: F.smooth_l1_loss(a, b, reduction=reduction, beta=0.3),
            "huber_delta": lambda a, b, reduction: F.huber_loss(a, b, reduction=reduction, delta=0.3),
            "soft_margin": lambda a, b, reduction: F.soft_margin_loss(a, b.detach().sign(), reduction=reduction),
        }
        for name, loss in losses.items():
            for reduction in REDUCTIONS:
                with self.subTest(loss=name, reduction=reduction):
                    check(self, lambda a, b: loss(a, b, reduction=reduction), [x, y])

    def test_binary(self):
        x = torch.sigmoid(randn(4, 7)).detach().requires_grad_()
        y = torch.rand(4, 7, generator=torch.Generator().manual_seed(1))
        w = torch.rand(4, 7, generator=torch.Generator().manual_seed(2))
        for reduction in REDUCTIONS:
            check(self, lambda x, y: F.binary_cross_entropy(x, y, reduction=reduction), [x, y])
            check(self, lambda x, y, w: F.binary_cross_entropy(x, y, w, reduction=reduction), [x, y, w])
            check(self, lambda x, y: F.binary_cross_entropy_with_logits(x, y, reduction=reduction), [randn(4, 7), y])
            check(
                self,
                lambda x, y, w: F.binary_cross_entropy_with_logits(x, y, pos_weight=w, reduction=reduction),
                [randn(4, 7), y, w[0]],
            )

    def test_divergence(self):
        p = torch.softmax(randn(4, 7, grad=False, seed=9), 1)
        for reduction in (*REDUCTIONS, "batchmean"):
            check(self, lambda x, p: F.kl_div(F.log_softmax(x, 1), p, reduction=reduction), [randn(4, 7), p])

    def test_ranking(self):
        sign = torch.tensor([1.0, -1.0, 1.0, 1.0])
        check(self, lambda a, b, s: F.margin_ranking_loss(a, b, s), [randn(4), randn(4, seed=9), sign])
        check(
            self, lambda a, b, s: F.cosine_embedding_loss(a, b, s, margin=0.1), [randn(4, 6), randn(4, 6, seed=9), sign]
        )
        check(self, F.triplet_margin_loss, [randn(4, 6), randn(4, 6, seed=9), randn(4, 6, seed=10)])


if __name__ == "__main__":
    unittest.main()
