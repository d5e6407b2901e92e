"""Straight lines through points, by least squares."""

from __future__ import annotations

from collections.abc import Sequence

FIT = 0.5
"""Minimum r squared of a line that counts."""
MIN_POINTS = 3
"""Minimum number of points of a line that counts."""


def fit_rising_line(points: Sequence[tuple[float, float]]) -> float | None:
    """The slope of a rising line that fits points (x, y); None if there is none."""
    if len(points) < MIN_POINTS:
        return None
    mean_x, mean_y = (sum(values) / len(points) for values in zip(*points, strict=True))
    s_x = sum((x - mean_x) ** 2 for x, _ in points)
    s_y = sum((y - mean_y) ** 2 for _, y in points)
    s_xy = sum((x - mean_x) * (y - mean_y) for x, y in points)
    if s_x == 0 or s_y == 0:  # one moment, or a level line
        return None
    is_line = s_xy * s_xy >= FIT * s_x * s_y
    return s_xy / s_x if is_line and s_xy > 0 else None
