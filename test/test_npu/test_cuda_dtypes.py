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

# The formulas of their gradients multiply powers, which for upstream's samples leave the range of halves on the way.
POWERS = {"pow", "logaddexp"}


def beyond_the_cpu(op, backward=False):
    """The dtypes that CUDA has a kernel for and the CPU has not; where one half is among them, both, but for Fourier
    transforms, which have complex numbers of one of them only."""
    supported = op.supported_backward_dtypes if backward else op.supported_dtypes
    more = set(supported("cuda")) - set(supported("cpu"))
    if more & set(HALVES) and not op.name.startswith("fft."):
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
        scale = 0.125 if grad and op.name in POWERS and dtype is torch.complex32 else 1

        def narrow(v, scale=scale):
            if isinstance(v, torch.Tensor) and v.dtype is source and source is not dtype:
                return (v.detach() * scale).to(dtype).requires_grad_(v.requires_grad)
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
            right = theirs.detach().to(kind)
            if kind in WIDE:  # beyond a half's range the way there decides what comes out
                ours = ours.detach().masked_fill((~right.to(WIDE[kind]).isfinite()).to(ours.device), 0)
                right = right.masked_fill(~right.to(WIDE[kind]).isfinite(), 0)
            try:
                op_checks.compare_tensor(ours, right, factor=4.0)
            except Unsuited:
                return
            except op_checks.Wrong as error:
                if not op_checks.is_random(call, widened(values)):
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


