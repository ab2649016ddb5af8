"""Memory that is read and written in one call, and warnings.

Every in-place and out= form of upstream's operator database is called with a target that overlaps itself, or an operand
of the call in whole, in part or within: what the CPU refuses is refused at the call, in its words; what it warns of is
warned of; and the rest leaves no error behind. Where target and operand are one tensor, and the CPU takes that, the
results agree. A default run takes one sample of each operator; NPU_SLOW_TESTS=1 four.
"""

import contextlib
import itertools
import os
import re
import warnings

import op_checks
import torch.utils._pytree as pytree
from common_utils import TestCase, run_tests
from misuse import Exceptions
from op_checks import DEVICE, Unsuited, place
from torch.testing._internal.common_methods_invocations import op_db

import torch

SAMPLES = 4 if os.environ.get("NPU_SLOW_TESTS") == "1" else 1
PREFERRED = (torch.float32, torch.int64, torch.bool, torch.complex64)
# What is said of memory that overlaps.
OVERLAP = "unsupported operation|single memory location|memory location|clone\\(\\)"
# Said by the npu alone.
OWN_WARNINGS = "falls back|fall back|npu"
EXCEPTIONS = Exceptions()


def is_dense(value):
    return isinstance(value, torch.Tensor) and value.layout is torch.strided and not value.is_nested


def moved(target, operand, how):
    """Target and operand as views of one memory: ``part`` shifted by one element, ``within`` from the second on,
    ``whole`` the same view. None where their shapes do not allow it."""
    if operand.dtype is not target.dtype or operand.numel() == 0 or target.numel() < 2:
        return None
    size = target.numel()
    if how == "whole":
        if operand.shape != target.shape:
            return None
        both = target.detach().clone(memory_format=torch.contiguous_format)
        return both, both
    if how == "part":
        if operand.numel() != size:
            return None
        room = torch.cat([target.detach().reshape(-1)[:1], operand.detach().reshape(-1)])
        return room[:-1].view(target.shape), room[1:].view(operand.shape)
    if operand.numel() >= size:
        return None
    room = target.detach().reshape(-1).clone()
    room[1 : 1 + operand.numel()] = operand.detach().reshape(-1)
    return room.view(target.shape), room[1 : 1 + operand.numel()].view(operand.shape)


def expanded(t):
    """A tensor of the same shape whose elements share memory."""
    if t.dim() == 0 or t.shape[0] < 2:
        return None
    return t.detach()[:1].expand_as(t)


def overlapping(target, values):
    """(name, target, values) with the target overlapping itself or a tensor of ``values``."""
    if (same := expanded(target)) is not None:
        yield "expanded", same, values
    leaves, spec = pytree.tree_flatten(values)
    for i, leaf in enumerate(leaves):
        if not is_dense(leaf):
            continue
        for how in ("whole", "part", "within"):
            if (pair := moved(target, leaf, how)) is not None:
                yield f"{how} {i}", pair[0], pytree.tree_unflatten([*leaves[:i], pair[1], *leaves[i + 1 :]], spec)


class Outcome:
    """What came of a call: the error or the result, and the texts of its warnings."""

    def __init__(self, call, values):
        self.error = self.late = self.result = None
        torch._C._set_warnAlways(True)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                torch.manual_seed(0)
                self.result = call(values)
            except Unsuited:
                raise
            except Exception as error:  # whatever class an operator raises
                self.error = error
            try:
                torch.npu.synchronize()
            except RuntimeError as error:
                self.late = error
        torch._C._set_warnAlways(False)
        texts = {re.sub(r"\s+", " ", str(w.message).split("(Triggered")[0]) for w in caught}
        self.warnings = sorted(t[:60] for t in texts if not re.search(OWN_WARNINGS, t))


