"""Operators that upstream lacks: read from the `custom` sections, declared in the dispatcher's library `npu`."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from npu_declared import KEYS as DECLARED_KEYS, TOLD, Declared, DeclaredError, check_told, read_declared
from torchgen import local
from torchgen.api.types import DispatcherSignature
from torchgen.model import FunctionSchema

KEYS = {"func", "kernel", "composite", "autograd", "backend_select"} | DECLARED_KEYS | TOLD
# The dispatch keys of each role. A kernel makes outputs on its operands' device and stops there on meta, so one
# function tells shapes as well.
ROLES = {
    "kernel": ("PrivateUse1", "Meta"),
    "composite": ("CompositeImplicitAutograd",),
    "autograd": ("Autograd",),
    "backend_select": ("BackendSelect",),
}


class CustomError(Exception):
    """A wrong entry; `key` says where in it."""

    def __init__(self, reason: str, key: str = "func"):
        super().__init__(reason)
        self.key = key


@dataclass
class CustomOp:
    """A checked entry of `custom`: a schema, and the functions that serve it by role."""

    where: str
    schema: FunctionSchema
    text: str
    functions: dict[str, str]
    declared: Declared | None = None  # of an entry with `ir`, whose functions are generated

    @property
    def base(self) -> str:
        return str(self.schema.name.name)

    @property
    def name(self) -> str:
        return str(self.schema.name)

    @property
    def signature(self) -> DispatcherSignature:
        return DispatcherSignature.from_schema(self.schema, symint=False)

    def declaration(self, symbol: str) -> str:
        with local.parametrize(use_const_ref_for_mutable_tensors=False, use_ilistref_for_tensor_lists=False):
            return self.signature.decl(symbol)

    def pointer(self) -> str:
        with local.parametrize(use_const_ref_for_mutable_tensors=False, use_ilistref_for_tensor_lists=False):
            return self.signature.ptr_type()

    def checked(self, check: str) -> list[str]:
        """The kernel behind a check of its operands."""
        with local.parametrize(use_const_ref_for_mutable_tensors=False, use_ilistref_for_tensor_lists=False):
            definition = self.signature.defn(self.schema.name.unambiguous_name())
            arguments = ", ".join(a.name for a in self.signature.arguments())
        return [f"{definition} {{", f"  {check}", f"  return npu::{self.functions['kernel']}({arguments});", "}"]


def parse(text: str) -> FunctionSchema:
    """torchgen's schema. It refuses positional outputs that are returned along with others, which the dispatcher
    allows: the functions of such an operator return their tensors by value."""
    try:
        return FunctionSchema.parse(text)
    except AssertionError:
        head, arrow, returns = text.rpartition("->")
        if not re.search(r"Tensor\(\w!\)", head):
            raise
        return FunctionSchema.parse(head + arrow + re.sub(r"Tensor\(\w!\)", "Tensor", returns))


def read_custom(entry: Any, where: str, defined: set[str]) -> CustomOp:
    """Checks one entry; `defined` are the names of functions in the kernel files."""
    if not isinstance(entry, dict) or not isinstance(entry.get("func"), str):
        raise CustomError("an entry of custom needs `func`, a schema such as `npu_mish(Tensor self) -> Tensor`")
    for key in entry:
        if not key.startswith("__") and key not in KEYS:
            raise CustomError(f"unknown key `{key}`; known are {', '.join(sorted(KEYS))}", key)
    text = " ".join(entry["func"].split())
    try:
        schema = parse(text)
    except Exception as error:  # torchgen reports wrong schemas by assertions and errors of many kinds
        raise CustomError(f"`{text}` is not a schema: {error}") from error
    if "ir" in entry:
        return _declared(entry, where, schema, text)
    wrong = next((key for key in entry if key in DECLARED_KEYS), None)
    if wrong is not None:
        raise CustomError(f"`{wrong}` goes with `ir`", wrong)
    if TOLD & set(entry):
        try:
            check_told(entry)
        except DeclaredError as error:
            raise CustomError(str(error), error.key) from error
    functions = {role: entry[role] for role in ROLES if role in entry}
    if ("kernel" in functions) == ("composite" in functions):
        raise CustomError(f"`{schema.name}` needs one of `kernel` and `composite`")
    if "composite" in functions and "autograd" in functions:
        raise CustomError("a composite differentiates by itself: `autograd` goes with `kernel`", "autograd")
    for role, symbol in functions.items():
        if not isinstance(symbol, str) or not re.fullmatch(r"[A-Za-z_]\w*", symbol):
            raise CustomError(f"`{symbol}` is not a function's name", role)
        if symbol not in defined:
            raise CustomError(f"no kernel file defines a function `{symbol}`", role)
    return CustomOp(where, schema, text, functions)


def _declared(entry: dict, where: str, schema: FunctionSchema, text: str) -> CustomOp:
    """An entry with `ir`: its functions are generated, and are called like the operator."""
    wrong = next((role for role in ROLES if role in entry), None)
    if wrong is not None:
        raise CustomError(f"with `ir` the kernel is generated: leave out `{wrong}`", wrong)
    try:
        says = read_declared(entry, schema)
    except DeclaredError as error:
        raise CustomError(str(error), error.key) from error
    symbol = schema.name.unambiguous_name()
    functions = {"kernel": symbol, **({"autograd": f"{symbol}_autograd"} if says.backward else {})}
    return CustomOp(where, schema, text, functions, says)


def emit_custom_declarations(ops: list[CustomOp], header: str) -> str:
    lines = [
        header + "// The functions behind the operators of the library `npu`.",
        "#pragma once",
        "",
        "#include <ATen/core/Tensor.h>",
        "#include <c10/core/Scalar.h>",
        "",
        "#include <array>",
        "#include <tuple>",
        "",
        "namespace at::native::npu {",
        "",
    ]
    seen: set[str] = set()
    for op in ops:
        for symbol in op.functions.values():
            declaration = op.declaration(symbol)
            if declaration not in seen:
                seen.add(declaration)
                lines.append(f"{declaration};  // {op.name}")
    lines += ["", "}  // namespace at::native::npu", ""]
    return "\n".join(lines)


def device_check(name: str, schema: FunctionSchema) -> str | None:
    """The statement that refuses operands on several devices; None where there are not two operands."""
    tensors = [a for a in schema.arguments.flat_all if a.type.is_tensor_like()]
    if len(tensors) < 2 and not any(a.type.is_list_like() for a in tensors):
        return None
    written = [a for a in tensors if a.is_write]
    calls = [f".written({a.name})" for a in written] + [f".read({a.name})" for a in tensors if a not in written]
    return f'SameDevice("{name}"){"".join(calls)};'


def emit_custom_registrations(ops: list[CustomOp], header: str) -> str:
    checks = {op.name: device_check(op.name, op.schema) for op in ops if "kernel" in op.functions}
    lines = [
        header,
        "#include <ATen/native/npu/frame/registration/SameDevice.h>",
        "#include <NPUCustomFunctions.h>",
        "#include <torch/library.h>",
        "",
        "namespace at::native::npu {",
        "namespace {",
        "namespace checked {",
        "",
        *[line for op in ops if (check := checks.get(op.name)) for line in op.checked(check)],
        "",
        "}  // namespace checked",
        "}  // namespace",
        "",
        "TORCH_LIBRARY_FRAGMENT(npu, m) {",
        *[f"  m.def({json.dumps(op.text)}, {{at::Tag::pt2_compliant_tag}});" for op in ops],
        "}",
    ]
    for role, keys in ROLES.items():
        served = [op for op in ops if role in op.functions]
        for key in keys if served else ():
            lines += ["", f"TORCH_LIBRARY_IMPL(npu, {key}, m) {{"]
            for op in served:
                checked = role == "kernel" and checks[op.name]
                target = f"checked::{op.schema.name.unambiguous_name()}" if checked else op.functions[role]
                cast = f"static_cast<{op.pointer()}>({target})"
                lines.append(f'  m.impl("{op.name}", {cast});')
            lines.append("}")
    lines += ["", "}  // namespace at::native::npu", ""]
    return "\n".join(lines)
