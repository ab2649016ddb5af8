"""Element-wise operators on npu against the CPU: shapes, strides, dtypes, promotion, out= and in-place."""

import unittest

import several_devices  # noqa: F401

import torch
import torch.npu

DEVICE = "npu:0"


def layouts(dtype, seed=0):
    """Tensors of one dtype in the layouts that kernels must handle: name, CPU tensor."""
    generator = torch.Generator().manual_seed(seed)

    def make(*sizes):
        if dtype == torch.bool:
            return torch.randint(0, 2, sizes, generator=generator).bool()
        if dtype.is_floating_point or dtype.is_complex:
            return torch.randn(sizes, generator=generator, dtype=torch.float64).to(dtype)
        return torch.randint(1 if dtype == torch.uint8 else -9, 10, sizes, generator=generator).to(dtype)

    yield "contiguous", make(4, 5)
    yield "scalar", make(1).reshape(())
    yield "empty", make(0, 3)
    yield "transposed", make(5, 4).t()
    yield "sliced", make(7, 9)[1:5, 2:7]
    yield "stepped", make(8, 10)[::2, ::2]
    yield "expanded", make(1, 5).expand(4, 5)
    yield "channels_last", make(2, 3, 4, 5).contiguous(memory_format=torch.channels_last)
    yield "offset", make(40)[19:39].view(4, 5)
    yield "large", make(70, 300)


