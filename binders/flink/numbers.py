"""Numbers of an engine's answers, within what the store, JSON and calendars can hold.

Raises ValueError otherwise: such an answer did not come from Flink.
"""

from __future__ import annotations

import math

MOST = 1 << 53
"""The largest number: some of them added up still fit into 64 bits."""
LAST_MS = 253_402_300_799_999
"""The last millisecond of the year 9999."""


def whole(value: object) -> int:
    """A whole number, of any sign."""
    if isinstance(value, str) and len(value) > 20:
        raise ValueError(f"a number of {len(value)} digits")
    number = int(value)  # type: ignore[call-overload]
    if abs(number) > MOST:
        raise ValueError("a number beyond 2^53")
    return int(number)


def count(value: object) -> int:
    """A whole number of things."""
    number = whole(value)
    if number < 0:
        raise ValueError(f"{number} of something")
    return number


def unix_ms(value: object) -> int:
    """A moment in Unix milliseconds."""
    number = whole(value)
    if not 0 <= number <= LAST_MS:
        raise ValueError(f"no moment: {number}")
    return number


def whole_or_none(value: float | None) -> int | None:
    """A measured value; None if there is none that makes sense."""
    return None if value is None or not abs(value) <= MOST else int(value)


def finite(value: object) -> float:
    """A number that is neither infinite nor NaN."""
    number = float(value)  # type: ignore[arg-type]
    if not math.isfinite(number):
        raise ValueError(f"{number} is no number")
    return number
