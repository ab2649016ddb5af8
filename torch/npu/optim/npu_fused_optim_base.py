"""What the fused optimizers share: parameters, gradients and states live in flat tensors, a step is a few operators.

An optimizer says how one update over flat tensors goes (`_update`); everything else is here. The states in
`self.state` are parts of the flat tensors under the names that the plain optimizer of torch.optim uses, so state dicts
go from one to the other.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from ._combined import Combined, Layout, can_combine, group_by_kind

__all__ = ["NpuFusedOptimizerBase", "Run", "npu_fused_clip_grad_norm_"]


class Run:
    """Neighbours in a pack that are updated together: flat views of parameters, gradients and states.

    Attributes:
        param, grad (Tensor): flat views; `states` (dict) the states by name, likewise.
        steps (int): how many steps they have had, this one included.
        indices (range): which parameters of the pack they are; `pack` the pack.
    """

    def __init__(self, pack: "_Pack", begin: int, end: int, steps: int):
        self.pack, self.indices, self.steps = pack, range(begin, end), steps
        self.param = pack.values.run(begin, end)
        self.grad = pack.grads.run(begin, end)
        self.states = {name: combined.run(begin, end) for name, combined in pack.states.items()}

    @property
    def params(self) -> list[Tensor]:
        """The parameters one by one, as parts of `param`."""
        return self.pack.values.parts[self.indices.start : self.indices.stop]

    def parts_of(self, flat: Tensor) -> list[Tensor]:
        """A flat tensor that lies as `param` does, as one tensor for each parameter."""
        layout = self.pack.layout
        start = layout.offsets[self.indices.start]
        return [
            torch.as_strided(flat, *layout.shapes[i], flat.storage_offset() + layout.offsets[i] - start)
            for i in self.indices
        ]

    def step_tensor(self) -> Tensor:
        """`steps` on the device in fp32, as torch.optim's functions take it."""
        return torch.full((), float(self.steps), dtype=torch.float32, device=self.param.device)


class _Pack:
    """Parameters of one group that have a device and a dtype in common, as flat tensors."""

    def __init__(
        self, params: Sequence[Tensor], state_names: dict[str, float], alone: bool, flats: Iterable[Combined] = ()
    ):
        self.params = list(params)
        self.alone = alone
        self.layout = Layout(self.params)
        first = self.params[0]
        # Memory that the parameters share already, as masters of combined gradients do, is taken over.
        known = [c for c in flats if not alone and c.layout.is_as(self.layout) and c.holds(self.params)]
        self.values = known[0] if known else self._make(first.dtype, first.device)
        self.grads = self._make(first.dtype, first.device)
        self.states = {name: self._make(first.dtype, first.device, value) for name, value in state_names.items()}
        self.steps = [0] * len(self.params)
        if not alone and not known:
            self.values.adopt(self.params)

    def _make(self, dtype: torch.dtype, device: torch.device, value: float = 0.0) -> Combined:
        return Combined(self.layout, dtype, device, value)

    def fits(self) -> bool:
        if self.alone:
            shapes = [shape for shape, _ in self.layout.shapes]
            return not any(map(can_combine, self.params)) and [tuple(p.size()) for p in self.params] == shapes
        return self.values.holds(self.params)

    def gather(self) -> None:
        """Makes each gradient a part of the flat one; a gradient that is None stays None."""
        strange = self._strange()
        if strange and self._share_gradients(next(iter(strange.values()))):
            strange = self._strange()
        for grad in strange.values():
            if grad.layout is not torch.strided:
                raise RuntimeError(
                    "the fused optimizers of npu do not take sparse gradients; use torch.optim.SparseAdam"
                )
        self.grads.take_values(list(strange), [grad.detach() for grad in strange.values()])
        if self.alone:
            self.values.take_values(range(len(self.params)), [p.detach() for p in self.params])
            return
        for i in strange:
            self.params[i].grad = self.grads.parts[i]

    def _strange(self) -> dict[int, Tensor]:
        """The gradients, by place, that are not a part of the flat one."""
        return {
            i: param.grad
            for i, (param, part) in enumerate(zip(self.params, self.grads.parts, strict=True))
            if param.grad is not None and param.grad is not part
        }

    def _share_gradients(self, grad: Tensor) -> bool:
        """Takes over the flat gradients of apex's combine_grad, instead of copying them in each step."""
        other = Combined.of(grad)
        if self.alone or other is None or other is self.grads or not other.layout.is_as(self.layout):
            return False
        parts = zip(self.params, other.parts, strict=True)
        taken = any(p.grad is not None and p.grad is not part for p, part in parts)
        if other.flat.dtype is not self.grads.flat.dtype or taken:
            return False
        self.grads = other
        return True

    def runs(self, count: bool = True) -> list[Run]:
        """The parameters that have a gradient, in runs of neighbours that have had the same number of steps."""
        found: list[Run] = []
        begin = None
        size = len(self.params)
        for i in range(size + 1):
            ends = i == size or self.params[i].grad is None
            if begin is not None and (ends or self.steps[i] != self.steps[begin]):
                found.append(Run(self, begin, i, self.steps[begin] + count))
                begin = None
            if begin is None and not ends:
                begin = i
        if count:
            for run in found:
                for i in run.indices:
                    self.steps[i] = run.steps
        return found


