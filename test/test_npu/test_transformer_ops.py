"""Norms, activations and experts of large models against formulas in fp64 on the CPU: values, gradients, errors."""

import itertools

import torch.nn.functional as F
from common_utils import run_tests
from transformer_case import OpCase, draw

import torch


class TestNormsAndActivations(OpCase):
    def test_rms_norm(self):
        for shape in ((8,), (3, 8)):
            x, gamma = draw(2, 3, 8), draw(*shape, seed=1)
            dims = tuple(range(-len(shape), 0))

            def formula(x, gamma, dims=dims):
                return x * (x.square().mean(dims, keepdim=True) + 1e-5).rsqrt() * gamma

            self.check(
                lambda x, gamma: torch.npu_rms_norm(x, gamma, epsilon=1e-5),
                formula,
                (x, gamma),
                grads=lambda dy, i, o: torch.npu_rms_norm_backward(dy, *i, o[1]),
            )
            _, rstd = torch.npu_rms_norm(x.half().npu(), gamma.half().npu(), 1e-5)
            self.assertEqual((rstd.dtype, rstd.requires_grad), (torch.float32, False))
            self.assertEqual(tuple(rstd.shape), (2, 3, 1) if len(shape) == 1 else (2, 1, 1))

    def test_rms_norm_of_mixed_dtypes(self):
        x, gamma = draw(2, 8), draw(8, seed=1).float()
        y, _ = torch.npu_rms_norm(x.half().npu(), gamma.npu())
        self.assertEqual(y.dtype, torch.float16)
        with self.assertRaisesRegex(RuntimeError, "gamma must have the shape of the last dimensions"):
            torch.npu_rms_norm(x.half().npu(), gamma[:4].npu())

    def test_rotary_mul(self):
        def turn(x, mode):
            if mode == "half":
                a, b = x.chunk(2, -1)
                return torch.cat([-b, a], -1)
            return torch.stack([-x[..., 1::2], x[..., ::2]], -1).flatten(-2)

        for mode, shape in itertools.product(("half", "interleave"), ((2, 5, 3, 8), (1, 5, 1, 8), (2, 1, 3, 8))):
            tensors = (draw(2, 5, 3, 8), draw(*shape, seed=1), draw(*shape, seed=2))
            self.check(
                lambda x, c, s, mode=mode: torch.npu_rotary_mul(x, c, s, mode),
                lambda x, c, s, mode=mode: x * c + turn(x, mode) * s,
                tensors,
                grads=lambda dy, i, o, mode=mode: torch.npu_rotary_mul_backward(dy, *i, mode),
            )
        x, c, s = (t.float().npu() for t in (draw(4, 3, 6), draw(4, 1, 6, seed=1), draw(4, 1, 6, seed=2)))
        matrix = torch.randn(6, 6).npu()
        self.assertEqual(torch.npu_rotary_mul(x, c, s, "half", matrix), x * c + x @ matrix * s, prec=1e-5)
        self.assertEqual(torch.npu_rotary_mul(input=x, r1=c, r2=s), torch.npu_rotary_mul(x, c, s))
        with self.assertRaisesRegex(RuntimeError, "'half' or 'interleave'"):
            torch.npu_rotary_mul(x, c, s, "quarter")

    def test_swiglu(self):
        for dim in (-1, 0, 1):
            self.check(
                lambda x, dim=dim: torch.npu_swiglu(x, dim),
                lambda x, dim=dim: F.silu(x.chunk(2, dim)[0]) * x.chunk(2, dim)[1],
                (draw(4, 6, 2),),
                grads=lambda dy, i, o, dim=dim: (torch.npu_swiglu_backward(dy, i[0], dim),),
            )
        with self.assertRaisesRegex(RuntimeError, "must be even"):
            torch.npu_swiglu(torch.ones(3).npu())

    def test_geglu(self):
        for dim, approximate, left in itertools.product((-1, 1), (0, 1), (False, True)):

            def formula(x, dim=dim, approximate=approximate, left=left):
                a, b = x.chunk(2, dim)
                if not left:
                    a, b = b, a
                return F.gelu(a, approximate="tanh" if approximate else "none") * b

            self.check(
                lambda x, dim=dim, approximate=approximate, left=left: torch.npu_geglu(x, dim, approximate, left),
                formula,
                (draw(3, 4, 6),),
                grads=lambda dy, i, o, a=(dim, approximate, left): (torch.npu_geglu_grad(dy, i[0], o[1], *a),),
            )
        gelu = torch.npu_geglu(draw(2, 4).float().npu(), -1, 0)[1]
        self.assertEqual((gelu, gelu.requires_grad), (F.gelu(draw(2, 4)[:, 2:]).float(), False), prec=1e-5)

    def test_cross_entropy(self):
        target = torch.tensor([1, 0, 3, 2, 1])
        weight = torch.tensor([0.5, 1.0, 0.2, 0.9])
        for reduction, smoothing, w, ignored in itertools.product(
            ("mean", "sum", "none"), (0.0, 0.2), (None, weight), (-100, 3)
        ):
            options = {"reduction": reduction, "ignore_index": ignored, "label_smoothing": smoothing}

            def op(x, w=w, options=options):
                return torch.npu_cross_entropy_loss(x, target.npu(), None if w is None else w.npu(), **options)

            def formula(x, w=w, options=options):
                loss = F.cross_entropy(x, target, None if w is None else w.double(), **options)
                return loss if options["reduction"] == "none" else loss.view(1)

            def grad(dy, i, o, w=w, options=options):
                there = None if w is None else w.npu()
                return (torch.npu_cross_entropy_loss_backward(dy, o[1], target.npu(), there, **options),)

            self.check(op, formula, (draw(5, 4),), grads=grad)
        loss, log_prob, zloss, lse = torch.npu_cross_entropy_loss(draw(5, 4).float().npu(), target.npu())
        self.assertEqual(log_prob, F.log_softmax(draw(5, 4), 1).float(), prec=1e-5)
        self.assertEqual((zloss.numel(), lse.numel(), log_prob.requires_grad), (0, 0, False))
        with self.assertRaisesRegex(RuntimeError, "z-loss"):
            torch.npu_cross_entropy_loss(draw(5, 4).float().npu(), target.npu(), return_zloss=True)


