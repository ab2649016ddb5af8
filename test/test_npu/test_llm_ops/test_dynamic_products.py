"""Products that quantise their left operand (torch/npu/operators/dynamic_products.py) against their formulas."""

from llm_ops_case import Call, LlmOpsTestCase, run_tests

import torch


def quantised(x, x_scale, smooth_scale):
    x = x if smooth_scale is None else x * smooth_scale
    scale = x.abs().amax(1, keepdim=True) / 127 if x_scale is None else x_scale.view(-1, 1)
    # Halves of a step may fall to either side in float32.
    return (x.float() / scale.float()).round().clamp(-128, 127).double(), scale


def dequant(x, weight, weight_scale, *, x_scale=None, smooth_scale=None, quant_mode="pertoken"):
    numbers, scale = quantised(x, x_scale, smooth_scale)
    if weight_scale.dtype is torch.int64:
        return numbers @ weight.double().T * weight_scale.int().view(torch.float32).double()
    return numbers @ weight.double().T * weight_scale.double() * scale


def grouped(x, weight, weight_scale, group_list, **given):
    out, start = torch.zeros(len(x), weight.shape[1], dtype=torch.double), 0
    for i, end in enumerate(group_list.tolist()):
        one = dict(given)
        if given.get("x_scale") is not None and given.get("quant_mode") != "pertensor":
            one["x_scale"] = given["x_scale"][start:end]
        out[start:end] = dequant(x[start:end], weight[i], weight_scale[i], **one)
        start = end
    return out


def calls() -> list[Call]:
    generator = torch.Generator().manual_seed(11)

    def r(*shape):
        return torch.randn(shape, generator=generator)

    x = r(6, 32).half()
    weight = torch.randint(-128, 128, (2, 5, 32), generator=generator).to(torch.int8)
    scale = r(2, 5).abs() / 100 + 1e-3
    bits = scale.view(torch.int32).long()
    rows, whole = r(6).abs() / 30 + 0.01, torch.tensor([0.05])
    smooth = r(32).half()
    groups = torch.tensor([2, 5])
    found = []
    for given in (
        {},
        {"x_scale": rows, "smooth_scale": smooth},
        {"x_scale": whole, "quant_mode": "pertensor"},
        {"x_scale": whole.half(), "quant_mode": "pertensor"},
    ):
        held = bits if given.get("x_scale", scale).dtype is torch.float16 else scale
        near = (1e-3, 2e-2)
        found.append(Call("npu_quant_matmul_dequant", (x, weight[0], held[0]), given, dequant, near))
        found.append(Call("npu_quant_grouped_matmul_dequant", (x, weight, held, groups), given, grouped, near))
    return found


class TestDynamicProducts(LlmOpsTestCase):
    def test_calls(self):
        self.check_family("dynamic_products", calls())
        for call in calls():
            with self.subTest(name=call.name, given=list(call.kwargs)):
                self.check_call(call)
                self.check_compiled(call)

    def test_refusals(self):
        x, weight, scale = (t.npu() for t in calls()[0].args)
        run = torch.npu_quant_matmul_dequant
        for error, message, call in (
            (NotImplementedError, "bias must be None", lambda: run(x, weight, scale, bias=scale)),
            (RuntimeError, "pertensor needs x_scale", lambda: run(x, weight, scale, quant_mode="pertensor")),
            (RuntimeError, "quantized_weight .n, k.", lambda: run(x, weight.t(), scale)),
            (RuntimeError, "torch.int64 needs x_scale", lambda: run(x, weight, scale.long())),
            (RuntimeError, "quant_mode must be", lambda: run(x, weight, scale, quant_mode="pergroup")),
        ):
            with self.assertRaisesRegex(error, message):
                call()


if __name__ == "__main__":
    run_tests()
