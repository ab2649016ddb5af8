r"""``torch.npu.make_graphed_callables``: modules and functions whose forward and backward are graphs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree


@dataclass
class _Part:
    r"""One callable: its inputs (sample arguments, then parameters), its graphs, and the tensors they leave."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    flat_arguments: tuple[torch.Tensor, ...]
    parameters: tuple[torch.Tensor, ...]
    outputs: tuple[Any, ...] = ()
    spec: pytree.TreeSpec | None = None
    output_grads: tuple[torch.Tensor | None, ...] = ()
    input_grads: tuple[torch.Tensor | None, ...] = ()

    def __post_init__(self) -> None:
        self.forward = torch.npu.NPUGraph()
        self.backward = torch.npu.NPUGraph()

    @property
    def inputs(self) -> tuple[torch.Tensor, ...]:
        return self.flat_arguments + self.parameters


def _part_of(function: Callable[..., Any], arguments: tuple[Any, ...]) -> _Part:
    parameters: tuple[torch.Tensor, ...] = ()
    if isinstance(function, torch.nn.Module):
        if function._backward_hooks or function._forward_hooks or function._forward_pre_hooks:
            raise AssertionError(
                "Modules must not have hooks registered at the time they are passed. However, registering hooks on "
                "modules after passing them through make_graphed_callables is allowed."
            )
        if any(b.requires_grad for b in function.buffers()):
            raise AssertionError(
                "In any module passed to make_graphed_callables, only parameters may be trainable. All buffers must "
                "have requires_grad=False."
            )
        parameters = tuple(function.parameters())
    flat = tuple(pytree.arg_tree_leaves(*arguments))
    if not all(isinstance(a, torch.Tensor) for a in flat):
        raise AssertionError("sample_args for each callable must contain only Tensors. Other types are not allowed.")
    return _Part(function, arguments, flat, parameters)


def _gradients(part: _Part, outputs: Sequence[Any], grads: Sequence[Any], allow_unused: bool) -> tuple[Any, ...]:
    return torch.autograd.grad(
        outputs=tuple(o for o in outputs if o.requires_grad),
        inputs=tuple(i for i in part.inputs if i.requires_grad),
        grad_outputs=tuple(grads),
        only_inputs=True,
        allow_unused=allow_unused,
    )


def _warm_up(parts: Sequence[_Part], iterations: int, allow_unused: bool) -> None:
    # Whatever an operator does once only must not come into a graph.
    torch.npu.synchronize()
    with torch.npu.stream(torch.npu.Stream()):
        for part in parts:
            for _ in range(iterations):
                outputs = pytree.tree_leaves(part.function(*part.arguments))
                grads = [torch.empty_like(o) for o in outputs if o.requires_grad]
                if grads:
                    _gradients(part, outputs, grads, allow_unused)
                del outputs, grads
    torch.npu.synchronize()


def _capture_backward(part: _Part, pool: tuple[int, int], allow_unused: bool) -> None:
    part.output_grads = tuple(torch.empty_like(o) if o.requires_grad else None for o in part.outputs)
    given = [g for g in part.output_grads if g is not None]
    found: tuple[Any, ...] = ()
    if given:
        with torch.npu.graph(part.backward, pool=pool):
            found = _gradients(part, part.outputs, given, allow_unused)
    # None for each input that wants no gradient.
    remaining = iter(found)
    part.input_grads = tuple(next(remaining) if i.requires_grad and given else None for i in part.inputs)


def _copy_unless_same(to: torch.Tensor, source: torch.Tensor) -> None:
    if to.data_ptr() != source.data_ptr():
        to.copy_(source)


def _function_of(part: _Part) -> Callable[..., Any]:
    class Graphed(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
            for to, given in zip(part.flat_arguments, inputs, strict=False):
                _copy_unless_same(to, given)
            part.forward.replay()
            return tuple(o.detach() for o in part.outputs)

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
            for to, given in zip(part.output_grads, grads, strict=True):
                if to is not None:
                    _copy_unless_same(to, given)
            part.backward.replay()
            return tuple(g if g is None else g.detach() for g in part.input_grads)

    def graphed(*arguments: Any) -> Any:
        # Parameters are inputs of the autograd node, so that they get their gradients.
        outputs = Graphed.apply(*pytree.arg_tree_leaves(*arguments), *part.parameters)
        assert part.spec is not None  # the capture has set it
        return pytree.tree_unflatten(outputs, part.spec)

    return graphed


def _put_into(module: torch.nn.Module, graphed: Callable[..., Any]) -> torch.nn.Module:
    training, plain = module.training, module.forward

    def forward(*arguments: Any, **named: Any) -> Any:
        # The other state (training, evaluation) was not captured.
        return graphed(*arguments, **named) if module.training == training else plain(*arguments, **named)

    module.forward = forward
    return module


def make_graphed_callables(
    callables: Any,
    sample_args: tuple[Any, ...],
    num_warmup_iters: int = 3,
    allow_unused_input: bool = False,
    pool: tuple[int, int] | None = None,
) -> Any:
    r"""Return modules or functions whose forward and backward pass are replays of graphs.

    As :func:`torch.cuda.make_graphed_callables`: the result stands where the original stood in a training loop. A
    module is changed in place; in the state (training or evaluation) that it was not captured in it runs as before.

    Args:
        callables (Module, function, or tuple of these): in the order in which the loop calls them.
        sample_args (tuple of Tensor; for several callables a tuple of such tuples): of the shapes, dtypes and
            ``requires_grad`` of all later arguments.
        num_warmup_iters (int): runs before the capture.
        allow_unused_input (bool): an input that no output depends on is no error.
        pool: a memory pool from :func:`torch.npu.graph_pool_handle`. Default: one for all of these.

    Raises:
        RuntimeError: autocast is on with its cache; use ``cache_enabled=False``.
        AssertionError: a module has hooks, a buffer wants gradients, or an argument is no tensor.
    """
    if torch.is_autocast_enabled("npu") and torch.is_autocast_cache_enabled():
        raise RuntimeError(
            "make_graphed_callables does not support the autocast caching. Please set `cache_enabled=False`."
        )
    only_one = not isinstance(callables, tuple)
    functions = (callables,) if only_one else callables
    arguments = (sample_args,) if only_one else sample_args
    parts = [_part_of(f, a) for f, a in zip(functions, arguments, strict=True)]
    shared = torch.npu.graph_pool_handle() if pool is None else pool
    _warm_up(parts, num_warmup_iters, allow_unused_input)
    # Graphs of one pool are captured in the order of their replays: all forward passes, then backward from the last.
    for part in parts:
        with torch.npu.graph(part.forward, pool=shared):
            results = part.function(*part.arguments)
        leaves, part.spec = pytree.tree_flatten(results)
        part.outputs = tuple(leaves)
    for part in reversed(parts):
        _capture_backward(part, shared, allow_unused_input)
    made = [_function_of(part) for part in parts]
    made = [_put_into(f, g) if isinstance(f, torch.nn.Module) else g for f, g in zip(functions, made, strict=True)]
    return made[0] if only_one else tuple(made)
