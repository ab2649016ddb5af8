"""FSDP2, torch.distributed.fsdp.fully_shard, on upstream's DTensorTestBase: each way of it trains as one process on the
CPU does."""

import copy
import os
import tempfile
import unittest

from dtensor_base import DTensorTest
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import (
    CPUOffloadPolicy,
    FSDPModule,
    MixedPrecisionPolicy,
    OffloadPolicy,
    fully_shard,
    register_fsdp_forward_method,
)
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.testing._internal.common_utils import run_tests
from torch.testing._internal.distributed._tensor.common_dtensor import MLPStacked, ModelArgs, Transformer, with_comms

import torch
from torch import nn

STEPS, BATCH = 3, 8


def make_net():
    """Parameters whose rows two ranks, and four, do not share evenly, and one that is smaller than a group."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 13), nn.GELU(), nn.Linear(13, 7), nn.LayerNorm(7), nn.Linear(7, 1))


def batches(seed=1):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(BATCH, 6, generator=generator) for _ in range(STEPS)]


def adam(net):
    return torch.optim.AdamW(net.parameters(), lr=0.01)


class FullyShardTest(DTensorTest):
    def mine(self, x):
        """This rank's part of a batch."""
        return x.npu().chunk(self.world_size)[self.rank]

    def trains_like_one(self, net, reference, inputs=None, rtol=1e-4, atol=1e-5):
        """The steps of a sharded net of the ranks' parts, and its gradients, against one process's."""
        optimizer, right = adam(net), adam(reference)
        for x in inputs or batches():
            right.zero_grad()
            optimizer.zero_grad()
            expected = reference(x).square().mean()
            expected.backward()
            loss = net(self.mine(x)).square().mean()
            loss.backward()
            self.same_gradients(net, reference, rtol=rtol, atol=atol)
            right.step()
            optimizer.step()
        for (name, p), q in zip(net.named_parameters(), reference.parameters(), strict=True):
            with self.subTest(name):
                self.assertClose(p, q, rtol=10 * rtol, atol=10 * atol)

    def same_gradients(self, net, reference, **tolerances):
        for (name, p), q in zip(net.named_parameters(), reference.parameters(), strict=True):
            with self.subTest(f"gradient of {name}"):
                self.assertIsInstance(p.grad, DTensor)
                self.assertClose(p.grad, q.grad, **tolerances)

    def sharded(self, net=None, layers=True, **options):
        net = (make_net() if net is None else net).npu()
        options.setdefault("mesh", self.build_device_mesh())
        if layers:
            for layer in net:
                if isinstance(layer, nn.Linear):
                    fully_shard(layer, **options)
        return fully_shard(net, **options)


