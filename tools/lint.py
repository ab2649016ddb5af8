"""Lint of the whole tree, as `make check` and `bash build.sh check` run it: no finding is left open.

    python -m tools.lint                    everything
    python -m tools.lint ruff mypy          some of: ruff, clang-format, mypy, clang-tidy
    python -m tools.lint clang-tidy FILE..  one file of C++, or some

The tools' versions are pinned in requirements-dev.txt, their settings in pyproject.toml, .clang-format and .clang-tidy.
"""

import concurrent.futures
import hashlib
import json
import os
import re
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

from tools.setup_helpers.cmake import compiler, library_dir
from tools.setup_helpers.env import ROOT, Switches

# What clang-tidy reads: all that later layers stand on. Kernels are short, and take ten seconds each to parse.
_TIDY = re.compile(r"/(c10/npu|simulator/core|aten/src/ATen/native/npu/frame)/[^:]*\.cpp$")
# torch is read where it is installed, so that upstream's declarations, the grafts and ours are one.
_TYPED = (("-p", "torch.npu", "-p", "torch.utils.dumper"), ("tools", "third_party/acl/gen_acl.py", "setup.py"))


def _tool(name: str) -> str:
    return str(Path(sysconfig.get_path("scripts")) / name)


def _sources(*patterns: str) -> list[str]:
    listed = subprocess.run(["git", "ls-files", *patterns], cwd=ROOT, capture_output=True, text=True, check=True)
    return [name for name in listed.stdout.splitlines() if (ROOT / name).is_file()]


def _run(*command: str) -> bool:
    return subprocess.run(command, cwd=ROOT, check=False).returncode == 0


def ruff() -> bool:
    """Mistakes and the form of all Python."""
    found = [_run(_tool("ruff"), *what, "--quiet", ".") for what in (("check",), ("format", "--check"))]
    return all(found)


def clang_format() -> bool:
    """The form of all C++."""
    return _run(_tool("clang-format"), "--dry-run", "-Werror", *_sources("*.cpp", "*.h", "*.hpp"))


def mypy() -> bool:
    """Types of torch.npu, the dumper and the tools."""
    found = [_run(_tool("mypy"), "--no-error-summary", *what) for what in _TYPED]
    return all(found)


def _contents(database: Path) -> Callable[[str], list[bytes]]:
    """Gives for an object file of the build what its source and headers hold now; nothing if it is not built."""
    listed = subprocess.run(
        [_tool("ninja"), "-C", str(database), "-t", "deps"], capture_output=True, text=True, check=False
    ).stdout
    headers: dict[str, list[str]] = {}
    for block in listed.split("\n\n"):
        first, *names = [line.strip() for line in block.strip().splitlines()] or [""]
        headers[str((database / first.partition(":")[0]).resolve())] = names
    hashes: dict[str, bytes] = {}

    def digest(name: str) -> bytes:
        if name not in hashes:
            path = database / name
            hashes[name] = hashlib.sha256(path.read_bytes()).digest() if path.is_file() else b""
        return hashes[name]

    return lambda output: [digest(name) for name in headers.get(str(Path(output).resolve()), ())]


def clang_tidy(files: list[str] | None = None) -> bool:
    """Mistakes in the device layer, the frame and the simulator's core; needs compile_commands.json, thus a build."""
    database = library_dir(Switches.read()).parent / "cmake"
    entries = json.loads((database / "compile_commands.json").read_text())
    known = {entry["file"]: entry for entry in entries}
    chosen = [str(Path(name).resolve()) for name in files] if files else sorted(filter(_TIDY.search, known))
    # clang has no omp.h of its own; what it does have comes first.
    where = subprocess.run([compiler(), "-print-file-name=include"], capture_output=True, text=True, check=True)
    options = ["-Wno-unknown-warning-option", "-Wno-error", f"-idirafter{where.stdout.strip()}"]
    command = [_tool("clang-tidy"), "-p", str(database), "--quiet", *(f"--extra-arg={option}" for option in options)]

    # A file is read again when it, a header of it, its options or the checks have changed since nothing was found.
    clean, contents = database / "clang-tidy", _contents(database)
    clean.mkdir(exist_ok=True)
    rules = [(ROOT / ".clang-tidy").read_bytes(), (ROOT / "requirements-dev.txt").read_bytes()]
    common = b"".join([*rules, repr(command).encode()])

    def one(file: str) -> bool:
        entry = known.get(file, {})
        own = [entry.get("command", file).encode(), *contents(entry.get("output", ""))]
        key = hashlib.sha256(b"\0".join([common, Path(file).read_bytes(), *own])).hexdigest()
        if len(own) > 1 and (clean / key).exists():
            return True
        result = subprocess.run([*command, file], cwd=ROOT, capture_output=True, text=True, check=False)
        if result.returncode:
            print(result.stdout + result.stderr, flush=True)
        else:
            (clean / key).touch()
        return result.returncode == 0

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        return all(list(pool.map(one, chosen)))


CHECKS: dict[str, Callable[[], bool]] = {
    "ruff": ruff,
    "clang-format": clang_format,
    "mypy": mypy,
    "clang-tidy": clang_tidy,
}


def main(arguments: list[str]) -> int:
    """Runs the named checks, all if none is named; 0 where nothing was found."""
    if arguments[:1] == ["clang-tidy"] and arguments[1:]:
        return 0 if clang_tidy(arguments[1:]) else 1
    unknown = [name for name in arguments if name not in CHECKS]
    if unknown:
        print(__doc__)
        return 0 if unknown[0] in ("-h", "--help") else 2
    failed = []
    for name in arguments or CHECKS:
        print(f"== {name}", flush=True)
        if not CHECKS[name]():
            failed.append(name)
    print(f"== check: {'failed: ' + ', '.join(failed) if failed else 'nothing found'}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
