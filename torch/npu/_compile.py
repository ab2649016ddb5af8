r"""The ``npu`` back end of :func:`torch.compile`: graphs of AOTAutograd, run with less Python and fused chains.

A graph of ATen operators becomes one Python function that calls each operator where the dispatcher keeps it, drops each
tensor after its last use, and computes nothing twice. Chains of element-wise operators run as one where the device
has an operator for that (_compile_fusion.py), others write over inputs that die (_compile_in_place.py), and copies that
eager mode does not make go (_compile_copies.py). Loaded when a graph is compiled for npu.
"""

import functools
import logging
from collections.abc import Callable, Sequence
from typing import Any

from torch._dynamo.backends.common import aot_autograd
from torch._functorch.compile_utils import fx_graph_cse

import torch
from torch import fx
from torch.npu import _compile_copies, _compile_fusion, _compile_in_place
from torch.utils import _pytree as pytree

_log = logging.getLogger(__name__)


class _Source:
    r"""The text of a function that runs a graph, and what its names stand for."""

    def __init__(self, module: torch.nn.Module) -> None:
        self.module = module
        self.names: dict[str, Any] = {}
        self.lines: list[str] = []

    def constant(self, value: Any) -> str:
        if value is None or type(value) in (bool, int, str):
            return repr(value)
        name = f"c{len(self.names)}"
        self.names[name] = value
        return name

    def text(self, value: Any) -> str:
        r"""An argument: nodes by their names, containers as such, the rest as constants."""
        if isinstance(value, fx.Node):
            return value.name
        if isinstance(value, dict):
            return "{" + ", ".join(f"{self.text(k)}: {self.text(v)}" for k, v in value.items()) + "}"
        if isinstance(value, slice):
            return f"slice({self.text(value.start)}, {self.text(value.stop)}, {self.text(value.step)})"
        if isinstance(value, (list, tuple)):
            parts = ", ".join(map(self.text, value))
            return f"[{parts}]" if isinstance(value, list) else f"({parts},)" if len(value) == 1 else f"({parts})"
        return self.constant(value)

    def call(self, node: fx.Node) -> str:
        arguments = [self.text(a) for a in node.args] + [f"{k}={self.text(v)}" for k, v in node.kwargs.items()]
        if node.op == "call_method":
            return f"{arguments[0]}.{node.target}({', '.join(arguments[1:])})"
        if node.op == "call_module":
            function: Any = self.module.get_submodule(str(node.target))
        elif isinstance(node.target, torch._ops.OpOverload):
            function = node.target._op  # what the overload itself calls
        else:
            function = node.target
        return f"{self.constant(function)}({', '.join(arguments)})"

    def add(self, node: fx.Node) -> None:
        if node.op == "get_attr":
            found = functools.reduce(getattr, str(node.target).split("."), self.module)
            self.lines.append(f"{node.name} = {self.constant(found)}")
        elif node.op == "output":
            self.lines.append(f"return {self.text(node.args[0])}")
        else:
            self.lines.append(f"{node.name} = {self.call(node)}")


def _last_uses(graph: fx.Graph) -> dict[fx.Node, list[fx.Node]]:
    r"""For each node those that nothing after it uses."""
    seen: set[fx.Node] = set()
    last: dict[fx.Node, list[fx.Node]] = {}
    for node in reversed(graph.nodes):
        last[node] = [used for used in node.all_input_nodes if used not in seen]
        if not node.users and node.op != "output":
            last[node].append(node)
        seen.update(node.all_input_nodes)
    return last


def _function_of(graph: fx.Graph, module: torch.nn.Module) -> Callable[[list[Any]], Any]:
    r"""A function that takes the graph's inputs in a list, which it empties, and returns the graph's outputs."""
    source = _Source(module)
    inputs = [node.name for node in graph.nodes if node.op == "placeholder"]
    if inputs:
        source.lines.append(f"{', '.join(inputs)}, = inputs")
    source.lines.append("inputs.clear()")
    last = _last_uses(graph)
    for node in graph.nodes:
        if node.op != "placeholder":
            source.add(node)
        if node.op != "output" and last[node]:
            source.lines.append(f"del {', '.join(used.name for used in last[node])}")
    text = "def run(inputs):\n" + "".join(f"    {line}\n" for line in source.lines)
    exec(compile(text, "<graph of torch.compile on npu>", "exec"), source.names)
    run = source.names["run"]
    run._boxed_call = True  # AOTAutograd hands over its list, so that inputs can be freed
    return run


def _lower(module: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[[list[Any]], Any]:
    module.graph = fx_graph_cse(module.graph)
    module.graph.eliminate_dead_code()
    graph = module.graph
    if not _compile_fusion.is_effectful(graph):
        _compile_copies.drop_copies(graph)
        graph.eliminate_dead_code()
    if torch._C._npu_hasOperator("FusedElementwise"):
        graph = _compile_fusion.fuse(graph, lambda chain: _function_of(chain, module))
    if not _compile_fusion.is_effectful(graph):
        _compile_in_place.write_in_place(graph, _compile_fusion.is_pointwise)
        _compile_copies.update_inputs(graph)
    _log.debug("%s", graph)
    return _function_of(graph, module)


_aot = aot_autograd(
    fw_compiler=_lower, bw_compiler=_lower, partition_fn=_compile_copies.partition, keep_inference_input_mutations=True
)


def npu(module: fx.GraphModule, example_inputs: Sequence[Any], **kwargs: Any) -> Callable[..., Any]:
    r"""``torch.compile(backend="npu")``: whole graphs of forward and backward, with the numbers of eager mode.

    Takes no options; ``mode`` and ``options`` are Inductor's and change nothing.
    """
    return _aot(module, example_inputs)


def on_npu(module: fx.GraphModule, example_inputs: Sequence[Any]) -> bool:
    r"""Whether a graph has a tensor on npu, among its inputs, its parameters or what it computes."""
    values = [*example_inputs, *module.parameters(), *module.buffers()]
    values += pytree.tree_leaves([node.meta.get("example_value", node.meta.get("val")) for node in module.graph.nodes])
    return any(isinstance(value, torch.Tensor) and value.device.type == "npu" for value in values)


@functools.cache
def _tell() -> None:
    _log.warning(
        'torch.compile: Inductor has no code generator for npu; graphs on npu are compiled by the back end "npu"'
    )


def instead_of_inductor(module: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
    r"""What Inductor does with a graph on npu; says so once in a process."""
    _tell()
    return npu(module, example_inputs)
