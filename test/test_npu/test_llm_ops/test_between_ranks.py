"""Products with collectives and the exchange of tokens between experts (torch/npu/operators/collective_products.py,
expert_dispatch.py, expert_combine.py), on two ranks that know each other's data."""

import sys
from pathlib import Path

# A rank imports this file from elsewhere.
sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "test_distributed"))

import ranks
import torch.distributed as dist
from llm_ops_case import Call, LlmOpsTestCase, run_tests

import torch
from torch.npu import operators

RANKS = 2


def name_of_group(rank):
    return dist.group.WORLD._get_backend(torch.device("npu")).get_hccl_comm_name(rank)


def data(rank, *, seed=1):
    """A source of numbers that every rank can make for every other."""
    generator = torch.Generator().manual_seed(100 * seed + rank)

    def r(*shape, dtype=torch.float16):
        if dtype is torch.int8:
            return torch.randint(-128, 128, shape, generator=generator).to(dtype)
        return torch.randn(*shape, generator=generator).to(dtype)

    return r


def checked(calls, *, compiled=True):
    """Checks the calls, the first one of each operator compiled too, and returns the operators."""
    case, found = LlmOpsTestCase(), set()
    for call in calls:
        case.check_call(call)
        if compiled and call.name not in found:
            case.check_compiled(call)
        found.add(call.name)
    return sorted(found)


def everyone(make):
    """What every rank makes, in float64 where it is floating."""
    return [make(data(rank)) for rank in range(RANKS)]


def mm_all_reduce(rank, size):
    hcom = name_of_group(rank)

    def floats(r):
        return r(2, 3, 8), r(8, 6), r(6), r(2, 3, 6)

    def weights(r):
        return r(5, 64), r(64, 6, dtype=torch.int8), (r(2, 6) / 64), r(2, 6), r(6)

    def bytes_of(r):
        scale, by_row = r(6, dtype=torch.float32).abs() / 64, r(5, dtype=torch.float32).abs() / 64
        return r(5, 24, dtype=torch.int8), r(24, 6, dtype=torch.int8), scale, by_row

    def plain(*_, **__):
        return sum(a.double() @ b.double() + c.double() + d.double() for a, b, c, d in everyone(floats))

    def antiquant(*_, **__):
        total = 0
        for x, w, scale, offset, bias in everyone(weights):
            wide = (w.double() + offset.double().repeat_interleave(32, 0)) * scale.double().repeat_interleave(32, 0)
            total = total + x.double() @ wide + bias.double()
        return total

    def integers(*_, **__):
        return sum((a.double() @ b.double()) * s.double() * t.double()[:, None] for a, b, s, t in everyone(bytes_of))

    def packed(*_, **__):
        return sum((a.double() @ b.double()) * 2.0**-9 for a, b, _, _ in everyone(bytes_of))

    name = "npu_mm_all_reduce_base"
    a, b, bias, x3 = floats(data(rank))
    x, w, scale, offset, late = weights(data(rank))
    p, q, by_column, by_row = bytes_of(data(rank))
    bits = torch.full((6,), 2.0**-9).view(torch.int32).long() | 1 << 46
    grouped = {"antiquant_scale": scale, "antiquant_offset": offset, "antiquant_group_size": 32, "bias": late}
    return checked(
        [
            Call(name, (a, b, hcom), {"bias": bias, "x3": x3}, plain),
            Call(name, (x, w, hcom), grouped, antiquant),
            Call(name, (p, q, hcom), {"dequant_scale": by_column, "pertoken_scale": by_row}, integers),
            Call(name, (p, q, hcom), {"dequant_scale": bits}, packed),
        ]
    )


