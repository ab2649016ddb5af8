#!/usr/bin/env python3
"""Starts a new operator: its entry in the operator table, its operator of the simulated device, and its test.

An operator that upstream has needs nothing but its name:

    python tools/new_operator.py special_airy_ai --ir AiryAi

writes one line for the table, one for the simulator, and test/test_npu/test_network_ops/test_special_airy_ai.py. An
operator of the fork's own is called npu_*, and says what it takes, what the device computes and what is right; its
entry is its kernel, its gradient and its documentation (--kernel begins a kernel that is written by hand):

    python tools/new_operator.py npu_soft_clip --schema '(Tensor self, float limit=1.0) -> Tensor' \\
        --compute 'at::mul_out(y, at::tanh(x / limit), at::scalar_tensor(limit, x.options()))' \\
        --reference 'limit * torch.tanh(self / limit)' --backward 'grad * (1 - (result / limit).square())'

In --compute, y is the output, x the first input (x1, x2, ... the next ones), other arguments go by their name. Nothing
is written if anything is refused. Build afterwards with `bash build.sh develop`; see docs/operator_development.md.
"""

import argparse
import difflib
import functools
import keyword
import os
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(Path(__file__).resolve().parent / "codegen"))

import new_operator_texts as texts  # noqa: E402
from npu_entries import EntryError, _Reader, load_entries  # noqa: E402
from npu_operator import Operator, from_schema, from_upstream  # noqa: E402

KERNELS = Path("aten/src/ATen/native/npu")
SIMULATOR = Path("simulator/ops")
TESTS = Path("test/test_npu/test_network_ops")
FACTS = Path("third_party/acl/ir_facts.yaml")
UNKNOWN = '- reason: "Begun by tools/new_operator.py: whether CANN has them is to be looked up."'


_CPP_KEYWORDS = {
    "alignas", "alignof", "and", "asm", "auto", "bitand", "bitor", "bool", "break", "case", "catch", "char",
    "class", "compl", "const", "constexpr", "continue", "decltype", "default", "delete", "do", "double", "else",
    "enum", "explicit", "export", "extern", "false", "float", "for", "friend", "goto", "if", "inline", "int",
    "long", "mutable", "namespace", "new", "noexcept", "not", "nullptr", "operator", "or", "private", "protected",
    "public", "register", "return", "short", "signed", "sizeof", "static", "struct", "switch", "template", "this",
    "throw", "true", "try", "typedef", "typeid", "typename", "union", "unsigned", "using", "virtual", "void",
    "volatile", "wchar_t", "while", "xor",
}  # fmt: skip
_TAKEN = frozenset(("result", "grad", "grads", "ctx", "cmd", "guard", "context", "torch", "npu", "at"))


class Refused(Exception):
    """The operator cannot be made as asked; the text says why and what to do."""


@functools.cache
def upstream() -> _Reader:
    """Upstream's operators; a second to read."""
    return _Reader(ROOT / KERNELS, None)


