"""Dtypes that CANN has none for: bits, numbers below a byte, and three float8 types, as far as the CPU takes them."""

import copy
import io

from common_utils import TestCase, run_tests

import torch

BITS = (torch.float4_e2m1fn_x2, torch.bits8, torch.bits16, torch.bits1x8, torch.bits2x4, torch.bits4x2)
BELOW_BYTE = tuple(getattr(torch, f"{sign}int{n}") for sign in ("u", "") for n in range(1, 8))
FLOAT8 = (torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, torch.float8_e8m0fnu)
WITH_ACL = (torch.float8_e4m3fn, torch.float8_e5m2)
PLACE = {"cpu": lambda x: x, "npu": lambda x: x.npu()}

MOVES = {
    "clone": lambda x: x.clone(),
    "contiguous": lambda x: x.t().contiguous(),
    "cat": lambda x: torch.cat([x, x]),
    "cat of views": lambda x: torch.cat([x[:, 1:], x[:, :2]]),
    "stack": lambda x: torch.stack([x, x]),
    "into a view": lambda x: torch.empty(4, 3, dtype=x.dtype, device=x.device).t().copy_(x).contiguous(),
    "into some columns": lambda x: x.clone()[:, ::2].copy_(x[:, 1::2].roll(1, 0)).contiguous(),
    "item": lambda x: set_first(x.clone(), x[2]),
    "index_select": lambda x: x.index_select(0, torch.tensor([2, 0], device=x.device)),
    "flip": lambda x: x.flip(0),
    "roll": lambda x: x.roll((1, 2), (0, 1)),
    "repeat": lambda x: x.repeat(2, 2),
    "expand": lambda x: x[:, :1].expand(3, 4).contiguous(),
    "where": lambda x: torch.where(torch.arange(4, device=x.device) > 1, x, x.roll(1, 0)),
    "diagonal": lambda x: x.diagonal().clone(),
    "zero_": lambda x: x.clone().zero_(),
    "channels-last": lambda x: x[None, None].contiguous(memory_format=torch.channels_last),
    "saved": lambda x: reloaded(x),
    "deepcopy": lambda x: copy.deepcopy(x),
}
COMPUTES = {
    "index": lambda x: x[torch.tensor([1, 0], device=x.device)],
    "gather": lambda x: x.gather(0, torch.zeros(1, 4, dtype=torch.int64, device=x.device)),
    "masked_select": lambda x: x.masked_select(torch.ones(3, 4, dtype=torch.bool, device=x.device)),
    "eq": lambda x: x == x,
    "add": lambda x: x + x,
    "mul": lambda x: x * x,
    "neg": lambda x: -x,
    "abs": lambda x: x.abs(),
    "sum": lambda x: x.sum(),
    "max": lambda x: x.max(),
    "sort": lambda x: x.sort(),
    "to fp32": lambda x: x.to(torch.float32),
    "of fp32": lambda x: torch.ones(3, 4, device=x.device).to(x.dtype),
    "fill": lambda x: torch.ones(3, 4, dtype=x.dtype, device=x.device),
    "number": lambda x: x[0, 0].item(),
    "equals one": lambda x: x == 1,
}


def set_first(x, row):
    x[0] = row
    return x


def reloaded(x):
    buffer = io.BytesIO()
    torch.save(x, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=False)


def codes(t):
    """The bytes, in the order of the elements."""
    t = t.cpu() if t.is_contiguous() else t.contiguous().cpu()
    return t.untyped_storage()[: t.numel() * t.element_size()].tolist()


class TestMoved(TestCase):
    def made(self, dtype):
        size = torch.empty(0, dtype=dtype).element_size()
        return torch.arange(3, 3 + 12 * size, dtype=torch.uint8).view(3, 4 * size).view(dtype)

    def same(self, name, call, dtype):
        """What the CPU does, npu does; what it cannot compute, npu refuses at the call. Upstream moves elements of
        some shapes and not of others; npu of all."""
        x = self.made(dtype)
        with self.subTest(name=name, dtype=dtype):
            try:
                want = call(x)
            except (NotImplementedError, RuntimeError):
                if name in MOVES and name != "clone":
                    return False
                with self.assertRaises((NotImplementedError, RuntimeError)) as refused:
                    call(x.npu())
                self.assertNotIsInstance(refused.exception, torch.AcceleratorError)
                torch.npu.synchronize()
                return False
            got = call(x.npu())
            self.assertEqual((got.device.type, got.dtype, got.shape), ("npu", want.dtype, want.shape))
            self.assertEqual(codes(got), codes(want))
            return True
        return False

    def test_bits(self):
        for dtype in BITS:
            for name, call in MOVES.items():
                self.assertTrue(
                    self.same(name, call, dtype) or name in ("cat of views", "channels-last"), (name, dtype)
                )
            for name, call in COMPUTES.items():
                self.same(name, call, dtype)

    def test_numbers_below_a_byte(self):
        done = 0
        for dtype in BELOW_BYTE:
            for name, call in {**MOVES, **COMPUTES}.items():
                if name in ("saved", "deepcopy"):  # upstream has no storage type of them
                    continue
                done += self.same(name, call, dtype)
        self.assertGreater(done, 5 * len(BELOW_BYTE))

    def test_float8(self):
        for dtype in FLOAT8:
            for name, call in MOVES.items():
                self.same(name, call, dtype)


