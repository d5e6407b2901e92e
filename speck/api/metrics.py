"""GET /metrics: Prometheus metrics about speck, in a separate registry for each application.

With a thousand sites the state of all of them takes longer to write than a scraper should wait: a
thread keeps it ready. What is counted as it happens is read at each scrape.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Histogram, ProcessCollector, generate_latest
from prometheus_client import Counter as CounterMetric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from speck.api.work import SampleText
from speck.model.change import ChangeHead
from speck.service import Service
from speck.service.status import SiteView

LOG = logging.getLogger(__name__)

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)


KEPT_S = 1.0
"""How long the state is kept before it is written again, at least."""
_SHARE = 20
"""Writing the state takes at most this part of the time, one twentieth."""


class Metrics:
    """Counts requests as they end, and keeps the state of the store and of the sites ready."""

    def __init__(self, service: Service):
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self._registry.register(_Counts(service))
        self._state = _KeptState(service)
        self._requests = CounterMetric(
            "speck_http_requests",
            "Answered requests",
            ["method", "route", "status"],
            registry=self._registry,
        )
        self._seconds = Histogram(
            "speck_http_request_seconds",
            "Time from a request to its response in seconds, including waits",
            ["method", "route"],
            buckets=_SECONDS,
            registry=self._registry,
        )

    def observe(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request that was answered."""
        self._requests.labels(method, route, str(status)).inc()
        self._seconds.labels(method, route).observe(seconds)

    def text(self) -> bytes:
        """All metrics in Prometheus' text format, version 0.0.4."""
        return generate_latest(self._registry) + self._state.text()


class _KeptState:
    """The text of the state: with many sites ready for the next scrape, otherwise written for
    it."""

    def __init__(self, service: Service):
        self._service = service
        self._samples = SampleText(service.records, service.sampler.latest)
        self._registry = CollectorRegistry()
        self._registry.register(_State(service))
        self._writing = threading.Lock()
        self._text: bytes | None = None
        threading.Thread(target=self._keep, name="metrics-text", daemon=True).start()

    def text(self) -> bytes:
        """The state as it is, or was a moment ago. Raises SpeckError, as reading it does."""
        text = self._text
        return text if text is not None else self._write()

    def _write(self) -> bytes:
        with self._writing:
            return generate_latest(self._registry) + self._samples.write().encode()

    def _keep(self) -> None:
        """Write the state again and again while there are many sites, until the service ends."""
        took_s = 0.0
        while not self._service.closing.wait(max(KEPT_S, took_s * (_SHARE - 1))):
            text, began = None, time.monotonic()
            if len(self._service.records.sites.all()) >= self._service.config.poller_sites:
                try:
                    text = self._write()
                except Exception as error:  # the next scrape answers with it
                    LOG.info("cannot keep the metrics ready: %s", error)
            self._text, took_s = text, time.monotonic() - began


