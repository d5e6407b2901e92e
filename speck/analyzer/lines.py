"""Straight lines through samples, by least squares."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

FIT = 0.5
"""Minimum r squared of a line that counts."""
MIN_POINTS = 3
"""Minimum number of points of a line that counts."""


def fit_rising_line(name: str, over: Column) -> Column:
    """The slope of a rising line that fits the points of a group; null if there is none."""
    y = F.col(name)
    is_line = (F.count(y) >= MIN_POINTS) & (F.regr_r2(y, over) >= FIT)
    slope = F.regr_slope(y, over)
    return F.when(is_line & (slope > 0), slope)
