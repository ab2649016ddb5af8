"""What a card has no operator for and other operators give: right against the CPU, with gradients, and native."""

import unittest

from test_card_operators import run

# check(name, call, *tensors) compares a call's results and gradients of the floating tensors on both devices.
BEGIN = """
import torch, torch.npu
import torch.nn.functional as F
torch.manual_seed(0)

def leaves(values):
    return [v for v in (values if isinstance(values, (tuple, list)) else [values]) if isinstance(v, torch.Tensor)]

def results(call, tensors, device, backward):
    given = [t.detach().to(device).requires_grad_(backward and t.is_floating_point()) for t in tensors]
    out = leaves(call(*given))
    found = [o.detach().cpu() for o in out]
    if backward:
        total = sum(o.abs().sum() if o.is_complex() else (o * 0.7).sum() for o in out if o.requires_grad)
        wanted = [g for g in given if g.requires_grad]
        found += [g.cpu() for g in torch.autograd.grad(total, wanted)]
    return found

def check(name, call, *tensors, backward=True, rtol=1e-5, atol=1e-5):
    ours, theirs = results(call, tensors, "npu", backward), results(call, tensors, "cpu", backward)
    assert len(ours) == len(theirs), name
    for a, b in zip(ours, theirs):
        torch.testing.assert_close(a, b, rtol=rtol, atol=atol, equal_nan=True, msg=lambda m: f"{name}: {m}")
"""
END = """
print(dict(torch.npu.fallback_stats()))
"""

LINALG = """
def spd(*shape, dtype=torch.float64):
    a = torch.randn(*shape, dtype=dtype)
    return a @ a.mH + torch.eye(shape[-1], dtype=dtype)

for dtype in (torch.float64, torch.float32, torch.complex128):
    square, many = torch.randn(5, 5, dtype=dtype), torch.randn(3, 1, 4, 4, dtype=dtype)
    b, real = torch.randn(2, 4, 3, dtype=dtype), not dtype.is_complex
    tall, wide = torch.randn(2, 6, 4, dtype=dtype), torch.randn(2, 3, 5, dtype=dtype)
    limits = {"rtol": 1e-3, "atol": 1e-3} if dtype is torch.float32 else {}
    for a in (square, many, square.mT, many[..., :1, :1], many[:0], many[..., :0, :0]):
        name = f"{dtype} {tuple(a.shape)}"
        check(f"det {name}", torch.linalg.det, a, backward=real, **limits)
        check(f"slogdet {name}", torch.linalg.slogdet, a, backward=real and a.size(-1) > 0, **limits)
        check(f"inv {name}", torch.linalg.inv, a, backward=real, **limits)
        check(f"lu {name}", torch.linalg.lu, a, backward=real, **limits)
        check(f"lu_factor {name}", torch.linalg.lu_factor, a, backward=False, **limits)
        check(f"matrix_exp {name}", torch.linalg.matrix_exp, a * 3, backward=False, rtol=1e-4, atol=1e-3)
    for left in (True, False):
        check("solve", lambda a, b, l=left: torch.linalg.solve(a, b if l else b.mT, left=l), many, b,
              backward=real, **limits)
        for adjoint in (False, True):
            check("lu_solve", lambda a, b, l=left, j=adjoint: torch.linalg.lu_solve(
                *torch.linalg.lu_factor(a), b if l else b.mT, left=l, adjoint=j), many, b, backward=False, **limits)
    check("solve a vector", torch.linalg.solve, square, torch.randn(5, dtype=dtype), backward=real, **limits)
    for a in (tall, wide):
        check("lu of rows", torch.linalg.lu, a, backward=real, **limits)
        check("lu_factor of rows", torch.linalg.lu_factor, a, backward=False, **limits)
        check("lu_unpack", lambda t: torch.lu_unpack(*torch.linalg.lu_factor(t)), a, backward=False, **limits)
        check("geqrf", torch.geqrf, a, backward=False, **limits)
        check("lstsq", lambda a: torch.linalg.lstsq(a, a[..., :2] * 2 + 1).solution, a, backward=real, rtol=1e-3,
              atol=1e-3)
        for driver in ("gels", "gelsd", "gelss"):
            check(driver, lambda a: torch.linalg.lstsq(a, a[..., :2] + 1, driver=driver), a, backward=False,
                  rtol=1e-3, atol=1e-3)
    check("householder_product", lambda t: torch.linalg.householder_product(*torch.geqrf(t)), tall, backward=False,
          **limits)
    for left in (True, False):
        for turn in (True, False):
            check("ormqr", lambda t, c, l=left, u=turn: torch.ormqr(*torch.geqrf(t), c if l else c.mT, l, u), tall,
                  torch.randn(2, 6, 3, dtype=dtype), backward=False, **limits)
    for a in (spd(5, 5, dtype=dtype), spd(2, 3, 4, 4, dtype=dtype)):
        for upper in (False, True):
            check("cholesky_ex", lambda t, u=upper: torch.linalg.cholesky_ex(t, upper=u), a, backward=real, **limits)
            check("cholesky", lambda t, u=upper: torch.cholesky(t, u), a, backward=False, **limits)

# A status instead of an error, and an error where one is asked for.
singular = torch.tensor([[[1.0, 2], [2, 4]], [[0, 0], [0, 0]], [[0, 1], [1, 0]]])
check("singular", torch.linalg.lu_factor_ex, singular, backward=False)
check("det of singular", torch.linalg.det, singular, backward=False)
negative = torch.tensor([[[1.0, 2], [2, 1]], [[-1, 0], [0, 1]], [[4, 0], [0, 9]]])
assert torch.linalg.cholesky_ex(negative.npu()).info.tolist() == [2, 1, 0]
for call in (lambda: torch.linalg.inv(singular.npu()), lambda: torch.linalg.cholesky(negative.npu()),
             lambda: torch.cholesky(negative.npu())):
    try:
        call()
        raise AssertionError("no error")
    except torch.linalg.LinAlgError as error:
        assert "Batch element 0" in str(error), error
deficient = torch.ones(4, 3)
found = torch.linalg.lstsq(deficient.npu(), torch.ones(4, 1).npu(), driver="gelsd")
assert found.rank.item() == 1 and torch.allclose(found.solution.cpu(), torch.full((3, 1), 1 / 3))
"""

