"""Linear algebra, Fourier transforms and distances on npu against the CPU: values, out=, gradients, errors."""

import os
import unittest
import warnings

os.environ["NPU_FALLBACK"] = "0"

import torch
import torch.npu

DEVICE = "npu:0"
TYPES = (torch.float32, torch.float64, torch.complex64, torch.complex128)


def matrix(n=5, batch=(), dtype=torch.float64):
    """Well-conditioned, not symmetric."""
    return torch.randn(*batch, n, n, dtype=dtype) + n * torch.eye(n, dtype=dtype)


def definite(n=5, batch=(), dtype=torch.float64):
    a = matrix(n, batch, dtype)
    return a @ a.mH + torch.eye(n, dtype=dtype)


def moved(value, device=DEVICE):
    return value.to(device) if isinstance(value, torch.Tensor) else value


class LinalgTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)
        catcher = warnings.catch_warnings()
        catcher.__enter__()
        warnings.simplefilter("ignore")  # triangular_solve is deprecated
        self.addCleanup(catcher.__exit__, None, None, None)

    def same(self, actual, expected, **tolerance):
        if isinstance(expected, tuple):
            self.assertEqual(len(actual), len(expected))
            for a, e in zip(actual, expected, strict=True):
                self.same(a, e)
            return
        self.assertEqual(actual.device.type, "npu")
        torch.testing.assert_close(actual.cpu(), expected, **tolerance)

    def check(self, function, *args, **kwargs):
        """Values, and gradients of real and complex tensors where there are some."""
        self.same(function(*map(moved, args), **kwargs), function(*args, **kwargs))

    def check_gradient(self, function, *args):
        grads = []
        for device in ("cpu", DEVICE):
            leaves = [a.detach().to(device).requires_grad_() for a in args]
            result = function(*leaves)
            parts = result if isinstance(result, tuple) else (result,)
            loss = sum(p.abs().sin().sum() for p in parts if p.requires_grad)
            grads.append(torch.autograd.grad(loss, leaves))
        self.same(grads[1], grads[0])

    def test_solutions_and_factors(self):
        for dtype in TYPES:
            for batch in ((), (3,), (2, 3)):
                with self.subTest(dtype=dtype, batch=batch):
                    a, s = matrix(batch=batch, dtype=dtype), definite(batch=batch, dtype=dtype)
                    b = torch.randn(*batch, 5, 2, dtype=dtype)
                    self.check(torch.linalg.inv, a)
                    self.check(torch.linalg.det, a)
                    self.check(torch.linalg.slogdet, a)
                    self.check(torch.linalg.solve, a, b)
                    self.check(torch.linalg.cholesky, s)
                    self.check(torch.cholesky_inverse, torch.linalg.cholesky(s))
                    self.check(torch.cholesky_solve, b, torch.linalg.cholesky(s))
                    self.check(torch.linalg.lu, a)
                    self.check(torch.linalg.lu_factor, a)
                    self.check(torch.linalg.lu_solve, *torch.linalg.lu_factor(a), b)
                    self.check(torch.linalg.lu_solve, *torch.linalg.lu_factor(a), b.mT, left=False, adjoint=True)
                    self.check(torch.linalg.ldl_solve, *torch.linalg.ldl_factor(s), b)
                    self.check(torch.linalg.qr, b)
                    self.check(torch.linalg.qr, b, mode="complete")
                    self.check(torch.linalg.matrix_exp, a / 5)
                    self.check(torch.linalg.solve_triangular, a.triu(), b, upper=True)
                    self.check(torch.triangular_solve, b, a.triu())
                    self.check(torch.linalg.householder_product, *torch.geqrf(b))
                    self.check(torch.ormqr, *torch.geqrf(a), b)
                    self.check(torch.linalg.pinv, b)
                    self.check(torch.linalg.lstsq, a, b)

    def test_spectra(self):
        loose = {"rtol": 1e-4, "atol": 1e-4}
        for dtype in TYPES:
            for batch in ((), (3,)):
                with self.subTest(dtype=dtype, batch=batch):
                    a, s = matrix(batch=batch, dtype=dtype), definite(batch=batch, dtype=dtype)
                    self.check(torch.linalg.svdvals, a)
                    self.check(torch.linalg.eigvalsh, s)
                    self.check(torch.linalg.eigvals, a)
                    # Vectors are unique up to a factor: they must put the matrix together again.
                    u, values, vh = torch.linalg.svd(a.to(DEVICE), full_matrices=False)
                    self.same((u * values.unsqueeze(-2)) @ vh, a, **loose)
                    values, vectors = torch.linalg.eigh(s.to(DEVICE))
                    self.same((vectors * values.unsqueeze(-2)) @ vectors.mH, s, **loose)
                    values, vectors = torch.linalg.eig(a.to(DEVICE))
                    self.same(a.to(DEVICE).to(values.dtype) @ vectors, (vectors * values.unsqueeze(-2)).cpu(), **loose)

    def test_least_squares_of_every_driver(self):
        a, b = torch.randn(2, 6, 3, dtype=torch.float64), torch.randn(2, 6, 2, dtype=torch.float64)
        for driver in ("gels", "gelsy", "gelsd", "gelss"):
            with self.subTest(driver=driver):
                self.check(torch.linalg.lstsq, a, b, driver=driver)
                self.check(torch.linalg.lstsq, a.mT, torch.randn(2, 3, 2, dtype=torch.float64), driver=driver)
                self.check(torch.linalg.lstsq, a, b[..., 0], driver=driver)
        flat = a.clone()
        flat[..., 2] = flat[..., 1]  # not of full rank: no residuals
        self.check(torch.linalg.lstsq, flat, b, driver="gelsd")

    def test_least_squares_by_columns(self):
        """gelsy of matrices that are not of full rank, after ones that are; upstream's own answers depend on memory."""
        shapes = (((2, 5, 3), (1, 5, 2)), ((2, 1, 5, 3), (1, 3, 5, 2)), ((3, 3, 5), (3, 3, 2)), ((2, 5, 3), (2, 5)))
        for dtype in (torch.float32, torch.float64, torch.complex64, torch.complex128):
            loose = {"rtol": 1e-3, "atol": 1e-3} if dtype.to_real() == torch.float32 else {"rtol": 1e-8, "atol": 1e-8}
            for left, right in shapes:
                with self.subTest(dtype=dtype, left=left, right=right):
                    a, b = torch.randn(left, dtype=dtype), torch.randn(right, dtype=dtype)
                    a[-1:, ..., 1] = a[-1:, ..., 0]
                    if left[-2] < left[-1]:
                        a[-1:, ..., 1, :] = a[-1:, ..., 0, :]
                    x, _, ranks, _ = torch.linalg.lstsq(a.npu(), b.npu(), driver="gelsy")
                    want = torch.linalg.lstsq(a, b, driver="gelsd")
                    self.same(x, want.solution, **loose)
                    self.assertEqual(ranks.tolist(), want.rank.tolist())
                    self.assertLess(ranks[-1].max().item(), 3)
        # Orthogonal columns of lengths 2, 0.1 and 1: those below rcond times the longest count as zero.
        a = torch.linalg.qr(torch.randn(5, 3, dtype=torch.float64)).Q * torch.tensor([2, 0.1, 1], dtype=torch.float64)
        b = torch.randn(5, 2, dtype=torch.float64)
        for rcond, rank in ((0.3, 2), (0.01, 3), (-1, 3), (0, 3)):
            got = torch.linalg.lstsq(a.npu(), b.npu(), rcond=rcond, driver="gelsy")
            self.assertEqual(got.rank.item(), rank)
            self.same(got.solution, torch.linalg.lstsq(a, b, rcond=max(rcond, 1e-15), driver="gelsd").solution)

    def test_least_squares_of_batches(self):
        """A batch on either side; right-hand sides of one dimension less are vectors for that batch, or matrices."""
        shapes = (
            *(((2, 5, 3), (1, 5, 2)), ((1, 5, 3), (2, 5, 2)), ((2, 1, 5, 3), (1, 3, 5, 2)), ((2, 5, 3), (2, 5))),
            *(((1, 5, 3), (5, 2)), ((5, 5, 3), (5, 2)), ((2, 1, 3, 2), (1, 3, 3)), ((0, 5, 3), (0, 5, 2))),
        )
        refused = (((2, 5, 3), (1, 5)), ((2, 5, 3), (5, 2)), ((2, 1, 3, 2), (2, 3, 7)), ((3, 5, 2), (2, 5, 1, 1)))
        for driver in ("gels", "gelsy", "gelsd", "gelss"):
            for left, right in shapes:
                with self.subTest(driver, left=left, right=right):
                    a, b = torch.randn(left, dtype=torch.float64), torch.randn(right, dtype=torch.float64)
                    self.check(torch.linalg.lstsq, a, b, driver=driver)
                    if driver in ("gelsd", "gelss"):
                        a[..., 1] = a[..., 0]  # not of full rank
                        self.check(torch.linalg.lstsq, a, b, driver=driver)
                        self.check(torch.linalg.lstsq, a, b, rcond=0.3, driver=driver)
            for left, right in refused:
                said = []
                for device in ("cpu", DEVICE):
                    with self.assertRaises(RuntimeError) as caught:
                        torch.linalg.lstsq(torch.ones(left, device=device), torch.ones(right, device=device))
                    said.append(str(caught.exception))
                self.assertEqual(said[1], said[0])

    def test_gradients(self):
        a, s, b = matrix(), definite(), torch.randn(5, 2, dtype=torch.float64)
        for name, function, args in (
            ("inv", torch.linalg.inv, (a,)),
            ("solve", torch.linalg.solve, (a, b)),
            ("slogdet", torch.linalg.slogdet, (a,)),
            ("cholesky", torch.linalg.cholesky, (s,)),
            ("svdvals", torch.linalg.svdvals, (a,)),
            ("eigvalsh", torch.linalg.eigvalsh, (s,)),
            ("qr", torch.linalg.qr, (b,)),
            ("lu", torch.linalg.lu, (a,)),
            ("matrix_exp", torch.linalg.matrix_exp, (a / 5,)),
            ("cdist", torch.cdist, (a, a + 1)),
            ("pdist", torch.pdist, (a,)),
            ("rfft", torch.fft.rfft2, (a,)),
            ("irfft", lambda x: torch.fft.irfft(torch.complex(x, x + 1)), (a,)),
        ):
            with self.subTest(op=name):
                self.check_gradient(function, *args)

    def test_fourier_transforms(self):
        x = torch.randn(2, 3, 6, dtype=torch.float64)
        z = torch.complex(x, x.flip(0))
        for norm in ("backward", "ortho", "forward"):
            self.check(torch.fft.fft, x, norm=norm)
            self.check(torch.fft.ifft, z, norm=norm)
            self.check(torch.fft.rfftn, x, norm=norm)
            self.check(torch.fft.irfftn, z, norm=norm)
            self.check(torch.fft.hfft, z, norm=norm)
        self.check(torch.fft.fft2, z.transpose(0, 2))
        self.check(torch.fft.fft, x, n=4)
        self.check(lambda t: torch.stft(t, 4, return_complex=True, center=False), x[0])
        out = torch.empty(0, dtype=torch.complex128, device=DEVICE)
        self.same(torch.fft.fft(x.to(DEVICE), out=out), torch.fft.fft(x))

    def test_distances(self):
        x, y = torch.randn(2, 4, 3), torch.randn(2, 5, 3)
        for p in (0.0, 1.0, 2.0, 3.0, float("inf")):
            self.check(torch.cdist, x, y, p=p)
            self.check(torch.pdist, x[0], p=p)

    def test_out(self):
        a = matrix()
        for out in (torch.empty(0, dtype=a.dtype), torch.empty(5, 5, dtype=a.dtype).t()):
            target = out.to(DEVICE)
            self.assertIs(torch.linalg.inv(a.to(DEVICE), out=target), target)
            self.same(target, torch.linalg.inv(a))
        with self.assertRaises(RuntimeError):
            torch.linalg.inv(a.to(DEVICE), out=torch.empty(5, 5, dtype=torch.long, device=DEVICE))

    def test_what_is_refused(self):
        singular = torch.zeros(3, 3, device=DEVICE)
        with self.assertRaises(torch.linalg.LinAlgError):
            torch.linalg.inv(singular)
        with self.assertRaises(torch.linalg.LinAlgError):
            torch.linalg.cholesky(-torch.eye(3, device=DEVICE))
        with self.assertRaises(RuntimeError):
            torch.linalg.inv(torch.zeros(3, 4, device=DEVICE))
        with self.assertRaises(RuntimeError):
            torch.linalg.solve(singular, torch.zeros(4, 1, device=DEVICE))
        with self.assertRaises(RuntimeError):
            torch.linalg.inv(torch.zeros(3, 3, device=DEVICE, dtype=torch.half))
        with self.assertRaisesRegex(RuntimeError, "same device"):
            torch.linalg.solve(torch.eye(3, device=DEVICE), torch.ones(3, 1))
        self.same(torch.linalg.inv(torch.eye(3, device=DEVICE)), torch.eye(3))

    def test_empty(self):
        for shape in ((0, 0), (2, 0, 0), (0, 3, 3)):
            a = torch.randn(shape)
            self.check(torch.linalg.inv, a)
            self.check(torch.linalg.det, a)
            self.check(torch.linalg.svdvals, a)
        self.check(torch.cdist, torch.randn(0, 3), torch.randn(4, 3))


