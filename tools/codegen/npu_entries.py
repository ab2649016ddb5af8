"""Reads the families' npu_native_functions.yaml and checks every entry against upstream's schemas."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torchgen
import yaml
from npu_custom import CustomError, CustomOp, read_custom
from npu_declared import DTYPE_CLASSES
from torchgen.gen import get_grouped_native_functions, parse_native_yaml
from torchgen.model import BaseTy, BaseType, ListType, NativeFunction, NativeFunctionsGroup, OptionalType, Type

# Output rules of frame/inference/MetaRules.h for groups that upstream has no meta function for.
ITERATOR_RULES = ("unary", "unary_float", "unary_bool", "binary", "binary_float", "comparison")
CASE_KEYS = {"type", "when", "inputs", "attrs", "compute", "composed"}
ENTRY_KEYS = {
    *("func", "ir", "inputs", "attrs", "output", "outputs", "compute", "result", "elementwise", "dtypes", "fast"),
    *("forms", "empty", "check", "composed", "wide"),
}
ATEN_KEYS = {"funcs", "ir", "dtypes", "like", "rule", "exact", "check", "composed", "special", "wide"}
SECTIONS = {"ir_ops", "aten_ops", "outs", "kernels", "composites", "custom", "refused"}
IR_FACTS = Path(__file__).resolve().parents[2] / "third_party/acl/ir_facts.yaml"
# torch's names of dtypes that `refused` speaks of, and C++'s.
SCALAR_TYPES = {
    "bool": "Bool",
    "uint8": "Byte",
    "int8": "Char",
    "int16": "Short",
    "int32": "Int",
    "int64": "Long",
    "uint16": "UInt16",
    "uint32": "UInt32",
    "uint64": "UInt64",
    "float16": "Half",
    "bfloat16": "BFloat16",
    "float32": "Float",
    "float64": "Double",
    "complex32": "ComplexHalf",
    "complex64": "ComplexFloat",
    "complex128": "ComplexDouble",
    "float8_e4m3fn": "Float8_e4m3fn",
    "float8_e5m2": "Float8_e5m2",
    "float8_e4m3fnuz": "Float8_e4m3fnuz",
    "float8_e5m2fnuz": "Float8_e5m2fnuz",
    "float8_e8m0fnu": "Float8_e8m0fnu",
}
# Those that `wide` may name: each has a wider one to compute in (widened() of frame/inference/Dtype.h).
FLOAT8_TYPES = ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu")
NARROW_TYPES = ("float16", "bfloat16", "complex32", *FLOAT8_TYPES)


class EntryError(Exception):
    """A wrong entry; the text is FILE:LINE: reason."""


class _LineLoader(yaml.SafeLoader):
    """Keeps the line of every mapping (as __line__) and of every key (as __lines__)."""


def _mapping(loader: _LineLoader, node: yaml.MappingNode) -> dict[str, Any]:
    lines: dict[str, int] = {}
    for key, _ in node.value:
        if key.value in lines:
            raise EntryError(f"{loader.name}:{key.start_mark.line + 1}: {key.value} is listed twice")
        lines[key.value] = key.start_mark.line + 1
    result: dict[str, Any] = loader.construct_mapping(node, deep=True)  # type: ignore[assignment]
    result["__line__"] = node.start_mark.line + 1
    result["__lines__"] = lines
    return result


_LineLoader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)


@dataclass
class Case:
    """One IR operator that an entry may issue; `when` is None for the last."""

    ir: str
    when: str | None
    inputs: list[str]
    attrs: dict[str, str]
    compute: str | None
    composed: str | None = None


@dataclass
class IrOp:
    """A checked entry of `ir_ops`."""

    where: str
    group: NativeFunctionsGroup
    cases: list[Case]
    output: str
    compute: str
    result: str
    elementwise: bool
    dtypes: list[str]
    fast: list[str]
    forms: list[str]
    empty: str | None
    outputs: list[int]
    check: list[str] = field(default_factory=list)
    wide: list[str] = field(default_factory=list)  # C++'s names of dtypes, as `refused`
    refused: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        return str(self.group.functional.func.name)

    @property
    def is_iterator(self) -> bool:
        if self.output == "structured":
            return self.group.out.structured_inherits == "TensorIteratorBase"
        return self.output in ITERATOR_RULES

    def functions(self) -> list[tuple[str, NativeFunction]]:
        """The group's overloads that are generated: (form, function)."""
        forms = [("functional", self.group.functional), ("inplace", self.group.inplace), ("out", self.group.out)]
        return [(form, f) for form, f in forms if f is not None and form in self.forms]


