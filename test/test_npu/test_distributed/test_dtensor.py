"""Distributed tensors on upstream's DTensorTestBase: placements, operators, modules, tensor parallel."""

import copy
import io
import itertools
import warnings

import torch.distributed as dist
from dtensor_base import DTensorTest
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import (
    DTensor,
    Partial,
    Replicate,
    Shard,
    distribute_module,
    distribute_tensor,
)
from torch.distributed.tensor.debug import CommDebugMode
from torch.testing._internal.common_distributed import (
    at_least_x_gpu,
    requires_accelerator_dist_backend,
    skip_if_lt_x_gpu,
)
from torch.testing._internal.common_utils import run_tests
from torch.testing._internal.distributed._tensor.common_dtensor import (
    DTensorConverter,
    MLPModule,
    ModelArgs,
    Transformer,
    with_comms,
)

import torch
from torch import nn

PLACEMENTS = (Replicate(), Shard(0), Shard(1))


class TestMesh(DTensorTest):
    @with_comms
    def test_harness(self):
        """What upstream's harness chooses on npu."""
        self.assertEqual((self.device_type, dist.get_backend()), ("npu", "hccl"))
        self.assertEqual((dist.get_rank(), torch.npu.current_device()), (self.rank, self.rank))
        self.assertTrue(at_least_x_gpu(self.world_size))
        ran = []
        skip_if_lt_x_gpu(self.world_size)(requires_accelerator_dist_backend(["hccl"])(ran.append))(1)
        self.assertEqual(ran, [1])
        with self.assertRaises(SystemExit):
            skip_if_lt_x_gpu(8)(ran.append)(self)

    def test_mesh_keeps_the_device(self):
        """Chosen before the mesh is made, which else takes the one of the rank's number."""
        torch.npu.set_device(self.world_size + self.rank)
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)
            dist.init_process_group("hccl", "file://" + self.file_name, rank=self.rank, world_size=self.world_size)
            mesh = init_device_mesh("npu", (self.world_size,))
        self.assertEqual(torch.npu.current_device(), self.world_size + self.rank)
        x = distribute_tensor(torch.arange(6.0).npu(), mesh, [Shard(0)])
        self.assertEqual(x.to_local().device.index, self.world_size + self.rank)
        self.assertClose(x, torch.arange(6.0))