FUNCTIONS = """
for dtype in (torch.float64, torch.float32):
    limits = {"rtol": 1e-9, "atol": 1e-9} if dtype is torch.float64 else {"rtol": 1e-4, "atol": 1e-5}
    x = torch.cat([torch.linspace(-12, 12, 197), torch.logspace(-4, 3, 71), -torch.logspace(-4, 2, 31),
                   torch.tensor([0.0, -0.0, 1, -1, 2, 5, 1e-30, float("nan")])]).to(dtype)
    for name in ("bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1") if dtype is torch.float32 else ():
        check(name, getattr(torch.special, name), x, backward=False, **limits)
    small = x[x.abs() < 80]
    for name in ("modified_bessel_k0", "modified_bessel_k1", "scaled_modified_bessel_k0", "scaled_modified_bessel_k1",
                 "spherical_bessel_j0", "modified_bessel_i0", "modified_bessel_i1"):
        check(name, getattr(torch.special, name), small, backward=False, **limits)
    p = torch.linspace(-3, 3, 61).to(dtype)
    n = torch.tensor([-1.0, 0, 1, 2, 3, 7, 20.5]).to(dtype).unsqueeze(1)
    for name in ("hermite_polynomial_h", "hermite_polynomial_he", "laguerre_polynomial_l", "legendre_polynomial_p"):
        check(name, getattr(torch.special, name), p, n, backward=False, rtol=1e-4)
        check(name, lambda t, f=name: getattr(torch.special, f)(t, 4), p, backward=False, rtol=1e-4)
check("integers", torch.special.bessel_j0, torch.arange(-9, 9), backward=False)
"""

