"""Divides a window: into slices, which are compared to see how steady a job's cost is, and a long
one into units, whose sums are cached (`speck.analyzer.units`)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from speck.analyzer.reading import Span
from speck.metrics.dataset.origins import UNIT_S

SLICES = 10
"""The number of slices."""

LONG = timedelta(hours=2)
"""A window from this length on is analysed by units of ten minutes."""

VERY_LONG = timedelta(hours=8)
"""From this length on whole hours are units."""

HOUR = 6
"""Tens of minutes in an hour."""

_EPOCH = datetime.fromtimestamp(0, UTC)
_UNIT = timedelta(seconds=UNIT_S)
_MICROS = UNIT_S * 1_000_000


@dataclass(frozen=True, slots=True)
class Slicing:
    """A window and its parts. Units are numbered in tens of minutes from 1970: that of an hour by
    its first ten minutes."""

    span: Span

    @classmethod
    def of(cls, span: Span) -> Slicing:
        """The slicing of a window, which begins with whole ten minutes if it is long."""
        if timedelta(seconds=span.seconds) < LONG:
            return cls(span)
        return cls(Span(span.since - (span.since - _EPOCH) % _UNIT, span.until))

    @property
    def is_long(self) -> bool:
        """Whether it consists of units."""
        return timedelta(seconds=self.span.seconds) >= LONG

    @property
    def whole(self) -> range:
        """The tens of minutes that lie in the window."""
        # rounded up: ten minutes that begin before the window are not in it
        first = -((_EPOCH - self.span.since) // _UNIT)
        return range(first, max(first, (self.span.until - _EPOCH) // _UNIT))

    @property
    def hours(self) -> range:
        """The hours of `whole` that are units."""
        whole = self.whole
        if timedelta(seconds=self.span.seconds) < VERY_LONG:
            return range(whole.start, whole.start, HOUR)
        first = -(-whole.start // HOUR) * HOUR
        return range(first, whole.stop // HOUR * HOUR, HOUR)

    @property
    def tens(self) -> list[int]:
        """The tens of minutes of `whole` that are units of their own."""
        hours = self.hours
        return [unit for unit in self.whole if not hours.start <= unit < hours.stop]

    @property
    def rest(self) -> Span:
        """What follows the last unit: less than ten minutes."""
        return Span(time_of(self.whole.stop), self.span.until)

    def index_of(self, micros: str) -> str:
        """An expression: the slice of a time in microseconds. A unit of a long window is never
        divided: it counts in the slice in which it begins."""
        since, width = self._micros
        time = f"{self.unit_in_window(micros)} * {_MICROS}L" if self.is_long else micros
        # the last microsecond of the window may be divided into a slice of its own
        index = f"floor(({time} - {since}L) / {width!r}D)"
        return f"cast(greatest(0, least({index}, {SLICES - 1})) AS int)"

    def index_of_unit(self, unit: str) -> str:
        """An expression: the slice of a unit, that in which it begins. All numbers are in
        a map, which is no part of generated code: what Spark compiled for one window is used for
        the next."""
        hours = self.hours
        since, width = self._micros
        slices = {}
        for each in range(self.whole.start, self.whole.stop + 1):
            begin = each // HOUR * HOUR if hours.start <= each < hours.stop else each
            index = math.floor((begin * _MICROS - since) / width)
            slices[each] = max(0, min(SLICES - 1, index))
        keys, values = (
            ", ".join(f"{each}L" for each in slices),
            ", ".join(map(str, slices.values())),
        )
        return f"element_at(map_from_arrays(array({keys}), array({values})), {unit})"

    @property
    def _micros(self) -> tuple[int, float]:
        """When the window begins, and the length of a slice, in microseconds."""
        since = (self.span.since - _EPOCH) // timedelta(microseconds=1)
        return since, max(self.span.seconds, 1e-6) * 1e6 / SLICES

    def unit_in_window(self, micros: str) -> str:
        """An expression: the unit of a time in microseconds."""
        hours = self.hours
        ten, hour = (unit_of(micros, length) for length in (1, HOUR))
        if not hours:
            return ten
        is_of_hour = (
            f"({micros}) >= {hours.start * _MICROS}L AND ({micros}) < {hours.stop * _MICROS}L"
        )
        return f"(CASE WHEN {is_of_hour} THEN {hour} ELSE {ten} END)"


def unit_of(micros: str, length: int) -> str:
    """An expression: the unit of a time in microseconds, where all have this length."""
    return f"(({micros}) div {length * _MICROS}L * {length}L)"


def time_of(unit: int) -> datetime:
    """When a unit begins."""
    return _EPOCH + unit * _UNIT


def list_runs(units: list[int], length: int) -> Iterator[tuple[int, int]]:
    """The first unit of each unbroken run of units of this length, and the one after its last."""
    first = None
    for number, unit in enumerate(units):
        first = unit if first is None else first
        if number + 1 == len(units) or units[number + 1] != unit + length:
            yield first, unit + length
            first = None
