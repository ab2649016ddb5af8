"""The npu operators as a whole: reachable by every spelling, documented, with right shapes for fake tensors."""

import inspect
import re
import sys
import tempfile
from pathlib import Path

import torchgen
import yaml
from common_utils import TestCase, run_in_process, run_tests
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext

import torch
from torch.npu import _custom_ops, operators

# Those composed in Python have tests of their own in test_llm_ops.
NAMES = tuple(n for n in (*_custom_ops.FUNCTIONS, *_custom_ops.METHODS) if n not in operators.OPERATORS)


def f(*shape):
    return torch.rand(shape).npu()


def i(*values):
    return torch.tensor(values, dtype=torch.int32).npu()


def boxes(n):
    corner = torch.rand(n, 2)
    return torch.cat([corner, corner + 1 + torch.rand(n, 2)], 1).npu()


def samples():
    """(name, arguments, keywords) for every operator and overload."""
    x, w, b = f(2, 4, 6, 6), f(4, 4, 3, 3), f(4)
    conv = ([1, 1], [1, 1], [1, 1], 1)
    x3, w3 = f(1, 2, 4, 4, 4), f(2, 2, 3, 3, 3)
    conv3 = ([1] * 3, [1] * 3, [1] * 3, 1)
    back = ([1, 1], [0, 0], [1, 1], [1, 1], 1)  # padding, output padding, stride, dilation, groups
    back3 = ([1] * 3, [0] * 3, [1] * 3, [1] * 3, 1)
    mask3 = [True, True, True]
    yield "npu_conv2d", (x, w, b, *conv), {}
    yield "npu_conv2d", (x, w, b, *conv), {"out": f(2, 4, 6, 6)}
    yield "npu_conv2d_backward", (x, f(2, 4, 6, 6), w, *conv, mask3), {}
    yield "npu_conv3d", (x3, w3, None, *conv3), {}
    yield "npu_conv3d", (x3, w3, None, *conv3), {"out": f(1, 2, 4, 4, 4)}
    yield "npu_conv3d_backward", (x3, f(1, 2, 4, 4, 4), w3, *conv3, mask3), {}
    yield "npu_convolution", (x, w, b, *conv), {}
    yield "npu_convolution_backward", (x, f(2, 4, 6, 6), w, *conv, mask3), {}
    yield "npu_convolution_double_backward", (x, None, None, x, f(2, 4, 6, 6), w, *conv, mask3), {}
    yield "npu_conv_transpose2d", (x, w, b, *back), {}
    yield "npu_conv_transpose2d_backward", (x, f(2, 4, 6, 6), w, *back, mask3), {}
    yield "npu_conv_transpose3d_backward", (x3, f(1, 2, 4, 4, 4), w3, *back3, mask3), {}
    yield "npu_convolution_transpose", (x, w, b, *back), {}
    yield "npu_convolution_transpose_backward", (x, f(2, 4, 6, 6), w, *back, mask3), {}
    yield "npu_format_cast", (x, 29), {}
    yield "npu_format_cast", (x, x), {}
    yield "npu_format_cast_", (f(2, 3), 2), {}
    yield "npu_format_cast_", (f(2, 3), f(2, 3)), {}
    yield "get_npu_format", (x,), {}
    m = f(3, 4)
    yield "npu_broadcast", (m, [2, 3, 4]), {}
    yield "npu_broadcast", (m, [2, 3, 4]), {"out": f(2, 3, 4)}
    yield "npu_transpose", (m, [1, 0]), {}
    yield "npu_transpose", (m, [1, 0]), {"out": f(4, 3)}
    yield "npu_reshape", (m, [2, 6]), {}
    yield "npu_reshape", (m, [2, 6]), {"out": f(2, 6)}
    yield "npu_slice", (m, [1, 0], [2, 2]), {}
    yield "npu_slice", (m, [1, 0], [2, 2]), {"out": f(2, 2)}
    yield "npu_indexing", (m, [0, 3], [3, 0], [2, -1]), {}
    yield "npu_indexing", (m, [0], [2], [1]), {"out": f(2, 4)}
    yield "npu_pad", (m, [1, 1, 0, 2]), {}
    yield "npu_one_hot", (i(1, 2),), {"depth": 4}
    yield "npu_scatter", (m, i(0, 1, 2), f(3), 1), {}
    yield "npu_dtype_cast", (m, torch.float16), {}
    yield "npu_dtype_cast_", (f(3, 4), m.half()), {}
    yield "npu_confusion_transpose", (m, [1, 0], [2, 6], False), {}
    yield "npu_confusion_transpose_backward", (f(6, 2), [1, 0], [3, 4], False), {}
    yield "npu_masked_fill_range", (m, i(0, 1, 1).view(1, 3), i(1, 2, 3).view(1, 3), f(1), 1), {}
    yield "npu_stride_copy", (m, [2, 2], [4, 1], 1), {}
    yield "npu_stride_copy", (m, [2, 2], [4, 1], 1), {"out": f(2, 2)}
    yield "npu_stride_add", (x, x, 0, 0, 1), {}
    yield "npu_sort_v2", (m,), {}
    yield "npu_sort_v2", (m,), {"out": f(3, 4)}
    yield "npu_max", (m, 1), {}
    yield "npu_max_backward", (f(3), 1, i(0, 1, 2), [3, 4]), {}
    yield "npu_min", (m, 0, True), {}
    yield "npu_min_backward", (f(1, 4), 0, i(0, 1, 2, 0).view(1, 4), [3, 4], True), {}
    yield "npu_linear", (m, f(5, 4), f(5)), {}
    yield "npu_linear_backward", (f(3, 5), m, f(5, 4)), {}
    yield "npu_bmmV2", (f(2, 3, 4), f(2, 4, 5), []), {}
    yield "npu_silu", (m,), {}
    yield "npu_silu_", (f(3),), {}
    yield "npu_silu_backward", (m, m, m), {}
    yield "npu_mish", (m,), {}
    yield "npu_mish_backward", (m, m), {}
    yield "npu_softmax_cross_entropy_with_logits", (m, m), {}
    yield "npu_softmax_cross_entropy_with_logits_backward", (f(3), m, m), {}
    yield "npu_layer_norm_eval", (m, [4], f(4), f(4)), {}
    yield "npu_normalize_batch", (f(2, 3, 5), i(3, 4)), {}
    p, q = boxes(5), boxes(5)
    yield "npu_bounding_box_decode", (p, q, 0, 0, 0, 0, 1, 1, 1, 1, (10, 10), 0.1), {}
    yield "npu_iou", (p, boxes(3)), {}
    yield "npu_ptiou", (p, boxes(3), 1), {}
    yield "npu_giou", (f(4, 5), f(4, 5)), {"trans": True}
    yield "npu_giou_backward", (f(5, 1), f(4, 5), f(4, 5), True), {}
    r = f(2, 5, 4)
    yield "npu_rotated_box_encode", (r, r, f(5)), {}
    yield "npu_rotated_box_decode", (r, r, f(5)), {}
    yield "npu_sub_sample", (i(1, 0, -1, 0), 2, 0.5), {}
    yield "npu_random_choice_with_mask", (m > 0.5, 4, 1, 2), {}
    rois = torch.tensor([[0, 0, 0, 4, 4.0], [1, 1, 1, 5, 5]]).npu()
    yield "npu_roi_alignbk", (f(2, 4, 2, 3), rois, [2, 4, 6, 6], 3, 2, 0.5, 2), {}
    yield "npu_ps_roi_pooling_backward", (f(2, 1, 2, 2), rois.view(2, 5, 1) * 0, 0.5, 2, 1, [6, 6]), {}
    four = {"kernel_size": [3, 3], "stride": [1] * 4, "padding": [1] * 4}
    yield "npu_deformable_conv2d", (x, w, f(2, 27, 6, 6), b), four
    yield "npu_deformable_conv2dbk", (x, f(2, 4, 6, 6), f(2, 4, 18, 18), w, f(2, 27, 6, 6)), four
    s, h = f(5, 2, 3), f(1, 2, 4)
    steps = [f(5, 2, 4) for _ in range(8)]
    lstm = (False, 1, 0.0, True, False, False, False, False)
    yield "npu_lstm", (s, f(7, 16), f(16), f(0), h, h, *lstm), {}
    yield "npu_lstm_backward", (steps[0], None, None, s, f(7, 16), f(16), h, h, *steps), {}
    padded = (s, torch.tensor([2, 2, 2, 1, 1]), f(7, 16), f(16))
    yield "npu_lstm_data", (*padded, f(5, 2, 4), h, h, *lstm), {}
    yield "npu_lstm_data_backward", (steps[0], None, steps[1], *padded, h, h, *steps, True), {}
    step = [f(1, 2, 4) for _ in range(6)]
    yield "npu_lstm_cell", (f(2, 3), f(3, 16), f(4, 16), f(2, 4), f(2, 4)), {}
    cell = (f(2, 3), f(3, 16), f(4, 16), f(2, 4), f(2, 4), step[0], f(2, 4), f(2, 4), *step[1:])
    yield "npu_lstm_cell_backward", (None, f(2, 4), None, *cell), {}
    gru = (s, h, f(3, 12), f(4, 12), f(12), f(12), i(5, 5))
    yield "npu_gru", (*gru, True, 1, 0.0, True, False, False), {}
    yield "npu_gru_backward", (steps[0], None, s, *gru[2:7], h, *steps[:6]), {}
    a = f(6, 8)
    heads = (2, 4, 3, 3, 0.0, True)
    weights = [f(8, 8) for _ in range(3)]
    attention = (a, a, a, *weights, f(2, 2, 3, 3), f(8, 8), f(8), None, None, None, None, *heads)
    yield "npu_multi_head_attention", attention, {}
    split, score = f(2, 2, 3, 4), f(2, 2, 3, 3)
    saved = (split, split, split, score, score, a, a, torch.zeros(16, dtype=torch.uint8).npu())
    yield "npu_multi_head_attention_backward", (a, a, a, *weights, f(8, 8), *[None] * 4, *saved, *heads), {}
    bits = torch.zeros(16, dtype=torch.uint8).npu()
    yield "_npu_dropout", (m, 0.5), {}
    yield "_npu_dropout_inplace", (f(3, 4), 0.5), {}
    yield "npu_dropout_backward", (m, bits, 0.5), {}
    yield "npu_dropout_do_mask", (m, bits, 0.5), {}
    yield "npu_dropout_gen_mask", ([3, 4], 0.5), {"device": "npu:0"}
    yield "npu_dropoutV2", (m, f(32), 0.5), {}
    yield "npu_dropoutV2_backward", (m, m, 0.5), {}
    yield "npu_dropout_with_add_softmax", (m, m, 2, 0.5, -1), {}
    yield "npu_dropout_with_add_softmax_backward", (m, torch.zeros(128, dtype=torch.uint8).npu(), m, 2, 0.5, -1), {}
    adam = (0.9, 0.99, 0.1, 0.9, 0.99, 1e-6, f(4), False, False)
    yield "npu_apply_adam", adam, {"out": (f(4), f(4), f(4))}
    yield "npu_apply_adam", (f(4), f(4), f(4), *adam), {}
    bert = (0.1, 0.9, 0.99, 1e-6, f(4), 1.0, 1.0, 0.1)
    yield "npu_bert_apply_adam", bert, {"out": (f(4), f(4), f(4))}
    yield "npu_bert_apply_adam", (f(4), f(4), f(4), *bert), {}
    yield "npu_ifmr", (f(10), f(1), f(1), i(*range(8)), 0.9, 0.9, 0.7, 1.3, 0.1, False), {}
    for op in ("npu_alloc_float_status", "npu_get_float_status", "npu_clear_float_status"):
        yield op, (f(8),), {}

    yield from transformer_samples()
    yield from layer_samples()
    yield from integer_samples()


