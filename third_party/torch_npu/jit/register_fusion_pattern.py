"""All rewriting that there is."""

from .fusion_pass.fast_gelu import fast_gelu_pass


def optimize(jit_mod) -> None:
    """Rewrite a ScriptModule or ScriptFunction in place for the operators of an NPU: see :func:`fast_gelu_pass`.

    Raises:
        TypeError: it is neither.
    """
    fast_gelu_pass(jit_mod)
