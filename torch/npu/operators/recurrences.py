r"""Models that carry a state from token to token: the gated delta rule and causal convolutions with a cache."""

from collections.abc import Callable

import torch
from torch import Tensor

from ._attention import wide
from ._checks import check, check_dtype, check_none
from ._registration import operator
from ._slots import write_slots

_HALF = (torch.float16, torch.bfloat16)
_WINDOW = 3


def _check_rule(name: str, query: Tensor, key: Tensor, value: Tensor, **gates: Tensor | None) -> None:
    for argument, tensor in (("query", query), ("key", key), ("value", value)):
        check_dtype(name, argument, tensor, (torch.bfloat16,))
    check(
        query.dim() == 3 and query.shape == key.shape and value.dim() == 3 and value.shape[0] == key.shape[0],
        name,
        f"query, key and value must be (tokens, heads, width), but are {tuple(query.shape)}, {tuple(key.shape)} and "
        f"{tuple(value.shape)}",
    )
    tokens, heads = value.shape[:2]
    check(
        heads % key.shape[1] == 0,
        name,
        f"the heads of value, {heads}, must be a multiple of those of key, {key.shape[1]}",
    )
    for argument, gate in gates.items():
        if gate is not None:
            shape = (tokens, heads, key.shape[2]) if argument == "gk" else (tokens, heads)
            check(tuple(gate.shape) == shape, name, f"{argument} must be {shape}, but is {tuple(gate.shape)}")


def _run_rule(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    beta: Tensor,
    scale: float,
    decay: Tensor | None,
    starts: Tensor,
    sequence: Tensor,
    first: Tensor,
    keep: Callable[[int, Tensor], None],
) -> Tensor:
    r"""
    The results of tokens, in fp32.

    Args:
        query: (tokens, heads, key width), of as many heads as the value.
        key: like it.
        value: (tokens, heads, value width).
        beta: (tokens, heads).
        scale: factor of the query.
        decay: factors of the state before a token, which broadcast to (tokens, heads, 1, key width), or None.
        starts: states that sequences start from, (sequences, heads, value width, key width).
        sequence: the sequence of each token.
        first: whether a token is the first one of its sequence.
        keep: takes each token and the state behind it.
    """
    outs = []
    state = starts[0]
    for token in range(query.shape[0]):
        start = starts.index_select(0, sequence[token : token + 1]).squeeze(0)
        state = torch.where(first[token], start, state)
        if decay is not None:
            state = state * decay[token]
        seen = (state * key[token].unsqueeze(1)).sum(-1)
        change = (value[token] - seen) * beta[token].unsqueeze(-1)
        state = state + change.unsqueeze(-1) * key[token].unsqueeze(1)
        outs.append((state * query[token].unsqueeze(1)).sum(-1) * scale)
        keep(token, state)
    return torch.stack(outs)


def _sequences(name: str, lengths: Tensor, tokens: int) -> tuple[Tensor, Tensor, Tensor]:
    r"""The sequence of each token, whether it is the first one, and the starts of sequences."""
    check(lengths.dim() == 1, name, f"actual_seq_lengths must have one dimension, but is {tuple(lengths.shape)}")
    ends = lengths.long().cumsum(0)
    starts = ends - lengths.long()
    token = torch.arange(tokens, device=lengths.device)
    sequence = (token.unsqueeze(1) >= ends).sum(1).clamp(max=lengths.shape[0] - 1)
    return sequence, token == starts[sequence], starts