@dataclass
class Kernel:
    """A checked entry of `kernels`: a hand-written function for one overload."""

    where: str
    function: NativeFunction
    symbol: str
    may_lack: bool = False  # its file names an IR type that a card has not


@dataclass
class AtenOp:
    """A checked entry of `aten_ops`: overloads that share an IR operator with the overload's own operands."""

    where: str
    functions: list[NativeFunction]
    ir: str
    dtypes: list[str]
    like: list[str]
    rule: str | None
    exact: bool = False
    functionals: dict[str, NativeFunction] = field(default_factory=dict)  # of its out= overloads
    check: str | None = None
    composed: str | None = None
    wide: list[str] = field(default_factory=list)
    special: str | None = None


@dataclass
class Give:
    """A checked item of `outs`: an out= overload that computes by the functional one."""

    where: str
    function: NativeFunction
    functional: NativeFunction
    exact: bool


@dataclass
class Table:
    ir_ops: list[IrOp] = field(default_factory=list)
    aten_ops: list[AtenOp] = field(default_factory=list)
    outs: list[Give] = field(default_factory=list)
    kernels: list[Kernel] = field(default_factory=list)
    composites: list[str] = field(default_factory=list)
    custom: list[CustomOp] = field(default_factory=list)
    refused: dict[str, list[str]] = field(default_factory=dict)  # overload: C++'s names of dtypes
    missing: set[str] = field(default_factory=set)  # IR types that a card has not

    def summary(self) -> dict[str, Any]:
        ir_ops = {
            str(f.func.name): {"ir": [c.ir for c in op.cases], "dtypes": op.dtypes, "where": op.where}
            for op in self.ir_ops
            for _, f in op.functions()
        }
        for op in self.aten_ops:
            for f in op.functions:
                ir_ops[str(f.func.name)] = {"ir": [op.ir], "dtypes": op.dtypes, "where": op.where}
        outs = {str(g.function.func.name): {"kernel": str(g.functional.func.name), "where": g.where} for g in self.outs}
        kernels = outs | {str(k.function.func.name): {"kernel": k.symbol, "where": k.where} for k in self.kernels}
        custom = {op.name: {**op.functions, "schema": op.text, "where": op.where} for op in self.custom}
        return {"ir_ops": ir_ops, "kernels": kernels, "composites": self.composites, "custom": custom}


def not_on_a_card() -> set[str]:
    """The IR types that no card has as they are issued here."""
    facts = yaml.safe_load(IR_FACTS.read_text())
    return {t for group in facts["simulator_only"] for t in group["types"]} | set(facts["deviations"])


def is_tensor(type_: Type) -> bool:
    return type_.is_tensor_like() and not type_.is_list_like()


def base_of(type_: Type) -> BaseTy | None:
    if isinstance(type_, OptionalType):
        return base_of(type_.elem)
    return type_.name if isinstance(type_, BaseType) else None


def is_int_list(type_: Type) -> bool:
    if isinstance(type_, OptionalType):
        return is_int_list(type_.elem)
    return isinstance(type_, ListType) and base_of(type_.elem) in (BaseTy.int, BaseTy.SymInt)


