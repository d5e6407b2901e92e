"""What a move costs: the bytes of a job's state, and what arrives while it is silent. Pure.

A move stops a job at one site and starts it at another. Its state crosses between the sites, and
from the stop to the start nothing is processed: what arrives meanwhile waits, and is late. Both
are counted in bytes, so that they can be compared with the bytes that the move saves.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from statistics import median
from typing import Annotated

from speck.model.shown import Shown
from speck.placement.model import Kind, Load

LEAST_STATEFUL = 100.0
"""Bytes per second: a job that keeps state, or may, is not moved to save less, however cheap."""


@dataclass(frozen=True, slots=True)
class Silence:
    """For how many `seconds` a move stops a job; the median of `moves` past ones, or with 0 a
    default."""

    seconds: float
    moves: Annotated[int, Shown("past moves of which it is the median; 0: a default")] = 0


@dataclass(frozen=True, slots=True)
class Silences:
    """The expected silence of a job without state and of one that keeps state, or may."""

    stateless: Silence = Silence(2.0)
    stateful: Silence = Silence(10.0)

    def expected_for(self, stateful: bool | None) -> Silence:
        return self.stateless if stateful is False else self.stateful


DEFAULT_SILENCES = Silences()


def summarise_silences(past: Iterable[tuple[bool | None, float]]) -> Silences:
    """The medians of past moves, given as (stateful, seconds); defaults where there are none."""
    by_kind: dict[bool, list[float]] = {False: [], True: []}
    for stateful, seconds in past:
        by_kind[stateful is not False].append(seconds)
    stateless, stateful_moves = (
        Silence(median(seconds), len(seconds)) if seconds else None
        for seconds in (by_kind[False], by_kind[True])
    )
    default = DEFAULT_SILENCES
    return Silences(stateless or default.stateless, stateful_moves or default.stateful)


def expect_silence(load: Load, silences: Silences) -> Load:
    """The load with the silence of its move; topics and ends have none."""
    if load.kind is not Kind.JOB or not load.slots:
        return load
    return replace(load, silence_s=silences.expected_for(load.stateful).seconds)
