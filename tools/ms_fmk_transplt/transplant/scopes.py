# Names and scopes of one module in a single walk over its libcst tree: what does "tc.amp" mean here? libcst's own
# ScopeProvider answers too, at a third of the speed and without assignments such as "tc = torch.cuda".
"""Import and scope analysis: dotted (qualified) names of expressions."""

import dataclasses
import keyword

import libcst as cst

_SKIPPED = {"lpar", "rpar", "semicolon", "comma", "header", "footer", "leading_lines", "lines_after_decorators"}
_fields: dict[type, tuple[str, ...]] = {}
_COMPREHENSIONS = (cst.ListComp, cst.SetComp, cst.DictComp, cst.GeneratorExp)
_STAR_HOMES = {
    "torch": ("cuda", "device", "nn", "distributed", "backends", "load", "Generator", "autocast"),
    "torch.nn": ("DataParallel", "Module"),
    "torch.cuda": ("amp", "is_available", "device_count", "set_device", "synchronize", "empty_cache"),
    "torch.cuda.amp": ("autocast", "GradScaler", "custom_fwd", "custom_bwd"),
    "torch.distributed": ("init_process_group", "new_group"),
    "torch.utils.data": ("DataLoader",),
}
# Names that are bound nowhere in the module (by a star import or an earlier notebook cell) mean what they usually do.
_CUSTOMARY = {
    "nn": "torch.nn",
    "F": "torch.nn.functional",
    "dist": "torch.distributed",
    "cudnn": "torch.backends.cudnn",
}


def children(node: cst.CSTNode) -> list[cst.CSTNode]:
    """Child nodes that carry code, in source order; blanks, commas and comments are left out."""
    kind = type(node)
    names = _fields.get(kind)
    if names is None:
        names = tuple(f.name for f in dataclasses.fields(kind) if f.name not in _SKIPPED and "whitespace" not in f.name)
        # Fields stand in source order but for these, whose decorators and conditions come first.
        if kind is cst.IfExp:
            names = ("body", "test", "orelse")
        elif kind is cst.FunctionDef:
            names = ("decorators", "name", "params", "returns", "body")
        elif kind is cst.ClassDef:
            names = ("decorators", "name", "bases", "keywords", "body")
        _fields[kind] = names
    found = []
    for name in names:
        value = getattr(node, name)
        if isinstance(value, cst.CSTNode):
            found.append(value)
        elif type(value) in (tuple, list):
            found.extend(item for item in value if isinstance(item, cst.CSTNode))
    return found


@dataclasses.dataclass
class Binding:
    """One way in which a scope binds a name; ``target`` is the dotted name of an import, ``value`` an assigned one."""

    kind: str  # import, alias, none, def, class, param or other
    node: cst.CSTNode | None = None
    target: str | None = None
    value: cst.BaseExpression | None = None


class Scope:
    """A module, class, function or comprehension."""

    def __init__(self, kind: str, parent: "Scope | None", node: cst.CSTNode):
        self.kind = kind
        self.parent = parent
        self.node = node
        self.names: dict[str, list[Binding]] = {}
        self.outer: set[str] = set()  # names declared global or nonlocal

    def bind(self, name: str, binding: Binding) -> None:
        scope = self
        if binding.kind == "walrus":
            while scope.kind == "comprehension" and scope.parent:
                scope = scope.parent
            binding.kind = "other"
        if name in scope.outer and scope.parent:
            scope = scope.parent
            while scope.parent and name not in scope.names:
                scope = scope.parent
        scope.names.setdefault(name, []).append(binding)

    def find(self, name: str) -> "tuple[Scope, list[Binding]] | None":
        scope: Scope | None = self
        first = True
        while scope is not None:
            if (first or scope.kind != "class") and name in scope.names and name not in scope.outer:
                return scope, scope.names[name]
            scope, first = scope.parent, False
        return None


def dotted(node: cst.CSTNode) -> list[cst.Name] | None:
    """The Name nodes of ``a.b.c``, or None for any other expression."""
    parts = []
    while isinstance(node, cst.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, cst.Name):
        return None
    parts.append(node)
    return parts[::-1]


def dotted_text(node: cst.CSTNode) -> str | None:
    """``"a.b.c"`` of the expression ``a.b.c``, or None."""
    parts = dotted(node)
    return ".".join(part.value for part in parts) if parts else None