class NpuFusedOptimizerBase(torch.optim.Optimizer):
    r"""Base of the fused optimizers.

    Args:
        params (iterable): parameters or dicts of parameter groups, as for any optimizer.
        default (dict): values of the options that a group leaves out.

    Parameters of one group, device and dtype become parts of one tensor at the first step, and so do their gradients
    and states: ``param.data`` and ``param.grad`` keep shape, strides and values, and share memory with it. A parameter
    that gets other memory later (``param.data = ...``, ``module.to(...)``) is taken in again at the next step.
    A parameter in a private format (``npu_format_cast``) keeps it and is updated by itself.
    """

    is_npu_fused_optimizer = True

    # {name of a state: what it holds at first}, for the group's options
    def _state_names(self, group: dict[str, Any]) -> dict[str, float]:
        raise NotImplementedError(f"{type(self).__name__} does not say what its states are")

    def _update(self, group: dict[str, Any], run: Run) -> None:
        """One step of the parameters in `run`, in place."""
        raise NotImplementedError(f"{type(self).__name__} does not say how it steps")

    def _before_updates(self) -> None:
        """What a step does to all gradients together, before any parameter is updated."""

    def __init__(self, params: Iterable, default: dict[str, Any]):
        super().__init__(params, default)
        self._packs: dict[int, list[_Pack]] = {}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._packs = {}

    def __getstate__(self) -> dict[str, Any]:
        self._write_steps()
        return super().__getstate__()

    def _packs_of(self, index: int) -> list[_Pack]:
        """The packs of a parameter group, made anew where a parameter came or got other memory."""
        group = self.param_groups[index]
        params = group["params"]
        packs = self._packs.get(index)
        known = [p for pack in packs or () for p in pack.params]
        same = len(known) == len(params) and {id(p) for p in known} == {id(p) for p in params}
        names = self._state_names(group)
        if packs is None or not same or not all(p.fits() and set(p.states) == set(names) for p in packs):
            if packs is not None:
                self._write_steps(packs)
            flats = [group.master_values for group in self._combined_by_amp() if group.master_values is not None]
            packs = [_Pack(some, names, not can_combine(some[0]), flats) for some in self._kinds(params) if some]
            for pack in packs:
                pack.steps = [self._steps_in_state(p) for p in pack.params]
                self._take_states(pack)
            self._packs[index] = packs
        return packs

    def _combined_by_amp(self) -> list[Any]:
        """What apex's combine_grad has laid into flat tensors: groups of parameters, see `_Gradients` there."""
        groups = getattr(getattr(self, "_amp_stash", None), "groups", ())
        return [group for group in groups if group.flat is not None]

    def _kinds(self, params: Sequence[Tensor]) -> list[list[Tensor]]:
        """The parameters by device and dtype; those whose gradients amp has combined stay together, and apart."""
        wanted = {id(p) for p in params}
        kinds = [list(group.steps) for group in self._combined_by_amp() if all(id(p) in wanted for p in group.steps)]
        taken = {id(p) for kind in kinds for p in kind}
        return kinds + group_by_kind(p for p in params if id(p) not in taken)

    def _steps_in_state(self, param: Tensor) -> int:
        state = self.state.get(param)
        if not state:
            return 0
        if "step" in state:
            return int(state["step"])
        # Optimizers that keep no number of steps (SGD) have had one where they have a state.
        return int(any(torch.is_tensor(value) for value in state.values()))

    def _take_states(self, pack: _Pack) -> None:
        """Copies the states that are there (from load_state_dict, from older packs) into the flat ones."""
        for name, combined in pack.states.items():
            strange = []
            for i, (param, part) in enumerate(zip(pack.params, combined.parts, strict=True)):
                state = self.state.get(param)
                if state is None or pack.steps[i] == 0:
                    continue
                value = state.get(name)
                if value is not part:
                    if torch.is_tensor(value):
                        strange.append((i, value))
                    state[name] = part
            combined.take_values([i for i, _ in strange], [value for _, value in strange])

    def _write_steps(self, packs: Iterable[_Pack] | None = None) -> None:
        """Writes the numbers of steps into `self.state`, where the plain optimizer has them."""
        if not self._counts_steps:
            return
        for pack in [p for some in self._packs.values() for p in some] if packs is None else packs:
            for param, steps in zip(pack.params, pack.steps, strict=True):
                if steps:
                    self.state[param]["step"] = torch.tensor(float(steps), dtype=torch.float32)

    # Whether the plain optimizer keeps the number of steps, as `step`, in a parameter's state.
    _counts_steps = True

    def state_dict(self) -> dict[str, Any]:
        self._write_steps()
        return super().state_dict()

    def zero_grad(self, set_to_none: bool = False) -> None:
        r"""Sets gradients to zero, one operator for each flat tensor.

        Args:
            set_to_none (bool, optional): set them to None instead; the next backward pass then makes tensors of its
                own, which the step copies. Default: False.
        """
        if set_to_none:
            super().zero_grad(set_to_none=True)
            return
        for index, group in enumerate(self.param_groups):
            whole = self._packs.get(index, ())
            flat: set[int] = set()
            for pack in whole:
                parts = pack.grads.parts
                if not pack.alone and all(p.grad is part for p, part in zip(pack.params, parts, strict=True)):
                    pack.grads.flat.zero_()
                    flat.update(id(p) for p in pack.params)
            rest = [p.grad for p in group["params"] if p.grad is not None and id(p) not in flat]
            for grad in rest:
                if grad.grad_fn is not None:
                    grad.detach_()
                else:
                    grad.requires_grad_(False)
            if rest:
                torch._foreach_zero_(rest)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        r"""One step of all parameters that have a gradient.

        Args:
            closure (Callable, optional): evaluates the model again and returns the loss.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._before_updates()
        for index, group in enumerate(self.param_groups):
            for pack in self._packs_of(index):
                pack.gather()
                for run in pack.runs():
                    self._update(group, run)
                    self._publish(pack, run)
        return loss

    def _publish(self, pack: _Pack, run: Run) -> None:
        """Makes the run's states visible in `self.state`, and its values where a parameter has memory of its own."""
        for i in run.indices:
            state = self.state[pack.params[i]]
            for name, combined in pack.states.items():
                if state.get(name) is None:
                    state[name] = combined.parts[i]
        if pack.alone:
            for i in run.indices:
                pack.params[i].data.copy_(pack.values.parts[i])

    def _gathered(self) -> list[_Pack]:
        packs = [pack for index in range(len(self.param_groups)) for pack in self._packs_of(index)]
        for pack in packs:
            pack.gather()
        return packs

    def get_combined_params(self) -> list[Tensor]:
        r"""The flat tensors that hold the parameters, one for each group, device and dtype."""
        return [pack.values.flat for pack in self._gathered()]

    def get_combined_grads(self) -> list[Tensor]:
        r"""The flat tensors that hold the gradients, in the order of :meth:`get_combined_params`."""
        return [pack.grads.flat for pack in self._gathered()]

    @torch.no_grad()
    def clip_grad_norm_fused_(self, max_norm: float, norm_type: float = 2) -> Tensor:
        r"""``torch.nn.utils.clip_grad_norm_`` over all gradients of the optimizer, in a few operators.

        Args:
            max_norm (float): what the norm of all gradients together may be.
            norm_type (float, optional): p of the norm, ``inf`` for the largest. Default: 2.

        Returns the norm before clipping, a 0-d tensor on the device; nothing waits for it.
        """
        runs = [run for pack in self._gathered() for run in pack.runs(count=False)]
        total = _clip([run.grad for run in runs], float(max_norm), float(norm_type))
        for pack in {id(run.pack): run.pack for run in runs if run.pack.alone}.values():
            for param, part in zip(pack.params, pack.grads.parts, strict=True):
                if param.grad is not None:
                    param.grad.copy_(part)
        return total


