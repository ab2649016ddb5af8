"""What fills the caches of latent attention, against its formulas element by element."""

import numpy as np
from llm_ops_case import Call, LlmOpsTestCase, run_tests

import torch


def norm(x, gamma, epsilon):
    x, gamma = x.numpy(), gamma.numpy()
    return gamma * x / np.sqrt((x * x).mean(-1, keepdims=True) + epsilon)


def rotate(x, cos, sin):
    """Pair i of neighbours goes to the places i and i + half."""
    x, cos, sin = np.asarray(x), np.asarray(cos), np.asarray(sin)
    half, out = x.shape[-1] // 2, np.empty(np.broadcast_shapes(x.shape, cos.shape))
    for i in range(half):
        first, second = x[..., 2 * i], x[..., 2 * i + 1]
        out[..., i] = first * cos[..., i] - second * sin[..., i]
        out[..., i + half] = second * cos[..., i + half] + first * sin[..., i + half]
    return out


def store(cache, rows, slots, mode, lanes=16):
    """A cache of (blocks, block_size, 1, width) with rows in slots; of NZ its memory is (width / c, block_size, c)."""
    blocks, size, _, width = cache.shape
    memory = cache.clone().flatten()
    for row, slot in zip(np.asarray(rows).reshape(-1, width), slots, strict=True):
        if slot < 0:
            continue
        for i in range(width):
            inside = (
                (i // lanes * size + slot % size) * lanes + i % lanes
                if mode.endswith("NZ")
                else slot % size * width + i
            )
            memory[slot // size * size * width + inside] = row[i]
    return memory.view(cache.shape)


def block_slots(index, tokens, size, scale):
    columns = -(-tokens // size)
    return [
        int(index.view(-1, columns)[b, t // size]) * scale + t % size
        for b in range(index.numel() // columns)
        for t in range(tokens)
    ]


def rope_cache(kv, gamma, cos, sin, index, k_cache, ckv_cache, *, epsilon=1e-5, cache_mode="Norm", is_output_kv=False):
    normalised, rotated = norm(kv[..., :512], gamma, epsilon), rotate(kv[..., 512:], cos, sin)
    if cache_mode == "Norm":
        slots = [b * k_cache.shape[2] + int(i) for b, row in enumerate(index) for i in row]
        stored = [
            store(c.transpose(1, 2), r, slots, "").transpose(1, 2)
            for c, r in ((k_cache, rotated), (ckv_cache, normalised))
        ]
    else:
        slots = index.tolist()
        if "BLK" in cache_mode:
            slots = block_slots(index, kv.shape[2], k_cache.shape[1], 1)
        stored = [store(c, r, slots, cache_mode) for c, r in ((k_cache, rotated), (ckv_cache, normalised))]
    outs = [torch.from_numpy(t) if is_output_kv else torch.empty(0) for t in (rotated, normalised)]
    return *stored, *outs


def moved(*args, **kwargs):
    """Of the second version, whose caches are looked at as what it writes."""
    k_cache, ckv_cache, rope, key = rope_cache(*args, **kwargs)
    return rope, key, k_cache, ckv_cache


def prolog(x, dq, uq_qr, uk, dkv_kr, gamma_q, gamma_kv, sin, cos, index, kv_cache, kr_cache, *, cache_mode="PA_BSND"):
    heads, plain, latent = uk.shape
    query = torch.from_numpy(norm(x @ dq, gamma_q, 1e-5))
    each = (query @ uq_qr).view(*x.shape[:-1], heads, -1)
    out = torch.stack([each[..., n, :plain] @ uk[n] for n in range(heads)], -2)
    rotated = rotate(each[..., plain:], cos.unsqueeze(-2), sin.unsqueeze(-2))
    keys = x @ dkv_kr
    latent_key, rope = norm(keys[..., :latent], gamma_kv, 1e-5), rotate(keys[..., latent:], cos, sin)
    if cache_mode in ("BSND", "TND"):
        caches = [torch.from_numpy(r).unsqueeze(-2) for r in (latent_key, rope)]
    else:
        slots = index.flatten().tolist()
        if "BLK" in cache_mode:
            slots = block_slots(index, x.shape[1], kv_cache.shape[1], kv_cache.shape[1])
        caches = [store(kv_cache, latent_key, slots, cache_mode), store(kr_cache, rope, slots, cache_mode)]
    return out, torch.from_numpy(rotated), *caches, query


def first(*args, **kwargs):
    return prolog(*args, **kwargs)[:4]


def third(*args, cache_index=None, query_norm_flag=False, **kwargs):
    query, rope, kv_cache, kr_cache, normalised = prolog(*args[:9], cache_index, *args[9:], **kwargs)
    empty = torch.empty(0)
    return query, rope, empty, normalised if query_norm_flag else empty, empty, kv_cache, kr_cache


def draw(*shape, seed=0, dtype=torch.bfloat16):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed + sum(shape))).to(dtype)


def rope_calls():
    def call(name, mode, tokens, index, reference, **more):
        caches = [draw(5, 4, 1, w, dtype=torch.float16) for w in (64, 512)]
        if mode == "Norm":
            caches = [draw(2, 1, 9, w, dtype=torch.float16) for w in (64, 512)]
        args = [draw(2, 1, tokens, 576, dtype=torch.float16), draw(512, dtype=torch.float16)]
        args += [draw(2, 1, tokens, 64, seed=s, dtype=torch.float16) for s in (1, 2)]
        kwargs = {"cache_mode": mode, **more}
        changed = {"written": lambda *a, **k: a[5:7]} if name.endswith("v2") else {}
        return Call(name, (*args, torch.tensor(index), *caches), kwargs, reference, (1e-5, 1e-2), **changed)

    name = "npu_kv_rmsnorm_rope_cache"
    slots = [3, -1, 19, 7, 0, 12]
    return [
        call(name, "Norm", 3, [[8, 0, 4], [1, 2, 3]], rope_cache),
        call(name, "PA_BNSD", 3, slots, rope_cache, is_output_kv=True),
        call(name, "PA_NZ", 3, slots, rope_cache, epsilon=1e-2),
        call(name, "PA_BLK_BNSD", 6, [4, 16, 0, 8], rope_cache),
        call(f"{name}_v2", "PA_BLK_NZ", 6, [4, 16, 0, 8], moved, is_output_kv=True),
        call(f"{name}_v2_functional", "PA", 3, slots, moved, is_output_kv=True),
    ]


def prolog_calls():
    def call(name, mode, shape, index, reference, caches=((5, 4, 1), (5, 4, 1)), **more):
        weights = [draw(*shape, 24) / 4, draw(24, 16) / 4, draw(16, 3 * 40) / 4, draw(3, 8, 32) / 4, draw(24, 64) / 4]
        weights += [draw(16), draw(32), draw(*shape, 32, seed=1), draw(*shape, 32, seed=2)]
        stored = [draw(*caches[0], 32), draw(*caches[1], 32)]
        kwargs = {"cache_mode": mode, **more}
        if "v3" not in name:
            return Call(name, (*weights, index, *stored), kwargs, reference, (1e-5, 3e-2))
        if index is not None:
            kwargs["cache_index"] = index
        changed = {} if name.endswith("functional") else {"written": lambda *a, **k: a[9:11]}
        return Call(name, (*weights, *stored), kwargs, reference, (1e-5, 3e-2), **changed)

    slots, blocks = torch.tensor([[3, 19, 7], [0, -1, 12]]), torch.tensor([[4, 1], [0, 2]])
    batch, tokens = ((2, 3, 1), (2, 3, 1)), ((6, 1), (6, 1))
    return [
        call("npu_mla_prolog", "PA_BSND", (2, 3), slots, first),
        call("npu_mla_prolog", "PA_NZ", (6,), slots.flatten(), first),
        call("npu_mla_prolog_v2", "PA_BSND", (6,), slots.flatten(), lambda *a, **k: (*first(*a, **k), torch.zeros(1))),
        call("npu_mla_prolog_v3", "PA_BSND", (2, 3), slots, third, query_norm_flag=True),
        call("npu_mla_prolog_v3", "PA_BLK_NZ", (2, 6), blocks, third),
        call("npu_mla_prolog_v3", "BSND", (2, 3), None, third, batch),
        call("npu_mla_prolog_v3_functional", "TND", (6,), None, third, tokens),
    ]


class TestLatentAttention(LlmOpsTestCase):
    def test_calls(self):
        calls = rope_calls() + prolog_calls()
        self.check_family("latent_attention", calls)
        for call in calls:
            with self.subTest(name=call.name, mode=call.kwargs["cache_mode"]):
                self.check_call(call)
                self.check_compiled(call)

    def test_caches_are_written_in_place(self):
        """The first version returns its caches, which it writes though its schema doesn't say so."""
        call = rope_calls()[1]
        args = [t.npu() for t in call.args]
        results = torch.npu_kv_rmsnorm_rope_cache(*args, **call.kwargs)
        self.assertEqual([r.data_ptr() for r in results[:2]], [a.data_ptr() for a in args[5:7]])
        again = [t.npu() for t in call.args]
        compiled = torch.compile(torch.ops.npu.npu_kv_rmsnorm_rope_cache, backend="aot_eager", fullgraph=True)
        compiled(*again, **call.kwargs)
        self.assertEqual(again[5:7], args[5:7])

    def test_weights_in_a_format(self):
        call = prolog_calls()[0]
        args = [t.npu() for t in call.args]
        plain = torch.npu_mla_prolog(*args, **call.kwargs)
        for i in (1, 2, 4):
            args[i] = torch.npu_format_cast(args[i], 29)
        self.assertEqual(torch.npu_mla_prolog(*args, **call.kwargs), plain)

    def test_refusals(self):
        args = [t.npu() for t in rope_calls()[1].args]
        scale = torch.ones(64).npu()
        for error, message, kwargs in (
            (NotImplementedError, "k_rope_scale must be None", {"k_rope_scale": scale}),
            (NotImplementedError, "v must be None", {"v": scale}),
            (RuntimeError, "cache_mode must be Norm or one of", {"cache_mode": "x"}),
        ):
            with self.assertRaisesRegex(error, f"npu_kv_rmsnorm_rope_cache: {message}"):
                torch.npu_kv_rmsnorm_rope_cache(*args, **{"cache_mode": "PA", **kwargs})
        call = prolog_calls()[3]
        args = [t.npu() for t in call.args]
        index = call.kwargs["cache_index"].npu()
        for message, kwargs in (
            ("qc_qr_scale must be 1", {"qc_qr_scale": 2.0}),
            ("weight_quant_mode: ", {"weight_quant_mode": 1}),
            ("quant_scale_ckv: ", {"quant_scale_ckv": torch.ones(1).npu()}),
        ):
            with self.assertRaisesRegex(NotImplementedError, f"npu_mla_prolog_v3: {message}"):
                torch.npu_mla_prolog_v3(*args, cache_index=index, **kwargs)
        with self.assertRaisesRegex(RuntimeError, "npu_mla_prolog_v3: weight_dq must be"):
            torch.npu_mla_prolog_v3(args[0], args[1][:5], *args[2:], cache_index=index)


if __name__ == "__main__":
    run_tests()
