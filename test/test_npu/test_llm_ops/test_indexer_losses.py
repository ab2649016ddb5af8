"""The training of what chooses keys (torch/npu/operators/indexer_losses.py): loops over queries, and autograd."""

from llm_ops_case import Call, LlmOpsTestCase, run_tests

import torch

ROPE = 4


class Case:
    """Sequences of random lengths, and how a layout holds them; the definition, query by query, in float64."""

    def __init__(self, seed, layout, heads_of_keys):
        self.generator = torch.Generator().manual_seed(seed)
        self.layout = layout
        self.lengths = ([2, 4], [5, 4]) if layout == "TND" else ([3, 3], [6, 6])
        self.heads, self.index_heads = 3, 2
        self.query = self.draw(0, self.heads, 8)
        self.query_rope = self.draw(0, self.heads, ROPE)
        self.key = self.draw(1, heads_of_keys, 8)
        self.key_rope = self.draw(1, heads_of_keys, ROPE)
        self.query_index, self.key_index = self.draw(0, self.index_heads, 16), self.draw(1, 1, 16)
        self.weights = self.draw(0, self.index_heads)
        self.scale = 0.4

    def draw(self, side, *shape):
        return [(torch.randn(n, *shape, generator=self.generator) / 2).half() for n in self.lengths[side]]

    def held(self, parts, at=0):
        return torch.stack(parts) if self.layout == "BSND" else torch.cat(parts, at)

    def ends(self, side):
        return None if self.layout == "BSND" else torch.tensor(self.lengths[side]).cumsum(0).tolist()

    def seen(self, b, i):
        return self.lengths[1][b] - self.lengths[0][b] + i + 1

    def scores(self, b, i, rows, query, key, weights):
        """The indexer's sums of one query for rows of keys."""
        products = torch.relu(query[b][i].double() @ key[b][rows, 0].double().T)
        return weights[b][i].double() @ products

    def attention(self, b, i, rows):
        """(heads, rows): products of the attention of one query."""
        one = torch.cat([self.query[b][i], self.query_rope[b][i]], -1).double()
        other = torch.cat([self.key[b], self.key_rope[b]], -1)[rows].double()
        heads = other.shape[1]
        return torch.stack([self.scale * other[:, h % heads] @ one[h] for h in range(self.heads)])

    def loss(self, named, query, key, weights):
        """The divergence over all queries; ``named`` tells the rows of one."""
        total = torch.zeros((), dtype=torch.double)
        for b, count in enumerate(self.lengths[0]):
            for i in range(count):
                rows = named(b, i)
                if not len(rows):
                    continue
                target = torch.softmax(self.attention(b, i, rows), -1).sum(0) / self.heads
                logs = torch.log_softmax(self.scores(b, i, rows, query, key, weights), -1)
                total = total + (target * (target.log() - logs)).sum()
        return total

    def expected(self, named):
        groups = self.query_index, self.key_index, self.weights
        leaves = [[t.double().requires_grad_() for t in parts] for parts in groups]
        loss = self.loss(named, *leaves)
        flat = [t for parts in leaves for t in parts]
        grads = iter(torch.autograd.grad(loss, flat))
        return *(self.held([next(grads) for _ in parts]) for parts in leaves), loss.detach().view(1)

    def statistics(self, named, by_head_first):
        """The attention's maxima and sums of each query: (heads, queries) or (queries, heads) of a sequence."""
        found = []
        for b, count in enumerate(self.lengths[0]):
            rows = [self.attention(b, i, named(b, i)) if len(named(b, i)) else None for i in range(count)]
            top = [torch.zeros(self.heads).double() if s is None else s.amax(-1) for s in rows]
            total = [
                torch.ones(self.heads).double() if s is None else (s - t[:, None]).exp().sum(-1)
                for s, t in zip(rows, top, strict=True)
            ]
            found.append([torch.stack(t).float() for t in (top, total)])
        both = []
        for at in range(2):
            parts = [part[at].T.unsqueeze(-1) if by_head_first else part[at].unsqueeze(0) for part in found]
            both.append(self.held(parts, 1))
        return both

    def lengths_given(self):
        return {"actual_seq_qlen": self.ends(0), "actual_seq_klen": self.ends(1), "layout": self.layout}


