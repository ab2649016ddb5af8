"""npu operators in ONNX files: CANN's own nodes with their attributes and shapes, ONNX's where they are composed."""

import sys
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from common_utils import run_tests
from onnx_case import SLOW, OnnxCase, export, needs_onnx

import torch
import torch.npu
from torch import nn
from torch.npu.onnx._custom_operators import OPERATORS


class Call(nn.Module):
    """A model that is one call."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


def rand(*sizes, seed=0):
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(seed))


def boxes(count, seed=0):
    corner = torch.rand(count, 2, generator=torch.Generator().manual_seed(seed)) * 10
    return torch.cat([corner, corner + 3], 1)


def quantized(*sizes):
    return torch.randint(-8, 8, sizes, dtype=torch.int8, generator=torch.Generator().manual_seed(1))


npu = torch.ops.npu
# Operator: call, arguments, the node's type, its attributes, and whether it has a composition as well.
CANN = {
    "npu_anchor_response_flags": (
        lambda x: npu.npu_anchor_response_flags(x, [6, 6], [2, 2], 3),
        lambda: (boxes(4),),
        "NPUAnchorResponseFlags",
        {"featmap_sizes": [6, 6], "strides": [2, 2], "num_base_anchors": 3},
    ),
    "npu_anti_quant": (
        lambda x, s: npu.npu_anti_quant(x, s, dst_dtype=5),
        lambda: (quantized(3, 4), torch.rand(1)),
        "NPUAntiQuant",
        {"dst_dtype": 1, "src_dtype": 2},
    ),
    "npu_bounding_box_decode": (
        lambda r, d: npu.npu_bounding_box_decode(r, d, 0, 0, 0, 0, 1, 1, 1, 1, [20, 20], 0.1),
        lambda: (boxes(4), rand(4, 4)),
        "NPUBoundingBoxDecode",
        {"means0": 0.0, "stds3": 1.0, "max_shapes": [20, 20], "wh_ratio_clip": 0.1},
    ),
    "npu_bounding_box_encode": (
        lambda a, g: npu.npu_bounding_box_encode(a, g, 0, 0, 0, 0, 0.1, 0.1, 0.2, 0.2),
        lambda: (boxes(4), boxes(4, 1)),
        "NPUBoundingBoxEncode",
        {"stds0": 0.1, "means3": 0.0},
    ),
    "npu_deep_norm": (
        lambda x, g, b, w: npu.npu_deep_norm(x, g, b, w, 0.4),
        lambda: (rand(2, 8), rand(2, 8), rand(8), rand(8)),
        "NPUDeepNorm",
        {"alpha": 0.4, "epsilon": 1e-6},
    ),
    "npu_deformable_conv2d": (
        lambda x, w, o: npu.npu_deformable_conv2d(x, w, o, None, [3, 3], [1, 1, 1, 1], [1, 1, 1, 1]),
        lambda: (rand(1, 4, 6, 6), rand(5, 4, 3, 3), rand(1, 27, 6, 6)),
        "NPUDeformableConv2d",
        {"kernel_sizes": [3, 3], "strides": [1, 1, 1, 1], "paddings": [1, 1, 1, 1], "deformable_groups": 1},
    ),
    "npu_dynamic_quant": (
        lambda x: npu.npu_dynamic_quant(x),
        lambda: (rand(3, 8).half(),),
        "NPUDynamicQuant",
        {},
    ),
    "npu_fast_gelu": (npu.npu_fast_gelu, lambda: (rand(3, 4),), "NPUFastGelu", {}),
    "npu_format_cast": (
        lambda x: npu.npu_format_cast(x, 29),
        lambda: (rand(16, 16),),
        "NPUFormatCast",
        {"acl_format": 29},
    ),
    "npu_geglu": (
        lambda x: npu.npu_geglu(x, -1, 0),
        lambda: (rand(3, 8),),
        "NPUGeGlu",
        {"dim": -1, "approximate": 0, "activate_left": 0},
    ),
    "npu_giou": (
        lambda a, b: npu.npu_giou(a, b, True, False, 0),
        lambda: (rand(4, 3).abs(), rand(4, 3, seed=1).abs()),
        "NPUGiou",
        {"trans": 1, "is_cross": 0, "mode": 0},
    ),
    "npu_group_norm_silu": (
        lambda x: npu.npu_group_norm_silu(x, None, None, 2, 1e-4),
        lambda: (rand(2, 4, 5, 5),),
        "NPUGroupNormSilu",
        {"group": 2, "eps": 1e-4},
    ),
    "npu_indexing": (
        lambda x: npu.npu_indexing(x, [0, 0], [2, 3], [1, 1]),
        lambda: (rand(4, 5),),
        "NPUIndexing",
        {"begins": [0, 0], "ends": [2, 3], "strides": [1, 1], "begin_mask": 0},
    ),
    "npu_iou": (npu.npu_iou, lambda: (boxes(4), boxes(3, 1)), "NPUIou", {"mode": 0}),
    "npu_masked_fill_range": (
        lambda x, s, e, v: npu.npu_masked_fill_range(x, s, e, v, 1),
        lambda: (rand(3, 6), torch.tensor([[1]], dtype=torch.int32), torch.tensor([[3]], dtype=torch.int32), rand(1)),
        "NPUMaskedFillRange",
        {"axis": 1},
    ),
    "npu_mish": (npu.npu_mish, lambda: (rand(3, 4),), "NPUMish", {}),
    "npu_nms_v4": (
        lambda b, s, i, t: npu.npu_nms_v4(b, s, 3, i, t),
        lambda: (boxes(6), torch.rand(6), torch.tensor([0.5]), torch.tensor([0.0])),
        "NPUNmsV4",
        {"max_output_size": 3, "pad_to_max_output_size": 0},
    ),
    "npu_nms_with_mask": (
        lambda x: npu.npu_nms_with_mask(x, 0.5),
        lambda: (torch.cat([boxes(6), torch.rand(6, 1)], 1),),
        "NPUNmsWithMask",
        {"iou_threshold": 0.5},
    ),
    "npu_normalize_batch": (
        lambda x, n: npu.npu_normalize_batch(x, n, 1),
        lambda: (rand(2, 3, 6), torch.tensor([4, 6], dtype=torch.int32)),
        "NPUNormalizeBatch",
        {"normalize_type": 1},
    ),
    "npu_one_hot": (
        lambda x: npu.npu_one_hot(x, -1, 5),
        lambda: (torch.tensor([0, 2, 4], dtype=torch.int32),),
        "NPUOneHot",
        {"num_classes": -1, "depth": 5, "on_value": 1, "off_value": 0},
    ),
    "npu_ps_roi_pooling": (
        lambda x, r: npu.npu_ps_roi_pooling(x, r, 0.5, 2, 1),
        lambda: (rand(2, 4, 6, 6), torch.zeros(2, 5, 1)),
        "NPUPsRoiPooling",
        {"spatial_scale": 0.5, "group_size": 2, "output_dim": 1},
    ),
    "npu_quantize": (
        lambda x, s, z: torch.npu_quantize(x, s, z, torch.qint8, 0),
        lambda: (rand(3, 4), torch.tensor([0.1, 0.2, 0.3]), torch.zeros(3, dtype=torch.int32)),
        "NPUQuantize",
        {"dtype": 2, "axis": 0, "div_mode": 1},
    ),
    "npu_rms_norm": (
        lambda x, w: npu.npu_rms_norm(x, w, 1e-5)[0],
        lambda: (rand(2, 3, 8), rand(8)),
        "NPURmsNorm",
        {"epsilon": 1e-5},
    ),
    "npu_roi_align": (
        lambda x, r: npu.npu_roi_align(x, r, 0.5, 2, 2, 2, 1),
        lambda: (rand(1, 4, 8, 8), torch.tensor([[0, 0, 0, 4, 4.0]])),
        "NPURoiAlign",
        {"spatial_scale": 0.5, "pooled_height": 2, "pooled_width": 2, "sample_num": 2, "roi_end_mode": 1},
    ),
    "npu_rotary_mul": (
        lambda x, c, s: npu.npu_rotary_mul(x, c, s),
        lambda: (rand(1, 2, 3, 8), rand(1, 1, 3, 8), rand(1, 1, 3, 8, seed=1)),
        "NPURotaryMul",
        {},
    ),
    "npu_rotated_box_decode": (
        npu.npu_rotated_box_decode,
        lambda: (rand(1, 5, 3).abs() + 1, rand(1, 5, 3), torch.ones(5)),
        "NPURotatedBoxDecode",
        {},
    ),
    "npu_scaled_masked_softmax": (
        lambda x, m: npu.npu_scaled_masked_softmax(x, m, 0.5, False),
        lambda: (rand(1, 2, 16, 16), torch.zeros(1, 1, 16, 16, dtype=torch.bool)),
        "NPUScaledMaskedSoftmax",
        {"scale": 0.5, "fixed_triu_mask": 0},
    ),
    "npu_scatter": (
        lambda x, i, u: npu.npu_scatter(x, i, u, 0),
        lambda: (rand(4, 3), torch.tensor([[0], [2]], dtype=torch.int32), rand(2, 1)),
        "NPUScatter",
        {"dim": 0},
    ),
    "npu_scatter_nd_update": (
        npu.npu_scatter_nd_update,
        lambda: (rand(4, 3), torch.tensor([[0], [2]]), rand(2, 3)),
        "NPUScatterNdUpdate",
        {},
    ),
    "npu_sign_bits_pack": (
        lambda x: npu.npu_sign_bits_pack(x, 2),
        lambda: (rand(16),),
        "NPUSignBitsPack",
        {"size": 2},
    ),
    "npu_sign_bits_unpack": (
        lambda x: torch.npu_sign_bits_unpack(x, 2, torch.float32),
        lambda: (torch.tensor([3, 255], dtype=torch.uint8),),
        "NPUSignBitsUnpack",
        {"size": 2, "dtype": 0},
    ),
    "npu_slice": (
        lambda x: npu.npu_slice(x, [0, 1], [2, 2]),
        lambda: (rand(3, 4),),
        "NPUSlice",
        {"offsetss": [0, 1], "sizes": [2, 2]},
    ),
    "npu_softmax_cross_entropy_with_logits": (
        npu.npu_softmax_cross_entropy_with_logits,
        lambda: (rand(3, 4), torch.softmax(rand(3, 4, seed=1), 1)),
        "NPUSoftmaxCrossEntropyWithLogits",
        {},
    ),
    "npu_stride_add": (
        lambda x, y: npu.npu_stride_add(x, y, 0, 0, 1),
        lambda: (rand(1, 16, 2, 2), rand(1, 16, 2, 2, seed=1)),
        "NPUStrideAdd",
        {"offset1": 0.0, "offset2": 0.0, "c1_len": 1},
    ),
    "npu_batch_nms": (
        lambda b, s: npu.npu_batch_nms(b, s, 0.2, 0.3, 3, 5),
        lambda: (boxes(4)[None, :, None], torch.rand(1, 4, 2)),
        "NPUBatchNms",
        {"score_threshold": 0.2, "max_size_per_class": 3, "max_total_size": 5, "transpose_box": 0},
    ),
    "npu_dropout_with_add_softmax": (
        lambda x, y: npu.npu_dropout_with_add_softmax(x, y, 2, 0.4, -1),
        lambda: (rand(2, 3, 16, 16), rand(2, 3, 16, 16, seed=1)),
        "NPUDropoutWithAddSoftmax",
        {"alpha": 2.0, "prob": 0.4, "dim": -1},
    ),
    "npu_dynamic_quant_asymmetric": (
        lambda x: npu.npu_dynamic_quant_asymmetric(x),
        lambda: (rand(3, 8).half(),),
        "NPUDynamicQuantV2",
        {"dst_type": 2},
    ),
    "npu_grid_assign_positive": (
        lambda a, o, f, m, i, g, j: npu.npu_grid_assign_positive(a, o, f, m, i, g, j, 8, 0.6, 0.1, True),
        lambda: (
            torch.zeros(10),
            torch.rand(8, 10),
            torch.ones(10, dtype=torch.uint8),
            torch.rand(10),
            torch.zeros(10, dtype=torch.int32),
            torch.rand(8),
            torch.zeros(8, dtype=torch.int32),
        ),
        "NPUGridAssignPositive",
        {"num_gts": 8, "pos_iou_thr": 0.6, "gt_max_assign_all": 1},
    ),
    "npu_gru": (
        lambda x, h, wi, wh, bi, bh, n: npu.npu_gru(x, h, wi, wh, bi, bh, n, True, 1, 0.0, False, False, False),
        lambda: (
            rand(5, 3, 4),
            rand(1, 3, 6),
            rand(4, 18),
            rand(6, 18),
            rand(18),
            rand(18),
            torch.full((3,), 5, dtype=torch.int32),
        ),
        "NPUGru",
        {"has_biases": 1, "num_layers": 1, "dropout": 0.0, "train": 0, "bidirectional": 0, "batch_first": 0},
    ),
    "npu_ifmr": (
        lambda x, a, b, c: npu.npu_ifmr(x, a, b, c, 0.99, 0.99, 0.7, 1.3, 0.1, False),
        lambda: (rand(4, 8), rand(1), rand(1).abs() + 3, torch.arange(128, dtype=torch.int32)),
        "NPUIfmr",
        {"min_percentile": 0.99, "search_step": 0.1, "with_offset": 0},
    ),
    "npu_lstm": (
        lambda x, w, b, m, h, c: npu.npu_lstm(x, w, b, m, h, c, True, 1, 0.0, False, False, False, False, False)[:3],
        lambda: (rand(5, 3, 4), rand(10, 24), rand(24), torch.ones(5, 3, 6), rand(1, 3, 6), rand(1, 3, 6)),
        "NPULstm",
        {"has_biases": 1, "train": 0, "flagSeq": 0, "direction": 0},
    ),
    "npu_lstm_cell": (
        lambda x, a, b, h, c, p, q: npu.npu_lstm_cell(x, a, b, h, c, b_ih=p, b_hh=q)[:3],
        lambda: (rand(3, 4), rand(4, 24), rand(6, 24), rand(3, 6), rand(3, 6), rand(24), rand(24)),
        "NPULstmCell",
        {},
    ),
    "npu_moe_finalize_routing": (
        lambda x, s, p, e: npu.npu_moe_finalize_routing(x, None, None, None, s, p, e),
        lambda: (
            rand(6, 4),
            torch.rand(3, 2),
            torch.arange(6, dtype=torch.int32),
            torch.zeros(3, 2, dtype=torch.int32),
        ),
        "NPUMoeFinalizeRouting",
        {},
    ),
    "npu_multi_head_attention": (
        lambda q, k, v, wq, wk, wv, m, wo, bits: npu.npu_multi_head_attention(
            q, k, v, wq, wk, wv, m, wo, None, None, None, None, bits, 2, 16, 16, 16, 0.0, True
        )[0],
        lambda: (
            *(rand(16, 32, seed=i) for i in range(3)),
            *(rand(32, 32, seed=i) for i in range(3)),
            torch.zeros(1, 2, 16, 16),
            rand(32, 32),
            torch.zeros(0, dtype=torch.uint8),
        ),
        "NPUMultiHeadAttention",
        {"attn_head_num": 2, "attn_dim_per_head": 16, "src_len": 16, "dropout_prob": 0.0, "softmax_use_float": 1},
    ),
    "npu_ptiou": (npu.npu_ptiou, lambda: (boxes(4), boxes(3, 1)), "NPUIou", {"mode": 0}),
    "npu_rotated_box_encode": (
        npu.npu_rotated_box_encode,
        lambda: (rand(1, 5, 3).abs() + 1, rand(1, 5, 3, seed=1).abs() + 1, torch.ones(5)),
        "NPURotatedBoxEncode",
        {},
    ),
    "npu_rotated_iou": (
        lambda a, b: npu.npu_rotated_iou(a, b, mode=1),
        lambda: (rand(2, 5, 3).abs() + 1, rand(2, 5, 4).abs() + 1),
        "NPURotatedIou",
        {"trans": 0, "mode": 1, "is_cross": 1, "v_threshold": 0.0},
    ),
    "npu_rotated_overlaps": (
        npu.npu_rotated_overlaps,
        lambda: (rand(2, 5, 3).abs() + 1, rand(2, 5, 4).abs() + 1),
        "NPURotatedOverlaps",
        {"trans": 0},
    ),
    "npu_weight_quant_batchmatmul": (
        lambda x, w, s: npu.npu_weight_quant_batchmatmul(x, w, s),
        lambda: (rand(3, 8).half(), quantized(8, 4), torch.rand(4).half()),
        "NPUWeightQuantBatchMatmulV2",
        {"antiquant_group_size": 0, "dtype": 1},
    ),
    "npu_yolo_boxes_encode": (
        npu.npu_yolo_boxes_encode,
        lambda: (boxes(4), boxes(4, 1), torch.full((4,), 2, dtype=torch.int32)),
        "NPUYoloBoxesEncode",
        {"performance_mode": 0},
    ),
}
# Composed ones that CANN's ONNX domain has no name for, or that ONNX has an operator of its own for.
COMPOSED = {
    "npu_linear": (npu.npu_linear, lambda: (rand(3, 4), rand(5, 4), rand(5))),
    "npu_bmmV2": (lambda a, b: npu.npu_bmmV2(a, b, []), lambda: (rand(2, 3, 4), rand(2, 4, 5))),
    "npu_transpose": (lambda x: npu.npu_transpose(x, [1, 0]), lambda: (rand(3, 4),)),
    "npu_reshape": (lambda x: npu.npu_reshape(x, [2, 6]), lambda: (rand(3, 4),)),
    "npu_broadcast": (lambda x: npu.npu_broadcast(x, [3, 4]), lambda: (rand(1, 4),)),
    "npu_confusion_transpose": (
        lambda x: npu.npu_confusion_transpose(x, [0, 2, 1], [2, 3, 4], False),
        lambda: (rand(2, 12),),
    ),
    "npu_dtype_cast": (lambda x: torch.npu_dtype_cast(x, torch.float16), lambda: (rand(3, 4),)),
    "npu_silu": (npu.npu_silu, lambda: (rand(3, 4),)),
    "npu_swiglu": (lambda x: npu.npu_swiglu(x, -1), lambda: (rand(3, 8),)),
    "npu_gelu": (lambda x: npu.npu_gelu(x, approximate="tanh"), lambda: (rand(3, 4),)),
    "npu_gelu_mul": (lambda x: npu.npu_gelu_mul(x), lambda: (rand(3, 8),)),
    "npu_pad": (lambda x: npu.npu_pad(x, [1, 1, 0, 2]), lambda: (rand(3, 4),)),
    "npu_conv2d": (
        lambda x, w, b: npu.npu_conv2d(x, w, b, [1, 1], [1, 1], [1, 1], 1),
        lambda: (rand(1, 3, 6, 6), rand(4, 3, 3, 3), rand(4)),
    ),
    "npu_conv3d": (
        lambda x, w: npu.npu_conv3d(x, w, None, [1, 1, 1], [0, 0, 0], [1, 1, 1], 1),
        lambda: (rand(1, 2, 4, 4, 4), rand(3, 2, 3, 3, 3)),
    ),
    "npu_conv_transpose2d": (
        lambda x, w: npu.npu_conv_transpose2d(x, w, None, [0, 0], [0, 0], [2, 2], [1, 1], 1),
        lambda: (rand(1, 3, 4, 4), rand(3, 2, 2, 2)),
    ),
    "npu_layer_norm_eval": (
        lambda x, w, b: npu.npu_layer_norm_eval(x, [4], w, b, 1e-5),
        lambda: (rand(3, 4), rand(4), rand(4)),
    ),
    "npu_max": (lambda x: torch.npu_max(x, 1), lambda: (rand(3, 4),)),
    "npu_min": (lambda x: torch.npu_min(x, 1, True), lambda: (rand(3, 4),)),
    "npu_add_rms_norm": (
        lambda a, b, w: npu.npu_add_rms_norm(a, b, w)[::2],
        lambda: (rand(3, 8), rand(3, 8, seed=1), rand(8)),
    ),
    "npu_gemma_rms_norm": (lambda x, w: npu.npu_gemma_rms_norm(x, w)[0], lambda: (rand(3, 8), rand(8))),
    "npu_interleave_rope": (
        npu.npu_interleave_rope,
        lambda: (rand(1, 2, 3, 64), rand(1, 1, 3, 64), rand(1, 1, 3, 64, seed=1)),
    ),
    "npu_fusion_attention": (
        lambda q, k, v: npu.npu_fusion_attention(q, k, v, 2, "BNSD", scale=0.5)[0],
        lambda: (rand(1, 2, 4, 8), rand(1, 2, 4, 8, seed=1), rand(1, 2, 4, 8, seed=2)),
    ),
}  # fmt: skip
# Of CANN's, those that onnxruntime can run where plain operators are asked for.
PLAIN = ("npu_fast_gelu", "npu_geglu", "npu_group_norm_silu", "npu_mish", "npu_rms_norm", "npu_rotary_mul", "npu_slice",
         "npu_scaled_masked_softmax", "npu_softmax_cross_entropy_with_logits")  # fmt: skip
EXPORTERS = ((False, 11), (True, 18))
# What the TorchScript exporter first writes at a later opset.
OPSETS = {"npu_interleave_rope": 18}
# Whose results the TorchScript exporter writes with a size that it calls unknown, whatever it is told.
UNKNOWN = {("npu_nms_v4", False)}
# A default run takes every twelfth operator through the slower exporter, NPU_SLOW_TESTS=1 all.
DYNAMO_SHARE = 1 if SLOW else 12


def on_npu(args):
    return torch.utils._pytree.tree_map(lambda t: t.npu(), args)


@needs_onnx
class TestCannNodes(OnnxCase):
    def node(self, name, dynamo, opset):
        """Exports a model of one call; gives the file and its node of CANN's domain."""
        call, arguments, kind, attributes = CANN[name]
        args = on_npu(arguments())
        # What comes after it has to know its shape.
        model = Call(lambda *a: torch.utils._pytree.tree_map(lambda t: t.flatten(), call(*a)))
        proto = export(model, args, dynamo=dynamo, opset=opset)
        nodes = [node for node in proto.graph.node if node.domain == "npu"]
        self.assertEqual([node.op_type for node in nodes], [kind])
        return proto, nodes[0], attributes, call(*args)

    def test_names_attributes_and_shapes(self):
        import onnx

        for number, name in enumerate(CANN):
            for dynamo, opset in EXPORTERS:
                if dynamo and number % DYNAMO_SHARE:
                    continue
                with self.subTest(name=name, dynamo=dynamo):
                    proto, node, attributes, eager = self.node(name, dynamo, opset)
                    versions = {item.domain: item.version for item in proto.opset_import}
                    self.assertEqual(versions["npu"], 1)
                    found = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
                    for attribute, value in attributes.items():
                        self.assertIn(attribute, found)
                        self.assertEqual(found[attribute], value, prec=1e-6)
                    # Shape inference goes on behind it: the flat result's size is known.
                    inferred = onnx.shape_inference.infer_shapes(proto)
                    for value, tensor in zip(
                        inferred.graph.output, torch.utils._pytree.tree_leaves(eager), strict=True
                    ):
                        if (name, dynamo) not in UNKNOWN:
                            (dim,) = value.type.tensor_type.shape.dim
                            self.assertEqual(dim.dim_value, tensor.numel(), name)

    def test_values_of_the_nodes_are_typed(self):
        import onnx

        for dynamo, opset in EXPORTERS:
            proto, node, _, eager = self.node("npu_dynamic_quant", dynamo, opset)
            typed = (*proto.graph.value_info, *proto.graph.output)
            known = {value.name: value.type.tensor_type for value in typed}
            for name, tensor in zip(node.output, eager, strict=True):
                kind = onnx.helper.tensor_dtype_to_np_dtype(known[name].elem_type)
                self.assertEqual(str(kind), str(tensor.dtype).removeprefix("torch."))
                self.assertEqual([dim.dim_value for dim in known[name].shape.dim], list(tensor.shape))

    def test_dynamic_batch(self):
        import onnx

        cases = {
            "npu_rms_norm": lambda x, w: x + torch.relu(npu.npu_rms_norm(x, w)[0]),
            "npu_deep_norm": lambda x, w: npu.npu_deep_norm(x, x, w, w)[2] + x,
            "npu_slice": lambda x, w: npu.npu_slice(torch.cat([x, x], -1), [0, 0, 0], [1, 3, 8]) * w,
            "npu_geglu": lambda x, w: npu.npu_geglu(torch.cat([x, x], -1))[0] * w,
            "npu_mish": lambda x, w: npu.npu_mish(x) * w,
        }
        for number, (name, call) in enumerate(cases.items()):
            args = on_npu((rand(3, 3, 8), rand(8)))
            axes = {"x": {0: "batch"}, "y": {0: "batch"}}
            for dynamo, opset, options in (
                (False, 11, {"dynamic_axes": axes, "input_names": ["x", "w"], "output_names": ["y"]}),
                (True, 18, {"dynamic_shapes": {"args": ({0: "batch"}, None)}}),
            ):
                if dynamo and number and not SLOW:
                    continue
                with self.subTest(name=name, dynamo=dynamo):
                    proto = export(Call(call), args, dynamo=dynamo, opset=opset, **options)
                    (node,) = [node for node in proto.graph.node if node.domain == "npu"]
                    typed = (*proto.graph.value_info, *proto.graph.output)
                    known = {value.name: value.type.tensor_type.shape.dim for value in typed}
                    moves = name != "npu_slice" or not dynamo  # its result has the size that it was told
                    for output in node.output:
                        if output in known and known[output]:  # not written where nothing is known
                            self.assertEqual(known[output][0].dim_value == 0, moves)
                    (output,) = onnx.shape_inference.infer_shapes(proto).graph.output
                    self.assertEqual(len(output.type.tensor_type.shape.dim), 3)

    def test_shapes_of_symbols(self):
        """With dynamo=True results of a call with sizes that may differ have the sizes that follow from them."""
        for name, shapes, expected in (
            ("npu_iou", {"args": ({0: "n"}, {0: "m"})}, [["n", "m"], ["m", "n"]]),
            ("npu_bounding_box_encode", {"args": ({0: "n"}, {0: "n"})}, [["n", 4]]),
        ):
            call, arguments, _, _ = CANN[name]
            proto = export(Call(call), on_npu(arguments()), dynamo=True, opset=18, dynamic_shapes=shapes)
            (output,) = proto.graph.output
            dims = [dim.dim_param or dim.dim_value for dim in output.type.tensor_type.shape.dim]
            self.assertIn(dims, expected)

    def test_absent_inputs_have_their_places(self):
        for dynamo, opset in EXPORTERS[: 2 if SLOW else 1]:
            _, node, _, _ = self.node("npu_group_norm_silu", dynamo, opset)
            self.assertEqual(len(node.input), 3)
            self.assertTrue(all(node.input))

    def test_arguments_that_cann_has_no_place_for(self):
        calls = (
            (lambda x, c, s: npu.npu_rotary_mul(x, c, s, "interleave"), (rand(1, 2, 3, 8),) * 3, "rotary_mode"),
            (lambda x: npu.npu_anti_quant(x, torch.ones(1).npu(), dst_dtype=6), (quantized(2, 4),), "dtype"),
        )
        for call, args, words in calls:
            for dynamo, opset in EXPORTERS:
                try:
                    call(*on_npu(args))
                except (RuntimeError, ValueError):
                    continue  # it is refused before there is anything to export
                with self.assertRaises(Exception) as caught:
                    export(Call(call), on_npu(args), dynamo=dynamo, opset=opset)
                text, cause = "", caught.exception
                while cause is not None:
                    text, cause = f"{text}\n{cause}", cause.__cause__ or cause.__context__
                self.assertIn(words, text)

    def test_methods_and_functions_of_torch(self):
        for call in (lambda x: x.npu_mish(), lambda x: torch.npu_mish(x), lambda x: npu.npu_mish.default(x)):
            proto = export(Call(call), on_npu((rand(3),)), dynamo=False, opset=11)
            self.assertEqual([node.op_type for node in proto.graph.node], ["NPUMish"])
        proto = export(Call(call), on_npu((rand(3),)), dynamo=True, opset=18)
        self.assertEqual([node.op_type for node in proto.graph.node], ["NPUMish"])

    def test_the_caller_s_own_translation_comes_first(self):
        import onnxscript

        def mine(x):
            return onnxscript.opset18.Tanh(x)

        proto = export(
            Call(npu.npu_mish), on_npu((rand(3),)), dynamo=True, opset=18,
            custom_translation_table={npu.npu_mish.default: mine},
        )  # fmt: skip
        self.assertEqual([node.op_type for node in proto.graph.node], ["Tanh"])
        torch.onnx.register_custom_op_symbolic("npu::npu_silu", lambda g, x: g.op("own::Silu", x), 11)
        try:
            proto = export(Call(npu.npu_silu), on_npu((rand(3),)), dynamo=False, opset=11)
        finally:
            torch.onnx.unregister_custom_op_symbolic("npu::npu_silu", 11)
        self.assertEqual([(node.domain, node.op_type) for node in proto.graph.node], [("own", "Silu")])

    def test_a_traced_model_keeps_its_nodes(self):
        traced = torch.jit.trace(Call(npu.npu_mish), on_npu((rand(3),)))
        proto = export(traced, on_npu((rand(3),)), dynamo=False, opset=11)
        self.assertEqual([node.op_type for node in proto.graph.node], ["NPUMish"])

    def test_an_operator_that_cannot_be_exported(self):
        call = Call(lambda x: npu._npu_dropout(x, 0.5)[0])
        with self.assertRaises(torch.onnx.errors.UnsupportedOperatorError) as caught:
            export(call, on_npu((rand(3),)), dynamo=False, opset=11)
        self.assertIn("npu::_npu_dropout", str(caught.exception))
        with self.assertRaisesRegex(RuntimeError, "_npu_dropout"):
            export(call, on_npu((rand(3),)), dynamo=True, opset=18)


