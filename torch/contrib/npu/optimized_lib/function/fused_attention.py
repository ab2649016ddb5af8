"""BERT's attention as one call: projections, scores, softmax, dropout and the weighted sum, of heads of 64 numbers."""

from torch.nn import functional

import torch
from torch import Tensor

_WIDTH = 64  # of a head


def _heads(name: str, hidden_states: Tensor, attention_mask: Tensor) -> tuple[int, int, int]:
    # How the rows of hidden_states are batch and queries, and its columns heads.
    if hidden_states.dim() != 2 or attention_mask.dim() != 4:
        raise RuntimeError(
            f"{name}: hidden_states must be (batch * length, width) and attention_mask (batch, 1, length, length), but "
            f"they are {tuple(hidden_states.shape)} and {tuple(attention_mask.shape)}"
        )
    rows, columns = hidden_states.shape
    batch, length = attention_mask.shape[0], attention_mask.shape[-1]
    if rows != batch * length or columns % _WIDTH:
        raise RuntimeError(
            f"{name}: hidden_states must be ({batch} * {length}, a multiple of {_WIDTH}) for an attention_mask of "
            f"{tuple(attention_mask.shape)}, but is {tuple(hidden_states.shape)}"
        )
    return batch, length, columns // _WIDTH


def npu_fused_attention(
    hidden_states: Tensor,
    attention_mask: Tensor,
    query_kernel: Tensor,
    key_kernel: Tensor,
    value_kernel: Tensor,
    query_bias: Tensor,
    key_bias: Tensor,
    value_bias: Tensor,
    scale: float = 1,
    keep_prob: float = 0,
) -> Tensor:
    """Return BERT's self-attention of ``hidden_states``, with gradients for all but the mask.

    Args:
        hidden_states: (batch * length, width), float16; heads are 64 numbers wide.
        attention_mask: what is added to the scores, (batch, 1, length, length), float16.
        query_kernel, key_kernel, value_kernel: (width, width), float16; ``hidden_states @ kernel + bias``.
        query_bias, key_bias, value_bias: (width).
        scale: factor of the scores.
        keep_prob: the probability with which a weight stays, 1 - the rate of a dropout. 0, the plug-in's default, would
            leave nothing and is refused: give it.

    Returns:
        (batch * length, width), before the layer's output projection.

    Raises:
        RuntimeError: for shapes, dtypes and probabilities that do not fit.
    """
    batch, length, heads = _heads("npu_fused_attention", hidden_states, attention_mask)
    layers = [
        torch.addmm(bias, hidden_states, kernel).view(batch, length, heads, _WIDTH).transpose(1, 2)
        for kernel, bias in ((query_kernel, query_bias), (key_kernel, key_bias), (value_kernel, value_bias))
    ]
    return torch.npu_fused_attention_score(*layers, attention_mask, scale, keep_prob)  # type: ignore[attr-defined]


def npu_fused_attention_with_layernorm(
    hidden_states: Tensor,
    attention_mask: Tensor,
    query_kernel: Tensor,
    key_kernel: Tensor,
    value_kernel: Tensor,
    query_bias: Tensor,
    key_bias: Tensor,
    value_bias: Tensor,
    gamma: Tensor,
    beta: Tensor,
    scale: float = 1,
    keep_prob: float = 0,
) -> tuple[Tensor, Tensor]:
    """Return :func:`npu_fused_attention` of the layer norm of ``hidden_states``, and the layer norm itself.

    Args:
        gamma, beta: weight and bias of the norm, (width); its epsilon is 1e-5. The others as there.

    Raises:
        RuntimeError: as there.
    """
    _heads("npu_fused_attention_with_layernorm", hidden_states, attention_mask)
    norm = functional.layer_norm(hidden_states, hidden_states.shape[1:], gamma, beta)
    kernels = (query_kernel, key_kernel, value_kernel, query_bias, key_bias, value_bias)
    return npu_fused_attention(norm, attention_mask, *kernels, scale, keep_prob), norm
