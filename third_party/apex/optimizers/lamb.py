"""LAMB parameter by parameter: what NpuFusedLamb computes over flat tensors."""

import torch
from torch.npu.optim.npu_fused_adam import check_adam_options

__all__ = ["Lamb"]


class Lamb(torch.optim.Optimizer):
    r"""LAMB (You et al.) without bias correction; arguments and numbers of :class:`apex.optimizers.NpuFusedLamb`."""

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-6, weight_decay=0, adam=False):
        check_adam_options(lr, betas, eps, weight_decay)
        self.adam = adam
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure=None):
        r"""One step; ``closure`` evaluates the model again and returns the loss."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for param in group["params"]:
                if param.grad is None:
                    continue
                if param.grad.is_sparse:
                    raise RuntimeError("Lamb does not take sparse gradients; use torch.optim.SparseAdam")
                state = self.state[param]
                if not state:
                    state["step"] = 0
                    state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(param), torch.zeros_like(param)
                state["step"] += 1
                state["exp_avg"].lerp_(param.grad, 1 - beta1)
                state["exp_avg_sq"].mul_(beta2).addcmul_(param.grad, param.grad, value=1 - beta2)
                update = state["exp_avg"] / state["exp_avg_sq"].sqrt().add_(group["eps"])
                if group["weight_decay"] != 0:
                    update.add_(param, alpha=group["weight_decay"])
                if not self.adam:
                    weight, size = param.norm().clamp(max=10.0), update.norm()
                    update.mul_(torch.where((weight > 0) & (size > 0), weight / size, 1.0))
                param.add_(update, alpha=-group["lr"])
        return loss
