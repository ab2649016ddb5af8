r"""What the ``torch.npu_*`` operators of large models compute: attention, norms, gated activations, experts."""

from ._custom_op_docs import _FLOAT, Doc

_LAYOUTS = (
    "BSH (batch, positions, heads * width), SBH, BSND (batch, positions, heads, width), BNSD, or TND (positions of all "
    "sequences, heads, width)"
)
_MODES = (
    "what ``atten_mask`` means: 0 and 1 the mask as it is; 2 causal from the first position; 3 causal to the last one; "
    "4 a band of ``pre_tockens`` before and ``next_tockens`` after the diagonal to the last position; 5 a mask with "
    "visible prefixes as it is; 6 like 3, and the first ``prefix`` keys are visible; 7 and 8, with TND, like 3 and 2 "
    "with a band in the last and in the first sequence. Without a mask nothing is hidden"
)
_FUSION = {
    "query": f"of ``input_layout``; {_FLOAT}",
    "key": "of ``input_layout`` and the query's dtype; its heads may be fewer: each serves several of the query's",
    "value": "like key; its width may differ",
    "head_num": "heads of the query",
    "input_layout": _LAYOUTS,
    "pse": "added to the products before they are scaled; broadcast to (batch, heads, queries, keys). With more than "
    "1024 queries, and with TND, it may hold the last 1024 rows of a bias that depends on distances alone",
    "padding_mask": "must be None",
    "atten_mask": "bool or uint8, 1 hides: (queries, keys) or (batch or 1, heads or 1, queries, keys); a matrix of the "
    "longest sequences with TND; of any size with the sparse modes 2, 3, 4, 6, 7 and 8, which do not read it",
    "scale": "factor of the scores",
    "scale_value": "factor of the scores",
    "keep_prob": "probability of keeping an attention weight, in (0, 1]",
    "pre_tockens": "of the band: keys before the diagonal",
    "next_tockens": "of the band: keys after the diagonal",
    "inner_precise": "of no effect: rows in which everything is hidden give 0",
    "prefix": "visible keys of each sequence, for sparse mode 6",
    "actual_seq_qlen": "with TND: where the queries of each sequence end; zeros may follow",
    "actual_seq_kvlen": "with TND: where the keys of each sequence end; zeros may follow",
    "sparse_mode": _MODES,
    "gen_mask_parallel": "of no effect",
    "sync": "of no effect",
    "softmax_layout": "'TND': with that layout the second and third result are by position, then head",
    "sink": "of shape (heads), float32: one more score in each row, of a key without a value",
    "dropout_mask": "bits as :func:`torch_npu._npu_dropout_gen_mask` makes them for all scores; None: drawn",
    "seed": "of the mask; 0: the generator's",
    "offset": "of the mask, with a seed",
    "dy": "gradient of the first result",
    "softmax_max": "second result of the forward operator; with the third and the first one the weights are made again "
    "from them, which may be those of more keys, as attention in a ring has them; else the softmax is computed again",
    "softmax_sum": "third result of the forward operator",
    "softmax_in": "fourth result of the forward operator; not needed",
    "attention_in": "first result of the forward operator",
    "numels": "seventh result of the forward operator; not needed",
}
_GROUPED = {
    "x": f"left operands; {_FLOAT}, or one of int8",
    "weight": "right operands (k, n), or one of shape (groups, k, n); int8 with the factors below",
    "bias": "one for each weight, or None; with x of int8 int32, added before the factors, or floating, after them",
    "scale": "with x of int8: a factor of each group's columns, (groups, n): float32 for a result of float16, bfloat16 "
    "for one of bfloat16, what npu_trans_quant_param makes for one of int8",
    "offset": "must be None",
    "antiquant_scale": "with floating x and weight of int8: that is (weight + antiquant_offset) * antiquant_scale, "
    "(groups, n)",
    "antiquant_offset": "like antiquant_scale, or None",
    "per_token_scale": "with x of int8: a factor of each row, (m), float32; or None",
    "group_list": "where each group of the one left operand ends, as a device tensor or a list",
    "activation_input": "must be None",
    "activation_quant_scale": "must be None",
    "activation_quant_offset": "must be None",
    "split_item": "0 or 1: a result for each weight; 2 or 3: one result",
    "group_type": "-1: no groups; 0: groups of rows; 2: groups of the inner dimension, with a result for each",
    "group_list_type": "0: group_list holds ends; 1: sizes",
    "act_type": "0; with per_token_scale 1: relu, 2: gelu (tanh), 4: fast gelu, 5: silu",
    "tuning_config": "of no effect",
    "output_dtype": "of the results; default that of x",
    "x_dtype": "must be None",
    "weight_dtype": "must be None",
    "scale_dtype": "must be None",
    "per_token_scale_dtype": "must be None",
}
_MOE = {
    "tokens": "of shape (n, width)",
    "indices": "the experts of each token, of shape (n) or (n, experts per token)",
    "num_out_tokens": "rows of the result that are kept, as the end of a slice; None or 0: all",
    "padded_mode": "must be False",
    "permuted_tokens": "of shape (rows, width), in the order of the experts",
    "sorted_indices": "second result of npu_moe_token_permute",
    "probs": "weights of the experts of each token, of shape (n, experts per token); None: one expert, weight 1",
    "restore_shape": "not looked at",
    "grad_permuted_tokens": "gradient of the permuted tokens",
    "grad_unpermuted_tokens": "gradient of the result of npu_moe_token_unpermute",
}
_NORM = {
    "self": f"any tensor; {_FLOAT}",
    "gamma": "of the shape of the last dimensions of self",
    "epsilon": "added to the mean of the squares",
    "dy": "gradient of the first result",
    "rstd": "second result of the forward operator",
}
_ROTARY = {
    "self": f"of three or four dimensions; {_FLOAT}",
    "r1": "cosines, broadcast to self",
    "r2": "sines, of the shape of r1",
    "rotary_mode": "'half': x1 and x2 are the halves of the last dimension; 'interleave': its even and odd elements",
    "rotate": "a matrix that turns instead: turn(x) = x @ rotate",
}
_HALVED = {"self": f"any tensor; {_FLOAT}", "dim": "the dimension that is halved"}
_GEGLU = {
    **_HALVED,
    "approximate": "0: gelu by erf; 1: by tanh",
    "activate_left": "which half goes through gelu: False the right one",
    "gelu": "second result of the forward operator",
}
_LOSS = {
    "input": f"scores of shape (n, classes); {_FLOAT}",
    "target": "classes, of shape (n)",
    "weight": "of each class, of shape (classes), or None",
    "reduction": "'mean' (weighted), 'sum' or 'none'",
    "ignore_index": "targets that do not count",
    "label_smoothing": "share of the loss that all classes have alike, 0 to 1",
    "lse_square_scale_for_zloss": "must be 0: there is no z-loss",
    "return_zloss": "must be False",
    "grad_loss": "gradient of the first result",
    "log_prob": "second result of the forward operator",
    "grad_zloss": "must be None",
    "lse_for_zloss": "not looked at",
}

