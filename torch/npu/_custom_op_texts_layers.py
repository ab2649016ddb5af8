r"""What further ``torch.npu_*`` operators of large models compute: norms, activations, rotary embeddings, routing."""

from ._custom_op_docs import _FLOAT, Doc
from ._custom_op_texts_transformer import _NORM, _ROTARY

_APPROXIMATE = "'none': by erf; 'tanh': by tanh"
_STATISTICS = "mean and reciprocal standard deviation, of shape (n, groups) and the input's dtype, without a gradient"
_GROUPS = {
    "input": f"of shape (n, channels, ...); {_FLOAT}",
    "weight": "of shape (channels), or None",
    "bias": "of shape (channels), or None",
    "group": "a divisor of the channels",
    "num_groups": "a divisor of the channels",
    "eps": "added to the variance",
    "swish_scale": "factor inside of the sigmoid",
}
_RESIDUAL = {
    **_NORM,
    "x1": f"any tensor; {_FLOAT}",
    "x2": "of the same shape",
    "gamma": "of the shape of the last dimensions",
}
_DEEP = {
    "x": f"any tensor; {_FLOAT}",
    "gx": "of the same shape",
    "beta": "of the shape of gamma",
    "gamma": "of the shape of the last dimensions",
    "alpha": "factor of x",
    "epsilon": "added to the variance",
}
_MASKED = {
    "x": f"any tensor; {_FLOAT}",
    "mask": "bools that broadcast to x: True hides",
    "scale": "factor of x",
    "fixed_triu_mask": "must be False",
    "y": "result of the forward operator",
    "y_grad": "gradient of the result",
}
_NEW = {
    "self": f"any tensor; {_FLOAT}",
    "grad": "gradient of the result",
    "grad_output": "gradient of the result",
    "approximate": _APPROXIMATE,
}
_PLACES = {
    "self": "any tensor",
    "indices": "int32 or int64, of shape (..., a): where the first a dimensions of self are written",
    "updates": "of self's dtype and of shape (..., the other dimensions of self)",
}
_ROUTING = {
    "x": f"of shape (rows, experts), or (batch, rows, experts); {_FLOAT}",
    "finished": "must be None",
    "k": "how many experts of each row are taken",
    "row_idx": "int32, of shape (rows, k): third result of npu_moe_gating_top_k_softmax",
    "expert_idx": "int32, of shape (rows, k): its second result",
    "active_num": "rows that are served at most",
    "sorted_expert_for_source_row": "of one dimension, ascending",
    "num_expert": "number of experts",
    "expanded_permuted_rows": f"rows in the order of their experts, of shape (rows * k, width); {_FLOAT}",
    "skip1": "of shape (rows, width), added to the result; or None",
    "skip2": "likewise",
    "bias": "of each expert, of shape (experts, width); or None",
    "scales": "weights of shape (rows, k), or None: 1",
    "expanded_src_to_dst_row": "where each row went, of shape (rows * k); -1: nowhere, which gives 0",
    "export_for_source_row": "the experts of each row, of shape (rows, k); needed with bias",
    "drop_pad_mode": "0 or 1: the places stand by columns, all rows for the first expert before; 2 or 3: by rows",
}
DOCS = {
    "npu_gelu": Doc("``torch.nn.functional.gelu``.", _NEW, "A tensor like self."),
    "npu_gelu_backward": Doc("The gradient of npu_gelu.", _NEW, "The gradient of self."),
    "npu_gelu_mul": Doc(
        "gelu(left half) * right half, of the last dimension.",
        {"input": f"any tensor; {_FLOAT}", "approximate": _APPROXIMATE},
        "A tensor of the input's dtype, with half its size in the last dimension.",
    ),
    "npu_fast_gelu": Doc("self * sigmoid(1.702 * self), which is near gelu.", _NEW, "A tensor like self."),
    "npu_fast_gelu_backward": Doc("The gradient of npu_fast_gelu.", _NEW, "The gradient of self."),
    "npu_add_rms_norm": Doc(
        "npu_rms_norm of x1 + x2.",
        _RESIDUAL,
        "The result, in the dtype of x1; rstd, float32, with size 1 in the dimensions of gamma; the sum, like x1.",
    ),
    "npu_gemma_rms_norm": Doc(
        "npu_rms_norm with 1 + gamma in the place of gamma.",
        _NORM,
        "The result, in the dtype of self; rstd, float32, with size 1 in the dimensions of gamma; it has no gradient.",
    ),
    "npu_deep_norm": Doc(
        "The layer norm of alpha * x + gx over the dimensions of gamma.",
        _DEEP,
        "The mean and the reciprocal standard deviation, float32, with size 1 in those dimensions, without a gradient; "
        "the result, in the dtype of x.",
    ),
    "npu_group_norm_silu": Doc("silu of the group norm.", _GROUPS, f"The result, like the input; {_STATISTICS}."),
    "npu_group_norm_swish": Doc(
        "y * sigmoid(swish_scale * y), y being the group norm.", _GROUPS, f"The result, like the input; {_STATISTICS}."
    ),
    "npu_interleave_rope": Doc(
        "Rotary embedding of pairs: their first elements become the left half of the last dimension, the "
        "second ones the "
        "right; then as npu_rotary_mul.",
        {
            "x": f"of shape (batch, heads, positions, even width); {_FLOAT}",
            "cos": "cosines, broadcast to x",
            "sin": "sines, of the shape of cos",
        },
        "A tensor like x.",
    ),
    "npu_apply_rotary_pos_emb": Doc(
        "npu_rotary_mul of queries and of keys.",
        {
            "query": f"of ``layout``; {_FLOAT}",
            "key": "likewise; its heads may be fewer",
            "cos": "cosines, broadcast to both: one head",
            "sin": "sines, of the shape of cos",
            "layout": "BSND, SBND, BNSD or TND",
            "rotary_mode": _ROTARY["rotary_mode"],
        },
        "The turned queries and keys; the operands stay as they are.",
    ),
    "npu_scaled_masked_softmax": Doc(
        "The softmax of scale * x along the last dimension, with -10000 where the mask hides.",
        _MASKED,
        "A tensor like x.",
    ),
    "npu_scaled_masked_softmax_backward": Doc(
        "The gradient of npu_scaled_masked_softmax.", _MASKED, "The gradient of x."
    ),
    "npu_scatter_nd_update": Doc("A copy of self with updates at indices.", _PLACES, "The copy."),
    "npu_scatter_nd_update_": Doc("Writes updates at indices of self.", _PLACES, "self."),
    "npu_moe_compute_expert_tokens": Doc(
        "Where the rows of each expert end in the order of their experts.",
        _ROUTING,
        "Of shape (num_expert) and the operand's dtype.",
    ),
    "npu_moe_gating_top_k_softmax": Doc(
        "The k largest of each row's softmax.",
        _ROUTING,
        "The weights, like x with k in the last dimension; the experts, int32; the numbers of the places, counted by "
        "columns, int32.",
    ),
    "npu_moe_init_routing": Doc(
        "Copies rows to the order of their experts.",
        {**_ROUTING, "x": "of shape (rows, width)"},
        "The copies, of shape (min(rows, active_num) * k, width); where each went, int32, of shape (rows * "
        "k); the sorted "
        "experts.",
    ),
    "npu_moe_finalize_routing": Doc(
        "Adds up what the experts made of each row, weighted.",
        {**_ROUTING, "k": "experts of each row where scales is None"},
        "Of shape (rows, width).",
    ),
}
