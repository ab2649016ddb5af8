"""What plug-ins of inference servers (vLLM's kind) ask of `torch_npu` when they start and at each step, on npu.

No library is run: vLLM's wheel is linked against CUDA, and its Ascend plug-in is compiled with CANN's compiler. These
are calls of the plug-in's documented interface: the platform's probes, a process group on a store, a pool of memory,
a step of a decoder on a paged cache, captured as a graph, beside plain torch on the CPU.
"""

import importlib.metadata
from datetime import timedelta

import torch_npu
from side_by_side import check, main, randint, randn
from torch.nn import functional as F

import torch

HEADS, KEY_HEADS, WIDTH, BLOCK = 4, 2, 16, 16
SCALE = WIDTH**-0.5


@check("probes: name, memory, properties, versions, streams, events, formats")
def probes(device):
    if device == "npu":
        assert importlib.metadata.version("torch_npu") == torch.__version__ == torch_npu.__version__
        assert torch.npu.is_available() and torch.npu.device_count() >= 1
        assert torch_npu.npu.get_soc_version() > 0 and "Ascend" in torch.npu.get_device_name(0)
        torch.npu.set_device(torch.device("npu:0"))
        free, total = torch.npu.mem_get_info()
        assert 0 < free <= total == torch.npu.get_device_properties(0).total_memory
        torch.npu.reset_peak_memory_stats()
        big = torch.zeros(1 << 20, device=device)
        assert torch.npu.max_memory_allocated() >= big.nbytes
        assert torch.npu.current_stream() == torch.npu.default_stream()
        start, end = (torch_npu.npu.streams.Event(enable_timing=True) for _ in range(2))
        start.record()
        big += 1
        end.record()
        end.synchronize()
        assert start.elapsed_time(end) >= 0
        cast = torch_npu.npu_format_cast(torch.ones(32, 32, device=device), 29)
        assert torch_npu.get_npu_format(cast) == 29
        torch.npu.empty_cache()
        return [cast.sum(), (cast @ cast).sum()]
    ones = torch.ones(32, 32)
    return [ones.sum(), (ones @ ones).sum()]


@check("a process group made by hand: store, ProcessGroupHCCL, all_reduce, broadcast", once=True)
def group(device):
    values = randn(8).to(device)
    if device == "npu":
        from torch_npu._C._distributed_c10d import ProcessGroupHCCL

        store = torch.distributed.PrefixStore("servers", torch.distributed.HashStore())
        assert torch.distributed.is_hccl_available()
        options = ProcessGroupHCCL.Options()
        options._timeout = timedelta(seconds=60)
        backend = ProcessGroupHCCL(store, 0, 1, options)
        made = torch.distributed.ProcessGroup(store, 0, 1)
        kind = torch.distributed.ProcessGroup.BackendType.CUSTOM
        made._register_backend(torch.device(device), kind, backend)
        backend._set_sequence_number_for_group()
        made.allreduce([values]).wait()
        made.broadcast([values], torch.distributed.BroadcastOptions()).wait()
    return [values]


@check("sleep: a pool of memory is given back and filled again")
def sleep(device):
    if device == "cpu":
        return [randn(1 << 16).sum()]
    pool = torch.npu.MemPool()
    with torch.npu.use_mem_pool(pool):
        weights = randn(1 << 16).to(device)
    kept, size = weights.cpu(), weights.untyped_storage().size()
    weights.untyped_storage().resize_(0)
    torch.npu.empty_cache()
    weights.untyped_storage().resize_(size)
    weights.copy_(kept)
    return [weights.sum()]