OTHERS = """
for shape in ((5,), (4, 5)):
    x = torch.randn(shape)
    target = torch.tensor([3, 0, 1, 4]) if len(shape) == 2 else torch.tensor(2)
    for reduction in ("none", "mean", "sum"):
        for p in (1, 2):
            for weight in (None, torch.tensor([0.5, 1, 2, 0.1, 3])):
                check("multi_margin_loss", lambda t, y, r=reduction, p=p, w=weight: F.multi_margin_loss(
                    t, y, p=p, margin=0.7, weight=None if w is None else w.to(t.device), reduction=r), x, target)
        several = torch.tensor([[3, 0, -1, 1, 2], [1, -1, 0, 0, 0], [-1, 0, 1, 2, 3], [4, 3, 2, 1, 0]])
        several = several if len(shape) == 2 else several[0]
        check("multilabel_margin_loss", lambda t, y, r=reduction: F.multilabel_margin_loss(t, y, reduction=r), x,
              several)

ties = torch.tensor([[3.0, 1, 3, 2, 1], [5, 5, 5, 1, 1], [2, 4, 6, 8, 0]])
unknown = torch.tensor([[1, float("nan"), 0.5, 2], [3, 1, 2, 0], [float("nan")] * 4])
for dim in (0, 1):
    for keep in (True, False):
        check("mode", lambda t: torch.mode(t, dim, keep), ties)
        check("mode of bytes", lambda t: torch.mode(t, dim, keep), ties.bool(), backward=False)
        check("kthvalue", lambda t: torch.kthvalue(t, 2, dim, keep), torch.randn(4, 6))
        check("median", lambda t: torch.median(t, dim, keep), torch.randn(5, 4))
        check("median with unknown", lambda t: torch.median(t, 1, keep).values, unknown, backward=False)
        check("nanmedian", lambda t: torch.nanmedian(t, 1, keep).values, unknown, backward=False)
check("of one number", lambda t: [*torch.mode(t), *torch.kthvalue(t, 1), *torch.median(t, 0)], torch.tensor(2.0))

points, heavy = torch.randn(50), torch.rand(50)
for density in (False, True):
    check("histogram", lambda t, w: torch.histogram(t, 7, weight=w, density=density), points, heavy, backward=False)
    check("histogram in a range", lambda t: torch.histogram(t, 5, range=(-1.0, 1.0), density=density), points,
          backward=False)
    check("histogram of edges", lambda t, e: torch.histogram(t, e, density=density), points,
          torch.tensor([-2.0, -1, 0.5, 3]), backward=False)
    check("histogramdd", lambda t: (lambda h: [h.hist, *h.bin_edges])(torch.histogramdd(
        t, [3, 2], density=density)), points.view(25, 2), backward=False)
check("equal values", lambda t: torch.histogram(t, 3), torch.ones(4), backward=False)

data, lengths = torch.randn(2, 6, 3), torch.tensor([[2, 0, 4], [1, 3, 2]])
offsets = torch.cat([torch.zeros(2, 1, dtype=torch.int64), lengths.cumsum(1)], 1)
data[0, 1, 2] = 0
for reduce in ("sum", "mean", "max", "min", "prod"):
    for initial in (None, 0.5):
        check(reduce, lambda t, l: torch.segment_reduce(t, reduce, lengths=l, axis=1, initial=initial), data, lengths)
        check(reduce, lambda t, o: torch.segment_reduce(t, reduce, offsets=o, axis=1, initial=initial), data, offsets)
"""

# More columns than a composition serves: the CPU, which says so.
LARGE = """
a = torch.randn(70, 70, dtype=torch.float64)
check("inverse", torch.linalg.inv, a, backward=False)
"""


# The largest of a bag comes from the CPU, the others are composed; the sizes of all are those that a device announces.
BAGS = """
for mode in (0, 1, 2):
    for last in (True, False):
        given = torch.randn(5, 3), torch.tensor([0, 1, 2, 3]), torch.tensor([0, 2, 4])
        bags = [torch.ops.aten._embedding_bag(*(t.to(device) for t in given), False, mode, False, None, last)
                for device in ("npu", "meta")]
        sizes = [[tuple(result.shape) for result in results] for results in bags]
        assert sizes[0] == sizes[1], (mode, last, sizes)
        assert bags[0][2].tolist() == [2, 2, 0], (mode, last)
check("a mean of bags that ends with the last offset",
      lambda table, at, starts: F.embedding_bag(at, table, starts, mode="mean", include_last_offset=True),
      torch.randn(5, 5), torch.tensor([0, 3, 1, 2, 4, 4]), torch.tensor([0, 2, 6]))
"""


class TestCompositions(unittest.TestCase):
    def native(self, body):
        self.assertEqual(run(BEGIN + body + END, NPU_FALLBACK="0").strip(), "{}")

    def test_linear_algebra(self):
        self.native(LINALG)

    def test_functions(self):
        self.native(FUNCTIONS)

    def test_losses_order_histograms_and_segments(self):
        self.native(OTHERS)

    def test_sizes_of_bags(self):
        self.assertIn("aten::_embedding_bag", run(BEGIN + BAGS + END))

    def test_large_matrices_go_to_the_cpu(self):
        self.assertIn("aten::linalg_inv_ex", run(BEGIN + LARGE + END))


if __name__ == "__main__":
    unittest.main()
