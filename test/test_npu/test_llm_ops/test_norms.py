"""Norms with a sum, small integers and gradients, against their formulas and against autograd."""

import numpy as np
from llm_ops_case import Call, LlmOpsTestCase, run_tests
from torch.nn import functional as F

import torch


def norm(x, gamma, epsilon=1e-6, beta=None):
    over = tuple(range(-gamma.dim(), 0))
    x = x.numpy()
    out = x / np.sqrt((x**2).mean(over, keepdims=True) + epsilon) * gamma.numpy()
    return out if beta is None else out + beta.numpy()


def small(numbers):
    return torch.from_numpy(np.clip(np.rint(numbers), -128, 127))


def add_quant(x1, x2, gamma, scales1, zero1, beta=None, scales2=None, zero2=None, *, div_mode=True):
    y = norm(x1 + x2, gamma, beta=beta)

    def one(scales, zero):
        scaled = y / scales.numpy() if div_mode else y * scales.numpy()
        return small(scaled if zero is None else scaled + zero.numpy())

    return one(scales1, zero1), torch.zeros_like(x1) if scales2 is None else one(scales2, zero2), x1 + x2


def add_dynamic(x1, x2, gamma, *, smooth_scale1=None, smooth_scale2=None, beta=None, output_mask=None):
    y, ints, steps = norm(x1 + x2, gamma, beta=beta), [], []
    wanted = output_mask or (True, smooth_scale1 is not None and smooth_scale2 is not None)
    for scale, want in zip((smooth_scale1, smooth_scale2), wanted, strict=True):
        scaled = y if scale is None else y * scale.numpy()
        step = np.abs(scaled).max(-1) / 127
        ints.append(small(scaled / step[..., None]) if want else torch.empty(0))
        steps.append(torch.from_numpy(step) if want else torch.empty(0))
    return *ints, x1 + x2, *steps


def factors(x, gamma, epsilon=1e-6):
    return (x.square().mean(tuple(range(-gamma.dim(), 0)), keepdim=True) + epsilon).rsqrt()


def quant(x, gamma, beta, scale, offset, epsilon=1e-6):
    return small(norm(x, gamma.flatten(), epsilon, beta.flatten()) * scale.numpy() + offset.numpy())


def quant_v2(x, gamma, scale, *, offset=None, beta=None, div_mode=True):
    y = norm(x, gamma.flatten(), beta=None if beta is None else beta.flatten())
    y = y / scale.numpy() if div_mode else y * scale.numpy()
    return small(y if offset is None else y + offset.numpy()), torch.empty(0)


def add_layer_norm(x1, x2, gamma, beta, epsilon=1e-5, additional_output=False):
    total = (x1 + x2).numpy()
    over = tuple(range(-gamma.dim(), 0))
    mean, variance = total.mean(over, keepdims=True), total.var(over, keepdims=True)
    y = (total - mean) / np.sqrt(variance + epsilon) * gamma.numpy() + beta.numpy()
    found = [torch.from_numpy(t) for t in (y, mean, 1 / np.sqrt(variance + epsilon))]
    return *found, x1 + x2 if additional_output else torch.empty(0)


def draw(*shape, seed=0, dtype=torch.float32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed + sum(shape))).to(dtype)


