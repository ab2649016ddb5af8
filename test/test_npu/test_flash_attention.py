"""Attention in blocks: npu_fusion_attention of what the device computes at once against its composition, which fp64
takes; sequences of several blocks, gradients of every order, what is kept in memory; and upstream's attention."""

import itertools

from common_utils import TestCase, run_in_process, run_tests
from torch.nn import functional as F

import torch

HEADS, KEY_HEADS, WIDTH, VALUE_WIDTH = 4, 2, 24, 24
TOLERANCE = {torch.float32: 2e-5, torch.float16: 6e-3, torch.bfloat16: 4e-2}
# More than one block of queries, and of keys, the last ones not full.
LENGTHS = ((150, 300), (300, 150), (270, 270))


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def mask_of(*shape, seed=7):
    return draw(*shape, seed=seed) > 0.3


COMPRESSED = torch.ones(2048, 2048, dtype=torch.bool).triu(1)


def batch_cases(queries, keys):
    """(what, options) of layouts with a batch."""
    yield "all", {}
    full = mask_of(2, HEADS, queries, keys)
    full[0, 0, 3] = True
    yield "a mask", {"atten_mask": full}
    yield "a mask for all", {"atten_mask": full[0, 0], "sparse_mode": 1}
    yield "a mask of bytes", {"atten_mask": full[:, :1].to(torch.uint8), "sparse_mode": 1}
    yield "a prefix in a mask", {"atten_mask": full, "sparse_mode": 5, "prefix": [1, 2]}
    yield "causal from the first", {"atten_mask": COMPRESSED, "sparse_mode": 2}
    yield "causal to the last", {"atten_mask": COMPRESSED, "sparse_mode": 3}
    band = {"atten_mask": COMPRESSED, "sparse_mode": 4}
    yield "a band", {**band, "pre_tockens": 70, "next_tockens": 9}
    yield "a band before", {**band, "pre_tockens": 150, "next_tockens": -40}
    yield "a band behind", {**band, "pre_tockens": -3, "next_tockens": 30}
    prefix = torch.ones(3072, 2048, dtype=torch.bool)
    yield "a prefix", {"atten_mask": prefix, "sparse_mode": 6, "prefix": [120, 0]}
    yield "a bias", {"pse": draw(2, HEADS, queries, keys, seed=3)}
    yield "a bias for all", {"pse": draw(1, HEADS, queries, keys, seed=3), "atten_mask": full}
    yield "a bias of keys", {"pse": draw(2, 1, 1, keys, seed=3), "atten_mask": COMPRESSED, "sparse_mode": 3}
    yield "a bias of queries", {"pse": draw(1, HEADS, queries, 1, seed=3), "sink": draw(HEADS, seed=4)}
    yield "a sink", {"sink": draw(HEADS, seed=4), "atten_mask": COMPRESSED, "sparse_mode": 3}
    yield "dropout", {"keep_prob": 0.8, "seed": 11, "offset": 5, "atten_mask": COMPRESSED, "sparse_mode": 2}


def sequence_cases():
    """(what, options) of sequences one behind the other, and those that are left out at the end."""
    ends = {"actual_seq_qlen": [130, 130, 400], "actual_seq_kvlen": [170, 250, 520]}
    yield "all", ends
    yield "zeros at the end", {"actual_seq_qlen": [130, 200, 0], "actual_seq_kvlen": [170, 250, 0]}
    yield "a mask", {**ends, "atten_mask": mask_of(300, 300)}
    for mode in (2, 3):
        yield f"mode {mode}", {**ends, "atten_mask": COMPRESSED, "sparse_mode": mode}
    for mode in (4, 7, 8):
        options = {"atten_mask": COMPRESSED, "sparse_mode": mode, "pre_tockens": 90, "next_tockens": 20}
        yield f"mode {mode}", {**ends, **options}
    yield "mode 6", {**ends, "atten_mask": COMPRESSED, "sparse_mode": 6, "prefix": [100, 0, 33]}
    yield "dropout", {**ends, "keep_prob": 0.6, "seed": 3, "offset": 8}
    yield "a sink", {**ends, "sink": draw(HEADS, seed=4), "softmax_layout": "TND"}
    equal = {"actual_seq_qlen": [150, 400], "actual_seq_kvlen": [150, 400], "atten_mask": COMPRESSED}
    for batch in (1, 2):
        pse = draw(batch, HEADS, 1024, 600, seed=6)
        yield f"a bias by distance for {batch}", {**equal, "pse": pse, "sparse_mode": 2}


def there(value, dtype):
    if not isinstance(value, torch.Tensor):
        return value
    if not value.is_floating_point():
        return value.npu()
    return value.to(dtype).npu().requires_grad_()


