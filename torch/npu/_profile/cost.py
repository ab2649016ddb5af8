r"""What an operator costs: floating-point operations by its shapes, and the modelled time on a named card.

The model is a roofline, see ``cards.yaml``. It is always labelled as a model and never mixed with measured time.
"""

import math
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from .events import Task

_MATMULS = ("MatMul", "MatMulV2", "MatMulV3", "BatchMatMul", "BatchMatMulV2", "Addmm", "Baddbmm", "QuantMatmulInt8")


def shapes_of(text: str) -> list[list[int]]:
    r"""``"2,3;4"`` as [[2, 3], [4]]."""
    return [[int(n) for n in part.split(",") if n.strip("- ").isdigit()] for part in text.strip('"').split(";")]


def _kernel(shape: list[int]) -> int:
    # Products of one result: the filter without its output channels.
    return math.prod(shape[1:])


def flops(task: Task) -> int:
    r"""Arithmetic operations, a multiplication and an addition counting two. Element-wise operators count one for each
    element of the largest operand; copies count none."""
    if task.kind != "op" or not task.inputs[0]:
        return 0
    inputs, outputs = shapes_of(task.inputs[0]), shapes_of(task.outputs[0])
    name = task.name
    if name in _MATMULS and len(inputs) >= 2 and outputs[0]:
        out = math.prod(outputs[0])
        batch = math.prod(outputs[0][:-2])
        if out == 0 or batch == 0:
            return 0
        # m*k, k*n and m*n of each of the batch give k; a broadcast operand is counted as it takes part.
        left = math.prod(inputs[0]) * (batch // max(1, math.prod(inputs[0][:-2])))
        right = math.prod(inputs[1]) * (batch // max(1, math.prod(inputs[1][:-2])))
        return round(2 * out * math.sqrt(left * right / out / batch))
    if name.startswith(("Conv", "DepthwiseConv", "Deconv")):
        wide = [shape for shape in (*inputs, *outputs) if len(shape) in (3, 4, 5)]
        if "BackpropFilter" in name and len(wide) >= 2:
            filters, grads = outputs[0], inputs[-1] if len(inputs[-1]) > 2 else wide[1]
            return 2 * math.prod(grads) * _kernel(filters)
        if "BackpropInput" in name and len(wide) >= 2:
            return 2 * math.prod(wide[1]) * _kernel(wide[0])
        if len(wide) >= 2:
            return 2 * math.prod(outputs[0]) * _kernel(wide[1])
    return max((math.prod(shape) for shape in (*inputs, *outputs)), default=0)


@dataclass(frozen=True)
class Modelled:
    r"""A modelled time (us), and what bounds it: cube, vector, memory, ai_cpu, copy or launch."""

    time: float
    bound: str


@cache
def cards() -> dict[str, dict]:
    r"""The cards that ``cards.yaml`` describes, by name."""
    try:
        import yaml
    except ImportError as error:
        raise RuntimeError("the modelled clock reads cards.yaml: pip install pyyaml") from error
    return yaml.safe_load(Path(__file__).with_name("cards.yaml").read_text())


def is_cube(task: Task) -> bool:
    r"""Whether the matrix unit does it."""
    return task.name in _MATMULS or task.name.startswith(("Conv", "Deconv")) or "Attention" in task.name


def model(task: Task, card: str = "Atlas 910B") -> Modelled:
    r"""The modelled time of a task on a card.

    Raises:
        KeyError: ``cards.yaml`` does not describe it.
    """
    facts = cards()[card]
    if task.kind == "copy" and task.name != "Memcpy DtoD":
        return Modelled(task.bytes / facts["copy_gbps"] / 1000 + facts["launch_us"], "copy")
    efficiency = facts["efficiency"]
    times = {"memory": task.bytes / (facts["memory_gbps"] * efficiency["memory"]) / 1000, "launch": facts["launch_us"]}
    dtype = task.inputs[1].split(";")[0]
    work = flops(task)
    if is_cube(task):
        peaks = facts["cube_tflops"]
        times["cube"] = work / (peaks.get(dtype, peaks["FLOAT"]) * efficiency["cube"]) / 1e6
    elif work:
        peaks = facts["vector_tflops"]
        vector = work / (peaks.get(dtype, peaks["other"]) * efficiency["vector"]) / 1e6
        slow = task.core == "AI_CPU"
        times["ai_cpu" if slow else "vector"] = vector * (facts["ai_cpu_slowdown"] if slow else 1)
    bound = max(times, key=lambda name: times[name])
    return Modelled(times[bound], bound)
