# Where a literal stands decides whether "cuda" is a device there: in torch.device("cuda") it is, in print("cuda") it is
# not. Only places that are about devices (or about process-group back ends) say yes; the rest is left for the reader.
"""Judging the context of string literals."""

import re

import libcst as cst

from .api_table import canonical
from .scopes import Names

_DEVICE_NAME = re.compile(r"device|(^|_)(dev|devs|map_location|default_dev)\d*($|_)", re.IGNORECASE)
_NOT_DEVICE_NAME = re.compile(r"device_?(lib|librar|path|dir|file|code|header|src|source)", re.IGNORECASE)
_BACKEND_NAME = re.compile(r"backend|(^|_)pg_?type", re.IGNORECASE)
_MESSAGES = {
    "print", "pprint", "log", "info", "warning", "warn", "debug", "error", "exception", "critical", "fatal", "echo",
    "write", "fail", "skip", "skipIf", "skipUnless", "assertEqual", "assertIn",
}  # fmt: skip
_MESSAGE_KEYWORDS = {
    "help",
    "description",
    "desc",
    "msg",
    "message",
    "title",
    "label",
    "reason",
    "prog",
    "epilog",
    "usage",
}
# Calls whose positional arguments are devices.
_DEVICE_CALLS = {
    "torch.device", "torch.Generator", "torch.amp.autocast", "torch.amp.GradScaler", "torch.set_default_device",
    "torch.get_autocast_dtype", "torch.set_autocast_dtype", "torch.is_autocast_enabled", "torch.get_device_module",
    "torch.load", "torch.distributed.device_mesh.init_device_mesh", "torch.distributed.init_device_mesh",
    "torch.amp.custom_fwd", "torch.amp.custom_bwd", "torch.amp.is_autocast_available", "torch.Stream", "torch.Event",
    "torch.random.fork_rng", "torch.accelerator.set_device_index",
}  # fmt: skip
_DEVICE_METHODS = {
    "to",
    "cuda",
    "npu",
    "to_empty",
    "move_to_device",
    "to_device",
    "pin_memory",
    "set_device",
    "is_pinned",
}
_BACKEND_CALLS = {"init_process_group", "new_group", "Backend", "split_group", "new_subgroups", "is_backend_available"}
_STRING_METHODS = {
    "startswith",
    "endswith",
    "format",
    "strip",
    "lower",
    "split",
    "join",
    "replace",
    "count",
    "find",
    "index",
}
_TRANSPARENT = (
    cst.FormattedString, cst.ConcatenatedString, cst.BooleanOperation, cst.BinaryOperation,
    cst.Lambda, cst.Index, cst.SubscriptElement,
)  # fmt: skip
_LOOKUPS = {"get", "pop", "setdefault"}


def is_device_name(name: str) -> bool:
    """Whether an identifier (or option such as ``--device``) speaks of a device."""
    return bool(_DEVICE_NAME.search(name)) and not _NOT_DEVICE_NAME.search(name)


def is_backend_name(name: str) -> bool:
    """Whether an identifier speaks of a process-group back end."""
    return bool(_BACKEND_NAME.search(name))


def literal(node: cst.CSTNode | None) -> str | None:
    """Value of a plain string literal (implicit concatenation included), or None."""
    if isinstance(node, (cst.SimpleString, cst.ConcatenatedString)):
        try:
            value = node.evaluated_value
        except (SyntaxError, ValueError):
            return None
        return value if isinstance(value, str) else None
    return None


