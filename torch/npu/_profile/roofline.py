r"""The roofline picture: each operator's arithmetic for each byte against its modelled rate, under a card's roof."""

import html
import math
from dataclasses import dataclass
from os import PathLike
from typing import Any

from . import cost


@dataclass(frozen=True)
class Dot:
    r"""An operator of the modelled clock: operations for each byte, operations a second, share of the modelled time."""

    label: str
    intensity: float
    rate: float
    share: float
    cube: bool


def dots(model: dict[str, Any]) -> list[Dot]:
    r"""The operators of a report's model that compute anything."""
    return [
        Dot(
            f"{row['name']}: {row['flops'] / row['bytes']:.2f} op/byte, {row['modelled_us'] / 1000:.3f} ms modelled",
            row["flops"] / row["bytes"],
            row["flops"] / row["modelled_us"] * 1e6,
            row["modelled_us"] / max(model["modelled_us"], 1e-9),
            row["cube"],
        )
        for row in model["operators"]
        if row["flops"] and row["bytes"] and row["modelled_us"]
    ]


def roof(model: dict[str, Any]) -> tuple[float, float]:
    r"""The card's peak in operations a second, and its memory's bytes a second."""
    facts = cost.cards()[model["card"]]
    return facts["cube_tflops"]["FLOAT16"] * 1e12, facts["memory_gbps"] * 1e9


def _colour(dot: Dot) -> str:
    return "#0066cc" if dot.cube else "#cc6600"


def _caption(model: dict[str, Any]) -> str:
    return f"operations for each byte; upwards: operations a second ({model['card']}, modelled)"


def svg(model: dict[str, Any]) -> str:
    r"""The picture as SVG, for a page."""
    peak, band = roof(model)
    wide, high, left, top = 640, 360, 60, 20

    def x(intensity: float) -> float:
        return left + (math.log10(intensity) + 2) / 6 * wide

    def y(rate: float) -> float:
        return top + (1 - (math.log10(rate) - 8) / 7) * high

    line = f"{x(0.01):.1f},{y(0.01 * band):.1f} {x(peak / band):.1f},{y(peak):.1f} {x(1e4):.1f},{y(peak):.1f}"
    # Dots that lie outside are drawn at the border.
    circles = "".join(
        f"<circle cx='{x(min(max(dot.intensity, 0.011), 9e3)):.1f}' cy='{y(min(max(dot.rate, 1.1e8), 9e14)):.1f}' "
        f"r='{3 + 12 * dot.share:.1f}' fill='{_colour(dot)}' fill-opacity='.6'>"
        f"<title>{html.escape(dot.label)}</title></circle>"
        for dot in dots(model)
    )
    axes = "".join(
        f"<text x='{x(10.0**p):.0f}' y='{top + high + 16}' font-size='11'>1e{p}</text>" for p in range(-2, 5)
    ) + "".join(f"<text x='8' y='{y(10.0**p):.0f}' font-size='11'>1e{p}</text>" for p in range(8, 16))
    return (
        f"<svg id='roofline' viewBox='0 0 {wide + left + 20} {high + top + 40}' width='{wide + left}'>"
        f"<polyline points='{line}' fill='none' stroke='#888'/>{axes}{circles}"
        f"<text x='{left}' y='{top + high + 34}' font-size='12'>{html.escape(_caption(model))}</text></svg>"
    )


def png(model: dict[str, Any], path: str | PathLike) -> None:
    r"""Write the picture as PNG.

    Raises:
        RuntimeError: matplotlib is not installed.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise RuntimeError(
            "a picture as PNG is drawn with matplotlib, which is not installed: pip install matplotlib, or use --html, "
            "whose page has the picture as SVG"
        ) from error
    peak, band = roof(model)
    figure = Figure(figsize=(9, 5.5), layout="constrained")
    axes = figure.add_subplot(xscale="log", yscale="log", xlabel=_caption(model).partition(";")[0])
    axes.set_ylabel("operations a second")
    axes.set_title(f"{model['card']}: a model, not measured")
    axes.plot([0.01, peak / band, 1e4], [0.01 * band, peak, peak], color="#888888")
    for dot in dots(model):
        axes.scatter(dot.intensity, dot.rate, s=20 + 600 * dot.share, color=_colour(dot), alpha=0.6)
        if dot.share >= 0.05:
            axes.annotate(dot.label.partition(":")[0], (dot.intensity, dot.rate), fontsize=8)
    FigureCanvasAgg(figure).print_png(path)