def wide_types(entry: dict, where: str) -> list[str]:
    """C++'s names of the dtypes that an entry lists under `wide`."""
    names = [str(n) for n in entry.get("wide", [])]
    wrong = [n for n in names if n not in NARROW_TYPES]
    if wrong:
        raise EntryError(f"{where}: `wide` cannot name `{wrong[0]}`; it may name {', '.join(NARROW_TYPES)}")
    return [SCALAR_TYPES[n] for n in names]


class _Reader:
    def __init__(self, source: Path, native_functions: Path | None):
        packaged = Path(torchgen.__file__).parent / "packaged/ATen/native"
        path = native_functions or packaged / "native_functions.yaml"
        tags = path.parent / "tags.yaml"
        parsed = parse_native_yaml(str(path), str(tags if tags.exists() else packaged / "tags.yaml"))
        self.functions = {str(f.func.name): f for f in parsed.native_functions}
        self.groups: dict[str, NativeFunctionsGroup] = {}
        for group in get_grouped_native_functions(parsed.native_functions):
            if isinstance(group, NativeFunctionsGroup):
                for f in group.functions():
                    self.groups[str(f.func.name)] = group
        self.source = source
        self.shape_rules = self._shape_rules()
        self.registered: dict[str, str] = {}
        self.missing = not_on_a_card()
        self.defined: set[str] = set()
        self.lacking: set[str] = set()
        self._read_names()

    def _read_names(self) -> None:
        """Every name that is followed by a parenthesis in a kernel file is what a `kernels` entry may name; those in
        files that issue what a card has not may need the CPU."""
        for file in sorted(self.source.rglob("*.cpp")):
            text = file.read_text()
            names = set(re.findall(r"\b(\w+)\(", text))
            self.defined |= names
            if self.missing.intersection(re.findall(r'"(\w+)"', text)):
                self.lacking |= names

    def _shape_rules(self) -> tuple[str, ...]:
        """The classes of frame/*Rules.h that state shapes only, as upstream's plain meta functions do."""
        texts = [file.read_text() for file in sorted(self.source.rglob("*Rules.h"))]
        return tuple(name for text in texts for name in re.findall(r"struct (\w+) : at::impl::MetaBase", text))

    def claim(self, overload: str, where: str) -> None:
        if overload in self.registered:
            raise EntryError(f"{where}: {overload} already has a kernel, from {self.registered[overload]}")
        self.registered[overload] = where

    def ir_op(self, entry: Any, where: str) -> IrOp:
        def fail(reason: str, key: str = "func") -> EntryError:
            line = entry.get("__lines__", {}).get(key) if isinstance(entry, dict) else None
            return EntryError(f"{where.rsplit(':', 1)[0]}:{line}: {reason}" if line else f"{where}: {reason}")

        if not isinstance(entry, dict) or "func" not in entry or "ir" not in entry:
            raise fail("an entry of ir_ops needs `func` and `ir`")
        for key in entry:
            if not key.startswith("__") and key not in ENTRY_KEYS:
                raise fail(f"unknown key `{key}`; known are {', '.join(sorted(ENTRY_KEYS))}", key)
        name = entry["func"]
        if name not in self.functions:
            raise fail(f"upstream has no overload `{name}`")
        group = self.groups.get(name)
        if group is None:
            raise fail(f"`{name}` has no out= variant to generate from: name a function under `kernels` instead")
        output = str(entry.get("output", "structured"))
        known_rules = (*ITERATOR_RULES, *self.shape_rules)
        if output == "structured" and not group.structured:
            raise fail(f"`{name}` is not structured upstream: give `output`, one of {', '.join(known_rules)}")
        if output != "structured" and output not in known_rules:
            raise fail(f"unknown output rule `{output}`", "output")
        arguments = {a.name: a.type for a in group.functional.func.arguments.flat_all}
        tensors = [n for n, t in arguments.items() if is_tensor(t)]
        default_attrs = entry.get("attrs") or {}
        default_inputs = entry.get("inputs", tensors)
        ir = entry["ir"]
        cases = []
        for item in [{"type": ir}] if isinstance(ir, str) else ir:
            if not isinstance(item, dict) or "type" not in item:
                raise fail("a case of `ir` needs `type`", "ir")
            unknown = [k for k in item if not k.startswith("__") and k not in CASE_KEYS]
            if unknown:
                raise fail(f"unknown key `{unknown[0]}` in a case of `ir`", "ir")
            attrs: Any = item.get("attrs", default_attrs)
            attrs = {k: str(v) for k, v in attrs.items() if not k.startswith("__")}
            inputs = [str(i) for i in item.get("inputs", default_inputs)]
            composed = item.get("composed", entry.get("composed"))
            cases.append(Case(item["type"], item.get("when"), inputs, attrs, item.get("compute"), composed))
            for text in inputs:
                if re.fullmatch(r"[A-Za-z_]\w*", text) and text not in arguments:
                    raise fail(f"input `{text}` is no argument of {group.functional.func}", "inputs")
        if entry.get("composed") and not self.missing.intersection(c.ir for c in cases):
            raise fail("`composed` is for operators that a card has not", "composed")
        if any(c.when is None for c in cases[:-1]) or cases[-1].when is not None:
            raise fail("every case of `ir` but the last needs `when`, and the last has none", "ir")
        check = entry.get("check", ())
        op = IrOp(
            where=where,
            group=group,
            cases=cases,
            output=output,
            compute=str(entry.get("compute", "")),
            result=str(entry.get("result", "bool" if output in ("comparison", "unary_bool") else "compute")),
            elementwise=False,
            dtypes=[str(d) for d in entry.get("dtypes", [])],
            fast=[str(d) for d in entry.get("fast", [])],
            forms=[str(f) for f in entry.get("forms", ("functional", "inplace", "out"))],
            empty=str(entry["empty"]) if "empty" in entry else None,
            outputs=list(entry.get("outputs", range(len(group.functional.func.returns)))),
            check=[check] if isinstance(check, str) else [str(c) for c in check],
            wide=wide_types(entry, where),
        )
        if sorted(op.outputs) != list(range(len(group.functional.func.returns))):
            raise fail(f"`outputs` is an order of the {len(group.functional.func.returns)} results", "outputs")
        op.compute = op.compute or ("common" if op.is_iterator else "none")
        op.elementwise = bool(entry.get("elementwise", op.is_iterator))
        if op.result not in ("compute", "bool", "asis"):
            raise fail("`result` is one of compute, bool, asis", "result")
        if op.empty is not None and len(group.functional.func.returns) != 1:
            raise fail("`empty` needs an operator with one result", "empty")
        if op.compute not in ("common", "output", "none"):
            raise fail("`compute` is one of common, output, none", "compute")
        if op.wide and (op.compute == "none" or op.result == "asis"):
            raise fail(
                "`wide` needs a dtype that is computed in: `compute` common or output, `result` not asis", "wide"
            )
        if op.compute == "common" and not op.is_iterator:
            raise fail("`compute: common` needs a rule that is a TensorIterator", "compute")
        for key, values in (("dtypes", op.dtypes), ("fast", op.fast)):
            wrong = [v for v in values if v not in DTYPE_CLASSES]
            if wrong:
                raise fail(f"unknown dtype class `{wrong[0]}`; known are {', '.join(DTYPE_CLASSES)}", key)
        for _, f in op.functions():
            self.claim(str(f.func.name), where)
        return op

    def custom(self, entry: Any, file: str, line: int) -> CustomOp:
        try:
            op = read_custom(entry, f"{file}:{line}", self.defined)
        except CustomError as error:
            lines = entry.get("__lines__", {}) if isinstance(entry, dict) else {}
            raise EntryError(f"{file}:{lines.get(error.key, line)}: {error}") from error
        self.claim(f"npu::{op.name}", op.where)
        return op

    def aten_op(self, entry: Any, where: str) -> AtenOp:
        if not isinstance(entry, dict) or not entry.get("funcs") or "ir" not in entry:
            raise EntryError(f"{where}: an entry of aten_ops needs `funcs` and `ir`")
        for key in entry:
            if not key.startswith("__") and key not in ATEN_KEYS:
                raise EntryError(f"{where}: unknown key `{key}`; known are {', '.join(sorted(ATEN_KEYS))}")
        functions = []
        for name in entry["funcs"]:
            if name not in self.functions:
                raise EntryError(f"{where}: upstream has no overload `{name}`")
            functions.append(self.functions[name])
            self.claim(name, where)
        dtypes = [str(d) for d in entry.get("dtypes", [])]
        wrong = [d for d in dtypes if d not in DTYPE_CLASSES]
        if wrong:
            raise EntryError(f"{where}: unknown dtype class `{wrong[0]}`; known are {', '.join(DTYPE_CLASSES)}")
        like = [str(n) for n in entry.get("like", [])]
        arguments = {a.name for a in functions[0].func.arguments.flat_all}
        unknown = [n for n in like if n not in arguments]
        if unknown:
            raise EntryError(f"{where}: `{unknown[0]}` is no argument of {functions[0].func}")
        rule = entry.get("rule")
        if rule is not None and rule not in self.defined:
            raise EntryError(f"{where}: no kernel file under {self.source.name}/ defines a rule `{rule}`")
        check = entry.get("check")
        if check is not None and check not in self.defined:
            raise EntryError(f"{where}: no kernel file under {self.source.name}/ defines a check `{check}`")
        composed = entry.get("composed")
        if composed is not None and composed not in self.defined:
            raise EntryError(f"{where}: no kernel file under {self.source.name}/ defines a composition `{composed}`")
        if composed is not None and str(entry["ir"]) not in self.missing:
            raise EntryError(f"{where}: `composed` is for operators that a card has not")
        special = entry.get("special")
        if special is not None and special not in self.defined:
            raise EntryError(f"{where}: no kernel file under {self.source.name}/ defines a special case `{special}`")
        functionals = {str(f.func.name): self.functional_of(f) for f in functions if f.func.is_out_fn()}
        known = {name: f for name, f in functionals.items() if f is not None}
        exact = bool(entry.get("exact"))
        wide = wide_types(entry, where)
        return AtenOp(
            where, functions, str(entry["ir"]), dtypes, like, rule, exact, known, check, composed, wide, special
        )

    def functional_of(self, function: NativeFunction) -> NativeFunction | None:
        """The overload that has an out= overload's other arguments."""
        plain = [a.type for a in function.func.arguments.flat_non_out]
        for f in self.functions.values():
            same = f.func.name.name == function.func.name.name and not f.func.is_out_fn()
            if same and [a.type for a in f.func.arguments.flat_all] == plain:
                return f
        return None

    def give(self, item: Any, where: str) -> Give:
        entry = item if isinstance(item, dict) else {"func": item}
        unknown = [k for k in entry if not k.startswith("__") and k not in ("func", "exact")]
        if unknown:
            raise EntryError(f"{where}: unknown key `{unknown[0]}`; known are exact, func")
        overload = entry.get("func")
        if overload not in self.functions:
            raise EntryError(f"{where}: upstream has no overload `{overload}`")
        function = self.functions[overload]
        if not function.func.is_out_fn():
            raise EntryError(f"{where}: `{overload}` has no out= arguments")
        functional = self.functional_of(function)
        if functional is None:
            raise EntryError(f"{where}: `{overload}` has no functional overload with its arguments")
        self.claim(overload, where)
        return Give(where, function, functional, function.structured or bool(entry.get("exact")))

    def refusals(self, item: Any, where: str) -> dict[str, list[str]]:
        if not isinstance(item, dict) or not item.get("dtypes") or not item.get("funcs"):
            raise EntryError(f"{where}: an item of refused needs `dtypes` and `funcs`")
        unknown = [d for d in item["dtypes"] if d not in SCALAR_TYPES]
        if unknown:
            raise EntryError(f"{where}: unknown dtype `{unknown[0]}`; known are {', '.join(SCALAR_TYPES)}")
        strange = [name for name in item["funcs"] if name not in self.registered]
        if strange:
            raise EntryError(f"{where}: `{strange[0]}` has no kernel that could refuse a dtype")
        return {name: [SCALAR_TYPES[d] for d in item["dtypes"]] for name in item["funcs"]}

    def kernel(self, overload: str, symbol: Any, where: str) -> Kernel:
        if overload not in self.functions:
            raise EntryError(f"{where}: upstream has no overload `{overload}`")
        if not isinstance(symbol, str) or not re.fullmatch(r"[A-Za-z_]\w*", symbol):
            raise EntryError(f"{where}: `{symbol}` is not a function's name")
        if symbol not in self.defined:
            raise EntryError(f"{where}: no kernel file under {self.source.name}/ defines a function `{symbol}`")
        self.claim(overload, where)
        return Kernel(where, self.functions[overload], symbol, symbol in self.lacking)


