"""What the classes of test_ops.py share: a sample with the same memory layout on either device, the comparison of
results, and whether the npu computed one by itself."""

import contextlib
import functools
import itertools
import os
import warnings
from unittest import mock

import torch.utils._pytree as pytree

import torch
import torch.npu

DEVICE = "npu:0"
# Relative, and absolute times the size of the expected values (which cancel in sums).
TOLERANCE = {
    torch.float64: 1e-9,
    torch.complex128: 1e-9,
    torch.float32: 2e-5,
    torch.complex64: 2e-5,
    torch.float16: 4e-3,
    torch.complex32: 4e-3,
    torch.bfloat16: 3e-2,
}
# A count that decides a result's shape has to come to the host; the values themselves have not.
FEW_BYTES = 64


class Unsuited(Exception):
    """The sample has no counterpart on npu: it is sparse, nested or holds something that is bound to the CPU."""


class Wrong(AssertionError):
    """The npu gave another result than the CPU."""


def reason(error: BaseException) -> str:
    """One line that says what happened."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [""]
    best = next((line for line in lines if line.startswith("Reason")), lines[0])
    return f"{type(error).__name__}: {best[:300]}"


# ---- Samples ----


class OnHost:
    """A tensor that upstream wants on the CPU, whatever the device of the others."""

    def __init__(self, value):
        self.value = value


def place(value, device, grad=False):
    """Copy a sample (any nest of tensors) to a device: sizes, strides, offsets and shared memory stay as they are.

    Strings and devices that say "cpu" become ``device``; leaves ask for a gradient where ``grad`` and the sample's do.
    """
    storages = {}

    def tensor(t):
        if t.layout is not torch.strided or t.is_nested or t.is_quantized:
            raise Unsuited(f"layout {t.layout}")
        storage = t.untyped_storage()
        key = storage.data_ptr() or id(storage)
        if key not in storages:
            raw = torch.empty(0, dtype=torch.uint8).set_(storage)
            storages[key] = raw.detach().clone().to(device).untyped_storage()
        with torch.no_grad():
            bare = t.detach()
            bare = torch._neg_view(bare) if bare.is_neg() else bare
            bare = torch._conj(bare) if bare.is_conj() else bare
            copy = torch.empty(0, dtype=t.dtype, device=device)
            copy.set_(storages[key], bare.storage_offset(), bare.size(), bare.stride())
            copy = torch._conj(copy) if t.is_conj() else copy
            copy = torch._neg_view(copy) if t.is_neg() else copy
        return copy.requires_grad_() if grad and t.requires_grad else copy

    def one(v):
        if isinstance(v, torch.Tensor):
            return tensor(v)
        if isinstance(v, OnHost):
            return v.value.clone()
        if isinstance(v, torch.Generator):
            return torch.Generator(device).manual_seed(v.initial_seed())
        if isinstance(v, torch.device) and v.type == "cpu":
            return torch.device(device)
        return device if isinstance(v, str) and v == "cpu" else v

    return pytree.tree_map(one, value)


def parts(sample):
    return sample.input, sample.args, dict(sample.kwargs)


def _strided(t):
    return t.repeat_interleave(2, -1)[..., ::2]


def _offset(t):
    room = t.new_zeros(t.numel() + 19)
    room[19:] = t.reshape(-1)
    return room[19:].view(t.shape)


def _transposed(t):
    return t.transpose(0, -1).contiguous().transpose(0, -1)


def _expanded(t):
    return t[:1].expand_as(t)


LAYOUTS = {
    "strided": _strided,
    "offset": _offset,
    "transposed": _transposed,
    "expanded": _expanded,
    "empty": lambda t: t[:0],
    "0-d": lambda t: t.reshape(-1)[0].clone(),
}


def with_layouts(sample):
    """The sample with its input laid out otherwise, cut to nothing, or made one number: pairs of name and parts."""
    tensor, args, kwargs = parts(sample)
    if not isinstance(tensor, torch.Tensor) or tensor.dim() == 0 or tensor.numel() == 0:
        return
    for name, change in LAYOUTS.items():
        with contextlib.suppress(RuntimeError):  # a dtype that the CPU cannot lay out so
            yield name, (change(tensor.detach()), args, kwargs)


# Where values are equal, their order is free; the CPU's median of an expanded vector is not even among its values.
UNSTABLE = {"sort", "argsort", "msort", "topk", "kthvalue", "median", "nanmedian", "mode", "unique", "masked.median"}


# Of a singular matrix, as one of equal rows is, rounding decides what comes out.
DECOMPOSED = {
    "cholesky",
    "geqrf",
    "linalg.cholesky",
    "linalg.cholesky_ex",
    "linalg.inv",
    "linalg.inv_ex",
    "linalg.lstsq",
    "linalg.lu",
    "linalg.lu_factor",
    "linalg.lu_factor_ex",
    "linalg.qr",
    "linalg.solve_ex",
    "lu",
    "qr",
}
# Whether the simulator plays a strict card: then other operators compute than the CPU's.
CARD = os.environ.get("ASCEND_SIM_OPERATORS") == "cann"


def _unsuited(op, sample, layout):
    """Layouts that change a sample's values to such as say nothing."""
    if layout == "expanded":
        return op.name in UNSTABLE or (CARD and op.name in DECOMPOSED)
    # The CPU reads behind the end of the data.
    return layout == "empty" and op.name == "_segment_reduce" and "offsets" in sample.kwargs


