r"""How operators of ``torch.ops.npu`` are written as operators of CANN's ONNX domain: names, inputs and attributes as
the plug-in for PyTorch writes them and CANN's parser reads them (``npu::1::NPURmsNorm``).

Tensor arguments are inputs in the order of the operator's schema, all others attributes of the same name. What differs
stands in the table.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import torch

DOMAIN = "npu"
DOMAIN_VERSION = 1

# CANN's numbers of element types (the DataType of its graph engine).
_ELEMENTS = {
    torch.float32: 0,
    torch.float16: 1,
    torch.int8: 2,
    torch.qint8: 2,
    torch.int32: 3,
    torch.qint32: 3,
    torch.uint8: 4,
    torch.quint8: 4,
    torch.bfloat16: 27,
}
# torch's numbers of dtypes (c10::ScalarType), as schemas with `int dtype` have them.
_SCALAR_TYPES = {
    0: torch.uint8,
    1: torch.int8,
    3: torch.int32,
    5: torch.float16,
    6: torch.float32,
    12: torch.qint8,
    13: torch.quint8,
    14: torch.qint32,
    15: torch.bfloat16,
}


class NotInCANN(torch.onnx.errors.OnnxExporterError):
    r"""An npu operator is called with arguments that CANN's ONNX operator has no place for."""


def _element(*allowed: torch.dtype, default: torch.dtype | None = None) -> Callable[[Any], int]:
    r"""CANN's number of a dtype, which has to be one of `allowed`."""

    def number(value: Any) -> int:
        dtype = default if value is None else _SCALAR_TYPES.get(value) if isinstance(value, int) else value
        if dtype not in allowed:
            raise NotInCANN(f"dtype {dtype}: CANN's ONNX operator has {', '.join(map(str, allowed))}")
        return _ELEMENTS[dtype]

    return number


