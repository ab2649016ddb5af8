"""gelu becomes its approximation by a sigmoid."""

import torch

_GELU = """
graph(%x, %approximate):
    %y = aten::gelu(%x, %approximate)
    return (%y)"""
_FAST = """
graph(%x, %approximate):
    %y = npu::npu_fast_gelu(%x)
    return (%y)"""


def fast_gelu_pass(jit_mod) -> None:
    """Compute gelu as ``torch_npu.npu_fast_gelu`` in a ScriptModule or ScriptFunction, which is changed in place.

    Results differ by up to 0.02, as the two functions do.

    Raises:
        TypeError: it is neither.
    """
    if not isinstance(jit_mod, (torch.jit.ScriptModule, torch.jit.ScriptFunction)):
        raise TypeError(f"expected a ScriptModule or a ScriptFunction, but got {type(jit_mod).__name__}")
    torch._C._jit_pass_inline(jit_mod.graph)
    torch._C._jit_pass_custom_pattern_based_rewrite_graph(_GELU, _FAST, jit_mod.graph)
