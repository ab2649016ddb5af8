"""Products by groups of rows (torch/npu/operators/grouped_products.py, npu_grouped_matmul) by their definitions."""

import math

from llm_ops_case import Call, LlmOpsTestCase, packed, run_tests

import torch


def runs(group_list, kind):
    """The rows of each group, as slices."""
    ends = group_list.cumsum(0).tolist() if kind else group_list.tolist()
    return [slice(start, end) for start, end in zip([0, *ends[:-1]], ends, strict=True)]


def products(x, weight, group_list, kind):
    y = torch.zeros(len(x), weight.shape[2], dtype=torch.double)
    for run, w in zip(runs(group_list, kind), weight, strict=True):
        y[run] = x[run].double() @ w.double()
    return y


def swiglu_quant(x, weight, weight_scale, x_scale, group_list, *, smooth_scale=None, group_list_type=0, **given):
    y = products(given.get("a", x), given.get("b", weight[0]), group_list, group_list_type)
    for g, run in enumerate(runs(group_list, group_list_type)):
        y[run] *= weight_scale[0][g] * x_scale[run, None]
    half = y.shape[1] // 2
    y = y[:, :half] / (1 + torch.exp(-y[:, :half])) * y[:, half:]
    for g, run in enumerate(runs(group_list, group_list_type)):
        y[run] *= 1 if smooth_scale is None else smooth_scale[g]
    scale = y.abs().amax(1) / 127
    return (y / torch.where(scale == 0, 1, scale)[:, None]).round(), scale


def swiglu_quant_first(x, weight, group_list, weight_scale, x_scale):
    return *swiglu_quant(x, [weight], [weight_scale], x_scale, group_list), torch.empty(0)


def finalize(x, w, group_list, *, scale, pertoken_scale, logit, row_index, output_bs, group_list_type=1, **given):
    y = products(x, w, group_list, group_list_type)
    for g, run in enumerate(runs(group_list, group_list_type)):
        y[run] *= scale[g] * pertoken_scale[run, None]
    out = torch.zeros(output_bs, y.shape[1], dtype=torch.double)
    if given.get("shared_input") is not None:
        first = given["shared_input_offset"]
        shared = given["shared_input"]
        out[first : first + len(shared)] = shared * given["shared_input_weight"]
    for row, at in enumerate(row_index.tolist()[: runs(group_list, group_list_type)[-1].stop]):
        out[at] += y[row] * logit[row]
    return out


def added(self, x, weight, group_list, *, group_list_type=0):
    each = [x[run].T @ weight[run] for run in runs(group_list, group_list_type)]
    return self + torch.stack(each).view(self.shape)


ACTIVATIONS = {
    "relu": lambda y: y.clamp(min=0),
    "silu": lambda y: y / (1 + torch.exp(-y)),
    "gelu": lambda y: 0.5 * y * (1 + torch.erf(y / math.sqrt(2))),
    "fastgelu": lambda y: y / (1 + torch.exp(-1.702 * y)),
}


def ffn(x, weight1, weight2, activation, *, expert_tokens=None, expert_tokens_index=None, **given):
    if weight1.dim() == 3:
        kind = expert_tokens is not None
        out = []
        for e, run in enumerate(runs(torch.tensor(expert_tokens or expert_tokens_index), kind)):
            each = {key: value[e] if isinstance(value, torch.Tensor) else value for key, value in given.items()}
            out.append(ffn(x[run], weight1[e], weight2[e], activation, **each))
        return torch.cat(out)
    for at in ("1", "2"):
        if given.get("antiquant_scale" + at) is not None:
            shift = given.get("antiquant_offset" + at)
            wide = (weight1 if at == "1" else weight2).double()
            wide = (wide + (0 if shift is None else shift)) * given["antiquant_scale" + at]
            weight1, weight2 = (wide, weight2) if at == "1" else (weight1, wide)
    y = x.double() @ weight1.double()
    y = y + (0 if given.get("bias1") is None else given["bias1"])
    integer = given.get("scale") is not None
    y = ACTIVATIONS[activation](y * given["deq_scale1"] if integer else y)
    if integer:
        y = (y * given["scale"] + (0 if given.get("offset") is None else given["offset"])).round().clamp(-128, 127)
    y = y @ weight2.double() + (0 if given.get("bias2") is None else given["bias2"])
    return y * given["deq_scale2"] if integer else y


