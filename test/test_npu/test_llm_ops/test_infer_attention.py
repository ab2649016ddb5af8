"""npu_fused_infer_attention_score and the older operators of inference against attention row by row."""

import random

import numpy as np
from attention_references import heads, laid_out, paged, shown
from llm_ops_case import Call, LlmOpsTestCase, run_tests

import torch

MASK = torch.ones(2048, 2048, dtype=torch.bool).triu(1)
NAME = "npu_fused_infer_attention_score"


def halves(*shape, generator, dtype=torch.float16):
    return (torch.randn(shape, generator=generator) / 2).to(dtype)


def batch_reference(query, key, value, scale, visible, query_lengths, key_lengths, sink=None):
    """(out, sums) of (batch, heads, positions, width), 0 and -inf behind the lengths."""
    batch, count, queries, _ = query.shape
    out = torch.zeros(batch, count, queries, value.shape[-1], dtype=torch.double)
    sums = torch.full((batch, count, queries, 1), float("-inf"), dtype=torch.double)
    for b in range(batch):
        n, m = query_lengths[b], key_lengths[b]
        found = heads(query[b, :, :n], key[b, :, :m], value[b, :, :m], scale, visible(b, n, m), sink)
        out[b, :, :n], sums[b, :, :n] = (torch.from_numpy(f) for f in found)
    return out, sums


