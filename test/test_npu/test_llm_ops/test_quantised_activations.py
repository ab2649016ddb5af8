"""Gated units and quantised activations (torch/npu/operators/quantised_activations.py) against their definitions."""

import math

from llm_ops_case import Call, LlmOpsTestCase, run_tests

import torch


def swish(z, alpha=1.0):
    return z / (1 + torch.exp(-alpha * z))


def quantised(y, mode, offset, dtype=torch.int8):
    most = 7 if dtype is torch.quint4x2 else 127
    scale = torch.zeros(len(y))
    if mode:
        scale = torch.stack([row.abs().max() / most for row in y])
        y = y / torch.where(scale == 0, 1, scale)[:, None]
    elif offset is not None:
        y = y + offset
    y = y.round().clamp(-most - 1, most)
    if dtype is torch.quint4x2:
        rows = [
            [sum((int(v) & 15) << 4 * i for i, v in enumerate(row[j : j + 8])) for j in range(0, len(row), 8)]
            for row in y
        ]
        y = torch.tensor(rows).to(torch.int32)
    return y, scale


def groups_of(index, kind, rows):
    """The group of each row; None after the last group."""
    ends = torch.tensor(index.tolist()).cumsum(0) if kind else index
    return [next((g for g, end in enumerate(ends) if row < end), None) for row in range(rows)]