class Names:
    """All expression nodes of a module in source order, with parents, scopes and dotted names."""

    def __init__(self, module: cst.Module):
        self.module = module
        self.nodes: list[cst.CSTNode] = []
        self.parents: dict[cst.CSTNode, cst.CSTNode] = {}
        self.scopes: dict[cst.CSTNode, Scope] = {}
        self.stars: list[str] = []
        self.top = Scope("module", None, module)
        self._resolving: set[int] = set()
        self._bound_anywhere: set[str] | None = None
        self._walk(module, self.top)

    # Walking

    def _walk(self, node: cst.CSTNode, scope: Scope) -> None:
        self.nodes.append(node)
        self.scopes[node] = scope
        inner = self._bind(node, scope)
        for child in children(node):
            self.parents[child] = node
            kind = type(child)
            if inner is not scope and self._is_outside(node, child, kind):
                self._walk(child, scope)
            else:
                self._walk(child, inner)

    @staticmethod
    def _is_outside(node: cst.CSTNode, child: cst.CSTNode, kind: type) -> bool:
        """Decorators, bases, names and annotations of a definition are evaluated outside its scope."""
        if isinstance(node, (cst.FunctionDef, cst.ClassDef)):
            return kind in (cst.Decorator, cst.Name, cst.Arg, cst.Annotation)
        return False

    def _bind(self, node: cst.CSTNode, scope: Scope) -> Scope:
        if isinstance(node, cst.FunctionDef):
            scope.bind(node.name.value, Binding("def", node))
            return Scope("function", scope, node)
        if isinstance(node, cst.ClassDef):
            scope.bind(node.name.value, Binding("class", node))
            return Scope("class", scope, node)
        if isinstance(node, cst.Lambda):
            return Scope("function", scope, node)
        if isinstance(node, _COMPREHENSIONS):
            return Scope("comprehension", scope, node)
        if isinstance(node, cst.Param):
            scope.bind(node.name.value, Binding("param", node))
        elif isinstance(node, cst.Import):
            self._bind_import(node, scope)
        elif isinstance(node, cst.ImportFrom):
            self._bind_import_from(node, scope)
        elif isinstance(node, cst.Assign):
            for target in node.targets:
                self._bind_target(target.target, node.value if len(node.targets) == 1 else None, scope)
        elif isinstance(node, cst.AnnAssign):
            self._bind_target(node.target, node.value, scope)
        elif isinstance(node, (cst.AugAssign, cst.For, cst.CompFor)):
            self._bind_target(node.target, None, scope)
        elif isinstance(node, cst.NamedExpr):
            scope.bind(node.target.value, Binding("walrus", node))
        elif isinstance(node, cst.AsName) and not isinstance(self.parents.get(node), cst.ImportAlias):
            self._bind_target(node.name, None, scope)
        elif isinstance(node, (cst.Global, cst.Nonlocal)):
            scope.outer.update(item.name.value for item in node.names)
        elif isinstance(node, (cst.MatchAs, cst.MatchStar)) and node.name:
            scope.bind(node.name.value, Binding("other", node))
        return scope

    def _bind_target(self, target: cst.CSTNode, value: cst.CSTNode | None, scope: Scope) -> None:
        if isinstance(target, cst.Name):
            if value is not None and isinstance(value, (cst.Name, cst.Attribute)) and dotted(value):
                plain = isinstance(value, cst.Name) and value.value in ("None", "False", "True")
                scope.bind(target.value, Binding("none" if plain else "alias", target, value=value))
            else:
                scope.bind(target.value, Binding("other", target, value=value))
        elif isinstance(target, (cst.Tuple, cst.List)):
            for element in target.elements:
                self._bind_target(element.value, None, scope)

    def _bind_import(self, node: cst.Import, scope: Scope) -> None:
        for alias in node.names:
            name = dotted_text(alias.name)
            if alias.asname:
                scope.bind(alias.asname.name.value, Binding("import", alias, target=name))
            else:
                root = (name or "").split(".")[0]
                scope.bind(root, Binding("import", alias, target=root))

    def _bind_import_from(self, node: cst.ImportFrom, scope: Scope) -> None:
        module = "." * len(node.relative) + (dotted_text(node.module) or "" if node.module else "")
        if isinstance(node.names, cst.ImportStar):
            self.stars.append(module)
            return
        for alias in node.names:
            name = alias.name.value
            bound = alias.asname.name.value if alias.asname else name
            scope.bind(bound, Binding("import", alias, target=f"{module}.{name}"))

    # Asking

    def bindings(self, name: cst.Name) -> list[Binding]:
        """Bindings that a Name may refer to; empty where it is unknown here."""
        found = self.scopes[name].find(name.value)
        return found[1] if found else []

    def qualified(self, node: cst.CSTNode) -> str | None:
        """Dotted name of an expression after imports and plain aliases: ``tc.amp`` -> ``torch.cuda.amp``."""
        parts = dotted(node)
        if not parts:
            return None
        base = self._qualified_name(parts[0])
        return ".".join([base] + [part.value for part in parts[1:]]) if base else None

    def _qualified_name(self, name: cst.Name) -> str | None:
        found = self.scopes[name].find(name.value)
        if not found:
            return self._unbound(name.value)
        bindings = [b for b in found[1] if b.kind != "none"]
        imports = [b.target for b in bindings if b.kind == "import"]
        if imports:
            if any(b.kind not in ("import", "alias", "class", "def") for b in bindings):
                return None
            known = [target for target in imports if target and target.split(".")[0] in ("torch", "apex")]
            return (known or imports)[0]
        if len(bindings) == 1 and bindings[0].kind == "alias" and found[0].kind != "class":
            return self._alias(bindings[0])
        return None

    def _alias(self, binding: Binding) -> str | None:
        if id(binding) in self._resolving:
            return None
        self._resolving.add(id(binding))
        try:
            # The target's scope is the value's scope; values are walked after their statement, so look it up late.
            target = self.qualified(binding.value)
        finally:
            self._resolving.discard(id(binding))
        return target if target and target.split(".")[0] in ("torch", "apex") else None

    def _unbound(self, name: str) -> str | None:
        if name == "torch":
            return name
        for star in self.stars:
            if name in _STAR_HOMES.get(star, ()):
                return f"{star}.{name}"
        return _CUSTOMARY.get(name)

    def bound_anywhere(self, name: str) -> bool:
        """Whether any scope of the module binds ``name`` (or it is a keyword)."""
        if self._bound_anywhere is None:
            self._bound_anywhere = set()
            for scope in set(self.scopes.values()):
                self._bound_anywhere.update(scope.names)
            self._bound_anywhere.update(node.value for node in self.nodes if isinstance(node, cst.Name))
        return name in self._bound_anywhere or keyword.iskeyword(name)

    def ancestors(self, node: cst.CSTNode):
        """Parents from the nearest to the module."""
        node = self.parents.get(node)
        while node is not None:
            yield node
            node = self.parents.get(node)