def transformer_samples():
    q = f(2, 4, 5, 8)
    hidden = torch.ones(5, 5).triu(1).bool().npu()
    yield "npu_fusion_attention", (q, q, q, 4, "BNSD"), {"atten_mask": hidden, "sparse_mode": 3}
    yield (
        "npu_fusion_attention",
        (f(5, 4, 8), f(5, 2, 8), f(5, 2, 8), 4, "TND"),
        {
            "actual_seq_qlen": [2, 5],
            "actual_seq_kvlen": [2, 5],
        },
    )
    yield (
        "npu_fusion_attention_grad",
        (q, q, q, q, 4, "BNSD"),
        {"atten_mask": hidden, "sink": f(4), "pse": f(1, 4, 5, 5)},
    )
    yield "_npu_dropout_gen_mask", (q, [7, 30], 0.5, 1, 2), {}
    yield "npu_rms_norm", (f(2, 3, 8), f(8)), {}
    yield "npu_rms_norm_backward", (f(2, 3, 8), f(2, 3, 8), f(3, 8), f(2, 1, 1)), {}
    yield "npu_rotary_mul", (q, f(1, 1, 5, 8), f(1, 1, 5, 8)), {}
    yield "npu_rotary_mul_backward", (q, q, f(1, 1, 5, 8), f(1, 1, 5, 8), "interleave"), {}
    yield "npu_swiglu", (q.bfloat16(),), {}
    yield "npu_swiglu_backward", (f(2, 4, 5, 4), q), {}
    yield "npu_geglu", (q, 1, 0, True), {}
    yield "npu_geglu_grad", (f(2, 4, 5, 4), q, f(2, 4, 5, 4)), {}
    labels = torch.tensor([1, 0, 3]).npu()
    yield "npu_cross_entropy_loss", (f(3, 4), labels), {}
    yield "npu_cross_entropy_loss_backward", (f(1), f(3, 4), labels), {}
    ends = torch.tensor([1, 4, 4]).npu()
    yield "npu_grouped_matmul", ([f(6, 8)], [f(3, 8, 2)]), {"group_list": ends, "split_item": 2, "group_type": 0}
    yield "npu_grouped_matmul", ([f(6, 4)], [f(4, 2)]), {"group_list": ends, "split_item": 2, "group_type": 2}
    yield "npu_grouped_matmul", ([f(6, 8)], [f(8, 2), f(8, 2)]), {"group_list": [2, 6], "bias": [f(2), f(2)]}
    experts = torch.tensor([[1, 0], [2, 1], [0, 2]]).npu()
    places = i(2, 0, 4, 3, 1, 5)
    yield "npu_moe_token_permute", (f(3, 4), experts), {}
    yield "npu_moe_token_permute_grad", (f(3, 4), f(6, 4), experts, places), {}
    yield "npu_moe_token_unpermute", (f(6, 4), places), {"probs": f(3, 2)}
    yield "npu_moe_token_unpermute_grad", (f(6, 4), f(3, 4), places, f(3, 2)), {}
    yield from declared_samples()


