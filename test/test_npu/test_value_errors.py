"""Values that an operator refuses: at the call where CUDA raises at the call, else at the next synchronisation.

Either way the error has the CPU's reason, a late one the operator that found it, and the process goes on.
"""

import warnings

from common_utils import TestCase, run_tests
from torch.nn import functional as F

import torch

NAN, INF = float("nan"), float("inf")


def t(*values, dtype=None):
    return torch.tensor(values, dtype=dtype)


def of(function, *operands, **keywords):
    """A call of a function with operands on a device."""
    return lambda device: function(*(o.to(device) if isinstance(o, torch.Tensor) else o for o in operands), **keywords)


X = torch.arange(6.0).view(3, 2)
FAR, ONES = torch.full((2, 2), 7), torch.ones(2, 2)
MATRICES = torch.stack([torch.eye(2), torch.full((2, 2), NAN)])
SCORES = torch.zeros(3, 1, 4).log_softmax(-1)

# Upstream waits for the device to look, on CUDA too.
AT_THE_CALL = {
    "normal of deviations": of(torch.normal, 0.0, t(1.0, -1.0)),
    "normal of halves": of(torch.normal, 0.0, t(1.0, -1.0, dtype=torch.bfloat16)),
    "normal of both": of(torch.normal, torch.zeros(2), t(1.0, NAN)),
    "normal of a number": lambda d: torch.empty(2, device=d).normal_(0, -1),
    "normal out=": lambda d: torch.normal(0.0, t(1.0, -1.0).to(d), out=torch.empty(2, device=d)),
    "bincount": of(torch.bincount, t(0, -1)),
    "histc of NaN": of(torch.histc, t(1.0, NAN)),
    "histc of infinity": of(torch.histc, t(1.0, INF), 4),
    "histc to infinity": of(torch.histc, t(1.0, 2.0), 4, 1.0, INF),
    "repeat_interleave": of(torch.repeat_interleave, torch.arange(2), t(1, -1)),
    "lengths of segments": of(lambda x, n: torch.segment_reduce(x, "sum", lengths=n), torch.ones(4), t(1, 2)),
    "negative lengths": of(lambda x, n: torch.segment_reduce(x, "max", lengths=n), torch.ones(4), t(5, -1)),
    "zero points": of(
        torch.fake_quantize_per_channel_affine, ONES, torch.ones(2), t(0, 999, dtype=torch.int32), 0, 0, 255
    ),
    "sorter": of(lambda s, x, o: torch.searchsorted(s, x, sorter=o), t(3.0, 1.0), t(2.0), t(1, 9)),
    "linalg.cholesky": of(torch.linalg.cholesky, -torch.eye(2)),
    "cholesky": of(torch.cholesky, torch.stack([torch.eye(2), -torch.eye(2)])),
    "cholesky out=": lambda d: torch.cholesky(-torch.eye(2, device=d), out=torch.empty(2, 2, device=d)),
    "cholesky_inverse": of(torch.cholesky_inverse, torch.stack([torch.eye(3), torch.diag(t(1.0, 0.0, 0.0))])),
    "linalg.inv": of(torch.linalg.inv, torch.zeros(2, 2)),
    "linalg.solve": of(torch.linalg.solve, torch.zeros(2, 2), ONES),
    "linalg.eig": of(torch.linalg.eig, MATRICES),
    "linalg.svd": of(torch.linalg.svd, MATRICES),
    "linalg.svdvals": of(torch.linalg.svdvals, MATRICES[1]),
    "linalg.pinv": of(torch.linalg.pinv, MATRICES[1]),
    "linalg.matrix_rank": of(torch.linalg.matrix_rank, MATRICES),
    "ctc_loss, steps": of(F.ctc_loss, SCORES, t((1, 2)).view(1, 2), t(9), t(2)),
    "ctc_loss, targets": of(F.ctc_loss, SCORES, t((1, 2)).view(1, 2), t(3), t(-1)),
    "adaptive softmax": lambda d: torch.nn.AdaptiveLogSoftmaxWithLoss(4, 10, [5]).to(d)(
        torch.ones(1, 4, device=d), t(11).to(d)
    ),
}

