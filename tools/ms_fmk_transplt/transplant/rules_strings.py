# String literals: device names, back ends, environment variables and the few dotted names that are written as strings.
# Each literal is judged by its place (contexts.py); the edit replaces the word inside the quotes and nothing else.
"""Rules for string literals."""

import re

import libcst as cst

from . import api_table
from .contexts import literal
from .scopes import dotted_text
from .unit import Unit

_INDEX = r"(?:\d+|\{[^{}]*\}|%[dsi])"
_INDEXED = re.compile(rf"cuda:{_INDEX}?")
_SEVERAL = re.compile(r"cuda:\d+(,\d+)+")
_COMMAND = re.compile(
    rb"(?P<variable>\bCUDA_VISIBLE_DEVICES)(?==)"
    rb"|(?<=[\s\"'])--?[\w-]*device[\w-]*[ =](?P<device>cuda)(?![\w-])"
    rb"|(?<=[\s\"'])--?[\w-]*backend[\w-]*[ =](?P<backend>nccl)(?![\w-])"
)
_COMMAND_WORDS = {"variable": b"ASCEND_RT_VISIBLE_DEVICES", "device": b"npu", "backend": b"hccl"}
_CUDA_ERROR = re.compile(r"CUDA (out of memory|error)")
_GPU = re.compile(rf"gpu:{_INDEX}")
_TENSOR_TYPE = re.compile(r"torch\.cuda\.(\w*Tensor)")
_BACKENDS = re.compile(r"(?:\w+:\w+,)*cuda:nccl(?:,\w+:\w+)*")
_VISIBLE = re.compile(r"CUDA_VISIBLE_DEVICES(?:=[\s\S]*)?")
_NAMED_BY_STRING = {"patch", "setattr", "import_module", "__import__", "reload", "object"}
_WHY_DEVICE = "A device is named here."


