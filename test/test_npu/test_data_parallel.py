"""torch.nn.DataParallel over several NPUs of one process: what it computes, where, and what it says when it cannot."""

import collections
import unittest
import warnings

import torch.nn.functional as F
from common_utils import TestCase, run_tests
from torch.nn import parallel
from torch.nn.parallel import comm

import torch
from torch import nn

Pair = collections.namedtuple("Pair", "first second")


class Net(nn.Module):
    """Layers, running statistics, a complex parameter and a keyword argument."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(3, 4)
        self.norm = nn.BatchNorm1d(4, momentum=1.0)
        self.phase = nn.Parameter(torch.tensor([1 + 2j, 2 - 1j, 0.5j, 1.0]))
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x, *, shift=None):
        y = self.norm(self.linear(x)) * self.phase.abs()
        return y if shift is None else y + shift


class Place(nn.Module):
    """Tells what a replica got, and where."""

    def forward(self, *inputs, **kwargs):
        here = torch.npu.current_device()
        for t in torch.utils._pytree.tree_leaves((inputs, kwargs)):
            assert not isinstance(t, torch.Tensor) or t.device == torch.device("npu", here)
        return {"device": torch.full((1,), here, device="npu"), "sizes": inputs[0].new_tensor([len(inputs[0])])}


class Broken(nn.Module):
    def forward(self, x):
        if torch.npu.current_device() == 1:
            raise ValueError("no luck on this device")
        return x


@unittest.skipIf(torch.npu.device_count() < 3, "needs three devices")
class DataParallelTest(TestCase):
    def setUp(self):
        torch.npu.set_device(0)
        self.net = Net().eval()
        self.x = torch.randn(7, 3)

    def test_forward(self):
        expected = self.net(self.x)
        for ids in ([0], [0, 1], [0, 1, 2], [2, 0], [torch.device("npu:1"), torch.device("npu:2")], None):
            net = nn.DataParallel(Net().eval(), device_ids=ids)
            net.to(net.src_device_obj)
            for x in (self.x, self.x.to(net.src_device_obj)):
                with self.subTest(ids=ids, device=x.device):
                    y = net(x)
                    self.assertEqual(y.device, net.src_device_obj)
                    self.assertEqual(y.cpu(), expected)

    def test_backward(self):
        """Gradients, of inputs too, are those of one device; running statistics are of the first one's part."""
        for x in (self.x, self.x.npu()):
            with self.subTest(x.device), warnings.catch_warnings():
                warnings.simplefilter("error", UserWarning)  # none about NCCL
                net, replicated = Net().eval(), nn.DataParallel(Net().eval().npu(), device_ids=[0, 1, 2])
                inputs = [self.x.clone().requires_grad_(), x.clone().requires_grad_()]
                for model, given in zip((net, replicated), inputs, strict=True):
                    F.mse_loss(model(given), torch.ones(7, 4, device=next(model.parameters()).device)).backward()
                self.assertEqual(inputs[1].grad.device, x.device)
                self.assertEqual(inputs[1].grad, inputs[0].grad)
                for (name, mine), other in zip(replicated.module.named_parameters(), net.parameters(), strict=True):
                    self.assertEqual(mine.grad.device, torch.device("npu:0"), name)
                    self.assertEqual(mine.grad, other.grad, name)

    def test_training_keeps_the_first_devices_statistics(self):
        net = nn.DataParallel(Net().npu(), device_ids=[0, 1])
        x = torch.randn(8, 3)
        net(x.npu())
        alone = Net()
        alone(x[:4])
        self.assertEqual(net.module.norm.running_mean, alone.norm.running_mean)
        self.assertEqual(net.module.norm.num_batches_tracked.item(), 1)

    def test_steps(self):
        """An optimizer's steps on the module are those of one device."""
        models = [Net().eval(), nn.DataParallel(Net().eval().npu())]
        for model in models:
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
            for _ in range(3):
                optimizer.zero_grad()
                model(self.x).square().mean().backward()
                optimizer.step()
        self.assertEqual(models[1](self.x), models[0](self.x), prec=1e-4)

    def test_kwargs(self):
        net = nn.DataParallel(self.net.npu(), device_ids=[0, 1])
        shift = torch.randn(7, 4)
        self.assertEqual(net(self.x, shift=shift), Net().eval()(self.x, shift=shift))
        self.assertEqual(net(x=self.x, shift=2.0), Net().eval()(self.x) + 2)

    def test_uneven_batches(self):
        place = nn.DataParallel(Place(), device_ids=[0, 1, 2])
        for n, sizes in ((7, [3, 3, 1]), (4, [2, 2]), (2, [1, 1]), (1, [1])):
            found = place(torch.zeros(n, 2))
            with self.subTest(n):
                self.assertEqual(found["sizes"].tolist(), sizes)
                self.assertEqual(found["device"].tolist(), list(range(len(sizes))))

    def test_order_of_devices(self):
        found = nn.DataParallel(Place(), device_ids=[2, 0, 1])(torch.zeros(5, 2))
        self.assertEqual(found["device"].tolist(), [2, 0, 1])
        self.assertEqual(found["device"].device, torch.device("npu:2"))

    def test_output_device(self):
        for output_device in (1, "npu:1", torch.device("npu:1")):
            net = nn.DataParallel(self.net.npu(), device_ids=[0, 2], output_device=output_device)
            self.assertEqual(net(self.x).device, torch.device("npu:1"))
        y = parallel.data_parallel(self.net, self.x.npu(), [0, 1], output_device=-1)
        self.assertEqual(y.device.type, "cpu")
        self.assertEqual(y, Net().eval()(self.x))

    def test_dim(self):
        net = nn.DataParallel(nn.Identity(), device_ids=[0, 1], dim=1)
        x = torch.randn(3, 5)
        self.assertEqual(net(x), x)

    def test_nests(self):
        x = torch.arange(8.0).view(4, 2)

        class Nest(nn.Module):
            def forward(self, pair, rest, flag):
                return Pair(pair.first + 1, [pair.second, rest["a"]]), None if flag else x

        pair, none = nn.DataParallel(Nest(), device_ids=[0, 1])(Pair(x, x * 2), {"a": x * 3}, True)
        self.assertIsInstance(pair, Pair)
        self.assertEqual((pair.first, *pair.second), (x + 1, x * 2, x * 3))
        self.assertIsNone(none)

    def test_scalars_are_gathered_into_a_vector(self):
        class Loss(nn.Module):
            def forward(self, x):
                return x.mean()

        x = torch.tensor([[1.0], [3.0]], requires_grad=True)
        with self.assertWarnsRegex(UserWarning, "scalars"):
            losses = nn.DataParallel(Loss(), device_ids=[0, 1])(x)
        self.assertEqual(losses.tolist(), [1.0, 3.0])
        losses.sum().backward()
        self.assertEqual(x.grad, torch.ones(2, 1))

    def test_no_grad_and_autocast(self):
        net = nn.DataParallel(nn.Linear(3, 4).npu(), device_ids=[0, 1])
        with torch.no_grad(), torch.autocast("npu", dtype=torch.float16):
            y = net(self.x)
        self.assertEqual((y.dtype, y.requires_grad), (torch.float16, False))

    def test_an_error_in_one_replica(self):
        """It is raised in the caller with its class and the replica; the next call works."""
        with self.assertRaisesRegex(ValueError, "(?s)Caught ValueError in replica 1 on device 1.*no luck"):
            nn.DataParallel(Broken(), device_ids=[0, 1])(self.x)
        with self.assertRaisesRegex(RuntimeError, "(?s)in replica 0 on device 0.*shapes cannot be multiplied"):
            nn.DataParallel(self.net.npu(), device_ids=[0, 1])(torch.randn(4, 5))
        self.assertEqual(nn.DataParallel(self.net, device_ids=[0, 1])(self.x), Net().eval()(self.x))

    def test_a_module_elsewhere(self):
        with self.assertRaisesRegex(RuntimeError, r"on device npu:1 \(device_ids\[0\]\) but found .* npu:0"):
            nn.DataParallel(self.net.npu(), device_ids=[1, 0])(self.x)


