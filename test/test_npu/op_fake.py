"""What fake and meta tensors announce of operators' results, held against what npu's kernels give: a class of
test_ops.py, and `Announced`, which any test may use."""

import contextlib
import itertools

import op_checks
import torch.utils._pytree as pytree
from op_case import LIMIT, OpsCase
from op_checks import DEVICE, Tally, place
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
    UnsupportedOperatorException,
)
from torch.testing._internal.common_device_type import ops
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._python_dispatch import TorchDispatchMode

import torch

# What only values tell is not announced.
UNKNOWN = (DynamicOutputShapeException, DataDependentOutputException)
SILENT = (UnsupportedOperatorException, NotImplementedError)
# A meta tensor does not know what it stands for.
KNOWN = {("aten.log_sigmoid_forward.default", "meta"): "only the CPU keeps a buffer for the gradient"}
FAKE = FakeTensorMode()
# Samples that are laid out in other ways, too, spread over those of the operator.
LAYOUT_SAMPLES = 40
# Of dtypes besides float32.
FEW_SAMPLES = 4
DTYPES = (torch.float32, torch.float16, torch.complex64, torch.int64, torch.bool)


def spec(value):
    """Everything that is announced of a result."""
    if isinstance(value, torch.Tensor):
        return (value.dtype, tuple(value.shape), value.stride(), value.is_conj(), value.is_neg())
    return type(value)


def told(value):
    """A spec in words."""
    if not isinstance(value, tuple):
        return str(value)
    dtype, shape, strides, *_ = value
    return f"{str(dtype).removeprefix('torch.')}{list(shape)} strides {list(strides)}"


def means_another(announced, real):
    """Whether specs differ by more than strides of dimensions of one element, or of tensors without elements."""
    if not isinstance(announced, tuple) or not isinstance(real, tuple):
        return announced != real
    if announced[:2] + announced[3:] != real[:2] + real[3:]:
        return True
    sizes = real[1]
    return 0 not in sizes and any(n > 1 and a != r for n, a, r in zip(sizes, announced[2], real[2], strict=True))


class Announced(TorchDispatchMode):
    """Runs each aten operator of npu tensors that is called inside, by a backward pass as well, on fake and on meta
    tensors, too. ``differ`` has (operator, text) of those whose results came out otherwise than announced: other dtype,
    shape, strides. Strides without a meaning (of one element, of an empty tensor) may differ where the CPU's do.

    ``seen`` holds the calls compared so far, so that one is compared once.
    """

    def __init__(self, seen=None):
        super().__init__()
        self.seen = set() if seen is None else seen
        self.compared = 0
        self.differ = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        leaves, tree = pytree.tree_flatten((args, kwargs))
        tensors = [v for v in leaves if isinstance(v, torch.Tensor)]
        if not any(t.device.type == "npu" for t in tensors) or any(t.layout is not torch.strided for t in tensors):
            return func(*args, **kwargs)
        key = (func, tuple(map(_key, leaves)), str(tree))
        if key in self.seen:
            return func(*args, **kwargs)
        self.seen.add(key)
        models = list(map(_model, leaves))
        result = func(*args, **kwargs)
        self._compare(func, models, tree, [spec(v) for v in pytree.tree_leaves(result)])
        return result

    def _compare(self, func, models, tree, real):
        for way, mode in (("fake", FAKE), ("meta", contextlib.nullcontext())):
            with mode:
                try:
                    announced = _results(func, models, tree, way)
                except UNKNOWN:
                    return
                except SILENT:
                    continue
                except Exception as error:  # the kernel took the operands
                    self.differ.append((str(func), f"{way}: {op_checks.reason(error)}"))
                    continue
            self.compared += 1
            if announced == real or (str(func), way) in KNOWN:
                continue
            if len(announced) == len(real) and not any(map(means_another, announced, real)):
                with contextlib.suppress(Exception):  # values that the CPU does not take
                    if _results(func, models, tree, "cpu") == real:
                        continue
            given = ", ".join(told(m.spec) if hasattr(m, "spec") else str(m) for m in models)
            pairs = itertools.zip_longest(announced, real)
            texts = [f"announced {told(a)}, is {told(r)}" for a, r in pairs if a != r]
            self.differ.append((str(func), f"{way}: {'; '.join(texts)}, for ({given})"))


def _results(func, models, tree, way):
    args, kwargs = pytree.tree_unflatten([m(way) if callable(m) else m for m in models], tree)
    return [spec(v) for v in pytree.tree_leaves(func(*args, **kwargs))]


