r"""Profiling a running program through a configuration file that somebody edits.

from torch_npu.profiler import dynamic_profile as dp
dp.init("configs")          # makes configs/profiler_config.json, with active 0: nothing is profiled
for batch in loader:
    train(batch)
    dp.step()               # looks whether the file has changed
"""

import json
import os
import warnings
from pathlib import Path
from typing import Any

import torch

from .experimental_config import _ExperimentalConfig
from .profiler import profile, supported_activities, tensorboard_trace_handler

TEMPLATE: dict[str, Any] = {
    "activities": ["CPU", "NPU"],
    "prof_dir": "./",
    "analyse": False,
    "record_shapes": False,
    "profile_memory": False,
    "with_stack": False,
    "with_flops": False,
    "with_modules": False,
    "active": 0,
    "warmup": 0,
    "start_step": 0,
    "is_rank": False,
    "rank_list": [],
    "experimental_config": {
        "profiler_level": "Level0",
        "aic_metrics": "AiCoreNone",
        "l2_cache": False,
        "op_attr": False,
        "gc_detect_threshold": None,
        "data_simplification": True,
        "record_op_args": False,
        "export_type": ["text"],
        "mstx": False,
    },
}


class _State:
    def __init__(self) -> None:
        self.path: Path | None = None
        self.seen = 0
        self.step = 0
        self.config: dict[str, Any] | None = None
        self.profiler: profile | None = None
        self.left = 0


_state = _State()


def init(path: str) -> None:
    r"""Begin to watch ``path``/profiler_config.json; a template is made if there is none.

    Raises:
        RuntimeError: the folder cannot be made or written to.
    """
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / "profiler_config.json"
        if not file.exists():
            file.write_text(json.dumps(TEMPLATE, indent=4))
        _state.path, _state.seen = file, file.stat().st_mtime_ns
    except OSError as error:
        raise RuntimeError(f"dynamic_profile.init: {error}") from error


def set_state(state_step: dict) -> None:
    r"""Say how many steps have been made before, ``{"cur_step": N}``: those of a run that was interrupted.

    Raises:
        ValueError: it is no such dictionary.
    """
    number = state_step.get("cur_step") if isinstance(state_step, dict) else None
    if not isinstance(number, int) or number < 0:
        raise ValueError(f"dynamic_profile.set_state: it takes {{'cur_step': N}} with N from 0, not {state_step!r}")
    _state.step = number


def start(config_path: str | None = None) -> None:
    r"""Profile from now on, as a file says; default the one that is watched. A profile that runs goes on.

    Raises:
        RuntimeError: there is no such file, or it is no configuration.
    """
    path = Path(config_path) if config_path is not None else _state.path
    if path is None:
        raise RuntimeError("dynamic_profile.start: call init() before, or name a file")
    if _state.profiler is not None:
        return
    try:
        _begin(json.loads(path.read_text()))
    except (OSError, ValueError) as error:
        raise RuntimeError(f"dynamic_profile.start: {path} cannot be read: {error}") from error


def step() -> None:
    r"""End a step; begin or end a profile where the file says so. One that cannot be read is told and passed over."""
    _state.step += 1
    if _state.profiler is not None:
        _state.profiler.step()
        _state.left -= 1
        if _state.left <= 0:
            _state.profiler.stop()
            _state.profiler = None
        return
    if _state.path is None:
        return
    try:
        changed = _state.path.stat().st_mtime_ns
        if changed != _state.seen:
            _state.seen = changed
            _state.config = json.loads(_state.path.read_text())
    except (OSError, ValueError) as error:
        warnings.warn(f"dynamic_profile: {_state.path} cannot be read: {error}", stacklevel=2)
        _state.config = None
    if _state.config is not None and _state.step >= int(_state.config.get("start_step", 0)):
        config, _state.config = _state.config, None
        _begin(config)


def _begin(config: dict[str, Any]) -> None:
    active, warmup = int(config.get("active", 0)), int(config.get("warmup", 0))
    rank = int(os.environ.get("RANK", 0))
    if active <= 0 or (config.get("is_rank") and rank not in config.get("rank_list", [])):
        return
    kinds = {"CPU": torch.profiler.ProfilerActivity.CPU, "NPU": torch.profiler.ProfilerActivity.PrivateUse1}
    options: dict[str, Any] = {
        name: bool(config.get(name, False))
        for name in ("record_shapes", "profile_memory", "with_stack", "with_flops", "with_modules")
    }
    wanted = {kinds[name] for name in config.get("activities", []) if name in kinds}
    _state.profiler = profile(
        activities=wanted or supported_activities(),
        schedule=torch.profiler.schedule(wait=0, warmup=warmup, active=active, repeat=1),
        on_trace_ready=tensorboard_trace_handler(
            str(config.get("prof_dir", "./")), analyse_flag=bool(config.get("analyse", False))
        ),
        experimental_config=_experimental(config.get("experimental_config", {})),
        **options,
    )
    _state.left = active + warmup
    _state.profiler.start()


def _experimental(settings: dict[str, Any]) -> _ExperimentalConfig:
    from .experimental_config import AiCMetrics

    known = {name: value for name, value in settings.items() if name in TEMPLATE["experimental_config"]}
    # The file names the counters as the class does.
    name = known.get("aic_metrics", "AiCoreNone")
    known["aic_metrics"] = getattr(AiCMetrics, str(name), name)
    return _ExperimentalConfig(**known)
