"""Attention to blocks of keys against attention row by row, and its gradient against autograd."""

import random

import numpy as np
from attention_references import heads
from llm_ops_case import Call, LlmOpsTestCase, run_tests

import torch

NAME = "npu_block_sparse_attention"


def expanded(mask, shape, queries, keys):
    """(heads, queries, keys) of one sequence: what the blocks show."""
    found = np.zeros((mask.shape[0], queries, keys), dtype=bool)
    for i in range(queries):
        for j in range(keys):
            found[:, i, j] = mask[:, i // shape[0], j // shape[1]].numpy() != 0
    return found


class TestBlockAttention(LlmOpsTestCase):
    def case(self, seed, layout):
        rng, generator = random.Random(seed), torch.Generator().manual_seed(seed)
        batch, key_heads, share, width = rng.randint(1, 2), rng.choice((1, 2)), rng.choice((1, 2)), 64
        lengths, key_lengths = ([rng.randint(1, n) for _ in range(batch)] for n in (9, 200))
        shape = [rng.choice((1, 4)), 128]
        rows, columns = -(-max(lengths) // shape[0]), -(-max(key_lengths) // shape[1])
        mask = torch.randint(0, 2, (batch, key_heads * share, rows, columns), generator=generator, dtype=torch.int8)
        sizes = (max(lengths), max(key_lengths), max(key_lengths))
        counts = (key_heads * share, key_heads, key_heads)
        padded = [torch.randn(batch, n, s, width, generator=generator) / 2 for n, s in zip(counts, sizes, strict=True)]
        padded = [t.to(rng.choice((torch.float16, torch.bfloat16)) if seed % 2 else torch.float16) for t in padded]
        padded = [t.to(padded[0].dtype) for t in padded]
        outs, sums = [], []
        for b, (n, m) in enumerate(zip(lengths, key_lengths, strict=True)):
            part = padded[0][b, :, :n], padded[1][b, :, :m], padded[2][b, :, :m]
            found = heads(*part, 0.1, expanded(mask[b], shape, n, m))
            outs.append(torch.from_numpy(found[0]))
            sums.append(torch.from_numpy(found[1]))
        if layout == "TND":
            given = [
                torch.cat([t[b, :, :n].transpose(0, 1) for b, n in enumerate(of)])
                for t, of in zip(padded, (lengths, key_lengths, key_lengths), strict=True)
            ]
            expected = [torch.cat([t.transpose(0, 1) for t in found]) for found in (outs, sums)]
        else:
            given, expected = (
                padded,
                [torch.zeros(batch, t[0].shape[0], sizes[0], t[0].shape[2]).double() for t in (outs, sums)],
            )
            for b, n in enumerate(lengths):
                expected[0][b, :, :n], expected[1][b, :, :n] = outs[b], sums[b]
        kwargs = {"q_input_layout": layout, "kv_input_layout": layout, "num_key_value_heads": key_heads}
        kwargs |= {"scale_value": 0.1, "inner_precise": 0, "softmax_lse_flag": 1}
        kwargs |= {"actual_seq_lengths": lengths, "actual_seq_lengths_kv": key_lengths}
        return Call(NAME, (*given, mask, shape), kwargs, lambda *a, **k: tuple(expected), (1e-4, 2e-2))

    def test_calls(self):
        for seed in range(16):
            for layout in ("TND", "BNSD"):
                with self.subTest(seed=seed, layout=layout):
                    self.check_call(self.case(seed, layout))
        self.check_compiled(self.case(3, "TND"))
        self.check_compiled(self.case(3, "BNSD"))

    def test_gradient(self):
        for layout in ("TND", "BNSD"):
            call = self.case(5, layout)
            args = [t.npu() if isinstance(t, torch.Tensor) else t for t in call.args]
            inputs = [t.requires_grad_() for t in args[:3]]
            out, sums = torch.npu_block_sparse_attention(*args, **call.kwargs)
            dy = torch.randn_like(out)
            wanted = torch.autograd.grad(out, inputs, dy)
            k = call.kwargs
            back = (*args[:3], out, sums, *args[3:], k["actual_seq_lengths"], k["actual_seq_lengths_kv"])
            back = (dy, *back, layout, layout, k["num_key_value_heads"], k["scale_value"])
            with torch.no_grad():
                found = torch.npu_block_sparse_attention_backward(*back)
            for got, want in zip(found, wanted, strict=True):
                self.assertEqual(got, want, atol=2e-2, rtol=2e-2)
            plain = Call(
                f"{NAME}_backward", tuple(t.detach().cpu() if isinstance(t, torch.Tensor) else t for t in back)
            )
            self.check_call(plain)
        self.check_compiled(plain)

    def test_refusals(self):
        q, mask = torch.ones(2, 1, 64).half().npu(), torch.ones(1, 1, 1, 1, dtype=torch.int8).npu()
        lengths = {"actual_seq_lengths": [2], "actual_seq_lengths_kv": [2]}
        for message, shape, kwargs in (
            ("block_shape must be two numbers", [1, 64], lengths),
            ("layout TND needs actual_seq_lengths", [1, 128], {}),
            ("actual_seq_lengths and actual_seq_lengths_kv go together", [1, 128], {"actual_seq_lengths": [2]}),
            ("block_sparse_mask must be", [1, 128], lengths),
        ):
            with self.assertRaisesRegex(RuntimeError, f"{NAME}: {message}"):
                torch.npu_block_sparse_attention(q, q, q, mask, shape, **kwargs)
        with self.assertRaisesRegex(RuntimeError, "inner_precise must be 0"):
            b = q.bfloat16()
            torch.npu_block_sparse_attention(b, b, b, mask, [2, 128], **lengths)


if __name__ == "__main__":
    run_tests()
