"""`amp.scale_loss`: the loss times the scale on the way in, gradients unscaled and looked at on the way out."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from ._amp_state import _amp_state

__all__ = ["scale_loss"]


@contextlib.contextmanager
def scale_loss(
    loss: Tensor,
    optimizers: torch.optim.Optimizer | Sequence[torch.optim.Optimizer],
    loss_id: int = 0,
    model: nn.Module | Sequence[nn.Module] | None = None,
    delay_unscale: bool = False,
    delay_overflow_check: bool = False,
) -> Iterator[Tensor]:
    r"""Context manager that gives the loss to call ``backward`` of.

    On leaving it the optimizers' gradients are unscaled. After an overflow of a dynamic scale their next step does
    nothing, and the scale shrinks.

    Args:
        loss (Tensor): what the model gave, one element.
        optimizers (Optimizer or list): those whose parameters get gradients from this loss.
        loss_id (int, optional): which of the ``num_losses`` scales. Default: 0.
        model: accepted, not used.
        delay_unscale (bool, optional): True for all but the last pass of an accumulation over several: gradients stay
            scaled. Default: False.
        delay_overflow_check (bool, optional): the scale is left as it is, and nothing waits for the device.

    Raises RuntimeError before :func:`initialize`, for an optimizer that it was not given, or an unknown ``loss_id``.
    """
    properties = _amp_state.opt_properties
    if properties is None:
        raise RuntimeError("amp.scale_loss before amp.initialize: model, optimizer = amp.initialize(model, optimizer)")
    if not properties.enabled:
        yield loss
        return
    if isinstance(optimizers, torch.optim.Optimizer):
        optimizers = [optimizers]
    for optimizer in optimizers:
        if getattr(optimizer, "_amp_stash", None) is None:
            raise RuntimeError(
                f"amp.scale_loss: {type(optimizer).__name__} was not given to amp.initialize, so its gradients would "
                "stay scaled; pass every optimizer there"
            )
    if not 0 <= loss_id < len(_amp_state.loss_scalers):
        raise RuntimeError(
            f"amp.scale_loss: loss_id={loss_id}, but amp.initialize was told num_losses={len(_amp_state.loss_scalers)}"
        )
    scaler = _amp_state.loss_scalers[loss_id]
    scale = scaler.loss_scale()
    stashes = [optimizer._amp_stash for optimizer in optimizers]
    if not (properties.master_weights or scaler.dynamic or properties.combine_grad) and scale == 1.0:
        yield loss.float()
        return

    if not delay_unscale:
        for stash in stashes:
            if not stash.params_have_scaled_gradients:
                stash.prepare_backward()
    scaler.begin(loss.device)
    yield loss.float() * scale
    if delay_unscale:
        for stash in stashes:
            stash.params_have_scaled_gradients = True
        return
    with torch.no_grad(), _amp_state.without_casts():
        found_infs = []
        for stash in stashes:
            if stash.device is None:
                continue
            found_inf = torch.zeros(1, dtype=torch.float32, device=stash.device)
            inverse = torch.full((1,), 1.0 / scale, dtype=torch.float32, device=stash.device)
            stash.finish_backward(found_inf, inverse)
            stash.params_have_scaled_gradients = False
            found_infs.append(found_inf)
        if delay_overflow_check:
            return
        total = found_infs[0] if found_infs else None
        for found_inf in found_infs[1:]:
            total = total + found_inf.to(total.device)
        if scaler.update(scaler.overflowed(total), loss_id):
            for stash in stashes:
                stash.skip_next_step = True
