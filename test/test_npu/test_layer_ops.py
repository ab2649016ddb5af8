"""Norms, activations, rotary embeddings and routing of large models against the pages' formulas in fp64 on the CPU."""

import itertools

import torch.nn.functional as F
from common_utils import run_tests
from transformer_case import OpCase, draw

import torch


def rms(x, gamma, epsilon):
    return x * (x.square().mean(-1, keepdim=True) + epsilon).rsqrt() * gamma


class TestNorms(OpCase):
    def test_add_rms_norm(self):
        tensors = (draw(2, 3, 8), draw(2, 3, 8, seed=1), draw(8, seed=2))
        self.check(torch.npu_add_rms_norm, lambda a, b, gamma: rms(a + b, gamma, 1e-6), tensors)
        y, rstd, x = torch.npu_add_rms_norm(*(t.float().npu() for t in tensors))
        self.assertEqual(x, (tensors[0] + tensors[1]).float(), prec=1e-6)
        self.assertEqual((tuple(rstd.shape), rstd.requires_grad), ((2, 3, 1), False))
        with self.assertRaisesRegex(RuntimeError, "one shape"):
            torch.npu_add_rms_norm(torch.ones(2, 8).npu(), torch.ones(8).npu(), torch.ones(8).npu())

    def test_gemma_rms_norm(self):
        self.check(
            lambda x, gamma: torch.npu_gemma_rms_norm(x, gamma, 1e-5),
            lambda x, gamma: rms(x, 1 + gamma, 1e-5),
            (draw(2, 3, 8), draw(8, seed=1)),
        )

    def test_deep_norm(self):
        tensors = (draw(2, 3, 8), draw(2, 3, 8, seed=1), draw(8, seed=2), draw(8, seed=3))
        self.check(
            lambda *t: torch.npu_deep_norm(*t, alpha=0.5, epsilon=1e-5)[2],
            lambda x, gx, beta, gamma: F.layer_norm(0.5 * x + gx, (8,), gamma, beta, 1e-5),
            tensors,
        )
        mean, rstd, _ = torch.npu_deep_norm(*(t.float().npu() for t in tensors))
        self.assertEqual(mean, (0.3 * tensors[0] + tensors[1]).mean(-1, keepdim=True).float(), prec=1e-5)
        self.assertEqual(tuple(rstd.shape), (2, 3, 1))

    def test_group_norms(self):
        tensors = (draw(2, 6, 5, 3), draw(6, seed=1), draw(6, seed=2))
        for groups in (1, 3, 6):
            self.check(
                lambda x, w, b, groups=groups: torch.npu_group_norm_silu(x, w, b, groups, 1e-5),
                lambda x, w, b, groups=groups: F.silu(F.group_norm(x, groups, w, b, 1e-5)),
                tensors,
            )

            def swish(x, w, b, groups=groups):
                y = F.group_norm(x, groups, w, b, 1e-5)
                return y * torch.sigmoid(1.7 * y)

            self.check(
                lambda x, w, b, groups=groups: torch.npu_group_norm_swish(x, groups, w, b, 1e-5, 1.7), swish, tensors
            )
        x = tensors[0].float().npu()
        y, mean, rstd = torch.npu_group_norm_silu(x, None, None, 3)
        grouped = tensors[0].view(2, 3, -1)
        self.assertEqual(mean, grouped.mean(-1).float(), prec=1e-5)
        self.assertEqual(rstd, (grouped.var(-1, correction=0) + 1e-5).rsqrt().float(), prec=1e-4)
        self.assertEqual(y, F.silu(F.group_norm(tensors[0], 3)).float(), prec=1e-5)
        with self.assertRaisesRegex(RuntimeError, "4 groups must divide dimension 1"):
            torch.npu_group_norm_silu(x, None, None, 4)


