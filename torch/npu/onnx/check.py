r"""Says for each node of an ONNX file whether CANN documents it, before ATC does:

    python -m torch.npu.onnx.check resnet50.onnx

What is documented stands, with its sources, in ``cann_operators.yaml``. It needs the packages ``onnx`` and ``pyyaml``,
nothing of CANN.
"""

import argparse
import dataclasses
import functools
import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ._custom_operators import DOMAIN, OPERATORS

DOCUMENTED = "documented"
UNKNOWN = "unknown"
UNDOCUMENTED = "undocumented"
_ORDER = (DOCUMENTED, UNKNOWN, UNDOCUMENTED)
# The source of what CANN 5 said of opsets does not speak of those that came later.
_SPEAKS_OF_LATER_OPSETS = ("C9", "plugin")


@dataclasses.dataclass
class NodeReport:
    r"""What is documented of one node.

    Attributes:
        name: the node's name, or its first output's where it has none.
        operator: ``Conv``, or ``npu::NPURmsNorm`` outside of the default domain.
        verdict: ``documented``, ``unknown`` (the sources do not say) or ``undocumented``.
        reasons: what speaks against it, or is not known; empty for a documented one.
        note: what the documentation adds, and no table can check.
        source: the title of the source.
    """

    name: str
    operator: str
    verdict: str = DOCUMENTED
    reasons: list[str] = dataclasses.field(default_factory=list)
    note: str = ""
    source: str = ""

    def against(self, verdict: str, reason: str) -> None:
        r"""Add a reason; the verdict becomes the worse one."""
        self.verdict = max(self.verdict, verdict, key=_ORDER.index)
        self.reasons.append(reason)


@dataclasses.dataclass
class _Scope:
    r"""What a node's inputs may be: their types, and those that are constants."""

    types: dict[str, tuple[str, list[int | None] | None]]
    constants: dict[str, Any]

    def inside(self, graph: Any) -> "_Scope":
        types, constants = dict(self.types), dict(self.constants)
        for value in (*graph.input, *graph.value_info, *graph.output):
            if (told := _type_of(value.type)) is not None:
                types[value.name] = told
        for tensor in graph.initializer:
            types[tensor.name] = _element(tensor.data_type), list(tensor.dims)
            constants[tensor.name] = tensor
        constants.update((name, node) for node in graph.node if node.op_type == "Constant" for name in node.output)
        return _Scope(types, constants)


def _element(number: int) -> str:
    import onnx

    return onnx.TensorProto.DataType.Name(number).lower()


def _type_of(kind: Any) -> tuple[str, list[int | None] | None] | None:
    if not kind.HasField("tensor_type") or not kind.tensor_type.elem_type:
        return None
    shape = None
    if kind.tensor_type.HasField("shape"):
        shape = [dim.dim_value if dim.HasField("dim_value") else None for dim in kind.tensor_type.shape.dim]
    return _element(kind.tensor_type.elem_type), shape


@functools.cache
def table() -> dict[str, dict]:
    r"""``cann_operators.yaml``: what CANN documents of the operators of ONNX's default domain."""
    try:
        import yaml
    except ImportError as error:
        raise ImportError("torch.npu.onnx.check reads its table with pyyaml: `pip install pyyaml`") from error
    return yaml.safe_load(Path(__file__).with_name("cann_operators.yaml").read_text(encoding="utf-8"))


def opsets(text: str | int) -> set[int]:
    r"""The versions that ``"8-12, 14"`` stands for."""
    found: set[int] = set()
    for part in str(text).split(","):
        least, _, most = part.strip().partition("-")
        found.update(range(int(least), int(most or least) + 1))
    return found


def _attributes(node: Any) -> dict[str, Any]:
    import onnx

    told = {}
    for attribute in node.attribute:
        value = onnx.helper.get_attribute_value(attribute)
        told[attribute.name] = value.decode() if isinstance(value, bytes) else value
    return told