HOST_ARGUMENTS = {"tensor_split"}
# What the CPU raises, and what is one of that or is said of values, which are known on the device only.
KINDS_OF_ERRORS = {
    *(
        ("RuntimeError", "NotImplementedError"),
        ("RuntimeError", "AcceleratorError"),
        ("IndexError", "AcceleratorError"),
    ),
}


def samples_of(op, dtype, grad=False, limit=None, layouts=0):
    """Named samples on the CPU: those of the database, then other layouts of the first ``layouts`` of them."""
    torch.manual_seed(0)
    found = list(itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=grad), limit))
    for number, sample in enumerate(found):
        if op.name in HOST_ARGUMENTS:
            sample.args = pytree.tree_map(lambda v: OnHost(v) if isinstance(v, torch.Tensor) else v, sample.args)
        yield f"{number}", parts(sample), sample.output_process_fn_grad
    for number, sample in enumerate(found[:layouts]):
        for name, changed in with_layouts(sample):
            if _unsuited(op, sample, name):
                continue
            yield f"{number} {name}", changed, None


# ---- Comparison ----


def _picked(values, result, first):
    """Of an operator that names places by `dim`, its argument number `first`: its values, and those at the places."""
    x, dim = values[0], values[1][first] if len(values[1]) > first else values[2].get("dim", -1)
    keep = values[1][first + 1] if len(values[1]) > first + 1 else values[2].get("keepdim", False)
    if x.dim() == 0:
        return result[0]
    return result[0], x.gather(dim, result[1] if keep else result[1].unsqueeze(dim))


def _rebuilt(values, result):
    """Eigenvectors are free in their signs and phases: the matrix that they are of."""
    return result[0], (result[1] * result[0].unsqueeze(-2)) @ result[1].mH


# What is determined of a result, where the operator leaves a choice that a card makes otherwise than the CPU.
MEANINGS = {
    "kthvalue": lambda values, result: _picked(values, result, 1),
    "mode": lambda values, result: _picked(values, result, 0),
    "linalg.eigh": _rebuilt,
}


def meant(op, call):
    """The call with what is determined of its result."""
    meaning = MEANINGS.get(op.name) if CARD else None
    return call if meaning is None else lambda values: meaning(values, call(values))


def factor_of_wider(values):
    """How much more an out= tensor in float64 may differ: a card computes in the operands' precision, and rounds so."""
    given = [v.dtype for v in pytree.tree_leaves(values) if isinstance(v, torch.Tensor)]
    narrow = functools.reduce(torch.promote_types, given, torch.bool)
    if not CARD or narrow in (torch.float64, torch.complex128):
        return 1.0
    narrow = narrow if narrow.is_floating_point or narrow.is_complex else torch.float32
    return TOLERANCE[narrow] / TOLERANCE[torch.float64]


def _wide(dtype):
    return torch.complex128 if dtype.is_complex else torch.float64 if dtype.is_floating_point else dtype


def tolerance(dtype, factor=1.0):
    return TOLERANCE.get(dtype, 0.0) * factor


