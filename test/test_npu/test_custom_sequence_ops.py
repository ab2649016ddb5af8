"""npu operators for recurrent layers, attention and dropout, with their gradients, against upstream on the CPU."""

from common_utils import TestCase, run_tests

import torch


def leaves(*tensors):
    return [t.clone().double().requires_grad_() for t in tensors], [t.npu().requires_grad_() for t in tensors]


class TestRecurrent(TestCase):
    def setUp(self):
        self.g = torch.Generator().manual_seed(0)

    def randn(self, *shape):
        return torch.randn(*shape, generator=self.g) * 0.5

    def same(self, npu, cpu, prec=1e-4):
        for i, (a, b) in enumerate(zip(npu, cpu, strict=True)):
            self.assertEqual(a, b.float(), f"number {i}", prec=prec)

    def lstm_reference(self, x, weight, bias, h, c, lengths=None, backwards=False):
        """The cell of the textbook, step by step."""
        inputs, hs, cs, ys = x.shape[2], [], [], []
        h, c = h[0], c[0]
        order = range(x.shape[0])
        for t in reversed(order) if backwards else order:
            gates = x[t] @ weight[:inputs] + h @ weight[inputs:] + bias
            i, f, j, o = (gates[:, k * h.shape[1] : (k + 1) * h.shape[1]] for k in range(4))
            new_c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(j)
            new_h = torch.sigmoid(o) * torch.tanh(new_c)
            y = new_h
            if lengths is not None:
                on = (t < lengths)[:, None]
                y = torch.where(on, new_h, 0)
                new_h, new_c = torch.where(on, new_h, h), torch.where(on, new_c, c)
            h, c = new_h, new_c
            ys.append(y), hs.append(h), cs.append(c)
        return [torch.stack(v[::-1] if backwards else v) for v in (ys, hs, cs)]

    def run_lstm(self, lengths=None, mask=None, backwards=False):
        given = (self.randn(5, 3, 4), self.randn(4 + 6, 24), self.randn(24), self.randn(1, 3, 6), self.randn(1, 3, 6))
        cpu, npu = leaves(*given)
        expected = self.lstm_reference(*cpu, lengths=lengths, backwards=backwards)
        seq = torch.empty(0).npu() if lengths is None else lengths.npu() if mask is None else mask.npu()
        out = torch.npu_lstm(*npu[:3], seq, *npu[3:], True, 1, 0.0, True, False, False, lengths is not None, backwards)
        self.assertEqual(len(out), 8)
        self.same(out[:3], expected)
        named = torch.npu_lstm(
            *npu[:3], seq_mask=seq, h=npu[3], c=npu[4], has_biases=True, num_layers=1, dropout=0.0, train=True,
            bidirectional=False, batch_first=False, flag_seq=lengths is not None, direction=backwards,
        )  # fmt: skip
        self.same(named[:3], expected)
        weights = [torch.rand(5, 3, 6, generator=self.g) for _ in range(3)]
        sum((e * w).sum() for e, w in zip(expected, weights, strict=True)).backward()
        sum((o * w.npu()).sum() for o, w in zip(out, weights, strict=False)).backward()
        self.same([t.grad for t in npu], [t.grad for t in cpu])
        return npu, out, weights, cpu

    def test_lstm(self):
        npu, out, weights, cpu = self.run_lstm()
        detached = [t.detach() for t in npu]
        grads = torch.npu_lstm_backward(
            *(w.npu() for w in weights), detached[0], detached[1], detached[2], detached[3], detached[4],
            *(t.detach() for t in out),
        )  # fmt: skip
        self.same(grads, [t.grad for t in cpu])
        module = torch.nn.LSTM(4, 6)
        with torch.no_grad():
            x, w, b, h, c = detached
            module.weight_ih_l0.copy_(w[:4].t())
            module.weight_hh_l0.copy_(w[4:].t())
            module.bias_ih_l0.copy_(b)
            module.bias_hh_l0.zero_()
            self.assertEqual(out[0], module(x.cpu(), (h.cpu(), c.cpu()))[0], prec=1e-5)

    def test_lstm_lengths_and_direction(self):
        lengths = torch.tensor([5, 2, 4], dtype=torch.int32)
        self.run_lstm(lengths)
        mask = (torch.arange(5)[:, None] < lengths).unsqueeze(2).expand(5, 3, 6).half()
        self.run_lstm(lengths, mask)
        self.run_lstm(backwards=True)

    def test_lstm_of_padded_sequences(self):
        """npu_lstm_data: batch_sizes as in a PackedSequence, both directions, mask given or made."""
        lengths = torch.tensor([5, 4, 2])
        sizes = (lengths > torch.arange(5)[:, None]).sum(1)
        mask = (torch.arange(5)[:, None] < lengths).unsqueeze(2).expand(5, 3, 6).half().npu()
        shapes = ((5, 3, 4), (10, 24), (24,), (1, 3, 6), (1, 3, 6))
        for backwards, seq, given in (
            (False, mask, sizes), (True, mask, sizes.npu()), (True, lengths.npu(), sizes.int()),
        ):  # fmt: skip
            cpu, npu = leaves(*(self.randn(*s) for s in shapes))
            expected = self.lstm_reference(*cpu, lengths=lengths, backwards=backwards)
            x, w, b, h, c = npu
            out = torch.npu_lstm_data(
                x, batch_sizes=given, weight=w, bias=b, seq_mask=seq, h=h, c=c, has_biases=True, num_layers=1,
                dropout=0.0, train=True, bidirectional=False, batch_first=False, flag_seq=True, direction=backwards,
            )  # fmt: skip
            self.same(out[:3], expected)
            weights = [torch.rand(5, 3, 6, generator=self.g) for _ in range(3)]
            sum((e * w).sum() for e, w in zip(expected, weights, strict=True)).backward()
            sum((o * w.npu()).sum() for o, w in zip(out, weights, strict=False)).backward()
            self.same([t.grad for t in npu], [t.grad for t in cpu])
            d, saved = [t.detach() for t in npu], [t.detach() for t in out]
            operands = (d[0], given, *d[1:], *saved, backwards)
            self.same(torch.npu_lstm_data_backward(*(w.npu() for w in weights), *operands), [t.grad for t in cpu])
            only_y = torch.npu_lstm_data_backward(weights[0].npu(), None, None, *operands)
            y, *_ = self.lstm_reference(*cpu, lengths=lengths, backwards=backwards)
            self.same(only_y, torch.autograd.grad((y * weights[0]).sum(), cpu))
        with self.assertRaisesRegex(RuntimeError, "an integer for each of 5 steps"):
            torch.npu_lstm_data_backward(None, None, None, d[0], sizes[:3], *operands[2:])

    def test_lstm_half_and_errors(self):
        x, w, b = self.randn(5, 3, 4).half(), self.randn(10, 24).half(), self.randn(24).half()
        h = torch.zeros(1, 3, 6).half()
        arguments = [t.npu() for t in (x, w, b)]
        rest = (torch.empty(0).npu(), h.npu(), h.npu(), True)
        out = torch.npu_lstm(*arguments, *rest, 1, 0.0, True, False, False, False, False)
        expected = self.lstm_reference(x.double(), w.double(), b.double(), h.double(), h.double())
        self.assertEqual(out[0].float(), expected[0].float(), prec=2e-3)
        with self.assertRaisesRegex(NotImplementedError, "num_layers=2"):
            torch.npu_lstm(*arguments, *rest, 2, 0.0, True, False, False, False, False)
        with self.assertRaisesRegex(RuntimeError, "weight of shape"):
            torch.npu_lstm(
                arguments[0], arguments[1][:7], arguments[2], *rest, 1, 0.0, True, False, False, False, False
            )

    def test_lstm_cell(self):
        given = (self.randn(3, 4), self.randn(4, 24), self.randn(6, 24), self.randn(3, 6), self.randn(3, 6))
        bias = self.randn(24)
        cpu, npu = leaves(*given, bias)
        x, w_ih, w_hh, h, c, b = cpu
        ys, hs, cs = self.lstm_reference(x[None], torch.cat([w_ih, w_hh]), b, h[None], c[None])
        out = torch.npu_lstm_cell(*npu)
        self.assertEqual([t.shape for t in out[:3]], [(1, 3, 6), (3, 6), (3, 6)])
        self.same(out[:3], (ys, hs[0], cs[0]))
        weights = [torch.rand(3, 6, generator=self.g) for _ in range(2)]
        ((hs[0] * weights[0]).sum() + (cs[0] * weights[1]).sum()).backward()
        ((out[1] * weights[0].npu()).sum() + (out[2] * weights[1].npu()).sum()).backward()
        self.same([t.grad for t in npu], [t.grad for t in cpu])
        grads = torch.npu_lstm_cell_backward(
            None, weights[0].npu(), weights[1].npu(), *(t.detach() for t in npu[:5]), *(t.detach() for t in out)
        )
        order = (x, w_ih, w_hh, b, h, c)
        self.same(grads, [t.grad for t in order])
        operands = [*(t.detach() for t in npu[:5]), *(t.detach() for t in out)]
        by_bias = torch.ops.npu.npu_lstm_cell_backward.biases(None, *(t.npu() for t in weights), *operands)
        self.same(by_bias, [t.grad for t in (x, w_ih, w_hh, b, b, h, c)])
        self.same(
            torch.npu_lstm_cell(*npu[:5])[:1],
            self.lstm_reference(x[None], torch.cat([w_ih, w_hh]), 0, h[None], c[None])[:1],
        )

    def test_gru(self):
        shapes = ((5, 3, 4), (1, 3, 6), (4, 18), (6, 18), (18,), (18,))
        given = [self.randn(*shape) for shape in shapes]
        cpu, npu = leaves(*given)
        x, h0, w_ih, w_hh, b_ih, b_hh = cpu
        h, states = h0[0], []
        for t in range(5):
            a, b = x[t] @ w_ih + b_ih, h @ w_hh + b_hh
            r, z = torch.sigmoid(a[:, :6] + b[:, :6]), torch.sigmoid(a[:, 6:12] + b[:, 6:12])
            n = torch.tanh(a[:, 12:] + r * b[:, 12:])
            h = (1 - z) * n + z * h
            states.append(h)
        expected = torch.stack(states)
        seq = torch.tensor([5, 5, 5], dtype=torch.int32).npu()
        out = torch.npu_gru(*npu, seq, True, 1, 0.0, True, False, False)
        self.same(out[:2], (expected, expected))
        weights = [torch.rand(5, 3, 6, generator=self.g) for _ in range(2)]
        (expected * (weights[0] + weights[1])).sum().backward()
        ((out[0] * weights[0].npu()).sum() + (out[1] * weights[1].npu()).sum()).backward()
        self.same([t.grad for t in npu], [t.grad for t in cpu])
        d = [t.detach() for t in npu]
        grads = torch.npu_gru_backward(
            *(w.npu() for w in weights), d[0], d[2], d[3], d[4], d[5], seq, d[1], *(t.detach() for t in out)
        )
        self.same(grads, [t.grad for t in cpu])
        with self.assertRaisesRegex(NotImplementedError, "bidirectional=1"):
            torch.npu_gru(*npu, seq, True, 1, 0.0, True, True, False)

    def test_nothing(self):
        w, h = torch.randn(10, 24).npu().requires_grad_(), torch.zeros(1, 0, 6).npu()
        x = torch.zeros(5, 0, 4).npu()
        out = torch.npu_lstm(x, w, torch.zeros(24).npu(), torch.empty(0).npu(), h, h, True, 1, 0.0, True, *[False] * 4)
        self.assertEqual(out[0].shape, (5, 0, 6))
        out[0].sum().backward()
        self.assertEqual(w.grad.abs().sum().item(), 0.0)


