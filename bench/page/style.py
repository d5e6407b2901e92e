"""How plots look: readable at the width of a README, on white, without relying on colour alone."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")

from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from bench.page.words import FEW

BLUE, ORANGE, GREEN, PINK, SKY, RED, BLACK = (
    "#0072B2",
    "#E69F00",
    "#009E73",
    "#CC79A7",
    "#56B4E9",
    "#D55E00",
    "#333333",
)
"""Told apart by colour-blind eyes too: M. Okabe, K. Ito, Color Universal Design, 2008."""

PLAIN = FuncFormatter(lambda value, _: f"{value:,g}")
"""Numbers written out, thousands marked."""

WIDTH = 8.0
"""Inches; an SVG of 8 inches is 768 px wide, so that 10 pt are 13 px."""

_SETTINGS: dict[Any, Any] = {
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.labelsize": 10,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 10.5,
    "errorbar.capsize": 3,
    "figure.facecolor": "white",
    "figure.constrained_layout.use": True,
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "grid.color": "#DDDDDD",
    "grid.linewidth": 0.8,
    "legend.fontsize": 9.5,
    "legend.frameon": False,
    "lines.linewidth": 1.8,
    "lines.markersize": 5,
    "savefig.facecolor": "white",
    "svg.fonttype": "path",
    "svg.hashsalt": "speck",
    "xtick.labelsize": 9.5,
    "ytick.labelsize": 9.5,
}


def figure(columns: int = 1, height: float = 3.4, **more: Any) -> tuple[Figure, list[Axes]]:
    """A figure of README width and its axes, side by side."""
    pyplot.rcdefaults()
    pyplot.rcParams.update(_SETTINGS)
    plot, axes = pyplot.subplots(1, columns, figsize=(WIDTH, height), squeeze=False, **more)
    return plot, list(axes[0])


def rows(count: int, height: float) -> tuple[Figure, list[Axes]]:
    """Axes one above the other that share their x axis."""
    plot, _ = figure(1, height)
    plot.clear()
    axes = plot.subplots(count, 1, sharex=True)
    return plot, list(axes)


def legend_above(
    plot: Figure, handles: Sequence[Any], names: Sequence[str], columns: int = 5
) -> None:
    """One legend for all axes, above them."""
    plot.legend(list(handles), list(names), loc="outside upper left", ncols=columns)


def save(plot: Figure, path: Path, mark: str) -> None:
    """Write an SVG (or a PNG, to look at): the same figure is the same bytes."""
    kind = path.suffix.lstrip(".")
    buffer = io.BytesIO()
    metadata: dict[str, Any] = {"Creator": None, "Date": None, "Source": mark}
    if kind == "svg":
        plot.savefig(buffer, format=kind, metadata=metadata)
    else:
        plot.savefig(buffer, format=kind, metadata={"Software": None}, dpi=100)
    pyplot.close(plot)
    # trailing blanks are an SVG writer's habit, and git's complaint
    content = buffer.getvalue()
    if kind == "svg":
        content = (
            "\n".join(line.rstrip() for line in content.decode().splitlines()).encode() + b"\n"
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def from_zero(*axes: Axes) -> None:
    """Axes that begin at 0 and end a little above what is drawn; the same y for all of them."""
    for each in axes:
        each.set_ylim(0, max(it.dataLim.y1 for it in axes) * 1.06)
        each.set_xlim(0, each.dataLim.x1 * 1.04)


def logarithmic(axis: Axis) -> None:
    """Ticks at 1, 2, 5 and 10, written out."""
    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(PLAIN)
    axis.set_minor_locator(NullLocator())


def ends(intervals: Sequence[Mapping[str, Any]], scale: float = 1) -> list[list[float]]:
    """How far the 95 % confidence intervals reach below and above their means; 0 without one, and
    of fewer than `FEW` runs."""
    some = [it if it["n"] >= FEW else {**it, "low": None, "high": None} for it in intervals]
    below = [0 if it["low"] is None else (it["mean"] - it["low"]) * scale for it in some]
    above = [0 if it["high"] is None else (it["high"] - it["mean"]) * scale for it in some]
    return [below, above]


def with_error(
    axes: Axes, xs: Any, intervals: Any, *, scale: float = 1, band: bool = False, **look: Any
) -> None:
    """A line through means, with the 95 % confidence interval as error bars; `band`: min to max
    shaded behind it. Intervals as bench.experiment.interval gives them; those of nothing are left
    out."""
    points = [(x, it) for x, it in zip(xs, intervals, strict=True) if it["mean"] is not None]
    places = [x for x, _ in points]
    means = [it["mean"] * scale for _, it in points]
    if band:
        least = [it["min"] * scale for _, it in points]
        most = [it["max"] * scale for _, it in points]
        axes.fill_between(places, least, most, color=look["color"], alpha=0.18, linewidth=0)
    axes.errorbar(places, means, yerr=ends([it for _, it in points], scale), **look)