def compare_tensor(actual, expected, factor=1.0, where=""):
    """Raise Wrong unless dtype, shape, device and values agree."""
    if actual.device.type != "npu":
        raise Wrong(f"{where}result on {actual.device}")
    if actual.dtype != expected.dtype or actual.shape != expected.shape:
        raise Wrong(f"{where}{actual.dtype} {tuple(actual.shape)} instead of {expected.dtype} {tuple(expected.shape)}")
    if expected.layout is not torch.strided:
        raise Unsuited(f"result of layout {expected.layout}")
    a, e = actual.detach().cpu().resolve_conj().resolve_neg(), expected.detach().resolve_conj().resolve_neg()
    if e.numel() == 0 or (not e.dtype.is_floating_point and not e.dtype.is_complex and torch.equal(a, e)):
        return
    limit = max(tolerance(expected.dtype, factor), tolerance(torch.float64, 1e-3) if e.is_floating_point() else 0.0)
    a, e = a.to(_wide(e.dtype)), e.to(_wide(e.dtype))
    scale = 1.0
    if limit:
        size = e.abs()
        size = size[size.isfinite()]
        scale = min(max(1.0, float(size.max()) if size.numel() else 1.0), 1e3)
    try:
        torch.testing.assert_close(a, e, rtol=limit, atol=limit * scale, equal_nan=True)
    except AssertionError as error:
        text = " ".join(line.strip() for line in str(error).splitlines()[2:5] if line.strip())
        raise Wrong(f"{where}values differ: {text}") from error


def compare(actual, expected, factor=1.0):
    """Compare nests of tensors and plain values."""
    a, e = pytree.tree_leaves(actual), pytree.tree_leaves(expected)
    if len(a) != len(e):
        raise Wrong(f"{len(a)} results instead of {len(e)}")
    for i, (one, other) in enumerate(zip(a, e, strict=True)):
        if isinstance(other, torch.Tensor):
            if not isinstance(one, torch.Tensor):
                raise Wrong(f"{one!r} instead of a tensor")
            compare_tensor(one, other, factor, f"result {i}: " if len(e) > 1 else "")
        elif isinstance(other, float):
            if not (one == other or (one != one and other != other) or abs(one - other) <= 1e-5 * max(1, abs(other))):
                raise Wrong(f"{one!r} instead of {other!r}")
        elif isinstance(other, torch.device):
            if one.type != "npu":
                raise Wrong(f"{one!r} instead of an npu")
        elif type(one) is not type(other) or one != other:
            raise Wrong(f"{one!r} instead of {other!r}")


def same_values(a, b) -> bool:
    """Whether two results of one device are alike, bit for bit but for NaN."""
    for one, other in zip(pytree.tree_leaves(a), pytree.tree_leaves(b), strict=True):
        if isinstance(one, torch.Tensor):
            if one.shape != other.shape or one.layout is not torch.strided:
                return one.shape == other.shape
            one, other = (t.detach().cpu().resolve_conj().resolve_neg() for t in (one, other))
            one, other = (torch.view_as_real(t.to(torch.complex128)) if t.is_complex() else t for t in (one, other))
            if not ((one == other) | (one.isnan() & other.isnan())).all():
                return False
        elif one != other and not (one != one and other != other):
            return False
    return True


# ---- Running ----


class Meter:
    """Whether what ran inside needed the CPU: an operator fell back, or values came to the host."""

    def __enter__(self):
        self.before = self._bytes()
        torch.npu.reset_fallback_stats()
        return self

    def __exit__(self, *exception):
        self.fallen = sorted(name.removeprefix("aten::") for name in torch.npu.fallback_stats())
        self.copied = self._bytes() - self.before > FEW_BYTES
        torch.npu.reset_fallback_stats()

    @staticmethod
    def _bytes() -> int:
        counters = torch._C._npu_simulatorCounters(0)
        return counters["device_to_host_bytes"] if counters else 0

    @property
    def foreign(self) -> list[str]:
        return self.fallen or (["host copy"] if self.copied else [])


class Tally:
    """What came of the samples of one test."""

    def __init__(self):
        self.right = self.wrong = self.refused = self.native = self.random = self.skipped = 0
        self.failures: list[str] = []
        self.foreign: set[str] = set()

    def good(self, meter=None):
        self.right += 1
        if meter is not None and not meter.foreign:
            self.native += 1
        elif meter is not None:
            self.foreign.update(meter.foreign)

    def bad(self, name: str, error: BaseException):
        if isinstance(error, Wrong):
            self.wrong += 1
        else:
            self.refused += 1
        self.failures.append(f"[{name}] {reason(error)}")


