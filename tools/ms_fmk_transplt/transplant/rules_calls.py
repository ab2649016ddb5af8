# Calls and attributes: .cuda() and is_cuda, DataParallel, arguments that name CUDA, the user's own rules.
"""Rules for calls and for members of tensors and modules."""

import libcst as cst

from . import api_table
from .api_table import canonical
from .contexts import literal
from .scopes import dotted_text
from .source import ASYNC
from .unit import Unit

# Objects that hold options: their is_cuda is an option, not a tensor's.
_OPTIONS = {"args", "opt", "opts", "options", "cfg", "config", "conf", "flags", "FLAGS", "hparams", "params", "parser"}
_DDP = "torch.nn.parallel.DistributedDataParallel"
_DDP_HINT = (
    "DataParallel became a move to one device; for several devices start one process per device and use "
    "DistributedDataParallel with the hccl back end (the tool's distributed mode does it)"
)
_INDUCTOR_HINT = (
    'Inductor, the default back end, has no code generator for npu: torch.compile takes its back end "npu" by itself, '
    "on which Inductor's mode and options have no effect"
)
_HANDLES = {"cuda_stream": "npu_stream", "cuda_event": "npu_event"}
_ATOMS = (cst.Name, cst.Attribute, cst.Call, cst.Subscript)