class TestFloat8(TestCase):
    def setUp(self):
        self.all = torch.arange(256, dtype=torch.uint8)
        g = torch.Generator().manual_seed(0)
        bits = torch.randint(-(2**31), 2**31, (20000,), generator=g).to(torch.int32)
        powers = torch.exp2(torch.arange(-150.0, 128))
        near = torch.cat([powers * f for f in (1, 1.0625, 1.125, 1.1875, 1.25, 1.375, 1.5, 1.75, 1.9375)])
        steps = torch.cat([near, near.nextafter(torch.tensor(0.0)), near.nextafter(torch.tensor(float("inf")))])
        special = torch.tensor([0.0, -0.0, float("nan"), float("inf"), 240, 248, 57344, 61440, 1e-45])
        self.numbers = torch.cat([bits.view(torch.float32), steps, -steps, special, -special])

    def test_every_code_means_what_it_does_on_the_cpu(self):
        for dtype in (*FLOAT8, *WITH_ACL):
            x = self.all.view(dtype)
            for to in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.bool, torch.complex64):
                self.assertEqual(x.npu().to(to).cpu(), x.to(to), f"{dtype} to {to}")
            self.assertEqual(x.view(16, 16).t().npu().float().cpu(), x.view(16, 16).t().float())

    def test_numbers_round_as_on_the_cpu(self):
        for dtype in FLOAT8:
            for x in (self.numbers, self.numbers.double() * 1.01, self.numbers.half(), self.numbers.bfloat16()):
                want, got = x.to(dtype).view(torch.uint8), x.npu().to(dtype).cpu().view(torch.uint8)
                wrong = (want != got).nonzero().flatten()
                self.assertEqual(wrong.tolist(), [], f"{dtype} of {x[wrong[:3]]} in {x.dtype}")
            for x in (torch.arange(-20, 300), torch.tensor([True, False]), torch.tensor([1 + 2j, 3.0])):
                self.assertTrue(torch.equal(x.npu().to(dtype).cpu().view(torch.uint8), x.to(dtype).view(torch.uint8)))
            views = self.numbers[:12].view(3, 4).t()
            self.assertEqual(codes(views.npu().to(dtype)), codes(views.to(dtype)))
            between = self.all.view(dtype).npu().to(torch.float8_e4m3fn).to(dtype)
            self.assertEqual(codes(between), codes(self.all.view(dtype).to(torch.float8_e4m3fn).to(dtype)))

    def test_operators(self):
        calls = {
            "eq": lambda x, y: x == y, "ne": lambda x, y: x != y, "mul": lambda x, y: x * y,
            "equals a number": lambda x, y: (x == 0.1) | (x == 2), "differs": lambda x, y: x != 3,
            "any": lambda x, y: x.any(), "all": lambda x, y: x.all(), "isnan": lambda x, y: x.isnan(),
            "abs": lambda x, y: x.abs(), "eq of views": lambda x, y: x.view(16, 16).t() == y.view(16, 16),
        }  # fmt: skip
        for dtype in (*FLOAT8, *WITH_ACL):
            x = self.all.view(dtype)
            y = self.all.roll(1).view(dtype)
            for name, call in calls.items():
                with self.subTest(name=name, dtype=dtype):
                    if name == "abs" and dtype is torch.float8_e8m0fnu:
                        with self.assertRaisesRegex(NotImplementedError, "abs"):
                            call(x.npu(), y.npu())
                        continue
                    want, got = call(x, y), call(x.npu(), y.npu())
                    self.assertEqual((got.dtype, got.shape), (want.dtype, want.shape))
                    if name == "mul":  # NaN has several codes
                        self.assertEqual(got.cpu().float(), want.float())
                    else:
                        self.assertEqual(codes(got), codes(want))
                    out = torch.empty_like(want, device="npu")
            self.assertEqual(codes(torch.eq(x.npu(), y.npu(), out=out[:0].bool())), codes(x == y))


if __name__ == "__main__":
    run_tests()
