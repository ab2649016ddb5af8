"""The table of environment variables, docs/variables.yaml, and the tables that are made from it.

python -m tools.variables --write    writes them into README.md and docs/
python -m tools.variables            says which are out of date; 1 if one is
"""

import sys
from dataclasses import dataclass
from pathlib import Path

import yaml

from tools.setup_helpers.env import ROOT

TABLE = ROOT / "docs/variables.yaml"
# Where each group's table stands, between two markers.
DOCUMENTS = {
    "README.md": ("run",),
    "docs/simulator.md": ("simulator",),
    "docs/distributed.md": ("hccl",),
    "docs/variables.md": ("run", "log", "simulator", "hccl", "build", "tests"),
}


@dataclass(frozen=True)
class Variable:
    name: str
    group: str
    type: str
    meaning: str
    default: str = ""
    tables: tuple[str, ...] = ()
    upstream: bool = False


def read(path: Path = TABLE) -> list[Variable]:
    """All variables, in the table's order; ValueError for an entry that lacks something or has too much."""
    variables = []
    for group, entries in yaml.safe_load(path.read_text(encoding="utf-8")).items():
        for name, entry in entries.items():
            try:
                made = Variable(name, group, **{key: _plain(value) for key, value in entry.items()})
            except TypeError as error:
                raise ValueError(f"{path.name}: {name}: {error}") from None
            variables.append(made)
    return variables


def _plain(value):
    if isinstance(value, list):
        return tuple(value)
    return value if isinstance(value, bool) else str(value)


def table(variables: list[Variable], group: str, document: str) -> str:
    """The Markdown table of one group, as it stands in a document."""
    rows = [v for v in variables if group == v.group or (group in v.tables and document != "docs/variables.md")]
    lines = ["| variable | values | meaning | default |", "| --- | --- | --- | --- |"]
    for v in rows:
        meaning = v.meaning.replace("(docs/", "(") if document.startswith("docs/") else v.meaning
        lines.append(f"| `{v.name}` | {v.type} | {meaning} | {v.default} |")
    return "\n".join(lines) + "\n"


def rendered(text: str, variables: list[Variable], document: str) -> str:
    """The document's text with fresh tables between its markers; ValueError without them."""
    for group in DOCUMENTS[document]:
        begin, end = f"<!-- variables {group}: python -m tools.variables --write -->\n", "<!-- end of variables -->"
        head, found, rest = text.partition(begin)
        if not found or end not in rest:
            raise ValueError(f"{document}: the markers of the table '{group}' are missing")
        text = head + begin + table(variables, group, document) + end + rest.partition(end)[2]
    return text


def main(arguments: list[str]) -> int:
    """Compares, or writes with --write."""
    if arguments not in ([], ["--write"]):
        print(__doc__)
        return 2
    variables, stale = read(), []
    for document in DOCUMENTS:
        path = ROOT / document
        text = path.read_text(encoding="utf-8")
        fresh = rendered(text, variables, document)
        if fresh != text:
            stale.append(document)
            if arguments:
                path.write_text(fresh, encoding="utf-8")
    if stale and not arguments:
        print("out of date; run python -m tools.variables --write:", ", ".join(stale))
    return 1 if stale and not arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
