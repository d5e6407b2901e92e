"""Durations as options: `90`, `90s`, `10m`, `2h` or `1d`."""

from __future__ import annotations

import math
import re
from typing import Any

import click

_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


class Duration(click.ParamType):  # type: ignore[type-arg]  # generic in new releases only
    """Seconds within limits; without a unit a number is one of seconds."""

    name = "time"

    def __init__(self, least: str = "1s", most: str | None = None):
        self._least, self._most = least, most

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Seconds. Fails with what to write instead."""
        if isinstance(value, float):
            return value
        seconds = _parse(value)
        if seconds is None:
            self.fail(f"{value!r} is not a duration: write 90s, 10m, 2h or 1d", param, ctx)
        most = _parse(self._most) if self._most else None
        if not (_parse(self._least) or 0.0) <= seconds <= (most or math.inf):
            limits = f"from {self._least} to {self._most}" if most else f"at least {self._least}"
            self.fail(f"{value!r} must be {limits}", param, ctx)
        return seconds


def _parse(text: str) -> float | None:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", text)
    return float(match[1]) * _UNITS[match[2]] if match else None


def write_duration(seconds: float) -> str:
    """Seconds as the option takes them: 90s, 10m, 2h, 1d."""
    for unit in ("d", "h", "m"):
        if seconds >= _UNITS[unit] and seconds % _UNITS[unit] == 0:
            return f"{seconds / _UNITS[unit]:g}{unit}"
    return f"{seconds:g}s"
