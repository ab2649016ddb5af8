r"""What ``torch.onnx.export`` does differently for npu: called by the grafts in ``torch/onnx``.

Note [npu operators in ONNX]
An operator of the table in ``_custom_operators.py`` becomes one node of CANN's domain. Any other that is composed of
aten operators is exported as those. With ``dynamo=True`` both are decompositions, the node by way of
``torch.onnx.ops.symbolic``. The TorchScript exporter would record every operator by its own name, so composed ones are
taken apart while the model is traced; the others have symbolic functions.
"""

import contextlib
import contextvars
import dataclasses
import functools
import math
import operator as operator_module
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import _disable_current_modes

import torch

from ._custom_operators import DOMAIN, DOMAIN_VERSION, OPERATORS, Operator

_ATC_OPSET = 11  # the one that the guide says ATC takes
_COMPOSED = torch._C.DispatchKey.CompositeImplicitAutograd
_only_plain = contextvars.ContextVar("only_plain", default=False)


@contextlib.contextmanager
def plain_operators() -> Iterator[None]:
    r"""Inside, npu operators that are composed of others are exported as ONNX's own operators, not as CANN's.

    Such a file runs in onnxruntime, too. Operators that are not composed stay CANN's.
    """
    token = _only_plain.set(True)
    try:
        yield
    finally:
        _only_plain.reset(token)


def _is_composed(overload: torch._ops.OpOverload) -> bool:
    return torch._C._dispatch_has_kernel_for_dispatch_key(overload.name(), _COMPOSED)


def _is_cann(overload: torch._ops.OpOverload) -> bool:
    r"""Whether the operator is written as one of CANN's domain."""
    name = overload._schema.name.partition("::")[2]
    return name in OPERATORS and not (_only_plain.get() and _is_composed(overload))


def _npu_overload(func: Any, args: Any, kwargs: Any) -> torch._ops.OpOverload | None:
    r"""The overload of ``torch.ops.npu`` that a call reaches; None if it is no npu operator's."""
    if isinstance(func, torch._ops.OpOverload):
        return func if func.namespace == "npu" else None
    if not isinstance(func, torch._ops.OpOverloadPacket) or not func._qualified_op_name.startswith("npu::"):
        return None
    which = torch._C._jit_resolve_packet(func._qualified_op_name, *args, **kwargs)
    return getattr(func, which or "default")


# ---- warnings


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _tensors(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)


def _is_on_npu(model: Any, args: Any, kwargs: Any) -> bool:
    own: list[torch.Tensor] = []
    if isinstance(model, torch.nn.Module):
        own += [*model.parameters(), *model.buffers()]
    elif isinstance(model, torch.export.ExportedProgram):
        own += model.state_dict.values()
    return any(tensor.device.type == "npu" for tensor in (*own, *_tensors(args), *_tensors(kwargs)))


def warn(model: Any, args: Any, kwargs: Any, opset_version: int | None, dynamo: bool) -> None:
    r"""Warn of what the guide warns of: a model in training mode, an opset that ATC may not take. For npu models only:
    where a model on the CPU goes nobody knows."""
    if not _is_on_npu(model, args, kwargs):
        return
    if not dynamo and getattr(model, "training", False):  # the other exporter warns itself
        warnings.warn(
            "torch.onnx.export: the model is in training mode. BatchNorm and dropout differ from inference; call "
            "model.eval() first",
            UserWarning,
            stacklevel=3,
        )
    if opset_version != _ATC_OPSET:
        told = "no opset_version is given" if opset_version is None else f"opset_version={opset_version}"
        warnings.warn(
            f"torch.onnx.export: {told}. ATC of CANN 5 takes opset {_ATC_OPSET}, later ones up to 18 for most "
            "operators; `python -m torch.npu.onnx.check FILE` says which nodes CANN documents",
            UserWarning,
            stacklevel=3,
        )


# ---- both exporters


def _split(
    schema: Any, operator: Operator, arguments: dict[str, Any], is_tensor: Callable[[Any], bool]
) -> tuple[list[tuple[str, Any]], dict[str, Any]]:
    r"""The inputs, by argument, and the attributes of a call."""
    names = {argument.name for argument in schema.arguments if is_tensor(argument.type)}
    inputs = [argument.name for argument in schema.arguments if argument.name in names]
    if operator.inputs:
        ways = [name.split("|") for name in operator.inputs]
        inputs = [next((one for one in way if one in names), way[0]) for way in ways]
    others = {name: value for name, value in arguments.items() if name not in names}
    # A tensor that has no place among the inputs has to be absent.
    left_over = {name: arguments[name] for name in names if name not in inputs}
    attributes = Operator.attributes(operator, schema.name, others)
    for name, value in left_over.items():
        Operator(operator.type, require={name: None}).attributes(schema.name, {name: value})
    for name, (attribute, follows) in operator.computed.items():
        attributes[attribute] = follows(arguments.get(name))
    return [(name, arguments.get(name)) for name in inputs], attributes


