"""What CUDA takes of upstream's operator database, npu takes: dtypes for which the CPU has no kernel, halves first.

The oracle is the CPU with the same values in fp32 (complex64, fp64 for integers), rounded to the dtype that upstream's
meta functions announce. A default run takes two samples of each operator; NPU_SLOW_TESTS=1 all of them.
"""

import itertools
import os

import op_checks
import torch.utils._pytree as pytree
from common_utils import TestCase, run_tests
from op_checks import DEVICE, Unsuited, place
from torch.testing._internal.common_methods_invocations import op_db

import torch

SAMPLES = None if os.environ.get("NPU_SLOW_TESTS") == "1" else 2
HALVES = (torch.float16, torch.bfloat16)
WIDE = {torch.float16: torch.float32, torch.bfloat16: torch.float32, torch.complex32: torch.complex64}
# Operators of one vendor's libraries, and those whose results are sparse.
NOT_FOR_OTHERS = {
    "torch.ops.aten._flash_attention_forward",
    "torch.ops.aten._efficient_attention_forward",
    "nn.functional.batch_norm.without_cudnn",
    "to_sparse",
}


def beyond_the_cpu(op, backward=False):
    """The dtypes that CUDA has a kernel for and the CPU has not; where one half is among them, both."""
    supported = op.supported_backward_dtypes if backward else op.supported_dtypes
    more = set(supported("cuda")) - set(supported("cpu"))
    if more & set(HALVES):
        more |= set(HALVES) - set(supported("cpu"))
    return sorted(more, key=str)


def widened(values):
    """The same values in the dtype that the CPU computes with."""

    def wide(v):
        if isinstance(v, torch.Tensor) and v.dtype in WIDE:
            return v.detach().to(WIDE[v.dtype]).requires_grad_(v.requires_grad)
        return WIDE.get(v, v) if isinstance(v, torch.dtype) else v

    return pytree.tree_map(wide, values)


def doubled(values):
    """Integers as fp64, for operators that count in floating point."""
    return pytree.tree_map(lambda v: v.double() if isinstance(v, torch.Tensor) and not v.is_complex() else v, values)


def samples_of(op, dtype, grad=False):
    """Samples of one dtype: those of a wider one, rounded, where upstream's own keep to what cuFFT can do."""
    torch.manual_seed(0)
    source = WIDE.get(dtype, dtype)
    for sample in itertools.islice(op.sample_inputs("cpu", source, requires_grad=grad), SAMPLES):

        def narrow(v):
            if isinstance(v, torch.Tensor) and v.dtype is source and source is not dtype:
                return v.detach().to(dtype).requires_grad_(v.requires_grad)
            return dtype if v is source and source is not dtype else v

        yield pytree.tree_map(narrow, op_checks.parts(sample))


def announced(call, values):
    """The dtypes of the results according to upstream's meta functions; None where they have nothing to say."""

    def meta(v):
        return v.detach().to("meta") if isinstance(v, torch.Tensor) else v

    try:
        return [t.dtype for t in pytree.tree_leaves(call(pytree.tree_map(meta, values))) if is_tensor(t)]
    except Exception:  # whatever an operator without a meta function raises
        return None


def is_tensor(value):
    return isinstance(value, torch.Tensor)


class CudaDtypesTest(TestCase):
    def setUp(self):
        super().setUp()
        self.found, self.count = [], 0

    def compare(self, op, dtype, number, call, values):
        def note(what):
            self.found.append(f"{op.full_name} [{str(dtype)[6:]} {number}] {what}")

        try:
            expected = pytree.tree_leaves(call(widened(values)))
        except Exception:  # the CPU has nothing for the sample as it is
            try:
                expected = pytree.tree_leaves(call(doubled(values)))
            except Exception:  # nor in fp64: the sample is for a failure
                return
        dtypes = announced(call, values)
        narrow = {wide: dtype for wide in (WIDE.get(dtype), None) if wide}
        if dtype is torch.complex32:
            narrow[torch.float32] = torch.float16
        self.count += 1
        try:
            actual = pytree.tree_leaves(call(place(values, DEVICE, grad=True)))
            torch.npu.synchronize()
        except Unsuited:
            return
        except Exception as error:  # whatever class a refusal has
            op_checks.settle()
            note(op_checks.reason(error))
            return
        tensors = [e for e in expected if is_tensor(e)]
        if dtypes is None or len(dtypes) != len(tensors):
            dtypes = [narrow.get(e.dtype, e.dtype) for e in tensors]
        for ours, theirs, kind in zip([a for a in actual if is_tensor(a)], tensors, dtypes, strict=True):
            try:
                op_checks.compare_tensor(ours, theirs.detach().to(kind), factor=4.0)
            except Unsuited:
                return
            except op_checks.Wrong as error:
                note(error)

    def judge(self):
        self.assertGreater(self.count, 0)
        if self.found:
            self.fail(f"{len(self.found)} of {self.count} samples:\n" + "\n".join(self.found[:200]))

    def test_forward(self):
        with op_checks.quiet():
            for op in op_db:
                if op.full_name in NOT_FOR_OTHERS:
                    continue
                for dtype in beyond_the_cpu(op):
                    for number, values in enumerate(samples_of(op, dtype)):
                        self.compare(op, dtype, number, lambda given, op=op: op_checks.run_forward(op, given), values)
        self.judge()

    def test_gradients(self):
        with op_checks.quiet():
            for op in op_db:
                if op.full_name in NOT_FOR_OTHERS or not op.supports_autograd:
                    continue
                for dtype in beyond_the_cpu(op, backward=True):
                    for number, values in enumerate(samples_of(op, dtype, grad=True)):
                        self.compare(op, dtype, number, lambda given, op=op: op_checks.run_gradients(op, given), values)
        self.judge()


if __name__ == "__main__":
    run_tests()