def deviation(call, values, compared):
    """In which way the npu differs; None if in none."""
    try:
        expected = Outcome(call, place(values, "cpu"))
        actual = Outcome(call, place(values, DEVICE))
    except Unsuited:
        return None
    if actual.late is not None:
        return f"late: {op_checks.reason(actual.late)}"
    if expected.error is not None:
        if actual.error is None:
            return f"silent instead of {op_checks.reason(expected.error)}"
        if type(actual.error) is not type(expected.error):
            return f"class: {op_checks.reason(actual.error)} instead of {op_checks.reason(expected.error)}"
        if re.search(OVERLAP, str(expected.error)) and not re.search(OVERLAP, str(actual.error)):
            return f"words: {op_checks.reason(actual.error)} instead of {op_checks.reason(expected.error)}"
        return None
    if actual.error is not None:
        return f"refused: {op_checks.reason(actual.error)}"
    if actual.warnings != expected.warnings:
        return f"warnings: {actual.warnings} instead of {expected.warnings}"
    if compared and not op_checks.is_random(call, values):
        try:
            op_checks.compare(actual.result, expected.result)
        except Unsuited:
            return None
        except op_checks.Wrong as error:
            # The CPU may have read what it has overwritten: of operands that lie apart it gives the same as npu.
            apart = pytree.tree_map(lambda v: v.clone() if isinstance(v, torch.Tensor) else v, place(values, "cpu"))
            with contextlib.suppress(op_checks.Wrong):
                op_checks.compare(actual.result, Outcome(call, apart).result)
                return None
            return f"wrong: {error}"
    return None


class OverlapTest(TestCase):
    def setUp(self):
        super().setUp()
        self.found, self.count = [], 0

    def examine(self, op, case, call, values):
        self.count += 1
        found = deviation(call, values, compared="whole" in case)
        if found is not None and not EXCEPTIONS.excuse(op, f"overlap {case}", found):
            self.found.append(f"{op} [{case}] {found}")

    def judge(self):
        self.assertGreater(self.count, 0)
        if self.found:
            self.fail(f"{len(self.found)} of {self.count} calls differ:\n" + "\n".join(self.found[:400]))

    def samples(self, op):
        dtype = next((d for d in PREFERRED if op.supports_dtype(d, "cpu")), None)
        if dtype is None:
            return
        torch.manual_seed(0)
        for number, sample in enumerate(itertools.islice(op.sample_inputs("cpu", dtype), SAMPLES)):
            yield (
                number,
                pytree.tree_map(lambda v: v.detach() if isinstance(v, torch.Tensor) else v, op_checks.parts(sample)),
            )

    def test_in_place(self):
        with op_checks.quiet():
            for op in op_db:
                if op.inplace_variant is None:
                    continue

                def call(given, form=op.inplace_variant):
                    form(given[0], *given[1], **given[2])
                    return given[0]

                for number, values in self.samples(op):
                    if not is_dense(values[0]):
                        continue
                    for name, target, others in overlapping(values[0], values[1:]):
                        self.examine(op.full_name, f"in place {number} {name}", call, (target, *others))
        self.judge()

    def test_out(self):
        with op_checks.quiet():
            for op in op_db:
                if not op.supports_out:
                    continue
                for number, values in self.samples(op):
                    with contextlib.suppress(Exception):  # a sample that the CPU refuses
                        result = op(values[0], *values[1], **values[2])
                        self.out(op, number, values, result)
        self.judge()

    def out(self, op, number, values, result):
        single = isinstance(result, torch.Tensor)
        outs = [result] if single else list(result)
        if not all(is_dense(t) for t in outs):
            return
        outs = [t.detach().clone() for t in outs]

        def call(given):
            op(given[0], *given[1], **given[2], out=given[3][0] if single else tuple(given[3]))
            return given[3]

        for i, right in enumerate(outs):
            for name, target, others in overlapping(right, values):
                self.examine(
                    op.full_name, f"out {i} {number} {name}", call, (*others, [*outs[:i], target, *outs[i + 1 :]])
                )