class CallRules:
    """Applies the call rules to one unit."""

    def __init__(self, unit: Unit):
        self.unit = unit
        self.names = unit.names
        self._stored = {
            (attribute.attr.value, unit.text(attribute.value))
            for attribute in self._stored_attributes()
            if attribute.attr.value == "is_cuda"
        }
        self._has_ddp = any(
            canonical(self.names.qualified(node) or "") in (_DDP, "apex.parallel.DistributedDataParallel")
            for node in self.names.nodes
            if isinstance(node, (cst.Name, cst.Attribute))
        )

    def apply(self) -> None:
        for node in self.names.nodes:
            if isinstance(node, cst.Call):
                self._call(node)
            elif isinstance(node, cst.Attribute):
                self._attribute(node)
            elif isinstance(node, cst.FunctionDef):
                self._method(node)

    def _stored_attributes(self) -> list[cst.Attribute]:
        found = []
        for node in self.names.nodes:
            targets = []
            if isinstance(node, cst.Assign):
                targets = [target.target for target in node.targets]
            elif isinstance(node, (cst.AnnAssign, cst.AugAssign)):
                targets = [node.target]
            found += [target for target in targets if isinstance(target, cst.Attribute)]
        return found

    def _qualified(self, node: cst.CSTNode) -> str:
        return canonical(self.names.qualified(node) or "")

    # Members

    def _call(self, call: cst.Call) -> None:
        func = call.func
        name = self._qualified(func)
        if isinstance(func, cst.Attribute) and func.attr.value == "cuda" and not self._is_other(func.value):
            self.unit.replace_node(func.attr, "npu", "device move", "Moves to the device.", call)
        if isinstance(func, cst.Attribute) and func.attr.value in ("cuda", "npu", "to", "copy_", "type"):
            for arg in call.args:
                if arg.keyword and arg.keyword.value == ASYNC:
                    self.unit.replace_node(arg.keyword, "non_blocking", "keyword", "async is a keyword of Python 3.7.")
        if name == "torch.nn.DataParallel":
            self._data_parallel(call)
        elif name in ("torch.autograd.profiler.profile", "torch.profiler.profile"):
            self._profile(call)
        elif name == "torch.compile":
            self._compile(call)
        elif name == "torch.amp.GradScaler":
            self._grad_scaler(call)
        elif name == "apex.optimizers.FusedAdam":
            self._fused_adam(call)
        elif name == "apex.amp.initialize":
            if not any(arg.keyword and arg.keyword.value == "combine_grad" for arg in call.args):
                self.unit.hint(call, "apex", "amp.initialize(..., combine_grad=True) is faster on npu")
        elif name == "torch.distributed.init_process_group":
            self.unit.hint(call, "distributed", "hccl: one process per device, call torch.npu.set_device(rank) first")
        self._custom(call, name)
        self._third_party(call)
        self._operator(call, name)

    def _is_other(self, receiver: cst.CSTNode) -> bool:
        return self.names.qualified(receiver) == "torch" or self.unit.contexts.is_foreign(receiver)

    def _attribute(self, node: cst.Attribute) -> None:
        name = node.attr.value
        if name == "is_cuda":
            receiver = self.unit.text(node.value)
            if ("is_cuda", receiver) not in self._stored and receiver.split(".")[-1] not in _OPTIONS:
                self.unit.replace_node(node.attr, "is_npu", "device query", "Asks for the device.", node)
        elif name == "cuda":
            self._bare_cuda(node)
        elif name == "compile" and isinstance(self.names.parents.get(node), cst.Decorator):
            if self._qualified(node) == "torch.compile":
                self.unit.hint(node, "compile", _INDUCTOR_HINT)
        elif name in _HANDLES and isinstance(node.value, cst.Call):
            if self._qualified(node.value.func).startswith("torch.cuda."):
                self.unit.replace_node(node.attr, _HANDLES[name], "handle", "The stream's or event's handle.", node)
        elif name == "module":
            self._module_of_parallel(node)
        elif name in api_table.PROFILE_COLUMNS and not isinstance(self.names.parents.get(node), cst.AssignTarget):
            new, old_api = api_table.PROFILE_COLUMNS[name]
            new = old_api if self.unit.options.version == "1.5" else new
            self.unit.replace_node(node.attr, new, "profiler column", "Device time has this name.", node)

    def _bare_cuda(self, node: cst.Attribute) -> None:
        """``x.cuda`` without a call: a method only where ``x.cpu`` is the alternative or the class is torch's."""
        if self._qualified(node.value) in ("torch.Tensor", "torch.nn.Module", "torch.nn.modules.module.Module"):
            self.unit.replace_node(node.attr, "npu", "device move", "Moves to the device.", node)
            return
        parent = self.names.parents.get(node)
        if isinstance(parent, cst.IfExp):
            other = parent.orelse if parent.body is node else parent.body
            if isinstance(other, cst.Attribute) and other.attr.value == "cpu":
                self.unit.replace_node(node.attr, "npu", "device move", "Moves to the device.", parent)

    def _method(self, node: cst.FunctionDef) -> None:
        """A class that defines ``cuda`` or ``is_cuda`` must follow its callers."""
        new = {"cuda": "npu", "is_cuda": "is_npu"}.get(node.name.value)
        owner = self.names.scopes[node]
        if not new or owner.kind != "class" or new in owner.names:
            return
        if new == "is_npu" and self._stored:
            return
        why = "Callers use this name now."
        if self.unit.replace_node(node.name, new, "method", why):
            for decorator in self.names.nodes:
                if (
                    isinstance(decorator, cst.Decorator)
                    and dotted_text(decorator.decorator) == f"{node.name.value}.setter"
                ):
                    self.unit.replace_node(decorator.decorator.value, new, "method", why)

    # DataParallel

    def _data_parallel(self, call: cst.Call) -> None:
        unit = self.unit
        model = next((arg for arg in call.args if arg.keyword and arg.keyword.value == "module"), None)
        if model is None and call.args and not call.args[0].keyword and not call.args[0].star:
            model = call.args[0]
        if model is None:
            unit.hint(call, "DataParallel", "left as it is, its module is not to be seen here; " + _DDP_HINT)
            return
        start, end = unit.span(call)
        first, last = unit.outer_span(model.value)
        data = unit.source.data
        if b"#" in data[start:first] or b"#" in data[last:end]:
            unit.hint(call, "DataParallel", "left as it is because of the comments inside the call; " + _DDP_HINT)
            return
        wrapped = bool(model.value.lpar)
        needs_parentheses = (
            not isinstance(model.value, _ATOMS) and not wrapped or b"\n" in data[first:last] and not wrapped
        )
        moved = isinstance(model.value, cst.Call) and self._is_move(model.value)
        parent, grandparent = self.names.parents.get(call), None
        if isinstance(parent, cst.Attribute):
            grandparent = self.names.parents.get(parent)
        is_moved = (
            moved or isinstance(grandparent, cst.Call) and grandparent.func is parent and self._is_move(grandparent)
        )
        tail = (")" if needs_parentheses else "") + ("" if is_moved else ".npu()")
        if isinstance(parent, cst.Attribute) and parent.attr.value == "module":
            end, tail = unit.span(parent)[1], ")" if needs_parentheses else ""
        why = "One process drives one device."
        if not unit.replace(start, first, "(" if needs_parentheses else "", "DataParallel", why, (start, end)):
            return
        unit.edits.add(last, end, tail.encode())
        unit.hint(call, "DataParallel", _DDP_HINT)

    def _is_move(self, call: cst.Call) -> bool:
        return isinstance(call.func, cst.Attribute) and call.func.attr.value in ("cuda", "npu", "to")

    def _parallel_receivers(self) -> dict[str, set]:
        """Text of what DataParallel was assigned to -> scopes in which that happened."""
        if not hasattr(self, "_receivers"):
            self._receivers: dict[str, set] = {}
            for node in self.names.nodes:
                if isinstance(node, cst.Assign) and self._holds_parallel(node.value):
                    for target in node.targets:
                        if isinstance(target.target, (cst.Name, cst.Attribute)):
                            scope = self.names.scopes[node]
                            self._receivers.setdefault(self.unit.text(target.target), set()).add(scope)
        return self._receivers

    def _holds_parallel(self, value: cst.CSTNode) -> bool:
        while isinstance(value, cst.Call):
            if self._qualified(value.func) == "torch.nn.DataParallel":
                return True
            if not self._is_move(value):
                return False
            value = value.func.value
        return isinstance(value, cst.IfExp) and (self._holds_parallel(value.body) or self._holds_parallel(value.orelse))

    def _module_of_parallel(self, node: cst.Attribute) -> None:
        receiver = self.unit.text(node.value)
        scopes = self._parallel_receivers().get(receiver)
        if not scopes:
            return
        parent = self.names.parents.get(node)
        if isinstance(parent, (cst.AssignTarget, cst.Del)):
            return
        why = "DataParallel is gone, its module is the model itself."
        start, end = self.unit.span(node)
        if not self._has_ddp and self.names.scopes[node] in scopes and not self._is_conditional(receiver):
            self.unit.replace(self.unit.outer_span(node.value)[1], end, "", "DataParallel", why, (start, end))
        else:
            self.unit.replace(start, end, f'getattr({receiver}, "module", {receiver})', "DataParallel", why)

    def _is_conditional(self, receiver: str) -> bool:
        """Whether something other than DataParallel may put a wrapper with ``.module`` there."""
        for node in self.names.nodes:
            if not isinstance(node, cst.Assign) or not isinstance(node.value, cst.Call):
                continue
            last = (dotted_text(node.value.func) or "").split(".")[-1]
            wraps = ("Parallel" in last or "prepare" in last) and not self._holds_parallel(node.value)
            if wraps and any(self.unit.text(target.target) == receiver for target in node.targets):
                return True
        return False

    # Arguments

    def _profile(self, call: cst.Call) -> None:
        for arg in call.args:
            if arg.keyword and arg.keyword.value == "use_cuda":
                self.unit.replace_node(arg.keyword, "use_npu", "profiler", "Records device time.", arg)

    def _compile(self, call: cst.Call) -> None:
        backend = next((arg for arg in call.args if arg.keyword and arg.keyword.value == "backend"), None)
        if backend is None or literal(backend.value) == "inductor":
            self.unit.hint(call, "compile", _INDUCTOR_HINT)

    def _grad_scaler(self, call: cst.Call) -> None:
        """torch.amp.GradScaler is for cuda unless told otherwise."""
        if any(not arg.keyword or arg.keyword.value == "device" for arg in call.args):
            return
        start, _ = self.unit.span(call)
        at = self.unit.source.data.index(b"(", self.unit.span(call.func)[1]) + 1
        text = '"npu", ' if call.args else '"npu"'
        why = "Its default device is cuda."
        self.unit.replace(at, at, text, "mixed precision", why, (start, self.unit.span(call)[1]))

    def _fused_adam(self, call: cst.Call) -> None:
        """apex's FusedAdam is AdamW unless adam_w_mode=False; NpuFusedAdamW takes torch.optim's arguments."""
        for index, arg in enumerate(call.args):
            key = arg.keyword.value if arg.keyword else ""
            if key == "adam_w_mode" and dotted_text(arg.value) == "False":
                self._drop_argument(call, index)
                name = call.func.attr if isinstance(call.func, cst.Attribute) else None
                if name is not None:
                    self.unit.replace_node(name, "NpuFusedAdam", "apex", "adam_w_mode=False is Adam.", call)
                else:
                    self.unit.hint(call, "apex", "adam_w_mode=False: import NpuFusedAdam instead of NpuFusedAdamW")
            elif key in ("adam_w_mode", "set_grad_none", "bias_correction") and dotted_text(arg.value) == "True":
                self._drop_argument(call, index)

    def _drop_argument(self, call: cst.Call, index: int) -> None:
        start, end = self.unit.span(call.args[index])
        if index:
            start = self.unit.span(call.args[index - 1].value)[1]
            start = max(start, self.unit.outer_span(call.args[index - 1].value)[1])
        elif len(call.args) > 1:
            end = self.unit.span(call.args[1])[0]
        self.unit.replace(
            start, end, "", "apex", "Not an argument of the fused optimizer for npu.", self.unit.span(call)
        )

    # The user's rules, packages, operators

    def _custom(self, call: cst.Call, name: str) -> None:
        custom = self.unit.options.custom
        text = dotted_text(call.func) or (call.func.attr.value if isinstance(call.func, cst.Attribute) else "")
        last = text.split(".")[-1]
        for func, index, new in custom.arguments:
            if func not in (text, name, self.names.qualified(call.func)) and func != last:
                continue
            if index >= len(call.args):
                self.unit.hint(call, "custom rule", f"{func} has no argument {index} here")
                continue
            arg = call.args[index]
            node = arg.value if arg.keyword and "=" not in new else arg
            start, end = self.unit.outer_span(node) if node is not arg else self.unit.span(arg)
            if node is arg and arg.comma is not cst.MaybeSentinel.DEFAULT:
                end = self.unit.outer_span(arg.value)[1]
            self.unit.replace(start, end, new, "custom rule", "ArgsModifyRule", self.unit.span(call))
        renamed = custom.functions.get(last)
        if renamed and last:
            node = call.func if "." in renamed or isinstance(call.func, cst.Name) else call.func.attr
            self.unit.replace_node(node, renamed, "custom rule", "FuncNameModifyRule", call)

    def _third_party(self, call: cst.Call) -> None:
        last = (dotted_text(call.func) or "").split(".")[-1]
        if last != "Trainer":
            return
        for arg in call.args:
            if arg.keyword and arg.keyword.value == "accelerator" and literal(arg.value) in ("gpu", "cuda"):
                self.unit.hint(arg, "check", "this Trainer chooses CUDA; give it an accelerator for npu")

    def _operator(self, call: cst.Call, name: str) -> None:
        operators = self.unit.options.operators
        if operators and name.startswith("torch."):
            found = operators.judge(name)
            if found:
                self.unit.missing(call, name, found.support, found.hint)
