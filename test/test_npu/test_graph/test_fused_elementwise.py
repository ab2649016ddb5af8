"""Chains of element-wise operators run as one operator of the simulated device, with the numbers they have alone."""

import os
import unittest

from fused_case import FLOATS, FusedCase, values
from torch.nn import functional as F

import torch

SLOW = os.environ.get("NPU_SLOW_TESTS") == "1"
# One and many tiles, one and several threads, sizes with remainders of vector loops.
SIZES = ((7,), (33, 100), (32768,), (40001,), (3, 5, 7001)) if SLOW else ((7,), (33, 100), (40001,))
ONE = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "div": lambda x, y: x / y,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "add number": lambda x, y: x + 0.1,
    "sub number": lambda x, y: x - 0.3,
    "number sub": lambda x, y: 1.7 - x,
    "mul number": lambda x, y: x * 1.1,
    "div number": lambda x, y: x / 3,
    "number div": lambda x, y: 2.5 / x,
    "add alpha": lambda x, y: torch.add(x, y, alpha=0.7),
    "neg": lambda x, y: -x,
    "abs": lambda x, y: x.abs(),
    "sqrt": lambda x, y: x.sqrt(),
    "rsqrt": lambda x, y: x.rsqrt(),
    "reciprocal": lambda x, y: x.reciprocal(),
    "square": lambda x, y: x.square(),
    "pow": lambda x, y: x**3,
    "pow half": lambda x, y: x**0.5,
    "exp": lambda x, y: x.exp(),
    "log": lambda x, y: x.log(),
    "log1p": lambda x, y: x.log1p(),
    "expm1": lambda x, y: x.expm1(),
    "sin": lambda x, y: x.sin(),
    "cos": lambda x, y: x.cos(),
    "erf": lambda x, y: x.erf(),
    "tanh": lambda x, y: x.tanh(),
    "sigmoid": lambda x, y: x.sigmoid(),
    "relu": lambda x, y: x.relu(),
    "silu": lambda x, y: F.silu(x),
    "gelu": lambda x, y: F.gelu(x),
    "gelu tanh": lambda x, y: F.gelu(x, approximate="tanh"),
    "mish": lambda x, y: F.mish(x),
    "hardswish": lambda x, y: F.hardswish(x),
    "hardsigmoid": lambda x, y: F.hardsigmoid(x),
    "leaky relu": lambda x, y: F.leaky_relu(x, 0.02),
    "elu": lambda x, y: F.elu(x),
    "softplus": lambda x, y: F.softplus(x),
    "clamp": lambda x, y: x.clamp(-0.5, 0.7),
    "clamp min": lambda x, y: x.clamp(min=0.1),
    "threshold backward": lambda x, y: torch.ops.aten.threshold_backward(x, y, 0),
    "threshold backward of a number": lambda x, y: torch.ops.aten.threshold_backward(x, y, 0.5),
    "gelu backward": lambda x, y: torch.ops.aten.gelu_backward(x, y),
    "silu backward": lambda x, y: torch.ops.aten.silu_backward(x, y),
    "sigmoid backward": lambda x, y: torch.ops.aten.sigmoid_backward(x, y),
    "tanh backward": lambda x, y: torch.ops.aten.tanh_backward(x, y),
    "hardswish backward": lambda x, y: torch.ops.aten.hardswish_backward(x, y),
    "compare": lambda x, y: torch.where(x < y, x, y),
    "where of bools": lambda x, y: torch.where((x < y) & (x > 0.1) | (y > 1), x, y),
    "clamp to NaN": lambda x, y: x.clamp(float("nan"), 0.7),
    "clamp turned": lambda x, y: x.clamp(0.7, -0.7),
    "equal": lambda x, y: (x == y) | (x >= 0.5),
    "masked fill": lambda x, y: x.masked_fill(y > 0, -1.0),
    "lerp": lambda x, y: torch.lerp(x, y, 0.3),
    "addcmul": lambda x, y: torch.addcmul(x, x, y, value=0.5),
    "floor": lambda x, y: x.floor(),
    "round": lambda x, y: x.round(),
    "remainder": lambda x, y: x.remainder(0.7),
    "atan2": torch.atan2,
    "to float": lambda x, y: x.float(),
    "to bfloat16": lambda x, y: x.bfloat16(),
}


def group_of(function):
    return torch._C._NPUFusedGroup(lambda *tensors: function(*tensors))


