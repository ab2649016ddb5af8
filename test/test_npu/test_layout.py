"""The device stores images channels-last behind the host's back: no view, copy or partial write may show it."""

# ruff: noqa: B023 - functions made in a loop are called in the same round

import gc
import unittest

import several_devices  # noqa: F401
import torch.nn.functional as F
from nn_checks import randn, relative_error

import torch


class TestChannelsLast(unittest.TestCase):
    """What is channels-last on the host stays so where it does on the CPU, with the same values."""

    def same(self, fn, *operands, gradient_too=True):
        results = []
        for device in ("cpu", "npu"):
            given = [t.detach().to(device).requires_grad_(t.requires_grad) for t in operands]
            result = fn(*given)
            leaves = [t for t in given if t.requires_grad]
            weights = torch.arange(result.numel()).cos().reshape(result.shape).to(device)
            gradients = torch.autograd.grad((result * weights).sum(), leaves) if leaves else ()
            results.append([result, *gradients])
        (expected, *wanted), (actual, *gradients) = results
        self.assertEqual(actual.stride(), expected.stride())
        self.assertLess(relative_error(actual, expected), 1e-5)
        for got, want in zip(gradients, wanted, strict=True):
            self.assertLess(relative_error(got, want), 1e-5)
        if gradients and gradient_too:
            self.assertEqual(gradients[0].stride(), wanted[0].stride())

    def test_networks(self):
        for rank, last in ((2, torch.channels_last), (3, torch.channels_last_3d)):
            image = (6,) * rank
            x, w = randn(2, 8, *image), randn(4, 8, *(3,) * rank)
            x_last = x.detach().contiguous(memory_format=last).requires_grad_()
            w_last = w.detach().contiguous(memory_format=last).requires_grad_()
            conv = F.conv2d if rank == 2 else F.conv3d
            for a, b in ((x_last, w), (x, w_last), (x_last, w_last), (x, w)):
                with self.subTest(rank, strides=(a.stride(), b.stride())):
                    self.same(lambda x, w: conv(x, w), a, b)
            with self.subTest("batch norm", rank=rank):
                self.same(lambda x, g, b: F.batch_norm(x, None, None, g, b, True), x_last, randn(8), randn(8, seed=3))
                self.same(
                    lambda x, m, v: F.batch_norm(x, m, v), x_last, randn(8, grad=False), randn(8, grad=False).exp()
                )
            with self.subTest("group norm", rank=rank):
                # Upstream's derivative makes the gradient contiguous, but for CPU and XPU.
                self.same(
                    lambda x, g, b: F.group_norm(x, 2, g, b), x_last, randn(8), randn(8, seed=3), gradient_too=False
                )
            with self.subTest("block", rank=rank):
                pool = F.max_pool2d if rank == 2 else F.max_pool3d
                self.same(lambda x, w: pool(F.relu(F.batch_norm(conv(x, w), None, None, training=True)), 2), x_last, w)

    def test_convolutions(self):
        """Products of matrices, filters that are turned, groups, and each with a bias."""
        cases = [
            ((3, 64, 12, 10), (48, 64, 1, 1), {}),
            ((3, 64, 12, 10), (48, 64, 1, 1), {"stride": 2}),
            ((3, 64, 12, 10), (48, 64, 1, 1), {"padding": 1}),
            ((2, 64, 9, 7), (80, 64, 3, 3), {"padding": 1}),
            ((2, 3, 20, 20), (16, 3, 7, 7), {"stride": 2, "padding": 3}),
            ((2, 96, 9, 12), (24, 96, 3, 5), {"stride": (2, 1), "padding": (0, 2), "dilation": (1, 2)}),
            ((2, 32, 8, 8), (32, 1, 3, 3), {"groups": 32, "padding": 1}),
            ((2, 32, 8, 8), (64, 8, 1, 1), {"groups": 4}),
            ((2, 32, 1, 1), (8, 32, 1, 1), {}),
            ((2, 1, 6, 6), (8, 1, 3, 3), {}),
        ]
        last = torch.channels_last
        for x_sizes, w_sizes, options in cases:
            x = randn(*x_sizes).detach().contiguous(memory_format=last).requires_grad_()
            w = randn(*w_sizes, seed=3).detach().contiguous(memory_format=last).requires_grad_()
            for bias in (None, randn(w_sizes[0])):
                operands = [x, w] if bias is None else [x, w, bias]
                with self.subTest(x=x_sizes, w=w_sizes, bias=bias is not None, **options):
                    self.same(lambda x, w, b=None: F.conv2d(x, w, b, **options), *operands)
                    double = [t.detach().double().requires_grad_() for t in operands]
                    self.same(lambda x, w, b=None: F.conv2d(x, w, b, **options), *double)
        for dtype, tolerance in ((torch.float16, 2e-3), (torch.bfloat16, 1e-2)):
            for kernel in (1, 3):
                x, w = randn(2, 64, 8, 8).to(dtype), randn(32, 64, kernel, kernel).to(dtype)
                x, w = (t.detach().contiguous(memory_format=last) for t in (x, w))
                exact = F.conv2d(x.double(), w.double())
                self.assertLess(relative_error(F.conv2d(x.npu(), w.npu()), exact), tolerance)

    def test_a_step_copies_no_image(self):
        """Of a network in channels_last memory only the filters of windows are rearranged, forwards and backwards."""
        torch.manual_seed(0)
        layers = torch.nn.Sequential(
            torch.nn.Conv2d(64, 64, 3, padding=1, bias=False),
            torch.nn.BatchNorm2d(64),
            torch.nn.ReLU(),
            torch.nn.Conv2d(64, 32, 1, bias=False),
        )
        layers = layers.npu().to(memory_format=torch.channels_last)
        x = torch.randn(4, 64, 14, 14).npu().contiguous(memory_format=torch.channels_last).requires_grad_()
        if torch._C._npu_simulatorCounters(0) is None:
            self.skipTest("only the simulated device counts what it launches")

        def counted(fn):
            torch.npu.synchronize()
            before = torch._C._npu_simulatorCounters(0)
            result = fn()
            torch.npu.synchronize()
            after = torch._C._npu_simulatorCounters(0)
            return result, after["ops_launched"] - before["ops_launched"]

        y, ops = counted(lambda: layers(x))
        # The filter, four layers, and the count of batches.
        self.assertEqual(ops, 6)
        seed = torch.ones_like(y)
        _, ops = counted(lambda: torch.autograd.grad(y, [x, *layers.parameters()], seed))
        # 3 x 3: the filter, two gradients, the gradient of the filter; 1 x 1: two gradients; and one for each other.
        self.assertEqual(ops, 4 + 2 + 2)

    def test_images_and_filters_change_their_format(self):
        """Large enough for the device to keep the memory as it is: views and writes see what they should."""
        for sizes in ((6, 40, 16, 12), (5, 64, 9, 7)):
            x = torch.arange(6.0 * 40 * 16 * 12)[: torch.Size(sizes).numel()].reshape(sizes)
            last = x.npu().contiguous(memory_format=torch.channels_last)
            plain = last.contiguous()
            self.assertTrue(last.is_contiguous(memory_format=torch.channels_last))
            self.assertTrue(plain.is_contiguous())
            self.assertTrue(torch.equal(plain.cpu(), x))
            self.assertTrue(torch.equal(last.cpu(), x))
            self.assertTrue(torch.equal(plain.flatten(1).cpu(), x.flatten(1)))
            self.assertTrue(torch.equal(plain[2:4, 3].cpu(), x[2:4, 3]))
            self.assertTrue(torch.equal((plain + last).cpu(), 2 * x))
            self.assertTrue(torch.equal(plain.contiguous(memory_format=torch.channels_last).cpu(), x))
            plain[1, 2:5] = -1.0
            expected = x.clone()
            expected[1, 2:5] = -1.0
            self.assertTrue(torch.equal(plain.cpu(), expected))
            last.copy_(plain)
            self.assertTrue(torch.equal(last.cpu(), expected))
            plain.copy_(last.neg())
            self.assertTrue(torch.equal(plain.cpu(), -expected))

    def test_batch_norm_of_other_dense_and_strided_images(self):
        base = randn(4, 6, 10, 8, grad=False)
        last = torch.channels_last
        for name, x in {
            "turned": base.transpose(2, 3),
            "sliced": base.contiguous(memory_format=last)[:, :, ::2],
            "some channels": base.contiguous(memory_format=last)[:, 1:5],
            "one channel": base.contiguous(memory_format=last)[:, :1],
        }.items():
            with self.subTest(name):
                c = x.shape[1]
                result = F.batch_norm(x.npu(), None, None, torch.ones(c).npu(), torch.zeros(c).npu(), True)
                self.assertLess(relative_error(result, F.batch_norm(x, None, None, training=True)), 1e-5)

    def test_dropout(self):
        for x in (
            torch.randn(2, 3, 4, 5).contiguous(memory_format=torch.channels_last),
            torch.randn(2, 3, 4, 5).transpose(1, 3),
            torch.randn(6, 10)[:, ::2],
        ):
            with self.subTest(strides=x.stride()):
                given = x.npu().requires_grad_()
                result = F.dropout(given, 0.5)
                self.assertEqual(result.stride(), F.dropout(x, 0.5).stride())
                kept = result != 0
                self.assertTrue(torch.equal(result, torch.where(kept, 2 * given, 0)))
                (gradient,) = torch.autograd.grad(result.sum(), given)
                self.assertTrue(torch.equal(gradient, 2.0 * kept))


