"""Losses, the sampling of tokens and steps of AdamW, against their formulas, autograd and upstream's optimizer."""

import numpy as np
from llm_ops_case import Call, LlmOpsTestCase, run_tests
from torch.nn import functional as F

import torch

ONLINE = "npu_fused_linear_online_max_sum"
LOSS = "npu_fused_cross_entropy_loss_with_max_sum"
BACKWARD = "npu_fused_linear_cross_entropy_loss_with_max_sum_backward"


def online(x, weight, target, first, last, return_logits=False):
    scores, bits = (x @ weight.t()).numpy(), ""
    top, predicted, masked = scores.max(1), [], []
    for row, word in enumerate(target.tolist()):
        away = not first <= word <= last
        bits += "1" if away else "0"
        masked.append(0 if away else word - first)
        predicted.append(0 if away else scores[row, word - first] - top[row])
    bits += "1" * (-len(bits) % 8)
    packed = [int(bits[i : i + 8], 2) for i in range(0, len(bits), 8)]
    found = [torch.tensor(t) for t in (top, np.exp(scores - top[:, None]).sum(1), predicted, packed, masked)]
    return *found, torch.from_numpy(scores) if return_logits else torch.empty(0)


def loss(top, total, predicted, *, vocab_parallel_logits=None):
    out = torch.from_numpy(np.log(total.numpy())) - predicted
    if vocab_parallel_logits is None:
        return out, torch.empty(0)
    return out, (vocab_parallel_logits - top[:, None]).exp() / total[:, None]


def top_k_top_p(logits, p=None, k=None):
    out = logits.clone()
    for row in range(logits.shape[0]):
        if k is not None:
            kth = sorted(out[row].tolist())[-int(k[row])]
            out[row][out[row] < kth] = float("-inf")
        if p is not None:
            order = sorted(range(logits.shape[1]), key=lambda i: (float(out[row, i]), i))
            weights, total = torch.softmax(out[row], 0), 0.0
            for i in order[:-1]:
                total += float(weights[i])
                if total <= 1 - float(p[row]):
                    out[row, i] = float("-inf")
    return out


def adam_w(power1, power2, lr, decay, beta1, beta2, epsilon, grad, max_norm, amsgrad, maximize, *, var, m, v):
    grad = -grad if maximize else grad
    m, v = beta1 * m + (1 - beta1) * grad, beta2 * v + (1 - beta2) * grad**2
    step = m / (1 - power1 * beta1) / ((v / (1 - power2 * beta2)).sqrt() + epsilon)
    return var * (1 - lr * decay) - lr * step, m, v


def draw(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed + sum(shape)))


def calls():
    x, weight = (draw(11, 8) / 2).half(), (draw(130, 8) / 2).half()
    target = torch.randint(0, 200, (11,), generator=torch.Generator().manual_seed(1))
    top, total, predicted = draw(5), draw(5).abs() + 1, draw(5, seed=1)
    logits, p, k = draw(4, 40) * 3, torch.tensor([0.9, 0.3, 0.0, 1.0]), torch.tensor([7, 40, 20, 1], dtype=torch.int32)
    state = {n: draw(6, 5, seed=s).abs() for s, n in enumerate(("var", "m", "v"))}
    numbers = (0.81, 0.99, 1e-2, 0.1, 0.9, 0.999, 1e-8, draw(6, 5, seed=9))
    return [
        Call(ONLINE, (x, weight, target, 40, 160), {}, online, (2e-3, 2e-2)),
        Call(ONLINE, (x, weight, target.int(), 0, 129, True), {}, online, (2e-3, 2e-2)),
        Call(LOSS, (top, total, predicted), {}, loss),
        Call(LOSS, (top, total, predicted), {"vocab_parallel_logits": draw(5, 9).half()}, loss),
        Call("npu_top_k_top_p", (logits, p, k), {}, top_k_top_p),
        Call("npu_top_k_top_p", (logits.half(), p.half()), {}, top_k_top_p),
        Call("npu_top_k_top_p", (logits,), {"k": k}, top_k_top_p),
        Call("npu_apply_adam_w.out", (*numbers, None, None, None), state, adam_w),
        Call("npu_apply_adam_w.out", (*numbers, None, False, True), state, adam_w),
    ]


