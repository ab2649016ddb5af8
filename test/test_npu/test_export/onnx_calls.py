"""Calls of npu operators that the tests of ONNX files export."""

import torch


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
