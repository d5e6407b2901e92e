"""Builds the placement problem from an analysis, a composition and its sites. Pure.

Unmeasured figures are not guessed: such a job stays where it is, an unmeasured flow is left out of
the sums, before and after alike, and reported, and what carries it takes no more load.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from speck.model.analysis_result import AnalysisResult
from speck.model.site import Site
from speck.placement.heaps import Heaps
from speck.placement.instance import close_places
from speck.placement.measurements import Measurements, load_name_of, locate
from speck.placement.model import Candidate, Kind, Limits, Load, Place, Problem
from speck.placement.move_costs import DEFAULT_SILENCES, Silences, expect_silence
from speck.placement.places import (
    ANY_HOSTING,
    NO_CORES,
    SILENT,
    Condition,
    Hosting,
    make_places,
)
from speck.placement.wiring import At, Wiring


@dataclass(frozen=True, slots=True)
class Question:
    """A placement problem in two forms: `problem` for policies, `whole` for evaluation.

    In `problem` a link that can follow its single reader to any site is a flow; in `whole` every
    link is a load of its own.
    `rates`: known records per second by link; `doubts`: by job, why its figures are no evidence;
    `unmeasured`: flows (`start -> end`) that no sum includes; `closed`: by site, why it takes no
    job or link that is not there already; `silences`: of jobs that move; `silent`: sites that do
    not answer; `hosting`: what runs the jobs.
    """

    problem: Problem
    whole: Problem
    wiring: Wiring
    rates: Mapping[At, float]
    notes: tuple[str, ...] = ()
    doubts: Mapping[str, str] = field(default_factory=dict)
    unmeasured: tuple[str, ...] = ()
    closed: Mapping[str, str] = field(default_factory=dict)
    silences: Silences = DEFAULT_SILENCES
    silent: frozenset[str] = frozenset()
    hosting: Hosting = ANY_HOSTING

    def today(self) -> dict[str, str]:
        """The current site of each load of `whole`."""
        return {load.name: load.site for load in self.whole.loads if load.site is not None}


def pose_question(
    wiring: Wiring,
    composition: str,
    analysis: AnalysisResult,
    sites: Mapping[str, Site],
    conditions: Mapping[str, Condition],
    limits: Limits,
    others: Mapping[str, str] | None = None,
    silences: Silences = DEFAULT_SILENCES,
    *,
    moves_unmeasured: bool = False,
    hosting: Hosting = ANY_HOSTING,
) -> Question:
    """Build the question from the measurements in `analysis` (see docs/metrics.md).

    `others`: the site of each running job outside the composition; `silences`: of jobs that move.
    `moves_unmeasured`: what was not measured may move, and closes no site. `hosting`: what runs the
    jobs.
    """
    silent = {name for name in sites if not conditions.get(name, SILENT).answers}
    wiring = wiring.fix(_find_links_used_outside(analysis), silent)
    heaps = Heaps(analysis, hosting.apart)
    measurements = Measurements(wiring, composition, analysis, heaps)
    flows, unmeasured = measurements.flows()
    fixed_names = {end for flow in unmeasured for end in flow[:2]}
    loads = [*map(measurements.load, wiring.jobs), *map(measurements.link_load, wiring.links)]
    loads += measurements.feeders()
    loads = [_keep_in_place(load) if load.name in fixed_names else load for load in loads]
    loads = [expect_silence(load, silences) for load in loads]
    loads = [replace(each, barred=hosting.barred.get(each.name, {})) for each in loads]
    places, site_notes = make_places(composition, analysis, sites, conditions, others or {})
    places = _add_uses_without_cost(places, measurements)
    whole = Problem(
        tuple(loads),
        tuple(flows),
        tuple(_limit_memory(places, composition, loads, heaps)),
        limits,
        tuple(_list_candidates(composition, analysis)),
        tuple(unmeasured),
        moves_unmeasured,
    )
    closed = {place.name: place.closed for place in close_places(whole) if place.closed}
    links = {load_name_of(link) for link in wiring.links if _can_follow(wiring, link, closed)}
    return Question(
        problem=_contract_links(whole, links - fixed_names),
        whole=whole,
        wiring=wiring,
        rates=measurements.rates,
        notes=(
            *site_notes,
            *_describe_forecasts(analysis, measurements.rates),
            *(_describe_unmeasured(start, end) for start, end in unmeasured),
            *_describe_closed(closed),
        ),
        doubts=measurements.doubts(),
        unmeasured=tuple(f"{start} -> {end}" for start, end in unmeasured),
        closed=closed,
        silences=silences,
        silent=frozenset(silent),
        hosting=hosting,
    )


def _describe_closed(closed: Mapping[str, str]) -> Iterator[str]:
    """Why sites take no more load. Those without a known number of cores are named together, by the
    notes on sites."""
    for site, why in closed.items():
        if why != NO_CORES:
            yield f"{site} takes no more load: {why}"


def _add_uses_without_cost(
    places: Iterable[Place], measurements: Measurements
) -> tuple[Place, ...]:
    """The places with what the composition's jobs use of them that stay for lack of a cost. A site
    where a job's use is not known either is closed."""
    by_name = {place.name: place for place in places}
    for job, used in measurements.uses_without_cost():
        place = by_name.get(job.site)
        if place is not None and used is None:
            why = place.closed or f"the load of {job.name} was not measured"
            by_name[job.site] = replace(place, closed=why)
        elif place is not None and used is not None:
            by_name[job.site] = replace(place, busy=place.busy + used)
    return tuple(by_name.values())


