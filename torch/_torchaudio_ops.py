"""torchaudio's operators where its binaries cannot be loaded (its wheel is linked against CUDA's libraries).

`torch.ops.load_library` calls `provide` only when loading one of torchaudio's libraries has failed, so nothing here
costs a script that does not import torchaudio. The schemas are those that torchaudio's Python code looks for. Each
operator is composed of upstream's, so it runs where its tensors are; gradients are torchaudio's own formulas.
"""

import os

from torch.nn import functional as F

import torch
from torch import Tensor

_SCHEMAS = {
    "_torchaudio": ("is_align_available() -> bool", "cuda_version() -> int?"),
    "torchaudio": (
        "_lfilter_core_loop(Tensor input_signal_windows, Tensor a_coeff_flipped, Tensor(a!) padded_output_waveform) "
        "-> Tensor(a!)",
        "_overdrive_core_loop(Tensor waveform, Tensor temp, Tensor(a!) last_in, Tensor(b!) last_out, "
        "Tensor(c!) output_waveform) -> (Tensor(a!), Tensor(b!), Tensor(c!))",
        "rnnt_loss_forward(Tensor logits, Tensor targets, Tensor logit_lengths, Tensor target_lengths, int blank, "
        "float clamp, bool fused_log_softmax) -> (Tensor, Tensor)",
        "forced_align(Tensor log_probs, Tensor targets, Tensor input_lengths, Tensor target_lengths, int blank) "
        "-> (Tensor, Tensor)",
    ),
}
_LIBRARIES = {"_torchaudio.so": "_torchaudio", "libtorchaudio.so": "torchaudio"}
_BLOCK = 128  # samples of a filter that one triangular system gives
_provided: dict[str, torch.library.Library] = {}  # the definitions live as long as this


def _filter(signal: Tensor, taps: Tensor, padded: Tensor) -> Tensor:
    """Each sample less the taps' products with the samples before it in the output: an IIR filter, block by block.

    Args:
        signal: (batch, channels, samples).
        taps: (channels, order), the oldest sample's first; the last one is of the sample itself, whose factor is 1.
        padded: (batch, channels, order - 1 + samples): the outputs before the first; the others are written.
    """
    order, samples = taps.shape[1], signal.shape[2]
    size = max(1, min(_BLOCK, samples))
    # Row i holds the taps from column i on: rows one longer than the matrix, read as rows of its width.
    longer = F.pad(taps, (0, size)).unsqueeze(1).expand(-1, size, -1).flatten(1)
    band = longer[:, : size * (size + order - 1)].unflatten(1, (size, -1))
    for start in range(0, samples, size):
        count = min(size, samples - start)
        rows = signal[:, :, start : start + count].permute(1, 2, 0)  # (channels, samples, batch)
        before = padded[:, :, start : start + order - 1].permute(1, 2, 0)
        rows = rows - band[:, :count, : order - 1] @ before
        system = band[:, :count, order - 1 : order - 1 + count]
        found = torch.linalg.solve_triangular(system, rows, upper=False, unitriangular=True)
        padded[:, :, start + order - 1 : start + order - 1 + count] = found.permute(2, 0, 1)
    return padded


def _lfilter_core_loop(input_signal_windows: Tensor, a_coeff_flipped: Tensor, padded_output_waveform: Tensor) -> Tensor:
    signal, taps, padded = input_signal_windows, a_coeff_flipped, padded_output_waveform
    torch._check(
        signal.dim() == 3, lambda: f"_lfilter_core_loop: the signal should have 3 dimensions, got {signal.dim()}"
    )
    expected = (signal.shape[0], signal.shape[1], signal.shape[2] + taps.shape[1] - 1)
    torch._check(
        taps.dim() == 2 and taps.shape[0] == signal.shape[1] and padded.shape == expected,
        lambda: f"_lfilter_core_loop: shapes {(*signal.shape,)}, {(*taps.shape,)} and {(*padded.shape,)} do not fit",
    )
    return _filter(signal, taps, padded)


