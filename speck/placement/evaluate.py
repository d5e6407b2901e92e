"""Predicts a placement: bytes between sites, utilisation, latency, highest rate.

It is a prediction from measured loads and flows, not a measurement; docs/placement.md says what it
leaves out. A violated limit is described by a sentence with the limit, the site and the figures.
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
    """The prediction for one placement of one problem, at the measured rates.

    `wan_bytes_per_s`: bytes per second between sites; `objective`: the same plus the latency cost.
    By site: `utilisation` (share of its capacity, including `busy`; None without capacity), `cores`
    (of its own that its engine uses, including `busy`; None without capacity), `sent` (bytes per
    second that leave it), `slots` and `memory` (bytes; used by these jobs).
    `in_rate`: records per second that enter the composition, for which all this is predicted.
    `latency_ms`: of the longest `path`; None if no job was measured. `max_rate`: records per second
    that the composition could take in if only capacity, subtasks and uplinks limited it, and
    `held_by` the first of them to do so; None if no limit is known. `moves`: jobs that change their
    site. `notes`: what the figures leave out.
    """

    wan_bytes_per_s: float
    objective: float
    utilisation: Mapping[str, float | None] = field(default_factory=dict)
    cores: Mapping[str, float | None] = field(default_factory=dict)
    sent: Mapping[str, float] = field(default_factory=dict)
    slots: Mapping[str, int] = field(default_factory=dict)
    memory: Mapping[str, float] = field(default_factory=dict)
    in_rate: float = 0.0
    latency_ms: float | None = None
    path: tuple[str, ...] = ()
    max_rate: float | None = None
    held_by: str | None = None
    moves: tuple[str, ...] = ()
    violations: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def evaluate(problem: Problem, sites: Mapping[str, str]) -> Prediction:
    """Predict a placement; `sites` by load, for every load of the problem.

    Raises PermanentError if a load has no site, or an unknown one.
    """
    return predict(Instance(problem), sites)


def predict(instance: Instance, sites: Mapping[str, str]) -> Prediction:
    """As `evaluate`, for a problem that is already indexed."""
    for name in instance.loads:
        if sites.get(name) not in instance.places:
            raise PermanentError(
                f"cannot predict a placement: {name} is at {sites.get(name) or 'no site'}, "
                f"which is none of {', '.join(instance.places)}"
            )
    totals = Totals(instance, sites)
    latency, path = find_longest_path(instance, sites)
    max_rate, held_by = _find_max_rate(instance, totals)
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
        cores={
            place.name: (place.busy + totals.work[place.name]) / place.core_speed
            if place.core_speed > 0
            else None
            for place in instance.places.values()
        },
        sent=totals.sent,
        slots=totals.slots,
        memory=totals.memory,
        in_rate=instance.intake,
        latency_ms=latency if measured else None,
        path=path if measured else (),
        max_rate=max_rate,
        held_by=held_by,
        moves=tuple(x.name for x in jobs if x.site is not None and sites[x.name] != x.site),
        violations=tuple(_list_violations(instance, totals, latency, path)),
        notes=tuple(_list_notes(instance)),
    )


class Totals:
    """By site: `work` (reference core-seconds per second), `slots`, `sent` (bytes per second),
    `memory` (bytes)."""

    def __init__(self, instance: Instance, sites: Mapping[str, str]):
        self.sites = sites
        self.work = dict.fromkeys(instance.places, 0.0)
        self.slots = dict.fromkeys(instance.places, 0)
        self.sent = dict.fromkeys(instance.places, 0.0)
        self.memory = dict.fromkeys(instance.places, 0.0)
        for name in instance.loads:
            self.work[sites[name]] += instance.work[name]
            self.slots[sites[name]] += instance.slots_of(name)
            self.memory[sites[name]] += instance.memory_of(name)
        for flow in instance.problem.flows:
            if sites[flow.start] != sites[flow.end]:
                self.sent[sites[flow.start]] += flow.bytes_per_s


def find_longest_path(
    instance: Instance, sites: Mapping[str, str]
) -> tuple[float, tuple[str, ...]]:
    """The latency (ms) of the slowest path through the graph, and its loads from first to last."""
    arrival: dict[str, float] = {}
    previous: dict[str, str | None] = {}
    for name in instance.order:
        input_at, start = max(
            (
                (
                    arrival[f.start] + instance.network_ms_between(sites[f.start], sites[name]),
                    f.start,
                )
                for f in instance.into[name]
            ),
            default=(0.0, None),
        )
        arrival[name] = input_at + instance.service_ms_of(name, instance.places[sites[name]])
        previous[name] = start
    if not arrival:
        return 0.0, ()
    # on ties the last one in the order: it may be downstream of the other
    last: str | None = max(reversed(instance.order), key=lambda name: arrival[name])
    latency = arrival[last] if last is not None else 0.0
    path: list[str] = []
    while last is not None:
        path.append(last)
        last = previous[last]
    return latency, tuple(reversed(path))


def _find_max_rate(instance: Instance, totals: Totals) -> tuple[float | None, str | None]:
    """The rate that reaches the first bound, and that bound; all rates grow by one factor."""
    bounds: list[tuple[float, str]] = []
    for place in instance.places.values():
        work, sent = totals.work[place.name], totals.sent[place.name]
        if work > 0:
            capacity_left = max(0.0, place.capacity - place.busy)
            bounds.append((capacity_left / work, f"the processor of {place.name}"))
        if place.uplink is not None and sent > 0:
            bounds.append((place.uplink / sent, f"the uplink of {place.name}"))
    for name in instance.loads:
        if instance.work[name] > 0:
            site = totals.sites[name]
            speed = instance.speed_of(name, instance.places[site])
            bounds.append((speed / instance.work[name], f"the subtasks of {name} at {site}"))
    if not bounds or instance.intake <= 0:
        return None, None
    factor, limiting_factor = min(bounds)
    return factor * instance.intake, limiting_factor


@dataclass(frozen=True, slots=True)
class SiteSums:
    """What loads use of a site: `work` (reference core-seconds per second), `slots`, `sent` (bytes
    per second that leave it), `memory` (bytes)."""

    work: float
    slots: int
    sent: float
    memory: float


def list_site_violations(instance: Instance, site: str, sums: SiteSums) -> Iterator[str]:
    """The limits of a site that these sums (at the rate that is asked for) exceed, in words."""
    limits, place = instance.limits, instance.places[site]
    at_rate = f" at min_rate {limits.min_rate:g} records/s" if instance.scale > 1 else ""
    memory = place.memory_bytes
    if memory is not None and sums.memory > memory * (1 + TOLERANCE):
        yield (
            f"memory: jobs at {site} need {sums.memory / 1e6:.0f} MB, "
            f"{max(0.0, memory) / 1e6:.0f} MB are free"
        )
    work = sums.work
    if work > 0 and work > instance.room_at(place) + TOLERANCE * place.capacity:
        share = f"{(place.busy + work) / place.capacity:.1%}" if place.capacity else "over"
        yield (
            f"utilisation: {site} would be {share} busy{at_rate} "
            f"({place.busy + work:.3g} of {place.capacity:.3g} core-seconds a second), "
            f"{limits.utilisation:.0%} is allowed"
        )
    if place.slots is not None and sums.slots > place.slots:
        unit = "slot" if sums.slots == 1 else "slots"
        yield f"slots: {site} would need {sums.slots} {unit}, it has {place.slots}"
    if place.uplink is not None and sums.sent > place.uplink * (1 + TOLERANCE):
        yield (
            f"uplink: {site} would send {sums.sent:.0f} bytes/s{at_rate}, "
            f"its uplink takes {place.uplink:.0f}"
        )
    today = instance.closed_uplinks.get(site)
    if today is not None and sums.sent > today * instance.scale * (1 + TOLERANCE):
        yield (
            f"uplink: {site} would send {sums.sent - today * instance.scale:.0f} bytes/s more than "
            f"today, and how much its uplink carries is not known ({place.uplink_closed})"
        )


def _list_violations(
    instance: Instance, totals: Totals, latency: float, path: tuple[str, ...]
) -> Iterator[str]:
    limits, scale = instance.limits, instance.scale
    at_rate = f" at min_rate {limits.min_rate:g} records/s" if scale > 1 else ""
    for site in instance.places:
        sums = SiteSums(
            totals.work[site] * scale,
            totals.slots[site],
            totals.sent[site] * scale,
            totals.memory[site],
        )
        yield from list_site_violations(instance, site, sums)
    for name in instance.loads:
        site = totals.sites[name]
        place = instance.places[site]
        if not instance.keeps_up(name, place):
            yield (
                f"speed: {name} at {site} would need {instance.work[name] * scale:.3g} "
                f"core-seconds a second{at_rate}, "
                f"its subtasks can use {instance.speed_of(name, place):.3g}"
            )
    max_latency_ms = limits.max_latency_ms
    if max_latency_ms is not None and latency > max_latency_ms * (1 + TOLERANCE):
        yield (
            f"latency: the path {' -> '.join(path)} would take {latency:.1f} ms, "
            f"{max_latency_ms:g} ms is allowed"
        )


def _list_notes(instance: Instance) -> Iterator[str]:
    unmeasured = [
        load.name for load in instance.problem.loads if load.kind is Kind.JOB and load.work is None
    ]
    if unmeasured:
        yield f"left out of the figures for lack of measurements: {', '.join(unmeasured)}"
    if instance.limits.min_rate is not None and instance.intake <= 0:
        yield "min_rate was not checked: the input rate of the composition is unknown"
