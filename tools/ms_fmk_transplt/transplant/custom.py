# The user's own rules (-r): a JSON file in the guide's form. A rule that is wrong stops the tool before it reads any
# source, naming the rule and the key, because a rule that silently does nothing costs an afternoon.
"""Custom conversion rules: ArgsModifyRule, FuncNameModifyRule and ModuleNameModifyRule."""

import ast
import json
import keyword
import re
from dataclasses import dataclass, field
from typing import Any

from .api_table import Row

_DOTTED = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")
_KEYS: dict[str, dict[str, type]] = {
    "ArgsModifyRule": {"func_name": str, "arg_idx": int, "arg_new": str},
    "FuncNameModifyRule": {"old_name": str, "new_name": str},
    "ModuleNameModifyRule": {"old_name": str, "new_name": str, "parent_module": str},
}
_OPTIONAL = {"parent_module"}


class RuleError(Exception):
    """The rule file is refused; the message names the rule and the key."""


@dataclass
class CustomRules:
    """Checked rules: argument changes, function renames by simple name, and dotted names as rows of the API table."""

    arguments: list[tuple[str, int, str]] = field(default_factory=list)
    functions: dict[str, str] = field(default_factory=dict)
    names: dict[str, Row] = field(default_factory=dict)

    def words(self) -> set[str]:
        """Words of which a source must hold one for any of these rules to apply."""
        names = [name for name, _, _ in self.arguments] + list(self.functions) + list(self.names)
        return {name.rpartition(".")[2] for name in names}


def load(path: str) -> CustomRules:
    """Read a rule file.

    Raises:
        RuleError: the file cannot be read, is not JSON, or holds a wrong rule.
    """
    try:
        with open(path, encoding="utf-8-sig") as file:
            content = json.load(file)
    except OSError as error:
        raise RuleError(f"rule file {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise RuleError(f"rule file {path}: {error}") from error
    try:
        return parse(content)
    except RuleError as error:
        raise RuleError(f"rule file {path}: {error}") from error


def parse(content: object) -> CustomRules:
    """Check the content of a rule file; RuleError names the rule and the key."""
    if not isinstance(content, dict) or not isinstance(content.get("rules"), dict):
        raise RuleError('the top level must be an object with the key "rules", itself an object')
    extra = sorted(set(content) - {"rules"})
    if extra:
        raise RuleError(f'unknown key "{extra[0]}" beside "rules"')
    rules = CustomRules()
    for kind, entries in content["rules"].items():
        if kind not in _KEYS:
            raise RuleError(f'unknown rule kind "{kind}"; known are {", ".join(_KEYS)}')
        if not isinstance(entries, list):
            raise RuleError(f"{kind} must be a list")
        for index, entry in enumerate(entries):
            _check(entry, _KEYS[kind], f"{kind}[{index}]")
            _add(rules, kind, entry, f"{kind}[{index}]")
    return rules


def _check(entry: Any, keys: dict[str, type], where: str) -> None:
    if not isinstance(entry, dict):
        raise RuleError(f"{where} must be an object")
    for key in entry:
        if key not in keys:
            raise RuleError(f'{where}: unknown key "{key}"')
    for key, kind in keys.items():
        if key not in entry:
            if key in _OPTIONAL:
                continue
            raise RuleError(f'{where}: missing key "{key}"')
        value = entry[key]
        fits = isinstance(value, kind) and not isinstance(value, bool)
        if not fits:
            raise RuleError(f'{where}: key "{key}" must be {"a string" if kind is str else "a whole number"}')
        if key == "arg_idx" and value < 0:
            raise RuleError(f'{where}: key "arg_idx" must not be negative')
        if key in ("func_name", "old_name", "new_name") and not _is_dotted(value):
            raise RuleError(f'{where}: key "{key}" must be a Python name, got "{value}"')
        if key == "parent_module" and value and not _is_dotted(value):
            raise RuleError(f'{where}: key "{key}" must be a Python name or empty, got "{value}"')
        if key == "arg_new" and not _is_argument(value):
            raise RuleError(f'{where}: key "arg_new" must be a Python expression, got "{value}"')


def _is_dotted(text: str) -> bool:
    return bool(_DOTTED.fullmatch(text)) and not any(keyword.iskeyword(part) for part in text.split("."))


def _is_argument(text: str) -> bool:
    try:
        call = ast.parse(f"f({text})", mode="eval").body
    except (SyntaxError, ValueError):
        return False
    return isinstance(call, ast.Call) and len(call.args) + len(call.keywords) == 1


def _add(rules: CustomRules, kind: str, entry: dict, where: str) -> None:
    if kind == "ArgsModifyRule":
        rules.arguments.append((entry["func_name"], entry["arg_idx"], entry["arg_new"]))
        return
    old, new = entry["old_name"], entry["new_name"]
    if kind == "FuncNameModifyRule" and "." not in old:
        if rules.functions.setdefault(old, new) != new:
            raise RuleError(f'{where}: key "old_name": "{old}" has a rule already')
        return
    parent = entry.get("parent_module", "")
    if parent:
        old, new = f"{parent}.{old}", f"{parent}.{new}"
    row = Row(old, new, "custom", f"custom rule {where}", "name", "Custom rules", kind.startswith("Module"))
    if rules.names.setdefault(old, row).npu != new:
        raise RuleError(f'{where}: key "old_name": "{old}" has a rule already')
