"""Products of small numbers with collectives (torch/npu/operators/quantised_collectives.py, quantised_experts.py,
barriers.py), on two ranks that know each other's data."""

import sys
from pathlib import Path

# A rank imports this file from elsewhere.
sys.path.insert(0, str(Path(__file__).resolve().parent))

from llm_ops_case import Call, LlmOpsTestCase, run_tests
from test_between_ranks import COUNTS, RANKS, checked, data, everyone, name_of_group, ranks
from test_block_numbers import FOURS

import torch
from torch.npu import operators

EIGHT = torch.float8_e4m3fn


def powers(seed, *shape):
    """Bytes of E8M0 around one."""
    return torch.randint(124, 131, shape, generator=torch.Generator().manual_seed(seed)).to(torch.uint8)


def spread(scale, axis, length):
    """The factor of each number, from pairs of blocks along an axis."""
    numbers = 2.0 ** (scale.double() - 127)
    return numbers.movedim(axis, -2).flatten(-2).repeat_interleave(32, -1)[..., :length].movedim(-1, axis)


def fours(pairs):
    codes = torch.stack((pairs & 15, pairs >> 4), -1).flatten(-2).long()
    return torch.from_numpy(FOURS)[codes & 7] * torch.where(codes > 7, -1.0, 1.0)


def local(kind):
    """For a rank's source of numbers: its rows, their scale and what they stand for; and the right side."""
    shared = data(9)

    def tiles(table, rows, columns):
        return table.double().repeat_interleave(128, 0).repeat_interleave(128, 1)[:rows, :columns]

    if kind == "integers":
        weight, by_column = shared(24, 6, dtype=torch.int8), shared(1, 6, dtype=torch.float32).abs() / 64

        def rows(r):
            x, scale = r(4, 24, dtype=torch.int8), r(4, 1, dtype=torch.float32).abs() / 64
            return x, scale, x.double() * scale.double()

        return rows, (weight, by_column), weight.double() * by_column.double(), {}
    if kind == "tensor":
        weight, scale = shared(64, 6).to(EIGHT), torch.tensor([0.25])

        def rows(r):
            x, own = r(4, 64).to(torch.float8_e5m2), r(1, dtype=torch.float32).abs()
            return x, own, x.double() * own.double()

        return rows, (weight, scale), weight.double() * 0.25, {}
    if kind == "tiles":
        weight, scale = shared(200, 130).to(EIGHT), shared(2, 2, dtype=torch.float32).abs()

        def rows(r):
            x, own = r(130, 200).to(EIGHT), r(2, 2, dtype=torch.float32).abs()
            return x, own, x.double() * tiles(own, 130, 200)

        return rows, (weight, scale), weight.double() * tiles(scale, 200, 130), {"group_sizes": [128, 128, 128]}
    if kind == "blocks":
        weight, scale = shared(64, 6).to(torch.float8_e5m2), powers(3, 1, 6, 2)

        def rows(r):
            x = r(4, 64).to(EIGHT)
            own = powers(int(x.float().abs().sum()) % 97, 4, 1, 2)
            return x, own, x.double() * spread(own, 1, 64)

        return rows, (weight, scale), weight.double() * spread(scale, 0, 64), {"group_sizes": [1, 1, 32]}
    pairs = torch.randint(0, 256, (6, 32), generator=torch.Generator().manual_seed(5)).to(torch.uint8)
    scale = powers(4, 1, 6, 2)

    def rows(r):
        x = r(4, 32, dtype=torch.int8).view(torch.uint8)
        own = powers(int(x.sum()) % 97, 4, 1, 2)
        return x, own.view(torch.float8_e8m0fnu), fours(x) * spread(own, 1, 64)

    dtypes = {"x1_dtype": 296, "x2_dtype": 296, "x1_scale_dtype": 293}
    return rows, (pairs.t(), scale), fours(pairs).T * spread(scale, 0, 64), dtypes