class TestFusionAttention(TestCase):
    """The same numbers in fp64: the composition."""

    def run_once(self, tensors, layout, options, dtype, numbers, order=1):
        # What fp16 holds is the same in fp64.
        inputs = [there(t.to(numbers), dtype) for t in tensors]
        given = {k: there(v.to(numbers) if torch.is_tensor(v) and v.dtype == torch.float64 else v, dtype)
                 for k, v in options.items()}  # fmt: skip
        out, top, total, *_ = torch.npu_fusion_attention(*inputs, HEADS, layout, scale=0.3, **given)
        differentiated = [*inputs, *(v for k, v in given.items() if k in ("pse", "sink"))]
        dy = draw(*out.shape, seed=9).to(numbers).to(dtype).npu()
        grads = torch.autograd.grad(out, differentiated, dy, create_graph=order == 2)
        results = [out, top, total, *grads]
        if order == 2:
            results += torch.autograd.grad(sum(g.square().sum() for g in grads), differentiated)
        return [t.detach().cpu().double() for t in results]

    def same(self, tensors, layout, options, dtype=torch.float32, order=1):
        found, wanted = (self.run_once(tensors, layout, options, d, dtype, order) for d in (dtype, torch.float64))
        self.assertEqual(len(found), len(wanted))
        for i, (a, b) in enumerate(zip(found, wanted, strict=True)):
            self.assertEqual(a.shape, b.shape)
            scale = max(1.0, b.abs().max().item())
            tolerance = TOLERANCE[dtype] * (5 if order == 2 else 1)
            self.assertLessEqual((a - b).abs().max().item() / scale, tolerance, f"result {i}")

    def heads(self, queries, keys):
        yield draw(2, HEADS, queries, WIDTH)
        yield draw(2, KEY_HEADS, keys, WIDTH, seed=1)
        yield draw(2, KEY_HEADS, keys, VALUE_WIDTH, seed=2)

    def test_batches(self):
        for queries, keys in LENGTHS:
            tensors = list(self.heads(queries, keys))
            for what, options in batch_cases(queries, keys):
                with self.subTest(what, queries=queries, keys=keys):
                    self.same(tensors, "BNSD", options)

    def test_sequences(self):
        tensors = [draw(410, HEADS, WIDTH), draw(530, KEY_HEADS, WIDTH, seed=1), draw(530, KEY_HEADS, 16, seed=2)]
        for what, options in sequence_cases():
            with self.subTest(what):
                self.same(tensors, "TND", options)

    def test_layouts_and_halves(self):
        tensors = list(self.heads(150, 300))
        forms = {
            "BNSD": lambda t: t,
            "BSND": lambda t: t.transpose(1, 2),
            "BSH": lambda t: t.transpose(1, 2).flatten(2),
            "SBH": lambda t: t.permute(2, 0, 1, 3).flatten(2),
        }
        options = {"atten_mask": COMPRESSED, "sparse_mode": 3, "pse": draw(2, HEADS, 150, 300, seed=3)}
        for (layout, form), dtype in itertools.product(forms.items(), TOLERANCE):
            with self.subTest(layout=layout, dtype=dtype):
                self.same([form(t) for t in tensors], layout, options, dtype)

    def test_compressed_bias_of_long_batches(self):
        tensors = [draw(1, HEADS, 1100, 8), draw(1, KEY_HEADS, 1100, 8, seed=1), draw(1, KEY_HEADS, 1100, 8, seed=2)]
        options = {"pse": draw(1, HEADS, 1024, 1100, seed=3), "atten_mask": COMPRESSED, "sparse_mode": 2}
        self.same(tensors, "BNSD", options)

    def test_widths(self):
        for width, value_width in ((1, 1), (5, 3), (8, 16), (130, 70)):
            tensors = [draw(1, 4, 140, width), draw(1, 4, 33, width, seed=1), draw(1, 4, 33, value_width, seed=2)]
            with self.subTest(width=width, value_width=value_width):
                self.same(tensors, "BNSD", {})

    def test_gradients_of_gradients(self):
        for options in (
            {"atten_mask": COMPRESSED, "sparse_mode": 3},
            {"pse": draw(2, HEADS, 20, 30, seed=3), "sink": draw(HEADS, seed=4)},
            {"keep_prob": 0.8, "seed": 11, "offset": 5},
        ):
            self.same(list(self.heads(20, 30)), "BNSD", options, order=2)

    def test_large_scores_and_what_is_not_a_number(self):
        q, k, v = (t.float().npu() for t in self.heads(150, 300))
        wanted = torch.npu_fusion_attention(*(t.double() * s for t, s in ((q, 30), (k, 30), (v, 1))), HEADS, "BNSD")[0]
        found = torch.npu_fusion_attention(q * 30, k * 30, v, HEADS, "BNSD")[0]
        self.assertEqual(found.double(), wanted, prec=1e-3)
        k[0, 0, 7, 0] = float("nan")
        nan = torch.npu_fusion_attention(q, k, v, HEADS, "BNSD")[0].isnan()
        self.assertTrue(nan[0, :2].all() and not nan[0, 2:].any() and not nan[1].any())
        # Behind a mask it is not seen.
        options = {"atten_mask": COMPRESSED.npu(), "sparse_mode": 2}
        nan = torch.npu_fusion_attention(q, k, v, HEADS, "BNSD", **options)[0].isnan()
        self.assertTrue(nan[0, :2, 7:].all() and not nan[:, :, :7].any())

    def test_explicit_gradient(self):
        """With the forward's results, without them, and with those of more keys, as attention in a ring has them."""
        q, k, v = (t.float().npu() for t in self.heads(150, 300))
        options = {"sink": draw(HEADS, seed=4).float().npu()}
        out, top, total, *_ = torch.npu_fusion_attention(q, k, v, HEADS, "BNSD", scale=0.3, **options)
        dy = draw(*out.shape, seed=9).float().npu()
        double = [t.double() for t in (q, k, v, dy)]
        wanted = torch.npu_fusion_attention_grad(*double, HEADS, "BNSD", scale_value=0.3, sink=options["sink"].double())
        kept = {"softmax_max": top, "softmax_sum": total, "attention_in": out}
        for more in ({}, kept):
            found = torch.npu_fusion_attention_grad(q, k, v, dy, HEADS, "BNSD", scale_value=0.3, **more, **options)
            for a, b in zip(found, wanted, strict=True):
                self.assertEqual(a.double(), b, prec=1e-4)
        halves = [
            torch.npu_fusion_attention_grad(q, k[:, :, s], v[:, :, s], dy, HEADS, "BNSD", scale_value=0.3, **kept)
            for s in (slice(0, 100), slice(100, None))
        ]
        self.assertEqual((halves[0][0] + halves[1][0]).double(), wanted[0], prec=1e-4)
        for i in (1, 2):
            self.assertEqual(torch.cat([h[i] for h in halves], 2).double(), wanted[i], prec=1e-4)
        with self.assertRaisesRegex(RuntimeError, "softmax_max must be float32 of shape"):
            torch.npu_fusion_attention_grad(q, k, v, dy, HEADS, "BNSD", **{**kept, "softmax_max": top[..., :1]})

    def test_transforms_and_compiled_programs(self):
        q, k, v = (t.float().npu() for t in self.heads(40, 50))

        def step(q, k, v):
            return torch.npu_fusion_attention(q, k, v, HEADS, "BNSD", scale=0.3)[0]

        expected = step(q, k, v)
        self.assertEqual(torch.compile(step, backend="aot_eager")(q, k, v), expected, prec=1e-5)
        tangent = draw(*q.shape, seed=5).float().npu()
        along = torch.func.jvp(lambda x: step(x, k, v), (q,), (tangent,))[1]
        wide = [t.double() for t in (q, k, v)]
        near = (step(wide[0] + 1e-5 * tangent, *wide[1:]) - step(*wide)) / 1e-5
        self.assertEqual(along.double(), near, prec=1e-3)