def declared_samples():
    """The calls that entries of the operator table give as `sample`, in the words of this module."""
    tables = Path(torchgen.__file__).parent / "packaged/ATen/native/npu"
    for path in sorted(tables.glob("*/npu_native_functions.yaml")):
        for entry in (yaml.safe_load(path.read_text(encoding="utf-8")) or {}).get("custom") or []:
            calls = entry.get("sample") or []
            for call in [calls] if isinstance(calls, str) else calls:
                args, kwargs = eval(f"(lambda *args, **kwargs: (args, kwargs))({call})", dict(globals()))
                yield entry["func"].partition("(")[0].partition(".")[0], args, kwargs


def layer_samples():
    x = f(2, 3, 8)
    yield "npu_gelu", (x,), {"approximate": "tanh"}
    yield "npu_gelu_backward", (x, x), {}
    yield "npu_gelu_mul", (x,), {}
    yield "npu_fast_gelu", (x.half(),), {}
    yield "npu_fast_gelu_backward", (x, x), {}
    yield "npu_add_rms_norm", (x, x, f(8)), {}
    yield "npu_gemma_rms_norm", (x, f(8)), {}
    yield "npu_deep_norm", (x, x, f(8), f(8)), {}
    yield "npu_group_norm_silu", (f(2, 4, 5), f(4), f(4), 2), {}
    yield "npu_group_norm_swish", (f(2, 4, 5), 2, f(4), f(4)), {"swish_scale": 2.0}
    q = f(2, 4, 5, 8)
    yield "npu_interleave_rope", (q, f(1, 1, 5, 8), f(1, 1, 5, 8)), {}
    yield "npu_apply_rotary_pos_emb", (q, f(2, 4, 1, 8), f(2, 4, 1, 8), f(2, 4, 1, 8)), {}
    mask = q > 0.5
    yield "npu_scaled_masked_softmax", (q, mask, 0.5), {}
    yield "npu_scaled_masked_softmax_backward", (q, q, mask, 0.5, False), {}
    places = i(0, 1, 1, 2).view(2, 2)
    yield "npu_scatter_nd_update", (x, places, f(2, 8)), {}
    yield "npu_scatter_nd_update_", (f(2, 3, 8), places, f(2, 8)), {}
    yield "npu_moe_compute_expert_tokens", (i(0, 0, 2, 3), 4), {}
    yield "npu_moe_gating_top_k_softmax", (f(3, 4),), {"k": 2}
    yield "npu_moe_init_routing", (f(2, 4), i(0, 2, 1, 3).view(2, 2), i(1, 0, 3, 1).view(2, 2), 2), {}
    experts = i(0, 1, 2, 0, 1, 2).view(3, 2)
    routed = (f(6, 4), f(3, 4), None, f(3, 4), f(3, 2), i(*range(6)), experts)
    yield "npu_moe_finalize_routing", routed, {}


