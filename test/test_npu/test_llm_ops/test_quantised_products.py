"""Products of quantised matrices (torch/npu/operators/quantised_products.py) against their definitions."""

import math

from llm_ops_case import Call, LlmOpsTestCase, packed, run_tests

import torch


def gelu(y, approximate):
    if approximate == "gelu_tanh":
        return 0.5 * y * (1 + torch.tanh(math.sqrt(2 / math.pi) * (y + 0.044715 * y**3)))
    return 0.5 * y * (1 + torch.erf(y / math.sqrt(2)))


def matmul_gelu(x1, x2, x1_scale, x2_scale, *, bias=None, approximate="gelu_erf", a=None, b=None):
    a, b = (x1 if a is None else a).double(), (x2 if b is None else b).double()
    early = bias is not None and not bias.is_floating_point()
    y = a @ b + (bias if early else 0)
    y = y * x2_scale * x1_scale[:, None]
    return gelu(y if bias is None or early else y + bias, approximate)


def reduce_sum(x1, x2, *, x1_scale, x2_scale):
    return sum((a.double() @ b.double()) * s[:, None] for a, b, s in zip(x1, x2, x1_scale, strict=True)) * x2_scale


def dequant(x, weight_scale, activation_scale, bias, *, output_dtype):
    early = bias is not None and not bias.is_floating_point()
    y = (x + bias if early else x).double() * weight_scale
    y = y if activation_scale is None else y * activation_scale[:, None]
    return y if bias is None or early else y + bias


def transpose_batchmatmul(x, weight, *, scale=None, perm_x1=None, batch_split_factor=1, factor=None):
    a = x if perm_x1 in (None, [0, 1, 2]) else x.transpose(0, 1)
    y = torch.stack([m @ w for m, w in zip(a, weight, strict=True)], 1)
    if factor is not None:
        return (y.reshape(len(y), 1, -1) * factor).round().clamp(-128, 127)
    parts = y.reshape(len(y), -1).chunk(batch_split_factor, 1)
    return y if batch_split_factor == 1 else torch.stack(parts)


def scales(generator, *shape):
    return torch.randint(122, 132, shape, generator=generator, dtype=torch.uint8)


def each(byte, axis):
    """The factor of each of the 32 numbers that a byte belongs to, the pairs along an axis."""
    power = torch.exp2(byte.double() - 127).movedim(axis, -2)
    return power.flatten(-2).repeat_interleave(32, -1).movedim(-1, axis)


def transpose_quant(x1, x2, dtype, *, x1_scale, x2_scale, perm_x2=None, **_):
    if x1_scale.dim() == 4:
        deep = 2 if perm_x2 == [0, 2, 1] else 1
        x1, x2 = x1 * each(x1_scale, 2), x2 * each(x2_scale, deep)
        x2 = x2.transpose(1, 2) if deep == 2 else x2
        x1_scale = x2_scale = None
    y = torch.einsum("mbk,bkn->mbn", x1, x2)
    return y if x1_scale is None else y * x1_scale[:, None, None] * x2_scale


def add_quant(self, x1, x2, x2_scale, *, x1_scale, **_):
    k = len(x1)
    return self + (x1 * each(x1_scale, 0)[:k]).T @ (x2 * each(x2_scale, 0)[:k])