def gather_and_scatter(rank, size):
    hcom, found = name_of_group(rank), []
    for kind in ("integers", "tensor", "tiles", "blocks", "fours"):
        rows, (weight, scale), right, more = local(kind)
        x, own, _ = rows(data(rank))

        def gathered(*_, rows=rows, right=right, **__):
            every = everyone(rows)
            return torch.cat([wide for *_, wide in every]) @ right, torch.cat([x for x, *_ in every]), torch.empty(0)

        def scattered(*_, rows=rows, right=right, **__):
            return sum(wide @ right for *_, wide in everyone(rows)).chunk(RANKS)[rank], torch.empty(0)

        given = {"x1_scale": own, "x2_scale": scale, "y_dtype": 6, **more}
        calls = [
            Call("npu_all_gather_quant_mm", (x, weight, hcom, size), given, gathered, (1e-4, 2e-2)),
            Call("npu_quant_mm_reduce_scatter", (x, weight, hcom, size), given, scattered, (1e-4, 2e-2)),
        ]
        found = checked(calls, compiled=kind in ("tiles", "fours"))
    x, weight, bias = data(rank)(4, 8), data(9)(8, 6), data(9, seed=2)(6)

    def plain(*_, **__):
        rows = torch.cat([r(4, 8) for r in map(data, range(size))]).double()
        return rows @ weight.double() + bias.double(), rows, torch.empty(0)

    def summed(*_, **__):
        each = [r(4, 8).double() @ weight.double() + bias.double() for r in map(data, range(size))]
        return sum(each).chunk(size)[rank], torch.empty(0)

    checked(
        [
            Call("npu_all_gather_quant_mm", (x, weight, hcom, size), {"bias": bias}, plain),
            Call("npu_quant_mm_reduce_scatter", (x, weight, hcom, size), {"bias": bias}, summed),
        ]
    )
    return found


def all_to_all(rank, size):
    hcom, shared = name_of_group(rank), data(9)
    tall, by_column = shared(64 * size, 6).to(EIGHT), shared(6, dtype=torch.float32).abs()
    blocks, wide_scale = shared(64 * size, 6).to(torch.float8_e5m2), powers(7, size, 6, 2)

    def halves(r):
        return (r(4, 64),)

    def eights(r):
        x = r(4, 64).to(EIGHT)
        return x, powers(int(x.float().abs().sum()) % 97, 4, 1, 2)

    def mine(parts):
        return torch.cat([part.chunk(size)[rank] for part in parts], 1)

    def dynamic(*_, **__):
        rows = mine([x for (x,) in everyone(halves)])
        scale = rows.float().abs().amax(1, keepdim=True) / 448
        small = (rows.float() / scale).clamp(-448, 448).to(EIGHT).double()
        return small @ tall.double() * scale.double() * by_column.double(), rows

    def powered(*_, **__):
        every = everyone(eights)
        rows, scales = mine([x.double() for x, _ in every]), mine([s for _, s in every])
        right = blocks.double() * spread(wide_scale, 0, 64 * size)
        return rows * spread(scales, 1, 64 * size) @ right, rows

    (x,), (small, scale) = halves(data(rank)), eights(data(rank))
    first = "npu_all_to_all_quant_matmul"
    modes = {"x1_quant_mode": 7, "x2_quant_mode": 2, "x1_quant_dtype": 24}
    blocked = {"x1_scale": scale, "x2_scale": wide_scale, "x1_quant_mode": 6, "y_dtype": 15}
    found = [
        Call(first, (x, tall, hcom, size), {"x2_scale": by_column, **modes}, dynamic, (1e-3, 2e-2)),
        Call(first, (small, blocks, hcom, size), blocked, powered, (1e-3, 3e-2)),
    ]
    for dtype in (EIGHT, torch.int8):

        def rows(r, dtype=dtype):
            x = r(4, 32, dtype=torch.int8) if dtype is torch.int8 else r(4, 32).to(dtype)
            return x, r(4, dtype=torch.float32).abs() / 16

        weight = shared(32, 6, dtype=torch.int8) if dtype is torch.int8 else shared(32, 6).to(dtype)
        columns = shared(6, dtype=torch.float32).abs() / 16

        def after(*_, rows=rows, weight=weight, columns=columns, **__):
            every = [x.double() @ weight.double() * s.double()[:, None] * columns.double() for x, s in everyone(rows)]
            return torch.cat([out.chunk(size, 1)[rank] for out in every])

        x, own = rows(data(rank))
        given = {"x1_scale": own, "x2_scale": columns, "y_dtype": 6, "x1_quant_mode": 3, "x2_quant_mode": 2}
        found.append(Call("npu_quant_matmul_all_to_all", (x, weight, hcom, size), given, after, (1e-3, 2e-2)))
    return checked(found)


