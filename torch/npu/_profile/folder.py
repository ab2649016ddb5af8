r"""The files of a result folder ``*_ascend_pt``."""

import shutil
from collections.abc import Iterable
from pathlib import Path

from . import communication, database, tables
from .events import Profile, read_trace


def write(folder: Path, metrics: int | None = None, kinds: Iterable[str] = ("text",), rank: int = -1) -> None:
    r"""Write ``ASCEND_PROFILER_OUTPUT`` of a folder that has ``FRAMEWORK/torch.trace.json``: text files, a database, or
    both (``kinds`` text, db).

    Raises:
        ValueError: that is no trace.
        OSError: a file cannot be written.
    """
    trace = folder / "FRAMEWORK" / "torch.trace.json"
    profile = read_trace(trace)
    output = folder / "ASCEND_PROFILER_OUTPUT"
    output.mkdir(exist_ok=True)
    if "db" in kinds:
        database.write(output / f"ascend_pytorch_profiler{f'_{rank}' if rank >= 0 else ''}.db", profile, rank)
    if "text" in kinds:
        _write_texts(output, trace, profile, metrics)


def _write_texts(output: Path, trace: Path, profile: Profile, metrics: int | None) -> None:
    shutil.copyfile(trace, output / "trace_view.json")
    tables.write(output / "kernel_details.csv", *tables.kernel_details(profile, metrics))
    tables.write(output / "operator_details.csv", tables.OPERATOR_COLUMNS, tables.operator_details(profile))
    tables.write(output / "op_statistic.csv", tables.OP_STATISTIC_COLUMNS, tables.op_statistic(profile))
    tables.write(output / "api_statistic.csv", tables.API_COLUMNS, tables.api_statistic(profile))
    tables.write(output / "step_trace_time.csv", tables.STEP_COLUMNS, tables.step_trace(profile))
    if profile.memory:
        tables.write(output / "memory_record.csv", tables.MEMORY_COLUMNS, tables.memory_record(profile))
        tables.write(output / "operator_memory.csv", tables.OPERATOR_MEMORY_COLUMNS, tables.operator_memory(profile))
    communication.write(output, profile)
