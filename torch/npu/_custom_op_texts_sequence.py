r"""What the ``torch.npu_*`` operators compute: reductions, recurrent layers, attention, dropout, optimizers."""

from ._custom_op_docs import _FLOAT, Doc

_LSTM = {
    "input": f"of shape (time, batch, features); {_FLOAT}",
    "weight": "of shape (features + hidden, 4 * hidden): gates input, forget, candidate, output",
    "bias": "of shape (4 * hidden)",
    "seqMask": "with flagSeq: lengths (batch) as integers, or a mask (time, batch, hidden); steps outside keep "
    "the state "
    "and give 0",
    "h": "first state, of shape (1, batch, hidden)",
    "c": "first cell, of shape (1, batch, hidden)",
    "hx": "first state",
    "cx": "first cell",
    "flagSeq": "whether seqMask is looked at",
    "seq_mask": "another name of seqMask",
    "flag_seq": "another name of flagSeq",
    "direction": "True: backwards in time",
}
_DATA = {
    **_LSTM,
    "input": f"padded sequences, the longest first, of shape (time, batch, features); {_FLOAT}",
    "batch_sizes": "how many sequences reach each step, of shape (time,), integers; on the host or the device",
    "seq_mask": "with flag_seq: a mask (time, batch, hidden); of lengths batch_sizes makes the mask",
    "flag_seq": "whether sequences end before the last step",
    "grady_opt": "gradient of ``y``, or None",
    "gradh_opt": "gradient of ``h``, of all its steps, or None",
    "gradc_opt": "gradient of ``c``, of all its steps, or None",
    "init_h": "first state",
    "init_c": "first cell",
    "y": "first result of the forward operator",
    "flag_direction": "the forward operator's direction",
}
_CELL = {
    "input": f"of shape (batch, features); {_FLOAT}",
    "w_ih": "of shape (features, 4 * hidden): gates input, forget, candidate, output",
    "w_hh": "of shape (hidden, 4 * hidden)",
    "h": "state, of shape (batch, hidden)",
    "c": "cell, of shape (batch, hidden)",
    "bias": "of shape (4 * hidden), or None",
}
_GRU = {
    "input": f"of shape (time, batch, features); {_FLOAT}",
    "hx": "first state, of shape (1, batch, hidden)",
    "weight_input": "of shape (features, 3 * hidden): gates reset, update, new",
    "weight_hidden": "of shape (hidden, 3 * hidden)",
    "bias_input": "of shape (3 * hidden)",
    "bias_hidden": "of shape (3 * hidden)",
    "seq_length": "not looked at, as on a card",
    "output_updata": "update gates, as the forward operator returned them",
    "output_reset": "reset gates, as the forward operator returned them",
    "output_new": "candidates, as the forward operator returned them",
    "hidden_new": "the hidden part of the candidates, as the forward operator returned it",
}
_ATTENTION = {
    "query": f"of shape (batch * tgt_len, features); {_FLOAT}",
    "key": "of shape (batch * src_len, features)",
    "value": "of shape (batch * src_len, features)",
    "query_weight": "of shape (heads * size, features)",
    "key_weight": "of shape (heads * size, features)",
    "value_weight": "of shape (heads * size, features)",
    "attn_mask": "added to the scores, of shape (batch, heads, tgt_len, src_len); it has no gradient",
    "out_proj_weight": "of shape (out features, heads * size)",
    "query_bias": "or None",
    "key_bias": "or None",
    "value_bias": "or None",
    "out_proj_bias": "or None",
    "dropout_mask": "bits as npu_dropout_gen_mask makes them for the scores, or None; not looked at without dropout",
    "query_res": "third result of the forward operator",
    "key_res": "fourth result of the forward operator",
    "value_res": "fifth result of the forward operator",
    "attn_scores": "sixth result of the forward operator",
    "attn_res": "seventh result of the forward operator",
    "context": "eighth result of the forward operator",
    "y_grad": "gradient of the first result",
}
_LAYER = "NotImplementedError: more than one layer or direction, or batch first. RuntimeError: shapes do not fit."
_BITS = "one bit per element, the lowest first, padded to 128 bits; uint8"
_STATE = "NotImplementedError: without ``out``. RuntimeError: shapes do not fit."


def _reduction(word: str) -> dict:
    return {
        f"npu_{word}": Doc(
            f"``torch.{word}(self, dim, keepdim)`` with int32 indices.",
            {
                "self": "any real tensor",
                "dim": "dimension to reduce; named dimensions ended with torch's named tensors",
            },
            "Values, and int32 indices.",
            "NotImplementedError: the dimension is given by name.",
        ),
        f"npu_{word}_backward": Doc(
            f"The gradient of npu_{word}: zeros with ``grad`` at ``indices``.",
            {
                "dim": "as given forwards",
                "indices": "second result of the forward operator",
                "sizes": "shape of the input",
            },
            "The gradient of the input.",
        ),
    }


