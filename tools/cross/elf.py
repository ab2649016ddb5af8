"""What is asked of libraries for another machine, by binutils' readelf, which reads any."""

import re
import subprocess
from collections.abc import Iterable
from functools import cache
from pathlib import Path


@cache
def _readelf(path: Path, what: str) -> str:
    return subprocess.run(["readelf", "-W", what, str(path)], capture_output=True, text=True, check=True).stdout


def machine(path: Path) -> str:
    """The machine that a library is for, in readelf's words."""
    found = re.search(r"Machine:\s+(\S+)", _readelf(path, "-h"))
    return found[1] if found else "nothing known"


def needed(path: Path) -> list[str]:
    """The libraries that a library asks for."""
    return re.findall(r"\(NEEDED\).*\[(.*)\]", _readelf(path, "-d"))


def closure(path: Path, folders: Iterable[Path]) -> tuple[list[Path], set[str]]:
    """The libraries that a library needs, directly or not, and the names of those that are in none of the folders."""
    folders = list(folders)
    found: dict[str, Path] = {}
    missing: set[str] = set()
    todo = needed(path)
    while todo:
        name = todo.pop()
        if name in found or name in missing:
            continue
        place = next((folder / name for folder in folders if (folder / name).exists()), None)
        if place is None:
            missing.add(name)
        else:
            found[name] = place
            todo += needed(place)
    return list(found.values()), missing


def missing(path: Path, folders: Iterable[Path]) -> set[str]:
    """The names of the libraries that a library needs and that are in none of the folders."""
    return closure(path, folders)[1]


@cache
def _symbols(path: Path) -> tuple[frozenset[str], frozenset[str]]:
    """Names that a library defines, and names that it must find elsewhere (weak ones may be absent)."""
    defined, wanted = set(), set()
    for line in _readelf(path, "--dyn-syms").splitlines():
        fields = line.split()
        if len(fields) < 8 or not fields[0].rstrip(":").isdigit():
            continue
        bind, section, name = fields[4], fields[6], re.split("@", fields[7])[0]
        if section != "UND":
            defined.add(name)
        elif bind != "WEAK":
            wanted.add(name)
    return frozenset(defined), frozenset(wanted)


def unresolved(path: Path, folders: Iterable[Path]) -> set[str]:
    """The symbols that a library wants and that none of the libraries it needs defines."""
    have = set().union(*(_symbols(library)[0] for library in closure(path, folders)[0]))
    return set(_symbols(path)[1]) - have
