"""Tokens by a map of their experts (torch/npu/operators/expert_maps.py) against their definitions."""

from llm_ops_case import Call, LlmOpsTestCase, run_tests

import torch


def routing(tokens, experts, choices, generator):
    chosen = torch.stack([torch.randperm(experts, generator=generator)[:choices] for _ in range(tokens)])
    return torch.zeros(tokens, experts, dtype=torch.bool).scatter(1, chosen, True)


def rows_of(routing_map, num_out_tokens, drop_and_pad):
    """Which token and expert each row is of."""
    tokens, experts = routing_map.shape
    if not drop_and_pad:
        return [(t, e) for e in range(experts) for t in range(tokens) if routing_map[t, e]]
    rows = []
    for e in range(experts):
        wanted = [t for t in range(tokens) if routing_map[t, e]]
        others = [t for t in range(tokens) if not routing_map[t, e]]
        rows += [(t, e) for t in (wanted + others)[: num_out_tokens // experts]]
    return rows


def permute(tokens, routing_map, *, probs=None, num_out_tokens=None, drop_and_pad=False):
    rows = rows_of(routing_map, num_out_tokens, drop_and_pad)
    taken = torch.empty(0) if probs is None else torch.stack([probs[r] for r in rows])
    places = [t for t, _ in rows]
    if not drop_and_pad:
        places = sorted(range(len(rows)), key=lambda row: rows[row][0])
    return tokens[[t for t, _ in rows]], taken, torch.tensor(places)


def unpermute(permuted, sorted_indices, restore_shape, *, probs=None, routing_map=None, drop_and_pad=False):
    out = torch.zeros(restore_shape, dtype=permuted.dtype)
    for row, (t, e) in enumerate(rows_of(routing_map, len(permuted), drop_and_pad)):
        out[t] += permuted[row] * (1 if probs is None else probs[t, e])
    return out


def gradients(function, *inputs):
    """The gradients of a function's first result (or two) and what comes in, by autograd in float64."""
    wide = [t.double().requires_grad_() for t in inputs]
    results = [r for r in function(*wide) if r.requires_grad]
    grads = [torch.randn(r.shape, dtype=r.dtype, generator=torch.Generator().manual_seed(1)) for r in results]
    return grads, torch.autograd.grad(results, wide, grads)


class TestExpertMaps(LlmOpsTestCase):
    def variants(self):
        generator = torch.Generator().manual_seed(7)
        for drop_and_pad in (False, True):
            routing_map = routing(6, 4, 2, generator)
            tokens, probs = torch.randn(6, 8, generator=generator), torch.rand(6, 4, generator=generator)
            yield drop_and_pad, 12 if not drop_and_pad else 8, routing_map, tokens, probs

    def calls(self) -> list[Call]:
        found = []
        for drop, rows, routing_map, tokens, probs in self.variants():
            given = {"num_out_tokens": rows, "drop_and_pad": drop}
            name = "npu_moe_token_permute_with_routing_map"
            found.append(Call(name, (tokens, routing_map), {**given, "probs": probs}, permute))
            found.append(Call(name, (tokens.half(), routing_map.to(torch.int8)), given, permute))
            permuted, _, places = permute(tokens, routing_map, **given)
            back = {"routing_map": routing_map, "drop_and_pad": drop}
            args = (permuted, places.int(), [6, 8])
            for kwargs in (back, {**back, "probs": probs}):
                found.append(Call("npu_moe_token_unpermute_with_routing_map", args, kwargs, unpermute))
                plain = Call("_npu_moe_token_unpermute_with_routing_map", args, kwargs)
                plain.reference = lambda *a, **k: (unpermute(*a, **k), None, None, None)
                found.append(plain)
        return found

    def test_calls(self):
        for call in self.calls():
            with self.subTest(name=call.name, given=call.kwargs):
                self.check_call(call)
                self.check_compiled(call)

    def test_permute_gradient(self):
        for drop, rows, routing_map, tokens, probs in self.variants():
            given = {"num_out_tokens": rows, "drop_and_pad": drop}

            def reference(t, p, routing_map=routing_map, given=given):
                return permute(t, routing_map, probs=p, **given)

            grads, expected = gradients(reference, tokens, probs)
            places = permute(tokens, routing_map, **given)[2].int()
            args = (grads[0].float(), grads[1].float(), places, routing_map, 4, 6, drop)
            self.check_compiled(Call("npu_moe_token_permute_with_routing_map_grad", args))
            got = torch.ops.npu.npu_moe_token_permute_with_routing_map_grad(
                *(a.npu() if isinstance(a, torch.Tensor) else a for a in args)
            )
            self.assertEqual([g.cpu().double() for g in got], list(expected), atol=1e-5, rtol=1e-5)
            on_npu = [t.npu().requires_grad_() for t in (tokens, probs)]
            out = torch.ops.npu.npu_moe_token_permute_with_routing_map(
                on_npu[0], routing_map.npu(), probs=on_npu[1], **given
            )
            got = torch.autograd.grad(out[:2], on_npu, [g.float().npu() for g in grads])
            self.assertEqual([g.cpu().double() for g in got], list(expected), atol=1e-5, rtol=1e-5)

    def test_unpermute_gradient(self):
        for drop, rows, routing_map, tokens, probs in self.variants():
            given = {"num_out_tokens": rows, "drop_and_pad": drop}
            permuted, _, places = permute(tokens, routing_map, **given)
            for weights in (probs, None):

                def reference(rows, *p, routing_map=routing_map, drop=drop, places=places):
                    weight = p[0] if p else None
                    return (unpermute(rows, places, [6, 8], probs=weight, routing_map=routing_map, drop_and_pad=drop),)

                inputs = (permuted,) if weights is None else (permuted, weights)
                grads, expected = gradients(reference, *inputs)
                on_npu = [t.npu() for t in (permuted, places.int(), routing_map)]
                weight = None if weights is None else weights.npu()
                forward = torch.ops.npu._npu_moe_token_unpermute_with_routing_map(
                    *on_npu[:2], [6, 8], probs=weight, routing_map=on_npu[2], drop_and_pad=drop
                )
                args = (grads[0].float().npu(), forward[1], forward[2], on_npu[2], on_npu[0], weight, drop, [6, 8])
                got = torch.ops.npu.npu_moe_token_unpermute_with_routing_map_grad(*args)
                self.assertEqual([g.cpu().double() for g in got][: len(expected)], list(expected), atol=1e-5, rtol=1e-5)
                self.check_compiled(Call("npu_moe_token_unpermute_with_routing_map_grad", args))

    def test_by_indices(self):
        """The second versions of the gradients, and the forward operator that keeps its rows."""
        generator = torch.Generator().manual_seed(8)
        indices = torch.stack([torch.randperm(4, generator=generator)[:2] for _ in range(5)])
        tokens, probs = torch.randn(5, 8, generator=generator).npu(), torch.rand(5, 2, generator=generator).npu()
        for count in (10, 7):
            permuted, places = torch.ops.npu.npu_moe_token_permute(tokens, indices.npu(), count)
            grad = torch.randn_like(permuted)
            expected = torch.ops.npu.npu_moe_token_permute_grad(tokens, grad, indices.npu(), places)
            args = (grad, places, 5, torch.float32, 2)
            self.assertEqual(torch.ops.npu.npu_moe_token_permute_grad_v2(*args), expected)
            self.check_compiled(Call("npu_moe_token_permute_grad_v2", args))
            args = (permuted, places, probs)
            self.check_compiled(Call("_npu_moe_token_unpermute", args))
            out, kept = torch.ops.npu._npu_moe_token_unpermute(*args)
            self.assertEqual((out, kept), (torch.ops.npu.npu_moe_token_unpermute(*args), permuted))
            grad = torch.randn_like(out)
            expected = torch.ops.npu.npu_moe_token_unpermute_grad(permuted, grad, places, probs)
            args = (grad, places, count, torch.float32, probs, False, None, permuted)
            self.assertEqual(torch.ops.npu.npu_moe_token_unpermute_grad_v2(*args), expected)
            self.check_compiled(Call("npu_moe_token_unpermute_grad_v2", args))

    def test_refusals(self):
        x, routing_map = torch.randn(4, 8).npu(), torch.ones(4, 2, dtype=torch.bool).npu()
        permute_op, unpermute_op = (
            torch.ops.npu.npu_moe_token_permute_with_routing_map,
            torch.ops.npu.npu_moe_token_unpermute_with_routing_map,
        )
        places = torch.arange(4, dtype=torch.int32).npu()
        grad = torch.ops.npu.npu_moe_token_permute_grad_v2
        for message, error, call in (
            (r"routing_map must be of shape \(4, experts\)", RuntimeError, lambda: permute_op(x, routing_map[:2])),
            ("routing_map must be one of", RuntimeError, lambda: permute_op(x, routing_map.float())),
            ("restore_shape must be", RuntimeError, lambda: unpermute_op(x, places, [4, 7])),
            ("probs need routing_map", RuntimeError, lambda: unpermute_op(x, places, [4, 8], probs=x[:, :2])),
            ("padded_mode must be False", NotImplementedError, lambda: grad(x, places, 4, torch.float32, 1, True)),
        ):
            with self.assertRaisesRegex(error, message):
                call()


if __name__ == "__main__":
    run_tests()