# An assertion of the device on CUDA: the operator that finds it here.
LATE = {
    "bernoulli": ("AssertAsyncMsg", of(torch.bernoulli, t(0.5, 1.5))),
    "bernoulli of NaN": ("AssertAsyncMsg", of(torch.bernoulli, t(0.5, NAN))),
    "multinomial": ("MultinomialWithReplacement", of(torch.multinomial, t(0.5, -1.5), 1)),
    "multinomial of zeros": ("MultinomialWithReplacement", of(torch.multinomial, torch.zeros(3), 2)),
    "poisson": ("StatelessPoisson", of(torch.poisson, t(1.0, -1.0))),
    "cross_entropy": ("NLLLoss", of(F.cross_entropy, torch.zeros(2, 3), t(0, 5))),
    "nll_loss": ("NLLLoss", of(F.nll_loss, torch.zeros(2, 3, 2, 2), torch.full((2, 2, 2), -1))),
    "one_hot": ("ScatterElements", of(F.one_hot, t(0, 5), 3)),
    "embedding": ("GatherV2", of(F.embedding, t(0, 5), X)),
    "embedding, norms": ("EmbeddingRenorm", of(F.embedding, t(0, 5), X, max_norm=1.0)),
    "embedding_bag": ("EmbeddingBagForward", of(F.embedding_bag, t(0, 5), X, t(0))),
    "embedding_bag, offsets": ("EmbeddingBagForward", of(F.embedding_bag, t(0, 1), X, t(0, 7))),
    "gather": ("GatherElements", of(torch.gather, X, 0, FAR)),
    "scatter": ("ScatterElements", of(torch.scatter, X, 0, FAR, 1.0)),
    "scatter_add": ("ScatterAddWithAxis", of(torch.scatter_add, X, 0, FAR, ONES)),
    "scatter_reduce": ("ScatterReduce", of(torch.scatter_reduce, X, 0, FAR, ONES, "amax")),
    "index_select": ("GatherV2", of(torch.index_select, X, 0, t(7))),
    "index": ("Index", of(lambda x, i: x[i], X, t(7))),
    "index_put": ("IndexPutV2", of(lambda x, i: x.index_put((i,), x[0]), X, t(7))),
    "index_add": ("InplaceIndexAdd", of(torch.index_add, X, 0, t(7), ONES[:1])),
    "index_copy": ("ScatterUpdate", of(torch.index_copy, X, 0, t(7), ONES[:1])),
    "index_fill": ("IndexFill", of(torch.index_fill, X, 0, t(7), 1.0)),
    "index_reduce": ("IndexReduce", of(torch.index_reduce, X, 0, t(7), ONES[:1], "amax")),
    "take": ("Take", of(torch.take, X, t(77))),
    "put": ("Put", of(torch.Tensor.put, X, t(77), t(1.0))),
    "masked_scatter": ("MaskedScatter", of(torch.masked_scatter, torch.zeros(4), torch.ones(4).bool(), t(1.0))),
    "binary_cross_entropy": ("BinaryCrossEntropy", of(F.binary_cross_entropy, t(0.5, 1.5), t(1.0, 1.0))),
    "max_unpool2d": ("MaxUnpool2d", of(F.max_unpool2d, ONES.view(1, 1, 2, 2), torch.full((1, 1, 2, 2), 99), 2)),
    "multi_margin_loss": ("MultiMarginLoss", of(F.multi_margin_loss, torch.zeros(2, 3), t(0, 7))),
    "multilabel_margin_loss": (
        "MultilabelMarginLoss",
        of(F.multilabel_margin_loss, torch.zeros(2), t(7, -1)),
    ),
    "floor_divide": ("FloorDiv", of(torch.floor_divide, t(1, 2), t(0, 1))),
    "remainder": ("FloorMod", of(torch.remainder, t(1, 2), 0)),
    "repeat_interleave": ("RepeatInterleave", of(torch.repeat_interleave, torch.arange(2), t(1, 3), output_size=3)),
    "lu_unpack": ("LuUnpack", of(torch.lu_unpack, torch.eye(2), t(1, 99, dtype=torch.int32))),
    "quantile": ("GatherElements", of(torch.quantile, X.view(-1), t(1.5))),
    "_assert_async": ("AssertAsyncMsg", of(torch._assert_async, t(False), "in words")),
}