class TestExperts(OpCase):
    def test_grouped_rows(self):
        ends = torch.tensor([2, 2, 7, 9])
        for list_type, bias in itertools.product((0, 1), (False, True)):
            groups = ends if list_type == 0 else torch.tensor([2, 0, 5, 2])
            tensors = (draw(10, 4), draw(4, 4, 3, seed=1)) + ((draw(4, 3, seed=2),) if bias else ())

            def op(x, w, b=None, groups=groups, list_type=list_type):
                options = {"split_item": 2, "group_type": 0, "group_list_type": list_type, "group_list": groups.npu()}
                (y,) = torch.npu_grouped_matmul([x], [w], bias=None if b is None else [b], **options)
                return y

            def formula(x, w, b=None):
                rows = [
                    x[s:e] @ w[g] + (0 if b is None else b[g])
                    for g, (s, e) in enumerate(((0, 2), (2, 2), (2, 7), (7, 9)))
                ]
                return torch.cat([*rows, torch.zeros(1, 3).double()])

            self.check(op, formula, tensors)

    def test_grouped_inner(self):
        ends = torch.tensor([1, 6, 6])

        def op(x, w):
            return torch.npu_grouped_matmul([x.t()], [w], group_list=ends.npu(), split_item=3, group_type=2)[0]

        def formula(x, w):
            return torch.stack([x[s:e].t() @ w[s:e] for s, e in ((0, 1), (1, 6), (6, 6))])

        self.check(op, formula, (draw(6, 4), draw(6, 3, seed=1)))

    def test_second_derivative(self):
        x, w = draw(5, 3).npu().requires_grad_(), draw(2, 3, 2, seed=1).npu().requires_grad_()
        ends = torch.tensor([2, 5]).npu()

        def product(x, w):
            return torch.npu_grouped_matmul([x], [w], group_list=ends, split_item=2)[0]

        self.assertTrue(torch.autograd.gradcheck(product, (x, w)))
        self.assertTrue(torch.autograd.gradgradcheck(product, (x, w)))

    def test_lists(self):
        x, w, b = draw(6, 4), [draw(4, 3, seed=s) for s in (1, 2)], [draw(3, seed=s) for s in (3, 4)]
        expected = [x[:2] @ w[0] + b[0], x[2:6] @ w[1] + b[1]]
        npu = [t.float().npu() for t in (x, *w, *b)]
        options = {"bias": npu[3:], "group_list": [2, 6]}
        for split in (0, 1):
            for y, e in zip(
                torch.npu_grouped_matmul(npu[:1], npu[1:3], split_item=split, **options), expected, strict=True
            ):
                self.close(y, e, 1e-5)
        (y,) = torch.npu_grouped_matmul(npu[:1], npu[1:3], split_item=2, output_dtype=torch.float16, **options)
        self.assertEqual(y.dtype, torch.float16)
        self.close(y, torch.cat(expected), 2e-3)
        several = torch.npu_grouped_matmul([npu[0][:2], npu[0][2:]], npu[1:3], bias=npu[3:], group_type=-1)
        for y, e in zip(several, expected, strict=True):
            self.close(y, e, 1e-5)
        (y,) = torch.npu_grouped_matmul(
            [npu[0]], npu[1:3], group_list=torch.tensor([2, 6]).npu(), split_item=2, bias=npu[3:]
        )
        self.close(y, torch.cat(expected), 1e-5)

    def test_grouped_errors(self):
        x, w, ends = torch.ones(4, 3).npu(), torch.ones(2, 3, 2).npu(), torch.tensor([2, 4]).npu()
        with self.assertRaisesRegex(RuntimeError, "split_item must be 2 or 3"):
            torch.npu_grouped_matmul([x], [w], group_list=ends)
        with self.assertRaisesRegex(NotImplementedError, "a floating x goes with weight of int8 and antiquant_scale"):
            torch.npu_grouped_matmul([x], [w], group_list=ends, split_item=2, scale=[x])
        with self.assertRaisesRegex(RuntimeError, "x is \\(m, k\\), weight is \\(groups, k, n\\)"):
            torch.npu_grouped_matmul([x.t()], [w], group_list=ends, split_item=2)
        with self.assertRaisesRegex(RuntimeError, "GroupedMatmul.*rise to at most 4"):
            torch.npu_grouped_matmul([x], [w], group_list=torch.tensor([2, 5]).npu(), split_item=2)
            torch.npu.synchronize()
        (y,) = torch.npu_grouped_matmul([x], [w], group_list=ends, split_item=2)
        self.assertEqual(y, torch.full((4, 2), 3.0))

    def test_permute_and_back(self):
        for experts, count in (
            (torch.tensor([[1, 0], [2, 1], [0, 2]]), None),
            (torch.tensor([[1, 0], [2, 1], [0, 2]]), 4),
            (torch.tensor([[1, 0], [2, 1], [0, 2]]), -1),
            (torch.tensor([3, 1, 2], dtype=torch.int32), None),
        ):
            choices = experts.numel() // 3
            order = experts.flatten().argsort(stable=True)
            kept = order[: count or None]
            tokens, probs = draw(3, 4), draw(3, choices, seed=1)
            self.check(
                lambda t, experts=experts, count=count: torch.npu_moe_token_permute(t, experts.npu(), count),
                lambda t, kept=kept, choices=choices: t[kept // choices],
                (tokens,),
                grads=lambda dy, i, o, experts=experts: (
                    torch.npu_moe_token_permute_grad(i[0], dy, experts.npu(), o[1]),
                ),
            )
            _, places = torch.npu_moe_token_permute(tokens.float().npu(), experts.npu(), count)
            self.assertEqual((places.dtype, places), (torch.int32, order.argsort().int()))

            def back(sorted_tokens, probs, order=order, kept=kept, choices=choices):
                each = torch.zeros(order.numel(), 4).double().index_put((kept,), sorted_tokens)
                return (each.view(3, choices, 4) * probs.unsqueeze(-1)).sum(1)

            self.check(
                lambda t, p, places=places: torch.npu_moe_token_unpermute(t, places, p),
                back,
                (draw(len(kept), 4, seed=2), probs),
                grads=lambda dy, i, o, places=places: torch.npu_moe_token_unpermute_grad(i[0], dy, places, i[1]),
            )
        rows = draw(3, 4).float().npu()
        self.assertEqual(torch.npu_moe_token_unpermute(rows, torch.tensor([2, 0, 1]).npu()), rows[[2, 0, 1]])
        with self.assertRaisesRegex(NotImplementedError, "padded_mode"):
            torch.npu_moe_token_permute(rows, torch.tensor([0, 1, 2]).npu(), padded_mode=True)


if __name__ == "__main__":
    run_tests()
