r"""The plug-in's profiler, ``torch_npu.profiler``: upstream's with result folders for MindStudio and scripts.

with torch_npu.profiler.profile(
    schedule=torch_npu.profiler.schedule(wait=1, warmup=1, active=2, repeat=1),
    on_trace_ready=torch_npu.profiler.tensorboard_trace_handler("./result"),
) as prof:
    for batch in loader:
        train(batch)
        prof.step()
"""

from torch.profiler import ProfilerAction as ProfilerAction, ProfilerActivity as ProfilerActivity

from . import dynamic_profile as dynamic_profile
from .experimental_config import (
    AiCMetrics as AiCMetrics,
    ExportType as ExportType,
    HostSystem as HostSystem,
    ProfilerLevel as ProfilerLevel,
    _ExperimentalConfig as _ExperimentalConfig,
    supported_ai_core_metrics as supported_ai_core_metrics,
    supported_export_type as supported_export_type,
    supported_profiler_level as supported_profiler_level,
)
from .profiler import (
    _KinetoProfile as _KinetoProfile,
    profile as profile,
    supported_activities as supported_activities,
    tensorboard_trace_handler as tensorboard_trace_handler,
)
from .scheduler import Schedule as schedule

__all__ = [
    "AiCMetrics",
    "ExportType",
    "HostSystem",
    "ProfilerAction",
    "ProfilerActivity",
    "ProfilerLevel",
    "dynamic_profile",
    "profile",
    "schedule",
    "supported_activities",
    "supported_ai_core_metrics",
    "supported_export_type",
    "supported_profiler_level",
    "tensorboard_trace_handler",
]
