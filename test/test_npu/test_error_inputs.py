"""What upstream's databases hold for wrong raises at the call on npu, with upstream's class and words, and leaves
nothing behind; and samples that are made wrong in one respect are refused where the CPU refuses them, or computed as it
computes them.

Of the changed samples a default run takes a tenth of the operators; NPU_SLOW_TESTS=1 takes all (minutes). Deviations
are listed with their reason in error_exceptions.yaml.
"""

import itertools
import os
import re
import time
import zlib

import op_checks
import torch.nn.functional as F
import torch.utils._pytree as pytree
from common_utils import TestCase, run_tests
from misuse import Exceptions, deviation, mutations
from op_checks import DEVICE, place
from torch.testing._internal import common_methods_invocations as database
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_modules import module_db

import torch

SLOW = os.environ.get("NPU_SLOW_TESTS") == "1"
SHARE = 1 if SLOW else 10  # one operator in so many
SAMPLES = 4 if SLOW else 1
PATIENCE = 6  # seconds for one operator and dtype
# Their CPU kernels hand pivots to LAPACK, or labels to a loop, as they are, which then reads memory that is not theirs.
UNCHECKED_VALUES = {"linalg.lu_solve", "lu_solve", "linalg.ldl_solve", "lu_unpack", "nn.functional.ctc_loss"}
FOREACH = [op for name in dir(database) if re.fullmatch(r"foreach_\w+_op_db", name) for op in getattr(database, name)]
EXCEPTIONS = Exceptions()


class ErrorsCase(TestCase):
    def setUp(self):
        super().setUp()
        self.found = []
        self.count = 0

    def examine(self, op, case, call, values, grad=False):
        self.count += 1
        found = deviation(call, values, grad)
        if found is not None and not EXCEPTIONS.excuse(op, case, found):
            self.found.append(f"{op} [{case}] {found}")

    def judge(self):
        if self.found:
            self.fail(f"{len(self.found)} of {self.count} cases differ from the CPU:\n" + "\n".join(self.found[:100]))


class ErrorInputsTest(ErrorsCase):
    """Upstream's error inputs."""

    def words(self, op, case, call, values, pattern):
        """The error's text is the one that upstream asks for, where the CPU's is."""
        said = []
        for device in ("cpu", DEVICE):
            try:
                call(place(values, device, grad=True))
            except Exception as error:  # whose class has been compared
                said.append(str(error))
        op_checks.settle()
        other = len(said) == 2 and re.search(pattern, said[0]) and not re.search(pattern, said[1])
        if other and not EXCEPTIONS.excuse(op, case, f"words: {said[1]}"):
            self.found.append(f"{op} [{case}] words: {said[1]} instead of {pattern}")

    def test_operators(self):
        with op_checks.quiet():
            for op in [*op_db, *FOREACH]:
                if op.error_inputs_func is None:
                    continue
                for number, wrong in enumerate(op.error_inputs("cpu")):
                    values = op_checks.parts(wrong.sample_input)

                    def call(given, op=op):
                        return op(given[0], *given[1], **given[2])

                    self.examine(op.full_name, f"error {number}", call, values, grad=True)
                    self.words(op.full_name, f"error {number}", call, values, wrong.error_regex)
        self.judge()

    def test_modules(self):
        with op_checks.quiet():
            for info in module_db:
                if info.module_error_inputs_func is None:
                    continue
                for training in (False, True):
                    wrong = info.module_error_inputs_func(
                        info, device="cpu", dtype=torch.float32, requires_grad=False, training=training
                    )
                    for number, item in enumerate(wrong):
                        self.module(info, f"error {number}", item, training)
        self.judge()

    def module(self, info, case, item, training):
        make, forward = item.module_error_input.constructor_input, item.module_error_input.forward_input

        def call(given):
            module = info.module_cls(*given[0], **given[1])
            if forward is None:
                return None
            return module.to(given[4]).train(training)(*given[2], **given[3])

        inputs = (forward.args, forward.kwargs) if forward is not None else ((), {})
        values = (make.args, make.kwargs, *inputs, torch.device("cpu"))
        self.examine(info.name, case, call, values)
        self.words(info.name, case, call, values, item.error_regex)


