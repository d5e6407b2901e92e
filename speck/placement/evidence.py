"""The rule of evidence: what was not measured moves nothing and frees nothing. Pure.

The analyzer, every command that places, offloads, scales or advises, and the autopilot go by this
module:

- `doubt_rates` and `doubt_cost` judge what an analysis reports of a job: the records and bytes of
  its two ends, and what a record costs. Only figures without doubt become flows and loads.
- `reconcile` makes one rate of a link of what was measured at its ends, or says why there is none.
- A flow without evidence is named (`Problem.unmeasured`) rather than guessed. Both its ends stay,
  so that no job moves because of it; no sum includes it; and the sites and the uplink that carry it
  take nothing more, since nobody knows how much of them is free (`Instance.sites_for`).
- `undo_moves_without_evidence` is the last step of every policy.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from speck.model.analysis_result import AnalysedJob
from speck.placement.instance import TOLERANCE, Instance

SUFFICIENT, INSUFFICIENT = "sufficient", "insufficient"
AGREE = 0.3
"""The ends of a link agree if they differ by at most this share of the larger rate..."""
FEW_RECORDS = 20.0
"""... or by at most so many records: a burst may be in the samples of one end only."""
NOISE = 0.05
"""Outsiders feed a link if its readers take this share more than its writers send."""
QUEUE_FIT = 0.5
"""A queue grows if a line fits its length over the window at least this well (r squared)."""


class Measured(NamedTuple):
    """What was measured at one end of a link: records and bytes per second of the same samples, and
    how many seconds these cover."""

    records_per_s: float
    bytes_per_s: float
    seconds: float


class LinkRate(NamedTuple):
    """The rate of a link. `difference`: of its ends, as a share of the larger rate (0 to 1); None:
    fewer than two were measured. `doubt`: why the rate is no evidence; None: it is. All others are
    None where nothing was measured."""

    records_per_s: float | None
    bytes_per_s: float | None
    seconds: float | None
    difference: float | None
    doubt: str | None


def reconcile(
    sent: Measured | None, taken: Sequence[Measured], *, is_fed_outside: bool
) -> LinkRate:
    """One rate of a link: what its writers send together (`sent`; None if one of them was not
    measured), else what the reader takes that takes most.

    `taken`: what each reader that was measured takes, growing queues included. Readers of a link
    that outsiders feed as well (`is_fed_outside`) take more than its writers send.
    """
    most = max(taken, default=None)
    chosen = most if sent is None or (is_fed_outside and most is not None and most > sent) else sent
    if chosen is None:
        return LinkRate(None, None, None, None, "neither its writers nor its readers were measured")
    ends = [*taken] if sent is None or is_fed_outside else [sent, *taken]
    low, high = min(ends, default=chosen), max(ends, default=chosen)
    apart = high.records_per_s - low.records_per_s
    difference = (apart / high.records_per_s if high.records_per_s else 0.0) if ends[1:] else None
    doubt = None
    if difference is not None and difference > AGREE and apart * chosen.seconds > FEW_RECORDS:
        doubt = (
            f"its ends disagree: {low.records_per_s:.3g} and {high.records_per_s:.3g} records/s"
            " were measured"
        )
    return LinkRate(*chosen, difference, doubt)


def doubt_cost(report: AnalysedJob | None) -> str | None:
    """Why a job must not move: its cost is not known; None: it may.

    `report`: the job in the analysis; None if it is not there.
    """
    if report is None:
        return "it is not in the analysis"
    if report.evidence != SUFFICIENT:
        return "; ".join(report.why) or "the evidence is insufficient"
    if report.in_rate is None or report.reference_core_s_per_record is None:
        return "its cost was not measured"
    return None


def doubt_rates(report: AnalysedJob | None) -> str | None:
    """Why the records and bytes that a job reads and writes are no evidence of a flow; None: they
    are."""
    if report is None:
        return "it is not in the analysis"
    return judge_rates((report.rate_evidence, report.evidence), report.rate_why or report.why)


def judge_rates(evidence: Collection[str], why: Iterable[str]) -> str | None:
    """Why rates with this evidence, their own and that of the cost, are doubted; None: they are
    not. What suffices for a cost suffices for rates."""
    return None if SUFFICIENT in evidence else "; ".join(why) or "too few samples"


def measure_use(report: AnalysedJob | None) -> float | None:
    """Reference core-seconds per second that a running job uses; None: not known.

    The use of a job whose cost for a record is not known may still have been measured.
    """
    if report is None:
        return None
    rate, cost = report.in_rate, report.reference_core_s_per_record
    if doubt_cost(report) is None and rate is not None and cost is not None:
        return rate * cost
    return None if doubt_rates(report) is not None else report.reference_cores


def undo_moves_without_evidence(instance: Instance, sites: Mapping[str, str]) -> dict[str, str]:
    """The placement without its moves onto a closed site, and without those that put more on a
    closed uplink than it carries today."""
    kept = {name: _find_allowed_site(instance, name, site) for name, site in sites.items()}
    while exceeded := [
        site for site in instance.closed_uplinks if _is_exceeded(instance, kept, site)
    ]:
        moved = {
            end
            for flow in instance.problem.flows
            for end in (flow.start, flow.end)
            if kept[flow.start] in exceeded and kept[flow.start] != kept[flow.end]
        }
        undone = {
            name: site
            for name in moved
            if (site := instance.loads[name].site) in instance.places
            and name not in instance.fixed_sites
            and site != kept[name]
        }
        if not undone:
            break
        kept |= undone
    return kept


def _find_allowed_site(instance: Instance, name: str, site: str) -> str:
    if name in instance.fixed_sites or instance.may_be_at(name, site):
        return site
    here = instance.loads[name].site
    return here if here in instance.places else instance.sites_for(name)[0].name


def _is_exceeded(instance: Instance, sites: Mapping[str, str], site: str) -> bool:
    sent = math.fsum(
        flow.bytes_per_s
        for flow in instance.problem.flows
        if sites[flow.start] == site != sites[flow.end]
    )
    return sent > instance.closed_uplinks[site] * (1 + TOLERANCE)
