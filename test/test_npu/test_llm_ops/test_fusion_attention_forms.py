"""The further forms of npu_fusion_attention against attention row by row, and against autograd."""

import numpy as np
from attention_references import heads, laid_out, shown
from llm_ops_case import Call, LlmOpsTestCase, run_tests

import torch

MASK = torch.ones(2048, 2048, dtype=torch.bool).triu(1)


def draw(*shape, seed):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


class TestFusionAttentionForms(LlmOpsTestCase):
    def test_rotated_part(self):
        """v2 in each layout; the heads of query and key have a further part."""
        query, key, value = draw(2, 4, 3, 8, seed=1), draw(2, 2, 5, 8, seed=2), draw(2, 2, 5, 8, seed=3)
        query_rope, key_rope = draw(2, 4, 3, 4, seed=4), draw(2, 2, 5, 4, seed=5)
        joined = torch.cat([query, query_rope], -1), torch.cat([key, key_rope], -1)
        expected = [heads(joined[0][b], joined[1][b], value[b], 0.3, shown(3, 3, 5))[0] for b in range(2)]
        expected = torch.from_numpy(np.stack(expected))
        for layout in ("BSH", "SBH", "BSND", "BNSD"):
            given = [laid_out(t, layout).npu().requires_grad_() for t in (query, key, value)]
            ropes = [laid_out(t, layout).npu().requires_grad_() for t in (query_rope, key_rope)]
            kwargs = {"query_rope": ropes[0], "key_rope": ropes[1], "atten_mask": MASK.npu(), "sparse_mode": 3}
            out = torch.npu_fusion_attention_v2(*given, 4, layout, scale=0.3, **kwargs)[0]
            self.assertEqual(out.cpu().double(), laid_out(expected, layout), atol=1e-5, rtol=1e-5, msg=layout)
            dy = torch.randn_like(out)
            wanted = torch.autograd.grad(out, (*given, *ropes), dy)
            with torch.no_grad():
                found = torch.npu_fusion_attention_grad_v2(*given, dy, 4, layout, scale_value=0.3, **kwargs)
            for i, j in ((0, 0), (1, 1), (2, 2), (4, 3), (5, 4)):
                self.assertEqual(found[i], wanted[j], atol=1e-5, rtol=1e-5, msg=f"{layout}: {i}")
            self.assertEqual((found[3].numel(), found[6].numel()), (0, 0))

    def test_gradient_of_float64(self):
        inputs = [draw(1, 2, 3, 4, seed=s).double().npu().requires_grad_() for s in range(3)]
        ropes = [draw(1, 2, 3, 2, seed=s).double().npu().requires_grad_() for s in (3, 4)]

        def run(query, key, value, query_rope, key_rope):
            ropes = {"query_rope": query_rope, "key_rope": key_rope}
            return torch.npu_fusion_attention_v2(query, key, value, 2, "BNSD", scale=0.5, **ropes)[0]

        self.assertTrue(torch.autograd.gradcheck(run, (*inputs, *ropes)))

    def test_tensors_for_numbers(self):
        query, key, value = draw(5, 2, 8, seed=1), draw(7, 2, 8, seed=2), draw(7, 2, 8, seed=3)
        ends = torch.tensor([2, 5]), torch.tensor([4, 7])
        parts = []
        for s, e, ks, ke in ((0, 2, 0, 4), (2, 5, 4, 7)):
            moved = [t.transpose(0, 1) for t in (query[s:e], key[ks:ke], value[ks:ke])]
            parts.append(heads(*moved, 0.3, shown(3, e - s, ke - ks))[0])
        expected = torch.from_numpy(np.concatenate(parts, 1)).transpose(0, 1)
        given = [t.npu().requires_grad_() for t in (query, key, value)]
        kwargs = {"atten_mask": MASK.npu(), "sparse_mode": 3, "actual_seq_qlen": ends[0], "actual_seq_kvlen": ends[1]}
        out, top, total, _, seed, offset = torch.npu_fusion_attention_v3(*given, 2, "TND", scale=0.3, **kwargs)
        self.assertEqual(out.cpu().double(), expected, atol=1e-5, rtol=1e-5)
        self.assertEqual((seed.device.type, seed.dtype, offset.device.type), ("cpu", torch.int64, "cpu"))
        dy = torch.randn_like(out)
        wanted = torch.autograd.grad(out, given, dy)
        with torch.no_grad():
            found = torch.npu_fusion_attention_grad_v3(*given, dy, 2, "TND", scale_value=0.3, **kwargs)
        for got, want in zip(found[:3], wanted, strict=True):
            self.assertEqual(got, want, atol=1e-5, rtol=1e-5)
        targets = [torch.empty_like(t) for t in (out, top, total)]
        targets += [torch.empty(0).npu(), torch.empty_like(seed), torch.empty_like(offset)]
        with torch.no_grad():
            torch.npu_fusion_attention_v3.out(*given, 2, "TND", scale=0.3, **kwargs, out=targets)
        self.assertEqual(targets[:3], [out, top, total])
        grads = [torch.empty_like(t) for t in given] + [torch.empty(0).npu(), torch.empty(0).npu()]
        with torch.no_grad():
            torch.npu_fusion_attention_grad_v3.out(*given, dy, 2, "TND", scale_value=0.3, **kwargs, out=grads)
        self.assertEqual(grads[:3], list(wanted))

    def test_dropout_of_the_gradient(self):
        given = [draw(1, 2, 8, 16, seed=s).npu().requires_grad_() for s in range(3)]
        out, *_, seed, offset = torch.npu_fusion_attention_v3(*given, 2, "BNSD", scale=0.3, keep_prob=0.5)
        wanted = torch.autograd.grad(out, given, torch.ones_like(out))
        kwargs = {"scale_value": 0.3, "keep_prob": 0.5, "seed": seed, "offset": offset}
        with torch.no_grad():
            found = torch.npu_fusion_attention_grad_v3(*given, torch.ones_like(out), 2, "BNSD", **kwargs)
        self.assertEqual(found[:3], wanted, atol=1e-5, rtol=1e-5)
        with self.assertRaisesRegex(RuntimeError, "keep_prob below 1 needs seed and offset"):
            torch.npu_fusion_attention_grad_v3(*given, out, 2, "BNSD", keep_prob=0.5)

    def test_announced(self):
        """The tensors to write into have the shapes of the results, in every layout."""
        for layout in ("BSH", "SBH", "BSND", "BNSD", "TND"):
            shapes = [(2, 4, 3, 8), (2, 2, 5, 8), (2, 2, 5, 6)]
            given = [
                laid_out(draw(*s, seed=1), layout) if layout != "TND" else draw(s[2], s[1], s[3], seed=1)
                for s in shapes
            ]
            given = [t.npu() for t in given]
            ends = (
                {"actual_seq_qlen": torch.tensor([3]), "actual_seq_kvlen": torch.tensor([5])} if layout == "TND" else {}
            )
            results = torch.npu_fusion_attention_v3(*given, 4, layout, **ends)
            told = torch.ops.npu._npu_fusion_attention_v3_infer_output(*given, 4, layout)
            space = torch.ops.npu._npu_fusion_attention_v3_get_max_workspace(*given, 4, layout)
            self.assertEqual([(t.shape, t.dtype) for t in told], [(t.shape, t.dtype) for t in results[:3]], msg=layout)
            sink = torch.randn(4).npu()
            grads = torch.npu_fusion_attention_grad_v3(*given, results[0], 4, layout, sink=sink, **ends)
            told = torch.ops.npu._npu_fusion_attention_grad_v3_infer_output(*given, None, sink)
            self.assertEqual([(t.shape, t.dtype) for t in told], [(t.shape, t.dtype) for t in grads], msg=layout)
            again = torch.ops.npu._npu_fusion_attention_grad_v3_get_max_workspace(*given, results[0], 4, layout)
            self.assertEqual((space.numel(), again.numel()), (0, 0))

    def test_compiled(self):
        query, key = draw(2, 2, 3, 8, seed=1), draw(2, 2, 5, 8, seed=2)
        rope = {"query_rope": draw(2, 2, 3, 4, seed=3), "key_rope": draw(2, 2, 5, 4, seed=4)}
        for call in (
            Call("npu_fusion_attention_v2", (query, key, key, 2, "BNSD"), rope),
            Call("npu_fusion_attention_grad_v2", (query, key, key, query, 2, "BNSD"), rope),
            Call("npu_fusion_attention_v3", (query, key, key, 2, "BNSD")),
            Call("npu_fusion_attention_grad_v3", (query, key, key, query, 2, "BNSD")),
        ):
            with self.subTest(name=call.name):
                self.check_call(call)
                self.check_compiled(call)

    def test_refusals(self):
        q = torch.ones(1, 2, 3, 8).npu()
        for message, kwargs in (
            ("pse_type 0 is not documented", {"pse_type": 0}),
            ("q_start_idx must be None", {"q_start_idx": [1]}),
        ):
            with self.assertRaisesRegex(NotImplementedError, f"npu_fusion_attention_v2: {message}"):
                torch.npu_fusion_attention_v2(q, q, q, 2, "BNSD", **kwargs)
        with self.assertRaisesRegex(RuntimeError, "query_rope and key_rope go together"):
            torch.npu_fusion_attention_v2(q, q, q, 2, "BNSD", query_rope=q)


if __name__ == "__main__":
    run_tests()
