# Notebooks: all code cells form one module, so an import in the first cell is known in the last one. Lines of IPython's
# own (magics, shell commands, help) are masked byte for byte while the rules run, so that offsets stay true.
"""Conversion of Jupyter notebooks."""

import json
import re

from .convert import Converter, with_room
from .records import FileReport
from .source import Source, SourceError

_MAGIC = re.compile(r"^(\s*)([%!?])(.*)$")
_ASSIGNED = re.compile(r"^(\s*[\w.,\s\[\]'\"]+=\s*)([!%])(.*)$")
_HELP = re.compile(r"^(\s*)[\w.]+\?{1,2}\s*$")


def convert(converter: Converter, raw: bytes, path: str, is_main: bool = False) -> tuple[bytes, FileReport]:
    """Convert the bytes of one notebook; as :meth:`Converter.convert`; lines are counted over its code cells."""
    report = FileReport(path, lines=raw.count(b"\n"))
    if not converter.is_interesting(raw):
        return raw, report
    try:
        text = raw.decode("utf-8")
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        report.status, report.reason = "failed", f"not a notebook: {error}"
        return raw, report
    try:
        cells = [cell for cell in content["cells"] if cell.get("cell_type") == "code"]
        sources = ["".join(cell["source"]) for cell in cells]
    except (KeyError, TypeError, AttributeError):
        is_old = isinstance(content, dict) and "worksheets" in content
        why = "format 3; save it with a current Jupyter first" if is_old else 'no list of cells with their "source"'
        report.status, report.reason = "failed", f"not a notebook of format 4: {why}"
        return raw, report
    masked = [_mask(source) for source in sources]
    starts, position = [], 0
    for piece in masked:
        starts.append(position)
        position += len(piece.encode("utf-8")) + 1
    try:
        source = Source(("\n".join(masked) + "\n").encode("utf-8"))
        unit = with_room(source.data, converter.rewrite, source, report)
    except (SourceError, RecursionError) as error:
        report.status, report.reason = "failed", str(error)
        return raw, report
    if report.status != "converted":
        return raw, report
    for cell, old, start in zip(cells, sources, starts, strict=True):
        data = old.encode("utf-8")
        new = data
        for first, last, piece in reversed(unit.edits.within(start, start + len(data))):
            new = new[:first] + piece + new[last:]
        if new != data:
            lines = new.decode("utf-8").splitlines(keepends=True)
            cell["source"] = lines if isinstance(cell["source"], list) else "".join(lines)
    return _dump(content, text).encode("utf-8"), report


def _mask(source: str) -> str:
    """The cell as Python of the same length: magics become comments, a %%cell of another language becomes blank."""
    lines = source.split("\n")
    first = next((i for i, line in enumerate(lines) if line.strip()), 0)
    if lines and re.match(r"\s*%%(?!time\b|timeit\b|capture\b|prun\b)", lines[first]):
        return "\n".join(_comment(line) for line in lines)
    in_string = False
    masked = []
    for line in lines:
        quotes = line.count('"""') + line.count("'''")
        if not in_string:
            if _MAGIC.match(line) or _HELP.match(line):
                line = _comment(line)
            else:
                match = _ASSIGNED.match(line)
                if match:
                    # "files = !ls" -> "files = 0#s": the same number of bytes.
                    line = match.group(1) + "0" + ("#" + _same_length(match.group(3)[1:]) if match.group(3) else "")
        if quotes % 2:
            in_string = not in_string
        masked.append(line)
    return "\n".join(masked)


def _comment(line: str) -> str:
    """A comment of as many bytes as the line; an indented one is ``pass``, so that its block is not empty."""
    stripped = line.lstrip()
    indent = line[: len(line) - len(stripped)]
    rest = _same_length(stripped)
    if indent and len(rest) >= 4:
        return indent + "pass" + ("#" + rest[5:] if len(rest) > 4 else "")
    return indent + "#" + rest[1:] if rest else line


def _same_length(text: str) -> str:
    return "-" * len(text.encode("utf-8"))


def _dump(content: dict, old: str) -> str:
    """The notebook as JSON in the style of its old text."""
    match = re.match(r"\{\s*?\n([ \t]+)\"", old)
    indent = match.group(1) if match else None
    is_ascii = old.isascii()
    separators = None if indent or '": ' in old else (",", ":")
    new = json.dumps(content, indent=indent, ensure_ascii=is_ascii, separators=separators)
    return new + ("\n" if old.endswith("\n") else "")