@needs_onnx
class TestComposed(OnnxCase):
    def test_plain_onnx(self):
        for number, (name, (call, arguments)) in enumerate(COMPOSED.items()):
            for dynamo, opset in EXPORTERS:
                if dynamo and number % DYNAMO_SHARE:
                    continue
                with self.subTest(name=name, dynamo=dynamo):
                    args = arguments()
                    opset = OPSETS.get(name, opset)
                    proto = export(Call(call), on_npu(args), dynamo=dynamo, opset=opset)
                    self.assertEqual({node.domain for node in proto.graph.node}, {""})
                    self.agrees(proto, Call(call), args, 2e-3 if name == "npu_dtype_cast" else 1e-4)

    def test_plain_operators_on_request(self):
        for number, name in enumerate(PLAIN):
            call, arguments, _, _ = CANN[name]
            for dynamo, opset in EXPORTERS:
                if dynamo and number % DYNAMO_SHARE:
                    continue
                with self.subTest(name=name, dynamo=dynamo):
                    args = arguments()
                    with torch.npu.onnx.plain_operators():
                        proto = export(Call(call), on_npu(args), dynamo=dynamo, opset=opset)
                    self.assertEqual({node.domain for node in proto.graph.node}, {""})
                    self.agrees(proto, Call(call), args)
        proto = export(Call(npu.npu_mish), on_npu((rand(3),)), dynamo=False, opset=11)
        self.assertEqual([node.op_type for node in proto.graph.node], ["NPUMish"])


