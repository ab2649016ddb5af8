"""Attention over paths of two steps, against its formula in float64, and its gradient against autograd."""

from llm_ops_case import Call, LlmOpsTestCase, run_tests

import torch

NAME = "npu_fused_floyd_attention"


def floyd(query, key_ij, value_ij, key_jk, value_jk, *, atten_mask=None, scale_value=1.0):
    """Pair by pair: the keys and values of both steps, added."""
    top = torch.zeros(query.shape[:4], dtype=torch.double)
    total, out = torch.zeros_like(top), torch.zeros_like(query)
    for i in range(query.shape[2]):
        keys = key_ij[:, :, i].unsqueeze(3) + key_jk
        values = value_ij[:, :, i].unsqueeze(3) + value_jk
        scores = scale_value * (query[:, :, i].unsqueeze(2) * keys).sum(-1)
        if atten_mask is not None:
            scores = scores.masked_fill(atten_mask[:, :, i, 0].bool().unsqueeze(-1), float("-inf"))
        found = scores.amax(2)
        terms = torch.exp(scores - found.masked_fill(found.isinf(), 0).unsqueeze(2))
        sums = terms.sum(2)
        out[:, :, i] = (terms.unsqueeze(-1) * values).sum(2) / sums.masked_fill(sums == 0, 1).unsqueeze(-1)
        top[:, :, i], total[:, :, i] = found.masked_fill(found.isinf(), 0), sums
    return *(t.unsqueeze(-1).expand(*t.shape, 8) for t in (top, total)), out


def inputs(dtype=torch.float16):
    generator = torch.Generator().manual_seed(1)
    shapes = ((1, 2, 16, 128, 32), (1, 2, 16, 128, 32), (1, 2, 16, 128, 32), (1, 2, 128, 128, 32), (1, 2, 128, 128, 32))
    return [(torch.randn(s, generator=generator) / 2).to(dtype) for s in shapes]


def mask():
    hidden = torch.rand(1, 1, 16, 1, 128, generator=torch.Generator().manual_seed(2)) < 0.4
    hidden[:, :, 3] = True
    return hidden


class TestFloydAttention(LlmOpsTestCase):
    def test_calls(self):
        calls = [
            Call(NAME, tuple(inputs()), {"scale_value": 0.3}, floyd, (1e-4, 2e-2)),
            Call(NAME, tuple(inputs(torch.bfloat16)), {"atten_mask": mask(), "scale_value": 0.3}, floyd, (1e-3, 2e-2)),
            Call(NAME, tuple(inputs()), {"atten_mask": mask().to(torch.uint8)}, floyd, (1e-3, 2e-2)),
        ]
        for call in calls:
            self.check_call(call)
        self.check_compiled(calls[-1])

    def test_gradient(self):
        for hidden in (None, mask()):
            given = [t.npu().requires_grad_() for t in inputs()]
            kwargs = {"scale_value": 0.3, "atten_mask": None if hidden is None else hidden.npu()}
            top, total, out = torch.npu_fused_floyd_attention(*given, **kwargs)
            dy = torch.randn_like(out)
            wanted = torch.autograd.grad(out, given, dy)
            with torch.no_grad():
                found = torch.npu_fused_floyd_attention_backward(dy, *given, out, top, total, **kwargs)
            for got, want in zip(found, wanted, strict=True):
                self.assertEqual(got, want, atol=1e-2, rtol=2e-2)
            self.assertFalse(any(bool(t.isnan().any()) for t in wanted))
        args = tuple(t.detach().cpu() for t in (dy, *given, out, top, total))
        call = Call(f"{NAME}_backward", args, {"scale_value": 0.3, "atten_mask": mask()})
        self.check_call(call)
        self.check_compiled(call)

    def test_refusals(self):
        given = [t.npu() for t in inputs()]
        with self.assertRaisesRegex(RuntimeError, f"{NAME}: key_jk must be"):
            torch.npu_fused_floyd_attention(*given[:3], given[3][:, :, :5], given[4])
        with self.assertRaisesRegex(RuntimeError, f"{NAME}: the dimensions must be multiples"):
            torch.npu_fused_floyd_attention(*(t[:, :, :8] for t in given[:3]), *given[3:])


if __name__ == "__main__":
    run_tests()
