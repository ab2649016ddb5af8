# Dotted names: imports, and every chain such as torch.cuda.amp.autocast or, after "import torch.cuda as tc", tc.amp.
# What a name becomes is decided by the API table alone; this file only finds where the tokens to change are.
"""Rules for imports and for references to names of the API table."""

import re

import libcst as cst

from .api_table import PACKAGES, Row, canonical
from .scopes import dotted, dotted_text
from .unit import Unit

# Rows whose hint is given by the rules for calls, at the call.
_HINTED_ELSEWHERE = {"torch.nn.DataParallel", "apex.amp", "torch.backends.cudnn", "torch.backends.cuda"}
_INTERNAL = ("torch._C._cuda", "torch._C._cudnn", "torch._C._CUDA", "torch._C._CudaDevice")


class NameRules:
    """Applies the API table to one unit."""

    def __init__(self, unit: Unit):
        self.unit = unit
        self.names = unit.names
        self._new_targets: dict[cst.ImportAlias, str] = {}
        self._renamed: dict[cst.ImportAlias, str] = {}
        self.needs_torch = False

    def apply(self) -> None:
        for node in self.names.nodes:
            if isinstance(node, cst.Import):
                self._import(node)
            elif isinstance(node, cst.ImportFrom):
                self._import_from(node)
        for node in self.names.nodes:
            if isinstance(node, cst.Attribute):
                self._chain(node)
            elif isinstance(node, cst.Name):
                self._rename(node)

    # The table

    def look_up(self, name: str) -> tuple[Row, str | None] | None:
        """Row for a dotted name and what the name becomes (None: no counterpart); None if the table is silent."""
        parts = name.split(".")
        for count in range(len(parts), 0, -1):
            prefix, suffix = ".".join(parts[:count]), parts[count:]
            row = self.unit.row(prefix)
            if row is None:
                continue
            if row.npu is None:
                return row, None
            if suffix and row.is_module and not row.kept and row.section != "Custom rules":
                remark = "not in the API table; look for it under torch.npu"
                return Row(name, None, "-", remark, "name", row.section), None
            if not self.unit.is_reached(row):
                remark = f"{row.npu} exists from API version {row.since} on"
                return Row(prefix, None, row.since, remark, "name", row.section), None
            return row, ".".join([row.npu] + suffix)
        return None

    def _report(self, node: cst.CSTNode, row: Row) -> None:
        if row.npu is None:
            self.unit.missing(node, row.cuda, "none", row.remark)
        elif row.kept and row.cuda not in _HINTED_ELSEWHERE:
            self.unit.hint(node, "no effect on npu" if "backends" in row.cuda else "check", f"{row.cuda}: {row.remark}")

    # Imports

    def _import(self, node: cst.Import) -> None:
        for alias in node.names:
            name = dotted_text(alias.name) or ""
            self._package(alias, name)
            found = self.look_up(name)
            if not found:
                continue
            row, new = found
            self._report(alias, row)
            if new and new != name and self.unit.replace_node(alias.name, new, "import", row.remark, node):
                old_root, new_root = name.split(".")[0], new.split(".")[0]
                self._new_targets[alias] = new if alias.asname else new_root
                if not alias.asname and new_root != old_root:
                    self._renamed[alias] = new_root

    def _import_from(self, node: cst.ImportFrom) -> None:
        module = dotted_text(node.module) or "" if node.module else ""
        if node.relative or not module:
            self._rename_functions(node, module)
            return
        if isinstance(node.names, cst.ImportStar):
            found = self.look_up(module)
            if found and found[1] and found[1] != module:
                self.unit.replace_node(node.module, found[1], "import", found[0].remark, node)
            return
        moved: dict[cst.ImportAlias, tuple[str, str, Row]] = {}
        for alias in node.names:
            name = f"{module}.{alias.name.value}"
            self._package(alias, name)
            found = self.look_up(name)
            if not found:
                continue
            row, new = found
            self._report(alias, row)
            if new and canonical(new) != canonical(name):
                home, _, leaf = new.rpartition(".")
                moved[alias] = (home, leaf, row)
        if not moved:
            self._rename_functions(node, module)
            return
        homes = {home for home, _, _ in moved.values()}
        if len(moved) == len(node.names) and len(homes) == 1:
            self._move_whole(node, module, moved)
        else:
            self._move_some(node, module, moved)

    def _rename_functions(self, node: cst.ImportFrom, module: str) -> None:
        """The user's FuncNameModifyRule by simple name, at the import of the function."""
        if isinstance(node.names, cst.ImportStar):
            return
        for alias in node.names:
            new = self.unit.options.custom.functions.get(alias.name.value)
            if new and "." not in new:
                row = Row(alias.name.value, new, "custom", "FuncNameModifyRule", "name", "Custom rules")
                self._new_leaf(alias, module, new, row, node)

    def _move_whole(self, node: cst.ImportFrom, module: str, moved: dict) -> None:
        for alias, (home, leaf, row) in moved.items():
            if home != module:
                self.unit.replace_node(node.module, home, "import", row.remark, node)
            self._new_leaf(alias, home, leaf, row, node)

    def _new_leaf(self, alias: cst.ImportAlias, home: str, leaf: str, row: Row, node: cst.ImportFrom) -> None:
        old = alias.name.value
        self._new_targets[alias] = f"{home}.{leaf}"
        if leaf == old:
            return
        text = leaf
        if not alias.asname:
            if self._may_rename(old, leaf):
                self._renamed[alias] = leaf
            else:
                text = f"{leaf} as {old}"
        self.unit.replace_node(alias.name, text, "import", row.remark, node)

    def _may_rename(self, old: str, new: str) -> bool:
        """Only ``cuda`` -> ``npu`` and the user's renames change the local name; others keep it with ``as``."""
        if (old, new) != ("cuda", "npu") and old not in self.unit.options.custom.functions:
            return False
        exported = any(isinstance(node, cst.Name) and node.value == "__all__" for node in self.names.nodes)
        return not exported and not self.names.bound_anywhere(new)

    def _move_some(self, node: cst.ImportFrom, module: str, moved: dict) -> None:
        """Take the moved names out of an import and import them in a statement of their own before it."""
        unit, data = self.unit, self.unit.source.data
        start, _ = unit.span(node)
        names = list(node.names)
        lines: dict[str, list[str]] = {}
        for alias, (home, leaf, _) in moved.items():
            bound = alias.asname.name.value if alias.asname else alias.name.value
            if home == module:
                continue
            lines.setdefault(home, []).append(leaf if leaf == bound else f"{leaf} as {bound}")
        joint = "; "
        if data[unit.source.line_start(start) : start].strip() == b"":
            joint = unit.source.newline(start).decode() + unit.source.indent(start).decode()
        text = "".join(f"from {home} import {', '.join(leaves)}{joint}" for home, leaves in lines.items())
        why = next(iter(moved.values()))[2].remark
        gone = [alias in moved and moved[alias][0] != module for alias in names]
        if all(gone):
            unit.replace(start, unit.span(node)[1], text.removesuffix(joint), "import", why)
        elif text:
            unit.insert(start, text, "import", why)
            self._delete_aliases(names, gone)
        for alias, (home, leaf, row) in moved.items():
            if home == module:
                self._new_leaf(alias, home, leaf, row, node)
            else:
                self._new_targets[alias] = f"{home}.{leaf}"

    def _delete_aliases(self, names: list[cst.ImportAlias], gone: list[bool]) -> None:
        """Delete each run of moved names with its commas; the names and comments around it stay."""
        index = 0
        while index < len(names):
            if not gone[index]:
                index += 1
                continue
            first = index
            while index < len(names) and gone[index]:
                index += 1
            if index < len(names):
                self.unit.edits.add(self.unit.span(names[first])[0], self.unit.span(names[index])[0], b"")
            else:
                start, end = self._last_aliases(names, first)
                self.unit.edits.add(start, end, b"")

    def _last_aliases(self, names: list[cst.ImportAlias], first: int) -> tuple[int, int]:
        """Span of the names from ``first`` to the last: whole lines where they have lines of their own."""
        source = self.unit.source
        start, end = self.unit.span(names[first])[0], self.unit.span(names[-1])[1]
        line = source.line_start(start)
        rest = re.compile(rb"[ \t]*,?[ \t]*(#[^\r\n]*)?(\r\n|\r|\n)").match(source.data, end)
        if not source.data[line:start].strip() and rest:
            return line, rest.end()
        return self.unit.span(names[first - 1])[1], end

    def _package(self, alias: cst.ImportAlias, name: str) -> None:
        parts = name.split(".")
        for count in range(1, len(parts) + 1):
            row = PACKAGES.get(".".join(parts[:count]))
            if row:
                self.unit.missing(alias, row.cuda, "none", row.remark)

    # References

    def _is_import_part(self, node: cst.CSTNode) -> bool:
        parent = self.names.parents.get(node)
        while isinstance(parent, cst.Attribute):
            parent = self.names.parents.get(parent)
        return isinstance(parent, (cst.ImportAlias, cst.ImportFrom, cst.AsName))

    def _chain(self, node: cst.Attribute) -> None:
        parent = self.names.parents.get(node)
        if isinstance(parent, cst.Attribute) and parent.value is node:
            return
        parts = dotted(node)
        # Calls and subscripts inside the chain end it: the part before them is a chain of its own.
        if not parts or self._is_import_part(node):
            return
        base = self.names.qualified(parts[0])
        if base is None:
            return
        old = ".".join([base] + [part.value for part in parts[1:]])
        if old.startswith(_INTERNAL):
            self.unit.missing(node, old, "none", "internal of the CUDA back end")
            return
        found = self.look_up(old)
        if not found:
            return
        row, new = found
        self._report(node, row)
        if new is None or row.kept:
            return
        self._rewrite(node, parts, base, new, row)

    def _new_base(self, name: cst.Name, base: str) -> str:
        """Dotted name of the chain's first part after the imports and aliases have been rewritten."""
        for binding in self.names.bindings(name):
            if binding.kind == "import" and binding.node in self._new_targets:
                return self._new_targets[binding.node]
            if binding.kind == "alias":
                found = self.look_up(base)
                if found and found[1]:
                    return found[1]
        return base

    def _rewrite(self, node: cst.Attribute, parts: list[cst.Name], base: str, new: str, row: Row) -> None:
        new_base = self._new_base(parts[0], base)
        rest = new.split(".")[len(new_base.split(".")) :]
        renames = [binding for binding in self.names.bindings(parts[0]) if binding.node in self._renamed]
        if new != new_base and not new.startswith(new_base + "."):
            if row.section == "Custom rules" and renames:
                return
            self.needs_torch = True
            self._whole(node, new, row)
            return
        if renames:
            self.unit.replace_node(parts[0], self._renamed[renames[0].node], "name", row.remark, node)
        if len(rest) != len(parts) - 1:
            self._whole(node, ".".join([parts[0].value] + rest), row)
            return
        for part, text in zip(parts[1:], rest, strict=True):
            if part.value != text:
                self.unit.replace_node(part, text, "name", row.remark, node)

    def _whole(self, node: cst.Attribute, text: str, row: Row) -> None:
        start, end = self.unit.span(node)
        self.unit.replace(start, end, text, "name", row.remark)

    def _rename(self, node: cst.Name) -> None:
        """Uses of an imported name whose local name changes."""
        if not self._renamed or self._is_import_part(node):
            return
        parent = self.names.parents.get(node)
        if isinstance(parent, cst.Attribute) and (parent.attr is node or self.names.parents.get(parent) is None):
            return
        if (
            isinstance(parent, (cst.Param, cst.Arg))
            and getattr(parent, "keyword", getattr(parent, "name", None)) is node
        ):
            return
        for binding in self.names.bindings(node):
            if binding.node in self._renamed:
                self.unit.replace_node(node, self._renamed[binding.node], "name", "follows its import", parent)