class Contexts:
    """Answers about the places of literals in one module."""

    def __init__(self, names: Names):
        self.names = names
        self._device_variables = self._collect_device_variables()

    # Kinds of places

    def is_documentation(self, node: cst.CSTNode) -> bool:
        """A docstring, or any string standing alone as a statement."""
        parent = self.names.parents.get(node)
        while isinstance(parent, (cst.ConcatenatedString, cst.BinaryOperation)):
            parent = self.names.parents.get(parent)
        return isinstance(parent, cst.Expr)

    def is_message(self, node: cst.CSTNode) -> bool:
        """An argument of print, logging, help= and the like, or of an exception."""
        for parent in self.names.ancestors(node):
            if isinstance(parent, cst.Arg):
                if parent.keyword and parent.keyword.value in _MESSAGE_KEYWORDS:
                    return True
            elif isinstance(parent, cst.Call):
                name = self._last(parent.func)
                if name in _MESSAGES or (name and name.endswith(("Error", "Exception", "Warning"))):
                    return True
                if name not in _STRING_METHODS and name not in ("str", "f"):
                    return False
            elif isinstance(parent, (cst.Raise, cst.Assert)):
                return not (isinstance(parent, cst.Assert) and self._within(node, parent.test))
            elif isinstance(parent, (cst.BaseSmallStatement, cst.BaseCompoundStatement)):
                return False
        return False

    def is_device(self, node: cst.CSTNode) -> bool:
        """Whether the bare word ``"cuda"`` in this place means a device."""
        place, value = self._climb(node)
        if place is None:
            return False
        if isinstance(place, cst.FormattedStringExpression) and not self._is_whole_device(place):
            return False
        if isinstance(value, cst.IfExp) and self._is_device_choice(value):
            return True
        if isinstance(place, cst.Arg):
            return self._is_device_argument(place, value)
        if isinstance(place, (cst.Assign, cst.AnnAssign)):
            targets = [t.target for t in place.targets] if isinstance(place, cst.Assign) else [place.target]
            return any(self._names_device(target) for target in targets)
        if isinstance(place, cst.NamedExpr):
            return self._names_device(place.target)
        if isinstance(place, cst.Param):
            return is_device_name(place.name.value)
        if isinstance(place, cst.Return):
            return self._function_name_is(place, is_device_name)
        if isinstance(place, (cst.Comparison, cst.ComparisonTarget)):
            return self._is_device_comparison(place)
        if isinstance(place, cst.DictElement):
            return self._is_device_dict_element(place, value)
        if isinstance(place, cst.MatchValue):
            return self._is_device_match(place)
        if isinstance(place, cst.Subscript):
            return self._is_device_literal_type(place)
        return isinstance(place, cst.Element) and self._is_device_element(place)

    def is_backend(self, node: cst.CSTNode) -> bool:
        """Whether ``"nccl"`` in this place means a process-group back end."""
        place, value = self._climb(node)
        if place is None:
            return False
        if isinstance(value, cst.IfExp) and {literal(value.body), literal(value.orelse)} & {"gloo", "mpi"}:
            return True
        if isinstance(place, cst.Arg):
            call = self.names.parents[place]
            if not isinstance(call, cst.Call):
                return False
            if place.keyword:
                key = place.keyword.value
                if key in ("default", "choices") and self._option_is(call, is_backend_name):
                    return True
                return is_backend_name(key)
            last = self._last(call.func) or ""
            return last in _BACKEND_CALLS or self._local_parameter_is(call, place, is_backend_name)
        if isinstance(place, (cst.Assign, cst.AnnAssign)):
            targets = [t.target for t in place.targets] if isinstance(place, cst.Assign) else [place.target]
            return any(is_backend_name(self._label(target)) for target in targets)
        if isinstance(place, cst.Param):
            return is_backend_name(place.name.value)
        if isinstance(place, cst.Return):
            return self._function_name_is(place, is_backend_name)
        if isinstance(place, (cst.Comparison, cst.ComparisonTarget)):
            sides = self._sides(place)
            return any(is_backend_name(self._label(side)) or "backend" in self._text(side) for side in sides)
        if isinstance(place, cst.DictElement):
            if place.value is value:
                key = literal(place.key)
                if key is not None and (is_backend_name(key) or key in ("cuda", "gpu", "npu")):
                    return True
            others = {literal(part) for e in self.names.parents[place].elements for part in self._parts(e)}
            return bool(others & {"gloo", "mpi"})
        if isinstance(place, cst.Element):
            collection = self.names.parents[place]
            if {literal(element.value) for element in collection.elements} & {"gloo", "mpi"}:
                return True
            return self.is_backend(collection)
        return False

    # Climbing out of an expression

    def _climb(self, node: cst.CSTNode) -> tuple[cst.CSTNode | None, cst.CSTNode]:
        """The place that the value of ``node`` flows into, and the whole value there."""
        value = node
        for parent in self.names.ancestors(node):
            if isinstance(parent, cst.IfExp):
                if self._within(value, parent.test):
                    return None, value
                value = parent
            elif self._passes_value(parent, value):
                value = parent
            elif isinstance(parent, cst.Subscript):
                return (parent, value) if self._last(parent.value) == "Literal" else (None, value)
            else:
                return parent, value
        return None, value

    @staticmethod
    def _passes_value(parent: cst.CSTNode, value: cst.CSTNode) -> bool:
        """Whether the parent's value is made of ``value``: ``"cuda:{}".format(i)``, ``"cuda:" + i``, a lambda."""
        if isinstance(parent, cst.Attribute):
            return parent.attr.value in ("format", "lower", "strip")
        return isinstance(parent, _TRANSPARENT) or isinstance(parent, cst.Call) and value is parent.func

    def _within(self, node: cst.CSTNode, outer: cst.CSTNode) -> bool:
        return node is outer or any(parent is outer for parent in self.names.ancestors(node))

    # Labels of expressions

    @staticmethod
    def _last(node: cst.CSTNode) -> str | None:
        if isinstance(node, cst.Name):
            return node.value
        return node.attr.value if isinstance(node, cst.Attribute) else None

    def _text(self, node: cst.CSTNode) -> str:
        return self.names.module.code_for_node(node)

    def _label(self, node: cst.CSTNode) -> str:
        """What names an expression: the last identifier, or the key of a subscript."""
        if isinstance(node, cst.Subscript) and len(node.slice) == 1:
            index = node.slice[0].slice
            if isinstance(index, cst.Index):
                return literal(index.value) or self._label(node.value)
        if isinstance(node, cst.Call):
            inner = self._last(node.func) or ""
            if inner in ("str", "get", "getattr", "lower", "type") or inner in _STRING_METHODS:
                parts = [self._label(arg.value) or literal(arg.value) or "" for arg in node.args]
                if isinstance(node.func, cst.Attribute):
                    parts.append(self._label(node.func.value))
                return " ".join(parts)
            return inner
        if isinstance(node, cst.Attribute) and node.attr.value == "type":
            return "device" if self._mentions_device(node.value) else self._label(node.value)
        return self._last(node) or ""

    def _mentions_device(self, node: cst.CSTNode) -> bool:
        return is_device_name(self._label(node)) or self._is_device_variable(node)

    def _names_device(self, target: cst.CSTNode) -> bool:
        return is_device_name(self._label(target)) or self._is_device_variable(target)

    def _is_device_variable(self, node: cst.CSTNode) -> bool:
        return isinstance(node, (cst.Name, cst.Attribute)) and self._text(node) in self._device_variables

    def _collect_device_variables(self) -> set[str]:
        """Names that this module hands to torch.device, ``.to`` or ``device=``, whatever they are called."""
        found = set()
        for call in self.names.nodes:
            if not isinstance(call, cst.Call):
                continue
            name = canonical(self.names.qualified(call.func) or "")
            for index, arg in enumerate(call.args):
                if not isinstance(arg.value, (cst.Name, cst.Attribute)) or arg.star:
                    continue
                if arg.keyword:
                    hit = arg.keyword.value in ("device", "map_location", "device_type")
                else:
                    # .to(x) takes dtypes too, but no dtype is ever assigned the text "cuda".
                    takes_device = name in _DEVICE_CALLS and name != "torch.load" or self._last(call.func) == "to"
                    hit = index == 0 and takes_device
                if hit:
                    found.add(self._text(arg.value))
        return found

    # Judging

    def _is_whole_device(self, expression: cst.FormattedStringExpression) -> bool:
        """f"{...}:{i}" is a device; f"{...}_time_total" is not."""
        parts = self.names.parents[expression].parts
        texts = "".join(part.value for part in parts if isinstance(part, cst.FormattedStringText))
        return parts[0] is expression and bool(re.fullmatch(r":?\d*", texts))

    def _is_device_choice(self, node: cst.IfExp) -> bool:
        """``"cuda" if ... else "cpu"`` is a device wherever it stands."""
        branches = {literal(node.body), literal(node.orelse)}
        if branches & {"cpu", "mps", "xpu"}:
            return True
        return any(name in self._text(node.test) for name in ("cuda.is_available", "npu.is_available"))

    def _is_device_argument(self, arg: cst.Arg, value: cst.CSTNode) -> bool:
        call = self.names.parents[arg]
        if not isinstance(call, cst.Call):
            return False
        last = self._last(call.func) or ""
        name = canonical(self.names.qualified(call.func) or "")
        if arg.keyword:
            key = arg.keyword.value
            if is_device_name(key) or (key == "type" and name == "torch.device"):
                return True
            return key in ("default", "choices", "type", "const") and self._option_is(call, is_device_name)
        if last in ("hasattr", "getattr", "setattr", "delattr"):
            if len(call.args) > 2 and call.args[2] is arg:
                return is_device_name(literal(call.args[1].value) or "")
            return len(call.args) > 1 and call.args[1] is arg and self.names.qualified(call.args[0].value) == "torch"
        if name in _DEVICE_CALLS or (name.startswith("torch.cuda.") and last not in ("range_push", "mark")):
            return True
        if last in ("startswith", "endswith", "count", "find", "index") and isinstance(call.func, cst.Attribute):
            return self._mentions_device(call.func.value)
        if last == "format" and isinstance(call.func, cst.Attribute):
            return bool(re.fullmatch(r"\{0?\}:\{1?\}", literal(call.func.value) or "")) and call.args[0] is arg
        if last in _LOOKUPS and call.args and call.args[0] is not arg:
            return is_device_name(literal(call.args[0].value) or "")
        if isinstance(call.func, cst.Attribute) and last in _DEVICE_METHODS:
            return True
        if last == "add_argument" or last == "option":
            return False
        if last == "parametrize" and call.args and call.args[0] is not arg:
            return is_device_name(literal(call.args[0].value) or "")
        return is_device_name(last) or self._local_parameter_is(call, arg, is_device_name)

    def _option_is(self, call: cst.Call, test) -> bool:
        """Whether an option of argparse, click or the like is about devices or back ends."""
        for arg in call.args:
            if not arg.keyword or arg.keyword.value in ("dest", "name"):
                text = literal(arg.value)
                if text is not None and test(text.replace("-", "_")):
                    return True
        parent = self.names.parents.get(call)
        return isinstance(parent, cst.AnnAssign) and test(self._label(parent.target))

    def _local_parameter_is(self, call: cst.Call, arg: cst.Arg, test) -> bool:
        """Whether the callee is defined in this module and its parameter has a telling name."""
        if not isinstance(call.func, cst.Name):
            return False
        for binding in self.names.bindings(call.func):
            function, skip = binding.node, 0
            if binding.kind == "class":
                methods = [f for f in getattr(function.body, "body", ()) if isinstance(f, cst.FunctionDef)]
                function = next((f for f in methods if f.name.value == "__init__"), None)
                skip = 1
            if isinstance(function, cst.FunctionDef):
                params = [p.name.value for p in (*function.params.posonly_params, *function.params.params)]
                index = call.args.index(arg) + skip
                if index < len(params) and test(params[index]):
                    return True
        return False

    def _sides(self, place: cst.CSTNode) -> list[cst.CSTNode]:
        comparison = place if isinstance(place, cst.Comparison) else self.names.parents[place]
        return [comparison.left] + [target.comparator for target in comparison.comparisons]

    def _is_device_comparison(self, place: cst.CSTNode) -> bool:
        sides = self._sides(place)
        if any(self._mentions_device(side) for side in sides):
            return True
        return any(isinstance(side, (cst.Tuple, cst.List, cst.Set)) and self._is_device_set(side) for side in sides)

    @staticmethod
    def _parts(element: cst.CSTNode) -> list[cst.CSTNode]:
        return [element.key, element.value] if isinstance(element, cst.DictElement) else [element.value]

    def _is_device_dict_element(self, element: cst.DictElement, value: cst.CSTNode) -> bool:
        if element.value is value:
            return is_device_name(literal(element.key) or self._label(element.key))
        keys = {literal(e.key) for e in self.names.parents[element].elements if isinstance(e, cst.DictElement)}
        return "cpu" in keys

    def _is_device_set(self, collection: cst.CSTNode) -> bool:
        values = {literal(element.value) for element in collection.elements}
        return bool(values & {"cpu", "mps", "xpu"}) and any(v and v.startswith("cuda") for v in values)

    def _is_device_element(self, element: cst.Element) -> bool:
        collection = self.names.parents[element]
        if self._is_device_set(collection):
            return True
        targets = self._unpacked_into(collection)
        if targets is not None:
            index = collection.elements.index(element)
            return index < len(targets) and self._names_device(targets[index].value)
        return self.is_device(collection)

    def _unpacked_into(self, collection: cst.CSTNode) -> list[cst.CSTNode] | None:
        """Targets of ``a, b = "cuda", 2``."""
        parent = self.names.parents[collection]
        if isinstance(parent, cst.Assign) and len(parent.targets) == 1:
            target = parent.targets[0].target
            if isinstance(target, (cst.Tuple, cst.List)):
                return list(target.elements)
        return None

    @staticmethod
    def _is_device_literal_type(annotation: cst.Subscript) -> bool:
        """``Literal["cpu", "cuda"]``"""
        items = [element.slice.value for element in annotation.slice if isinstance(element.slice, cst.Index)]
        return bool({literal(item) for item in items} & {"cpu", "mps", "xpu"})

    def _is_device_match(self, place: cst.CSTNode) -> bool:
        for parent in self.names.ancestors(place):
            if isinstance(parent, cst.Match):
                return self._mentions_device(parent.subject)
        return False

    def _function_name_is(self, node: cst.CSTNode, test) -> bool:
        for parent in self.names.ancestors(node):
            if isinstance(parent, cst.FunctionDef):
                return test(parent.name.value)
        return False
