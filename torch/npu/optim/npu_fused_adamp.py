"""AdamP over flat tensors."""

import math
from typing import Any

from torch.nn.functional import cosine_similarity

import torch
from torch import Tensor

from .npu_fused_adam import check_adam_options
from .npu_fused_optim_base import NpuFusedOptimizerBase, Run

__all__ = ["NpuFusedAdamP"]


def _rows(tensor: Tensor) -> Tensor:
    return tensor.reshape(tensor.size(0), -1)


def _row(tensor: Tensor) -> Tensor:
    return tensor.reshape(1, -1)


class NpuFusedAdamP(NpuFusedOptimizerBase):
    r"""AdamP (Heo et al., "AdamP: Slowing Down the Slowdown for Momentum Optimizers") over flat tensors.

    Adam whose step loses its radial part where a weight is scale-invariant: where the cosine between weight and
    gradient, by rows or over the whole tensor, is below delta / sqrt(number of elements).

    Args:
        params (iterable): parameters or parameter groups.
        lr (float, optional): learning rate. Default: 1e-3.
        betas (tuple, optional): decay of the means of gradients and of their squares. Default: (0.9, 0.999).
        eps (float, optional): added to denominators. Default: 1e-8.
        weight_decay (float, optional): each step multiplies the parameters by 1 - lr * weight_decay. Default: 0.
        delta (float, optional): threshold of the cosine. Default: 0.1.
        wd_ratio (float, optional): factor of the weight decay of projected parameters. Default: 0.1.
        nesterov (bool, optional): Nesterov's momentum. Default: False.

    Raises ValueError for a negative option or a beta outside of [0, 1).
    """

    def __init__(
        self,
        params,
        lr=1e-3,
        betas=(0.9, 0.999),
        eps=1e-8,
        weight_decay=0,
        delta=0.1,
        wd_ratio=0.1,
        nesterov=False,
    ):
        check_adam_options(lr, betas, eps, weight_decay)
        super().__init__(
            params,
            {
                "lr": lr,
                "betas": betas,
                "eps": eps,
                "weight_decay": weight_decay,
                "delta": delta,
                "wd_ratio": wd_ratio,
                "nesterov": nesterov,
            },
        )

    def _state_names(self, group: dict[str, Any]) -> dict[str, float]:
        return {"exp_avg": 0.0, "exp_avg_sq": 0.0}

    def _update(self, group: dict[str, Any], run: Run) -> None:
        beta1, beta2 = group["betas"]
        lr, eps, decay = group["lr"], group["eps"], group["weight_decay"]
        mean, mean_square, grad = run.states["exp_avg"], run.states["exp_avg_sq"], run.grad
        correction1, correction2 = 1 - beta1**run.steps, 1 - beta2**run.steps
        mean.mul_(beta1).add_(grad, alpha=1 - beta1)
        mean_square.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
        root = (mean_square.sqrt() / math.sqrt(correction2)).add_(eps)
        update = ((mean * beta1).add_(grad, alpha=1 - beta1) if group["nesterov"] else mean) / root
        params, updates = run.params, run.parts_of(update)
        shrink = torch.ones_like(run.param) if decay > 0 else None
        shrinks = run.parts_of(shrink) if shrink is not None else [None] * len(params)
        for param, one_grad, one_update, one_shrink in zip(params, run.parts_of(grad), updates, shrinks, strict=True):
            factor = 1.0
            if param.dim() > 1:
                ratio = self._project(param, one_grad, one_update, group)
                factor = 1 - lr * decay * ratio
            else:
                factor = 1 - lr * decay
            if one_shrink is not None:
                one_shrink.mul_(factor)
        if shrink is not None:
            run.param.mul_(shrink)
        run.param.add_(update, alpha=-lr / correction1)

    @staticmethod
    def _project(param: Tensor, grad: Tensor, update: Tensor, group: dict[str, Any]) -> Tensor:
        """Takes the radial part out of `update` where the rule says so; returns the factor of the weight decay, 0-d.

        Rows are tried first, then the whole tensor. Which one holds stays on the device: all cases are computed.
        """
        eps, delta = group["eps"], group["delta"]
        chosen = torch.zeros((), dtype=torch.bool, device=param.device)
        result = update
        for view in (_rows, _row):
            weight, gradient, step = view(param), view(grad), view(update)
            cosine = cosine_similarity(gradient, weight, dim=1, eps=eps).abs().max()
            below = cosine < delta / math.sqrt(weight.size(1))
            unit = weight / weight.norm(dim=1, keepdim=True).add(eps)
            projected = (step - unit * (unit * step).sum(dim=1, keepdim=True)).view_as(param)
            result = torch.where(below & ~chosen, projected, result)
            chosen = chosen | below
        update.copy_(result)
        return torch.where(chosen, group["wd_ratio"], 1.0).to(param.dtype)
