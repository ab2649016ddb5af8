# What is measured between two tensors, and when they count as equal. numpy only: it works on a host without torch.
"""Error measures and tolerances.

Elements at which both sides have the same NaN or infinity count as equal and are left out of the measures. Elements at
which one side is not finite and the other is, or has another infinity, are left out, counted and make the comparison
fail. A measure is NaN where it is not defined: empty tensors, different shapes, a cosine with a tensor of zeros only.
"""

from dataclasses import dataclass, field

import numpy as np

ALGORITHMS = (
    "CosineSimilarity",
    "MaxAbsoluteError",
    "AccumulatedRelativeError",
    "RelativeEuclideanDistance",
    "KullbackLeiblerDivergence",
    "StandardDeviation",
    "MeanAbsoluteError",
    "RootMeanSquareError",
    "MaxRelativeError",
    "MeanRelativeError",
)
_EPSILON = float(np.finfo(np.float32).eps)
EMPTY, SCALAR = "this tensor is empty.", "this tensor is scalar."


@dataclass(frozen=True)
class Tolerance:
    """A tensor is within it if the largest error is at most `atol`, or the relative Euclidean distance is at most
    `rtol` and the largest error at most `atol` + 10 `rtol` x the largest value. `cosine` is the least similarity."""

    rtol: float
    atol: float
    cosine: float = -1.0


# By the coarser of the two dtypes; others (integers, bool) must be equal.
TOLERANCES = {
    "float64": Tolerance(1e-7, 1e-10),
    "float32": Tolerance(1e-4, 1e-5),
    "float16": Tolerance(5e-3, 1e-3),
    "bfloat16": Tolerance(3e-2, 1e-2),
    "float8_e4m3fn": Tolerance(0.15, 5e-2),
    "float8_e5m2": Tolerance(0.3, 0.1),
}
_SAME = {"complex128": "float64", "complex64": "float32", "complex32": "float16"}
EXACT = Tolerance(0.0, 0.0)


def tolerance(*dtypes: str, rtol=None, atol=None, cosine=None) -> Tolerance:
    """The tolerance for tensors of these dtypes; arguments that are not None replace a part of it."""
    found = [TOLERANCES.get(_SAME.get(d, d), EXACT) for d in dtypes]
    base = max(found, key=lambda t: t.rtol)
    return Tolerance(
        base.rtol if rtol is None else rtol,
        base.atol if atol is None else atol,
        base.cosine if cosine is None else cosine,
    )


@dataclass
class Result:
    """Measures by name (a text for StandardDeviation), whether the tensors agree, and a reason or remark."""

    values: dict = field(default_factory=dict)
    passed: bool = False
    reason: str = ""

    def __getitem__(self, name: str):
        return self.values.get(name, float("nan"))


def _wide(array: np.ndarray) -> np.ndarray:
    flat = np.ascontiguousarray(array).reshape(-1)
    if flat.dtype.kind == "c":
        return flat.astype(np.complex128).view(np.float64)
    return flat.astype(np.float64)


def _nothing(reason: str, passed: bool) -> Result:
    return Result(dict.fromkeys(ALGORITHMS, float("nan")), passed, reason)


