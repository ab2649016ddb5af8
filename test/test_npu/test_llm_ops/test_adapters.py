"""Low-rank adapters (torch/npu/operators/adapters.py) against loops over rows."""

from llm_ops_case import Call, LlmOpsTestCase, run_tests

import torch


def added(y, x, weight_b, indices, weight_a=None, layer_idx=0, scale=1e-3, y_offset=0, y_slice_size=-1):
    out = y.clone()
    for i, at in enumerate(indices.tolist()):
        if 0 <= at < len(weight_b):
            low = x[i] if weight_a is None else weight_a[at, layer_idx] @ x[i]
            made = weight_b[at, layer_idx] @ low * scale
            out[i, y_offset : y_offset + len(made)] += made
    return out


def calls() -> list[Call]:
    generator = torch.Generator().manual_seed(9)

    def r(*shape):
        return torch.randn(shape, generator=generator)

    indices = torch.tensor([1, 0, 2, 1, -1], dtype=torch.int32)
    whole = (r(5, 8), r(5, 6), r(2, 3, 8, 4), indices, r(2, 3, 4, 6), 2, 0.5)
    half = tuple(t.half() if isinstance(t, torch.Tensor) and t.is_floating_point() else t for t in whole)
    part = (r(5, 8), r(5, 4), r(2, 1, 3, 4), indices, None, 0, 2.0, 4, 3)
    found = []
    for name in ("npu_batch_gather_matmul", "npu_batch_gather_matmul_"):
        found += [Call(name, args, {}, added, (1e-5, 1e-2)) for args in (whole, half, part)]
    return found


class TestAdapters(LlmOpsTestCase):
    def test_calls(self):
        self.check_calls("adapters", calls())

    def test_refusals(self):
        args = [t.npu() if isinstance(t, torch.Tensor) else t for t in calls()[0].args]
        run = torch.npu_batch_gather_matmul
        for message, call in (
            ("do not fit", lambda: run(args[0], args[1], args[2][:, :, :5], *args[3:])),
            ("layer_idx must be below 3", lambda: run(*args[:5], 3)),
            ("without weight_a x must have 4 columns", lambda: run(*args[:4])),
            ("y_offset and y_slice_size must lie", lambda: run(*args, 1, 8)),
            ("x must be one of", lambda: run(args[0], args[1].half(), *args[2:])),
        ):
            with self.assertRaisesRegex(RuntimeError, f"npu_batch_gather_matmul: .*{message}"):
                call()


if __name__ == "__main__":
    run_tests()