def _overdrive_core_loop(
    waveform: Tensor, temp: Tensor, last_in: Tensor, last_out: Tensor, output_waveform: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """out = in - the one before + 0.995 out's own before; half of the waveform and three quarters of that."""
    if temp.shape[1]:
        steps = torch.diff(temp, prepend=last_in.unsqueeze(1))
        padded = F.pad(last_out.unsqueeze(1), (0, temp.shape[1])).unsqueeze(1)
        found = _filter(steps.unsqueeze(1), temp.new_tensor([[-0.995, 1.0]]), padded)[:, 0, 1:]
        output_waveform.copy_(waveform * 0.5 + found * 0.75)
        last_in.copy_(temp[:, -1])
        last_out.copy_(found[:, -1])
    return last_in, last_out, output_waveform


def _check_transducer(
    logits: Tensor, targets: Tensor, logit_lengths: Tensor, target_lengths: Tensor, blank: int
) -> None:
    def check(holds: bool, text: str) -> None:
        torch._check(holds, lambda: f"rnnt_loss_forward: {text}")

    check(logits.dim() == 4, f"logits should have 4 dimensions, got {logits.dim()}")
    check(logits.dtype in (torch.float32, torch.float16), f"logits should be float32 or float16, got {logits.dtype}")
    check(0 <= blank < logits.shape[3], f"blank should be one of {logits.shape[3]} classes, got {blank}")
    for name, tensor, dims in (("targets", targets, 2), ("logit_lengths", logit_lengths, 1)):
        check(tensor.dim() == dims, f"{name} should have {dims} dimensions, got {tensor.dim()}")
    for name, tensor in (("targets", targets), ("logit_lengths", logit_lengths), ("target_lengths", target_lengths)):
        check(tensor.dtype == torch.int32, f"{name} should be int32, got {tensor.dtype}")
        check(len(tensor) == len(logits), f"{name} should be of {len(logits)} sequences, got {len(tensor)}")
        check(tensor.device == logits.device, f"{name} and logits should be on one device")
    longest = torch.stack([logit_lengths.max(), target_lengths.max()]).tolist()
    check(longest[0] == logits.shape[1], f"the longest of logit_lengths is {longest[0]}, logits have {logits.shape[1]}")
    check(
        longest[1] + 1 == logits.shape[2], f"the longest target has {longest[1]}, logits are for {logits.shape[2] - 1}"
    )
    check(longest[1] == targets.shape[1], f"the longest target has {longest[1]}, targets have {targets.shape[1]}")


def _rnnt_loss_forward(
    logits: Tensor,
    targets: Tensor,
    logit_lengths: Tensor,
    target_lengths: Tensor,
    blank: int,
    clamp: float,
    fused_log_softmax: bool,
) -> tuple[Tensor, Tensor]:
    """The transducer's loss of each sequence, and its gradient with respect to the logits.

    A path goes from (0, 0) to the end by blanks (time) and labels; both recursions take a diagonal of the grid at a
    time, so there are as many steps as time and labels together.
    """
    _check_transducer(logits, targets, logit_lengths, target_lengths, blank)
    batch, times, states, _ = logits.shape
    scores = logits.float()
    if fused_log_softmax:
        scores = scores.log_softmax(3)
    time = torch.arange(times, device=logits.device).view(1, -1, 1)
    state = torch.arange(states, device=logits.device).view(1, 1, -1)
    ends, labels = logit_lengths.long().view(-1, 1, 1), target_lengths.long().view(-1, 1, 1)
    wanted = F.pad(targets.long(), (0, 1)).clamp(0, logits.shape[3] - 1)  # none behind the last
    wanted = wanted.unsqueeze(1).expand(-1, times, -1).unsqueeze(3)
    never = float("-inf")
    by_blank = scores[..., blank].masked_fill((time >= ends) | (state > labels), never)
    by_label = scores.gather(3, wanted).squeeze(3).masked_fill((time >= ends) | (state >= labels), never)

    # Diagonal n holds, for each state, the time n - state; there is one more than the grid has, for the end itself.
    count = times + states
    diagonal = torch.arange(count, device=logits.device).view(-1, 1)
    at = diagonal - state[0]
    inside = (at >= 0) & (at < times)

    def diagonals(grid: Tensor) -> list[Tensor]:
        index = at.clamp(0, times - 1).expand(batch, -1, -1)
        return list(grid.gather(1, index).masked_fill(~inside, never).unbind(1))

    blanks, outs = diagonals(by_blank), diagonals(by_label)
    end = torch.where((at == ends) & (state == labels), 0.0, never).unbind(1)
    first = torch.where(state[0, 0] == 0, 0.0, never).expand(batch, -1)
    forward = [first]
    for n in range(1, count):
        moved = F.pad((forward[-1] + outs[n - 1])[:, :-1], (1, 0), value=never)
        forward.append(torch.logaddexp(forward[-1] + blanks[n - 1], moved))
    backward = [end[-1]]
    for n in range(count - 2, -1, -1):
        behind = backward[-1]
        moved = F.pad(behind[:, 1:], (0, 1), value=never) + outs[n]
        backward.append(torch.logaddexp(torch.logaddexp(behind + blanks[n], moved), end[n]))
    backward.reverse()
    total = backward[0][:, :1]

    def share(n: int, step: Tensor, behind: Tensor) -> Tensor:
        return (forward[n] + step + behind - total).exp()

    shares_blank = [share(n, blanks[n], backward[n + 1]) for n in range(count - 1)]
    shares_label = [share(n, outs[n], F.pad(backward[n + 1][:, 1:], (0, 1), value=never)) for n in range(count - 1)]
    back = (time + state).expand(batch, -1, -1)
    of_blank, of_label = (torch.stack(each, 1).gather(1, back) for each in (shares_blank, shares_label))
    gradient = scores.exp() * (of_blank + of_label).unsqueeze(3) if fused_log_softmax else torch.zeros_like(scores)
    gradient[..., blank] -= of_blank
    gradient.scatter_add_(3, wanted, -of_label.unsqueeze(3))
    if clamp > 0:
        gradient = gradient.clamp(-clamp, clamp)
    return -total.squeeze(1).to(logits.dtype), gradient.to(logits.dtype)


def _forced_align(
    log_probs: Tensor, targets: Tensor, input_lengths: Tensor, target_lengths: Tensor, blank: int
) -> tuple[Tensor, Tensor]:
    """The likeliest path of CTC through the labels: blank, label, blank, ... , and log_probs as they came."""

    def check(holds: bool, text: str) -> None:
        torch._check(holds, lambda: f"forced_align: {text}")

    check(log_probs.dim() == 3, f"log_probs should have 3 dimensions, got {log_probs.dim()}")
    check(targets.dim() == 2, f"targets should have 2 dimensions, got {targets.dim()}")
    check(len(log_probs) == len(targets) == 1, f"only one sequence is aligned at a time, got {len(log_probs)}")
    check(log_probs.dtype.is_floating_point, f"log_probs should be floating, got {log_probs.dtype}")
    check(targets.dtype in (torch.int32, torch.int64), f"targets should be int32 or int64, got {targets.dtype}")
    check(0 <= blank < log_probs.shape[2], f"blank should be one of {log_probs.shape[2]} classes, got {blank}")
    times, labels = log_probs.shape[1], targets.shape[1]
    check(input_lengths.tolist() == [times], f"input_lengths should be [{times}]")
    check(target_lengths.tolist() == [labels], f"target_lengths should be [{labels}]")
    again = F.pad(targets[0, 1:] == targets[0, :-1], (1, 0))  # a label twice needs a blank between
    repeats = int(again.sum())
    check(times >= labels + repeats, f"{labels} labels with {repeats} repeats want more than {times} steps")

    path = torch.full((2 * labels + 1,), blank, dtype=torch.int64, device=targets.device)
    path[1::2] = targets[0]
    never = float("-inf")
    skips = torch.full((2 * labels + 1,), never, dtype=torch.float32, device=log_probs.device)
    skips[3::2] = torch.where(again[1:], never, 0.0)
    scores = log_probs[0].float().index_select(1, path) if log_probs.dtype != torch.float64 else log_probs[0][:, path]
    best = torch.full_like(scores[0], never)
    best[:2] = scores[0, :2]
    came = []
    for step in scores[1:].unbind(0):
        one, two = F.pad(best[:-1], (1, 0), value=never), F.pad(best[:-2], (2, 0), value=never) + skips
        best, how = torch.stack([best, one, two[: len(best)]]).max(0)
        best = best + step
        came.append(how)
    state = torch.where(best[-1:] > best[-2:-1], 2 * labels, 2 * labels - 1) if labels else path[:1] * 0
    states = [state]
    for how in reversed(came):
        state = state - how.gather(0, state)
        states.append(state)
    return path[torch.cat(states).flip(0)].to(targets.dtype).unsqueeze(0), log_probs


_KERNELS = {
    "_torchaudio": {"is_align_available": lambda: True, "cuda_version": lambda: None},
    "torchaudio": {
        "_lfilter_core_loop": _lfilter_core_loop,
        "_overdrive_core_loop": _overdrive_core_loop,
        "rnnt_loss_forward": _rnnt_loss_forward,
        "forced_align": _forced_align,
    },
}


def provide(path: str) -> bool:
    """Defines the operators of one of torchaudio's libraries if `path` is one; returns whether it is."""
    folder, file = os.path.split(path)
    namespace = _LIBRARIES.get(file)
    if namespace is None or not folder.endswith(os.path.join("torchaudio", "lib")):
        return False
    if namespace not in _provided:
        library = torch.library.Library(namespace, "DEF")
        for schema in _SCHEMAS[namespace]:
            library.define(schema)
        for name, kernel in _KERNELS[namespace].items():
            library.impl(name, kernel, "CompositeExplicitAutograd")
        _provided[namespace] = library
    return True