def _key(value):
    if isinstance(value, torch.Tensor):
        return (*spec(value), value.device, value.storage_offset(), value.untyped_storage().nbytes())
    return (type(value), str(value))


def _model(value):
    """The value itself; of a tensor, a device or a generator a function that makes its twin, of a tensor in the state
    in which it is now."""
    if isinstance(value, torch.device):
        return lambda way: value if way == "fake" else torch.device(way)
    if isinstance(value, torch.Generator):
        return lambda way: value if way == "fake" else None
    if not isinstance(value, torch.Tensor):
        return value
    conj, neg, dtype, device = value.is_conj(), value.is_neg(), value.dtype, value.device
    size, stride, offset = value.size(), value.stride(), value.storage_offset()
    elements = value.untyped_storage().nbytes() // dtype.itemsize

    def make(way):
        where = device if way == "fake" or device.type == "cpu" else way
        fill = torch.ones if way == "cpu" else torch.empty
        bare = fill(elements, dtype=dtype, device=where).as_strided(size, stride, offset)
        bare = torch._conj(bare) if conj else bare
        return torch._neg_view(bare) if neg else bare

    make.spec = spec(value)
    return make


# ---- Samples ----


def _last(t):
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    return t.contiguous(memory_format=formats[t.dim()]) if t.dim() in formats else None


LAYOUTS = {
    "channels last": _last,
    "permuted": lambda t: t.transpose(0, -1).contiguous().transpose(0, -1) if t.dim() > 1 else None,
    "turned": lambda t: t.transpose(-2, -1).contiguous().transpose(-2, -1) if t.dim() > 2 else None,
    "strided": lambda t: t.repeat_interleave(2, -1)[..., ::2] if t.dim() else None,
    "expanded": lambda t: t[:1].expand_as(t) if t.dim() and t.shape[0] > 1 else None,
}


def laid_out(sample):
    """Pairs of name and parts: the first tensor of a sample in each layout, then all of them (expanded: the first)."""
    leaves, tree = pytree.tree_flatten(sample)
    places = [i for i, v in enumerate(leaves) if isinstance(v, torch.Tensor) and v.numel()]
    for name, change in LAYOUTS.items():
        for which, some in (("", places[:1]), (" all", places)):
            if which and (len(places) < 2 or name == "expanded"):
                continue
            changed = list(leaves)
            for i in some:
                with contextlib.suppress(RuntimeError):  # a dtype or layout that the CPU cannot lay out so
                    other = change(leaves[i].detach())
                    if other is not None:
                        changed[i] = other.requires_grad_(leaves[i].requires_grad)
            if any(a is not b for a, b in zip(changed, leaves, strict=True)):
                yield f" {name}{which}", pytree.tree_unflatten(changed, tree)


def samples(op, dtype, grad):
    """Triples of name, parts, and what finishes a result before its gradient."""
    limit = LIMIT if dtype is torch.float32 else FEW_SAMPLES
    found = list(op_checks.samples_of(op, dtype, grad=grad, limit=limit))
    step = max(1, len(found) // LAYOUT_SAMPLES)
    for number, (name, values, finish) in enumerate(found):
        yield name, values, finish
        if number % step == 0:
            for layout, changed in laid_out(values):
                yield name + layout, changed, finish


SEEN = set()  # of this process: operators share what they are composed of


class TestAnnounced(OpsCase):
    @ops(op_db, allowed_dtypes=DTYPES)
    def test_fake(self, device, dtype, op):
        """Results of each aten operator of the forward and the backward pass, once for operands of one shape, dtype and
        layout: of all samples in float32 as they are, of 40 of them laid out in nine ways, of four in other dtypes."""
        tally = Tally()
        grad = op.supports_autograd and (dtype.is_floating_point or dtype.is_complex)
        with op_checks.quiet():
            for name, values, finish in samples(op, dtype, grad):
                mode = Announced(SEEN)
                try:
                    given = place(values, DEVICE, grad=True)
                    with mode:
                        if grad:
                            op_checks.run_gradients(op, given, finish)
                        else:
                            op_checks.run_forward(op, given)
                    torch.npu.synchronize()
                except Exception:  # other tests say what is refused
                    op_checks.settle()
                    tally.skipped += 1
                tally.right += mode.compared - len(mode.differ)
                tally.wrong += len(mode.differ)
                tally.failures += [f"[{name}] {func}: {text}" for func, text in mode.differ]
        self.judge(tally, "fake", op.full_name, dtype, metered=False)
