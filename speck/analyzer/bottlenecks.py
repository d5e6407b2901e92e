"""Finds bottlenecks: busy and back-pressured jobs, lagging links, full sites. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from speck.analyzer.ranking import FULL
from speck.model.analysis_result import AnalysedLink, Bottleneck
from speck.model.values import JsonObject
from speck.placement.evidence import QUEUE_FIT

BUSY = 0.8
BACK_PRESSURED = 0.1
LAG_S = 10.0
"""A lag grows if a line fits it (`QUEUE_FIT`; most lags only fluctuate) and it has grown by at
least this many seconds of the reader's input."""


def find_bottlenecks(
    jobs: Iterable[JsonObject],
    links: Iterable[AnalysedLink],
    sites: Iterable[JsonObject],
    seconds: float,
) -> tuple[Bottleneck, ...]:
    """The bottlenecks of rows of JOBS, links, and sites with their `load`, of a window of
    `seconds`; the largest value of a kind first."""
    bottlenecks = [*_list_jobs(jobs), *_list_links(links, seconds), *_list_sites(sites)]
    return tuple(sorted(bottlenecks, key=lambda each: (each.kind, -each.value, each.name)))


def _list_jobs(jobs: Iterable[JsonObject]) -> Iterator[Bottleneck]:
    for job in jobs:
        name, site, busy = job["job_name"], job["site"], job["utilisation"] or 0.0
        back = job["back_pressured"] or 0.0
        if job["ended"]:
            continue
        if busy > BUSY:
            limit = job["true_processing_rate"]
            yield Bottleneck(
                *("job", name, busy),
                f"{name} at {site} is busy for {busy * 100:.0f} % of the time: it receives"
                f" {job['in_rate'] or 0.0:.0f} records/s, its limit is"
                f" {'unknown' if limit is None else format(limit, '.0f')}",
            )
        elif back > BACK_PRESSURED:
            yield Bottleneck(
                *("job", name, back),
                f"{name} at {site} is back-pressured for {back * 100:.0f} % of the time: the broker"
                f" of its sink ({job['sink_topic'] or 'an unknown topic'}, at"
                f" {job['sink_site'] or 'an unknown site'}) or the network to it accepts less than"
                " the job sends",
            )


def _list_links(links: Iterable[AnalysedLink], seconds: float) -> Iterator[Bottleneck]:
    for link in links:
        name = "/".join(part for part in (link.broker_site, link.topic) if part is not None)
        for reader in link.readers:
            growth, rate = reader.lag_per_s or 0.0, reader.records_per_s or 0.0
            fits = (reader.lag_fit or 0.0) >= QUEUE_FIT
            if fits and growth * seconds > max(100.0, LAG_S * rate):
                yield Bottleneck(
                    *("link", name, growth),
                    f"{reader.job_name or reader.client_id} lags on {name}: {reader.lag}"
                    f" messages wait, {growth:.1f} more each second",
                )


def _list_sites(sites: Iterable[JsonObject]) -> Iterator[Bottleneck]:
    for site in sites:
        core_speed = 1.0 if site["core_speed"] is None else site["core_speed"]
        capacity = (site["cores"] or 0.0) * core_speed
        if capacity > 0 and site["load"] / capacity > FULL:
            yield Bottleneck(
                *("site", site["site"], site["load"] / capacity),
                f"{site['site']} uses {site['load']:.2f} of {capacity:.2f} reference core-seconds"
                " per second",
            )
