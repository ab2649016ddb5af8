"""Products, gradients and copies (torch/npu/operators/matrices.py) against upstream's operators."""

import math

from llm_ops_case import Call, LlmOpsTestCase, run_tests

import torch


def fused(x1, x2, *, bias=None, x3=None, fused_op_type=""):
    y = torch.einsum("...mk,...kn->...mn", x1, x2)
    y = y if bias is None else y + bias
    return {
        "": lambda: y,
        "16cast32": lambda: y,
        "add": lambda: y + x3,
        "mul": lambda: y * x3,
        "relu": lambda: y.clamp(min=0),
        "gelu_erf": lambda: 0.5 * y * (1 + torch.erf(y / math.sqrt(2))),
        "gelu_tanh": lambda: 0.5 * y * (1 + torch.tanh(math.sqrt(2 / math.pi) * (y + 0.044715 * y**3))),
    }[fused_op_type]()


def gradient_of(function, place):
    """The gradient of a function's argument by autograd; the first argument is the gradient of the result."""

    def reference(grad, *args):
        args = [a.clone().requires_grad_() if i == place else a for i, a in enumerate(args)]
        return torch.autograd.grad(function(*args), args[place], grad)[0]

    return reference


def index_add(x, index, source, *, alpha=1):
    out = x.clone()
    for row, at in zip(source, index.tolist(), strict=True):
        out[at] += alpha * row
    return out


def calls() -> list[Call]:
    generator = torch.Generator().manual_seed(12)

    def r(*shape):
        return torch.randn(*shape, generator=generator)

    index = torch.tensor([[2, 0], [3, 2], [1, 1]], dtype=torch.int32)
    places = torch.randint(0, 4, (3, 5), generator=generator)

    def gathered(grad, sizes, index):
        return gradient_of(lambda x: x[index], 0)(grad, torch.zeros(sizes, dtype=torch.double))

    def scattered(grad, sizes, dim, index, sparse):
        return gradient_of(lambda x: x.gather(dim, index), 0)(grad, torch.zeros(sizes, dtype=torch.double))

    def bmm(place):
        return lambda grad, a, b, size: gradient_of(torch.matmul, place)(grad, a, b)

    name = "npu_fused_matmul"
    halves = (r(2, 5, 8).half(), r(8, 6).half())
    return [
        Call(name, (r(5, 8), r(8, 6)), {"bias": r(6)}, fused),
        Call(name, halves, {"bias": r(6).half(), "fused_op_type": "16cast32"}, fused),
        Call(name, halves, {"x3": r(2, 5, 6).half(), "fused_op_type": "add"}, fused),
        Call(name, (r(5, 8), r(8, 6)), {"x3": r(5, 6), "bias": r(6), "fused_op_type": "mul"}, fused),
        *(Call(name, halves, {"fused_op_type": kind}, fused) for kind in ("relu", "gelu_erf", "gelu_tanh")),
        Call("npu_bmm_v2_mat1_backward", (r(2, 3, 5), r(2, 3, 4), r(2, 4, 5), [2, 3, 4]), {}, bmm(0)),
        Call("npu_bmm_v2_mat1_backward", (r(2, 3, 5), r(3, 4), r(2, 4, 5), [3, 4]), {}, bmm(0)),
        Call("npu_bmm_v2_mat2_backward", (r(2, 3, 5), r(2, 3, 4), r(4, 5), [4, 5]), {}, bmm(1)),
        Call("npu_gather_sparse_index", (r(4, 5), index), {}, lambda x, i: x[i.long()]),
        Call("npu_gather_sparse_index_backward", (r(3, 2, 5), [4, 5], index), {}, gathered),
        Call("npu_gather_backward", (r(3, 5), [4, 5], 0, places, False), {}, scattered),
        Call("_npu_index_add", (r(4, 5), index[:, 0], r(3, 5)), {"alpha": 2}, index_add),
        Call("_npu_index_add_", (r(4, 5), index[:, 1], r(3, 5)), {}, index_add),
        Call("npu_dtype_cast_", (r(2, 4).half(), r(4)), {}, lambda x, y: y.expand(2, 4)),
        Call("_npu_dtype_cast", (r(4), torch.float16), {}, lambda x, d: x),
        Call("_npu_dtype_cast_backward", (r(4).half(), torch.float32), {}, lambda x, d: x),
        Call("npu_dtype_cast_backward", (r(4).half(), torch.float32), {}, lambda x, d: x),
        Call("npu_view_copy", (r(4, 5), r(5), False), {}, lambda x, y, _: y.expand_as(x)),
        Call("npu_prefetch", (r(4, 5), None, 16), {"offset": 8}),
    ]


class TestMatrices(LlmOpsTestCase):
    def test_calls(self):
        self.check_family("matrices", calls())
        for call in calls():
            if call.name == "npu_prefetch":
                continue
            with self.subTest(name=call.name, given=call.kwargs):
                self.check_call(call)
                self.check_compiled(call)

    def test_prefetch(self):
        x = torch.randn(4, 5).npu()
        self.assertIsNone(torch.ops.npu.npu_prefetch(x, None, 16, 8))

        def step(x):
            torch.ops.npu.npu_prefetch(x, x, 16)
            return x + 1

        self.assertEqual(torch.compile(step, backend="aot_eager", fullgraph=True)(x), x + 1)

    def test_gradients(self):
        x1, x2 = torch.randn(3, 4).npu().requires_grad_(), torch.randn(4, 5).npu().requires_grad_()
        for got, expected in zip(
            torch.autograd.grad(torch.ops.npu.npu_fused_matmul(x1, x2, fused_op_type="relu").sum(), (x1, x2)),
            torch.autograd.grad(torch.relu(x1 @ x2).sum(), (x1, x2)),
            strict=True,
        ):
            self.assertEqual(got, expected)
        index = torch.tensor([0, 2, 0]).npu()
        (got,) = torch.autograd.grad(torch.ops.npu.npu_gather_sparse_index(x1, index).sum(), x1)
        self.assertEqual(got.cpu(), torch.tensor([[2.0], [0.0], [1.0]]).expand(3, 4))

    def test_refusals(self):
        x, ops = torch.randn(2, 8).npu(), torch.ops.npu
        for message, error, call in (
            (
                "fused_op_type must be one of",
                RuntimeError,
                lambda: ops.npu_fused_matmul(x, x.t(), fused_op_type="tanh"),
            ),
            ("x3 goes with", RuntimeError, lambda: ops.npu_fused_matmul(x, x.t(), fused_op_type="add")),
            ("has no bias", RuntimeError, lambda: ops.npu_fused_matmul(x, x.t(), bias=x, fused_op_type="gelu_erf")),
            ("index must be one of", RuntimeError, lambda: ops.npu_gather_sparse_index(x, x)),
            ("sparse_grad", NotImplementedError, lambda: ops.npu_gather_backward(x, [2, 8], 0, x.long(), True)),
            ("max_size must be positive", RuntimeError, lambda: ops.npu_prefetch(x, None, 0)),
            ("offset must lie within", RuntimeError, lambda: ops.npu_prefetch(x, None, 4, 64)),
        ):
            with self.assertRaisesRegex(error, message):
                call()


if __name__ == "__main__":
    run_tests()
