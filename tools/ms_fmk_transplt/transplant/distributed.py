# The "distributed" mode (-m, -t): one process per device. The main file gets the device list, the process group, the
# sampler and DistributedDataParallel around the model; a launch script beside it starts the processes.
"""Turn a single-process main script into one that runs on several devices with hccl."""

import libcst as cst

from .api_table import canonical
from .unit import Unit

LAUNCH_SCRIPT = "run_distributed_npu.sh"
_PROLOGUE = '''
# One process per device; {script} starts them. NPU_DEVICE_LIST chooses the devices.
import os
import torch.distributed
import torch.utils.data.distributed


def npu_process_device_map(device_list):
    """Process number -> device number, for a list such as "0,1,2,3"."""
    return dict(enumerate(sorted(int(device) for device in device_list.split(","))))


def npu_sampler(dataset):
    """Each process draws its own share of a data set; a single process draws all of it at random."""
    if torch.distributed.is_initialized():
        return torch.utils.data.distributed.DistributedSampler(dataset)
    return torch.utils.data.RandomSampler(dataset)


NPU_DEVICE_MAP = npu_process_device_map(os.environ.get("NPU_DEVICE_LIST", "0,1,2,3,4,5,6,7"))
NPU_DEVICE_ID = NPU_DEVICE_MAP[int(os.environ.get("LOCAL_RANK", "0"))]
torch.npu.set_device(f"npu:{{NPU_DEVICE_ID}}")
'''
_PROCESS_GROUP = """if int(os.environ.get("WORLD_SIZE", "1")) > 1:
    torch.distributed.init_process_group(backend="hccl")
"""
_LAUNCH = """#!/bin/bash
# Starts {main} once per device: NPU_DEVICE_LIST=0,1 bash {script} [arguments of {main}]
export NPU_DEVICE_LIST=${{NPU_DEVICE_LIST:-0,1,2,3,4,5,6,7}}
export MASTER_ADDR=${{MASTER_ADDR:-127.0.0.1}}
export MASTER_PORT=${{MASTER_PORT:-29688}}
export HCCL_WHITELIST_DISABLE=1
IFS=',' read -r -a devices <<< "$NPU_DEVICE_LIST"
cd "$(dirname "${{BASH_SOURCE[0]}}")" || exit 1
exec torchrun --nproc_per_node "${{#devices[@]}}" --master_addr "$MASTER_ADDR" --master_port "$MASTER_PORT" \\
    "{main}" "$@"
"""
_WHY = "Distributed training: one process per device."


def launch_script(main: str) -> str:
    """Text of the script that starts ``main`` (a path relative to it) once per device."""
    return _LAUNCH.format(main=main, script=LAUNCH_SCRIPT)


class DistributedRules:
    """Applies the distributed mode to the main file."""

    def __init__(self, unit: Unit):
        self.unit = unit
        self.names = unit.names
        calls = [node for node in self.names.nodes if isinstance(node, cst.Call)]
        self.by_name: dict[str, list[cst.Call]] = {}
        for call in calls:
            self.by_name.setdefault(canonical(self.names.qualified(call.func) or ""), []).append(call)

    def apply(self) -> None:
        if not self._prologue():
            return
        if "torch.nn.parallel.DistributedDataParallel" in self.by_name:
            self.unit.hint(self.unit.module.body[0], "distributed", "the script wraps its model itself; nothing added")
        else:
            self._wrap_model()
        for call in self.by_name.get("torch.utils.data.DataLoader", []):
            self._sampler(call)

    def _prologue(self) -> bool:
        body = self.unit.module.body
        imports = [i for i, s in enumerate(body) if _is_import(s)]
        if not imports:
            self.unit.hint(
                body[0] if body else self.unit.module, "distributed", "no import at the top level; nothing added"
            )
            return False
        # Stop at the first statement that is neither an import nor a docstring: later imports may depend on it.
        last = imports[0]
        while last + 1 < len(body) and _is_import(body[last + 1]):
            last += 1
        offset = self.unit.source.line_end(self.unit.span(body[last].body[-1])[1])
        text = _PROLOGUE.format(script=LAUNCH_SCRIPT)
        if "torch.distributed.init_process_group" not in self.by_name:
            text += _PROCESS_GROUP
        text = "import torch\nimport torch.npu\n" + text.lstrip("\n") if not self._imports_torch() else text
        newline = self.unit.source.newline(0).decode()
        return self.unit.insert(offset, ("\n\n" + text.strip("\n")).replace("\n", newline), "distributed", _WHY)

    def _imports_torch(self) -> bool:
        return any(b.kind == "import" and b.target == "torch" for b in self.names.top.names.get("torch", []))

    def _wrap_model(self) -> None:
        model = self.unit.options.model
        last = None
        for node in self.names.nodes:
            if isinstance(node, cst.SimpleStatementLine) and any(self._sets_model(small, model) for small in node.body):
                last = node
        if last is None:
            text = f"no statement assigns {model}; name the model's variable with -t"
            self.unit.hint(self.unit.module.body[0], "distributed", text)
            return
        source = self.unit.source
        start = self.unit.span(last.body[0])[0]
        indent, newline = source.indent(start).decode(), source.newline(start).decode()
        wrap = f"torch.nn.parallel.DistributedDataParallel({model}, device_ids=[NPU_DEVICE_ID])"
        lines = ["if torch.distributed.is_initialized():", f"    {model} = {wrap}"]
        text = "".join(newline + indent + line for line in lines)
        self.unit.insert(source.line_end(self.unit.span(last.body[-1])[1]), text, "distributed", _WHY)

    def _sets_model(self, small: cst.CSTNode, model: str) -> bool:
        """``model = ...`` or a bare ``model.cuda()``; the last of them leaves the model on its device."""
        if isinstance(small, cst.Assign):
            return any(self.unit.text(target.target) == model for target in small.targets)
        if isinstance(small, cst.Expr) and isinstance(small.value, cst.Call):
            func = small.value.func
            if isinstance(func, cst.Attribute) and func.attr.value in ("cuda", "to", "npu"):
                return self.unit.text(func.value) == model
        return False

    def _sampler(self, call: cst.Call) -> None:
        given = {arg.keyword.value: arg for arg in call.args if arg.keyword}
        if given.keys() & {"sampler", "batch_sampler"}:
            return
        shuffle = given.get("shuffle")
        dataset = given.get("dataset") or (call.args[0] if call.args and not call.args[0].keyword else None)
        if shuffle is None or self.unit.text(shuffle.value) != "True":
            return
        if dataset is None or not isinstance(dataset.value, (cst.Name, cst.Attribute)):
            self.unit.hint(call, "distributed", "give this DataLoader a DistributedSampler instead of shuffle=True")
            return
        start, end = self.unit.span(shuffle)
        end = self.unit.outer_span(shuffle.value)[1]
        text = f"sampler=npu_sampler({self.unit.text(dataset.value)})"
        self.unit.replace(start, end, text, "distributed", _WHY, self.unit.span(call))


def _is_import(statement: cst.CSTNode) -> bool:
    return isinstance(statement, cst.SimpleStatementLine) and all(
        isinstance(small, (cst.Import, cst.ImportFrom)) for small in statement.body
    )