def to_npu(t):
    """A copy on the device with the same sizes, strides and offset."""
    base = torch.as_strided(t, (t.untyped_storage().nbytes() // t.element_size(),), (1,), 0)
    return torch.as_strided(base.to(DEVICE), t.size(), t.stride(), t.storage_offset())


class ElementwiseTest(unittest.TestCase):
    def test_commands_of_other_ranks_are_not_reused(self):
        # Prepared commands are found by operator, dtypes and shape; a 0-d one must not be taken for [1, 2, 3, 3].
        for shape in ((1, 2, 3, 3), (), (1,), (1, 2), (), (1, 2, 3, 3)):
            x = torch.full(shape, 3.0)
            torch.testing.assert_close((x.npu() * x.npu()).cpu(), x * x)

    def same(self, actual, expected, note="", tolerance=None):
        self.assertEqual(actual.device.type, "npu", note)
        self.assertEqual(actual.dtype, expected.dtype, note)
        self.assertEqual(actual.shape, expected.shape, note)
        kwargs = {} if tolerance is None else {"rtol": tolerance, "atol": tolerance}
        torch.testing.assert_close(actual.cpu(), expected, equal_nan=True, msg=lambda m: f"{note}: {m}", **kwargs)

    def test_unary_layouts(self):
        names = "exp log1p sqrt rsqrt sin cos tanh sigmoid erf floor ceil round trunc neg abs sign reciprocal relu"
        for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
            for layout, x in layouts(dtype):
                for name in names.split():
                    op = getattr(torch, name)
                    self.same(op(to_npu(x)), op(x), f"{name} {layout} {dtype}")

    def test_unary_keeps_dense_strides(self):
        x = torch.randn(2, 3, 4, 5).contiguous(memory_format=torch.channels_last)
        for y in (x, x.permute(1, 3, 0, 2)):
            self.assertEqual(torch.exp(to_npu(y)).stride(), torch.exp(y).stride())

    def test_integers_become_float(self):
        for dtype in (torch.int32, torch.int64, torch.uint8, torch.bool):
            for layout, x in layouts(dtype):
                for op in (torch.exp, torch.sigmoid, torch.sin, torch.sqrt):
                    self.same(op(to_npu(x)), op(x), f"{op.__name__} {layout} {dtype}")
                self.same(to_npu(x) / 3, x / 3, f"div {layout} {dtype}")
                self.same(to_npu(x) / to_npu(x), x / x, f"div {layout} {dtype}")

    def test_binary_layouts(self):
        ops = (torch.add, torch.sub, torch.mul, torch.maximum, torch.minimum, torch.eq, torch.lt, torch.ge, torch.atan2)
        for dtype in (torch.float32, torch.float16, torch.int64, torch.int32, torch.uint8):
            for (layout, a), (_, b) in zip(layouts(dtype), layouts(dtype, 1), strict=True):
                for op in ops:
                    if op is torch.atan2 and not dtype.is_floating_point:
                        continue
                    self.same(op(to_npu(a), to_npu(b)), op(a, b), f"{op.__name__} {layout} {dtype}")
                    self.same(op(to_npu(a), b.to(DEVICE)), op(a, b), f"{op.__name__} {layout} mixed {dtype}")

    def test_broadcast(self):
        x = torch.randn(2, 3, 4, 5)
        for shape in ((5,), (4, 1), (3, 1, 1), (2, 1, 1, 5), (1,), ()):
            y = torch.randn(shape)
            for memory_format in (torch.contiguous_format, torch.channels_last):
                a = x.contiguous(memory_format=memory_format)
                result = to_npu(a) * to_npu(y)
                self.same(result, a * y, f"{shape} {memory_format}")
                self.assertEqual(result.stride(), (a * y).stride())
        with self.assertRaisesRegex(RuntimeError, "must match the size"):
            torch.zeros(3, device=DEVICE) + torch.zeros(4, device=DEVICE)

    def test_promotion(self):
        dtypes = (
            torch.bool,
            torch.uint8,
            torch.int8,
            torch.int32,
            torch.int64,
            torch.float16,
            torch.bfloat16,
            torch.float32,
            torch.float64,
            torch.complex64,
        )
        for first in dtypes:
            for second in dtypes:
                a, b = torch.tensor([1, 0, 1]).to(first), torch.tensor([1, 1, 0]).to(second)
                self.same(to_npu(a) + to_npu(b), a + b, f"{first} {second}")
                self.same(to_npu(a) * to_npu(b[1]), a * b[1], f"{first} 0-d {second}")
                self.same(to_npu(a) == to_npu(b), a == b, f"{first} {second}")

    def test_python_numbers(self):
        for dtype in (torch.float32, torch.float16, torch.int64, torch.uint8, torch.bool):
            x = torch.tensor([1, 2, 3]).to(dtype)
            y = to_npu(x)
            for number in (2, 2.5, True, 1 + 2j):
                self.same(y + number, x + number, f"{dtype} {number}")
                self.same(number * y, number * x, f"{dtype} {number}")
                if not isinstance(number, complex):
                    self.same(y > number, x > number, f"{dtype} {number}")
                if dtype != torch.bool and not isinstance(number, bool):
                    self.same(number - y, number - x, f"{dtype} {number}")
                    self.same(number / y, number / x, f"{dtype} {number}")
        x = torch.ones(3)
        for number in (1e300, -1e300, 2**40):
            self.same(to_npu(x) * number, x * number)
            self.same(to_npu(x) < number, x < number)
        x = torch.ones(3, dtype=torch.uint8)
        for number in (300, -1):
            self.same(to_npu(x) + number, x + number)
        with self.assertRaisesRegex(RuntimeError, "without overflow"):
            to_npu(x).fill_(300)
        x = torch.full((4,), 1e4, dtype=torch.float16)
        self.same(to_npu(x) * 1e-9, x * 1e-9)

    def test_in_place(self):
        for layout, x in layouts(torch.float32):
            if layout == "expanded":
                with self.assertRaisesRegex(RuntimeError, "single memory location"):
                    to_npu(x).add_(1)
                continue
            base = to_npu(x)
            expected = x.clone()
            alias = base
            base.add_(1).mul_(2).sub_(base).exp_()
            expected.add_(1).mul_(2).sub_(expected).exp_()
            self.same(base, expected, layout)
            self.assertIs(alias, base)
        x = torch.arange(12.0).view(3, 4)
        y = to_npu(x)
        y[1:, ::2] *= 10
        x[1:, ::2] *= 10
        self.same(y, x)
        with self.assertRaisesRegex(RuntimeError, "can't be cast"):
            torch.ones(3, dtype=torch.int64, device=DEVICE).mul_(1.5)

    def test_out(self):
        a, b = torch.randn(3, 4), torch.randn(3, 4)
        out = torch.empty(3, 4, device=DEVICE)
        pointer = out.data_ptr()
        result = torch.add(to_npu(a), to_npu(b), out=out)
        self.assertIs(result, out)
        self.assertEqual(out.data_ptr(), pointer)
        self.same(out, a + b)
        wide = torch.empty(3, 4, device=DEVICE, dtype=torch.float64)
        torch.add(to_npu(a), to_npu(b), out=wide)
        self.same(wide, torch.add(a, b, out=torch.empty(3, 4, dtype=torch.float64)))
        strided = torch.zeros(3, 8, device=DEVICE)
        torch.mul(to_npu(a), to_npu(b), out=strided[:, ::2])
        self.same(strided[:, ::2], a * b)
        self.assertEqual(strided[:, 1::2].abs().sum().item(), 0)
        with self.assertWarnsRegex(UserWarning, "An output with one or more elements was resized"):
            torch.exp(to_npu(a), out=torch.empty(2, device=DEVICE))
        with self.assertRaisesRegex(RuntimeError, "can't be cast"):
            torch.exp(to_npu(a), out=torch.empty(3, 4, device=DEVICE, dtype=torch.int32))

    def test_another_device_than_the_current(self):
        if torch.npu.device_count() < 2:
            self.skipTest("one device")
        x = torch.randn(3, 4)
        y = x.to("npu:1")
        for op in (lambda t: t + t, lambda t: (t * 2).exp().t() @ t, lambda t: t.sum(1), lambda t: t[:, ::2].clone()):
            self.assertEqual(op(y).device, torch.device("npu:1"))
            self.same(op(y), op(x))
        self.assertEqual(torch.npu.current_device(), 0)
        with self.assertRaisesRegex(RuntimeError, "same device"):
            y + x.to("npu:0")

    def test_memory_overlap(self):
        x = torch.arange(10.0, device=DEVICE)
        with self.assertRaisesRegex(RuntimeError, "refer to a single memory location"):
            torch.add(x[:-1], 1, out=x[1:])

    def test_mixed_devices(self):
        x = torch.ones(3, device=DEVICE)
        for call in (
            lambda: x + torch.ones(3),
            lambda: torch.ones(3) * x,
            lambda: torch.maximum(x, torch.ones(3)),
            lambda: torch.where(x > 0, x, torch.ones(3)),
            lambda: x.add_(torch.ones(3)),
        ):
            with self.assertRaisesRegex(RuntimeError, "Expected all tensors to be on the same device"):
                call()
        self.same(x + torch.tensor(2.0), torch.ones(3) + 2)
        self.same(torch.tensor(2.0) - x, 2 - torch.ones(3))
        self.same(torch.where(x > 0, torch.tensor(5.0), x), torch.full((3,), 5.0))

    def test_alpha_and_rounding_modes(self):
        a, b = torch.randn(5, 6) * 10, torch.randn(5, 6) * 3
        self.same(torch.add(to_npu(a), to_npu(b), alpha=3), torch.add(a, b, alpha=3))
        self.same(torch.sub(to_npu(a), to_npu(b), alpha=0.5), torch.sub(a, b, alpha=0.5))
        for mode in (None, "trunc", "floor"):
            self.same(torch.div(to_npu(a), to_npu(b), rounding_mode=mode), torch.div(a, b, rounding_mode=mode))
        i, j = a.long(), (b.abs() + 1).long()
        for mode in (None, "trunc", "floor"):
            self.same(torch.div(to_npu(i), to_npu(j), rounding_mode=mode), torch.div(i, j, rounding_mode=mode))
        self.same(to_npu(i) // to_npu(j), i // j)
        self.same(to_npu(i) % to_npu(j), i % j)
        self.same(torch.fmod(to_npu(i), to_npu(j)), torch.fmod(i, j))
        with self.assertRaisesRegex(RuntimeError, "Subtraction, the `-` operator, with two bool tensors"):
            torch.ones(2, dtype=torch.bool, device=DEVICE) - torch.ones(2, dtype=torch.bool, device=DEVICE)

    def test_ternary(self):
        x, y, z = (torch.randn(2, 3, 4, 5) for _ in range(3))
        for memory_format in (torch.contiguous_format, torch.channels_last):
            a, b, c = (t.contiguous(memory_format=memory_format) for t in (x, y, z))
            d, e, f = to_npu(a), to_npu(b), to_npu(c)
            self.same(torch.where(d > 0, e, f), torch.where(a > 0, b, c))
            self.same(torch.where(d > 0, e, 0), torch.where(a > 0, b, 0))
            self.same(torch.addcmul(d, e, f, value=0.5), torch.addcmul(a, b, c, value=0.5))
            self.same(torch.addcdiv(d, e, f, value=0.5), torch.addcdiv(a, b, c, value=0.5))
            self.same(torch.lerp(d, e, 0.3), torch.lerp(a, b, 0.3))
            self.same(torch.lerp(d, e, f), torch.lerp(a, b, c))
            self.same(d.clamp(-0.5, 0.5), a.clamp(-0.5, 0.5))
            self.same(d.clamp(min=e), a.clamp(min=b))
            self.same(d.clamp_min(0.1), a.clamp_min(0.1))
            self.same(d.masked_fill(e > 0, 7), a.masked_fill(b > 0, 7))
            d.masked_fill_(e > 0, float("-inf"))
            self.same(d, a.masked_fill(b > 0, float("-inf")))
        with self.assertRaisesRegex(RuntimeError, "only supports boolean masks"):
            to_npu(x).masked_fill(torch.ones(5, device=DEVICE), 1)

    def test_nan_inf(self):
        x = torch.tensor([float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 1e-42])
        y = to_npu(x)
        for op in (
            torch.isnan,
            torch.isinf,
            torch.isfinite,
            torch.isposinf,
            torch.isneginf,
            torch.signbit,
            torch.abs,
            torch.nan_to_num,
            torch.sign,
            torch.relu,
        ):
            self.same(op(y), op(x), op.__name__)
        self.same(torch.maximum(y, y.flip(0)), torch.maximum(x, x.flip(0)))
        self.same(torch.fmax(y, y.flip(0)), torch.fmax(x, x.flip(0)))

    def test_logical_and_bitwise(self):
        a, b = torch.tensor([0, 1, 2, 3]), torch.tensor([0, 3, 1, 2])
        for op in (
            torch.logical_and,
            torch.logical_or,
            torch.logical_xor,
            torch.bitwise_and,
            torch.bitwise_or,
            torch.bitwise_xor,
            torch.bitwise_left_shift,
            torch.bitwise_right_shift,
        ):
            self.same(op(to_npu(a), to_npu(b)), op(a, b), op.__name__)
        self.same(~to_npu(a), ~a)
        self.same(~to_npu(a > 1), ~(a > 1))
        self.same(torch.logical_not(to_npu(a.float())), torch.logical_not(a.float()))
        self.same(to_npu(a) & 1, a & 1)
        self.same(to_npu(a) << 2, a << 2)
        with self.assertRaisesRegex(NotImplementedError, "not implemented for 'Float'"):
            torch.bitwise_and(to_npu(a.float()), to_npu(a.float()))

    def test_complex(self):
        x = torch.randn(3, 4, dtype=torch.complex64)
        y = to_npu(x)
        for op in (torch.abs, torch.angle, torch.exp, torch.conj, torch.real, torch.imag, torch.sgn):
            self.same(op(y), op(x).resolve_conj(), op.__name__)
        self.same(y.conj() * y, x.conj() * x)
        self.same(torch.complex(y.real, y.imag), x)
        self.same(torch.view_as_real(y), torch.view_as_real(x))

    def test_activations(self):
        functional = torch.nn.functional
        x = torch.randn(4, 5, dtype=torch.float64)
        names = (
            "relu gelu silu mish elu selu celu leaky_relu softplus hardtanh hardswish hardsigmoid logsigmoid "
            "hardshrink softshrink tanhshrink softsign sigmoid tanh relu6"
        )
        for name in names.split():
            op = getattr(functional, name, None) or getattr(torch, name)
            a = x.clone().requires_grad_()
            b = to_npu(x).requires_grad_()
            r, s = op(a), op(b)
            self.same(s.detach(), r.detach(), name)
            r.sin().sum().backward()
            s.sin().sum().backward()
            self.same(b.grad, a.grad, name)


if __name__ == "__main__":
    unittest.main()
