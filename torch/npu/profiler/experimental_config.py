r"""What the plug-in's profiler may be told beyond upstream's arguments."""

import warnings
from typing import Any


class ProfilerLevel:
    r"""How much of the device layer is collected."""

    Level_none = "Level_none"
    Level0 = "Level0"
    Level1 = "Level1"
    Level2 = "Level2"


class AiCMetrics:
    r"""Counters of AI Core. The simulated device has none: their columns say ``N/A``."""

    AiCoreNone = "ACL_AICORE_NONE"
    PipeUtilization = "ACL_AICORE_PIPE_UTILIZATION"
    ArithmeticUtilization = "ACL_AICORE_ARITHMETIC_UTILIZATION"
    Memory = "ACL_AICORE_MEMORY_BANDWIDTH"
    MemoryL0 = "ACL_AICORE_L0B_AND_WIDTH"
    ResourceConflictRatio = "ACL_AICORE_RESOURCE_CONFLICT_RATIO"
    MemoryUB = "ACL_AICORE_MEMORY_UB"
    L2Cache = "ACL_AICORE_L2_CACHE"
    MemoryAccess = "ACL_AICORE_MEMORY_ACCESS"


class ExportType:
    r"""The kind of result files."""

    Text = "text"
    Db = "db"


class HostSystem:
    r"""Loads of the host that CANN can sample."""

    CPU = "cpu"
    MEM = "mem"
    DISK = "disk"
    NETWORK = "network"
    OSRT = "osrt"


def _values(kind: type) -> set[str]:
    return {value for name, value in vars(kind).items() if not name.startswith("_")}


def supported_profiler_level() -> set[str]:
    r"""Return the values of :class:`ProfilerLevel`."""
    return _values(ProfilerLevel)


def supported_ai_core_metrics() -> set[str]:
    r"""Return the values of :class:`AiCMetrics`."""
    return _values(AiCMetrics)


def supported_export_type() -> set[str]:
    r"""Return the values of :class:`ExportType`."""
    return _values(ExportType)


class _ExperimentalConfig:
    r"""The plug-in's further settings; those that need counters of a card's hardware are kept, and said to be missing.

    A value that is none of its kind counts as the default, with a warning, as in the plug-in.
    """

    def __init__(
        self,
        profiler_level: str = ProfilerLevel.Level0,
        aic_metrics: str = AiCMetrics.AiCoreNone,
        l2_cache: bool = False,
        msprof_tx: bool = False,
        mstx: bool = False,
        data_simplification: bool = True,
        record_op_args: bool = False,
        op_attr: bool = False,
        gc_detect_threshold: float | None = None,
        export_type: str | list = ExportType.Text,
        host_sys: list | None = None,
        mstx_domain_include: list | None = None,
        mstx_domain_exclude: list | None = None,
        sys_io: bool = False,
        sys_interconnection: bool = False,
    ):
        self.profiler_level = _one_of(
            profiler_level, supported_profiler_level(), ProfilerLevel.Level0, "profiler_level"
        )
        self.aic_metrics = _one_of(aic_metrics, supported_ai_core_metrics(), AiCMetrics.AiCoreNone, "aic_metrics")
        # Level1 and Level2 collect the use of the pipes unless other counters are asked for.
        deeper = self.profiler_level in (ProfilerLevel.Level1, ProfilerLevel.Level2)
        if deeper and self.aic_metrics == AiCMetrics.AiCoreNone:
            self.aic_metrics = AiCMetrics.PipeUtilization
        self.l2_cache = l2_cache
        self.mstx = bool(mstx or msprof_tx)
        self.data_simplification = data_simplification
        self.record_op_args = record_op_args
        self.op_attr = op_attr
        self.gc_detect_threshold = gc_detect_threshold
        kinds = [export_type] if isinstance(export_type, str) else list(export_type)
        self.export_type = [_one_of(kind, supported_export_type(), ExportType.Text, "export_type") for kind in kinds]
        self.host_sys = list(host_sys or [])
        self.mstx_domain_include = list(mstx_domain_include or [])
        self.mstx_domain_exclude = [] if self.mstx_domain_include else list(mstx_domain_exclude or [])
        self.sys_io = sys_io
        self.sys_interconnection = sys_interconnection
        missing = [
            name
            for name in (
                "l2_cache",
                "record_op_args",
                "host_sys",
                "sys_io",
                "sys_interconnection",
                "gc_detect_threshold",
            )
            if getattr(self, name) not in (False, None, [])
        ]
        if missing:
            warnings.warn(f"torch_npu.profiler: nothing is collected for {', '.join(missing)}", stacklevel=2)

    def as_dict(self) -> dict[str, Any]:
        r"""For profiler_info.json."""
        return {f"_{name}": value for name, value in vars(self).items()}


def _one_of(value: Any, known: set[str], otherwise: str, name: str) -> str:
    if value in known:
        return value
    warnings.warn(f"torch_npu.profiler: {name} {value!r} is none of {sorted(known)}; {otherwise} is used", stacklevel=3)
    return otherwise
