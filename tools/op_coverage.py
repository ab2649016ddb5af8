#!/usr/bin/env python
"""Which operators run on npu: prints the counts and writes docs/operators.md and the JSON that the porting tool reads.

Also writes docs/simulator.md's table of the IR operators that only the simulated device has.

    python tools/op_coverage.py                     write all, print the counts
    python tools/op_coverage.py --check             write nothing; exit status 1 where the files are out of date
    python tools/op_coverage.py --json FILE         also write the JSON to FILE ("-": standard output, no counts)
    python tools/op_coverage.py --measure           first run upstream's operator database: dtypes, fallbacks
    python tools/op_coverage.py --measure-card      first run it on a device that knows CANN's operators only
    python tools/op_coverage.py --from-profile FILE the operators of FILE that npu has no kernel for; status 1 if any.
                                                    FILE: what `prof.key_averages().table()` printed, a Chrome
                                                    trace, JSON with names, or one name a line; "-": standard input

The levels come from the dispatcher, so they are those of the build that runs this.
"""

import argparse
import collections
import json
import os
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MARKDOWN = ROOT / "docs" / "operators.md"
JSON = ROOT / "tools" / "ms_fmk_transplt" / "transplant" / "operators.json"
SIMULATOR = ROOT / "docs" / "simulator.md"
FACTS = ROOT / "third_party" / "acl" / "ir_facts.yaml"

LEVELS = ("native", "composite", "fallback", "missing")
WHAT = {
    "native": "has an npu kernel",
    "composite": "upstream computes it from other operators, on npu",
    "fallback": "runs on the CPU through device copies; slow (`NPU_FALLBACK=0` makes it an error)",
    "missing": "raises: a view or random numbers cannot come from the CPU",
}
HINTS = {"fallback": "runs on the CPU through device copies", "missing": "raises on npu"}
# Kernels of one back end, of layouts that npu tensors do not have, and upstream's own test operators.
_FOREIGN = re.compile(
    r"cudnn|miopen|mkldnn|mps|xnnpack|nnpack|triton|cslt|sparse|_coo_|_csr_|csr_to|nested|jagged|fbgemm"
    r"|(?<!per_tensor_)(?<!per_channel_)quantized_|choose_qparams_optimized"
    r"|_for_cpu|int4pack|int8pack|dyn_quant|_test_|_foobar|_philox_|hspmm|sspaddmm|_spdiags|slow_conv|thnn_conv"
    r"|native_multi_head|_transformer_encoder|_transform_bias_rescale|_histogramdd_from"
    r"|scaled_mm|_masked_softmax|_make_dep_token|_convert_weight"
)
_COMPOSITE_KEYS = ("CompositeImplicitAutograd", "CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional")


def base_name(name: str) -> str:
    """``aten::add.Tensor`` -> ``add``."""
    return name.removeprefix("aten::").split(".")[0]


def generated_from() -> dict[str, str]:
    """Overloads that torchgen writes as calls of another: theirs is the other's level."""
    import torchgen
    import yaml

    path = Path(torchgen.__file__).parent / "packaged" / "ATen" / "native" / "native_functions.yaml"
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    source = {}
    for entry in yaml.load(path.read_text(encoding="utf-8"), Loader=loader):
        name = entry["func"].split("(")[0]
        if "structured_delegate" in entry:
            source[name] = entry["structured_delegate"]
        for made in entry.get("autogen", "").split(","):
            if made.strip():
                source[made.strip()] = name
    return source


def runs_on_host(full: str) -> bool:
    """Whether its npu kernel is one that takes the CPU (read_on_host() in Fallback.cpp)."""
    import torch

    lines = torch._C._dispatch_dump(full).splitlines()
    return any(line.startswith("PrivateUse1:") and "/Fallback.cpp" in line for line in lines)


