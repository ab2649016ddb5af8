"""Nested tensors on npu, strided and jagged, against the same on the CPU: every operator that upstream has for
them, the fast path of the transformer's modules, gradients, and what must not end the process."""

import copy
import os
import warnings

import torch.nn.functional as F
from common_utils import TestCase, run_tests

import torch
from torch import nn

DEVICE = "npu"
warnings.filterwarnings("ignore", message=".*nested tensors is in prototype")
warnings.filterwarnings("ignore", message=".*is not currently supported on the NPU backend")
aten = torch.ops.aten


def setUpModule():
    # Other tests of the same process forbid the CPU; some nested operators run there.
    os.environ.pop("NPU_FALLBACK", None)


def parts(*lengths, width=8, dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(n, width, generator=generator).to(dtype) for n in lengths]


def nested(*lengths, **options):
    return torch.nested.nested_tensor(parts(*lengths, **options))


class TestStrided(TestCase):
    def compare(self, name, function, *arguments):
        """`function` on the CPU and on npu; results of any kind, nested ones part by part."""
        with self.subTest(name):
            expected = function(*(a.clone() for a in arguments))
            self.check(function(*(a.to(DEVICE) for a in arguments)), expected)

    def check(self, actual, expected):
        if isinstance(expected, (tuple, list)):
            self.assertEqual(len(actual), len(expected))
            for a, e in zip(actual, expected, strict=True):
                self.check(a, e)
        elif isinstance(expected, torch.Tensor) and expected.is_nested:
            self.assertTrue(actual.is_nested)
            self.assertEqual((actual.device.type, actual.dtype), (DEVICE, expected.dtype))
            self.check(list(actual.unbind()), list(expected.unbind()))
        elif isinstance(expected, torch.Tensor):
            self.assertEqual((actual.dtype, actual.shape), (expected.dtype, expected.shape))
            torch.testing.assert_close(actual.cpu(), expected.cpu(), rtol=1e-4, atol=1e-5, equal_nan=True)
        else:
            self.assertEqual(actual, expected)

    def test_every_operator(self):
        x, y = nested(2, 5, 3), nested(2, 5, 3, seed=1)
        square, mask = nested(2, 2, seed=2, width=2), torch.nested.nested_tensor([p > 0 for p in parts(2, 5, 3)])
        weight, bias = torch.randn(4, 8), torch.randn(4)
        heads = torch.nested.nested_tensor([p.view(-1, 2, 4) for p in parts(2, 5, 3)])
        padded = torch.randn(3, 5, 8)
        cases = {
            **{
                n: (getattr(torch, n), x)
                for n in (
                    "abs",
                    "cos",
                    "isinf",
                    "isnan",
                    "isneginf",
                    "isposinf",
                    "logical_not",
                    "neg",
                    "relu",
                    "sgn",
                    "sin",
                    "sqrt",
                    "tanh",
                    "clone",
                    "detach",
                    "ones_like",
                    "zeros_like",
                )
            },
            **{n: (getattr(F, n), x) for n in ("gelu", "silu")},
            "abs_": (lambda t: t.abs_(), x),
            "neg_": (lambda t: t.neg_(), x),
            "relu_": (lambda t: t.relu_(), x),
            "sgn_": (lambda t: t.sgn_(), x),
            "tanh_": (lambda t: t.tanh_(), x),
            "gelu_": (lambda t: aten.gelu_(t), x),
            "silu_": (lambda t: F.silu(t, inplace=True), x),
            "logical_not_": (lambda t: t.logical_not_(), x),
            "zero_": (lambda t: t.zero_(), x),
            "fill_": (lambda t: t.fill_(3.0), x),
            "fill_.Tensor": (lambda t: t.fill_(torch.tensor(3.0)), x),
            "add": (torch.add, x, y),
            "add_": (lambda a, b: a.add_(b), x, y),
            "sub": (torch.sub, x, y),
            "mul": (torch.mul, x, y),
            "mul_": (lambda a, b: a.mul_(b), x, y),
            "mul.Scalar": (lambda a: a * 2.5, x),
            "mul_.Scalar": (lambda a: a.mul_(2.5), x),
            "div": (torch.div, x, y),
            "div.Scalar": (lambda a: a / 2.5, x),
            "eq": (lambda a, b: a == b, x, torch.tensor(0.5)),
            "eq.Scalar": (lambda a: a == 0.5, x),
            "ge.Scalar": (lambda a: a >= 0.5, x),
            "gt.Scalar": (lambda a: a > 0.5, x),
            "masked_fill": (lambda a, m: a.masked_fill(m, 0.5), x, mask),
            "where": (torch.where, mask, torch.tensor(0.5), y),
            "cat": (lambda a, b: torch.cat([a, b]), x, y),
            "softmax": (lambda a: torch.softmax(a, -1), x),
            "sum": (lambda a: a.sum(-1, keepdim=True), x),
            "layer_norm, weights": (lambda a, w: F.layer_norm(a, (8,), w, w), x, torch.rand(8)),
            "linear": (F.linear, x, weight, bias),
            "linear, no bias": (F.linear, x, weight),
            "matmul": (lambda a: torch.matmul(a.transpose(1, 2), a.transpose(1, 2).transpose(-1, -2)), heads),
            "bmm": (torch.bmm, square, square),
            "embedding": (
                lambda i, w: F.embedding(i, w),
                torch.nested.nested_tensor([torch.tensor([0, 1]), torch.tensor([2])]),
                weight,
            ),
            "dropout, off": (lambda a: F.dropout(a, 0.5, training=False), x),
            "to_padded_tensor": (lambda a: a.to_padded_tensor(0.5), x),
            "to_padded_tensor, size": (lambda a: a.to_padded_tensor(0.5, (4, 6, 9)), x),
            "from padded and example": (torch._nested_from_padded_and_nested_example, padded, x),
            "from padded": (lambda p: torch._nested_from_padded(p, torch.tensor([[2, 8], [5, 8], [3, 8]])), padded),
            "from mask": (
                lambda p, m: torch._nested_tensor_from_mask(p, m),
                padded,
                torch.arange(5) < torch.tensor([[2], [5], [3]]),
            ),
            "transpose": (lambda a: a.transpose(1, 2), x),
            "transpose, contiguous": (lambda a: a.transpose(1, 2).contiguous(), x),
            "select": (lambda a: a.select(0, 1), x),
            "unbind": (lambda a: a.unbind(), x),
            "unsqueeze": (lambda a: a.unsqueeze(1), x),
            "squeeze": (lambda a: a.unsqueeze(1).squeeze(1), x),
            "chunk": (lambda a: a.chunk(2, -1), x),
            "split": (lambda a: a.split_with_sizes([3, 5], -1), x),
            "narrow": (lambda a: a.narrow(0, 1, 2), x),
            "view": (lambda a: a.view(3, -1, 2, 4), x),
            "reshape": (lambda a: a.reshape(3, -1, 2, 4), x),
            "values": (lambda a: a.values(), x),
            "sizes": (lambda a: a._nested_tensor_size(), x),
            "strides": (lambda a: a._nested_tensor_strides(), x),
            "offsets": (lambda a: a._nested_tensor_storage_offsets(), x),
            "is_same_size": (lambda a, b: a.is_same_size(b), x, y),
            "to dtype": (lambda a: a.to(torch.float64), x),
            "half": (lambda a: a.half() * 2, x),
            "numel": (lambda a: (a.numel(), a.dim(), a.size(0)), x),
        }
        for name, (function, *arguments) in cases.items():
            self.compare(name, function, *arguments)

    def test_operators_that_nobody_listed(self):
        """Every operator that upstream registers for nested CPU tensors has a kernel or a fallback on npu."""
        registered = torch._C._dispatch_get_registrations_for_dispatch_key
        for name in registered("NestedTensorCPU"):
            self.assertTrue(
                torch._C._dispatch_has_kernel_for_dispatch_key(name, "NestedTensorPrivateUse1")
                or torch._C._dispatch_has_computed_kernel_for_dispatch_key(name, "NestedTensorPrivateUse1"),
                name,
            )

    def test_moves(self):
        x = nested(2, 3)
        back = x.to(DEVICE).cpu()
        self.assertEqual(back.device.type, "cpu")
        self.check([t.to(DEVICE) for t in back.unbind()], list(x.unbind()))
        target = torch.zeros_like(x.to(DEVICE))
        target.copy_(x)
        self.check(list(target.unbind()), list(x.unbind()))
        self.assertIn("nested_tensor(", repr(x.to(DEVICE)))
        self.check(
            torch.nested.nested_tensor([[1.0, 2.0], [3.0]], device=DEVICE),
            torch.nested.nested_tensor([[1.0, 2.0], [3.0]]),
        )

    def test_views_share_memory(self):
        x = nested(2, 3).to(DEVICE)
        x.unbind()[1].fill_(7)
        self.assertTrue((x.values()[16:] == 7).all().item())
        x.zero_()
        self.assertFalse(x.values().any().item())

    def test_what_neither_has_raises(self):
        for device in ("cpu", DEVICE):
            x = nested(2, 3).to(device)
            for call in (lambda t: t.cumsum(0), lambda t: t.sum(0), lambda t: t.size(1), lambda t: torch.sort(t)):
                with self.subTest(device=device), self.assertRaises((RuntimeError, NotImplementedError)):
                    call(x)

    def test_gradients(self):
        cases = {
            "linear": lambda ts, w: F.linear(torch.nested.as_nested_tensor(ts), w).to_padded_tensor(0.0),
            "softmax": lambda ts, w: torch.softmax(torch.nested.as_nested_tensor(ts), -1).to_padded_tensor(0.0),
            "gelu": lambda ts, w: F.gelu(torch.nested.as_nested_tensor(ts)).to_padded_tensor(0.0),
            "layer_norm": lambda ts, w: F.layer_norm(
                torch.nested.as_nested_tensor(ts), (8,), w[0], w[1]
            ).to_padded_tensor(0.0),
            "mul": lambda ts, w: (
                torch.nested.as_nested_tensor(ts) * torch.nested.as_nested_tensor(ts)
            ).to_padded_tensor(0.0),
            "unbind": lambda ts, w: torch.nested.as_nested_tensor(ts).unbind()[1] * 2,
            "select": lambda ts, w: torch.nested.as_nested_tensor(ts).select(0, 1) * 2,
            "sum": lambda ts, w: torch.nested.as_nested_tensor(ts).sum(-1, keepdim=True).to_padded_tensor(0.0),
            "matmul": lambda ts, w: torch.matmul(
                torch.nested.as_nested_tensor(ts), torch.nested.as_nested_tensor(ts).transpose(-1, -2)
            ).to_padded_tensor(0.0),
        }
        for name, function in cases.items():
            with self.subTest(name):
                results = {}
                for device in ("cpu", DEVICE):
                    leaves = [p.to(device).requires_grad_() for p in parts(2, 5, 3)]
                    weight = torch.linspace(-1, 1, 32).view(4, 8).to(device).requires_grad_()
                    out = function(leaves, weight)
                    out.mul(torch.linspace(0, 1, out.numel(), device=device).view_as(out)).sum().backward()
                    results[device] = [out.detach().cpu()] + [t.grad.cpu() for t in leaves]
                    if name == "linear":
                        results[device].append(weight.grad.cpu())
                for a, e in zip(results[DEVICE], results["cpu"], strict=True):
                    torch.testing.assert_close(a, e, rtol=1e-4, atol=1e-5)


