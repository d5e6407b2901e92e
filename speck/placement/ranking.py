"""The ranking of jobs for edges: that of the analysis, or one by the same formula.

The analyzer ranks jobs by the bytes that each saves at its edge for each core-second of that edge
(`speck.analyzer.ranking`): `(bytes in - bytes out) / (work / core speed of the edge)`, where bytes
in are those produced at that edge minus those produced at no edge. A problem that was not made from
an analysis has no ranking; `rank_loads` then applies the formula to its flows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from speck.placement.instance import CLOUD, Instance
from speck.placement.model import Candidate, Kind

TIE = 0.99
"""Scores within this factor of the next one are ties."""

WHOLE = 0.995
"""Share of its input from which on a job counts as fed by one edge."""

Shares = Mapping[str | None, float]
"""Edge -> share of the bytes that are produced there; None: produced at no edge."""


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
    return _sort(instance, candidates)


def find_origins(instance: Instance) -> dict[str, Shares]:
    """By load: at which edges its input is produced, and the share of each in its input bytes.

    Of a load without inputs, and of a topic that cannot move: where its own output is produced.
    """
    origins: dict[str, Shares] = {}
    for name in instance.order:
        inputs = instance.into[name]
        site = instance.fixed_sites.get(name)
        if not inputs or (instance.loads[name].kind is not Kind.JOB and site is not None):
            site = site or instance.loads[name].site
            place = instance.places.get(site or "")
            origins[name] = {site if place is not None and place.tier != CLOUD else None: 1.0}
            continue
        total = sum(flow.bytes_per_s for flow in inputs)
        shares: dict[str | None, float] = {}
        for flow in inputs:
            weight = flow.bytes_per_s / total if total > 0 else 1 / len(inputs)
            for origin, share in origins[flow.start].items():
                shares[origin] = shares.get(origin, 0.0) + weight * share
        origins[name] = shares
    return origins


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


def _sort(instance: Instance, candidates: Sequence[Candidate]) -> tuple[Candidate, ...]:
    """By score, best first; among ties stateless jobs first, then those of unknown state."""

    def key(each: Candidate) -> tuple[bool, float, str]:
        return each.score is None, -(each.score or 0.0), each.name

    ordered = sorted(candidates, key=key)
    keyed: list[tuple[int, int, tuple[bool, float, str], Candidate]] = []
    tie, above = 0, None
    for each in ordered:
        if above is not None and (each.score is None or _is_apart(each.score, above)):
            tie += 1
        above = each.score
        stateful = {False: 0, None: 1, True: 2}[instance.loads[each.name].stateful]
        keyed.append((tie, stateful, key(each), each))
    return tuple(entry[3] for entry in sorted(keyed, key=lambda entry: entry[:3]))


def _is_apart(score: float, above: float) -> bool:
    # of two negative scores the higher one is closer to 0
    return score < TIE * above if above > 0 else score < above / TIE
