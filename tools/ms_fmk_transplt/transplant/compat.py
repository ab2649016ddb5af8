# What the guide asks of scripts for the 1.5 version because of that version's limits. This version has no such limits,
# so by default a script only gets hints; --compat 1.5 writes the changes.
"""Limits of old API versions: pinned memory, short last batches, int64 targets, init_method."""

import re

import libcst as cst

from .api_table import canonical
from .scopes import dotted_text
from .unit import Unit

_TARGET = re.compile(r"(targets?|labels?|lbls?|gt_labels?)$")


class CompatRules:
    """Hints about old limits, or the changes that respect them."""

    def __init__(self, unit: Unit):
        self.unit = unit
        self.applied = unit.options.compat == "1.5"

    def apply(self) -> None:
        for node in self.unit.names.nodes:
            if isinstance(node, cst.Call):
                name = canonical(self.unit.names.qualified(node.func) or "")
                if name == "torch.utils.data.DataLoader":
                    self._loader(node)
                elif name == "torch.distributed.init_process_group":
                    self._process_group(node)
                else:
                    self._target(node)

    def _argument(self, call: cst.Call, key: str) -> cst.Arg | None:
        return next((arg for arg in call.args if arg.keyword and arg.keyword.value == key), None)

    def _loader(self, call: cst.Call) -> None:
        if any(arg.star for arg in call.args):
            return
        for key, value in (("pin_memory", "False"), ("drop_last", "True")):
            arg = self._argument(call, key)
            if arg is not None and dotted_text(arg.value) == value or arg is None and key == "pin_memory":
                continue
            if key == "drop_last" and self._argument(call, "batch_sampler"):
                continue
            advice = f"API version 1.5 wants {key}={value}; not needed now (--compat 1.5 writes it)"
            if not self.applied:
                self.unit.hint(call, "compat", advice)
            elif arg is not None:
                start, end = self.unit.outer_span(arg.value)
                self.unit.replace(start, end, value, "compat", f"API version 1.5 wants {key}={value}.")
            elif call.args:
                end = self.unit.outer_span(call.args[-1].value)[1]
                self.unit.insert(end, f", {key}={value}", "compat", f"API version 1.5 wants {key}={value}.")

    def _process_group(self, call: cst.Call) -> None:
        for index, arg in enumerate(call.args):
            if arg.keyword and arg.keyword.value == "init_method" and self.applied:
                start, end = self.unit.span(arg)
                end = max(end, self.unit.outer_span(arg.value)[1])
                if index:
                    start = self.unit.outer_span(call.args[index - 1].value)[1]
                elif len(call.args) > 1:
                    end = self.unit.span(call.args[1])[0]
                self.unit.replace(start, end, "", "compat", "API version 1.5 takes no init_method; set MASTER_ADDR.")

    def _target(self, call: cst.Call) -> None:
        """``target.cuda()`` and ``target.to(device)``: class indices had to be int32."""
        func = call.func
        if not isinstance(func, cst.Attribute) or func.attr.value not in ("cuda", "npu", "to"):
            return
        if not isinstance(func.value, cst.Name) or not _TARGET.search(func.value.value):
            return
        if func.attr.value == "to" and (self.unit.names.qualified(call.args[0].value) if call.args else "torch"):
            return
        if self.applied:
            end = self.unit.span(func.value)[1]
            self.unit.insert(end, ".to(torch.int32)", "compat", "API version 1.5 wants int32 class indices.")
        else:
            self.unit.hint(
                call, "compat", "API version 1.5 wants int32 targets; not needed now (--compat 1.5 writes it)"
            )