def calls() -> list[Call]:
    generator = torch.Generator().manual_seed(13)

    def r(*shape):
        return torch.randn(*shape, generator=generator)

    def whole(least, after, *shape, dtype=torch.int8):
        return torch.randint(least, after, shape, generator=generator).to(dtype)

    ends, sizes = torch.tensor([2, 2, 6]), torch.tensor([3, 0, 3])
    x, w = whole(-128, 128, 7, 24), whole(-128, 128, 3, 24, 16)
    w_scale, x_scale = r(3, 16).abs() / 99, r(7).abs() / 99
    four_x, four_w = whole(-8, 8, 7, 24), whole(-8, 8, 3, 24, 16)

    def fours(*args, **kwargs):
        return swiglu_quant(*args, **kwargs, a=four_x, b=four_w)

    eights = (r(7, 24).to(torch.float8_e4m3fn), [r(3, 24, 16).to(torch.float8_e4m3fn)])

    def eights_quant(*args, quant_dtype, **kwargs):
        y, scale = swiglu_quant_wide(*args, **kwargs)
        return y.float().to(quant_dtype), scale

    def swiglu_quant_wide(x, weight, weight_scale, x_scale, group_list, **_):
        y = products(x, weight[0], group_list, 0)
        for g, run in enumerate(runs(group_list, 0)):
            y[run] *= weight_scale[0][g] * x_scale[run, None]
        y = y[:, :8] / (1 + torch.exp(-y[:, :8])) * y[:, 8:]
        scale = y.abs().amax(1) / 448
        return y / torch.where(scale == 0, 1, scale)[:, None], scale

    v2, final, add = (
        "npu_grouped_matmul_swiglu_quant_v2",
        "npu_grouped_matmul_finalize_routing",
        "npu_grouped_matmul_add",
    )
    routed = {
        "scale": w_scale,
        "pertoken_scale": x_scale,
        "logit": torch.cat((r(6), torch.tensor([torch.nan]))),
        "row_index": torch.tensor([3, 0, 1, 3, 2, 0, 999]),
        "output_bs": 5,
    }
    shared = {"shared_input": r(2, 16).bfloat16(), "shared_input_offset": 2, "shared_input_weight": 0.5}
    inner = (r(7, 5).half(), r(7, 4).half())
    integers = {"scale": r(3, 16).abs() * 9, "offset": r(3), "deq_scale1": r(3, 16) / 999, "deq_scale2": r(3, 8) / 999}
    weights = (whole(-9, 9, 3, 8, 16), whole(-9, 9, 3, 16, 8))
    return [
        Call("npu_grouped_matmul_swiglu_quant", (x, w, ends, w_scale, x_scale), {}, swiglu_quant_first),
        Call(v2, (x, [w], [w_scale.bfloat16()], x_scale, sizes), {"group_list_type": 1}, swiglu_quant),
        Call(
            v2,
            (packed(four_x), [packed(four_w)], [w_scale], x_scale, ends),
            {"smooth_scale": r(3, 8), "quant_dtype": 0},
            fours,
        ),
        Call(v2, (packed(four_x), [packed(four_w)], [w_scale], x_scale, ends), {"smooth_scale": r(3)}, fours),
        Call(v2, (*eights, [w_scale], x_scale, ends), {"quant_dtype": torch.float8_e4m3fn}, eights_quant),
        Call(final, (x, w, sizes), {**routed, **shared}, finalize),
        Call(final, (x, w, ends), {**routed, "group_list_type": 0}, finalize),
        Call(add, (r(3, 5, 4), *inner, torch.tensor([2, 2, 7])), {}, added),
        Call(add + "_", (r(15, 4), *inner, torch.tensor([2, 0, 5])), {"group_list_type": 1}, added),
        Call("npu_ffn", (r(2, 3, 8).half(), r(8, 16).half(), r(16, 8).half(), "gelu"), {"bias1": r(16).half()}, ffn),
        Call(
            "npu_ffn",
            (r(6, 8).bfloat16(), r(3, 8, 16).bfloat16(), r(3, 16, 8).bfloat16(), "silu"),
            {"expert_tokens": [3, 0, 3], "bias1": r(3, 16), "bias2": r(3, 8)},
            ffn,
            (1e-5, 6e-2),
        ),
        Call(
            "npu_ffn",
            (whole(-128, 128, 6, 8), *weights, "relu"),
            {"expert_tokens_index": [2, 3, 6], "bias1": whole(-99, 99, 3, 16, dtype=torch.int32), **integers},
            ffn,
        ),
        Call(
            "npu_ffn",
            (r(6, 8).half(), weights[0][0], weights[1][0], "fastgelu"),
            {
                "antiquant_scale1": r(16).half() / 9,
                "antiquant_scale2": r(8).half() / 9,
                "antiquant_offset1": r(16).half(),
                "antiquant_offset2": r(8).half(),
            },
            ffn,
        ),
    ]