def swiglu_quant(x, *, smooth_scales=None, offsets=None, group_index=None, activate_left=False, quant_mode=0, **given):
    rows = x.reshape(-1, x.shape[-1])
    left, right = rows[:, : rows.shape[1] // 2], rows[:, rows.shape[1] // 2 :]
    y = swish(left) * right if activate_left else swish(right) * left
    offset = None
    if smooth_scales is not None:
        group = [0] * len(y)
        if group_index is not None:
            group = groups_of(group_index, given.get("group_list_type", 0), len(y))
        y = torch.stack([row * smooth_scales[g] if g is not None else row * 0 for row, g in zip(y, group, strict=True)])
        if offsets is not None:
            offset = torch.stack([y[0] * 0 + (offsets[g] if g is not None else 0) for g in group])
    numbers, scale = quantised(y, quant_mode, offset, given.get("dst_type") or torch.int8)
    return numbers.view(*x.shape[:-1], -1), scale.view(x.shape[:-1])


def dequant_swiglu_quant(x, **given):
    tokens, width = x.shape
    y, group = x.double(), [0] * len(x)
    if given.get("group_index") is not None:
        group = groups_of(given["group_index"], 1, tokens)
    if given.get("bias") is not None:
        y = y + given["bias"]
    for row, g in enumerate(group):
        if given.get("weight_scale") is not None:
            y[row] *= given["weight_scale"][g or 0]
        if given.get("activation_scale") is not None:
            y[row] *= given["activation_scale"][row]
    mode, left = given.get("swiglu_mode", 0), given.get("activate_left", False)
    first, second = (y[:, ::2], y[:, 1::2]) if mode == 1 else (y[:, : width // 2], y[:, width // 2 :])
    if mode != 1 and not left:
        first, second = second, first
    if mode == 0:
        y = swish(first) * second
    else:
        limit, alpha = given.get("clamp_limit", 7.0), given.get("glu_alpha", 1.702)
        y = swish(first.clamp(max=limit), alpha) * (second.clamp(-limit, limit) + given.get("glu_bias", 1.0))
    for row, g in enumerate(group):
        if g is None:
            y[row] = 0
        elif given.get("quant_scale") is not None:
            y[row] *= given["quant_scale"][g]
    return quantised(y, given.get("quant_mode", 0), given.get("quant_offset"))


def clipped_swiglu(x, *, group_index=None, dim=-1, alpha=1.702, limit=7.0, bias=1.0, interleaved=True):
    dim = dim % x.dim()
    rows = x.reshape(math.prod(x.shape[:dim]), -1)
    half = rows.shape[1] // 2
    a, b = (rows[:, ::2], rows[:, 1::2]) if interleaved else (rows[:, :half], rows[:, half:])
    y = swish(a.clamp(max=limit), alpha) * (b.clamp(-limit, limit) + bias)
    if group_index is not None:
        y[int(group_index.sum()) :] = 0
    return y.view(*x.shape[:dim], x.shape[dim] // 2, *x.shape[dim + 1 :])


def gelu_quant(x, *, input_scale=None, input_offset=None, approximate="none", quant_mode="dynamic", dst_type=None):
    if approximate == "tanh":
        y = 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    else:
        y = 0.5 * x * (1 + torch.erf(x / math.sqrt(2)))
    y = y if input_scale is None else y * input_scale
    if quant_mode == "static":
        return (y if input_offset is None else y + input_offset).round().clamp(-128, 127), torch.empty(0)
    if dst_type is None:
        numbers, scale = quantised(y.reshape(-1, y.shape[-1]), 1, None)
        return numbers.view(x.shape), scale.view(x.shape[:-1])
    scale = y.abs().amax(-1) / 448
    return (y / scale[..., None]).float().to(dst_type), scale


def calls() -> list[Call]:
    generator = torch.Generator().manual_seed(9)

    def r(*shape):
        return torch.randn(*shape, generator=generator)

    ends, sizes = torch.tensor([2, 2, 5], dtype=torch.int32), torch.tensor([2, 0, 4])
    x32 = torch.randint(-300, 300, (7, 32), generator=generator, dtype=torch.int32)
    dequant = {"weight_scale": r(3, 32) / 50, "activation_scale": r(7, 1).abs()}
    one = {"weight_scale": dequant["weight_scale"][:1], "activation_scale": dequant["activation_scale"]}
    name = "npu_dequant_swiglu_quant"
    return [
        Call("npu_swiglu_quant", (r(2, 3, 32),), {"quant_mode": 1, "activate_left": True}, swiglu_quant),
        Call("npu_swiglu_quant", (r(6, 32).half(),), {"quant_mode": 1, "dst_type": torch.quint4x2}, swiglu_quant),
        Call(
            "npu_swiglu_quant",
            (r(6, 32),),
            {"smooth_scales": r(3, 16) * 9, "offsets": r(3, 16) * 5, "group_index": ends},
            swiglu_quant,
        ),
        Call(
            "npu_swiglu_quant",
            (r(6, 32).bfloat16(),),
            {"smooth_scales": r(3).abs(), "group_index": sizes.int(), "group_list_type": 1, "quant_mode": 1},
            swiglu_quant,
        ),
        Call(name, (x32,), {**one, "quant_mode": 1, "bias": x32[0] // 4, "activate_left": True}, dequant_swiglu_quant),
        Call(
            name,
            (x32,),
            {**dequant, "group_index": sizes, "quant_mode": 1, "quant_scale": r(3, 16)},
            dequant_swiglu_quant,
        ),
        Call(name, (x32,), {**one, "quant_scale": r(1, 16) * 9, "quant_offset": r(1, 16)}, dequant_swiglu_quant),
        *(
            Call(
                name,
                (r(5, 32).half() * 4,),
                {"swiglu_mode": mode, "quant_mode": 1, "clamp_limit": 3.0, "glu_bias": 0.5},
                dequant_swiglu_quant,
            )
            for mode in (1, 2)
        ),
        Call("npu_clipped_swiglu", (r(6, 32) * 4,), {"group_index": sizes[:2], "limit": 5.0}, clipped_swiglu),
        Call("npu_clipped_swiglu", (r(2, 6, 5).half(),), {"dim": 1, "interleaved": False}, clipped_swiglu),
        Call("npu_clipped_swiglu", (r(2, 6, 5),), {"dim": 1, "alpha": 1.0, "bias": 0.0}, clipped_swiglu),
        Call("npu_gelu_quant", (r(2, 3, 16),), {"input_scale": r(16)}, gelu_quant),
        Call("npu_gelu_quant", (r(4, 16).half(),), {"approximate": "tanh"}, gelu_quant),
        Call(
            "npu_gelu_quant",
            (r(4, 16),),
            {"quant_mode": "static", "input_scale": r(1) * 30, "input_offset": r(1)},
            gelu_quant,
        ),
        Call("npu_gelu_quant", (r(4, 16),), {"dst_type": torch.float8_e4m3fn}, gelu_quant),
    ]


class TestQuantisedActivations(LlmOpsTestCase):
    def test_calls(self):
        self.check_calls("quantised_activations", calls())

    def test_gradient(self):
        x = torch.randn(3, 8, dtype=torch.double) * 4
        (expected,) = torch.autograd.grad(clipped_swiglu(x.requires_grad_(), limit=2.0).sum(), x)
        y = x.detach().float().npu().requires_grad_()
        (got,) = torch.autograd.grad(torch.ops.npu.npu_clipped_swiglu(y, limit=2.0).sum(), y)
        self.assertEqual(got.cpu().double(), expected, atol=1e-5, rtol=1e-5)

    def test_refusals(self):
        x, words = torch.randn(2, 8).npu(), torch.ones(2, 8, dtype=torch.int32).npu()
        swiglu, dequant = torch.ops.npu.npu_swiglu_quant, torch.ops.npu.npu_dequant_swiglu_quant
        gelu = torch.ops.npu.npu_gelu_quant
        for message, error, call in (
            ("the last dimension must be even", RuntimeError, lambda: swiglu(x[:, :7])),
            ("dst_type must be one of", NotImplementedError, lambda: swiglu(x, dst_type=torch.uint8)),
            (r"smooth_scales must be of shape \(1, 4\)", RuntimeError, lambda: swiglu(x, smooth_scales=x)),
            ("needs activation_scale", RuntimeError, lambda: dequant(words)),
            ("has no activation_scale", RuntimeError, lambda: dequant(x.half(), activation_scale=x[:, :1])),
            ("activate_dim must be the last", NotImplementedError, lambda: dequant(x.half(), activate_dim=0)),
            ("round_mode must be 0, not 1", NotImplementedError, lambda: dequant(x.half(), round_mode=1)),
            ("round_mode must be 'rint'", NotImplementedError, lambda: gelu(x, round_mode="round")),
            ("needs input_scale", RuntimeError, lambda: gelu(x, quant_mode="static")),
        ):
            with self.assertRaisesRegex(error, message):
                call()


if __name__ == "__main__":
    run_tests()
