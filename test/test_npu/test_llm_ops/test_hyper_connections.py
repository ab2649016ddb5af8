"""The streams of a layer, mixed, against the formulas token by token, and gradients against autograd."""

import numpy as np
from llm_ops_case import Call, LlmOpsTestCase, run_tests

import torch


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def pre(x, phi, alpha, bias, *, gamma=None, norm_eps=1e-6, hc_eps=1e-6):
    n, width = x.shape[-2:]
    tokens = x.reshape(-1, n, width).numpy()
    into, post, res = [], [], []
    for token in tokens:
        flat = token.reshape(-1)
        flat = flat / np.sqrt((flat**2).mean() + norm_eps) * (1 if gamma is None else gamma.numpy().reshape(-1))
        mix = phi.numpy() @ flat
        factors = sigmoid(float(alpha[0]) * mix[:n] + bias.numpy()[:n]) + hc_eps
        post.append(2 * sigmoid(float(alpha[1]) * mix[n : 2 * n] + bias.numpy()[n : 2 * n]))
        res.append((float(alpha[2]) * mix[2 * n :] + bias.numpy()[2 * n :]).reshape(n, n))
        into.append(sum(f * stream for f, stream in zip(factors, token, strict=True)))
    shapes = ((width,), (n,), (n, n))
    found = [
        torch.from_numpy(np.stack(t)).view(*x.shape[:-2], *s) for t, s in zip((into, post, res), shapes, strict=True)
    ]
    return *found, torch.empty(0), torch.empty(0), torch.empty(0)


def post(x, h_res, h_out, h_post):
    n = x.shape[-2]
    out = torch.zeros_like(x)
    for i in range(n):
        kept = x[..., i, :] if h_res is None else sum(h_res[..., i, j, None] * x[..., j, :] for j in range(n))
        out[..., i, :] = kept + h_post[..., i, None] * h_out
    return out


def sinkhorn(x, *, eps=1e-6, num_iters=20, out_flag=0):
    norm, norms, sums = torch.softmax(x, -1) + eps, [], []
    norms.append(norm)
    sums.append(torch.zeros_like(norm[..., 0]))
    for i in range(1, 2 * num_iters):
        total = norm.sum(-2 if i % 2 else -1, keepdim=True) + eps
        norm = norm / total
        norms.append(norm)
        sums.append(total.squeeze(-2 if i % 2 else -1))
    if not out_flag:
        return norm, torch.empty(0), torch.empty(0)
    moved = [torch.stack(norms).movedim((-2, -1), (1, 2)), torch.stack(sums).movedim(-1, 1)]
    return norm, *moved


def draw(*shape, seed=0, dtype=torch.float32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed + sum(shape))).to(dtype)


def calls():
    x, tokens = draw(2, 3, 4, 16, dtype=torch.bfloat16), draw(5, 6, 16, dtype=torch.float16)
    res, out, factors = draw(2, 3, 4, 4), draw(2, 3, 16, dtype=torch.bfloat16), draw(2, 3, 4)
    return [
        Call("npu_mhc_pre", (x, draw(24, 64) / 8, draw(3), draw(24)), {"gamma": draw(4, 16)}, pre),
        Call("npu_mhc_pre", (tokens, draw(48, 96) / 8, draw(3), draw(48)), {"hc_eps": 0.1, "norm_eps": 0.1}, pre),
        Call("npu_mhc_post", (x, res, out, factors), {}, post, (1e-5, 3e-2)),
        Call("npu_mhc_post", (x, None, out, factors), {}, post, (1e-5, 3e-2)),
        Call("npu_mhc_sinkhorn", (draw(2, 3, 4, 4),), {"num_iters": 3, "out_flag": 1}, sinkhorn),
        Call("npu_mhc_sinkhorn", (draw(5, 6, 6),), {}, sinkhorn),
        Call("npu_mhc_sinkhorn", (draw(5, 6, 6),), {"num_iters": 1, "out_flag": 1, "eps": 1e-2}, sinkhorn),
    ]


class TestHyperConnections(LlmOpsTestCase):
    def test_calls(self):
        gradients = [Call("npu_mhc_post_backward", ()), Call("npu_mhc_sinkhorn_backward", ())]
        self.check_family("hyper_connections", [*calls(), *gradients])
        for call in calls():
            with self.subTest(name=call.name):
                self.check_call(call)
                self.check_compiled(call)

    def test_gradients(self):
        for res in (draw(2, 3, 4, 4), None):
            given = [draw(2, 3, 4, 16).half(), res, draw(2, 3, 16).half(), draw(2, 3, 4)]
            given = [None if t is None else t.npu().requires_grad_() for t in given]
            out = torch.npu_mhc_post(*given)
            dy = torch.randn_like(out)
            wanted = torch.autograd.grad(out, [t for t in given if t is not None], dy)
            with torch.no_grad():
                found = torch.npu_mhc_post_backward(dy, *given)
            if res is None:
                self.assertEqual(found[1].numel(), 0)
                found = (found[0], *found[2:])
            for got, want in zip(found, wanted, strict=True):
                self.assertEqual(got, want, atol=1e-2, rtol=2e-2)
        call = Call("npu_mhc_post_backward", tuple(None if t is None else t.detach().cpu() for t in (dy, *given)))
        self.check_call(call)
        self.check_compiled(call)
        for shape, iterations in (((2, 3, 4, 4), 3), ((5, 8, 8), 1)):
            x = draw(*shape).npu().requires_grad_()
            y, norm, total = torch.npu_mhc_sinkhorn(x, num_iters=iterations, out_flag=1, eps=1e-3)
            dy = torch.randn_like(y)
            (wanted,) = torch.autograd.grad(y, x, dy)
            with torch.no_grad():
                got = torch.npu_mhc_sinkhorn_backward(dy, norm, total)
            self.assertEqual(got, wanted, atol=1e-5, rtol=1e-4)
        call = Call("npu_mhc_sinkhorn_backward", tuple(t.detach().cpu() for t in (dy, norm, total)))
        self.check_call(call)
        self.check_compiled(call)

    def test_doubly_stochastic(self):
        y, _, _ = torch.npu_mhc_sinkhorn(torch.randn(7, 8, 8).npu())
        for over in (-1, -2):
            self.assertEqual(y.sum(over), torch.ones(7, 8).npu(), atol=1e-3, rtol=0)

    def test_refusals(self):
        x = torch.ones(2, 4, 16).half().npu()
        args = (torch.ones(24, 64).npu(), torch.ones(3).npu(), torch.ones(24).npu())
        with self.assertRaisesRegex(NotImplementedError, "npu_mhc_pre: out_flag must be 0"):
            torch.npu_mhc_pre(x, *args, out_flag=1)
        with self.assertRaisesRegex(RuntimeError, "npu_mhc_pre: x must have 4, 6 or 8 streams"):
            torch.npu_mhc_pre(x[:, :3], *args)
        with self.assertRaisesRegex(RuntimeError, "npu_mhc_sinkhorn: num_iters must be 1 to 100"):
            torch.npu_mhc_sinkhorn(torch.ones(2, 4, 4).npu(), num_iters=0)


if __name__ == "__main__":
    run_tests()