class TestTable(OnnxCase):
    def test_each_operator_is_there_and_so_are_its_arguments(self):
        for name, operator in OPERATORS.items():
            packet = getattr(torch.ops.npu, name)
            arguments = {a.name for o in packet.overloads() for a in getattr(packet, o)._schema.arguments}
            inputs = (one for way in operator.inputs for one in way.split("|"))
            told = {*inputs, *operator.rename, *operator.kinds, *operator.require, *operator.drop}
            told |= {*operator.computed, *operator.like}
            self.assertEqual(told - arguments, set(), name)

    def test_each_operator_has_a_call_here_and_a_place_in_the_guide(self):
        self.assertEqual(set(CANN), set(OPERATORS))
        guide = Path(__file__).parents[3] / "docs" / "export.md"
        if not guide.is_file():
            self.skipTest("the tests lie apart from docs")
        text = guide.read_text(encoding="utf-8")
        for name, operator in OPERATORS.items():
            self.assertIn(f"`{name}` {operator.type}", text)

    def test_the_plug_in_s_name_of_the_package(self):
        import torch_npu.onnx

        self.assertIs(torch_npu.onnx, torch.npu.onnx)

    def test_nothing_is_loaded_or_changed_by_the_import(self):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            self.assertTrue(callable(torch.npu.onnx.plain_operators))
        with self.assertRaisesRegex(AttributeError, "torch.npu.onnx"):
            torch.npu.onnx.nothing  # noqa: B018


if __name__ == "__main__":
    run_tests()
