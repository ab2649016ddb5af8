r"""The plug-in's ``profile`` and what makes result folders."""

import datetime
import json
import os
import socket
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch.profiler

import torch

from .experimental_config import AiCMetrics, ExportType, _ExperimentalConfig, supported_export_type

_METRICS = {
    AiCMetrics.ArithmeticUtilization: 0,
    AiCMetrics.PipeUtilization: 1,
    AiCMetrics.Memory: 2,
    AiCMetrics.MemoryL0: 3,
    AiCMetrics.ResourceConflictRatio: 4,
}


def supported_activities() -> set:
    r"""Return the activities that can be recorded: of the CPU and of the NPU."""
    return {torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.PrivateUse1}


class _Settings:
    # What both classes below take beyond upstream's.
    _npu_config: _ExperimentalConfig
    _trace_id_callback: Callable[[], str] | None
    _trace_number: str

    def _take(self, config: Any, callback: Callable[[], str] | None) -> None:
        if config is not None and not isinstance(config, _ExperimentalConfig):
            raise TypeError(
                "torch_npu.profiler: experimental_config must be a torch_npu.profiler._ExperimentalConfig, not "
                f"{type(config).__name__}"
            )
        self._npu_config = config or _ExperimentalConfig()
        self._trace_id_callback = callback


class _KinetoProfile(_Settings, torch.profiler._KinetoProfile):
    r"""The profiler without steps: ``start()`` and ``stop()``. Arguments as :class:`profile`."""

    def __init__(
        self,
        *,
        activities: Iterable | None = None,
        record_shapes: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_flops: bool = False,
        with_modules: bool = False,
        experimental_config: _ExperimentalConfig | None = None,
        custom_trace_id_callback: Callable[[], str] | None = None,
    ):
        self._take(experimental_config, custom_trace_id_callback)
        super().__init__(
            activities=activities or supported_activities(),
            record_shapes=record_shapes,
            profile_memory=profile_memory,
            with_stack=with_stack,
            with_flops=with_flops,
            with_modules=with_modules,
            custom_trace_id_callback=custom_trace_id_callback,
        )


class profile(_Settings, torch.profiler.profile):
    r"""Records the framework's operators and what the NPUs did.

    Args:
        activities (iterable of ProfilerActivity, optional): CPU, NPU; default both.
        schedule (callable, optional): see :class:`~torch_npu.profiler.schedule`; default everything is recorded.
        on_trace_ready (callable, optional): :func:`tensorboard_trace_handler`. Without one, what was recorded is left
            below ``ASCEND_WORK_PATH`` or the working directory for :func:`analyse`.
        record_shapes, profile_memory, with_stack, with_flops, with_modules (bool): as upstream's; default False.
        experimental_config (_ExperimentalConfig, optional): further settings.
        custom_trace_id_callback (callable, optional): gives each trace a text, kept in profiler_metadata.json.
        use_cuda: not used, as in the plug-in.

    Raises:
        TypeError: ``experimental_config`` is something else.
    """

    def __init__(
        self,
        *,
        activities: Iterable | None = None,
        schedule: Callable[[int], Any] | None = None,
        on_trace_ready: Callable[..., Any] | None = None,
        record_shapes: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_flops: bool = False,
        with_modules: bool = False,
        experimental_config: _ExperimentalConfig | None = None,
        custom_trace_id_callback: Callable[[], str] | None = None,
        use_cuda: bool | None = None,
    ):
        self._take(experimental_config, custom_trace_id_callback)
        super().__init__(
            activities=activities or supported_activities(),
            schedule=schedule,
            on_trace_ready=on_trace_ready or tensorboard_trace_handler(analyse_flag=False),
            record_shapes=record_shapes,
            profile_memory=profile_memory,
            with_stack=with_stack,
            with_flops=with_flops,
            with_modules=with_modules,
            custom_trace_id_callback=custom_trace_id_callback,
        )

    @staticmethod
    def enable_profiler_in_child_thread(
        record_shapes: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_flops: bool = False,
        with_modules: bool = False,
    ) -> None:
        r"""Refused: upstream's way to let a thread take part leaves the profiled thread's callbacks behind: later
        profiles would count everything twice.

        Raises:
            RuntimeError: always; the text names what records all threads.
        """
        raise RuntimeError(
            "enable_profiler_in_child_thread is not supported. To record the operators of all threads, use "
            "torch.profiler.profile(experimental_config=torch._C._profiler._ExperimentalConfig(profile_all_threads=True))"
            "; what the npu does for other threads is recorded in any case"
        )

    @staticmethod
    def disable_profiler_in_child_thread() -> None:
        r"""Do nothing: no thread can have been enabled."""


def _work_path() -> str:
    base = os.environ.get("ASCEND_WORK_PATH")
    return os.path.join(base, "profiling_data") if base else "."


