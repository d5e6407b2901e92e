"""An analysis, a composition and its sites -> the question that policies answer. Pure.

Rates go through the composition by topic: a job is offered what its producers send, by their own
offered rate and selectivity, and not what it takes; so one that is behind shows its real load.
What was not measured is not guessed: such a job stays where it is, and what flows between two of
them is left out of the sums, before and after alike, and told.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from speck.model.site import Site
from speck.model.values import JsonObject
from speck.placement.model import Flow, Kind, Limits, Load, Place, Problem
from speck.placement.wiring import At, WiredJob, Wiring

_MEGABIT = 1e6 / 8
LATENCY = "latency_ms"
"""The label of a site that says its one-way latency to the core of the network."""


@dataclass(frozen=True, slots=True)
class Condition:
    """How a site is now.

    `free`: its free slots; `held`: those that the composition's own jobs hold; `cores` and
    `pace`: calibrated. None: not known.
    """

    answers: bool = True
    free: int | None = None
    held: int = 0
    cores: float | None = None
    pace: float | None = None


_SILENT = Condition(answers=False)


@dataclass(frozen=True, slots=True)
class Question:
    """The problem for policies, where a link of one reader is no load but a flow, and the same
    with every link a load of its own (`whole`): the one to evaluate with, before and after.

    `rates`: records a second by link, where they are known; `doubts`: by job, why its figures
    are not to be trusted; `unmeasured`: what flows from where to where and is in no sum.
    """

    problem: Problem
    whole: Problem
    wiring: Wiring
    rates: Mapping[At, float]
    notes: tuple[str, ...] = ()
    doubts: Mapping[str, str] = field(default_factory=dict)
    unmeasured: tuple[str, ...] = ()

    def today(self) -> dict[str, str]:
        """Where each load of `whole` is now."""
        return {load.name: load.site for load in self.whole.loads if load.site is not None}


def outside_name(link: At) -> str:
    """The name of the load that stands for what feeds a link from outside."""
    return f"outside:{link.site}/{link.topic}"


def load_name(link: At) -> str:
    """The name of a link's load: no job's name holds a colon."""
    return f"topic:{link.site}/{link.topic}"


def question(
    wiring: Wiring,
    composition: str,
    analysis: JsonObject,
    sites: Mapping[str, Site],
    conditions: Mapping[str, Condition],
    limits: Limits,
    others: Mapping[str, str] | None = None,
) -> Question:
    """What is to be placed, by what `analysis` (see docs/metrics.md) has measured.

    `others`: the site of every job that runs and is not of the composition.
    """
    silent = {name for name in sites if not conditions.get(name, _SILENT).answers}
    wiring = wiring.held(_used_outside(analysis), silent)
    measured = _Measured(wiring, composition, analysis)
    flows, unknown = measured.flows()
    stay = {end for flow in unknown for end in flow[:2]}
    loads = [*map(measured.load, wiring.jobs), *map(measured.link_load, wiring.links)]
    loads += measured.feeders()
    loads = [_kept(load) if load.name in stay else load for load in loads]
    places, told = _places(composition, analysis, sites, conditions, others or {})
    whole = Problem(tuple(loads), tuple(flows), places, limits)
    single = [
        link for link in wiring.links if _single(wiring, link) and load_name(link) not in stay
    ]
    return Question(
        problem=_contracted(whole, {load_name(link) for link in single}),
        whole=whole,
        wiring=wiring,
        rates=measured.rates,
        notes=(*told, *(_left_out(start, end) for start, end in unknown)),
        doubts=measured.doubts(),
        unmeasured=tuple(f"{start} -> {end}" for start, end in unknown),
    )


def _left_out(start: str, end: str) -> str:
    return f"{start} -> {end} was not measured: its bytes are in no sum, and both stay"


def _kept(load: Load) -> Load:
    """The load without evidence; a topic is pinned where it is."""
    if load.kind is Kind.JOB:
        return replace(load, core_s_per_record=None, rate=None)
    return replace(load, pinned=load.site)


def _single(wiring: Wiring, link: At) -> bool:
    return wiring.open(link) and len(wiring.readers[link]) == 1


def _contracted(whole: Problem, single: set[str]) -> Problem:
    """The problem with the links of one reader as flows from each writer to that reader."""
    reader = {flow.start: flow.end for flow in whole.flows if flow.start in single}
    flows = tuple(
        replace(flow, end=reader.get(flow.end, flow.end))
        for flow in whole.flows
        if flow.start not in single
    )
    loads = tuple(load for load in whole.loads if load.name not in single)
    return replace(whole, loads=loads, flows=flows)


class _Measured:
    """What the analysis says of the composition's jobs, and what follows for its links."""

    def __init__(self, wiring: Wiring, composition: str, analysis: JsonObject):
        self._wiring = wiring
        self._jobs: dict[str, JsonObject] = {
            job["job_name"]: job for job in analysis["jobs"] if job["composition"] == composition
        }
        self._outside = _fed_from_outside(composition, analysis)
        self._queues = _queues(analysis)
        self.rates: dict[At, float] = {}
        self._fed: dict[At, float] = {}
        self._given: dict[str, float | None] = {}
        for job in wiring.order:
            rate = self._rate(job.source)
            self._given[job.name] = self._output(job, rate)
        for link in wiring.links:
            self._rate(link)

    def doubts(self) -> dict[str, str]:
        """Why a job's figures are not to be trusted, by job."""
        found = {}
        for job in self._wiring.jobs:
            told = self._jobs.get(job.name)
            if job.stopped:
                continue
            if told is None:
                found[job.name] = "it is not in the analysis"
            elif told["evidence"] != "sufficient":
                found[job.name] = "; ".join(told["why"]) or "the evidence is insufficient"
            elif (told["contended"] or 0.0) > _CONTENDED:
                share = told["contended"]
                found[job.name] = f"{share:.0%} of its samples are from a busy machine"
        return found

    def load(self, job: WiredJob) -> Load:
        """The job as a load; without figures when it is stopped or was not measured well."""
        cost = self._of(job, "reference_core_s_per_record")
        rate = self.rates.get(job.source)
        told = self._jobs.get(job.name, {})
        sure = not job.stopped and told.get("evidence") == "sufficient"
        known = sure and cost is not None and rate is not None
        state = told.get("state_bytes")
        return Load(
            name=job.name,
            core_s_per_record=cost if known else None,
            rate=rate if known else None,
            slots=job.slots,
            site=job.site,
            pinned=job.site if job.pinned else None,
            stateful=told.get("stateful"),
            state_bytes=None if state is None else int(state),
        )

    def link_load(self, link: At) -> Load:
        """The link as a load; one that something outside uses cannot move."""
        free = self._wiring.open(link)
        return Load(
            name=load_name(link),
            kind=Kind.TOPIC,
            core_s_per_record=0.0,
            rate=self.rates.get(link, 0.0),
            slots=0,
            site=link.site,
            pinned=None if free else link.site,
            stateful=False,
        )

    def feeders(self) -> list[Load]:
        """What feeds links from outside, as loads."""
        return [
            Load(
                name=outside_name(link),
                kind=Kind.END,
                core_s_per_record=0.0,
                rate=rate,
                slots=0,
                site=link.site,
                pinned=link.site,
                stateful=False,
            )
            for link, rate in sorted(self._fed.items())
        ]

    def flows(self) -> tuple[list[Flow], list[tuple[str, str]]]:
        """Flows between jobs and links, and the (start, end) of those that are not known."""
        found = [
            Flow(outside_name(link), load_name(link), rate, 0.0)
            for link, rate in sorted(self._fed.items())
        ]
        unknown: list[tuple[str, str]] = []
        for start, end, rate, size in self._ends():
            if rate is None or (size is None and rate > 0):
                unknown.append((start, end))
            else:
                found.append(Flow(start, end, rate, rate * (size or 0.0)))
        return found, unknown

    def _ends(self) -> Iterable[tuple[str, str, float | None, float | None]]:
        """(start, end, records a second, bytes a record) of each job's two ends."""
        for job in self._wiring.jobs:
            if job.stopped:
                continue
            source, sink = job.source, job.sink
            writers = self._wiring.writers.get(source, ())
            size = _first(self._of(job, "bytes_in_per_record"), self._size(writers, "out"))
            yield load_name(source), job.name, self.rates.get(source), size
            readers = self._wiring.readers.get(sink, ())
            size = _first(self._of(job, "bytes_out_per_record"), self._size(readers, "in"))
            yield job.name, load_name(sink), self._given[job.name], size

    def _size(self, jobs: Iterable[WiredJob], side: str) -> float | None:
        """The mean of what was measured at the other ends of a link."""
        told = [self._of(job, f"bytes_{side}_per_record") for job in jobs]
        known = [size for size in told if size is not None]
        return sum(known) / len(known) if known else None

    def _rate(self, link: At) -> float | None:
        """Records a second that the link carries, once all its writers have been seen to."""
        writers = [w for w in self._wiring.writers.get(link, ()) if not w.stopped]
        sent = [rate for w in writers if (rate := self._given.get(w.name)) is not None]
        taken = [
            rate + self._queues.get((link, reader.name), 0.0)
            for reader in self._wiring.readers.get(link, ())
            if (rate := self._of(reader, "in_rate")) is not None
        ]
        if len(sent) < len(writers):  # what was taken is the best that is known
            if not taken:
                return None
            self.rates[link] = max(sum(sent), *taken)
            return self.rates[link]
        outside = self._from_outside(link, writers, taken)
        if outside is None and not writers:
            return None
        if outside:
            self._fed[link] = outside
        self.rates[link] = sum(sent) + (outside or 0.0)
        return self.rates[link]

    def _from_outside(self, link: At, writers: list[WiredJob], taken: list[float]) -> float | None:
        """Records a second that something outside the composition sends; None: not known."""
        told = self._outside.get(link)
        if not writers:
            return max((rate for rate in (told, *taken) if rate is not None), default=None)
        if told is not None or link not in self._wiring.fixed:
            return told
        ours = sum(self._of(writer, "out_rate") or 0.0 for writer in writers)
        more = max(taken, default=0.0) - ours
        return more if more > _NOISE * ours else None

    def _output(self, job: WiredJob, rate: float | None) -> float | None:
        selectivity = self._of(job, "selectivity")
        if job.stopped:
            return 0.0
        if rate is None or selectivity is None:
            return self._of(job, "out_rate")
        return rate * selectivity

    def _of(self, job: WiredJob, name: str) -> float | None:
        told = self._jobs.get(job.name)
        return None if told is None or told.get(name) is None else float(told[name])


