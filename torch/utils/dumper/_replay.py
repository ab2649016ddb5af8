# Makes a recorded call again, from the file alone.
"""Replay of recorded operators."""

import torch

from . import _calls, _regions
from ._reader import Call, Reader


def replay(path: str, operator: str, device="cpu") -> dict:
    """Makes the call `/op/seqid` of the dump file `path` again on `device`.

    Returns:
        The results by the names that they have in the file; tensors are on `device`. Arguments that the operator
        writes are among them.

    Raises:
        RuntimeError: no such file or call. LookupError: this torch lacks the operator.
        ValueError: the file does not hold all arguments (summary_only, sparse tensors).
    """
    with Reader(path) as reader:
        call = reader.call("/" + operator.strip("/"))
        if call is None:
            raise RuntimeError(f"torch.utils.dumper: {path} holds no {operator}")
        return dict(_calls.flatten(run(call, device)))


def run(call: Call, device) -> list:
    """Makes the call on `device`; pairs (name, result)."""
    grads, attributes = _grad_names(call), call.attributes
    autocast = attributes.get("Autocast", "")
    if attributes.get("Backward"):
        func, args, kwargs = call.arguments(device, requires_grad=True)
        return region_backward(func, args, kwargs, _grads(call, grads, device), _names(call), autocast)
    func, args, kwargs = call.arguments(device)
    op = _calls.describe(func)
    with torch.no_grad(), _regions.autocast(autocast, device):
        return all_results(op, func(*args, **kwargs), args, kwargs)


def all_results(op, result, args, kwargs) -> list:
    """Pairs (name, value) of the results, and of the arguments that are written without being returned."""
    pairs = _calls.named_results(op, result)
    returned = {id(value) for _, value in pairs}
    for name, value in _calls.named_arguments(op, args, kwargs):
        if name in op.writes and id(value) not in returned:
            pairs.append((name, value))
    return pairs


def _grad_names(call: Call) -> list[str]:
    return [name for name in call.names() if name.startswith("grad_") and name[5:].isdigit()]


def _grads(call: Call, names, device) -> dict[int, torch.Tensor]:
    return {int(name[5:]): call.value(name, device=device) for name in names}


def _names(call: Call) -> list[str]:
    """The arguments whose gradients have been recorded."""
    needs = [name for name in call.names() if call.attribute(name, "RequiresGrad", default=0)]
    left = set(call.names("output"))
    return [name for name in needs if not call.attribute(name, "SameAs") and f"grad_{name}" in left]


def region_forward(func, args, kwargs):
    """The flat list of the tensors that a region returns."""
    result = func(*args, **kwargs)
    flat = [result] if isinstance(result, torch.Tensor) else list(result)
    return [item for item in flat if isinstance(item, torch.Tensor)]


def region_backward(func, args, kwargs, grads: dict, names, autocast: str = "") -> list:
    """Pairs (grad_NAME, gradient) of a region whose inputs are leaves; grads: number of the output to its gradient.

    `autocast` is what was in force when its forward ran (_regions.autocast_of).
    """
    device = next((grad.device for grad in grads.values() if grad is not None), "cpu")
    with torch.enable_grad(), _regions.autocast(autocast, device):
        outputs = region_forward(func, args, kwargs)
    flat = dict(_calls.flatten(_calls.named_arguments(_calls.describe(func), args, kwargs)))
    leaves = {name: flat[name] for name in names if isinstance(flat.get(name), torch.Tensor)}
    chosen = [(outputs[i], g) for i, g in sorted(grads.items()) if g is not None and outputs[i].requires_grad]
    if not chosen or not leaves:
        return []
    found = torch.autograd.grad(
        [o for o, _ in chosen], list(leaves.values()), [g for _, g in chosen], allow_unused=True
    )
    return [(f"grad_{name}", grad) for name, grad in zip(leaves, found, strict=True) if grad is not None]