class TestStoredChannelsLast(unittest.TestCase):
    """Every test starts from the result of a convolution, which the device keeps channels-last."""

    def setUp(self):
        self.x, self.w = randn(6, 96, 9, 7, grad=False), randn(40, 96, 3, 3, grad=False)
        self.want = F.conv2d(self.x, self.w, padding=1)
        self.got = F.conv2d(self.x.npu(), self.w.npu(), padding=1)

    def same(self, fn, tolerance=2e-6):
        want, got = self.want.clone(), self.got.clone()
        for value, reference in ((fn(got), fn(want)), (got, want)):
            if isinstance(reference, torch.Tensor):
                self.assertEqual(tuple(value.shape), tuple(reference.shape))
                self.assertEqual(value.stride(), reference.stride())
                self.assertLess(relative_error(value, reference), tolerance)

    def test_the_host_sees_contiguous(self):
        self.assertTrue(self.got.is_contiguous())
        self.same(lambda y: y)

    def test_views(self):
        views = {
            "sample": lambda y: y[3],
            "samples": lambda y: y[2:5],
            "channel": lambda y: y[:, 5],
            "channels": lambda y: y[:, 3:9],
            "rows": lambda y: y[:, :, 2:4],
            "flat": lambda y: y.view(6, -1),
            "one": lambda y: y[2, 7, 3, 1],
            "permuted": lambda y: y.permute(0, 2, 3, 1).contiguous(),
            "transposed": lambda y: y.transpose(0, 1).contiguous(),
            "every second": lambda y: y[::2, ::3].contiguous(),
            "groups": lambda y: y.view(6, 4, 10, 9, 7).transpose(1, 2).contiguous(),
            "strided": lambda y: torch.as_strided(y, (5, 11), (60, 3), 100).contiguous(),
            "tail": lambda y: y.flatten()[1000:].clone(),
            "bits": lambda y: y.view(torch.int32).clone(),
            "channels last": lambda y: y.contiguous(memory_format=torch.channels_last).contiguous(),
        }
        for name, view in views.items():
            with self.subTest(name):
                self.same(view)

    def test_partial_writes(self):
        writes = {
            "sample": lambda y: y[3].zero_(),
            "samples": lambda y: y[1:3].fill_(2),
            "channel": lambda y: y[:, 5].zero_(),
            "rows": lambda y: y[:, :, 2:4].add_(1),
            "one": lambda y: y[2, 7, 3].fill_(9),
            "copy in": lambda y: y[4:].copy_(torch.ones(2, 40, 9, 7)),
            "flat": lambda y: y.view(-1)[100:3000].mul_(2),
            "index put": lambda y: y.index_put_(
                (torch.tensor([1, 4], device=y.device),), torch.zeros(40, 9, 7, device=y.device)
            ),
            "masked": lambda y: y.masked_fill_(y > 0, -1),
            "diagonal": lambda y: y[0, 0].fill_diagonal_(5),
            "scatter": lambda y: y.scatter_(1, torch.zeros(6, 1, 9, 7, dtype=torch.int64, device=y.device), 4.0),
        }
        for name, write in writes.items():
            with self.subTest(name):
                self.same(lambda y: (write(y), None)[1])

    def test_in_place_arithmetic(self):
        other = randn(6, 40, 9, 7, grad=False, seed=5)
        row = randn(40, 1, 1, grad=False, seed=6)
        for name, fn in {
            "plain into stored": lambda y: y.add_(other.to(y.device)),
            "stored into plain": lambda y: other.to(y.device).add_(y),
            "broadcast": lambda y: y.mul_(row.to(y.device)),
            "relu": lambda y: y.relu_(),
            "self": lambda y: y.mul_(y),
            "sample of itself": lambda y: y.sub_(y[0].clone()),
            "swap": lambda y: y[:3].copy_(y[3:]),
        }.items():
            with self.subTest(name):
                self.same(fn)

    def test_joining_and_reducing(self):
        for name, fn in {
            "cat": lambda y: torch.cat([y, y[:, :8]], 1),
            "stack": lambda y: torch.stack([y, y]),
            "chunk": lambda y: y.chunk(4, 1)[2] * 2,
            "mean": lambda y: y.mean((2, 3)),
            "sum": lambda y: y.sum(1),
            "max": lambda y: y.amax((0, 3)),
            "softmax": lambda y: y.softmax(1),
            "pad": lambda y: F.pad(y, (1, 2, 0, 1)),
            "matmul": lambda y: y @ y.transpose(2, 3),
            "linear": lambda y: F.linear(y.flatten(1), torch.ones(3, 2520, device=y.device)),
            "pool": lambda y: F.adaptive_avg_pool2d(y, 1),
            "sort": lambda y: y.sort(1).values,
            "flip": lambda y: y.flip(1),
        }.items():
            with self.subTest(name):
                self.same(fn, tolerance=1e-5)

    def test_copies_out_and_in(self):
        self.assertLess(relative_error(self.got.cpu(), self.want), 2e-6)
        self.assertLess(relative_error(self.got[2:4].cpu(), self.want[2:4]), 2e-6)
        self.assertLess(relative_error(self.got[1, 3].cpu(), self.want[1, 3]), 2e-6)
        self.got.copy_(self.x[:, :40])
        self.assertTrue(torch.equal(self.got.cpu(), self.x[:, :40]))

    def test_memory_is_used_again_in_other_shapes(self):
        for step in range(30):
            y = F.conv2d(self.x.npu(), self.w.npu(), padding=1)
            del y
            shape = ((step % 5 + 1) * 7, 13, 11, 9)
            z = torch.arange(float(torch.Size(shape).numel()), device="npu").view(shape)
            part = torch.full((step * 37 + 5,), 3.0, device="npu")
            self.assertEqual(
                z.sum(dtype=torch.float64).item(), torch.arange(float(z.numel())).sum(dtype=torch.float64).item()
            )
            self.assertEqual(part.sum().item(), 3.0 * part.numel())
            del z, part
        gc.collect()
        torch.npu.empty_cache()
        self.same(lambda y: y)

    def test_another_stream_and_device_copy(self):
        stream = torch.npu.Stream()
        stream.wait_stream(torch.npu.current_stream())
        with torch.npu.stream(stream):
            z = self.got * 2
        stream.synchronize()
        self.assertLess(relative_error(z, self.want * 2), 2e-6)
        if torch.npu.device_count() > 1:
            self.assertLess(relative_error(self.got.to("npu:1"), self.want), 2e-6)

    def test_streams_that_share_a_sample(self):
        """A write into one half, on one stream, moves nothing under a read or a write of the other half."""
        x = torch.arange(64.0**3).view(1, 64, 64, 64)
        stored = x.npu().contiguous(memory_format=torch.channels_last)
        pinned = torch.empty(1, 32, 64, 64, pin_memory=True)
        one, other = torch.npu.Stream(), torch.npu.Stream()
        for i in range(90):  # a third of them failed
            y = stored.contiguous()
            torch.npu.synchronize()
            with torch.npu.stream(one):
                y[:, :32].add_(1)
            with torch.npu.stream(other):
                half = y[:, 32:]
                if i % 3 == 0:
                    half = half.clone()
                elif i % 3 == 1:
                    half = pinned.copy_(half, non_blocking=True)
                else:
                    half.mul_(1)
            torch.npu.synchronize()
            self.assertTrue(torch.equal(half.cpu(), x[:, 32:]), i)
            self.assertTrue(torch.equal(y[:, :32].cpu(), x[:, :32] + 1), i)

    def test_other_element_sizes(self):
        y, indices = F.max_pool2d(self.got, 3, 2, return_indices=True)
        want, want_indices = F.max_pool2d(self.want, 3, 2, return_indices=True)
        self.assertTrue(torch.equal(indices.cpu(), want_indices))
        self.assertTrue(torch.equal(indices[2:4, 3].cpu(), want_indices[2:4, 3]))
        half = self.got.half()
        self.assertTrue(torch.equal(half.cpu(), self.got.cpu().half()))
        self.assertTrue(torch.equal((half > 0)[1:3].cpu(), (half.cpu() > 0)[1:3]))


