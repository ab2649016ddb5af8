r"""Takes back copies that AOTAutograd's graphs have because they are functional: eager mode does not make them.

Clones of what stays as it is, running statistics of batch norms that are computed anew and copied into the buffers, and
results whose only use is to be copied into the input that they were computed from.
"""

import operator
from typing import Any

from torch._functorch.partitioners import default_partition

import torch
from torch import fx
from torch.npu._compile_in_place import in_place_form, layout_of, memories

_aten = torch.ops.aten


def partition(joint: fx.GraphModule, *args: Any, **kwargs: Any) -> tuple[fx.GraphModule, fx.GraphModule]:
    r"""Upstream's default partition, of a graph whose batch norms keep only what their gradients read."""
    for node in joint.graph.find_nodes(op="call_function", target=_aten.native_batch_norm_backward.default):
        if node.args[7] is True:  # by the batch's statistics, not by the running ones
            node.args = (*node.args[:3], None, None, *node.args[5:])
    return default_partition(joint, *args, **kwargs)


def _changed_inputs(graph: fx.Graph) -> dict[Any, fx.Node]:
    r"""The placeholders that get a new value at the graph's end, and the node that copies it there."""
    copies = graph.find_nodes(op="call_function", target=_aten.copy_.default)
    return {node.args[0]: node for node in copies if node.args[0].op == "placeholder"}


def _drop_clones(graph: fx.Graph) -> None:
    memory = memories(graph)
    changed = set(_changed_inputs(graph))
    for node in graph.find_nodes(op="call_function", target=_aten.clone.default):
        source: Any = node.args[0]
        family = memory[source]
        if layout_of(node) is None or layout_of(node) != layout_of(source) or family & changed:
            continue
        # What leaves the graph must not share memory with anything else that does, or with an input.
        leaves = any(member.op == "output" for member in memory[node])
        if leaves and any(member.op != "call_function" for member in family):
            continue
        node.replace_all_uses_with(source)
        graph.erase_node(node)
        both = (memory[source] | memory[node]) - {node}
        for member in both:
            memory[member] = both


def _only_feeds(node: Any, copy: fx.Node) -> bool:
    return list(node.users) == [copy]


def _keep_statistics(graph: fx.Graph) -> None:
    r"""Lets batch norms write their running statistics where they have read them, as in eager mode."""
    changed = _changed_inputs(graph)
    for node in graph.find_nodes(op="call_function", target=_aten._native_batch_norm_legit_functional.default):
        buffers: Any = node.args[3:5]
        results: dict[Any, fx.Node] = {user.args[1]: user for user in node.users if user.target is operator.getitem}
        news: Any = [results.get(3), results.get(4)]
        # Without a reader of what it computes besides, the node would be dead code.
        fits = len(results) == len(node.users) > 2 and all(
            new is not None
            and old in changed
            and changed[old].args[1] is new
            and _only_feeds(new, changed[old])
            and set(old.users) == {node, changed[old]}
            for old, new in zip(buffers, news, strict=True)
        )
        if not fits or buffers[0] is buffers[1]:
            continue
        for old, new in zip(buffers, news, strict=True):
            graph.erase_node(changed[old])
            graph.erase_node(new)
        node.target = _aten.native_batch_norm.default
        node.meta["val"] = node.meta["val"][:3]


def drop_copies(graph: fx.Graph) -> None:
    r"""Drops clones and copies of running statistics from a functional graph; changes it in place."""
    _keep_statistics(graph)
    _drop_clones(graph)


def update_inputs(graph: fx.Graph) -> None:
    r"""Lets an operator write to the input that its result is copied into, if nobody else reads that input.

    For a graph that nothing reorders any more.
    """
    for old, copy in _changed_inputs(graph).items():
        new: Any = copy.args[1]
        if new.op != "call_function" or not isinstance(new.target, torch._ops.OpOverload) or copy.users:
            continue
        if not new.args or new.args[0] is not old or [*new.args, *new.kwargs.values()].count(old) != 1:
            continue
        if not _only_feeds(new, copy) or set(old.users) != {new, copy} or torch.Tag.pointwise not in new.target.tags:
            continue
        form = in_place_form(new.target)
        if form is None or layout_of(old) is None or layout_of(old) != layout_of(new):
            continue
        graph.erase_node(copy)
        new.target = form
