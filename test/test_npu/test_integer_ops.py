"""Quantising operators and products of small integers against the pages' formulas in fp64 on the CPU."""

import itertools

import numpy as np
from common_utils import TestCase, run_tests
from transformer_case import draw

import torch


def packed(numbers):
    """Eight numbers of four bits in each int32, the first in the lowest bits."""
    bits = (numbers.numpy().astype(np.int64) & 15).reshape(*numbers.shape[:-1], -1, 8)
    words = (bits << (4 * np.arange(8))).sum(-1).astype(np.uint32)
    return torch.from_numpy(words.view(np.int32))


def codes(*shape, seed=0, low=-128, high=128):
    return torch.randint(low, high, shape, generator=torch.Generator().manual_seed(seed)).to(torch.int8)


class TestQuantise(TestCase):
    def test_quantize(self):
        x = draw(3, 4, 8).float() * 4
        for div, axis, dtype in itertools.product((True, False), (1, 2, -2), (torch.qint8, torch.quint8)):
            along = axis % 3 if div or axis == -2 else 2
            shape = [1, 1, 1]
            shape[along] = x.shape[along]
            scale, zero = draw(*shape, seed=1).abs().float() + 0.1, draw(*shape, seed=2).float().round()
            scaled = x.double() / scale.double() if div else x.double() * scale.double()
            least, most, result = (-128, 127, torch.int8) if dtype is torch.qint8 else (0, 255, torch.uint8)
            expected = (scaled + zero.double()).round().clamp(least, most).to(result)
            found = torch.npu_quantize(x.npu(), scale.flatten().npu(), zero.flatten().npu(), dtype, axis, div)
            self.assertEqual(found.dtype, result)
            self.assertEqual(found.int(), expected.int(), prec=1)  # float32 may round a half the other way
            self.assertLess((found.cpu().int() != expected.int()).sum().item(), 2)
        small = torch.npu_quantize(x.npu(), torch.ones(8).npu(), None, torch.quint4x2, -1, False)
        self.assertEqual(small, packed(x.round().clamp(-8, 7)))
        with self.assertRaisesRegex(NotImplementedError, "npu_quantize: a result of dtype number"):
            torch.npu_quantize(x.npu(), torch.ones(8).npu(), None, torch.float16)

    def test_anti_quant(self):
        x, scale, offset = codes(3, 8), draw(8).float(), draw(8, seed=1).float()
        for dtype in (None, torch.float16, torch.bfloat16, torch.float32):
            found = torch.npu_anti_quant(x.npu(), scale.npu(), offset=offset.npu(), dst_dtype=dtype)
            self.assertEqual(found.dtype, dtype or torch.float16)
            self.assertEqual(found, ((x + offset) * scale).to(found.dtype))
        page = torch.npu_anti_quant(codes(4).npu() * 0 + 3, torch.tensor([2.0]).npu(), offset=torch.tensor([2.0]).npu())
        self.assertEqual(page, torch.full((4,), 10.0).half())
        numbers = codes(2, 16, low=-8, high=8)
        found = torch.npu_anti_quant(packed(numbers).npu(), torch.ones(16).npu())
        self.assertEqual(found, numbers.half())
        self.assertEqual(torch.npu_anti_quant(x.npu(), scale.npu()), (x * scale).half())

    def test_dynamic_quant(self):
        x = draw(5, 6, seed=3).half()
        smooth, ends = draw(2, 6, seed=4).half(), torch.tensor([2, 5], dtype=torch.int32)
        for scales, groups in ((None, None), (smooth[0], None), (smooth, ends)):
            wide = x.double()
            if groups is not None:
                wide = torch.cat([wide[:2] * smooth[0], wide[2:] * smooth[1]])
            elif scales is not None:
                wide = wide * scales
            there = {"smooth_scales": scales, "group_index": groups}
            there = {name: t.npu() for name, t in there.items() if t is not None}
            y, scale = torch.npu_dynamic_quant(x.npu(), **there)
            wanted = wide.abs().amax(-1) / 127
            self.assertEqual((y.dtype, scale.dtype), (torch.int8, torch.float32))
            self.assertEqual(scale, wanted.float(), prec=1e-7)
            self.assertEqual(y.int(), (wide / wanted[:, None]).round().int(), prec=1)
            self.assertEqual(y.cpu().double() * wanted[:, None], wide, prec=float(wanted.max()) * 0.51)
            y, scale, offset = torch.npu_dynamic_quant_asymmetric(x.npu(), **there)
            wanted = (wide.amax(-1) - wide.amin(-1)) / 255
            self.assertEqual(scale, wanted.float(), prec=1e-7)
            self.assertEqual(offset, (127 - wide.amax(-1) / wanted).float(), prec=1e-4)
            back = (y.cpu().double() - offset.cpu().double()[:, None]) * wanted[:, None]
            self.assertEqual(back, wide, prec=float(wanted.max()) * 0.51)
        zeros, scale = torch.npu_dynamic_quant(torch.zeros(2, 4).npu())
        self.assertEqual((zeros.abs().sum().item(), scale.abs().sum().item()), (0, 0.0))
        small, scale = torch.npu_dynamic_quant(draw(3, 16).float().npu(), dst_type=torch.quint4x2)
        numbers = (draw(3, 16) / (draw(3, 16).abs().amax(-1, keepdim=True) / 7)).round()
        self.assertEqual(small, packed(numbers))
        with self.assertRaisesRegex(NotImplementedError, "quant_mode 'pertoken'"):
            torch.npu_dynamic_quant(x.npu(), quant_mode="pertensor")

    def test_group_quant(self):
        x, scale = draw(6, 8).float() * 20, draw(3, 8, seed=1).float()
        ends, offset = torch.tensor([2, 2, 6]), torch.tensor([3.0])
        rows = torch.cat([scale[0].expand(2, 8), scale[2].expand(4, 8)])
        found = torch.npu_group_quant(x.npu(), scale.npu(), ends.npu(), offset=offset.npu())
        self.assertEqual(found, (x * rows + 3).round().clamp(-128, 127).to(torch.int8))

    def test_signs(self):
        x = draw(19).float()
        bits = np.packbits((x.numpy() >= 0), bitorder="little")
        found = torch.npu_sign_bits_pack(x.npu(), 3)
        self.assertEqual(found, torch.from_numpy(bits).view(3, 1))
        back = torch.npu_sign_bits_unpack(found.flatten(), 2, torch.float16)
        self.assertEqual((tuple(back.shape), back.dtype), ((2, 12), torch.float16))
        self.assertEqual(back.flatten()[:19].float(), torch.where(x >= 0, 1.0, -1.0))


