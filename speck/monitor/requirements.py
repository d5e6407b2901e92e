"""What a composition requires, judged by what is measured. Pure.

Messages that wait are told by the taken numbers, which readers tell at checkpoints: between two
of them everything seems to wait. What truly waits is the least lag of the last while (`Seen`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from speck.model.values import JsonObject

RATE = "min_rate"
LATENCY = "max_latency_ms"
FULL = 0.95
"""A job whose busiest subtask works or is held up for more of its time takes all that it can."""


@dataclass(frozen=True, slots=True)
class Stage:
    """A running job: the links (any name that tells them apart) that it joins, and the one-way
    network latency of its two ends in ms, between its engine and the links' brokers."""

    name: str
    source: str
    sink: str
    network_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class Seen:
    """What was measured of a job: records a second taken, shares of its busiest subtask's time (0
    to 1), messages that wait for it, and the busy seconds a second of all its subtasks together
    (`work`; where that is not given it has one). None: not known."""

    in_rate: float | None = None
    busy: float | None = None
    back_pressured: float | None = None
    waiting: int | None = None
    work: float | None = None

    @property
    def full(self) -> bool | None:
        """Whether it takes all that it can; None when that is not known."""
        if self.busy is None or self.back_pressured is None:
            return None
        return self.busy + self.back_pressured >= FULL


@dataclass(frozen=True, slots=True)
class Judged:
    """A requirement: what is `wanted` and what was `measured`; `ok` is None when the evidence
    does not tell, and `why` says what it rests on."""

    name: str
    wanted: float
    measured: float | None
    ok: bool | None
    why: str

    @property
    def unknown(self) -> bool:
        """Whether nothing is known: what was found before is neither confirmed nor over."""
        return self.ok is None and self.measured is None

    def to_json(self) -> JsonObject:
        """As the API shows it."""
        return {
            "name": self.name,
            "wanted": self.wanted,
            "measured": self.measured,
            "ok": self.ok,
            "why": self.why,
        }


def judge(
    requirements: Mapping[str, float], stages: Sequence[Stage], seen: Mapping[str, Seen]
) -> list[Judged]:
    """Each requirement of a composition whose running jobs are `stages`."""
    judges = {RATE: _rate, LATENCY: _latency}
    return [
        judges[name](wanted, stages, seen)
        for name, wanted in sorted(requirements.items())
        if name in judges
    ]


def _rate(wanted: float, stages: Sequence[Stage], seen: Mapping[str, Seen]) -> Judged:
    """Not kept: less is taken in, though a job at an entrance has more than it can take."""
    entrances = _entrances(stages)
    readers = [stage for group in entrances.values() for stage in group]
    rates = {stage.name: seen.get(stage.name, Seen()).in_rate for stage in readers}
    unknown = sorted(name for name, rate in rates.items() if rate is None)
    if unknown or not readers:
        what = f"the rate of {', '.join(unknown)}" if unknown else "what comes in"
        return Judged(RATE, wanted, None, None, f"{what} is not known")
    taken = sum(min(rates[stage.name] or 0.0 for stage in group) for group in entrances.values())
    if taken >= wanted:
        return Judged(RATE, wanted, taken, True, "so much is taken in")
    behind = [s.name for s in readers if seen[s.name].full or (seen[s.name].waiting or 0) > 0]
    if behind:
        why = f"{', '.join(sorted(behind))} cannot take more, and more is offered"
        return Judged(RATE, wanted, taken, False, why)
    return Judged(RATE, wanted, taken, None, "no more is offered")


def _latency(wanted: float, stages: Sequence[Stage], seen: Mapping[str, Seen]) -> Judged:
    """Of the slowest way: network, work and waiting of each job on it (by Little's law, what
    waits over the rate at which it is taken)."""
    found: dict[str, tuple[float, tuple[str, ...]]] = {}
    unknown: set[str] = set()
    for stage in _ordered(stages):
        here = _delay_ms(seen.get(stage.name, Seen()))
        if here is None:
            unknown.add(stage.name)
        before = [
            found[other.name]
            for other in stages
            if other.sink == stage.source and other.name in found
        ]
        came, way = max(before, default=(0.0, ()))
        found[stage.name] = came + stage.network_ms + (here or 0.0), (*way, stage.name)
    if not found:
        return Judged(LATENCY, wanted, None, None, "nothing runs")
    latency, way = max(found.values())
    text = " -> ".join(way)
    if latency > wanted:
        return Judged(LATENCY, wanted, latency, False, f"by way of {text}")
    if unknown:
        names = ", ".join(sorted(unknown))
        return Judged(LATENCY, wanted, None, None, f"what {names} adds is not known")
    return Judged(LATENCY, wanted, latency, True, f"by way of {text}")


def _delay_ms(seen: Seen) -> float | None:
    """How long a record is at a job, waiting for it included; None when that is not known."""
    if seen.busy is None or seen.in_rate is None:
        return None
    waiting = seen.waiting
    if waiting is None and seen.full is False:
        waiting = 0  # a job that has time to spare has no queue that stands
    if waiting is None:
        return None
    if seen.in_rate <= 0:
        return 0.0 if waiting == 0 else None
    work = seen.busy if seen.work is None else seen.work
    return 1000 * (work + waiting) / seen.in_rate


def _entrances(stages: Sequence[Stage]) -> dict[str, list[Stage]]:
    """The links that no job feeds, with their readers."""
    fed = {stage.sink for stage in stages}
    found: dict[str, list[Stage]] = {}
    for stage in stages:
        if stage.source not in fed:
            found.setdefault(stage.source, []).append(stage)
    return found


def _ordered(stages: Sequence[Stage]) -> Iterable[Stage]:
    """Each behind all that feed it, as long as there is no circle: what runs while a composition
    is being rewired may make one."""
    left = list(stages)
    while left:
        sinks = {stage.sink for stage in left}
        ready = [stage for stage in left if stage.source not in sinks] or left
        yield from ready
        left = [stage for stage in left if stage not in ready]
