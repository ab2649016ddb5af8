# The operator support list, as tools/op_coverage.py writes it: which aten operators run on npu, which fall back to the
# CPU and which are missing. The tool reports what a script uses of the last two.
"""Reading the operator support list (docs/operators.md or its JSON form)."""

import json
import os
import re
from dataclasses import dataclass

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
    """Support by aten name without overload; the worst overload does not count if a better one exists."""

    def __init__(self, support: dict[str, str]):
        self.poor = {name: level for name, level in support.items() if level in _HINTS}

    def judge(self, name: str) -> Judgement | None:
        """Judgement on a Python name such as ``torch.linalg.qr``; None where it runs natively or is unknown."""
        for space, prefix in _SPACES.items():
            if name.startswith(space) and "." not in name[len(space) :]:
                level = self.poor.get(prefix + name[len(space) :])
                return Judgement(level, _HINTS[level]) if level else None
        return None

    def words(self) -> set[str]:
        """Last parts of the Python names that would be reported."""
        return {re.sub(r"^(linalg|fft|special)_", "", name) for name in self.poor}


def default_path() -> str | None:
    """The list shipped beside this package, or the one in the source tree's docs; None where neither exists."""
    here = os.path.dirname(os.path.abspath(__file__))
    docs = os.path.join(here, "..", "..", "..", "docs")
    for path in (
        os.path.join(here, "operators.json"),
        os.path.join(docs, "operators.json"),
        os.path.join(docs, "operators.md"),
    ):
        if os.path.isfile(path):
            return os.path.normpath(path)
    return None


def load(path: str) -> Operators:
    """Read a support list.

    Raises:
        OSError: it cannot be read. ValueError: it holds no operator.
    """
    with open(path, encoding="utf-8") as file:
        text = file.read()
    rows = _from_json(json.loads(text)) if path.endswith(".json") else _from_markdown(text)
    best: dict[str, str] = {}
    order = ("missing", "fallback", "composite", "native")
    for name, level in rows:
        if level in order and order.index(level) >= order.index(best.get(name, "missing")):
            best[name] = level
    if not best:
        raise ValueError(f"{path} holds no operator support list")
    return Operators(best)


def _from_json(content: object):
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
