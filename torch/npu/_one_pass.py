r"""Steps of torch.optim's foreach forms in one pass over memory, where the device has an operator for a whole step.

The list operators of a foreach step read and write all parameters about ten times. Results are those of the same
formula, but its intermediate results are not rounded to memory in between.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


def _applies(operator: str, params: list[Tensor], *others: list[Tensor]) -> bool:
    """Whether every parameter and what belongs to it are plain tensors that lie in the same order of memory."""
    if torch.compiler.is_compiling() or not torch._C._npu_hasOperator(operator):
        return False
    return torch._C._npu_lieAlike(params, *others)


def adam(
    params: list[Tensor],
    grads: list[Tensor],
    exp_avgs: list[Tensor],
    exp_avg_sqs: list[Tensor],
    max_exp_avg_sqs: list[Tensor],
    steps: list[Tensor],
    *,
    maximize: bool,
    decoupled: bool,
    **numbers: float,
) -> bool:
    """A step of Adam, or, if decoupled, of AdamW; False if nothing was done because it does not apply."""
    if not _applies("FusedAdam", params, grads, exp_avgs, exp_avg_sqs, *([max_exp_avg_sqs] if max_exp_avg_sqs else [])):
        return False
    torch._foreach_add_(steps, torch.tensor(1.0), alpha=1.0)  # they are on the host: a number would be wrapped for each
    step: Any = torch._fused_adamw_ if decoupled else torch._fused_adam_
    lists = (params, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, steps)
    step(*lists, amsgrad=bool(max_exp_avg_sqs), maximize=maximize, **numbers)
    return True


def sgd(
    params: list[Tensor], grads: list[Tensor], momenta: Sequence[Tensor | None], maximize: bool, **numbers: float
) -> bool:
    """A step of SGD; False if nothing was done because it does not apply."""
    known = [t for t in momenta if t is not None] if numbers["momentum"] != 0 else []
    if numbers["momentum"] != 0 and len(known) != len(params):
        return False  # a first step: upstream makes the buffers
    if not _applies("FusedSgd", params, grads, *([known] if known else [])):
        return False
    step: Any = torch._fused_sgd_
    step(params, grads, known, maximize=maximize, is_first_step=False, **numbers)
    return True
