"""Runs the scripts of this folder, each in a process of its own, and shows what came of them.

    python examples/libraries/run_all.py                      # every library that is installed
    python examples/libraries/run_all.py --only timm kornia --quick
    python examples/libraries/run_all.py --write-docs         # docs/libraries.md anew

A library that is not installed is left out, and keeps its place in the document. Exit status 1 if a check failed.
"""

import argparse
import ast
import importlib.metadata
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
DOCUMENT = HERE.parents[1] / "docs" / "libraries.md"
NOTHING_MS = 0.5
BEGIN, END = "<!-- results -->\n", "<!-- end of results -->\n"


def scripts() -> list[str]:
    return sorted(path.stem.removeprefix("use_") for path in HERE.glob("use_*.py"))


def missing(name: str) -> bool:
    """Whether a library is not installed that a script's main() names: importing the script would need it already."""
    script = ast.parse((HERE / f"use_{name}.py").read_text())
    calls = [node for node in ast.walk(script) if isinstance(node, ast.Call) and ast.unparse(node.func) == "main"]
    try:
        for distribution in calls[-1].args:
            importlib.metadata.version(ast.literal_eval(distribution))
    except importlib.metadata.PackageNotFoundError:
        return True
    return False


def run(name: str, quick: bool, timeout: float) -> dict | None:
    """What a script has found; None where its library is not installed."""
    if missing(name):
        return None
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rows.json"
        command = [sys.executable, str(HERE / f"use_{name}.py"), "--json", str(file), *(["--quick"] if quick else [])]
        # Libraries write beside the place they are started from.
        try:
            done = subprocess.run(
                command, cwd=folder, timeout=timeout, env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}
            )
        except subprocess.TimeoutExpired:
            return {"versions": {}, "rows": [], "failure": f"not finished after {timeout:.0f} s"}
        if not file.is_file():
            return {"versions": {}, "rows": [], "failure": f"ended with status {done.returncode}"}
        return json.loads(file.read_text())


def result_of(row: dict) -> str:
    """A row's outcome in words."""
    if row["failure"]:
        return f"**{row['failure']}**"
    if row["limit"]:
        return f"refuses: {row['limit']}"
    return "the CPU's numbers" if row["difference"] == 0 else f"off by {row['difference']:.0e}"


def lines_of(name: str, result: dict) -> list[str]:
    """A script's lines of the document's table."""
    versions = ", ".join(f"{library} {version}" for library, version in result["versions"].items())
    lines = [f"| {name} | {versions} | | **{result['failure']}** | | |"] if result.get("failure") else []
    for row in result["rows"]:
        # A check of a launcher has nothing to do on the CPU.
        ratio = f"{row['npu_ms'] / row['cpu_ms']:.2f}" if row["npu_ms"] and (row["cpu_ms"] or 0) > NOTHING_MS else ""
        on_cpu = ", ".join(f"`{operator}`" for operator in row["on_cpu"])
        lines.append(f"| {name} | {versions} | {row['what']} | {result_of(row)} | {ratio} | {on_cpu} |")
    return lines


def write_document(found: dict[str, dict]) -> None:
    """Puts the table between the document's two marks; lines of a script that was not run stay."""
    before, rest = DOCUMENT.read_text().split(BEGIN)
    earlier, after = rest.split(END)
    kept: dict[str, list[str]] = {}
    for line in earlier.splitlines()[2:]:
        kept.setdefault(line.split("|")[1].strip(), []).append(line)
    kept.update({name: lines_of(name, result) for name, result in found.items()})
    head = ["| script | version | what was run | result | npu / CPU | operators on the CPU |", "| --- " * 6 + "|"]
    lines = [*head, *(line for name in sorted(kept) for line in kept[name])]
    DOCUMENT.write_text(before + BEGIN + "\n".join(lines) + "\n" + END + after)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=scripts(), metavar="NAME", help=", ".join(scripts()))
    parser.add_argument("--quick", action="store_true", help="leave the long checks out")
    parser.add_argument("--write-docs", action="store_true", help=f"write {DOCUMENT.name}")
    parser.add_argument("--timeout", type=float, default=600, help="seconds for one script (default: %(default)s)")
    args = parser.parse_args()
    found, absent = {}, []
    for name in args.only or scripts():
        print(f"== {name}", flush=True)
        result = run(name, args.quick, args.timeout)
        if result is None:
            absent.append(name)
        else:
            found[name] = result
    failed = [
        name for name, result in found.items() if result.get("failure") or any(r["failure"] for r in result["rows"])
    ]
    if args.write_docs:
        write_document(found)
    checks = sum(len(result["rows"]) for result in found.values())
    print(f"{len(found)} libraries, {checks} checks; failed: {', '.join(failed) or 'none'}", end="")
    print(f"; not installed: {', '.join(absent)}" if absent else "")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
