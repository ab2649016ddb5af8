"""Tensors of special kinds on npu: copy-on-write ones, zero tensors of forward-mode AD, operators inside autocast that
are made of Python functions, kernels that upstream looks up by a DispatchStub, composites that read memory on the host,
strides of channels-last and strided inputs."""

import contextlib
import itertools
import os
import re
import subprocess
import sys

import op_checks
import torch.nn.functional as F
import torch.utils._pytree as pytree
from common_utils import TestCase, run_tests
from op_checks import DEVICE
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.testing._internal.common_methods_invocations import op_db

import torch

# Operators that write operands which are not named self or out: running statistics, or all of what they draw into.
WRITTEN = {
    "_batch_norm_with_update": (3, 4),
    "_native_batch_norm_legit": (3, 4),
    "native_batch_norm": (3, 4),
    "nn.functional.batch_norm": (1, 2),
    "nn.functional.instance_norm": (1, 2),
    "normal.in_place": (0,),
    **dict.fromkeys(("cauchy", "exponential", "geometric", "log_normal", "uniform"), (0,)),
}
DTYPES = (torch.float32, torch.int64, torch.bool, torch.complex64)
# Of upstream's operators a default run takes every third; NPU_SLOW_TESTS=1 all.
OPERATORS = op_db if os.environ.get("NPU_SLOW_TESTS") == "1" else op_db[::3]


def lazily(values):
    """The sample with copy-on-write tensors on npu; the tensors, and what shares their memory until one is written."""
    leaves, spec = pytree.tree_flatten(values)
    owners, lazy = [], []
    for i, leaf in enumerate(leaves):
        if isinstance(leaf, torch.Tensor):
            owners.append(leaf.detach().to(DEVICE))
            lazy.append(torch._lazy_clone(owners[-1]).requires_grad_(leaf.requires_grad))
            leaves[i] = lazy[-1]
        elif isinstance(leaf, torch.device):
            leaves[i] = torch.device(DEVICE)
    return pytree.tree_unflatten(leaves, spec), lazy, owners


class CopyOnWriteTest(TestCase):
    """What only reads an operand leaves its memory shared; what writes it leaves the other owner alone."""

    def written(self, op, tensors):
        for i, t in enumerate(tensors):
            if t.numel() and not torch._C._is_cow_tensor(t) and i not in WRITTEN.get(op.full_name, ()):
                yield i

    def one(self, op, dtype, values, grad):
        given, lazy, owners = lazily(values)
        before = [owner.clone() for owner in owners]
        try:
            result = op(given[0], *given[1], **given[2])
            torch.npu.synchronize()
        except Exception as error:  # what is refused is other tests' subject
            op_checks.settle()
            self.assertNotIn("DispatchStub", str(error), op.full_name)
            return 0
        found = [f"operand {i}" for i in self.written(op, lazy)]
        outputs = [t for t in pytree.tree_leaves(result) if isinstance(t, torch.Tensor) and t.requires_grad]
        inputs = [t for t in lazy if t.requires_grad]
        if grad and outputs and inputs:
            grads = [torch._lazy_clone(torch.ones_like(t)) for t in outputs]
            with contextlib.suppress(Exception):  # as above
                torch.autograd.grad(outputs, inputs, grads, allow_unused=True)
                found += [f"operand {i}, backward" for i in self.written(op, lazy)]
                found += [f"gradient {i}" for i, t in enumerate(grads) if t.numel() and not torch._C._is_cow_tensor(t)]
            op_checks.settle()
        found += [
            f"the owner of operand {i}"
            for i, (owner, old) in enumerate(zip(owners, before, strict=True))
            if not torch.equal(torch.view_as_real(owner).nan_to_num() if owner.is_complex() else owner.nan_to_num(),
                               torch.view_as_real(old).nan_to_num() if old.is_complex() else old.nan_to_num())
        ]  # fmt: skip
        self.found += [f"{op.full_name} [{dtype}] {what}" for what in found]
        return 1

    def test_operators(self):
        self.found, count = [], 0
        with op_checks.quiet():
            for op, dtype in itertools.product(OPERATORS, DTYPES):
                if not op.supports_dtype(dtype, "cpu") or "sparse" in op.name:
                    continue
                grad = op.supports_autograd and (dtype.is_floating_point or dtype.is_complex)
                torch.manual_seed(0)
                for sample in itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=grad), 1):
                    values = (sample.input, sample.args, sample.kwargs)
                    tensors = [t for t in pytree.tree_leaves(values) if isinstance(t, torch.Tensor)]
                    if tensors and all(t.layout is torch.strided for t in tensors):
                        count += self.one(op, dtype, values, grad)
        self.assertGreater(count, 300)
        self.assertEqual(self.found, [])

    def test_writing(self):
        for dtype in DTYPES:
            owner = torch.ones(4, dtype=dtype, device=DEVICE)
            lazy = torch._lazy_clone(owner)
            with self.subTest(dtype):
                lazy.zero_()
                self.assertFalse(torch._C._is_cow_tensor(lazy))
                self.assertEqual(owner.cpu(), torch.ones(4, dtype=dtype))
                self.assertEqual(lazy.cpu(), torch.zeros(4, dtype=dtype))


