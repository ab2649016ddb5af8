"""npu_qkv_rms_norm_rope_cache against its steps, head by head and slot by slot."""

import numpy as np
from llm_ops_case import Call, LlmOpsTestCase, run_tests

import torch

NAME = "npu_qkv_rms_norm_rope_cache"


def reference(qkv, q_gamma, k_gamma, cos, sin, index, q_out, k_cache, v_cache, size, heads, **options):
    width, half = size[3], size[3] // 2
    each = qkv.view(len(qkv), -1, width).numpy()
    parts = np.split(each, np.cumsum(heads)[:2], axis=1)
    for i, gamma in ((0, q_gamma), (1, k_gamma)):
        x = parts[i] / np.sqrt((parts[i] ** 2).mean(-1, keepdims=True) + options.get("epsilon", 1e-6)) * gamma.numpy()
        turned = np.concatenate([-x[..., half:], x[..., :half]], -1)
        parts[i] = x * cos.numpy()[:, None] + turned * sin.numpy()[:, None]
    caches = []
    for part, cache, what in ((parts[1], k_cache, "k"), (parts[2], v_cache, "v")):
        cache = cache.clone()
        scale, offset = options.get(f"{what}_scale"), options.get(f"{what}_offset")
        if scale is not None:
            part = part / scale.numpy() + (0 if offset is None else offset.numpy())
            part = np.clip(np.rint(part), -128, 127)
        for row, slot in zip(part, index.tolist(), strict=True):
            if slot >= 0:
                block, place = divmod(slot, cache.shape[2])
                cache[block, :, place] = torch.from_numpy(row.reshape(-1, cache.shape[3])).to(cache.dtype)
        caches.append(cache)
    flat = [torch.from_numpy(p.reshape(len(qkv), -1)) for p in parts]
    outs = flat if options.get("is_output_qkv") else [torch.empty(0)] * 3
    return *outs, flat[0], *caches


def draw(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed + sum(shape))).half()


def case(small):
    args = [draw(6, 7 * 32), draw(32), draw(32, seed=1), draw(6, 32), draw(6, 32, seed=1)]
    args += [torch.tensor([3, -1, 15, 8, 0, -1]), draw(6, 4 * 32)]
    caches = [draw(2, 2, 8, 32), draw(2, 4, 8, 16)]
    kwargs = {"is_output_qkv": small, "epsilon": 1e-3}
    if small:
        caches = [torch.zeros(2, 2, 8, 32, dtype=torch.int8), torch.zeros(2, 2, 8, 32, dtype=torch.int8)]
        kwargs |= {"k_scale": draw(2, 32).float().abs() / 8 + 0.1, "v_scale": draw(1, 32).float().abs() / 8 + 0.1}
        kwargs["k_offset"] = draw(2, 32, seed=4).float()
        args[0], heads = draw(6, 7 * 32), [4, 2, 1]
        caches[1] = torch.zeros(2, 1, 8, 32, dtype=torch.int8)
    else:
        heads = [3, 2, 2]
        args[6] = draw(6, 3 * 32)
    call = (*args, *caches, [2, 3, 7, 32], heads)
    tolerance = (1.01 if small else 2e-3, 2e-2)
    return Call(NAME, call, kwargs, reference, tolerance, written=lambda *a, **k: a[6:9])


class TestRotatedCaches(LlmOpsTestCase):
    def test_calls(self):
        for small in (False, True):
            with self.subTest(small=small):
                call = case(small)
                functional = Call(f"{NAME}_functional", call.args, call.kwargs, reference, call.tolerance)
                self.check_family("rotated_caches", [call, functional])
                for each in (call, functional):
                    self.check_call(each)
                    self.check_compiled(each)

    def test_refusals(self):
        call = case(False)
        args = [t.npu() if isinstance(t, torch.Tensor) else t for t in call.args]
        with self.assertRaisesRegex(NotImplementedError, f"{NAME}: cache_mode must be PA_NZ"):
            torch.npu_qkv_rms_norm_rope_cache(*args, cache_mode="PA")
        with self.assertRaisesRegex(RuntimeError, f"{NAME}: head_nums must add up to 7"):
            torch.npu_qkv_rms_norm_rope_cache(*args[:-1], [3, 2, 1])
        with self.assertRaisesRegex(RuntimeError, f"{NAME}: k_cache must be one of torch.int8"):
            torch.npu_qkv_rms_norm_rope_cache(*args, k_scale=torch.ones(2, 32).npu())


if __name__ == "__main__":
    run_tests()
