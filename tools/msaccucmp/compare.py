# Compares two operator dumps call by call: rows of the table, the CSV file and the page.
"""`msaccucmp.py compare`."""

import csv
import io
import math
from dataclasses import dataclass

import metrics
from h5_dump import DumpFile, Operator

# Moves and allocations that a script makes on one device only; their absence on the other side is no difference.
_MOVES = ("_to_copy_across_devices", "copy_across_devices_", "detach", "lift_fresh", "set_", "resize_", "_pin_memory")


@dataclass
class Row:
    """One tensor of one operator."""

    index: int
    op_type: str
    npu_dump: str
    npu_dtype: str
    ground_truth: str
    truth_dtype: str
    tensor_index: str
    shape: str
    result: metrics.Result
    phase: str = ""

    def cells(self, algorithms) -> list[str]:
        """The cells in the order of `header`."""
        head = [self.index, self.op_type, self.npu_dump, self.npu_dtype, self.ground_truth, self.truth_dtype]
        measured = [number(self.result[name]) for name in algorithms]
        return [*map(str, head), self.tensor_index, self.shape, *measured, self.result.reason]


def header(algorithms) -> list[str]:
    """The columns of the result file."""
    head = ["Index", "OpType", "NPUDump", "DataType", "GroundTruth", "DataType", "TensorIndex", "Shape"]
    return [*head, *algorithms, "CompareFailReason"]


def number(value) -> str:
    """NaN, or six significant digits."""
    if isinstance(value, str):
        return value
    return "NaN" if math.isnan(value) else f"{value:.6g}"


class Comparison:
    """All rows of two files.

    Args:
        mine, truth: open dumps of the NPU (-m) and of the ground truth (-g).
        algorithms: the measures wanted.
        rtol, atol, cosine: replace parts of the tolerances by dtype (metrics.TOLERANCES).
    """

    def __init__(
        self, mine: DumpFile, truth: DumpFile, algorithms=metrics.ALGORITHMS, rtol=None, atol=None, cosine=None
    ):
        self.mine, self.truth, self.algorithms = mine, truth, tuple(algorithms)
        self._options = {"rtol": rtol, "atol": atol, "cosine": cosine}
        # The judgement and the page need these whatever was asked for.
        self._measured = tuple(dict.fromkeys((*self.algorithms, "CosineSimilarity", "RelativeEuclideanDistance")))
        self.rows: list[Row] = []
        for op in mine.in_order():
            self._operator(op)
        for op in truth.in_order():
            if op.path not in mine.operators:
                self._missing(op, "NPUDump")
        self.failed = [row for row in self.rows if not row.result.passed]

    def operators(self) -> int:
        """How many calls were compared."""
        return len({row.npu_dump for row in self.rows if row.npu_dump != "NaN"})

    def failed_operators(self) -> list[str]:
        """Calls with a tensor out of tolerance, in order."""
        return list(dict.fromkeys(row.npu_dump if row.npu_dump != "NaN" else row.ground_truth for row in self.failed))

    def _row(self, op: Operator, mine, truth, position: int, name: str, result) -> None:
        place = f"{op.path}:output:{position}"
        if name not in ("output", f"output_{position}"):
            place += f" ({name})"
        shape = (mine or truth).shape if (mine or truth) is not None else ()
        self.rows.append(
            Row(
                len(self.rows) + 1,
                op.name,
                op.path if mine is not None or op.path in self.mine.operators else "NaN",
                mine.dtype if mine is not None else "NaN",
                op.path if op.path in self.truth.operators else "NaN",
                truth.dtype if truth is not None else "NaN",
                place,
                f"({','.join(map(str, shape))})",
                result,
                op.phase,
            )
        )

    def _missing(self, op: Operator, where: str) -> None:
        moved = op.name in _MOVES or op.kind == "uninitialised"
        reason = f"no counterpart in {where}."
        result = metrics.Result({}, moved, reason)
        source = self.mine if op.path in self.mine.operators else self.truth
        value = None
        for name in source.names(op, "output")[:1]:
            value = source.value(op, "output", name)
        mine, truth = (value, None) if source is self.mine else (None, value)
        self._row(op, mine, truth, 0, "output", result)

    def _operator(self, op: Operator) -> None:
        other = self.truth.operators.get(op.path)
        if other is None:
            self._missing(op, "GroundTruth")
            return
        names = self.mine.names(op, "output")
        others = set(self.truth.names(other, "output"))
        first = len(self.rows)
        for position, name in enumerate(names):
            mine = self.mine.value(op, "output", name)
            if name not in others:
                self._row(op, mine, None, position, name, metrics.Result({}, False, "no such output in GroundTruth."))
                continue
            truth = self.truth.value(other, "output", name)
            self._row(op, mine, truth, position, name, self._judge(op, other, mine, truth))
        for position, name in enumerate(sorted(others.difference(names)), len(names)):
            truth = self.truth.value(other, "output", name)
            self._row(op, None, truth, position, name, metrics.Result({}, False, "no such output in NPUDump."))
        failed = [row for row in self.rows[first:] if not row.result.passed]
        if failed and (off := self._inputs_off(op, other)):
            for row in failed:
                row.result.reason += f" Its input {off} differs already."

    def _judge(self, op, other, mine, truth) -> metrics.Result:
        if "uninitialised" in (op.kind, other.kind):
            return metrics.Result({}, True, "not initialised by the operator, not compared.")
        if mine.array is None or truth.array is None:
            return metrics.Result({}, True, f"not compared: {mine.remark or truth.remark}")
        computed = (op.autocast or "bool", other.autocast or "bool")
        limits = metrics.tolerance(mine.dtype, truth.dtype, *computed, **self._options)
        if mine.shape != truth.shape:
            text = f"shapes differ: {list(mine.shape)} and {list(truth.shape)}."
            return metrics.Result({}, False, text)
        result = metrics.compare(mine.array, truth.array, limits, self._measured)
        if "random" in (op.kind, other.kind):
            result.passed, result.reason = True, "draws random numbers, not judged."
        elif mine.remark or truth.remark:
            result.reason = f"{result.reason} {mine.remark or truth.remark}".strip()
        return result

    def _inputs_off(self, op, other) -> str:
        """The first input that differs, for an operator that failed."""
        there = set(self.truth.names(other, "input"))
        for name in self.mine.names(op, "input"):
            if name not in there:
                continue
            mine, truth = self.mine.value(op, "input", name), self.truth.value(other, "input", name)
            if mine.array is None or truth.array is None or mine.shape != truth.shape:
                continue
            limits = metrics.tolerance(mine.dtype, truth.dtype, **self._options)
            if not metrics.compare(mine.array, truth.array, limits, ("CosineSimilarity",)).passed:
                return name
        return ""

    def csv(self) -> str:
        """The text of the result file: all rows."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(header(self.algorithms))
        writer.writerows(row.cells(self.algorithms) for row in self.rows)
        return text.getvalue()