class TestInferAttention(LlmOpsTestCase):
    def compare(self, got, expected, what):
        self.assertEqual(tuple(got[0].shape), tuple(expected[0].shape), what)
        self.assertEqual(got[0].cpu().double(), expected[0], atol=3e-3, rtol=2e-2, msg=f"{what}: out")
        self.assertEqual(got[1].cpu().double(), expected[1], atol=3e-3, rtol=2e-2, msg=f"{what}: sums")

    def test_batches(self):
        """Random calls of every layout, mode, form of a cache and length."""
        layouts = ("BSH", "BSND", "BNSD", "BNSD_BSND", "BSH_NBSD", "BSND_NBSD", "BNSD_NBSD", "BSH_BNSD", "BSND_BNSD")
        for seed in range(60):
            rng, generator = random.Random(seed), torch.Generator().manual_seed(seed)
            layout = layouts[seed % len(layouts)]
            batch, key_heads, share = rng.randint(1, 3), rng.choice((1, 2)), rng.choice((1, 3))
            queries, keys, width = rng.choice((2, 3, 5)), rng.randint(1, 40), 16
            mode = rng.choice((None, 0, 1, 2, 3, 4))
            dtype = rng.choice((torch.float16, torch.bfloat16))
            query = halves(batch, key_heads * share, queries, width, generator=generator, dtype=dtype)
            key, value = (halves(batch, key_heads, keys, width, generator=generator, dtype=dtype) for _ in range(2))
            before, after = rng.choice((2**31 - 1, 1, 3)), rng.choice((2**31 - 1, 0, 2))
            query_lengths = [rng.randint(0, queries) for _ in range(batch)]
            key_lengths = [rng.randint(0, keys) for _ in range(batch)]
            mask = None
            if mode in (0, 1):
                mask = torch.rand(batch, 1, queries, keys, generator=generator) < 0.3
            elif mode is not None:
                mask = MASK

            def visible(b, n, m, mode=mode, mask=mask, before=before, after=after):
                if mode is None:
                    return np.ones((n, m), dtype=bool)
                found = shown(mode, n, m, before, after)
                return found & ~mask[b, 0, :n, :m].numpy() if mode < 2 else found

            inner, _, outer = layout.partition("_")
            kwargs = {
                "actual_seq_lengths": query_lengths,
                "actual_seq_lengths_kv": key_lengths,
                "num_heads": query.shape[1],
            }
            kwargs |= {"scale": 0.3, "input_layout": layout, "num_key_value_heads": key_heads, "softmax_lse_flag": True}
            kwargs |= {"pre_tokens": before, "next_tokens": after, "sparse_mode": mode or 0}
            expected = batch_reference(query, key, value, 0.3, visible, query_lengths, key_lengths)
            out = expected[0].transpose(0, 1) if outer == "NBSD" else laid_out(expected[0], outer or inner)
            stored_key, stored_value, table = laid_out(key, inner), laid_out(value, inner), None
            if seed % 2:
                form = rng.choice(("BnBsH", "BnNBsD", "NZ"))
                kwargs["block_size"] = 16
                stored_key, table = paged(key, 16, form, torch.Generator().manual_seed(seed))
                stored_value, _ = paged(value, 16, form, torch.Generator().manual_seed(seed))
                if mode in (0, 1):
                    mask = torch.nn.functional.pad(mask, (0, table.shape[1] * 16 - keys), value=True)
            got = torch.npu_fused_infer_attention_score(
                laid_out(query, inner).npu(),
                stored_key.npu(),
                stored_value.npu(),
                atten_mask=None if mask is None else mask.npu(),
                block_table=None if table is None else table.npu(),
                **kwargs,
            )
            self.compare(got, (out, expected[1]), (seed, layout, mode, kwargs))

    def test_steps(self):
        """One position: modes, bands and lengths of the query have no effect, and a mask is (batch, keys)."""
        generator = torch.Generator().manual_seed(1)
        query, key = halves(3, 4, 1, 16, generator=generator), halves(3, 2, 20, 16, generator=generator)
        value, lengths = halves(3, 2, 20, 16, generator=generator), [20, 0, 7]
        mask = torch.rand(3, 20, generator=generator) < 0.5
        expected = batch_reference(
            query, key, value, 0.25, lambda b, n, m: ~mask[b, None, :m].numpy(), [1] * 3, lengths
        )
        for kwargs in ({}, {"next_tokens": -3, "pre_tokens": 2}, {"actual_seq_lengths": [0]}):
            got = torch.npu_fused_infer_attention_score(
                *(t.npu() for t in (query, key, value)),
                atten_mask=mask.npu(),
                actual_seq_lengths_kv=lengths,
                num_heads=4,
                num_key_value_heads=2,
                scale=0.25,
                input_layout="BNSD",
                softmax_lse_flag=True,
                **kwargs,
            )
            self.compare(got, expected, kwargs)
        step = torch.npu_incre_flash_attention(
            *(laid_out(t, "BSH").npu() for t in (query, key, value)),
            atten_mask=mask.view(3, 1, 1, 20).npu(),
            actual_seq_lengths=lengths,
            num_heads=4,
            num_key_value_heads=2,
            scale_value=0.25,
        )
        self.assertEqual(step.cpu().double(), laid_out(expected[0], "BSH"), atol=3e-3, rtol=2e-2)

    def test_sequences(self):
        """TND and its kin, with and without pages, with lengths of one kind and of several, with and without a sink."""
        for seed in range(24):
            rng, generator = random.Random(seed), torch.Generator().manual_seed(seed)
            layout = ("TND", "TND_NTD", "NTD_TND", "NTD")[seed % 4]
            batch, key_heads = rng.randint(1, 3), rng.choice((1, 2))
            equal = seed % 3 == 0
            lengths = [2] * batch if equal else [rng.randint(0, 4) for _ in range(batch)]
            key_lengths = [rng.randint(0, 30) for _ in range(batch)]
            mode = rng.choice((None, 2, 3, 4))
            before, after = rng.randint(0, 4), rng.randint(0, 4)
            total, width = sum(lengths), 16
            if total == 0:
                continue
            query = halves(key_heads * 2, total, width, generator=generator)
            keys = [halves(2, key_heads, m, width, generator=generator) for m in key_lengths]
            sink = torch.randn(key_heads * 2, generator=generator).bfloat16() if layout in ("TND", "NTD_TND") else None
            outs, start = [], 0
            for n, m, (key, value) in zip(lengths, key_lengths, keys, strict=True):
                visible = np.ones((n, m), dtype=bool) if mode is None else shown(mode, n, m, before, after)
                sinks = None if sink is None else sink.double().numpy()
                outs.append(heads(query[:, start : start + n], key, value, 0.3, visible, sinks)[0])
                start += n
            expected = torch.from_numpy(np.concatenate(outs, 1))
            inner, _, outer = layout.partition("_")
            expected = expected if (outer or inner) == "NTD" else expected.transpose(0, 1)
            kwargs = {"num_query_heads": key_heads * 2, "num_key_value_heads": key_heads, "softmax_scale": 0.3}
            kwargs |= {"input_layout": layout, "actual_seq_qlen": np.cumsum(lengths).tolist(), "sparse_mode": mode or 0}
            kwargs |= {"pre_tokens": before, "next_tokens": after, "atten_mask": None if mode is None else MASK.npu()}
            if sink is not None:
                kwargs["learnable_sink"] = sink.npu()
            if seed % 2:
                longest = max(*key_lengths, 1)
                padded = [torch.nn.functional.pad(t, (0, 0, 0, longest - t.shape[2])) for t in keys]
                stored, tables = [], []
                for i in range(2):
                    stacked = torch.stack([t[i] for t in padded])
                    cache, table = paged(stacked, 16, "BnBsH", torch.Generator().manual_seed(seed))
                    stored.append(cache.npu())
                    tables.append(table)
                kwargs |= {"block_table": tables[0].npu(), "block_size": 16, "actual_seq_kvlen": key_lengths}
            else:
                stored = [torch.cat([t[i] for t in keys], 1) for i in range(2)]
                stored = [(t.transpose(0, 1) if inner == "TND" else t).contiguous().npu() for t in stored]
                kwargs["actual_seq_kvlen"] = np.cumsum(key_lengths).tolist()
            given = (query.transpose(0, 1) if inner == "TND" else query).contiguous().npu()
            out, _ = torch.npu_fused_infer_attention_score_v2(given, *stored, **kwargs)
            self.assertEqual(tuple(out.shape), tuple(expected.shape))
            self.assertEqual(out.cpu().double(), expected, atol=3e-3, rtol=2e-2, msg=str((seed, kwargs)))

    def test_rotated_part(self):
        generator = torch.Generator().manual_seed(2)
        query, key = halves(2, 4, 3, 512, generator=generator), halves(2, 1, 33, 512, generator=generator)
        query_rope, key_rope = halves(2, 4, 3, 64, generator=generator), halves(2, 1, 33, 64, generator=generator)
        joined = torch.cat([query, query_rope], -1), torch.cat([key, key_rope], -1)
        lengths = [33, 10]
        expected = batch_reference(*joined, key, 0.04, lambda b, n, m: shown(3, n, m), [3, 3], lengths)
        stored, table = paged(key, 16, "NZ", torch.Generator().manual_seed(0))
        stored_rope, _ = paged(key_rope, 16, "NZ", torch.Generator().manual_seed(0))
        kwargs = {"query_rope": laid_out(query_rope, "BSND").npu(), "key_rope": stored_rope.npu(), "sparse_mode": 3}
        kwargs |= {"num_heads": 4, "num_key_value_heads": 1, "scale": 0.04, "input_layout": "BSND_NBSD"}
        kwargs |= {"block_table": table.npu(), "block_size": 16, "actual_seq_lengths_kv": lengths}
        out, sums = torch.npu_fused_infer_attention_score(
            laid_out(query, "BSND").npu(), stored.npu(), stored.npu(), atten_mask=MASK.npu(), **kwargs
        )
        self.assertEqual(out.cpu().double(), expected[0].transpose(0, 1), atol=3e-3, rtol=2e-2)
        self.assertEqual(sums.cpu(), torch.zeros(1))

    def test_padding_and_prefix(self):
        generator = torch.Generator().manual_seed(3)
        query, key = halves(2, 2, 6, 16, generator=generator), halves(2, 2, 9, 16, generator=generator)
        value = halves(2, 2, 9, 16, generator=generator)
        # The positions end two and one before the last one.
        expected = torch.zeros(2, 2, 6, 16, dtype=torch.double)
        for b, (n, m) in enumerate(((4, 5), (2, 8))):
            part = heads(query[b, :, 4 - n : 4], key[b, :, 8 - m : 8], value[b, :, 8 - m : 8], 0.3, shown(3, n, m))[0]
            expected[b, :, 4 - n : 4] = torch.from_numpy(part)
        kwargs = {"num_heads": 2, "scale": 0.3, "input_layout": "BNSD"}
        given = [t.npu() for t in (query, key, value)]
        out, _ = torch.npu_fused_infer_attention_score(
            *given,
            atten_mask=MASK.npu(),
            sparse_mode=3,
            actual_seq_lengths=[4, 2],
            actual_seq_lengths_kv=[5, 8],
            query_padding_size=torch.tensor([2]).npu(),
            kv_padding_size=torch.tensor([1]).npu(),
            **kwargs,
        )
        self.assertEqual(out.cpu().double(), expected, atol=3e-3, rtol=2e-2)
        prefix = halves(2, 1, 2, 5, 16, generator=generator)
        longer = [
            torch.cat([p[:, :, :3].expand(2, -1, -1, -1), t], 2) for p, t in zip(prefix, (key, value), strict=True)
        ]
        everything = batch_reference(query, *longer, 0.3, lambda b, n, m: np.ones((n, m)), [6, 6], [12, 7])
        out, _ = torch.npu_fused_infer_attention_score(
            *given,
            actual_seq_lengths_kv=[9, 4],
            key_shared_prefix=prefix[0].npu(),
            value_shared_prefix=prefix[1].npu(),
            actual_shared_prefix_len=[3],
            **kwargs,
        )
        self.assertEqual(out.cpu().double(), everything[0], atol=3e-3, rtol=2e-2)

    def test_small_integers(self):
        generator = torch.Generator().manual_seed(4)
        query = halves(2, 4, 1, 16, generator=generator)
        key, value = (torch.randint(-100, 100, (2, 2, 11, 16), generator=generator, dtype=torch.int8) for _ in range(2))
        shapes = {0: (1, 2, 1, 16), 1: (1, 2, 11), 2: (2,), 3: (2, 2, 11)}
        spread = {0: (1, 2, 1, 16), 1: (2, 1, 11, 1), 2: (1, 2, 1, 1), 3: (2, 2, 11, 1)}
        for mode in range(4):
            scales, offsets = (torch.rand(2, *shapes[mode], generator=generator) / 50 + 0.002 for _ in range(2))
            scales, offsets = scales.half(), (offsets * 500).half()
            plain = [
                (t.double() + o.double().view(spread[mode])) * s.double().view(spread[mode])
                for t, s, o in zip((key, value), scales, offsets, strict=True)
            ]
            expected = batch_reference(query, *plain, 0.2, lambda b, n, m: np.ones((n, m)), [1, 1], [11, 11])
            named = {"key_antiquant_scale": scales[0], "value_antiquant_scale": scales[1]}
            named |= {"key_antiquant_offset": offsets[0], "value_antiquant_offset": offsets[1]}
            out, _ = torch.npu_fused_infer_attention_score(
                *(t.npu() for t in (query, key, value)),
                **{k: v.npu() for k, v in named.items()},
                key_antiquant_mode=mode,
                value_antiquant_mode=mode,
                num_heads=4,
                num_key_value_heads=2,
                scale=0.2,
                input_layout="BNSD",
            )
            self.assertEqual(out.cpu().double(), expected[0], atol=5e-3, rtol=2e-2, msg=str(mode))
            if mode == 0:
                out = torch.npu_incre_flash_attention(
                    *(t.npu() for t in (query, key, value)),
                    antiquant_scale=scales.npu(),
                    antiquant_offset=offsets.npu(),
                    num_heads=4,
                    num_key_value_heads=2,
                    scale_value=0.2,
                    input_layout="BNSD",
                )
                self.assertEqual(out.cpu().double(), expected[0], atol=5e-3, rtol=2e-2)

    def test_prompt(self):
        generator = torch.Generator().manual_seed(5)
        query, key = halves(2, 2, 5, 16, generator=generator), halves(2, 2, 7, 16, generator=generator)
        value, mask = halves(2, 2, 7, 16, generator=generator), torch.zeros(5, 7, dtype=torch.uint8)
        # next_tokens is 0 unless told, and only counts with a mask.
        for given, visible in ((mask, shown(0, 5, 7, after=0)), (None, np.ones((5, 7)))):
            expected = batch_reference(query, key, value, 0.3, lambda b, n, m, v=visible: v[:n, :m], [5, 2], [7, 6])
            out = torch.npu_prompt_flash_attention(
                *(t.npu() for t in (query, key, value)),
                atten_mask=None if given is None else given.npu(),
                actual_seq_lengths=[5, 2],
                actual_seq_lengths_kv=[7, 6],
                num_heads=2,
                scale_value=0.3,
                input_layout="BNSD_BSND",
            )
            self.assertEqual(out.cpu().double(), laid_out(expected[0], "BSND"), atol=3e-3, rtol=2e-2)

    def test_empty(self):
        query, key = torch.ones(2, 3, 32).half().npu(), torch.ones(2, 0, 32).half().npu()
        out, sums = torch.npu_fused_infer_attention_score(query, key, key, num_heads=2, softmax_lse_flag=True)
        self.assertEqual(out, torch.zeros_like(out))
        self.assertEqual(sums, torch.full_like(sums, float("-inf")))
        out, _ = torch.npu_fused_infer_attention_score(query[:, :0], query, query, num_heads=2)
        self.assertEqual(tuple(out.shape), (2, 0, 32))

    def test_out_and_announced(self):
        query, cache = torch.randn(2, 1, 64).half().npu(), torch.randn(4, 16, 32).half().npu()
        table = torch.tensor([[0, 1], [3, 2]], dtype=torch.int32).npu()
        kwargs = {"num_heads": 4, "num_key_value_heads": 2, "block_table": table}
        more = {"block_size": 16, "actual_seq_lengths_kv": [20, 32]}
        out, sums = torch.npu_fused_infer_attention_score(query, cache, cache, **kwargs, **more, softmax_lse_flag=True)
        space = torch.ops.npu._npu_fused_infer_attention_score_get_max_workspace(query, cache, cache, **kwargs, **more)
        empty = torch.ops.npu._npu_fused_infer_attention_score_infer_output(
            query, cache, **kwargs, softmax_lse_flag=True
        )
        torch.npu_fused_infer_attention_score.out(
            query,
            cache,
            cache,
            **kwargs,
            **more,
            softmax_lse_flag=True,
            workspace=space,
            out=list(empty),
        )
        self.assertEqual(empty, (out, sums))

    def test_compiled(self):
        generator = torch.Generator().manual_seed(6)
        query, key = halves(2, 3, 32, generator=generator), halves(2, 9, 32, generator=generator)
        cache = halves(4, 16, 32, generator=generator)
        table = torch.tensor([[0, 1], [3, 2]], dtype=torch.int32)
        lengths = {"actual_seq_lengths": [3, 1], "actual_seq_lengths_kv": [9, 4]}
        steps = {"block_table": table, "block_size": 16, "actual_seq_lengths_kv": [9, 25], "num_heads": 2}
        tokens = query.view(6, 2, 16)
        v2 = {"num_query_heads": 2, "input_layout": "TND", "sparse_mode": 3, "atten_mask": MASK}
        v2 |= {"actual_seq_qlen": [1, 6], "actual_seq_kvlen": [9, 20], "block_table": table, "block_size": 16}
        for call in (
            Call(NAME, (query, key, key), {"num_heads": 2, "atten_mask": MASK, "sparse_mode": 3, **lengths}),
            Call(NAME, (query[:, :1].contiguous(), cache, cache), {**steps, "softmax_lse_flag": True}),
            Call(f"{NAME}_v2", (tokens, cache, cache), v2),
            Call("npu_prompt_flash_attention", (query, key, key), {"num_heads": 2, **lengths}),
            Call("npu_incre_flash_attention", (query[:, :1].contiguous(), key, key), {"num_heads": 2}),
            Call(f"_{NAME}_infer_output", (query, key), {"num_heads": 2, "softmax_lse_flag": True}),
        ):
            with self.subTest(name=call.name):
                self.check_call(call)
                if "infer_output" not in call.name:
                    self.check_compiled(call)

    def test_lengths_as_symbols(self):
        query, cache = torch.randn(2, 1, 32).half().npu(), torch.randn(4, 16, 32).half().npu()
        table = torch.tensor([[0, 1], [3, 2]], dtype=torch.int32).npu()

        def run(first, second):
            lengths = {"actual_seq_lengths_kv": [first, second]}
            kwargs = {"num_heads": 2, "block_table": table, "block_size": 16, **lengths}
            return torch.npu_fused_infer_attention_score(query, cache, cache, **kwargs)[0]

        compiled = torch.compile(run, backend="aot_eager", fullgraph=True, dynamic=True)
        for lengths in ((20, 31), (9, 25), (7, 7)):
            self.assertEqual(compiled(*lengths), run(*lengths))

    def test_captured(self):
        query, cache = torch.randn(2, 1, 32).half().npu(), torch.randn(4, 16, 32).half().npu()
        table = torch.tensor([[0, 1], [3, 2]], dtype=torch.int32).npu()
        kwargs = {"num_heads": 2, "block_table": table, "block_size": 16, "actual_seq_lengths_kv": [9, 25]}
        torch.npu_fused_infer_attention_score(query, cache, cache, **kwargs)
        graph = torch.npu.NPUGraph()
        with torch.npu.graph(graph):
            out, _ = torch.npu_fused_infer_attention_score(query, cache, cache, **kwargs)
        query.normal_()
        table.copy_(table.flip(0))
        graph.replay()
        self.assertEqual(out, torch.npu_fused_infer_attention_score(query, cache, cache, **kwargs)[0])

    def test_refusals(self):
        q = torch.ones(2, 3, 32).half().npu()
        f = torch.ones(1).npu()
        for error, message, kwargs in (
            (NotImplementedError, "pse_shift must be None", {"pse_shift": q}),
            (NotImplementedError, "quant_scale2 must be None", {"quant_scale2": f}),
            (RuntimeError, "input_layout must be one of", {"input_layout": "NBS"}),
            (RuntimeError, "sparse_mode must be 0, 1, 2, 3 or 4, but is 5", {"sparse_mode": 5}),
            (RuntimeError, "sparse_mode 3 needs atten_mask", {"sparse_mode": 3}),
            (RuntimeError, r"must be \(2048, 2048\)", {"sparse_mode": 3, "atten_mask": MASK[:8].npu()}),
            (RuntimeError, "block_table needs actual_seq_lengths_kv", {"block_table": q}),
            (RuntimeError, "actual_seq_lengths_kv must be 0 to the 3", {"actual_seq_lengths_kv": [4]}),
            (RuntimeError, "num_key_value_heads must divide", {"num_key_value_heads": 3}),
            (RuntimeError, "query_rope and key_rope go together", {"query_rope": q}),
            (RuntimeError, "with query_rope a head must have 128 or 512", {"query_rope": q, "key_rope": q}),
            (RuntimeError, "key_antiquant_scale goes with", {"key_antiquant_scale": f, "value_antiquant_scale": f}),
        ):
            with self.assertRaisesRegex(error, f"{NAME}: .*{message}"):
                torch.npu_fused_infer_attention_score(q, q, q, **{"num_heads": 2, **kwargs})
        with self.assertRaisesRegex(RuntimeError, f"{NAME}: query must be one of"):
            torch.npu_fused_infer_attention_score(q.float(), q, q, num_heads=2)
        with self.assertRaisesRegex(NotImplementedError, "sparse_mode 9"):
            torch.npu_fused_infer_attention_score_v2(q, q, q, num_query_heads=2, sparse_mode=9)


if __name__ == "__main__":
    run_tests()
