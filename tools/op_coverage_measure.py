"""What the dispatcher cannot tell about operators on npu: which dtypes run, and which aten operators behind a public
function have no kernel. Runs samples of upstream's operator and module databases. Used by op_coverage.py --measure."""

import collections
import sys
import warnings

import torch.utils._pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

import torch

SAMPLES = 2
CLASSES = {
    "float": (torch.float16, torch.bfloat16, torch.float32, torch.float64),
    "int": (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
    "complex": (torch.complex64, torch.complex128),
    "bool": (torch.bool,),
}


def short(dtypes: set) -> list[str]:
    """Names of dtypes, a class's name where all of it is there."""
    names = []
    for name, members in CLASSES.items():
        if dtypes.issuperset(members):
            names.append(name)
        else:
            names += [str(d).removeprefix("torch.") for d in members if d in dtypes]
    known = {d for members in CLASSES.values() for d in members}
    return names + sorted(str(d).removeprefix("torch.") for d in dtypes - known)


class Recorder(TorchDispatchMode):
    """Notes each aten operator that ran on an npu tensor, with the tensor's dtype."""

    def __init__(self):
        super().__init__()
        self.seen = collections.defaultdict(set)
        self.calls: collections.Counter[str] = collections.Counter()
        self.fallen: collections.Counter[str] = collections.Counter()  # calls of which some part ran on the CPU

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        before = sum(torch.npu.fallback_stats().values())
        result = func(*args, **(kwargs or {}))
        for value in pytree.tree_leaves((args, kwargs, result)):
            if isinstance(value, torch.Tensor) and value.device.type == "npu":
                name = func._schema.name.removeprefix("aten::")
                self.seen[name].add(value.dtype)
                self.calls[name] += 1
                self.fallen[name] += sum(torch.npu.fallback_stats().values()) != before
                break
        return result

    def levels(self) -> dict[str, str]:
        """Where each operator ran: on the device, on the CPU, or "partly", some calls on either."""
        found = {}
        for name, calls in sorted(self.calls.items()):
            fallen = self.fallen[name]
            found[name] = "native" if not fallen else "CPU" if fallen == calls else "partly"
        return found


def public_name(op) -> str:
    return f"torch.{op.name.removeprefix('torch.')}"


class Apis:
    """Which aten operators fell back behind each public name, and whether they did in every sample that ran."""

    def __init__(self):
        self.fallen = collections.defaultdict(set)
        self.always = collections.defaultdict(lambda: True)

    def note(self, name: str, fallen: set[str], ran: bool):
        self.fallen[name] |= fallen
        if ran and not fallen:
            self.always[name] = False

    def content(self) -> dict:
        return {
            name: {"ops": sorted(fallen), "always": self.always[name]}
            for name, fallen in sorted(self.fallen.items())
            if fallen and "._" not in name
        }


def moved(value, grad=False):
    def move(t):
        if not isinstance(t, torch.Tensor):
            return "npu" if t == "cpu" else torch.device("npu") if t == torch.device("cpu") else t
        copy = t.detach().to("npu")
        return copy.requires_grad_() if grad and t.requires_grad else copy

    return pytree.tree_map(move, value)


def run(call, recorder, apis, name):
    """Call it under the recorder; what raises is no support."""
    torch.npu.reset_fallback_stats()
    try:
        with recorder:
            result = call()
        torch.npu.synchronize()
    except Exception:  # what an operator refuses is not supported, whatever the class
        result = None
    fallen = {op.removeprefix("aten::").split(".")[0] for op in torch.npu.fallback_stats()}
    apis.note(name, fallen, result is not None)


def gradient(result):
    outputs = [o for o in pytree.tree_leaves(result) if isinstance(o, torch.Tensor) and o.requires_grad]
    if outputs:
        sum((o.abs() if o.is_complex() else o).sum() for o in outputs).backward()


def measure_operators(recorder, apis):
    from torch.testing._internal.common_methods_invocations import op_db

    for number, op in enumerate(op_db):
        for dtype in sorted(op.supported_dtypes("cpu"), key=str):
            grad = dtype is torch.float32 and op.supports_autograd
            samples = op.sample_inputs("cpu", dtype, requires_grad=grad)
            for _, sample in zip(range(SAMPLES), samples, strict=False):

                def call(op=op, sample=sample, grad=grad):
                    values = moved((sample.input, sample.args, dict(sample.kwargs)), grad)
                    result = op(values[0], *values[1], **values[2])
                    if grad:
                        gradient(sample.output_process_fn_grad(result))
                    return True

                run(call, recorder, apis, public_name(op))
        if number % 50 == 0:
            print(f"{number} of {len(op_db)} operators", file=sys.stderr, flush=True)


def measure_modules(recorder, apis):
    from torch.testing._internal.common_modules import module_db

    for info in module_db:
        name = f"torch.nn.{info.module_cls.__name__}"
        inputs = info.module_inputs_func(info, device="npu", dtype=torch.float32, requires_grad=True, training=True)
        for _, item in zip(range(SAMPLES), inputs, strict=False):
            make, forward = item.constructor_input, item.forward_input
            if forward is None:
                continue

            def call(info=info, make=make, forward=forward):
                module = info.module_cls(*make.args, **make.kwargs).to("npu")
                gradient(module(*forward.args, **forward.kwargs))
                return True

            run(call, recorder, apis, name)


def measure() -> dict:
    """``dtypes``: aten name to the dtypes that ran; ``apis``: what fell back behind a public name; ``levels``: where
    each aten operator ran."""
    recorder, apis = Recorder(), Apis()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        measure_operators(recorder, apis)
        measure_modules(recorder, apis)
    return {
        "dtypes": {name: short(dtypes) for name, dtypes in sorted(recorder.seen.items())},
        "apis": apis.content(),
        "levels": recorder.levels(),
    }
