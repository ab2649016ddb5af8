"""Runs a code generator into a scratch folder and copies what changed to its place.

Usage: generate.py FOLDER SCRIPT [ARGS...], where "@OUT@" in ARGS stands for the scratch folder. Unchanged files keep
their time stamps, so the build recompiles only what a change of a table really changes; files that the generator no
longer writes are removed.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path


def sync(source: Path, target: Path) -> list[str]:
    """Makes `target` equal to `source` (files, recursively) and returns the names that changed."""
    target.mkdir(parents=True, exist_ok=True)
    new = {p.relative_to(source) for p in source.rglob("*") if p.is_file()}
    old = {p.relative_to(target) for p in target.rglob("*") if p.is_file()}
    changed = []
    for name in sorted(old - new):
        (target / name).unlink()
        changed.append(str(name))
    for name in sorted(new):
        place = target / name
        if name in old and place.read_bytes() == (source / name).read_bytes():
            continue
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source / name, place)
        changed.append(str(name))
    return changed


def main(arguments: list[str]) -> int:
    folder, script, *rest = arguments
    with tempfile.TemporaryDirectory(prefix="generate-") as scratch:
        command = [sys.executable, script, *(scratch if a == "@OUT@" else a for a in rest)]
        status = subprocess.run(command, check=False).returncode
        if status == 0:
            sync(Path(scratch), Path(folder))
        return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
