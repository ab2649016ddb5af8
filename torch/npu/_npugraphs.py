r"""The ``npugraphs`` back end of :func:`torch.compile`: forward and backward of AOTAutograd as replays of NPU graphs.

The counterpart of torch.cuda's ``cudagraphs``. A compiled graph runs once as it is, is captured at its second call, and
is replayed from then on. Inputs that keep their address (parameters) are read where they are, others are copied into
tensors of the graph's; results are copies, so that they outlive the next replay. What cannot be captured runs operator
by operator.
"""

import functools
import logging
from collections.abc import Callable, Sequence
from typing import Any

from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.backends.cudagraphs import find_input_mutations
from torch._dynamo.backends.debugging import boxed_nop
from torch._functorch.partitioners import default_partition
from torch._inductor.utils import get_first_incompatible_cudagraph_node

import torch
from torch import fx

_log = logging.getLogger(__name__)

# Graphs of one program with different numbers (sizes) as inputs; what comes after these runs as it is.
_MOST_GRAPHS = 16


def _reason_against(module: fx.GraphModule) -> str | None:
    r"""Why a graph cannot be captured, as far as its nodes tell."""
    devices = set()
    for node in module.graph.nodes:
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor):
            devices.add(value.device)
    if len(devices) != 1 or next(iter(devices)).type != "npu":
        return f"it computes on {', '.join(sorted(map(str, devices))) or 'no device'}"
    if node := get_first_incompatible_cudagraph_node(module):
        return f"{node.name} needs a value on the host"
    return None


def _storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


class _Captured:
    r"""One capture of a program, for inputs at known addresses and others."""

    def __init__(
        self, run: Callable[[list[Any]], Any], inputs: list[Any], fixed: set[int], mutated: set[int], pool: Any
    ):
        self.addresses = {i: inputs[i].data_ptr() for i in fixed}
        self.copied = [i for i, x in enumerate(inputs) if isinstance(x, torch.Tensor) and i not in fixed]
        self.mutated = [i for i in self.copied if i in mutated]
        self.inputs = list(inputs)
        for i in self.copied:
            x = inputs[i]
            self.inputs[i] = torch.empty_strided(x.size(), x.stride(), dtype=x.dtype, device=x.device).copy_(x)
        self.graph = torch.npu.NPUGraph()
        with torch.npu.graph(self.graph, pool=pool, capture_error_mode="thread_local"):
            self.outputs = list(run(list(self.inputs)))
        known = {id(x): i for i, x in enumerate(self.inputs) if isinstance(x, torch.Tensor)}
        self.same = [known.get(id(o)) for o in self.outputs]  # results that are inputs
        there = {_storage(inputs[i]) for i in fixed}
        self.shares = [isinstance(o, torch.Tensor) and _storage(o) in there for o in self.outputs]
        for i in fixed:
            self.inputs[i] = None  # whose it is decides how long it lives

    def fits(self, inputs: list[Any]) -> bool:
        return all(inputs[i].data_ptr() == address for i, address in self.addresses.items())

    def __call__(self, inputs: list[Any]) -> list[Any]:
        for i in self.copied:
            self.inputs[i].copy_(inputs[i])
        self.graph.replay()
        for i in self.mutated:
            inputs[i].copy_(self.inputs[i])
        return [self._result(k, output, inputs) for k, output in enumerate(self.outputs)]

    def _result(self, k: int, output: Any, inputs: list[Any]) -> Any:
        if (i := self.same[k]) is not None:
            return inputs[i]
        if not isinstance(output, torch.Tensor) or self.shares[k]:
            return output
        return output.clone()


class _Program:
    r"""A graph of AOTAutograd, with its captures by the numbers among its inputs."""

    def __init__(self, module: fx.GraphModule, example_inputs: Sequence[Any], pool: Any) -> None:
        self.run = boxed_nop(module, list(example_inputs))
        self.mutated = find_input_mutations(module.graph)
        self.pool = pool
        self.seen: dict[Any, list[Any]] = {}  # addresses at the first call
        self.captured: dict[Any, _Captured] = {}
        self.can_be_captured = True
        self._boxed_call = True

    def __call__(self, inputs: list[Any]) -> Any:
        given = list(inputs)
        inputs.clear()
        if not self.can_be_captured or any(isinstance(x, torch.Tensor) and x.device.type != "npu" for x in given):
            return self.run(given)
        key = tuple(x for x in given if not isinstance(x, torch.Tensor))
        found = self.captured.get(key)
        if found is not None and found.fits(given):
            return found(given)
        if key not in self.seen:
            if len(self.seen) < _MOST_GRAPHS:
                self.seen[key] = [x.data_ptr() if isinstance(x, torch.Tensor) else None for x in given]
            return self.run(given)
        return self._capture(key, given)

    def _capture(self, key: Any, given: list[Any]) -> Any:
        before = self.seen[key]
        # An address that was another one before is not one that stays.
        fixed = {i for i, x in enumerate(given) if isinstance(x, torch.Tensor) and before[i] == x.data_ptr()}
        self.seen[key] = [address if i in fixed else None for i, address in enumerate(before)]
        try:
            made = _Captured(self.run, given, fixed, self.mutated, self.pool)
        except RuntimeError as error:
            _log.warning("npugraphs: a graph runs operator by operator, since it cannot be captured: %s", error)
            self.can_be_captured = False
            return self.run(given)
        self.captured[key] = made
        return made(given)


def lower(part: fx.GraphModule, inputs: Sequence[Any], pool: Any) -> Callable[[list[Any]], Any]:
    r"""A graph of AOTAutograd as a program that is captured, if it can be."""
    if reason := _reason_against(part):
        _log.info("npugraphs: a graph runs operator by operator: %s", reason)
        return boxed_nop(part, list(inputs))
    return _Program(part, inputs, pool)


def npugraphs(module: fx.GraphModule, example_inputs: Sequence[Any], **kwargs: Any) -> Callable[..., Any]:
    r"""``torch.compile(backend="npugraphs")``: the host launches a whole graph at once. Takes no options."""
    compile_part = functools.partial(lower, pool=torch.npu.graph_pool_handle())
    compiler = aot_autograd(
        fw_compiler=compile_part,
        bw_compiler=compile_part,
        partition_fn=default_partition,
        keep_inference_input_mutations=True,
    )
    return compiler(module, example_inputs)