def gather_and_scatter(rank, size):
    hcom = name_of_group(rank)

    def floats(r):
        return r(4, 8), r(6)

    def bytes_of(r):
        return r(4, 24, dtype=torch.int8), r(4, 1, dtype=torch.float32).abs() / 64

    shared = data(9)
    weight, small = shared(8, 6), shared(24, 6, dtype=torch.int8)
    scale = shared(1, 6, dtype=torch.float32).abs() / 64
    bits = torch.full((1, 6), 2.0**-9).view(torch.int32).long() | 1 << 46

    def gathered(*_, **given):
        rows = torch.cat([a for a, _ in everyone(floats)]).double()
        return rows @ weight.double() + given["bias"], rows if given.get("gather_output", True) else torch.empty(0)

    def gathered_bytes(*_, x2_scale, x1_scale=None, **__):
        rows = torch.cat([a for a, _ in everyone(bytes_of)]).double()
        by_row = torch.cat([s for _, s in everyone(bytes_of)]).double()
        factor = 2.0**-9 if x1_scale is None else scale.double() * by_row
        return rows @ small.double() * factor, rows

    def scattered(*_, **__):
        return sum(a.double() @ weight.double() + b.double() for a, b in everyone(floats)).chunk(RANKS)[rank]

    def scattered_bytes(*_, **__):
        each = [(a.double() @ small.double()) * s.double() * scale.double() for a, s in everyone(bytes_of)]
        return sum(each).chunk(RANKS)[rank]

    x, bias = floats(data(rank))
    p, by_row = bytes_of(data(rank))
    gather, scatter = "npu_all_gather_base_mm", "npu_mm_reduce_scatter_base"
    aiv = {"comm_mode": "aiv"}
    return checked(
        [
            Call(gather, (x, weight, hcom, size), {"bias": bias}, gathered),
            Call(gather, (x, weight, hcom, size), {"bias": bias, "gather_output": False}, gathered),
            Call(gather, (p, small, hcom, size), {**aiv, "x1_scale": by_row, "x2_scale": scale}, gathered_bytes),
            Call(gather, (p, small, hcom, size), {**aiv, "x2_scale": bits}, gathered_bytes),
            Call(scatter, (x, weight, hcom, size), {"bias": bias}, scattered),
            Call(
                scatter,
                (p, small, hcom, size),
                {**aiv, "x1_scale": by_row, "x2_scale": scale, "output_dtype": torch.float16},
                scattered_bytes,
            ),
        ]
    )


def all_to_all(rank, size):
    hcom, shared = name_of_group(rank), data(9)
    tall, wide = shared(8 * size, 6), shared(8, 6)
    bias = shared(6)

    def rows(r):
        return (r(4, 8),)

    def before(*_, **__):
        mine = torch.cat([a.chunk(size)[rank] for (a,) in everyone(rows)], 1).double()
        return mine @ tall.double() + bias.double(), mine

    def after(*_, **__):
        return torch.cat([(a.double() @ wide.double()).chunk(size, 1)[rank] for (a,) in everyone(rows)])

    (x,) = rows(data(rank))
    return checked(
        [
            Call("npu_all_to_all_matmul", (x, tall, hcom, size, bias), {}, before),
            Call("npu_matmul_all_to_all", (x, wide, hcom, size), {"all2all_axes": [-1, -2]}, after),
        ]
    )


# Rows from a rank (first index) for each expert, by rank and expert.
COUNTS = ([2, 0, 1, 3], [1, 2, 0, 2])


