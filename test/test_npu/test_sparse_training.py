"""Training with sparse tensors on npu, step by step against the CPU: embeddings with sparse gradients, networks on
graphs, mixed precision; and that the host does not wait for what needs no answer."""

import torch.nn.functional as F
from common_utils import run_tests
from sparse_checks import DEVICE, SparseCase, allow_the_cpu, coo

import torch
from torch import nn
from torch.utils import _pytree as pytree

setUpModule = allow_the_cpu


class TestTraining(SparseCase):
    def trained(self, device, make, steps=5):
        """Losses and weights of some steps; `make(device)` gives a module, an optimizer and a function of the loss."""
        torch.manual_seed(0)
        module, optimizer, loss_of = make(device)
        losses = []
        for _ in range(steps):
            optimizer.zero_grad()
            loss = loss_of()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses, [p.detach().cpu() for p in module.parameters()]

    def same(self, make):
        for a, e in zip(
            pytree.tree_leaves(self.trained(DEVICE, make)), pytree.tree_leaves(self.trained("cpu", make)), strict=True
        ):
            torch.testing.assert_close(a, e, rtol=1e-4, atol=1e-5)

    def test_sparse_embeddings(self):
        words = torch.tensor([[1, 2, 2, 5], [0, 1, 9, 9]])
        optimizers = {
            "SparseAdam": lambda p: torch.optim.SparseAdam(list(p), lr=0.1),
            "SGD": lambda p: torch.optim.SGD(p, lr=0.1),
            "SGD with momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
            "Adagrad": lambda p: torch.optim.Adagrad(p, lr=0.1),
        }
        modules = {
            "Embedding": lambda: nn.Embedding(10, 4, sparse=True, padding_idx=0),
            "EmbeddingBag": lambda: nn.EmbeddingBag(10, 4, sparse=True, mode="sum"),
            "EmbeddingBag, mean": lambda: nn.EmbeddingBag(10, 4, sparse=True, mode="mean"),
        }
        for name, optimizer in optimizers.items():
            for kind, module in modules.items():

                def make(device, optimizer=optimizer, module=module):
                    table, index = module().to(device), words.to(device)
                    return table, optimizer(table.parameters()), lambda: table(index).square().sum()

                with self.subTest(f"{kind} {name}"):
                    self.same(make)
        table = nn.Embedding(4, 2, sparse=True).to(DEVICE)
        table(torch.tensor([1, 1], device=DEVICE)).sum().backward()
        self.assertEqual(table.weight.grad.layout, torch.sparse_coo)

    def graph(self, nodes=12, edges=40):
        generator = torch.Generator().manual_seed(1)
        index = torch.randint(nodes, (2, edges), generator=generator)
        adjacency = torch.sparse_coo_tensor(index, torch.rand(edges, generator=generator), (nodes, nodes)).coalesce()
        return adjacency, torch.randn(nodes, 6, generator=generator), torch.randint(3, (nodes,), generator=generator)

    def test_convolution_of_a_graph(self):
        adjacency, features, labels = self.graph()
        for layout in (torch.sparse_coo, torch.sparse_csr):

            def make(device, layout=layout):
                matrix, x, y = adjacency.to_sparse(layout=layout).to(device), features.to(device), labels.to(device)
                layers = nn.ModuleList([nn.Linear(6, 8), nn.Linear(8, 3)]).to(device)

                def loss():
                    hidden = (matrix @ layers[0](x)).relu()
                    return F.cross_entropy(torch.sparse.mm(matrix, layers[1](hidden)), y)

                return layers, torch.optim.Adam(layers.parameters(), lr=1e-2), loss

            self.same(make)

    def test_attention_on_a_graph(self):
        """Weights of edges are learned, through softmax over a node's neighbours."""
        adjacency, features, labels = self.graph()

        def make(device):
            index, x, y = adjacency.indices().to(device), features.to(device), labels.to(device)
            layers = nn.ModuleList([nn.Linear(6, 3), nn.Linear(6, 1), nn.Linear(6, 1)]).to(device)

            def loss():
                scores = F.leaky_relu(layers[1](x)[index[0]] + layers[2](x)[index[1]]).squeeze(1)
                weights = torch.sparse.softmax(torch.sparse_coo_tensor(index, scores, (12, 12)), 1)
                return F.cross_entropy(torch.sparse.mm(weights, layers[0](x)), y)

            return layers, torch.optim.Adam(layers.parameters(), lr=1e-2), loss

        self.same(make)

    def test_reduced_products(self):
        """torch.sparse.mm with a reduction, as message passing calls it."""
        adjacency, features, _ = self.graph()
        for reduce in ("sum", "mean", "amax", "amin"):
            results = []
            for device in (DEVICE, "cpu"):
                matrix = adjacency.to_sparse_csr().to(device).requires_grad_()
                x = features.to(device).requires_grad_()
                y = torch.sparse.mm(matrix, x, reduce)
                results.append((y, *torch.autograd.grad(y, (matrix, x), y.detach() * 2)))
            with self.subTest(reduce):
                self.check(*results, tolerance=1e-5)

    def test_mixed_precision(self):
        def make(device):
            table, index = nn.Embedding(10, 4, sparse=True).to(device), torch.tensor([1, 2, 2]).to(device)
            optimizer = torch.optim.SGD(table.parameters(), lr=0.1)
            scaler = torch.amp.GradScaler(device, init_scale=8.0)

            class Scaled:
                zero_grad = optimizer.zero_grad

                def step(self):
                    scaler.step(optimizer)
                    scaler.update()

            return table, Scaled(), lambda: scaler.scale(table(index).square().sum())

        self.same(make)
        with torch.autocast(DEVICE, torch.float16):
            self.assertEqual((coo().to(DEVICE) @ torch.ones(4, 2, device=DEVICE)).dtype, torch.float16)

    def test_gradients_by_differences(self):
        for x in (coo(torch.float64), coo(torch.float64).to_sparse_csr()):
            leaf = x.to(DEVICE).requires_grad_()
            w = torch.rand(4, 2, dtype=torch.float64, device=DEVICE, requires_grad=True)
            self.assertTrue(torch.autograd.gradcheck(torch.sparse.mm, (leaf, w), masked=True))
        leaf = coo(torch.float64).to(DEVICE).requires_grad_()
        self.assertTrue(torch.autograd.gradcheck(lambda t: torch.sparse.softmax(t, 1).to_dense(), (leaf,), masked=True))