class TestProducts(TestCase):
    def test_trans_quant_param(self):
        scale, offset = draw(6).float(), torch.tensor([-300.0, -1.4, 0.0, 2.5, 255.0, 999.0])
        bits = scale.numpy().view(np.uint32).astype(np.int64) & 0xFFFFE000 | 1 << 46
        self.assertEqual(torch.npu_trans_quant_param(scale.npu()), torch.from_numpy(bits))
        whole = np.clip(np.rint(offset.numpy()), -256, 255).astype(np.int64) & 0x1FF
        found = torch.npu_trans_quant_param(scale.npu(), offset.npu())
        self.assertEqual(found, torch.from_numpy(bits & 0x4000FFFFFFFF | whole << 37))

    def test_quant_matmul(self):
        x1, x2 = codes(2, 3, 16), codes(16, 5, seed=1)
        product = x1.double() @ x2.double()
        scale, offset = draw(5).float() * 0.01, draw(5, seed=1).float()
        rows = draw(3, seed=2).float()
        whole, part = codes(5, seed=3).int(), draw(5, seed=4).float()
        for bias, dtype, token in itertools.product((None, whole, part), (torch.float16, torch.bfloat16), (None, rows)):
            expected = product + (0 if bias is not whole else bias)
            expected = expected * scale.double() * (1 if token is None else token.double()[:, None])
            expected = expected + (bias if bias is part else 0)
            found = torch.npu_quant_matmul(
                x1.npu(),
                x2.npu(),
                scale.npu(),
                bias=None if bias is None else bias.npu(),
                pertoken_scale=None if token is None else token.npu(),
                output_dtype=dtype,
            )
            self.assertEqual(found, expected.to(dtype))
        expected = (product * scale.double() + offset.double()).round().clamp(-128, 127).to(torch.int8)
        self.assertEqual(torch.npu_quant_matmul(x1.npu(), x2.npu(), scale.npu(), offset=offset.npu()), expected)
        param = torch.npu_trans_quant_param(scale.npu(), torch.full((5,), 3.0).npu())
        cut = torch.from_numpy((scale.numpy().view(np.uint32) & 0xFFFFE000).view(np.float32))
        expected = (product * cut.double() + 3).round().clamp(-128, 127).to(torch.int8)
        self.assertEqual(torch.npu_quant_matmul(x1.npu(), x2.npu(), param), expected)
        with self.assertRaisesRegex(NotImplementedError, "factors of int8"):
            torch.npu_quant_matmul(x1.float().npu(), x2.npu(), scale.npu())

    def test_quant_matmul_of_four_bits(self):
        """Eight numbers in each int32, and a right operand that is packed as it lies or transposed."""

        def packed(numbers):
            words = np.zeros((*numbers.shape[:-1], numbers.shape[-1] // 8), dtype=np.uint32)
            for i in range(8):
                words |= (numbers[..., i::8].numpy().astype(np.int64) & 15).astype(np.uint32) << np.uint32(4 * i)
            return torch.from_numpy(words.view(np.int32))

        x1, x2 = codes(3, 16) % 16 - 8, codes(16, 24, seed=1) % 16 - 8
        scale, rows = draw(24).float() * 0.01, draw(3, seed=2).float()
        bias = codes(24, seed=3).int()
        lying, standing = packed(x2).npu(), packed(x2.t().contiguous()).npu().t()
        for right, dtype, token in itertools.product((lying, standing), (torch.float16, torch.bfloat16), (None, rows)):
            expected = np.einsum("mk,kn->mn", x1.numpy().astype(np.int64), x2.numpy().astype(np.int64))
            expected = (torch.from_numpy(expected) + bias).double() * scale.double()
            expected = expected * (1 if token is None else token.double()[:, None])
            found = torch.npu_quant_matmul(
                packed(x1).npu(),
                right,
                scale.npu(),
                bias=bias.npu(),
                pertoken_scale=None if token is None else token.npu(),
                output_dtype=dtype,
            )
            self.assertEqual(found, expected.to(dtype))
        with self.assertRaisesRegex(NotImplementedError, "with numbers of four bits output_dtype"):
            torch.npu_quant_matmul(packed(x1).npu(), lying, scale.npu())

    def test_weight_quant_batchmatmul(self):
        x, weight = draw(3, 16), codes(16, 8)
        for group, biased in itertools.product((0, 5), (False, True)):
            count = 1 if group == 0 else 4
            scale, offset, bias = draw(count, 8, seed=1) * 0.1, draw(count, 8, seed=2), draw(8, seed=3)
            spread = (t.expand(16, 8) if group == 0 else t.repeat_interleave(5, 0)[:16] for t in (scale, offset))
            factor, moved = spread
            expected = x @ ((weight + moved) * factor) + (bias if biased else 0)
            there = x.float().npu().requires_grad_()
            found = torch.npu_weight_quant_batchmatmul(
                there,
                weight.npu(),
                scale.float().npu(),
                offset.float().npu(),
                bias=bias.float().npu() if biased else None,
                antiquant_group_size=group,
            )
            self.assertEqual(found, expected.float(), prec=1e-3)
            (grad,) = torch.autograd.grad(found.sum(), there)
            self.assertEqual(grad, ((weight + moved) * factor).sum(1).expand(3, 16).float(), prec=1e-3)
        numbers = codes(16, 8, low=-8, high=8)
        found = torch.npu_weight_quant_batchmatmul(x.float().npu(), packed(numbers).npu(), torch.ones(1).npu())
        self.assertEqual(found, (x @ numbers.double()).float(), prec=1e-4)
        quantised = torch.npu_weight_quant_batchmatmul(
            x.float().npu(), numbers.npu(), torch.ones(8).npu(), quant_scale=torch.full((8,), 2.0).npu()
        )
        self.assertEqual(quantised.dtype, torch.int8)
        self.assertEqual(quantised.int(), (x @ numbers.double() * 2).round().clamp(-128, 127).int(), prec=1)


if __name__ == "__main__":
    run_tests()