class TestLosses(LlmOpsTestCase):
    def test_calls(self):
        others = {
            "npu_binary_cross_entropy_with_logits_backward",
            BACKWARD,
            "npu_renorm_backward",
            "npu_sim_exponential_",
        }
        from torch.npu import operators

        self.assertEqual({c.name.partition(".")[0] for c in calls()} | others, set(operators.FAMILIES["losses"]))
        for call in calls():
            with self.subTest(name=call.name):
                self.check_call(call)
                self.check_compiled(call)

    def test_vocabulary_of_two_devices(self):
        """The losses and gradients of both parts are those of one whole cross entropy."""
        x, weight = (draw(13, 8) / 2).half(), (draw(256, 8) / 2).half()
        target = torch.randint(0, 256, (13,), generator=torch.Generator().manual_seed(2))
        whole = x.double().requires_grad_(), weight.double().requires_grad_()
        losses = F.cross_entropy(whole[0] @ whole[1].t(), target, reduction="none")
        grad = draw(13, seed=3)
        wanted = torch.autograd.grad(losses, whole, grad.double())
        parts = []
        for first in (0, 128):
            part = weight[first : first + 128].contiguous().npu()
            parts.append(
                (part, torch.npu_fused_linear_online_max_sum(x.npu(), part, target.npu(), first, first + 127, True))
            )
        top = torch.maximum(parts[0][1][0], parts[1][1][0])
        total, predicted = 0, 0
        for _, made in parts:
            total = total + made[1] * (made[0] - top).exp()
            # A score of this device is taken less its own maximum; that of the other one is 0.
            here = torch.tensor([not int(b) for byte in made[3].tolist() for b in f"{byte:08b}"][:13]).npu()
            predicted = predicted + torch.where(here, made[2] + made[0] - top, 0)
        got, _ = torch.npu_fused_cross_entropy_loss_with_max_sum(top, total, predicted)
        self.assertEqual(got.cpu().double(), losses.detach(), atol=2e-3, rtol=2e-3)
        dx, dweight = 0, []
        for part, made in parts:
            _, softmax = torch.npu_fused_cross_entropy_loss_with_max_sum(
                top, total, predicted, vocab_parallel_logits=made[5]
            )
            args = (grad.npu(), x.npu(), part, made[3], made[4])
            fast = torch.npu_fused_linear_cross_entropy_loss_with_max_sum_backward(*args, softmax=softmax)
            lean = torch.npu_fused_linear_cross_entropy_loss_with_max_sum_backward(
                *args, logits_max=top, sum_exp_logits=total
            )
            self.assertEqual(fast, lean, atol=2e-3, rtol=2e-2)
            dx, dweight = dx + lean[0].cpu().double(), [*dweight, lean[1].cpu().double()]
        self.assertEqual(dx, wanted[0], atol=3e-3, rtol=2e-2)
        self.assertEqual(torch.cat(dweight), wanted[1], atol=3e-3, rtol=2e-2)
        call = Call(BACKWARD, tuple(t.cpu() for t in args), {"softmax": softmax.cpu()})
        self.check_call(call)
        self.check_compiled(call)

    def test_gradients_of_upstream(self):
        """Of functions that torch has: as autograd's."""
        x, dy = draw(3, 4, 5), draw(3, 4, 5, seed=1)
        for p, dim, maxnorm in ((2, 1, 1.5), (1, -1, 5.0), (3, 0, 2.0), (2, 0, 100.0)):
            double = x.double().requires_grad_()
            (wanted,) = torch.autograd.grad(torch.renorm(double, p, dim, maxnorm), double, dy.double())
            call = Call("npu_renorm_backward", (dy, x, p, dim, maxnorm), {}, lambda *a, w=wanted: w, (1e-4, 0))
            self.check_call(call)
        self.check_compiled(call)
        target, weight, positive = draw(3, 4).sigmoid(), draw(4).abs(), draw(4, seed=1).abs()
        scores = draw(3, 4, seed=4)
        for reduction, index in (("none", 0), ("mean", 1), ("sum", 2)):
            for given in ((None, None), (weight, None), (weight, positive)):
                double = scores.double().requires_grad_()
                wide = [None if t is None else t.double() for t in given]
                out = F.binary_cross_entropy_with_logits(
                    double, target.double(), wide[0], pos_weight=wide[1], reduction=reduction
                )
                grad = draw(*out.shape, seed=8)
                (wanted,) = torch.autograd.grad(out, double, grad.double())
                args = (grad, scores, target, *given, index)
                name = "npu_binary_cross_entropy_with_logits_backward"
                call = Call(name, args, {}, lambda *a, w=wanted: w)
                self.check_call(call)
        self.check_compiled(call)

    def test_adam_w_as_upstream(self):
        parameter = torch.nn.Parameter(draw(6, 5))
        optimizer = torch.optim.AdamW([parameter], 1e-2, (0.9, 0.99), 1e-8, 0.1)
        var, m, v = parameter.detach().clone().npu(), torch.zeros(6, 5).npu(), torch.zeros(6, 5).npu()
        for step in range(3):
            parameter.grad = draw(6, 5, seed=step)
            args = (0.9**step, 0.99**step, 1e-2, 0.1, 0.9, 0.99, 1e-8, parameter.grad.npu(), None, False, False)
            torch.npu_apply_adam_w(*args, out=(var, m, v))
            optimizer.step()
        self.assertEqual(var.cpu(), parameter.detach(), atol=1e-6, rtol=1e-5)

    def test_exponential(self):
        x = torch.empty(40000).npu()
        generator = torch.Generator("npu").manual_seed(1)
        self.assertIs(torch.npu_sim_exponential_(x, 2.0, generator=generator), x)
        values = x.cpu().double()
        self.assertTrue(bool((values >= 0).all()))
        self.assertEqual(float(values.mean()), 0.5, atol=0.02, rtol=0)
        self.assertEqual(float((values > 1.0).double().mean()), np.exp(-2.0), atol=0.01, rtol=0)
        again = torch.empty(40000).npu()
        torch.npu_sim_exponential_(again, 2.0, generator=generator.manual_seed(1))
        self.assertEqual(again, x)

    def test_refusals(self):
        x = torch.ones(2).npu()
        for error, message, run in (
            (
                NotImplementedError,
                "npu_apply_adam_w: out must be given",
                lambda: torch.npu_apply_adam_w(*[0.5] * 7, x, *[None] * 3),
            ),
            (
                NotImplementedError,
                "npu_apply_adam_w: amsgrad must be False",
                lambda: torch.npu_apply_adam_w(*[0.5] * 7, x, x, True, None, out=(x, x, x)),
            ),
            (
                NotImplementedError,
                "label_smoothing must be 0",
                lambda: getattr(torch, LOSS)(x, x, x, label_smoothing=0.1),
            ),
            (
                RuntimeError,
                "npu_top_k_top_p: k must be one of",
                lambda: torch.npu_top_k_top_p(x.view(1, 2), None, x[:1]),
            ),
            (NotImplementedError, "p must be finite", lambda: torch.npu_renorm_backward(x, x, float("inf"), 0, 1)),
        ):
            with self.assertRaisesRegex(error, message):
                run()


if __name__ == "__main__":
    run_tests()