class TestAsynchrony(SparseCase):
    def test_what_needs_no_answer_does_not_wait(self):
        x, grown = coo().to(DEVICE), coo(coalesced=False).to(DEVICE)
        csr, w = x.to_sparse_csr(), torch.ones(4, 3, device=DEVICE)
        table, index = nn.Embedding(4, 2, sparse=True).to(DEVICE), torch.tensor([1, 1], device=DEVICE)
        optimizer = torch.optim.SGD(table.parameters(), lr=0.1)

        def products():
            for t in (x, csr):
                leaf, dense = t.detach().requires_grad_(), w.clone().requires_grad_()
                torch.sparse.mm(leaf, dense).sum().backward()
            for reduce in ("mean", "amax"):
                torch.sparse.mm(csr, w, reduce)

        def sums():
            return grown + grown, torch.zeros(3, 4, device=DEVICE) + x, x * 2, x.to_dense(), csr.to_dense()

        def conversions():
            return x.to_sparse_csr(), csr.to_sparse(), csr.to_sparse_csc(), x.t(), x.clone(), -x, csr.relu()

        def embedding():
            table(index).sum().backward()
            optimizer.step()

        def masks():
            return torch.sparse.softmax(x, 1), torch.ones(3, 4, device=DEVICE).sparse_mask(x)

        self.addCleanup(torch.npu.set_sync_debug_mode, "default")
        torch.npu.set_sync_debug_mode("error")
        for call in (products, sums, conversions, embedding, masks):
            call()
        with self.assertRaisesRegex(RuntimeError, "synchronizing"):
            grown.coalesce()


if __name__ == "__main__":
    run_tests()
