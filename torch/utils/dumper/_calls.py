# What an operator call is to the dumper: its name on every device, the names of its arguments and results, and what it
# does to them. Nothing here touches a file or a device.
"""Description of aten operators and of the calls that are made of them."""

import functools
from dataclasses import dataclass

import torch

from . import _values

# Operators that a device has under a name of its own, and the common name that is recorded.
ALIASES = {
    "cudnn_batch_norm": "native_batch_norm",
    "miopen_batch_norm": "native_batch_norm",
    "cudnn_batch_norm_backward": "native_batch_norm_backward",
    "miopen_batch_norm_backward": "native_batch_norm_backward",
    "cudnn_grid_sampler": "grid_sampler_2d",
    "cudnn_grid_sampler_backward": "grid_sampler_2d_backward",
    "_cudnn_ctc_loss": "_ctc_loss",
}

# What these call arguments, by the common operator and its names; their further results are their own affair.
_ARGUMENT_ALIASES = {
    "native_batch_norm": {"exponential_average_factor": "momentum", "epsilon": "eps"},
    "native_batch_norm_backward": {"grad_output": "grad_out", "save_var": "save_invstd", "epsilon": "eps"},
    "grid_sampler_2d": {"self": "input"},
    "grid_sampler_2d_backward": {"self": "input"},
}
# Arguments of the common operator that they do not have, since they know one way only.
_BILINEAR = {"interpolation_mode": 0, "padding_mode": 0, "align_corners": True}
_MISSING = {
    "native_batch_norm_backward": {"train": True, "output_mask": [True] * 3},
    "grid_sampler_2d": _BILINEAR,
    "grid_sampler_2d_backward": {**_BILINEAR, "output_mask": [True] * 2},
}

# Note [Regions]
# These functions are made of other operators on each device: attention is one fused operator on CPU and five on npu,
# an LSTM is oneDNN's layer here and a loop of cells there. They are recorded as one operator, by the name below, and
# what they are made of is not recorded; see _regions.py for their backward.
REGIONS = frozenset(
    [
        "scaled_dot_product_attention",
        "lstm",
        "gru",
        "rnn_tanh",
        "rnn_relu",
        "lstm_cell",
        "gru_cell",
        "rnn_tanh_cell",
        "rnn_relu_cell",
        "dropout",
        "dropout_",
        "feature_dropout",
        "feature_dropout_",
        "alpha_dropout",
        "alpha_dropout_",
        "feature_alpha_dropout",
        "feature_alpha_dropout_",
    ]
)

