"""The extension's Python side: loads the kernels, and says how results look (Meta) and what gradients are."""

from pathlib import Path

import torch

torch.ops.load_library(next(Path(__file__).parent.glob("_ops*.so")))

swish_gate = torch.ops.npu_example.swish_gate
log_cosh = torch.ops.npu_example.log_cosh


@torch.library.register_fake("npu_example::swish_gate")
def _(x, gate):
    return torch.empty_like(x, memory_format=torch.contiguous_format)


@torch.library.register_fake("npu_example::log_cosh")
def _(x):
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def _save(ctx, inputs, output):
    ctx.save_for_backward(*inputs)


def _swish_gate_backward(ctx, grad):
    x, gate = ctx.saved_tensors
    sigmoid = torch.sigmoid(x)
    return grad * gate * sigmoid * (1 + x * (1 - sigmoid)), grad * x * sigmoid


def _log_cosh_backward(ctx, grad):
    (x,) = ctx.saved_tensors
    return grad * torch.tanh(x)


torch.library.register_autograd("npu_example::swish_gate", _swish_gate_backward, setup_context=_save)
torch.library.register_autograd("npu_example::log_cosh", _log_cosh_backward, setup_context=_save)