def integer_samples():
    x, words = f(3, 8), i(*range(6)).view(3, 2)
    codes = torch.randint(-9, 9, (3, 8), dtype=torch.int8).npu()
    yield "npu_anti_quant", (codes, f(8)), {"offset": f(8)}
    yield "npu_anti_quant", (words, f(16)), {"dst_dtype": torch.bfloat16}
    yield "npu_quantize", (x, f(8) + 1, None, torch.qint8), {}
    yield "npu_group_quant", (x, f(2, 8), i(1, 3)), {"dst_dtype": torch.quint4x2}
    yield "npu_dynamic_quant", (x,), {"smooth_scales": f(2, 8), "group_index": i(1, 3)}
    yield "npu_dynamic_quant_asymmetric", (x,), {"dst_type": torch.quint4x2}
    yield "npu_trans_quant_param", (f(8), f(8)), {}
    yield "npu_quant_matmul", (codes, codes.t(), f(3)), {"output_dtype": torch.float16, "pertoken_scale": f(3)}
    yield "npu_weight_quant_batchmatmul", (f(2, 3), codes, f(2, 8)), {"antiquant_group_size": 2, "bias": f(8)}
    yield "npu_weight_quant_batchmatmul", (f(2, 3), words, f(16)), {"quant_scale": f(16)}
    yield "npu_sign_bits_pack", (f(16), 1), {}
    yield "npu_sign_bits_unpack", (torch.zeros(4, dtype=torch.uint8).npu(), 2, torch.float32), {}


