r"""Lets pointwise operators of compiled graphs write over an input that nobody needs any more.

A result in the place of an input that dies there needs no memory of its own, and a core has in its cache what it is
about to write: an activation takes a third to two thirds of the time. The numbers are the same ones.
"""

import operator
from collections.abc import Callable
from typing import Any

from torch._prims_common import is_non_overlapping_and_dense_or_false

import torch
from torch import fx

_aten = torch.ops.aten
# Their results share the argument's memory although the schema does not say so.
_SILENT_VIEWS = {
    _aten._unsafe_view.default,
    _aten.lift.default,
    _aten.lift_fresh.default,
    _aten.unsafe_split.Tensor,
    _aten.unsafe_split_with_sizes.default,
}
# Each of their results has memory of its own; of others with several that is not taken for granted.
_APART = {
    _aten.convolution_backward.default,
    _aten.max_pool2d_with_indices.default,
    _aten.native_batch_norm.default,
    _aten.native_batch_norm_backward.default,
    _aten.native_group_norm.default,
    _aten.native_group_norm_backward.default,
    _aten.native_layer_norm.default,
    _aten.native_layer_norm_backward.default,
    _aten._native_batch_norm_legit_functional.default,
    _aten._native_batch_norm_legit_no_training.default,
}
# Without an in-place form, but given out= they may write over an input.
_BACKWARD = {
    _aten.threshold_backward.default,
    _aten.gelu_backward.default,
    _aten.silu_backward.default,
    _aten.sigmoid_backward.default,
    _aten.tanh_backward.default,
    _aten.hardsigmoid_backward.default,
    _aten.hardswish_backward.default,
    _aten.hardtanh_backward.default,
    _aten.leaky_relu_backward.default,
    _aten.elu_backward.default,
    _aten.softplus_backward.default,
}


def _is_group(node: fx.Node) -> bool:
    return isinstance(getattr(node.target, "__self__", None), torch._C._NPUFusedGroup)


def _shares(node: fx.Node) -> bool:
    r"""Whether a node's result may share memory with what it takes."""
    target = node.target
    if target is operator.getitem and isinstance(node.args[0], fx.Node):
        return not (_is_group(node.args[0]) or node.args[0].target in _APART)
    if not isinstance(target, torch._ops.OpOverload):
        return not _is_group(node)
    if target.namespace != "aten" or target in _SILENT_VIEWS:
        return True
    if torch._C._dispatch_has_kernel_for_dispatch_key(target.name(), "CompositeImplicitAutograd"):
        return True
    return any(result.alias_info is not None for result in target._schema.returns)


def memories(graph: fx.Graph) -> dict[fx.Node, set[fx.Node]]:
    r"""For each node the nodes that may be views of the same memory, a set that they share."""
    memory: dict[fx.Node, set[fx.Node]] = {}
    for node in graph.nodes:
        memory[node] = {node}
        for used in node.all_input_nodes if node.op != "call_function" or _shares(node) else ():
            _unite(memory, node, used)
    return memory


def _unite(memory: dict[fx.Node, set[fx.Node]], one: fx.Node, other: fx.Node) -> None:
    both = memory[one] | memory[other]
    for member in both:
        memory[member] = both


def layout_of(node: fx.Node) -> Any:
    r"""Dtype, sizes and strides of a node's plain dense tensor on npu; None where they are symbols."""
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or value.device.type != "npu" or value.layout != torch.strided:
        return None
    if not all(isinstance(number, int) for number in (*value.shape, *value.stride())):
        return None
    if value.is_conj() or value.is_neg() or not is_non_overlapping_and_dense_or_false(value):
        return None
    return value.dtype, tuple(value.shape), value.stride()


def _has_kernel(overload: Any) -> bool:
    r"""Whether npu has a kernel of its own for it; upstream's others compute elsewhere and copy."""
    return torch._C._dispatch_has_kernel_for_dispatch_key(overload.name(), "PrivateUse1")


def in_place_form(target: Any) -> Any:
    r"""The overload that writes over its first argument, None if there is none."""
    packet = getattr(_aten, target._schema.name.removeprefix("aten::") + "_", None)
    found = getattr(packet, target._overloadname, None)
    if found is None or len(found._schema.arguments) != len(target._schema.arguments) or not _has_kernel(found):
        return None
    return found


def _out(target: Any) -> tuple[Any, str] | None:
    r"""The overload that writes into an argument of its own, and that argument's name."""
    if target not in _BACKWARD:
        return None
    packet = target._overloadpacket
    for name in packet.overloads():
        found = getattr(packet, name)
        arguments, plain = found._schema.arguments, target._schema.arguments
        if len(arguments) != len(plain) + 1 or not arguments[-1].is_out or not _has_kernel(found):
            continue
        if all(a.name == b.name and str(a.type) == str(b.type) for a, b in zip(arguments, plain, strict=False)):
            return found, arguments[-1].name
    return None


def write_in_place(graph: fx.Graph, is_pointwise: Callable[[fx.Node], bool]) -> None:
    r"""Changes pointwise nodes of a functional graph to forms that write over a dying input.

    Args:
        graph (fx.Graph): whose nodes say what they compute (``meta["val"]``); changed in place.
        is_pointwise: whether a node computes each element of its result from those in its place only.
    """
    memory = memories(graph)
    place = {node: i for i, node in enumerate(graph.nodes)}
    last = {node: max((place[user] for user in node.users), default=place[node]) for node in graph.nodes}
    lasting = {node for node in graph.nodes if node.op != "call_function"}

    def dies(used: fx.Node, at: fx.Node) -> bool:
        r"""Whether after this node nobody reads the memory, which the graph itself has allocated."""
        family = memory[used]
        return not any(
            member in lasting or last[member] > place[at] or (member is not used and at in member.users)
            for member in family
        )

    for node in list(graph.nodes):
        if not is_pointwise(node) or not node.target._schema.name.startswith("aten::"):
            continue
        layout = layout_of(node)
        tensors = [used for used in node.all_input_nodes if [*node.args, *node.kwargs.values()].count(used) == 1]
        dying = [used for used in tensors if layout is not None and layout_of(used) == layout and dies(used, node)]
        if not dying:
            continue
        in_place = in_place_form(node.target)
        if in_place is not None and node.args[0] in dying:
            used, node.target = node.args[0], in_place
        else:
            found = _out(node.target)
            if found is None:
                continue
            used, (node.target, name) = dying[0], found
            node.kwargs = {**node.kwargs, name: used}
        _unite(memory, node, used)