class OverlapByHandTest(TestCase):
    """Calls that upstream's database has no sample for."""

    CALLS = {
        "copy_": lambda x: x[1:].copy_(x[:-1]),
        "copy_ of another dtype": lambda x: x[1:].copy_(x[:-1].view(torch.int32)),
        "put_": lambda x: x.put_(torch.arange(9, device=x.device), x),
        "put_ of a part": lambda x: x.put_(torch.arange(3, device=x.device), x[2:5]),
        "index_add_": lambda x: x.index_add_(0, torch.arange(9, device=x.device), x),
        "index_copy_": lambda x: x[1:].index_copy_(0, torch.arange(8, device=x.device), x[:-1]),
        "index_put_": lambda x: x.index_put_((torch.arange(9, device=x.device),), x),
        "scatter_": lambda x: x.scatter_(0, torch.arange(9, device=x.device), x),
        "masked_scatter_": lambda x: x[1:].masked_scatter_(x[1:] > 0, x[:-1]),
        "add_": lambda x: x[1:].add_(x[:-1]),
        "add": lambda x: torch.add(x[:-1], 1, out=x[1:]),
        "where": lambda x: torch.where(x[:-1] > 0, x[:-1], x[:-1], out=x[1:]),
        "cat": lambda x: torch.cat([x[:4], x[4:]], out=x),
        "stack": lambda x: torch.stack([x[:4], x[4:8]], out=x[:8].view(2, 4)),
        "gather": lambda x: torch.gather(x, 0, torch.arange(9, device=x.device), out=x),
        "index_select": lambda x: torch.index_select(x, 0, torch.arange(9, device=x.device), out=x),
        "take": lambda x: torch.take(x, torch.arange(9, device=x.device), out=x),
        "sort": lambda x: torch.sort(x, out=(x, torch.arange(9, device=x.device))),
        "cumsum_": lambda x: x[1:].cumsum_(0),
        "random_": lambda x: x[:1].expand(9).random_(),
        "uniform_": lambda x: x[:1].expand(9).uniform_(),
        "normal_": lambda x: x[:1].expand(9).normal_(),
        "bernoulli_": lambda x: x[:1].expand(9).bernoulli_(0.5),
        "exponential_": lambda x: x[:1].expand(9).exponential_(),
        "fill_": lambda x: x[:1].expand(9).fill_(2.0),
        "zero_": lambda x: x[:1].expand(9).zero_(),
        "add_ of an expanded tensor": lambda x: x[:1].expand(9).add_(1),
        "mul_ of an expanded tensor": lambda x: x[:1].expand(9).mul_(x),
        "copy_ into an expanded tensor": lambda x: x[:1].expand(9).copy_(x.clone()),
        "clamp_": lambda x: x[:1].expand(9).clamp_(0, 1),
        "foreach_add_": lambda x: torch._foreach_add_([x[:1].expand(9)], 1.0),
    }

    # Deprecated: these warn, and write to a place of memory if any of the elements that share it is chosen.
    EXPANDED = {
        "masked_fill_": lambda x: x[:1].expand(9).masked_fill_(x > 1, 2.0),
        "masked_fill_ of nothing": lambda x: x[:1].expand(9).masked_fill_(x > 100, 2.0),
        "masked_fill_ of columns": lambda x: x[:3, None].expand(3, 3).masked_fill_(x.view(3, 3) > 0.5, 2.0),
        "masked_fill_ of rows": lambda x: x[:3].expand(3, 3).masked_fill_(x.view(3, 3) > 0.5, 2.0),
        "x[mask] = 2": lambda x: x[:3].expand(3, 3).__setitem__(x.view(3, 3) > 0.5, 2.0),
        "index_fill_": lambda x: x[:1].expand(9).index_fill_(0, torch.arange(2, device=x.device), 2.0),
        "index_fill_ of columns": lambda x: (
            x[:3, None].expand(3, 3).index_fill_(1, torch.tensor([2], device=x.device), 2.0)
        ),
        "index_fill_ of rows": lambda x: (
            x[:3, None].expand(3, 3).index_fill_(0, torch.tensor([2], device=x.device), 2.0)
        ),
        "index_put_": lambda x: x[:1].expand(9).index_put_((torch.arange(2, device=x.device),), x[:1].clone()),
        "index_put_ of rows": lambda x: (
            x[:3, None]
            .expand(3, 3)
            .index_put_((torch.tensor([2, 0], device=x.device), torch.tensor([1, 1], device=x.device)), x[4:6].clone())
        ),
        "index_put_ that adds": lambda x: (
            x[:3].expand(3, 3).index_put_((torch.tensor([2, 0], device=x.device),), x[3:6].clone(), accumulate=True)
        ),
    }

    def test_expanded(self):
        for name, call in self.EXPANDED.items():

            def changed(given, call=call):
                call(given[0])
                return given[0]

            with self.subTest(name):
                self.assertIsNone(deviation(changed, (torch.arange(9.0) / 4,), compared=True))

    def test_calls(self):
        for name, call in self.CALLS.items():
            with self.subTest(name):
                found = deviation(lambda given, c=call: c(*given), (torch.randn(9),), compared=False)
                self.assertIsNone(found)


if __name__ == "__main__":
    run_tests()