# Whose result's size depends on the data; errors by design; a storage as argument.
WITHOUT_SAMPLE = {"npu_nms_rotated", "npu_hcom_allreduce", "npu_enque_tensor", "npu_set_"}


def described(out):
    return torch.utils._pytree.tree_map_only(torch.Tensor, lambda t: (tuple(t.shape), t.dtype, t.device.type), out)


class TestRegistry(TestCase):
    def test_every_operator_is_listed(self):
        schemas = [s for s in torch._C._jit_get_all_schemas() if s.name.startswith("npu::")]
        internal = {"_npu_lstm_masked_backward", "_npu_grouped_product", "_npu_lamb_step_", "_npu_unscale_into_"}
        names = {s.name.removeprefix("npu::") for s in schemas} - internal - {*operators.OPERATORS}
        self.assertEqual(sorted(NAMES), sorted(names))
        self.assertGreaterEqual(len(schemas) - len(internal), 164)
        for s in schemas:
            name, first = s.name.removeprefix("npu::"), s.arguments[0].name if s.arguments else ""
            if first == "self" and name in names:
                self.assertIn(name, _custom_ops.METHODS)

    def test_spellings(self):
        import torch_npu

        x = torch.randn(3, 4).npu()
        for call in (torch.npu_silu, torch.ops.npu.npu_silu, torch_npu.npu_silu, torch.ops.npu.npu_silu.default):
            self.assertEqual(call(x), torch.nn.functional.silu(x))
        self.assertEqual(x.npu_silu(), torch.nn.functional.silu(x))
        self.assertEqual(torch_npu.get_npu_format(x), 2)
        self.assertEqual(torch_npu._npu_dropout(x, 0.0)[0], x)
        self.assertIn("npu_iou", dir(torch_npu))
        for name in NAMES:
            self.assertTrue(callable(getattr(torch, name)), name)
            self.assertEqual(hasattr(torch.Tensor, name), name in _custom_ops.METHODS, name)

    def test_documentation(self):
        for name in NAMES:
            doc = getattr(torch, name).__doc__
            self.assertGreater(len(doc), 120, name)
            for word in (f"{name}(", "Args:", "Returns:"):
                self.assertIn(word, doc, name)
            schema = getattr(torch.ops.npu, name)
            for overload in schema.overloads():
                for argument in getattr(schema, overload)._schema.arguments:
                    self.assertRegex(doc, rf"\b{re.escape(argument.name)}\b", f"{name}: {argument.name}")
        self.assertIn("intersection", inspect.getdoc(torch.npu_iou))
        self.assertIn("npu_iou", repr(torch.npu_iou))

    def test_cpu_tensors_are_refused(self):
        with self.assertRaisesRegex(NotImplementedError, "npu::npu_iou.*CPU"):
            torch.npu_iou(torch.zeros(1, 4), torch.zeros(1, 4))

    def test_fake_tensors(self):
        seen = set()
        for name, args, kwargs in samples():
            seen.add(name)
            with self.subTest(name=name):
                real = described(getattr(torch, name)(*args, **kwargs))
                with FakeTensorMode() as mode:
                    fake_args, fake_kwargs = torch.utils._pytree.tree_map_only(
                        torch.Tensor, mode.from_tensor, (args, kwargs)
                    )
                    fake = described(getattr(torch, name)(*fake_args, **fake_kwargs))
                self.assertEqual(
                    list(real) if isinstance(real, tuple) else real, list(fake) if isinstance(fake, tuple) else fake
                )
        self.assertEqual(set(NAMES) - seen, WITHOUT_SAMPLE)

    def test_symbols_for_sizes(self):
        def symbolic(tensor):
            dims = StatelessSymbolicContext([DimDynamic.DYNAMIC] * tensor.dim())
            return mode.from_tensor(tensor, symbolic_context=dims)

        for name, args, kwargs in samples():
            with self.subTest(name=name), FakeTensorMode(shape_env=ShapeEnv()) as mode:
                fake_args, fake_kwargs = torch.utils._pytree.tree_map_only(torch.Tensor, symbolic, (args, kwargs))
                getattr(torch, name)(*fake_args, **fake_kwargs)

    def test_compile(self):
        def step(x, w, h):
            y = torch.npu_silu(torch.npu_linear(x, w))
            y = torch.npu_giou(y.t().contiguous(), h.t().contiguous(), trans=True)
            return y.npu_transpose(1, 0)

        x, w, h = f(5, 3).requires_grad_(), f(4, 3), f(5, 4) + 1
        expected = step(x, w, h)
        (grad,) = torch.autograd.grad(expected.sum(), x)
        for backend in ("eager", "aot_eager"):
            torch._dynamo.reset()
            out = torch.compile(step, backend=backend)(x, w, h)
            self.assertEqual(out, expected, prec=1e-6)
            self.assertEqual(torch.autograd.grad(out.sum(), x)[0], grad, prec=1e-6)

    def test_import_loads_no_documentation(self):
        script = "import sys, torch; print('torch.npu._custom_op_docs' in sys.modules, callable(torch.npu_iou))"
        self.assertEqual(run_in_process(script).stdout.split(), ["False", "True"])


