r"""Steps of torch.optim's foreach forms in one pass over memory, where the device has an operator for a whole step.

The list operators of a foreach step read and write all parameters about ten times. Results are those of the same
formula, but its intermediate results are not rounded to memory in between. Whether it applies is asked, and the step
taken, by one call to C++ (torch/csrc/npu/Optimizer.cpp).
"""

import torch
from torch import Tensor


def adam(
    params: list[Tensor],
    grads: list[Tensor],
    exp_avgs: list[Tensor],
    exp_avg_sqs: list[Tensor],
    max_exp_avg_sqs: list[Tensor],
    steps: list[Tensor],
    amsgrad: bool,
    decoupled: bool,
    maximize: bool,
    lr: float,
    beta1: float,
    beta2: float,
    weight_decay: float,
    eps: float,
) -> bool:
    """A step of Adam, or, if decoupled, of AdamW; False if nothing was done because it does not apply."""
    if torch.compiler.is_compiling():
        return False
    lists = (params, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, steps)
    return torch._C._npu_adamStep(*lists, amsgrad, decoupled, maximize, lr, beta1, beta2, weight_decay, eps)


def sgd(
    params: list[Tensor],
    grads: list[Tensor],
    momenta: list[Tensor | None],
    maximize: bool,
    weight_decay: float,
    momentum: float,
    lr: float,
    dampening: float,
    nesterov: bool,
) -> bool:
    """A step of SGD; False if nothing was done because it does not apply."""
    if torch.compiler.is_compiling():
        return False
    return torch._C._npu_sgdStep(params, grads, momenta, maximize, weight_decay, momentum, lr, dampening, nesterov)
