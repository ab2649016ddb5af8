"""`amp.initialize` and what it takes: the levels O0 to O3 as one table, options checked in one place."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from . import casts
from ._amp_state import _amp_state, maybe_print, warn_or_err
from .models import prepare_model
from .optimizers import prepare_optimizer
from .scaler import LossScaler

__all__ = ["Properties", "initialize", "load_state_dict", "opt_levels", "state_dict"]

_NAMES = (
    "enabled",
    "opt_level",
    "cast_model_type",
    "patch_torch_functions",
    "keep_batchnorm_fp32",
    "master_weights",
    "loss_scale",
    "combine_grad",
    "combine_ddp",
    "ddp_replica_count",
    "user_cast_preferred",
    "check_combined_tensors",
)
# Level -> (heading, explanation, options).
opt_levels: dict[str, tuple[str, str, dict[str, Any]]] = {
    "O0": (
        "O0:  Pure FP32 training.",
        "The model must be fp32 and stays so; nothing is cast and the loss is not scaled.",
        {
            "cast_model_type": torch.float32,
            "patch_torch_functions": False,
            "keep_batchnorm_fp32": None,
            "master_weights": False,
            "loss_scale": 1.0,
        },
    ),
    "O1": (
        "O1:  Insert automatic casts around Pytorch functions and Tensor methods.",
        "Weights stay fp32. Convolutions and matrix products compute in half precision; softmax, norms and losses in\n"
        "fp32; what takes several tensors, in the widest dtype among them.",
        {
            "cast_model_type": None,
            "patch_torch_functions": True,
            "keep_batchnorm_fp32": None,
            "master_weights": None,
            "loss_scale": "dynamic",
        },
    ),
    "O2": (
        "O2:  FP16 training with FP32 batchnorm and FP32 master weights.",
        "The model is cast to half precision but for batch norms, and casts what it is given; the optimizer steps\n"
        "fp32 master weights, which are then copied to the model.",
        {
            "cast_model_type": torch.float16,
            "patch_torch_functions": False,
            "keep_batchnorm_fp32": True,
            "master_weights": True,
            "loss_scale": "dynamic",
        },
    ),
    "O3": (
        "O3:  Pure FP16 training.",
        "The whole model is cast to half precision, and casts what it is given. A ceiling for speed.",
        {
            "cast_model_type": torch.float16,
            "patch_torch_functions": False,
            "keep_batchnorm_fp32": False,
            "master_weights": False,
            "loss_scale": 1.0,
        },
    ),
}


class Properties:
    """The options in force, as attributes and in `options`; an assignment is checked against the level."""

    def __init__(self) -> None:
        self.__dict__["options"] = dict.fromkeys(_NAMES) | {"enabled": False, "loss_scale": 1.0, "ddp_replica_count": 4}

    def __getattr__(self, name: str) -> Any:
        options = self.__dict__.get("options", {})
        if name in options:
            return options[name]
        raise AttributeError(f"amp has no option '{name}'; it has {', '.join(_NAMES)}")

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self.options:
            raise AttributeError(f"amp has no option '{name}'; it has {', '.join(_NAMES)}")
        self.options[name] = self._checked(name, value)

    def _checked(self, name: str, value: Any) -> Any:
        o1 = self.opt_level == "O1"
        if name == "cast_model_type" and value is not None:
            if value not in (torch.float16, torch.bfloat16, torch.float32, False):
                raise ValueError(f"cast_model_type is torch.float16, torch.bfloat16 or torch.float32, not {value}")
        elif name == "patch_torch_functions" and value and not o1:
            warn_or_err("patch_torch_functions=True is opt_level='O1' and goes with no other level.")
        elif name == "keep_batchnorm_fp32":
            if isinstance(value, str):
                if value not in ("True", "False"):
                    raise ValueError(f"keep_batchnorm_fp32 is a bool, 'True', 'False' or None, not '{value}'")
                value = value == "True"
            if not isinstance(value, bool) and value is not None:
                raise ValueError(f"keep_batchnorm_fp32 is a bool, 'True', 'False' or None, not {value!r}")
            if o1 and value is not None:
                warn_or_err("With opt_level='O1' batch norms compute in fp32 anyway: leave keep_batchnorm_fp32 out.")
        elif name == "master_weights" and o1 and value is not None:
            warn_or_err("With opt_level='O1' the model's own weights are fp32: leave master_weights out.")
        elif name == "loss_scale":
            if value != "dynamic":
                try:
                    number = float(value)
                except (TypeError, ValueError):
                    number = float("nan")
                if number == -1.0:
                    return "dynamic"
                if not 0.0 < number < float("inf"):
                    raise ValueError(f"loss_scale is a positive number, 'dynamic', or -1 for dynamic; not {value!r}")
                return number
        elif name == "ddp_replica_count" and (not isinstance(value, int) or value < 1):
            raise ValueError(f"ddp_replica_count is a positive int, not {value!r}")
        return value

    def set_level(self, level: str) -> None:
        self.options.update({"enabled": True, "opt_level": level} | opt_levels[level][2])


def _listed(value: Any, kind: type, what: str) -> tuple[list, bool]:
    """(`value` as a list, whether it was one)."""
    if isinstance(value, kind):
        return [value], False
    if value is None:
        return [], False
    if isinstance(value, Sequence):
        for item in value:
            if not isinstance(item, kind):
                raise TypeError(f"amp.initialize: {what} holds a {type(item).__name__}, expected {kind.__name__}")
        return list(value), True
    raise TypeError(f"amp.initialize: {what} is a {kind.__name__} or a list of them, not a {type(value).__name__}")


def _print_options(options: dict[str, Any]) -> None:
    for name in _NAMES:
        if options[name] is not None or name in _NAMES[:7]:
            maybe_print(f"{name:22} : {options[name]}", True)


def initialize(
    models,
    optimizers=None,
    enabled: bool = True,
    opt_level: str = "O1",
    cast_model_type: torch.dtype | None = None,
    patch_torch_functions: bool | None = None,
    keep_batchnorm_fp32: bool | str | None = None,
    master_weights: bool | None = None,
    loss_scale: float | str | None = None,
    cast_model_outputs: torch.dtype | None = None,
    num_losses: int = 1,
    verbosity: int = 1,
    dynamic_init_scale: float = 2.0**16,
    scale_growth_factor: float = 2.0,
    scale_backoff_factor: float = 0.5,
    scale_window: int = 2000,
    min_loss_scale: float | None = None,
    max_loss_scale: float = 2.0**24,
    combine_grad: bool | None = None,
    combine_ddp: bool | None = None,
    ddp_replica_count: int = 4,
    user_cast_preferred: bool | None = None,
    check_combined_tensors: bool | None = None,
):
    r"""Sets models and optimizers up for mixed precision. Call it after ``model.to("npu")``, before DDP.

    Args:
        models (Module or list): fp32, on an npu.
        optimizers (Optimizer or list, optional): needed for training.
        enabled (bool, optional): False makes every call of amp do nothing.
        opt_level (str, optional): ``"O0"`` to ``"O3"``, see ``docs/mixed_precision.md``. Default: ``"O1"``.
        cast_model_type (dtype, optional): half precision of O2 and O3, or what O1 computes in: ``torch.float16`` (the
            default) or ``torch.bfloat16``.
        patch_torch_functions (bool, optional): given with O1.
        keep_batchnorm_fp32 (bool or str, optional): batch norms stay fp32. Default: as the level says (O2: yes).
        master_weights (bool, optional): the optimizer steps fp32 copies. Default: as the level says (O2: yes).
        loss_scale (float or str, optional): a number, or ``"dynamic"`` or -1. Default: as the level says.
        cast_model_outputs (dtype, optional): dtype of the models' results. Default: fp32 with O2 and O3.
        num_losses (int, optional): losses with a scale of their own, see ``loss_id`` of :func:`scale_loss`.
        verbosity (int, optional): 0 for no output.
        dynamic_init_scale, scale_growth_factor, scale_backoff_factor (float, optional): a dynamic scale begins at the
            first, is multiplied by the second after ``scale_window`` steps without overflow, by the third after one.
        min_loss_scale, max_loss_scale (float, optional): bounds of a dynamic scale.
        combine_grad (bool, optional): gradients (and with O2 parameters) of an optimizer become parts of flat tensors;
            unscaling, overflow check and clipping are then a few operators whatever the number of parameters.
        combine_ddp (bool, optional): also averages the flat gradients over all processes at the end of
            :func:`scale_loss`, in place of DistributedDataParallel; implies ``combine_grad``.
        ddp_replica_count (int, optional): into how many pieces ``combine_ddp`` cuts a flat gradient. Default: 4.
        user_cast_preferred (bool, optional): with O1, inside functions registered by :func:`register_float_function`
            and its kin nothing else is cast.
        check_combined_tensors (bool, optional): a step raises where a gradient is no longer part of the flat tensors,
            because something has replaced it after :func:`scale_loss`; without it the step takes it as it is.

    Returns models and optimizers as they were given: one, or a list.

    Raises RuntimeError for an unknown level, options that contradict it, a model that is not fp32 or not on an
    accelerator; TypeError for anything but modules and optimizers.
    """
    # Before anything is checked: what an earlier call switched on ends, also where this one fails.
    _amp_state.stop_casts()
    properties = _amp_state.opt_properties = Properties()
    _amp_state.verbosity = verbosity
    _amp_state.loss_scalers = []
    if not enabled:
        return models if optimizers is None else (models, optimizers)
    if opt_level not in opt_levels:
        hint = f' Did you mean "O{opt_level[1:]}", with the letter O?' if str(opt_level)[:1] == "0" else ""
        raise RuntimeError(f"Unexpected optimization level {opt_level}. Options are 'O0', 'O1', 'O2', 'O3'.{hint}")
    given = {
        "cast_model_type": cast_model_type,
        "patch_torch_functions": patch_torch_functions,
        "keep_batchnorm_fp32": keep_batchnorm_fp32,
        "master_weights": master_weights,
        "loss_scale": loss_scale,
        "combine_grad": combine_grad or combine_ddp or None,
        "combine_ddp": combine_ddp,
        "ddp_replica_count": ddp_replica_count,
        "user_cast_preferred": user_cast_preferred,
        "check_combined_tensors": check_combined_tensors,
    }
    properties.set_level(opt_level)
    heading, explanation, _ = opt_levels[opt_level]
    maybe_print(f"Selected optimization level {heading}\n{explanation}\n", True)
    maybe_print("Defaults for this optimization level are:", True)
    _print_options(properties.options)
    maybe_print("Processing user overrides (additional kwargs that are not None)...", True)
    try:
        for name, value in given.items():
            if value is not None:
                setattr(properties, name, value)
        listed_models, models_are_list = _listed(models, nn.Module, "models")
        listed_optimizers, optimizers_are_list = _listed(optimizers, torch.optim.Optimizer, "optimizers")
        if num_losses < 1:
            raise ValueError(f"num_losses is at least 1, not {num_losses}")
    except (RuntimeError, TypeError, ValueError):
        properties.options["enabled"] = False
        raise
    maybe_print("After processing overrides, optimization options are:", True)
    _print_options(properties.options)

    try:
        device = None
        for model in listed_models:
            device = prepare_model(model, properties, cast_model_outputs) or device
        for optimizer in listed_optimizers:
            prepare_optimizer(optimizer, properties)
    except (RuntimeError, TypeError, ValueError):
        properties.options["enabled"] = False
        raise
    finally:
        for param in itertools.chain.from_iterable(model.parameters() for model in listed_models):
            if hasattr(param, "_amp_fp32"):
                del param._amp_fp32
    _amp_state.loss_scalers = [
        LossScaler(
            properties.loss_scale,
            init_scale=dynamic_init_scale,
            growth_factor=scale_growth_factor,
            backoff_factor=scale_backoff_factor,
            scale_window=scale_window,
            min_loss_scale=min_loss_scale,
            max_loss_scale=max_loss_scale,
        )
        for _ in range(num_losses)
    ]
    if properties.patch_torch_functions and device is not None:
        casts.start(device.type, properties.cast_model_type or torch.float16)
    found_models = listed_models if models_are_list else models
    if optimizers is None:
        return found_models
    return found_models, listed_optimizers if optimizers_are_list else optimizers


def state_dict(destination: dict[str, Any] | None = None) -> dict[str, Any]:
    r"""The loss scales, for a checkpoint: ``{"loss_scaler0": {"loss_scale": ..., "unskipped": ...}, ...}``."""
    result = {} if destination is None else destination
    for index, scaler in enumerate(_amp_state.loss_scalers):
        result[f"loss_scaler{index}"] = {"loss_scale": scaler.loss_scale(), "unskipped": scaler._unskipped}
    return result


def load_state_dict(state_dict: dict[str, Any]) -> None:
    r"""Restores what :func:`state_dict` gave. Call it after :func:`initialize`.

    Raises RuntimeError where no scaler is there yet, KeyError for an entry that is no loss scaler's.
    """
    if not _amp_state.loss_scalers:
        if _amp_state.opt_properties is not None and not _amp_state.enabled:
            return
        raise RuntimeError("amp.load_state_dict comes after amp.initialize, which makes the loss scalers")
    unexpected = [name for name in state_dict if not name.startswith("loss_scaler")]
    if unexpected:
        raise KeyError(f"amp.load_state_dict: no loss scaler is called {', '.join(unexpected)}")
    if len(state_dict) != len(_amp_state.loss_scalers):
        print(f"Warning:  amp has {len(_amp_state.loss_scalers)} loss scalers, the checkpoint {len(state_dict)}")
    for scaler, values in zip(_amp_state.loss_scalers, state_dict.values(), strict=False):
        scaler.restore(values["loss_scale"], values["unskipped"])