@contextlib.contextmanager
def quiet():
    """Deprecated samples warn, and fallbacks say so: not what these tests look at."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def settle():
    """After a failure: what it left on the device must not reach the next sample."""
    with contextlib.suppress(RuntimeError):
        torch.npu.synchronize()


def run_forward(op, values):
    return op(values[0], *values[1], **values[2])


def run_gradients(op, values, finish=None):
    """Gradients of all results with respect to every leaf that asks for one; None where there is none to take."""
    leaves = [t for t in pytree.tree_leaves(values) if isinstance(t, torch.Tensor) and t.requires_grad]
    result = op(values[0], *values[1], **values[2])
    if finish is not None:
        result = finish(result)
    return gradients_of(pytree.tree_leaves(result), leaves)


def gradients_of(results, leaves):
    """Gradients of the leaves for fixed gradients of the results, which no rounding of the results changes."""
    outputs = [o for o in results if isinstance(o, torch.Tensor) and o.requires_grad]
    if not outputs or not leaves:
        return None
    seeds = [(torch.arange(o.numel()) % 7 - 2.5).div(3).reshape(o.shape).to(o.device, o.dtype) for o in outputs]
    return torch.autograd.grad(outputs, leaves, seeds, allow_unused=True)


def is_random(call, values) -> bool:
    """Whether the CPU itself gives another result with another seed."""
    seed_all = torch.manual_seed
    results = []
    for number in range(5):  # few numbers drawn may agree by chance
        # The database's functions seed for themselves.
        with mock.patch.object(torch, "manual_seed", lambda seed, n=number: seed_all(seed + n)):
            torch.manual_seed(0)
            try:
                results.append(call(place(values, "cpu", grad=True)))
            except Exception:  # what fails is not random
                return False
    return not all(same_values(results[0], other) for other in results[1:])


def is_reproducible(call, values) -> bool:
    """Whether the npu gives the same result with the same seed."""
    results = []
    for _ in range(2):
        torch.manual_seed(7)
        results.append(call(place(values, DEVICE, grad=True)))
    return same_values(*results)


def names_no_device(given) -> bool:
    """Whether nothing in the sample says where to compute: what it makes is on the CPU, as it should be."""
    return not any(
        (isinstance(v, torch.Tensor) and v.device.type == "npu")
        or (isinstance(v, (str, torch.device)) and str(v).startswith("npu"))
        for v in pytree.tree_leaves(given)
    )


def is_as_exact(actual, expected, call, values) -> bool:
    """Whether the npu is about as near to the result in float64 as the CPU is: both only round differently."""

    def real(v):
        return isinstance(v, torch.Tensor) and (v.is_floating_point() or v.is_complex())

    # Of integers alone a function is computed in float32, whatever the dtype of out=.
    integers = not any(real(v) for v in pytree.tree_leaves(values))

    def widen(v):
        if real(v):
            return v.detach().to(_wide(v.dtype)).requires_grad_(v.requires_grad)
        if integers and isinstance(v, torch.Tensor):
            return v.double()
        return _wide(v) if isinstance(v, torch.dtype) else v

    try:
        exact = pytree.tree_leaves(call(pytree.tree_map(widen, place(values, "cpu", grad=True))))
        pairs = list(zip(pytree.tree_leaves(actual), pytree.tree_leaves(expected), exact, strict=True))
        for ours, theirs, truth in pairs:
            if not isinstance(truth, torch.Tensor):
                if isinstance(theirs, str) and ours != theirs and (theirs, ours) not in KINDS_OF_ERRORS:
                    return False
                continue
            if not real(theirs) or not real(truth):
                if not torch.equal(ours.cpu(), theirs):
                    return False
                continue
            truth = truth.detach()
            error = (ours.detach().cpu().to(truth.dtype) - truth).abs()
            # Where the CPU has lost the number, nothing is allowed for.
            off = (theirs.detach().to(truth.dtype) - truth).abs().nan_to_num(0.0, posinf=float("inf"))
            allowed = off.max() if truth.numel() else 0.0
            if not bool((error <= 4 * allowed + tolerance(theirs.dtype) * truth.abs().clamp(min=1)).all()):
                return False
    except Exception:  # what has no float64 form cannot be excused so
        return False
    return True
