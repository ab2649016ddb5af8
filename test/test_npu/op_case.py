"""The base class of test_ops.py: runs samples on both devices, counts what came of them, and judges the count by the list of
exceptions."""

import faulthandler
import os

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
        RECORDS.add(begin=f"{type(self).__name__}.{self._testMethodName}")
        if RECORDS.path:
            faulthandler.dump_traceback_later(op_runner.PATIENCE, exit=True)

    def tearDown(self):
        faulthandler.cancel_dump_traceback_later()
        super().tearDown()

    def judge(self, tally: Tally, kind: str, op: str, dtype, metered=True):
        excepted = EXCEPTIONS.find(kind, op, dtype)
        RECORDS.add(
            test=f"{type(self).__name__}.{self._testMethodName}",
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
        if excepted and not tally.failures and not LIMIT:
            self.fail(f"op_exceptions.yaml lists {op} ({kind}, {dtype}), but it is right")

    def expected(self, call, values, tally):
        """What the CPU gives, in a tuple; None where it refuses the sample."""
        try:
            result = call(place(values, "cpu", grad=True))
            for tensor in pytree.tree_leaves(result):
                if isinstance(tensor, torch.Tensor) and tensor.layout is not torch.strided:
                    raise Unsuited(f"result of layout {tensor.layout}")
            return (result,)
        except Exception:  # noqa: BLE001 what upstream's CPU refuses says nothing about npu
            tally.skipped += 1
        return None

    def one(self, tally, name, call, values, factor=1.0, metadata_only=False):
        """Run a sample on both devices and count what came of it."""
        torch.manual_seed(0)
        expected = self.expected(call, values, tally)
        if expected is None:
            return
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
        except Exception as error:  # noqa: BLE001 whatever an operator raises is counted
            op_checks.settle()
            if isinstance(error, Wrong) and op_checks.is_random(call, values):
                self.random(tally, name, call, values, actual, expected[0])
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
        except Exception as error:  # noqa: BLE001 as above
            tally.bad(name, error)

    def same_metadata(self, actual, expected):
        for a, e in zip(pytree.tree_leaves(actual), pytree.tree_leaves(expected), strict=True):
            if isinstance(e, torch.Tensor):
                blank = torch.zeros((), dtype=e.dtype)
                op_checks.compare_tensor(a.detach().fill_(0), blank.expand(e.shape))