class TestDeclarations(TestCase):
    """Wrong entries of the table end the generator with file and line."""

    @staticmethod
    def generate(entries):
        root = Path(__file__).resolve().parents[2]
        sys.path.insert(0, str(root / "tools/codegen"))
        try:
            from gen_npu_kernels import main
        finally:
            sys.path.pop(0)
        import contextlib
        import io

        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder) / "npu"
            source.mkdir()
            (source / "Kernel.cpp").write_text("Tensor known(const Tensor& self) { return self; }\n")
            (source / "npu_native_functions.yaml").write_text("custom:\n" + entries)
            error = io.StringIO()
            with contextlib.redirect_stderr(error):
                status = main(["--output-dir", f"{folder}/out", "--source", str(source)])
            written = Path(folder) / "out/RegisterNPUCustom.cpp"
            return status, error.getvalue(), written.read_text() if written.exists() else ""

    def test_errors_name_the_line(self):
        good = "- {func: 'npu_a(Tensor self) -> Tensor', kernel: known}\n"
        status, error, text = self.generate(good)
        self.assertEqual((status, error), (0, ""))
        self.assertIn('m.def("npu_a(Tensor self) -> Tensor"', text)
        for entry, words in (
            ("- {func: 'npu_b(Tensor self -> Tensor', kernel: known}\n", "3: .*not a schema"),
            ("- {func: 'npu_b(Tensor self) -> Tensor', kernel: unknown}\n", "3: no kernel file"),
            ("- func: 'npu_b(Tensor self) -> Tensor'\n  kernl: known\n", "4: unknown key `kernl`"),
            ("- {func: 'npu_b(Tensor self) -> Tensor'}\n", "3: .*one of `kernel` and `composite`"),
            ("- {func: 'npu_a(Tensor self) -> Tensor', kernel: known}\n", "3: npu::npu_a already has a kernel, .*:2"),
            ("- {func: 'npu_b(Tensor self) -> Tensor', composite: known, autograd: known}\n", "3: .*by itself"),
        ):
            status, error, _ = self.generate(good + entry)
            self.assertEqual(status, 1, entry)
            self.assertRegex(error, "npu_native_functions.yaml:" + words)


if __name__ == "__main__":
    run_tests()
