"""npu operators of networks (convolutions, products, activations, norms, losses) against upstream on the CPU."""

import torch.nn.functional as F
from common_utils import TestCase, run_tests

import torch

CONV_NAMES = ("padding", "output_padding", "stride", "dilation", "groups")


class TestNn(TestCase):
    def compare(self, op, reference, *inputs, prec=1e-4):
        """Values and the gradients of all inputs."""
        cpu = [t.clone().requires_grad_() for t in inputs]
        npu = [t.npu().requires_grad_() for t in inputs]
        expected, out = reference(*cpu), op(*npu)
        self.assertEqual(out, expected, prec=prec)
        weight = torch.randn(expected.shape, generator=torch.Generator().manual_seed(9))
        (expected * weight).sum().backward()
        (out * weight.npu()).sum().backward()
        for a, b in zip(npu, cpu, strict=True):
            self.assertEqual(a.grad, b.grad, prec=prec)
        return weight, cpu

    def test_convolutions(self):
        g = torch.Generator().manual_seed(0)
        x2, w2, b = (torch.randn(*s, generator=g) for s in ((2, 4, 7, 8), (6, 2, 3, 3), (6,)))
        plain = ([2, 1], [1, 0], [1, 2], 2)
        for op in (torch.npu_conv2d, torch.npu_convolution):
            weight, cpu = self.compare(lambda *t: op(*t, *plain), lambda *t: F.conv2d(*t, *plain), x2, w2, b)  # noqa: B023
        for op in (torch.npu_conv2d_backward, torch.npu_convolution_backward):
            grads = op(x2.npu(), weight.npu(), w2.npu(), *plain, [True, True, True])
            for a, c in zip(grads, cpu, strict=True):
                self.assertEqual(a, c.grad, prec=1e-4)
        out = torch.empty(0).npu()
        torch.npu_conv2d(x2.npu(), w2.npu(), None, *plain, out=out)
        self.assertEqual(out, F.conv2d(x2, w2, None, *plain), prec=1e-4)
        x3, w3 = torch.randn(1, 2, 4, 5, 6, generator=g), torch.randn(3, 2, 2, 2, 2, generator=g)
        volume = ([1, 2, 1], [1, 1, 0], [1, 1, 1], 1)
        weight, cpu = self.compare(
            lambda x, w: torch.npu_conv3d(x, w, None, *volume), lambda x, w: F.conv3d(x, w, None, *volume), x3, w3
        )
        grads = torch.npu_conv3d_backward(x3.npu(), weight.npu(), w3.npu(), *volume, [True, True, False])
        self.assertEqual(grads[1], cpu[1].grad, prec=1e-4)
        with self.assertRaisesRegex(RuntimeError, "npu_conv3d.*5 dimensions"):
            torch.npu_conv3d(x2.npu(), w2.npu(), None, *volume)

    def test_transposed(self):
        g = torch.Generator().manual_seed(1)
        x, w, b = (torch.randn(*s, generator=g) for s in ((2, 4, 5, 6), (4, 3, 3, 3), (6,)))
        args = ([1, 1], [1, 0], [2, 1], [1, 1], 2)  # padding, output padding, stride, dilation, groups
        for op in (torch.npu_conv_transpose2d, torch.npu_convolution_transpose):
            weight, cpu = self.compare(
                lambda *t: op(*t, *args),  # noqa: B023
                lambda *t: F.conv_transpose2d(*t, stride=[2, 1], padding=1, output_padding=[1, 0], groups=2),
                x, w, b,
            )  # fmt: skip
        for op in (torch.npu_conv_transpose2d_backward, torch.npu_convolution_transpose_backward):
            grads = op(x.npu(), weight.npu(), w.npu(), *args, [True, True, True])
            for a, c in zip(grads, cpu, strict=True):
                self.assertEqual(a, c.grad, prec=1e-4)
        named = torch.npu_convolution_transpose_backward(
            x.npu(), grad=weight.npu(), weight=w.npu(), **dict(zip(CONV_NAMES, args, strict=True)),
            grad_input_mask=[True, True, True],
        )  # fmt: skip
        self.assertEqual(named, grads)
        x3, w3 = torch.randn(1, 2, 3, 4, 5, generator=g), torch.randn(2, 3, 2, 2, 2, generator=g)
        c, d = x3.clone().requires_grad_(), w3.clone().requires_grad_()
        y = F.conv_transpose3d(c, d, stride=2)
        y.backward(torch.ones_like(y))
        grads = torch.npu_conv_transpose3d_backward(
            x3.npu(), torch.ones_like(y).npu(), w3.npu(), [0] * 3, [0] * 3, [2] * 3, [1] * 3, 1, [True, True, False]
        )
        self.assertEqual(grads[0], c.grad, prec=1e-4)
        self.assertEqual(grads[1], d.grad, prec=1e-4)

    def test_double_backward(self):
        g = torch.Generator().manual_seed(2)
        x, w, grad = (torch.randn(*s, generator=g).double() for s in ((1, 2, 4, 4), (3, 2, 3, 3), (1, 3, 2, 2)))
        gg = torch.randn(1, 2, 4, 4, generator=g).double()
        c, d, e = (t.clone().requires_grad_() for t in (x, w, grad))
        (dx,) = torch.autograd.grad(F.conv2d(c, d), c, e, create_graph=True)
        expected = torch.autograd.grad(dx, (e, d), gg)
        out = torch.npu_convolution_double_backward(
            gg.npu(), None, None, x.npu(), grad.npu(), w.npu(), [1, 1], [0, 0], [1, 1], 1, [True, True, True]
        )
        self.assertEqual(out[0], expected[0], prec=1e-6)
        self.assertEqual(out[2], expected[1], prec=1e-6)

    def test_products(self):
        g = torch.Generator().manual_seed(3)
        x, w, b = (torch.randn(*s, generator=g) for s in ((5, 7), (4, 7), (4,)))
        weight, cpu = self.compare(torch.npu_linear, F.linear, x, w, b)
        grads = torch.npu_linear_backward(weight.npu(), x.npu(), w.npu())
        self.assertEqual(grads[0], cpu[0].grad, prec=1e-4)
        self.assertEqual(grads[1], cpu[1].grad, prec=1e-4)
        a, m = torch.randn(3, 2, 4, 5, generator=g), torch.randn(2, 5, 6, generator=g)
        self.compare(lambda p, q: torch.npu_bmmV2(p, q, []), torch.matmul, a, m)
        out = torch.npu_bmmV2(a.npu(), m.npu(), [1, 2, 4, 6])
        self.assertEqual(out, torch.matmul(a, m).sum(0, keepdim=True), prec=1e-4)
        half = torch.npu_bmmV2(a.half().npu(), m.half().npu(), [])
        self.assertEqual(half, torch.matmul(a.half().float(), m.half().float()), prec=2e-2)

    def test_activations(self):
        x = torch.randn(4, 9, generator=torch.Generator().manual_seed(4))
        for name in ("silu", "mish"):
            weight, cpu = self.compare(getattr(torch, f"npu_{name}"), getattr(F, name), x)
            rest = (getattr(F, name)(x).npu(),) if name == "silu" else ()
            back = getattr(torch, f"npu_{name}_backward")(weight.npu(), x.npu(), *rest)
            self.assertEqual(back, cpu[0].grad, prec=1e-5)
        y = x.npu()
        self.assertIs(torch.npu_silu_(y), y)
        self.assertEqual(y, F.silu(x), prec=1e-5)

    def test_softmax_cross_entropy(self):
        g = torch.Generator().manual_seed(5)
        x, labels = torch.randn(6, 5, generator=g), torch.rand(6, 5, generator=g).softmax(-1)

        def reference(t, p):
            return -(p * t.log_softmax(-1)).sum(-1)

        weight, cpu = self.compare(torch.npu_softmax_cross_entropy_with_logits, reference, x, labels)
        back = torch.npu_softmax_cross_entropy_with_logits_backward(weight.npu(), x.npu(), labels.npu())
        self.assertEqual(back, cpu[0].grad, prec=1e-5)
        with self.assertRaisesRegex(RuntimeError, "one shape"):
            torch.npu_softmax_cross_entropy_with_logits(x.npu(), labels[:2].npu())

    def test_norms(self):
        g = torch.Generator().manual_seed(6)
        x, w, b = (torch.randn(*s, generator=g) for s in ((3, 4, 5), (5,), (5,)))
        self.compare(
            lambda *t: torch.npu_layer_norm_eval(t[0], [5], *t[1:], 1e-3),
            lambda *t: F.layer_norm(t[0], [5], *t[1:], 1e-3),
            x, w, b,
        )  # fmt: skip
        self.assertEqual(torch.npu_layer_norm_eval(x.npu(), (4, 5)), F.layer_norm(x, (4, 5)), prec=1e-5)

    def test_normalize_batch(self):
        x = torch.rand(3, 4, 6, generator=torch.Generator().manual_seed(7)) * 9 + 1
        lengths = torch.tensor([3, 5, 6], dtype=torch.int32)
        for kind in (0, 1):

            def reference(t, kind=kind):
                rows = []
                for i, n in enumerate(lengths.tolist()):
                    part = t[i, :, :n] if kind == 0 else t[i, :, :n].reshape(1, -1)
                    mean, std = part.mean(1, keepdim=True), part.std(1, keepdim=True)
                    rows.append((t[i] - mean) / (std + 1e-5))
                return torch.stack(rows)

            self.compare(lambda t: torch.npu_normalize_batch(t, lengths.npu(), kind), reference, x)  # noqa: B023
        with self.assertRaisesRegex(RuntimeError, "normalize_type"):
            torch.npu_normalize_batch(x.npu(), lengths.npu(), 2)

    def test_half(self):
        x = torch.randn(3, 8).half()
        self.assertEqual(torch.npu_silu(x.npu()).dtype, torch.float16)
        self.assertEqual(torch.npu_mish(x.npu()).float(), F.mish(x.float()), prec=5e-3)


if __name__ == "__main__":
    run_tests()
