"""Operators that upstream lacks and that are one IR operator: `custom` entries with `ir`. From such an entry come the
kernel, which serves meta tensors as well, the gradient, the documentation, and the sample call of the tests."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from torchgen.model import Argument, BaseTy, BaseType, FunctionSchema, ListType, OptionalType

# Those of entries with `ir`, and those that every entry may have.
KEYS = {"ir", "inputs", "attrs", "output", "dtypes", "check", "backward"}
TOLD = {"doc", "sample"}
_DOC_KEYS = {"text", "args", "returns", "raises"}
DTYPE_CLASSES = ("float", "int", "bool", "complex", "uint8", "int64")
# How an argument that is no tensor is kept for the gradient and read again.
_KEPT = {
    BaseTy.int: "toInt",
    BaseTy.SymInt: "toInt",
    BaseTy.float: "toDouble",
    BaseTy.bool: "toBool",
    BaseTy.Scalar: "toScalar",
    BaseTy.str: "toStringRef",
}


class DeclaredError(Exception):
    """A wrong entry; `key` says where in it."""

    def __init__(self, reason: str, key: str):
        super().__init__(reason)
        self.key = key


@dataclass
class Declared:
    """What an entry says besides its schema."""

    ir: str
    inputs: list[str]
    attrs: dict[str, str]
    outputs: list[dict[str, str]]
    dtypes: list[str] = field(default_factory=list)
    check: list[str] = field(default_factory=list)
    backward: dict[str, str] = field(default_factory=dict)


def _is(argument: Argument, kind: BaseTy) -> bool:
    return argument.type == BaseType(kind)


def is_tensor(argument: Argument) -> bool:
    return _is(argument, BaseTy.Tensor)


def is_optional_tensor(argument: Argument) -> bool:
    return argument.type == OptionalType(BaseType(BaseTy.Tensor))


def is_int_list(argument: Argument) -> bool:
    return isinstance(argument.type, ListType) and argument.type.elem in (BaseType(BaseTy.int), BaseType(BaseTy.SymInt))


def tensors_of(schema: FunctionSchema) -> list[str]:
    return [a.name for a in schema.arguments.flat_all if is_tensor(a)]


def _reads(expressions: str, name: str) -> bool:
    return re.search(rf"\b{name}\b", expressions) is not None


def _getter(argument: Argument) -> str | None:
    """How the gradient reads an argument that is no tensor; None for those that it cannot."""
    if is_int_list(argument):
        return "toIntVector"
    return _KEPT.get(argument.type.name) if isinstance(argument.type, BaseType) else None


def _texts(value: Any, key: str) -> list[str]:
    found = [value] if isinstance(value, str) else value or []
    if not isinstance(found, list) or not all(isinstance(v, str) for v in found):
        raise DeclaredError(f"`{key}` is a text or a list of texts", key)
    for text in found:
        # A comma in a flow sequence of YAML ends an item that is not quoted.
        if text.count("(") != text.count(")"):
            raise DeclaredError(f"`{key}`: {text!r} is not one expression; quote what has a comma", key)
    return found


def _mapping(value: Any, key: str) -> dict[str, str]:
    if not isinstance(value or {}, dict):
        raise DeclaredError(f"`{key}` maps names to texts", key)
    return {str(name): str(text) for name, text in (value or {}).items() if not str(name).startswith("__")}


def check_told(entry: dict) -> None:
    """Documentation and a sample call, for the users and for the tests."""
    doc = entry.get("doc")
    known = {str(key) for key in doc if not str(key).startswith("__")} if isinstance(doc, dict) else set()
    if not isinstance(doc, dict) or not {"text", "returns"} <= known <= _DOC_KEYS:
        raise DeclaredError("`doc` is needed: `text`, `args`, `returns` and perhaps `raises`", "doc")
    _mapping(doc.get("args"), "doc")
    if not _texts(entry.get("sample"), "sample"):
        raise DeclaredError("`sample` is needed: the arguments of a call, in Python", "sample")


def read_declared(entry: dict, schema: FunctionSchema) -> Declared:
    """Checks what an entry with `ir` says."""
    arguments = {a.name: a for a in schema.arguments.flat_all}
    tensors = tensors_of(schema)
    if not tensors:
        raise DeclaredError(f"`{schema.name}` takes no tensor: write the kernel by hand", "func")
    if any(a.is_write for a in arguments.values()):
        raise DeclaredError(f"`{schema.name}` writes to its arguments: write the kernel by hand", "func")
    if not all(r.type == BaseType(BaseTy.Tensor) for r in schema.returns) or not schema.returns:
        raise DeclaredError(f"`{schema.name}` returns something other than tensors: write the kernel by hand", "func")
    if not isinstance(entry["ir"], str) or not re.fullmatch(r"[A-Z]\w*", entry["ir"]):
        raise DeclaredError(f"`{entry['ir']}` is not the type of an IR operator", "ir")
    optional = [a.name for a in arguments.values() if is_tensor(a) or is_optional_tensor(a)]
    inputs = _texts(entry.get("inputs", optional), "inputs")
    given = entry.get("output") or {}
    outputs = [_mapping(o, "output") for o in (given if isinstance(given, list) else [given])]
    if len(outputs) != len(schema.returns):
        raise DeclaredError(f"`output` tells of {len(outputs)} results, the schema of {len(schema.returns)}", "output")
    for o in outputs:
        if set(o) - {"sizes", "dtype"}:
            raise DeclaredError("an item of `output` has `sizes` and `dtype`, C++ expressions", "output")
    dtypes = _texts(entry.get("dtypes"), "dtypes")
    for wrong in (d for d in dtypes if d not in DTYPE_CLASSES):
        raise DeclaredError(f"unknown dtype class `{wrong}`; known are {', '.join(DTYPE_CLASSES)}", "dtypes")
    backward = _mapping(entry.get("backward"), "backward")
    for a in arguments.values():
        if a.name not in optional and _getter(a) is None and _reads(" ".join(backward.values()), a.name):
            raise DeclaredError(f"`backward` reads {a.name}, a {a.type}: write the gradient by hand", "backward")
    for wrong in (name for name in backward if name not in optional):
        raise DeclaredError(f"`backward`: {wrong} is not a tensor argument", "backward")
    if backward and len(schema.returns) != 1:
        raise DeclaredError("`backward` needs an operator with one result: write the gradient by hand", "backward")
    check_told(entry)
    check = _texts(entry.get("check"), "check")
    return Declared(entry["ir"], inputs, _mapping(entry.get("attrs"), "attrs"), outputs, dtypes, check, backward)


def _defn(op, name: str) -> str:
    return op.declaration(name).replace("at::", "")


def _input(op, text: str) -> str:
    argument = next((a for a in op.schema.arguments.flat_all if a.name == text), None)
    if argument is None or is_tensor(argument) or is_int_list(argument):
        return f".Input({text})"
    if is_optional_tensor(argument):
        return f".InputOptional({text})"
    return f".Input(Scalar({text}), kDouble)"


def _kernel(op) -> list[str]:
    says: Declared = op.declared
    first, name = tensors_of(op.schema)[0], op.base
    results = ["result"] if len(says.outputs) == 1 else [f"result{i}" for i in range(len(says.outputs))]
    lines = [f"{_defn(op, op.functions['kernel'])} {{", f"  const DeviceOf guard({first});"]
    if says.dtypes:
        allowed = " | ".join(f"kDtype{d.capitalize()}" for d in says.dtypes)
        lines.append(f'  check_dtype({first}.scalar_type(), {allowed}, "{name}");')
    lines += [f"  {statement};" for statement in says.check]
    for result, o in zip(results, says.outputs, strict=True):
        sizes, dtype = o.get("sizes", f"{first}.sizes()"), o.get("dtype", f"{first}.scalar_type()")
        lines.append(f"  const Tensor {result} = new_like({first}, {sizes}, {dtype});")
    total = " + ".join(f"{r}.numel()" for r in results)
    lines += [
        "  // Called with meta tensors for the shape alone.",
        f"  if (!{results[0]}.is_meta() && {total} > 0) {{",
        "    OpCommand cmd;",
        f'    cmd.Name("{says.ir}")',
        *(f"        {_input(op, text)}" for text in says.inputs),
        *(f"        .Output({r})" for r in results),
        *(f'        .Attr("{key}", {value})' for key, value in says.attrs.items()),
        "        .Run();",
        "  }",
        f"  return {results[0]};" if len(results) == 1 else f"  return {{{', '.join(results)}}};",
        "}",
        "",
    ]
    return lines


def _dispatched(text: str, others: dict[str, str]) -> str:
    """The expression with calls of npu operators that go through the dispatcher, as gradients' must."""

    def call(match: re.Match) -> str:
        name = match[1]
        return f'NPU_CUSTOM_OP({others[name]}, "{name}", "").call(' if name in others else match[0]

    return re.sub(r"\b(_?npu_\w+)\(", call, text)


