"""`--amp` of the ImageNet example: apex where the real one is installed, else torch.amp with the same loss scale."""

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
    """Wraps the forward pass, the backward pass and the step as the chosen precision needs them."""

    def __init__(self, args: argparse.Namespace, device: torch.device) -> None:
        self.device, self.args, self.apex, self.scaler = device, args, None, None
        if not args.amp:
            return
        self.apex = _find_apex()
        if self.apex is not None:
            return
        dynamic = args.loss_scale <= 0
        self.dtype = torch.bfloat16 if device.type == "cpu" else torch.float16
        # A fixed scale is one that never finds a time to grow.
        self.scaler = torch.amp.GradScaler(
            device.type,
            init_scale=2.0**16 if dynamic else args.loss_scale,
            growth_interval=2000 if dynamic else 2**31 - 1,
        )
        print(f"=> --amp: apex is not installed: torch.amp in {self.dtype} instead; --opt-level has no effect")

    def prepare(self, model: nn.Module, optimizer: torch.optim.Optimizer):
        """(model, optimizer) to train with."""
        if self.apex is None:
            return model, optimizer
        scale = self.args.loss_scale if self.args.loss_scale > 0 else "dynamic"
        return self.apex.initialize(model, optimizer, opt_level=self.args.opt_level, loss_scale=scale)

    def autocast(self) -> AbstractContextManager:
        if self.scaler is None:
            return nullcontext()
        return torch.amp.autocast(self.device.type, dtype=self.dtype)

    def backward_and_step(self, loss: torch.Tensor, optimizer: torch.optim.Optimizer) -> None:
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