def overload_levels() -> dict[str, str]:
    """Level of every aten overload that npu tensors can meet, e.g. ``{"add.Tensor": "native"}``."""
    import torch

    has = torch._C._dispatch_has_kernel_for_dispatch_key
    source = generated_from()
    levels = {}

    def level(name: str, chain: tuple = ()) -> str | None:
        full = f"aten::{name}"
        if has(full, "PrivateUse1"):
            return "fallback" if runs_on_host(full) else "native"
        if name in source and name not in chain:
            return level(source[name], (*chain, name))
        if any(has(full, key) for key in _COMPOSITE_KEYS):
            return "composite"
        if not has(full, "CPU"):
            return None
        base, _, overload = name.partition(".")
        operator = getattr(getattr(torch.ops.aten, base), overload or "default")
        view = any(r.alias_info is not None and not r.alias_info.is_write for r in operator._schema.returns)
        return "missing" if view or torch.Tag.nondeterministic_seeded in operator.tags else "fallback"

    for full in torch._C._dispatch_get_all_op_names():
        name = full.removeprefix("aten::")
        if not full.startswith("aten::") or _FOREIGN.search(base_name(name)) or base_name(name) == "_":
            continue
        if not torch._C._dispatch_has_kernel(full):
            continue
        found = level(name)
        if found is not None:
            levels[name] = found
    return dict(sorted(levels.items()))


def npu_operators() -> dict[str, str]:
    """The operators that only npu has, name to level: those of the ``npu`` namespace and of ``torch.npu_*``."""
    import torch

    has = torch._C._dispatch_has_kernel_for_dispatch_key
    found = {n for n in dir(torch) if re.match(r"_?npu_", n) or n == "get_npu_format"}
    levels = dict.fromkeys(sorted(found), "native")
    for full in torch._C._dispatch_get_all_op_names():
        if full.startswith("npu::"):
            served = any(has(full, key) for key in ("PrivateUse1", *_COMPOSITE_KEYS))
            levels[full.split("::")[1].split(".")[0]] = "native" if served else "missing"
    return dict(sorted(levels.items()))


def collect(old: dict | None = None, measured: dict | None = None, card: dict[str, str] | None = None) -> dict:
    """The support list. What only ``measure`` can tell is kept from ``old`` unless ``measured`` or ``card``, where the
    operators of a card run, is given."""
    levels = overload_levels()
    old = old or {}
    dtypes = measured["dtypes"] if measured else {n: o.get("dtypes") for n, o in old.get("ops", {}).items()}
    apis = measured["apis"] if measured else old.get("apis", {})
    if card is None:
        card = {n: o["card"] for n, o in old.get("ops", {}).items() if "card" in o}
    grouped: dict[str, dict] = collections.defaultdict(dict)
    for name, found in levels.items():
        base, _, overload = name.partition(".")
        grouped[base][overload or "default"] = found
    ops = {}
    for base, overloads in sorted(grouped.items()):
        ops[base] = {"support": level_of(overloads), "overloads": overloads}
        if dtypes.get(base):
            ops[base]["dtypes"] = dtypes[base]
        if base in card and ops[base]["support"] == "native":
            ops[base]["card"] = card[base]
    return {"ops": ops, "npu_ops": npu_operators(), "apis": apis}


def level_of(overloads: dict[str, str]) -> str:
    """An operator's level from those of its overloads; out= forms count only where there is nothing else."""
    values = [level for name, level in overloads.items() if not re.search(r"(^|_)(out|grad_input)$", name)]
    values = values or list(overloads.values())
    poor = [level for level in values if level in HINTS]
    return max(poor, key=LEVELS.index) if poor else min(values, key=LEVELS.index)


def counts(content: dict) -> dict[str, collections.Counter]:
    return {
        "operators": collections.Counter(op["support"] for op in content["ops"].values()),
        "overloads": collections.Counter(o for op in content["ops"].values() for o in op["overloads"].values()),
    }