@unittest.skipIf(torch.npu.device_count() < 3, "needs three devices")
class CommTest(TestCase):
    """torch.nn.parallel.comm, which torch.npu.comm has too."""

    def setUp(self):
        torch.npu.set_device(0)

    def test_names(self):
        self.assertIs(torch.npu.comm.scatter, comm.scatter)

    def test_broadcast(self):
        for x in (torch.randn(3, 2), torch.randn(3, 2).npu(1)):
            copies = comm.broadcast(x, [1, 2])
            self.assertEqual([c.device.index for c in copies], [1, 2])
            outs = [torch.empty(3, 2, device=f"npu:{i}") for i in range(3)]
            for copy in (*copies, *comm.broadcast(x, out=outs)):
                self.assertEqual(copy, x)
        with self.assertRaisesRegex(RuntimeError, "shape"):
            comm.broadcast(x, out=[torch.empty(2, device="npu")])

    def test_broadcast_coalesced(self):
        tensors = [torch.randn(3), torch.randn(2, 2), torch.arange(5), torch.randn(0, 4), torch.randn(4, 6).t()]
        for buffer_size in (1, 40, 1 << 20):
            for i, copies in enumerate(comm.broadcast_coalesced([t.npu() for t in tensors], [0, 2], buffer_size)):
                for copy, t in zip(copies, tensors, strict=True):
                    self.assertEqual(copy.device.index, (0, 2)[i])
                    self.assertEqual(copy, t)
        # Each has a version of its own.
        copies = comm.broadcast_coalesced([t.npu() for t in tensors], [0, 1])[1]
        copies[0].add_(1)
        self.assertEqual([c._version for c in copies[:2]], [1, 0])

    def test_scatter(self):
        x = torch.arange(10.0).view(5, 2)
        for given in (x, x.npu(2)):
            parts = comm.scatter(given, [1, 0], chunk_sizes=[4, 1])
            self.assertEqual([(len(p), p.device.index) for p in parts], [(4, 1), (1, 0)])
            self.assertEqual(torch.cat([p.cpu() for p in parts]), x)
            stream = torch.Stream("npu:1")
            part, _ = comm.scatter(given, [1, 0], streams=[stream, None])
            torch.npu.current_stream(1).wait_stream(stream)
            self.assertEqual(part, x[:3])
            outs = [torch.empty(5, 1, device=f"npu:{i}") for i in (0, 2)]
            comm.scatter(given, dim=1, out=outs)
            self.assertEqual(outs[1], x[:, 1:])
        with self.assertRaisesRegex(RuntimeError, "chunk_sizes of length 1"):
            comm.scatter(x, [0, 1], chunk_sizes=[5])
        with self.assertRaisesRegex(RuntimeError, "device index 99"):
            comm.scatter(x, [99])

    def test_gather(self):
        x = torch.arange(10.0).view(5, 2)
        parts = [x[:1].npu(1), x[1:].npu(2)]
        for destination in (0, 2, "npu:1", torch.device("cpu"), None):
            y = comm.gather(parts, destination=destination)
            self.assertEqual(y, x)
        out = torch.empty(5, 2)
        self.assertIs(comm.gather(parts, out=out), out)
        self.assertEqual(out, x)
        with self.assertRaisesRegex(RuntimeError, "Expected at least one tensor"):
            comm.gather([])
        with self.assertRaisesRegex(RuntimeError, r"tensor 1 .* shape \[4, 1\]"):
            comm.gather([parts[0], parts[1][:, :1]])
        with self.assertRaisesRegex(RuntimeError, "tensor 1 is on cpu"):
            comm.gather([parts[0], x])

    def test_reduce_add(self):
        x = torch.randn(3)
        self.assertEqual(comm.reduce_add([x.npu(1), x.npu(0), x.npu(2)], 1), x * 3)


if __name__ == "__main__":
    run_tests()