def _values(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _check_attributes(report: NodeReport, attributes: dict[str, Any], rules: dict[str, dict]) -> None:
    for name, rule in rules.items():
        if name not in attributes:
            continue
        values = _values(attributes[name])
        if rule.get("unsupported") and any(values):
            report.against(UNDOCUMENTED, f"{name} is not supported")
        if "only" in rule and (other := [value for value in values if value not in rule["only"]]):
            allowed = rule["only"] if len(rule["only"]) < 7 else f"{len(rule['only'])} that are listed"
            report.against(UNDOCUMENTED, f"{name} = {other[0]}, documented: {allowed}")
        if "range" in rule:
            least, most = rule["range"]
            if other := [value for value in values if not least <= value <= most]:
                report.against(UNDOCUMENTED, f"{name} has {other[0]}, documented: {least} to {most}")


def _check_types(report: NodeReport, node: Any, told: list[str], variadic: bool, scope: _Scope) -> None:
    narrower = []
    for number, name in enumerate(node.input):
        if not name or name not in scope.types or not told:
            continue
        allowed = (told[min(number, len(told) - 1)] if variadic or number < len(told) else "").split()
        element = scope.types[name][0]
        if not allowed or element in allowed:
            continue
        if element == "float" and "float16" in allowed:
            narrower.append(str(number))
        else:
            report.against(UNDOCUMENTED, f"input {number} is {element}, documented: {', '.join(allowed)}")
    if narrower:
        # ATC may compute in float16 what the file has in float.
        which = f"inputs {', '.join(narrower)} are" if len(narrower) > 1 else f"input {narrower[0]} is"
        report.against(UNKNOWN, f"{which} float, documented: float16; ATC's --precision_mode decides")


def _check_shape(report: NodeReport, node: Any, entry: dict, scope: _Scope) -> None:
    name = node.input[0] if node.input else ""
    shape = scope.types.get(name, ("", None))[1]
    if shape is None:
        return
    rank = entry.get("rank", table()["every"]["rank"])
    least, most = rank if isinstance(rank, list) else (rank, rank)
    if not least <= len(shape) <= most:
        documented = f"{least}" if least == most else f"{least} to {most}"
        report.against(UNDOCUMENTED, f"input 0 has {len(shape)} dimensions, documented: {documented}")
        return
    for axis, (low, high) in entry.get("dims", {}).items():
        if (size := shape[axis]) is not None and not low <= size <= high:
            report.against(UNDOCUMENTED, f"input 0 has {size} along axis {axis}, documented: {low} to {high}")


@functools.cache
def _schema(operator: str, opset: int) -> Any:
    import onnx

    try:
        return onnx.defs.get_schema(operator, opset)
    except onnx.defs.SchemaError:
        return None


def _is_variadic(operator: str, opset: int) -> bool:
    schema = _schema(operator, opset)
    return bool(schema and schema.inputs and schema.inputs[-1].option.name == "Variadic")


def _check_default(report: NodeReport, node: Any, opset: int, scope: _Scope) -> None:
    entry = table()["operators"].get(node.op_type)
    if entry is None:
        report.against(UNDOCUMENTED, "no such operator is documented")
        return
    source = table()["sources"][entry["from"]]
    report.source, report.note = source["title"], entry.get("note", "")
    versions = opsets(entry["opset"])
    if opset not in versions:
        later = opset > max(opsets(source["opset"])) and entry["from"] not in _SPEAKS_OF_LATER_OPSETS
        report.against(UNKNOWN if later else UNDOCUMENTED, f"opset {opset}, documented: {entry['opset']}")
    _check_types(report, node, entry.get("types", []), _is_variadic(node.op_type, opset), scope)
    _check_shape(report, node, entry, scope)
    _check_attributes(report, _attributes(node), entry.get("attrs", {}))
    for number in entry.get("const", []):
        if number < len(node.input) and node.input[number] and node.input[number] not in scope.constants:
            report.against(UNDOCUMENTED, f"input {number} is computed, documented: a constant")


def _check_custom(report: NodeReport, node: Any) -> None:
    known = {operator.type for operator in OPERATORS.values()}
    report.source = table()["sources"]["plugin"]["title"]
    if node.op_type not in known:
        report.source = ""
        report.against(UNDOCUMENTED, "no such operator of CANN's domain is documented")


def _subgraphs(node: Any) -> Iterator[Any]:
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def _reports(nodes: Iterable[Any], opset: int, scope: _Scope, functions: dict, place: str) -> Iterator[NodeReport]:
    for node in nodes:
        domain = "" if node.domain == "ai.onnx" else node.domain
        name = node.name or (node.output[0] if node.output else node.op_type)
        report = NodeReport(place + name, f"{domain}::{node.op_type}" if domain else node.op_type)
        function = functions.get((domain, node.op_type))
        if function is not None:
            # ATC's parser is not known to take functions; what they are made of is.
            report.against(UNKNOWN, "a function of the file itself; its nodes follow")
            yield report
            yield from _reports(function.node, opset, _Scope({}, {}), functions, f"{place}{name}/")
            continue
        if not domain:
            _check_default(report, node, opset, scope)
        elif domain == DOMAIN:
            _check_custom(report, node)
        else:
            report.against(UNDOCUMENTED, f"the domain {domain} is not CANN's")
        yield report
        for graph in _subgraphs(node):
            yield from _reports(graph.node, opset, scope.inside(graph), functions, f"{place}{name}/")


def check(model: Any) -> list[NodeReport]:
    r"""Return what CANN documents of each node of a model, those inside of ``If`` and ``Loop`` included.

    Args:
        model (onnx.ModelProto or path): shapes and element types are inferred from it; weights are not read.

    Raises:
        ImportError: the package onnx or pyyaml is missing.
        ValueError: the file is no ONNX model, or has none of the default operators' opset.
        FileNotFoundError: there is no such file.
    """
    import onnx

    if not isinstance(model, onnx.ModelProto):
        if not Path(model).is_file():
            raise FileNotFoundError(f"no file '{model}'")
        try:
            model = onnx.load(model, load_external_data=False)
        except Exception as error:
            raise ValueError(f"'{model}' is no ONNX model: {error}") from error
    versions = {item.domain: item.version for item in model.opset_import}
    opset = versions.get("", versions.get("ai.onnx", 0))
    if not opset or not model.graph.node:
        raise ValueError("the file has no nodes, or names no opset of ONNX's own operators")
    try:
        model = onnx.shape_inference.infer_shapes(model, data_prop=True)
    except Exception as error:
        raise ValueError(f"the file is no valid ONNX model: {error}") from error
    functions = {(function.domain, function.name): function for function in model.functions}
    scope = _Scope({}, {}).inside(model.graph)
    return list(_reports(model.graph.node, opset, scope, functions, ""))


def _print(reports: list[NodeReport], everything: bool) -> None:
    for report in reports:
        if everything or report.verdict != DOCUMENTED:
            why = "; ".join(report.reasons) or report.source
            print(f"{report.verdict:12}  {report.operator}  {report.name}: {why}")
    notes = {(report.operator, report.note) for report in reports if report.note}
    for operator, note in sorted(notes):
        print(f"note          {operator}: {note}")
    counts = [f"{sum(report.verdict == verdict for report in reports)} {verdict}" for verdict in _ORDER]
    print(f"{len(reports)} nodes: {', '.join(counts)}")


def main(arguments: list[str] | None = None) -> int:
    r"""Run the command; returns 0 if nothing is undocumented, 1 if something is, 2 if the file cannot be read."""
    parser = argparse.ArgumentParser(prog="python -m torch.npu.onnx.check", description=__doc__.splitlines()[0])
    parser.add_argument("file", help="the ONNX file")
    parser.add_argument("--all", action="store_true", help="list documented nodes, too")
    parser.add_argument("--json", action="store_true", help="one JSON list of all nodes")
    options = parser.parse_args(arguments)
    try:
        reports = check(options.file)
    except (ImportError, OSError, ValueError) as error:
        print(f"check: {error}", file=sys.stderr)
        return 2
    if options.json:
        print(json.dumps([dataclasses.asdict(report) for report in reports], indent=1))
    else:
        _print(reports, options.all)
    return int(any(report.verdict == UNDOCUMENTED for report in reports))


if __name__ == "__main__":
    sys.exit(main())
