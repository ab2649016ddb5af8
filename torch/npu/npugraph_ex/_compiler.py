r"""What compiles FX graphs for :mod:`torch.npu.npugraph_ex`; loaded when the first one is."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.backends.debugging import boxed_nop
from torch._functorch.partitioners import default_partition
from torch._inductor import pattern_matcher
from torch._inductor.compile_fx import graph_returns_tuple, make_graph_return_tuple
from torch._subclasses.fake_tensor import FakeTensorMode

import torch
from torch import fx

from .. import _npugraphs

_PASSES = ("post_grad_custom_pre_pass", "post_grad_custom_post_pass")
_OPTIONS = ("force_eager", "pattern_fusion_pass", *_PASSES)
_replacements = pattern_matcher.PatternMatcherPass(pass_name="npugraph_ex")


def add_replacement(
    search_fn: Callable[..., Any],
    replace_fn: Callable[..., Any],
    example_inputs: Iterable[Any],
    trace_fn: Callable[..., Any] | None,
    extra_check: Callable[..., bool] | None,
    search_fn_pattern: Any,
    scalar_workaround: dict[str, float | int] | None,
    skip_duplicates: bool,
) -> None:
    r"""See :func:`torch.npu.npugraph_ex.register_replacement`."""
    pattern_matcher.register_replacement(
        search_fn,
        replace_fn,
        list(example_inputs),
        trace_fn or _traced,  # type: ignore[arg-type]
        _replacements,
        extra_check=extra_check or (lambda match: True),
        search_fn_pattern=search_fn_pattern,
        scalar_workaround=scalar_workaround,
        skip_duplicates=skip_duplicates,
    )


def _traced(function: Callable[..., Any], inputs: Sequence[Any], **options: Any) -> fx.GraphModule:
    # As AOTAutograd traces a graph here: operators are not taken apart, as they are for Inductor.
    return pattern_matcher.fwd_only(function, inputs, **{**options, "get_decomp_fn": dict})


def _inputs_of(module: fx.GraphModule) -> list[Any]:
    inputs = []
    for node in module.graph.find_nodes(op="placeholder"):
        value = node.meta.get("val", node.meta.get("example_value"))
        if value is None:
            raise ValueError(f"compile_fx: nothing tells what {node.name} is like; give example_inputs")
        inputs.append(value)
    # What was traced with real tensors has a fake mode for each; AOTAutograd wants one.
    if any(isinstance(value, torch.Tensor) and not all(isinstance(n, int) for n in value.shape) for value in inputs):
        return inputs
    with FakeTensorMode():
        return [_like(value) if isinstance(value, torch.Tensor) else value for value in inputs]


def _like(value: torch.Tensor) -> torch.Tensor:
    made = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)
    return made.requires_grad_(value.requires_grad)


def compile_graph(
    module: fx.GraphModule, example_inputs: Sequence[Any] | None, options: dict[str, Any] | None
) -> Callable[..., Any]:
    r"""See :func:`torch.npu.npugraph_ex.compile_fx`."""
    chosen = dict(options or {})
    if unknown := [name for name in chosen if name not in _OPTIONS]:
        raise ValueError(f"compile_fx: there is no option {unknown[0]!r}; there are {', '.join(_OPTIONS)}")
    before, after = (chosen.get(name) for name in _PASSES)
    pool = torch.npu.graph_pool_handle()

    def lower(part: fx.GraphModule, inputs: Sequence[Any]) -> Callable[[list[Any]], Any]:
        if before is not None:
            before(part.graph)
        if chosen.get("pattern_fusion_pass", True):
            _replacements.apply(part)
        if after is not None:
            after(part.graph)
        part.graph.lint()
        part.recompile()
        if chosen.get("force_eager", False):
            return boxed_nop(part, list(inputs))
        return _npugraphs.lower(part, inputs, pool)

    compiler = aot_autograd(
        fw_compiler=lower, bw_compiler=lower, partition_fn=default_partition, keep_inference_input_mutations=True
    )
    inputs = _inputs_of(module) if example_inputs is None else list(example_inputs)
    if not graph_returns_tuple(module):  # one that was traced by hand
        return make_graph_return_tuple(module, inputs, compiler)
    return compiler(module, inputs)


def npugraph_ex(module: fx.GraphModule, example_inputs: Sequence[Any], **kwargs: Any) -> Callable[..., Any]:
    r"""``torch.compile(backend="npugraph_ex")``."""
    return compile_graph(module, example_inputs, kwargs.get("options"))
