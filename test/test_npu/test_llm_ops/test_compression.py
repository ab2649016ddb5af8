"""Sums over windows of positions against loops, and their gradient against autograd."""

from llm_ops_case import Call, LlmOpsTestCase, run_tests

import torch


def compress(x, weight, size, stride, *, actual_seq_len):
    out, start = [], 0
    for end in actual_seq_len:
        first = start
        while first + size <= end:
            out.append(sum(weight[k, :, None] * x[first + k] for k in range(size)))
            first += stride
        start = end
    return torch.stack(out)


def draw(*shape, dtype=torch.float16):
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


def calls():
    ends = {"actual_seq_len": [10, 58, 58, 90]}
    return [
        Call("npu_nsa_compress", (draw(90, 2, 16), draw(32, 2), 32, 16), ends, compress, (1e-5, 2e-2)),
        Call(
            "npu_nsa_compress",
            (draw(90, 3, 32, dtype=torch.bfloat16), draw(16, 3, dtype=torch.bfloat16), 16, 16),
            ends,
            compress,
            (1e-5, 5e-2),
        ),
    ]


class TestCompression(LlmOpsTestCase):
    def test_calls(self):
        self.check_family("compression", [*calls(), Call("npu_nsa_compress_grad", ())])
        for call in calls():
            self.check_call(call)
            self.check_compiled(call)

    def test_gradient(self):
        x, weight, *numbers = calls()[0].args
        ends = calls()[0].kwargs
        given = [t.npu().requires_grad_() for t in (x, weight)]
        out = torch.npu_nsa_compress(*given, *numbers, **ends)
        dy = torch.randn_like(out)
        wanted = torch.autograd.grad(out, given, dy)
        with torch.no_grad():
            found = torch.npu_nsa_compress_grad(dy, *given, *numbers, **ends)
        for got, want in zip(found, wanted, strict=True):
            self.assertEqual(got, want, atol=2e-2, rtol=2e-2)
        call = Call("npu_nsa_compress_grad", (dy.cpu(), x, weight, *numbers), ends)
        self.check_call(call)
        self.check_compiled(call)

    def test_refusals(self):
        x, weight = draw(64, 2, 16).npu(), draw(16, 2).npu()
        for message, numbers, ends in (
            ("compress_block_size must be a multiple of 16", (16, 8), [64]),
            (r"weight must be \(32, 2\)", (32, 16), [64]),
            ("actual_seq_len must rise to at most 64", (16, 16), [65]),
        ):
            with self.assertRaisesRegex(RuntimeError, f"npu_nsa_compress: {message}"):
                torch.npu_nsa_compress(x, weight, *numbers, actual_seq_len=ends)


if __name__ == "__main__":
    run_tests()
