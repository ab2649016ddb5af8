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


def pre_by_steps(x, phi, alpha, bias, gamma, norm_eps, hc_eps):
    """The definition with all that its gradient is given, and differentiable."""
    n, flat = x.shape[-2], x.flatten(-2)
    factor = (flat.square().mean(-1) + norm_eps).rsqrt()
    mix = torch.einsum("...k,rk->...r", flat if gamma is None else flat * gamma.flatten(), phi)
    first, second, third = (mix * factor.unsqueeze(-1)).split((n, n, n * n), -1)
    before = torch.sigmoid(alpha[0] * first + bias[:n]) + hc_eps
    behind = 2 * torch.sigmoid(alpha[1] * second + bias[n : 2 * n])
    among = (alpha[2] * third + bias[2 * n :]).unflatten(-1, (n, n))
    return torch.einsum("...n,...nd->...d", before, x), behind, among, factor, mix, before


def pre_backward(x, phi, alpha, d_in, d_post, d_res, *_, gamma=None, hc_eps=1e-6, grad_x_post=None):
    bias = case_bias(x.shape[-2]).double()
    leaves = [t.clone().requires_grad_() for t in (x, phi, alpha, bias, *(() if gamma is None else (gamma,)))]
    out = pre_by_steps(*leaves[:4], None if gamma is None else leaves[4], 1e-6, hc_eps)
    found = torch.autograd.grad(out[:3], leaves, (d_in, d_post, d_res))
    found = [found[0] if grad_x_post is None else found[0] + grad_x_post, *found[1:]]
    return (*found, *((torch.empty(0),) if gamma is None else ()))


def case_bias(n):
    return draw(n * n + 2 * n, seed=3)


def backward_calls():
    found = []
    for x, gamma in (
        (draw(2, 3, 4, 16, dtype=torch.float16), None),
        (draw(5, 6, 16, dtype=torch.bfloat16), draw(6, 16)),
    ):
        n, lead = x.shape[-2], x.shape[:-2]
        phi, alpha = draw(n * n + 2 * n, n * 16) / 8, draw(3)
        with torch.no_grad():
            given = pre_by_steps(x.double(), phi.double(), alpha, case_bias(n), gamma, 1e-6, 1e-2)
        behind, factor, mix, before = (given[i].float() for i in (1, 3, 4, 5))
        grads = draw(*lead, 16).to(x.dtype), draw(*lead, n), draw(*lead, n, n)
        more = {"gamma": gamma, "hc_eps": 1e-2}
        if gamma is not None:
            more["grad_x_post"] = draw(*x.shape, seed=8).to(x.dtype)
        args = (x, phi, alpha, *grads, factor, mix, before, behind)
        found.append(Call("npu_mhc_pre_backward", args, more, pre_backward, (5e-4, 3e-2)))
    return found


class TestHyperConnections(LlmOpsTestCase):
    def test_calls(self):
        names = ("npu_mhc_post_backward", "npu_mhc_sinkhorn_backward", "npu_mhc_pre_backward")
        gradients = [Call(name, ()) for name in names]
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

    def test_gradient_of_pre(self):
        for call in backward_calls():
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