class TestWeights(unittest.TestCase):
    def test_updated_weights_read_as_contiguous(self):
        torch.manual_seed(0)
        cpu = torch.nn.Conv2d(96, 40, 3, padding=1)
        npu = torch.nn.Conv2d(96, 40, 3, padding=1).npu()
        npu.load_state_dict(cpu.state_dict())
        x = randn(6, 96, 9, 7, grad=False)
        steps = [torch.optim.SGD(net.parameters(), 1e-3, momentum=0.9, weight_decay=1e-2) for net in (cpu, npu)]
        for _ in range(3):
            for net, optimizer, value in zip((cpu, npu), steps, (x, x.npu()), strict=True):
                optimizer.zero_grad()
                net(value).square().mean().backward()
                optimizer.step()
            self.assertLess(relative_error(npu.weight, cpu.weight), 1e-6)
            self.assertLess(relative_error(npu.weight.grad, cpu.weight.grad), 1e-5)
            self.assertLess(relative_error(npu.weight[3:5, 7], cpu.weight[3:5, 7]), 1e-6)
            self.assertLess(
                relative_error(
                    steps[1].state[npu.weight]["momentum_buffer"], steps[0].state[cpu.weight]["momentum_buffer"]
                ),
                1e-5,
            )
        npu.load_state_dict(cpu.state_dict())
        self.assertTrue(torch.equal(npu.weight.cpu(), cpu.weight))


if __name__ == "__main__":
    unittest.main()