class TestAttention(TestCase):
    def reference(self, q, k, v, wq, wk, wv, wo, bq, bk, bv, bo, mask, heads, width, source, target, keep=None):
        def split(t, length):
            return t.view(-1, length, heads, width).transpose(1, 2)

        q = split((q @ wq.t() + bq) * width**-0.5, target)
        k, v = split(k @ wk.t() + bk, source), split(v @ wv.t() + bv, source)
        soft = (q @ k.transpose(-1, -2) + mask).softmax(-1)
        if keep is not None:
            soft = soft * keep
        context = (soft @ v).transpose(1, 2).reshape(-1, heads * width)
        return context @ wo.t() + bo

    def test_attention_and_gradient(self):
        g = torch.Generator().manual_seed(1)
        heads, width, source, target, batch, features = 2, 4, 6, 5, 3, 8
        shapes = [(batch * target, features), *[(batch * source, features)] * 2, *[(8, features)] * 3, (features, 8)]
        shapes += [(8,)] * 3 + [(features,)]
        cpu, npu = leaves(*(torch.randn(*s, generator=g) * 0.5 for s in shapes))
        mask = torch.randn(batch, heads, target, source, generator=g)
        for drop in (0.0, 0.4):
            bits, keep = None, None
            if drop:
                bits = torch.npu_dropout_gen_mask([batch, heads, target, source], drop, device="npu")
                kept = torch.tensor([b >> k & 1 for b in bits.tolist() for k in range(8)])[: mask.numel()]
                keep = kept.view(mask.shape).double() / (1 - drop)
            for t in (*cpu, *npu):
                t.grad = None
            expected = self.reference(*cpu, mask.double(), heads, width, source, target, keep)
            q, k, v, wq, wk, wv, wo, *biases = npu
            out = torch.npu_multi_head_attention(
                q, k, v, wq, wk, wv, mask.npu(), wo, *biases, bits, heads, width, source, target, drop, True
            )
            self.assertEqual([t.shape for t in out[4:6]], [(3, 2, 6, 4), (3, 2, 5, 6)])
            self.assertEqual(out[0], expected.float(), prec=1e-4)
            weight = torch.rand(expected.shape, generator=g)
            (expected * weight).sum().backward()
            (out[0] * weight.npu()).sum().backward()
            for i, (a, b) in enumerate(zip(npu, cpu, strict=True)):
                self.assertEqual(a.grad, b.grad.float(), f"number {i}", prec=1e-4)
        drawn = torch.npu_multi_head_attention(
            q, k, v, wq, wk, wv, mask.npu(), wo, *biases, None, heads, width, source, target, 0.5, False
        )
        self.assertGreater((drawn[6] == 0).float().mean().item(), 0.3)
        with self.assertRaisesRegex(RuntimeError, "query of shape"):
            torch.npu_multi_head_attention(
                q[:4], k, v, wq, wk, wv, mask.npu(), wo, *biases, None, heads, width, source, target, 0.0, True
            )


