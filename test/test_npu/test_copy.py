"""Copies: host and device, dtypes, strides, broadcasts, overlap, pinned memory, and factories and views."""

import subprocess
import sys
import unittest

import several_devices  # noqa: F401

import torch
import torch.npu

DEVICE = "npu:0"
DTYPES = (
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int8,
    torch.uint8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.bool,
    torch.complex64,
    torch.complex128,
)


def values(dtype, *sizes):
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(sizes, generator=generator, dtype=torch.float64) * 5
    return (x > 0) if dtype == torch.bool else x.to(dtype)


class CopyTest(unittest.TestCase):
    def same(self, actual, expected, note=""):
        self.assertEqual(actual.dtype, expected.dtype, note)
        torch.testing.assert_close(
            actual.cpu(), expected.cpu(), rtol=0, atol=0, equal_nan=True, msg=lambda m: f"{note}: {m}"
        )

    def test_host_memory_may_change_at_once(self):
        # A small copy right behind a large one: the stream looks idle, but its worker is still on it. Most likely in a
        # process's first moments, hence processes of their own.
        script = (
            "import torch\n"
            "torch.ones(300, 200).npu().sum().cpu()\n"
            "host = torch.full((64,), 0.5)\n"
            "there = host.npu()\n"
            "host.fill_(-1)\n"
            "assert (there.cpu() == 0.5).all()\n"
        )
        for _ in range(4):
            subprocess.run([sys.executable, "-c", script], check=True, timeout=120)

    def test_every_dtype_pair(self):
        for source in DTYPES:
            x = values(source, 3, 4)
            for target in DTYPES:
                note = f"{source} -> {target}"
                expected = x.to(target)
                self.same(x.to(DEVICE).to(target), expected, note)
                self.same(x.to(DEVICE, target), expected, note)
                self.same(x.to(DEVICE).to("cpu", target), expected, note)
                y = torch.empty(3, 4, dtype=target, device=DEVICE)
                self.same(y.copy_(x), expected, note)
                self.same(torch.empty(3, 4, dtype=target).copy_(x.to(DEVICE)), expected, note)

    def test_double_and_long_keep_their_precision(self):
        self.assertEqual(torch.tensor(1 + 1e-12, dtype=torch.float64, device=DEVICE).item(), 1 + 1e-12)
        self.assertEqual(torch.tensor(2**62 + 1, device=DEVICE).item(), 2**62 + 1)

    def test_strides_round_trip(self):
        base = torch.arange(2 * 3 * 4 * 5.0).view(2, 3, 4, 5)
        views = {
            "transposed": base.transpose(1, 3),
            "channels_last": base.contiguous(memory_format=torch.channels_last),
            "sliced": base[:, 1:, ::2],
            "expanded": base[:1].expand(3, 3, 4, 5),
            "offset": base.view(-1)[19:],
            "diagonal": torch.arange(16.0).view(4, 4).diagonal(),
            "scalar": base[0, 0, 0, 0],
            "empty": base[:0],
        }
        for name, x in views.items():
            y = x.to(DEVICE)
            self.same(y, x, name)
            self.assertEqual(y.stride(), x.clone().stride() if name != "expanded" else y.stride(), name)
            # The same view taken on the device, copied back, into a strided target, and broadcast.
            z = torch.as_strided(
                torch.as_strided(x, (x.untyped_storage().nbytes() // 4,), (1,), 0).to(DEVICE),
                x.size(),
                x.stride(),
                x.storage_offset(),
            )
            self.same(z, x, name)
            self.same(z.contiguous(), x, name)
            self.same(z.clone(), x, name)
            self.same(z.double(), x.double(), name)
            target = torch.zeros(*x.shape, 2)
            target[..., 0].copy_(z)
            self.same(target[..., 0], x, name)
            on_device = torch.zeros(*x.shape, 2, device=DEVICE)
            on_device[..., 0].copy_(x)
            self.same(on_device[..., 0], x, name)
            self.assertEqual(on_device[..., 1].abs().sum().item(), 0)
            on_device[..., 1].copy_(z.int())
            self.same(on_device[..., 1], x, name)

    def test_broadcast(self):
        y = torch.zeros(3, 4, device=DEVICE)
        self.same(y.copy_(torch.arange(4.0)), torch.arange(4.0).expand(3, 4))
        self.same(y.copy_(torch.arange(3.0, device=DEVICE).view(3, 1)), torch.arange(3.0).view(3, 1).expand(3, 4))
        with self.assertRaisesRegex(RuntimeError, "expand|must match"):
            y.copy_(torch.zeros(5))

    def test_overlapping(self):
        x = torch.arange(10.0)
        y = x.to(DEVICE)
        y[1:] = y[:-1].clone()
        self.same(y, torch.cat([x[:1], x[:-1]]))
        for device in ("cpu", DEVICE):
            z, m = x.to(device), torch.arange(9.0).view(3, 3).to(device)
            for target, source in ((z[1:], z[:-1]), (m, m.t())):
                before = target.clone()
                with self.assertRaisesRegex(RuntimeError, "single memory location"):
                    target.copy_(source)
                self.same(target, before.cpu())

    def test_between_devices(self):
        if torch.npu.device_count() < 2:
            self.skipTest("one device")
        x = torch.randn(4, 6)
        for view in (x, x.t(), x[:, ::2]):
            y = view.to("npu:0").to("npu:1")
            self.assertEqual(y.device, torch.device("npu:1"))
            self.same(y, view)
            self.same(view.to("npu:1").to("npu:0", torch.float64), view.double())
        target = torch.zeros(6, 4, device="npu:1")
        target.t().copy_(x.to("npu:0"))
        self.same(target.t(), x)

    def test_non_blocking(self):
        for dtype in (torch.float32, torch.int64, torch.complex64):
            x = values(dtype, 64, 65)
            pinned = x.pin_memory()
            for source in (x, pinned, pinned.t(), x[:, ::2]):
                for target in (dtype, torch.float64 if not dtype.is_complex else torch.complex128):
                    y = source.to(DEVICE, target, non_blocking=True)
                    back = y.to("cpu", dtype, non_blocking=True)
                    torch.npu.current_stream().synchronize()
                    self.same(y, source.to(target))
                    self.same(back, source)
        host = torch.empty(64, 65).pin_memory()
        device = torch.randn(64, 65, device=DEVICE)
        host.copy_(device, non_blocking=True)
        torch.npu.synchronize()
        self.same(device, host)

    def test_conj_and_neg(self):
        x = torch.randn(3, 4, dtype=torch.complex64)
        y = x.to(DEVICE)
        self.same(y.conj(), x.conj().resolve_conj())
        self.same(x.conj().to(DEVICE), x.conj().resolve_conj())
        self.same(y.conj().imag, x.conj().imag.resolve_neg())
        target = torch.zeros(3, 4, dtype=torch.complex64, device=DEVICE)
        target.conj().copy_(x)
        self.same(target, x.conj().resolve_conj())

    def test_item_and_tolist(self):
        for dtype in DTYPES:
            x = values(dtype, 5)
            self.assertEqual(x.to(DEVICE).tolist(), x.tolist(), dtype)
            self.assertEqual(x.to(DEVICE)[3].item(), x[3].item(), dtype)
        with self.assertRaisesRegex(RuntimeError, "cannot be converted to Scalar"):
            torch.zeros(2, device=DEVICE).item()
        self.assertEqual([float(t) for t in torch.ones(2, device=DEVICE)], [1.0, 1.0])
        self.assertEqual(torch.tensor([torch.tensor(1.0, device=DEVICE), torch.tensor(2.0)]).tolist(), [1.0, 2.0])

    def test_unsigned(self):
        for dtype in (torch.uint16, torch.uint32, torch.uint64):
            x = torch.arange(6).to(dtype)
            y = x.to(DEVICE)
            self.same(torch.cat([y, y]), torch.cat([x, x]))
            self.same(y[2:].clone(), x[2:])
            self.same(y.view(2, 3).t().contiguous(), x.view(2, 3).t())


class FactoryTest(unittest.TestCase):
    def same(self, actual, expected, note=""):
        self.assertEqual(actual.device.type, "npu", note)
        self.assertEqual(actual.dtype, expected.dtype, note)
        torch.testing.assert_close(actual.cpu(), expected, msg=lambda m: f"{note}: {m}")

    def test_factories(self):
        for make in (
            lambda **k: torch.zeros(3, 4, **k),
            lambda **k: torch.ones(3, 4, dtype=torch.int32, **k),
            lambda **k: torch.full((2, 3), 2.5, **k),
            lambda **k: torch.full((2,), True, **k),
            lambda **k: torch.arange(10, **k),
            lambda **k: torch.arange(0, 1, 0.1, **k),
            lambda **k: torch.arange(5, 0, -2, **k),
            lambda **k: torch.arange(2.0, 9.0, dtype=torch.float16, **k),
            lambda **k: torch.linspace(0, 1, 11, **k),
            lambda **k: torch.linspace(-3, 5, 7, dtype=torch.float64, **k),
            lambda **k: torch.linspace(0, 10, 5, dtype=torch.int64, **k),
            lambda **k: torch.logspace(0, 3, 4, **k),
            lambda **k: torch.eye(4, **k),
            lambda **k: torch.eye(3, 5, dtype=torch.int64, **k),
            lambda **k: torch.tril_indices(4, 3, **k),
            lambda **k: torch.triu_indices(4, 5, 1, **k),
            lambda **k: torch.tensor([[1, 2], [3, 4]], **k),
            lambda **k: torch.scalar_tensor(3.5, **k),
            lambda **k: torch.arange(0, **k),
            lambda **k: torch.linspace(1, 2, 1, **k),
        ):
            self.same(make(device=DEVICE), make())
        like = torch.ones(2, 3, 4, 5, device=DEVICE).contiguous(memory_format=torch.channels_last)
        self.assertEqual(torch.zeros_like(like).stride(), like.stride())
        self.assertEqual(
            torch.empty(2, 3, 4, 5, device=DEVICE, memory_format=torch.channels_last).stride(), like.stride()
        )
        self.assertEqual(torch.empty(3, device="npu").device, torch.device("npu", torch.npu.current_device()))
        with self.assertRaisesRegex(RuntimeError, "negative dimension"):
            torch.empty(-1, device=DEVICE)

    def test_fill(self):
        x = torch.zeros(4, 6, device=DEVICE)
        x[:, ::2].fill_(3)
        y = torch.zeros(4, 6)
        y[:, ::2].fill_(3)
        self.same(x, y)
        self.same(x.t().fill_(torch.tensor(2.0, device=DEVICE)), torch.full((6, 4), 2.0))
        self.same(x.zero_(), torch.zeros(4, 6))
        with self.assertRaises(RuntimeError):
            x.fill_(torch.ones(2))

    def test_views_alias(self):
        x = torch.arange(24.0, device=DEVICE)
        view = x.view(2, 3, 4)
        for alias in (
            view,
            view.permute(2, 0, 1),
            view[:, 1],
            view.unfold(2, 2, 1),
            x.as_strided((3, 2), (4, 1), 5),
            view.unsqueeze(0).squeeze(),
        ):
            self.assertEqual(alias.untyped_storage().data_ptr(), x.untyped_storage().data_ptr())
        view[1, 2, 3] = 100
        self.assertEqual(x[-1].item(), 100)
        with self.assertRaisesRegex(RuntimeError, "invalid for input of size"):
            x.view(5, 5)

    def test_resize_and_set(self):
        x = torch.arange(6.0, device=DEVICE)
        x.resize_(2, 2)
        self.same(x, torch.arange(4.0).view(2, 2))
        x.resize_(10)
        self.same(x[:6], torch.arange(6.0))
        y = torch.empty(0, device=DEVICE)
        y.set_(x.untyped_storage(), 2, (2, 2), (2, 1))
        self.same(y, torch.tensor([[2.0, 3], [4, 5]]))
        y.set_(x)
        self.assertTrue(y.is_set_to(x))
        y.set_()
        self.assertEqual(y.numel(), 0)
        storage = torch.arange(4.0, device=DEVICE).untyped_storage()
        storage.resize_(64)
        self.assertEqual(storage.nbytes(), 64)

    def test_cat_stack(self):
        a, b = torch.randn(2, 3), torch.randn(2, 3)
        c, d = a.to(DEVICE), b.to(DEVICE)
        for dim in (0, 1, -1):
            self.same(torch.cat([c, d], dim), torch.cat([a, b], dim))
            self.same(torch.stack([c, d], dim), torch.stack([a, b], dim))
        self.same(torch.cat([c, d.long()]), torch.cat([a, b.long()]))
        self.same(torch.cat([torch.empty(0, device=DEVICE), d]), b)
        self.same(torch.cat([c.t(), d.t()], 1), torch.cat([a.t(), b.t()], 1))
        images = [torch.randn(2, 3, 4, 5).contiguous(memory_format=torch.channels_last) for _ in range(3)]
        result = torch.cat([i.to(DEVICE) for i in images], 1)
        self.same(result, torch.cat(images, 1))
        self.assertEqual(result.stride(), torch.cat(images, 1).stride())
        out = torch.empty(4, 3, device=DEVICE)
        self.assertIs(torch.cat([c, d], out=out), out)
        self.same(out, torch.cat([a, b]))
        with self.assertRaisesRegex(RuntimeError, "same device"):
            torch.cat([c, b])
        with self.assertRaisesRegex(RuntimeError, "Sizes of tensors must match"):
            torch.cat([c, torch.zeros(2, 4, device=DEVICE)])

    def test_rearrange(self):
        x = torch.randn(3, 4, 5)
        y = x.to(DEVICE)
        self.same(y.flip(0, 2), x.flip(0, 2))
        self.same(y.roll(2, 1), x.roll(2, 1))
        self.same(y.roll(7), x.roll(7))
        self.same(y.repeat(2, 1, 3), x.repeat(2, 1, 3))
        self.same(y.repeat_interleave(2, 1), x.repeat_interleave(2, 1))
        self.same(
            y.repeat_interleave(torch.tensor([1, 0, 2], device=DEVICE), 0),
            x.repeat_interleave(torch.tensor([1, 0, 2]), 0),
        )
        self.same(torch.tril(y, 1), torch.tril(x, 1))
        self.same(torch.triu(y, -1), torch.triu(x, -1))
        self.same(torch.nn.functional.pad(y, (1, 2, 0, 1), value=3), torch.nn.functional.pad(x, (1, 2, 0, 1), value=3))
        self.same(torch.cartesian_prod(y[0, 0], y[0, 1]), torch.cartesian_prod(x[0, 0], x[0, 1]))
        self.same(torch.block_diag(y[0], y[1]), torch.block_diag(x[0], x[1]))


if __name__ == "__main__":
    unittest.main()
