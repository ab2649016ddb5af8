r"""What the ``torch.npu_*`` operators of small integers compute: quantising, products of quantised tensors, signs."""

from ._custom_op_docs import _FLOAT, Doc

_TYPE = "None or int8; or quint4x2: eight numbers of four bits in each int32, the last dimension being a multiple of 8"
_QUANT = {
    "self": f"any tensor; {_FLOAT}",
    "x": f"any tensor; {_FLOAT}",
    "input": f"of two dimensions or more; {_FLOAT}",
    "scales": "of one dimension, along ``axis``; or broadcast to self",
    "zero_points": "like scales, or None",
    "dtype": "torch.qint8, quint8, qint32 (results are int8, uint8, int32) or quint4x2",
    "axis": "the dimension that scales go along; without div_mode the last one, or with -2 the last but one",
    "div_mode": "whether scales divide, or are factors",
    "scale": "of each group, of shape (groups, width)",
    "group_index": "where each group of rows ends, ascending",
    "offset": "of one element, added; or None",
    "dst_dtype": _TYPE,
    "dst_type": _TYPE,
    "smooth_scales": "factors of the last dimension before, of shape (width), or (groups, width) with group_index",
    "quant_mode": "must be 'pertoken'",
    "dst_type_max": "must be 0",
}
_PRODUCT = {
    "x1": "int8; or int32 that hold eight numbers of four bits along the last dimension",
    "x2": "of the dtype of x1; packed along n, or a view that transposes a matrix packed along k",
    "scale": "of shape (1) or (n): float32, bfloat16, or what npu_trans_quant_param makes",
    "offset": "of shape (1) or (n), added to a result of int8; or None",
    "pertoken_scale": "of shape (m), a factor of each row; or None",
    "bias": "of shape (n): int32, added before the scales, or floating, added after; or None",
    "output_dtype": "int8 (None), float16, bfloat16 or float32",
    "x1_dtype": "must be None",
    "x2_dtype": "must be None",
    "pertoken_scale_dtype": "must be None",
    "scale_dtype": "must be None",
    "group_sizes": "must be None",
    "y_scale": "must be None",
}
DOCS = {
    "npu_anti_quant": Doc(
        "(x + offset) * scale, in float32.",
        {
            "x": "int8; or int32, each of which holds eight numbers of four bits",
            "scale": "of shape (1), or along the last dimension of the result",
            "offset": "of the shape of scale, or None",
            "dst_dtype": "float16 (None), bfloat16 or float32",
            "src_dtype": "None, or that of x",
        },
        "A tensor like x, or with eight times its last dimension.",
    ),
    "npu_quantize": Doc(
        "round(self / scales + zero_points), or self * scales, within the bounds of the dtype; halves go to "
        "even numbers.",
        _QUANT,
        "Integers of the shape of self, or an eighth of its last dimension.",
    ),
    "npu_group_quant": Doc(
        "round(x * scale + offset), each group of rows with a scale of its own.",
        {**_QUANT, "x": f"of shape (rows, width); {_FLOAT}"},
        "Integers of the shape of x, or an eighth of its last dimension.",
    ),
    "npu_dynamic_quant": Doc(
        "round(x / scale) with scale = max(abs(x)) / the largest integer, of each row.",
        _QUANT,
        "The integers; the scales, float32, of the shape without the last dimension.",
    ),
    "npu_dynamic_quant_asymmetric": Doc(
        "round(x / scale + offset) with scale = (max - min) / (number of integers - 1) and offset = the "
        "largest integer - "
        "max / scale, of each row. The scale of a row of equal numbers is 1.",
        _QUANT,
        "The integers; scales and offsets, float32, of the shape without the last dimension.",
    ),
    "npu_trans_quant_param": Doc(
        "Scales as the hardware takes them: the upper 19 bits of a float32 in the lower half of an int64, "
        "bit 46 set, and "
        "the rounded offset in the bits 37 to 45.",
        {"scale": "float32", "offset": "float32, or None", "round_mode": "must be 0: the other bits are cut off"},
        "int64.",
    ),
    "npu_quant_matmul": Doc(
        "(x1 @ x2 + bias) * scale * pertoken_scale + offset; the product is exact.",
        _PRODUCT,
        "A tensor of output_dtype; int8 is rounded, halves to even numbers, and kept within its bounds.",
    ),
    "npu_weight_quant_batchmatmul": Doc(
        "x @ ((weight + antiquant_offset) * antiquant_scale) + bias, differentiable by x; with quant_scale that * "
        "quant_scale + quant_offset, rounded.",
        {
            "x": f"of shape (m, k); {_FLOAT}",
            "weight": "of shape (k, n), int8; or (k, n / 8), int32, each of which holds eight numbers of four bits; or "
            "a view that transposes such, (k / 8, n)",
            "antiquant_scale": "of shape (1), (n), (1, n), or (groups, n)",
            "antiquant_offset": "of the shape of antiquant_scale, or None",
            "quant_scale": "of shape (1), (n) or (1, n), float32 or what npu_trans_quant_param makes; or None",
            "quant_offset": "likewise float32, or None",
            "bias": "of shape (n) or (1, n), or None",
            "antiquant_group_size": "rows of the weight that share a scale; 0: all",
            "inner_precise": "of no effect",
            "weight_dtype": "must be None",
        },
        "Of shape (m, n), in the dtype of x, or int8 with quant_scale.",
    ),
    "npu_sign_bits_pack": Doc(
        "Eight signs in each byte, the first in the lowest bit: 1 for numbers that are not negative.",
        {"self": f"of one dimension; {_FLOAT}", "size": "a divisor of the bytes"},
        "uint8, of shape (size, bytes / size); the bits after the last number are 0.",
    ),
    "npu_sign_bits_unpack": Doc(
        "1 for each bit that is set, else -1.",
        {"input": "uint8, of one dimension", "size": "a divisor of eight times the bytes", "dtype": "of the result"},
        "Of shape (size, 8 * bytes / size).",
    ),
}
