"""States carried from token to token, against their formulas in loops."""

import numpy as np
from llm_ops_case import Call, LlmOpsTestCase, run_tests

import torch


def rule(query, key, value, beta, scale, factor, state):
    """One head of one sequence: yields the result and the state (values, keys) of each token."""
    for t in range(len(query)):
        state = state * factor[t]
        state = state + beta[t] * np.outer(value[t] - state @ key[t], key[t])
        yield scale * state @ query[t], state


def delta(query, key, value, *, beta, lengths, starts, scale, g=None, gk=None):
    """(results, the state of each token), heads by heads and sequences by sequences."""
    tokens, heads = value.shape[:2]
    share = heads // key.shape[1]
    out, states = torch.zeros_like(value), torch.zeros(tokens, heads, value.shape[2], key.shape[2], dtype=torch.double)
    at = 0
    for b, length in enumerate(lengths):
        for h in range(heads):
            part = slice(at, at + length)
            factor = np.ones((length, key.shape[2]))
            if g is not None:
                factor = factor * np.exp(g[part, h].numpy())[:, None]
            if gk is not None:
                factor = factor * np.exp(gk[part, h].numpy())
            given = (query[part, h // share], key[part, h // share], value[part, h], beta[part, h])
            steps = rule(*(t.numpy() for t in given), scale, factor, starts[b][h].numpy())
            for t, (result, state) in enumerate(steps):
                out[at + t, h], states[at + t, h] = torch.from_numpy(result), torch.from_numpy(state)
        at += length
    return out, states


def chunk(query, key, value, *, beta, initial_state, actual_seq_lengths, scale=None, g=None):
    lengths = actual_seq_lengths.tolist()
    out, states = delta(query, key, value, beta=beta, lengths=lengths, starts=initial_state, scale=scale or 1.0, g=g)
    ends = np.cumsum(lengths)
    final = [states[e - 1] if n else initial_state[b] for b, (e, n) in enumerate(zip(ends, lengths, strict=True))]
    return out, torch.stack(final)


def recurrent(
    query, key, value, state, *, beta, scale, actual_seq_lengths, ssm_state_indices, num_accepted_tokens=None, **gates
):
    lengths, starts, at = actual_seq_lengths.tolist(), [], 0
    for b, length in enumerate(lengths):
        accepted = 1 if num_accepted_tokens is None else int(num_accepted_tokens[b])
        starts.append(state[int(ssm_state_indices[at + accepted - 1])])
        at += length
    out, states = delta(query, key, value, beta=beta, lengths=lengths, starts=starts, scale=scale, **gates)
    after = state.clone()
    for token, slot in enumerate(ssm_state_indices.tolist()):
        after[slot] = states[token]
    return out, after


def masked_conv(x, weight, *, mask=None):
    out = torch.zeros_like(x)
    for s in range(x.shape[0]):
        for b in range(x.shape[1]):
            if mask is None or mask[b, s]:
                out[s, b] = sum(weight[k] * x[s - 2 + k, b] for k in range(3) if s - 2 + k >= 0)
    return out


def conv(
    x, weight, states, *, starts=None, cache_indices=None, accepted=None, computed=None, residual=0, mode="default"
):
    """The page's steps, sequence by sequence: (result, states)."""
    flat, states = x.reshape(-1, x.shape[-1]), states.clone()
    ends = [x.shape[1] * (b + 1) for b in range(x.shape[0])] if x.dim() == 3 else starts.tolist()[1:]
    out, size = torch.zeros_like(flat), states.shape[1]
    for b, (start, end) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
        line = b if cache_indices is None else int(cache_indices[b])
        if line == -1:
            continue
        offset, cached = size - 2, states[line].clone()
        if accepted is not None:
            offset = int(accepted[b]) - 1
        if computed is not None and computed[b] == 0:
            offset, cached = 0, torch.zeros_like(cached)
        padded = torch.cat([cached[: offset + 2], flat[start:end]])
        kept = min(size, len(padded))
        states[line, size - kept :] = padded[len(padded) - kept :]
        seen, length = padded[offset:], end - start
        for i in range(length):
            y = sum(weight[k] * seen[i + k] for k in range(3))
            if mode == "pangu" and i < max(2 - int(computed[b]), 0):
                y = y * 0
            out[start + i] = y + flat[start + i] * residual
    return out.view(x.shape), states


def named(x, weight, states, **kwargs):
    spelled = {"query_start_loc": "starts", "num_accepted_tokens": "accepted", "num_computed_tokens": "computed"}
    spelled |= {"residual_connection": "residual", "conv_mode": "mode"}
    return conv(x, weight, states, **{spelled.get(k, k): v for k, v in kwargs.items()})


def draw(*shape, seed=0, dtype=torch.bfloat16):
    return (torch.randn(shape, generator=torch.Generator().manual_seed(seed + sum(shape))) / 2).to(dtype)


def unit(*shape, seed=0):
    x = draw(*shape, seed=seed, dtype=torch.float32)
    return (x / x.norm(dim=-1, keepdim=True)).bfloat16()


def calls():
    lengths = torch.tensor([3, 1, 0, 4], dtype=torch.int32)
    query, key, value = unit(8, 2, 8), unit(8, 2, 8, seed=1), draw(8, 4, 6)
    gates = {"beta": draw(8, 4, seed=3).sigmoid(), "g": -draw(8, 4, seed=4, dtype=torch.float32).abs()}
    start = draw(4, 4, 6, 8)
    rules = {**gates, "initial_state": start, "actual_seq_lengths": lengths}
    slots = torch.tensor([9, 0, 4, 2, 11, 5, 3, 10], dtype=torch.int32)
    steps = {**gates, "scale": 0.35, "actual_seq_lengths": lengths[[0, 1, 3]], "ssm_state_indices": slots}
    more = {"gk": -draw(8, 4, 8, seed=5, dtype=torch.float32).abs()}
    more["num_accepted_tokens"] = torch.tensor([2, 1, 4], dtype=torch.int32)
    state = draw(12, 4, 6, 8, seed=7)
    written = {"written": lambda *a, **k: a[3:4]}
    x, weight, mask = draw(6, 2, 5), draw(3, 5), torch.rand(2, 6, generator=torch.Generator().manual_seed(1)) < 0.7
    tokens, kernel, cache = draw(9, 16), draw(3, 16), draw(6, 5, 16)
    starts = torch.tensor([0, 1, 5, 5, 9], dtype=torch.int32)
    lines = torch.tensor([4, 0, 5, 2], dtype=torch.int32)
    computed = torch.tensor([7, 0, 3, 1], dtype=torch.int32)
    after = {"written": lambda *a, **k: a[2:3]}
    fixed = {"num_accepted_tokens": torch.tensor([1, 3, 2, 4], dtype=torch.int32), "residual_connection": 1}
    left = {"cache_indices": torch.tensor([4, -1, 5, 2], dtype=torch.int32), "query_start_loc": starts}
    v2 = {"query_start_loc": starts, "cache_indices": lines, "num_computed_tokens": computed, "conv_mode": "pangu"}
    conv_name, t = "npu_fused_causal_conv1d", (3e-3, 3e-2)
    return [
        Call("npu_chunk_gated_delta_rule", (query, key, value), {**rules, "scale": 0.35}, chunk, t),
        Call(
            "npu_chunk_gated_delta_rule",
            (query, key, value),
            {"beta": gates["beta"], "initial_state": start.float(), "actual_seq_lengths": lengths},
            chunk,
            (1e-4, 3e-2),
        ),
        Call("npu_recurrent_gated_delta_rule", (query, key, value, state), steps, recurrent, t, **written),
        Call("npu_recurrent_gated_delta_rule_functional", (query, key, value, state), {**steps, **more}, recurrent, t),
        Call("npu_masked_causal_conv1d", (x, weight), {}, masked_conv, t),
        Call("npu_masked_causal_conv1d", (x.half(), weight.half()), {"mask": mask}, masked_conv, t),
        Call(conv_name, (tokens, kernel, cache[:, :2]), {"query_start_loc": starts}, named, t, **after),
        Call(conv_name, (draw(4, 3, 16), kernel, cache), fixed, named, t, **after),
        Call(conv_name, (tokens, kernel, cache), left, named, t, **after),
        Call(f"{conv_name}_v2", (tokens, kernel, cache), v2, named, t, written=lambda *a, **k: (a[0], a[2])),
    ]


class TestRecurrences(LlmOpsTestCase):
    def test_calls(self):
        everything = calls()
        self.check_family("recurrences", [*everything, Call("npu_masked_causal_conv1d_backward", ())])
        for call in everything:
            with self.subTest(name=call.name):
                self.check_call(call)
                self.check_compiled(call)

    def test_gradient(self):
        mask = torch.rand(2, 6, generator=torch.Generator().manual_seed(1)) < 0.7
        for hidden in (None, mask):
            x, weight = draw(6, 2, 5, dtype=torch.float16), draw(3, 5, dtype=torch.float16)
            given = [t.npu().requires_grad_() for t in (x, weight)]
            kwargs = {"mask": None if hidden is None else hidden.npu()}
            out = torch.npu_masked_causal_conv1d(*given, **kwargs)
            dy = torch.randn_like(out)
            wanted = torch.autograd.grad(out, given, dy)
            with torch.no_grad():
                found = torch.npu_masked_causal_conv1d_backward(dy, *given, **kwargs)
            for got, want in zip(found, wanted, strict=True):
                self.assertEqual(got, want, atol=5e-3, rtol=2e-2)
        call = Call("npu_masked_causal_conv1d_backward", (dy.cpu(), x, weight), {"mask": mask})
        self.check_call(call)
        self.check_compiled(call)

    def test_refusals(self):
        call = calls()[2]
        args, kwargs = (
            [t.npu() for t in call.args],
            {k: v.npu() if isinstance(v, torch.Tensor) else v for k, v in call.kwargs.items()},
        )
        for missing in ("beta", "scale", "actual_seq_lengths", "ssm_state_indices"):
            with self.assertRaisesRegex(
                NotImplementedError, f"npu_recurrent_gated_delta_rule: {missing} must be given"
            ):
                torch.npu_recurrent_gated_delta_rule(*args, **{**kwargs, missing: None})
        x, weight = torch.ones(4, 8).half().npu(), torch.ones(3, 8).half().npu()
        states = torch.ones(2, 2, 8).half().npu()
        with self.assertRaisesRegex(RuntimeError, "x of two dimensions needs query_start_loc"):
            torch.npu_fused_causal_conv1d(x, weight, states)
        with self.assertRaisesRegex(NotImplementedError, "initial_state_idx must be None"):
            torch.npu_fused_causal_conv1d(x, weight, states, initial_state_idx=x)


if __name__ == "__main__":
    run_tests()