class TestTransformer(TestCase):
    def setUp(self):
        torch.manual_seed(0)

    def compare(self, module, *inputs, **options):
        module = module.eval()
        on_npu = copy.deepcopy(module).to(DEVICE)
        with torch.no_grad():
            expected = module(*inputs, **options)
            moved = {k: v.to(DEVICE) if isinstance(v, torch.Tensor) else v for k, v in options.items()}
            actual = on_npu(*(t.to(DEVICE) for t in inputs), **moved)
        torch.testing.assert_close(actual.cpu(), expected, rtol=1e-4, atol=1e-4)

    def test_encoder_with_padding(self):
        mask = torch.arange(7) >= torch.tensor([[4], [7], [1]])
        for options in ({}, {"norm_first": True}, {"activation": "gelu"}):
            with self.subTest(options):
                layer = nn.TransformerEncoderLayer(16, 2, 32, 0.1, batch_first=True, **options)
                self.compare(nn.TransformerEncoder(layer, 2), torch.randn(3, 7, 16), src_key_padding_mask=mask)

    def test_encoder_layer_of_nested(self):
        layer = nn.TransformerEncoderLayer(16, 2, 32, 0.0, batch_first=True).eval()
        x = nested(4, 7, 1, width=16)
        with torch.no_grad():
            expected, actual = layer(x), copy.deepcopy(layer).to(DEVICE)(x.to(DEVICE))
        for a, e in zip(actual.unbind(), expected.unbind(), strict=True):
            torch.testing.assert_close(a.cpu(), e, rtol=1e-4, atol=1e-4)

    def test_multihead_attention_of_nested(self):
        attention = nn.MultiheadAttention(16, 2, batch_first=True).eval()
        x = nested(4, 7, 1, width=16)
        with torch.no_grad():
            expected = attention(x, x, x, need_weights=False)[0]
            y = x.to(DEVICE)
            actual = copy.deepcopy(attention).to(DEVICE)(y, y, y, need_weights=False)[0]
        for a, e in zip(actual.unbind(), expected.unbind(), strict=True):
            torch.testing.assert_close(a.cpu(), e, rtol=1e-4, atol=1e-4)

    def test_transformer_with_padding(self):
        mask = torch.arange(7) >= torch.tensor([[4], [7], [2]])
        net = nn.Transformer(16, 2, 2, 1, 32, 0.1, batch_first=True)
        x, y = torch.randn(3, 7, 16), torch.randn(3, 5, 16)
        self.compare(net, x, y, src_key_padding_mask=mask, memory_key_padding_mask=mask)

    def test_attention_of_strided_nested(self):
        q = torch.nested.nested_tensor([p.view(2, -1, 4) for p in parts(4, 7, 1)])
        expected = F.scaled_dot_product_attention(q, q, q)
        on_npu = q.to(DEVICE)
        actual = F.scaled_dot_product_attention(on_npu, on_npu, on_npu)
        for a, e in zip(actual.unbind(), expected.unbind(), strict=True):
            torch.testing.assert_close(a.cpu(), e, rtol=1e-4, atol=1e-5)