def by_expert(rank, size):
    hcom, experts = name_of_group(rank), 2
    weights = data(9)(size * experts, 8, 6)
    mm_x, mm_weight = data(9, seed=2)(3, 8), data(9, seed=3)(6, 8)
    received = [COUNTS[r][rank * experts + e] for r in range(size) for e in range(experts)]

    def tokens(r):
        return (r(8, 8),)

    sent = [everyone(tokens)[r][0][: sum(COUNTS[r])].double().split(COUNTS[r]) for r in range(size)]
    # What lies on this rank: by expert and rank.
    here = torch.cat([sent[r][rank * experts + e] for e in range(experts) for r in range(size)])
    ends = [sum(COUNTS[r][rank * experts + e] for r in range(size)) for e in range(experts)]
    local = weights[rank * experts : (rank + 1) * experts]
    shared = mm_x.double() @ mm_weight.double().T

    def out(*_, **__):
        return torch.cat([a @ w.double() for a, w in zip(here.split(ends), local, strict=True)]), shared, here

    def back(*_, **__):
        mine = [t @ weights[i].double() for i, t in enumerate(sent[rank])]
        return torch.cat(mine), torch.empty(0)

    x = everyone(tokens)[rank][0][: sum(COUNTS[rank])]
    more = {"mm_x": mm_x, "mm_weight": mm_weight, "trans_mm_weight": True, "permute_out_flag": True}
    return checked(
        [
            Call("npu_alltoallv_gmm", (x, local, hcom, size, COUNTS[rank], received), more, out),
            Call(
                "npu_gmm_alltoallv",
                (here.half(), local.mT.contiguous(), hcom, size, received, COUNTS[rank]),
                {"trans_gmm_weight": True},
                back,
            ),
        ]
    )


EXPERTS, TOKENS, CHOICES, WIDTH = 4, 5, 3, 16


def routed(rank, *, tokens=TOKENS):
    r = data(rank, seed=4)
    generator = torch.Generator().manual_seed(40 + rank)
    ids = torch.stack([torch.randperm(EXPERTS, generator=generator)[:CHOICES] for _ in range(tokens)]).int()
    return r(tokens, WIDTH), ids, r(tokens, CHOICES, dtype=torch.float32).abs()


