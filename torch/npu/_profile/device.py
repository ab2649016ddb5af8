r"""``torch.npu.profile``: a profile of the device layer, as a folder of raw data that ``msprof`` makes readable."""

import os
from typing import Any

import torch

# acl_prof.h
ACL_PROF_ACL_API = 0x0001
ACL_PROF_TASK_TIME = 0x0002
ACL_PROF_AICORE_METRICS = 0x0004
ACL_PROF_AICPU = 0x0008
ACL_PROF_L2CACHE = 0x0010
ACL_PROF_HCCL_TRACE = 0x0020
ACL_PROF_TRAINING_TRACE = 0x0040
ACL_PROF_MSPROFTX = 0x0080

ACL_AICORE_ARITHMETIC_UTILIZATION = 0
ACL_AICORE_PIPE_UTILIZATION = 1
ACL_AICORE_MEMORY_BANDWIDTH = 2
ACL_AICORE_L0B_AND_WIDTH = 3
ACL_AICORE_RESOURCE_CONFLICT_RATIO = 4
ACL_AICORE_NONE = 0xFF

# The columns that the guide lists for each choice of metrics.
METRIC_COLUMNS: dict[int, tuple[str, ...]] = {
    ACL_AICORE_ARITHMETIC_UTILIZATION: (
        "mac_fp16_ratio",
        "mac_int8_ratio",
        "vec_fp32_ratio",
        "vec_fp16_ratio",
        "vec_int32_ratio",
        "vec_misc_ratio",
    ),
    ACL_AICORE_PIPE_UTILIZATION: (
        "vec_ratio",
        "mac_ratio",
        "scalar_ratio",
        "mte1_ratio",
        "mte2_ratio",
        "mte3_ratio",
        "icache_miss_rate",
    ),
    ACL_AICORE_MEMORY_BANDWIDTH: (
        "ub_read_bw",
        "ub_write_bw",
        "l1_read_bw",
        "l1_write_bw",
        "l2_read_bw",
        "l2_write_bw",
        "main_mem_read_bw",
        "main_mem_write_bw",
    ),
    ACL_AICORE_L0B_AND_WIDTH: (
        "scalar_ld_ratio",
        "scalar_st_ratio",
        "l0a_read_bw",
        "l0a_write_bw",
        "l0b_read_bw",
        "l0b_write_bw",
        "l0c_read_bw",
        "l0c_write_bw",
    ),
    ACL_AICORE_RESOURCE_CONFLICT_RATIO: (
        "vec_bankgroup_cflt_ratio",
        "vec_bank_cflt_ratio",
        "vec_resc_cflt_ratio",
        "mte1_iq_full_ratio",
        "mte2_iq_full_ratio",
        "mte3_iq_full_ratio",
        "cube_iq_full_ratio",
        "vec_iq_full_ratio",
        "iq_full_ratio",
    ),
    ACL_AICORE_NONE: (),
}


class profileConfig:
    r"""What :class:`profile` collects. Each switch is True by default; False leaves its data out.

    Args:
        ACL_PROF_ACL_API (bool): calls of AscendCL on the host.
        ACL_PROF_TASK_TIME (bool): the time of operators on AI Core, of copies and of waits.
        ACL_PROF_AICORE_METRICS (bool): the counters that ``aiCoreMetricsType`` chooses. The simulated device has no
            such counters: their columns are there and say ``N/A``.
        ACL_PROF_AICPU (bool): operators on AI CPU.
        ACL_PROF_L2CACHE (bool): the cache's counters; the simulated device has none.
        ACL_PROF_HCCL_TRACE (bool): collective communication.
        ACL_PROF_TRAINING_TRACE (bool): iterations, from the optimizers' steps.
        aiCoreMetricsType (int): 0 arithmetic utilization, 1 pipe utilization, 2 memory bandwidth, 3 memory inside the
            core, 4 resource conflicts, 0xFF none.

    Raises:
        ValueError: there are no such metrics.
    """

    def __init__(
        self,
        ACL_PROF_ACL_API: bool = True,
        ACL_PROF_TASK_TIME: bool = True,
        ACL_PROF_AICORE_METRICS: bool = True,
        ACL_PROF_AICPU: bool = True,
        ACL_PROF_L2CACHE: bool = True,
        ACL_PROF_HCCL_TRACE: bool = True,
        ACL_PROF_TRAINING_TRACE: bool = True,
        aiCoreMetricsType: int = 0,
    ):
        if aiCoreMetricsType not in METRIC_COLUMNS:
            raise ValueError(
                f"profileConfig: there are no AI Core metrics {aiCoreMetricsType!r}; "
                f"aiCoreMetricsType is one of {', '.join(map(str, METRIC_COLUMNS))}"
            )
        chosen = (
            ACL_PROF_ACL_API,
            ACL_PROF_TASK_TIME,
            ACL_PROF_AICORE_METRICS and aiCoreMetricsType != ACL_AICORE_NONE,
            ACL_PROF_AICPU,
            ACL_PROF_L2CACHE,
            ACL_PROF_HCCL_TRACE,
            ACL_PROF_TRAINING_TRACE,
        )
        self.data = sum(1 << bit for bit, wanted in enumerate(chosen) if wanted)
        self.metrics = aiCoreMetricsType if ACL_PROF_AICORE_METRICS else ACL_AICORE_NONE