# Arguments that are written although the schema does not say so.
_HIDDEN_WRITES = {
    "native_batch_norm": ("running_mean", "running_var"),
    "cudnn_batch_norm": ("running_mean", "running_var"),
    "miopen_batch_norm": ("running_mean", "running_var"),
    "native_instance_norm": ("running_mean", "running_var"),
}
# Names under which copies between kinds of devices are recorded.
ACROSS_DEVICES = ("_to_copy_across_devices", "copy_across_devices_")
_UNINITIALISED = frozenset(
    ["empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "empty_permuted", "resize_"]
)
_RANDOM = frozenset(
    [
        "bernoulli",
        "bernoulli_",
        "rand",
        "rand_like",
        "randn",
        "randn_like",
        "randint",
        "randint_like",
        "randperm",
        "normal",
        "normal_",
        "uniform",
        "uniform_",
        "random",
        "random_",
        "exponential",
        "exponential_",
        "geometric",
        "geometric_",
        "cauchy",
        "cauchy_",
        "log_normal",
        "log_normal_",
        "multinomial",
        "poisson",
        "binomial",
        "native_dropout",
        "rrelu_with_noise",
        "rrelu_with_noise_",
        "_fused_dropout",
        "_standard_gamma",
        "_sample_dirichlet",
    ]
)
# Arguments and results whose values, or some of them, mean nothing: left uninitialised, or a device's own affair.
# operator: (name, the argument that decides and its value for which they do mean something, or None twice), ...
_OFFSET2BAG = (("output_1", None, None), ("offset2bag", None, None))  # a CPU leaves it empty where it does without
_BAG = (*_OFFSET2BAG, ("output_3", "mode", 2), ("maximum_indices", "mode", 2))
_UNIQUE = (("output_1", "return_inverse", True), ("output_2", "return_counts", True))
_UNSPECIFIED = {
    "_ctc_loss": (("output_1", None, None),),
    "log_sigmoid_forward": (("buffer", None, None),),
    "log_sigmoid_backward": (("buffer", None, None),),
    "_embedding_bag": _BAG,
    "_embedding_bag_forward_only": _BAG,
    "_embedding_bag_backward": _BAG,
    "_embedding_bag_dense_backward": _BAG,
    "_embedding_bag_per_sample_weights_backward": _OFFSET2BAG,
    "_unique2": _UNIQUE,
    "unique_dim": _UNIQUE,
    "unique_consecutive": _UNIQUE,
    "unique_dim_consecutive": _UNIQUE,
}
# Questions about tensors that are operators for technical reasons.
_QUESTIONS = frozenset(["_has_compatible_shallow_copy_type", "is_pinned", "is_same_size", "_version"])
_NOT_RECORDED = frozenset({"prim", "prims", "profiler", "_inductor_test", "streams"})


@dataclass(frozen=True)
class Operator:
    """One overload: `overload` is its full name (aten::add.Tensor), `name` what its group in the file is called."""

    overload: str
    name: str
    arguments: tuple[str, ...]
    returns: tuple[str, ...]
    writes: frozenset[str]
    is_view: bool
    kind: str  # "", "random", "uninitialised" or "view"
    recorded: bool


@functools.cache
def describe(func) -> Operator:
    """The description of an OpOverload."""
    schema = func._schema
    namespace, _, base = schema.name.partition("::")
    overload = f"{schema.name}.{schema.overload_name}" if schema.overload_name else schema.name
    writes = {a.name for a in schema.arguments if a.alias_info is not None and a.alias_info.is_write}
    writes.update(_HIDDEN_WRITES.get(base, ()))
    is_view = not writes and any(r.alias_info is not None and not r.alias_info.is_write for r in schema.returns)
    count = len(schema.returns)
    returns = tuple(r.name or ("output" if count == 1 else f"output_{i}") for i, r in enumerate(schema.returns))
    arguments = tuple(a.name for a in schema.arguments)
    if base in ALIASES:
        aliases = _ARGUMENT_ALIASES.get(ALIASES[base], {})
        arguments = tuple(aliases.get(name, name) for name in arguments)
        returns = describe(resolve(f"aten::{ALIASES[base]}")).returns
    if base in _UNINITIALISED:
        kind = "uninitialised"
    elif base in _RANDOM:
        kind = "random"
    else:
        kind = "view" if is_view else ""
    name = ALIASES.get(base, base) if namespace == "aten" else f"{namespace}_{base}"
    return Operator(
        overload,
        name,
        arguments,
        returns,
        frozenset(writes),
        is_view,
        kind,
        namespace not in _NOT_RECORDED and base not in _QUESTIONS,
    )


def common(overload: str):
    """(OpOverload, its arguments that the call lacks) to make a call of `overload` again on any device."""
    base = overload.removeprefix("aten::").partition(".")[0]
    if not overload.startswith("aten::") or base not in ALIASES:
        return resolve(overload), {}
    return resolve(f"aten::{ALIASES[base]}"), _MISSING.get(ALIASES[base], {})


def resolve(overload: str):
    """The OpOverload of a full name; raises LookupError when this build does not have it."""
    name, _, variant = overload.partition(".")
    namespace, _, base = name.partition("::")
    try:
        return getattr(getattr(getattr(torch.ops, namespace), base), variant or "default")
    except AttributeError as error:
        raise LookupError(f"this torch has no operator {overload}") from error


def flatten(named):
    """Pairs (name, value) with lists of tensors taken apart: item i of `x` is called `x_i`."""
    for name, value in named:
        if isinstance(value, (list, tuple)) and any(isinstance(item, torch.Tensor) for item in value):
            for i, item in enumerate(value):
                yield f"{name}_{i}", item
        else:
            yield name, value


def is_written(op: Operator, name: str) -> bool:
    """Whether the operator writes the argument, or the list that it is an item of."""
    head, _, tail = name.rpartition("_")
    return name in op.writes or (tail.isdigit() and head in op.writes)


def unspecified(op: Operator, args, kwargs) -> tuple[str, ...]:
    """Names of the arguments and results of a call that nobody should compare or match."""
    rules = _UNSPECIFIED.get(op.name)
    if rules is None:
        return ()
    values = dict(named_arguments(op, args, kwargs))
    return tuple(name for name, decides, value in rules if decides is None or values.get(decides, False) != value)


def self_contained(func, args, kwargs):
    """(args, kwargs) of the same call without memory that no argument shows: as_strided looks beyond its tensor."""
    if func is not torch.ops.aten.as_strided.default:
        return args, kwargs
    tensor, size, stride, *offset = args
    if not _values.storable(tensor) or _values.format_name(tensor) not in ("ND", "NCHW", "NCDHW"):
        return args, kwargs
    offset = offset[0] if offset else kwargs.get("storage_offset")
    offset = tensor.storage_offset() if offset is None else offset
    if not all(type(n) is int and n >= 0 for n in (*size, *stride, offset)):
        return args, kwargs
    end = offset + sum((n - 1) * s for n, s in zip(size, stride, strict=False)) + 1 if 0 not in size else 0
    if tensor.storage_offset() == 0 and tensor.is_contiguous() and end <= tensor.numel():
        return args, kwargs
    if len(size) != len(stride) or end * tensor.element_size() > tensor.untyped_storage().nbytes():
        return args, kwargs  # the operator will complain
    return (torch.as_strided(tensor, (end,), (1,), 0), size, stride, offset), {}


def named_arguments(op: Operator, args, kwargs):
    """Pairs (schema name, value) of the arguments that were passed."""
    return [*zip(op.arguments, args, strict=False), *kwargs.items()]


def named_results(op: Operator, result):
    """Pairs (name, value) of the results."""
    if len(op.returns) == 1:
        return [(op.returns[0], result)]
    return list(zip(op.returns, result, strict=False)) if isinstance(result, (tuple, list)) else []


def _device_types(values):
    return {value.device.type for value in values if isinstance(value, torch.Tensor)}


def device_name(op: Operator, args, kwargs) -> str:
    """The name to record under: copies between kinds of devices have one of their own.

    A script moves its data on npu and does not on CPU; without this, the numbers of the other copies would not agree.
    """
    if op.name == "_to_copy":
        target = kwargs.get("device")
        if target is not None and torch.device(target).type != args[0].device.type:
            return ACROSS_DEVICES[0]
    elif op.name == "copy_" and len(_device_types(args)) > 1:
        return ACROSS_DEVICES[1]
    return op.name


def map_tensors(function, value):
    """`value` with each tensor in it (also in lists) replaced by function(tensor)."""
    if isinstance(value, torch.Tensor):
        return function(value)
    if isinstance(value, (list, tuple)) and any(isinstance(item, torch.Tensor) for item in value):
        return type(value)(function(item) if isinstance(item, torch.Tensor) else item for item in value)
    return value