def _clip(grads: list[Tensor], max_norm: float, norm_type: float) -> Tensor:
    if not grads:
        return torch.tensor(0.0)
    device = grads[0].device
    norms = [torch.linalg.vector_norm(g, norm_type, dtype=torch.float32 if g.itemsize < 4 else None) for g in grads]
    norms = [n.to(device) for n in norms]
    total = norms[0] if len(norms) == 1 else torch.linalg.vector_norm(torch.stack(norms), norm_type)
    factor = torch.clamp(max_norm / (total + 1e-6), max=1.0)
    for grad in grads:
        grad.mul_(factor.to(device=grad.device, dtype=grad.dtype))
    return total


def npu_fused_clip_grad_norm_(optimizer: torch.optim.Optimizer, max_norm: float, norm_type: float = 2.0) -> Tensor:
    r"""Clips the gradients of an optimizer's parameters by their norm, as ``torch.nn.utils.clip_grad_norm_`` does.

    Args:
        optimizer (Optimizer): a fused optimizer, or one that ``amp.initialize(..., combine_grad=True)`` has taken:
            then it is a few operators whatever the number of parameters. Any other is clipped parameter by parameter.
        max_norm (float): what the norm may be; norm_type (float, optional): p of the norm. Default: 2.

    Returns the norm before clipping, a 0-d tensor.
    """
    for name in ("clip_grad_norm_fused_", "clip_optimizer_grad_norm_fused"):
        if hasattr(optimizer, name):
            return getattr(optimizer, name)(max_norm, norm_type)
    params = [p for group in optimizer.param_groups for p in group["params"]]
    return torch.nn.utils.clip_grad_norm_(params, max_norm, norm_type)