class FusedElementwiseTest(FusedCase):
    def check(self, function, *inputs, message="", fused=True):
        """Twice: the call that finds the command, and one that runs it again. Returns the group."""
        group = group_of(function)
        expected = function(*inputs)
        for turn in ("first", "second"):
            actual = group(*inputs)
            pairs = zip(actual, expected, strict=True) if isinstance(expected, tuple) else [(actual, expected)]
            for a, e in pairs:
                self.assert_same(a, e, f"{message}, {turn} call")
        self.assertEqual(group.counts(), (1, 0) if fused else (0, 1), message)
        return group

    def test_each_operator(self):
        for name, function in ONE.items():
            for dtype in FLOATS:
                for size in SIZES:
                    x, y = values(*size, dtype=dtype), values(*size, dtype=dtype, seed=1)
                    message = f"{name} of {dtype} {size}"
                    with self.subTest(message):
                        # A second step, so that it is a chain.
                        self.check(lambda x, y, f=function: f(x, y) * 1, x, y, message=message)

    def test_a_chain_rounds_after_each_operator(self):
        def chain(x, y, z):
            a = F.silu(x * y + z) * 0.37
            b = torch.where(a > z, a - y, a.tanh())
            return b, (b * b + a).sigmoid()

        for dtype in FLOATS:
            for size in ((5, 11), (100, 999), (8, 64, 40, 40)):
                self.check(chain, *(values(*size, dtype=dtype, seed=s) for s in range(3)), message=f"{dtype} {size}")

    def test_operands_broadcast(self):
        x = values(16, 40, 33)
        for shape in ((33,), (40, 33), (16, 1, 33), (40, 1), (1, 1, 1), (16, 1, 1)):
            for dtype in FLOATS:
                y = values(*shape, seed=2).to(dtype)
                self.check(lambda x, y: (x * y + y).relu() - y, x.to(dtype), y, message=f"{shape} {dtype}")

    def test_one_value_for_all(self):
        scale = torch.tensor(1.3, device="npu")
        self.check(lambda x, s: (x * s).exp() + s, values(100, 77), scale)
        self.check(lambda x, s: (x * s) + s, values(100, 77, dtype=torch.bfloat16), scale.bfloat16())

    def test_dtypes_mix(self):
        x, h, i = values(90, 50), values(90, 50, dtype=torch.float16), torch.arange(4500, device="npu").view(90, 50)
        self.check(lambda x, h: (x + h).half() * h, x, h)
        self.check(lambda x, i: x * i + (i > 100), x, i)
        self.check(lambda i: (i * 3 - 7) // 2 + i % 5, i)
        self.check(lambda x: (x > 0).float() * x, x)

    def test_images_and_transposed_tensors(self):
        images = values(4, 16, 9, 9).contiguous(memory_format=torch.channels_last)
        self.check(lambda x: F.hardswish(x * 2) + x, images)
        turned = values(60, 50).t()
        self.check(lambda x, y: (x + y).relu() * y, turned, values(60, 50, seed=3).t())

    def test_images_that_the_device_keeps_channels_last(self):
        conv = torch.nn.Conv2d(3, 16, 3, padding=1).npu()
        x = torch.randn(2, 3, 12, 12).npu()
        with torch.no_grad():
            y = conv(x)
            weight = values(16, 1, 1)
            self.check(lambda y, w: F.silu(y * w) + y, y, weight)
            self.assert_same(conv(group_of(lambda x: (x + 1).relu())(x)), conv((x + 1).relu()))

    def test_several_shapes_of_one_group(self):
        group = group_of(lambda x, y: (x * y).tanh() + x)
        for n in (5, 100, 5, 70000, 100):
            x, y = values(n), values(n, seed=1)
            self.assert_same(group(x, y), (x * y).tanh() + x)
        self.assertEqual(group.counts(), (3, 0))

    def test_one_tensor_for_two_operands(self):
        group = group_of(lambda x, y: (x * y) - y)
        x, y = values(50), values(50, seed=1)
        for a, b in ((x, x), (x, y), (y, y)):
            self.assert_same(group(a, b), a * b - b)

    def test_what_cannot_be_fused_runs_as_it_is(self):
        x = values(30, 20)
        self.check(lambda x: x.sum(1) + 1, x, fused=False)
        self.check(lambda x: x[:, ::2] + x[:, 1::2], x, fused=False)
        self.check(lambda x: x.cpu().npu() * 2, x, fused=False)

    def test_an_error_of_the_function_is_raised_and_the_group_goes_on(self):
        group = group_of(lambda x, y: (x + 1) * y)
        x = values(10)
        with self.assertRaisesRegex(RuntimeError, "size of tensor"):
            group(x, values(9))
        self.assert_same(group(x, x), (x + 1) * x)

    def test_a_launch_takes_the_place_of_many(self):
        group = group_of(lambda x: ((x + 1) * 2 - 3).relu() / 4)
        x = values(100)
        group(x)
        torch.npu.synchronize()
        before = torch._C._npu_simulatorCounters(0)["ops_launched"]
        group(x)
        torch.npu.synchronize()
        self.assertEqual(torch._C._npu_simulatorCounters(0)["ops_launched"] - before, 1)


if __name__ == "__main__":
    unittest.main()
