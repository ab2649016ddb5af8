"""Attention to lists of keys, and their choice, against loops over queries."""

import random

import numpy as np
from attention_references import paged, rows
from llm_ops_case import Call, LlmOpsTestCase, run_tests

import torch

SPARSE, INDEXER = "npu_sparse_flash_attention", "npu_lightning_indexer"


def case(seed, layout, key_layout, width):
    """Sequences as lists of (queries, heads, width) and (keys, width), and how a layout holds them."""
    rng, generator = random.Random(seed), torch.Generator().manual_seed(seed)
    batch, heads = rng.randint(1, 3), rng.choice((1, 2, 4))
    lengths, key_lengths = ([rng.randint(0, n) for _ in range(batch)] for n in (3, 20))
    lengths[0], key_lengths[0] = max(lengths[0], 1), max(key_lengths[0], 1)
    longest, key_longest = max(lengths), max(key_lengths)

    def held(tensors, of, total, kind):
        if kind == "TND":
            return torch.cat([t[:n] for t, n in zip(tensors, of, strict=True)])
        return torch.stack(list(tensors))

    def ends(of, kind):
        return torch.tensor(np.cumsum(of) if kind == "TND" else of, dtype=torch.int32)

    def query(size, *last):
        each = torch.randn(batch, longest, heads, *last, generator=generator)
        return (each / 2).half() if size else each

    def stored(size):
        each = (torch.randn(batch, key_longest, size, generator=generator) / 2).half()
        if key_layout != "PA_BSND":
            return each, held(each.unsqueeze(2), key_lengths, key_longest, key_layout), None
        cache, table = paged(each.unsqueeze(1), 16, "BnNBsD", torch.Generator().manual_seed(seed))
        return each, cache.transpose(1, 2).contiguous(), table

    return rng, generator, lengths, key_lengths, held, ends, query, stored


