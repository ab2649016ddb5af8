# Where a literal stands decides whether "cuda" is a device there: in torch.device("cuda") it is, in print("cuda") it is
# not. Only places that are about devices (or about process-group back ends) say yes; the rest is left for the reader.
"""Judging the context of string literals."""

import re
from typing import Any

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
    "clip.load", "whisper.load_model", "safetensors.torch.load_file",
}  # fmt: skip
# Roots of packages that have a "cuda" of their own.
OTHER_CUDA = {
    "numba", "pycuda", "cupy", "tensorflow", "jax", "tvm", "taichi", "cudf", "cv2", "cuda", "paddle", "mxnet",
}  # fmt: skip
_SETTERS = {"update", "set", "override", "suggest_categorical"}  # take a name, then its value
_DECLARATIONS = {"Option", "Argument", "Field", "field", "Query"}  # of a parameter or field; the default comes first
_ADDERS = {"append", "add", "insert", "remove"}
_COLLECTIONS = (cst.Tuple, cst.List, cst.Set)
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
        self._moved: set[str] | None = None
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
        if self._is_spelled_out(node):
            return True
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
            if any(self._names_device(target) for target in targets):
                return True
            return self._is_enum_member(place, is_device_name, {"cpu", "mps", "xpu"})
        if isinstance(place, (cst.NamedExpr, cst.AugAssign)):
            return self._names_device(place.target)
        if isinstance(place, cst.Param):
            return self._names_device(place.name)
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

    def is_compared(self, node: cst.CSTNode) -> bool:
        """``"..." in str(error)`` and the like."""
        return isinstance(self._climb(node)[0], (cst.Comparison, cst.ComparisonTarget))

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
            if self._is_declared(call, place, is_backend_name) or self._is_added(call, is_backend_name):
                return True
            return last in _BACKEND_CALLS or self._local_parameter_is(call, place, is_backend_name)
        if isinstance(place, (cst.Assign, cst.AnnAssign)):
            targets = [t.target for t in place.targets] if isinstance(place, cst.Assign) else [place.target]
            if any(is_backend_name(self._label(target)) for target in targets):
                return True
            return self._is_enum_member(place, is_backend_name, {"gloo", "mpi"})
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
            return self._follows_option(place, is_backend_name) or self.is_backend(collection)
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
            elif self._passes_value(parent, value) or self._is_pytest_param(parent):
                value = parent
            elif isinstance(parent, cst.Subscript):
                return (parent, value) if self._last(parent.value) == "Literal" else (None, value)
            else:
                return parent, value
        return None, value

    def _is_pytest_param(self, node: cst.CSTNode) -> bool:
        """``pytest.param("cuda", marks=...)``, and its first argument, stand for the value."""
        call = self.names.parents.get(node) if isinstance(node, cst.Arg) else node
        return isinstance(call, cst.Call) and self._last(call.func) == "param" and not getattr(node, "keyword", None)

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
        if self._is_type_name(node):
            return True
        return is_device_name(self._label(node)) or self._is_device_variable(node)

    @staticmethod
    def _is_type_name(node: cst.CSTNode) -> bool:
        """``x.type()``, which is "torch.cuda.FloatTensor"."""
        if not isinstance(node, cst.Call) or node.args or not isinstance(node.func, cst.Attribute):
            return False
        return node.func.attr.value == "type"

    def is_tensor_type_prefix(self, node: cst.CSTNode) -> bool:
        """``x.type().startswith(...)``"""
        call = self.names.parents.get(self.names.parents.get(node))
        if not isinstance(call, cst.Call) or self._last(call.func) != "startswith":
            return False
        return isinstance(call.func, cst.Attribute) and self._is_type_name(call.func.value)

    def is_foreign(self, node: cst.CSTNode) -> bool:
        """Whether an expression begins at a package with a "cuda" of its own: ``paddle.to_tensor(x).cuda``."""
        while not isinstance(node, cst.Name):
            node = getattr(node, "func", None) or getattr(node, "value", None)
            if not isinstance(node, cst.BaseExpression):
                return False
        return (self.names.qualified(node) or "").split(".")[0] in OTHER_CUDA

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
        if any(re.match("[a-zA-Z]{0,2}[\"']cuda:", self._text(branch)) for branch in (node.body, node.orelse)):
            return True
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
        if self.is_foreign(call.func):
            return False
        if arg.keyword:
            key = arg.keyword.value
            if is_device_name(key) or (key == "type" and name == "torch.device"):
                return True
            if key not in ("default", "choices", "type", "const"):
                return False
            return self._option_is(call, is_device_name) or self._is_device_option(call)
        if last in ("hasattr", "getattr", "setattr", "delattr"):
            if len(call.args) > 2 and call.args[2] is arg:
                return is_device_name(literal(call.args[1].value) or "")
            if len(call.args) < 2 or call.args[1] is not arg:
                return False
            # The method of a tensor, module or batch: it is called as ".cuda()" somewhere, or right here.
            called = getattr(self.names.parents.get(call), "func", None) is call
            return self.names.qualified(call.args[0].value) == "torch" or called or self._is_moved(call.args[0].value)
        if (
            last == "methodcaller"
            or self._is_declared(call, arg, is_device_name)
            or self._is_added(call, is_device_name)
        ):
            return True
        if (
            name in _DEVICE_CALLS
            or self._may_be_device_call(call.func)
            or (name.startswith("torch.cuda.") and last not in ("range_push", "mark"))
        ):
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
        return is_device_name(last) or self._local_parameter_is(call, arg, self._is_device_parameter)

    def _is_moved(self, receiver: cst.CSTNode) -> bool:
        """Whether ``.cuda()`` of the same expression is called somewhere."""
        if self._moved is None:
            calls = [n.func for n in self.names.nodes if isinstance(n, cst.Call) and isinstance(n.func, cst.Attribute)]
            self._moved = {self._text(func.value) for func in calls if func.attr.value == "cuda"}
        return self._text(receiver) in self._moved

    def _may_be_device_call(self, func: cst.CSTNode) -> bool:
        """``scope = autocast if amp else nullcontext``, then ``scope("cuda")``."""
        for binding in self.names.bindings(func) if isinstance(func, cst.Name) else ():
            if isinstance(binding.value, cst.IfExp):
                branches = (binding.value.body, binding.value.orelse)
                if any(canonical(self.names.qualified(branch) or "") in _DEVICE_CALLS for branch in branches):
                    return True
        return False

    def _is_declared(self, call: cst.Call, arg: cst.Arg, test) -> bool:
        """A value that comes with the name of what it is for.

        ``DEFINE_string("device", "cuda", help)``, ``cfg.set("a.device", "cuda")``, ``device: str = Option("cuda")``.
        """
        last, index = self._last(call.func) or "", call.args.index(arg)
        if last in _DECLARATIONS and index == 0:
            owner = self.names.parents.get(call)
            if isinstance(owner, (cst.Param, cst.AnnAssign)):
                return test(self._label(owner.name if isinstance(owner, cst.Param) else owner.target))
        if index == 0 or not (last.startswith("DEFINE_") or last in _SETTERS):
            return False
        return test(literal(call.args[0 if last.startswith("DEFINE_") else index - 1].value) or "")

    def _is_added(self, call: cst.Call, test) -> bool:
        """``devices.append("cuda")``"""
        return (
            self._last(call.func) in _ADDERS
            and isinstance(call.func, cst.Attribute)
            and test(self._label(call.func.value))
        )

    def _is_device_option(self, call: cst.Call) -> bool:
        """An option whose choices are devices, or that chooses the hardware."""
        for arg in call.args:
            if arg.keyword and arg.keyword.value == "choices" and isinstance(arg.value, _COLLECTIONS):
                return self._is_device_set(arg.value)
        return self._option_is(call, lambda name: name.strip("_") in ("gpu", "accelerator", "hardware"))

    def _is_enum_member(self, place: cst.CSTNode, test, others: set[str]) -> bool:
        """``CUDA = "cuda"`` in an Enum of devices: by its name, or by the members beside it."""
        owner = next((p for p in self.names.ancestors(place) if isinstance(p, (cst.ClassDef, cst.FunctionDef))), None)
        if not isinstance(owner, cst.ClassDef) or not any(self._text(b.value).endswith("Enum") for b in owner.bases):
            return False
        values = {literal(n.value) for n in self.names.nodes if isinstance(n, cst.Assign) and self._within(n, owner)}
        return test(owner.name.value) or bool(values & others)

    def _is_spelled_out(self, node: cst.CSTNode) -> bool:
        """``"cuda" + f":{i}"``, ``":".join(["cuda", str(i)])`` and ``f"{'cuda'}:{i}"`` are devices in any place."""
        parent = self.names.parents.get(node)
        if isinstance(parent, cst.BinaryOperation) and parent.left is node:
            return bool(re.match("[a-zA-Z]{0,2}[\"']:", self._text(parent.right)))
        if isinstance(parent, cst.FormattedStringExpression):
            return self._is_whole_device(parent) and len(self.names.parents[parent].parts) > 2
        if not isinstance(parent, cst.Element):
            return False
        collection = self.names.parents[parent]
        call: Any = self.names.parents.get(self.names.parents.get(collection))
        is_join = isinstance(call, cst.Call) and isinstance(call.func, cst.Attribute) and call.func.attr.value == "join"
        return is_join and literal(call.func.value) == ":" and collection.elements[0] is parent

    def _follows_option(self, element: cst.Element, test) -> bool:
        """``["--device", "cuda"]`` and ``["MODEL.DEVICE", "cuda"]``"""
        elements = self.names.parents[element].elements
        index = elements.index(element)
        before = literal(elements[index - 1].value) or "" if index else ""
        return bool(re.fullmatch(r"--?[\w-]+|\w+(\.\w+)+", before)) and test(before.replace("-", "_"))

    def _option_is(self, call: cst.Call, test) -> bool:
        """Whether an option of argparse, click or the like is about devices or back ends."""
        for arg in call.args:
            if not arg.keyword or arg.keyword.value in ("dest", "name"):
                text = literal(arg.value)
                if text is not None and test(text.replace("-", "_")):
                    return True
        parent = self.names.parents.get(call)
        return isinstance(parent, cst.AnnAssign) and test(self._label(parent.target))

    def _is_device_parameter(self, name: str) -> bool:
        return is_device_name(name) or name in self._device_variables

    def _local_parameter_is(self, call: cst.Call, arg: cst.Arg, test) -> bool:
        """Whether the callee is defined in this module and its parameter has a telling name."""
        if not isinstance(call.func, cst.Name):
            return False
        for binding in self.names.bindings(call.func):
            function: Any = binding.node
            skip = 0
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
            values = {literal(e.value) for e in self.names.parents[element].elements if isinstance(e, cst.DictElement)}
            return "cpu" in values or is_device_name(literal(element.key) or self._label(element.key))
        keys = {literal(e.key) for e in self.names.parents[element].elements if isinstance(e, cst.DictElement)}
        return "cpu" in keys

    def _is_device_set(self, collection: cst.CSTNode) -> bool:
        values = {literal(element.value) for element in collection.elements}
        return bool(values & {"cpu", "mps", "xpu"}) and any(v and v.startswith("cuda") for v in values)

    def _is_device_element(self, element: cst.Element) -> bool:
        collection = self.names.parents[element]
        if self._is_device_set(collection) or self._follows_option(element, is_device_name):
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
        parent = self.names.parents[place]
        if isinstance(parent, cst.MatchMappingElement):
            return is_device_name(literal(parent.key) or "")
        if isinstance(parent, cst.MatchKeywordElement):
            return is_device_name(parent.key.value)
        for parent in self.names.ancestors(place):
            if isinstance(parent, cst.Match):
                return self._mentions_device(parent.subject)
        return False

    def _function_name_is(self, node: cst.CSTNode, test) -> bool:
        for parent in self.names.ancestors(node):
            if isinstance(parent, cst.FunctionDef):
                return test(parent.name.value)
        return False
