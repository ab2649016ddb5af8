"""The middle of an attention: mask, softmax, dropout."""

import math

import torch

_SMALL = 1 << 14  # elements: below, what the fused operator needs on the host weighs more than the passes it saves


def fuse_add_softmax_dropout(training, dropout, attn_mask, attn_scores, attn_head_size, p=0.5, dim=-1) -> torch.Tensor:
    """Return ``softmax(attn_mask + attn_scores / sqrt(attn_head_size))`` along ``dim``, with dropout of ``p``.

    Without ``training`` the module ``dropout`` is called instead of drawing. Large scores on an NPU take one operator.
    """
    alpha = 1 / math.sqrt(attn_head_size)
    if training and attn_scores.device.type == "npu" and attn_scores.numel() >= _SMALL:
        return torch.npu_dropout_with_add_softmax(attn_scores, attn_mask, alpha, p, dim)[2]
    probabilities = torch.softmax(torch.add(attn_mask, attn_scores, alpha=alpha), dim)
    return torch.nn.functional.dropout(probabilities, p) if training else dropout(probabilities)
