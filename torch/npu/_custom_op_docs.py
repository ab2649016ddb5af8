r"""Documentation of the ``torch.npu_*`` operators, put together from what is said here and from their schemas."""

import inspect
import textwrap
from typing import NamedTuple


class Doc(NamedTuple):
    text: str  # what it computes: shapes, formula
    args: dict  # by argument; those of COMMON need no entry
    returns: str
    raises: str = ""


_FLOAT = "float16, bfloat16, float32 or float64"
_SINGLE = "float16, bfloat16 or float32"
_BOX = f"boxes of shape (n, 4), corners ``x1, y1, x2, y2``; {_FLOAT}"

_RAISES = "RuntimeError: shapes do not fit. NotImplementedError: the dtype is not supported. The texts name them."

# What arguments mean wherever they occur.
COMMON = {
    "out": "receives the result and is resized if need be",
    "stride": "step of the window in each spatial dimension",
    "padding": "zeros before and after each spatial dimension",
    "output_padding": "extra size at the end of each spatial dimension of the result",
    "dilation": "distance between the elements of the window",
    "groups": "number of groups into which channels are divided",
    "bias": "of shape (out channels), or None",
    "output_mask": "three bools: which of the gradients of input, weight and bias are computed; others are undefined",
    "p": "probability of dropping an element, 0 to 1",
    "prob": "probability of dropping an element, 0 to 1",
    "keepdim": "whether the reduced dimension stays, with size 1",
    "mask": "which elements are kept, as the forward operator returned it",
    "trans": "True: boxes are centre and size; False: corners",
    "spatial_scale": "size of the features divided by the size of the image that regions are given in",
    "means0": "mean of the first delta",
    "means1": "mean of the second delta",
    "means2": "mean of the third delta",
    "means3": "mean of the fourth delta",
    "stds0": "standard deviation of the first delta",
    "stds1": "standard deviation of the second delta",
    "stds2": "standard deviation of the third delta",
    "stds3": "standard deviation of the fourth delta",
    "iou_threshold": "boxes that overlap a better one by more than this are suppressed",
    "grad_output": "gradient of the forward operator's result",
    "grad": "gradient of the forward operator's result",
    "b_ih": "of shape (4 * hidden), or None; added to the bias b_hh",
    "b_hh": "of shape (4 * hidden), or None",
    "customize_dtype": "number of the dtype whose block is taken, as 3 (int32): eight columns in FRACTAL_NZ; or None",
    "input_dtype": "None, or the number of the dtype of self",
    "mode": "0",
    "require_contiguous": "of no effect: the result always is",
    "has_biases": "False: the biases are not looked at",
    "num_layers": "1",
    "dropout": "between layers: of no effect with one",
    "train": "whether a gradient will be asked for",
    "bidirectional": "False",
    "batch_first": "False",
    "grady": "gradient of ``y``, or None",
    "gradh": "gradient of ``h``, of all its steps, or None",
    "gradc": "gradient of ``c``, of all its steps, or None",
    "y_output": "first result of the forward operator",
    "h_output": "second result of the forward operator",
    "c_output": "third result of the forward operator",
    "i": "input gates, as the forward operator returned them",
    "j": "candidates, as the forward operator returned them",
    "f": "forget gates, as the forward operator returned them",
    "o": "output gates, as the forward operator returned them",
    "tanhc": "tanh of the cells, as the forward operator returned them",
    "modulated": "True: offsets hold masks, and samples are multiplied by them",
    "deformable_groups": "groups of channels with offsets of their own",
    "attn_head_num": "number of heads",
    "attn_dim_per_head": "size of a head",
    "src_len": "length of key and value",
    "tgt_len": "length of the query",
    "dropout_prob": "probability of dropping an attention weight, 0 to 1",
    "softmax_use_float": "whether the softmax is returned in float32",
    "beta1": "decay of the first moment",
    "beta2": "decay of the second moment",
    "epsilon": "added to the denominator",
    "lr": "learning rate",
    "var": "the parameter, changed in place",
    "m": "first moment, changed in place",
    "v": "second moment, changed in place",
}


def doc_of(name: str) -> str:
    """The documentation of one operator: signatures, description, arguments, results, errors."""
    import torch

    from . import operators
    from .operators._registration import FUNCTIONS

    packet = getattr(torch.ops.npu, name)
    schemas = [getattr(packet, overload)._schema for overload in packet.overloads()]
    lines: list[str] = []
    described: dict[str, str] = {}
    for schema in schemas:
        arguments = []
        for a in schema.arguments:
            if a.kwarg_only and "*" not in arguments:
                arguments.append("*")
            arguments.append(f"{a.name}={a.default_value!r}" if a.has_default_value() else a.name)
            described.setdefault(a.name, a.type)
        lines.append(f"{name}({', '.join(arguments)})")
    if name in operators.OPERATORS:
        return "\n".join((*lines, "", inspect.getdoc(FUNCTIONS[name]) or ""))
    doc = _written(name) or _declared(name)
    lines += ["", *textwrap.wrap(doc.text, 100), "", "Args:"]
    for argument, kind in described.items():
        text = doc.args.get(argument) or COMMON.get(argument)
        if text is None:
            raise KeyError(f"argument {argument} of {name} has no description")
        lines += _hanging(f"{argument} ({_kind(str(kind))}): {text}", more="    ")
    lines += ["", "Returns:", *_hanging(doc.returns), "", "Raises:", *_hanging(doc.raises or _RAISES)]
    return "\n".join(lines)


def _written(name: str) -> Doc | None:
    """What the tables of texts say of an operator."""
    from . import (
        _custom_op_texts,
        _custom_op_texts_integers,
        _custom_op_texts_layers,
        _custom_op_texts_sequence,
        _custom_op_texts_transformer,
    )

    families = (_custom_op_texts_sequence, _custom_op_texts_transformer, _custom_op_texts_layers)
    for texts in (_custom_op_texts, *families, _custom_op_texts_integers):
        if name in texts.DOCS:
            return texts.DOCS[name]
    return None


def _declared(name: str) -> Doc:
    from ._custom_ops import DECLARED

    told = DECLARED[name]
    return Doc(told["text"], told["args"], told["returns"], told.get("raises", ""))


def _hanging(text: str, more: str = "") -> list[str]:
    return textwrap.wrap(text, 100, initial_indent="    ", subsequent_indent="    " + more)


def _kind(text: str) -> str:
    for name, better in (("Optional[", "optional "), ("List[", "list of "), ("number", "number")):
        if text.startswith(name):
            return (better + text.removeprefix(name).rstrip("]")).strip()
    return text