class TestUpstreamsAttention(TestCase):
    def test_against_the_cpu(self):
        for queries, keys in LENGTHS:
            tensors = list(self.heads(queries, keys))
            shown = ~mask_of(2, HEADS, queries, keys)
            shown[0, 0, 3] = False
            for what, options in (
                ("all", {}),
                ("causal", {"is_causal": True}),
                ("a mask", {"attn_mask": shown}),
                ("a mask for all", {"attn_mask": shown[1, 1]}),
                ("a bias", {"attn_mask": draw(2, HEADS, queries, keys, seed=3)}),
                ("a bias of keys", {"attn_mask": draw(2, 1, 1, keys, seed=3), "scale": 0.3}),
            ):
                for dtype, tolerance in TOLERANCE.items():
                    with self.subTest(what, queries=queries, keys=keys, dtype=dtype):
                        self.same(tensors, options, dtype, tolerance)

    def test_heads_that_share_keys(self):
        heads = self.heads(150, 300)
        q, k, v = heads[0], *(t[:, :KEY_HEADS] for t in heads[1:])
        for dtype, tolerance in TOLERANCE.items():
            self.same((q, k, v), {"enable_gqa": True, "is_causal": True}, dtype, tolerance)
        self.same((q, k, v), {"enable_gqa": True}, torch.float64, 1e-12)

    def heads(self, queries, keys):
        return tuple(draw(2, HEADS, n, WIDTH, seed=s) for s, n in enumerate((queries, keys, keys)))

    def same(self, tensors, options, dtype, tolerance):
        there = [t.to(dtype).npu().requires_grad_() for t in tensors]
        here = [t.to(dtype).double().requires_grad_() for t in tensors]
        bias = options.get("attn_mask")
        if bias is not None and bias.is_floating_point():
            options = {**options, "attn_mask": bias.to(dtype)}
        moved = {k: v.npu() if torch.is_tensor(v) else v for k, v in options.items()}
        wide = {k: v.double() if torch.is_tensor(v) and v.is_floating_point() else v for k, v in options.items()}
        found, wanted = F.scaled_dot_product_attention(*there, **moved), F.scaled_dot_product_attention(*here, **wide)
        dy = draw(*found.shape, seed=9).to(dtype)
        pairs = [(found, wanted)]
        pairs += zip(
            torch.autograd.grad(found, there, dy.npu()), torch.autograd.grad(wanted, here, dy.double()), strict=True
        )
        for a, b in pairs:
            self.assertLessEqual((a.detach().cpu().double() - b.detach()).abs().max().item(), tolerance * 3)


