# Functions that devices build from different operators, recorded as one: what in the backward pass belongs to them, and
# the gradients that enter and leave.
"""Regions of the autograd graph.

Note [Backward of a region]
The graph is not changed. The nodes between a region's results and its inputs are marked in their metadata, and
operators (and sums of gradients, which the engine makes while the node is still current) that run for a marked node are
not recorded. A pre-hook at the nodes of the results sees the gradients that enter, post-hooks at the nodes next to the
inputs see those that leave; when all have come, or at the end of the pass, they are recorded as `{op}_backward`.

Note [Canonical strides]
Devices lay out a region's results and gradients differently, and the operators that follow depend on it: `contiguous()`
and `reshape()` are a copy here and nothing there. So that their names and numbers agree, results and gradients of
regions are made contiguous while they are recorded.
"""

import contextlib

from torch.autograd.graph import get_gradient_edge

import torch

from . import _calls

_MARK = "torch.utils.dumper"


def belongs_to_autograd(session, op) -> bool:
    """Whether the operator runs for a node that this session has marked, or is AccumulateGrad's bookkeeping and no sum.

    The latter takes the gradient, or copies it, as reference counts and strides have it; both differ between devices.
    """
    node = torch._C._current_autograd_node()
    if node is None:
        return False
    metadata: dict = node.metadata  # type: ignore[assignment]  # upstream declares a method
    region = metadata.get(_MARK)
    if region is not None and region.session is session:  # not one of an earlier block
        return True
    return _is_leaf(node) and op.name not in ("add", "add_")


def _is_leaf(node) -> bool:
    return node.name().endswith("AccumulateGrad")


def canonical(result, args) -> None:
    """Makes the results of a region contiguous, see Note [Canonical strides]; what is an argument stays as it is."""
    for tensor in [result] if isinstance(result, torch.Tensor) else result:
        if isinstance(tensor, torch.Tensor) and not tensor.is_contiguous() and all(tensor is not a for a in args):
            tensor.data = tensor.data.contiguous()


def overload(name: str, args) -> str:
    """The full name of the operator that a call of the function `name` is recorded as."""
    if name in ("lstm", "gru", "rnn_tanh", "rnn_relu"):
        # (data, batch_sizes, hx, ...) or (input, hx, ...); only an LSTM's hx is a list, the others' has 3 dimensions.
        packed = (
            len(args) > 2
            and isinstance(args[2], torch.Tensor)
            or (name == "lstm" and isinstance(args[1], torch.Tensor))
        )
        return f"aten::{name}.{'data' if packed else 'input'}"
    return f"aten::{name}"


def is_random(op, args, kwargs) -> bool:
    """Whether the call draws random numbers."""
    values = dict(_calls.named_arguments(op, args, kwargs))
    rate = values.get("p", values.get("dropout_p", values.get("dropout", 0.0)))
    return bool(values.get("train", True)) and isinstance(rate, (int, float)) and rate > 0


def autocast_of(args, kwargs) -> str:
    """The dtype that autocast has in force for the arguments' device, or "": regions are recorded above it."""
    for _, value in _calls.flatten([*enumerate(args), *kwargs.items()]):
        if not isinstance(value, torch.Tensor) or not torch.amp.is_autocast_available(value.device.type):
            continue
        if torch.is_autocast_enabled(value.device.type):
            return str(torch.get_autocast_dtype(value.device.type)).removeprefix("torch.")
    return ""


def autocast(dtype: str, device):
    """Context manager: what `autocast_of` found, on a device."""
    if not dtype:
        return contextlib.nullcontext()
    return torch.autocast(torch.device(device).type, getattr(torch, dtype), cache_enabled=False)


def input_edges(op, args, kwargs) -> dict:
    """Gradient edge -> argument name; taken before the call, which may write its input."""
    if not torch.is_grad_enabled():
        return {}
    edges: dict[tuple, str] = {}
    for name, value in _calls.flatten(_calls.named_arguments(op, args, kwargs)):
        if isinstance(value, torch.Tensor) and value.requires_grad:
            edges.setdefault(_key(get_gradient_edge(value)), name)
    return edges


def _key(edge):
    return (edge.node, edge.output_nr)


class _Region:
    """The state of one region during a backward pass."""

    def __init__(self, session, call) -> None:
        self.session, self.call = session, call
        self.name = f"{call.op.name}_backward"
        self.leaving = 0
        self.reset()

    def reset(self) -> None:
        self.number = None
        self.entered: dict = {}
        self.left: dict = {}
        self.fired = 0

    def enter(self, outputs):
        """Pre-hook of a result's node; outputs are pairs (number of the output, number of the result)."""

        def hook(gradients):
            if self.session.quiet():
                return
            if self.number is None:
                self.number = self.session.number(self.name)
                torch.autograd.Variable._execution_engine.queue_callback(self.finish)
            for output_nr, i in outputs:
                self.entered[i] = gradients[output_nr]

        return hook

    def leave(self, exits):
        """Post-hook of a node next to inputs; exits are pairs (position among its gradients, argument name)."""

        def hook(gradients, _):
            if self.session.quiet() or self.number is None:
                return None
            with self.session.unrecorded():
                gradients = tuple(g if g is None else g.contiguous() for g in gradients)
                for position, name in exits:
                    gradient = gradients[position]
                    if gradient is not None:
                        old = self.left.get(name)
                        self.left[name] = gradient if old is None else old + gradient
            self.fired += 1
            if self.fired == self.leaving:
                self.finish()
            return gradients

        return hook

    def finish(self) -> None:
        """All gradients have come, or the backward pass is over."""
        if self.number is None:
            return
        (seqid, index), entered, left = self.number, self.entered, self.left
        self.reset()
        if self.session.accept(self.name) and not self.session.quiet():
            with self.session.unrecorded(), torch.no_grad():
                self.session.sink.region_backward(self.call, self.name, seqid, index, entered, left)


def watch(session, call, edges, result) -> None:
    """Marks the graph of a region whose call has just been made."""
    results = [result] if isinstance(result, torch.Tensor) else [r for r in result if isinstance(r, torch.Tensor)]
    region = _Region(session, call)
    roots: dict = {}
    for i, tensor in enumerate(results):
        if tensor.requires_grad and tensor.grad_fn is not None:
            edge = get_gradient_edge(tensor)
            if _key(edge) not in edges:
                roots.setdefault(edge.node, []).append((edge.output_nr, i))
    if call.kind == "random":
        # Nothing that draws is made again, so its inputs need not be kept; and a written input would be kept alive by
        # its own graph.
        call.args, call.kwargs = (), {}
    call.execute = None
    seen, todo = set(roots), list(roots)
    while todo:
        node = todo.pop()
        node.metadata[_MARK] = region
        exits = []
        for position, (target, output_nr) in enumerate(node.next_functions):
            if target is None:
                continue
            name = edges.get((target, output_nr))
            if name is not None:
                exits.append((position, name))
            elif target not in seen and not _is_leaf(target):
                seen.add(target)
                todo.append(target)
        if exits:
            region.leaving += 1
            node.register_hook(region.leave(exits))
    for node, outputs in roots.items():
        node.register_prehook(region.enter(outputs))