class FunctionsInAutocastTest(TestCase):
    """Operators that take Python functions, inside torch.autocast("npu")."""

    def attention(self, device, dtype, autocast, grouped=False, masked=False):
        torch.manual_seed(0)
        heads = 2 if grouped else 4
        q, k, v = (torch.randn(2, h, 16, 8).to(device, dtype).requires_grad_() for h in (4, heads, heads))
        mask = create_block_mask(lambda b, h, q, k: q >= k, None, None, 16, 16, device=device) if masked else None
        with torch.autocast(device, autocast, enabled=autocast is not None):
            out, lse = flex_attention(
                q, k, v, lambda s, b, h, q, k: s + (q - k) * 0.01, mask, enable_gqa=grouped, return_lse=True
            )
        (out.float().sin().sum() + lse.float().sum()).backward()
        return out, lse, q.grad, k.grad, v.grad

    def reference(self, grouped, masked):
        """By attention with an explicit bias, in float64."""
        torch.manual_seed(0)
        heads = 2 if grouped else 4
        q, k, v = (torch.randn(2, h, 16, 8).double().requires_grad_() for h in (4, heads, heads))
        i, j = torch.arange(16)[:, None], torch.arange(16)
        bias = ((i - j) * 0.01).double()
        if masked:
            bias = bias.masked_fill(i < j, float("-inf"))
        wide_k, wide_v = (t.repeat_interleave(4 // heads, 1) for t in (k, v))
        scores = q @ wide_k.mT / 8**0.5 + bias
        out, lse = scores.softmax(-1) @ wide_v, scores.logsumexp(-1)
        (out.sin().sum() + lse.sum()).backward()
        return out, lse, q.grad, k.grad, v.grad

    def test_flex_attention(self):
        halves = (torch.float16, torch.bfloat16)
        for grouped, masked in itertools.product((False, True), repeat=2):
            right = self.reference(grouped, masked)
            for dtype, autocast in itertools.product((torch.float32, *halves), (None, *halves)):
                with self.subTest(dtype=dtype, autocast=autocast, grouped=grouped, masked=masked):
                    ours = self.attention(DEVICE, dtype, autocast, grouped, masked)
                    self.assertIs(ours[0].dtype, autocast or dtype)
                    self.assertIs(ours[2].dtype, dtype)
                    tolerance = 1e-4 if (autocast or dtype) is dtype is torch.float32 else 0.05
                    if torch.bfloat16 in (dtype, autocast):
                        tolerance = 0.15
                    for a, b in zip(ours, right, strict=True):
                        self.assertEqual(a.cpu().double(), b, atol=tolerance, rtol=tolerance)

    def test_functions(self):
        x = torch.randn(4, 4, generator=torch.Generator().manual_seed(0))

        def calls(x):
            yield torch.cond(x.sum() > 0, lambda y: y @ y, lambda y: y @ y + 1, (x,))
            body = lambda i, y: (i + 1, (y @ y).float() / 8)  # noqa: E731
            start = torch.zeros((), dtype=torch.int64, device=x.device)
            yield torch._higher_order_ops.while_loop(lambda i, y: i < 3, body, (start, x))[1]
            yield torch._higher_order_ops.scan(lambda c, y: (c + y, c * y), torch.zeros_like(x[0]), x)[1]
            yield torch._higher_order_ops.map(lambda y: y * 2, x)
            branches = torch.compile(
                lambda y: torch.cond(y.sum() > 0, torch.sin, torch.cos, (y @ y,)), backend="aot_eager"
            )
            yield branches(x)

        results = []
        for device in ("cpu", DEVICE):
            with torch.autocast(device, torch.bfloat16):
                results.append([t.cpu() for t in calls(x.to(device))])
        for theirs, ours in zip(*results, strict=True):
            self.assertIs(ours.dtype, theirs.dtype)
            self.assertEqual(ours, theirs, atol=0.03, rtol=0.03)


class StubsTest(TestCase):
    """Kernels that upstream's composites look up for the device by a DispatchStub; test_operators finds others."""

    SERVED = {
        "kaiser_window": lambda d: torch.kaiser_window(9, True, 3.0, device=d),
        "kaiser_window, periodic": lambda d: torch.kaiser_window(8, False, 5.0, dtype=torch.float64, device=d),
        "_fused_sdp_choice": lambda d: F.scaled_dot_product_attention(*[torch.ones(1, 2, 4, 8, device=d)] * 3),
        "quantize_per_tensor": lambda d: torch.quantize_per_tensor(torch.ones(3, device=d), 0.1, 2, torch.quint8),
        "quantize_per_channel": lambda d: torch.quantize_per_channel(
            torch.ones(2, 3, device=d), torch.tensor([0.1, 0.2]).to(d), torch.tensor([0, 1]).to(d), 0, torch.qint8
        ),
        "quantize by float zero points": lambda d: torch.quantize_per_channel(
            torch.ones(2, 3, device=d), torch.tensor([0.1, 0.2]).to(d), torch.tensor([0.5, 1]).to(d), 0, torch.quint8
        ),
        "dequantize": lambda d: torch.quantize_per_tensor(torch.ones(3, device=d), 0.1, 2, torch.qint32).dequantize(),
    }

    def test_served(self):
        for name, call in self.SERVED.items():
            with self.subTest(name):
                values = [t.dequantize() if t.is_quantized else t for t in (call("cpu"), call(DEVICE).cpu())]
                self.assertEqual(values[1], values[0])

    def test_refused(self):
        for dtype in (torch.quint4x2, torch.quint2x4):
            with self.assertRaisesRegex((NotImplementedError, RuntimeError), "on npu|not|CPU"):
                torch.quantize_per_channel(
                    torch.ones(2, 4).npu(), torch.ones(2).npu(), torch.zeros(2).npu(), 0, dtype
                )  # fmt: skip


class ReadOnTheHostTest(TestCase):
    """Composites of upstream's that read their operands on the host: they run on the CPU, or say that they may not."""

    CALLS = (
        "torch._saturate_weight_to_fp16(torch.tensor([[1e6, -1e6, 1.0]], device=d))",
        "torch._reshape_from_tensor(torch.arange(6.0, device=d), torch.tensor([2, 3], device=d))",
        "torch.ops.aten.range.out_(1, 4, out=torch.zeros(4, device=d))",
        "torch._sobol_engine_draw(q, 2, s, 2, 0, torch.float32)[0]",
        "torch._sobol_engine_ff_(q.clone(), 2, s, 2, 0)",
        "torch._sobol_engine_scramble_(s.clone(), torch.ones(2, 30, 30, dtype=torch.long, device=d).tril(), 2)",
    )
    SETUP = (
        "q = torch.zeros(2, dtype=torch.long, device=d);"
        "s = torch._sobol_engine_initialize_state_(torch.zeros(2, 30, dtype=torch.long, device=d), 2)"
    )

    def test_values(self):
        for call in self.CALLS:
            results = []
            for device in ("cpu", DEVICE):
                names = {"torch": torch, "d": device}
                exec(self.SETUP, names)
                results.append(eval(call, names))
            with self.subTest(call):
                self.assertEqual(results[1].device.type, "npu")
                self.assertEqual(results[1].cpu(), results[0])

    def test_without_fallback(self):
        code = "import torch\nd = 'npu'\n"
        code += "for f in (" + ", ".join(f"lambda: {call}" for call in self.CALLS[:3]) + "):\n"
        code += "    try: f()\n    except NotImplementedError as error: print(error)\n"
        env = {"NPU_FALLBACK": "0"}
        done = subprocess.run([sys.executable, "-c", code], env={**os.environ, **env}, capture_output=True,
                              text=True)  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(len(re.findall("reads its operands on the host", done.stdout)), 3, done.stdout)


class KindsTest(TestCase):
    def test_zeros_of_types_of_bits(self):
        for dtype in (torch.float4_e2m1fn_x2, torch.float8_e8m0fnu, torch.bits8, torch.bits16, torch.uint4):
            with self.subTest(dtype):
                zeros = torch.zeros(3, 2, dtype=dtype, device=DEVICE)
                self.assertEqual(zeros.dtype, dtype)
                want = torch.zeros(3, 2, dtype=dtype).view(torch.uint8)
                self.assertEqual(zeros.cpu().view(torch.uint8), want)
                dirty = torch.full_like(want, 7, device=DEVICE).view(dtype)
                self.assertEqual(dirty.zero_().cpu().view(torch.uint8), want)
                self.assertEqual(torch.zeros_like(dirty).cpu().view(torch.uint8), want)

    def test_zero_tensor(self):
        x = torch.rand(3)
        for device in ("cpu", DEVICE):
            given = x.to(device)
            zero = torch._efficientzerotensor(3, device=device)
            self.assertTrue(zero._is_zerotensor())
            self.assertEqual(given.clone().copy_(zero).cpu(), torch.zeros(3))
            self.assertEqual((given + zero).cpu(), x)
        value, tangent = torch.func.jvp(lambda t: t.clone().copy_(t.detach()) * 2, (x.npu(),), (torch.ones(3).npu(),))
        self.assertEqual(value.cpu(), 2 * x)
        self.assertEqual(tangent.cpu(), torch.zeros(3))

    def test_attention_without_weights(self):
        x, w, b = torch.randn(2, 3, 4).npu(), torch.randn(12, 4).npu(), torch.randn(12).npu()
        o, c = torch.randn(4, 4).npu(), torch.randn(4).npu()
        for need, shape in ((False, None), (True, (2, 3, 3))):
            weights = torch._native_multi_head_attention(x, x, x, 4, 2, w, b, o, c, None, need)[1]
            self.assertEqual(None if weights is None else tuple(weights.shape), shape)

    def test_scripted(self):
        @torch.jit.script
        def f(x: torch.Tensor):
            return torch.npu_format_cast(x, 2) + torch.npu_iou(x, x)

        x = torch.tensor([[0.0, 0, 2, 2], [1, 1, 3, 3], [0, 0, 1, 1], [0, 0, 2, 1]], device=DEVICE)
        self.assertEqual(f(x), torch.npu_format_cast(x, 2) + torch.npu_iou(x, x))

    def test_random_state_in_a_compiled_function(self):
        def f(x):
            state = torch.npu.get_rng_state()
            a = torch.rand_like(x)
            torch.npu.set_rng_state(state)
            return a, torch.rand_like(x)

        with torch._functorch.config.patch(functionalize_rng_ops=True):
            a, b = torch.compile(f, backend="aot_eager")(torch.ones(8, device=DEVICE))
        self.assertEqual(a, b)

    def test_strides_of_dropout(self):
        for layout in (
            lambda t: t.to(memory_format=torch.channels_last),
            lambda t: t.transpose(0, -1),
            lambda t: t[..., ::2],
            lambda t: t[:, :1].expand(2, 3, 4, 6),
        ):
            x = torch.ones(2, 3, 4, 6)
            for call in (F.dropout, F.alpha_dropout, F.dropout2d, F.feature_alpha_dropout):
                with self.subTest(call.__name__, strides=layout(x).stride()):
                    self.assertEqual(call(layout(x.npu()), 0.5).stride(), call(layout(x), 0.5).stride())

    def test_strides_of_one_pixel(self):
        conv, norm = torch.nn.Conv2d(3, 8, 1), torch.nn.BatchNorm2d(8)
        for shape in ((2, 3, 1, 1), (1, 3, 1, 1), (2, 3, 1, 5)):
            x = torch.randn(shape).to(memory_format=torch.channels_last)
            for net in (conv, torch.nn.Sequential(conv, norm.eval()), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1)):
                results = []
                for device in ("cpu", DEVICE):
                    y = net.to(device)(x.to(device))
                    formats = (torch.channels_last, torch.contiguous_format)
                    results.append([y.is_contiguous(memory_format=m) for m in formats])
                net.cpu()
                with self.subTest(type(net).__name__, shape=shape):
                    self.assertEqual(results[1], results[0])


if __name__ == "__main__":
    run_tests()
