"""The steps of an analysis, as they are reported while it runs."""

from __future__ import annotations

from collections.abc import Callable

READING, RATING, RANKING, FORECASTING = STEPS = (
    "reading samples",
    "rating jobs",
    "ranking jobs",
    "forecasting links",
)
"""The steps of an analysis, in order; the last one only for a request with `ahead_s`."""

Report = Callable[[str], None]
"""Is called with each step that begins."""
