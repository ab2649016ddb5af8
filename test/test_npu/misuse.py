"""What is wrong to ask of an operator, and what came of asking it on the CPU and on npu.

An operator that is misused has to say so where it is called: with the CPU's class of error, and nothing may be left for
a later synchronisation to raise."""

import contextlib
import os
import re

import op_checks
import torch.utils._pytree as pytree
import yaml
from op_checks import DEVICE, Unsuited, Wrong

import torch

EXCEPTIONS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "error_exceptions.yaml")
DTYPES = (torch.uint16, torch.complex64, torch.bool, torch.bfloat16, torch.int64, torch.float64, torch.float16)
# All floating tensors at once.
WHOLE_DTYPES = (torch.uint16, torch.complex64, torch.bool, torch.bfloat16, torch.uint8, torch.int32)
FAR = (77, -77, -1)  # no dimension, size or index of a sample, and what counts nothing


class Exceptions:
    """The known deviations: each with the operators, the cases and the ways of deviating that it excuses."""

    def __init__(self):
        with open(EXCEPTIONS, encoding="utf-8") as file:
            self.entries = yaml.safe_load(file)

    def excuse(self, op: str, case: str, deviation: str) -> bool:
        return any(
            ("op" not in e or op in ([e["op"]] if isinstance(e["op"], str) else e["op"]))
            and ("case" not in e or re.search(e["case"], case))
            and re.search(e["deviation"], deviation, re.DOTALL)
            for e in self.entries
        )


def is_ints(value) -> bool:
    return isinstance(value, (list, tuple)) and len(value) > 0 and all(type(v) is int for v in value)


def mutations(values):
    """Samples like this one in all but one respect, most of them wrong: pairs of name and values."""
    leaves, spec = pytree.tree_flatten(values)

    def put(i, value):
        return pytree.tree_unflatten([*leaves[:i], value, *leaves[i + 1 :]], spec)

    for i, leaf in enumerate(leaves):
        if isinstance(leaf, torch.Tensor) and leaf.layout is torch.strided:
            t = leaf.detach()
            for name, change in SHAPES.items():
                with contextlib.suppress(IndexError, RuntimeError, NotImplementedError):  # no such form of this one
                    yield f"{name} {i}", put(i, change(t))
            for dtype in DTYPES:
                if t.dtype is not dtype:
                    with contextlib.suppress(RuntimeError):
                        yield f"{str(dtype)[6:]} {i}", put(i, t.to(dtype))
                if not t.dtype.is_floating_point and not t.dtype.is_complex and t.dtype is not torch.bool:
                    yield f"negated {i}", put(i, -t - 1)
        elif type(leaf) is int:
            for number in FAR:
                yield f"{number} {i}", put(i, number)
            yield f"more by a tenth {i}", put(i, leaf + 0.1)
        elif type(leaf) is float:
            yield f"-3.5 {i}", put(i, -3.5)
        elif type(leaf) is str:
            yield f"nonsense {i}", put(i, "nonsense")
        elif type(leaf) is bool:
            yield f"not {i}", put(i, not leaf)
    lists, spec = pytree.tree_flatten(values, is_leaf=is_ints)
    for i, leaf in enumerate(lists):
        if is_ints(leaf):
            longer = type(leaf)([*leaf, leaf[-1]])
            yield f"again {i}", pytree.tree_unflatten([*lists[:i], longer, *lists[i + 1 :]], spec)
    for dtype in WHOLE_DTYPES:
        with contextlib.suppress(RuntimeError):
            yield (
                f"all {str(dtype)[6:]}",
                pytree.tree_map(
                    lambda v, d=dtype: v.detach().to(d) if isinstance(v, torch.Tensor) and v.is_floating_point() else v,
                    values,
                ),
            )


SHAPES = {
    "wider": lambda t: torch.cat([t, t[..., -1:]], -1) if t.shape[-1] else t[None],
    "narrower": lambda t: t[..., :-1] if t.shape[-1] else t[None],
    "longer": lambda t: torch.cat([t, t[-1:]], 0) if t.shape[0] else t[None],
    "one more": lambda t: t.unsqueeze(0),
    "three more": lambda t: t[None, None, None],
    "one less": lambda t: t[0],
    "nothing": lambda t: t[:0],
    "nothing in the last": lambda t: t[..., :0],
}


def deviation(call, values, grad=False) -> str | None:
    """In which way the npu differs from the CPU for values that lie there; None if in none.

    It starts with one of: silent, late, as well, device's, class, refused, wrong, broken.
    """
    try:
        on_host = op_checks.place(values, "cpu", grad=grad)
        given = op_checks.place(values, DEVICE, grad=grad)
    except (RuntimeError, Unsuited):
        return None  # a tensor that npu has not
    expected = error = None
    try:
        torch.manual_seed(0)
        expected = call(on_host)
    except Unsuited:
        return None
    except Exception as e:  # the class that is asked for
        error = e
    found = _compare_errors(call, given, error) if error is not None else _compare(call, given, expected, values)
    if (torch.ones(3, device=DEVICE) + 1).sum().item() != 6:
        return "broken: the device computes wrong numbers afterwards"
    return found


def _compare_errors(call, given, expected):
    error = late = None
    try:
        call(given)
    except Exception as e:  # as above
        error = e
    try:
        torch.npu.synchronize()
    except RuntimeError as e:
        late = e
    instead = f"instead of {op_checks.reason(expected)}"
    if error is None:
        return f"late: {op_checks.reason(late)} {instead}" if late else f"silent {instead}"
    if late is not None:
        return f"as well: {op_checks.reason(late)} after {op_checks.reason(error)}"
    if isinstance(error, torch.AcceleratorError):
        return f"device's: {op_checks.reason(error)} {instead}"
    if type(error) is not type(expected):
        return f"class: {op_checks.reason(error)} {instead}"
    return None


def _compare(call, given, expected, values):
    if any(isinstance(t, torch.Tensor) and t.layout is not torch.strided for t in pytree.tree_leaves(expected)):
        return None
    actual = None
    try:
        torch.manual_seed(0)
        actual = call(given)
    except Exception as e:  # as above
        op_checks.settle()
        return f"refused: {op_checks.reason(e)}"
    try:
        torch.npu.synchronize()
    except RuntimeError as e:
        return f"late: {op_checks.reason(e)}"
    try:
        op_checks.compare(actual, expected)
    except Unsuited:
        return None
    except Wrong as e:
        excused = (
            op_checks.names_no_device(given)
            or op_checks.is_random(call, values)
            or op_checks.is_as_exact(actual, expected, call, values)
        )
        return None if excused else f"wrong: {e}"
    except RuntimeError as e:
        return f"late: {op_checks.reason(e)}"
    return None