class OutTest(unittest.TestCase):
    def test_another_dtype_is_refused_at_the_call(self):
        a, b = matrix(3, dtype=torch.float32), torch.randn(3, 2)
        wrong = torch.float64
        for name, call in (
            ("qr", lambda a, b: torch.linalg.qr(a, out=(a.new_empty(0, dtype=wrong), a.new_empty(0)))),
            ("solve", lambda a, b: torch.linalg.solve(a, b, out=b.new_empty(0, dtype=wrong))),
            ("eigh", lambda a, b: torch.linalg.eigh(a, out=(a.new_empty(0), a.new_empty(0, dtype=wrong)))),
            ("slogdet", lambda a, b: torch.linalg.slogdet(a, out=(a.new_empty(0, dtype=wrong), a.new_empty(0)))),
            (
                "solve_triangular",
                lambda a, b: torch.linalg.solve_triangular(a, b, upper=True, out=b.new_empty(0, dtype=wrong)),
            ),
            ("ormqr", lambda a, b: torch.ormqr(a, a[0], b, out=b.new_empty(0, dtype=wrong))),
        ):
            with self.subTest(name):
                for device in ("cpu", DEVICE):
                    with self.assertRaisesRegex(RuntimeError, "dtype|scalar type"):
                        call(a.to(device), b.to(device))
        torch.npu.synchronize()

    def test_a_wider_dtype_is_cast_to_where_upstream_does(self):
        a = definite(3, dtype=torch.float32)
        expected, out = torch.empty(0, dtype=torch.float64), torch.empty(0, dtype=torch.float64, device=DEVICE)
        torch.cholesky(a, out=expected)
        torch.cholesky(a.to(DEVICE), out=out)
        torch.testing.assert_close(out.cpu(), expected, rtol=1e-5, atol=1e-6)


if __name__ == "__main__":
    unittest.main()
