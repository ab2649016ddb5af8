"""What tools/new_operator.py knows about the operator that it is asked for."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import npu_custom
from npu_entries import base_of, is_int_list, is_tensor
from torchgen.model import BaseTy, FunctionSchema, ListType, OptionalType


class CannotWrite(Exception):
    """The schema has something that only a hand-written kernel can serve."""


@dataclass
class Argument:
    """One argument; `kind` is tensor, int, float, bool, ints or scalar."""

    name: str
    kind: str
    default: str | None = None


@dataclass
class Operator:
    """A new operator. `base` is its name without an overload."""

    base: str
    overload: str
    own: bool
    schema: FunctionSchema
    arguments: list[Argument]
    section: str = "custom"
    funcs: list[str] = field(default_factory=list)
    ir: str = ""
    new_ir: bool = True
    compute: str | None = None
    default_reference: str = ""
    reference: str = ""
    backward: dict[str, str] = field(default_factory=dict)

    @property
    def tensors(self) -> list[str]:
        return [a.name for a in self.arguments if a.kind == "tensor"]

    @property
    def others(self) -> list[Argument]:
        return [a for a in self.arguments if a.kind != "tensor"]

    @property
    def reduces(self) -> bool:
        """Whether the result lacks the dimensions that `dim` lists."""
        return {a.name for a in self.arguments} >= {"dim", "keepdim"}


def _kind(argument) -> str:
    type_ = argument.type
    if is_tensor(type_) and not isinstance(type_, OptionalType):
        return "tensor"
    if is_int_list(type_):
        return "ints"
    if isinstance(type_, (OptionalType, ListType)):
        raise CannotWrite(f"the argument `{argument}` is beyond this tool; write the kernel by hand")
    kinds = {
        BaseTy.int: "int",
        BaseTy.SymInt: "int",
        BaseTy.float: "float",
        BaseTy.bool: "bool",
        BaseTy.Scalar: "scalar",
    }
    base = base_of(type_)
    if base not in kinds:
        raise CannotWrite(f"the argument `{argument}` is beyond this tool; write the kernel by hand")
    return kinds[base]


def _arguments(schema: FunctionSchema) -> list[Argument]:
    found = [Argument(a.name, _kind(a), a.default) for a in schema.arguments.flat_non_out]
    if not any(a.kind == "tensor" for a in found):
        raise CannotWrite(f"{schema.name} takes no tensor; write the kernel by hand")
    return found


def from_schema(name: str, text: str) -> Operator:
    """An operator of the fork's own, from the part of its schema that follows the name."""
    try:
        schema = npu_custom.parse(f"{name}{text.strip()}")
    except Exception as error:  # torchgen reports wrong schemas by assertions and errors of many kinds
        raise CannotWrite(
            f"--schema {text!r} is not one such as '(Tensor self, float alpha=1.0) -> Tensor': {error}"
        ) from error
    returns = schema.returns
    if len(returns) != 1 or str(returns[0].type) != "Tensor" or "!" in text:
        raise CannotWrite(f"--schema {text!r}: this tool makes operators that return one new tensor")
    return Operator(name, name, True, schema, _arguments(schema))


def from_upstream(reader, overload: str) -> Operator:
    """One of upstream's, with the other forms of its group."""
    function = reader.functions[overload]
    base, _, _ = overload.partition(".")
    group = reader.groups.get(overload)
    forms = [f for f in (group.functional, group.out) if f is not None] if group else [function]
    arguments = _arguments(function.func)
    plain = group is not None and group.structured and all(a.kind == "tensor" for a in arguments)
    module = function.python_module
    call = f"torch.{module}.{base.removeprefix(f'{module}_')}" if module and module != "nn" else f"torch.{base}"
    if module == "nn":
        call = f"torch.ops.aten.{base}"
    operator = Operator(base, overload, False, function.func, arguments, "ir_ops" if plain else "aten_ops")
    operator.funcs = [str(f.func.name) for f in forms]
    operator.default_reference = f"{call}({', '.join(a.name for a in arguments)})"
    if not re.fullmatch(r"[a-z_]\w*", base):
        raise CannotWrite(f"{overload} is private; write the kernel by hand")
    return operator
