"""`--amp` of the ImageNet example: apex's levels or torch.amp, with the same loss scale."""

import argparse
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import nn


def _find_apex():
    try:
        from apex import amp
    except ImportError:
        return None
    # PyPI's package of that name is something else.
    return amp if hasattr(amp, "initialize") else None


class Precision:
    """Wraps the forward pass, the backward pass and the step as the chosen precision needs them.

    `skipped` counts the steps that an overflow prevented.
    """

    def __init__(self, args: argparse.Namespace, device: torch.device) -> None:
        self.device, self.args, self.apex, self.scaler = device, args, None, None
        self._passes = self._steps = 0
        if not args.amp:
            return
        if args.amp == "apex" and device.type != "cpu":
            self.apex = _find_apex()
            if self.apex is not None:
                return
            print("=> --amp: apex is not installed: torch.amp instead; --opt-level has no effect")
        dynamic = args.loss_scale <= 0
        self.dtype = torch.bfloat16 if device.type == "cpu" else torch.float16
        # A fixed scale is one that never finds a time to grow.
        self.scaler = torch.amp.GradScaler(
            device.type,
            init_scale=2.0**16 if dynamic else args.loss_scale,
            growth_interval=2000 if dynamic else 2**31 - 1,
        )
        print(f"=> --amp: torch.amp in {self.dtype}")

    @property
    def skipped(self) -> int:
        return self._passes - self._steps

    def _count(self, *_) -> None:
        self._steps += 1

    def prepare(self, model: nn.Module, optimizer: torch.optim.Optimizer):
        """(model, optimizer) to train with."""
        optimizer.register_step_post_hook(self._count)
        if self.apex is None:
            return model, optimizer
        scale = self.args.loss_scale if self.args.loss_scale > 0 else "dynamic"
        combined = {"combine_grad": True} if self.device.type == "npu" else {}
        return self.apex.initialize(model, optimizer, opt_level=self.args.opt_level, loss_scale=scale, **combined)

    def autocast(self) -> AbstractContextManager:
        if self.scaler is None:
            return nullcontext()
        return torch.amp.autocast(self.device.type, dtype=self.dtype)

    def backward_and_step(self, loss: torch.Tensor, optimizer: torch.optim.Optimizer) -> None:
        self._passes += 1
        if self.scaler is not None:
            self.scaler.scale(loss).backward()
            self.scaler.step(optimizer)
            self.scaler.update()
            return
        with self.apex.scale_loss(loss, optimizer) if self.apex else nullcontext(loss) as scaled_loss:
            scaled_loss.backward()
        optimizer.step()

    def checkpoint(self) -> dict:
        """What a checkpoint holds besides model and optimizer: the key `amp`, or nothing."""
        keeper = self.apex or self.scaler
        return {"amp": keeper.state_dict()} if keeper else {}

    def resume(self, checkpoint: dict) -> None:
        keeper = self.apex or self.scaler
        if keeper and "amp" in checkpoint:
            keeper.load_state_dict(checkpoint["amp"])
