"""Latent attention with a cache of bytes (torch/npu/operators/byte_attention.py) against its form of floats."""

from llm_ops_case import Call, LlmOpsTestCase, run_tests

import torch

NAME = "npu_kv_quant_sparse_flash_attention"


def case(layout, key_layout, dtype, half, seed, sinks=None):
    """Keys of bytes, and the softmax over them written out in float64, query by query."""
    generator = torch.Generator().manual_seed(seed)
    batch, queries, positions, heads = 2, 3, 16, 2
    if dtype is torch.int8:
        numbers = torch.randint(-50, 50, (batch, positions, 512), generator=generator).to(dtype)
    else:
        numbers = torch.randn(batch, positions, 512, generator=generator).to(dtype)
    scales = torch.rand(batch, positions, 4, generator=generator) / 50 + 0.01
    rope = torch.randn(batch, positions, 64, generator=generator).to(half)
    stored = torch.cat([t.view(torch.uint8) for t in (numbers, rope, scales)], -1).view(dtype)
    query = (torch.randn(batch, queries, heads, 576, generator=generator) / 4).to(half)
    lengths = torch.tensor([positions, 11], dtype=torch.int32)
    chosen = torch.stack([torch.randperm(positions, generator=generator)[:7] for _ in range(batch * queries)]).int()
    chosen[:, -1] = -1
    chosen = chosen.view(batch, queries, 1, 7)
    out = torch.zeros(batch, queries, heads, 512, dtype=torch.double)
    for b in range(batch):
        latent = numbers[b].double() * scales[b].double().repeat_interleave(128, -1)
        whole = torch.cat([latent, rope[b].double()], -1)
        for i in range(queries):
            last = int(lengths[b]) - queries + i + 1
            rows = [j for j in chosen[b, i, 0].tolist() if 0 <= j < last]
            for h in range(heads):
                e = torch.exp(0.05 * whole[rows] @ query[b, i, h].double())
                shared = e.sum() if sinks is None else e.sum() + sinks[h].double().exp()
                out[b, i, h] = (e / shared) @ latent[rows]
    key, table = stored.unsqueeze(2), None
    if key_layout == "PA_BSND":
        key, table = key.flip(0).contiguous(), torch.tensor([[1], [0]], dtype=torch.int32)
    query_lengths = None
    if layout == "TND":
        query, chosen, out = (t.flatten(0, 1) for t in (query, chosen, out))
        query_lengths = torch.tensor([3, 6], dtype=torch.int32)
        if key_layout == "TND":
            key = torch.cat([key[0], key[1, :11]])
            lengths = torch.tensor([16, 27], dtype=torch.int32)
    given = {"layout_query": layout, "layout_kv": key_layout, "actual_seq_lengths_kv": lengths, "block_table": table}
    given |= {"actual_seq_lengths_query": query_lengths, "attention_mode": 2, "sinks": sinks}
    return Call(NAME, (query, key, key, chosen, 0.05, 2, 2), given, lambda *_, **__: out, (1e-4, 2e-2))


class TestByteAttention(LlmOpsTestCase):
    def test_calls(self):
        cases = [
            case("BSND", "BSND", torch.int8, torch.bfloat16, 1),
            case("TND", "TND", torch.float8_e4m3fn, torch.float16, 2),
            case("BSND", "PA_BSND", torch.int8, torch.float16, 3, torch.tensor([0.5, -1.0])),
            case("TND", "PA_BSND", torch.float8_e4m3fn, torch.bfloat16, 4),
        ]
        self.check_family("byte_attention", cases)
        for call in cases:
            with self.subTest(given=call.kwargs["layout_kv"]):
                self.check_call(call)
        self.check_compiled(cases[0])
        self.check_compiled(cases[3])

    def test_refusals(self):
        call = case("BSND", "BSND", torch.int8, torch.float16, 1)
        args = [t.npu() if isinstance(t, torch.Tensor) else t for t in call.args]
        run = torch.npu_kv_quant_sparse_flash_attention
        for error, message, given in (
            (RuntimeError, "attention_mode must be 2, but is 0", {}),
            (RuntimeError, "tile_size must be 128", {"attention_mode": 2, "tile_size": 64}),
            (NotImplementedError, "key_dtype must be None", {"attention_mode": 2, "key_dtype": 290}),
            (RuntimeError, "block_table goes with PA_BSND", {"attention_mode": 2, "layout_kv": "PA_BSND"}),
        ):
            with self.assertRaisesRegex(error, f"{NAME}: {message}"):
                run(*args, **given)
        with self.assertRaisesRegex(RuntimeError, "key of 656 bytes"):
            run(args[0], args[1][..., :600], args[2], *args[3:], attention_mode=2)


if __name__ == "__main__":
    run_tests()
