r"""``torch.npu.npugraph_ex``: FX graphs as captured NPU graphs, with replacements of one's own; what else the plug-in's
graph compiler has says that it is not part of this."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from torch.fx import GraphModule

from . import inference as inference, scope as scope

__all__ = ["compile_fx", "register_replacement"]


def compile_fx(
    gm: GraphModule, example_inputs: Sequence[Any] | None = None, options: dict[str, Any] | None = None
) -> Callable[..., Any]:
    r"""Compile an FX graph: replacements (:func:`register_replacement`), then a capture that each call replays.

    ``torch.compile(backend="npugraph_ex", options=...)`` does it with each graph of a model.

    Args:
        gm (GraphModule): of torch functions, as Dynamo has them, or of ATen operators.
        example_inputs: tensors like those of the calls. Default: what the placeholders' ``meta`` tells.
        options (dict): ``force_eager`` (bool): call operator by operator, capture nothing. ``pattern_fusion_pass``
            (bool): False leaves replacements out. ``post_grad_custom_pre_pass``, ``post_grad_custom_post_pass``
            (callable): change the ATen ``fx.Graph`` in place, before and after the replacements.

    Raises:
        ValueError: there is no such option, or nothing tells what the inputs are like.
    """
    from ._compiler import compile_graph

    return compile_graph(gm, example_inputs, options)


def register_replacement(
    search_fn: Callable[..., Any],
    replace_fn: Callable[..., Any],
    example_inputs: Iterable[Any],
    trace_fn: Callable[..., Any] | None = None,
    extra_check: Callable[..., bool] | None = None,
    search_fn_pattern: Any = None,
    scalar_workaround: dict[str, float | int] | None = None,
    skip_duplicates: bool = False,
) -> None:
    r"""Let :func:`compile_fx` replace what looks like one function by another; Inductor's matcher finds it.

    Args:
        search_fn, replace_fn (callable): both take the same tensors; what is traced of the first is looked for.
        example_inputs: tensors to trace them with.
        trace_fn, extra_check, search_fn_pattern, scalar_workaround, skip_duplicates: as of
            ``torch._inductor.pattern_matcher.register_replacement``. Default: traced for inference, no further check.
    """
    from ._compiler import add_replacement

    add_replacement(
        search_fn,
        replace_fn,
        example_inputs,
        trace_fn,
        extra_check,
        search_fn_pattern,
        scalar_workaround,
        skip_duplicates,
    )