class ChangedSamplesTest(ErrorsCase):
    """Samples of upstream's database, made wrong in one respect."""

    def each(self, dtype):
        with op_checks.quiet():
            for op in op_db:
                if zlib.crc32(op.full_name.encode()) % SHARE or not op.supports_dtype(dtype, "cpu"):
                    continue
                torch.manual_seed(0)
                end = time.monotonic() + PATIENCE
                samples = itertools.islice(op.sample_inputs("cpu", dtype), SAMPLES)
                for number, sample in enumerate(samples):
                    for name, values in mutations(op_checks.parts(sample)):
                        unchecked = name.startswith(("negated", "nothing")) and op.full_name in UNCHECKED_VALUES
                        if time.monotonic() < end and not unchecked:
                            yield op, f"{number} {name}", values

    def test_arguments(self):
        for dtype in (torch.float32, torch.int64):
            for op, case, values in self.each(dtype):
                self.examine(op.full_name, case, lambda given: op(given[0], *given[1], **given[2]), values)  # noqa: B023
        self.judge()

    def test_in_place(self):
        for op, case, values in self.each(torch.float32):
            if op.inplace_variant is None or not isinstance(values[0], torch.Tensor):
                continue

            def call(given, form=op.inplace_variant):
                form(given[0], *given[1], **given[2])
                return given[0]

            self.examine(op.full_name, f"in place {case}", call, values)
        self.judge()

    def test_out(self):
        """out= of another dtype, shape and device."""
        with op_checks.quiet():
            for op in op_db:
                if not op.supports_out or zlib.crc32(op.full_name.encode()) % SHARE:
                    continue
                dtype = torch.float32 if op.supports_dtype(torch.float32, "cpu") else torch.int64
                for sample in itertools.islice(op.sample_inputs("cpu", dtype), 1):
                    self.out(op, op_checks.parts(sample))
        self.judge()

    def out(self, op, values):
        result = op(values[0], *values[1], **values[2])
        single = isinstance(result, torch.Tensor)
        if not single and not (isinstance(result, tuple) and all(isinstance(t, torch.Tensor) for t in result)):
            return  # results in lists have no out=
        leaves = [result] if single else list(result)
        if not all(isinstance(t, torch.Tensor) and t.layout is torch.strided for t in leaves):
            return
        outs = [t.detach() for t in leaves]

        def call(given):
            op(given[0], *given[1], **given[2], out=given[3][0] if single else tuple(given[3]))
            return given[3]

        for i, right in enumerate(outs):
            changed = {str(d): right.new_zeros(right.shape, dtype=d) for d in OUT_DTYPES}
            # With room behind it: some of upstream's kernels write as if it were contiguous.
            room = right.new_zeros(right.numel() + 1)
            changed |= {
                "shape": right.new_zeros(3, *right.shape),
                "expanded": room.as_strided(right.shape, [0] * right.dim()),
            }
            for name, wrong in changed.items():
                self.examine(op.full_name, f"out {i} {name}", call, (*values, [*outs[:i], wrong, *outs[i + 1 :]]))
            given = place((*values, outs), DEVICE)
            given[3][i] = right.clone()
            try:
                call(given)
                torch.npu.synchronize()
                if right.dim() and op.name not in COPIES_INTO_OUT:
                    self.found.append(f"{op.full_name} [out {i} on the CPU] silent")
            except Exception as error:  # any that names the trouble
                if "device" not in str(error).lower() or isinstance(error, torch.AcceleratorError):
                    self.found.append(f"{op.full_name} [out {i} on the CPU] {op_checks.reason(error)}")


# Written in Python: whatever out= is, it is resized and copied into.
COPIES_INTO_OUT = {"lu"}
OUT_DTYPES = (torch.uint16, torch.complex64, torch.bool, torch.bfloat16, torch.int64, torch.float64)