def experts(rank, size):
    """As the exchange of floats has it, with rows that carry their scales."""
    hcom, count, width = name_of_group(rank), 2, 64
    weights = data(9)(size * count, width, 6).to(EIGHT)
    weight_scales = powers(11, size * count, 1, 6, 2)
    wide = weights.double() * spread(weight_scales, 1, width)
    received = [COUNTS[r][rank * count + e] for r in range(size) for e in range(count)]

    def tokens(r):
        x = r(8, width).to(torch.float8_e5m2)
        return x, powers(int(x.float().abs().sum()) % 97, 8, 1, 2)

    every = [tuple(t[: sum(COUNTS[r])] for t in made) for r, made in enumerate(everyone(tokens))]
    sent = [[part.split(COUNTS[r]) for part in made] for r, made in enumerate(every)]
    order = [(r, rank * count + e) for e in range(count) for r in range(size)]
    here, scales = (torch.cat([sent[r][at][i].view(torch.uint8) for r, i in order]) for at in range(2))
    here = here.view(torch.float8_e5m2)
    ends = [sum(COUNTS[r][rank * count + e] for r in range(size)) for e in range(count)]
    mine = slice(rank * count, (rank + 1) * count)
    mm_x, mm_scale = (t[:3] for t in tokens(data(9, seed=2)))
    mm_weight, mm_weight_scale = weights[0], weight_scales[0]
    shared = mm_x.double() * spread(mm_scale, 1, width) @ wide[0]

    def out(*_, **__):
        rows = here.double() * spread(scales, 1, width)
        products = [a @ w for a, w in zip(rows.split(ends), wide[mine], strict=True)]
        return torch.cat(products), shared, here

    def back(*_, **__):
        x, s = sent[rank]
        rows = [a.double() * spread(b, 1, width) for a, b in zip(x, s, strict=True)]
        return torch.cat([a @ wide[i] for i, a in enumerate(rows)]), shared

    more = {"mm_x": mm_x, "mm_weight": mm_weight, "mm_x_scale": mm_scale, "mm_weight_scale": mm_weight_scale}
    more |= {"mm_y_dtype": 5, "gmm_x_quant_mode": 6, "gmm_weight_quant_mode": 6}
    right = weights[mine], weight_scales[mine]
    there = (*every[rank][:1], right[0], every[rank][1], right[1], hcom, size, COUNTS[rank], received, 5)
    return_trip = (here, right[0], scales, right[1], hcom, size, received, COUNTS[rank], 15)
    flag = {"permute_out_flag": True}
    return checked(
        [
            Call("npu_alltoallv_quant_gmm", there, {**more, **flag}, out, (1e-3, 1e-2)),
            Call("npu_quant_gmm_alltoallv", return_trip, more, back, (1e-3, 3e-2)),
        ]
    )


def barrier(rank, size):
    hcom, x = name_of_group(rank), torch.arange(3, dtype=torch.int32)
    return checked([Call("_npu_distribute_barrier", (x, hcom, size), {}, lambda x, *_: x)])


def refused(rank, size):
    hcom, ops = name_of_group(rank), torch.ops.npu
    x, one = torch.ones(4, 64).to(EIGHT).npu(), torch.ones(1).npu()
    weight, scales = torch.ones(64, 6).to(EIGHT).npu(), {"x1_scale": one, "x2_scale": one}
    gather, exchange = ops.npu_all_gather_quant_mm, ops.npu_all_to_all_quant_matmul
    for message, error, call in (
        ("y_dtype must be given", NotImplementedError, lambda: gather(x, weight, hcom, size, **scales)),
        (
            "bias must be None",
            NotImplementedError,
            lambda: gather(x, weight, hcom, size, bias=one, y_dtype=5, **scales),
        ),
        ("amax_output must be False", NotImplementedError, lambda: gather(x, weight, hcom, size, amax_output=True)),
        ("need x2_scale", RuntimeError, lambda: gather(x, weight, hcom, size, x1_scale=one, y_dtype=5)),
        (
            "x1_quant_dtype must be given",
            NotImplementedError,
            lambda: exchange(x.half(), torch.ones(128, 6).to(EIGHT).npu(), hcom, size, x2_scale=torch.ones(6).npu()),
        ),
        (
            "x1_quant_mode must be 3",
            NotImplementedError,
            lambda: ops.npu_quant_matmul_all_to_all(x, weight, hcom, size, x1_quant_mode=6),
        ),
        (
            "gmm_x_quant_mode must be 6",
            NotImplementedError,
            lambda: ops.npu_quant_gmm_alltoallv(x, x, x, x, hcom, size, [4], [4], 5, gmm_x_quant_mode=1),
        ),
        (
            "time_out must be None",
            NotImplementedError,
            lambda: ops._npu_distribute_barrier(x, hcom, size, time_out=one),
        ),
    ):
        LlmOpsTestCase().assertRaisesRegex(error, message, call)


class TestQuantisedBetweenRanks(LlmOpsTestCase):
    def test_products(self):
        for family, functions in (
            ("quantised_collectives", ("gather_and_scatter", "all_to_all")),
            ("quantised_experts", ("experts",)),
            ("barriers", ("barrier",)),
        ):
            with self.subTest(family=family):
                found = [name for function in functions for name in ranks.run(__file__, function, RANKS)[0]]
                self.assertEqual(sorted(found), sorted(operators.FAMILIES[family]))

    def test_refusals(self):
        ranks.run(__file__, "refused", RANKS)


if __name__ == "__main__":
    run_tests()
