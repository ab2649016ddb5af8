"""RMSprop as TensorFlow computes it, over flat tensors."""

from typing import Any

from .npu_fused_optim_base import NpuFusedOptimizerBase, Run
from .npu_fused_rmsprop import check_rmsprop_options, rmsprop_state_names

__all__ = ["NpuFusedRMSpropTF"]


class NpuFusedRMSpropTF(NpuFusedOptimizerBase):
    r"""RMSprop with TensorFlow's numbers: epsilon under the root, means of squares that begin at 1.

    Args:
        params (iterable): parameters or parameter groups.
        lr (float, optional): learning rate. Default: 1e-2.
        alpha (float, optional): decay of the mean of squares. Default: 0.9.
        eps (float, optional): added under the root. Default: 1e-10.
        weight_decay (float, optional): factor of the parameters that is added to the gradients. Default: 0.
        momentum (float, optional): factor of the last step. Default: 0.
        centered (bool, optional): the gradients' variance instead of their mean square. Default: False.
        decoupled_decay (bool, optional): each step multiplies the parameters by 1 - lr * weight_decay instead.
        lr_in_momentum (bool, optional): the momentum is that of steps, learning rate included, as in TensorFlow; else
            that of gradients. Default: True.

    Raises ValueError for a negative option.
    """

    def __init__(
        self,
        params,
        lr=1e-2,
        alpha=0.9,
        eps=1e-10,
        weight_decay=0,
        momentum=0.0,
        centered=False,
        decoupled_decay=False,
        lr_in_momentum=True,
    ):
        check_rmsprop_options(lr, eps, momentum, weight_decay, alpha)
        super().__init__(
            params,
            {
                "lr": lr,
                "alpha": alpha,
                "eps": eps,
                "weight_decay": weight_decay,
                "momentum": momentum,
                "centered": centered,
                "decoupled_decay": decoupled_decay,
                "lr_in_momentum": lr_in_momentum,
            },
        )

    def _state_names(self, group: dict[str, Any]) -> dict[str, float]:
        return rmsprop_state_names(group, 1.0)

    def _update(self, group: dict[str, Any], run: Run) -> None:
        param, grad, lr, decay = run.param, run.grad, group["lr"], group["weight_decay"]
        mean_square, rest = run.states["square_avg"], 1 - group["alpha"]
        if decay != 0:
            if group["decoupled_decay"]:
                param.mul_(1 - lr * decay)
            else:
                grad = grad.add(param, alpha=decay)
        mean_square.add_(grad.square().sub_(mean_square), alpha=rest)
        variance = mean_square
        if group["centered"]:
            mean = run.states["grad_avg"]
            mean.add_(grad - mean, alpha=rest)
            variance = mean_square.addcmul(mean, mean, value=-1)
        root = variance.add(group["eps"]).sqrt_()
        if group["momentum"] <= 0:
            param.addcdiv_(grad, root, value=-lr)
            return
        buffer = run.states["momentum_buffer"].mul_(group["momentum"])
        if group["lr_in_momentum"]:
            buffer.addcdiv_(grad, root, value=lr)
            param.sub_(buffer)
        else:
            buffer.addcdiv_(grad, root)
            param.add_(buffer, alpha=-lr)
