"""Numbers and tables as Markdown."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

MISSING = "–"
FEW = 3
"""Of fewer runs an interval is not shown: of two it is 18 times as wide as they lie apart."""


def number(value: float | None) -> str:
    """Three figures that count, from 100 on whole numbers; `–` for None. Zeros at the end are only
    written where digits were rounded off."""
    if value is None:
        return MISSING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if abs(value) < 1e-9:
        return "0"
    if abs(value) >= 99.95:
        return f"{round(value):,}"
    text = f"{value:.{_digits(value)}f}"
    return text.rstrip("0").rstrip(".") if float(text) == value else text


def mean(interval: dict[str, Any], unit: str = "", scale: float = 1) -> str:
    """`mean (low to high)`: the mean and its 95 % confidence interval, as bench.experiment.interval
    gives them; the mean alone of fewer than `FEW` runs, whose interval says nothing."""
    middle, low, high = (
        None if value is None else value * scale
        for value in (interval["mean"], interval["low"], interval["high"])
    )
    after = f" {unit}" if unit else ""
    if middle is None:
        return MISSING
    if low is None or high is None or interval["n"] < FEW:
        return f"{number(middle)}{after}"
    digits = _digits(max(abs(middle), (high - low) / 2))
    return f"{middle:z,.{digits}f}{after} ({low:z,.{digits}f} to {high:z,.{digits}f})"


def _digits(value: float) -> int:
    """Digits behind the point for three figures that count."""
    return max(0, 2 - math.floor(math.log10(abs(value)))) if abs(value) > 1e-9 else 0


def table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A Markdown table; a head that begins with `>` is aligned to the right."""
    ruler = ["--:" if head.startswith(">") else "---" for head in heads]
    lines = [_line([head.lstrip(">") for head in heads]), f"|{'|'.join(ruler)}|"]
    return "\n".join(lines + [_line(row) for row in rows])


def key_figures(rows: Iterable[tuple[str, object]]) -> str:
    """A table of names and figures."""
    return table(["figure", ">value"], rows)


def _line(cells: Sequence[object]) -> str:
    return "| " + " | ".join(_cell(cell) for cell in cells) + " |"


def _cell(value: object) -> str:
    if value is None:
        return MISSING
    text = number(value) if isinstance(value, int | float) else str(value)
    return text.replace("|", "\\|").replace("\n", " ")