class TestAttentionInHalf(TestCase):
    def test_against_its_parts(self):
        """In float16, operator by operator: the fused one rounds where these do."""
        heads, width, length, batch = 4, 16, 8, 2
        g = torch.Generator().manual_seed(3)

        def half(*shape):
            return (torch.rand(shape, generator=g) * 2 - 1).half().npu().npu_format_cast(29 if len(shape) == 2 else 2)

        q, k, v = (half(batch * length, 64) for _ in range(3))
        wq, wk, wv, wo = (half(64, 64) for _ in range(4))
        mask = (torch.rand(batch, heads, length, length, generator=g) * 2 - 1).half().npu()
        biases = [half(64) for _ in range(4)]

        def by_heads(t):
            return torch.npu_confusion_transpose(t, (0, 2, 1, 3), (batch, length, heads, width), False)

        query = by_heads(torch.npu_linear(q, wq, biases[0]) * width**-0.5)
        key, value = by_heads(torch.npu_linear(k, wk, biases[1])), by_heads(torch.npu_linear(v, wv, biases[2]))
        soft = (query @ key.transpose(-1, -2) + mask).softmax(-1, dtype=torch.float32)
        context = torch.npu_confusion_transpose(soft.half() @ value, (0, 2, 1, 3), (batch * length, 64), True)
        expected = torch.npu_linear(context, wo, biases[3])
        out = torch.npu_multi_head_attention(
            q, k, v, wq, wk, wv, mask, wo, *biases, None, heads, width, length, length, 0.0, True
        )
        self.assertEqual(out[5].dtype, torch.float32)
        self.assertRtolEqual(out[0], expected)
        self.assertRtolEqual(out[5], soft)