class StringRules:
    """Applies the string rules to one unit."""

    def __init__(self, unit: Unit):
        self.unit = unit
        self.contexts = unit.contexts

    def apply(self) -> None:
        for node in self.unit.names.nodes:
            if isinstance(node, cst.SimpleString):
                if not isinstance(self.unit.names.parents.get(node), cst.ConcatenatedString):
                    self._string(node, literal(node), node)
            elif isinstance(node, cst.ConcatenatedString):
                if not isinstance(self.unit.names.parents.get(node), cst.ConcatenatedString):
                    self._string(node.left, literal(node), node)
            elif isinstance(node, cst.FormattedString):
                self._formatted(node)
            elif isinstance(node, cst.Arg) and node.keyword and node.keyword.value == "CUDA_VISIBLE_DEVICES":
                row = api_table.ENVIRONMENT["CUDA_VISIBLE_DEVICES"]
                self.unit.replace_node(node.keyword, row.npu or "", "environment", row.remark, node)

    def _string(self, piece: cst.CSTNode, value: str | None, whole: cst.CSTNode) -> None:
        if value is None or not isinstance(piece, cst.SimpleString) or not _may_matter(value):
            return
        if self.contexts.is_documentation(whole) or self.contexts.is_message(whole):
            return
        if value == "cuda":
            if self.contexts.is_device(whole):
                self._replace(piece, "cuda", "npu", "device string", _WHY_DEVICE)
            elif not self._is_option_or_key(whole):
                self.unit.hint(piece, "check", 'the string "cuda" is left as it is; change it if it names a device')
        elif _INDEXED.fullmatch(value) or _SEVERAL.fullmatch(value) and self.contexts.is_device(whole):
            self._replace(piece, "cuda", "npu", "device string", _WHY_DEVICE)
        elif _GPU.fullmatch(value) and self.contexts.is_device(whole):
            self._replace(piece, "gpu", "npu", "device string", _WHY_DEVICE)
        elif value == "nccl":
            if self.contexts.is_backend(whole):
                self._replace(piece, "nccl", "hccl", "back end", "hccl is the back end of npu.")
            elif not self._is_option_or_key(whole):
                self.unit.hint(piece, "check", 'the string "nccl" is left as it is; change it if it names a back end')
        elif _BACKENDS.fullmatch(value):
            self._replace(piece, "cuda:nccl", "npu:hccl", "back end", "hccl is the back end of npu.")
        elif _VISIBLE.fullmatch(value):
            row = api_table.ENVIRONMENT["CUDA_VISIBLE_DEVICES"]
            self._replace(piece, row.cuda, row.npu or "", "environment", row.remark)
        elif value in api_table.ENVIRONMENT:
            self.unit.hint(piece, "environment", f"{value}: {api_table.ENVIRONMENT[value].remark}")
        elif value in api_table.PROFILE_COLUMNS:
            self._profile_column(piece, value)
        elif _CUDA_ERROR.match(value):
            if value.startswith("CUDA out of memory") and self.contexts.is_compared(whole):
                self._replace(piece, "CUDA", "NPU", "message", "The device's name in its messages.")
            else:
                text = f'"{value}" is CUDA\'s text; npu says "NPU out of memory" and "NPU error"'
                self.unit.hint(piece, "check", text)
        elif value == "torch.cuda" and self.contexts.is_tensor_type_prefix(whole):
            self._replace(piece, "cuda", "npu", "tensor type", "Prefix of Tensor.type().")
        elif not self._command(piece):
            self._dotted_name(piece, value, whole)

    def _command(self, piece: cst.CSTNode) -> bool:
        """Options and variables inside of a command line: ``"python train.py --device cuda"``."""
        start, end = self.unit.span(piece)
        found = False
        for match in _COMMAND.finditer(self.unit.source.data, start, end):
            kind = match.lastgroup or ""  # each alternative is a group
            why = "A command line names it."
            new = _COMMAND_WORDS[kind].decode()
            found |= self.unit.replace(*match.span(kind), new, "command line", why, (start, end))
        return found

    def _dotted_name(self, piece: cst.SimpleString, value: str, whole: cst.CSTNode) -> None:
        row = self.unit.row(value)
        if _TENSOR_TYPE.fullmatch(value):
            if row and row.npu:
                self._replace(piece, "cuda", "npu", "tensor type", row.remark)
        elif row and row.npu and row.cuda.startswith("torch.cuda") and self._is_name_by_string(whole):
            self._replace(piece, value, row.npu, "name in a string", row.remark)

    def _is_name_by_string(self, node: cst.CSTNode) -> bool:
        parent = self.unit.names.parents.get(node)
        for ancestor in self.unit.names.ancestors(node):
            if isinstance(ancestor, cst.Annotation):
                return True
            if isinstance(ancestor, (cst.Call, cst.BaseSmallStatement, cst.BaseCompoundStatement)):
                break
        call = self.unit.names.parents.get(parent) if isinstance(parent, cst.Arg) else None
        return isinstance(call, cst.Call) and (dotted_text(call.func) or "").split(".")[-1] in _NAMED_BY_STRING

    def _profile_column(self, piece: cst.SimpleString, value: str) -> None:
        new, old_api = api_table.PROFILE_COLUMNS[value]
        new = old_api if self.unit.options.version == "1.5" else new
        self._replace(piece, value, new, "profiler column", "Device time has this name.")

    def _is_option_or_key(self, node: cst.CSTNode) -> bool:
        """Names of options and keys: nobody means a device by them, so they get no hint either."""
        parent = self.unit.names.parents.get(node)
        return isinstance(parent, (cst.Index, cst.DictElement)) or isinstance(
            self.unit.names.parents.get(parent), cst.Subscript
        )

    def _formatted(self, node: cst.FormattedString) -> None:
        parts = node.parts
        if not parts:
            return
        if not self.contexts.is_documentation(node) and not self.contexts.is_message(node):
            for part in parts:
                if isinstance(part, cst.FormattedStringText) and _may_matter(part.value):
                    self._command(part)
        if not isinstance(parts[0], cst.FormattedStringText):
            return
        first, text = parts[0], parts[0].value
        whole: cst.CSTNode = node
        parent = self.unit.names.parents.get(node)
        while isinstance(parent, cst.ConcatenatedString):
            if parent.left is not whole:
                return
            whole, parent = parent, self.unit.names.parents.get(parent)
        if self.contexts.is_documentation(whole) or self.contexts.is_message(whole):
            return
        if text in ("cuda:", "gpu:") and len(parts) == 2:
            if text == "cuda:" or self.contexts.is_device(whole):
                self._replace(first, text[:-1], "npu", "device string", _WHY_DEVICE)
        elif _INDEXED.fullmatch(text) and len(parts) == 1 or text == "cuda" and len(parts) == 1:
            if text != "cuda" or self.contexts.is_device(whole):
                self._replace(first, "cuda", "npu", "device string", _WHY_DEVICE)
        elif text == "cuda" and len(parts) == 2 and self.contexts.is_device(whole):
            # f"cuda{suffix}", where the suffix is "" or ":0".
            self._replace(first, "cuda", "npu", "device string", _WHY_DEVICE)

    def _replace(self, node: cst.CSTNode, old: str, new: str, rule: str, why: str) -> None:
        """Replace the first ``old`` inside a literal; escaped spellings are left to a hint."""
        start, end = self.unit.span(node)
        at = self.unit.source.data.find(old.encode(), start, end)
        if at < 0:
            self.unit.hint(node, "check", f'"{old}" is written with escapes here; change it by hand')
            return
        self.unit.replace(at, at + len(old), new, rule, why, (start, end))


def _may_matter(value: str) -> bool:
    return len(value) < 4000 and (
        "cuda" in value
        or "nccl" in value
        or "CUDA_VISIBLE_DEVICES" in value
        or value.startswith(("CUDA", "gpu:", "NCCL", "CUBLAS", "PYTORCH_CUDA"))
    )