def _autograd(op, others: dict[str, str]) -> list[str]:
    """A torch::autograd::Function that keeps what the expressions read: of a tensor its sizes alone, where they ask
    for nothing else."""
    says: Declared = op.declared
    arguments = op.schema.arguments.flat_all
    used = " ".join(says.backward.values())
    words = re.sub(r"\b\w+\.sizes\(\)", "", used)
    tensors = [a for a in arguments if is_tensor(a) or is_optional_tensor(a)]
    saved = [a.name for a in tensors if _reads(words, a.name)] + (["result"] if _reads(words, "result") else [])
    sized = [a.name for a in tensors if f"{a.name}.sizes()" in used and a.name not in saved]
    optional = {a.name for a in tensors if is_optional_tensor(a)}
    keep: list[str] = []
    read: list[str] = []
    for i, name in enumerate(saved):
        read.append(f"    const Tensor& {name} = saved[{i}];")
    for name in sized:
        keep.append(f'    context->saved_data["{name}.sizes"] = {name}.sizes();')
        read.append(f'    const auto sizes_of_{name} = context->saved_data["{name}.sizes"].toIntVector();')
    for a in arguments:
        if a in tensors or not _reads(words, a.name):
            continue
        value = f"std::string({a.name})" if _is(a, BaseTy.str) else a.name
        keep.append(f'    context->saved_data["{a.name}"] = {value};')
        read.append(f'    const auto {a.name} = context->saved_data["{a.name}"].{_getter(a)}();')
    names = ", ".join(a.name for a in arguments)
    gradients = []
    for a in arguments:
        expression = _dispatched(says.backward.get(a.name, "Tensor()"), others)
        for name in sized:
            expression = expression.replace(f"{name}.sizes()", f"IntArrayRef(sizes_of_{name})")
        gradients.append(expression)
    struct = "".join(part.capitalize() for part in op.base.split("_")) + "Function"
    parameters = _defn(op, "f").split("(", 1)[1].rsplit(")", 1)[0]
    kept = ", ".join(f"value_of({n})" if n in optional else n for n in saved)
    kernel = op.functions["kernel"]
    return [
        "namespace {",
        "",
        f"struct {struct} : Function<{struct}> {{",
        f"  static Tensor forward(AutogradContext* context, {parameters}) {{",
        "    const at::AutoDispatchBelowADInplaceOrView below;",
        f'    Tensor result = NPU_CUSTOM_OP({kernel}, "{op.base}", "{op.schema.name.overload_name}").call({names});',
        f"    context->save_for_backward({{{kept}}});",
        *keep,
        "    return result;",
        "  }",
        "  static variable_list backward(AutogradContext* context, variable_list grads) {",
        "    const Tensor& grad = grads[0];",
        *(["    const variable_list saved = context->get_saved_variables();"] if saved else []),
        *read,
        f"    return {{{', '.join(gradients)}}};",
        "  }",
        "};",
        "",
        "}  // namespace",
        "",
        f"{_defn(op, op.functions['autograd'])} {{ return {struct}::apply({names}); }}",
        "",
    ]