def ensure_import(unit: Unit, needs_torch: bool) -> None:
    """Add ``import torch.npu`` after the module's first import of torch (the guide's first step)."""
    if not unit.edits:
        return
    place = None
    for statement in unit.module.body:
        if not isinstance(statement, cst.SimpleStatementLine):
            continue
        for small in statement.body:
            if isinstance(small, cst.Import):
                for alias in small.names:
                    name = dotted_text(alias.name) or ""
                    if name == "torch":
                        place = place or statement
                    if name.split(".")[:2] == ["torch", "npu"] or name == "torch.cuda" and not alias.asname:
                        return
    if place is None and needs_torch and "torch" not in unit.names.top.names:
        place = next((s for s in unit.module.body if _is_import(s)), None)
    if place is None:
        return
    end = unit.span(place.body[-1])[1]
    text = unit.source.newline(end).decode() + "import torch.npu"
    unit.insert(unit.source.line_end(end), text, "import", "The device's module.")


def _is_import(statement: cst.CSTNode) -> bool:
    """A line of imports (but not of __future__, which must stay first)."""
    if not isinstance(statement, cst.SimpleStatementLine):
        return False
    first = statement.body[0]
    if isinstance(first, cst.ImportFrom):
        return not (first.module and dotted_text(first.module) == "__future__")
    return isinstance(first, cst.Import)
