"""Straight lines through samples, by least squares."""

from __future__ import annotations

FIT = 0.5
"""Minimum r squared of a line that counts."""
MIN_POINTS = 3
"""Minimum number of points of a line that counts."""


def fit_rising_line(y: str, x: str) -> str:
    """An aggregate: the slope of a rising line that fits the points of a group; null if there is
    none."""
    slope = f"regr_slope({y}, {x})"
    is_line = f"count({y}) >= {MIN_POINTS} AND regr_r2({y}, {x}) >= {FIT}D"
    return f"CASE WHEN {is_line} AND {slope} > 0 THEN {slope} END"