def calls() -> list[Call]:
    generator = torch.Generator().manual_seed(11)

    def r(*shape):
        return torch.randn(*shape, generator=generator)

    def whole(least, after, *shape, dtype=torch.int8):
        return torch.randint(least, after, shape, generator=generator).to(dtype)

    def eights(*shape):
        return r(*shape).to(torch.float8_e4m3fn)

    a, b = whole(-128, 128, 2, 5, 24), whole(-128, 128, 24, 16)
    by_row, by_column = r(5).abs() / 64, r(16).abs() / 64
    four_a, four_b = whole(-8, 8, 5, 24), whole(-8, 8, 24, 16)

    def fours(*args, **kwargs):
        return matmul_gelu(*args, **kwargs, a=four_a, b=four_b)

    turned = packed(four_b.t().contiguous()).t()
    factor = torch.tensor([0.5, 2.0, 0.25, 8.0]).repeat(12)
    bits = factor.view(torch.int32).long() | 1 << 46

    def with_factor(*args, **kwargs):
        return transpose_batchmatmul(*args, **kwargs, factor=factor)

    gelu_op, batch_op = "npu_quant_matmul_gelu", "npu_transpose_batchmatmul"
    blocks = (r(20, 6), eights(70, 20), eights(70, 6), scales(generator, 2, 6, 2))
    added = {"x1_scale": scales(generator, 2, 20, 2), "group_sizes": [1, 1, 32]}
    x1, x2 = eights(3, 4, 64), eights(4, 64, 5)
    mx = {"x1_scale": scales(generator, 3, 4, 1, 2), "group_sizes": [1, 1, 32]}
    return [
        Call("npu_convert_weight_to_int4pack", (four_b.int(),), {}, packed),
        Call(gelu_op, (a, b, by_row, by_column), {"bias": whole(-99, 99, 16, dtype=torch.int32)}, matmul_gelu),
        Call(
            gelu_op,
            (a, b.t().contiguous().t(), by_row, by_column.bfloat16()),
            {"bias": r(2, 1, 16), "approximate": "gelu_tanh"},
            matmul_gelu,
        ),
        Call(gelu_op, (a, b, by_row, by_column[:1]), {"bias": r(16).bfloat16()}, matmul_gelu),
        Call(gelu_op, (packed(four_a), packed(four_b), by_row, by_column), {}, fours),
        Call(gelu_op, (packed(four_a), turned, by_row, by_column), {}, fours),
        Call(
            "npu_quant_matmul_reduce_sum",
            (a, whole(-128, 128, 2, 24, 16)),
            {"x1_scale": r(2, 5) / 64, "x2_scale": by_column.bfloat16()},
            reduce_sum,
        ),
        Call(
            "npu_dequant_bias",
            (whole(-9999, 9999, 5, 16, dtype=torch.int32), by_column, by_row, whole(-99, 99, 16, dtype=torch.int32)),
            {"output_dtype": torch.float16},
            dequant,
        ),
        Call(
            "npu_dequant_bias",
            (whole(-9999, 9999, 5, 16, dtype=torch.int32), by_column.bfloat16(), None, r(16)),
            {"output_dtype": torch.bfloat16},
            dequant,
        ),
        Call(batch_op, (r(3, 5, 32), r(3, 32, 16)), {}, transpose_batchmatmul),
        Call(
            batch_op,
            (r(5, 3, 32).half(), r(3, 32, 16).half()),
            {"perm_x1": [1, 0, 2], "batch_split_factor": 3},
            transpose_batchmatmul,
        ),
        Call(batch_op, (r(3, 5, 32), r(3, 32, 16)), {"scale": bits}, with_factor),
        Call(
            "npu_transpose_quant_batchmatmul",
            (x1, x2, torch.float16),
            {"x1_scale": r(3).abs(), "x2_scale": r(5).abs()},
            transpose_quant,
        ),
        Call(
            "npu_transpose_quant_batchmatmul",
            (x1, x2, torch.bfloat16),
            {**mx, "x2_scale": scales(generator, 4, 1, 5, 2)},
            transpose_quant,
        ),
        Call(
            "npu_transpose_quant_batchmatmul",
            (x1, x2.transpose(1, 2).contiguous(), torch.float16),
            {**mx, "x2_scale": scales(generator, 4, 5, 1, 2), "perm_x2": [0, 2, 1]},
            transpose_quant,
        ),
        Call("npu_add_quant_matmul", blocks, added, add_quant),
        Call("npu_add_quant_matmul_", blocks, added, add_quant),
    ]


class TestQuantisedProducts(LlmOpsTestCase):
    def test_calls(self):
        self.check_calls("quantised_products", calls())

    def test_packed_weights(self):
        """What is packed multiplies as the numbers do: as it is, and turned."""
        x, weight = torch.randn(5, 16).half(), torch.randint(-8, 8, (16, 24), dtype=torch.int32)
        scale, offset = torch.rand(1, 24).half(), torch.randn(1, 24).half()
        expected = x.double() @ ((weight + offset.double()) * scale.double())
        rows = torch.ops.npu.npu_convert_weight_to_int4pack(weight.npu())
        turned = torch.ops.npu.npu_convert_weight_to_int4pack(weight.t().contiguous().npu()).t()
        for words in (rows, turned):
            y = torch.npu_weight_quant_batchmatmul(x.npu(), words, scale.npu(), offset.npu())
            self.assertEqual(y.cpu().double(), expected, atol=0.1, rtol=2e-2)

    def test_refusals(self):
        x, small = torch.randn(2, 8).npu(), torch.ones(2, 8, dtype=torch.int8).npu()
        ops = torch.ops.npu
        gelu_op, words = ops.npu_quant_matmul_gelu, small.int()
        for message, error, call in (
            ("weight must be one of torch.int32", RuntimeError, lambda: ops.npu_convert_weight_to_int4pack(small)),
            ("must be a multiple of 8", RuntimeError, lambda: ops.npu_convert_weight_to_int4pack(words[:, :7])),
            ("x1 and x2 must have one dtype", RuntimeError, lambda: gelu_op(small, words, x[:, 0], x[0])),
            ("x1_scale must be", RuntimeError, lambda: gelu_op(small, small.t(), x[0], x[:, 0])),
            ("x1_scale and x2_scale are needed", RuntimeError, lambda: ops.npu_quant_matmul_reduce_sum(small, small)),
            ("output_dtype must be", NotImplementedError, lambda: ops.npu_dequant_bias(words, x[0], None, None)),
            ("bias must be None", NotImplementedError, lambda: ops.npu_transpose_batchmatmul(x, x, bias=x)),
            ("x1 must be one of", RuntimeError, lambda: ops.npu_add_quant_matmul(x, x, x, small)),
        ):
            with self.assertRaisesRegex(error, message):
                call()


if __name__ == "__main__":
    run_tests()