def tensorboard_trace_handler(
    dir_name: str | None = None, worker_name: str | None = None, analyse_flag: bool = True, async_mode: bool = False
) -> Callable[[Any], None]:
    r"""Return a function for ``on_trace_ready`` that writes a folder ``{worker_name}_{time}_ascend_pt``.

    Args:
        dir_name (str, optional): where; default ``ASCEND_WORK_PATH`` or the working directory. It is made if need be.
        worker_name (str, optional): default ``{host}_{pid}``.
        analyse_flag (bool): also make the tables, now; default True. :func:`analyse` makes them later.
        async_mode (bool): make them in a thread, while the program goes on; default False.

    Raises:
        RuntimeError: the folder cannot be made, or not be written to.
    """
    parent = Path(dir_name if dir_name is not None else _work_path())
    try:
        parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RuntimeError(f"tensorboard_trace_handler: the folder {str(parent)!r} cannot be made: {error}") from error
    worker = worker_name or f"{socket.gethostname()}_{os.getpid()}"

    def write(prof: Any) -> None:
        stamp = datetime.datetime.now().strftime("%Y%m%d%H%M%S%f")[:-3]
        folder = parent / f"{worker}_{stamp}_ascend_pt"
        try:
            (folder / "FRAMEWORK").mkdir(parents=True)
            prof.export_chrome_trace(str(folder / "FRAMEWORK" / "torch.trace.json"))
            _describe(prof, folder)
        except OSError as error:
            raise RuntimeError(f"the profile could not be written into {str(folder)!r}: {error}") from error
        if not analyse_flag:
            return
        if async_mode:
            threading.Thread(target=_analyse, args=(folder,)).start()
        else:
            _analyse(folder)

    return write


def _describe(prof: Any, folder: Path) -> None:
    config = getattr(prof, "_npu_config", None) or _ExperimentalConfig()
    rank = int(os.environ.get("RANK", -1))
    info = {
        "config": {
            "common_config": {
                "activities": sorted(str(kind) for kind in prof.activities),
                "record_shapes": prof.record_shapes,
                "profile_memory": prof.profile_memory,
                "with_stack": prof.with_stack,
                "with_flops": prof.with_flops,
                "with_modules": prof.with_modules,
            },
            "experimental_config": config.as_dict(),
        },
        "rank_id": rank,
        "torch_version": torch.__version__,
        "measured_by": "the simulated device, on its host's clock",
    }
    (folder / ("profiler_info.json" if rank < 0 else f"profiler_info_{rank}.json")).write_text(
        json.dumps(info, indent=1)
    )
    callback = getattr(prof, "_trace_id_callback", None) or prof.custom_trace_id_callback
    trace_id = prof.get_trace_id() if callback is not None else ""
    (folder / "profiler_metadata.json").write_text(json.dumps({"trace_id": trace_id or ""}, indent=1))


def _analyse(folder: Path, kinds: list[str] | None = None) -> None:
    from .._profile import folder as results

    config = next(iter(sorted(folder.glob("profiler_info*.json"))), None)
    info = json.loads(config.read_text()) if config is not None else {}
    settings = info.get("config", {}).get("experimental_config", {})
    wanted = kinds or settings.get("_export_type") or [ExportType.Text]
    results.write(folder, _METRICS.get(str(settings.get("_aic_metrics"))), wanted, info.get("rank_id", -1))


def analyse(
    profiler_path: str = "", max_process_number: int | None = None, export_type: str | list | None = None
) -> None:
    r"""Make the tables of the folders ``*_ascend_pt`` in a folder, or of one of them.

    Args:
        profiler_path (str): the folder; default the working directory.
        max_process_number (int, optional): not needed: one process reads a folder in seconds.
        export_type (str or list, optional): ``text``, ``db``, or both; default what the profile was told.

    Raises:
        RuntimeError: there is no such folder, or nothing in it to analyse.
        ValueError: there is no such export type.
    """
    kinds = [export_type] if isinstance(export_type, str) else list(export_type or [])
    if unknown := sorted(set(kinds) - supported_export_type()):
        raise ValueError(
            f"analyse: there is no export type {unknown[0]!r}; there are {sorted(supported_export_type())}"
        )
    place = Path(profiler_path or ".")
    found = [place] if place.name.endswith("_ascend_pt") else sorted(place.glob("*_ascend_pt"))
    found = [folder for folder in found if (folder / "FRAMEWORK" / "torch.trace.json").is_file()]
    if not found:
        raise RuntimeError(
            f"analyse: {str(place)!r} holds no folder *_ascend_pt with FRAMEWORK/torch.trace.json, which "
            "torch_npu.profiler.profile leaves"
        )
    for folder in found:
        _analyse(folder, kinds)


__all__ = ["analyse", "profile", "supported_activities", "tensorboard_trace_handler"]
