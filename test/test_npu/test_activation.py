"""Activation functions and their gradients on npu against fp64 on the CPU."""

# ruff: noqa: B023 - functions made in a loop are called in the same round

import unittest

import torch.nn.functional as F
from nn_checks import check, randn

import torch

FUNCTIONS = {
    "relu": F.relu,
    "relu6": F.relu6,
    "leaky_relu": lambda x: F.leaky_relu(x, 0.2),
    "elu": lambda x: F.elu(x, 1.5),
    "selu": F.selu,
    "celu": lambda x: F.celu(x, 1.3),
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "mish": F.mish,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "hardtanh": lambda x: F.hardtanh(x, -0.7, 0.8),
    "hardswish": F.hardswish,
    "hardsigmoid": F.hardsigmoid,
    "softplus": lambda x: F.softplus(x, 2.0, 1.5),
    "logsigmoid": F.logsigmoid,
    "softshrink": lambda x: F.softshrink(x, 0.4),
    "hardshrink": lambda x: F.hardshrink(x, 0.4),
    "threshold": lambda x: F.threshold(x, 0.1, 20.0),
    "softsign": F.softsign,
    "tanhshrink": F.tanhshrink,
    "glu": F.glu,
}


class TestActivations(unittest.TestCase):
    def test_numbers_that_are_no_fp32_numbers(self):
        third, x = 1 / 3, torch.randn(50, dtype=torch.float64, requires_grad=True)
        functions = {
            "elu": lambda x: F.elu(x, third),
            "selu": F.selu,
            "celu": lambda x: F.celu(x, third),
            "leaky_relu": lambda x: F.leaky_relu(x, third),
            "rrelu": lambda x: F.rrelu(x, third / 2, third),
            "softplus": lambda x: F.softplus(x, third, 1 + third),
            "hardshrink": lambda x: F.hardshrink(x, third),
            "softshrink": lambda x: F.softshrink(x, third),
            "hardtanh": lambda x: F.hardtanh(x, -third, third),
            "threshold": lambda x: F.threshold(x, third, third),
            "logit": lambda x: torch.logit(x, third),
            "smooth_l1": lambda x: F.smooth_l1_loss(x, x.detach() * third, beta=third),
            "renorm": lambda x: torch.renorm(x.reshape(5, 10), 1 + third, 0, third),
            "histc": lambda x: torch.histc(x, 7, -third, third) + 0 * x.sum(),
        }
        for name, function in functions.items():
            with self.subTest(name):
                results = []
                for device in ("cpu", "npu"):
                    own = x.detach().to(device).requires_grad_()
                    y = function(own)
                    y.sum().backward()
                    results.append((y.detach().cpu(), own.grad.cpu()))
                torch.testing.assert_close(results[1], results[0], rtol=1e-14, atol=1e-14)

    def test_plain(self):
        for name, fn in FUNCTIONS.items():
            with self.subTest(name):
                check(self, fn, [randn(6, 34)], tolerance=3e-6)

    def test_behind_a_convolution(self):
        w = randn(48, 96, 3, 3)
        for name, fn in FUNCTIONS.items():
            with self.subTest(name):
                check(self, lambda x, w: fn(F.conv2d(x, w, padding=1) * 0.1), [randn(2, 96, 8, 8), w], tolerance=5e-6)

    def test_strided(self):
        for name, fn in FUNCTIONS.items():
            with self.subTest(name):
                check(self, lambda x: fn(x[:, 1:9].transpose(0, 1)), [randn(6, 12)], tolerance=3e-6)

    def test_prelu(self):
        check(self, F.prelu, [randn(3, 5, 4, 4), randn(5)], tolerance=3e-6)
        check(self, F.prelu, [randn(3, 5), randn(1)], tolerance=3e-6)

    def test_in_place(self):
        for name in ("relu", "leaky_relu", "elu", "silu", "hardtanh", "hardswish", "hardsigmoid", "mish"):
            x = torch.randn(5, 7, device="npu")
            want = getattr(F, name)(x)
            y = x.clone()
            getattr(F, name)(y, inplace=True)
            self.assertTrue(torch.equal(y, want), name)


if __name__ == "__main__":
    unittest.main()
