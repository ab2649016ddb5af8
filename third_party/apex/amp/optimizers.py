"""What `initialize` does to an optimizer: fp32 masters of half-precision parameters, scaled gradients, skipped steps.

Everything belongs to one object, `optimizer._amp_stash`; the optimizer's methods `step`, `zero_grad` and
`add_param_group` are wrapped to ask it.
"""

from __future__ import annotations

import functools
import weakref
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.npu.optim._combined import Combined, Layout, can_combine, group_by_kind
from torch.npu.optim.npu_fused_optim_base import NpuFusedOptimizerBase, _clip

from ._amp_state import _amp_state, maybe_print

if TYPE_CHECKING:
    from .frontend import Properties

__all__ = ["Stash", "prepare_optimizer"]


class _Gradients:
    """Gradients of some model parameters of one device and dtype, and of their masters.

    Without `combine` each gradient is a tensor of its own; with it they are parts of flat tensors, and with masters
    so are the parameters.
    """

    def __init__(self, models: list[Tensor], masters: list[Tensor] | None, combine: bool):
        self.models, self.masters = models, masters
        self.flat: Combined | None = None
        self.master_flat: Combined | None = None
        self.model_values: Combined | None = None
        self.master_values: Combined | None = None
        # Gradients of earlier passes: one flat tensor, or one for each parameter.
        self._before: list[Tensor | None] | Tensor | None = None
        if combine and all(can_combine(p) for p in models):
            layout = Layout(models)
            first = models[0]
            self.flat = Combined(layout, first.dtype, first.device)
            if masters is not None:
                self.master_flat = Combined(layout, torch.float32, first.device)
                self.model_values = Combined(layout, first.dtype, first.device)
                self.model_values.adopt(models)
                self.master_values = Combined(layout, torch.float32, first.device)
                self.master_values.adopt(masters)

    @property
    def steps(self) -> list[Tensor]:
        """The parameters that the optimizer steps."""
        return self.models if self.masters is None else self.masters

    # ---- before the backward pass
    def prepare(self) -> None:
        """Puts gradients that are there aside: the pass that follows makes new ones, scaled."""
        if self.masters is None and any(p.grad is not None for p in self.models):
            if self.flat is not None and self._all_parts():
                # Most often zeros that zero_grad(set_to_none=False) wrote; whether they are is not known here.
                self._before = self.flat.flat.clone()
            else:
                # A part of a flat tensor is written by the pass that follows; a tensor of its own is left alone.
                keep = torch.clone if self.flat is not None else torch.Tensor.detach
                self._before = [None if p.grad is None else keep(p.grad.detach()) for p in self.models]
        for param in self.models:
            param.grad = None

    def _all_parts(self) -> bool:
        return all(p.grad is part for p, part in zip(self.models, self.flat.parts, strict=True))

    # ---- after it
    def gather(self) -> list[int]:
        """Which parameters have a gradient; with combined gradients each becomes a part of the flat one."""
        found = [i for i, p in enumerate(self.models) if p.grad is not None]
        if self.flat is not None and found:
            parts = self.flat.parts
            strange = [i for i in found if self.models[i].grad is not parts[i]]
            if len(found) < len(parts):
                self.flat.flat.zero_() if len(strange) == len(found) else self._zero_missing(found)
            self.flat.take_values(strange, [self.models[i].grad.detach() for i in strange])
            for i in strange:
                self.models[i].grad = parts[i]
        return found

    def _zero_missing(self, found: list[int]) -> None:
        missing = set(range(len(self.flat.parts))).difference(found)
        torch._foreach_zero_([self.flat.parts[i] for i in sorted(missing)])

    def check_parts(self) -> None:
        """Raises RuntimeError where something has put another gradient in the place of a part."""
        if self.flat is None:
            return
        combined = self.flat if self.masters is None else self.master_flat
        for param, part in zip(self.steps, combined.parts, strict=True):
            if param.grad is not None and param.grad is not part:
                raise RuntimeError(
                    f"amp: the gradient of a parameter of shape {list(param.shape)} is no longer part of the combined "
                    "gradients (check_combined_tensors=True): something has replaced `.grad` after amp.scale_loss; "
                    "write into it in place, or use combine_grad=False"
                )

    def tensors(self, found: list[int]) -> list[Tensor]:
        """The scaled gradients, as few tensors as possible."""
        if self.flat is not None:
            return [self.flat.flat] if found else []
        return [self.models[i].grad for i in found]

    def finish_at_once(self, found_inf: Tensor, inverse: Tensor) -> bool:
        """Takes the pass's gradients to the masters' flat one in one operator on npu; False where that is not all."""
        if self.master_flat is None or self.master_flat.flat.device.type != "npu":
            return False
        found = [i for i, p in enumerate(self.models) if p.grad is not None]
        if not found or any(master.grad is not None for master in self.masters):
            return False
        if any(self.models[i].grad.layout is not torch.strided for i in found):
            return False
        parts = self.master_flat.parts
        if len(found) < len(parts):
            self.master_flat.flat.zero_()
        torch.ops.npu._npu_unscale_into_(
            [parts[i] for i in found], [self.models[i].grad.detach() for i in found], found_inf, inverse
        )
        for i in found:
            self.masters[i].grad = parts[i]
        for param in self.models:
            param.grad = None
        return True

    def finish(self, found: list[int], found_inf: Tensor, inverse: Tensor) -> None:
        """Unscales the pass's gradients (found_inf becomes 1 where one is not finite), adds them to earlier ones."""
        if not found and self._before is None:
            return
        if self.masters is not None:
            self._to_masters(found, found_inf, inverse)
            return
        if found:
            torch._amp_foreach_non_finite_check_and_unscale_(self.tensors(found), found_inf, inverse)
        if self._before is not None:
            self._add_earlier(self._before)
            self._before = None

    def _add_earlier(self, before: list[Tensor | None] | Tensor) -> None:
        if isinstance(before, Tensor):
            if any(p.grad is not None for p in self.models):
                self.flat.flat.add_(before)
            else:
                self.flat.flat.copy_(before)
            for param, part in zip(self.models, self.flat.parts, strict=True):
                param.grad = part
            return
        for param, earlier in zip(self.models, before, strict=True):
            if earlier is None:
                continue
            if param.grad is None:
                param.grad = earlier
            else:
                param.grad.add_(earlier)

    def _to_masters(self, found: list[int], found_inf: Tensor, inverse: Tensor) -> None:
        earlier = [i for i, master in enumerate(self.masters) if master.grad is not None]
        if self.flat is not None:
            parts = self.master_flat.parts
            if earlier:
                values = self.flat.flat.float()
                torch._amp_foreach_non_finite_check_and_unscale_([values], found_inf, inverse)
                strange = [i for i in earlier if self.masters[i].grad is not parts[i]]
                self.master_flat.take_values(strange, [self.masters[i].grad.detach() for i in strange])
                self.master_flat.flat.add_(values)
            else:
                self.master_flat.flat.copy_(self.flat.flat)
                torch._amp_foreach_non_finite_check_and_unscale_([self.master_flat.flat], found_inf, inverse)
            for i in {*found, *earlier}:
                self.masters[i].grad = parts[i]
        else:
            values = [self.models[i].grad.detach().float() for i in found]
            torch._amp_foreach_non_finite_check_and_unscale_(values, found_inf, inverse)
            for i, value in zip(found, values, strict=True):
                master = self.masters[i]
                if master.grad is None:
                    master.grad = value
                else:
                    master.grad.add_(value)
        for param in self.models:
            param.grad = None

    # ---- the step
    def copy_to_models(self) -> None:
        """Copies the masters into the model's parameters."""
        if self.masters is None:
            return
        if (
            self.model_values is not None
            and self.model_values.holds(self.models)
            and self.master_values.holds(self.masters)
        ):
            self.model_values.flat.copy_(self.master_values.flat)
            return
        torch._foreach_copy_([p.detach() for p in self.models], [m.detach() for m in self.masters])

    def zero(self, set_to_none: bool) -> None:
        grads = [p.grad for p in self.models if p.grad is not None]
        if set_to_none or self.masters is not None:
            for param in self.models:
                param.grad = None
        elif grads and self.flat is not None and self._all_parts():
            self.flat.flat.zero_()
        elif grads:
            for grad in grads:
                grad.detach_()
            torch._foreach_zero_(grads)
        self.drop_master_gradients()

    def drop_master_gradients(self) -> None:
        """Masters' gradients belong to amp: they end with the step, so that the next pass does not add to them."""
        for master in self.masters or ():
            master.grad = None


