r"""What the ``torch.npu_*`` operators compute: formats, shapes, layers, object detection."""

from ._custom_op_docs import _BOX, _FLOAT, _SINGLE, Doc

_FORMATS = "0 NCHW, 1 NHWC, 2 ND, 3 NC1HWC0, 4 FRACTAL_Z, 29 FRACTAL_NZ, 30 NCDHW, 32 NDC1HWC0, 33 FRACTAL_Z_3D"
_X = {"self": "any tensor", "input": "any tensor"}
_CONV = {
    "input": f"of shape (batch, in channels, spatial ...); {_FLOAT}",
    "weight": "of shape (out channels, in channels / groups, window ...)",
    "grad_output": "gradient of the result",
    "grad": "gradient of the result",
    "grad_input_mask": "which of the three gradients are wanted",
}
_TRANSPOSED = {**_CONV, "weight": "of shape (in channels, out channels / groups, window ...)"}
_GRADS = "The gradients of input, weight and bias."
_ROTATED = f"rotated boxes of shape (batch, 5, n): centre, size and angle in degrees, or corners and angle; {_SINGLE}"
_ROIS = "of shape (n, 5): index of the image, then corners in the image's pixels"
_PS_ROIS = "of shape (batch, 5, n): index of the image, then corners"
_MODE = "0: intersection over union; 1: intersection over the area of {}"
_END = "0: corners as they are; 1: the last pixel is inside; 2: aligned by half a pixel"
_DEFORM = {
    "input": f"of shape (batch, in channels, h, w); {_SINGLE}",
    "weight": "of shape (out channels, in channels / groups, kh, kw)",
    "offset": "of shape (batch, 3 * deformable_groups * kh * kw, out h, out w): all x displacements, all y, all masks",
    "kernel_size": "kh and kw",
    "stride": "four numbers, the last two are those of height and width",
    "padding": "four numbers: above, below, left, right",
    "dilation": "four numbers, the last two are those of height and width",
    "offset_out": "second result of the forward operator",
}


def _conv(rank: str) -> Doc:
    return Doc(
        f"{rank}: ``torch.nn.functional.conv{rank[0]}d`` with the padding of both sides alike.", _CONV, "The result."
    )


