"""Ways to spread a model over devices: sharded parameters, sharded optimizers, distributed tensors, pipelines, and
checkpoints of them. Each gives what one CPU process gives from the same state."""

import copy
import os
import tempfile
import unittest

import ranks
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel

import torch
from torch import nn

STEPS, BATCH, WIDTH = 4, 8, 16


def make_net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(WIDTH, 32), nn.GELU(), nn.Linear(32, 32), nn.GELU(), nn.Linear(32, 4))


def batches():
    generator = torch.Generator().manual_seed(1)
    for _ in range(STEPS):
        yield torch.randn(BATCH, WIDTH, generator=generator), torch.randn(BATCH, 4, generator=generator)


def train(net, optimizer, rank=0, size=1, device="cpu"):
    """Mean losses of the whole batch by step; each rank takes its part of it."""
    losses = []
    part = slice(rank * BATCH // size, (rank + 1) * BATCH // size)
    for x, y in batches():
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(net(x[part].to(device)), y[part].to(device))
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    losses = torch.stack(losses)
    if size > 1:
        dist.all_reduce(losses, dist.ReduceOp.AVG)
    return losses.cpu()


def adam(parameters, **options):
    return torch.optim.AdamW(parameters, lr=0.01, **options)


def alone():
    net = make_net()
    return train(net, adam(net.parameters())), net


def apex_mixed_precision(rank, size):
    """apex's levels with DistributedDataParallel: all ranks have the same parameters, near those of fp32."""
    from apex import amp

    expected, reference = alone()
    for options in (
        {"opt_level": "O1"},
        {"opt_level": "O2", "loss_scale": 128.0},
        {"opt_level": "O2", "loss_scale": "dynamic", "combine_grad": True},
        {"opt_level": "O2", "cast_model_type": torch.bfloat16},
    ):
        net = make_net().npu()
        optimizer = adam(net.parameters())
        net, optimizer = amp.initialize(net, optimizer, verbosity=0, **options)
        net = DistributedDataParallel(net, device_ids=[rank])
        part = slice(rank * BATCH // size, (rank + 1) * BATCH // size)
        losses = []
        for x, y in batches():
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(net(x[part].npu()).float(), y[part].npu())
            with amp.scale_loss(loss, optimizer) as scaled:
                scaled.backward()
            optimizer.step()
            losses.append(loss.detach())
        losses = torch.stack(losses)
        dist.all_reduce(losses, dist.ReduceOp.AVG)
        torch.testing.assert_close(losses.cpu(), expected, atol=0.02, rtol=0.02, msg=str(options))
        for mine, right in zip(net.module.parameters(), reference.parameters(), strict=True):
            first = mine.detach().clone()
            dist.broadcast(first, 0)
            torch.testing.assert_close(mine.detach(), first, atol=0, rtol=0)
            torch.testing.assert_close(mine.detach().float().cpu(), right.detach(), atol=0.03, rtol=0.05)


def fully_sharded(rank, size):
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    expected, reference = alone()
    mesh = init_device_mesh("npu", (size,))
    net = make_net().npu()
    for layer in net:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(net, mesh=mesh)
    losses = train(net, adam(net.parameters()), rank, size, "npu")
    torch.testing.assert_close(losses, expected, atol=1e-5, rtol=1e-4)
    for sharded, whole in zip(net.parameters(), reference.parameters(), strict=True):
        assert sharded.to_local().numel() < whole.numel(), "a parameter is not sharded"
        torch.testing.assert_close(sharded.full_tensor().cpu(), whole.detach(), atol=1e-4, rtol=1e-3)
    # In bf16, whose losses follow roughly; and with parameters kept on the host.
    half = make_net().npu()
    fully_shard(half, mesh=mesh, mp_policy=MixedPrecisionPolicy(torch.bfloat16, torch.float32))
    losses = train(half, adam(half.parameters()), rank, size, "npu")
    torch.testing.assert_close(losses.float(), expected, atol=0.05, rtol=0.05)
    clipped = nn.utils.clip_grad_norm_(half.parameters(), 0.1)
    assert clipped.full_tensor().item() > 0


def fully_sharded_of_old(rank, size):
    """FullyShardedDataParallel, the module that wraps."""
    from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy

    expected, _ = alone()
    for strategy in (ShardingStrategy.FULL_SHARD, ShardingStrategy.SHARD_GRAD_OP, ShardingStrategy.NO_SHARD):
        net = FullyShardedDataParallel(
            make_net().npu(), device_id=torch.device("npu", rank), sharding_strategy=strategy, use_orig_params=True
        )
        losses = train(net, adam(net.parameters()), rank, size, "npu")
        torch.testing.assert_close(losses, expected, atol=1e-5, rtol=1e-4, msg=str(strategy))


def distributed_tensors(rank, size):
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    mesh = init_device_mesh("npu", (size,))
    generator = torch.Generator().manual_seed(2)
    a, b = torch.randn(8, 12, generator=generator), torch.randn(12, 6, generator=generator)
    for left in (Replicate(), Shard(0), Shard(1)):
        for right in (Replicate(), Shard(0), Shard(1)):
            x = distribute_tensor(a.npu(), mesh, [left]).requires_grad_()
            y = distribute_tensor(b.npu(), mesh, [right])
            product = x @ y
            torch.testing.assert_close(product.full_tensor().cpu(), a @ b, atol=1e-5, rtol=1e-4)
            product.sum().backward()
            torch.testing.assert_close(x.grad.full_tensor().cpu(), b.sum(1).expand_as(a), atol=1e-5, rtol=1e-4)
            torch.testing.assert_close(
                product.softmax(-1).full_tensor().cpu(), (a @ b).softmax(-1), atol=1e-5, rtol=1e-4
            )
    assert distribute_tensor(a.npu(), mesh, [Shard(0)]).redistribute(mesh, [Shard(1)]).to_local().shape == (
        8,
        12 // size,
    )
    draws = torch.distributed.tensor.rand(64, device_mesh=mesh, placements=[Shard(0)]).full_tensor().cpu()
    assert draws.unique().numel() > 60, "ranks draw the same numbers"
    # Tensor parallel: the first layer by columns, the next by rows.
    expected, _ = alone()
    net = make_net().npu()
    parallelize_module(net, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    # The foreach form takes no mixture of distributed and plain parameters.
    losses = train(net, adam(net.parameters(), foreach=False), device="npu")
    torch.testing.assert_close(losses, expected, atol=1e-5, rtol=1e-4)


def two_dimensions(rank, size):
    """Tensor parallel in one dimension of the mesh, sharded data parallel in the other."""
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    expected, _ = alone()
    mesh = init_device_mesh("npu", (size // 2, 2), mesh_dim_names=("data", "tensor"))
    net = make_net().npu()
    parallelize_module(net, mesh["tensor"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    fully_shard(net, mesh=mesh["data"])
    data = mesh["data"].get_local_rank()
    losses = []
    optimizer = adam(net.parameters())
    half = BATCH // (size // 2)
    for x, y in batches():
        optimizer.zero_grad()
        part = slice(data * half, (data + 1) * half)
        loss = nn.functional.mse_loss(net(x[part].npu()), y[part].npu())
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    losses = torch.stack(losses)
    dist.all_reduce(losses, dist.ReduceOp.AVG)
    torch.testing.assert_close(losses.cpu(), expected, atol=1e-5, rtol=1e-4)


def zero_redundancy(rank, size):
    from torch.distributed.optim import ZeroRedundancyOptimizer

    expected, _ = alone()
    for options in ({}, {"parameters_as_bucket_view": True}):
        net = DistributedDataParallel(make_net().npu(), device_ids=[rank])
        optimizer = ZeroRedundancyOptimizer(net.parameters(), torch.optim.AdamW, lr=0.01, **options)
        losses = train(net, optimizer, rank, size, "npu")
        torch.testing.assert_close(losses, expected, atol=1e-5, rtol=1e-4)
        assert len(optimizer.optim.state) < len(list(net.parameters())), "the state is not sharded"
        optimizer.consolidate_state_dict(to=0)
        if rank == 0:
            assert len(optimizer.state_dict()["state"]) == len(list(net.parameters()))


def pipelined(rank, size):
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

    expected, reference = alone()
    for kind in (ScheduleGPipe, Schedule1F1B):
        net = make_net()
        parts = [net[:2], net[2:]] if size == 2 else [net[:2], net[2:4], net[4:]]
        stage = PipelineStage(parts[rank].npu(), rank, size, torch.device("npu", rank))
        schedule = kind(stage, n_microbatches=4, loss_fn=nn.functional.mse_loss)
        optimizer = adam(parts[rank].parameters())
        losses = []
        for x, y in batches():
            optimizer.zero_grad()
            if rank == 0:
                schedule.step(x.npu())
            elif rank == size - 1:
                pieces = []
                schedule.step(target=y.npu(), losses=pieces)
                losses.append(torch.stack(pieces).mean().detach())
            else:
                schedule.step()
            optimizer.step()
        if rank == size - 1:
            torch.testing.assert_close(torch.stack(losses).cpu(), expected, atol=1e-5, rtol=1e-4)


def checkpoints(rank, size, folder):
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
    from torch.distributed.fsdp import fully_shard

    def sharded():
        net = make_net().npu()
        fully_shard(net, mesh=init_device_mesh("npu", (size,)))
        return net, adam(net.parameters())

    net, optimizer = sharded()
    train(net, optimizer, rank, size, "npu")
    model_state, optimizer_state = get_state_dict(net, optimizer)
    dcp.save({"model": model_state, "optimizer": optimizer_state}, checkpoint_id=folder)
    expected = [p.full_tensor().cpu() for p in net.parameters()]
    more = train(net, optimizer, rank, size, "npu")

    other, other_optimizer = sharded()
    model_state, optimizer_state = get_state_dict(other, other_optimizer)
    state = {"model": model_state, "optimizer": optimizer_state}
    dcp.load(state, checkpoint_id=folder)
    set_state_dict(other, other_optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    for p, whole in zip(other.parameters(), expected, strict=True):
        torch.testing.assert_close(p.full_tensor().cpu(), whole, atol=0, rtol=0)
    again = train(other, other_optimizer, rank, size, "npu")
    torch.testing.assert_close(again, more, atol=1e-6, rtol=1e-5)


def read_alone(folder):
    """The checkpoint of several ranks in one process without a group, on the CPU."""
    import torch.distributed.checkpoint as dcp

    net = make_net()
    state = {"model": net.state_dict()}
    dcp.load(state, checkpoint_id=folder)
    return state["model"]


def normalised_together(rank, size):
    """SyncBatchNorm over the ranks of apex' and of torch's form is batch norm of the whole batch."""
    from apex.parallel import convert_syncbn_model

    torch.manual_seed(0)
    plain = nn.Sequential(nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.Flatten(), nn.Linear(96, 2))
    x = torch.randn(2 * size, 3, 6, 6)
    reference = copy.deepcopy(plain)
    reference(x).square().mean().backward()
    for convert in (nn.SyncBatchNorm.convert_sync_batchnorm, convert_syncbn_model):
        net = DistributedDataParallel(convert(copy.deepcopy(plain)).npu(), device_ids=[rank])
        net(x[2 * rank : 2 * rank + 2].npu()).square().mean().backward()
        for p, q in zip(net.parameters(), reference.parameters(), strict=True):
            torch.testing.assert_close(p.grad.cpu(), q.grad, atol=1e-5, rtol=1e-4)
        for p, q in zip(net.module.buffers(), reference.buffers(), strict=True):
            torch.testing.assert_close(p.cpu(), q, atol=1e-5, rtol=1e-4)


class TestStrategies(unittest.TestCase):
    def test_fully_shard(self):
        ranks.run(__file__, "fully_sharded", 2)

    def test_wrapped_and_sharded(self):
        ranks.run(__file__, "fully_sharded_of_old", 2)

    def test_distributed_tensors(self):
        ranks.run(__file__, "distributed_tensors", 2)

    def test_mesh_of_two_dimensions(self):
        ranks.run(__file__, "two_dimensions", 4)

    def test_zero_redundancy_optimizer(self):
        ranks.run(__file__, "zero_redundancy", 2)

    def test_pipelines(self):
        ranks.run(__file__, "pipelined", 2)
        ranks.run(__file__, "pipelined", 3)

    def test_distributed_checkpoints(self):
        with tempfile.TemporaryDirectory() as folder:
            ranks.run(__file__, "checkpoints", 2, folder)
            self.assertTrue(os.listdir(folder))
            read_alone(folder)

    def test_mixed_precision_by_apex(self):
        ranks.run(__file__, "apex_mixed_precision", 2)

    def test_batch_norm_over_ranks(self):
        ranks.run(__file__, "normalised_together", 2)


if __name__ == "__main__":
    unittest.main()