class TestValueErrors(TestCase):
    def setUp(self):
        warnings.filterwarnings("ignore", message="torch.cholesky is deprecated")

    def alive(self):
        self.assertEqual((torch.ones(3, device="npu") * 2).sum().item(), 6.0)

    def test_at_the_call(self):
        for name, call in AT_THE_CALL.items():
            with self.subTest(name):
                with self.assertRaises((RuntimeError, IndexError)) as cpu:
                    call("cpu")
                with self.assertRaises(type(cpu.exception)) as npu:
                    call("npu")
                self.assertNotIsInstance(npu.exception, torch.AcceleratorError)
                if not name.startswith("ctc_loss"):  # whose bounds are told together here
                    want = str(cpu.exception).splitlines()[0].replace("-nan", "nan")
                    self.assertEqual(str(npu.exception).splitlines()[0].replace("-nan", "nan"), want)
                torch.npu.synchronize()
                self.alive()

    def test_late(self):
        for name, (operator, call) in LATE.items():
            with self.subTest(name):
                with self.assertRaises((RuntimeError, IndexError)):
                    call("cpu")
                call("npu")
                with self.assertRaisesRegex(torch.AcceleratorError, rf"Reason: \w+: {operator}\(.* failed on device 0"):
                    torch.npu.synchronize()
                self.alive()

    def test_late_has_the_reason_of_the_cpu(self):
        """Index and bound, target, word: what the CPU says stands in the device's reason."""
        for name in ("cross_entropy", "nll_loss", "gather", "scatter", "index", "index_put", "index_add", "index_copy",
                     "index_fill", "take", "put", "masked_scatter", "binary_cross_entropy", "max_unpool2d",
                     "multinomial", "multinomial of zeros", "poisson", "floor_divide", "_assert_async"):  # fmt: skip
            with self.subTest(name):
                with self.assertRaises((RuntimeError, IndexError)) as cpu:
                    LATE[name][1]("cpu")
                LATE[name][1]("npu")
                with self.assertRaises(torch.AcceleratorError) as npu:
                    torch.npu.synchronize()
                self.assertIn(str(cpu.exception).splitlines()[0], str(npu.exception))

    def test_eigenvalues_of_nan(self):
        """Upstream's CPU kernel ends the process over them."""
        for matrices in (MATRICES, torch.full((2, 2), INF), MATRICES.to(torch.complex64)):
            for form in (torch.linalg.eigvals, lambda m: torch.linalg.eigvals(m, out=torch.empty(0).npu().cfloat())):
                with self.assertRaisesRegex(RuntimeError, "eigvals: input tensor should not contain infs or NaNs"):
                    form(matrices.npu())
        self.alive()

    def test_more_draws_than_weights(self):
        """Classes without weight come last, as on the CPU."""
        for weights, first in ((t(0.0, 0.0, 1.0, 0.0), {2}), (t(0.0, 3.0, 1.0, 0.0), {1, 2})):
            picks = torch.multinomial(weights.npu(), 4).tolist()
            self.assertEqual((set(picks[: len(first)]), set(picks)), (first, {0, 1, 2, 3}))

    def test_what_is_right_passes(self):
        torch.manual_seed(0)
        self.assertEqual(torch.normal(t(1.0, 2.0).npu(), t(0.0, 0.0).npu()).cpu(), t(1.0, 2.0))
        self.assertEqual(torch.normal(0.0, torch.empty(0).npu()).shape, (0,))
        self.assertEqual(torch.histc(t(1.0, 2.0, INF).npu(), 2, 1, 3).cpu(), t(1.0, 1.0))
        a = torch.randn(2, 3, 3)
        a = a @ a.mT + torch.eye(3)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for upper in (False, True):
                self.assertEqual(torch.cholesky(a.npu(), upper).cpu(), torch.cholesky(a, upper), prec=1e-5)
        b = a.npu().requires_grad_()
        torch.cholesky(b).sum().backward()
        c = a.clone().requires_grad_()
        torch.cholesky(c).sum().backward()
        self.assertEqual(b.grad.cpu(), c.grad, prec=1e-4)
        inverse = torch.cholesky_inverse(torch.linalg.cholesky(a.npu()))
        self.assertEqual(inverse.cpu(), torch.linalg.inv(a), prec=1e-4)


if __name__ == "__main__":
    run_tests()
