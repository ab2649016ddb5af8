"""Norms and gated units with scales for blocks (torch/npu/operators/block_layers.py) against their definitions."""

from llm_ops_case import Call, LlmOpsTestCase, run_tests
from test_block_numbers import FLOAT4, mx
from test_grouped_numbers import ceiled, grouped_mx

import torch


def dtype_of(number):
    return {23: torch.float8_e5m2, 24: torch.float8_e4m3fn, 291: torch.float8_e5m2, 296: FLOAT4}[number]


def norm(x, gamma, half, *, beta=None, epsilon=1e-6, dst_type=296, round_mode="rint"):
    # What is divided into blocks has been rounded to the dtype of x.
    out = x / (x.square().mean(-1, keepdim=True) + epsilon).sqrt() * gamma
    out = (out if beta is None else out + beta).float().to(half).double()
    return mx(out, x.dim() - 1, dtype_of(dst_type), round_mode)


def both(out, group_index, scale_alg, dst_type, round_mode="rint"):
    out = out.float().double()
    dtype = dtype_of(dst_type)
    if scale_alg == 0:
        last = mx(out, 1, dtype, round_mode)
    else:
        turned, bytes_of = ceiled(out.t().contiguous(), dtype)
        last = turned.t(), bytes_of.transpose(0, 1)
    ends = torch.tensor([len(out)]) if group_index is None else group_index
    given = {"dst_type": {291: 23}.get(dst_type, dst_type), "scale_alg": scale_alg, "round_mode": round_mode}
    numbers, scales = grouped_mx(out, ends, **given)
    # Without groups there is no row for what is not full.
    return *last, numbers, scales[: -(-len(out) // 64)] if group_index is None else scales


def swiglu(x, *, group_index=None, activate_left=True, scale_alg=1, dst_type=24, round_mode="rint"):
    a, b = x.chunk(2, 1) if activate_left else x.chunk(2, 1)[::-1]
    return both(a / (1 + torch.exp(-a)) * b, group_index, scale_alg, dst_type, round_mode)


def swiglu_grad(x, y_grad, *, group_index=None, activate_left=True, scale_alg=1, dst_type=24, round_mode="rint"):
    given = x.clone().requires_grad_()
    a, b = given.chunk(2, 1) if activate_left else given.chunk(2, 1)[::-1]
    (a / (1 + torch.exp(-a)) * b).backward(y_grad)
    return both(given.grad, group_index, scale_alg, dst_type, round_mode)


def exact_halves(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed + sum(shape))).half()


def calls() -> list[Call]:
    x, y = exact_halves(3, 70), exact_halves(3, 70, seed=1)
    gamma, beta = exact_halves(70, seed=2), exact_halves(70, seed=3)
    rms, add = "npu_rms_norm_dynamic_mx_quant", "npu_add_rms_norm_dynamic_mx_quant"
    forward, backward = "npu_swiglu_mx_quant_with_dual_axis", "_npu_swiglu_backward_mx_quant_with_dual_axis"
    wide, grad = exact_halves(100, 12), exact_halves(100, 6)
    ends = torch.tensor([30, 30, 100])
    near = (0.0, 0.0)

    def plain(x, gamma, **given):
        return *norm(x, gamma, torch.float16, **given), torch.empty(0)

    def added(x1, x2, gamma, **given):
        numbers, scales = norm(x1 + x2, gamma, torch.float16, **given)
        return numbers, (x1 + x2).half(), scales, torch.empty(0)

    return [
        Call(rms, (x, gamma), {}, plain, near),
        Call(rms, (x, gamma), {"beta": beta, "dst_type": 24}, plain, near),
        Call(rms, (x, gamma), {"round_mode": "round", "epsilon": 1e-2}, plain, near),
        Call(add, (x, y, gamma), {"dst_type": 291}, added, near),
        Call(add, (x, y, gamma), {"beta": beta}, added, near),
        Call(forward, (wide,), {}, swiglu, near),
        Call(forward, (wide,), {"group_index": ends, "activate_left": False}, swiglu, near),
        Call(forward, (wide,), {"scale_alg": 0, "dst_type": 296}, swiglu, near),
        Call(forward, (wide,), {"scale_alg": 0, "dst_type": 23, "group_index": ends}, swiglu, near),
        Call(backward, (wide, grad), {}, swiglu_grad, near),
        Call(backward, (wide, grad), {"group_index": ends, "activate_left": False, "scale_alg": 0}, swiglu_grad, near),
    ]


class TestBlockLayers(LlmOpsTestCase):
    def test_calls(self):
        self.check_calls("block_layers", calls())

    def test_factors_for_a_gradient(self):
        x = torch.randn(2, 64).half().npu().requires_grad_()
        *_, factor = torch.npu_rms_norm_dynamic_mx_quant(x, torch.ones(64).half().npu())
        self.assertEqual(factor, (x.detach().float().square().mean(1, keepdim=True) + 1e-6).rsqrt())

    def test_refusals(self):
        x, gamma = torch.ones(4, 64).half().npu(), torch.ones(64).half().npu()
        rms, dual = torch.npu_rms_norm_dynamic_mx_quant, torch.npu_swiglu_mx_quant_with_dual_axis
        for error, message, call in (
            (NotImplementedError, "scale_alg must be 0", lambda: rms(x, gamma, scale_alg=1)),
            (RuntimeError, "gamma must be of shape", lambda: rms(x, gamma[:3])),
            (RuntimeError, "x must be one of", lambda: rms(x.float(), gamma)),
            (NotImplementedError, "scale_alg must be one of", lambda: dual(x, scale_alg=2)),
            (NotImplementedError, "scale_alg must be one of", lambda: dual(x, dst_type=296)),
            (RuntimeError, "x must be of two dimensions", lambda: dual(x[None])),
        ):
            with self.assertRaisesRegex(error, message):
                call()


if __name__ == "__main__":
    run_tests()