class Stash:
    """What amp knows of one optimizer.

    Attributes:
        params_have_scaled_gradients (bool): a pass with delay_unscale=True went before.
        skip_next_step (bool): the last pass overflowed.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, properties: Properties):
        self.properties = properties
        self.masters: dict[Tensor, Tensor] = {}
        self.groups: list[_Gradients] = []
        self.params_have_scaled_gradients = False
        self.skip_next_step = False
        for group in optimizer.param_groups:
            self.take_group(optimizer, group)

    def take_group(self, optimizer: torch.optim.Optimizer, group: dict[str, Any]) -> None:
        """Takes a parameter group in: with master weights it holds the masters from here on."""
        models = list(group["params"])
        if self.properties.master_weights:
            for index, param in enumerate(models):
                if param.itemsize == 2 and param.is_floating_point():
                    exact = getattr(param, "_amp_fp32", None)
                    master = (param.detach().float() if exact is None else exact).requires_grad_(param.requires_grad)
                    group["params"][index] = self.masters[param] = master
                    param._amp_master = weakref.ref(master)
                    if param in optimizer.state:
                        optimizer.state[master] = optimizer.state.pop(param)
        combine = bool(self.properties.combine_grad)
        for some in group_by_kind(p for p in models if p.requires_grad):
            masters = [self.masters[p] for p in some] if some[0] in self.masters else None
            self.groups.append(_Gradients(some, masters, combine))

    @property
    def device(self) -> torch.device | None:
        return self.groups[0].models[0].device if self.groups else None

    def prepare_backward(self) -> None:
        for group in self.groups:
            group.prepare()

    def finish_backward(self, found_inf: Tensor, inverse: Tensor) -> None:
        for group in self.groups:
            if not self.properties.combine_ddp and group.finish_at_once(found_inf, inverse):
                continue
            found = group.gather()
            if self.properties.combine_ddp:
                self._average(group.tensors(found))
            group.finish(found, found_inf, inverse)

    def _average(self, gradients: list[Tensor]) -> None:
        """Averages flat gradients over all processes, in pieces whose transfers overlap."""
        dist = torch.distributed
        if not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() == 1:
            return
        works = []
        for gradient in gradients:
            for piece in gradient.view(-1).chunk(self.properties.ddp_replica_count):
                works.append(dist.all_reduce(piece, async_op=True))
        for work in works:
            work.wait()
        torch._foreach_div_(gradients, dist.get_world_size())

    def combined(self, of: str) -> list[Tensor]:
        return [found.flat for group in self.groups if (found := getattr(group, of)) is not None]


def _wrapped(optimizer: torch.optim.Optimizer, name: str):
    """The optimizer's own method, without what an earlier `initialize` put around it."""
    method = getattr(optimizer, name)
    return getattr(method, "_amp_original", method)