def calls():
    half, bfloat = torch.float16, torch.bfloat16
    x1, x2, gamma, beta = (
        draw(2, 3, 8, dtype=half),
        draw(2, 3, 8, seed=1, dtype=half),
        draw(8, dtype=half),
        draw(8, seed=1),
    )
    beta = beta.half()
    matrix = draw(3, 8, dtype=bfloat)
    scales, zero = draw(8).abs() + 0.5, torch.arange(8, dtype=torch.int32)
    wide = draw(2, 3, 8), draw(2, 3, 8, seed=2), draw(3, 8)
    int8 = (0.0, 0.02)
    return [
        Call("npu_add_rms_norm_quant", (x1, x2, gamma, scales / 20, zero), {}, add_quant, (1.0, 1.01)),
        Call(
            "npu_add_rms_norm_quant",
            (x1.bfloat16(), x2.bfloat16(), matrix, matrix.abs() + 1, None, matrix, matrix.abs() + 2, matrix),
            {"div_mode": False},
            add_quant,
            (1.0, 1.01),
        ),
        Call("npu_add_rms_norm_dynamic_quant", (x1, x2, gamma), {}, add_dynamic, (1.0, 0.02)),
        Call(
            "npu_add_rms_norm_dynamic_quant",
            (x1, x2, gamma),
            {"smooth_scale1": beta, "smooth_scale2": gamma, "beta": beta},
            add_dynamic,
            (1.0, 0.02),
        ),
        Call(
            "npu_add_rms_norm_dynamic_quant",
            (x1, x2, gamma),
            {"smooth_scale2": beta, "output_mask": [False, True]},
            add_dynamic,
            (1.0, 0.02),
        ),
        Call(
            "npu_add_rms_norm_cast",
            (x1, x2, gamma),
            {},
            lambda x1, x2, g: (
                torch.from_numpy(norm(x1 + x2, g)),
                torch.from_numpy(norm(x1 + x2, g)),
                factors(x1 + x2, g),
                x1 + x2,
            ),
            (2e-3, 2e-2),
        ),
        Call(
            "npu_add_rms_norm_v2",
            wide,
            {},
            lambda x1, x2, g: (factors(x1 + x2, g), torch.from_numpy(norm(x1 + x2, g)), x1 + x2),
            written=lambda *a: a[:2],
        ),
        Call(
            "npu_add_rms_norm_v2_functional",
            wide,
            {},
            lambda x1, x2, g: (factors(x1 + x2, g), torch.from_numpy(norm(x1 + x2, g)), x1 + x2),
        ),
        Call(
            "npu_rms_norm_quant",
            (x1, gamma, beta.view(1, 8), torch.tensor([9.0]).half(), torch.tensor([3], dtype=torch.int8)),
            {},
            quant,
            (1.0, 0.02),
        ),
        Call(
            "npu_rms_norm_quant_v2", (x1, gamma, torch.tensor([0.1])), {"offset": torch.ones(1)}, quant_v2, (1.0, 0.02)
        ),
        Call(
            "npu_rms_norm_quant_v2",
            (x1, gamma, torch.tensor([50.0])),
            {"beta": beta, "div_mode": False},
            quant_v2,
            (1.0, 0),
        ),
        Call("npu_add_layer_norm", (*wide, draw(3, 8, seed=5), 1e-3, True), {}, add_layer_norm),
        Call("npu_add_layer_norm", (x1, x2, gamma, beta), {}, add_layer_norm, (1e-3, int8[1])),
    ]


