"""The numbers of the cube unit: HF32 where it is allowed, fp32 sums and one rounding for halves; and of the vector
unit, which rounds per operator. The reference is NumPy alone."""

import contextlib
import unittest

import numpy as np
import torch.nn.functional as F
from common_utils import hf32_switches

import torch


def hf32(values: np.ndarray) -> np.ndarray:
    """float32 rounded to 11 bits of fraction, to nearest, ties to even: as arithmetic on numbers, not on bits."""
    values = values.astype(np.float32)
    fraction, exponent = np.frexp(values.astype(np.float64))  # 0.5 <= |fraction| < 1
    exponent = np.maximum(exponent, -125)  # subnormals have fewer bits
    unit = np.ldexp(1.0, exponent - 12)
    with np.errstate(invalid="ignore", over="ignore"):
        rounded = (np.rint(values.astype(np.float64) / unit) * unit).astype(np.float32)
    return np.where(np.isfinite(values), rounded, values)


def correlate(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """A convolution of (N, C, H, W) with (O, C, h, w), stride 1, no padding, in float64."""
    windows = np.lib.stride_tricks.sliding_window_view(x.astype(np.float64), w.shape[2:], axis=(2, 3))
    return np.einsum("nchwij,ocij->nohw", windows, w.astype(np.float64))


def allowed(matmul: bool = False, conv: bool = False):
    return hf32_switches(matmul, conv)


@contextlib.contextmanager
def high_performance():
    torch.npu.set_option({"ACL_OP_SELECT_IMPL_MODE": "high_performance"})
    try:
        yield
    finally:
        torch.npu.set_option({"ACL_OP_SELECT_IMPL_MODE": "high_precision"})


def array(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def npu(values: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(values.copy()).npu()


class TestHf32(unittest.TestCase):
    def setUp(self):
        self.enterContext(hf32_switches())

    def assert_is(self, result: torch.Tensor, rounded: np.ndarray, exact: np.ndarray) -> None:
        """`result` is the product of rounded operands, and not that of exact ones."""
        scale = np.abs(exact).max()
        got = result.detach().cpu().numpy().astype(np.float64)
        self.assertLess(np.abs(got - rounded).max() / scale, 1e-6)
        self.assertGreater(np.abs(got - exact).max() / scale, 1e-5)

    def test_every_rounding(self):
        """Values through the identity matrix: ties, carries, subnormals, the largest numbers, infinities."""
        ulp = 2.0**-11
        values = np.array(
            [0, 1, 1 + ulp / 2, 1 + ulp * 1.5, 1 + ulp * 0.51, 2 - ulp / 4, 1e-39, 3e-45, 65504, 3.4e38]
            + [np.finfo(np.float32).max, np.float32(2.0**-126) * 0.999, np.pi],
            dtype=np.float32,
        )
        spread = np.ldexp(array(1000), np.random.default_rng(1).integers(-120, 120, 1000)).astype(np.float32)
        values = np.concatenate([values, -values, spread]).reshape(1, -1)
        identity = np.eye(values.size, dtype=np.float32)
        with allowed(matmul=True), np.errstate(over="ignore"):
            for column in range(0, values.size, 64):
                part = values[:, column : column + 64]
                got = (npu(part) @ npu(identity[: part.shape[1], : part.shape[1]])).cpu().numpy()
                expected = hf32(part)
                # The largest float rounds up to an infinity, which times the identity's zeros is NaN.
                if np.isfinite(expected).all():
                    np.testing.assert_array_equal(got, expected)
                else:
                    self.assertFalse(np.isfinite(got).all())

    def products(self):
        a, b, batch = array(17, 33), array(33, 9, seed=1), array(4, 33, 6, seed=2)
        bias = array(9, seed=3)
        exact64 = lambda x, y: x.astype(np.float64) @ y.astype(np.float64)  # noqa: E731
        yield "mm", lambda: npu(a) @ npu(b), lambda r: exact64(r(a), r(b))
        yield "transposed", lambda: npu(a.T).t() @ npu(b), lambda r: exact64(r(a), r(b))
        yield "bmm", lambda: torch.matmul(npu(a), npu(batch)), lambda r: exact64(r(a), r(batch))
        yield "linear", lambda: F.linear(npu(a), npu(b.T), npu(bias)), lambda r: exact64(r(a), r(b)) + bias
        yield (
            "addmm",
            lambda: torch.addmm(npu(bias), npu(a), npu(b), beta=0.5, alpha=2),
            lambda r: 2 * exact64(r(a), r(b)) + 0.5 * bias,
        )
        yield "mv", lambda: npu(a) @ npu(b[:, 0]), lambda r: exact64(r(a), r(b[:, 0]))
        yield "einsum", lambda: torch.einsum("ik,kj->ji", npu(a), npu(b)), lambda r: exact64(r(a), r(b)).T

    def test_matmul_class(self):
        for name, run, reference in self.products():
            with self.subTest(name):
                exact = reference(lambda x: x)
                with allowed(matmul=True):
                    self.assert_is(run(), reference(hf32), exact)
                # What was compiled before does not keep the option, nor does it reach the other class.
                with allowed(conv=True):
                    got = run().cpu().numpy()
                self.assertLess(np.abs(got - exact).max() / np.abs(exact).max(), 1e-6)

    def test_conv_class(self):
        for channels, kernel in ((3, 3), (64, 1), (96, 3)):
            x, w = array(2, channels, 8, 9), array(5, channels, kernel, kernel, seed=1)
            reference, exact = correlate(hf32(x), hf32(w)), correlate(x, w)
            with self.subTest(channels=channels), allowed(conv=True):
                self.assert_is(F.conv2d(npu(x), npu(w)), reference, exact)
            with self.subTest("matmul's switch", channels=channels), allowed(matmul=True):
                got = F.conv2d(npu(x), npu(w)).cpu().numpy()
                self.assertLess(np.abs(got - exact).max() / np.abs(exact).max(), 1e-6)

    def test_gradients_of_a_convolution(self):
        x, w = array(2, 4, 8, 9), array(5, 4, 3, 3, seed=1)
        dy = array(2, 5, 6, 7, seed=2)
        inputs = [npu(x).requires_grad_(), npu(w).requires_grad_()]
        flipped = w[:, :, ::-1, ::-1].transpose(1, 0, 2, 3)
        padded = np.pad(dy, ((0, 0), (0, 0), (2, 2), (2, 2)))
        dx = lambda r: correlate(r(padded), r(np.ascontiguousarray(flipped)))  # noqa: E731
        dw = lambda r: correlate(  # noqa: E731
            r(np.ascontiguousarray(x.transpose(1, 0, 2, 3))), r(np.ascontiguousarray(dy.transpose(1, 0, 2, 3)))
        ).transpose(1, 0, 2, 3)
        with allowed(conv=True):
            grads = torch.autograd.grad(F.conv2d(*inputs), inputs, npu(dy))
        for grad, reference in zip(grads, (dx, dw), strict=True):
            self.assert_is(grad, reference(hf32), reference(lambda v: v))

    def test_high_performance(self):
        a, b = array(17, 33), array(33, 9, seed=1)
        exact = a.astype(np.float64) @ b
        with high_performance():
            self.assert_is(npu(a) @ npu(b), hf32(a).astype(np.float64) @ hf32(b), exact)
        self.assertLess(np.abs((npu(a) @ npu(b)).cpu().numpy() - exact).max() / np.abs(exact).max(), 1e-6)

    def test_defaults_are_fp32(self):
        """Nothing rounds before it is asked to, whatever allow_hf32 says by default; in a fresh process."""
        import subprocess
        import sys

        script = """
import torch
x, w = torch.randn(2, 8, 9, 9), torch.randn(4, 8, 3, 3)
exact = torch.nn.functional.conv2d(x.double(), w.double())
error = lambda: (torch.nn.functional.conv2d(x.npu(), w.npu()).cpu() - exact).abs().max().item()
print(error() < 1e-4)
torch.npu.matmul.allow_hf32 = True   # says nothing about convolutions
print(torch.npu.conv.allow_hf32, error() < 1e-4)
torch.npu.conv.allow_hf32 = True
print(error() > 3e-4)
"""
        program = [sys.executable, "-c", script]
        result = subprocess.run(program, capture_output=True, text=True, check=False, timeout=120)
        self.assertEqual(result.stdout.split(), ["True"] * 4, result.stderr)

    def test_other_dtypes_and_classes_do_not_round(self):
        a, b = array(17, 33), array(33, 9, seed=1)
        with allowed(True, True), high_performance():
            for dtype in (torch.float64, torch.float16, torch.bfloat16):
                x, y = torch.from_numpy(a).to(dtype), torch.from_numpy(b).to(dtype)
                expected = (x.double() @ y.double()).to(dtype)
                got = (x.npu() @ y.npu()).cpu()
                torch.testing.assert_close(got, expected)
            x = npu(a)
            torch.testing.assert_close((x * x).cpu(), torch.from_numpy(a * a), rtol=0, atol=0)


class TestHalves(unittest.TestCase):
    KINDS = ((torch.float16, 11), (torch.bfloat16, 8))

    def test_sums_are_fp32_and_round_once(self):
        """4096 + 1 + 1 + ...: a sum in halves would stay at 4096, two roundings would miss ties."""
        for dtype, bits in self.KINDS:
            big = 2.0 ** (bits + 1)
            ones = torch.ones(1, 64, dtype=dtype)
            row = ones.clone()
            row[0, 0] = big
            for left, right in ((row, ones.t()), (row.expand(70, 64), ones.t().expand(64, 33).contiguous())):
                got = (left.npu() @ right.npu()).cpu()
                self.assertEqual(got.unique().tolist(), [float(torch.tensor(big + 63).to(dtype))], dtype)

    def test_products_and_convolutions_against_float64(self):
        for dtype, bits in self.KINDS:
            a, b = torch.randn(65, 300).to(dtype), torch.randn(300, 70).to(dtype)
            x, w = torch.randn(2, 48, 10, 10).to(dtype), torch.randn(40, 48, 3, 3).to(dtype)
            for got, exact in (
                (a.npu() @ b.npu(), a.double() @ b.double()),
                (F.conv2d(x.npu(), w.npu(), padding=1), F.conv2d(x.double(), w.double(), padding=1)),
            ):
                self.assertEqual(got.dtype, dtype)
                # Half a unit in the last place for the one rounding, and fp32's own errors.
                error = (got.cpu().double() - exact).abs()
                self.assertTrue((error <= exact.abs() * 2.0**-bits * 1.001 + 1e-4).all(), (dtype, error.max()))

    def test_convolutions_of_all_forms_and_their_gradients(self):
        """One pixel, strides, small images with many channels, turned filters: whatever loop computes them."""
        forms = (
            # x, filter, options
            ((4, 24, 9, 7), (40, 24, 1, 1), {}),
            ((4, 24, 9, 7), (40, 24, 1, 1), {"stride": (2, 3)}),
            ((2, 24, 9, 7), (40, 24, 1, 1), {"padding": 1}),
            ((2, 256, 4, 4), (64, 256, 3, 3), {"padding": 1}),
            ((2, 256, 5, 5), (64, 256, 3, 3), {"padding": 1, "stride": 2}),
            ((2, 200, 6, 4), (72, 200, 5, 3), {"padding": (4, 1)}),
            ((2, 200, 6, 5), (72, 200, 3, 2), {"padding": (2, 0), "dilation": 2}),
            ((2, 200, 3, 3), (72, 200, 3, 3), {}),
            ((2, 128, 4, 4), (64, 64, 3, 3), {"padding": 1, "groups": 2}),
            ((3, 16, 20, 20), (8, 16, 3, 3), {"padding": 1}),
            ((1, 2, 2, 2), (3, 2, 1, 1), {}),
        )
        for dtype, bits in self.KINDS:
            for shape, filter_shape, options in forms:
                x, w = torch.randn(shape).to(dtype), torch.randn(filter_shape).to(dtype)
                for layout in (torch.contiguous_format, torch.channels_last):
                    with self.subTest(dtype=dtype, x=shape, filter=filter_shape, layout=layout, **options):
                        ours = [t.npu().to(memory_format=layout).requires_grad_() for t in (x, w)]
                        theirs = [t.double().requires_grad_() for t in (x, w)]
                        y, exact = F.conv2d(*ours, **options), F.conv2d(*theirs, **options)
                        grad = torch.randn(exact.shape).to(dtype)
                        y.backward(grad.npu())
                        exact.backward(grad.double())
                        pairs = [(y, exact), *((a.grad, b.grad) for a, b in zip(ours, theirs, strict=True))]
                        for got, want in pairs:
                            error = (got.detach().cpu().double() - want.detach()).abs()
                            limit = want.detach().abs() * 2.0**-bits * 1.001 + 1e-3
                            self.assertTrue((error <= limit).all(), (error - limit).max())

    def test_vector_operators_round_each(self):
        """(x + 1) - x in two operators loses what one rounding at the end would keep."""
        for dtype, bits in self.KINDS:
            x = torch.full((100,), 2.0 ** (bits + 1), dtype=dtype, device="npu")
            self.assertEqual(((x + 1) - x).unique().tolist(), [0.0])
            a, b, c = torch.randn(3, 1000).to(dtype)
            steps = ((a.npu() * b.npu()) + c.npu()) / b.npu()
            plain = (((a.float() * b.float()).to(dtype).float() + c.float()).to(dtype).float() / b.float()).to(dtype)
            steps = steps.cpu()
            self.assertTrue(torch.equal(steps, plain), dtype)


if __name__ == "__main__":
    unittest.main()
