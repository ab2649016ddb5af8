"""The base class of test_ops.py: runs samples on both devices, counts what came of them, and judges the count by the
list of exceptions."""

import faulthandler
import os
import unittest

import op_checks
import op_runner
import torch.utils._pytree as pytree
from op_checks import DEVICE, Meter, Tally, Unsuited, Wrong, place
from torch.testing._internal.common_utils import TestCase

import torch

# Sample inputs per test in a default run; all of them in a full one.
LIMIT = 12 if "NPU_OPS_LIMIT" in os.environ or "NPU_OPS_TESTS" not in os.environ else None
RECORDS = op_runner.Records(os.environ.get("NPU_OPS_RECORDS"))
EXCEPTIONS = op_runner.Exceptions()


class OpsCase(TestCase):
    """Counts the samples of a test, writes the count down and judges it by the list of exceptions."""

    def setUp(self):
        super().setUp()
        RECORDS.add(begin=_name(self))
        if RECORDS.path:
            faulthandler.dump_traceback_later(op_runner.PATIENCE, exit=True)

    def tearDown(self):
        faulthandler.cancel_dump_traceback_later()
        super().tearDown()

    def judge(self, tally: Tally, kind: str, op: str, dtype, metered=True):
        excepted = EXCEPTIONS.find(kind, op, dtype, tally.failures)
        if not LIMIT and tally.right and not tally.failures and EXCEPTIONS.find(kind, op, dtype, None):
            tally.failures.append("op_exceptions.yaml lists it, but it is right")
        self.judged = True
        RECORDS.add(
            test=_name(self),
            right=tally.right,
            wrong=0 if excepted else tally.wrong,
            refused=tally.refused + (tally.wrong if excepted else 0),
            native=tally.native if metered else 0,
            metered=tally.right + tally.refused if metered else 0,
            random=tally.random,
            skipped=tally.skipped,
            foreign=sorted(tally.foreign),
            failures=tally.failures[:20],
            excepted=excepted,
        )
        if tally.failures and not excepted:
            self.fail(f"{len(tally.failures)} samples of {op} ({kind}, {dtype})\n" + "\n".join(tally.failures[:20]))

    def expected(self, call, values, tally):
        """What the CPU gives, in a tuple; None where it refuses the sample."""
        try:
            result = call(place(values, "cpu", grad=True))
            for tensor in pytree.tree_leaves(result):
                if isinstance(tensor, torch.Tensor) and tensor.layout is not torch.strided:
                    raise Unsuited(f"result of layout {tensor.layout}")
            return (result,)
        except Exception:  # what upstream's CPU refuses says nothing about npu
            tally.skipped += 1
        return None

    def one(self, tally, name, call, values, factor=1.0, metadata_only=False, wide=None):
        """Run a sample on both devices and count what came of it; ``wide`` is the call for values in float64."""
        torch.manual_seed(0)
        expected = self.expected(call, values, tally)
        if expected is None:
            return
        actual = None
        try:
            torch.manual_seed(0)
            given = place(values, DEVICE, grad=True)
            with Meter() as meter:
                actual = call(given)
                torch.npu.synchronize()
            if metadata_only:
                self.same_metadata(actual, expected[0])
            else:
                op_checks.compare(actual, expected[0], factor)
        except Unsuited:
            tally.skipped += 1
        except Exception as error:  # whatever an operator raises is counted
            op_checks.settle()
            if not isinstance(error, Wrong) or actual is None:
                tally.bad(name, error)
            elif op_checks.names_no_device(given):
                tally.skipped += 1
            elif op_checks.is_random(call, values):
                self.random(tally, name, call, values, actual, expected[0])
            elif op_checks.is_as_exact(actual, expected[0], wide or call, values):
                tally.good(meter)
            else:
                tally.bad(name, error)
        else:
            tally.good(meter)

    def random(self, tally, name, call, values, actual, expected):
        """The CPU draws numbers here: the npu's must have its shapes and be reproducible with a seed."""
        tally.random += 1
        try:
            self.same_metadata(actual, expected)
            if not op_checks.is_reproducible(call, values):
                raise Wrong("two runs with one seed differ")
        except Exception as error:  # as above
            tally.bad(name, error)

    def same_metadata(self, actual, expected):
        for a, e in zip(pytree.tree_leaves(actual), pytree.tree_leaves(expected), strict=True):
            if isinstance(e, torch.Tensor) != isinstance(a, torch.Tensor):
                raise Wrong(f"{a} instead of {e}")
            if isinstance(e, torch.Tensor) and (a.device.type, a.dtype, a.shape) != ("npu", e.dtype, e.shape):
                raise Wrong(f"{a.device} {a.dtype} {tuple(a.shape)}, not {e.dtype} {tuple(e.shape)}")


class _WorkerResult(unittest.TextTestResult):
    """Writes down the tests that ended before they were judged: skipped, or broken themselves."""

    def addSkip(self, test, why):
        super().addSkip(test, why)
        RECORDS.add(test=_name(test), right=0, skipped=1)

    def addError(self, test, error):
        super().addError(test, error)
        if not getattr(test, "judged", False):
            RECORDS.add(test=_name(test), right=0, refused=1, failures=[f"the test: {op_checks.reason(error[1])}"])


def _name(test):
    return f"{type(test).__name__}.{test._testMethodName}"


class WorkerRunner(unittest.TextTestRunner):
    resultclass = _WorkerResult