class TestIndexerLosses(LlmOpsTestCase):
    def test_names(self):
        names = [call.name for layout in ("BSND", "TND") for call in self.calls(layout)]
        self.check_family("indexer_losses", [Call(name, ()) for name in names])

    def calls(self, layout):
        dense, sparse = Case(1, layout, 3), Case(2, layout, 1)
        near = (2e-4, 2e-2)

        def all_seen(b, i):
            return list(range(max(0, dense.seen(b, i))))

        def lse(*_, **__):
            tops, sums = [], []
            for b, count in enumerate(dense.lengths[0]):
                each = [
                    dense.scores(b, i, all_seen(b, i), dense.query_index, dense.key_index, dense.weights)
                    for i in range(count)
                ]
                tops.append(torch.stack([s.max() for s in each]).unsqueeze(0))
                sums.append(torch.stack([(s - s.max()).exp().sum() for s in each]).unsqueeze(0))
            return dense.held(tops, 1), dense.held(sums, 1)

        index = dense.held(dense.query_index), dense.held(dense.key_index), dense.held(dense.weights)
        top, total = lse()
        args = dense.held(dense.query), dense.held(dense.key), *index, *dense.statistics(all_seen, True)
        args = (*args, top.float(), total.float(), dense.scale)
        rope = {"query_rope": dense.held(dense.query_rope), "key_rope": dense.held(dense.key_rope)}
        found = [
            Call("npu_dense_lightning_indexer_softmax_lse", index, dense.lengths_given(), lse, near),
            Call(
                "npu_dense_lightning_indexer_grad_kl_loss",
                args,
                {**rope, **dense.lengths_given()},
                lambda *_, **__: dense.expected(all_seen),
                near,
            ),
        ]
        lists = []
        for b, count in enumerate(sparse.lengths[0]):
            each = torch.full((count, 1, 4), -1, dtype=torch.int32)
            for i in range(count):
                seen = max(0, sparse.seen(b, i))
                order = torch.randperm(seen, generator=sparse.generator)[: min(3, seen)]
                each[i, 0, : len(order)] = order.int()
            # A key behind the query is not seen, though it is named.
            each[0, 0, 3] = sparse.lengths[1][b] - 1
            lists.append(each)

        def named(b, i):
            return [j for j in lists[b][i, 0].tolist() if 0 <= j < sparse.seen(b, i)]

        index = sparse.held(sparse.query_index), sparse.held(sparse.key_index), sparse.held(sparse.weights)
        args = sparse.held(sparse.query), sparse.held(sparse.key), *index, sparse.held(lists)
        args = (*args, *sparse.statistics(named, False), sparse.scale)
        rope = {"query_rope": sparse.held(sparse.query_rope), "key_rope": sparse.held(sparse.key_rope)}
        found.append(
            Call(
                "npu_sparse_lightning_indexer_grad_kl_loss",
                args,
                {**rope, **sparse.lengths_given()},
                lambda *_, **__: sparse.expected(named),
                near,
            )
        )
        dy = [torch.randn(each.shape, generator=sparse.generator).half() for each in lists]

        def values(*_, **__):
            groups = sparse.query_index, sparse.key_index, sparse.weights
            leaves = [[t.double().requires_grad_() for t in parts] for parts in groups]
            total = torch.zeros((), dtype=torch.double)
            for b, count in enumerate(sparse.lengths[0]):
                for i in range(count):
                    for at, j in enumerate(lists[b][i, 0].tolist()):
                        if 0 <= j < sparse.seen(b, i):
                            total = total + sparse.scores(b, i, [j], *leaves).sum() * dy[b][i, 0, at].double()
            grads = iter(torch.autograd.grad(total, [t for parts in leaves for t in parts]))
            return tuple(sparse.held([next(grads) for _ in parts]) for parts in leaves)

        ends = [None if sparse.ends(s) is None else torch.tensor(sparse.ends(s), dtype=torch.int32) for s in range(2)]
        args = (*index[:2], sparse.held(dy), sparse.held(lists), index[2], *ends, layout)
        found.append(Call("npu_lightning_indexer_grad", args, {}, values, near))
        return found

    def test_calls(self):
        for layout in ("BSND", "TND"):
            for call in self.calls(layout):
                with self.subTest(name=call.name, layout=layout):
                    self.check_call(call)
                    self.check_compiled(call)

    def test_gradient_of_the_indexer(self):
        """What the indexer's own values give by autograd."""
        generator = torch.Generator().manual_seed(6)
        query, key = (torch.randn(1, n, h, 128, generator=generator).half().npu() for n, h in ((3, 2), (5, 1)))
        weights = torch.rand(1, 3, 2, generator=generator).half().npu()
        inputs = [t.requires_grad_() for t in (query, key, weights)]
        chosen, values = torch.npu_lightning_indexer(*inputs, sparse_count=4, return_value=True)
        dy = torch.randn(values.shape, generator=generator).half().npu()
        wanted = torch.autograd.grad(torch.where(chosen >= 0, values, 0.0), inputs, dy)
        found = torch.npu_lightning_indexer_grad(query, key, dy, chosen, weights)
        for got, want in zip(found, wanted, strict=True):
            self.assertEqual(got, want, atol=2e-2, rtol=2e-2)

    def test_refusals(self):
        dense, sparse = self.calls("BSND")[0], self.calls("BSND")[2]
        index = [t.npu() for t in dense.args]
        lse, loss = torch.npu_dense_lightning_indexer_softmax_lse, torch.npu_sparse_lightning_indexer_grad_kl_loss
        given = [t.npu() if isinstance(t, torch.Tensor) else t for t in sparse.args]
        for error, message, call in (
            (RuntimeError, "sparse_mode must be one of", lambda: lse(*index, sparse_mode=0)),
            (RuntimeError, "layout must be BSND or TND", lambda: lse(*index, layout="SBH")),
            (NotImplementedError, "pre_tokens and next_tokens", lambda: lse(*index, pre_tokens=3)),
            (RuntimeError, "as many keys as queries", lambda: lse(index[0], index[1][:, :1], index[2])),
            (NotImplementedError, "sinks must be None", lambda: loss(*given, sinks=torch.ones(3).npu())),
            (RuntimeError, "layout TND needs", lambda: lse(*(t[0] for t in index), layout="TND")),
        ):
            with self.assertRaisesRegex(error, message):
                call()


if __name__ == "__main__":
    run_tests()
