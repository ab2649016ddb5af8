# One module under conversion: its tree, names, byte spans and the edits collected so far. The rules in rules_*.py work
# on this and on nothing else, so each of them can be read and tested alone.
"""State of the conversion of one module."""

import ast
import re
from dataclasses import dataclass, field

import libcst as cst
from libcst.metadata import ByteSpanPositionProvider, MetadataWrapper

from . import api_table
from .contexts import Contexts
from .custom import CustomRules
from .operators import Operators
from .records import Change, Hint, Unsupported
from .scopes import Names
from .source import ASYNC, Edits, Source, SourceError, check_depth, looks_like_python2


@dataclass
class Options:
    """What the command line asks for.

    ``version`` is the target API version, ``compat`` the version whose limits are written into the script (or ""),
    ``custom`` the user's rules, ``operators`` the operator support list, ``model`` the main file's model variable.
    """

    version: str = api_table.DEFAULT_VERSION
    compat: str = ""
    custom: CustomRules = field(default_factory=CustomRules)
    operators: Operators | None = None
    model: str = "model"


class Unit:
    """A parsed module with everything the rules need."""

    def __init__(self, source: Source, options: Options):
        self.source = source
        self.options = options
        self.edits = Edits()
        self._records: dict[tuple[tuple[int, int], str], list[str]] = {}
        self.hints: list[Hint] = []
        self.unsupported: list[Unsupported] = []
        check_depth(source.data)
        self.module = parse(source)
        wrapper = MetadataWrapper(self.module, unsafe_skip_copy=True)
        self._spans = wrapper.resolve(ByteSpanPositionProvider)
        self.names = Names(self.module)
        self.contexts = Contexts(self.names)

    # Reading

    def span(self, node: cst.CSTNode) -> tuple[int, int]:
        """First byte of a node and the byte after it, its own parentheses not included."""
        span = self._spans[node]
        return span.start, span.start + span.length

    def outer_span(self, node: cst.CSTNode) -> tuple[int, int]:
        """As ``span``, with the parentheses around an expression."""
        start, end = self.span(node)
        for _ in getattr(node, "lpar", ()):
            start = self.source.data.rindex(b"(", 0, start)
        for _ in getattr(node, "rpar", ()):
            end = self.source.data.index(b")", end) + 1
        return start, end

    def text(self, node: cst.CSTNode) -> str:
        """Source text of a node."""
        start, end = self.outer_span(node)
        return self.source.data[start:end].decode("utf-8")

    def line(self, node: cst.CSTNode) -> int:
        return self.source.line(self.span(node)[0])

    def row(self, name: str | None) -> api_table.Row | None:
        """Row of the API table (the user's own rules first) for a dotted name."""
        if not name:
            return None
        return self.options.custom.names.get(name) or api_table.find(name)

    def is_reached(self, row: api_table.Row) -> bool:
        """Whether the target API version has the row's counterpart."""
        if row.npu is None or not row.since[:1].isdigit():
            return row.npu is not None
        return api_table.version_key(row.since) <= api_table.version_key(self.options.version)

    # Writing

    def replace(
        self, start: int, end: int, new: str, rule: str, why: str, shown: tuple[int, int] | None = None
    ) -> bool:
        """Replace a byte span and record it; ``shown`` is the wider span that the log quotes."""
        old = self.source.data[start:end]
        if old == new.encode("utf-8") or not self.edits.add(start, end, new.encode("utf-8")):
            return False
        self._records.setdefault((shown or (start, end), rule), []).append(why)
        return True

    def insert(self, offset: int, new: str, rule: str, why: str) -> bool:
        """Insert text at a byte offset and record it."""
        return self.replace(offset, offset, new, rule, why)

    def replace_node(self, node: cst.CSTNode, new: str, rule: str, why: str, shown: cst.CSTNode | None = None) -> bool:
        start, end = self.span(node)
        return self.replace(start, end, new, rule, why, self.span(shown) if shown else None)

    def changes(self) -> list[Change]:
        """One record per place and rule, with the place's final text."""
        found = []
        for ((first, last), rule), reasons in self._records.items():
            before = self.source.data[first:last].decode("utf-8")
            after = Edits.of(self.edits.within(first, last)).apply(self.source.data[first:last]).decode("utf-8")
            line, end_line = self.source.line(first), self.source.line(max(first, last - 1))
            why = " ".join(dict.fromkeys(reasons))
            found.append(Change(line, end_line, rule, _short(before.replace(ASYNC, "async")), _short(after), why))
        return sorted(found, key=lambda change: change.line)

    def hint(self, node: cst.CSTNode, rule: str, text: str) -> None:
        record = Hint(self.line(node), rule, text)
        if record not in self.hints:
            self.hints.append(record)

    def missing(self, node: cst.CSTNode, api: str, support: str, hint: str) -> None:
        record = Unsupported(self.line(node), api, support, hint)
        if record not in self.unsupported:
            self.unsupported.append(record)


def parse(source: Source) -> cst.Module:
    """Parse a source; SourceError says what is wrong with it, and whether it is Python 2."""
    text = source.text
    # libcst trips over lone carriage returns and over blanks at the end. Neither change moves a byte that is edited.
    same_length = re.sub(r"\r(?!\n)", "\n", text)
    for variant in dict.fromkeys((text, same_length, same_length.rstrip(" \t\f\r\n") + "\n")):
        try:
            module = cst.parse_module(variant)
        except cst.ParserSyntaxError as error:
            raise SourceError(explain(text, f"line {error.raw_line}")) from error
        except RecursionError as error:
            raise SourceError("nests too deep to be parsed") from error
        if module.code == variant:
            return module
    raise SourceError("libcst does not reproduce this file exactly; it is left as it is")


def explain(text: str, place: str = "line 1", reason: str = "syntax error") -> str:
    """What Python says about a text that does not parse, and whether it is Python 2."""
    try:
        ast.parse(text)
    except SyntaxError as error:
        place, reason = f"line {error.lineno}", f"syntax error: {error.msg}"
    except (ValueError, RecursionError, MemoryError) as error:
        reason = f"syntax error: {error}"
    if looks_like_python2(text):
        return f"{place}: Python 2 source; convert it to Python 3 first (2to3 or futurize)"
    return f"{place}: {reason}"


def _short(text: str, limit: int = 160) -> str:
    text = " ".join(text.split())
    return text if len(text) <= limit else text[: limit - 3] + "..."
