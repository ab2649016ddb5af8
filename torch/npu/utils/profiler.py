r"""The plug-in's older profiler: chosen by a word, begun and ended around the steps of a training loop.

profile = Profile(start_step=10, stop_step=12, profile_type="TORCH")
for batch in loader:
    profile.start()
    train(batch)
    profile.end()
"""

import functools
from typing import Any

import torch

__all__ = ["Profile", "Singleton"]


class Singleton:
    r"""Decorator of a class of which there is one object: the first call makes it, later ones return it."""

    def __init__(self, cls: type):
        functools.update_wrapper(self, cls, updated=())
        self._cls = cls
        self._instance: Any = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._instance is None:
            self._instance = self._cls(*args, **kwargs)
        return self._instance


@Singleton
class Profile:
    r"""Profiles the steps from ``start_step`` on, up to and without ``stop_step``.

    Args:
        profiler_result_path (str): the folder for results.
        profile_type (str, optional): ``"TORCH"``: the framework and the NPU; ``"CANN"``: the NPU alone; None (default):
            nothing is profiled.
        start_step (int): counted by the calls of :meth:`start`, from 0.
        stop_step (int): default one after ``start_step``.

    Raises:
        ValueError: there is no such type, or ``stop_step`` is not after ``start_step``.
    """

    def __init__(
        self,
        profiler_result_path: str = "./profiler_result",
        profile_type: str | None = None,
        start_step: int = 0,
        stop_step: int | None = None,
    ):
        if profile_type not in (None, "TORCH", "CANN"):
            raise ValueError(f"Profile: profile_type is 'TORCH', 'CANN' or None, not {profile_type!r}")
        start_step = int(start_step)
        self._range = start_step, start_step + 1 if stop_step is None else int(stop_step)
        if self._range[1] <= start_step:
            raise ValueError(f"Profile: stop_step {stop_step} is not after start_step {start_step}")
        self._path, self._type, self._step = profiler_result_path, profile_type, 0
        self._profile: Any = None

    def start(self) -> None:
        r"""Begin a step, and the profile if it is the first of them."""
        if self._type is not None and self._profile is None and self._step == self._range[0]:
            from torch.npu import profiler

            kinds = profiler.supported_activities()
            if self._type == "CANN":
                kinds = {torch.profiler.ProfilerActivity.PrivateUse1}
            self._profile = profiler.profile(
                activities=kinds, on_trace_ready=profiler.tensorboard_trace_handler(self._path)
            )
            self._profile.start()

    def end(self) -> None:
        r"""End a step; after the last one the results are written."""
        self._step += 1
        if self._profile is not None and self._step == self._range[1]:
            self._profile.stop()
            self._profile = None
