"""npu_fusion_attention against one formula in fp64 on the CPU: values, gradients, dtypes, layouts, masks, errors."""

import itertools
import math

from common_utils import run_tests
from transformer_case import HALF, OpCase, draw

import torch


class TestFusionAttention(OpCase):
    """Every layout is brought to (batch, heads, positions, width), where one formula is the oracle."""

    B, N, KV, SQ, SK, D = 2, 4, 2, 5, 7, 8
    TO_HEADS = {
        "BNSD": lambda t, n: t,
        "BSND": lambda t, n: t.transpose(1, 2),
        "BSH": lambda t, n: t.unflatten(-1, (n, -1)).transpose(1, 2),
        "SBH": lambda t, n: t.unflatten(-1, (n, -1)).permute(1, 2, 0, 3),
    }
    FROM_HEADS = {
        "BNSD": lambda t: t,
        "BSND": lambda t: t.transpose(1, 2),
        "BSH": lambda t: t.transpose(1, 2).flatten(2),
        "SBH": lambda t: t.permute(2, 0, 1, 3).flatten(2),
    }

    @staticmethod
    def reference(q, k, v, scale, hidden=None, pse=None, sink=None):
        n = q.shape[1]
        k, v = (t.repeat_interleave(n // t.shape[1], 1) for t in (k, v))
        scores = q @ k.transpose(-2, -1)
        scores = (scores if pse is None else scores + pse) * scale
        if hidden is not None:
            scores = scores.masked_fill(hidden, -math.inf)
        if sink is not None:
            column = sink.view(1, n, 1, 1).expand(q.shape[0], n, q.shape[2], 1)
            return torch.cat([scores, column], -1).softmax(-1)[..., :-1] @ v
        weights = scores.softmax(-1)
        if hidden is not None:
            weights = weights.masked_fill(hidden.expand_as(weights).all(-1, keepdim=True), 0)
        return weights @ v

    def heads(self, kv=None, sq=None, sk=None, dv=None):
        kv, sq, sk = kv or self.N, sq or self.SQ, sk or self.SK
        return (
            draw(self.B, self.N, sq, self.D),
            draw(self.B, kv, sk, self.D, seed=1),
            draw(self.B, kv, sk, dv or self.D, seed=2),
        )

    def attention(self, tensors, layout, formula, *, heads=None, dtypes=HALF[:2], **options):
        names = ("atten_mask", "pse", "sink")
        there = {key: value.npu() if key in names else value for key, value in options.items()}
        heads = heads or self.N

        def op(q, k, v):
            return torch.npu_fusion_attention(q, k, v, heads, layout, scale=0.4, **there)

        def grads(dy, i, o):
            options = {key: value for key, value in there.items() if key != "keep_prob"}
            return torch.npu_fusion_attention_grad(*i, dy, heads, layout, scale_value=0.4, **options)

        self.check(op, formula, tensors, dtypes, grads)

    def test_layouts(self):
        for layout, kv in itertools.product(self.TO_HEADS, (self.N, self.KV, 1)):
            to, back = self.TO_HEADS[layout], self.FROM_HEADS[layout]
            tensors = [back(t).contiguous() for t in self.heads(kv, dv=6 if layout != "SBH" else None)]

            def formula(q, k, v, to=to, back=back, kv=kv):
                return back(self.reference(to(q, self.N), to(k, kv), to(v, kv), 0.4))

            with self.subTest(layout=layout, kv=kv):
                self.attention(tensors, layout, formula)

    def test_results_besides_the_output(self):
        q, k, v = self.heads()
        _, top, total, rest, seed, offset, numels = torch.npu_fusion_attention(
            *(t.float().npu() for t in (q, k, v)), self.N, "BNSD", scale=0.4
        )
        scores = q @ k.transpose(-2, -1) * 0.4
        for found, wanted in ((top, scores.amax(-1)), (total, (scores - scores.amax(-1, True)).exp().sum(-1))):
            self.assertEqual((found.dtype, tuple(found.shape)), (torch.float32, (self.B, self.N, self.SQ, 8)))
            self.close(found, wanted.unsqueeze(-1).expand(-1, -1, -1, 8), 1e-5)
        self.assertEqual((rest.numel(), seed, offset, numels), (0, 0, 0, self.B * self.N * self.SQ * self.SK))

    def modes(self, sq, sk):
        """(sparse mode, further arguments, what is hidden) of every mode for a batch."""
        i, j = torch.arange(sq).view(-1, 1), torch.arange(sk)
        shift = sk - sq
        compressed = torch.ones(2048, 2048, dtype=torch.bool).triu(1)
        full = draw(self.B, self.N, sq, sk, seed=7) > 0.3
        yield 0, {"atten_mask": full}, full
        yield 0, {"atten_mask": full[0, 0]}, full[0, 0]
        yield 1, {"atten_mask": full[:, :1].to(torch.uint8)}, full[:, :1]
        yield 1, {"atten_mask": full[:1, :1]}, full[:1, :1]
        yield 5, {"atten_mask": full, "prefix": [1, 2]}, full
        yield 2, {"atten_mask": compressed}, j > i
        yield 3, {"atten_mask": compressed}, j > i + shift
        distance = j - i - shift
        yield 4, {"atten_mask": compressed, "pre_tockens": 2, "next_tockens": 1}, (distance > 1) | (distance < -2)
        prefix = torch.tensor([3, 1]).view(2, 1, 1, 1)
        yield (
            6,
            {"atten_mask": torch.ones(3072, 2048, dtype=torch.bool), "prefix": [3, 1]},
            (j > i + shift) & (j >= prefix),
        )

    def test_sparse_modes(self):
        for sq, sk in ((5, 7), (7, 5), (6, 6)):
            tensors = self.heads(self.KV, sq, sk)
            for mode, options, hidden in self.modes(sq, sk):
                with self.subTest(mode=mode, sq=sq, sk=sk):
                    self.attention(
                        tensors,
                        "BNSD",
                        lambda q, k, v, hidden=hidden: self.reference(q, k, v, 0.4, hidden),
                        sparse_mode=mode,
                        dtypes=HALF[:1],
                        **options,
                    )

    def test_without_a_mask_nothing_is_hidden(self):
        q, k, v = (t.float().npu() for t in self.heads())
        plain = torch.npu_fusion_attention(q, k, v, self.N, "BNSD")[0]
        for mode in range(5):
            y = torch.npu_fusion_attention(q, k, v, self.N, "BNSD", sparse_mode=mode, next_tockens=0)[0]
            self.assertEqual(y, plain)

    def sequences(self, ends):
        ranges, start = [], 0
        for end in ends:
            ranges.append((start, max(end, start)))
            start = max(end, start)
        return ranges

    def by_sequence(self, q_ends, k_ends, hidden=lambda *a: None, pse=lambda *a: None):
        """The formula of layout TND: `hidden(index, queries, keys)`."""
        pairs = list(zip(self.sequences(q_ends), self.sequences(k_ends), strict=True))

        def formula(q, k, v):
            out = torch.zeros(*q.shape[:2], v.shape[2], dtype=q.dtype)
            rows = []
            for index, ((a, b), (c, d)) in enumerate(pairs):
                part = [t.transpose(0, 1).unsqueeze(0) for t in (q[a:b], k[c:d], v[c:d])]
                y = self.reference(*part, 0.4, hidden(index, b - a, d - c), pse(index, b - a, d - c))
                rows.append(y.squeeze(0).transpose(0, 1))
            end = pairs[-1][0][1]
            return torch.cat([*rows, out[end:]])

        return formula

    def test_by_sequence(self):
        q, k, v = draw(9, 4, 8), draw(11, 2, 8, seed=1), draw(11, 2, 6, seed=2)
        ends = {"actual_seq_qlen": [3, 3, 8], "actual_seq_kvlen": [4, 6, 11]}

        def bottom(queries, keys, after=0, before=10**6):
            distance = torch.arange(keys) - torch.arange(queries).view(-1, 1) - (keys - queries)
            return (distance > after) | (distance < -before)

        mask = torch.ones(2048, 2048, dtype=torch.bool).triu(1)
        full = draw(6, 6, seed=5) > 0.5
        cases = {
            0: ({"atten_mask": full}, lambda i, a, b: full[:a, :b]),
            2: ({"atten_mask": mask}, lambda i, a, b: torch.arange(b) > torch.arange(a).view(-1, 1)),
            3: ({"atten_mask": mask}, lambda i, a, b: bottom(a, b)),
            4: ({"atten_mask": mask, "pre_tockens": 1, "next_tockens": 1}, lambda i, a, b: bottom(a, b, 1, 1)),
            6: (
                {"atten_mask": mask, "prefix": [2, 0, 3]},
                lambda i, a, b: bottom(a, b) & (torch.arange(b) >= (2, 0, 3)[i]),
            ),
            7: (
                {"atten_mask": mask, "pre_tockens": 9, "next_tockens": -1},
                lambda i, a, b: bottom(a, b, -1, 9) if i == 2 else bottom(a, b),
            ),
            8: (
                {"atten_mask": mask, "pre_tockens": 4, "next_tockens": 1},
                lambda i, a, b: bottom(a, b, 1, 4) if i == 0 else torch.arange(b) > torch.arange(a).view(-1, 1),
            ),
        }
        self.attention((q, k, v), "TND", self.by_sequence(*ends.values()), heads=4, **ends)
        for mode, (options, hidden) in cases.items():
            with self.subTest(mode=mode):
                formula = self.by_sequence(*ends.values(), hidden)
                self.attention((q, k, v), "TND", formula, heads=4, sparse_mode=mode, dtypes=HALF[:1], **ends, **options)

    def test_sequences_that_are_left_out(self):
        q, k, v = draw(9, 2, 8), draw(9, 2, 8, seed=1), draw(9, 2, 8, seed=2)
        ends = {"actual_seq_qlen": [2, 5, 0, 0], "actual_seq_kvlen": [3, 7, 0, 0]}
        formula = self.by_sequence([2, 5], [3, 7])
        self.attention((q, k, v), "TND", formula, heads=2, dtypes=HALF[:1], **ends)
        with self.assertRaisesRegex(RuntimeError, "actual_seq_qlen must rise to at most the 9 positions"):
            torch.npu_fusion_attention(
                *(t.float().npu() for t in (q, k, v)), 2, "TND", actual_seq_qlen=[5, 3], actual_seq_kvlen=[5, 9]
            )

    def test_statistics_by_sequence(self):
        q, k, v = (draw(5, 2, 8, seed=s).float().npu() for s in range(3))
        ends = {"actual_seq_qlen": [2, 5], "actual_seq_kvlen": [2, 5]}
        kept = [
            torch.npu_fusion_attention(q, k, v, 2, "TND", softmax_layout=layout, **ends)[1] for layout in ("", "TND")
        ]
        expected = [q[a:b].cpu().transpose(0, 1) @ k[a:b].cpu().permute(1, 2, 0) for a, b in ((0, 2), (2, 5))]
        top = [s.amax(-1) for s in expected]  # heads, positions
        self.assertEqual([tuple(t.shape) for t in kept], [(5, 2, 8)] * 2)
        self.assertEqual(kept[0][..., 0].flatten(), torch.cat([t.flatten() for t in top]), prec=1e-5)
        self.assertEqual(kept[1][..., 0], torch.cat([t.t() for t in top]), prec=1e-5)

    def test_position_bias_and_sink(self):
        tensors = self.heads(self.KV)
        shapes = ((self.B, self.N, self.SQ, self.SK), (1, self.N, self.SQ, self.SK), (self.B, self.N, 1, self.SK))
        for shape in (None, *shapes):
            for with_sink in (False, True):
                extra = [] if shape is None else [draw(*shape, seed=3)]
                extra += [draw(self.N, seed=4)] if with_sink else []
                names = (["pse"] if shape is not None else []) + (["sink"] if with_sink else [])

                def op(q, k, v, *more, names=names):
                    return torch.npu_fusion_attention(
                        q, k, v, self.N, "BNSD", scale=0.4, **dict(zip(names, more, strict=True))
                    )

                def formula(q, k, v, *more, names=names):
                    return self.reference(q, k, v, 0.4, **dict(zip(names, more, strict=True)))

                def grads(dy, i, o, names=names):
                    more = dict(zip(names, i[3:], strict=True))
                    dq, dk, dv, dpse, dsink = torch.npu_fusion_attention_grad(
                        *i[:3], dy, self.N, "BNSD", scale_value=0.4, **more
                    )
                    return [dq, dk, dv, *([dpse] if "pse" in names else []), *([dsink] if "sink" in names else [])]

                with self.subTest(names=names, shape=shape):
                    self.check(op, formula, (*tensors, *extra), HALF[:1], grads)

    def test_compressed_position_bias(self):
        slopes = torch.tensor([0.5, 0.25]).view(1, 2, 1, 1).double()
        ends = {"actual_seq_qlen": [3, 8], "actual_seq_kvlen": [3, 8]}
        distance = torch.arange(16) - torch.arange(1024).view(-1, 1) - (16 - 1024)
        pse = (slopes * distance).clamp(max=0)
        q, k, v = draw(8, 2, 8), draw(8, 2, 8, seed=1), draw(8, 2, 8, seed=2)

        def bias(index, queries, keys):
            own = torch.arange(keys) - torch.arange(queries).view(-1, 1)
            return (slopes * own).clamp(max=0)

        causal = lambda i, a, b: torch.arange(b) > torch.arange(a).view(-1, 1)  # noqa: E731
        formula = self.by_sequence(*ends.values(), causal, bias)
        mask = torch.ones(2048, 2048, dtype=torch.bool).triu(1)
        for batch in (1, 2):
            self.attention(
                (q, k, v),
                "TND",
                formula,
                heads=2,
                sparse_mode=2,
                atten_mask=mask,
                pse=pse.float().expand(batch, -1, -1, -1),
                dtypes=HALF[:1],
                **ends,
            )

    def test_dropout(self):
        q, k, v = (t.float().npu().requires_grad_() for t in self.heads())
        y, _, _, _, seed, offset, numels = torch.npu_fusion_attention(q, k, v, self.N, "BNSD", scale=0.4, keep_prob=0.7)
        self.assertNotEqual((seed, offset), (0, 0))
        bits = torch.npu._custom_ops._NpuOp("_npu_dropout_gen_mask")(
            q, [self.B, self.N, self.SQ, self.SK], 0.3, seed, offset
        )
        kept = torch.from_numpy(__import__("numpy").unpackbits(bits.cpu().numpy(), bitorder="little"))[:numels]
        kept = kept.view(self.B, self.N, self.SQ, self.SK).double() / 0.7
        cpu = [t.detach().cpu().double().requires_grad_() for t in (q, k, v)]
        weights = (cpu[0] @ cpu[1].transpose(-2, -1) * 0.4).softmax(-1) * kept
        self.close(y, weights @ cpu[2], 1e-5)
        dy = draw(*y.shape, seed=5)
        wanted = torch.autograd.grad(weights @ cpu[2], cpu, dy)
        options = {"scale_value": 0.4, "keep_prob": 0.7, "seed": seed, "offset": offset}
        explicit = torch.npu_fusion_attention_grad(q, k, v, dy.float().npu(), self.N, "BNSD", **options)
        for found in (torch.autograd.grad(y, (q, k, v), dy.float().npu()), explicit[:3]):
            for a, b in zip(found, wanted, strict=True):
                self.close(a, b, 2e-5)
        again = torch.npu_fusion_attention(q, k, v, self.N, "BNSD", scale=0.4, keep_prob=0.7, seed=seed, offset=offset)
        masked = torch.npu_fusion_attention(
            q, k, v, self.N, "BNSD", scale=0.4, keep_prob=0.7, dropout_mask=bits, seed=seed, offset=offset
        )
        other = torch.npu_fusion_attention(q, k, v, self.N, "BNSD", scale=0.4, keep_prob=0.7)
        self.assertTrue(torch.equal(again[0], y) and torch.equal(masked[0], y) and not torch.equal(other[0], y))
        self.assertEqual(again[4:], (seed, offset, numels))

    def test_dropout_of_a_generator_with_seed_0(self):
        """Its places are taken at their word like others: only 0 and 0 together ask for a new draw."""
        q, k, v = (t.float().npu() for t in self.heads())
        torch.npu.manual_seed(0)
        for _ in range(2):
            y, *_, seed, offset, _ = torch.npu_fusion_attention(q, k, v, self.N, "BNSD", keep_prob=0.7)
            self.assertNotEqual((seed, offset), (0, 0))
            again = torch.npu_fusion_attention(q, k, v, self.N, "BNSD", keep_prob=0.7, seed=seed, offset=offset)
            self.assertTrue(torch.equal(again[0], y))

    def test_dropout_by_sequence(self):
        q, k, v = (draw(7, 2, 8, seed=s).float().npu().requires_grad_() for s in range(3))
        ends = {"actual_seq_qlen": [3, 7], "actual_seq_kvlen": [3, 7]}
        y, *_, seed, offset, _ = torch.npu_fusion_attention(q, k, v, 2, "TND", keep_prob=0.5, **ends)
        dy = draw(*y.shape, seed=5).float().npu()
        explicit = torch.npu_fusion_attention_grad(
            q, k, v, dy, 2, "TND", keep_prob=0.5, seed=seed, offset=offset, **ends
        )
        for a, b in zip(torch.autograd.grad(y, (q, k, v), dy), explicit, strict=False):
            self.assertEqual(a, b, prec=1e-5)

    def test_compiled(self):
        q, k, v = (t.float().npu().requires_grad_() for t in self.heads())

        def step(q, k, v):
            return torch.npu_fusion_attention(q, k, v, 4, "BNSD", scale=0.4)[0]

        y = torch.compile(step, backend="aot_eager")(q, k, v)
        self.assertEqual(y, step(q, k, v), prec=1e-6)
        for a, b in zip(
            *(
                torch.autograd.grad(f(q, k, v).sum(), (q, k, v))
                for f in (step, torch.compile(step, backend="aot_eager"))
            ),
            strict=True,
        ):
            self.assertEqual(a, b, prec=1e-6)

        def dropping(q, k, v):
            return torch.npu_fusion_attention(q, k, v, 4, "BNSD", keep_prob=0.5)[0]

        compiled = torch.compile(dropping, backend="aot_eager")
        self.assertFalse(torch.equal(compiled(q, k, v), compiled(q, k, v)))

    def test_autocast_leaves_scores_in_fp32(self):
        q, k, v = (t.float().npu() for t in self.heads())
        expected = torch.npu_fusion_attention(q, k, v, self.N, "BNSD")[0]
        with torch.autocast("npu", torch.float16):
            self.assertTrue(torch.equal(torch.npu_fusion_attention(q, k, v, self.N, "BNSD")[0], expected))

    def test_errors(self):
        q, k, v = (t.float().npu() for t in self.heads())
        for words, args, options in (
            ("input_layout is BSH", (q, k, v, 4, "NBSD"), {}),
            ("has not head_num = 3", (q, k, v, 3, "BNSD"), {}),
            ("must have 3 dimensions", (q, k, v, 4, "BSH"), {}),
            ("keep_prob must be in", (q, k, v, 4, "BNSD"), {"keep_prob": 0.0}),
            ("sparse_mode is 0 to 8", (q, k, v, 4, "BNSD"), {"sparse_mode": 9}),
            ("sparse_mode 7 is for layout TND", (q, k, v, 4, "BNSD"), {"sparse_mode": 7}),
            ("must have one dtype", (q, k.half(), v, 4, "BNSD"), {}),
            ("padding_mask", (q, k, v, 4, "BNSD"), {"padding_mask": q}),
            (
                "atten_mask of sparse_mode 0 must be",
                (q, k, v, 4, "BNSD"),
                {"atten_mask": torch.ones(3, 3).bool().npu()},
            ),
            ("needs actual_seq_qlen", (q[0], q[0], q[0], 5, "TND"), {}),
            ("multiple of the key's", (q, k[:, :3], v[:, :3], 4, "BNSD"), {}),
        ):
            with self.assertRaisesRegex(RuntimeError, words):
                torch.npu_fusion_attention(*args, **options)


if __name__ == "__main__":
    run_tests()
