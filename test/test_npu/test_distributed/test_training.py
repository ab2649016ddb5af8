"""Training on several ranks: DistributedDataParallel gives what one device gives, and its options work."""

import os
import unittest

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
        torch.testing.assert_close(actual, expected, atol=1e-3, rtol=1e-3, msg=str(options))
    # Normalised over all ranks: the batch of one device.
    net = nn.SyncBatchNorm.convert_sync_batchnorm(make_net(norm=True)).npu()
    net = DistributedDataParallel(net, device_ids=[rank])
    actual = together(losses(net, share_of(rank, size)))
    torch.testing.assert_close(actual[0], one_device(norm=True)[0], atol=1e-4, rtol=1e-4)


def timed(rank, size):
    """What DDP knows of its own steps, as of cuda's."""
    net = DistributedDataParallel(make_net().npu(), device_ids=[rank])
    for _ in range(3):
        losses(net, share_of(rank, size))
    data = net._get_ddp_logging_data()
    for key in ("avg_forward_compute_time", "avg_backward_compute_time", "avg_backward_comm_time"):
        assert data[key] > 0, (key, data)
    return {key: data[key] for key in data if key.endswith("_time")}


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


def image_batch(dtype):
    generator = torch.Generator().manual_seed(3)
    images = torch.randn(16, 3, 32, 32, generator=generator, dtype=torch.float64).to(dtype)
    return images, torch.randint(10, (16,), generator=generator)


def image_net(dtype):
    from torchvision.models import resnet18

    torch.manual_seed(0)
    return resnet18(num_classes=10).to(dtype)


def image_gradients(net, images, labels):
    """(loss, all gradients in one vector, on the CPU) of one batch"""
    net.zero_grad()
    loss = nn.functional.cross_entropy(net(images), labels)
    loss.backward()
    return loss.detach().cpu(), torch.cat([p.grad.cpu().flatten() for p in net.parameters()])


def spread_resnet(rank, size):
    """One step of ResNet-18 with batch norm over all ranks, from the state and with the batch of one device.

    Gradients are compared in fp64: in fp32 a value beside zero may fall on either side of a ReLU, which changes them
    by a hundred times what two layouts on the CPU differ by, on one device as well.
    """
    for dtype in (torch.float32, torch.float64):
        images, labels = image_batch(dtype)
        expected_loss, expected = image_gradients(image_net(dtype).npu(), images.npu(), labels.npu())
        net = nn.SyncBatchNorm.convert_sync_batchnorm(image_net(dtype)).npu()
        net = DistributedDataParallel(net, device_ids=[rank])
        part = slice(rank * 16 // size, (rank + 1) * 16 // size)
        loss, found = image_gradients(net, images[part].npu(), labels[part].npu())
        torch.testing.assert_close(together(loss.npu()), expected_loss, atol=1e-4, rtol=0)
        torch.testing.assert_close(found.norm(), expected.norm(), atol=0, rtol=0.01)
    _, cpu = image_gradients(image_net(dtype), images, labels)
    last = torch.channels_last
    _, other = image_gradients(image_net(dtype).to(memory_format=last), images.contiguous(memory_format=last), labels)
    bound = 3 * (cpu - other).norm().item()
    assert (found - expected).norm().item() <= bound, ((found - expected).norm(), bound)


class TestTraining(unittest.TestCase):
    def test_resnet_on_two_devices(self):
        ranks.run(__file__, "spread_resnet", 2)

    @unittest.skipUnless(os.environ.get("NPU_SLOW_TESTS"), "NPU_SLOW_TESTS=1: as many processes")
    def test_resnet_on_four_and_eight_devices(self):
        for size in (4, 8):
            ranks.run(__file__, "spread_resnet", size, limit=400)

    @unittest.skipUnless(os.environ.get("NPU_SLOW_TESTS"), "NPU_SLOW_TESTS=1: as many processes")
    def test_a_small_net_on_four_and_eight_devices(self):
        for size in (4, 8):
            ranks.run(__file__, "data_parallel", size, limit=400)

    def test_data_parallel(self):
        ranks.run(__file__, "data_parallel", 2)

    def test_times_of_steps(self):
        ranks.run(__file__, "timed", 2)

    def test_accumulation_hooks_join(self):
        ranks.run(__file__, "accumulates", 2)


if __name__ == "__main__":
    unittest.main()