class BeyondTheDatabaseTest(TestCase):
    """Calls that upstream's database has not for these dtypes: accelerators' halves, integers that are counted, and
    dtypes whose elements are only moved."""

    def same(self, call, *tensors, factor=4.0):
        """``call`` on npu gives what the CPU gives for the same values in the wider dtype."""
        wide = [t.detach().to(WIDE.get(t.dtype, t.dtype)).requires_grad_(t.requires_grad) for t in tensors]
        expected = pytree.tree_leaves(call(*wide))
        given = [t.detach().to(DEVICE).requires_grad_(t.requires_grad) for t in tensors]
        for ours, theirs in zip(pytree.tree_leaves(call(*given)), expected, strict=True):
            op_checks.compare_tensor(ours, theirs.detach().to(ours.dtype), factor=factor)
            self.assertIn(ours.dtype, (*(t.dtype for t in tensors), torch.float32))

    def test_distances(self):
        torch.manual_seed(0)
        for dtype in HALVES:
            x, y = (torch.randn(5, 4).to(dtype).requires_grad_() for _ in range(2))
            for p in (0.5, 1, 2, 3, float("inf")):
                with self.subTest(dtype, p=p):
                    self.same(lambda a, b, p=p: torch.cdist(a, b, p), x, y)
                    self.same(lambda a, p=p: torch.pdist(a, p), x)
                    self.same(lambda a, b, p=p: torch.autograd.grad(torch.cdist(a, b, p).sum(), (a, b)), x, y)
                    self.same(lambda a, p=p: torch.autograd.grad(torch.pdist(a, p).sum(), a), x)

    def test_histc_of_integers(self):
        """A router's counts of tokens for each expert."""
        chosen = torch.randint(0, 8, (4, 100))
        for dtype in (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8):
            for bounds in ((0, 7), (0, 8), (2, 5), (0, 0)):
                counts = torch.histc(chosen.to(dtype).npu(), 8, *bounds)
                self.assertIs(counts.dtype, dtype)
                self.assertTrue(torch.equal(counts.cpu().double(), torch.histc(chosen.double(), 8, *bounds)))
        self.assertEqual(torch.histc(chosen.npu(), 8, 0, 7).tolist(), torch.bincount(chosen.flatten()).tolist())
        for weights in HALVES:
            w = torch.rand(400).to(weights)
            self.same(lambda c, w: torch.bincount(c, w).float(), chosen.flatten(), w)

    def test_moved(self):
        for dtype in (
            *(torch.uint16, torch.uint32, torch.uint64, torch.complex32),
            *(torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz),
            torch.float8_e8m0fnu,
        ):
            x = torch.arange(1.0, 7).reshape(2, 3).to(dtype)
            codes = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[dtype.itemsize]
            with self.subTest(dtype):
                flipped = x.npu().flip(0, 1).cpu().view(codes)
                self.assertTrue(torch.equal(flipped, x.view(codes).flip(0, 1)))
                turned = x.npu().t().contiguous().cpu().view(codes)
                self.assertTrue(torch.equal(turned, x.view(codes).t()))
                joined = torch.cat([x.npu(), x.npu()]).cpu().view(codes)
                self.assertTrue(torch.equal(joined, torch.cat([x.view(codes)] * 2)))
                picked = x.npu()[torch.tensor([1, 0]).npu()].cpu().view(codes)
                self.assertTrue(torch.equal(picked, x.view(codes)[[1, 0]]))
                filled = torch.full((2, 3), 2.0, device="npu").cpu().to(dtype)
                self.assertTrue(
                    torch.equal(torch.full((2, 3), 2, dtype=dtype, device="npu").cpu().view(codes), filled.view(codes))
                )
                self.assertFalse(
                    torch.zeros(3, dtype=dtype, device="npu").cpu().view(codes).any() and codes != torch.uint8
                )

    def test_eight_bits(self):
        for dtype in (torch.float8_e4m3fn, torch.float8_e5m2):
            x, y = torch.tensor([0.0, 1.5, -2, 200]).to(dtype), torch.tensor([3.0, 0.25, 5, 7]).to(dtype)
            with self.subTest(dtype):
                for call in (torch.mul, lambda a, b: a.any(), lambda a, b: b.all(), lambda a, b: a[:, None].any(1)):
                    expected, ours = call(x, y), call(x.npu(), y.npu()).cpu()
                    self.assertIs(ours.dtype, expected.dtype)
                    self.assertTrue(torch.equal(ours.float(), expected.float()))

    def test_convolutions(self):
        torch.manual_seed(0)
        x, w, b = torch.randn(2, 3, 6, 6), torch.randn(4, 3, 3, 3), torch.randn(4)
        for dtype in (torch.float32, *HALVES):
            given = [t.to(dtype).requires_grad_() for t in (x, w, b)]

            def nnpack(x, w, b):
                if x.device.type == "cpu":  # whose library may be missing
                    return torch.nn.functional.conv2d(x, w, b, 2, 1)
                return torch._nnpack_spatial_convolution(x, w, b, 1, 2)

            with self.subTest(dtype):
                self.same(nnpack, *given)
                self.same(lambda x, w, b: torch.autograd.grad(nnpack(x, w, b).sum(), (x, w, b)), *given)
        turned = torch.randn(3, 4, 3, 3)
        for dtype in HALVES:
            given = [x.to(dtype).requires_grad_(), turned.to(dtype).requires_grad_(), b.clone().requires_grad_()]
            with self.subTest("transposed", dtype=dtype):
                for call in (torch.nn.functional.conv_transpose2d,):
                    self.same(lambda *t, f=call: torch.autograd.grad(f(*t).float().sum(), t), *given)
                    self.assertIs(call(*(t.detach().npu() for t in given)).dtype, dtype)

    def test_weight_norm(self):
        for dtype in HALVES:
            v, g = torch.randn(4, 3).to(dtype).requires_grad_(), torch.rand(4, 1).to(dtype).requires_grad_()
            with self.subTest(dtype):
                self.same(lambda v, g: torch.autograd.grad(torch._weight_norm(v, g, 0).sum(), (v, g)), v, g)

    def test_bags_of_mixed_indices(self):
        weight, weights = torch.rand(4, 3, requires_grad=True), torch.rand(4, requires_grad=True)
        kinds = (torch.int32, torch.int64)
        for indices, offsets in ((a, b) for a in kinds for b in kinds):
            i, o = torch.tensor([0, 1, 2, 3], dtype=indices), torch.tensor([0, 2], dtype=offsets)

            def bags(w, s, i=i, o=o):
                return torch.nn.functional.embedding_bag(
                    i.to(w.device), w, o.to(w.device), mode="sum", per_sample_weights=s
                )

            with self.subTest(indices, offsets=offsets):
                self.same(bags, weight, weights)
                self.same(lambda w, s, f=bags: torch.autograd.grad(f(w, s).sum(), (w, s)), weight, weights)

    def test_sums_of_complex(self):
        x = torch.tensor([[1 + 1j, complex("nan")], [2, 3j]])
        right = torch.where(x.isnan(), torch.zeros_like(x), x)
        self.assertTrue(torch.equal(torch.nansum(x.npu(), 0).cpu(), right.sum(0)))
        self.assertTrue(torch.equal(torch.nanmean(x.npu(), 1).cpu(), torch.stack([right[0, 0], right[1].mean()])))


if __name__ == "__main__":
    run_tests()
