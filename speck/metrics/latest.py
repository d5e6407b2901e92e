"""The newest samples of all sites, in memory: for rates, `GET /metrics` and the requirements."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from speck.metrics.rates import Pair, compute_job_rates
from speck.metrics.rows import Row, Samples, TaskKey, discount_first_lag, update_samples
from speck.model.incarnation import Incarnation
from speck.model.job_rates import JobRates
from speck.model.measurement import BrokerMeasures, EngineMeasures, LinkMeasure
from speck.model.observation import BrokerView


@dataclass(slots=True)
class _Site:
    """The results of the last polls of one site; `polled` counts its changes."""

    samples: Samples = field(default_factory=dict)
    by_job: Mapping[str, list[Pair]] = field(default_factory=dict)
    """Engine job id -> the last two different samples of each of its tasks."""
    engine: EngineMeasures | None = None
    broker: BrokerMeasures | None = None
    links: list[Row] = field(default_factory=list)
    first_lags: Mapping[str, int] = field(default_factory=dict)
    """See `speck.metrics.rows.discount_first_lag`."""
    polled: int = 0


class LatestSamples:
    """Thread-safe. A site that did not answer has no samples until it answers again."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sites: dict[str, _Site] = {}

    def put_engine(self, site: str, at: datetime, measures: EngineMeasures) -> Samples:
        """Note what an engine reported; returns the last two different samples of each task."""
        with self._lock:
            state = self._sites.setdefault(site, _Site())
            state.engine = measures
            state.samples = samples = update_samples(at, measures, state.samples)
            state.by_job = _group_by_job(samples)
            state.polled += 1
            return samples

    def put_broker(
        self, site: str, measures: BrokerMeasures, view: BrokerView, rows: list[Row]
    ) -> list[Row]:
        """Note what a broker reported; returns the rows with the lag of new readers discounted."""
        with self._lock:
            state = self._sites.setdefault(site, _Site())
            state.links, state.first_lags = discount_first_lag(rows, view, state.first_lags)
            state.broker = measures
            state.polled += 1
            return state.links

    def forget(self, part: str, site: str) -> None:
        """Forget the former results of an `engine` or a `broker` that did not answer."""
        with self._lock:
            state = self._sites.get(site)
            if state is None:
                return
            state.polled += 1
            if part == "engine":
                state.engine, state.samples, state.by_job = None, {}, {}
            else:
                state.broker, state.links = None, []

    def keep_only(self, sites: Collection[str]) -> None:
        """Drop the sites that were removed."""
        with self._lock:
            for name in self._sites.keys() - set(sites):
                del self._sites[name]

    def polled(self, site: str) -> int:
        """A number that changes whenever what is known of a site does."""
        state = self._sites.get(site)
        return state.polled if state else 0

    def rate_job(self, incarnation: Incarnation) -> JobRates:
        """Rates of an incarnation between its last two different samples, and its reader's lag.

        None for unknown values. See `speck.metrics.rates.compute_job_rates`.
        """
        job_id = incarnation.engine_job_id
        with self._lock:
            state = self._sites.get(incarnation.job.site, _Site())
            pairs = state.by_job.get(job_id, [])
            measure = state.engine.jobs.get(job_id) if state.engine else None
            links = self._sites.get(incarnation.job.source_site, _Site()).links
        name = incarnation.job.job_name
        readers = (row for row in links if row["job_name"] == name and row["role"] == "reader")
        lag = next((row["lag"] for row in readers), None)
        rates = compute_job_rates(pairs)
        if measure is not None and measure.restarts is not None:
            # in a crash loop the tasks report nothing new
            rates = replace(rates, restarts=measure.restarts)
        return replace(rates, lag=lag)

    def link(self, incarnation: Incarnation) -> LinkMeasure | None:
        """What an incarnation's connector reported last of its links."""
        engine = self.engine(incarnation.job.site)
        measure = engine.jobs.get(incarnation.engine_job_id) if engine else None
        return measure.link if measure else None

    def engine(self, site: str) -> EngineMeasures | None:
        """The measures of an engine; None if it did not answer its last poll."""
        state = self._sites.get(site)
        return state.engine if state else None

    def broker(self, site: str) -> BrokerMeasures | None:
        """The measures of a broker; None if it did not answer its last poll."""
        state = self._sites.get(site)
        return state.broker if state else None

    def list_links(self, site: str | None = None) -> list[Row]:
        """The newest rows of the ends of all links, or of those at one site's broker."""
        with self._lock:
            if site is not None:
                return self._sites.get(site, _Site()).links
            return [row for _, each in sorted(self._sites.items()) for row in each.links]


def _group_by_job(samples: Samples) -> dict[str, list[Pair]]:
    by_job: dict[str, list[Pair]] = {}
    key: TaskKey
    for key, pair in samples.items():
        by_job.setdefault(key[0], []).append(pair)
    return by_job
