"""Which dtypes an operator has no kernel for, so that the call itself can say so.

    python tools/op_dtypes.py            says what the table lacks
    python tools/op_dtypes.py --write    writes it

Calls of upstream's operator database are noted down and repeated with every dtype. What the device would refuse, which
is too late, is the table npu_native_functions_dtypes.yaml; tools/codegen/gen_npu_kernels.py makes the checks from it.
Of a dtype that the CPU computes with it says so: that may be worth a kernel.
"""

import argparse
import collections
import contextlib
import itertools
import sys
import warnings
from pathlib import Path

import torch.utils._pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

import torch
import torch.npu

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "aten/src/ATen/native/npu"
TABLE = SOURCE / "npu_native_functions_dtypes.yaml"
SAMPLES = 4
CALLS = 20  # of an overload
CALLS_OF_ONE = 3  # of an overload by one operator of the database
# Kernels that upstream's operators call without the dispatcher's modes, and those operators.
BEHIND = {"linalg_eigvals": "_linalg_eigvals"}
DTYPES = (
    *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.uint16, torch.uint32, torch.uint64),
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
    *(torch.complex32, torch.complex64, torch.complex128),
    *(torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, torch.float8_e8m0fnu),
)
HEADER = """\
# Dtypes that operators refuse at the call, because the device has no kernel for them. Written by tools/op_dtypes.py
# --write, which measures it. For an operator of `ir_ops` it is the dtype that is computed in, for the others that of
# the first tensor. Forms of an operator of `ir_ops` go by the functional one.
"""


class Unsuited(Exception):
    """A call that says nothing: it has no result, or another tensor comes first than the one whose dtype counts."""


def copied(value, device="cpu", dtype=None, main=None):
    """The arguments on a device; tensors of dtype ``main`` become ``dtype``."""

    def copy(t):
        if isinstance(t, torch.Tensor):
            t = t.detach().resolve_conj().resolve_neg()
            return (t.to(dtype) if t.dtype is main else t.clone()).to(device)
        if isinstance(t, torch.device):
            return torch.device(device)
        return dtype if t is main and main is not None else t

    return pytree.tree_map(copy, value)


class Recorder(TorchDispatchMode):
    """Notes the first calls of each overload."""

    def __init__(self):
        super().__init__()
        self.calls = collections.defaultdict(list)
        self.of_one = collections.Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = str(func._schema.name).removeprefix("aten::") + ("." + func._overloadname).removesuffix(".default")
        name = BEHIND.get(name, name)
        calls = self.calls[name]
        if len(calls) < CALLS and self.of_one[name] < CALLS_OF_ONE:
            with contextlib.suppress(Exception):  # what cannot be copied is not measured
                calls.append((func, *copied((args, kwargs or {}))))
                self.of_one[name] += 1
        return func(*args, **(kwargs or {}))


def record(only: str) -> dict:
    """Calls of each overload that the database's samples make, gradients included."""
    from torch.testing._internal.common_methods_invocations import op_db

    recorder = Recorder()
    for op in op_db:
        if only not in op.full_name:
            continue
        recorder.of_one.clear()
        for dtype in (torch.float32, torch.int64, torch.bool):
            if not op.supports_dtype(dtype, "cpu"):
                continue
            grad = dtype is torch.float32 and op.supports_autograd
            torch.manual_seed(0)
            for sample in itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=grad), SAMPLES):
                with contextlib.suppress(Exception), recorder:  # the CPU may refuse a sample
                    result = op(sample.input, *sample.args, **sample.kwargs)
                    outputs = [o for o in pytree.tree_leaves(result) if is_tensor(o) and o.requires_grad]
                    if outputs:
                        torch.autograd.grad(outputs, [sample.input], [torch.ones_like(o) for o in outputs])
    return recorder.calls


def is_tensor(value) -> bool:
    return isinstance(value, torch.Tensor)


def outcome(func, args, kwargs, main, dtype, device) -> str:
    """computes, refuses (at the call, as an operator should; "unsupported" if it says that of the dtype) or late."""
    given = copied((args, kwargs), device, dtype, main)
    try:
        result = func(*given[0], **given[1])
    except torch.AcceleratorError:
        return "late"
    except Exception as error:  # whatever class an operator chooses
        with contextlib.suppress(torch.AcceleratorError):
            torch.npu.synchronize()
        return "unsupported" if "not implemented for" in str(error) else "refuses"
    try:
        torch.npu.synchronize()
    except torch.AcceleratorError:
        return "late"
    if not any(is_tensor(t) and t.numel() for t in pytree.tree_leaves(result)):
        raise Unsuited
    return "computes"


