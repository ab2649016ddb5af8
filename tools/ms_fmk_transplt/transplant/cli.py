# The command: options, progress, tables and exit status. Everything it prints about a run it takes from the reports.
"""Command line of the porting tool."""

import argparse
import difflib
import importlib
import importlib.util
import json
import os
import re
import sys

from . import api_table, custom
from .report import shown

OK, FAILED, REFUSED, MISSING, DIFFERS = 0, 1, 2, 3, 4
_EPILOG = """
The result is OUT/{name}_msft with the same tree, msFmkTranspltlog.txt (what was changed, and advice) and
unsupported_op.xlsx (what npu does not have). Sources are never modified.

exit status: 0 done; 1 some files could not be converted (the log says which and why); 2 nothing was done: a wrong
option, rule file or path; 3 a package is missing; 4 --check found something to convert.
"""


def parser() -> argparse.ArgumentParser:
    """The command's options."""
    p = argparse.ArgumentParser(
        prog="ms_fmk_transplt",
        description="Port CUDA training scripts for PyTorch to npu.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    p.add_argument("mode", nargs="?", choices=["distributed"], help="adapt the main file (-m) to several devices")
    p.add_argument("-i", "--input", required=True, metavar="SRC", help="file or folder to convert")
    p.add_argument("-o", "--output", metavar="OUT", help="folder in which {name}_msft is made; not needed with --check")
    p.add_argument("-r", "--rule", metavar="FILE", help="JSON file of custom rules")
    p.add_argument(
        "-v",
        "--version",
        default=api_table.DEFAULT_VERSION,
        choices=api_table.VERSIONS,
        help="target API version (%(default)s)",
    )
    p.add_argument(
        "-m",
        "--main",
        metavar="FILE",
        help="main file, for distributed: gets device list, process group, launch script",
    )
    p.add_argument(
        "-t",
        "--target_model",
        "--target-model",
        default="model",
        metavar="NAME",
        help="variable that holds the model (%(default)s)",
    )
    p.add_argument("--check", action="store_true", help="change nothing, print a unified diff")
    p.add_argument("--json", action="store_true", help="print the report as JSON")
    p.add_argument("--force", action="store_true", help="overwrite an existing result")
    p.add_argument("--compat", choices=["1.5"], default="", help="also write what that version's limits ask for")
    p.add_argument("--operators", metavar="FILE", help="operator support list (docs/operators.md or its JSON)")
    return p


def main(argv: list[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # names of files and lines of sources need not be in the terminal's encoding
            stream.reconfigure(errors="backslashreplace")
    try:
        return _main(parser().parse_args(argv))
    except BrokenPipeError:
        # The reader of our output went away; give the interpreter a stream that it can still flush.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED


def _main(args: argparse.Namespace) -> int:
    for package in ("libcst", "openpyxl"):
        try:
            importlib.import_module(package)
        except ImportError as error:
            why = "" if getattr(error, "name", None) == package else f" ({error})"
            print(f"ms_fmk_transplt needs {package}: pip install torch[npu-tools]{why}", file=sys.stderr)
            return MISSING
    from . import operators
    from .convert import Converter
    from .project import Project, ProjectError
    from .unit import Options

    try:
        if not args.check and not args.output:
            raise ProjectError("-o OUT is required (or --check)")
        if args.mode == "distributed" and not args.main:
            if os.path.isdir(args.input):
                raise ProjectError("distributed needs the main file: -m FILE")
            args.main = args.input
        rules = custom.load(args.rule) if args.rule else custom.CustomRules()
        path = args.operators or operators.default_path()
        support = operators.load(path) if path else None
        options = Options(args.version, args.compat, rules, support, args.target_model)
        project = Project(Converter(options), args.input, args.output, args.main)
        result = project.run(args.check, args.force, _progress(args))
    except (ProjectError, custom.RuleError, OSError, ValueError) as error:
        print(f"ms_fmk_transplt: {error}", file=sys.stderr)
        return REFUSED
    _show(args, project, result)
    if any(report.status == "failed" for report in result.reports):
        return FAILED
    return DIFFERS if args.check and result.diffs else OK


def _has_rich() -> bool:
    return importlib.util.find_spec("rich") is not None


def _progress(args: argparse.Namespace):
    """A progress bar on a terminal; nothing elsewhere."""
    if args.json or not sys.stderr.isatty() or not _has_rich():
        return None
    from rich.markup import escape
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[file]}"),
        transient=True,
    )
    task = bar.add_task("converting", total=None, file="")

    def show(done: int, total: int, path: str) -> None:
        if done == 0:
            bar.start()
        bar.update(task, completed=done, total=total, file=escape(shown(path)[-60:]))
        if done == total:
            bar.stop()

    return show


def _show(args: argparse.Namespace, project, result) -> None:
    from .report import LOG_NAME, SHEET_NAME, totals

    numbers = totals(result.reports)
    if args.json:
        content = {
            "input": project.source,
            "output": result.output if not args.check else None,
            "seconds": round(result.seconds, 3),
            "summary": numbers,
            "notes": result.notes,
            "files": [report.as_dict() for report in result.reports],
        }
        if args.check:
            content["diff"] = "".join(_diff(*diff) for diff in result.diffs)
        print(json.dumps(content, indent=1))
        return
    if args.check:
        for diff in result.diffs:
            sys.stdout.write(_diff(*diff))
    out = sys.stderr if args.check else sys.stdout
    _table(numbers, result, out)
    for report in result.reports:
        if report.status == "failed":
            print(f"failed: {shown(report.path)}: {report.reason}", file=out)
    if not args.check:
        print(f"result: {result.output}\nlog: {os.path.join(result.output, LOG_NAME)}", file=out)
        print(f"unsupported: {os.path.join(result.output, SHEET_NAME)}", file=out)


def _table(numbers: dict[str, int], result, out) -> None:
    speed = sum(report.lines for report in result.reports) / max(result.seconds, 1e-9)
    if out.isatty() and _has_rich():
        from rich.console import Console
        from rich.table import Table

        table = Table(title="ms_fmk_transplt", show_header=False)
        for name, value in numbers.items():
            style = "red" if name == "failed" and value else "yellow" if name == "unsupported" and value else ""
            table.add_row(name, str(value), style=style)
        table.add_row("seconds", f"{result.seconds:.2f}")
        Console(file=out).print(table)
        return
    print("  ".join(f"{name} {value}" for name, value in numbers.items()), file=out)
    print(f"{result.seconds:.2f} s, {speed:,.0f} lines/s", file=out)


def _diff(path: str, old: bytes, new: bytes) -> str:
    """Unified diff of one file; lines that are not UTF-8 are shown with replacement characters."""
    path = shown(path)
    # Not str.splitlines, which also splits at form feeds and the like.
    before, after = (re.findall(r"[^\n]*\n|[^\n]+", data.decode("utf-8", "replace")) for data in (old, new))
    lines = []
    for line in difflib.unified_diff(before, after, f"a/{path}", f"b/{path}"):
        lines.append(line if line.endswith("\n") else line + "\n\\ No newline at end of file\n")
    return "".join(lines)