def emit_declared(ops: list, headers: list[str], header: str) -> str:
    """The kernels and gradients of the entries with `ir`."""
    others = {op.base: op.functions[role] for op in ops for role in ("kernel", "composite") if role in op.functions}
    lines = [
        header,
        "#include <ATen/ATen.h>",
        "#include <ATen/ExpandUtils.h>",
        "#include <ATen/core/LegacyTypeDispatch.h>",
        "#include <ATen/native/ReduceOpsUtils.h>",
        "#include <ATen/native/npu/frame/command/DeviceOf.h>",
        "#include <ATen/native/npu/frame/command/OpCommand.h>",
        "#include <ATen/native/npu/frame/inference/Checks.h>",
        "#include <ATen/native/npu/frame/inference/Dims.h>",
        "#include <ATen/native/npu/frame/inference/NewLike.h>",
        "#include <ATen/native/npu/frame/registration/CustomAutograd.h>",
        *(f"#include <ATen/native/npu/{name}>" for name in headers),
        "",
        "namespace at::native::npu {",
        "",
    ]
    for op in (op for op in ops if op.declared is not None):
        lines.append(f"// {op.text}")
        lines += _kernel(op)
        if op.declared.backward:
            lines += _autograd(op, others)
    lines += ["}  // namespace at::native::npu", ""]
    return "\n".join(lines)
