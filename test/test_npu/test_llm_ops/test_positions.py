"""Rotary positions of one and of several axes, against loops over pairs and angles."""

import math

from llm_ops_case import Call, LlmOpsTestCase, run_tests

import torch


def mrope(positions, query, key, table, head_size, *, mrope_section=None, rotary_mode="half", cache_mode="default"):
    rotary, section = table.shape[1], mrope_section if mrope_section and any(mrope_section) else None
    half = rotary // 2
    results = []
    for tensor in (query, key):
        out = tensor.clone().view(tensor.shape[0], -1, head_size)
        for token in range(out.shape[0]):
            for i in range(half):
                axis = 0
                if section and cache_mode == "default":
                    axis = next(a for a in range(len(section)) if i < sum(section[: a + 1]))
                elif section and i < 3 * section[i % 3] and i % 3:
                    axis = i % 3
                row = int(positions[axis, token] if section else positions[token])
                cos, sin = float(table[row, i]), float(table[row, half + i])
                a, b = (i, i + half) if rotary_mode == "half" else (2 * i, 2 * i + 1)
                first, second = out[token, :, a].clone(), out[token, :, b].clone()
                out[token, :, a], out[token, :, b] = first * cos - second * sin, second * cos + first * sin
        results.append(out.view(tensor.shape))
    return tuple(results)


def calls():
    generator = torch.Generator().manual_seed(1)
    table = torch.randn(20, 64, generator=generator)
    query, key = torch.randn(5, 3 * 96, generator=generator), torch.randn(5, 96, generator=generator)
    one = torch.randint(0, 20, (5,), generator=generator)
    three, four = (torch.randint(0, 20, (n, 5), generator=generator) for n in (3, 4))
    halves = [t.half() for t in (query, key, table)]
    return [
        Call("npu_mrope", (one, query, key, table, 96), {"mrope_section": [0, 0, 0]}, mrope),
        Call("npu_mrope", (one.int(), *halves, 96), {"rotary_mode": "interleaved"}, mrope),
        Call("npu_mrope", (three, query, key, table, 96), {"mrope_section": [8, 12, 12]}, mrope),
        Call(
            "npu_mrope",
            (four, query, key, table, 96),
            {"mrope_section": [8, 8, 8, 8], "rotary_mode": "interleaved"},
            mrope,
        ),
        Call(
            "npu_mrope",
            (three, query, key, table, 96),
            {"mrope_section": [12, 10, 10], "cache_mode": "interleave"},
            mrope,
        ),
    ]


class TestPositions(LlmOpsTestCase):
    def test_calls(self):
        self.check_calls("positions", calls())

    def test_angles(self):
        """A rotation by real angles keeps the lengths of pairs."""
        angles = torch.arange(20.0).unsqueeze(1) * torch.exp(torch.arange(32.0) * -math.log(1e4) / 32)
        table = torch.cat([angles.cos(), angles.sin()], 1).npu()
        query = torch.randn(4, 64).npu()
        out, _ = torch.npu_mrope(torch.tensor([0, 3, 7, 19]).npu(), query, query, table, 64)
        self.assertEqual(out.norm(dim=1), query.norm(dim=1), atol=1e-4, rtol=1e-5)
        self.assertEqual(out[0], query[0])

    def test_refusals(self):
        args = [t.npu() if isinstance(t, torch.Tensor) else t for t in calls()[2].args]
        for error, message, kwargs in (
            (RuntimeError, "mrope_section must add up to 32", {"mrope_section": [1, 2, 3]}),
            (
                RuntimeError,
                "rotary_mode must be half or interleaved",
                {"mrope_section": [8, 12, 12], "rotary_mode": "x"},
            ),
            (RuntimeError, r"positions must be \(5\) without", {}),
            (
                NotImplementedError,
                "interleaved mrope_section",
                {"mrope_section": [8, 16, 8], "cache_mode": "interleave"},
            ),
        ):
            with self.assertRaisesRegex(error, f"npu_mrope: {message}"):
                torch.npu_mrope(*args, **kwargs)


if __name__ == "__main__":
    run_tests()
