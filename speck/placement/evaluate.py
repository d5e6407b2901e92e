"""What a placement would be like: bytes between sites, utilisation, latency, highest rate.

A prediction from measured loads and flows, not a measurement; docs/placement.md says what is left
out. Limits that are not kept come out in words, with the limit, the place and the figures.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from speck.errors import PermanentError
from speck.placement.instance import TOLERANCE, Instance
from speck.placement.model import Kind, Problem


@dataclass(frozen=True, slots=True)
class Prediction:
    """What is to be expected of one placement of one problem, at the rates that were measured.

    `wan_bytes_per_s`: what crosses between sites; `objective`: that, and the latency's worth.
    By site: `utilisation` (share of its capacity, what is `busy` there included; None for one
    without capacity), `sent` (bytes a second that leave it), `slots` (taken by these jobs).
    `latency_ms` of the longest `path`; None when there is no job that was measured.
    `max_rate`: records a second that the composition could take in when nothing but capacity,
    subtasks and uplinks held it back, `held_by` what does so first; None when nothing is known
    to. `moves`: jobs that change their site. `notes`: what was left out.
    """

    wan_bytes_per_s: float
    objective: float
    utilisation: Mapping[str, float | None] = field(default_factory=dict)
    sent: Mapping[str, float] = field(default_factory=dict)
    slots: Mapping[str, int] = field(default_factory=dict)
    latency_ms: float | None = None
    path: tuple[str, ...] = ()
    max_rate: float | None = None
    held_by: str | None = None
    moves: tuple[str, ...] = ()
    violations: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def evaluate(problem: Problem, sites: Mapping[str, str]) -> Prediction:
    """Predict a placement; `sites` by load, for every load of the problem.

    Raises PermanentError when a load has no site, or one that is not among the places.
    """
    return predict(Instance(problem), sites)


def predict(instance: Instance, sites: Mapping[str, str]) -> Prediction:
    """As `evaluate`, for a problem that was indexed already."""
    for name in instance.loads:
        if sites.get(name) not in instance.places:
            raise PermanentError(
                f"cannot predict a placement: {name} is at {sites.get(name) or 'no site'}, "
                f"which is none of {', '.join(instance.places)}"
            )
    totals = Totals(instance, sites)
    latency, path = longest_path(instance, sites)
    max_rate, held_by = _max_rate(instance, totals)
    jobs = [load for load in instance.problem.loads if load.kind is Kind.JOB]
    measured = any(load.work is not None for load in jobs)
    return Prediction(
        wan_bytes_per_s=math.fsum(totals.sent.values()),
        objective=instance.objective(sites),
        utilisation={
            place.name: (place.busy + totals.work[place.name]) / place.capacity
            if place.capacity > 0
            else None
            for place in instance.places.values()
        },
        sent=totals.sent,
        slots=totals.slots,
        latency_ms=latency if measured else None,
        path=path if measured else (),
        max_rate=max_rate,
        held_by=held_by,
        moves=tuple(x.name for x in jobs if x.site is not None and sites[x.name] != x.site),
        violations=tuple(_violations(instance, totals, latency, path)),
        notes=tuple(_notes(instance)),
    )


class Totals:
    """By site: `work` (reference core-seconds a second), `slots`, `sent` (bytes a second)."""

    def __init__(self, instance: Instance, sites: Mapping[str, str]):
        self.sites = sites
        self.work = dict.fromkeys(instance.places, 0.0)
        self.slots = dict.fromkeys(instance.places, 0)
        self.sent = dict.fromkeys(instance.places, 0.0)
        for name in instance.loads:
            self.work[sites[name]] += instance.work[name]
            self.slots[sites[name]] += instance.slots(name)
        for flow in instance.problem.flows:
            if sites[flow.start] != sites[flow.end]:
                self.sent[sites[flow.start]] += flow.bytes_per_s


def longest_path(instance: Instance, sites: Mapping[str, str]) -> tuple[float, tuple[str, ...]]:
    """Milliseconds of the slowest way through the graph, and its loads from first to last."""
    arrival: dict[str, float] = {}
    before: dict[str, str | None] = {}
    for name in instance.order:
        came, start = max(
            (
                (arrival[f.start] + instance.network_ms(sites[f.start], sites[name]), f.start)
                for f in instance.into[name]
            ),
            default=(0.0, None),
        )
        arrival[name] = came + instance.service_ms(name, instance.places[sites[name]])
        before[name] = start
    if not arrival:
        return 0.0, ()
    # on ties the one that is fed by the other
    last: str | None = max(reversed(instance.order), key=lambda name: arrival[name])
    latency = arrival[last] if last is not None else 0.0
    path: list[str] = []
    while last is not None:
        path.append(last)
        last = before[last]
    return latency, tuple(reversed(path))


def _max_rate(instance: Instance, totals: Totals) -> tuple[float | None, str | None]:
    """By the first of all bounds that a growing rate meets; every rate grows alike."""
    bounds: list[tuple[float, str]] = []
    for place in instance.places.values():
        work, sent = totals.work[place.name], totals.sent[place.name]
        if work > 0:
            left = max(0.0, place.capacity - place.busy)
            bounds.append((left / work, f"the processor of {place.name}"))
        if place.uplink is not None and sent > 0:
            bounds.append((place.uplink / sent, f"the uplink of {place.name}"))
    for name in instance.loads:
        if instance.work[name] > 0:
            site = totals.sites[name]
            speed = instance.speed(name, instance.places[site])
            bounds.append((speed / instance.work[name], f"the subtasks of {name} at {site}"))
    if not bounds or instance.intake <= 0:
        return None, None
    factor, what = min(bounds)
    return factor * instance.intake, what


def _violations(
    instance: Instance, totals: Totals, latency: float, path: tuple[str, ...]
) -> Iterator[str]:
    limits, scale = instance.limits, instance.scale
    at = f" at min_rate {limits.min_rate:g} records/s" if scale > 1 else ""
    for place in instance.places.values():
        work, slots = totals.work[place.name] * scale, totals.slots[place.name]
        if work > 0 and work > instance.room(place) + TOLERANCE * place.capacity:
            share = f"{(place.busy + work) / place.capacity:.1%}" if place.capacity else "over"
            yield (
                f"utilisation: {place.name} would be {share} busy{at} "
                f"({place.busy + work:.3g} of {place.capacity:.3g} core-seconds a second), "
                f"{limits.utilisation:.0%} is allowed"
            )
        if place.slots is not None and slots > place.slots:
            yield f"slots: {place.name} would need {slots} slots, it has {place.slots}"
        sent = totals.sent[place.name] * scale
        if place.uplink is not None and sent > place.uplink * (1 + TOLERANCE):
            yield (
                f"uplink: {place.name} would send {sent:.0f} bytes/s{at}, "
                f"its uplink takes {place.uplink:.0f}"
            )
    for name in instance.loads:
        site = totals.sites[name]
        place = instance.places[site]
        if not instance.keeps_up(name, place):
            yield (
                f"speed: {name} at {site} would need {instance.work[name] * scale:.3g} "
                f"core-seconds a second{at}, its subtasks can use {instance.speed(name, place):.3g}"
            )
    allowed = limits.max_latency_ms
    if allowed is not None and latency > allowed * (1 + TOLERANCE):
        yield (
            f"latency: the path {' -> '.join(path)} would take {latency:.1f} ms, "
            f"{allowed:g} ms is allowed"
        )


def _notes(instance: Instance) -> Iterator[str]:
    unknown = [
        load.name for load in instance.problem.loads if load.kind is Kind.JOB and load.work is None
    ]
    if unknown:
        yield f"not measured well enough, so left out of the figures: {', '.join(unknown)}"
    if instance.limits.min_rate is not None and instance.intake <= 0:
        yield "min_rate was not checked: what the composition takes in is not known"