class TestGroupedProducts(LlmOpsTestCase):
    def test_calls(self):
        self.check_family("grouped_products", calls())
        for call in calls():
            with self.subTest(name=call.name, given=list(call.kwargs)):
                self.check_call(call)
                self.check_compiled(call)

    def quantised(self, x, weight, expected, **given):
        """npu_grouped_matmul of one x, in groups of rows."""
        ends = torch.tensor([2, 2, 6])
        given = {"group_list": ends, "split_item": 2, "group_type": 0, **given}
        call = Call("npu_grouped_matmul", ([x], weight), given, lambda *_, **__: [expected(runs(ends, 0))])
        call.tolerance = (1e-5, 2e-2)
        self.check_call(call)
        self.check_compiled(call)

    def test_grouped_matmul_of_bytes(self):
        generator = torch.Generator().manual_seed(14)
        x = torch.randint(-128, 128, (7, 24), generator=generator, dtype=torch.int8)
        w = torch.randint(-128, 128, (3, 24, 16), generator=generator, dtype=torch.int8)
        scale, by_token = torch.rand(3, 16, generator=generator) / 99, torch.rand(7, generator=generator) / 9
        early, late = torch.randint(-99, 99, (3, 16), dtype=torch.int32), torch.randn(3, 16, generator=generator)

        def product(factor, token=None, before=None, after=None, act=lambda y: y):
            def reference(groups):
                y = torch.zeros(7, 16, dtype=torch.double)
                for g, run in enumerate(groups):
                    y[run] = x[run].double() @ w[g].double() + (0 if before is None else before[g])
                    y[run] *= factor[g].double() * (1 if token is None else token[run, None].double())
                    y[run] += 0 if after is None else after[g]
                return act(y)

            return reference

        half = {"output_dtype": torch.float16}
        self.quantised(x, [w], product(scale), scale=[scale], **half)
        self.quantised(x, list(w), product(scale, None, early), scale=list(scale), bias=list(early), **half)
        brain = scale.bfloat16()
        self.quantised(
            x, [w], product(brain, by_token), scale=[brain], per_token_scale=[by_token], output_dtype=torch.bfloat16
        )
        for act_type, act in ((1, "relu"), (4, "fastgelu"), (5, "silu")):
            self.quantised(
                x,
                [w],
                product(scale, by_token, None, late, ACTIVATIONS[act]),
                scale=[scale],
                per_token_scale=[by_token],
                bias=[late],
                act_type=act_type,
                **half,
            )
        bits = torch.full((3, 16), 2.0**-9).view(torch.int32).long() | 1 << 46
        self.quantised(
            x,
            [w],
            product(torch.full((3, 16), 2.0**-9), act=lambda y: y.round().clamp(-128, 127)),
            scale=[bits],
        )

    def test_grouped_matmul_with_bytes(self):
        generator = torch.Generator().manual_seed(15)
        x = torch.randn(7, 24, generator=generator).half()
        w = torch.randint(-128, 128, (3, 24, 16), generator=generator, dtype=torch.int8)
        scale = torch.rand(3, 16, generator=generator).half() / 64
        offset = torch.randn(3, 16, generator=generator).half()

        def reference(groups):
            y = torch.zeros(7, 16, dtype=torch.double)
            for g, run in enumerate(groups):
                y[run] = x[run].double() @ ((w[g] + offset[g].double()) * scale[g].double())
            return y

        self.quantised(x, [w], reference, antiquant_scale=[scale], antiquant_offset=[offset])

    def test_refusals(self):
        x, w = torch.ones(4, 8, dtype=torch.int8).npu(), torch.ones(2, 8, 6, dtype=torch.int8).npu()
        ends, one = torch.tensor([1, 4]).npu(), torch.ones(2, 6).npu()
        rows, ops = torch.ones(4).npu(), torch.ops.npu
        v1, v2, final = (
            ops.npu_grouped_matmul_swiglu_quant,
            ops.npu_grouped_matmul_swiglu_quant_v2,
            ops.npu_grouped_matmul_finalize_routing,
        )
        groups = {"group_list": ends, "split_item": 2, "group_type": 0}
        for message, error, call in (
            ("bias must be None", NotImplementedError, lambda: v1(x, w, ends, one, rows, bias=one)),
            ("x_scale must be of shape", RuntimeError, lambda: v1(x, w, ends, one, rows[:3])),
            ("quant_mode must be 0, not 2", NotImplementedError, lambda: v2(x, [w], [one], rows, ends, quant_mode=2)),
            ("weight must be of", NotImplementedError, lambda: v2(x, [w.int()], [one], rows, ends)),
            ("output_bs must be given", NotImplementedError, lambda: final(x, w, ends)),
            ("scale is needed", RuntimeError, lambda: final(x, w, ends, output_bs=4)),
            ("activation must be one of", NotImplementedError, lambda: ops.npu_ffn(x, w[0], w[0], "geglu")),
            ("int8 needs scale", RuntimeError, lambda: ops.npu_ffn(x, w[0], w[0], "relu")),
            (
                "group_type must be 2",
                NotImplementedError,
                lambda: ops.npu_grouped_matmul_add(one, one, one, ends, group_type=0),
            ),
            (
                "x of int8 goes with weight of int8 and scale",
                NotImplementedError,
                lambda: ops.npu_grouped_matmul([x], [w.int()], scale=[one], **groups),
            ),
            (
                "scale of int64 goes with",
                NotImplementedError,
                lambda: ops.npu_grouped_matmul([x], [w], scale=[one], **groups),
            ),
        ):
            with self.assertRaisesRegex(error, message):
                call()


if __name__ == "__main__":
    run_tests()