_CONTENDED = 0.5
"""A job of whose samples more than this share is from a busy machine is not trusted."""
_QUEUE_FIT = 0.5
"""A queue grows when a line through its length over the window fits so well (r squared)."""
_NOISE = 0.05
"""Readers of a link take so much more than its writers send before somebody else feeds it."""


def _used_outside(analysis: JsonObject) -> set[At]:
    """Links that somebody outside speck feeds or reads, whether that was declared or not."""
    return {
        At(link["broker_site"], link["topic"])
        for link in analysis["links"]
        if any(end["job_name"] is None for end in (*link["producers"], *link["readers"]))
    }


def _fed_from_outside(composition: str, analysis: JsonObject) -> dict[At, float]:
    """Records a second from producers outside speck, by link, where they tell them."""
    found: dict[At, float] = {}
    for link in analysis["links"]:
        outside = [p for p in link["producers"] if p["job_name"] is None]
        if outside and all(p["records_per_s"] is not None for p in outside):
            at = At(link["broker_site"], link["topic"])
            rate = sum(float(p["records_per_s"]) for p in outside)
            found[at] = max(rate, found.get(at, 0.0))
    return found


def _queues(analysis: JsonObject) -> dict[tuple[At, str], float]:
    """By link and reading job, by how many records a second its queue grows: what comes is what it
    takes and this."""
    found: dict[tuple[At, str], float] = {}
    for link in analysis["links"]:
        at = At(link["broker_site"], link["topic"])
        for reader in link["readers"]:
            growth, fit = reader.get("lag_per_s") or 0.0, reader.get("lag_fit") or 0.0
            if reader["job_name"] is not None and growth > 0 and fit >= _QUEUE_FIT:
                found[at, reader["job_name"]] = float(growth)
    return found