class TestActivations(OpCase):
    def test_gelu(self):
        for approximate in ("none", "tanh"):
            self.check(
                lambda x, a=approximate: torch.npu_gelu(x, approximate=a),
                lambda x, a=approximate: F.gelu(x, approximate=a),
                (draw(3, 8),),
                grads=lambda dy, i, o, a=approximate: (torch.npu_gelu_backward(dy, i[0], approximate=a),),
            )
            self.check(
                lambda x, a=approximate: torch.npu_gelu_mul(x, approximate=a),
                lambda x, a=approximate: F.gelu(x[..., :4], approximate=a) * x[..., 4:],
                (draw(3, 8),),
            )
        with self.assertRaisesRegex(RuntimeError, "'none' or 'tanh'"):
            torch.npu_gelu(torch.ones(2).npu(), approximate="erf")

    def test_fast_gelu(self):
        self.check(
            torch.npu_fast_gelu,
            lambda x: x / (1 + torch.exp(-1.702 * x)),
            (draw(3, 8),),
            grads=lambda dy, i, o: (torch.npu_fast_gelu_backward(dy, i[0]),),
        )
        x = torch.linspace(-5, 5, 101)
        self.assertEqual(torch.npu_fast_gelu(x.npu()), F.gelu(x), prec=0.021)

    def test_scaled_masked_softmax(self):
        mask = torch.rand(2, 1, 4, 6, generator=torch.Generator().manual_seed(0)) > 0.6
        self.check(
            lambda x: torch.npu_scaled_masked_softmax(x, mask.npu(), 0.5),
            lambda x: torch.softmax((x * 0.5).masked_fill(mask, -10000.0), -1),
            (draw(2, 3, 4, 6),),
            grads=lambda dy, i, o: (torch.npu_scaled_masked_softmax_backward(dy, o[0], mask.npu(), 0.5, False),),
        )
        hidden = torch.npu_scaled_masked_softmax(torch.zeros(1, 4).npu(), torch.ones(1, 4).bool().npu())
        self.assertEqual(hidden, torch.full((1, 4), 0.25))


class TestRotary(OpCase):
    def test_interleave_rope(self):
        def formula(x, cos, sin):
            q = x.unflatten(-1, (4, 2)).transpose(-1, -2).flatten(-2)
            return q * cos + torch.cat([-q[..., 4:], q[..., :4]], -1) * sin

        self.check(
            torch.npu_interleave_rope, formula, (draw(2, 3, 5, 8), draw(2, 1, 5, 8, seed=1), draw(2, 1, 5, 8, seed=2))
        )

    def test_apply_rotary_pos_emb(self):
        for layout, shape, angles in (
            ("BSND", (2, 5, 3, 8), (2, 5, 1, 8)),
            ("BNSD", (2, 3, 5, 8), (2, 1, 5, 8)),
            ("TND", (7, 3, 8), (7, 1, 8)),
        ):
            q, k, cos, sin = (draw(*s, seed=i).float().npu() for i, s in enumerate((shape, shape, angles, angles)))
            for mode in ("half", "interleave"):
                turned = torch.npu_apply_rotary_pos_emb(q, k, cos, sin, layout, mode)
                for a, b in zip(turned, (q, k), strict=True):
                    self.assertEqual(a, torch.npu_rotary_mul(b, cos, sin, mode))
        with self.assertRaisesRegex(RuntimeError, "layout is"):
            torch.npu_apply_rotary_pos_emb(q, k, cos, sin, "NSD")


