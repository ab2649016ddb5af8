"""Fake and meta tensors announce strides and dtypes that the kernels give, and npu's kernels arrange results as the
CPU's: operators outside of upstream's database.

test_ops.py (-k test_fake) goes through the database; test_compiled_layouts.py has what follows for compiled functions.
"""

# ruff: noqa: B023 - functions made in a loop are called in the same round

import unittest

import torch.nn.functional as F
from nn_checks import randn
from op_fake import LAYOUTS, Announced

import torch


def layouts(*tensors):
    """The tensors as they are, then all of them in each layout that fits."""
    yield "as they are", tensors
    for name, change in LAYOUTS.items():
        changed = [t if (other := change(t)) is None else other for t in tensors]
        if any(a is not b for a, b in zip(changed, tensors, strict=True)):
            yield name, changed


def on_npu(t):
    """On npu with the same strides, as a leaf that asks for a gradient where that is possible."""
    storage = torch.as_strided(t.detach(), (t.untyped_storage().nbytes() // t.itemsize,), (1,), 0).npu()
    moved = torch.as_strided(storage, t.size(), t.stride(), t.storage_offset())
    return moved.detach().requires_grad_(t.is_floating_point() or t.is_complex())


def gradients(result):
    results = [r for r in (result if isinstance(result, (tuple, list)) else [result]) if isinstance(r, torch.Tensor)]
    results = [r for r in results if r.requires_grad]
    if results:
        torch.autograd.backward(results, [torch.ones_like(r) for r in results])


class TestAnnouncements(unittest.TestCase):
    def as_announced(self, function, *tensors, cpu_too=False):
        """Operators of ``function`` in forward and backward, for every layout of the tensors; with ``cpu_too`` the
        results lie as the CPU's."""
        for name, given in layouts(*tensors):
            moved = [on_npu(t) for t in given]
            for t, m in zip(given, moved, strict=True):
                self.assertEqual(t.stride(), m.stride())
            with Announced() as mode:
                result = function(*moved)
                gradients(result)
            with self.subTest(name, strides=[t.stride() for t in given]):
                self.assertEqual(mode.differ, [])
                self.assertGreater(mode.compared, 0)
                if cpu_too:
                    expected = function(*(t.detach() for t in given))
                    self.assertEqual(result.stride(), expected.stride())
                    self.assertEqual(result.dtype, expected.dtype)

    def test_a_wrong_announcement_is_found(self):
        library = torch.library.Library("announced", "FRAGMENT")
        library.define("turned(Tensor x) -> Tensor")
        library.impl("turned", lambda x: x.t().contiguous().t(), "PrivateUse1")
        library.impl("turned", torch.empty_like, "Meta")
        with Announced() as mode:
            torch.ops.announced.turned(torch.ones(2, 3, device="npu"))
        self.assertEqual([op for op, _ in mode.differ], ["announced.turned.default"] * 2)
        self.assertIn("announced float32[2, 3] strides [3, 1], is float32[2, 3] strides [1, 2]", mode.differ[0][1])

    def test_convolutions(self):
        for rank, conv, transposed in (
            (1, F.conv1d, F.conv_transpose1d),
            (2, F.conv2d, F.conv_transpose2d),
            (3, F.conv3d, F.conv_transpose3d),
        ):
            x, w, b = randn(2, 4, *(6,) * rank), randn(6, 4, *(3,) * rank), randn(6)
            pixel, point = randn(2, 4, *(1,) * rank), randn(6, 4, *(1,) * rank)
            for dtype in (torch.float32, torch.float64, torch.float16):
                given = [t.detach().to(dtype) for t in (x, w, b)]
                self.as_announced(conv, *given)
                self.as_announced(lambda x, w: conv(x, w, stride=2, padding=1), *given[:2])
                self.as_announced(lambda x, w: transposed(x, w.transpose(0, 1).contiguous(), stride=2), *given[:2])
                self.as_announced(lambda x, w: transposed(x, w.transpose(0, 1)), *given[:2])
            self.as_announced(conv, x[0].detach(), w.detach())
            self.as_announced(conv, pixel.detach(), point.detach())
            self.as_announced(lambda x, w: conv(x, w, groups=4), x.detach(), randn(8, 1, *(3,) * rank).detach())
            self.as_announced(lambda x, w: conv(x, w, padding=1), x[:0].detach(), w.detach())
            with self.subTest("one side only", rank=rank), Announced() as mode:
                w_last = on_npu(LAYOUTS["channels last" if rank > 1 else "turned"](w.detach()))
                gradients(conv(on_npu(x.detach()), w_last))
                self.assertEqual(mode.differ, [])

    def test_convolutions_by_name(self):
        x, w, b = randn(2, 4, 6, 6).detach(), randn(6, 4, 3, 3).detach(), randn(6).detach()
        aten = torch.ops.aten
        self.as_announced(lambda x, w, b: aten._slow_conv2d_forward(x, w, (3, 3), b, (1, 1), (0, 0)), x, w, b)
        self.as_announced(lambda x, w, b: aten.slow_conv_dilated2d(x, w, (3, 3), b), x, w, b)
        volume, filters = randn(2, 4, 5, 5, 5).detach(), randn(6, 4, 3, 3, 3).detach()
        self.as_announced(lambda x, w, b: aten.slow_conv3d(x, w, (3, 3, 3), b), volume, filters, b)
        self.as_announced(lambda x, w: F.conv3d(x, w, groups=4), volume, randn(4, 1, 3, 3, 3).detach())

    def test_normalisation(self):
        for sizes in ((2, 6, 4, 5), (2, 6, 3, 4, 5), (2, 6, 7), (2, 6, 1, 1)):
            x, w, b = randn(*sizes).detach(), randn(6).detach(), randn(6).detach()
            pixels = x.numel() // 12
            self.as_announced(lambda x, w, b: torch.native_group_norm(x, w, b, 2, 6, pixels, 3, 1e-5)[0], x, w, b)
            self.as_announced(lambda x, w, b: F.group_norm(x, 3, w, b), x, w, b)
            self.as_announced(lambda x, w, b: F.batch_norm(x, b.detach(), w.detach().square(), w, b), x, w, b)
            self.as_announced(lambda x, w, b: F.instance_norm(x, weight=w, bias=b) if pixels > 1 else x + 1, x, w, b)
            self.as_announced(lambda x: F.layer_norm(x, x.shape[1:]), x)
            for dtype in (torch.float16, torch.bfloat16):
                half = x.to(dtype)
                for parameters in ((w, b), (w.to(dtype), b.to(dtype))):
                    self.as_announced(
                        lambda x, w, b: F.batch_norm(x, b.detach().clone(), w.detach().clone(), w, b, True),
                        half,
                        *parameters,
                    )
                    self.as_announced(lambda x, w, b: F.batch_norm(x, b.detach(), w.detach(), w, b), half, *parameters)
                    self.as_announced(lambda x, w, b: F.group_norm(x, 3, w, b), half, *parameters)
                    self.as_announced(lambda x, w, b: F.layer_norm(x.transpose(1, -1), (6,), w, b), half, *parameters)

    def test_rearrangements(self):
        x = randn(2, 8, 4, 6).detach()
        mask = x > 0
        for name, function in {
            "pixel_shuffle": lambda x: F.pixel_shuffle(x, 2),
            "pixel_unshuffle": lambda x: F.pixel_unshuffle(x, 2),
            "channel_shuffle": lambda x: F.channel_shuffle(x, 2),
            "flip": lambda x: x.flip(1, 3),
            "fliplr": torch.fliplr,
            "flipud": torch.flipud,
            "rot90": lambda x: torch.rot90(x, 1, (2, 3)),
            "roll": lambda x: x.roll((1, 2), (0, 3)),
            "roll of one": lambda x: x.roll(2, 1),
            "roll of all": lambda x: x.roll(5),
            "roll of nothing": lambda x: x.roll((0, 8), (0, 1)),
            "masked_fill": lambda x: x.masked_fill(mask.to(x.device), 1.0),
            "view_copy": lambda x: torch.view_copy(x, (2, 8, 24)),
        }.items():
            with self.subTest(name):
                self.as_announced(function, x, cpu_too=True)
        self.as_announced(lambda x: F.pixel_shuffle(x, 2), randn(8, 4, 6).detach(), cpu_too=True)
        self.as_announced(lambda x: F.pixel_shuffle(x, 2), randn(2, 3, 8, 4, 6).detach())

    def test_indices(self):
        x = randn(4, 5, 3, 6).detach()
        i = torch.tensor([2, 0, 1])
        for name, function in {
            "first": lambda x: x[i.to(x.device)],
            "second": lambda x: x[:, i.to(x.device)],
            "two": lambda x: x[i.to(x.device), i.to(x.device)],
            "apart": lambda x: x[i.to(x.device), :, i.to(x.device)],
            "last": lambda x: x[..., i.to(x.device)],
            "matrix": lambda x: x[:, i.view(3, 1).to(x.device), i.to(x.device)],
            "select": lambda x: x.index_select(2, i.to(x.device)),
            "gather": lambda x: x.gather(1, torch.zeros(4, 2, 3, 6, dtype=torch.int64, device=x.device)),
            "add": lambda x: x.index_add(1, i.to(x.device), x[:, :3]),
            "fill": lambda x: x.index_fill(1, i.to(x.device), 2.0),
            "copy": lambda x: x.index_copy(1, i.to(x.device), x[:, :3]),
            "put": lambda x: x.index_put((i.to(x.device),), x[:3]),
            "take": lambda x: x.take(i.to(x.device)),
        }.items():
            with self.subTest(name):
                self.as_announced(function, x, cpu_too=True)

    def test_complex_numbers(self):
        for sizes in ((3, 4), (2, 3, 4, 5)):
            x, y = randn(*sizes).detach(), randn(*sizes, seed=3).detach()
            for function in (torch.complex, torch.polar):
                self.as_announced(function, x, y, cpu_too=True)
                self.as_announced(lambda x: function(x, x[:1]), x, cpu_too=True)
            z = torch.complex(x, y)
            self.as_announced(torch.angle, z)  # the CPU's result is contiguous
            for function in (torch.abs, torch.real, torch.conj_physical, torch.sgn, torch.view_as_real):
                self.as_announced(function, z, cpu_too=True)

    def test_losses(self):
        x, y = randn(3, 4, 5, 6).detach(), randn(3, 4, 5, 6, seed=3).detach()
        p = x.sigmoid()
        for reduction in ("none", "mean", "sum"):
            for function in (F.mse_loss, F.l1_loss, F.smooth_l1_loss, F.huber_loss, F.soft_margin_loss):
                self.as_announced(lambda x, y: function(x, y.detach(), reduction=reduction), x, y, cpu_too=True)
                self.as_announced(lambda x: function(x, y.to(x.device), reduction=reduction), x, cpu_too=True)
            self.as_announced(lambda p: F.binary_cross_entropy(p, p.detach(), reduction=reduction), p, cpu_too=True)
            self.as_announced(lambda x: F.binary_cross_entropy(x, p.to(x.device), reduction=reduction), p, cpu_too=True)
            self.as_announced(
                lambda x, y: F.binary_cross_entropy_with_logits(x, y.sigmoid(), reduction=reduction), x, y
            )
            self.as_announced(lambda x, y: F.kl_div(x, y, reduction=reduction), x, y)
            target = torch.randint(4, (3, 5, 6))
            self.as_announced(lambda x: F.cross_entropy(x, target.to(x.device), reduction=reduction), x)
            self.as_announced(lambda x: F.multi_margin_loss(x, target[:, 0, 0].to(x.device)), x[:, :, 0, 0])

    def test_fourier_transforms(self):
        x = randn(3, 4, 6).detach()
        z = torch.complex(x, x.cos())
        for norm in (None, "ortho", "forward"):
            for name in ("fft", "ifft", "fft2", "ifft2", "fftn", "ifftn", "hfft", "irfft", "irfft2", "irfftn", "hfft2"):
                self.as_announced(lambda z: getattr(torch.fft, name)(z, norm=norm), z)
            for name in ("fft", "rfft", "ihfft", "rfft2", "rfftn", "fftn", "ihfft2"):
                self.as_announced(lambda x: getattr(torch.fft, name)(x, norm=norm), x)
        for dim in range(3):
            self.as_announced(lambda x: torch.fft.rfft(x, dim=dim), x)
            self.as_announced(lambda z: torch.fft.fft(z, dim=dim), z)
            self.as_announced(lambda z: torch.fft.irfft(z, dim=dim), z)
        self.as_announced(
            lambda x: torch.stft(x, 4, window=torch.hann_window(4, device=x.device), return_complex=True), x[0]
        )

    def test_linear_algebra(self):
        a = randn(2, 5, 4).detach()
        square = randn(2, 4, 4).detach()
        square = square @ square.mT + 4 * torch.eye(4)
        for function in (
            torch.linalg.svd,
            lambda a: torch.linalg.svd(a, full_matrices=False),
            torch.linalg.svdvals,
            torch.linalg.qr,
            lambda a: torch.svd_lowrank(a, 2),
            lambda a: torch.pca_lowrank(a, 2),
            torch.linalg.pinv,
            lambda a: torch.linalg.lstsq(a, a)[0],
        ):
            self.as_announced(function, a)
        for function in (
            torch.linalg.eig,
            torch.linalg.eigvals,
            torch.linalg.eigh,
            torch.linalg.cholesky,
            torch.linalg.inv,
            torch.linalg.lu,
            torch.linalg.lu_factor,
            torch.linalg.matrix_exp,
            lambda a: torch.linalg.solve(a, a),
            lambda a: torch.linalg.solve_triangular(a, a, upper=True),
            lambda a: torch.cholesky_solve(a, torch.linalg.cholesky(a)),
        ):
            self.as_announced(function, square)
            self.as_announced(function, square.to(torch.complex64))

    def test_operands_of_other_dtypes(self):
        """Upstream converts expanded operands before it computes; their strides count nevertheless."""
        x, row, number = randn(5, 4).detach(), randn(5, 1).detach(), randn(1, 1).detach()
        for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.int64):
            for other in (dtype, torch.float32):
                for name, function in {
                    "mul": torch.mul,
                    "add": torch.add,
                    "where": lambda a, b: torch.where(a > 0, a, b),
                    "maximum": torch.maximum,
                    "pow": torch.pow,
                    "masked_fill": lambda a, b: a.masked_fill(b > 0, 1),
                    "ldexp": torch.ldexp,
                }.items():
                    for turned in (x.to(dtype), x.to(dtype).t().contiguous().t()):
                        for small in (row.expand(5, 4), number.expand(5, 4)):
                            small = small.to(other)[:, :1].expand(5, 4)
                            with self.subTest(
                                name, dtype=dtype, other=other, strides=(turned.stride(), small.stride())
                            ):
                                a, b = on_npu(turned).detach(), on_npu(small).detach()
                                with Announced() as mode:
                                    results = [function(b, a), function(a, b)]
                                self.assertEqual(mode.differ, [])
                                expected = [function(small, turned), function(turned, small)]
                                self.assertEqual([r.stride() for r in results], [e.stride() for e in expected])

    def test_dimensions_of_one_element(self):
        for sizes, strides in (((3, 2, 1, 2), (4, 1, 2, 2)), ((3, 2, 1, 1), (2, 1, 1, 6)), ((1, 4, 1), (9, 1, 7))):
            x = torch.ones(12).as_strided(sizes, strides)
            for name in ("abs", "neg", "exp", "isfinite", "sgn", "clone", "logical_not"):
                self.as_announced(getattr(torch, name), x, cpu_too=True)
            self.as_announced(lambda x: x.flip(-1), x, cpu_too=True)
            self.as_announced(lambda x: x.half().float(), x, cpu_too=True)

    def test_conjugates(self):
        """Operators that take conjugates as they are."""
        a, b = torch.complex(randn(3, 3), randn(3, 3, seed=5)), torch.complex(randn(3, 4), randn(3, 4, seed=6))
        a, b = (a + 4 * torch.eye(3)).detach(), b.detach()
        for turn in (lambda t: t, torch.conj, torch.t, torch.adjoint):
            for upper in (False, True):
                self.as_announced(lambda a, b: torch.linalg.solve_triangular(turn(a), b, upper=upper), a, b)
                self.as_announced(
                    lambda a, b: torch.linalg.solve_triangular(turn(a), b.mH, upper=upper, left=False), a, b
                )
        pivots = torch.tensor([1, 2, 3], dtype=torch.int32)
        for adjoint in (False, True):
            self.as_announced(lambda a, b: torch.linalg.lu_solve(a, pivots.npu(), b, adjoint=adjoint), a, b)
            self.as_announced(
                lambda a, b: torch.linalg.lu_solve(a, pivots.npu(), b.mT, adjoint=adjoint, left=False), a, b
            )
        for function in (torch.dot, torch.vdot):
            for x in (torch.conj, torch.clone):
                for y in (torch.conj, torch.clone):
                    self.as_announced(lambda a, b: function(x(a[0]), y(b[1, :3])), a, b)

    def test_dropout(self):
        for train in (True, False):
            for name, given in layouts(randn(4, 6, 2, 8).detach()):
                with self.subTest(name, train=train):
                    expected = F.dropout(given[0], 0.5, train)
                    with Announced() as mode:
                        result = F.dropout(on_npu(given[0]), 0.5, train)
                        gradients(result)
                    self.assertEqual((result.stride(), mode.differ), (expected.stride(), []))

    def test_images_of_one_pixel_or_channel(self):
        """Both contiguous and channels-last: what the strides say decides, as on the CPU."""
        last = torch.channels_last
        for sizes in ((2, 3, 1, 1), (2, 1, 4, 4), (1, 3, 4, 4), (1, 1, 1, 1)):
            weight = randn(5, sizes[1], 1, 1).detach()
            plain = randn(*sizes).detach()
            for x in (plain, plain.contiguous(memory_format=last), plain.clone(memory_format=last)):
                for name, function in {
                    "copy": lambda x: x.clone(),
                    "made": torch.empty_like,
                    "format": lambda x: x.contiguous(memory_format=last),
                    "other format": lambda x: x.contiguous().to(memory_format=last),
                    "sum": lambda x: x + 1,
                    "product": lambda x: x * 2.0,
                    "compared": lambda x: x > 0,
                    "power": lambda x: x**3,
                    "sum of two": lambda x: x + x,
                    "one below": lambda x: 1 - x,
                    "relu": F.relu,
                    "pool": lambda x: F.max_pool2d(x, 1),
                    "mean pool": lambda x: F.avg_pool2d(x, 1),
                    "adaptive pool": lambda x: F.adaptive_avg_pool2d(x, 1),
                    "convolution": lambda x: F.conv2d(x, weight.to(x.device)),
                    "convolution in rows": lambda x: F.conv2d(x, weight.to(x.device).to(memory_format=last)),
                    "wider": lambda x: F.interpolate(x, scale_factor=2),
                    "group norm": lambda x: F.group_norm(x, 1) if x.numel() > 1 else x + 1,
                    "batch norm": lambda x: F.batch_norm(
                        x, torch.zeros(sizes[1]).to(x.device), torch.ones(sizes[1]).to(x.device)
                    ),
                    "softmax": lambda x: x.softmax(1),
                    "dropout": lambda x: F.dropout(x, 0.5),
                    "dropped gradient": lambda x: torch.ops.aten.native_dropout_backward(x, x > 9, 2.0),
                }.items():
                    with self.subTest(name, strides=x.stride(), sizes=sizes):
                        given = on_npu(x)
                        self.assertEqual(given.stride(), x.stride())
                        with Announced() as mode:
                            result = function(given)
                        self.assertEqual(mode.differ, [])
                        if name != "batch norm":  # keeps the strides where the CPU's makes them contiguous
                            self.assertEqual(result.stride(), function(x).stride())


if __name__ == "__main__":
    unittest.main()
