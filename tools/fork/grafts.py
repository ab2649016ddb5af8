"""Small changes to upstream's Python files, described by an anchor and the new text, applied while the tree is made.

A file of tools/fork/grafts/ holds the grafts of one subject, as TOML tables:

    [[graft]]
    file = "torch/_utils.py"      # in the wheel
    mode = "insert-after"         # or insert-before, replace
    reason = "why, in one line"
    when = "USE_NPU"              # optional: switches, each S or "!S", which must all hold; or "always"; else USE_NPU
    anchor = '''...'''            # found exactly once in upstream's text, else the build fails
    text = '''...'''

`@VERSION@`, `@BUILD_DEBUG@` and `@SWITCHES@` in a text stand for facts of the build, `@BASE_VERSION@` in an anchor for
the base's full version (2.13.0+cpu, or a CUDA build's). Run as a program
(`python -m tools.fork.grafts --write`) it renews the README's table of grafts.
"""

import re
import sys
from dataclasses import dataclass, replace
from pathlib import Path

from tools.setup_helpers.env import BASE_VERSION, OWN_SWITCHES, ROOT, VERSION, BuildError, Switches

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FOLDER = ROOT / "tools" / "fork" / "grafts"
_MODES = ("insert-after", "insert-before", "replace")


@dataclass(frozen=True)
class Graft:
    """One change of one upstream file; `source` names the place that describes it."""

    source: str
    file: str
    mode: str
    anchor: str
    text: str
    reason: str
    when: str = "USE_NPU"

    def applies(self, switches: Switches) -> bool:
        """Whether a build with these switches carries the graft."""
        if self.when == "always":
            return True
        return all(switches[name.lstrip("!")] != name.startswith("!") for name in self.when.split())


def read(folder: Path = FOLDER) -> list[Graft]:
    """All grafts of a folder, in the order of the files' names; raises BuildError for a malformed one."""
    grafts = []
    for path in sorted(folder.glob("*.toml")):
        try:
            tables = tomllib.loads(path.read_text())["graft"]
        except (tomllib.TOMLDecodeError, KeyError) as error:
            raise BuildError(f"{path}: {error}") from error
        for number, table in enumerate(tables, 1):
            source = f"{path.name} graft {number}"
            try:
                graft = Graft(source=source, **table)
            except TypeError as error:
                raise BuildError(f"{source}: {error}") from error
            if graft.mode not in _MODES:
                raise BuildError(f"{source}: mode {graft.mode!r} is none of {', '.join(_MODES)}")
            if graft.when != "always" and any(name.lstrip("!") not in OWN_SWITCHES for name in graft.when.split()):
                raise BuildError(f"{source}: when = {graft.when!r} is no switch of ours")
            if not graft.anchor.strip():
                raise BuildError(f"{source}: the anchor is empty")
            grafts.append(graft)
    return grafts


def apply(text: str, grafts: list[Graft]) -> str:
    """Applies the grafts of one file to upstream's text.

    Anchors are looked up in upstream's text, so the order does not matter. Raises BuildError naming file and graft
    when an anchor is not found exactly once, or when two grafts touch the same text.
    """
    edits = []
    for graft in grafts:
        found = text.count(graft.anchor)
        if found != 1:
            where = f"{graft.file} of torch {BASE_VERSION}"
            raise BuildError(f"{graft.source}: the anchor is found {found} times in {where}, not once")
        start = text.index(graft.anchor)
        end = start + len(graft.anchor)
        edits.append((start, end, graft))
    edits.sort(key=lambda edit: edit[:2])
    for (_, end, first), (start, _, second) in zip(edits, edits[1:], strict=False):
        if start < end:
            raise BuildError(f"{first.source} and {second.source} overlap in {first.file}")
    for start, end, graft in reversed(edits):
        anchor = text[start:end]
        before = anchor if graft.mode == "insert-after" else ""
        after = anchor if graft.mode == "insert-before" else ""
        text = text[:start] + before + graft.text + after + text[end:]
    return text


def grafted_files(base: Path, switches: Switches, folder: Path = FOLDER) -> dict[str, bytes]:
    """The new content of every upstream file that has grafts under these switches."""
    facts = {"@VERSION@": VERSION, "@BUILD_DEBUG@": str(switches["DEBUG"]), "@SWITCHES@": switches.text()}
    version = base / "torch" / "version.py"
    found = re.search(r"^__version__ = '([^']*)'", version.read_text(), re.MULTILINE) if version.is_file() else None
    by_file: dict[str, list[Graft]] = {}
    for graft in read(folder):
        if graft.applies(switches):
            graft = replace(graft, anchor=graft.anchor.replace("@BASE_VERSION@", found[1] if found else BASE_VERSION))
            by_file.setdefault(graft.file, []).append(graft)
    result = {}
    for name, grafts in by_file.items():
        if not (base / name).is_file():
            raise BuildError(f"{grafts[0].source}: torch {BASE_VERSION} has no file {name}")
        text = apply((base / name).read_text(encoding="utf-8"), grafts)
        for token, fact in facts.items():
            text = text.replace(token, fact)
        if name.endswith(".py"):
            try:
                compile(text, name, "exec")
            except SyntaxError as error:
                raise BuildError(f"{grafts[0].source}: {name} does not parse any more: {error}") from error
        result[name] = text.encode()
    return result


def table() -> str:
    """The README's table: each grafted file and why."""
    rows = ["| upstream file | graft | why |", "| --- | --- | --- |"]
    found = {(graft.file, graft.source.split(".toml")[0], graft.reason) for graft in read()}
    rows += [f"| `{file}` | {subject} | {reason} |" for file, subject, reason in sorted(found)]
    return "\n".join(rows)


def with_table(readme: str) -> str:
    """The README's text with a fresh table between its two markers."""
    begin = "<!-- grafts: written by python -m tools.fork.grafts --write -->\n"
    end = "<!-- end of grafts -->"
    head, _, rest = readme.partition(begin)
    tail = rest.partition(end)[2]
    return f"{head}{begin}{table()}\n{end}{tail}"


if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        sys.exit("usage: python -m tools.fork.grafts --write")
    page = ROOT / "README.md"
    page.write_text(with_table(page.read_text()))