def bits_of(mask, n):
    return torch.tensor([b >> k & 1 for b in mask.tolist() for k in range(8)])[:n]


class TestDropout(TestCase):
    def test_bits(self):
        torch.manual_seed(3)
        x = torch.rand(40, 50) + 1
        n = x.npu().requires_grad_()
        y, mask = torch._npu_dropout(n, 0.3)
        self.assertEqual((mask.dtype, mask.numel()), (torch.uint8, (2000 + 127) // 128 * 16))
        kept = bits_of(mask, 2000).view(40, 50)
        self.assertEqual(y, torch.where(kept > 0, x / 0.7, 0), prec=1e-5)
        self.assertLess(abs(kept.float().mean().item() - 0.7), 0.05)
        y.sum().backward()
        self.assertEqual(n.grad, kept / 0.7, prec=1e-5)
        back = torch.npu_dropout_backward(torch.ones_like(x).npu(), mask, 0.3)
        self.assertEqual(back, n.grad)
        torch.manual_seed(3)
        self.assertTrue(torch.equal(torch._npu_dropout(x.npu(), 0.3)[1], mask))
        self.assertFalse(torch.equal(torch._npu_dropout(x.npu(), 0.3)[1], mask))
        self.assertEqual(torch._npu_dropout(x.npu(), 0.0)[0], x)
        self.assertEqual(torch._npu_dropout(x.npu(), 1.0)[0].abs().sum().item(), 0.0)
        with self.assertRaisesRegex(RuntimeError, "between 0 and 1"):
            torch._npu_dropout(x.npu(), 1.5)

    def test_in_place(self):
        x = torch.rand(100) + 1
        n = x.npu()
        y, mask = torch._npu_dropout_inplace(n, 0.5)
        self.assertEqual(y.data_ptr(), n.data_ptr())
        self.assertEqual(n, torch.where(bits_of(mask, 100) > 0, x * 2, 0), prec=1e-5)

    def test_mask_apart(self):
        mask = torch.npu_dropout_gen_mask([10, 30], 0.25, dtype=torch.float32, device=torch.device("npu"))
        self.assertEqual((mask.device.type, mask.dtype, mask.numel()), ("npu", torch.uint8, 48))
        self.assertEqual(torch.npu_dropout_gen_mask([10, 30], 0.25).device.type, "npu")
        x = torch.rand(10, 30)
        n = x.npu().requires_grad_()
        y, same = torch.npu_dropout_do_mask(n, mask, 0.25)
        self.assertTrue(torch.equal(same, mask))
        kept = bits_of(mask, 300).view(10, 30)
        self.assertEqual(y, x * kept / 0.75, prec=1e-5)
        y.sum().backward()
        self.assertEqual(n.grad, kept / 0.75, prec=1e-5)
        with self.assertRaisesRegex(RuntimeError, "uint8 mask"):
            torch.npu_dropout_do_mask(n, mask.int(), 0.25)

    def test_v2(self):
        seed = torch.rand(32).npu()
        start = seed.clone()
        x = torch.rand(500) + 1
        n = x.npu().requires_grad_()
        y, mask, out_seed = torch.npu_dropoutV2(n, seed, 0.3)
        self.assertEqual(out_seed.data_ptr(), seed.data_ptr())
        self.assertFalse(torch.equal(seed, start))
        self.assertLess(abs(mask.mean().item() - 0.7), 0.08)
        self.assertEqual(y, x * mask.cpu() / 0.7, prec=1e-5)
        y.sum().backward()
        self.assertEqual(n.grad, mask.cpu() / 0.7, prec=1e-5)
        self.assertEqual(torch.npu_dropoutV2_backward(torch.ones(500).npu(), mask, 0.3), n.grad)
        self.assertTrue(torch.equal(torch.npu_dropoutV2(x.npu(), start, p=0.3)[1], mask))  # the seed decides
        self.assertFalse(torch.equal(torch.npu_dropoutV2(x.npu(), seed, 0.3)[1], mask))

    def test_with_add_softmax(self):
        g = torch.Generator().manual_seed(2)
        cpu, npu = leaves(torch.randn(2, 3, 8, 16, generator=g), torch.randn(2, 3, 8, 16, generator=g))
        mask, soft, y = torch.npu_dropout_with_add_softmax(*npu, 2, 0.4, -1)
        self.assertEqual((mask.dtype, mask.numel() % 128), (torch.uint8, 0))
        expected = (cpu[1] + cpu[0] * 2).softmax(-1)
        self.assertEqual(soft, expected.float(), prec=1e-5)
        kept = mask[: y.numel()].view(y.shape).cpu().double() / 0.6
        dropped = expected * kept
        self.assertEqual(y, dropped.float(), prec=1e-5)
        weight = torch.rand(y.shape, generator=g)
        (dropped * weight).sum().backward()
        (y * weight.npu()).sum().backward()
        self.assertEqual(npu[0].grad, cpu[0].grad.float(), prec=1e-5)
        self.assertEqual(npu[1].grad, cpu[1].grad.float(), prec=1e-5)
        grads = torch.npu_dropout_with_add_softmax_backward(weight.npu(), mask, soft.detach(), 2, 0.4, -1)
        self.assertEqual(grads[0], npu[0].grad, prec=1e-6)


if __name__ == "__main__":
    run_tests()