def compare(mine: np.ndarray, truth: np.ndarray, limits: Tolerance, algorithms=ALGORITHMS) -> Result:
    """Compares two arrays of the same logical shape.

    Args:
        mine, truth: arrays of any real, integer, bool or complex dtype.
        limits: what counts as equal.
        algorithms: the measures wanted.
    """
    if mine.shape != truth.shape:
        return _nothing(f"shapes differ: {list(mine.shape)} and {list(truth.shape)}.", False)
    if mine.size == 0:
        return _nothing(EMPTY, True)
    a, b = _wide(mine), _wide(truth)
    finite = np.isfinite(a) & np.isfinite(b)
    reasons = []
    wrong = 0
    if not finite.all():
        same = (np.isnan(a) & np.isnan(b)) | (a == b)
        wrong = int((~finite & ~same).sum())
        if wrong:
            nan_mine, nan_truth = int(np.isnan(a).sum()), int(np.isnan(b).sum())
            inf_mine, inf_truth = int(np.isinf(a).sum()), int(np.isinf(b).sum())
            reasons.append(
                f"NaN or Inf differ at {wrong} elements: {nan_mine} NaN and {inf_mine} Inf in NPUDump, "
                f"{nan_truth} NaN and {inf_truth} Inf in GroundTruth."
            )
        a, b = a[finite], b[finite]
    if a.size == 0:
        return _nothing(" ".join(reasons) or "no finite elements, equal on both sides.", not wrong)
    exact_kind = mine.dtype.kind in "iub" and truth.dtype.kind in "iub"
    with np.errstate(over="ignore", invalid="ignore"):  # measures of numbers near the end of float64 are infinite
        values = _measure(a, b, algorithms, reasons)
        error = np.abs(a - b)
    largest, scale = float(error.max()), float(np.abs(b).max())
    distance = _ratio(_norm(error), _norm(b))
    if exact_kind and limits.rtol == 0 and limits.atol == 0:
        passed = bool(np.array_equal(mine, truth))
    else:
        passed = largest <= limits.atol or (
            distance <= limits.rtol and largest <= limits.atol + 10 * limits.rtol * scale
        )
    cosine = values.get("CosineSimilarity", float("nan"))
    if passed and limits.cosine > -1 and cosine < limits.cosine:
        passed = False
    if not passed and not wrong:
        reasons.append("out of tolerance.")
    if mine.ndim == 0 or mine.size == 1:
        reasons.append(SCALAR)
    return Result(values, passed and not wrong, " ".join(reasons))


def _norm(x: np.ndarray) -> float:
    """The Euclidean norm, also of numbers whose squares are no float64."""
    largest = float(np.abs(x).max())
    if largest == 0 or not np.isfinite(largest):
        return largest
    if 1e-140 < largest < 1e140:
        return float(np.linalg.norm(x))
    with np.errstate(under="ignore", over="ignore"):
        return float(np.linalg.norm(x / largest) * largest)


def _ratio(a: float, b: float) -> float:
    if b == 0:
        return 0.0 if a == 0 else float("inf")
    return a / b


def _measure(a: np.ndarray, b: np.ndarray, algorithms, reasons: list) -> dict:
    error = np.abs(a - b)
    counted = np.abs(b) > _EPSILON
    relative = error[counted] / np.abs(b[counted])
    norm_a, norm_b = _norm(a), _norm(b)
    value: float | str
    found = {}
    for name in algorithms:
        if name == "CosineSimilarity":
            if np.array_equal(a, b):  # exactly 1, which rounding would miss
                value = 1.0
            elif norm_a == 0 or norm_b == 0:
                value = float("nan")
                reasons.append(f"all elements of {'NPUDump' if norm_a == 0 else 'GroundTruth'} are zero.")
            else:
                value = float(np.clip(np.dot(a / norm_a, b / norm_b), -1.0, 1.0))
        elif name == "MaxAbsoluteError":
            value = float(error.max())
        elif name == "AccumulatedRelativeError":
            value = float(relative.sum())
        elif name == "RelativeEuclideanDistance":
            value = _ratio(_norm(error), norm_b)
        elif name == "KullbackLeiblerDivergence":
            p, q = _density(a), _density(b)
            value = float(max((p * np.log(p / q)).sum(), 0.0))
        elif name == "StandardDeviation":
            value = f"({a.mean():.6g};{a.std():.6g}),({b.mean():.6g};{b.std():.6g})"
        elif name == "MeanAbsoluteError":
            value = float(error.mean())
        elif name == "RootMeanSquareError":
            value = float(np.sqrt((error**2).mean()))
        elif name == "MaxRelativeError":
            value = float(relative.max()) if relative.size else 0.0
        else:
            value = float(relative.mean()) if relative.size else 0.0
        found[name] = value
    return found


def _density(x: np.ndarray) -> np.ndarray:
    """The values mapped to [0, 1] and divided by their sum; never 0."""
    span = x.max() - x.min()
    x = np.maximum((x - x.min()) / span if span else np.ones_like(x), _EPSILON)
    return x / x.sum()
