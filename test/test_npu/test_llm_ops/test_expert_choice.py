"""The choice of experts (torch/npu/operators/expert_choice.py) against its definitions."""

import numpy as np
from llm_ops_case import Call, LlmOpsTestCase, run_tests

import torch


def top_k_softmax(x, *, k=1, finished=None, renorm=0, output_softmax=False):
    rows, experts = x.reshape(-1, x.shape[-1]).numpy(), x.shape[-1]
    weights, chosen, everything = [], [], []
    for row in rows:
        best = sorted(range(experts), key=lambda e: -row[e])[:k]
        soft = np.exp(row - row.max()) / np.exp(row - row.max()).sum()
        over = np.exp(row[best]) / np.exp(row[best]).sum()
        weights.append(over if renorm else soft[best])
        chosen.append(best)
        everything.append(soft)
    if finished is not None:
        chosen = [[experts] * k if done else best for best, done in zip(chosen, finished.flatten(), strict=True)]
    shape = (*x.shape[:-1], k)
    out = torch.tensor(np.array(everything)).view(x.shape) if output_softmax else torch.empty(0)
    return torch.tensor(np.array(weights)).view(shape), torch.tensor(chosen).view(shape), out


def update_expert(ids, table, **given):
    tokens, k = ids.shape
    places = torch.empty_like(ids)
    for i in range(tokens):
        for j in range(k):
            copies, *where = table[ids[i, j]].tolist()
            if given.get("balance_mode"):
                at = i % copies
            else:
                at = given["local_rank_id"] // -(-given["world_size"] // copies)
            places[i, j] = where[at]
    if given.get("expert_scales") is None:
        return places, torch.empty(0)
    scales, threshold = given["expert_scales"], given["pruning_threshold"].flatten()
    kept = torch.stack([s > s.sum() * threshold for s in scales])
    if given.get("active_mask") is not None:
        kept[~given["active_mask"]] = False
    return places, kept


def calls() -> list[Call]:
    generator = torch.Generator().manual_seed(5)

    def scores(*shape):
        flat = [torch.randperm(shape[-1], generator=generator) for _ in range(int(np.prod(shape[:-1])))]
        return (torch.stack(flat).float() / 8 - 1).view(shape)

    finished = torch.tensor([[True, False, False], [False, True, False]])
    table = torch.tensor([[1, 0, -1, -1], [2, 1, 2, -1], [3, 3, 4, 5], [1, 6, -1, -1]], dtype=torch.int32)
    ids = torch.tensor([[2, 1], [0, 2], [1, 3], [2, 0], [2, 1]], dtype=torch.int32)
    weights = torch.tensor([[0.9, 0.1], [0.6, 0.4], [0.8, 0.3], [0.7, 0.5], [0.5, 0.45]])
    softmax = "npu_moe_gating_top_k_softmax_v2"
    return [
        Call(softmax, (scores(5, 16),), {"k": 4, "output_softmax": True}, top_k_softmax),
        Call(softmax, (scores(2, 3, 8).half(),), {"k": 2, "finished": finished}, top_k_softmax),
        Call(softmax, (scores(4, 8).bfloat16(),), {"k": 3, "renorm": 1}, top_k_softmax),
        Call("npu_moe_update_expert", (ids, table), {"local_rank_id": 3, "world_size": 6}, update_expert),
        Call(
            "npu_moe_update_expert",
            (ids.long(), table),
            {
                "balance_mode": 1,
                "expert_scales": weights,
                "pruning_threshold": torch.tensor([0.2, 0.35]),
                "active_mask": torch.tensor([True, True, True, True, False]),
            },
            update_expert,
        ),
        *(
            Call(
                "npu_moe_gating_top_k_backward",
                (torch.rand(4, 8, generator=generator), torch.randn(4, 3, generator=generator), scores(4, 8)[:, :3]),
                {"norm_type": kind, "routed_scaling_factor": 2.5},
            )
            for kind in (0, 1)
        ),
    ]


class TestExpertChoice(LlmOpsTestCase):
    def test_calls(self):
        self.check_family("expert_choice", calls())
        for call in calls():
            if call.reference is None:
                continue
            with self.subTest(name=call.name):
                self.check_call(call)
                self.check_compiled(call)

    def test_gating_backward(self):
        """The gradient that autograd finds for the forward operator."""
        for kind in (0, 1):
            x = torch.randn(6, 16, device="npu", requires_grad=True)
            y, chosen, norm = torch.ops.npu.npu_moe_gating_top_k(
                x, 4, norm_type=kind, out_flag=True, routed_scaling_factor=2.5
            )
            grad = torch.randn_like(y)
            (expected,) = torch.autograd.grad(y, x, grad)
            args = (norm.detach(), grad, chosen)
            kwargs = {"norm_type": kind, "routed_scaling_factor": 2.5}
            got = torch.ops.npu.npu_moe_gating_top_k_backward(*args, **kwargs)
            self.assertEqual(got, expected, atol=1e-6, rtol=1e-5)
            self.check_compiled(Call("npu_moe_gating_top_k_backward", args, kwargs))

    def test_refusals(self):
        x = torch.randn(2, 8).npu()
        ids, table = torch.zeros(2, 2, dtype=torch.int32).npu(), torch.ones(4, 2, dtype=torch.int32).npu()
        softmax, update = torch.ops.npu.npu_moe_gating_top_k_softmax_v2, torch.ops.npu.npu_moe_update_expert
        for message, error, call in (
            ("k must be 1 to 8, but is 9", RuntimeError, lambda: softmax(x, k=9)),
            (
                "output_softmax goes with renorm 0",
                NotImplementedError,
                lambda: softmax(x, renorm=1, output_softmax=True),
            ),
            ("finished must be bool", RuntimeError, lambda: softmax(x, finished=x[:, 0])),
            ("balance_mode 0 needs local_rank_id", RuntimeError, lambda: update(ids, table)),
            ("go together", RuntimeError, lambda: update(ids, table, expert_scales=x[:, :2], balance_mode=1)),
        ):
            with self.assertRaisesRegex(error, message):
                call()


if __name__ == "__main__":
    run_tests()
