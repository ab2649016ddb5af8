# Source text as bytes: decoding, spans and edits. The tool finds places with libcst and then replaces only those bytes,
# so whatever it does not mean to change (comments, blanks, line endings, encoding) cannot change.
"""Decoding of Python sources and a list of non-overlapping edits."""

import bisect
import codecs
import io
import re
import tokenize

_PYTHON2 = re.compile(
    r"^\s*(print\s+[^\s=(.,\[)]|print\s*$|exec\s+[\"'\w]|raise\s+\w+\s*,|except\s+[\w.]+\s*,\s*\w+\s*:)|<>|\b0[0-7]+\b|\bur[\"']",
    re.MULTILINE,
)
# x.cuda(async=True) was the spelling of non_blocking until Python 3.7 made a keyword of it.
_ASYNC = re.compile(rb"(?<=[(,])(\s*)async(?=\s*=[^=])")
ASYNC = "asynx"  # stands in the text for the keyword while it is parsed: a name of the same length
_DEEPEST = 150  # deeper brackets than Python's own compiler takes


class SourceError(Exception):
    """The file cannot be converted; the message is what the user reads."""


class Source:
    """One decoded file.

    ``data`` is its text in UTF-8 without a byte order mark; spans and edits are offsets into it.
    """

    def __init__(self, raw: bytes):
        self.bom = raw.startswith(codecs.BOM_UTF8)
        try:
            self.encoding, _ = tokenize.detect_encoding(io.BytesIO(raw).readline)
            text = raw.decode(self.encoding)
        except (SyntaxError, UnicodeDecodeError, LookupError) as error:
            raise SourceError(f"cannot be decoded: {error}") from error
        if "\0" in text:
            raise SourceError("holds null bytes")
        self.data = text.encode("utf-8")
        self._starts = [0] + [match.end() for match in re.finditer(rb"\r\n|\r|\n", self.data)]

    def mask_async(self) -> None:
        """Make arguments called ``async`` parse; the rules for calls turn each into ``non_blocking``."""
        self.data = _ASYNC.sub(rb"\1" + ASYNC.encode(), self.data)

    @property
    def text(self) -> str:
        return self.data.decode("utf-8")

    def line(self, offset: int) -> int:
        """Line number, from 1, of a byte offset."""
        return bisect.bisect_right(self._starts, offset)

    def line_start(self, offset: int) -> int:
        """Offset of the first byte of the line that holds ``offset``."""
        return self._starts[self.line(offset) - 1]

    def line_end(self, offset: int) -> int:
        """Offset of the line ending (or of the end of the text) of the line that holds ``offset``."""
        match = re.compile(rb"[\r\n]").search(self.data, offset)
        return match.start() if match else len(self.data)

    def indent(self, offset: int) -> bytes:
        """Blanks at the start of the line that holds ``offset``."""
        line = self.data[self.line_start(offset) :]
        return line[: len(line) - len(line.lstrip(b" \t\f"))]

    def newline(self, offset: int) -> bytes:
        """Line ending in use at ``offset``: that of its line, else the file's first, else a line feed."""
        match = re.compile(rb"\r\n|\r|\n").search(self.data, offset) or re.search(rb"\r\n|\r|\n", self.data)
        return match.group() if match else b"\n"

    def encode(self, data: bytes) -> bytes:
        """``data`` (UTF-8, edited) in the file's own encoding."""
        if self.encoding in ("utf-8", "utf-8-sig"):
            return codecs.BOM_UTF8 + data if self.bom else data
        return data.decode("utf-8").encode(self.encoding)


class Edits:
    """Replacements of byte spans that do not overlap; an overlapping one is refused, the first comes first."""

    def __init__(self):
        self._spans: list[tuple[int, int, bytes]] = []

    @classmethod
    def of(cls, spans: list[tuple[int, int, bytes]]) -> "Edits":
        """Edits from sorted spans, as ``within`` returns them."""
        edits = cls()
        edits._spans = spans
        return edits

    def __len__(self) -> int:
        return len(self._spans)

    def add(self, start: int, end: int, new: bytes) -> bool:
        """Replace ``[start, end)`` by ``new``; False where an earlier edit already touches it."""
        at = bisect.bisect_right(self._spans, (start, end), key=lambda span: span[:2])
        if at < len(self._spans) and self._spans[at][0] < end:
            return False
        if at and (self._spans[at - 1][1] > start or self._spans[at - 1] == (start, end, new)):
            return False
        self._spans.insert(at, (start, end, new))
        return True

    def apply(self, data: bytes) -> bytes:
        parts, position = [], 0
        for start, end, new in self._spans:
            parts += [data[position:start], new]
            position = end
        parts.append(data[position:])
        return b"".join(parts)

    def within(self, start: int, end: int) -> list[tuple[int, int, bytes]]:
        """Edits that lie within ``[start, end]``, relative to ``start``."""
        low = bisect.bisect_left(self._spans, start, key=lambda span: span[0])
        high = bisect.bisect_right(self._spans, end, lo=low, key=lambda span: span[0])
        return [(first - start, last - start, new) for first, last, new in self._spans[low:high] if last <= end]


def looks_like_python2(text: str) -> bool:
    """Whether a text that does not parse has the marks of Python 2."""
    return bool(_PYTHON2.search(text))


def check_depth(data: bytes) -> None:
    """Refuse sources whose brackets nest deeper than Python itself accepts."""
    if data.count(b"(") + data.count(b"[") + data.count(b"{") <= _DEEPEST:
        return
    depth = deepest = 0
    for byte in re.findall(rb"[()\[\]{}]", data):
        if byte in b"([{":
            depth += 1
            deepest = max(deepest, depth)
        else:
            depth = max(0, depth - 1)
    if deepest > _DEEPEST:
        raise SourceError(f"brackets nest {deepest} deep, Python takes at most {_DEEPEST}")