def measure(calls) -> dict[torch.dtype, set[tuple[str, str]]]:
    """For each dtype of the first tensor what came of calls with it on the CPU and on npu."""
    found: dict[torch.dtype, set[tuple[str, str]]] = {dtype: set() for dtype in DTYPES}
    for func, args, kwargs in calls:
        tensors = [t for t in pytree.tree_leaves((args, kwargs)) if is_tensor(t)]
        if not tensors or all(t.numel() == 0 for t in tensors):
            continue
        main = tensors[0].dtype
        with contextlib.suppress(Unsuited):
            # The CPU hands itself operands that npu has no use for.
            if outcome(func, args, kwargs, main, main, "npu") != "computes":
                continue
        for dtype in DTYPES:
            with contextlib.suppress(Unsuited):
                cpu, npu = (outcome(func, args, kwargs, main, dtype, device) for device in ("cpu", "npu"))
                found[dtype].add((cpu, npu))
    return found


def refused(found, known: list[str], alike: bool) -> list[str]:
    """Names of the dtypes that the device refuses; those in the table are refused before it is asked.

    ``alike``: whether the dtype alone decides, whatever the other arguments."""
    names = {dtype: str(dtype).removeprefix("torch.") for dtype in found}

    def is_refused(dtype, outcomes):
        bad = {"late", "unsupported"} if names[dtype] in known else {"late"}
        # Of some arguments nothing is asked of a kernel, so that one call may compute though there is none.
        without_kernel = alike and any(cpu == "unsupported" and npu in bad for cpu, npu in outcomes)
        never = all(npu != "computes" for _, npu in outcomes) and any(npu in bad for _, npu in outcomes)
        return without_kernel or never

    return [names[dtype] for dtype, outcomes in found.items() if is_refused(dtype, outcomes)]


def table(only: str = "") -> dict[str, list[str]]:
    """The refused dtypes of every overload that has a kernel."""
    sys.path.insert(0, str(ROOT / "tools/codegen"))
    from npu_entries import SCALAR_TYPES, load_entries
    from torchgen.model import FunctionSchema

    entries = load_entries(SOURCE)
    generated = {op.name for op in entries.ir_ops}
    others = [f for op in entries.aten_ops for f in op.functions] + [k.function for k in entries.kernels]
    kernels = generated | {str(f.func.name) for f in others}
    spelled = {cpp: name for name, cpp in SCALAR_TYPES.items()}
    forms = collections.defaultdict(list)
    for f in others:
        forms[f.func.signature()].append(str(f.func.name))
    result = {}
    for name, calls in sorted(record(only).items()):
        # A functional form without a kernel of its own calls another one's, which the mode does not see.
        served = [name] if name in kernels else []
        with contextlib.suppress(AssertionError, IndexError):  # a schema that torchgen does not read, no calls
            schema = FunctionSchema.parse(str(calls[0][0]._schema).removeprefix("aten::"))
            served = served or forms[schema.signature()]
        if not served:
            continue
        found = measure(calls)
        for dtype, outcomes in found.items():
            if ("computes", "late") in outcomes:
                print(f"{name} of {dtype}: the CPU computes, the device fails", file=sys.stderr)
        known = [spelled[cpp] for cpp in entries.refused.get(served[0], ())]
        types = {str(a.type) for a in calls[0][0]._schema.arguments}
        decided_otherwise = "str" in types or ("Optional[int]" in types and name not in generated)  # a dtype is an int
        if names := refused(found, known, not decided_otherwise):
            result.update(dict.fromkeys(served, names))
    # out= and in-place forms refuse what the functional one refuses.
    functional = {f.func.signature(): result[str(f.func.name)] for f in others if str(f.func.name) in result}
    for f in others:
        if f.func.signature() in functional:
            result.setdefault(str(f.func.name), functional[f.func.signature()])
    return result


def text(refusals: dict[str, list[str]]) -> str:
    """The table as YAML: one group for each set of dtypes."""
    groups = collections.defaultdict(list)
    for name, dtypes in refusals.items():
        groups[tuple(dtypes)].append(name)
    lines = [HEADER + "refused:"]
    for kinds, names in sorted(groups.items(), key=lambda item: (-len(item[1]), item)):
        lines += [f"- dtypes: [{', '.join(kinds)}]", "  funcs:"]
        lines += [f"  - {name}" for name in sorted(names)]
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the table")
    parser.add_argument("--only", default="", help="operators of the database with this in their name")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    refusals = table(arguments.only)
    if arguments.write:
        TABLE.write_text(text(refusals))
    else:
        print(text(refusals))


if __name__ == "__main__":
    main()
