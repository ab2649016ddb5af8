"""Training on several ranks: DistributedDataParallel gives what one device gives, and its options work."""

import unittest
from functools import partial

import ranks
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import torch
from torch import nn

STEPS, BATCH = 10, 24


def make_net(norm=False):
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 8, 3, padding=1), *([nn.BatchNorm2d(8)] if norm else []), nn.ReLU(), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(8 * 64, 32), nn.Tanh(), nn.Linear(32, 10))


def batches():
    generator = torch.Generator().manual_seed(1)
    for _ in range(STEPS):
        yield torch.randn(BATCH, 3, 8, 8, generator=generator), torch.randint(10, (BATCH,), generator=generator)


def losses(net, share=slice(None), device="npu", hook=None):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    values = []
    for images, labels in batches():
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(images[share].to(device)), labels[share].to(device))
        loss.backward()
        optimizer.step()
        values.append(loss.detach())
    return torch.stack(values)


def one_device(norm=False):
    return losses(make_net(norm), device="cpu")


def share_of(rank, size):
    part = BATCH // size
    return slice(rank * part, (rank + 1) * part)


def together(values):
    values = values.clone()
    dist.all_reduce(values, dist.ReduceOp.AVG)
    return values.cpu()


def data_parallel(rank, size):
    expected = one_device()
    for options in (
        {},
        {"gradient_as_bucket_view": True},
        {"static_graph": True},
        {"bucket_cap_mb": 0.01},
        {"find_unused_parameters": True},
    ):
        net = DistributedDataParallel(make_net().npu(), device_ids=[rank], **options)
        actual = together(losses(net, share_of(rank, size)))
        torch.testing.assert_close(actual, expected, atol=1e-3, rtol=1e-3, msg=partial("{}: {}".format, options))
    # Normalised over all ranks: the batch of one device.
    net = nn.SyncBatchNorm.convert_sync_batchnorm(make_net(norm=True)).npu()
    net = DistributedDataParallel(net, device_ids=[rank])
    actual = together(losses(net, share_of(rank, size)))
    torch.testing.assert_close(actual[0], one_device(norm=True)[0], atol=1e-4, rtol=1e-4)


def accumulates(rank, size):
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

    net = DistributedDataParallel(make_net().npu(), device_ids=[rank])
    images, labels = next(iter(batches()))
    share = share_of(rank, size)
    with net.no_sync():
        nn.functional.cross_entropy(net(images[share].npu()), labels[share].npu()).backward()
    own = [p.grad.clone() for p in net.parameters()]
    gathered = [torch.empty_like(own[0]) for _ in range(size)]
    dist.all_gather(gathered, own[0])
    assert not torch.equal(gathered[0].cpu(), gathered[1].cpu())
    nn.functional.cross_entropy(net(images[share].npu()), labels[share].npu()).backward()
    reference = make_net()
    nn.functional.cross_entropy(reference(images), labels).backward()
    for p, q in zip(net.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(p.grad.cpu(), 2 * q.grad, atol=1e-4, rtol=1e-3)
    for hook in (default_hooks.fp16_compress_hook, default_hooks.bf16_compress_hook):
        net = DistributedDataParallel(make_net().npu(), device_ids=[rank])
        net.register_comm_hook(None, hook)
        actual = together(losses(net, share))
        torch.testing.assert_close(actual, one_device(), atol=5e-2, rtol=5e-2)
    # Uneven inputs.
    net = DistributedDataParallel(make_net().npu(), device_ids=[rank])
    with net.join():
        for _ in range(2 + rank):
            net(images[share].npu()).sum().backward()


class TestTraining(unittest.TestCase):
    def test_data_parallel(self):
        ranks.run(__file__, "data_parallel", 2)

    def test_accumulation_hooks_join(self):
        ranks.run(__file__, "accumulates", 2)


if __name__ == "__main__":
    unittest.main()
