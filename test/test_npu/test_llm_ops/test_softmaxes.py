"""Softmaxes of attention scores against their formulas and autograd."""

from llm_ops_case import Call, LlmOpsTestCase, run_tests

import torch


def exponentials(scores):
    terms = torch.exp(scores - scores.amax(-1, keepdim=True))
    return terms / terms.sum(-1, keepdim=True)


def masked(x, mask, bias, scale_value=1.0):
    out = torch.empty_like(x)
    windows = x.shape[1] if x.dim() == 5 else 1 if mask is None else mask.reshape(-1, *x.shape[-2:]).shape[0]
    flat, found = x.reshape(-1, windows, *x.shape[-3:]), out.view(-1, windows, *x.shape[-3:])
    for w in range(windows):
        for h in range(x.shape[-3]):
            scores = scale_value * flat[:, w, h] + bias.reshape(x.shape[-3:])[h]
            found[:, w, h] = exponentials(scores if mask is None else scores + mask.reshape(-1, *x.shape[-2:])[w])
    return out


def backward(weights, grad, values):
    scores = weights.log().requires_grad_()
    return torch.autograd.grad(torch.softmax(scores, -1) @ values, scores, grad)[0]


def draw(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed + sum(shape)))


def calls():
    name = "npu_masked_softmax_with_rel_pos_bias"
    weights = torch.softmax(draw(2, 3, 4, 6), -1)
    wide, mask, bias = draw(2, 3, 4, 5, 6), draw(3, 5, 6), draw(4, 5, 6)
    return [
        Call("npu_attn_softmax_", (draw(2, 3, 6) * 3,), {}, lambda x: (exponentials(x),) * 2, written=lambda *a: a[:1]),
        Call("npu_attn_softmax_", (draw(2, 3, 6).half(),), {}, exponentials),
        Call("npu_attn_softmax_backward_", (weights, draw(2, 3, 4, 8), draw(2, 3, 6, 8)), {}, backward),
        Call(name, (wide, mask.view(1, 3, 1, 5, 6), bias, 0.3), {}, masked),
        Call(name, (wide.flatten(0, 1), mask.unsqueeze(1), bias.unsqueeze(0), 0.3), {}, masked),
        Call(name, (wide.bfloat16(), None, bias.bfloat16().view(1, 1, 4, 5, 6)), {}, masked),
    ]


class TestSoftmaxes(LlmOpsTestCase):
    def test_calls(self):
        self.check_calls("softmaxes", calls())

    def test_in_place(self):
        scores = draw(2, 5).npu()
        expected = torch.softmax(scores, -1)
        self.assertIs(torch.npu_attn_softmax_(scores), scores)
        self.assertEqual(scores, expected)

    def test_refusals(self):
        x = draw(6, 4, 5, 6).npu()
        bias = draw(4, 5, 6).npu()
        with self.assertRaisesRegex(RuntimeError, "atten_mask of 4 windows doesn't fit x"):
            torch.npu_masked_softmax_with_rel_pos_bias(x, draw(4, 5, 6).npu(), bias)
        with self.assertRaisesRegex(RuntimeError, "relative_pos_bias must be"):
            torch.npu_masked_softmax_with_rel_pos_bias(x, None, bias[:3])


if __name__ == "__main__":
    run_tests()
