# What a conversion reports: changes made, advice for the reader, APIs without an npu counterpart, files that failed.
"""Records that the porting tool collects per file and prints, logs or writes to a spreadsheet."""

from dataclasses import asdict, dataclass, field


@dataclass(frozen=True)
class Change:
    """One rewritten place: ``line`` and ``end_line`` count from 1 in the source file."""

    line: int
    end_line: int
    rule: str
    before: str
    after: str
    why: str


@dataclass(frozen=True)
class Hint:
    """Advice that the tool does not apply by itself."""

    line: int
    rule: str
    text: str


@dataclass(frozen=True)
class Unsupported:
    """An API with no counterpart (or with a CPU fallback) on npu."""

    line: int
    api: str
    support: str
    hint: str


@dataclass
class FileReport:
    """Everything about one file. ``status`` is one of converted, unchanged, ported, copied, skipped, failed.

    ``ported`` is a script that already names npu; ``reason`` explains skipped, ported and failed.
    """

    path: str
    status: str = "unchanged"
    reason: str = ""
    changes: list[Change] = field(default_factory=list)
    hints: list[Hint] = field(default_factory=list)
    unsupported: list[Unsupported] = field(default_factory=list)
    lines: int = 0

    def as_dict(self) -> dict:
        """The record as plain dicts and lists, for ``--json``."""
        return asdict(self)
