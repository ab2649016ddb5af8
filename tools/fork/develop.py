"""Lays the fork into an environment without making a wheel: `build.sh develop`.

Upstream's files are hard links to the base tree (copies across file systems), ours are symbolic links to this
repository and to the build's libraries, grafted files are written. An edited Python file or a rebuilt library is
therefore in effect at once; a new file, a removed one or a changed graft needs one more run, which takes a second.
RECORD lists it all, so pip can uninstall it. Byte code is written as pip would.
"""

import compileall
import csv
import importlib.util
import io
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path

from tools.fork import base as base_tree
from tools.fork.metadata import BUILD_NOTE, DIST_INFO, entry_points, own_metadata
from tools.fork.overlay import Content, collect
from tools.setup_helpers.env import BASE_VERSION, Switches

_SCRIPT = """#!{python}
import sys
from {module} import {function}
if __name__ == "__main__":
    sys.exit({function}())
"""


def installed_note(site: Path) -> dict | None:
    """How the fork in this environment was built, or None when it is not there."""
    try:
        return json.loads((site / BUILD_NOTE).read_text())
    except (OSError, ValueError):
        return None


def site_packages() -> Path:
    """Where this interpreter's environment keeps its packages."""
    return Path(sysconfig.get_path("purelib"))


def _link(source: Path, place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, place)
    except FileExistsError:
        place.unlink()
        _link(source, place)
    except OSError:  # another file system, or one without hard links
        shutil.copy2(source, place)


def _put(content: Content, place: Path) -> None:
    """Makes `place` hold the content by replacing it: the old file may be a link to the base tree."""
    if isinstance(content, Path):
        if place.is_symlink() and os.readlink(place) == str(content):
            return
    elif place.is_file() and not place.is_symlink() and place.read_bytes() == content:
        return
    place.parent.mkdir(parents=True, exist_ok=True)
    new = place.with_name(place.name + ".new")
    new.unlink(missing_ok=True)
    if isinstance(content, Path):
        new.symlink_to(content)
    else:
        new.write_bytes(content)
    new.replace(place)


def _scripts(base_info: Path, switches: Switches) -> dict[str, bytes]:
    text = entry_points(base_info, switches)
    section = re.search(r"\[console_scripts\]\n((?:[^\[\n].*\n?)*)", text)
    scripts = {}
    for line in (section[1] if section else "").splitlines():
        name, _, target = line.partition("=")
        module, _, function = target.strip().partition(":")
        scripts[name.strip()] = _SCRIPT.format(python=sys.executable, module=module, function=function).encode()
    return scripts


def install(switches: Switches, base: Path, libraries: Path | None) -> int:
    """Brings the environment of this interpreter up to date and returns how many files are ours."""
    site = site_packages()
    identity = (base.parent / "base.stamp").read_text()
    note = installed_note(site)
    fresh = not (note and note["mode"] == "develop" and note["digest"] == identity)
    if fresh:
        if any(site.glob("torch-*.dist-info")):
            subprocess.run([sys.executable, "-m", "pip", "uninstall", "-qq", "--yes", "torch"], check=True)
        print(f"-- linking torch {BASE_VERSION} into {site}", flush=True)
    base_info = base_tree.dist_info(base)
    files = collect(switches, base, libraries)
    files.update(own_metadata(base_info, switches, identity, "develop"))
    files[f"{DIST_INFO}/INSTALLER"] = b"pip\n"

    def renamed(path: Path) -> str:
        name = path.relative_to(base).as_posix()
        return name.replace(base_info.name, DIST_INFO, 1) if name.startswith(base_info.name) else name

    upstream = {renamed(path): path for path in base.rglob("*") if path.is_file()}
    upstream.pop(f"{DIST_INFO}/RECORD")
    before = _recorded(site)
    for name, source in upstream.items():
        if name not in files and (fresh or not _is_same(site / name, source)):
            _link(source, site / name)
    for name, content in files.items():
        _put(content, site / name)
    bin_dir = Path(sysconfig.get_path("scripts"))
    for name, text in _scripts(base_info, switches).items():
        _put(text, bin_dir / name)
        (bin_dir / name).chmod(0o755)
        files[os.path.relpath(bin_dir / name, site)] = text
    names = sorted({*upstream, *files, f"{DIST_INFO}/RECORD"})
    for name in before - set(names):
        (site / name).unlink(missing_ok=True)
        if name.endswith(".py"):
            Path(importlib.util.cache_from_source(str(site / name))).unlink(missing_ok=True)
    if fresh:
        print("-- compiling the Python files", flush=True)
    compile_files(site, names)
    rows = io.StringIO()
    csv.writer(rows, lineterminator="\n").writerows((name, "", "") for name in names)
    _put(rows.getvalue().encode(), site / DIST_INFO / "RECORD")
    return len(files)


def compile_files(site: Path, names: Iterable[str]) -> None:
    """Writes byte code for those Python files whose own is missing or older.

    An interpreter that may not write any (PYTHONDONTWRITEBYTECODE) would otherwise compile them at every import.
    """
    for folder in sorted({name.split("/")[0] for name in names if name.endswith(".py") and not name.startswith("..")}):
        compileall.compile_dir(site / folder, maxlevels=64, quiet=2, workers=0)


def _recorded(site: Path) -> set[str]:
    try:
        with open(site / DIST_INFO / "RECORD", newline="") as stream:
            return {row[0] for row in csv.reader(stream)}
    except OSError:
        return set()


def _is_same(place: Path, source: Path) -> bool:
    try:
        found, wanted = place.lstat(), source.stat()
    except OSError:
        return False
    same_copy = found.st_size == wanted.st_size and found.st_mtime_ns == wanted.st_mtime_ns
    return found.st_ino == wanted.st_ino or same_copy


if __name__ == "__main__":
    if sys.argv[1:] != ["--mode"]:
        sys.exit("usage: python -m tools.fork.develop --mode")
    print((installed_note(site_packages()) or {}).get("mode", "none"))
