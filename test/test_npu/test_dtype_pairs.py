"""Every pair of dtypes of the operands of upstream's operators with two tensors or more, gradients included: what the
CPU computes npu computes alike or refuses at the call; nothing is left for the next synchronisation.

A default run takes a sample of the operators, which NPU_PAIRS_SEED chooses; NPU_SLOW_TESTS=1 all of them (minutes), and
`python test_dtype_pairs.py --operators NAME` those with this in their name. Deviations are listed with their reason in
error_exceptions.yaml.
"""

import itertools
import os
import sys
import zlib

import op_checks
import torch.utils._pytree as pytree
from common_utils import TestCase, run_tests
from misuse import Exceptions, deviation
from torch.testing._internal.common_methods_invocations import op_db

import torch

SLOW = os.environ.get("NPU_SLOW_TESTS") == "1"
SEED = int(os.environ.get("NPU_PAIRS_SEED", "0"))
SHARE = 1 if SLOW else 25  # one operator in so many
INTS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16, torch.uint32, torch.uint64)
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
COMPLEX = (torch.complex32, torch.complex64, torch.complex128)
NARROW = (
    *(torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz),
    torch.float8_e8m0fnu,
)
DTYPES = (torch.bool, *INTS, *FLOATS, *COMPLEX, *NARROW)
PREFERRED = (torch.float32, torch.int64, torch.bool, torch.complex64)
# These have a result that depends on nothing in particular.
UNINITIALISED = {"empty_like", "new_empty", "new_empty_strided", "resize_as_"}
EXCEPTIONS = Exceptions()
chosen_name = None  # of the operators, from the command line


def cast(t, dtype):
    """The tensor in another dtype; as an integer it has small positive numbers, by which one can divide and shift."""
    if t.dtype is dtype:
        return t
    if not dtype.is_floating_point and not dtype.is_complex and (t.is_floating_point() or t.is_complex()):
        t = t.abs().clamp(max=5) + 1
    return t.to(dtype)


def is_dense(value):
    return isinstance(value, torch.Tensor) and value.layout is torch.strided and not value.is_nested


def combinations(values):
    """(name, values) with other dtypes for the tensors: each by itself, the first against all others, and the integer
    operands against each other."""
    leaves, spec = pytree.tree_flatten(values)
    places = [i for i, v in enumerate(leaves) if is_dense(v)]
    if len(places) < 2:
        return
    first, rest = places[0], places[1:]

    def put(dtypes):
        changed = list(leaves)
        for i, dtype in dtypes.items():
            changed[i] = cast(leaves[i], dtype)
        return pytree.tree_unflatten(changed, spec)

    def of(dtypes):
        return " ".join(f"{i}:{str(d)[6:]}" for i, d in dtypes.items())

    same = [i for i in rest if leaves[i].dtype is leaves[first].dtype]
    ints = [i for i in places if leaves[i].dtype in INTS and leaves[first].dtype not in INTS]
    variants = [{i: d} for i in places for d in DTYPES]
    variants += [{first: a, **dict.fromkeys(same, b)} for a in DTYPES for b in DTYPES] if same else []
    variants += [{i: a, j: b} for i, j in itertools.combinations(ints, 2) for a in INTS for b in INTS]
    variants += [{first: a, i: b} for i in ints for a in DTYPES for b in (torch.int32, torch.int64)]
    seen = set()
    for dtypes in variants:
        if of(dtypes) not in seen:
            seen.add(of(dtypes))
            yield of(dtypes), put(dtypes)


def is_float(dtype):
    return dtype in FLOATS or dtype in (torch.complex64, torch.complex128)


class DtypePairsTest(TestCase):
    def setUp(self):
        super().setUp()
        self.found, self.count = [], 0

    def judge(self):
        self.assertGreater(self.count, 0)
        if self.found:
            self.fail(f"{len(self.found)} of {self.count} combinations differ:\n" + "\n".join(self.found))

    def examine(self, op, case, call, values, grad):
        self.count += 1
        found = deviation(call, values, grad)
        if found is not None and not EXCEPTIONS.excuse(op, f"pair {case}", found):
            self.found.append(f"{op} [{case}] {found}")

    def operators(self):
        for op in op_db:
            if (
                op.name in UNINITIALISED
                or not (SLOW or chosen_name)
                and zlib.crc32(f"{SEED} {op.full_name}".encode()) % SHARE
            ):
                continue
            if chosen_name is not None and chosen_name not in op.full_name:
                continue
            dtype = next((d for d in PREFERRED if op.supports_dtype(d, "cpu")), None)
            if dtype is not None:
                yield op, dtype

    def sample(self, op, dtype, grad=False):
        """The first sample with two tensors or more, or the first with three if there is one among the next few."""
        torch.manual_seed(0)
        most, best = 1, None
        for sample in itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=grad), 6):
            values = op_checks.parts(sample)
            count = sum(is_dense(v) for v in pytree.tree_leaves(values))
            if count > most:
                most, best = count, values
        return best

    def test_forward(self):
        with op_checks.quiet():
            for op, dtype in self.operators():
                values = self.sample(op, dtype)
                if values is None:
                    continue
                values = pytree.tree_map(lambda v: v.detach() if is_dense(v) else v, values)
                for case, given in combinations(values):
                    self.examine(op.full_name, case, lambda v, op=op: op_checks.run_forward(op, v), given, False)
        self.judge()

    def test_gradients(self):
        with op_checks.quiet():
            for op, dtype in self.operators():
                if not op.supports_autograd or dtype is not torch.float32:
                    continue
                values = self.sample(op, dtype, grad=True)
                if values is None:
                    continue
                for case, given in combinations(values):
                    kinds = [d for d in case.split() if not is_float(getattr(torch, d.split(":")[1]))]
                    if kinds:
                        continue

                    def asking(v):
                        asks = is_dense(v) and (v.is_floating_point() or v.is_complex())
                        return v.detach().requires_grad_() if asks else v

                    given = pytree.tree_map(asking, given)
                    self.examine(
                        op.full_name, f"gradient {case}", lambda v, op=op: op_checks.run_gradients(op, v), given, True
                    )
        self.judge()


if __name__ == "__main__":
    if "--operators" in sys.argv:
        place = sys.argv.index("--operators")
        chosen_name = sys.argv[place + 1]
        del sys.argv[place : place + 2]
    run_tests()