DOCS = {
    **_reduction("max"),
    **_reduction("min"),
    "npu_lstm": Doc(
        "An LSTM layer in one direction: ``i, f, j, o`` are the gates of ``[x_t, h] @ weight + bias``, ``c = "
        "sigmoid(f) * c "
        "+ sigmoid(i) * tanh(j)`` and ``h = sigmoid(o) * tanh(c)``.",
        _LSTM,
        "y, h, c of all steps, and what the gradient needs (i, j, f, o, tanh(c)); each (time, batch, hidden).",
        _LAYER,
    ),
    "npu_lstm_backward": Doc(
        "The gradients of npu_lstm, forwards in time and without seqMask.",
        _LSTM,
        "Those of input, weight, bias, h and c.",
    ),
    "npu_lstm_data": Doc(
        "npu_lstm over padded sequences of several lengths, whose batch_sizes are those of a PackedSequence.",
        _DATA,
        "y, h, c of all steps, and what the gradient needs (i, j, f, o, tanh(c)); each (time, batch, hidden).",
        _LAYER,
    ),
    "npu_lstm_data_backward": Doc(
        "The gradients of npu_lstm_data with flag_seq: steps beyond a sequence's end hand the state's gradient on.",
        {
            **_DATA,
            "h": "second result of the forward operator",
            "c": "third result of the forward operator",
        },
        "Those of input, weight, bias, init_h and init_c.",
    ),
    "npu_lstm_cell": Doc(
        "One step of an LSTM, see npu_lstm.",
        _CELL,
        "y (1, batch, hidden), h and c (batch, hidden), and what the gradient needs (i, j, f, o, tanh(c)).",
    ),
    "npu_lstm_cell_backward": Doc(
        "The gradients of npu_lstm_cell.",
        _CELL,
        "Those of input, w_ih, w_hh, bias, h and c. ``torch.ops.npu.npu_lstm_cell_backward.biases`` gives that of the "
        "bias twice, for a cell with two.",
    ),
    "npu_gru": Doc(
        "A GRU layer in one direction: ``r`` and ``z`` are sigmoids of both parts' sums, ``n = tanh(x-part + r "
        "* h-part)``, "
        "``h = (1 - z) * n + z * h``.",
        _GRU,
        "y and h of all steps, and what the gradient needs (update, reset, new, hidden new); each (time, batch, "
        "hidden).",
        _LAYER,
    ),
    "npu_gru_backward": Doc(
        "The gradients of npu_gru.",
        _GRU,
        "Those of input, hx, weight_input, weight_hidden, bias_input and bias_hidden.",
    ),
    "npu_multi_head_attention": Doc(
        "Attention with its projections: ``q = (query @ query_weight.T + query_bias) / sqrt(size)`` by heads, "
        "likewise k "
        "and v; ``softmax(q @ k.T + attn_mask)``, dropout, ``@ v``, and the output's projection.",
        _ATTENTION,
        "y, dropout mask, q, k, v by heads (batch, heads, length, size), softmax, softmax with dropout, context.",
    ),
    "npu_multi_head_attention_backward": Doc(
        "The gradients of npu_multi_head_attention.",
        {**_ATTENTION, "dropout_mask": "second result of the forward operator"},
        "Those of the weights of query, key, value and output, of query, key, value, and of the four biases.",
    ),
    "_npu_dropout": Doc(
        f"Dropout that returns its mask: {_BITS}.",
        {"self": _FLOAT},
        "``self / (1 - p)`` where kept, else 0, and the mask.",
    ),
    "_npu_dropout_inplace": Doc(
        f"Dropout in place that returns its mask: {_BITS}.",
        {"result": f"the tensor to change; {_FLOAT}"},
        "``result``, and the mask.",
    ),
    "npu_dropout_backward": Doc(
        "The gradient of _npu_dropout: ``grad_output / (1 - p)`` where kept, else 0.", {}, "The gradient of the input."
    ),
    "npu_dropout_do_mask": Doc(
        "Dropout with a given mask.",
        {"self": _FLOAT, "mask": f"{_BITS}, see npu_dropout_gen_mask"},
        "``self / (1 - p)`` where kept, else 0, and the mask.",
    ),
    "npu_dropout_gen_mask": Doc(
        f"A random mask for npu_dropout_do_mask: {_BITS}.",
        {
            "size": "shape of the tensor to mask",
            "dtype": "its dtype; has no effect",
            "layout": "has no effect",
            "device": "default the current NPU",
            "pin_memory": "has no effect",
        },
        "The mask.",
    ),
    "npu_dropoutV2": Doc(
        "Dropout whose random numbers come from the content of ``seed``, which is replaced by the next state.",
        {"self": _FLOAT, "seed": "float32, of any shape, changed in place"},
        "``self * mask / (1 - p)``, the mask (0 and 1, in self's dtype), and the seed.",
    ),
    "npu_dropoutV2_backward": Doc(
        "The gradient of npu_dropoutV2: ``grad_output * mask / (1 - p)``.", {}, "The gradient of the input."
    ),
    "npu_dropout_with_add_softmax": Doc(
        "``softmax(x1 + alpha * self)`` and that with dropout.",
        {"self": _FLOAT, "x1": "of the same shape", "alpha": "a number", "dim": "dimension of the softmax"},
        "The mask (a byte per element, padded to 128), the softmax, and the softmax with dropout.",
    ),
    "npu_dropout_with_add_softmax_backward": Doc(
        "The gradients of npu_dropout_with_add_softmax.",
        {
            "softmax_out": "second result of the forward operator",
            "alpha": "as given forwards",
            "dim": "as given forwards",
        },
        "Those of self and x1.",
    ),
    "npu_apply_adam": Doc(
        "One step of Adam in place: the moments decay towards ``grad`` and its square, then ``var -= lr * sqrt(1 - "
        "beta2_power) / (1 - beta1_power) * m / (sqrt(v) + epsilon)``. Call it with ``out=(var, m, v)``, or "
        "with var, m "
        "and v first.",
        {
            "beta1_power": "beta1 to the power of the step",
            "beta2_power": "beta2 to the power of the step",
            "grad": "gradient, of the shape of var",
            "use_locking": "has no effect",
            "use_nesterov": "True: ``beta1 * m + (1 - beta1) * grad`` in the place of m",
        },
        "var, m and v.",
        _STATE,
    ),
    "npu_bert_apply_adam": Doc(
        "One step of BERT's Adam in place. The gradient is scaled by ``min(1, max_grad_norm / global_grad_norm)`` if "
        "max_grad_norm is above 0, the moments decay towards it and its square, and there is no bias "
        "correction: ``var -= lr "
        "* (m / (sqrt(v) + epsilon) + weight_decay * var)``. With adam_mode=1 ``var -= step_size * m / (sqrt(v) "
        "+ epsilon)`` "
        "and then ``var -= lr * weight_decay * var``. Call it with ``out=(var, m, v)``, or with var, m and v first.",
        {
            "grad": "gradient, of the shape of var",
            "max_grad_norm": "norm to which the gradient is clipped, none if not above 0",
            "global_grad_norm": "norm of all gradients",
            "weight_decay": "decay of the parameter",
            "step_size": "needed for adam_mode=1",
            "adam_mode": "0 (adam) or 1 (mbert_adam)",
        },
        "var, m and v.",
        _STATE,
    ),
    "npu_ifmr": Doc(
        "The scale (and offset) with which quantisation to 8 bits loses least: of scales around the one that the "
        "percentiles of the histogram give, that with the smallest squared error of ``data``.",
        {
            "data": f"values to quantise; {_FLOAT}",
            "data_min": "their minimum, one element",
            "data_max": "their maximum, one element",
            "cumsum": "cumulated histogram of the values, int32",
            "min_percentile": "share of values above the lower end",
            "max_percentile": "share of values below the upper end",
            "search_start": "first factor to try",
            "search_end": "factor before which the search ends",
            "search_step": "distance between factors",
            "with_offset": "False: symmetric around 0",
        },
        "Scale and offset, each of the shape of data_min.",
    ),
    "npu_enque_tensor": Doc(
        "Prints tensors on standard output, as the text of ``format_string`` with each ``{}`` replaced by one; what is "
        "left over follows on lines of its own. A card's driver prints when the values are there; here the host waits.",
        {"tensors": "what to print", "format_string": "the text around it"},
        "nothing",
        "RuntimeError: work that the values need failed on the device.",
    ),
    "npu_hcom_allreduce": Doc(
        "Reduces a tensor over the ranks of a group of torch.distributed.",
        {
            "self": "the tensor to reduce",
            "reduction": "sum, max, min or prod",
            "group": "the group's ``group_name``; ``hccl_world_group`` for all ranks",
            "fusion": "how a graph merges calls; without effect",
            "fusion_id": "which calls a graph merges; without effect",
            "alpha": "factor of the result: 1",
            "beta": "factor of what ``out`` held: 0",
            "hccl_comm": "handle of the communicator; without effect",
        },
        "``out``, of the input's shape and dtype.",
        "ValueError: there is no such group, reduction is another word, or alpha or beta another number.",
    ),
    "npu_alloc_float_status": Doc(
        "Eight zeros that npu_get_float_status fills.",
        {"self": "any npu tensor: says on which device"},
        "float32, of shape (8).",
    ),
    "npu_get_float_status": Doc(
        "Reads the device's status register of floating-point overflows.",
        {"self": "result of npu_alloc_float_status; its first element becomes non-zero after an overflow"},
        "float32, of shape (8).",
    ),
    "npu_clear_float_status": Doc(
        "Clears the device's status register of floating-point overflows.",
        {"self": "result of npu_alloc_float_status"},
        "float32, of shape (8).",
    ),
}
