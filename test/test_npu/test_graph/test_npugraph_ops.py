"""Operators of upstream's database, captured and replayed with other inputs: the results are those of an eager run.

A default run takes a part of the operators, which NPU_OPS_SEED chooses; NPU_SLOW_TESTS=1 all of them, with every
sample.
What needs a value on the host, or runs on the CPU, cannot be captured and has to say so.
"""

import os
import re
import sys
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import op_checks
import op_runner
import torch.utils._pytree as pytree
from common_utils import TestCase, run_tests
from op_checks import DEVICE, place
from torch.testing._internal.common_methods_invocations import op_db

import torch

SLOW = os.environ.get("NPU_SLOW_TESTS") == "1"
SAMPLES = 1000 if SLOW else 2
SHARE = 1.0 if SLOW else 0.15
REFUSALS = re.compile(
    "being captured into a graph|while a stream is being captured|cannot be captured|graph under capture"
)


def tensors(value):
    return [t for t in pytree.tree_leaves(value) if isinstance(t, torch.Tensor)]


def replayed(call, values):
    """What a replay gives whose inputs were changed by the capture's run or are as they were."""
    given = place(values, DEVICE)
    originals = [t.detach().clone() for t in tensors(given)]
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        result = call(given)
    for t, original in zip(tensors(given), originals, strict=True):
        if t.numel() and torch._debug_has_internal_overlap(t) != 1:
            t.detach().copy_(original)
    torch.manual_seed(0)
    graph.replay()
    torch.npu.synchronize()
    return result


def same(a, b):
    if not isinstance(a, torch.Tensor):
        return a == b or a != a
    if (a.dtype, a.shape, a.device) != (b.dtype, b.shape, b.device):
        return False
    bits = [t.detach().resolve_conj().resolve_neg().cpu() for t in (a, b)]
    bits = [torch.view_as_real(t) if t.is_complex() else t for t in bits]
    return torch.equal(*bits) or torch.allclose(*bits, rtol=0, atol=0, equal_nan=True)


class TestOperators(TestCase):
    def sample(self, op, values, counts, failures):
        def call(parts):
            input, args, kwargs = parts
            return op(input, *args, **kwargs)

        try:
            torch.manual_seed(0)
            expected = call(place(values, DEVICE))
            torch.npu.synchronize()
        except Exception:  # what is refused without a graph says nothing about graphs
            op_checks.settle()
            return
        try:
            actual = replayed(call, values)
        except (RuntimeError, NotImplementedError) as error:
            op_checks.settle()
            if REFUSALS.search(str(error)):
                counts["refused"].add(op.full_name)
            else:
                failures.append(f"{op.full_name}: {op_checks.reason(error)}")
            return
        counts["captured"].add(op.full_name)
        for a, e in zip(pytree.tree_leaves(actual), pytree.tree_leaves(expected), strict=True):
            # Memory that nothing was written to is different each time.
            if op.name.startswith(("empty", "new_empty")) or op.name in ("as_strided_scatter_uninitialized",):
                continue
            if not same(a, e):
                failures.append(f"{op.full_name}: {a} instead of {e}"[:400])
                break

    def test_replays_are_eager_runs(self):
        names = op_runner.chosen(sorted({op.full_name for op in op_db}), op_runner.seed(), SHARE)
        counts = {"captured": set(), "refused": set()}
        failures = []
        warnings.simplefilter("ignore")
        for op in op_db:
            if op.full_name not in names or torch.float32 not in op.supported_dtypes("cpu"):
                continue
            torch.manual_seed(0)
            for number, sample in enumerate(op.sample_inputs("cpu", torch.float32)):
                if number == SAMPLES:
                    break
                self.sample(op, op_checks.parts(sample), counts, failures)
        if os.environ.get("NPU_OPS_LIST"):
            print(*sorted(counts["refused"] - counts["captured"]), sep="\n")
        print(f"{len(counts['captured'])} operators captured, {len(counts['refused'])} refused some samples")
        self.assertFalse(failures, "\n".join(failures))
        self.assertGreater(len(counts["captured"]), 3 * len(counts["refused"]))


if __name__ == "__main__":
    run_tests()