class profile:
    r"""Context manager that profiles the device layer into a new folder ``PROF_*``.

    ``msprof --export=on --output=FOLDER`` makes time lines and tables of it. What counts is the work of the NPUs: put
    the model, the inputs and the targets there, and run some steps before, so that operators are compiled.

    Args:
        profiler_result_path (str): an existing folder; default the working directory.
        use_e2e_profiler (bool): also the framework's operators, which the time line shows above the device's; default
            False.
        config (profileConfig, optional): what is collected; default everything.

    Attributes:
        result_path (str or None): the folder ``PROF_*``, once the profile has ended.

    Raises:
        FileNotFoundError: the folder does not exist.
        TypeError: ``config`` is something else.
        RuntimeError: a profile runs already; results could not be written, such as on a full disk; nothing ran on an
            NPU while it was on.
    """

    def __init__(
        self, profiler_result_path: str = ".", use_e2e_profiler: bool = False, config: profileConfig | None = None
    ):
        if config is not None and not isinstance(config, profileConfig):
            raise TypeError(f"torch.npu.profile: config must be a torch.npu.profileConfig, not {type(config).__name__}")
        self.profiler_result_path = os.fspath(profiler_result_path)
        self.use_e2e_profiler = use_e2e_profiler
        self.config = config or profileConfig()
        self.result_path: str | None = None
        self._handle: int | None = None
        self._callback: int | None = None
        self._steps: Any = None

    def __enter__(self) -> "profile":
        path = self.profiler_result_path
        if not os.path.isdir(path):
            raise FileNotFoundError(
                f"torch.npu.profile: the folder '{path}' does not exist; make it before profiling into it"
            )
        torch.npu.synchronize()
        data = self.config.data
        if self.use_e2e_profiler or data & ACL_PROF_TRAINING_TRACE:
            data |= ACL_PROF_MSPROFTX
        self._before = set(os.listdir(path))
        devices = list(range(torch.npu.device_count()))
        self._handle = torch._C._npu_startProfile(os.path.abspath(path), devices, self.config.metrics, data)
        if self.use_e2e_profiler:
            self._callback = torch._C._npu_markOperators()
        if data & ACL_PROF_TRAINING_TRACE:
            self._steps = _mark_steps()
        return self

    def __exit__(self, kind: Any, value: Any, traceback: Any) -> None:
        if self._callback is not None:
            torch._C._npu_unmarkOperators(self._callback)
        if self._steps is not None:
            self._steps.remove()
        try:
            if kind is None:
                torch.npu.synchronize()
        finally:
            handle, self._handle = self._handle, None
            assert handle is not None, "the profile was not entered"
            torch._C._npu_stopProfile(handle)
        made = sorted(set(os.listdir(self.profiler_result_path)) - self._before)
        folders = [name for name in made if name.startswith("PROF_")]
        self.result_path = os.path.join(self.profiler_result_path, folders[-1]) if folders else None
        if (
            kind is None
            and self.result_path
            and not any(name.startswith("device_") for name in os.listdir(self.result_path))
        ):
            raise RuntimeError(
                f"torch.npu.profile: no work reached an NPU, so there is nothing in {self.result_path}. Move the "
                "model, the inputs and the targets to the NPU, e.g. model.npu()"
            )


def _mark_steps() -> Any:
    r"""Mark the end of each optimizer's step, from which iterations are told apart."""
    from torch.optim.optimizer import register_optimizer_step_post_hook

    return register_optimizer_step_post_hook(lambda *_: torch._C._npu_mark("optimizer step"))