def _limit_memory(
    places: Iterable[Place], composition: str, loads: Iterable[Load], heaps: Heaps
) -> Iterator[Place]:
    """The places with the memory that is available to the composition."""
    own_jobs = [load for load in loads if load.kind is Kind.JOB and load.slots]
    for place in places:
        available = heaps.count_available(composition, own_jobs, place.name)
        yield replace(place, memory_bytes=available)


def _describe_unmeasured(start: str, end: str) -> str:
    return f"{start} -> {end} was not measured: it is left out of all sums, and both ends stay"


def _keep_in_place(load: Load) -> Load:
    """A job without its figures, so that it stays; a topic pinned to its site."""
    if load.kind is Kind.JOB:
        return replace(load, core_s_per_record=None, rate=None)
    return replace(load, pinned=load.site)


def _can_follow(wiring: Wiring, link: At, closed: Collection[str]) -> bool:
    """Whether the link has a single reader, and can be wherever that is: a reader may be already at
    a closed site, to which the link may not go."""
    if not wiring.is_movable(link) or len(wiring.readers[link]) != 1:
        return False
    site = wiring.readers[link][0].site
    return site == link.site or site not in closed


def _contract_links(whole: Problem, names: set[str]) -> Problem:
    """Replace the named links by flows from each writer to their single reader."""
    reader = {flow.start: flow.end for flow in whole.flows if flow.start in names}
    flows = tuple(
        replace(flow, end=reader.get(flow.end, flow.end))
        for flow in whole.flows
        if flow.start not in names
    )
    loads = tuple(load for load in whole.loads if load.name not in names)
    return replace(whole, loads=loads, flows=flows)


def _find_links_used_outside(analysis: AnalysisResult) -> set[At]:
    """Links that a client outside speck feeds or reads, declared or not."""
    return {
        locate(link.broker_site, link.topic)
        for link in analysis.links
        if any(end.job_name is None for end in (*link.producers, *link.readers))
    }


def _list_candidates(composition: str, analysis: AnalysisResult) -> list[Candidate]:
    """The composition's jobs in the order of the analyzer's ranking."""
    return [
        Candidate(row.job_name, row.edge, row.score, row.against)
        for row in analysis.ranking
        if row.composition == composition
    ]


def _describe_forecasts(analysis: AnalysisResult, rates: Mapping[At, float]) -> list[str]:
    """A note on each link whose forecast is what the placement plans for."""
    return [
        f"planned for the forecast of {locate(each.site, each.topic)}: up to {each.high:.4g}"
        f" records/s until {each.at} ({each.method}"
        + ("" if each.mape is None else f", mean error {each.mape:.0%}")
        + ")"
        for each in analysis.forecast or ()
        if rates.get(locate(each.site, each.topic)) == each.high > 0
    ]
