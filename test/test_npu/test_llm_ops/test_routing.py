"""The routing of tokens to experts (torch/npu/operators/routing.py) against their definitions."""

import numpy as np
from llm_ops_case import Call, LlmOpsTestCase, run_tests

import torch


def gating_top_k(x, k, *, bias=None, k_group=1, group_count=1, group_select_mode=0, norm_type=0, **scaling):
    """Row by row with NumPy: normalise, keep the best groups, keep the best experts."""
    chosen, weights = [], []
    normalised = 1 / (1 + np.exp(-x.numpy())) if norm_type else torch.softmax(x, 1).numpy()
    for row in normalised:
        ranked = row if bias is None else row + bias.numpy()
        groups = np.split(np.arange(len(row)), group_count)
        worth = [np.sort(ranked[g])[-1 if group_select_mode == 0 else -2 :].sum() for g in groups]
        best = sorted(range(group_count), key=lambda g: -worth[g])[:k_group]
        candidates = sorted(e for g in best for e in groups[g])
        experts = sorted(candidates, key=lambda e: -ranked[e])[:k]
        weight = row[experts]
        if norm_type:
            weight = weight / (weight.sum() + scaling.get("eps", 1e-20))
        chosen.append(experts)
        weights.append(weight * scaling.get("routed_scaling_factor", 1.0))
    out = torch.from_numpy(normalised) if scaling.get("out_flag") else torch.empty(0)
    return torch.from_numpy(np.array(weights)), torch.tensor(chosen), out


def calls() -> list[Call]:
    generator = torch.Generator().manual_seed(3)

    def scores(*shape):
        # Scores that are apart in 16 bits too, so that the choice is determined.
        return torch.stack([torch.randperm(shape[-1], generator=generator) for _ in range(shape[0])]).float() / 8 - 1

    bias = torch.rand(16, generator=generator) / 64
    return [
        Call("npu_moe_gating_top_k", (scores(5, 16), 4), {}, gating_top_k),
        Call("npu_moe_gating_top_k", (scores(5, 16).half(), 3), {"norm_type": 1, "out_flag": True}, gating_top_k),
        Call(
            "npu_moe_gating_top_k",
            (scores(7, 16), 4),
            {"bias": bias, "k_group": 2, "group_count": 4, "norm_type": 1, "routed_scaling_factor": 2.5},
            gating_top_k,
        ),
        Call(
            "npu_moe_gating_top_k",
            (scores(7, 16), 4),
            {"k_group": 2, "group_count": 4, "group_select_mode": 1},
            gating_top_k,
        ),
    ]


class TestRouting(LlmOpsTestCase):
    def test_calls(self):
        self.check_calls("routing", calls())

    def test_refusals(self):
        x = torch.randn(2, 8).npu()
        for message, args, kwargs in (
            ("k must be 1 to the 8 experts, but is 9", (x, 9), {}),
            ("group_count must divide the 8 experts, but is 3", (x, 1), {"group_count": 3}),
            ("x must be one of torch.float16", (x.int(), 1), {}),
            ("bias must be of shape", (x, 1), {"bias": x}),
        ):
            with self.assertRaisesRegex(RuntimeError, f"npu_moe_gating_top_k: {message}"):
                torch.npu_moe_gating_top_k(*args, **kwargs)


if __name__ == "__main__":
    run_tests()
