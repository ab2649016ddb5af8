"""Attention with an added mask and a dropout (torch/npu/operators/attention_scores.py), against NumPy and autograd."""

import numpy as np
from llm_ops_case import Call, LlmOpsTestCase, run_tests

import torch

KEEP = 0.75


def forward(query, key, value, mask, scale, keep_prob):
    batch, heads, queries, width = query.shape
    out, weights = np.zeros((batch * queries, heads * width)), np.zeros((batch, heads, queries, key.shape[2]))
    added = mask.expand(weights.shape).numpy()
    for b in range(batch):
        for h in range(heads):
            scores = query[b, h].numpy() @ key[b, h].numpy().T * scale + added[b, h]
            e = np.exp(scores - scores.max(1, keepdims=True))
            weights[b, h] = e / e.sum(1, keepdims=True)
            for i in range(queries):
                out[b * queries + i, h * width : (h + 1) * width] = weights[b, h, i] @ value[b, h].numpy()
    return torch.from_numpy(out), torch.from_numpy(weights), torch.ones(weights.size)


def gradients(grad, weights, query, key, value, mask, scale, keep_prob, *, joined=False):
    """By autograd, of what the forward made: only the softmax' scores are made again."""
    inputs = [t.clone().requires_grad_() for t in (query, key, value)]
    kept = torch.softmax(inputs[0] @ inputs[1].mT * scale, -1) * mask.view(weights.shape) / keep_prob
    out = (kept @ inputs[2]).transpose(1, 2).reshape(grad.shape)
    found = torch.autograd.grad(out, inputs, grad)
    return tuple(t.transpose(1, 2).reshape(grad.shape) for t in found) if joined else found


def calls() -> list[Call]:
    generator = torch.Generator().manual_seed(5)

    def r(*shape):
        return torch.randn(shape, generator=generator).half()

    query, key, value = r(2, 3, 4, 8), r(2, 3, 6, 8), r(2, 3, 6, 8)
    mask = torch.where(torch.rand(2, 1, 4, 6, generator=generator) < 0.3, -10000.0, 0.0).half()
    near = (1e-5, 5e-3)
    name = "npu_fused_attention_score"
    same = r(2, 3, 4, 8), r(2, 3, 4, 8), r(2, 3, 4, 8)

    def back(given):
        scores = given[0].double() @ given[1].double().mT * 0.3
        kept = (torch.rand(scores.numel(), generator=generator) < KEEP).to(torch.uint8)
        return r(8, 24), torch.softmax(scores, -1).half(), *given, kept, 0.3, KEEP

    def joined(*given):
        return gradients(*given, joined=True)

    return [
        Call(f"{name}_fwd", (query, key, value, mask, 0.3, 1.0), {}, forward, near),
        Call(name, (query, key, value, mask[:, :, :1], 0.3, 1.0), {}, lambda *a: forward(*a)[0], near),
        Call(f"{name}_backward", back((query, key, value)), {}, gradients, (1e-5, 1e-2)),
        Call(f"{name}_grad", back(same), {}, joined, (1e-5, 1e-2)),
    ]


class TestAttentionScores(LlmOpsTestCase):
    def test_calls(self):
        self.check_calls("attention_scores", calls())

    def test_dropout(self):
        """The mask tells what was kept, and the gradient of the first result is that of the gradient operators."""
        query, key, value, mask = (t.npu() for t in calls()[0].args[:4])
        out, weights, kept = torch.npu_fused_attention_score_fwd(query, key, value, mask, 0.3, 0.5)
        self.assertLess(abs(float(kept.float().mean()) - 0.5), 0.2)
        wanted = (weights.float() * kept.view(weights.shape) / 0.5) @ value.float()
        self.assertEqual(out.float(), wanted.transpose(1, 2).reshape(out.shape), atol=5e-3, rtol=5e-3)
        inputs = [t.clone().requires_grad_() for t in (query, key, value)]
        result = torch.npu_fused_attention_score(*inputs, mask, 0.3, 1.0)
        dy = torch.randn_like(result)
        wanted = torch.autograd.grad(result, inputs, dy)
        ones = torch.ones_like(kept)
        found = torch.npu_fused_attention_score_backward(dy, weights, query, key, value, ones, 0.3, 1.0)
        for got, want in zip(found, wanted, strict=True):
            self.assertEqual(got, want, atol=1e-2, rtol=1e-2)

    def test_refusals(self):
        query, key, value, mask = (t.npu() for t in calls()[0].args[:4])
        run = torch.npu_fused_attention_score
        for error, message, call in (
            (NotImplementedError, "query_transpose must be False", lambda: run(query, key, value, mask, 1, 1, True)),
            (RuntimeError, "keep_prob must be above 0", lambda: run(query, key, value, mask, 1, 0)),
            (RuntimeError, "query_layer must be one of", lambda: run(query.float(), key, value, mask, 1, 1)),
            (RuntimeError, "key_layer and value_layer", lambda: run(query, key[..., :4], value, mask, 1, 1)),
        ):
            with self.assertRaisesRegex(error, message):
                call()


if __name__ == "__main__":
    run_tests()