def arrivals(rank, size, sizes, masks):
    """Of each expert here, the (rank, token, choice) in the order in which they lie."""
    found = []
    for expert in range(rank * EXPERTS // size, (rank + 1) * EXPERTS // size):
        found.append(
            [
                (r, t, c)
                for r in range(size)
                for t in range(sizes[r])
                for c in range(CHOICES)
                if routed(r, tokens=sizes[r])[1][t, c] == expert and masks[r][t]
            ]
        )
    return found


def exchange(rank, size):
    hcom = name_of_group(rank)
    all_sent = [[True] * TOKENS] * size
    x, ids, weights = routed(rank)
    args = (hcom, size, rank, EXPERTS)
    factors = data(9, seed=5)(EXPERTS, WIDTH, dtype=torch.float32)
    for version in ("", "_v2"):
        dispatch = f"npu_moe_distribute_dispatch{version}"
        for given in ({}, {"expert_token_nums_type": 0}, {"quant_mode": 2, "scales": factors}):

            def reference(*_, given=given, **__):
                groups = arrivals(rank, size, [TOKENS] * size, all_sent)
                rows = torch.zeros(size * TOKENS * min(EXPERTS // size, CHOICES), WIDTH, dtype=torch.double)
                copies = torch.zeros(len(rows), dtype=torch.double)
                scales = torch.zeros(len(rows), dtype=torch.double)
                for at, (r, t, c) in enumerate(x for group in groups for x in group):
                    theirs = routed(r)
                    rows[at], copies[at] = theirs[0][t], theirs[2][t, c]
                    if given.get("quant_mode"):
                        rows[at] = theirs[0][t].double() * factors[theirs[1][t, c]].double()
                        scales[at] = rows[at].abs().max() / 127
                        rows[at] = (rows[at] / scales[at]).round()
                counts = torch.tensor([len(group) for group in groups])
                runs = [sum(a[0] == r for a in group) for group in groups for r in range(size)]
                nums = counts if given.get("expert_token_nums_type", 1) else counts.cumsum(0)
                by_row = scales if given.get("quant_mode") else torch.empty(0)
                return rows, by_row, None, nums, torch.tensor(runs).cumsum(0), None, copies

            call = Call(dispatch, (x, ids, *args), {**given, "expert_scales": weights}, reference)
            checked([call], compiled="scales" in given)
        found = getattr(torch.ops.npu, dispatch)(x.npu(), ids.npu(), *args)
        # Experts multiply by their number plus one.
        ends = found[3].cumsum(0)
        expert = torch.searchsorted(ends, torch.arange(len(found[0]), device="npu"), right=True)
        made = (found[0] * (1 + rank * (EXPERTS // size) + expert).unsqueeze(1)).half()

        def combined(*_, **__):
            return (x.double().unsqueeze(1) * ((1 + ids) * weights).double().unsqueeze(-1)).sum(1)

        call = (made, ids, found[2], found[4], weights, *args)
        checked(
            [
                Call(
                    f"npu_moe_distribute_combine{version}",
                    tuple(t.cpu() if isinstance(t, torch.Tensor) else t for t in call),
                    {},
                    combined,
                )
            ]
        )
    residual, gamma = data(rank, seed=6)(TOKENS, 1, WIDTH), data(9, seed=6)(WIDTH)

    def norm(*_, **__):
        total = combined().unsqueeze(1) + residual.double()
        inverse = (total.square().mean(-1, keepdim=True) + 1e-3).rsqrt()
        return total * inverse * gamma.double(), inverse, total

    call = (made.cpu(), ids, found[2].cpu(), found[4].cpu(), weights, residual, gamma, *args)
    name = "npu_moe_distribute_combine_add_rms_norm"
    checked([Call(name, call, {"norm_eps": 1e-3}, norm, tolerance=(2e-3, 2e-2))])
    return sorted(
        {
            "npu_moe_distribute_dispatch",
            "npu_moe_distribute_dispatch_v2",
            "npu_moe_distribute_combine",
            "npu_moe_distribute_combine_v2",
            name,
        }
    )


def partly(rank, size):
    """Different numbers of tokens, and tokens that are not sent."""
    hcom, sizes = name_of_group(rank), [5, 3]
    x, ids, weights = routed(rank, tokens=sizes[rank])
    args = (hcom, size, rank, EXPERTS)
    ops = torch.ops.npu
    given = {"global_bs": 5 * size}
    found = ops.npu_moe_distribute_dispatch(x.npu(), ids.npu(), *args, **given)
    groups = arrivals(rank, size, sizes, [[True] * n for n in sizes])
    assert found[3].tolist() == [len(group) for group in groups], found[3]
    assert found[0].shape[0] == 5 * size * min(EXPERTS // size, CHOICES)
    out = ops.npu_moe_distribute_combine(found[0], ids.npu(), found[2], found[4], weights.npu(), *args, **given)
    expected = x.double() * weights.double().sum(1, keepdim=True)
    torch.testing.assert_close(out.cpu().double(), expected, atol=2e-2, rtol=2e-2)

    x, ids, weights = routed(rank)
    masks = [[True, True, True, False, False], [True] * 5]
    mask = torch.tensor(masks[rank]).npu()
    found = ops.npu_moe_distribute_dispatch_v2(x.npu(), ids.npu(), *args, x_active_mask=mask)
    assert found[3].tolist() == [len(group) for group in arrivals(rank, size, [5, 5], masks)], found[3]
    out = ops.npu_moe_distribute_combine_v2(
        found[0], ids.npu(), found[2], found[4], weights.npu(), *args, x_active_mask=mask
    )
    expected = x.double() * weights.double().sum(1, keepdim=True) * mask.cpu().unsqueeze(1)
    torch.testing.assert_close(out.cpu().double(), expected, atol=2e-2, rtol=2e-2)


def without_ranks(rank, size):
    """Experts that give nothing, the token, or the token and a constant."""
    hcom = name_of_group(rank)
    x, ids, weights = routed(rank)
    # Of each token, the last choice is one of four experts on no rank: one of nothing, one copy, two constants.
    ids[:, -1] = torch.tensor([EXPERTS, EXPERTS + 1, EXPERTS + 2, EXPERTS + 3, EXPERTS + 1])
    first, second, constant = (data(9, seed=seed)(2, WIDTH) for seed in (7, 8, 9))
    numbers = {"zero_expert_num": 1, "copy_expert_num": 1, "const_expert_num": 2}
    args = (hcom, size, rank, EXPERTS)
    ops = torch.ops.npu
    found = ops.npu_moe_distribute_dispatch_v2(x.npu(), ids.npu(), *args, **numbers)
    assert int(found[3].sum()) <= size * TOKENS * (CHOICES - 1)
    more = {"ori_x": x, "const_expert_alpha_1": first, "const_expert_alpha_2": second, "const_expert_v": constant}

    def reference(*_, **__):
        wide, out = x.double(), torch.zeros(TOKENS, WIDTH, dtype=torch.double)
        for t in range(TOKENS):
            for c in range(CHOICES):
                at = int(ids[t, c]) - EXPERTS
                y = wide[t] if at < 0 or at == 1 else wide[t] * 0
                if at > 1:
                    y = first[at - 2].double() * wide[t] + second[at - 2].double() * constant[at - 2].double()
                out[t] += y * weights[t, c].double()
        return out

    call = (found[0].cpu(), ids, found[2].cpu(), found[4].cpu(), weights, *args)
    checked([Call("npu_moe_distribute_combine_v2", call, {**numbers, **more}, reference)])


def refused(rank, size):
    hcom, ops = name_of_group(rank), torch.ops.npu
    x, ids = torch.randn(4, 8).half().npu(), torch.zeros(4, 2, dtype=torch.int32).npu()
    args = (hcom, size, rank, EXPERTS)
    for message, error, call in (
        ("there is no group 'other'", RuntimeError, lambda: ops.npu_mm_all_reduce_base(x, x.t(), "other")),
        ("has 2 ranks, but 4 are told", RuntimeError, lambda: ops.npu_all_gather_base_mm(x, x.t(), hcom, 4)),
        (
            "reduce_op must be 'sum'",
            NotImplementedError,
            lambda: ops.npu_mm_all_reduce_base(x, x.t(), hcom, reduce_op="max"),
        ),
        ("the matrices do not fit", RuntimeError, lambda: ops.npu_matmul_all_to_all(x, x, hcom, size)),
        (
            "send_counts must be",
            RuntimeError,
            lambda: ops.npu_alltoallv_gmm(x, torch.ones(2, 8, 4).half().npu(), hcom, size, [1], [1]),
        ),
        (
            "shared_expert_rank_num must have its default",
            NotImplementedError,
            lambda: ops.npu_moe_distribute_dispatch(x, ids, *args, shared_expert_rank_num=1),
        ),
        (
            "comm_quant_mode must be 0",
            NotImplementedError,
            lambda: ops.npu_moe_distribute_combine_v2(x, ids, ids, ids, x, *args, comm_quant_mode=2),
        ),
        (
            "quant_mode must be 0 or 2",
            NotImplementedError,
            lambda: ops.npu_moe_distribute_dispatch(x, ids, *args, quant_mode=1),
        ),
        (
            "moe_expert_num must be a multiple",
            RuntimeError,
            lambda: ops.npu_moe_distribute_dispatch(x, ids, *args[:3], 3),
        ),
    ):
        LlmOpsTestCase().assertRaisesRegex(error, message, call)


class TestBetweenRanks(LlmOpsTestCase):
    def test_products(self):
        found = []
        for function in ("mm_all_reduce", "gather_and_scatter", "all_to_all", "by_expert"):
            with self.subTest(function=function):
                found += ranks.run(__file__, function, RANKS)[0]
        self.assertEqual(sorted(found), sorted(operators.FAMILIES["collective_products"]))

    def test_exchange(self):
        found = ranks.run(__file__, "exchange", RANKS)[0]
        families = (*operators.FAMILIES["expert_dispatch"], *operators.FAMILIES["expert_combine"])
        self.assertEqual(found, sorted(families))

    def test_exchange_of_some(self):
        ranks.run(__file__, "partly", RANKS)

    def test_experts_without_ranks(self):
        ranks.run(__file__, "without_ranks", RANKS)

    def test_refusals(self):
        ranks.run(__file__, "refused", RANKS)


if __name__ == "__main__":
    run_tests()
