"""Tokens in the order of their experts (torch/npu/operators/expert_rows.py) against their definitions."""

import numpy as np
from llm_ops_case import Call, LlmOpsTestCase, run_tests

import torch


def small(rows, dtype=torch.int8):
    """Each row as bytes, and its scale."""
    scale = rows.abs().amax(1) / 127
    return (rows / torch.where(scale == 0, 1, scale)[:, None]).round().to(dtype), scale


def init_routing(x, expert_idx, **given):
    """Copy by copy: which row of the result it goes to."""
    tokens, k = expert_idx.shape
    experts, mode = given["expert_num"], given.get("quant_mode", -1)
    first, after = given.get("active_expert_range") or (0, experts)
    flat = expert_idx.flatten().tolist()
    active = [[c for c in range(tokens * k) if flat[c] == e] for e in range(first, after)]
    counts = [len(copies) for copies in active]
    idle = [c for c in range(tokens * k) if flat[c] >= after] + [c for c in range(tokens * k) if flat[c] < first]
    drop = given.get("drop_pad_mode", 0) == 1
    capacity = given.get("expert_capacity", -1)
    if drop:
        order = [c for copies in active for c in (copies + [None] * capacity)[:capacity]]
    else:
        order = [c for copies in active for c in copies] + [None] * len(idle)
    places = torch.full((tokens * k,), -1)
    for row, copy in enumerate(order):
        if copy is not None:
            places[copy] = row
    if given.get("row_idx_type", 0) == 1:
        places = torch.tensor([c for copies in active for c in copies] + idle)
    if given.get("active_num", -1) > 0 and not drop:
        order = order[: given["active_num"]]
    rows = torch.stack([x[c // k] if c is not None else torch.zeros_like(x[0]) for c in order])
    scale, scales = given.get("scale"), torch.empty(0)
    if mode == 0:
        rows = torch.where(
            torch.tensor([c is not None for c in order])[:, None],
            ((rows.half() * scale.half()).half() + given["offset"].half()).double().round().clamp(-128, 127),
            0,
        )
    elif mode == 1:
        if scale is not None:
            each = [scale[(flat[c] - first) % len(scale)] if c is not None else scale[0] * 0 for c in order]
            rows = rows * torch.stack(each)
        rows, scales = small(rows)
    elif scale is not None:
        scales = torch.stack([scale[c // k] if c is not None else scale[0] * 0 for c in order])
    told = torch.empty(0)
    if given.get("expert_tokens_num_flag"):
        kind = given.get("expert_tokens_num_type", 0)
        pairs = [(first + e, n) for e, n in enumerate(counts) if n]
        pairs += [(0, 0)] * (experts - len(pairs))
        told = torch.tensor((np.cumsum(counts).tolist(), counts, pairs)[kind])
    return rows.view(experts, capacity, -1) if drop else rows, places, told, scales


def init_routing_quant(x, expert_idx, **given):
    mode, flag = given.pop("expert_tokens_num_mode", 0), given.pop("expert_tokens_before_capacity_flag", False)
    drop = given.get("drop_pad_mode", 0) == 1
    told = {"expert_tokens_num_flag": True, "expert_tokens_num_type": 1}
    rows, places, counts, scales = init_routing(x, expert_idx, **{"quant_mode": 1, **given, **told})
    empty = torch.empty(0)
    ends = (empty, counts.cumsum(0), counts)[mode] if not drop else empty
    return rows, places, ends, counts if drop and flag else empty, scales


def re_routing(tokens, counts, *, per_token_scales=None):
    ranks, experts = counts.shape
    runs, at = {}, 0
    for r in range(ranks):
        for e in range(experts):
            runs[e, r] = list(range(at, at + int(counts[r, e])))
            at += int(counts[r, e])
    places = [i for key in sorted(runs) for i in runs[key]] + list(range(at, len(tokens)))
    scales = torch.empty(0) if per_token_scales is None else per_token_scales[places]
    return tokens[places], scales, torch.tensor(places), counts.sum(0)


def calls() -> list[Call]:
    generator = torch.Generator().manual_seed(6)
    x = torch.randn(7, 40, generator=generator)
    idx = torch.stack([torch.randperm(6, generator=generator)[:3] for _ in range(7)]).int()
    v2 = "npu_moe_init_routing_v2"
    counts = torch.randint(0, 4, (3, 4), generator=generator)
    tokens = torch.randn(int(counts.sum()) + 2, 16, generator=generator)
    scales = torch.rand(len(tokens), generator=generator)
    variants = (
        (x, {"expert_tokens_num_flag": True}),
        (x.half(), {"active_expert_range": [1, 4], "expert_tokens_num_flag": True, "expert_tokens_num_type": 1}),
        (x, {"active_expert_range": [2, 5], "row_idx_type": 1, "active_num": 5, "scale": torch.arange(7.0)}),
        (
            x.bfloat16(),
            {"active_expert_range": [1, 5], "expert_tokens_num_flag": True, "expert_tokens_num_type": 2},
        ),
        ((x * 9).to(torch.int8), {"active_num": 30}),
        (x, {"quant_mode": 0, "scale": torch.tensor([20.0]), "offset": torch.tensor([3.0])}),
        (x, {"quant_mode": 1, "active_expert_range": [1, 4]}),
        (x, {"quant_mode": 1, "active_expert_range": [1, 4], "scale": torch.rand(3, 40, generator=generator) + 0.5}),
        (x, {"quant_mode": 1, "scale": torch.rand(1, 40, generator=generator) + 0.5}),
        (
            x,
            {
                "drop_pad_mode": 1,
                "expert_capacity": 3,
                "expert_tokens_num_flag": True,
                "expert_tokens_num_type": 1,
                "scale": torch.arange(7.0),
            },
        ),
        (
            x,
            {
                "drop_pad_mode": 1,
                "expert_capacity": 4,
                "quant_mode": 1,
                "scale": torch.rand(6, 40, generator=generator) + 0.5,
            },
        ),
    )
    return [
        *(Call(v2, (tokens_of, idx), {"expert_num": 6, **given}, init_routing) for tokens_of, given in variants),
        *(Call(v2, (x.half(), idx), {"expert_num": 6, "quant_mode": mode}) for mode in (2, 3)),
        *(
            Call("npu_moe_init_routing_quant", (x, idx), {"expert_num": 6, **given}, init_routing_quant)
            for given in (
                {"expert_tokens_num_mode": 1, "active_num": 8},
                {
                    "quant_mode": 0,
                    "scale": torch.tensor([20.0]),
                    "offset": torch.tensor([3.0]),
                    "expert_tokens_num_mode": 2,
                },
                {"drop_pad_mode": 1, "expert_capacity": 3, "expert_tokens_before_capacity_flag": True},
            )
        ),
        Call("npu_moe_re_routing", (tokens.half(), counts), {"per_token_scales": scales}, re_routing),
        Call("npu_moe_re_routing", ((tokens * 9).to(torch.int8), counts.int()), {}, re_routing),
    ]


class TestExpertRows(LlmOpsTestCase):
    def test_calls(self):
        self.check_calls("expert_rows", calls())

    def test_rows_with_scales_of_blocks(self):
        """Bytes and scales give the rows again, within half a step of the dtype."""
        for call in calls():
            mode = call.kwargs.get("quant_mode")
            if mode not in (2, 3):
                continue
            x, idx = call.args
            numbers, places, _, scales = torch.ops.npu.npu_moe_init_routing_v2(x.npu(), idx.npu(), **call.kwargs)
            self.assertEqual(numbers.dtype, torch.float8_e5m2 if mode == 2 else torch.float8_e4m3fn)
            self.assertEqual((scales.dtype, tuple(scales.shape)), (torch.float8_e8m0fnu, (21, 2)))
            factors = torch.exp2(scales.cpu().view(torch.uint8).double() - 127).repeat_interleave(32, 1)[:, :40]
            rows = numbers.cpu().double() * factors
            expected = x.double().repeat_interleave(3, 0)
            self.assertEqual(rows[places.cpu()], expected, atol=0.01, rtol=1 / 8 if mode == 2 else 1 / 16)

    def test_gradient(self):
        x = torch.randn(4, 8, device="npu", requires_grad=True)
        idx = torch.tensor([[0, 2], [1, 2], [3, 0], [1, 3]], dtype=torch.int32, device="npu")
        rows, *_ = torch.ops.npu.npu_moe_init_routing_v2(x, idx, expert_num=4)
        rows.sum().backward()
        self.assertEqual(x.grad, torch.full_like(x, 2.0))

    def test_refusals(self):
        x, idx = torch.randn(2, 8).npu(), torch.zeros(2, 2, dtype=torch.int32).npu()
        v2, re_routing_op = torch.ops.npu.npu_moe_init_routing_v2, torch.ops.npu.npu_moe_re_routing
        for message, error, call in (
            ("expert_num must be positive", RuntimeError, lambda: v2(x, idx)),
            (
                "quant_mode must be -1, 0, 1, 2 or 3, not 6",
                NotImplementedError,
                lambda: v2(x, idx, expert_num=4, quant_mode=6),
            ),
            ("needs scale and offset", RuntimeError, lambda: v2(x, idx, expert_num=4, quant_mode=0)),
            ("expert_capacity must be positive", RuntimeError, lambda: v2(x, idx, expert_num=4, drop_pad_mode=1)),
            ("within the 4 experts", RuntimeError, lambda: v2(x, idx, expert_num=4, active_expert_range=[1, 5])),
            ("tokens must be one of", RuntimeError, lambda: re_routing_op(x, idx)),
            ("idx_type must be 0", RuntimeError, lambda: re_routing_op(x.half(), idx, idx_type=1)),
        ):
            with self.assertRaisesRegex(error, message):
                call()


if __name__ == "__main__":
    run_tests()