class _Counts(Collector):
    """What is counted as it happens."""

    def __init__(self, service: Service):
        self._service = service

    def describe(self) -> Iterator[Metric]:
        """Nothing; see `_State.describe`."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """All counters."""
        watch, sampler = self._service.watch, self._service.sampler
        repairs = CounterMetricFamily("speck_jobs_mended", "Jobs that the watch restarted")
        repairs.add_metric([], watch.repairs.count)
        yield repairs
        polls = CounterMetricFamily(
            "speck_polls", "Completed polls of single sites by the watch", labels=["at"]
        )
        for subject, count in watch.polls.items():
            polls.add_metric([subject], count)
        yield polls
        polls = CounterMetricFamily("speck_collector_polls", "Polls that were answered")
        polls.add_metric([], sampler.polls)
        yield polls
        gaps = CounterMetricFamily("speck_collector_gaps", "Polls that were not answered in time")
        gaps.add_metric([], sampler.gaps)
        yield gaps


class _State(Collector):
    """The state of the store and of the sites."""

    def __init__(self, service: Service):
        self._service = service
        self._lock = threading.Lock()
        # operations of changes that have ended
        self._ended: dict[str, Counter[tuple[str, str]]] = {}

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """Nothing; otherwise the registry would collect once just to learn the names."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """All gauges."""
        sites = self._service.sites.all()
        up = GaugeMetricFamily(
            "speck_site_up",
            "Whether the site's engine answers; no sample before its first poll",
            labels=["site"],
        )
        free = GaugeMetricFamily("speck_site_slots_free", "Free task slots", labels=["site"])
        for site in sites:
            if site.polled_at is not None:
                up.add_metric([site.name], float(site.engine_version is not None))
            if site.slots.free is not None:
                free.add_metric([site.name], site.slots.free)
        yield up
        yield free
        jobs: Counter[tuple[str, ...]] = Counter(
            {(state,): count for state, count in self._service.jobs.count_states().items()}
        )
        yield _gauge("speck_jobs", "Jobs by observed state", ["state"], jobs)
        changes = self._service.changes.all()
        by_state: Counter[tuple[str, ...]] = Counter((str(c.state),) for c in changes)
        yield _gauge("speck_changes", "Changes by state", ["state"], by_state)
        yield from self._collect_watch(sites)
        operations = self._operations(changes)
        yield _gauge("speck_operations", "Operations of all changes", ["kind", "state"], operations)

    def _collect_watch(self, sites: list[SiteView]) -> Iterator[Metric]:
        states: Counter[tuple[str, ...]] = Counter((str(site.state),) for site in sites)
        yield _gauge("speck_sites", "Sites by state", ["state"], states)
        memory = self._service.watch.sessions.memory
        for name, about, by_site in (
            ("speck_messages_dropped", "Messages that brokers dropped", memory.dropped),
            ("speck_messages_lost", "Messages that readers will never receive", memory.lost),
        ):
            family = CounterMetricFamily(name, about, labels=["site"])
            for site, count in sorted(by_site.items()):
                family.add_metric([site], count)
            yield family
        family = CounterMetricFamily(
            "speck_sessions_lost",
            "Readers' sessions that brokers lost; messages of publishers that do not send them"
            " again may be lost",
            labels=["site", "topic", "reader"],
        )
        for lost, count in sorted(self._service.watch.sessions.lost_sessions.counts.items()):
            family.add_metric([lost.site, lost.topic, lost.reader], count)
        yield family
        yield from self._collect_links()

    def _collect_links(self) -> Iterator[Metric]:
        losses = sorted(self._service.board.all_losses().items())
        left_out = CounterMetricFamily(
            "speck_records_left_out",
            "Records that sinks left out since no broker would take them",
            labels=["job"],
        )
        lost = CounterMetricFamily(
            "speck_records_lost", "Records that jobs lost as their settings allow", labels=["job"]
        )
        for name, each in losses:
            if each.records_left_out:
                left_out.add_metric([name], each.records_left_out)
            if each.records_lost:
                lost.add_metric([name], each.records_lost)
        yield left_out
        yield lost
        problems: Counter[tuple[str, ...]] = Counter(
            {(job,): 1 for job in self._service.board.find_link_problems()}
        )
        yield _gauge(
            "speck_link_problem", "1 for a job that cannot read or write a link", ["job"], problems
        )

    def _operations(self, changes: list[ChangeHead]) -> Counter[tuple[str, ...]]:
        total: Counter[tuple[str, ...]] = Counter()
        with self._lock:
            for change in changes:
                counts = self._ended.get(change.id)
                if counts is None:
                    operations = self._service.changes.get(change.id).operations
                    counts = Counter((o.kind, str(o.state)) for o in operations)
                    if change.state.over:
                        self._ended[change.id] = counts
                total.update(counts)
        return total


def _gauge(
    name: str, about: str, labels: list[str], counts: Counter[tuple[str, ...]]
) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, about, labels=labels)
    for values, count in sorted(counts.items()):
        family.add_metric(list(values), count)
    return family