def _wrap_step(optimizer: torch.optim.Optimizer) -> None:
    original, owner = _wrapped(optimizer, "step"), weakref.ref(optimizer)

    @functools.wraps(original)
    def step(closure=None, *args, **kwargs):
        stash = owner()._amp_stash
        if closure is not None and (stash.masters or _amp_state.loss_scalers and _amp_state.loss_scalers[0].dynamic):
            raise RuntimeError(
                "amp: an optimizer's step takes no closure with master weights or a dynamic loss scale, since a pass "
                "that overflows skips the step; call backward under amp.scale_loss first, then step()"
            )
        if stash.skip_next_step:
            stash.skip_next_step = False
            for group in stash.groups:
                group.drop_master_gradients()
            return None
        if stash.properties.check_combined_tensors:
            for group in stash.groups:
                group.check_parts()
        with _amp_state.without_casts():
            result = original(*args, **kwargs) if closure is None else original(closure, *args, **kwargs)
        with torch.no_grad():
            for group in stash.groups:
                group.copy_to_models()
                group.drop_master_gradients()
        return result

    step._amp_original = original
    optimizer.step = step


def _wrap_zero_grad(optimizer: torch.optim.Optimizer) -> None:
    original, owner = _wrapped(optimizer, "zero_grad"), weakref.ref(optimizer)

    @functools.wraps(original)
    def zero_grad(set_to_none: bool = True) -> None:
        stash = owner()._amp_stash
        for group in stash.groups:
            group.zero(set_to_none)
        grouped = {id(p) for group in stash.groups for p in group.steps}
        for group in owner().param_groups:
            for param in group["params"]:
                if id(param) not in grouped:
                    param.grad = None

    zero_grad._amp_original = original
    optimizer.zero_grad = zero_grad