def _is_tensor_type(kind: Any) -> bool:
    return isinstance(getattr(kind, "getElementType", lambda: kind)(), torch._C.TensorType)


# ---- dynamo=True


def _by_name(schema: Any, args: tuple, kwargs: dict[str, Any]) -> dict[str, Any]:
    told = {argument.name: argument.default_value for argument in schema.arguments}
    told.update(zip((argument.name for argument in schema.arguments), args, strict=False))
    return told | kwargs


def _write(overload: torch._ops.OpOverload, operator: Operator, args: tuple, kwargs: Any, results: tuple) -> list:
    r"""One ONNX node in the place of a call; `results` tell its shapes, dtypes and devices."""
    schema = overload._schema
    inputs, attributes = _split(schema, operator, _by_name(schema, args, kwargs), _is_tensor_type)
    tensors = dict(inputs)
    given = [
        torch.zeros(0, dtype=tensors[operator.like[name]].dtype if name in operator.like else torch.float32)
        if tensor is None
        else tensor
        for name, tensor in inputs
    ]
    made = torch.onnx.ops.symbolic_multi_out(
        f"{DOMAIN}::{operator.type}",
        given,
        attributes,
        dtypes=[result.dtype for result in results],
        shapes=[result.shape for result in results],
        version=DOMAIN_VERSION,
    )
    # Upstream's node is of the CPU; what follows meets tensors of the npu.
    return [value.to(result.device) for value, result in zip(made, results, strict=True)]


def _node(overload: torch._ops.OpOverload, operator: Operator, *args: Any, **kwargs: Any) -> Any:
    r"""The decomposition of an npu operator into one ONNX node; shapes and dtypes are those of its fake run."""
    from torch.fx.experimental.proxy_tensor import disable_proxy_modes_tracing

    with disable_proxy_modes_tracing():
        # The composition itself: the operator would come back here.
        run = functools.partial(overload._op_dk, _COMPOSED) if _is_composed(overload) else overload
        results = run(*args, **kwargs)
    several = isinstance(results, (list, tuple))
    made = _write(overload, operator, args, kwargs, tuple(results) if several else (results,))
    return tuple(made) if several else made[0]


def decompositions(registered: Any) -> dict[torch._ops.OpOverload, Callable]:
    r"""Decompositions of npu operators into nodes of CANN's domain.

    Args:
        registered: operators that have a translation already, the caller's own among them.
    """
    table: dict[torch._ops.OpOverload, Callable] = {}
    for name, operator in OPERATORS.items():
        packet = getattr(torch.ops.npu, name, None)
        for which in () if packet is None else packet.overloads():
            overload = getattr(packet, which)
            if overload not in registered and overload._overloadname != "out" and _is_cann(overload):
                table[overload] = functools.partial(_node, overload, operator)
    return table


_PRIMES = (7, 11, 13, 17, 19, 23)


class _Unknown(Exception):
    r"""The result's shape does not follow from two trials."""


@dataclasses.dataclass
class _Result:
    r"""What is known of a result."""

    shape: list[Any]
    dtype: torch.dtype
    device: torch.device


def _symbols(tensors: list[torch.Tensor]) -> dict[Any, torch.SymInt]:
    r"""The sizes of the tensors that may differ from run to run, by their symbol."""
    found: dict[Any, torch.SymInt] = {}
    sizes: list[Any] = [size for tensor in tensors for size in tensor.shape if isinstance(size, torch.SymInt)]
    for size in sizes:
        if not size.node.expr.is_symbol:
            raise _Unknown
        found[size.node.expr] = size
    if len(found) > len(_PRIMES):
        raise _Unknown
    return found


