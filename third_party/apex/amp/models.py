"""What `initialize` does to a model: check, cast, and cast what goes into and comes out of `forward`."""

from __future__ import annotations

import copy
import functools
import weakref
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ._amp_state import _amp_state, warn_or_err

if TYPE_CHECKING:
    from .frontend import Properties

__all__ = ["convert", "master_of", "prepare_model"]


def convert(value: Any, dtype: torch.dtype) -> Any:
    """`value` with all floating-point tensors in it, in lists, tuples, dicts and named tuples, cast to `dtype`."""
    if isinstance(value, Tensor):
        return value.to(dtype) if value.is_floating_point() else value
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(convert(item, dtype) for item in value))
    if isinstance(value, Mapping):
        cast = {key: convert(item, dtype) for key, item in value.items()}
        try:
            return cast if type(value) is dict else type(value)(cast)
        except TypeError:  # a mapping that is not made from one
            return cast
    if isinstance(value, (list, tuple)):
        return type(value)(convert(item, dtype) for item in value)
    if hasattr(value, "to") and not isinstance(value, (nn.Module, str)):
        return value.to(dtype)
    return value


def _check_model(model: nn.Module, properties: Properties) -> torch.device | None:
    """The device of the model; raises RuntimeError where it cannot be set up."""
    if isinstance(model, (nn.parallel.DistributedDataParallel, nn.DataParallel)):
        raise RuntimeError(
            f"amp.initialize: the model is wrapped in {type(model).__name__} already; call amp.initialize first, then "
            "wrap what it returns"
        )
    device = None
    for name, tensor in model.named_parameters():
        device = device or tensor.device
        if not tensor.is_floating_point():
            continue
        if tensor.dtype is not torch.float32 and not _amp_state.allow_incoming_model_not_fp32:
            warn_or_err(
                f"amp.initialize: parameter {name} is {tensor.dtype}, expected torch.float32: give it the fp32 model, "
                "without a call of .half() or .bfloat16(); casting is what amp does."
            )
        if tensor.device.type == "cpu":
            warn_or_err(
                f"amp.initialize: parameter {name} is on the CPU, expected an npu: move the model first, "
                'model.to("npu"), then make the optimizer, then call amp.initialize.'
            )
    return device


def _cast_weights(model: nn.Module, dtype: torch.dtype, keep_batchnorm_fp32: bool) -> None:
    """Casts fp32 parameters and buffers in place; batch norms that have weights stay if asked for."""
    for module in model.modules():
        if keep_batchnorm_fp32 and isinstance(module, nn.modules.batchnorm._BatchNorm) and module.affine:
            continue
        for tensor in (*module._parameters.values(), *module._buffers.values()):
            # A parameter that two modules share has been cast already, and keeps what was noted then.
            if tensor is not None and tensor.is_floating_point() and tensor.dtype is not dtype:
                if isinstance(tensor, nn.Parameter):
                    # For the master, which begins with what the cast would lose; initialize() drops it.
                    tensor._amp_fp32 = tensor.data
                tensor.data = tensor.data.to(dtype)
                if tensor.grad is not None:
                    tensor.grad = None
        if isinstance(module, nn.RNNBase):
            module.flatten_parameters()


class _Forward:
    """`model.forward` with casts around it.

    It knows its model by a weak reference. A copy of the model, and a replica that DataParallel makes, get one of their
    own: an attribute of an instance is no method, and would run the parameters of the model that it was made for.
    """

    def __init__(self, model: nn.Module, before: Callable | None, after: Callable | None):
        original = getattr(model.forward, "_amp_original_forward", None) or model.forward
        self._amp_original_forward = original
        self._before, self._after = before, after
        self._owner = weakref.ref(model)
        functools.update_wrapper(self, original)
        # Where the attribute had been replaced before, that function is called as it is.
        self._method = original.__func__ if getattr(original, "__self__", None) is model else None

    def of(self, model: nn.Module) -> _Forward:
        """The same for another model of that class."""
        twin = copy.copy(self)
        twin._owner = weakref.ref(model)
        if self._method is not None:
            twin._amp_original_forward = twin.__wrapped__ = self._method.__get__(model)
        return twin

    def __deepcopy__(self, memo: dict[int, Any]) -> _Forward:
        return self.of(memo.get(id(self._owner()), self._owner()))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        _amp_state.cast_here()
        if self._before is not None and _amp_state.enabled:
            args, kwargs = self._before(args), self._before(kwargs)
        if self._method is not None:
            result = self._method(self._owner(), *args, **kwargs)
        else:
            result = self._amp_original_forward(*args, **kwargs)
        return self._after(result) if self._after is not None and _amp_state.enabled else result


class _Replicate:
    """`model._replicate_for_data_parallel` that gives the replica a forward of its own."""

    def __init__(self, model: nn.Module):
        self._owner = weakref.ref(model)

    def __deepcopy__(self, memo: dict[int, Any]) -> _Replicate:
        return _Replicate(memo.get(id(self._owner()), self._owner()))

    def __call__(self) -> nn.Module:
        owner = self._owner()
        replica = type(owner)._replicate_for_data_parallel(owner)
        if isinstance(owner.forward, _Forward):
            replica.forward = owner.forward.of(replica)
        return replica


def _wrap_forward(model: nn.Module, before: Callable | None, after: Callable | None) -> None:
    """Puts casts around `model.forward`."""
    model.forward = _Forward(model, before, after)
    model._replicate_for_data_parallel = _Replicate(model)


def master_of(param: Tensor) -> Tensor | None:
    """The fp32 tensor that is stepped in place of a model's parameter, or None."""
    reference = getattr(param, "_amp_master", None)
    return reference() if reference is not None else None


def _state_dict_in_fp32(module: nn.Module, state_dict: dict[str, Any], prefix: str, metadata: Any) -> None:
    """Of O2: a checkpoint holds fp32 as if there were no amp, the masters' values where there are masters."""
    for name, param in module.named_parameters():
        if (master := master_of(param)) is not None and f"{prefix}{name}" in state_dict:
            state_dict[f"{prefix}{name}"] = master.detach()
    for name, value in state_dict.items():
        if isinstance(value, Tensor) and value.is_floating_point() and value.itemsize == 2:
            state_dict[name] = value.float()


def _load_masters(module: nn.Module, state_dict: Mapping[str, Any], prefix: str, *_: Any) -> None:
    """Of O2: what is loaded into the model goes to the masters, too; else the next step would undo it."""
    with torch.no_grad():
        for name, param in module.named_parameters():
            value = state_dict.get(f"{prefix}{name}")
            master = master_of(param)
            if master is not None and isinstance(value, Tensor) and value.shape == master.shape:
                master.copy_(value)


def prepare_model(model: nn.Module, properties: Properties, outputs: torch.dtype | None) -> torch.device | None:
    """Checks and casts one model as the options say; returns its device."""
    device = _check_model(model, properties)
    dtype = properties.cast_model_type if not properties.patch_torch_functions else None
    casts_model = dtype in (torch.float16, torch.bfloat16)
    if casts_model:
        _cast_weights(model, dtype, bool(properties.keep_batchnorm_fp32))
        if properties.master_weights:
            model.register_state_dict_post_hook(_state_dict_in_fp32)
            model.register_load_state_dict_pre_hook(_load_masters)
    before = functools.partial(convert, dtype=dtype) if casts_model else None
    result_type = outputs or (torch.float32 if casts_model else None)
    after = functools.partial(convert, dtype=result_type) if result_type is not None else None
    _wrap_forward(model, before, after)
    return device
