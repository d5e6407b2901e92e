"""Sites as places for jobs, from an analysis, their registration and their current state. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from speck.model.site import Site
from speck.model.values import JsonObject
from speck.placement.measurements import pick_known
from speck.placement.model import Place

_MEGABIT = 1e6 / 8
UPLINK_SHARE = 0.9
"""The share of an uplink that MQTT packets may take. The rest is for the headers of TCP, IP and
Ethernet, and for acknowledgements, which are not measured. An uplink on which more is measured is
full: producers outside may send more than crosses it, and how much they send is not known."""
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


def make_places(
    composition: str,
    analysis: JsonObject,
    sites: Mapping[str, Site],
    conditions: Mapping[str, Condition],
    others: Mapping[str, str],
) -> tuple[tuple[Place, ...], list[str]]:
    """Build the places, and notes about missing information."""
    reports: dict[str, JsonObject] = {site["name"]: site for site in analysis["sites"]}
    busy, sent_bytes, unmeasured = _sum_other_jobs(composition, analysis, others)
    places = []
    silent, without_cores, uncalibrated = [], [], []
    for name, site in sorted(sites.items()):
        condition = conditions.get(name, SILENT)
        cores = pick_known(condition.cores, reports.get(name, {}).get("cores"))
        core_speed = pick_known(condition.core_speed, reports.get(name, {}).get("pace"))
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
                else max(
                    0.0, site.uplink_mbps * _MEGABIT * UPLINK_SHARE - sent_bytes.get(name, 0.0)
                ),
                latency_ms=float(site.labels.get(LATENCY, 0.0)),
                busy=busy.get(name, 0.0),
            )
        )
    return tuple(places), _list_notes(silent, without_cores, uncalibrated, unmeasured)


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
            ("one core is assumed of sites whose number of cores is unknown", without_cores),
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


def _sum_other_jobs(
    composition: str, analysis: JsonObject, others: Mapping[str, str]
) -> tuple[dict[str, float], dict[str, float], dict[str, list[str]]]:
    """Sum up the jobs outside the composition, by site.

    Returns the reference core-seconds per second that they use, the bytes per second that leave the
    site for them, and the names of unmeasured jobs.
    """
    busy: dict[str, float] = {}
    sent_bytes: dict[str, float] = {}
    unmeasured: dict[str, list[str]] = {}
    reports = {
        job["job_name"]: job for job in analysis["jobs"] if job["composition"] != composition
    }
    sites_of_jobs = {name: job["site"] for name, job in reports.items() if not job.get("ended")}
    for name, site in sorted({**sites_of_jobs, **others}.items()):
        job = reports.get(name, {})
        rate, cost = job.get("in_rate"), job.get("reference_core_s_per_record")
        if rate is None or cost is None:
            unmeasured.setdefault(site, []).append(name)
        else:
            busy[site] = busy.get(site, 0.0) + rate * cost
        for start, end, carried, size in (
            (_site_of_end(job, "source"), site, rate, job.get("bytes_in_per_record")),
            (site, _site_of_end(job, "sink"), job.get("out_rate"), job.get("bytes_out_per_record")),
        ):
            if start is not None and end not in (None, start):
                sent_bytes[start] = sent_bytes.get(start, 0.0) + (carried or 0.0) * (size or 0.0)
    return busy, sent_bytes, unmeasured


def _site_of_end(job: JsonObject, side: str) -> str | None:
    """The site of the broker of a job's source or sink link."""
    site: str | None = (job.get(side) or {}).get("site")
    return site
