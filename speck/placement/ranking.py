"""The ranking of jobs for edges: that of the analysis, or one by the same formula.

The analyzer ranks jobs by the bytes that each saves at its edge for each core-second of that edge
(`speck.analyzer.ranking`): `(bytes in - bytes out) / (work / core speed of the edge)`, where bytes
in are those that enter the system at that edge minus those that enter it at no edge. A problem that
was not made from an analysis has no ranking; `rank_loads` then applies the formula to its flows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from speck.placement.instance import Instance
from speck.placement.model import Candidate, Flow, Kind
from speck.placement.origins import Origin, Tracer, sum_by_edge

TIE = 0.99
"""Scores within this factor of the next one are ties."""

WHOLE = 0.995
"""Share of its input from which on a job counts as fed by one edge."""

Shares = Mapping[str | None, float]
"""Edge -> share of the bytes that enter the system there; None: at a site that is no edge."""

Item = TypeVar("Item")


def rank_loads(instance: Instance) -> tuple[Candidate, ...]:
    """The jobs in the order of the ranking, those without a score last."""
    if instance.problem.ranking:
        return tuple(each for each in instance.problem.ranking if each.name in instance.loads)
    origins = find_origins(instance)
    candidates = [
        _rate(instance, load.name, origins[load.name])
        for load in instance.problem.loads
        if load.kind is Kind.JOB
    ]
    ordered = sort_by_score(
        candidates,
        lambda each: each.score,
        lambda each: instance.loads[each.name].stateful,
        lambda each: each.name,
    )
    return tuple(ordered)


def find_origins(instance: Instance) -> dict[str, Shares]:
    """By load: at which edges its input enters the system, and the share of each in its input bytes
    (`speck.placement.origins`). Of a load of which they are not known they are empty."""
    edges = {place.name for place in instance.edges}
    tracer = _trace(instance)
    origins: dict[str, Shares] = {}
    for name in instance.loads:
        mix = tracer.trace(name)
        origins[name] = sum_by_edge(mix, edges) if mix.is_known else {}
    return origins


def _trace(instance: Instance) -> Tracer[str]:
    """Data enters at ends outside speck, and at topics and jobs that nothing feeds."""
    tracer: Tracer[str] = Tracer()
    unmeasured = [] if instance.problem.moves_unmeasured else instance.problem.unmeasured
    for flow in instance.problem.flows:
        tracer.flow(flow.start, flow.end, _weigh(instance, flow))
    for start, end in unmeasured:
        tracer.flow(start, end, None)
    fed = {flow.end for flow in instance.problem.flows} | {end for _, end in unmeasured}
    for name in instance.loads.keys() - fed:
        load = instance.loads[name]
        site = instance.fixed_sites.get(name) or load.site
        if load.kind is Kind.JOB:
            tracer.enter(name, Origin("job", name), None)
        elif site is not None:
            tracer.enter(name, Origin("site", site), None)
    return tracer


def _weigh(instance: Instance, flow: Flow) -> float:
    """Bytes per second of a flow. What outsiders send to a topic never crosses between sites, so
    its flow may have records only; then they are as large as those that the topic passes on."""
    if flow.bytes_per_s or not flow.records_per_s:
        return flow.bytes_per_s
    out = instance.out[flow.end]
    records = sum(each.records_per_s for each in out)
    return flow.records_per_s * sum(each.bytes_per_s for each in out) / records if records else 0.0


def _rate(instance: Instance, name: str, shares: Shares) -> Candidate:
    edges = sorted(edge for edge in shares if edge is not None)
    edge = max(edges, key=lambda site: shares[site], default=None)
    if edge is None or instance.loads[name].work is None:
        return Candidate(name, edge, None)
    bytes_in = sum(flow.bytes_per_s for flow in instance.into[name])
    bytes_out = sum(flow.bytes_per_s for flow in instance.out[name])
    saved = bytes_in * (shares[edge] - shares.get(None, 0.0)) - bytes_out
    work = instance.work[name] / (instance.places[edge].core_speed or 1.0)
    return Candidate(name, edge, saved / work if work > 0 else None)


def sort_by_score(
    items: Iterable[Item],
    score_of: Callable[[Item], float | None],
    stateful_of: Callable[[Item], bool | None],
    name_of: Callable[[Item], Any],
) -> list[Item]:
    """By score, best first; among ties stateless jobs first, then those of unknown state; those
    without a score last."""

    def key(item: Item) -> tuple[bool, float, Any]:
        score = score_of(item)
        return score is None, -(score or 0.0), name_of(item)

    keyed: list[tuple[tuple[int, int, tuple[bool, float, Any]], Item]] = []
    tie, above = 0, None
    for item in sorted(items, key=key):
        score = score_of(item)
        if above is not None and (score is None or _is_apart(score, above)):
            tie += 1
        above = score
        stateful = {False: 0, None: 1, True: 2}[stateful_of(item)]
        keyed.append(((tie, stateful, key(item)), item))
    return [item for _, item in sorted(keyed, key=lambda entry: entry[0])]


def _is_apart(score: float, above: float) -> bool:
    # of two negative scores the higher one is closer to 0
    return score < TIE * above if above > 0 else score < above / TIE