class TestSparseAttention(LlmOpsTestCase):
    def sparse(self, seed, layout, key_layout, flag=False):
        rng, generator, lengths, key_lengths, held, ends, draw, stored = case(seed, layout, key_layout, 512)
        mode, block = rng.choice((0, 3)), rng.choice((1, 4))
        query, rope = draw(1, 512), draw(1, 64)
        keys, key, table = stored(512)
        turned, key_rope, _ = stored(64)
        batch, longest, heads, _ = query.shape
        blocks = -(-max(key_lengths) // block)
        chosen = torch.full((batch, longest, 1, blocks + 2), -1, dtype=torch.int32)
        for b in range(batch):
            for i in range(longest):
                count = rng.randint(0, blocks)
                chosen[b, i, 0, :count] = torch.randperm(blocks, generator=generator)[:count].int()
        sink = torch.randn(heads, generator=generator) if seed % 3 == 0 and not flag else None
        out = torch.zeros(batch, longest, heads, 512, dtype=torch.double)
        top, total = (torch.zeros(batch, longest, heads, dtype=torch.double) for _ in range(2))
        for b in range(batch):
            joined = torch.cat([query[b], rope[b]], -1).double().numpy()
            all_keys = torch.cat([keys[b], turned[b]], -1).double().numpy()
            for i in range(lengths[b]):
                last = key_lengths[b] if mode == 0 else key_lengths[b] - lengths[b] + i + 1
                named = [c * block + o for c in chosen[b, i, 0].tolist() if c >= 0 for o in range(block)]
                visible = np.zeros((1, all_keys.shape[0]), dtype=bool)
                visible[0, [j for j in named if j < min(last, key_lengths[b])]] = True
                for h in range(heads):
                    s = None if sink is None else float(sink[h])
                    found = rows(joined[i, h : h + 1], all_keys, all_keys[:, :512], 0.1, visible, s)
                    out[b, i, h] = torch.from_numpy(found[0][0])
                    scores = 0.1 * all_keys[visible[0]] @ joined[i, h]
                    if len(scores):
                        top[b, i, h], total[b, i, h] = scores.max(), np.exp(scores - scores.max()).sum()
        expected = [held(t, lengths, longest, layout) for t in (out, top, total)]
        expected[1:] = [t.unsqueeze(1 if layout == "BSND" else 0) if flag else torch.empty(0) for t in expected[1:]]
        given = [held(t, lengths, longest, layout) for t in (query, chosen, rope)]
        kwargs = {"query_rope": given[2], "key_rope": key_rope, "sparse_block_size": block, "attention_mode": 2}
        kwargs |= {"layout_query": layout, "layout_kv": key_layout, "sparse_mode": mode, "return_softmax_lse": flag}
        kwargs |= {"actual_seq_lengths_query": ends(lengths, layout), "block_table": table, "sinks": sink}
        kwargs["actual_seq_lengths_kv"] = ends(key_lengths, key_layout)
        return Call(SPARSE, (given[0], key, key, given[1], 0.1), kwargs, lambda *a, **k: tuple(expected), (2e-3, 2e-2))

    def test_sparse(self):
        for seed in range(12):
            for layout, key_layout in (("BSND", "BSND"), ("TND", "TND"), ("TND", "PA_BSND"), ("BSND", "PA_BSND")):
                flag = seed % 2 == 0 and key_layout != "PA_BSND"
                with self.subTest(seed=seed, layout=layout, key_layout=key_layout):
                    self.check_call(self.sparse(seed, layout, key_layout, flag))
        for layouts in (("BSND", "BSND"), ("TND", "PA_BSND")):
            self.check_compiled(self.sparse(1, *layouts))

    def test_gradient(self):
        for layout in ("BSND", "TND"):
            call = self.sparse(4, layout, layout, True)
            query, key, _, indices, scale = (t.npu() if isinstance(t, torch.Tensor) else t for t in call.args)
            kwargs = {k: v.npu() if isinstance(v, torch.Tensor) else v for k, v in call.kwargs.items()}
            value = key.clone()
            inputs = [t.requires_grad_() for t in (query, key, value, kwargs["query_rope"], kwargs["key_rope"])]
            out, top, total = torch.npu_sparse_flash_attention(query, key, value, indices, scale, **kwargs)
            dy = torch.randn_like(out)
            wanted = torch.autograd.grad(out, inputs, dy)
            back = (query, key, value, indices, dy, out, top, total, scale, kwargs["sparse_block_size"], *inputs[3:])
            back = (*back, kwargs["actual_seq_lengths_query"], kwargs["actual_seq_lengths_kv"], layout)
            back = (*back, kwargs["sparse_mode"])
            with torch.no_grad():
                found = torch.npu_sparse_flash_attention_grad(*back, attention_mode=2)
            for got, want in zip(found, wanted, strict=True):
                self.assertEqual(got, want, atol=2e-2, rtol=2e-2)
            cpu = tuple(t.detach().cpu() if isinstance(t, torch.Tensor) else t for t in back)
            plain = Call(f"{SPARSE}_grad", cpu, {"attention_mode": 2})
            self.check_call(plain)
        self.check_compiled(plain)

    def test_small_integers(self):
        """Integers with scales choose as the numbers that they stand for do."""
        generator = torch.Generator().manual_seed(3)
        for layout, key_layout in (("BSND", "BSND"), ("TND", "PA_BSND")):
            query = torch.randint(-50, 50, (2, 3, 4, 128), generator=generator, dtype=torch.int8)
            key = torch.randint(-50, 50, (2, 16, 1, 128), generator=generator, dtype=torch.int8)
            scales = [torch.rand(t.shape[:-1], generator=generator) / 50 + 0.01 for t in (query, key)]
            weights = torch.randn(2, 3, 4, generator=generator).half()
            kwargs = {"layout_query": layout, "layout_key": key_layout, "sparse_count": 5}
            kwargs["actual_seq_lengths_key"] = torch.tensor([16, 11], dtype=torch.int32)
            if layout == "TND":
                query, scales[0], weights = (t.flatten(0, 1) for t in (query, scales[0], weights))
                kwargs["actual_seq_lengths_query"] = torch.tensor([2, 6], dtype=torch.int32)
                kwargs["block_table"] = torch.tensor([[1], [0]], dtype=torch.int32)
            plain = [t.double() * s.double().unsqueeze(-1) for t, s in zip((query, key), scales, strict=True)]
            call = Call("npu_quant_lightning_indexer", (query, key, weights, *scales, 0, 0), kwargs)
            self.check_call(call)
            self.check_compiled(call)
            got = torch.npu_quant_lightning_indexer(
                *(t.npu() for t in call.args[:5]),
                0,
                0,
                **{k: v.npu() if isinstance(v, torch.Tensor) else v for k, v in kwargs.items()},
            ).cpu()
            for token in range(6):
                b, i, n = (
                    (token // 3, token % 3, 3)
                    if layout == "BSND"
                    else (int(token >= 2), token - 2 * (token >= 2), 2 + 2 * (token >= 2))
                )
                length = (16, 11)[b]
                keys = plain[1][b if layout == "BSND" else (1, 0)[b], : length - n + i + 1, 0]
                row = plain[0].flatten(0, -3)[token]
                scores = (torch.relu(row @ keys.t()) * weights.flatten(0, -2)[token].double().unsqueeze(1)).sum(0)
                order = torch.sort(scores, descending=True, stable=True).indices[:5].int()
                self.assertEqual(got.flatten(0, -3)[token, 0], order, msg=f"{layout} {token}")

    def indexer(self, seed, layout, key_layout, flag=False):
        rng, generator, lengths, key_lengths, held, ends, draw, stored = case(seed, layout, key_layout, 128)
        mode, count = rng.choice((0, 3)), rng.choice((1, 5, 30))
        query, weights = draw(1, 128), draw(0)
        keys, key, table = stored(128)
        batch, longest, heads, _ = query.shape
        chosen = torch.full((batch, longest, 1, count), -1, dtype=torch.int32)
        best = torch.full((batch, longest, 1, count), float("-inf"), dtype=torch.double)
        for b in range(batch):
            for i in range(lengths[b]):
                last = key_lengths[b] if mode == 0 else key_lengths[b] - lengths[b] + i + 1
                scores = [
                    sum(
                        float(weights[b, i, h]) * max(0.0, float(query[b, i, h].double() @ keys[b, j].double()))
                        for h in range(heads)
                    )
                    for j in range(max(0, last))
                ]
                order = sorted(range(len(scores)), key=lambda j: (-scores[j], j))[:count]
                chosen[b, i, 0, : len(order)] = torch.tensor(order, dtype=torch.int32)
                best[b, i, 0, : len(order)] = torch.tensor([scores[j] for j in order]).double()
        expected = (
            held(chosen, lengths, longest, layout),
            held(best, lengths, longest, layout) if flag else torch.empty(0),
        )
        kwargs = {"layout_query": layout, "layout_key": key_layout, "sparse_mode": mode, "sparse_count": count}
        kwargs |= {"actual_seq_lengths_query": ends(lengths, layout), "block_table": table, "return_value": flag}
        kwargs["actual_seq_lengths_key"] = ends(key_lengths, key_layout)
        given = [held(t, lengths, longest, layout) for t in (query, weights)]
        return Call(INDEXER, (given[0], key, given[1]), kwargs, lambda *a, **k: expected, (0.0, 2e-2))

    def test_indexer(self):
        for seed in range(12):
            for layout, key_layout in (("BSND", "BSND"), ("TND", "TND"), ("TND", "PA_BSND"), ("BSND", "PA_BSND")):
                flag = seed % 2 == 0 and key_layout != "PA_BSND"
                with self.subTest(seed=seed, layout=layout, key_layout=key_layout):
                    self.check_call(self.indexer(seed, layout, key_layout, flag))
        for layouts in (("BSND", "BSND"), ("TND", "PA_BSND")):
            self.check_compiled(self.indexer(1, *layouts))

    def test_chosen_keys_are_seen(self):
        """What the indexer chooses is what the attention takes: all keys, where the list is long enough."""
        query, keys = torch.randn(1, 3, 2, 128).half().npu(), torch.randn(1, 9, 1, 128).half().npu()
        indices, _ = torch.npu_lightning_indexer(query, keys, torch.rand(1, 3, 2).half().npu(), sparse_count=16)
        self.assertEqual(torch.sort(indices[0, 2, 0], dim=0).values[-9:], torch.arange(9, dtype=torch.int32).npu())
        self.assertEqual((indices >= 0).sum(-1).flatten(), torch.tensor([7, 8, 9]).npu())

    def test_refusals(self):
        q, i = torch.ones(1, 1, 1, 512).half().npu(), torch.zeros(1, 1, 1, 1, dtype=torch.int32).npu()
        rope = torch.ones(1, 1, 1, 64).half().npu()
        good = {"query_rope": rope, "key_rope": rope, "attention_mode": 2}
        for message, kwargs in (
            ("attention_mode must be 2, but is 0", {**good, "attention_mode": 0}),
            ("attention_mode 2 needs query_rope", {"attention_mode": 2}),
            ("sparse_mode must be 0 or 3", {**good, "sparse_mode": 1}),
            ("block_table goes with PA_BSND", {**good, "layout_kv": "PA_BSND"}),
            ("pre_tokens and next_tokens must be their defaults", {**good, "pre_tokens": 1}),
        ):
            with self.assertRaisesRegex(RuntimeError, f"{SPARSE}: {message}"):
                torch.npu_sparse_flash_attention(q, q, q, i, 0.1, **kwargs)


if __name__ == "__main__":
    run_tests()
