"""Sites as places for jobs, from an analysis, their registration and their current state. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from speck.model.analysis_result import AnalysedJob, AnalysisResult
from speck.model.site import Site
from speck.placement.evidence import doubt_rates, measure_use
from speck.placement.measurements import pick_known
from speck.placement.model import Place

_MEGABIT = 1e6 / 8
UPLINK_SHARE = 0.9
"""The share of an uplink that messages may take. The rest is for the headers of TCP, IP and
Ethernet, and for acknowledgements, which are not measured. An uplink on which more is measured is
full: producers outside may send more than crosses it, and how much they send is not known."""
NO_CORES = "its number of cores is unknown"
LATENCY = "latency_ms"
"""The label of a site with its one-way latency to the core of the network."""


@dataclass(frozen=True, slots=True)
class Condition:
    """The current state of a site.

    `free`: its free slots; `held`: slots that the composition's own jobs use; `cores` and
    `core_speed`: from the calibration. None: unknown.
    """

    answers: bool = True
    free: int | None = None
    held: int = 0
    cores: float | None = None
    core_speed: float | None = None


SILENT = Condition(answers=False)


@dataclass(frozen=True, slots=True)
class Hosting:
    """What runs the jobs. `barred`: by job of the composition, the sites that cannot run it, with
    the reasons; `apart`: jobs of any composition that are processes of their own, and so take
    nothing of an engine's heap."""

    barred: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    apart: frozenset[str] = frozenset()


ANY_HOSTING = Hosting()
"""Every site can run every job, in its engine."""


def make_places(
    composition: str,
    analysis: AnalysisResult,
    sites: Mapping[str, Site],
    conditions: Mapping[str, Condition],
    others: Mapping[str, str],
) -> tuple[tuple[Place, ...], list[str]]:
    """Build the places, and notes about missing information."""
    reports = {site.name: site for site in analysis.sites}
    use = _sum_other_jobs(composition, analysis, others)
    places = []
    silent, without_cores, uncalibrated = [], [], []
    for name, site in sorted(sites.items()):
        condition = conditions.get(name, SILENT)
        report = reports.get(name)
        cores = pick_known(condition.cores, report.cores if report else None)
        core_speed = pick_known(condition.core_speed, report.core_speed if report else None)
        silent += [] if condition.answers else [name]
        without_cores += [name] if cores is None else []
        uncalibrated += [name] if core_speed is None else []
        slots = None if condition.free is None else condition.free + condition.held
        places.append(
            Place(
                name=name,
                tier=str(site.tier),
                cores=1.0 if cores is None else cores,
                core_speed=1.0 if core_speed is None else core_speed,
                slots=slots if condition.answers else condition.held,
                uplink=None
                if site.uplink_mbps is None
                else max(0.0, site.uplink_mbps * _MEGABIT * UPLINK_SHARE - use.sent.get(name, 0.0)),
                latency_ms=float(site.labels.get(LATENCY, 0.0)),
                busy=use.busy.get(name, 0.0),
                closed=use.say_unmeasured(name) or (NO_CORES if cores is None else None),
                uplink_closed=use.unmeasured_uplinks.get(name),
            )
        )
    return tuple(places), _list_notes(silent, without_cores, uncalibrated, use.unmeasured)


def _list_notes(
    silent: list[str],
    without_cores: list[str],
    uncalibrated: list[str],
    unmeasured: Mapping[str, list[str]],
) -> list[str]:
    """Sentences on sites of which something is unknown; `unmeasured`: other jobs, by site."""
    notes = [
        f"{what}: {', '.join(names)}"
        for what, names in (
            ("no job is moved to or from sites that do not answer", silent),
            ("no load is moved to sites whose number of cores is unknown", without_cores),
            (
                "cores are assumed as fast as the reference's at sites that are not calibrated",
                uncalibrated,
            ),
        )
        if names
    ]
    notes += [
        f"the load of other jobs on site {name} was not measured: {', '.join(names)}"
        for name, names in sorted(unmeasured.items())
    ]
    return notes


@dataclass(frozen=True, slots=True)
class _OtherJobs:
    """What jobs outside the composition use, by site: reference core-seconds per second (`busy`),
    and bytes per second that leave it for them (`sent`). `unmeasured`: the names of those whose
    use is not known; `unmeasured_uplinks`: why it is not known what they send from there."""

    busy: dict[str, float] = field(default_factory=dict)
    sent: dict[str, float] = field(default_factory=dict)
    unmeasured: dict[str, list[str]] = field(default_factory=dict)
    unmeasured_uplinks: dict[str, str] = field(default_factory=dict)

    def say_unmeasured(self, site: str) -> str | None:
        """Why the load of the site is not known; None: it is."""
        names = self.unmeasured.get(site)
        return f"the load of {', '.join(names)} was not measured" if names else None


def _sum_other_jobs(
    composition: str, analysis: AnalysisResult, others: Mapping[str, str]
) -> _OtherJobs:
    use = _OtherJobs()
    reports = {job.job_name: job for job in analysis.jobs if job.composition != composition}
    sites_of_jobs = {name: job.site for name, job in reports.items() if not job.ended}
    for name, site in sorted({**sites_of_jobs, **others}.items()):
        report = reports.get(name)
        used = measure_use(report)
        if used is None:
            use.unmeasured.setdefault(site, []).append(name)
        else:
            use.busy[site] = use.busy.get(site, 0.0) + used
        if report is not None:
            _add_sent(use, name, site, report)
    return use


def _add_sent(use: _OtherJobs, name: str, site: str, report: AnalysedJob) -> None:
    """Add what the job's two ends send from site to site."""
    is_known = doubt_rates(report) is None
    for start, end, rate, size in (
        (report.source.site, site, report.in_rate, report.bytes_in_per_record),
        (site, report.sink.site, report.out_rate, report.bytes_out_per_record),
    ):
        if start is None or end in (None, start):
            continue
        if is_known and rate is not None and (size is not None or rate == 0):
            use.sent[start] = use.sent.get(start, 0.0) + rate * (size or 0.0)
        else:
            use.unmeasured_uplinks.setdefault(start, f"the flow of {name} was not measured")