class TestJagged(TestCase):
    def test_attention_with_gradient(self):
        results = {}
        for device in ("cpu", DEVICE):
            leaf = torch.nested.nested_tensor(
                [p.to(device) for p in parts(2, 5, 3)], layout=torch.jagged, requires_grad=True
            )
            q = leaf.unflatten(-1, [2, 4]).transpose(1, 2)
            out = F.scaled_dot_product_attention(q, q * 2, q).transpose(1, 2).flatten(-2)
            values = out.values()
            values.mul(torch.linspace(0, 1, values.numel(), device=device).view_as(values)).sum().backward()
            results[device] = (values.detach().cpu(), leaf.grad.values().cpu())
        for a, e in zip(results[DEVICE], results["cpu"], strict=True):
            torch.testing.assert_close(a, e, rtol=1e-4, atol=1e-5)

    def test_layers(self):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4))
        results = {}
        for device in ("cpu", DEVICE):
            own = copy.deepcopy(net).to(device)
            x = torch.nested.nested_tensor([p.to(device) for p in parts(2, 5, 3)], layout=torch.jagged)
            out = own(x)
            out.values().square().sum().backward()
            results[device] = [out.values().detach().cpu(), *(p.grad.cpu() for p in own.parameters())]
            self.assertEqual(out.to_padded_tensor(0.0).shape, (3, 5, 4))
        for a, e in zip(results[DEVICE], results["cpu"], strict=True):
            torch.testing.assert_close(a, e, rtol=1e-4, atol=1e-4)

    def test_as_nested_tensor_that_requires_grad(self):
        for layout in (torch.strided, torch.jagged):
            leaves = [p.to(DEVICE).requires_grad_() for p in parts(2, 3)]
            x = torch.nested.as_nested_tensor(leaves, layout=layout)
            self.assertTrue(x.requires_grad)
            (x * 2).to_padded_tensor(0.0).sum().backward()
            self.assertEqual([t.grad.sum().item() for t in leaves], [32.0, 48.0])


if __name__ == "__main__":
    run_tests()
