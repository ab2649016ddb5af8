# The guide's network check: what every module gets and gives, forward and backward, printed or compared on two devices.
"""Hooks on the modules of a network. They look at tensors in any nesting of lists, tuples and dicts; modules may return
None or things that are no tensors."""

import copy
from dataclasses import dataclass

import torch

from . import _values


def tensors_in(value, place: str = ""):
    """Pairs (place, tensor) of all tensors in lists, tuples, dicts and their nestings."""
    if isinstance(value, torch.Tensor):
        yield place, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from tensors_in(item, f"{place}[{key!r}]")
    elif isinstance(value, (list, tuple)):
        for i, item in enumerate(value):
            yield from tensors_in(item, f"{place}[{i}]")


def describe(value) -> str:
    """A tensor in one line: dtype, shape, device, mean absolute value, first elements."""
    if not isinstance(value, torch.Tensor):
        return f"{type(value).__name__} {value!r}"[:120]
    text = f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)} on {value.device}"
    if not _values.storable(value) or not value.numel() or value.is_complex():
        return text
    flat = value.detach().flatten().cpu()
    first = ", ".join(f"{v:.6g}" for v in flat[:4].tolist())
    return f"{text} mean|x| {flat.double().abs().mean().item():.6g} [{first}]"


class _Handles:
    """The hooks of one network; a context manager that removes them at its end."""

    def __init__(self) -> None:
        self._handles: list = []

    def add(self, handle) -> None:
        self._handles.append(handle)

    def remove(self) -> None:
        """Removes the hooks."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def __enter__(self) -> "_Handles":
        return self

    def __exit__(self, *_) -> None:
        self.remove()


def watch_network(model: torch.nn.Module, see) -> _Handles:
    """Calls see(phase, module name, role, value) for what each module gets and gives.

    phase and role are ("forward", "inputs" or "outputs"), with what the module was called with or returned, or
    ("backward", "grad_inputs{place}" or "grad_outputs{place}"), with the gradient of the tensor there.
    Gradients are seen by hooks of the tensors, so in-place modules work too.
    """
    handles = _Handles()

    def gradients(name, role, value):
        for place, tensor in tensors_in(value):
            if tensor.requires_grad and torch.is_grad_enabled():
                tensor.register_hook(lambda grad, r=f"{role}{place}": see("backward", name, r, grad))

    def hook(name):
        def before(_module, args, kwargs):
            everything = {**dict(enumerate(args)), **kwargs} if kwargs else args
            see("forward", name, "inputs", everything)
            gradients(name, "grad_inputs", everything)

        def after(_module, _args, outputs):
            see("forward", name, "outputs", outputs)
            gradients(name, "grad_outputs", outputs)

        return before, after

    for name, module in model.named_modules():
        before, after = hook(name or type(model).__name__)
        handles.add(module.register_forward_pre_hook(before, with_kwargs=True))
        handles.add(module.register_forward_hook(after))
    return handles


def hook_network(model: torch.nn.Module, report=print) -> _Handles:
    """Prints inputs and outputs of every module, forward and backward: the guide's hooks, one line per tensor.

    Args:
        model: the network.
        report: called with each line, ``[forward]: layer1.conv inputs[0] float32[8, 3, 64, 64] on npu:0 ...``.

    Returns:
        The hooks; ``remove()`` or leaving it as a context manager removes them.
    """

    def see(phase, name, role, value):
        if phase == "backward":
            report(f"[backward]: {name} {role} {describe(value)}")
            return
        found = list(tensors_in(value))
        for place, tensor in found:
            report(f"[forward]: {name} {role}{place} {describe(tensor)}")
        if not found:
            report(f"[forward]: {name} {role} {describe(value)}")

    return watch_network(model, see)


@dataclass
class Difference:
    """How far two devices are apart at one tensor: mean and largest absolute difference, and whether it is allowed."""

    phase: str
    name: str
    role: str
    mean: float
    largest: float
    passed: bool
    reason: str = ""

    def __str__(self) -> str:
        verdict = "ok" if self.passed else f"DIFFERS {self.reason}".rstrip()
        measured = f"mean|difference| {self.mean:.3g} largest {self.largest:.3g}"
        return f"[{self.phase}]: {self.name} {self.role} {measured} {verdict}"


def _record(model, inputs, device):
    seen: list = []
    local = copy.deepcopy(model).to(device)
    moved = [_to(i, device) for i in inputs]
    counts: dict = {}

    def see(phase, name, role, value):
        for place, tensor in tensors_in(value):
            key = (phase, name, role + place)
            counts[key] = counts.get(key, 0) + 1
            if tensor.device.type != "meta":
                seen.append(((*key, counts[key]), tensor.detach().to("cpu", copy=True)))

    with watch_network(local, see):
        result = local(*moved)
        losses = [t.float().sum() for _, t in tensors_in(result) if t.requires_grad and not t.is_complex()]
        if losses:
            sum(losses).backward()
    for name, parameter in local.named_parameters():
        if parameter.grad is not None:
            seen.append((("grad", name, "", 1), parameter.grad.detach().cpu()))
    return seen


def _to(value, device):
    if isinstance(value, torch.Tensor):
        moved = value.detach().clone().to(device)
        return moved.requires_grad_(value.requires_grad)
    if isinstance(value, dict):
        return {key: _to(item, device) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        items = [_to(item, device) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return value


def compare_network(model, *inputs, devices=("cpu", "npu"), limit: float = 1e-4, report=print) -> list[Difference]:
    """Runs copies of a network on two devices, forward and backward, and compares what each module gets and gives.

    Its backward starts from the sum of all outputs. Random layers (dropout) make devices differ: call ``model.eval()``
    or set their rate to 0 first.

    Args:
        model: the network; it is copied, not changed.
        inputs: its inputs, any nesting of tensors.
        devices: the one to trust, then the one to check.
        limit: the mean absolute difference that is normal, relative to the mean absolute value where that is above 1.
        report: called with one line per tensor that differs, and a summary; None for silence.

    Returns:
        One Difference per tensor, in the order of the run; ``passed`` says whether it is within the limit.
    """
    if isinstance(devices, str) or len(devices) != 2:
        raise ValueError(f"compare_network: devices={devices!r}: two devices, such as ('cpu', 'npu')")
    there = dict(_record(model, inputs, devices[0]))
    rows = []
    for key, value in _record(model, inputs, devices[1]):
        phase, name, role, number = key
        role = role if number == 1 else f"{role} (call {number})"
        truth = there.pop(key, None)
        if truth is None or truth.shape != value.shape:
            what = "missing" if truth is None else f"of shape {list(truth.shape)}"
            rows.append(Difference(phase, name, role, float("nan"), float("nan"), False, f"{what} on {devices[0]}"))
            continue
        wide = torch.complex128 if value.is_complex() else torch.float64
        a, b = (t.to_dense().to(wide) if t.layout is not torch.strided else t.to(wide) for t in (value, truth))
        same = (a == b) | (a.isnan() & b.isnan())
        error = torch.where(same, 0.0, (a - b).abs()) if a.numel() else torch.zeros(1)
        mean, largest = error.mean().item(), error.max().item()
        scale = b.abs().nan_to_num().mean().item() if b.numel() else 0.0
        rows.append(Difference(phase, name, role, mean, largest, mean <= limit * max(1.0, scale)))
    for phase, name, role, *_ in there:
        rows.append(Difference(phase, name, role, float("nan"), float("nan"), False, f"missing on {devices[1]}"))
    if report is not None:
        failed = [row for row in rows if not row.passed]
        for row in failed:
            report(str(row))
        report(f"{len(rows)} tensors compared on {devices[0]} and {devices[1]}, {len(failed)} above {limit:g}")
    return rows


def parameter_report(model: torch.nn.Module, report=print) -> None:
    """Prints the statistics of batch normalisations and the gradients of all parameters, as the guide's third step.

    ``[BN_buffer]: name running_mean ... running_var ...`` and ``[grad]: name ...``; a parameter without a gradient says
    None.
    """
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.modules.batchnorm._NormBase) and module.running_mean is not None:
            mean, var = describe(module.running_mean), describe(module.running_var)
            report(f"[BN_buffer]: {name} running_mean {mean} running_var {var}")
    for name, parameter in model.named_parameters():
        report(f"[grad]: {name} {describe(parameter.grad)}")
