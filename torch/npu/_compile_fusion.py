r"""Finds chains of element-wise operators in graphs of :func:`torch.compile`, each to run as one operator.

A chain is a set of pointwise nodes whose results have one shape. What leaves it are the results that others use. The
device decides at the first call whether it can run as one (Note [Fused groups] in frame/graph/FusedGroup.h); either way
the numbers are those of eager mode.
"""

import heapq
import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

_LEAST, _MOST = 2, 32  # nodes of a chain
_aten = torch.ops.aten
# Pointwise by what they do; upstream tags most others.
_ALSO_POINTWISE = {
    _aten._to_copy.default,
    torch.ops.prims.convert_element_type.default,
    _aten.threshold_backward.default,
    _aten.gelu_backward.default,
    _aten.silu_backward.default,
    _aten.sigmoid_backward.default,
    _aten.tanh_backward.default,
    _aten.hardswish_backward.default,
    _aten.hardsigmoid_backward.default,
    _aten.hardtanh_backward.default,
    _aten.leaky_relu_backward.default,
    _aten.elu_backward.default,
    _aten.softplus_backward.default,
    _aten.mish_backward.default,
}
_CASTS = {"dtype"}  # what a copy may be asked for here


def _value(node: fx.Node) -> Any:
    return node.meta.get("val")


def is_pointwise(node: fx.Node) -> bool:
    r"""Whether a node is a function on npu, element by element, of tensors that lie there, too."""
    target = node.target
    if node.op != "call_function" or not isinstance(target, torch._ops.OpOverload):
        return False
    value = _value(node)
    if not isinstance(value, torch.Tensor) or value.device.type != "npu" or value.is_complex() or not value.dim():
        return False
    if target not in _ALSO_POINTWISE and torch.Tag.pointwise not in target.tags:
        return False
    if torch.Tag.nondeterministic_seeded in target.tags or target._schema.is_mutable:
        return False
    if target is _aten._to_copy.default and not set(node.kwargs) <= _CASTS:
        return False
    inputs = [_value(used) for used in node.all_input_nodes]
    if not inputs or not all(isinstance(i, torch.Tensor) and i.device.type == "npu" for i in inputs):
        return False
    return not any(isinstance(user.target, str) for user in node.users if user.op == "call_method")


def _shape(node: fx.Node) -> tuple[Any, ...]:
    return tuple(_value(node).shape)


def _needs(graph: fx.Graph) -> dict[fx.Node, list[fx.Node]]:
    r"""What each node runs after: its inputs and, where it draws random numbers, the node that drew before it."""
    needs: dict[fx.Node, list[fx.Node]] = {}
    drew: fx.Node | None = None
    for node in graph.nodes:
        needs[node] = node.all_input_nodes
        if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
            if drew is not None:
                needs[node] = [*needs[node], drew]
            drew = node
    return needs


class _Chains:
    r"""Chains of a graph: which nodes belong together without a node between them having to run in the middle."""

    def __init__(self, graph: fx.Graph) -> None:
        self.needs = _needs(graph)
        self.place = {node: i for i, node in enumerate(graph.nodes)}
        self.of: dict[fx.Node, set[fx.Node]] = {}  # a chain is one set, shared by its members

    def can_be_one(self, members: set[fx.Node]) -> bool:
        r"""Whether no input of theirs from outside depends on one of them, other chains being one step each."""
        first = min(self.place[node] for node in members)
        todo = [used for node in members for used in self.needs[node] if used not in members]
        seen: set[fx.Node] = set()
        while todo:
            node = todo.pop()
            if node in members:
                return False
            if node in seen:
                continue
            chain = self.of.get(node)
            # Behind an earlier node that is in no chain lie only earlier ones, but for chains that reach further.
            seen.update(chain or {node})
            for member in chain or (node,):
                for used in self.needs[member]:
                    if used not in seen and (used in self.of or self.place[used] >= first or chain):
                        todo.append(used)
        return True

    def join(self, node: fx.Node) -> None:
        members = {node}
        for used in node.all_input_nodes:
            chain = self.of.get(used)
            if chain is None or used in members or _shape(used) != _shape(node):
                continue
            both = members | chain
            if len(both) <= _MOST and self.can_be_one(both):
                members = both
        for member in members:
            self.of[member] = members