def to_json(content: dict) -> str:
    """One operator a line, so that a change shows as one."""
    parts = []
    for section, entries in content.items():
        rows = ",\n".join(f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in entries.items())
        parts.append(f" {json.dumps(section)}: {{\n{rows}\n }}" if rows else f" {json.dumps(section)}: {{}}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def to_markdown(content: dict) -> str:
    lines = [
        "# Operator support",
        "",
        "Written by `python tools/op_coverage.py`; do not edit. `python tools/op_coverage.py --from-profile FILE` says",
        "which operators of a profile npu has no kernel for; the porting tool reports them in `unsupported_op.xlsx`.",
        "",
        "| level | meaning | operators | overloads |",
        "| --- | --- | --- | --- |",
    ]
    numbers = counts(content)
    for level in LEVELS:
        lines.append(f"| {level} | {WHAT[level]} | {numbers['operators'][level]} | {numbers['overloads'][level]} |")
    lines += [
        "",
        "An operator's level is that of its overloads that return new tensors, the worse one where one falls back;",
        "overloads of another level are named. Operators of other back ends, of sparse and nested layouts, and those",
        "that take only quantized tensors are left out. Dtypes: those that upstream's operator database ran on npu",
        "(`float`, `int`, `complex` stand for all of their kind); empty where it has no case.",
    ]
    # A column of its own once --measure-card has run.
    on_card = any("card" in op for op in content["ops"].values())
    if on_card:
        lines += [
            "On a card: whether that database's samples run natively where the device has only those IR operators that",
            "CANN documents; `partly`: some dtypes or uses run on the CPU (measured, `ASCEND_SIM_OPERATORS=cann`).",
        ]
    lines += [
        "",
        "## aten operators",
        "",
        f"| operator | support |{' on a card |' if on_card else ''} dtypes | overloads of another level |",
        f"| --- | --- |{' --- |' if on_card else ''} --- | --- |",
    ]
    for name, op in content["ops"].items():
        others = ", ".join(f"{o}: {level}" for o, level in op["overloads"].items() if level != op["support"])
        dtypes = " ".join(op.get("dtypes", []))
        card = f" {op.get('card', '')} |" if on_card else ""
        lines.append(f"| `{name}` | {op['support']} |{card} {dtypes} | {others} |")
    if content["npu_ops"]:
        lines += ["", "## Operators of npu only (`torch.npu_*`)", "", "| operator | support |", "| --- | --- |"]
        lines += [f"| `{name}` | {level} |" for name, level in content["npu_ops"].items()]
    return "\n".join(lines) + "\n"


def names_of_profile(text: str) -> list[str]:
    """Operator names in a profile's table, a trace, JSON or a plain list, each once, in order."""
    try:
        names = list(_names_in(json.loads(text)))
    except (ValueError, RecursionError):
        names = re.findall(r"(?:aten|npu)::\w+(?:\.\w+)?(?:\.\.\.)?", text)
        if not names or not text.lstrip().startswith("-"):  # a table begins with its rule
            names += [m.group(1) for m in re.finditer(r"^\s*([A-Za-z_]\w*(?:\.\w+)*)\s*$", text, re.MULTILINE)]
    return list(dict.fromkeys(name for name in names if _is_operator(name)))


def _names_in(value):
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _names_in(item)
    elif isinstance(value, dict):
        named = [value[k] for k in ("name", "key", "op") if k in value and not isinstance(value[k], (list, dict))]
        if named:
            yield str(named[0])
            return
        for key, item in value.items():
            if isinstance(item, (list, dict)):
                yield from _names_in(item)
            else:
                yield key


def _is_operator(name: str) -> bool:
    return bool(re.fullmatch(r"(?:(?:aten|npu)::)?[A-Za-z_][\w.]*(?:\.\.\.)?", name)) and "::" not in name[6:]


def judge(name: str, content: dict) -> str | None:
    """Level of an operator of a profile (``aten::add``, ``add.out``, ``torch.add``); None where it is unknown."""
    if name.startswith("npu::") or re.match(r"(torch\.)?_?npu_", name):
        return content["npu_ops"].get(re.split(r"::|\.", name)[1 if "::" in name or name.startswith("torch.") else 0])
    if name.startswith("torch."):
        from torch.tools.ms_fmk_transplt.transplant.operators import Operators

        found = Operators.from_content(content).judge(name)
        return found.support if found else "native"
    name = name.removeprefix("aten::")
    if name.endswith("..."):  # a table's column cuts long names
        matches = [op["support"] for base, op in content["ops"].items() if base.startswith(name[:-3])]
        return max(matches, key=LEVELS.index) if matches else None
    base, _, overload = name.partition(".")
    op = content["ops"].get(base)
    return op and op["overloads"].get(overload, op["support"]) if overload else op and op["support"]


def report_profile(path: str, content: dict) -> int:
    try:
        raw = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
        names = names_of_profile(raw.decode("utf-8"))
    except OSError as error:
        print(f"op_coverage.py: --from-profile {path}: {error.strerror}", file=sys.stderr)
        return 2
    except UnicodeDecodeError as error:
        print(f"op_coverage.py: --from-profile {path}: not a text in UTF-8: {error.reason}", file=sys.stderr)
        return 2
    if not names:
        print(f"{path}: no operator names found", file=sys.stderr)
        return 2
    poor: list = []
    unknown: list = []
    other: list = []
    for name in names:
        level = judge(name, content)
        if level in HINTS:
            poor.append((name, level))
        elif level is None:
            (other if _FOREIGN.search(name) else unknown).append(name)
    print(f"{len(names)} operators, {len(poor)} not supported on npu")
    for name, level in poor:
        print(f"  {name}: {level} ({HINTS[level]})")
    if other:
        print(f"the CPU's own kernels, npu takes others: {', '.join(other)}")
    if unknown:
        print(f"no aten operators: {', '.join(unknown)}")
    return 1 if poor else 0


def to_manual() -> str:
    """docs/simulator.md with the table of the IR operators that only the simulated device has."""
    import yaml

    groups = yaml.safe_load(FACTS.read_text(encoding="utf-8"))["simulator_only"]
    rows = "".join(f"| {group['reason']} | {', '.join(group['types'])} |\n" for group in groups)
    head, table = "| why | IR operators |\n| --- | --- |\n", re.compile(r"(?:\|.*\n)*")
    before, after = SIMULATOR.read_text(encoding="utf-8").split(head)
    return before + head + rows + after[table.match(after).end() :]  # type: ignore[union-attr]


def main() -> int:
    parser = argparse.ArgumentParser(description="Which operators run on npu; writes docs/operators.md.")
    parser.add_argument("--json", metavar="FILE", help='also write the JSON to FILE ("-": standard output)')
    parser.add_argument("--check", action="store_true", help="write nothing, fail where the files are out of date")
    parser.add_argument("--measure", action="store_true", help="run upstream's operator database first (minutes)")
    parser.add_argument("--measure-card", action="store_true", help="run it on a device with CANN's operators only")
    parser.add_argument("--from-profile", metavar="FILE", help="say which operators of FILE are not supported")
    args = parser.parse_args()
    os.environ.pop("NPU_FALLBACK", None)
    old = json.loads(JSON.read_text(encoding="utf-8")) if JSON.is_file() else None
    measured = card = None
    if args.measure and args.measure_card:
        parser.error("--measure and --measure-card: a process has one kind of device; run one after the other")
    if args.measure_card:
        os.environ["ASCEND_SIM_OPERATORS"] = "cann"  # before the device is opened
    if args.measure or args.measure_card:
        sys.path.insert(0, str(ROOT / "tools"))
        import op_coverage_measure

        found = op_coverage_measure.measure()
        measured, card = (None, found["levels"]) if args.measure_card else (found, None)
    content = collect(old, measured, card)
    if args.from_profile:
        return report_profile(args.from_profile, content)
    files = {JSON: to_json(content), MARKDOWN: to_markdown(content), SIMULATOR: to_manual()}
    if args.check:
        stale = [
            path.relative_to(ROOT)
            for path, text in files.items()
            if not path.is_file() or path.read_text(encoding="utf-8") != text
        ]
        if stale:
            print(f"out of date, run python tools/op_coverage.py: {', '.join(map(str, stale))}", file=sys.stderr)
        return 1 if stale else 0
    if args.json and args.json != "-":
        files[Path(args.json)] = files[JSON]
    for path, text in files.items():
        try:
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            print(f"op_coverage.py: cannot write {path}: {error.strerror}", file=sys.stderr)
            return 2
    if args.json == "-":
        print(files[JSON], end="")
        return 0
    for kind, number in counts(content).items():
        total = sum(number.values())
        print(f"{kind}: {total}; " + ", ".join(f"{level} {number[level]}" for level in LEVELS))
    print(f"torch.npu_*: {len(content['npu_ops'])}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