class MisuseTest(TestCase):
    """Mistakes that once came out at the next synchronisation, or not at all."""

    def refuses(self, pattern, call, kind=RuntimeError):
        with self.assertRaisesRegex(kind, pattern) as caught:
            call()
        self.assertNotIsInstance(caught.exception, torch.AcceleratorError)
        torch.npu.synchronize()
        self.assertEqual((torch.ones(3, device=DEVICE) + 1).sum().item(), 6)

    def test_shapes(self):
        x, y = torch.randn(2, 3).npu(), torch.randn(3, 4).npu()
        for shape in ((5,), (3, 4), (1, 1, 2, 4)):
            bias = torch.randn(shape).npu()
            self.refuses("expand", lambda b=bias: torch.addmm(b, x, y))
            self.refuses("expand", lambda b=bias: torch.baddbmm(b, x[None], y[None]))
        self.refuses("expand|size", lambda: torch.nn.functional.linear(x, y.t(), torch.randn(5).npu()))

    def test_dtypes(self):
        x = torch.ones(4, 4, device=DEVICE).to(torch.uint16)
        for call in (torch.add, torch.sub, torch.mm, torch.maximum):
            for given in ((x, x), (x[:0], x if call is torch.mm else x[:0])):
                with self.subTest(call.__name__, shape=given[0].shape):
                    self.refuses("not implemented for 'UInt16'", lambda c=call, g=given: c(*g), NotImplementedError)
        self.refuses("same dtype", lambda: torch.ones(2, 0).npu() @ torch.ones(0, 3).npu().half())

    def same(self, call, *tensors):
        """``call`` gives on npu what it gives on the CPU: values and dtypes."""
        results = []
        for device in ("cpu", DEVICE):
            result = call(*(t.to(device) for t in tensors))
            results.append([t.cpu() for t in pytree.tree_leaves(result)])
        self.assertEqual(results[1], results[0], exact_dtype=True)

    def test_losses_of_mixed_dtypes(self):
        x, y = torch.tensor([1, 0]), torch.tensor([0.5, 1.5])
        for name in ("mse_loss", "smooth_l1_loss"):
            loss = getattr(F, name)
            for first in (x, x.bool(), x.half()):
                with self.subTest(name, dtype=first.dtype):
                    self.same(loss, first, y)
                    self.same(loss, first, y.double())
            self.refuses("not implemented for 'Long'", lambda f=loss: f(x.npu(), x.npu()), NotImplementedError)
        self.same(F.huber_loss, x.half(), y)
        mixed = x.half().npu().requires_grad_()
        self.refuses("Found dtype Float but expected Half", lambda: F.huber_loss(mixed, y.npu()).backward())

    def test_weight_of_another_dtype(self):
        def loss(x, target, weight):
            x = x.detach().requires_grad_()
            return torch.autograd.grad(F.binary_cross_entropy(x, target, weight), x)

        x, target = torch.tensor([0.2, 0.7]), torch.tensor([0.0, 1.0])
        for dtype in (torch.float16, torch.bfloat16, torch.float64, torch.int32):
            with self.subTest(dtype):
                self.same(F.binary_cross_entropy, x, target, torch.tensor([1, 2]).to(dtype))
                self.same(loss, x, target, torch.tensor([1, 2]).to(dtype))

    def test_rows_of_unsigned(self):
        index = torch.tensor([1, 0])
        for dtype in (torch.uint16, torch.uint32, torch.uint64):
            rows = torch.tensor([[1, 2], [3, 4]]).to(dtype)
            with self.subTest(dtype):
                for dim in (0, 1):
                    self.same(lambda t, i, d=dim: torch.index_select(t, d, i), rows, index)
                self.same(lambda t, i: F.embedding(i, t), rows, index)
                one = rows[0].npu()
                self.refuses(
                    "not implemented", lambda t=one: torch.index_select(t, 0, index.npu()), NotImplementedError
                )

    def test_dtype_computed_in(self):
        half = torch.tensor([1 + 1j, 2], dtype=torch.complex32)
        self.same(lambda t: torch.prod(t, dtype=torch.complex64), half)
        self.assertEqual(torch.prod(half.npu()).cpu().to(torch.complex64), torch.prod(half, dtype=torch.complex64))
        self.same(torch.rsub, torch.tensor([1, 2]).to(torch.uint16), torch.tensor([0.5, 1.5]))

    def test_group_norm_of_any_shape(self):
        def norm(x):
            x = x.detach().requires_grad_()
            y = torch.native_group_norm(x, None, None, 2, 4, 3, 2, 1e-5)
            return *y, *torch.autograd.grad(y[0].pow(3).sum(), x)

        for shape in ((24,), (8, 3), (2, 4, 3), (2, 4, 1, 3)):
            with self.subTest(shape):
                self.same(norm, torch.arange(24.0).sin().reshape(shape))
        self.refuses("elements", lambda: torch.native_group_norm(torch.ones(23).npu(), None, None, 2, 4, 3, 2, 1e-5))

    def test_isin(self):
        for dtype in (torch.uint16, torch.complex32, torch.int64):
            x = torch.tensor([1, 2]).to(dtype)
            for invert in (False, True):
                with self.subTest(dtype, invert=invert):
                    self.same(lambda t, i=invert: torch.isin(t, 1, invert=i), x)
            if dtype != torch.int64:
                self.same(torch.isin, x[:0], x)
                self.refuses("not implemented", lambda t=x: torch.isin(t.npu(), t.npu()), NotImplementedError)

    def test_positions_among_another_dtype(self):
        x, y = torch.tensor([1, 2]), torch.tensor([0.5, 1.5])
        for values, bounds in ((x, y), (y, x), (y.double(), y), (x.bool(), y), (y[1], x)):
            with self.subTest(f"{values.dtype} among {bounds.dtype}"):
                self.same(torch.bucketize, values, bounds)
                self.same(torch.searchsorted, bounds, values)
        for right in (False, True):
            self.same(lambda t, r=right: torch.bucketize(1.5, t, right=r), x)
            self.same(lambda t, r=right: torch.searchsorted(t, 2.5, right=r), x)
        self.refuses("not implemented for 'Bool'", lambda: torch.bucketize(x.bool().npu(), x.bool().npu()))

    # Asked of both devices: the CPU's class, and its words up to where they name types or shapes.
    CALLS = {
        "a dimension twice": lambda d: torch.ones(3, 3, device=d).std((0, 0)),
        "a dimension twice, by its other name": lambda d: torch.var_mean(torch.ones(3, 3, device=d), (1, -1)),
        "negative repeats": lambda d: torch.ones(3, device=d).repeat_interleave(torch.tensor([1, -1, 2], device=d)),
        "a negative repeat": lambda d: torch.ones(3, device=d).repeat_interleave(-1),
        "too few samples of 2d pooling": lambda d: F.fractional_max_pool2d(
            torch.ones(2, 3, 5, 5, device=d), 2, output_size=2, _random_samples=torch.rand(1, 3, 2, device=d)
        ),
        "too few samples of 3d pooling": lambda d: F.fractional_max_pool3d(
            torch.ones(2, 3, 5, 5, 5, device=d), 2, output_size=2, _random_samples=torch.rand(1, 3, 3, device=d)
        ),
        "samples of another dtype": lambda d: F.fractional_max_pool2d(
            torch.ones(2, 3, 5, 5, device=d), 2, output_size=2, _random_samples=torch.rand(2, 3, 2, device=d).double()
        ),
        "indices of five dimensions": lambda d: torch.embedding_bag(
            torch.ones(3, 3, device=d),
            torch.zeros(1, 1, 1, 1, 2, dtype=torch.long, device=d),
            torch.zeros(1).long().to(d),
        ),
        "an assertion of nothing": lambda d: torch._assert_async(torch.ones(0, device=d)),
        "an assertion of two": lambda d: torch._assert_async(torch.ones(2, device=d)),
        "a fraction of integers": lambda d: torch.add(
            torch.ones(2, device=d).int(), torch.ones(2, device=d).int(), alpha=1.1
        ),
        "a fraction taken from integers": lambda d: (
            torch.ones(2, device=d).long().sub_(torch.ones(2, device=d).long(), alpha=0.5)
        ),
        "a complex factor": lambda d: torch.add(torch.ones(2, device=d), torch.ones(2, device=d), alpha=1j),
        "a truth as factor": lambda d: torch.add(torch.ones(2, device=d), torch.ones(2, device=d), alpha=True),
        "slices of nothing": lambda d: torch.unique(torch.ones(0, 3, device=d), dim=1),
        "nothing of nothing": lambda d: torch.unique(torch.ones(0, 0, device=d), dim=1),
        "nothing of nothing in a row": lambda d: torch.unique_consecutive(torch.ones(0, 0, device=d), dim=0),
        "truths between truths": lambda d: torch.ones(2, dtype=torch.bool, device=d).clamp(False, True),
        "truths above truth": lambda d: torch.ones(2, dtype=torch.bool, device=d).clamp_min(False),
        "statistics of nothing": lambda d: torch.native_batch_norm(
            torch.ones(0, 3, 4, device=d), None, None, None, None, True, 0.1, 1e-5
        ),
        "pooling of nothing": lambda d: F.adaptive_avg_pool2d(torch.ones(2, 3, 4, 0, device=d), 2),
        "eigenvalues of halves": lambda d: torch.linalg.eigvals(torch.ones(2, 2, device=d).half()),
        "a mean of truths": lambda d: torch.ones(2, dtype=torch.bool, device=d).scatter_reduce(
            0, torch.tensor([0], device=d), torch.ones(1, dtype=torch.bool, device=d), "mean"
        ),
    }

    def test_said_at_the_call(self):
        for name, call in self.CALLS.items():
            said = []
            with self.subTest(name):
                for device in ("cpu", DEVICE):
                    try:
                        call(device)
                        said.append((None, ""))
                    except Exception as error:  # the class that is compared
                        said.append((type(error), re.split(r"[\"\[]|, but got", str(error))[0].strip()))
                    torch.npu.synchronize()
                self.assertEqual(said[1], said[0])

    def test_addr_without_self(self):
        x = torch.ones(2).npu()
        self.refuses("expand", lambda: torch.addr(torch.ones(5).npu(), x, x, beta=0))
        self.same(lambda s, v: torch.addr(s, v, v, beta=0), torch.ones(2), torch.ones(2))

    def test_empty_without_pivots(self):
        self.same(lambda t: torch.linalg.lu(t, pivot=False), torch.ones(0, 3, 3))


if __name__ == "__main__":
    run_tests()