class TestMemory(TestCase):
    """8192 positions: a matrix of scores would take 128 MiB a head in fp16, 256 MiB in fp32."""

    SCRIPT = """
import torch
from torch.nn import functional as F

def own(field):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) / 1024 for line in status if line.startswith(field))

def step(q, k, v):
    if {fusion}:
        hidden = torch.ones(2048, 2048, dtype=torch.bool, device="npu").triu(1)
        y = torch.npu_fusion_attention(q, k, v, 2, "BNSD", scale=0.125, atten_mask=hidden, sparse_mode=2)[0]
    else:
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    torch.autograd.grad(y, (q, k, v), torch.ones_like(y))
    torch.npu.synchronize()

def operands(n):
    return [torch.randn(1, 2, n, 64, dtype=torch.float16).npu().requires_grad_() for _ in range(3)]

step(*operands(256))
inputs = operands(8192)
torch.npu.reset_peak_memory_stats()
before, device = own("VmRSS"), torch.npu.memory_allocated()
step(*inputs)
print((torch.npu.max_memory_allocated() - device) / 2**20, own("VmHWM") - before)
"""

    def test_no_matrix_of_scores(self):
        for fusion in (True, False):
            done = run_in_process(self.SCRIPT.replace("{fusion}", str(fusion)))
            on_device, of_process = (float(word) for word in done.stdout.split())
            # Operands, results and gradients are of 2 MiB each, and of 4 MiB where they are widened.
            self.assertLess(on_device, 32, f"fusion {fusion}")
            self.assertLess(of_process, 110, f"fusion {fusion}")

    def test_inference(self):
        script = """
import torch
hidden = torch.ones(2048, 2048, dtype=torch.bool, device="npu").triu(1)
q, k, v = (torch.randn(1, 2, 8192, 64, dtype=torch.float16).npu() for _ in range(3))
options = dict(num_heads=2, input_layout="BNSD", scale=0.125, atten_mask=hidden, sparse_mode=3)
ends = dict(actual_seq_lengths=[8192], actual_seq_lengths_kv=[8192])
torch.npu.reset_peak_memory_stats()
before = torch.npu.memory_allocated()
out = torch.ops.npu.npu_fused_infer_attention_score(q, k, v, **options)[0]
by_sequence = torch.ops.npu.npu_fused_infer_attention_score(
    *(t[0].transpose(0, 1) for t in (q, k, v)), **options | ends | {"input_layout": "TND"})[0]
print((torch.npu.max_memory_allocated() - before) / 2**20, torch.equal(by_sequence.transpose(0, 1)[None], out))
"""
        on_device, same = run_in_process(script).stdout.split()
        self.assertLess(float(on_device), 48)
        self.assertEqual(same, "True")


class TestCard(TestCase):
    """CANN's operators alone: what it documents goes to FlashAttentionScore, the rest is composed."""

    def test_same_results(self):
        script = """
import torch, test_flash_attention as t
case = t.TestFusionAttention("test_batches")
tensors = list(case.heads(270, 270))
for what, options in t.batch_cases(270, 270):
    case.same(tensors, "BNSD", options)
sequences = [t.draw(410, 4, 24), t.draw(530, 2, 24, seed=1), t.draw(530, 2, 16, seed=2)]
for what, options in t.sequence_cases():
    case.same(sequences, "TND", options)
print("same")
"""
        done = run_in_process(script, ASCEND_SIM_OPERATORS="cann")
        self.assertIn("same", done.stdout, done.stderr)


if __name__ == "__main__":
    run_tests()
