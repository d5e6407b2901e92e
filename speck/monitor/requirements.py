"""Judges the requirements of a composition by measurements. Pure.

Readers report the numbers that they have taken at checkpoints: between two checkpoints all newer
messages seem to wait. The messages that really wait are the least lag of the last minute
(`JobMeasurement`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from speck.model.shown import Shown

RATE = "min_rate"
LATENCY = "max_latency_ms"
FULL = 0.95
"""A job is saturated if its busiest subtask works or is back-pressured for more than this share of
time."""


@dataclass(frozen=True, slots=True)
class Stage:
    """A running job: the names of the links that it joins, and the one-way network latency in ms of
    its two ends, between its engine and the links' brokers."""

    name: str
    source: str
    port: tuple[str, ...]
    network_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class JobMeasurement:
    """The measurements of a job: records taken per second, shares of its busiest subtask's time (0
    to 1), messages that wait for it, and the busy seconds per second of all its subtasks together
    (`work`; without it, one subtask is assumed). None: unknown."""

    in_rate: float | None = None
    busy: float | None = None
    back_pressured: float | None = None
    waiting: int | None = None
    work: float | None = None

    @property
    def full(self) -> bool | None:
        """Whether the job is saturated; None if unknown."""
        if self.busy is None or self.back_pressured is None:
            return None
        return self.busy + self.back_pressured >= FULL


@dataclass(frozen=True, slots=True)
class Verdict:
    """A requirement: the bound that is `wanted`, and the `measured` value. `ok` is None when the
    measurements do not decide it; `why` gives the reason."""

    name: str
    wanted: float
    measured: Annotated[float | None, Shown("null when it was not measured")]
    ok: Annotated[
        bool | None,
        Shown("whether the requirement is met; null when it was not measured"),
    ]
    why: str

    @property
    def unknown(self) -> bool:
        """Whether nothing is known: an earlier verdict is neither confirmed nor revoked."""
        return self.ok is None and self.measured is None


def judge_requirements(
    requirements: Mapping[str, float],
    stages: Sequence[Stage],
    measurements: Mapping[str, JobMeasurement],
) -> list[Verdict]:
    """Judge each requirement of a composition whose running jobs are `stages`."""
    judges = {RATE: _judge_rate, LATENCY: _judge_latency}
    return [
        judges[name](bound, stages, measurements)
        for name, bound in sorted(requirements.items())
        if name in judges
    ]


def _judge_rate(
    bound: float, stages: Sequence[Stage], measurements: Mapping[str, JobMeasurement]
) -> Verdict:
    """Judge the rate. Missed if less is taken in although a job at an entrance has more input than
    it can take."""
    entrances = _find_entrances(stages)
    readers = [stage for group in entrances.values() for stage in group]
    rates = {
        stage.name: measurements.get(stage.name, JobMeasurement()).in_rate for stage in readers
    }
    unknown = sorted(name for name, rate in rates.items() if rate is None)
    if unknown or not readers:
        what = f"the rate of {', '.join(unknown)}" if unknown else "the input rate"
        return Verdict(RATE, bound, None, None, f"{what} is not known")
    rate = sum(min(rates[stage.name] or 0.0 for stage in group) for group in entrances.values())
    if rate >= bound:
        return Verdict(RATE, bound, rate, True, "this rate is taken in")
    behind = [
        s.name
        for s in readers
        if measurements[s.name].full or (measurements[s.name].waiting or 0) > 0
    ]
    if behind:
        why = f"{', '.join(sorted(behind))} cannot take more, and more is offered"
        return Verdict(RATE, bound, rate, False, why)
    return Verdict(RATE, bound, rate, None, "no more is offered")


def _judge_latency(
    bound: float, stages: Sequence[Stage], measurements: Mapping[str, JobMeasurement]
) -> Verdict:
    """Judge the latency of the slowest path: the network, the work and the waiting of each job on
    it (by Little's law: waiting messages divided by the rate at which they are taken)."""
    ways: dict[str, tuple[float, tuple[str, ...]]] = {}
    unknown: set[str] = set()
    for stage in _sort_upstream_first(stages):
        here = _estimate_delay_ms(measurements.get(stage.name, JobMeasurement()))
        if here is None:
            unknown.add(stage.name)
        before = [
            ways[other.name]
            for other in stages
            if stage.source in other.port and other.name in ways
        ]
        came, way = max(before, default=(0.0, ()))
        ways[stage.name] = came + stage.network_ms + (here or 0.0), (*way, stage.name)
    if not ways:
        return Verdict(LATENCY, bound, None, None, "nothing runs")
    latency, way = max(ways.values())
    text = " -> ".join(way)
    if latency > bound:
        return Verdict(LATENCY, bound, latency, False, f"on the path {text}")
    if unknown:
        names = ", ".join(sorted(unknown))
        return Verdict(LATENCY, bound, None, None, f"the latency of {names} is not known")
    return Verdict(LATENCY, bound, latency, True, f"on the path {text}")


def _estimate_delay_ms(measurement: JobMeasurement) -> float | None:
    """Milliseconds that a record spends at a job, waiting included; None if unknown."""
    if measurement.busy is None or measurement.in_rate is None:
        return None
    waiting = measurement.waiting
    if waiting is None and measurement.full is False:
        waiting = 0  # a job with spare time has no lasting queue
    if waiting is None:
        return None
    if measurement.in_rate <= 0:
        return 0.0 if waiting == 0 else None
    work = measurement.busy if measurement.work is None else measurement.work
    return 1000 * (work + waiting) / measurement.in_rate


def _find_entrances(stages: Sequence[Stage]) -> dict[str, list[Stage]]:
    """The links that no job feeds, with their readers."""
    sinks = {link for stage in stages for link in stage.port}
    entrances: dict[str, list[Stage]] = {}
    for stage in stages:
        if stage.source not in sinks:
            entrances.setdefault(stage.source, []).append(stage)
    return entrances


def _sort_upstream_first(stages: Sequence[Stage]) -> Iterable[Stage]:
    """The stages, each behind all that feed it. If there is a circle, which a composition that is
    being rewired may have, its stages come in the given order."""
    remainder = list(stages)
    while remainder:
        sinks = {link for stage in remainder for link in stage.port}
        ready = [stage for stage in remainder if stage.source not in sinks] or remainder
        yield from ready
        remainder = [stage for stage in remainder if stage not in ready]
