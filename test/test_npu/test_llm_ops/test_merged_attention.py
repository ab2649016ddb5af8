"""Results of parts of the keys, put together, against attention over all of them."""

import numpy as np
from attention_references import heads, laid_out
from llm_ops_case import Call, LlmOpsTestCase, run_tests

import torch


def update(lse, local_out, update_type):
    """The formula of the page, row by row."""
    out, total = torch.zeros_like(local_out[0]), torch.zeros_like(lse[0])
    for row in range(len(total)):
        terms = np.array([float(s[row]) for s in lse])
        total[row] = terms.max() + np.log(np.exp(terms - terms.max()).sum())
        out[row] = sum(np.exp(t - float(total[row])) * part[row] for t, part in zip(terms, local_out, strict=True))
    return out, total if update_type else torch.empty(0)


def calls():
    generator = torch.Generator().manual_seed(1)
    parts = [torch.randn(6, 16, generator=generator) for _ in range(3)]
    sums = [torch.randn(6, generator=generator) * 3 for _ in range(3)]
    ring = [
        torch.randn(4, 2, 6, generator=generator),
        *(torch.rand(2, 3, 4, 8, generator=generator) + 1 for _ in range(2)),
    ]
    return [
        Call("npu_attention_update", (sums, parts, 1), {}, update),
        Call("npu_attention_update", (sums[:1], [parts[0].half()], 0), {}, update),
        Call("npu_ring_attention_update", (*ring, *ring)),
    ]


class TestMergedAttention(LlmOpsTestCase):
    def test_calls(self):
        self.check_calls("merged_attention", calls())

    def test_parts_of_inference(self):
        """The logarithms of npu_fused_infer_attention_score are what the update takes."""
        generator = torch.Generator().manual_seed(2)
        query, key = torch.randn(1, 2, 3, 16, generator=generator), torch.randn(1, 2, 9, 16, generator=generator)
        outs, sums = [], []
        for start, end in ((0, 4), (4, 9)):
            part = key[:, :, start:end].contiguous().half().npu()
            out, lse = torch.npu_fused_infer_attention_score(
                query.half().npu(), part, part, num_heads=2, scale=0.3, input_layout="BNSD", softmax_lse_flag=True
            )
            outs.append(out.view(-1, 16))
            sums.append(lse.flatten())
        empty = torch.full_like(sums[0], float("-inf"))
        got, _ = torch.npu_attention_update([*sums, empty], [*outs, torch.full_like(outs[0], float("nan"))], 0)
        expected = heads(query[0], key[0], key[0], 0.3, np.ones((3, 9)))[0]
        self.assertEqual(got.view(2, 3, 16).cpu().double(), torch.from_numpy(expected), atol=5e-3, rtol=2e-2)

    def test_ring(self):
        """Two halves of the keys by npu_fusion_attention, in both layouts and both orders of statistics."""
        generator = torch.Generator().manual_seed(3)
        query = torch.randn(2, 3, 4, 8, generator=generator)
        key, value = (torch.randn(2, 3, 10, 8, generator=generator) for _ in range(2))
        expected = torch.from_numpy(
            np.stack([heads(query[b], key[b], value[b], 0.3, np.ones((4, 10)))[0] for b in range(2)])
        )
        # The second sequence sees nothing of the second half.
        hidden = torch.zeros(2, 1, 4, 5, dtype=torch.bool)
        hidden[1] = True
        expected[1] = torch.from_numpy(heads(query[1], key[1, :, :5], value[1, :, :5], 0.3, np.ones((4, 5)))[0])
        given = []
        for part, mask in ((slice(0, 5), None), (slice(5, 10), hidden.npu())):
            moved = [laid_out(t, "SBH").npu() for t in (query, key[:, :, part], value[:, :, part])]
            given += torch.npu_fusion_attention(*moved, 3, "SBH", scale=0.3, atten_mask=mask)[:3]
        out, top, total = torch.npu_ring_attention_update(*given)
        self.assertEqual(out.cpu().double(), laid_out(expected, "SBH"), atol=1e-5, rtol=1e-5)
        scores = torch.einsum("nsd,nkd->nsk", query[0].double(), key[0].double()) * 0.3
        lse = (top + total.log())[0, :, :, 0].cpu().double()
        self.assertEqual(lse, scores.logsumexp(-1), atol=1e-5, rtol=1e-5)
        for softmax_layout in ("", "TND"):
            given, ends = [], torch.tensor([3, 8])
            tokens, stored = torch.randn(8, 2, 8, generator=generator), torch.randn(8, 2, 8, generator=generator)
            for part in (slice(0, 4), slice(4, 8)):
                lengths = {"actual_seq_qlen": [3, 8], "actual_seq_kvlen": [2, 4], "softmax_layout": softmax_layout}
                moved = [t.contiguous().npu() for t in (tokens, stored[part], stored[part])]
                given += torch.npu_fusion_attention(*moved, 2, "TND", scale=0.3, **lengths)[:3]
            out, _, _ = torch.npu_ring_attention_update(
                *given, actual_seq_qlen=ends, input_layout="TND", input_softmax_layout=softmax_layout
            )
            for start, end, seen in ((0, 3, [0, 1, 4, 5]), (3, 8, [2, 3, 6, 7])):
                moved = [t.transpose(0, 1) for t in (tokens[start:end], stored[seen], stored[seen])]
                want = torch.from_numpy(heads(*moved, 0.3, np.ones((end - start, 4)))[0]).transpose(0, 1)
                self.assertEqual(out[start:end].cpu().double(), want, atol=1e-5, rtol=1e-5, msg=softmax_layout)

    def test_refusals(self):
        x, s = torch.ones(3, 16).npu(), torch.ones(3).npu()
        for message, args in (
            ("update_type must be 0 or 1, but is 2", ([s], [x], 2)),
            ("lse has 1 parts, but local_out has 2", ([s], [x, x], 0)),
            ("lse must have 1 to 16 parts", ([s] * 17, [x] * 17, 0)),
            ("the width of local_out", ([s], [x[:, :7]], 0)),
        ):
            with self.assertRaisesRegex(RuntimeError, f"npu_attention_update: {message}"):
                torch.npu_attention_update(*args)


if __name__ == "__main__":
    run_tests()