def _symbolic_results(overload: torch._ops.OpOverload, args: tuple, kwargs: Any) -> tuple[bool, list[_Result]]:
    r"""Results of a call with sizes that are symbols: of two runs on meta tensors, whose sizes are the traced ones and
    these times a prime each. The operators' checks would make numbers of the symbols.

    Returns whether there are several, and the results.
    """
    from torch.utils import _pytree as pytree

    tensors = [value for value in pytree.tree_leaves((args, kwargs)) if isinstance(value, torch.Tensor)]
    symbols = _symbols(tensors)
    hints = {symbol: size.node.hint for symbol, size in symbols.items()}

    def trial(factors: dict[Any, int]) -> Any:
        def concrete(size: Any) -> int:
            return hints[size.node.expr] * factors.get(size.node.expr, 1) if isinstance(size, torch.SymInt) else size

        def meta(value: Any) -> Any:
            if not isinstance(value, torch.Tensor):
                return value
            return torch.empty([concrete(size) for size in value.shape], dtype=value.dtype, device="meta")

        with torch._C.DisableTorchFunction(), _disable_current_modes():
            made_args, made_kwargs = pytree.tree_map(meta, (args, kwargs))
            return overload(*made_args, **made_kwargs)

    first = trial({})
    primes = dict(zip(symbols, _PRIMES, strict=False))
    try:
        second = trial(primes)
    except (RuntimeError, ValueError, IndexError):
        # Sizes that have to be equal: those that were when it was traced are taken to be so always.
        alike = {hint: symbol for symbol, hint in reversed(hints.items())}
        second = trial({symbol: primes[alike[hint]] for symbol, hint in hints.items()})
        for symbol, hint in hints.items():
            if alike[hint] != symbol:
                torch._check(symbols[symbol] == symbols[alike[hint]])
        primes = {symbol: primes[symbol] for symbol in alike.values()}
    several = isinstance(first, (list, tuple))
    results = []
    for a, b in zip(first, second, strict=True) if several else ((first, second),):
        shape: list[Any] = []
        for one, other in zip(a.shape, b.shape, strict=True):
            ratio = other // one if one and other % one == 0 else 1
            moving = [symbol for symbol, prime in primes.items() if ratio % prime == 0]
            product = math.prod(primes[symbol] for symbol in moving)
            base = math.prod(hints[symbol] for symbol in moving)
            if one * product != other or one % base:
                raise _Unknown
            shape.append(functools.reduce(operator_module.mul, (symbols[symbol] for symbol in moving), one // base))
        results.append(_Result(shape, a.dtype, tensors[0].device))
    return several, results


class _Nodes(TorchFunctionMode):
    r"""Inside, a call of an operator of CANN's domain with sizes that are symbols is one ONNX node at once."""

    def __init__(self, theirs: Any):
        super().__init__()
        self.theirs = theirs

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        overload = _npu_overload(func, args, kwargs)
        if overload is not None and overload not in self.theirs and _is_cann(overload):
            try:
                sizes = [size for tensor in _tensors((args, kwargs)) for size in tensor.shape]
                if any(isinstance(size, torch.SymInt) for size in sizes):
                    several, results = _symbolic_results(overload, args, kwargs)
                    operator = OPERATORS[overload._schema.name.partition("::")[2]]
                    made = _write(overload, operator, args, kwargs, tuple(results))
                    return tuple(made) if several else made[0]
            except _Unknown:
                pass
        return func(*args, **kwargs)


def program_export(export: Callable, model: Any, args: Any, f: Any, **options: Any) -> Any:
    r"""Upstream's exporter of programs, `export`, which knows npu operators."""
    if not _is_on_npu(model, args, options.get("kwargs")):
        return export(model, args, f, **options)
    with _Nodes(options.get("custom_translation_table") or {}):
        return export(model, args, f, **options)


# ---- the TorchScript exporter


def _is_none(value: Any) -> bool:
    return value is None or value.node().mustBeNone()


def _constant(schema: Any, argument: Any, value: Any) -> Any:
    from torch.onnx import symbolic_helper

    if _is_none(value):
        return None
    kind = argument.type
    kind = kind.getElementType() if isinstance(kind, torch._C.OptionalType) else kind
    description: Any
    if isinstance(kind, torch._C.ListType):
        description = "is" if isinstance(kind.getElementType(), torch._C.IntType) else "fs"
    elif isinstance(kind, torch._C.StringType):
        description = "s"
    elif isinstance(kind, (torch._C.IntType, torch._C.BoolType)):
        description = "i"
    else:
        description = "f"
    try:
        return symbolic_helper._parse_arg(value, description)
    except RuntimeError as error:
        raise torch.onnx.errors.SymbolicValueError(
            f"{schema.name}: {argument.name} has to be a constant to be an attribute in ONNX", value
        ) from error


def _shaped(made: Any, traced: Any, given: Any, source: Any) -> None:
    r"""Tell the result's shape: what was traced, but a dimension that may differ from call to call stays unknown."""
    kind = traced.type()
    if not isinstance(kind, torch._C.TensorType):
        return
    sizes = kind.sizes()
    if sizes is None:
        return
    known = [value.type().varyingSizes() for value in given]
    if all(told is not None and None not in told for told in known):
        made.setType(kind)
    elif given and source and sizes == source[0].type().sizes():
        made.setType(given[0].type().with_dtype(kind.dtype()))
    else:
        made.setType(kind.with_sizes([None] * len(sizes)))


def _schema_of(name: str, values: tuple) -> Any:
    r"""The schema of the overload that was called: the graph tells only the operator's name and its arguments."""
    packet = getattr(torch.ops.npu, name)
    for which in sorted(packet.overloads(), key="default".__ne__):
        overload = getattr(packet, which)
        arguments = overload._schema.arguments
        tensors = [value for value, argument in zip(values, arguments, strict=False) if _is_tensor_type(argument.type)]
        if len(arguments) == len(values) and all(
            _is_none(value) or isinstance(value.type(), torch._C.TensorType) for value in tensors
        ):
            return overload._schema
    raise torch.onnx.errors.OnnxExporterError(f"npu::{name} is called with arguments of none of its overloads")


def _symbolic(name: str, operator: Operator, g: Any, *values: Any) -> Any:
    schema = _schema_of(name, values)
    arguments = {
        argument.name: (None if _is_none(value) else value)
        if _is_tensor_type(argument.type)
        else _constant(schema, argument, value)
        for argument, value in zip(schema.arguments, values, strict=True)
    }
    inputs, attributes = _split(schema, operator, arguments, _is_tensor_type)
    tensors = dict(inputs)
    given = []
    for argument, value in inputs:
        if value is None:
            like = tensors.get(operator.like.get(argument, ""))
            value = g.op("Constant", value_t=torch.zeros(0, dtype=like.type().dtype() if like else torch.float32))
        given.append(value)
    suffixed = {}
    for attribute, value in attributes.items():
        first = value[0] if isinstance(value, (list, tuple)) else value
        suffixed[f"{attribute}_{'s' if isinstance(first, str) else 'f' if isinstance(first, float) else 'i'}"] = value
    traced = list(g.original_node.outputs())
    made = g.op(f"{DOMAIN}::{operator.type}", *given, outputs=len(traced), **suffixed)
    for result, was in zip(made if isinstance(made, tuple) else (made,), traced, strict=True):
        _shaped(result, was, given, list(g.original_node.inputs()))
    return made


class _TakenApart(TorchFunctionMode):
    r"""Inside, composed npu operators that are not CANN's in ONNX run as what they are made of, which is traced."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        from torch.onnx._internal.torchscript_exporter.registration import registry

        kwargs = kwargs or {}
        overload = _npu_overload(func, args, kwargs)
        if overload is None:
            return func(*args, **kwargs)
        name = overload._schema.name
        group = registry.get_function_group(name)
        # Of a name whose function was unregistered, an empty group is left.
        theirs = group is not None and bool(group._functions) and name not in _registered
        if _is_composed(overload) and not _is_cann(overload) and not theirs:
            return overload._op_dk(_COMPOSED, *args, **kwargs)
        return func(*args, **kwargs)


_registered: set[str] = set()


def _register() -> None:
    r"""Give the TorchScript exporter our symbolic functions; one that the caller has registered stays."""
    from torch.onnx._internal.torchscript_exporter import registration

    for name, operator in OPERATORS.items():
        qualified = f"npu::{name}"
        group = registration.registry.get_function_group(qualified)
        if qualified in _registered or (group is not None and group._functions):
            continue
        symbolic = functools.partial(_symbolic, name, operator)
        registration.custom_onnx_symbolic(qualified, torch.onnx._constants.ONNX_MIN_OPSET)(symbolic)
        _registered.add(qualified)


def torchscript_export(model: Any, args: Any, f: Any, **options: Any) -> None:
    r"""Upstream's TorchScript exporter, which knows npu operators."""
    from torch.onnx._internal.torchscript_exporter.utils import export

    _register()
    with _TakenApart():
        export(model, args, f, **options)