def layer(device: str, tokens: int, seed: int = 0) -> dict[str, torch.Tensor]:
    """What a decoder's step has: hidden states, weights, rotation."""
    shapes = {"hidden": (tokens, HEADS * WIDTH), "residual": (tokens, HEADS * WIDTH), "gain": (HEADS * WIDTH,)}
    shapes |= {"qkv": (HEADS * WIDTH, (HEADS + 2 * KEY_HEADS) * WIDTH), "up": (HEADS * WIDTH, 96)}
    made = {name: randn(*shape, seed=seed + n) * 0.3 for n, (name, shape) in enumerate(shapes.items())}
    angle = torch.arange(tokens)[:, None] * 10000 ** (-torch.arange(WIDTH // 2) / (WIDTH // 2))
    made["cos"], made["sin"] = (f(angle).repeat(1, 2)[None, :, None] for f in (torch.cos, torch.sin))
    return {name: tensor.to(device) for name, tensor in made.items()}


def turned(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotary positions written out; x is (1, tokens, heads, width)."""
    one, two = x.chunk(2, -1)
    return x * cos + torch.cat([-two, one], -1) * sin


@check("a decoder's step: add_rms_norm, rotary_mul, swiglu")
def step(device):
    at = layer(device, 6)
    if device == "npu":
        normed, _, residual = torch_npu.npu_add_rms_norm(at["hidden"], at["residual"], at["gain"], 1e-6)
    else:
        residual = at["hidden"] + at["residual"]
        normed = F.rms_norm(residual, residual.shape[1:], at["gain"], 1e-6)
    parts = (normed @ at["qkv"]).split([HEADS * WIDTH, KEY_HEADS * WIDTH, KEY_HEADS * WIDTH], 1)
    q, k = (part.unflatten(1, (-1, WIDTH)).unsqueeze(0) for part in parts[:2])
    turn = torch_npu.npu_rotary_mul if device == "npu" else turned
    gate = normed @ at["up"]
    half = gate.chunk(2, 1)
    active = torch_npu.npu_swiglu(gate) if device == "npu" else F.silu(half[0]) * half[1]
    return [normed, residual, turn(q, at["cos"], at["sin"]), turn(k, at["cos"], at["sin"]), active]


def paged(device: str, lengths: list[int]):
    """(query, keys, values, table): keys and values of sequences in blocks of a shared pool, in float16."""
    blocks = [-(-n // BLOCK) for n in lengths]
    order = torch.randperm(sum(blocks), generator=torch.Generator().manual_seed(5)).tolist()
    table = torch.zeros(len(lengths), max(blocks), dtype=torch.int32)
    keys, values = (
        torch.zeros(sum(blocks), BLOCK, KEY_HEADS * WIDTH, dtype=torch.float16, device=device) for _ in "kv"
    )
    slots, rows = [], []
    for n, length in enumerate(lengths):
        own = [order.pop() for _ in range(blocks[n])]
        table[n, : len(own)] = torch.tensor(own)
        slots += [own[p // BLOCK] * BLOCK + p % BLOCK for p in range(length)]
        rows += [(randn(length, KEY_HEADS * WIDTH, seed=10 + n), randn(length, KEY_HEADS * WIDTH, seed=20 + n))]
    k, v = (torch.cat(each).half().to(device) for each in zip(*rows, strict=True))
    where = torch.tensor(slots, device=device)
    for pool, new in ((keys, k), (values, v)):
        pool.view(-1, KEY_HEADS * WIDTH)[where] = new
    query = randn(len(lengths), HEADS * WIDTH).half().to(device)
    return query, keys, values, table.to(device), (k, v)


def attended(query, rows, lengths: list[int]) -> torch.Tensor:
    """The same in fp32 by upstream's attention, a sequence at a time."""
    found, start = [], 0
    for n, length in enumerate(lengths):
        k, v = (r[start : start + length].float().unflatten(1, (-1, WIDTH)).transpose(0, 1) for r in rows)
        q = query[n].float().view(HEADS, 1, WIDTH)
        found.append(F.scaled_dot_product_attention(q, k, v, enable_gqa=True).flatten())
        start += length
    return torch.stack(found)


@check("attention on a paged cache with block tables (fp32 on the CPU)", tolerance=2e-3)
def cached(device):
    lengths = [3, 40, 17]
    query, keys, values, table, rows = paged(device, lengths)
    if device == "cpu":
        return [attended(query, rows, lengths)]
    out, _ = torch_npu.npu_fused_infer_attention_score(
        query.unsqueeze(1),
        keys,
        values,
        block_table=table,
        actual_seq_lengths_kv=lengths,
        num_heads=HEADS,
        num_key_value_heads=KEY_HEADS,
        scale=SCALE,
        input_layout="BSH",
        block_size=BLOCK,
    )
    return [out.squeeze(1).float()]


@check("mixture of experts: gating, init_routing, grouped_matmul, finalize_routing", tolerance=1e-3)
def experts(device):
    tokens, picked, count = 10, 2, 4
    x, scores = randn(tokens, 16).to(device), randn(tokens, count, seed=1).to(device)
    weights = (randn(count, 16, 12, seed=2) * 0.3).to(device)
    if device == "cpu":
        share, chosen = scores.softmax(1).topk(picked, 1)
        each = torch.einsum("tk,tpkn->tpn", x, weights[chosen])
        return [(each * share.unsqueeze(2)).sum(1), share]
    share, chosen, _ = torch_npu.npu_moe_gating_top_k_softmax(scores, k=picked)
    rows, source, counts, _ = torch_npu.npu_moe_init_routing_v2(
        x,
        chosen,
        active_num=tokens * picked,
        expert_num=count,
        expert_tokens_num_type=1,
        expert_tokens_num_flag=True,
        active_expert_range=[0, count],
    )
    (made,) = torch_npu.npu_grouped_matmul(
        [rows], [weights], group_list=counts, group_list_type=1, split_item=3, group_type=0
    )
    out = torch_npu.npu_moe_finalize_routing(made, None, None, None, share, source, None, drop_pad_mode=2)
    return [out, share]


@check("sampling: top_k_top_p")
def sampling(device):
    logits = randn(3, 20).to(device)
    k, p = torch.tensor([5, 20, 3], dtype=torch.int32).to(device), torch.tensor([0.8, 0.5, 1.0]).to(device)
    if device == "npu":
        return [torch_npu.npu_top_k_top_p(logits, p, k).softmax(1)]
    ordered, index = logits.sort(1)
    ordered = ordered.masked_fill(torch.arange(20) < 20 - k.unsqueeze(1), float("-inf"))
    ordered = ordered.masked_fill(ordered.softmax(1).cumsum(1) <= 1 - p.unsqueeze(1), float("-inf"))
    return [torch.empty_like(logits).scatter_(1, index, ordered).softmax(1)]


@check("a step captured as a graph, replayed with other tokens")
def captured(device):
    table, weight = randn(32, 16, seed=1).to(device), randn(16, 32, seed=2).to(device)
    tokens = randint(32, 4).to(device)

    def forward():
        return F.silu(table[tokens] @ weight)

    if device == "cpu":
        first = forward()
        tokens.copy_(randint(32, 4, seed=3))
        return [first, forward()]
    side = torch.npu.Stream()
    side.wait_stream(torch.npu.current_stream())
    with torch.npu.stream(side):
        forward()
    torch.npu.current_stream().wait_stream(side)
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        out = forward()
    graph.replay()
    first = out.clone()
    tokens.copy_(randint(32, 4, seed=3))
    graph.replay()
    return [first, out]


if __name__ == "__main__":
    main("torch_npu")