DOCS = {
    "npu_fusion_attention": Doc(
        "Attention: dropout(softmax(mask(scale * (pse + query @ key^T)))) @ value, differentiable by query, key, "
        "value, pse and sink. Scores are float32; of float16, bfloat16 and float32 they are made in blocks, which are "
        "not kept; other calls are composed of other operators.",
        _FUSION,
        "The result, in the layout and dtype of query; maximum and sum of each row of the scores, float32 of shape "
        "(batch, heads, queries, 8), or (positions, heads, 8) with TND; an empty tensor; seed, offset and number of "
        "elements of the dropout mask.",
    ),
    "npu_fusion_attention_grad": Doc(
        "The gradients of npu_fusion_attention. Scores are computed again, and the same mask is drawn from seed and "
        "offset.",
        _FUSION,
        "The gradients of query, key, value, pse and sink; empty tensors for the last two where they were not given.",
    ),
    "_npu_dropout_gen_mask": Doc(
        "A mask of bits for dropout, 1 for what is kept, drawn from a seed and a place in its sequence.",
        {
            "self": "on whose device the mask is made",
            "size": "shape of what is masked",
            "seed": "of the Philox generator",
            "offset": "place in its sequence",
            "parallel": "of no effect",
            "sync": "of no effect",
        },
        "uint8, a bit for each element, a multiple of 16 bytes.",
    ),
    "npu_rms_norm": Doc(
        "self * rstd * gamma with rstd = 1 / sqrt(mean(self^2) + epsilon) over the dimensions of gamma.",
        _NORM,
        "The result, in the dtype of self; rstd, float32, with size 1 in the dimensions of gamma; it has no gradient.",
    ),
    "npu_rms_norm_backward": Doc("The gradients of npu_rms_norm.", _NORM, "The gradients of self and gamma."),
    "npu_rotary_mul": Doc(
        "Rotary embedding: self * r1 + turn(self) * r2, where turn takes (x1, x2) to (-x2, x1).",
        _ROTARY,
        "A tensor like self.",
    ),
    "npu_rotary_mul_backward": Doc("The gradients of npu_rotary_mul.", _ROTARY, "The gradients of self, r1 and r2."),
    "npu_swiglu": Doc(
        "silu(left half) * right half.", _HALVED, "A tensor of the dtype of self, with half its size in ``dim``."
    ),
    "npu_swiglu_backward": Doc("The gradient of npu_swiglu.", _HALVED, "The gradient of self."),
    "npu_geglu": Doc(
        "The product of one half of self with gelu of the other.",
        _GEGLU,
        "The result; the half that went through gelu, which has no gradient.",
    ),
    "npu_geglu_grad": Doc("The gradient of npu_geglu.", _GEGLU, "The gradient of self."),
    "npu_cross_entropy_loss": Doc(
        "``torch.nn.functional.cross_entropy`` of scores and classes.",
        _LOSS,
        "The loss, of shape (n) without a reduction, else (1); the logarithms of the probabilities, which have no "
        "gradient; two empty tensors.",
    ),
    "npu_cross_entropy_loss_backward": Doc("The gradient of npu_cross_entropy_loss.", _LOSS, "The gradient of input."),
    "npu_grouped_matmul": Doc(
        "Products of groups with one weight each: of lists of equal length, or of one left operand whose rows (or "
        "columns, group_type 2) group_list divides. Rows after the last group give 0. Differentiable by x, weight and "
        "bias; the host does not wait for group_list.",
        _GROUPED,
        "A list of one tensor or of one for each weight.",
    ),
    "npu_moe_token_permute": Doc(
        "Sorts tokens by their experts: each token comes as often as it has experts.",
        _MOE,
        "The permuted tokens; int32, where each of the n * experts per token rows went.",
    ),
    "npu_moe_token_permute_grad": Doc("The gradient of npu_moe_token_permute.", _MOE, "The gradient of tokens."),
    "npu_moe_token_unpermute": Doc(
        "Puts permuted tokens back and adds up those of one token, weighted by probs. Rows that "
        "npu_moe_token_permute has cut off count as 0.",
        _MOE,
        "A tensor of shape (n, width).",
    ),
    "npu_moe_token_unpermute_grad": Doc(
        "The gradients of npu_moe_token_unpermute.",
        _MOE,
        "The gradients of the permuted tokens and of probs; an empty tensor for the latter without probs.",
    ),
}