class TestPlacements(DTensorTest):
    @with_comms
    def test_redistribute(self):
        mesh = self.build_device_mesh()
        dtypes = (torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.uint8, torch.bool, torch.complex64)
        # Even and uneven shards, ranks without one, and nothing at all.
        for shape, dtype in itertools.product(((4, 6), (5, 3), (1, 7), (0, 2)), dtypes):
            x = torch.testing.make_tensor(shape, dtype=dtype, device="cpu", low=0, high=9)
            for source, target in itertools.product(PLACEMENTS, PLACEMENTS):
                with self.subTest(f"{shape} {dtype} {source} -> {target}"):
                    there = distribute_tensor(x.npu(), mesh, [source])
                    moved = there.redistribute(mesh, [target])
                    self.assertEqual(moved.placements, (target,))
                    self.assertClose(moved, x, rtol=0, atol=0)
                    part = x if target.is_replicate() else self.part(x, target.dim)
                    self.assertClose(moved.to_local(), part, rtol=0, atol=0)

    def part(self, x, dim):
        """This rank's shard of a tensor."""
        size = -(-x.shape[dim] // self.world_size)
        begin = min(size * self.rank, x.shape[dim])
        return x.narrow(dim, begin, min(size, x.shape[dim] - begin))

    @with_comms
    def test_partial(self):
        mesh = self.build_device_mesh()
        for shape, dtype in itertools.product(((4, 6), (5, 3)), (torch.float32, torch.bfloat16, torch.int32)):
            parts = torch.testing.make_tensor((self.world_size, *shape), dtype=dtype, device="cpu", low=0, high=9)
            sums = {"sum": parts.sum(0, dtype=dtype), "max": parts.amax(0), "min": parts.amin(0)}
            sums |= {"avg": parts.mean(0)} if dtype.is_floating_point else {}
            for kind, target in itertools.product(sums, PLACEMENTS):
                with self.subTest(f"{shape} {dtype} {kind} -> {target}"):
                    x = DTensor.from_local(parts[self.rank].npu(), mesh, [Partial(kind)])
                    self.assertClose(x.redistribute(mesh, [target]), sums[kind])
                    self.assertClose(x.full_tensor(), sums[kind])

    @with_comms
    def test_gradients_of_redistribute(self):
        mesh = self.build_device_mesh()
        x, weight = torch.randn(5, 3), torch.randn(5, 3)
        for source, target in itertools.product(PLACEMENTS, PLACEMENTS):
            with self.subTest(f"{source} -> {target}"):
                there = distribute_tensor(x.npu(), mesh, [source]).requires_grad_()
                moved = there.redistribute(mesh, [target])
                (moved * distribute_tensor(weight.npu(), mesh, [target])).sum().backward()
                self.assertEqual(there.grad.placements, (source,))
                self.assertClose(there.grad, weight)

    @with_comms
    def test_made_and_kept(self):
        """Factories, copies and files."""
        mesh = self.build_device_mesh()
        from torch.distributed import tensor as distributed

        for shape, placement in itertools.product(((6, 4), (5, 3)), PLACEMENTS):
            self.assertClose(distributed.ones(shape, device_mesh=mesh, placements=[placement]), torch.ones(shape))
            self.assertClose(
                distributed.full(shape, 3, dtype=torch.bfloat16, device_mesh=mesh, placements=[placement]),
                torch.full(shape, 3, dtype=torch.bfloat16),
            )
            x = torch.randn(shape)
            kept = nn.Parameter(distribute_tensor(x.npu(), mesh, [placement]))
            self.assertClose(copy.deepcopy(kept), x, rtol=0, atol=0)
            self.assertClose(torch.zeros_like(kept), torch.zeros(shape))
            file = io.BytesIO()
            torch.save(kept, file)
            file.seek(0)
            again = torch.load(file, weights_only=False)
            self.assertEqual(again.placements, kept.placements)
            self.assertClose(again, x, rtol=0, atol=0)
            self.assertEqual(kept.cpu().to_local().device.type, "cpu")
            self.assertEqual(kept.bfloat16().dtype, torch.bfloat16)

    @with_comms
    def test_random(self):
        mesh = self.build_device_mesh()
        from torch.distributed import tensor as distributed

        for make in (distributed.rand, distributed.randn):
            torch.manual_seed(3)
            sharded = make(64, 4, device_mesh=mesh, placements=[Shard(0)])
            self.assertGreater(sharded.full_tensor().unique().numel(), 250, "ranks draw the same numbers")
            torch.manual_seed(3)
            self.assertClose(make(64, 4, device_mesh=mesh, placements=[Shard(0)]), sharded.full_tensor().cpu())
        # A seed of each rank's own does not make replicas differ.
        torch.manual_seed(self.rank)
        same = distributed.rand(64, device_mesh=mesh, placements=[Replicate()])
        gathered = DTensor.from_local(same.to_local()[None], mesh, [Shard(0)]).full_tensor()
        x = distribute_tensor(torch.ones(64, 8).npu(), mesh, [Shard(0)])
        dropped = nn.functional.dropout(x, 0.5)
        self.assertEqual(set(dropped.full_tensor().unique().tolist()), {0.0, 2.0})
        halves = dropped.full_tensor().chunk(2)
        self.assertFalse(torch.equal(*halves), "ranks drop the same elements")
        x.uniform_(2, 3)
        self.assertTrue(bool((x.full_tensor() >= 2).all()))
        self.assertGreater(x.full_tensor().unique().numel(), 400)
        self.assertTrue(gathered.shape == (self.world_size, 64))

    @with_comms
    def test_wrong_use(self):
        mesh = self.build_device_mesh()
        x = distribute_tensor(torch.ones(4, 4).npu(), mesh, [Shard(0)])
        with self.assertRaisesRegex(RuntimeError, "mixed torch.Tensor and DTensor"):
            x + torch.ones(4, 4).npu()
        with self.assertRaisesRegex(RuntimeError, "same mesh|DeviceMesh|device mesh|size"):
            x @ distribute_tensor(torch.ones(3, 3).npu(), mesh, [Replicate()])
        self.assertClose(x + x, torch.full((4, 4), 2.0))


# What is called with tensors of these shapes, under every sharding of them.
CASES = {
    "add": (torch.add, [(4, 6), (4, 6)]),
    "add broadcast": (torch.add, [(4, 6), (6,)]),
    "mul number": (lambda x: x * 2 + 1, [(4, 6)]),
    "div": (lambda x, y: x / (y.abs() + 1), [(4, 6), (4, 1)]),
    "where": (lambda x, y: torch.where(x > 0, x, y), [(4, 6), (4, 6)]),
    "gelu": (nn.functional.gelu, [(4, 6)]),
    "silu": (nn.functional.silu, [(4, 6)]),
    "clamp": (lambda x: x.clamp(-0.5, 0.5), [(4, 6)]),
    "pow": (lambda x: x.pow(2), [(4, 6)]),
    "lerp": (torch.lerp, [(4, 6), (4, 6), (4, 6)]),
    "addcmul": (torch.addcmul, [(4, 6), (4, 6), (4, 6)]),
    "mm": (torch.mm, [(4, 6), (6, 2)]),
    "bmm": (torch.bmm, [(2, 4, 6), (2, 6, 2)]),
    "baddbmm": (torch.baddbmm, [(2, 4, 2), (2, 4, 6), (2, 6, 2)]),
    "addmm": (torch.addmm, [(2,), (4, 6), (6, 2)]),
    "linear": (nn.functional.linear, [(2, 4, 6), (8, 6), (8,)]),
    "matmul": (torch.matmul, [(2, 4, 6), (6, 2)]),
    "einsum": (lambda x, y: torch.einsum("bij,bjk->bik", x, y), [(2, 4, 6), (2, 6, 2)]),
    "sum": (lambda x: x.sum(1), [(4, 6)]),
    "sum all": (torch.sum, [(4, 6)]),
    "mean": (lambda x: x.mean(0, keepdim=True), [(4, 6)]),
    "var": (lambda x: x.var(1), [(4, 6)]),
    "amax": (lambda x: x.amax(0), [(4, 6)]),
    "max": (lambda x: x.max(1).values, [(4, 6)]),
    "argmax": (lambda x: x.argmax(1), [(4, 6)]),
    "norm": (lambda x: torch.linalg.vector_norm(x), [(4, 6)]),
    "softmax": (lambda x: x.softmax(-1), [(4, 6)]),
    "log_softmax": (lambda x: x.log_softmax(0), [(4, 6)]),
    "logsumexp": (lambda x: x.logsumexp(1), [(4, 6)]),
    "cumsum": (lambda x: x.cumsum(1), [(4, 6)]),
    "topk": (lambda x: x.topk(2, 1).values, [(4, 6)]),
    "sort": (lambda x: x.sort(1).values, [(4, 6)]),
    "layer_norm": (lambda x, w, b: nn.functional.layer_norm(x, (6,), w, b), [(4, 6), (6,), (6,)]),
    # Upstream refuses shards of the dimension that is normalised, on any device.
    "rms_norm": (lambda x, w: nn.functional.rms_norm(x, (5,), w), [(4, 5), (5,)]),
    "cat": (lambda x, y: torch.cat([x, y], 1), [(4, 6), (4, 2)]),
    "stack": (lambda x, y: torch.stack([x, y]), [(4, 6), (4, 6)]),
    # All parts are used: on any device the gradient of a part alone mixes in a plain tensor of zeros.
    "split": (lambda x: torch.cat(x.split(3, 1)[::-1], 1), [(4, 6)]),
    "chunk": (lambda x: torch.sub(*x.chunk(2, 0)), [(4, 6)]),
    "slice": (lambda x: x[1:3], [(4, 6)]),
    "index": (lambda x: x[:, 2], [(4, 6)]),
    "select": (lambda x: x.select(0, 1), [(4, 6)]),
    "transpose": (lambda x: x.t().contiguous(), [(4, 6)]),
    "permute": (lambda x: x.permute(2, 0, 1), [(2, 4, 6)]),
    "view": (lambda x: x.reshape(2, 12), [(4, 6)]),
    "flatten": (lambda x: x.flatten(1), [(2, 4, 6)]),
    "expand": (lambda x: x.unsqueeze(1).expand(4, 3, 6), [(4, 6)]),
    "repeat": (lambda x: x.repeat(1, 2), [(4, 6)]),
    "tril": (torch.tril, [(4, 6)]),
    "gather": (lambda x: torch.gather(x, 1, torch.zeros_like(x).long()), [(4, 6)]),
    "flip": (lambda x: x.flip(0), [(4, 6)]),
    "roll": (lambda x: x.roll(1, 0), [(4, 6)]),
    "attention": (nn.functional.scaled_dot_product_attention, [(2, 4, 6, 8), (2, 4, 6, 8), (2, 4, 6, 8)]),
    # On any device the gradient of the mean of shards is too large.
    "mse": (lambda x, y: nn.functional.mse_loss(x, y, reduction="sum"), [(4, 6), (4, 6)]),
    "to half": (lambda x: x.half().float(), [(4, 6)]),
}


class TestOperators(DTensorTest):
    @with_comms
    def test_operators(self):
        """Results and gradients are those of one process."""
        mesh = self.build_device_mesh()
        generator = torch.Generator().manual_seed(7)
        for name, (function, shapes) in CASES.items():
            host = [torch.randn(shape, generator=generator).requires_grad_() for shape in shapes]
            expected = function(*host)
            slopes = torch.randn(expected.shape, generator=generator)
            gradients = []
            if expected.requires_grad:
                gradients = torch.autograd.grad((expected * slopes).sum(), host)
            for args, _ in DTensorConverter(mesh, tuple(x.detach().npu() for x in host), {}):
                with self.subTest(f"{name} {[a.placements[0] for a in args]}"):
                    for x in args:
                        x.requires_grad_()
                    got = function(*args)
                    self.assertClose(got, expected, rtol=1e-4, atol=1e-5)
                    if gradients:
                        weighted = got * distribute_tensor(slopes.npu(), mesh, [Replicate()])
                        weighted.sum().backward()
                        for x, gradient in zip(args, gradients, strict=True):
                            self.assertClose(x.grad, gradient, rtol=1e-4, atol=1e-5)

    @with_comms
    def test_convolution(self):
        """Of a sharded batch; upstream has no rule for other shards."""
        mesh = self.build_device_mesh()
        x, w, b = (
            torch.randn(4, 3, 8, 8),
            torch.randn(6, 3, 3, 3, requires_grad=True),
            torch.randn(6, requires_grad=True),
        )
        expected = nn.functional.conv2d(x, w, b, padding=1)
        expected.square().sum().backward()
        mine = [distribute_tensor(t.detach().npu(), mesh, [Replicate()]).requires_grad_() for t in (w, b)]
        got = nn.functional.conv2d(distribute_tensor(x.npu(), mesh, [Shard(0)]), *mine, padding=1)
        self.assertEqual(got.placements, (Shard(0),))
        self.assertClose(got, expected, rtol=1e-4, atol=1e-4)
        got.square().sum().backward()
        for p, q in zip(mine, (w, b), strict=True):
            self.assertClose(p.grad, q.grad, rtol=1e-3, atol=1e-2)

    @with_comms
    def test_attention(self):
        """With masks that have all dimensions, repeat along them, or lack them; with fewer heads of key and value."""
        mesh = self.build_device_mesh()
        attention = nn.functional.scaled_dot_product_attention
        q, k, v = (torch.randn(2, 4, 6, 8, requires_grad=True) for _ in range(3))
        masks = [None] + [torch.randn(shape) for shape in ((2, 4, 6, 6), (2, 1, 6, 6), (1, 1, 6, 6), (6, 6))]
        masks += [torch.ones(6, 6, dtype=torch.bool).tril()]
        cases = [((q, k, v), mask, {}) for mask in masks] + [((q, k, v), None, {"is_causal": True, "scale": 0.3})]
        cases += [
            ((q, k[:, :2].detach().requires_grad_(), v[:, :2].detach().requires_grad_()), None, {"enable_gqa": True})
        ]
        cases += [(tuple(t[:, :1].detach().requires_grad_() for t in (q, k, v)), None, {})]
        for (host, mask, options), placement in itertools.product(cases, (Replicate(), Shard(0), Shard(1), Shard(2))):
            shape = None if mask is None else tuple(mask.shape)
            with self.subTest(f"{placement} {tuple(host[1].shape)} mask {shape} {options}"):
                expected = attention(*host, attn_mask=mask, **options)
                gradients = torch.autograd.grad(expected.square().sum(), host)
                there = [distribute_tensor(t.detach().npu(), mesh, [placement]).requires_grad_() for t in host]
                if mask is not None:
                    mask = distribute_tensor(mask.npu(), mesh, [Replicate()])
                got = attention(*there, attn_mask=mask, **options)
                self.assertClose(got, expected, rtol=1e-4, atol=1e-5)
                if placement in (Shard(0), Shard(1)) and host[1].shape[1] > 1:
                    self.assertEqual(got.placements, (placement,))
                got.square().sum().backward()
                for x, gradient in zip(there, gradients, strict=True):
                    self.assertClose(x.grad, gradient, rtol=1e-4, atol=1e-5)

    @with_comms
    def test_in_place_and_out(self):
        mesh = self.build_device_mesh()
        x, y = torch.randn(4, 6), torch.randn(4, 6)
        for placement in PLACEMENTS:
            a = distribute_tensor(x.npu(), mesh, [placement])
            b = distribute_tensor(y.npu(), mesh, [placement])
            a.add_(b).mul_(2).relu_()
            self.assertClose(a, ((x + y) * 2).relu())
            torch.add(a, b, out=a)
            self.assertClose(a, ((x + y) * 2).relu() + y)
            a.zero_().copy_(b)
            self.assertClose(a, y)
            torch._foreach_mul_([a, b], 3.0)
            self.assertClose(a, y * 3)
            self.assertEqual(round(a.sum().full_tensor().item(), 3), round((y * 3).sum().item(), 3))

    @with_comms
    def test_embedding(self):
        mesh = self.build_device_mesh()
        weight, rows = torch.randn(10, 6), torch.randint(10, (4, 8))
        expected = nn.functional.embedding(rows, weight)
        slopes = torch.randn(expected.shape)
        gradient = torch.zeros_like(weight).index_add_(0, rows.flatten(), slopes.flatten(0, 1))
        # Upstream's rule for weights that are sharded by rows has no gradient of its masked result, on any device.
        for of_weight, of_rows in itertools.product((Replicate(), Shard(1)), PLACEMENTS):
            with self.subTest(f"{of_weight} {of_rows}"):
                w = distribute_tensor(weight.npu(), mesh, [of_weight]).requires_grad_()
                i = distribute_tensor(rows.npu(), mesh, [of_rows])
                got = nn.functional.embedding(i, w)
                self.assertClose(got, expected)
                (got * distribute_tensor(slopes.npu(), mesh, [Replicate()])).sum().backward()
                self.assertClose(w.grad, gradient, rtol=1e-4, atol=1e-5)


class TestModules(DTensorTest):
    @with_comms
    def test_distribute_module(self):
        mesh = self.build_device_mesh()
        reference = MLPModule("cpu")
        x = torch.randn(8, 10)

        def by_rows(name, module, mesh):
            for key, parameter in list(module.named_parameters(recurse=False)):
                module.register_parameter(key, nn.Parameter(distribute_tensor(parameter, mesh, [Shard(0)])))

        net = distribute_module(
            copy.deepcopy(reference).npu(),
            mesh,
            by_rows,
            input_fn=lambda module, args, mesh: (DTensor.from_local(args[0], mesh, [Shard(0)]),),
            output_fn=lambda module, out, mesh: out.full_tensor(),
        )
        expected = reference(x)
        expected.square().sum().backward()
        got = net(x.npu().chunk(self.world_size)[self.rank])
        self.assertClose(got, expected, rtol=1e-4, atol=1e-5)
        got.square().sum().backward()
        for mine, right in zip(net.parameters(), reference.parameters(), strict=True):
            self.assertEqual(mine.placements, (Shard(0),))
            self.assertClose(mine.grad, right.grad, rtol=1e-4, atol=1e-5)
        replicas = distribute_module(copy.deepcopy(reference).npu(), mesh)
        self.assertTrue(all(p.placements == (Replicate(),) for p in replicas.parameters()))

    def trains_like(self, net, reference, tokens, steps=3, **tolerances):
        """A net that takes tokens, against the same on the CPU, with its losses and gradients."""
        mine = torch.optim.AdamW(net.parameters(), lr=0.01, foreach=False)
        right = torch.optim.AdamW(reference.parameters(), lr=0.01, foreach=False)
        for _ in range(steps):
            expected = reference(tokens).square().mean()
            got = net(tokens.npu())
            got = (got.full_tensor() if isinstance(got, DTensor) else got).square().mean()
            self.assertClose(got, expected, rtol=1e-3, atol=1e-4)
            for loss, optimizer in ((expected, right), (got, mine)):
                optimizer.zero_grad()
                loss.backward()
            for (name, p), q in zip(net.named_parameters(), reference.parameters(), strict=True):
                with self.subTest(name):
                    self.assertClose(p.grad, q.grad, rtol=2e-3, atol=1e-4)
            mine.step()
            right.step()

    @with_comms
    def test_tensor_parallel_transformer(self):
        """Upstream's small transformer with tied weights, with and without sharded sequences."""
        mesh = self.build_device_mesh()
        for sequence in (False, True):
            with self.subTest(f"sequence parallel: {sequence}"):
                torch.manual_seed(5)
                args = ModelArgs(dropout_p=0.0)
                reference = Transformer(args)
                net = Transformer.parallelize(
                    copy.deepcopy(reference).npu(), mesh, sequence, local_output_for_attn=True
                )
                self.trains_like(net, reference, torch.randint(args.vocab_size, (2, 8)))
        with CommDebugMode() as counted:
            net(torch.randint(args.vocab_size, (2, 8)).npu())
        self.assertGreater(counted.get_total_counts(), 0)

    @with_comms
    def test_loss_parallel(self):
        from torch.distributed.tensor.parallel import loss_parallel

        mesh = self.build_device_mesh()
        logits, target = torch.randn(8, 12), torch.randint(12, (8,))
        target[3] = -100
        for reduction in ("mean", "sum", "none"):
            host = logits.clone().requires_grad_()
            expected = nn.functional.cross_entropy(host, target, reduction=reduction)
            expected.sum().backward()
            x = distribute_tensor(logits.npu(), mesh, [Shard(1)]).requires_grad_()
            with loss_parallel():
                got = nn.functional.cross_entropy(x, target.npu(), reduction=reduction)
                got.sum().backward()
            self.assertClose(got, expected)
            self.assertEqual(x.grad.placements, (Shard(1),))
            self.assertClose(x.grad, host.grad)

    @with_comms
    def test_prepared_inputs_and_outputs(self):
        from torch.distributed.tensor.parallel import PrepareModuleInput, PrepareModuleOutput, parallelize_module

        class Sum(nn.Module):
            def forward(self, x, y):
                return x + y

        mesh = self.build_device_mesh()
        net = nn.ModuleDict({"one": Sum(), "two": Sum()})
        parallelize_module(
            net,
            mesh,
            {
                "one": PrepareModuleInput(
                    input_layouts=(Shard(0), Replicate()),
                    desired_input_layouts=(Replicate(), Replicate()),
                    use_local_output=True,
                ),
                "two": PrepareModuleOutput(output_layouts=Replicate(), desired_output_layouts=Shard(0)),
            },
        )
        whole, part = torch.arange(8.0).npu(), torch.arange(8.0).npu().chunk(self.world_size)[self.rank]
        self.assertClose(net["one"](part, whole), torch.arange(8.0) * 2)
        mine = net["two"](whole, whole)
        self.assertClose(mine, (torch.arange(8.0) * 2).chunk(self.world_size)[self.rank])

    @with_comms
    def test_compiled(self):
        """A compiled function of distributed tensors."""
        mesh = self.build_device_mesh()
        x, y = torch.randn(4, 6), torch.randn(6, 2)

        @torch.compile(backend="aot_eager", fullgraph=True)
        def product(a, b):
            return (a @ b).relu().redistribute(placements=[Replicate()]).to_local()

        a = distribute_tensor(x.npu(), mesh, [Shard(1)]).requires_grad_()
        b = distribute_tensor(y.npu(), mesh, [Shard(0)])
        got = product(a, b)
        self.assertClose(got, (x @ y).relu())
        got.sum().backward()
        self.assertClose(a.grad, (x @ y > 0).float() @ y.t())


if __name__ == "__main__":
    run_tests()