def _places(
    composition: str,
    analysis: JsonObject,
    sites: Mapping[str, Site],
    conditions: Mapping[str, Condition],
    others: Mapping[str, str],
) -> tuple[tuple[Place, ...], list[str]]:
    """The sites, and what is to be told about them."""
    told: dict[str, JsonObject] = {site["name"]: site for site in analysis["sites"]}
    busy, sent, unmeasured = _others(composition, analysis, others)
    places, notes = [], []
    for name, site in sorted(sites.items()):
        now = conditions.get(name, _SILENT)
        cores = _first(now.cores, told.get(name, {}).get("cores"))
        pace = _first(now.pace, told.get(name, {}).get("pace"))
        if not now.answers:
            notes.append(f"site {name} does not answer: nothing is moved there or away")
        if cores is None:
            notes.append(f"how many cores site {name} has is not known: 1 is assumed")
        if pace is None:
            notes.append(f"site {name} is not calibrated: its cores are taken for the reference's")
        if unmeasured.get(name):
            names = ", ".join(unmeasured[name])
            notes.append(f"what other jobs take of site {name} was not measured: {names}")
        free = None if now.free is None else now.free + now.held
        places.append(
            Place(
                name=name,
                tier=str(site.tier),
                cores=1.0 if cores is None else cores,
                pace=1.0 if pace is None else pace,
                slots=free if now.answers else now.held,
                uplink=None
                if site.uplink_mbps is None
                else max(0.0, site.uplink_mbps * _MEGABIT - sent.get(name, 0.0)),
                latency_ms=float(site.labels.get(LATENCY, 0.0)),
                busy=busy.get(name, 0.0),
            )
        )
    return tuple(places), notes