@dataclasses.dataclass(frozen=True)
class Operator:
    r"""One operator of CANN's domain.

    Attributes:
        type: its name there.
        inputs: names of arguments that are inputs, in order, `a|b` where overloads name one differently; default: the
            Tensor arguments in the schema's order.
        rename: argument -> the attribute's name, where they differ.
        kinds: argument -> what makes the attribute of it (int, float, or one that raises NotInCANN).
        require: argument -> the one value it may have, since no attribute tells it.
        drop: arguments that the result does not depend on.
        constants: further attributes.
        computed: argument -> name and function of a further attribute that follows from it.
        like: optional input -> the input whose dtype an absent one has; default float32.
    """

    type: str
    inputs: tuple[str, ...] = ()
    rename: Mapping[str, str] = dataclasses.field(default_factory=dict)
    kinds: Mapping[str, Callable[[Any], Any]] = dataclasses.field(default_factory=dict)
    require: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    drop: tuple[str, ...] = ()
    constants: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    computed: Mapping[str, tuple[str, Callable[[Any], Any]]] = dataclasses.field(default_factory=dict)
    like: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def attributes(self, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        r"""The attributes for the arguments that are no tensors, those without a value left out.

        Raises:
            NotInCANN: an argument has a value that CANN's operator has no attribute for.
        """
        told: dict[str, Any] = {}
        for argument, value in arguments.items():
            if argument in self.drop:
                continue
            if argument in self.require:
                if value != self.require[argument]:
                    raise NotInCANN(
                        f"{name} with {argument}={value!r} is no operator of CANN's ONNX domain: {self.type} stands "
                        f"for {argument}={self.require[argument]!r}"
                    )
                continue
            if argument in self.kinds:
                value = self.kinds[argument](value)
            if value is not None:
                told[self.rename.get(argument, argument)] = int(value) if isinstance(value, bool) else value
        return told | dict(self.constants)


def _plain(type: str, **rename: str) -> Operator:
    return Operator(type, rename=rename)


OPERATORS: dict[str, Operator] = {
    "npu_anchor_response_flags": _plain("NPUAnchorResponseFlags", featmap_size="featmap_sizes", stride="strides"),
    "npu_anti_quant": Operator(
        "NPUAntiQuant",
        kinds={
            "dst_dtype": _element(torch.float16, torch.bfloat16, default=torch.float16),
            "src_dtype": _element(torch.int8, default=torch.int8),
        },
    ),
    "npu_batch_nms": _plain("NPUBatchNms"),
    "npu_bounding_box_decode": _plain("NPUBoundingBoxDecode", max_shape="max_shapes"),
    "npu_bounding_box_encode": _plain("NPUBoundingBoxEncode"),
    "npu_deep_norm": _plain("NPUDeepNorm"),
    "npu_deformable_conv2d": _plain(
        "NPUDeformableConv2d",
        kernel_size="kernel_sizes",
        stride="strides",
        padding="paddings",
        dilation="dilations",
    ),
    "npu_dropout_with_add_softmax": Operator("NPUDropoutWithAddSoftmax", kinds={"alpha": float}),
    "npu_dynamic_quant": Operator(
        "NPUDynamicQuant",
        inputs=("input", "smooth_scales"),
        require={"group_index": None, "dst_type": None},
        like={"smooth_scales": "input"},
    ),
    "npu_dynamic_quant_asymmetric": Operator(
        "NPUDynamicQuantV2",
        inputs=("input", "smooth_scales", "group_index"),
        kinds={"dst_type": _element(torch.int8, default=torch.int8)},
        like={"smooth_scales": "input"},
    ),
    "npu_fast_gelu": _plain("NPUFastGelu"),
    "npu_format_cast": Operator("NPUFormatCast", require={"customize_dtype": None}),
    "npu_geglu": _plain("NPUGeGlu"),
    "npu_giou": _plain("NPUGiou"),
    "npu_grid_assign_positive": _plain("NPUGridAssignPositive"),
    "npu_group_norm_silu": _plain("NPUGroupNormSilu"),
    "npu_gru": _plain("NPUGru"),
    "npu_ifmr": _plain("NPUIfmr"),
    "npu_indexing": _plain("NPUIndexing", begin="begins", end="ends"),
    "npu_iou": _plain("NPUIou"),
    "npu_lstm": Operator("NPULstm", rename={"flag_seq": "flagSeq"}, require={"train": False}, constants={"train": 0}),
    "npu_lstm_cell": Operator("NPULstmCell", inputs=("input", "w_ih", "w_hh", "h", "c", "bias|b_ih", "b_hh")),
    "npu_masked_fill_range": _plain("NPUMaskedFillRange"),
    "npu_mish": _plain("NPUMish"),
    "npu_moe_finalize_routing": Operator("NPUMoeFinalizeRouting", require={"drop_pad_mode": 0}, drop=("k",)),
    "npu_multi_head_attention": _plain("NPUMultiHeadAttention"),
    "npu_nms_v4": Operator("NPUNmsV4", kinds={"max_output_size": int}),
    "npu_nms_with_mask": Operator("NPUNmsWithMask", kinds={"iou_threshold": float}),
    "npu_normalize_batch": _plain("NPUNormalizeBatch"),
    "npu_one_hot": Operator("NPUOneHot", kinds={"on_value": int, "off_value": int}),
    "npu_ps_roi_pooling": _plain("NPUPsRoiPooling"),
    "npu_ptiou": _plain("NPUIou"),
    "npu_quantize": Operator("NPUQuantize", kinds={"dtype": _element(*(torch.quint8, torch.qint8, torch.qint32))}),
    "npu_rms_norm": _plain("NPURmsNorm"),
    "npu_roi_align": _plain("NPURoiAlign"),
    "npu_rotary_mul": Operator("NPURotaryMul", require={"rotary_mode": "half"}, inputs=("self", "r1", "r2")),
    "npu_rotated_box_decode": _plain("NPURotatedBoxDecode"),
    "npu_rotated_box_encode": _plain("NPURotatedBoxEncode"),
    "npu_rotated_iou": _plain("NPURotatedIou"),
    "npu_rotated_overlaps": _plain("NPURotatedOverlaps"),
    "npu_scaled_masked_softmax": Operator("NPUScaledMaskedSoftmax", kinds={"scale": float}),
    "npu_scatter": _plain("NPUScatter"),
    "npu_scatter_nd_update": _plain("NPUScatterNdUpdate"),
    "npu_sign_bits_pack": _plain("NPUSignBitsPack"),
    "npu_sign_bits_unpack": Operator("NPUSignBitsUnpack", kinds={"dtype": _element(torch.float32, torch.float16)}),
    "npu_slice": _plain("NPUSlice", offsets="offsetss", size="sizes"),
    "npu_softmax_cross_entropy_with_logits": _plain("NPUSoftmaxCrossEntropyWithLogits"),
    "npu_stride_add": Operator("NPUStrideAdd", kinds={"offset1": float, "offset2": float, "c1_len": int}),
    "npu_weight_quant_batchmatmul": Operator(
        "NPUWeightQuantBatchMatmulV2",
        require={"weight_dtype": None},
        drop=("inner_precise",),
        # The result's element type: int8 where it is quantized again, else float16.
        computed={"quant_scale": ("dtype", lambda scale: _ELEMENTS[torch.float16 if scale is None else torch.int8])},
    ),
    "npu_yolo_boxes_encode": _plain("NPUYoloBoxesEncode"),
}
