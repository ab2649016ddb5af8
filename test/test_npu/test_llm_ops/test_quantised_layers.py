"""Layers with quantised results (torch/npu/operators/quantised_layers.py) against their definitions."""

from llm_ops_case import Call, LlmOpsTestCase, run_tests
from test_block_numbers import mx
from test_quantised_activations import swish
from test_quantised_products import packed

import torch


def conv(x, weight, scale, strides=(1, 1), pads=(0, 0), *, offset_x=0, bias=None, factor=None, **_):
    batch, _, height, width = x.shape
    rows, columns = pads
    grown = torch.full((batch, x.shape[1], height + 2 * rows, width + 2 * columns), offset_x).long()
    grown[:, :, rows : rows + height, columns : columns + width] = x
    outputs, _, tall, wide = weight.shape
    found = []
    for i in range(0, grown.shape[2] - tall + 1, strides[0]):
        for j in range(0, grown.shape[3] - wide + 1, strides[1]):
            found.append(torch.einsum("bchw,ochw->bo", grown[:, :, i : i + tall, j : j + wide], weight.long()))
    side = (grown.shape[2] - tall) // strides[0] + 1
    out = torch.stack(found, -1).view(batch, outputs, side, -1).double()
    out = out if bias is None else out + bias[:, None, None]
    return out * (scale if factor is None else factor)[:, None, None]


def rows_as(y, most):
    scale = y.abs().amax(1) / most
    return (y / scale[:, None]).round(), scale


def rotate(x, rotation, *, dst_dtype=None):
    k = len(rotation)
    y = torch.cat([x[:, i : i + k] @ rotation for i in range(0, x.shape[1], k)], 1)
    numbers, scale = rows_as(y, 127 if dst_dtype is None else 7)
    return numbers if dst_dtype is None else packed(numbers), scale


def kronecker(x, p1, p2, clip_ratio=1.0):
    y = torch.stack([p1 @ (each @ p2) for each in x])
    scale = y.abs().amax((1, 2)) * clip_ratio / 7
    return packed((y / scale[:, None, None]).round().clamp(-8, 7)), scale


def quant_max(x, scale, *, dst_dtype=291):
    most, dtype = (57344.0, torch.float8_e5m2) if dst_dtype == 291 else (448.0, torch.float8_e4m3fn)
    return (x * scale).clamp(-most, most).float().to(dtype), x.abs().max().view(1)


def swiglu_mx(x, *, group_index=None, activate_left=False, swiglu_mode=0, axis=-1, dst_type=296, **given):
    half = x.shape[-1] // 2
    a, b = (x[..., ::2], x[..., 1::2]) if swiglu_mode == 1 else (x[..., :half], x[..., half:])
    a, b = (a, b) if activate_left or swiglu_mode == 1 else (b, a)
    if swiglu_mode:
        limit = given["clamp_limit"]
        y = swish(a.clamp(max=limit), 1.702) * (b.clamp(-limit, limit) + 1)
    else:
        y = swish(a) * b
    if group_index is not None:
        y[int(group_index.sum()) :] = 0
    dtype = torch.float4_e2m1fn_x2 if dst_type == 296 else torch.float8_e4m3fn
    return mx(y, axis % y.dim(), dtype)


def calls() -> list[Call]:
    generator = torch.Generator().manual_seed(16)

    def r(*shape):
        return torch.randn(*shape, generator=generator)

    def whole(*shape):
        return torch.randint(-128, 128, shape, generator=generator).to(torch.int8)

    scale = torch.full((5,), 2.0**-9)
    bits = scale.view(torch.int32).long() | 1 << 46

    def with_bits(*args, **kwargs):
        return conv(*args, **kwargs, factor=scale)

    half = {"output_dtype": torch.float16}
    more = {**half, "offset_x": 3, "bias": torch.arange(5, dtype=torch.int32) * 100}
    return [
        Call("npu_quant_conv2d", (whole(2, 3, 6, 7), whole(5, 3, 2, 3), scale * 2, [2, 1], [1, 2]), more, conv),
        Call("npu_quant_conv2d", (whole(1, 3, 5, 5), whole(5, 3, 3, 3), bits), half, with_bits),
        Call("npu_rotate_quant", (r(5, 64).half(), r(16, 16).half()), {}, rotate),
        Call("npu_rotate_quant", (r(5, 64).bfloat16(), r(32, 32).bfloat16()), {"dst_dtype": torch.quint4x2}, rotate),
        Call("npu_kronecker_quant", (r(3, 4, 16).half(), r(4, 4).half(), r(16, 16).half()), {}, kronecker),
        Call("npu_kronecker_quant", (r(3, 4, 8).half(), r(4, 4).half(), r(8, 8).half(), 0.75), {}, kronecker),
        Call("npu_quant_max", (r(3, 5), torch.tensor([300.0])), {"dst_dtype": 292}, quant_max),
        Call("npu_quant_max", (r(2, 3, 5).half(), torch.tensor([2.0])), {}, quant_max),
        Call("npu_swiglu_mx_quant", (r(4, 128).half(),), {"dst_type": torch.float8_e4m3fn}, swiglu_mx),
        Call("npu_swiglu_mx_quant", (r(2, 40, 12).half(),), {"axis": -2, "activate_left": True}, swiglu_mx),
        Call(
            "npu_swiglu_mx_quant",
            (r(6, 128).bfloat16() * 3,),
            {"swiglu_mode": 1, "clamp_limit": 2.0, "group_index": torch.tensor([2, 3]), "dst_type": 292},
            swiglu_mx,
        ),
        Call("npu_swiglu_mx_quant", (r(6, 64).half() * 3,), {"swiglu_mode": 2, "clamp_limit": 2.0}, swiglu_mx),
    ]


class TestQuantisedLayers(LlmOpsTestCase):
    def test_calls(self):
        self.check_calls("quantised_layers", calls())

    def test_refusals(self):
        x, ops = torch.randn(2, 64).half().npu(), torch.ops.npu
        small = torch.ones(1, 1, 2, 2, dtype=torch.int8).npu()
        one = torch.ones(1).npu()
        for message, error, call in (
            ("output_dtype must be given", NotImplementedError, lambda: ops.npu_quant_conv2d(small, small, one)),
            ("groups must be 1", NotImplementedError, lambda: ops.npu_quant_conv2d(small, small, one, groups=2)),
            ("scale_alg must be 0, not 1", NotImplementedError, lambda: ops.npu_rotate_quant(x, x, scale_alg=1)),
            ("rotation", RuntimeError, lambda: ops.npu_rotate_quant(x, x)),
            ("clip_ratio must be", RuntimeError, lambda: ops.npu_kronecker_quant(x[None], x[:, :2], x.T @ x, 2.0)),
            ("group_list must be None", NotImplementedError, lambda: ops.npu_quant_max(x, one, group_list=one)),
            ("swiglu_mode must be one of", NotImplementedError, lambda: ops.npu_swiglu_mx_quant(x, swiglu_mode=3)),
            ("scale_alg must be one of", NotImplementedError, lambda: ops.npu_swiglu_mx_quant(x, scale_alg=1)),
        ):
            with self.assertRaisesRegex(error, message):
                call()


if __name__ == "__main__":
    run_tests()