class TestFullyShard(FullyShardTest):
    @with_comms
    def test_parameters_are_sharded(self):
        reference, net = make_net(), self.sharded()
        self.assertIsInstance(net, FSDPModule)
        for (name, p), q in zip(net.named_parameters(), reference.parameters(), strict=True):
            with self.subTest(name):
                self.assertEqual((p.placements, p.device.type), ((Shard(0),), "npu"))
                rows = [len(c) for c in q.chunk(self.world_size)] + [0] * self.world_size
                self.assertEqual(len(p.to_local()), rows[self.rank])
                self.assertClose(p, q, rtol=0, atol=0)
        parts = [module for module in net.modules() if isinstance(module, FSDPModule)]
        for part in parts:
            part.unshard()
        for p, q in zip(net.parameters(), reference.parameters(), strict=True):
            self.assertNotIsInstance(p, DTensor)
            self.assertClose(p, q, rtol=0, atol=0)
        for part in parts:
            part.reshard()
        self.assertTrue(all(isinstance(p, DTensor) for p in net.parameters()))

    @with_comms
    def test_trains(self):
        for options in (
            {},
            {"reshard_after_forward": False},
            {"layers": False},
            {"offload_policy": OffloadPolicy()},
            {"shard_placement_fn": lambda p: Shard(p.dim() - 1) if p.dim() > 1 and p.shape[-1] % 2 == 0 else None},
        ):
            with self.subTest(str(options)):
                self.trains_like_one(self.sharded(**options), make_net())

    @with_comms
    def test_parameters_on_the_host(self):
        for pinned in (True, False):
            net = make_net()
            for layer in (*(m for m in net if isinstance(m, nn.Linear)), net):
                fully_shard(layer, mesh=self.build_device_mesh(), offload_policy=CPUOffloadPolicy(pin_memory=pinned))
            self.assertTrue(all(p.device.type == "cpu" for p in net.parameters()))
            reference = make_net()
            optimizer, right = adam(net), adam(reference)
            for x in batches():
                right.zero_grad()
                optimizer.zero_grad()
                reference(x).square().mean().backward()
                net(self.mine(x)).square().mean().backward()
                for p, q in zip(net.parameters(), reference.parameters(), strict=True):
                    self.assertEqual(p.grad.device.type, "cpu")
                    self.assertClose(p.grad.npu(), q.grad, rtol=1e-4, atol=1e-5)
                right.step()
                optimizer.step()

    @with_comms
    def test_mixed_precision(self):
        for half in (torch.bfloat16, torch.float16):
            seen = []
            policy = MixedPrecisionPolicy(param_dtype=half, reduce_dtype=torch.float32, output_dtype=torch.float32)
            net = self.sharded(layers=False, mp_policy=policy)
            net[0].register_forward_hook(lambda module, args, out, seen=seen: seen.append((args[0].dtype, out.dtype)))
            self.trains_like_one(net, make_net(), rtol=0.05, atol=0.05)
            self.assertEqual(seen, [(half, half)] * STEPS)
            self.assertTrue(all(p.dtype == p.grad.dtype == torch.float32 for p in net.parameters()))
            with torch.no_grad():
                self.assertEqual(net(self.mine(batches()[0])).dtype, torch.float32)
        # Exactly: what each rank computes in bf16 is summed in bf16 and in fp32.
        x = batches()[0]
        for reduce in (torch.bfloat16, torch.float32, None):
            net = self.sharded(
                nn.Sequential(nn.Linear(6, 4, bias=False)), mp_policy=MixedPrecisionPolicy(torch.bfloat16, reduce)
            )
            weight = net[0].weight.full_tensor()
            net(self.mine(x)).sum().backward()
            parts = []
            for part in x.chunk(self.world_size):
                plain = weight.detach().bfloat16().requires_grad_()
                (part.npu().bfloat16() @ plain.t()).sum().backward()
                parts.append(plain.grad)
            kind = reduce or torch.bfloat16
            # Divided first or last, by a power of two: the same.
            expected = torch.stack(parts).to(kind).sum(0) / self.world_size
            self.assertClose(net[0].weight.grad, expected.float().cpu(), rtol=0, atol=0)

    @with_comms
    def test_gradients_of_several_batches(self):
        """Without communication but for the last one, and with."""
        for sync in (True, False):
            net, reference = self.sharded(), make_net()
            for i, x in enumerate(batches()):
                net.set_requires_gradient_sync(sync or i == STEPS - 1)
                net.set_is_last_backward(i == STEPS - 1)
                reference(x).square().mean().backward()
                net(self.mine(x)).square().mean().backward()
            self.same_gradients(net, reference, rtol=1e-4, atol=1e-5)

    @with_comms
    def test_settings(self):
        reference = make_net()
        x = batches()[0]
        reference(x).square().mean().backward()
        net = self.sharded()
        layers = [m for m in net if isinstance(m, FSDPModule)]
        for before, after in zip(layers, layers[1:], strict=False):
            before.set_modules_to_forward_prefetch([after])
            after.set_modules_to_backward_prefetch([before])
        net(self.mine(x)).square().mean().backward()
        self.same_gradients(net, reference, rtol=1e-4, atol=1e-5)
        for set_up, scale in (
            (lambda m: m.set_gradient_divide_factor(1.0), 2),
            (lambda m: m.set_force_sum_reduction_for_comms(True), 1),
            (lambda m: m.set_unshard_in_backward(True), 1),
            (lambda m: m.set_allocate_memory_from_process_group_for_comm(True), 1),
        ):
            net = self.sharded()
            for module in (*(m for m in net if isinstance(m, FSDPModule)), net):
                set_up(module)
            net(self.mine(x)).square().mean().backward()
            for p, q in zip(net.parameters(), reference.parameters(), strict=True):
                self.assertClose(p.grad, q.grad * scale, rtol=1e-4, atol=1e-5)

    @with_comms
    def test_frozen_and_shared_parameters(self):
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                torch.manual_seed(0)
                self.first, self.second, self.third = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 6, bias=False)
                self.third.weight = self.first.weight
                self.second.weight.requires_grad_(False)

            def forward(self, x):
                return self.third(self.second(self.first(x).relu()).relu())

            def forward_twice(self, x):
                return self.forward(self.forward(x))

        reference = Net()
        net = Net().npu()
        fully_shard(net.second, mesh=self.build_device_mesh())
        fully_shard(net, mesh=self.build_device_mesh())
        register_fsdp_forward_method(net, "forward_twice")
        self.assertIs(net.first.weight, net.third.weight)
        x = batches()[0]
        for method in (lambda m, x: m(x), lambda m, x: m.forward_twice(x)):
            method(reference, x).square().mean().backward()
            method(net, self.mine(x)).square().mean().backward()
            for p, q in zip(net.parameters(), reference.parameters(), strict=True):
                if q.requires_grad:
                    self.assertClose(p.grad, q.grad, rtol=1e-4, atol=1e-5)
                else:
                    self.assertIsNone(p.grad)
        with torch.no_grad():
            self.assertClose(net(x.npu()), reference(x), rtol=1e-4, atol=1e-5)

    @with_comms
    def test_transformer(self):
        """Upstream's, with activations that are computed again, weights on the meta device first."""
        args = ModelArgs(dropout_p=0.0, checkpoint_activations=True)
        torch.manual_seed(3)
        reference = Transformer(args)
        with torch.device("meta"):
            net = Transformer(args)
        for layer in (*net.layers, net):
            fully_shard(layer, mesh=self.build_device_mesh())
        net.to_empty(device="npu")
        for p, q in zip(net.parameters(), reference.parameters(), strict=True):
            p.data.copy_(torch.distributed.tensor.distribute_tensor(q.detach().npu(), p.device_mesh, p.placements))
        optimizer, right = adam(net), adam(reference)
        for _ in range(2):
            tokens = torch.randint(args.vocab_size, (4, 8))
            right.zero_grad()
            optimizer.zero_grad()
            expected = reference(tokens).square().mean()
            expected.backward()
            net(self.mine(tokens)).square().mean().backward()
            self.same_gradients(net, reference, rtol=1e-3, atol=1e-4)
            norm = nn.utils.clip_grad_norm_(net.parameters(), 0.1)
            self.assertClose(norm, nn.utils.clip_grad_norm_(reference.parameters(), 0.1), rtol=1e-3, atol=1e-4)
            right.step()
            optimizer.step()

    @with_comms
    def test_state(self):
        from torch.distributed.checkpoint.state_dict import (
            StateDictOptions,
            get_model_state_dict,
            get_optimizer_state_dict,
            set_model_state_dict,
            set_optimizer_state_dict,
        )

        net, reference = self.sharded(), make_net()
        self.trains_like_one(net, reference)
        optimizer = adam(net)
        net(self.mine(batches()[0])).square().mean().backward()
        optimizer.step()
        expected = {name: p.full_tensor().cpu() for name, p in net.named_parameters()}
        # Sharded, as it is; whole, on rank 0's host only; and whole from rank 0 to all.
        state = net.state_dict()
        self.assertTrue(all(isinstance(v, DTensor) for v in state.values()))
        other = self.sharded()
        other.load_state_dict({k: v.clone() for k, v in state.items()})
        for name, p in other.named_parameters():
            self.assertClose(p, expected[name], rtol=0, atol=0)
        options = StateDictOptions(full_state_dict=True, cpu_offload=True)
        whole = get_model_state_dict(net, options=options)
        whole_optimizer = get_optimizer_state_dict(net, optimizer, options=options)
        self.assertEqual(set(whole), set(expected) if self.rank == 0 else set())
        for name, value in whole.items():
            self.assertEqual(value.device.type, "cpu")
            torch.testing.assert_close(value, expected[name], rtol=0, atol=0)
        options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
        other = self.sharded()
        other_optimizer = adam(other)
        set_model_state_dict(other, whole, options=options)
        set_optimizer_state_dict(other, other_optimizer, whole_optimizer, options=options)
        for name, p in other.named_parameters():
            self.assertClose(p, expected[name], rtol=0, atol=0)
            mine = optimizer.state[dict(net.named_parameters())[name]]["exp_avg"]
            self.assertClose(other_optimizer.state[p]["exp_avg"], mine.full_tensor().cpu(), rtol=0, atol=0)

    @with_comms
    def test_checkpoint_of_another_world(self):
        """A checkpoint that the ranks write is read whole by each of them."""
        import torch.distributed.checkpoint as dcp

        folder = [tempfile.mkdtemp() if self.rank == 0 else None]
        torch.distributed.broadcast_object_list(folder, 0)
        net = self.sharded()
        dcp.save({"model": net.state_dict()}, checkpoint_id=folder[0])
        self.assertTrue(os.listdir(folder[0]))
        whole = make_net()
        nn.init.zeros_(whole[0].weight)
        state = {"model": whole.state_dict()}
        dcp.load(state, checkpoint_id=folder[0])
        whole.load_state_dict(state["model"])
        for p, q in zip(whole.parameters(), make_net().parameters(), strict=True):
            torch.testing.assert_close(p, q, rtol=0, atol=0)

    @with_comms
    def test_memory(self):
        """Ranks keep half of a model, and all of one layer at a time."""
        width, layers = 512, 6
        mesh = self.build_device_mesh()
        net = nn.Sequential(*(nn.Linear(width, width, bias=False) for _ in range(layers))).npu()
        layer = 4 * width * width
        for part in (*net, net):
            fully_shard(part, mesh=mesh)
        torch.npu.synchronize()
        self.assertLess(torch.npu.memory_allocated(), layers * layer // self.world_size + layer)
        torch.npu.reset_peak_memory_stats()
        with torch.no_grad():
            net(torch.ones(1, width).npu())
        torch.npu.synchronize()
        self.assertLess(torch.npu.max_memory_allocated(), layers * layer // self.world_size + 4 * layer)

    @with_comms
    def test_asynchronous_unshard(self):
        net = self.sharded(layers=False)
        handle = net.unshard(async_op=True)
        handle.wait()
        for p, q in zip(net.parameters(), make_net().parameters(), strict=True):
            self.assertClose(p, q, rtol=0, atol=0)
        net.reshard()

    @with_comms
    def test_optimizers(self):
        for make in (
            lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
            lambda p: torch.optim.Adam(p, lr=0.01, fused=True),
            lambda p: torch.optim.AdamW(p, lr=0.01, foreach=False),
            lambda p: torch.optim.Adagrad(p, lr=0.01),
        ):
            net, reference = self.sharded(), make_net()
            optimizer, right = make(net.parameters()), make(reference.parameters())
            for x in batches():
                for module, o, y in ((net, optimizer, self.mine(x)), (reference, right, x)):
                    o.zero_grad()
                    module(y).square().mean().backward()
                    o.step()
            for p, q in zip(net.parameters(), reference.parameters(), strict=True):
                self.assertClose(p, q, rtol=1e-3, atol=1e-4)


@unittest.skipUnless(os.environ.get("NPU_SLOW_TESTS"), "NPU_SLOW_TESTS=1: four ranks")
class TestTwoDimensions(FullyShardTest):
    @property
    def world_size(self) -> int:
        return 4

    @with_comms
    def test_four_ranks(self):
        self.trains_like_one(self.sharded(), make_net())
        self.trains_like_one(self.sharded(reshard_after_forward=2), make_net())

    @with_comms
    def test_replicated_groups_of_shards(self):
        mesh = init_device_mesh("npu", (2, 2), mesh_dim_names=("replicate", "shard"))
        net, reference = self.sharded(mesh=mesh), make_net()
        self.assertTrue(all(p.placements == (Replicate(), Shard(0)) for p in net.parameters()))
        self.trains_like_one(net, reference)

    @with_comms
    def test_tensor_parallel_and_sharded(self):
        from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

        mesh = init_device_mesh("npu", (2, 2), mesh_dim_names=("data", "tensor"))
        reference = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 4))
        net = copy.deepcopy(reference).npu()
        for p in net.parameters():
            torch.distributed.broadcast(p.data, 0)
        for p, q in zip(net.parameters(), reference.parameters(), strict=True):
            q.data.copy_(p.data)
        parallelize_module(net, mesh["tensor"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
        fully_shard(net, mesh=mesh["data"])
        optimizer, right = adam(net), adam(reference)
        for x in batches():
            right.zero_grad()
            optimizer.zero_grad()
            reference(x).square().mean().backward()
            net(x.npu().chunk(2)[mesh["data"].get_local_rank()]).square().mean().backward()
            self.same_gradients(net, reference, rtol=1e-4, atol=1e-5)
            right.step()
            optimizer.step()

    @with_comms
    def test_stacked_and_sequences(self):
        """Upstream's transformer with sharded sequences in one dimension, sharded parameters in the other."""
        mesh = init_device_mesh("npu", (2, 2), mesh_dim_names=("data", "tensor"))
        args = ModelArgs(dropout_p=0.0)
        torch.manual_seed(3)
        reference = Transformer(args)
        net = Transformer.parallelize(copy.deepcopy(reference).npu(), mesh["tensor"], True, local_output_for_attn=True)
        for layer in (*net.layers, net):
            fully_shard(layer, mesh=mesh["data"])
        tokens = torch.randint(args.vocab_size, (4, 8))
        reference(tokens).square().mean().backward()
        net(tokens.npu().chunk(2)[mesh["data"].get_local_rank()]).square().mean().backward()
        self.same_gradients(net, reference, rtol=1e-3, atol=1e-4)
        stacked, plain = MLPStacked("npu"), MLPStacked("cpu")
        for p, q in zip(stacked.parameters(), plain.parameters(), strict=True):
            p.data.copy_(q.data)
        fully_shard(stacked, mesh=mesh["data"])
        self.assertClose(stacked(torch.ones(2, 10).npu()), plain(torch.ones(2, 10)), rtol=1e-4, atol=1e-5)


if __name__ == "__main__":
    run_tests()
