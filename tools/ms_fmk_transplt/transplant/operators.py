# The operator support list, as tools/op_coverage.py writes it: which aten operators run on npu, which fall back to the
# CPU and which are missing. The tool reports what a script uses of the last two.
"""Reading the operator support list (docs/operators.md or its JSON form)."""

import json
import os
import re
from dataclasses import dataclass
from typing import Any

_SPACES = {
    "torch.linalg.": "linalg_",
    "torch.fft.": "fft_",
    "torch.special.": "special_",
    "torch.nn.functional.": "",
    "torch.": "",
}
_HINTS = {
    "fallback": "runs on the CPU through device copies; slow",
    "missing": "has no npu kernel; replace it or write the operator",
}
_NAME = re.compile(r"`?(?:aten::)?(\w+)(?:\.\w+)?`?")


@dataclass(frozen=True)
class Judgement:
    """``support`` is ``fallback`` or ``missing``."""

    support: str
    hint: str


class Operators:
    """Support by aten name without overload.

    ``apis`` maps a public name (``torch.nn.CTCLoss``) to ``{"ops": aten operators behind it that had no npu kernel when
    the list was measured, "always": whether whatever its arguments}``.
    """

    def __init__(self, support: dict[str, str], apis: dict[str, dict] | None = None):
        self.poor = {name: level for name, level in support.items() if level in _HINTS}
        self.apis = {}
        for api, entry in (apis or {}).items():
            names = [name for name in entry["ops"] if name in self.poor]
            if names:
                level = "missing" if any(self.poor[name] == "missing" for name in names) else "fallback"
                when = "" if entry.get("always") else "for some arguments "
                self.apis[api] = Judgement(level, f"{when}{_HINTS[level]} ({', '.join(names)})")

    @classmethod
    def from_content(cls, content: object) -> "Operators":
        """From the decoded JSON of tools/op_coverage.py; ValueError where it holds no operator."""
        apis = content.get("apis") if isinstance(content, dict) else None
        return cls(_best(_from_json(content)), apis)

    def judge(self, name: str) -> Judgement | None:
        """Judgement on a Python name such as ``torch.linalg.qr``; None where it runs natively or is unknown."""
        if name in self.apis:
            return self.apis[name]
        for space, prefix in _SPACES.items():
            if name.startswith(space) and "." not in name[len(space) :]:
                level = self.poor.get(prefix + name[len(space) :])
                return Judgement(level, _HINTS[level]) if level else None
        return None

    def words(self) -> set[str]:
        """Last parts of the Python names that would be reported."""
        return {re.sub(r"^(linalg|fft|special)_", "", name) for name in self.poor} | {
            api.rpartition(".")[2] for api in self.apis
        }


def default_path() -> str | None:
    """The list that travels beside this package; None where it is absent."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "operators.json")
    return path if os.path.isfile(path) else None


def load(path: str) -> Operators:
    """Read a support list.

    Raises:
        OSError: it cannot be read. ValueError: it holds no operator.
    """
    with open(path, encoding="utf-8") as file:
        text = file.read()
    try:
        return (
            Operators.from_content(json.loads(text))
            if path.endswith(".json")
            else Operators(_best(_from_markdown(text)))
        )
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def _best(rows) -> dict[str, str]:
    """Name to level; the worst one listed does not count if a better one exists."""
    best: dict[str, str] = {}
    order = ("missing", "fallback", "composite", "native")
    for name, level in rows:
        if level in order and order.index(level) >= order.index(best.get(name, "missing")):
            best[name] = level
    if not best:
        raise ValueError("it holds no operator support list")
    return best


def _from_json(content: Any):
    if isinstance(content, dict):
        content = content.get("ops", content.get("operators", content))
    entries = content.items() if isinstance(content, dict) else [(None, entry) for entry in content or []]
    for key, entry in entries:
        level = entry if isinstance(entry, str) else None
        if isinstance(entry, dict):
            key = key or entry.get("name") or entry.get("op")
            level = entry.get("support") or entry.get("status") or entry.get("level") or entry.get("kind")
        match = _NAME.match(key or "")
        if match and isinstance(level, str):
            yield match.group(1), level


def _from_markdown(text: str):
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        match = _NAME.fullmatch(cells[0]) if len(cells) > 1 else None
        if match:
            level = next((cell for cell in cells[1:] if cell in ("native", "composite", "fallback", "missing")), None)
            if level:
                yield match.group(1), level