def camel(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_") if part)


def simulator_has(root: Path, ir: str) -> bool:
    """Whether some file of the simulator defines the type: every definition is a macro with the type first."""
    pattern = re.compile(rf"\b[A-Z][A-Z0-9_]*\(\s*{ir}\s*[,)]")
    return any(pattern.search(path.read_text()) for path in sorted((root / SIMULATOR).rglob("*.cpp")))


def check_upstream(reader: _Reader, name: str) -> str:
    """The overload that NAME means."""
    if name in reader.functions:
        overload = name
    else:
        overloads = [known for known in reader.functions if known.startswith(f"{name}.")]
        functional = [known for known in overloads if not reader.functions[known].func.is_out_fn()]
        if not overloads:
            near = difflib.get_close_matches(name, reader.functions, n=3)
            hint = f"; did you mean {', '.join(near)}?" if near else ""
            raise Refused(f"upstream has no operator {name}{hint or '.'} An operator of the fork's own is called npu_*")
        if len(functional) != 1:
            raise Refused(f"{name} has several overloads, name one of them: {', '.join(functional or overloads)}")
        overload = functional[0]
    function = reader.functions[overload]
    if function.has_composite_implicit_autograd_kernel:
        raise Refused(f"{overload} needs no kernel: upstream composes it of other operators on every device")
    if function.func.is_out_fn() or function.func.kind().name == "inplace":
        group = reader.groups.get(overload)
        if group is None:
            raise Refused(f"{overload} has no functional form; write a kernel by hand (docs/operator_development.md)")
        overload = str(group.functional.func.name)
    return overload


def has_meta(overload: str) -> bool:
    import torch

    return torch._C._dispatch_has_kernel_for_dispatch_key(
        f"aten::{overload}", "Meta"
    ) or torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{overload}", "CompositeExplicitAutogradNonFunctional")


def describe(args: argparse.Namespace, root: Path) -> Operator:
    """What is to be made, checked against what there is."""
    name = args.name
    if not re.fullmatch(r"_?[a-z][A-Za-z0-9_]*(\.[A-Za-z0-9_]+)?", name):
        raise Refused(f"{name!r} is not an operator's name: letters, digits and underscores, such as npu_soft_clip")
    try:
        table = load_entries(root / KERNELS)
    except EntryError as error:
        raise Refused(f"the operator table of {root} is wrong: {error}") from error
    reader = upstream()
    summary = table.summary()
    own = name.startswith("npu_")
    if own:
        taken = {entry.split(".")[0]: value for entry, value in summary["custom"].items()}
        if name in taken:
            raise Refused(f"{name} exists already: {taken[name]['where']}")
        if "." in name:
            raise Refused(f"{name}: overloads of one's own operators are written by hand")
        operator = from_schema(name, args.schema or "(Tensor self) -> Tensor")
    else:
        for option in ("schema", "backward", "kernel"):
            if getattr(args, option):
                raise Refused(f"--{option} is for operators of the fork's own (npu_*); {name} is upstream's")
        overload = check_upstream(reader, name)
        if overload in summary["composites"]:
            raise Refused(f"{overload} needs no kernel: the table lists it under composites")
        operator = from_upstream(reader, overload)
        for form in operator.funcs:
            for section in ("ir_ops", "kernels"):
                if form in summary[section]:
                    raise Refused(f"{form} has a kernel already: {summary[section][form]['where']}")
        if not has_meta(overload):
            raise Refused(f"upstream does not say what {overload} returns; write a kernel by hand")
    operator.ir = args.ir or camel(operator.base.removeprefix("npu_"))
    if not re.fullmatch(r"[A-Z][A-Za-z0-9]*", operator.ir):
        raise Refused(f"--ir {operator.ir}: an IR operator's type is such as Add or ReduceSumD")
    operator.new_ir = not simulator_has(root, operator.ir)
    if own and operator.new_ir and not args.compute:
        raise Refused(f"the simulated device has no operator {operator.ir}: say with --compute what it computes")
    if args.compute and not operator.new_ir:
        raise Refused(f"--compute: the simulated device has an operator {operator.ir} already; choose another --ir")
    if args.compute and not own:
        raise Refused(f"--compute is for operators of the fork's own; the device runs upstream's {name} itself")
    if own and not args.reference:
        raise Refused("say with --reference what is right: Python, such as 'limit * torch.tanh(self / limit)'")
    operator.compute = args.compute
    operator.reference = args.reference or operator.default_reference
    try:
        compile(operator.reference, "--reference", "eval")
    except SyntaxError as error:
        raise Refused(f"--reference {operator.reference!r} is not a Python expression: {error.msg}") from error
    if own:
        check_arguments(operator)
    if args.compute:
        check_cpp("--compute", args.compute)
    for item in args.backward or ():
        argument, expression = split_backward(item, operator.tensors)
        check_cpp("--backward", expression)
        operator.backward[argument] = expression
    return operator


def check_arguments(operator: Operator) -> None:
    """Refuses names that would not compile, and those that the generated code has for things of its own."""
    seen: set[str] = set()
    for argument in operator.arguments:
        name = argument.name
        if name in seen:
            raise Refused(f"--schema: two arguments are called {name}")
        seen.add(name)
        if keyword.iskeyword(name) or name in _CPP_KEYWORDS:
            raise Refused(f"--schema: an argument cannot be called {name}, a keyword of Python or C++")
        if name in _TAKEN or argument.kind != "tensor" and re.fullmatch(r"[xy]\d*", name):
            raise Refused(f"--schema: call the argument {name} otherwise, the generated code has a {name} of its own")


def check_cpp(option: str, text: str) -> None:
    """Refuses what cannot be an expression of C++, before it is in a file of the build."""
    left = re.sub(r'"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)+\'', "", text)
    while (shorter := re.sub(r"\([^()\[\]{}]*\)|\[[^()\[\]{}]*\]|\{[^()\[\]{}]*\}", "", left)) != left:
        left = shorter
    if not text.strip() or re.search(r"[()\[\]{}\"';]|//|/\*|\*/", left):
        raise Refused(f"{option} {text!r} is not one expression of C++ (empty, unbalanced, a comment or a semicolon)")


def split_backward(item: str, tensors) -> tuple[str, str]:
    """ARG and expression of `--backward [ARG=]C++`."""
    match = re.match(r"\s*(\w+)\s*=(?!=)(.*)", item, re.DOTALL)
    if match is None:
        return tensors[0], item.strip()
    if match.group(1) not in tensors:
        raise Refused(f"--backward {item!r}: no tensor is called {match.group(1)}, there are {', '.join(tensors)}")
    return match.group(1), match.group(2).strip()


def with_entry(text: str, section: str, entry: str) -> str:
    """The YAML text with an entry at the end of a section, which is made if it is not there."""
    lines = text.rstrip("\n").split("\n") if text.strip() else []
    try:
        start = lines.index(f"{section}:")
    except ValueError:
        return "\n".join([*lines, *([""] if lines else []), f"{section}:", entry]) + "\n"
    end = start + 1
    while end < len(lines) and not re.match(r"[a-z_]+:", lines[end]):
        end += 1
    while lines[end - 1] == "" or lines[end - 1].startswith("#"):  # a comment there belongs to what follows
        end -= 1
    return "\n".join([*lines[:end], entry, *lines[end:]]) + "\n"


def with_type(text: str, ir: str) -> str:
    """The facts with one more type that only the simulator is known to have; a card takes the CPU's kernel for it."""
    if re.search(rf"(?<![A-Za-z0-9]){ir}(?![A-Za-z0-9])", text):
        return text
    if UNKNOWN in text:
        return text.replace(f"{UNKNOWN}\n  types: [", f"{UNKNOWN}\n  types: [{ir}, ")
    return text.replace("\nsimulator_only:\n", f"\nsimulator_only:\n{UNKNOWN}\n  types: [{ir}]\n")


def plan(operator: Operator, args: argparse.Namespace, root: Path) -> dict[Path, str]:
    """All files that change, by path, with their new texts."""
    files: dict[Path, str] = {}

    def create(path: Path, text: str) -> None:
        if (root / path).exists():
            raise Refused(f"{path} exists already; remove it or choose another name")
        files[path] = text

    families = sorted(path.parent.name for path in (root / KERNELS).glob("*/npu_native_functions.yaml"))
    if args.family not in families:
        raise Refused(f"--family {args.family}: the families are {', '.join(families)}")
    part = KERNELS / args.family / "npu_native_functions.yaml"
    before = (root / part).read_text() if (root / part).is_file() else ""
    section, entry = texts.table_entry(operator, args.kernel)
    files[part] = with_entry(before, section, entry)
    if args.kernel:
        create(KERNELS / args.family / f"{camel(operator.base.removeprefix('npu_'))}Kernel.cpp", texts.kernel(operator))
    if operator.new_ir:
        create(SIMULATOR / args.family / f"{operator.base.removeprefix('npu_')}.cpp", texts.simulator(operator))
        facts = (root / FACTS).read_text()
        if (told := with_type(facts, operator.ir)) != facts:
            files[FACTS] = told
    create(TESTS / f"test_{operator.base}.py", texts.test(operator))
    for path, text in files.items():
        if path.suffix == ".py":
            try:
                compile(text, str(path), "exec")
            except SyntaxError as error:
                raise Refused(f"{path} would not be Python ({error.msg}); look at --reference and --schema") from error
    return files


def write(files: dict[Path, str], root: Path) -> None:
    """Writes all files or, on an error, none: each is made beside its place first. Raises OSError."""
    made = []
    try:
        for path, text in files.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            beside = (root / path).with_name(f".{path.name[:200]}.new")
            made.append((beside, root / path))
            beside.write_text(text)
            if (root / path).exists():
                beside.chmod((root / path).stat().st_mode)
        for beside, path in made:
            os.replace(beside, path)
    finally:
        for beside, _ in made:
            beside.unlink(missing_ok=True)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0],
        epilog="\n".join(__doc__.splitlines()[1:]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "name", metavar="NAME", help="an operator of upstream (special_airy_ai, sum.dim_IntList), or npu_*"
    )
    parser.add_argument("--ir", metavar="TYPE", help="the Ascend IR operator (default: the name in CamelCase)")
    parser.add_argument("--schema", help="npu_*: arguments and result (default: '(Tensor self) -> Tensor')")
    parser.add_argument(
        "--compute", metavar="C++", help="npu_*: how the simulated device writes y, if TYPE is new to it"
    )
    parser.add_argument("--reference", metavar="PYTHON", help="the right result on the CPU, over the arguments' names")
    parser.add_argument(
        "--backward",
        metavar="[ARG=]C++",
        action="append",
        help="npu_*: gradient of a tensor argument (the first), over grad, result and the arguments' names",
    )
    parser.add_argument(
        "--kernel", action="store_true", help="npu_*: begin a kernel of its own, for what is more than one IR operator"
    )
    parser.add_argument(
        "--family", default="elementwise", help="the drawer that gets the entry and the device operator (%(default)s)"
    )
    parser.add_argument("--root", type=Path, default=ROOT, help="the repository (default: this one)")
    parser.add_argument("--dry-run", action="store_true", help="show what would be written")
    args = parser.parse_args(argv)
    root = args.root.resolve()
    if not (root / KERNELS).is_dir():
        parser.error(f"--root {args.root}: there is no {KERNELS} in it")
    try:
        files = plan(describe(args, root), args, root)
    except (Refused, texts.CannotWrite) as reason:
        print(f"new_operator.py: {reason}", file=sys.stderr)
        return 1
    olds = {path: (root / path).read_text() if (root / path).exists() else "" for path in files}
    if not args.dry_run:
        try:
            write(files, root)
        except OSError as error:
            print(f"new_operator.py: nothing written: {error}", file=sys.stderr)
            return 1
    for path, text in files.items():
        old = olds[path]
        if args.dry_run:
            sys.stdout.writelines(
                difflib.unified_diff(old.splitlines(True), text.splitlines(True), str(path), str(path))
            )
        else:
            print(f"{'changed' if old else 'wrote  '} {path}")
    if not args.dry_run:
        test = next(path for path in files if path.parent == TESTS)
        print(f"next: bash build.sh develop && .venv/bin/python {test} && .venv/bin/python tools/op_coverage.py")
    return 0


if __name__ == "__main__":
    sys.exit(main())