class TestNorms(LlmOpsTestCase):
    def test_calls(self):
        gradients = {n for n in self.backwards() if n != "npu_add_layer_norm"}
        from torch.npu import operators

        self.assertEqual({c.name for c in calls()} | gradients, set(operators.FAMILIES["norms"]))
        for call in calls():
            with self.subTest(name=call.name):
                self.check_call(call)
                self.check_compiled(call)

    def backwards(self):
        """For each gradient: the inputs, the function by autograd, and the operator's arguments from both."""
        x, gx, gamma, beta = draw(2, 3, 8), draw(2, 3, 8, seed=1), draw(3, 8), draw(3, 8, seed=1)
        image, weight, bias = draw(2, 6, 4, 3), draw(6), draw(6, seed=1)
        mean, rstd = 0, 1

        def deep(x, gx, beta, gamma):
            return F.layer_norm(0.4 * x + gx, (3, 8), gamma, beta, 1e-6)

        def deep_args(dy, x, gx, beta, gamma):
            statistics = torch.npu_deep_norm(x, gx, beta, gamma, 0.4)
            return dy, x, gx, gamma, statistics[mean], statistics[rstd], 0.4

        def layer_args(dy, x, gamma, beta):
            _, *statistics = torch.native_layer_norm(x, (3, 8), gamma, beta, 1e-5)
            return dy, x, [3, 8], *statistics, gamma, beta

        def swish(x, weight, bias):
            y = F.group_norm(x, 3, weight, bias)
            return y * torch.sigmoid(0.7 * y)

        def swish_args(dy, x, weight, bias):
            _, *statistics = torch.npu_group_norm_swish(x, 3, weight, bias, swish_scale=0.7)
            return dy, x, 3, weight, bias, *statistics, [True] * 3, 0.7

        def add(x1, x2, gamma, beta):
            return F.layer_norm(x1 + x2, (3, 8), gamma, beta)

        def add_args(dy, x1, x2, gamma, beta):
            _, *statistics, _ = torch.npu_add_layer_norm(x1, x2, gamma, beta)
            return dy, x1, x2, statistics[rstd], statistics[mean], gamma, None

        return {
            "npu_deep_norm_backward": ((x, gx, beta, gamma), deep, deep_args),
            "npu_layernorm_grad": ((x, gamma, beta), lambda x, g, b: F.layer_norm(x, (3, 8), g, b), layer_args),
            "npu_group_norm_swish_grad": ((image, weight, bias), swish, swish_args),
            "npu_add_layer_norm_backward": ((x, gx, gamma, beta), add, add_args),
        }

    def test_gradients(self):
        for name, (inputs, function, arguments) in self.backwards().items():
            for dtype, tolerance in ((torch.float32, 1e-4), (torch.bfloat16, 5e-2)):
                given = [t.to(dtype) for t in inputs]
                double = [t.double().requires_grad_() for t in given]
                out = function(*double)
                dy = draw(*out.shape, seed=7, dtype=dtype)
                wanted = torch.autograd.grad(out, double, dy.double())
                args = arguments(dy.npu(), *(t.npu() for t in given))
                found = getattr(torch.ops.npu, name)(*args)
                for got, want in zip(found, wanted, strict=True):
                    self.assertEqual(got.cpu().double(), want, atol=tolerance, rtol=tolerance, msg=f"{name} {dtype}")
                call = Call(name, tuple(a.cpu() if isinstance(a, torch.Tensor) else a for a in args))
                self.check_call(call)
            self.check_compiled(call)

    def test_gradient_by_autograd(self):
        """npu_add_layer_norm is made of differentiable steps; its gradient operator gives the same."""
        inputs = [
            t.double().npu().requires_grad_() for t in (draw(2, 3, 8), draw(2, 3, 8, seed=1), draw(8), draw(8, seed=1))
        ]

        def run(*args):
            y, _, _, total = torch.npu_add_layer_norm(*args, 1e-5, True)
            return y, total

        self.assertTrue(torch.autograd.gradcheck(run, inputs))
        y, total = run(*inputs)
        dy, dsum = torch.randn_like(y), torch.randn_like(total)
        wanted = torch.autograd.grad((y, total), inputs, (dy, dsum))
        with torch.no_grad():
            _, mean, rstd, _ = torch.npu_add_layer_norm(*inputs)
            found = torch.npu_add_layer_norm_backward(dy, *inputs[:2], rstd, mean, inputs[2], dsum)
            without = torch.npu_add_layer_norm_backward(None, *inputs[:2], rstd, mean, inputs[2], dsum)
        self.assertEqual(found, wanted)
        self.assertEqual(without[0], dsum)

    def test_rows_of_zeros(self):
        zeros, gamma = torch.zeros(2, 8).half().npu(), torch.ones(8).half().npu()
        integers, _, _, steps, _ = torch.npu_add_rms_norm_dynamic_quant(zeros, zeros, gamma)
        self.assertEqual((integers, steps), (torch.zeros_like(integers), torch.zeros_like(steps)))

    def test_factors_for_a_gradient(self):
        x = torch.randn(2, 8).npu().requires_grad_()
        _, factor = torch.npu_rms_norm_quant_v2(x, torch.ones(8).npu(), torch.ones(1).npu())
        self.assertEqual(factor, (x.detach().square().mean(1, keepdim=True) + 1e-6).rsqrt())

    def test_refusals(self):
        x, gamma = torch.ones(2, 8).half().npu(), torch.ones(8).half().npu()
        scales = torch.ones(8).npu()
        for error, message, args, kwargs in (
            (RuntimeError, "axis must be -1", (x, x, gamma, scales, None), {"axis": 0}),
            (NotImplementedError, "dst_type must be torch.int8", (x, x, gamma, scales, None), {"dst_type": 16}),
            (RuntimeError, "x1 and x2 must have one shape", (x, x[:1], gamma, scales, None), {}),
            (RuntimeError, "scales1 must have the shape", (x, x, gamma, scales[:3], None), {}),
            (RuntimeError, "x1 must be one of", (x.float(), x.float(), gamma, scales, None), {}),
        ):
            with self.assertRaisesRegex(error, f"npu_add_rms_norm_quant: {message}"):
                torch.npu_add_rms_norm_quant(*args, **kwargs)


if __name__ == "__main__":
    run_tests()