class TestRouting(OpCase):
    def test_scatter_nd_update(self):
        x, indices = draw(4, 5, 6), torch.tensor([[0, 1], [3, 4], [2, 0]])
        updates = draw(3, 6, seed=1)

        def formula(x, updates):
            return torch.index_put(x, tuple(indices.t()), updates)

        self.check(lambda x, u: torch.npu_scatter_nd_update(x, indices.npu(), u), formula, (x, updates))
        there = x.float().npu()
        self.assertIs(torch.npu_scatter_nd_update_(there, indices.int().npu(), updates.float().npu()), there)
        self.assertEqual(there, formula(x, updates).float())
        whole = torch.npu_scatter_nd_update(there, torch.zeros(2, 3).long().npu(), torch.ones(2).npu())
        self.assertEqual(whole[0, 0, 0].item(), 1.0)
        with self.assertRaisesRegex(RuntimeError, r"updates must be of shape \[3, 6\]"):
            torch.npu_scatter_nd_update(there, indices.npu(), torch.ones(3, 5).npu())

    def test_gating_and_init(self):
        x = draw(5, 4).float()
        y, experts, rows = torch.npu_moe_gating_top_k_softmax(x.npu(), k=2)
        weights, chosen = torch.softmax(x, -1).topk(2)
        self.assertEqual(y, weights, prec=1e-6)
        self.assertEqual((experts.cpu(), experts.dtype), (chosen.int(), torch.int32))
        self.assertEqual(rows, torch.arange(10, dtype=torch.int32).view(2, 5).t())
        tokens = draw(5, 3, seed=1).float()
        for active in (0, 3, 9):
            copies, places, ordered = torch.npu_moe_init_routing(tokens.npu(), rows, experts, active)
            order = chosen.flatten().argsort(stable=True)
            sources = rows.cpu().flatten().long()[order]
            self.assertEqual(ordered, chosen.flatten()[order].int())
            self.assertEqual(copies, tokens[sources[: min(active, 5) * 2] % 5])
            wanted = torch.empty(10, dtype=torch.int32)
            wanted[sources] = torch.arange(10, dtype=torch.int32)
            self.assertEqual(places, wanted)
        ends = torch.npu_moe_compute_expert_tokens(ordered, 4)
        self.assertEqual(
            (ends.cpu(), ends.dtype), (chosen.flatten().bincount(minlength=4).cumsum(0).int(), torch.int32)
        )

    def test_finalize(self):
        rows, k, width, experts = 5, 3, 4, 6
        expanded, skip1, skip2 = draw(rows * k, width), draw(rows, width, seed=1), draw(rows, width, seed=2)
        bias, scales = draw(experts, width, seed=3), draw(rows, k, seed=4)
        generator = torch.Generator().manual_seed(0)
        places = torch.randperm(rows * k, generator=generator)
        places[2] = -1
        of_rows = torch.randint(0, experts, (rows, k), generator=generator)
        for mode, skips, biased in itertools.product(range(4), (0, 1, 2), (False, True)):
            expected = torch.zeros(rows, width, dtype=torch.float64)
            for i, j in itertools.product(range(rows), range(k)):
                place = places[j * rows + i] if mode < 2 else places[i * k + j]
                value = expanded[place] if place >= 0 else torch.zeros(width)
                expected[i] += scales[i, j] * (value + (bias[of_rows[i, j]] if biased else 0))
            for skip in (skip1, skip2)[:skips]:
                expected += skip
            there = [t.float().npu() for t in (expanded, skip1, skip2, bias, scales)]
            found = torch.npu_moe_finalize_routing(
                there[0],
                there[1] if skips > 0 else None,
                there[2] if skips > 1 else None,
                there[3] if biased else None,
                there[4],
                places.int().npu(),
                of_rows.int().npu(),
                mode,
            )
            self.assertEqual(found, expected.float(), prec=1e-5)

    def test_compiled(self):
        """Fake tensors and dynamic shapes: no break of the graph."""

        def layer(x, gamma):
            y, _, total = torch.npu_add_rms_norm(x, x, gamma)
            return torch.npu_fast_gelu(y) + torch.npu_gelu_mul(torch.cat([total, y], -1))

        torch._dynamo.reset()
        compiled = torch.compile(layer, backend="aot_eager", fullgraph=True, dynamic=True)
        for rows in (3, 5, 8):
            x, gamma = draw(rows, 8).float().npu().requires_grad_(), torch.rand(8).npu()
            self.assertEqual(compiled(x, gamma), layer(x, gamma), prec=1e-6)
            (found,) = torch.autograd.grad(compiled(x, gamma).sum(), x)
            (wanted,) = torch.autograd.grad(layer(x, gamma).sum(), x)
            self.assertEqual(found, wanted, prec=1e-5)


if __name__ == "__main__":
    run_tests()