def _wrap_add_param_group(optimizer: torch.optim.Optimizer) -> None:
    original, owner = _wrapped(optimizer, "add_param_group"), weakref.ref(optimizer)

    @functools.wraps(original)
    def add_param_group(param_group: dict[str, Any]) -> None:
        original(param_group)
        owner()._amp_stash.take_group(owner(), owner().param_groups[-1])

    add_param_group._amp_original = original
    optimizer.add_param_group = add_param_group


def _add_fused_methods(optimizer: torch.optim.Optimizer) -> None:
    """The methods that combined gradients give an optimizer, under the names that scripts call."""
    owner = weakref.ref(optimizer)

    def get_optimizer_combined_grads() -> list[Tensor]:
        """The flat gradients of the parameters that the optimizer steps."""
        stash = owner()._amp_stash
        return [(g.master_flat or g.flat).flat for g in stash.groups if g.flat is not None]

    def get_optimizer_combined_params() -> list[Tensor]:
        """The flat parameters that the optimizer steps, where they are combined."""
        stash = owner()._amp_stash
        if isinstance(owner(), NpuFusedOptimizerBase):
            return owner().get_combined_params()
        return stash.combined("master_values")

    def get_model_combined_grads() -> list[Tensor]:
        """The flat gradients of the model's parameters."""
        return owner()._amp_stash.combined("flat")

    def get_model_combined_params() -> list[Tensor]:
        """The flat parameters of the model, where they are combined."""
        stash = owner()._amp_stash
        return stash.combined("model_values") or get_optimizer_combined_params()

    @torch.no_grad()
    def clip_optimizer_grad_norm_fused(max_norm: float, norm_type: float = 2) -> Tensor:
        """Clips the gradients that the optimizer steps with by their norm, and returns it (0-d, on the device)."""
        stash = owner()._amp_stash
        gradients = []
        for group in stash.groups:
            if group.flat is not None:
                gradients.append((group.master_flat or group.flat).flat)
            else:
                gradients += [p.grad for p in group.steps if p.grad is not None]
        return _clip(gradients, float(max_norm), float(norm_type))

    def clip_model_grad_norm_fused(max_norm: float, norm_type: float = 2) -> Tensor:
        """The same for the model's own gradients, which only O1 keeps."""
        if _amp_state.opt_properties.opt_level != "O1":
            raise RuntimeError("clip_model_grad_norm_fused can only be used when opt_level='O1'")
        return clip_optimizer_grad_norm_fused(max_norm, norm_type)

    for method in (
        get_optimizer_combined_grads,
        get_optimizer_combined_params,
        get_model_combined_grads,
        get_model_combined_params,
        clip_optimizer_grad_norm_fused,
        clip_model_grad_norm_fused,
    ):
        setattr(optimizer, method.__name__, method)


def prepare_optimizer(optimizer: torch.optim.Optimizer, properties: Properties) -> None:
    """Sets one optimizer up; a second call takes it in anew."""
    if getattr(optimizer, "_amp_stash", None) is not None and optimizer._amp_stash.masters:
        raise RuntimeError("amp.initialize has given this optimizer master weights already; make a new optimizer")
    optimizer._amp_stash = Stash(optimizer, properties)
    _wrap_step(optimizer)
    _wrap_zero_grad(optimizer)
    _wrap_add_param_group(optimizer)
    if properties.combine_grad:
        _add_fused_methods(optimizer)
        if not any(group.flat is not None for group in optimizer._amp_stash.groups):
            maybe_print("Warning:  combine_grad=True has no effect: no parameter can be combined", True)
