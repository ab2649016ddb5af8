"""Caches in blocks, written and read, against loops over their slots."""

from llm_ops_case import Call, LlmOpsTestCase, run_tests

import torch


def scatter(key, value, key_cache, value_cache, slots, *, cache_mode="PA_NZ"):
    caches = []
    for tokens, cache in ((key, key_cache), (value, value_cache)):
        cache = cache.clone()
        size = cache.shape[2 if cache_mode == "PA_NZ" else 1]
        for token, slot in zip(tokens, slots.tolist(), strict=True):
            if slot < 0:
                continue
            if cache_mode == "PA_NZ":
                cache[slot // size, :, slot % size] = token.reshape(-1, cache.shape[3])
            else:
                cache[slot // size, slot % size] = token
        caches.append(cache)
    return tuple(caches)


def quant_scatter(x, indices, updates, scales, zero_points=None, axis=-2, *_):
    out, axis = x.clone(), axis % x.dim()
    numbers = updates / scales.flatten() + (0 if zero_points is None else zero_points.flatten())
    numbers = numbers.round().clamp(-128, 127).to(x.dtype)
    for i, index in enumerate(indices.tolist()):
        batch, first = index if isinstance(index, list) else (i, index)
        for j in range(updates.shape[axis]):
            out[batch].select(axis - 1, first + j).copy_(numbers[i].select(axis - 1, j))
    return out


def gather(key_cache, value_cache, tables, lengths, key, value, *, seq_offset=None, is_seq_lens_cumsum=False):
    found = []
    for cache, out in ((key_cache, key), (value_cache, value)):
        out, at = out.clone(), 0
        counts = lengths.diff() if is_seq_lens_cumsum else lengths
        for i, count in enumerate(counts.tolist()):
            first = 0 if seq_offset is None else int(seq_offset[i]) // cache.shape[1]
            for j in range(count):
                column = first + j // cache.shape[1]
                block = int(tables[i, column]) if column < tables.shape[1] else -1
                known = 0 <= block < cache.shape[0]
                out[at] = cache[block, j % cache.shape[1]].reshape(out[at].shape) if known else 0
                at += 1
        found.append(out)
    return tuple(found)


def scatter_list(tensors, indices, updates, mask=None, reduce="update", axis=-2):
    results = []
    for i, tensor in enumerate(tensors):
        tensor = tensor.clone()
        if mask is None or mask[i]:
            tensor.narrow(axis, int(indices[i]), 1).copy_(updates[i])
        results.append(tensor)
    return tuple(results)


def advance(tokens, sampled, positions, lengths, slots, tables, num_seqs, num_queries, block_size):
    results = [t.clone() for t in (tokens, positions, lengths, slots)]
    for i in range(num_queries):
        at = int(lengths[i])
        results[0][i], results[1][i], results[2][i] = sampled[i, 0], at, at + 1
        results[3][i] = tables[i, at // block_size] * block_size + at % block_size
    return tuple(results)


def small_updates():
    generator = torch.Generator().manual_seed(17)
    cache = torch.randint(-128, 128, (4, 5, 3, 8), generator=generator).to(torch.int8)
    updates = torch.randn(3, 5, 2, 8, generator=generator).half()
    scales, zero_points = torch.rand(1, 1, 1, 8, generator=generator) / 50 + 0.01, torch.arange(8, dtype=torch.int32)
    first = torch.tensor([1, 0, 1], dtype=torch.int32)
    pairs = torch.tensor([[3, 0], [1, 2], [0, 3]], dtype=torch.int32)
    tall = torch.randn(3, 2, 3, 8, generator=generator).bfloat16()
    return [(cache, first, updates, scales), (cache, pairs, tall, scales, zero_points, 1, -1)]


def calls():
    generator = torch.Generator().manual_seed(1)

    def draw(*shape):
        return torch.randn(shape, generator=generator)

    slots = torch.tensor([7, -1, 0, 13, -1], dtype=torch.int32)
    key, value = draw(5, 2, 16).half(), draw(5, 2, 32).half()
    blocks = draw(3, 8, 2, 16).half(), draw(3, 8, 2, 32).half()
    fractal = draw(3, 2, 8, 16).half(), draw(3, 4, 8, 16).half()
    tables = torch.tensor([[2, 0, 1], [1, -1, 0]], dtype=torch.int32)
    lengths, out = torch.tensor([9, 12], dtype=torch.int32), (draw(24, 2, 16).half(), draw(24, 64).half())
    ends, offset = torch.tensor([0, 9, 21], dtype=torch.int32), torch.tensor([8, 16], dtype=torch.int32)
    tensors, places = [draw(2, 5, 4) for _ in range(3)], torch.tensor([4, 0, 2], dtype=torch.int32)
    mask = torch.tensor([1, 0, 1], dtype=torch.uint8)
    step = (torch.arange(4), torch.tensor([[50], [60], [70]]), torch.zeros(4).long(), torch.tensor([3, 4, 9, 2]))
    step = (*step, torch.full((4,), -5), torch.arange(12).view(4, 3).flip(0), 4, 3, 4)
    written = {"written": lambda *a, **k: a[2:4]}
    return [
        Call("npu_scatter_pa_kv_cache", (key, value, *blocks, slots), {"cache_mode": "Norm"}, scatter, **written),
        Call("npu_scatter_pa_kv_cache", (key, value, *fractal, slots.long()), {}, scatter, **written),
        Call("npu_scatter_pa_kv_cache", (key[:2], value[:2], *fractal, slots[[1, 4]]), {}, scatter, **written),
        Call("npu_scatter_pa_kv_cache_functional", (key, value, *fractal, slots), {}, scatter),
        Call(
            "npu_scatter_pa_cache.value",
            (key, slots),
            {"key_cache": blocks[0]},
            lambda key, slots, *, key_cache: scatter(key, key, key_cache, key_cache, slots, cache_mode="Norm")[0],
        ),
        Call("npu_gather_pa_kv_cache", (*blocks, tables, lengths, *out), {}, gather, written=lambda *a, **k: a[4:6]),
        Call("npu_gather_pa_kv_cache_functional", (*blocks, tables, lengths, *out), {"seq_offset": offset}, gather),
        Call("npu_gather_pa_kv_cache_functional", (*blocks, tables, ends, *out), {"is_seq_lens_cumsum": True}, gather),
        Call("npu_scatter_list", (tensors, places, draw(3, 2, 1, 4), mask), {}, scatter_list),
        Call("npu_scatter_list", (tensors, places % 4, draw(3, 2, 5, 1)), {"axis": -1}, scatter_list),
        Call(
            "npu_scatter_list_",
            (tensors, places, draw(3, 2, 1, 4), mask),
            {},
            scatter_list,
            written=lambda *a, **k: a[0],
        ),
        *(
            Call(f"npu_quant_scatter{place}", args, {}, quant_scatter, (1.01, 0))
            for place in ("", "_")
            for args in small_updates()
        ),
        Call("npu_advance_step_flashattn", step, {}, advance, written=lambda *a: (a[0], a[2], a[3], a[4])),
    ]


class TestCaches(LlmOpsTestCase):
    def test_calls(self):
        self.check_calls("caches", calls())

    def test_written_while_captured(self):
        """The slots are read on the device: a replay with other slots writes there."""
        key, cache = torch.randn(2, 1, 8).npu(), torch.zeros(2, 4, 1, 8).npu()
        slots = torch.tensor([1, 6]).npu()
        torch.npu_scatter_pa_cache(key, slots, key_cache=cache)
        graph = torch.npu.NPUGraph()
        with torch.npu.graph(graph):
            torch.npu_scatter_pa_cache(key, slots, key_cache=cache)
        cache.zero_()
        slots.copy_(torch.tensor([0, -1]))
        graph.replay()
        expected = torch.zeros(8, 8)
        expected[0] = key[0, 0].cpu()
        self.assertEqual(cache.cpu().view(8, 8), expected)

    def test_refusals(self):
        key, cache = torch.ones(2, 1, 8).npu(), torch.ones(2, 4, 1, 8).npu()
        slots = torch.zeros(2).long().npu()
        for error, message, args, kwargs in (
            (NotImplementedError, "key of four dimensions", (key[None], key[None], cache, cache, slots), {}),
            (NotImplementedError, "seq_lens must be None", (key, key, cache, cache, slots), {"seq_lens": slots}),
            (RuntimeError, r"slot_mapping must be \(2\)", (key, key, cache, cache, slots[:1]), {}),
            (RuntimeError, "cache_mode must be Norm or PA_NZ", (key, key, cache, cache, slots), {"cache_mode": "x"}),
            (RuntimeError, "key_cache must be", (key, key, cache[..., :4], cache, slots), {"cache_mode": "Norm"}),
        ):
            with self.assertRaisesRegex(error, f"npu_scatter_pa_kv_cache: {message}"):
                torch.npu_scatter_pa_kv_cache(*args, **kwargs)

    def test_refusals_of_small_updates(self):
        args = [t.npu() if isinstance(t, torch.Tensor) else t for t in small_updates()[0]]
        for error, message, given in (
            (RuntimeError, "reduce must be 'update'", {"reduce": "add"}),
            (RuntimeError, ".*axis be neither the first nor the last one", {"axis": 0}),
            (NotImplementedError, "round_mode must be 'rint'", {"round_mode": "floor"}),
            (NotImplementedError, "dst_type must be 1", {"dst_type": 24}),
            (RuntimeError, "quant_zero_points must have 8 elements", {"quant_zero_points": args[3].flatten()[:3]}),
        ):
            with self.assertRaisesRegex(error, f"npu_quant_scatter: {message}"):
                torch.npu_quant_scatter(*args, **given)


if __name__ == "__main__":
    run_tests()
