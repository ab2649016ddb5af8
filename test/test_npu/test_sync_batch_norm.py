"""Batch normalisation over several devices: its operators against plain formulas and batch norm of all data."""

import os
import unittest

os.environ["NPU_FALLBACK"] = "0"

import torch
import torch.npu

DEVICE = "npu:0"
EPS, MOMENTUM = 1e-5, 0.2


def each_channel(values, like):
    return values.reshape(1, -1, *[1] * (like.dim() - 2))


class SyncBatchNormTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)

    def close(self, actual, expected, tolerance=1e-5):
        self.assertEqual(actual.device.type, "npu")
        torch.testing.assert_close(actual.cpu().to(expected.dtype), expected, rtol=tolerance, atol=tolerance)

    def test_statistics_of_one_device(self):
        for shape in ((4, 3), (4, 3, 5), (4, 3, 5, 6), (2, 3, 4, 5, 2)):
            for dtype, tolerance in ((torch.float32, 1e-5), (torch.float64, 1e-10), (torch.float16, 1e-3)):
                x = torch.randn(shape, dtype=torch.float64).to(dtype)
                mean, invstd = torch.batch_norm_stats(x.to(DEVICE), EPS)
                dims = [d for d in range(len(shape)) if d != 1]
                wide = x.double()
                self.assertEqual(mean.dtype, torch.float64 if dtype == torch.float64 else torch.float32)
                self.close(mean, wide.mean(dims), tolerance)
                self.close(invstd, (wide.var(dims, correction=0) + EPS).rsqrt(), tolerance)

    def test_devices_together_are_one_batch(self):
        # Three devices with batches of different sizes must do what batch norm does with all samples.
        parts = [torch.randn(n, 3, 4, 4) for n in (2, 5, 3)]
        whole = torch.cat(parts).requires_grad_()
        weight, bias = torch.rand(3).requires_grad_(), torch.rand(3).requires_grad_()
        running_mean, running_var = torch.randn(3), torch.rand(3)
        expected_mean, expected_var = running_mean.clone(), running_var.clone()
        expected = torch.nn.functional.batch_norm(
            whole, expected_mean, expected_var, weight, bias, training=True, momentum=MOMENTUM, eps=EPS
        )
        grad = torch.randn_like(expected)
        grad_input, grad_weight, grad_bias = torch.autograd.grad(expected, (whole, weight, bias), grad)

        stats = [torch.batch_norm_stats(p.to(DEVICE), EPS) for p in parts]
        counts = torch.tensor([p.numel() / 3 for p in parts], device=DEVICE)
        seen_mean, seen_var = running_mean.to(DEVICE), running_var.to(DEVICE)
        mean, invstd = torch.batch_norm_gather_stats_with_counts(
            parts[0].to(DEVICE),
            torch.stack([m for m, _ in stats]),
            torch.stack([s for _, s in stats]),
            seen_mean,
            seen_var,
            MOMENTUM,
            EPS,
            counts,
        )
        self.close(seen_mean, expected_mean)
        self.close(seen_var, expected_var)
        w, b = weight.detach().to(DEVICE), bias.detach().to(DEVICE)
        outputs = [torch.batch_norm_elemt(p.to(DEVICE), w, b, mean, invstd, EPS) for p in parts]
        self.close(torch.cat(outputs), expected.detach())

        pieces = list(zip(parts, grad.split([len(p) for p in parts]), strict=True))
        reduced = [
            torch.batch_norm_backward_reduce(g.to(DEVICE), p.to(DEVICE), mean, invstd, w, True, True, True)
            for p, g in pieces
        ]
        sum_dy, sum_dy_xmu, weights, biases = (sum(r) for r in zip(*reduced, strict=True))
        self.close(weights, grad_weight, 1e-4)
        self.close(biases, grad_bias, 1e-4)
        grads = [
            torch.batch_norm_backward_elemt(
                g.to(DEVICE), p.to(DEVICE), mean, invstd, w, sum_dy, sum_dy_xmu, counts.to(torch.int32)
            )
            for p, g in pieces
        ]
        self.close(torch.cat(grads), grad_input)

    def test_gradient_parts_that_nobody_wants(self):
        x = torch.randn(4, 3, 2, device=DEVICE)
        mean, invstd = torch.batch_norm_stats(x, EPS)
        parts = torch.batch_norm_backward_reduce(x, x, mean, invstd, None, True, False, False)
        self.assertEqual([p is not None for p in parts], [True, True, False, False])

    def test_update_and_equal_counts(self):
        x = torch.randn(4, 3, 5)
        running_mean, running_var = torch.zeros(3, device=DEVICE), torch.ones(3, device=DEVICE)
        mean, var = torch.batch_norm_update_stats(x.to(DEVICE), running_mean, running_var, MOMENTUM)
        self.close(mean, x.mean((0, 2)))
        self.close(var, x.var((0, 2), correction=0))
        self.close(running_mean, MOMENTUM * x.mean((0, 2)))
        self.close(running_var, 1 - MOMENTUM + MOMENTUM * x.var((0, 2)))
        mean, invstd = torch.batch_norm_stats(x.to(DEVICE), EPS)
        same = torch.batch_norm_gather_stats(
            x.to(DEVICE), mean[None], invstd[None], running_mean, running_var, MOMENTUM, EPS, 20
        )
        self.close(same[0], mean.cpu())
        self.close(same[1], invstd.cpu())

    def test_elemt_writes_to_out(self):
        x = torch.randn(4, 3, 5).half()
        mean, invstd = torch.batch_norm_stats(x.to(DEVICE), EPS)
        out = torch.empty(0, dtype=torch.half, device=DEVICE)
        torch.batch_norm_elemt(x.to(DEVICE), None, None, mean, invstd, EPS, out=out)
        wide = x.float()
        expected = (wide - each_channel(wide.mean((0, 2)), x)) * each_channel(invstd.cpu(), x)
        self.assertEqual(out.dtype, torch.half)
        self.close(out, expected, 2e-3)

    def test_module_alone(self):
        module = torch.nn.SyncBatchNorm(3).to(DEVICE)
        reference = torch.nn.BatchNorm2d(3)
        x = torch.randn(4, 3, 5, 5)
        self.close(module(x.to(DEVICE)).detach(), reference(x).detach())
        self.close(module.running_var, reference.running_var)

    def test_what_is_refused(self):
        x = torch.randn(4, 3, 5, device=DEVICE)
        mean, invstd = torch.batch_norm_stats(x, EPS)
        with self.assertRaisesRegex(RuntimeError, "count per device"):
            torch.batch_norm_gather_stats_with_counts(
                x, mean[None], invstd[None], None, None, MOMENTUM, EPS, torch.ones(2, device=DEVICE)
            )
        with self.assertRaisesRegex(RuntimeError, "two dimensions"):
            torch.batch_norm_stats(torch.randn(4, device=DEVICE), EPS)


if __name__ == "__main__":
    unittest.main()