def _others(
    composition: str, analysis: JsonObject, others: Mapping[str, str]
) -> tuple[dict[str, float], dict[str, float], dict[str, list[str]]]:
    """Of jobs outside the composition, by site: reference core-seconds a second that they use,
    bytes a second that leave it for them, and the names of those that were not measured."""
    busy: dict[str, float] = {}
    sent: dict[str, float] = {}
    unmeasured: dict[str, list[str]] = {}
    told = {job["job_name"]: job for job in analysis["jobs"] if job["composition"] != composition}
    running = {name: job["site"] for name, job in told.items() if not job.get("ended")}
    for name, site in sorted({**running, **others}.items()):
        job = told.get(name, {})
        rate, cost = job.get("in_rate"), job.get("reference_core_s_per_record")
        if rate is None or cost is None:
            unmeasured.setdefault(site, []).append(name)
        else:
            busy[site] = busy.get(site, 0.0) + rate * cost
        for start, end, carried, size in (
            (_end(job, "source"), site, rate, job.get("bytes_in_per_record")),
            (site, _end(job, "sink"), job.get("out_rate"), job.get("bytes_out_per_record")),
        ):
            if start is not None and end not in (None, start):
                sent[start] = sent.get(start, 0.0) + (carried or 0.0) * (size or 0.0)
    return busy, sent, unmeasured


def _end(job: JsonObject, side: str) -> str | None:
    """The site of the broker of one of a job's links."""
    site: str | None = (job.get(side) or {}).get("site")
    return site


def _first(*values: Any) -> float | None:
    """The first that is known."""
    return next((float(value) for value in values if value is not None), None)