def _repeated(tensor: Tensor, heads: int) -> Tensor:
    return wide(tensor).repeat_interleave(heads // tensor.shape[1], 1)


@operator(
    "npu_chunk_gated_delta_rule(Tensor query, Tensor key, Tensor value, *, Tensor? beta=None, "
    "Tensor? initial_state=None, Tensor? actual_seq_lengths=None, float? scale=None, Tensor? g=None) -> (Tensor, "
    "Tensor)"
)
def npu_chunk_gated_delta_rule(
    query, key, value, *, beta=None, initial_state=None, actual_seq_lengths=None, scale=None, g=None
) -> tuple[Tensor, Tensor]:
    r"""
    The gated delta rule over whole sequences: S = exp(g) S + beta (v - exp(g) S k) k', and scale * S q of each token.

    The lengths stay on the device; a token is made after the other, in fp32.

    Args:
        query: (tokens, heads, key width), bfloat16; the sequences lie one behind the other.
        key: like ``query``.
        value: (tokens, heads of values, value width); a multiple of the heads of ``key``.
        beta: (tokens, heads of values), bfloat16; must be given.
        initial_state: (sequences, heads of values, value width, key width), bfloat16 or float32; must be given.
        actual_seq_lengths: (sequences), int32: tokens of each, which add up to all; must be given.
        scale: factor of the query; None: 1.
        g: (tokens, heads of values), float32; None: zeros.

    Returns:
        The results, (tokens, heads of values, value width), bfloat16, and the state behind each sequence, of the shape
        and dtype of ``initial_state``.

    Raises:
        RuntimeError: for shapes and dtypes that do not fit, and for what must be given.
    """
    name = "npu_chunk_gated_delta_rule"
    for argument, tensor in (
        ("beta", beta),
        ("initial_state", initial_state),
        ("actual_seq_lengths", actual_seq_lengths),
    ):
        check(tensor is not None, name, f"{argument} must be given")
    _check_rule(name, query, key, value, beta=beta, g=g)
    heads = value.shape[1]
    shape = (actual_seq_lengths.shape[0], heads, value.shape[2], key.shape[2])
    check(
        tuple(initial_state.shape) == shape, name, f"initial_state must be {shape}, but is {tuple(initial_state.shape)}"
    )
    check_dtype(name, "initial_state", initial_state, (torch.bfloat16, torch.float32))
    sequence, first, _ = _sequences(name, actual_seq_lengths, query.shape[0])
    decay = None if g is None else g.float().exp().view(-1, heads, 1, 1)
    begin = wide(initial_state)
    final = begin.clone()

    def keep(token: int, state: Tensor) -> None:
        # The last token of a sequence comes last.
        final.index_copy_(0, sequence[token : token + 1], state.unsqueeze(0))

    out = _run_rule(
        _repeated(query, heads),
        _repeated(key, heads),
        wide(value),
        wide(beta),
        1.0 if scale is None else scale,
        decay,
        begin,
        sequence,
        first,
        keep,
    )
    return out.to(query.dtype), final.to(initial_state.dtype)


_RECURRENT = (
    "Tensor? beta=None, float? scale=None, Tensor? actual_seq_lengths=None, Tensor? ssm_state_indices=None, "
    "Tensor? num_accepted_tokens=None, Tensor? g=None, Tensor? gk=None"
)


@operator(
    f"npu_recurrent_gated_delta_rule(Tensor query, Tensor key, Tensor value, Tensor(a!) state, *, {_RECURRENT}) "
    "-> Tensor"
)
def npu_recurrent_gated_delta_rule(
    query,
    key,
    value,
    state,
    *,
    beta=None,
    scale=None,
    actual_seq_lengths=None,
    ssm_state_indices=None,
    num_accepted_tokens=None,
    g=None,
    gk=None,
) -> Tensor:
    r"""
    The gated delta rule over a few tokens of each sequence, whose states stand in a cache; each token's state is kept.

    Args:
        query: (tokens, heads, key width), bfloat16; the sequences lie one behind the other.
        key: like ``query``.
        value: (tokens, heads of values, value width); a multiple of the heads of ``key``.
        state: (slots, heads of values, value width, key width), bfloat16; is written.
        beta: (tokens, heads of values), bfloat16; must be given.
        scale: factor of the query; must be given.
        actual_seq_lengths: (sequences), int32: tokens of each, which add up to all; must be given.
        ssm_state_indices: (tokens), int32: the slot that the state behind each token goes to; must be given.
        num_accepted_tokens: (sequences), int32: which token's slot a sequence starts from, counted from 1; None: ones.
        g: (tokens, heads of values), float32: logarithms of the state's factors; None: zeros.
        gk: (tokens, heads of values, key width), float32: the same for each element of a key; None: zeros.

    Returns:
        The results, (tokens, heads of values, value width), bfloat16.

    Raises:
        RuntimeError: for shapes and dtypes that do not fit.
        NotImplementedError: without what must be given, whose default is not documented.
    """
    name = "npu_recurrent_gated_delta_rule"
    for argument, given in (
        ("beta", beta),
        ("scale", scale),
        ("actual_seq_lengths", actual_seq_lengths),
        ("ssm_state_indices", ssm_state_indices),
    ):
        if given is None:
            raise NotImplementedError(f"{name}: {argument} must be given: what it is by default is not documented")
    _check_rule(name, query, key, value, beta=beta, g=g, gk=gk)
    heads = value.shape[1]
    check(
        state.dim() == 4 and tuple(state.shape[1:]) == (heads, value.shape[2], key.shape[2]),
        name,
        f"state must be (slots, {heads}, {value.shape[2]}, {key.shape[2]}), but is {tuple(state.shape)}",
    )
    check_dtype(name, "state", state, (torch.bfloat16,))
    check(
        tuple(ssm_state_indices.shape) == (query.shape[0],),
        name,
        f"ssm_state_indices must be ({query.shape[0]}), but is {tuple(ssm_state_indices.shape)}",
    )
    sequence, first, starts = _sequences(name, actual_seq_lengths, query.shape[0])
    slots = ssm_state_indices.long()
    source = starts if num_accepted_tokens is None else starts + num_accepted_tokens.long() - 1
    begin = wide(state[slots[source.clamp(max=query.shape[0] - 1)]])
    decay = None
    if g is not None:
        decay = g.float().exp().view(-1, heads, 1, 1)
    if gk is not None:
        by_element = gk.float().exp().unsqueeze(2)
        decay = by_element if decay is None else decay * by_element
    parts = _repeated(query, heads), _repeated(key, heads), wide(value), wide(beta)
    states: list[Tensor] = []
    out = _run_rule(*parts, scale, decay, begin, sequence, first, lambda _, after: states.append(after))
    write_slots(state.unsqueeze(1), slots, torch.stack(states))
    return out.to(query.dtype)


@operator(
    "npu_recurrent_gated_delta_rule_functional(Tensor query, Tensor key, Tensor value, Tensor state, *, "
    f"{_RECURRENT}) -> "
    "(Tensor, Tensor)"
)
def npu_recurrent_gated_delta_rule_functional(query, key, value, state, **options) -> tuple[Tensor, Tensor]:
    r"""
    :func:`npu_recurrent_gated_delta_rule` that leaves the states as they are.

    Args:
        query: as there.
        key: as there.
        value: as there.
        state: as there.
        beta: as there.
        scale: as there.
        actual_seq_lengths: as there.
        ssm_state_indices: as there.
        num_accepted_tokens: as there.
        g: as there.
        gk: as there.

    Returns:
        The results, and the states with what is written.
    """
    after = state.clone()
    return npu_recurrent_gated_delta_rule(query, key, value, after, **options), after


def _check_conv(name: str, input: Tensor, weight: Tensor, mask: Tensor | None) -> None:
    check_dtype(name, "input", input, _HALF)
    check_dtype(name, "weight", weight, (input.dtype,))
    check(
        input.dim() == 3 and tuple(weight.shape) == (_WINDOW, input.shape[2]),
        name,
        f"input and weight must be (positions, batch, channels) and ({_WINDOW}, channels), but are "
        f"{tuple(input.shape)} "
        f"and {tuple(weight.shape)}",
    )
    if mask is not None:
        check_dtype(name, "mask", mask, (torch.bool,))
        shape = (input.shape[1], input.shape[0])
        check(tuple(mask.shape) == shape, name, f"mask must be {shape}, but is {tuple(mask.shape)}")


@operator("npu_masked_causal_conv1d(Tensor input, Tensor weight, *, Tensor? mask=None) -> Tensor")
def npu_masked_causal_conv1d(input, weight, *, mask=None) -> Tensor:
    r"""
    A convolution of each channel over the positions up to the present one, with zeros before the first one.

    Args:
        input: (positions, batch, channels), float16 or bfloat16.
        weight: (3, channels), of its dtype; the last one is of the present position.
        mask: (batch, positions), bool; False makes a result 0.

    Returns:
        The result, of the shape and dtype of ``input``.

    Raises:
        RuntimeError: for shapes and dtypes that do not fit.
    """
    _check_conv("npu_masked_causal_conv1d", input, weight, mask)
    padded = torch.nn.functional.pad(wide(input), (0, 0, 0, 0, _WINDOW - 1, 0))
    positions = input.shape[0]
    factors = wide(weight)
    out = padded[:positions] * factors[0]
    for k in range(1, _WINDOW):
        out = out + padded[k : k + positions] * factors[k]
    if mask is not None:
        out = out.masked_fill(~mask.t().unsqueeze(-1), 0)
    return out.to(input.dtype)


@operator(
    "npu_masked_causal_conv1d_backward(Tensor grad_output, Tensor input, Tensor weight, *, Tensor? mask=None) -> "
    "(Tensor, Tensor)"
)
def npu_masked_causal_conv1d_backward(grad_output, input, weight, *, mask=None) -> tuple[Tensor, Tensor]:
    r"""
    The gradient of :func:`npu_masked_causal_conv1d`.

    Args:
        grad_output: the gradient of its result.
        input: as there.
        weight: as there.
        mask: as there.

    Returns:
        The gradients of ``input`` and ``weight``.
    """
    _check_conv("npu_masked_causal_conv1d_backward", input, weight, mask)
    dy = wide(grad_output)
    if mask is not None:
        dy = dy.masked_fill(~mask.t().unsqueeze(-1), 0)
    positions, factors = input.shape[0], wide(weight)
    ahead = torch.nn.functional.pad(dy, (0, 0, 0, 0, 0, _WINDOW - 1))
    before = torch.nn.functional.pad(wide(input), (0, 0, 0, 0, _WINDOW - 1, 0))
    dinput = torch.zeros_like(dy)
    dweight = []
    for k in range(_WINDOW):
        shift = _WINDOW - 1 - k
        dinput = dinput + ahead[shift : shift + positions] * factors[k]
        dweight.append((dy * before[k : k + positions]).sum((0, 1)))
    return dinput.to(input.dtype), torch.stack(dweight).to(weight.dtype)


_CONV = (
    "Tensor? query_start_loc=None, Tensor? cache_indices=None, Tensor? initial_state_mode=None, Tensor? bias=None, "
    "Tensor? num_accepted_tokens=None, str? activation='None', int? pad_slot_id=-1, int? run_mode=0, "
    "int? residual_connection=0, int? max_query_len=-1, Tensor? num_computed_tokens=None, "
    "Tensor? block_idx_first_scheduled_token=None, Tensor? block_idx_last_scheduled_token=None, "
    "Tensor? initial_state_idx=None, int? block_size=128, str? conv_mode='default'"
)


@operator(f"npu_fused_causal_conv1d(Tensor x, Tensor weight, Tensor(a!) conv_states, *, {_CONV}) -> Tensor")
def npu_fused_causal_conv1d(
    x,
    weight,
    conv_states,
    *,
    query_start_loc=None,
    cache_indices=None,
    initial_state_mode=None,
    bias=None,
    num_accepted_tokens=None,
    activation="None",
    pad_slot_id=-1,
    run_mode=0,
    residual_connection=0,
    max_query_len=-1,
    num_computed_tokens=None,
    block_idx_first_scheduled_token=None,
    block_idx_last_scheduled_token=None,
    initial_state_idx=None,
    block_size=128,
    conv_mode="default",
) -> Tensor:
    r"""
    A causal convolution of each channel that continues from cached tokens, and caches the last ones.

    Starts, lines and counts stay on the device.

    Args:
        x: (tokens, channels), sequences one behind the other, or (sequences, tokens, channels); float16 or bfloat16.
        weight: (3, channels), of its dtype; the last one is of the present token.
        conv_states: (lines, 2 or more, channels): the last tokens of sequences, the latest last; is written.
        query_start_loc: (sequences + 1), int32: where sequences start, and the last one ends; needed with two
            dimensions.
        cache_indices: (sequences), int32: the line of each; None: in order.
        initial_state_mode: without effect.
        bias: without effect.
        num_accepted_tokens: (sequences), int32: a sequence continues behind the token of this number, 1 and up, of the
            first ones of its line; None: behind the last one.
        activation: without effect.
        pad_slot_id: sequences of this line are left out, and give 0.
        run_mode: without effect.
        residual_connection: 1 adds ``x`` to the result.
        max_query_len: without effect.
        num_computed_tokens: (sequences), int32: 0 starts from zeros.
        block_idx_first_scheduled_token: must be None.
        block_idx_last_scheduled_token: must be None.
        initial_state_idx: must be None.
        block_size: without effect.
        conv_mode: default; or pangu, where the first results of a sequence of fewer than two tokens before are 0.

    Returns:
        The result, of the shape and dtype of ``x``.

    Raises:
        RuntimeError: for shapes, dtypes and modes that do not fit.
        NotImplementedError: for cached prefixes.
    """
    name = "npu_fused_causal_conv1d"
    check_none(
        name,
        "prefixes in a cache are not supported",
        block_idx_first_scheduled_token=block_idx_first_scheduled_token,
        block_idx_last_scheduled_token=block_idx_last_scheduled_token,
        initial_state_idx=initial_state_idx,
    )
    check_dtype(name, "x", x, _HALF)
    for argument, tensor in (("weight", weight), ("conv_states", conv_states)):
        check_dtype(name, argument, tensor, (x.dtype,))
    channels = x.shape[-1]
    check(
        x.dim() in (2, 3),
        name,
        f"x must be (tokens, channels) or (sequences, tokens, channels), but is {tuple(x.shape)}",
    )
    check(
        tuple(weight.shape) == (_WINDOW, channels),
        name,
        f"weight must be ({_WINDOW}, {channels}), but is {tuple(weight.shape)}",
    )
    check(
        conv_states.dim() == 3 and conv_states.shape[1] >= _WINDOW - 1 and conv_states.shape[2] == channels,
        name,
        f"conv_states must be (lines, {_WINDOW - 1} or more, {channels}), but is {tuple(conv_states.shape)}",
    )
    check(residual_connection in (0, 1), name, f"residual_connection must be 0 or 1, but is {residual_connection}")
    check(conv_mode in ("default", "pangu"), name, f"conv_mode must be default or pangu, but is '{conv_mode}'")
    check(conv_mode == "default" or num_computed_tokens is not None, name, "conv_mode pangu needs num_computed_tokens")
    if x.dim() == 3:
        ends = torch.arange(1, x.shape[0] + 1, device=x.device) * x.shape[1]
        starts = ends - x.shape[1]
    else:
        check(query_start_loc is not None, name, "x of two dimensions needs query_start_loc")
        starts, ends = query_start_loc[:-1].long(), query_start_loc[1:].long()
    sequences, history = starts.shape[0], conv_states.shape[1]
    lines = torch.arange(sequences, device=x.device) if cache_indices is None else cache_indices.long()
    check(tuple(lines.shape) == (sequences,), name, f"cache_indices must be ({sequences}), but is {tuple(lines.shape)}")
    skipped = lines == pad_slot_id if cache_indices is not None else torch.zeros_like(lines, dtype=torch.bool)
    states = wide(conv_states[torch.where(skipped, 0, lines)])
    overlap = _WINDOW - 1
    offset = torch.full_like(lines, history - overlap)
    if num_accepted_tokens is not None:
        offset = num_accepted_tokens.long() - 1
    if num_computed_tokens is not None:
        fresh = num_computed_tokens == 0
        offset = offset.masked_fill(fresh, 0)
        states = states.masked_fill(fresh.view(-1, 1, 1), 0)
    tokens = wide(x).reshape(-1, channels)
    count = tokens.shape[0]
    token = torch.arange(count, device=x.device)
    sequence = (token.unsqueeze(1) >= ends).sum(1)
    outside = sequence >= sequences
    sequence = sequence.clamp(max=sequences - 1)
    at = token - starts[sequence]
    out = torch.zeros_like(tokens)
    for k in range(_WINDOW):
        place = at + k - overlap
        cached = states[sequence, (offset[sequence] + overlap + place).clamp(0, history - 1)]
        given = tokens[(starts[sequence] + place).clamp(0, count - 1)]
        out = out + torch.where((place >= 0).unsqueeze(1), given, cached) * wide(weight)[k]
    if conv_mode == "pangu":
        missing = (overlap - num_computed_tokens.long()).clamp(min=0)[sequence]
        out = out.masked_fill((at < missing).unsqueeze(1), 0)
    if residual_connection == 1:
        out = out + tokens
    out = out.masked_fill((outside | skipped[sequence]).unsqueeze(1), 0)
    # What the cache holds behind: the end of the cached tokens and those of the sequence, one behind the other.
    known = offset + overlap
    place = (known + ends - starts).unsqueeze(1) - history + torch.arange(history, device=x.device)
    old = states.gather(1, place.clamp(0, history - 1).unsqueeze(-1).expand(-1, -1, channels))
    new = tokens[(starts.unsqueeze(1) + place - known.unsqueeze(1)).clamp(0, count - 1)]
    kept = wide(conv_states[torch.where(skipped, 0, lines)])
    rows = torch.where((place < known.unsqueeze(1)).unsqueeze(-1), old, new)
    rows = torch.where((place >= 0).unsqueeze(-1), rows, kept)
    write_slots(conv_states.unsqueeze(1), torch.where(skipped, -1, lines), rows)
    return out.to(x.dtype).view(x.shape)


@operator(f"npu_fused_causal_conv1d_v2(Tensor(a!) x, Tensor weight, Tensor(b!) conv_states, *, {_CONV}) -> ()")
def npu_fused_causal_conv1d_v2(x, weight, conv_states, **options) -> None:
    r"""
    :func:`npu_fused_causal_conv1d` whose result takes the place of ``x``.

    Args:
        x: as there; is written.
        weight: as there.
        conv_states: as there; is written.
        query_start_loc: as there.
        cache_indices: as there.
        initial_state_mode: without effect.
        bias: without effect.
        num_accepted_tokens: as there.
        activation: without effect.
        pad_slot_id: as there.
        run_mode: without effect.
        residual_connection: as there.
        max_query_len: without effect.
        num_computed_tokens: as there.
        block_idx_first_scheduled_token: must be None.
        block_idx_last_scheduled_token: must be None.
        initial_state_idx: must be None.
        block_size: without effect.
        conv_mode: as there.

    Returns:
        Nothing.
    """
    x.copy_(npu_fused_causal_conv1d(x, weight, conv_states, **options))