def load_entries(source: Path, native_functions: Path | None = None) -> Table:
    """Reads all tables in and below `source`; raises EntryError for the first wrong entry."""
    reader = _Reader(source, native_functions)
    table = Table(missing=reader.missing)
    refused: list[tuple[Any, str]] = []
    for path in sorted(source.rglob("npu_native_functions*.yaml")):
        name = path.relative_to(source).as_posix()
        try:
            with path.open() as stream:
                loader = _LineLoader(stream)
                loader.name = name
                content = loader.get_single_data() or {}
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            line = mark.line + 1 if mark else 1
            raise EntryError(f"{name}:{line}: not YAML: {getattr(error, 'problem', error)}") from error
        for key in content:
            if not key.startswith("__") and key not in SECTIONS:
                raise EntryError(f"{name}:{content['__lines__'][key]}: unknown section `{key}`")
        for entry in content.get("ir_ops") or []:
            line = entry.get("__line__", 1) if isinstance(entry, dict) else content["__lines__"]["ir_ops"]
            table.ir_ops.append(reader.ir_op(entry, f"{name}:{line}"))
        for entry in content.get("aten_ops") or []:
            line = entry.get("__line__", 1) if isinstance(entry, dict) else content["__lines__"]["aten_ops"]
            table.aten_ops.append(reader.aten_op(entry, f"{name}:{line}"))
        for overload in content.get("outs") or []:
            table.outs.append(reader.give(overload, f"{name}:{content['__lines__']['outs']}"))
        kernels = content.get("kernels") or {}
        for overload, symbol in kernels.items():
            if overload not in ("__line__", "__lines__"):
                table.kernels.append(reader.kernel(overload, symbol, f"{name}:{kernels['__lines__'][overload]}"))
        for entry in content.get("custom") or []:
            line = entry.get("__line__", 1) if isinstance(entry, dict) else content["__lines__"]["custom"]
            table.custom.append(reader.custom(entry, name, line))
        for overload in content.get("composites") or []:
            if overload not in reader.functions:
                line = content["__lines__"]["composites"]
                raise EntryError(f"{name}:{line}: upstream has no overload `{overload}`")
            table.composites.append(overload)
        for item in content.get("refused") or []:
            refused.append((item, f"{name}:{item.get('__line__', 1) if isinstance(item, dict) else 1}"))
    for item, where in refused:
        for overload, dtypes in reader.refusals(item, where).items():
            if overload in table.refused:
                raise EntryError(f"{where}: `{overload}` is listed twice")
            table.refused[overload] = dtypes
    for op in table.ir_ops:
        op.refused = table.refused.get(op.name, [])
    return table
