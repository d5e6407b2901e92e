"""Arithmetic with figures that may be unknown (None). What cannot be computed is unknown, too."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from speck.model.values import JsonObject


def add(values: Iterable[float | None]) -> float | None:
    """The sum of those that are known; None if none is."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def add_all(values: Iterable[float | None]) -> float | None:
    """The sum, or None if a part is unknown: a sum without it would be too low."""
    known = list(values)
    return None if None in known else add(known)


def divide(amount: float | None, by: float | None) -> float | None:
    """The quotient; None if a part is unknown or the divisor is 0."""
    return None if amount is None or not by else amount / by


def multiply(one: float | None, other: float | None) -> float | None:
    """The product; None if a part is unknown."""
    return None if one is None or other is None else one * other


def pick_most(values: Iterable[Any]) -> Any:
    """The greatest of those that are known; None if none is."""
    return max((value for value in values if value is not None), default=None)


def pick_least(values: Iterable[Any]) -> Any:
    """The smallest of those that are known; None if none is."""
    return min((value for value in values if value is not None), default=None)


def pick_newest(rows: Iterable[JsonObject], name: str, by: str = "last_at") -> Any:
    """The value of the column `name` in the newest of the rows of which the time `by` is known; of
    several such rows the greatest known value; None without any."""
    newest, value_then = None, None
    for row in rows:
        at, value = row[by], row[name]
        if at is None or (newest is not None and at < newest):
            continue
        value_then = value if newest is None or at > newest else pick_most((value_then, value))
        newest = at
    return value_then