DOCS = {
    "npu_format_cast": Doc(
        f"Copies a tensor into another format of device memory: {_FORMATS}. Values and shape stay; the private formats "
        "(3, 4, 29, 32, 33) pad channels, rows and columns to blocks. Every operator takes such tensors, and a "
        "gradient "
        "passes unchanged.",
        {"self": "any npu tensor", "acl_format": "number of the format", "dst": "a tensor whose format is taken"},
        "A new tensor in that format.",
        "RuntimeError: there is no such format, or tensors of this number of dimensions do not have it.",
    ),
    "npu_format_cast_": Doc(
        f"Changes the format of a tensor's memory in place: {_FORMATS}. With ``src`` its values are copied into "
        f"``self``, "
        "which keeps its format.",
        {"self": "an npu tensor that fills its storage", "acl_format": "number of the format", "src": "values to copy"},
        "``self``.",
        "RuntimeError: there is no such format, or the tensor is a view of a part of its storage.",
    ),
    "get_npu_format": Doc(
        f"The format in which device memory holds a tensor: {_FORMATS}. Views of a tensor in a private format count as "
        "plain: 0 for four dimensions, 30 for five, 2 otherwise.",
        {"self": "any tensor"},
        "int: the number of the format.",
        "nothing",
    ),
    "npu_set_": Doc(
        "Makes a tensor a view of a storage, as ``Tensor.set_`` does, and changes the storage's format.",
        {
            "self": "the tensor to change",
            "source": "storage on the same device",
            "storage_offset": "in elements",
            "npu_format": f"number of the format: {_FORMATS}",
            "size": "new shape",
            "stride": "new strides; contiguous if empty",
        },
        "``self``.",
    ),
    "npu_broadcast": Doc(
        "``self.expand(size)``, as a contiguous tensor of its own.",
        {**_X, "size": "the shape to expand to"},
        "The result.",
    ),
    "npu_transpose": Doc(
        "``self.permute(perm)``, as a contiguous tensor of its own.",
        {**_X, "perm": "order of dimensions"},
        "The result.",
    ),
    "npu_reshape": Doc(
        "``self.reshape(shape)``, as a tensor of its own.",
        {**_X, "shape": "new shape, one -1 allowed", "can_refresh": "has no effect"},
        "The result.",
    ),
    "npu_slice": Doc(
        "The part of ``self`` that begins at ``offsets``.",
        {**_X, "offsets": "first index in each dimension", "size": "length in each dimension, -1 for all that is left"},
        "The part, contiguous.",
    ),
    "npu_indexing": Doc(
        "Slices with steps, as TensorFlow's strided_slice: position i of the lists is ``begin[i]:end[i]:strides[i]``, "
        "and bits of the masks give it another meaning.",
        {
            **_X,
            "begin": "first index of each position; negative ones count from the end",
            "end": "first index that is left out",
            "strides": "steps, which may be negative, not 0",
            "begin_mask": "bit i: ``begin[i]`` is as far out as possible",
            "end_mask": "bit i: ``end[i]`` is as far out as possible",
            "ellipsis_mask": "bit i: position i stands for all dimensions that are not mentioned; one bit at most",
            "new_axis_mask": "bit i: position i is a new dimension of size 1",
            "shrink_axis_mask": "bit i: position i takes the one index ``begin[i]`` and drops the dimension",
        },
        "The selected part, contiguous.",
    ),
    "npu_pad": Doc(
        "Pads with zeros.",
        {"input": "any tensor", "paddings": "pairs (before, after), from the first dimension on"},
        "The padded tensor.",
    ),
    "npu_one_hot": Doc(
        "``on_value`` where the class is the index along a new dimension, else ``off_value``; classes outside of "
        "``depth`` give none.",
        {
            "self": "classes, integers of any shape",
            "num_classes": "place of the new dimension (not a number of classes)",
            "depth": "size of the new dimension",
            "on_value": "value of the class's place",
            "off_value": "value elsewhere",
        },
        "A float32 tensor with one dimension more.",
    ),
    "npu_scatter": Doc(
        "A copy of ``self`` with ``self[..., indices, ...] = updates`` along ``dim``.",
        {
            **_X,
            "indices": "int32 or int64; of the shape of self without ``dim``, or as for ``torch.scatter``; "
            "empty: a copy",
            "updates": "values, of the shape of the indices",
            "dim": "the indexed dimension",
        },
        "The result, of the shape of self.",
    ),
    "npu_dtype_cast": Doc("A copy in another dtype.", {**_X, "dtype": "dtype of the result"}, "The copy."),
    "npu_dtype_cast_": Doc(
        "Copies values of another dtype into a tensor.", {"self": "receives them", "src": "values"}, "``self``."
    ),
    "npu_confusion_transpose": Doc(
        "``self.permute(perm).reshape(shape)`` if ``transpose_first``, else ``self.reshape(shape).permute(perm)``.",
        {**_X, "perm": "order of dimensions", "shape": "shape to reshape to", "transpose_first": "which comes first"},
        "The result, contiguous.",
    ),
    "npu_confusion_transpose_backward": Doc(
        "The gradient of npu_confusion_transpose.",
        {"perm": "as given forwards", "shape": "shape of its input", "transpose_first": "as given forwards"},
        "The gradient of the input.",
    ),
    "npu_masked_fill_range": Doc(
        "A copy of ``self`` in which, for each row n and each range r, ``[n, ..., start[r, n]:end[r, n]]`` "
        "along ``axis`` "
        "is ``value[r]``. Later ranges win.",
        {
            "self": "of 1 to 3 dimensions; rows are those of the first, a vector is one row",
            "start": "integers of shape (ranges, rows)",
            "end": "integers of shape (ranges, rows)",
            "value": "one value per range",
            "axis": "the dimension that ranges are counted in",
        },
        "The result.",
    ),
    "npu_stride_copy": Doc(
        "``self.as_strided(shape, stride, storage_offset)``, as a contiguous tensor of its own.",
        {**_X, "shape": "shape of the view", "stride": "its strides", "storage_offset": "its first element"},
        "The result.",
    ),
    "npu_stride_add": Doc(
        "Adds blocks of 16 channels: ``y[:, c] = self[:, 16 * offset1 + c] + other[:, 16 * offset2 + c]`` for c below "
        "``16 * c1_len``; channels that are not there count as zeros.",
        {
            "self": "of shape (n, c, ...)",
            "other": "of the same shape, channels apart",
            "offset1": "first block of self",
            "offset2": "first block of other",
            "c1_len": "number of blocks",
        },
        "A tensor with ``16 * c1_len`` channels.",
    ),
    "npu_sort_v2": Doc(
        "Sorted values, without indices.", {**_X, "dim": "dimension to sort", "descending": "order"}, "The values."
    ),
    "npu_linear": Doc(
        "``input @ weight.T + bias``.",
        {"input": f"of shape (..., features); {_FLOAT}", "weight": "of shape (out features, features)"},
        "Of shape (..., out features).",
    ),
    "npu_linear_backward": Doc(
        "The gradients of npu_linear.",
        {"input": "as given forwards", "weight": "as given forwards"},
        "Those of input and weight.",
    ),
    "npu_bmmV2": Doc(
        "``self @ mat2``, batch dimensions broadcast.",
        {
            "self": "of 2 or more dimensions",
            "mat2": "of 2 or more dimensions",
            "output_sizes": "[] or the shape of the result: batch dimensions of size 1 or left out are summed",
        },
        "The product.",
    ),
    "npu_silu": Doc("``self * sigmoid(self)``.", {"self": _FLOAT}, "Of the same shape and dtype."),
    "npu_silu_": Doc(
        "``self * sigmoid(self)`` in place.", {"self": _FLOAT}, "``self``, of the same shape and dtype as before."
    ),
    "npu_silu_backward": Doc(
        "The gradient of npu_silu.", {"x0": "its input", "x1": "its result (not needed here)"}, "That of the input."
    ),
    "npu_mish": Doc(
        "``self * tanh(log(1 + exp(self)))``.", {"self": _FLOAT}, "Of the same shape and dtype as the input."
    ),
    "npu_mish_backward": Doc("The gradient of npu_mish.", {"input": "its input"}, "That of the input."),
    "npu_softmax_cross_entropy_with_logits": Doc(
        "``-(labels * log_softmax(self)).sum(-1)``: the cross entropy of each sample.",
        {"self": f"logits of shape (batch, classes); {_FLOAT}", "labels": "probabilities of the same shape"},
        "Of shape (batch).",
    ),
    "npu_softmax_cross_entropy_with_logits_backward": Doc(
        "The gradient of npu_softmax_cross_entropy_with_logits by the logits.",
        {"self": "logits", "labels": "probabilities", "grad": "gradient of the loss, of shape (batch)"},
        "Of shape (batch, classes).",
    ),
    "npu_layer_norm_eval": Doc(
        "``torch.nn.functional.layer_norm``.",
        {
            "input": _FLOAT,
            "normalized_shape": "the last dimensions, over which is normalised",
            "weight": "factors, or None",
            "bias": "summands, or None",
            "eps": "added to the variance",
        },
        "Of the shape of the input.",
    ),
    "npu_normalize_batch": Doc(
        "Standardises each sample by its first ``seq_len`` steps: ``(x - mean) / (std + 1e-5)``, with the standard "
        "deviation of a sample (n - 1).",
        {
            "self": f"of shape (n, c, d); {_FLOAT}",
            "seq_len": "integers of shape (n), 2 at least",
            "normalize_type": "0: mean and deviation of each of the c features; 1: of all together",
        },
        "Of shape (n, c, d).",
    ),
    "npu_conv2d": _conv("2-D convolution"),
    "npu_conv3d": _conv("3-D convolution"),
    "npu_convolution": Doc(
        "The convolution of one, two or three dimensions that ``torch.nn.functional`` has for the input's rank.",
        _CONV,
        "The result.",
    ),
    "npu_conv_transpose2d": Doc(
        "``torch.nn.functional.conv_transpose2d``, arguments in another order.", _TRANSPOSED, "The result."
    ),
    "npu_convolution_transpose": Doc(
        "The transposed convolution that ``torch.nn.functional`` has for the input's rank.", _TRANSPOSED, "The result."
    ),
    **{
        f"{name}_backward": Doc(f"The gradients of {name}.", args, _GRADS)
        for name, args in (
            ("npu_conv2d", _CONV),
            ("npu_conv3d", _CONV),
            ("npu_convolution", _CONV),
            ("npu_conv_transpose2d", _TRANSPOSED),
            ("npu_conv_transpose3d", _TRANSPOSED),
            ("npu_convolution_transpose", _TRANSPOSED),
        )
    },
    "npu_convolution_double_backward": Doc(
        "The gradients of npu_convolution_backward, given those of its results.",
        {
            **_CONV,
            "ggI": "gradient of the input's gradient, or None",
            "ggW": "gradient of the weight's gradient, or None",
            "ggb": "gradient of the bias's gradient, or None",
            "gO": "the gradient that was given to npu_convolution_backward",
        },
        "The gradients of gO, input and weight.",
    ),
    "npu_bounding_box_decode": Doc(
        "Boxes from regions and what a network says about them: with ``d = deltas * stds + means`` and ``w = x2 "
        "- x1 + 1`` "
        "the centre moves by ``d_x * w`` and the width becomes ``w * exp(d_w)``, likewise y and height; corners "
        "are then "
        "clamped to the image.",
        {
            "rois": _BOX,
            "deltas": "of the same shape: dx, dy, dw, dh",
            "max_shape": "height and width of the image",
            "wh_ratio_clip": "dw and dh are clamped to the absolute value of its logarithm",
        },
        "Boxes of shape (n, 4).",
    ),
    **{
        name: Doc(
            "How much boxes overlap; those without an area overlap nothing. By the intersection over the union, "
            "or over "
            "the ground truth's area.",
            {"bboxes": _BOX, "gtboxes": _BOX, "mode": _MODE.format("the ground truth")},
            "Of shape (number of gtboxes, number of bboxes).",
        )
        for name in ("npu_iou", "npu_ptiou")
    },
    "npu_giou": Doc(
        "Generalised overlap: ``inner / union - (hull - union) / hull``, hull being the area of the box around both.",
        {
            "self": f"boxes of shape (4, n); {_FLOAT}",
            "gtboxes": "boxes of shape (4, m)",
            "is_cross": "each with each, else one to one",
            "mode": _MODE.format("the ground truth"),
        },
        "Of shape (n, m) if is_cross, else (n, 1).",
    ),
    "npu_giou_backward": Doc(
        "The gradients of npu_giou, for ``is_cross=False`` and ``mode=0``.",
        {"bboxes": "of shape (4, n)", "gtboxes": "of shape (4, n)", "is_cross": "False", "mode": "0"},
        "Those of both boxes.",
        "NotImplementedError: other modes have no gradient.",
    ),
    "npu_nms_rotated": Doc(
        "Indices of rotated boxes by falling score, without those that overlap a better one. The number is "
        "known on the "
        "device, so the host waits.",
        {
            "self": f"of shape (n, 5); {_SINGLE}",
            "scores": "of shape (n)",
            "scores_threshold": "boxes need a higher score",
            "max_output_size": "the most boxes to select, -1 for all",
            "mode": "0: x, y, w, h, angle; 1: x1, y1, x2, y2, angle; angles in degrees",
        },
        "Indices (int32) and their number (int32, one element).",
    ),
    "npu_rotated_box_encode": Doc(
        "What turns anchors into rotated boxes, times ``weight``: differences of the centres by the anchor's size, "
        "logarithms of the sizes' ratios, and the difference of the angles' tangents.",
        {"self": "anchors (batch, 5, n): corners, angle in degrees", "gt_bboxes": "likewise", "weight": "five factors"},
        "Of shape (batch, 5, n).",
    ),
    "npu_rotated_box_decode": Doc(
        "The inverse of npu_rotated_box_encode.",
        {
            "self": "anchors (batch, 5, n): corners, angle in degrees",
            "deltas": "of that shape",
            "weight": "five factors",
        },
        "Boxes (batch, 5, n): corners, angle in degrees.",
    ),
    "npu_sub_sample": Doc(
        "A random choice of labels for training: at most ``per_images``, of them at most ``positive_fraction`` "
        "positive.",
        {
            "self": "int32 of shape (n): 1 positive, 0 negative, -1 ignored",
            "per_images": "how many labels stay",
            "positive_fraction": "the largest share of positive ones, 0 to 1",
        },
        "int32 of shape (n), -1 for labels that were not chosen.",
    ),
    "npu_random_choice_with_mask": Doc(
        "Indices of non-zero elements in random order.",
        {
            "x": "bool, or a number per element, of one or more dimensions",
            "count": "rows of the result; 0: as many as there are such elements (the host waits)",
            "seed": "with seed2 the same choice again; both 0: the generator's next",
            "seed2": "second half of the seed",
        },
        "Indices (int32, count x dimensions), padded with zeros, and whether a row is an index (bool, count).",
    ),
    "npu_roi_alignbk": Doc(
        "The gradient of npu_roi_align by the features.",
        {
            "self": "gradient of the result",
            "rois": _ROIS,
            "xdiff_shape": "shape of the features",
            "pooled_height": "as given forwards",
            "pooled_width": "as given forwards",
            "sample_num": "as given forwards",
            "roi_end_mode": _END + "; None means 1",
        },
        "Of shape xdiff_shape.",
    ),
    "npu_ps_roi_pooling_backward": Doc(
        "The gradient of npu_ps_roi_pooling by the features.",
        {
            "output_grad": "gradient of the result",
            "rois": _PS_ROIS,
            "group_size": "as given forwards",
            "output_dim": "as given forwards",
            "input_size": "height and width of the features",
        },
        "Of the shape of the features.",
    ),
    "npu_deformable_conv2d": Doc(
        "A convolution whose window has learned displacements: sample k of a window is taken bilinearly at its "
        "place plus "
        "``(offset x, offset y)`` and multiplied by its mask.",
        _DEFORM,
        "The result (batch, out channels, out h, out w), and the samples (batch, in channels, out h * kh, out w * kw).",
    ),
    "npu_deformable_conv2dbk": Doc(
        "The gradients of npu_deformable_conv2d.", _DEFORM, "Those of input, weight, offset and bias."
    ),
}