def _chains(graph: fx.Graph) -> list[set[fx.Node]]:
    chains = _Chains(graph)
    for node in graph.nodes:
        if is_pointwise(node):
            chains.join(node)
    found = {id(chain): chain for chain in chains.of.values() if len(chain) >= _LEAST}
    return list(found.values())


def _in_order(graph: fx.Graph, chain_of: dict[fx.Node, int]) -> list[list[fx.Node]]:
    r"""The graph's nodes in an order in which each chain is in one piece; every piece is a list."""
    needs = _needs(graph)
    pieces: dict[Any, list[fx.Node]] = {}
    for node in graph.nodes:
        pieces.setdefault(chain_of.get(node, node), []).append(node)
    waits: dict[Any, set[Any]] = {key: set() for key in pieces}
    wakes: dict[Any, list[Any]] = {key: [] for key in pieces}
    for key, nodes in pieces.items():
        for used in {chain_of.get(u, u) for node in nodes for u in needs[node]} - {key}:
            waits[key].add(used)
            wakes[used].append(key)
    place = {node: i for i, node in enumerate(graph.nodes)}
    order: list[list[fx.Node]] = []
    # A piece comes where its last node was, or as soon after that as it can.
    heap = [(place[nodes[-1]], key) for key, nodes in pieces.items() if not waits[key]]
    heapq.heapify(heap)
    while heap:
        _, key = heapq.heappop(heap)
        order.append(pieces[key])
        for other in wakes[key]:
            waits[other].discard(key)
            if not waits[other]:
                heapq.heappush(heap, (place[pieces[other][-1]], other))
    return order


Make = Callable[[fx.Graph], Callable[[list[Any]], Any]]


def _function(nodes: list[fx.Node], make: Make) -> tuple[Any, list[fx.Node], list[fx.Node]]:
    r"""A group for the nodes of a chain, the nodes that it takes and those that it gives."""
    members = set(nodes)
    graph = fx.Graph()
    inputs: dict[fx.Node, fx.Node] = {}
    for node in nodes:
        for used in node.all_input_nodes:
            if used not in members and used not in inputs:
                inputs[used] = graph.placeholder(used.name)
    copies = dict(inputs)
    for node in nodes:
        copies[node] = graph.node_copy(node, copies.__getitem__)
    given = [node for node in nodes if any(user not in members for user in node.users)]
    graph.output(copies[given[0]] if len(given) == 1 else tuple(copies[node] for node in given))
    run = make(graph)
    group = torch._C._NPUFusedGroup(lambda *tensors: run(list(tensors)))
    return group, list(inputs), given


def is_effectful(graph: fx.Graph) -> bool:
    r"""Whether a node changes an input in place before the end, so that order matters beyond uses."""
    return any(
        node.op == "call_function"
        and isinstance(node.target, torch._ops.OpOverload)
        and node.target._schema.is_mutable
        and node.target is not _aten.copy_.default
        for node in graph.nodes
    )


def fuse(original: fx.Graph, make: Make) -> fx.Graph:
    r"""Return a graph in which the chains of a functional graph are calls of fused groups.

    Args:
        original (fx.Graph): a graph of ATen operators whose nodes say what they compute (``meta["val"]``).
        make: turns a chain's graph into a function that takes its inputs in a list and returns a tuple.
    """
    chains = [] if is_effectful(original) else _chains(original)
    if not chains:
        return original
    chain_of = {node: i for i, chain in enumerate(chains) for node in chain}
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    copied_at_end: list[fx.Node] = []
    for piece in _in_order(original, chain_of):
        if piece[0] not in chain_of:
            (node,) = piece
            if node.op == "output":
                output = node
            elif node.target is _aten.copy_.default:
                copied_at_end.append(node)
            else:
                copies[node] = graph.node_copy(node, copies.__getitem__)
            continue
        group, inputs, given = _function(piece, make)
        result = graph.call_function(group.__call__, tuple(copies[node] for node in inputs))
        if len(given) == 1:
            copies[given[0]] = result
        else:
            for i, node in enumerate(given):
                copies[node] = graph.call_function(operator.getitem, (result, i))
        for node in given:
            copies[node].meta["val"] = _value(node)
    # Inputs get their new values once everything else has read the old ones.
    for node in sorted(copied_at_end, key=list(original.nodes).index):
        copies[node] = graph.node_copy(node, copies.__getitem__)
    graph.node_copy(output, copies.__getitem__)
    return graph
