"""The collector's measurements of jobs, links, engines and brokers, for GET /metrics.

A value that is not known now has no sample: neither zero nor the last value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from speck.metrics.sampler import Sampler
from speck.model.values import JsonObject

_JOB = ("composition", "job", "site")
_JOB_TOTALS = {
    "records_in": "Records that sources received since the tasks started",
    "records_out": "Records that sinks sent since the tasks started",
    "bytes_in": "Bytes of MQTT packets that sources received since the tasks started",
    "bytes_out": "Bytes of MQTT packets that sinks sent since the tasks started",
    "restarts": "Restarts of the job by its engine",
}
_JOB_SHARES = {
    "busy": ("speck_job_busy_ratio", "Share of time in which the busiest subtask worked"),
    "idle": ("speck_job_idle_ratio", "Share of time in which it waited for input"),
    "back_pressured": (
        "speck_job_back_pressured_ratio",
        "Share of time in which it waited for space in its output",
    ),
}
_ENGINE = {
    "cores": ("speck_engine_cores", "Cores that the engine may use"),
    "memory_bytes": ("speck_engine_memory_bytes", "Memory of the engine's workers"),
    "heap_used_bytes": ("speck_engine_heap_used_bytes", "Used heap of the engine's workers"),
}
_BROKER_TOTALS = {
    "messages_in": "Messages that the broker received",
    "messages_out": "Messages that the broker sent",
    "bytes_in": "Bytes that the broker received",
    "bytes_out": "Bytes that the broker sent",
}
_BROKER = {
    "queued": ("speck_broker_queued", "Messages queued for readers"),
    "clients": ("speck_broker_clients", "Connections"),
}


def collect_samples(sampler: Sampler) -> Iterator[Metric]:
    """All metric families; they are empty when nothing is collected."""
    jobs = sampler.rate_jobs()
    for name, about in _JOB_TOTALS.items():
        counter = CounterMetricFamily(f"speck_job_{name}", about, labels=_JOB)
        yield _fill(counter, ((_job(job), job[name]) for job in jobs))
    for key, (name, about) in _JOB_SHARES.items():
        gauge = GaugeMetricFamily(name, about, labels=_JOB)
        yield _fill(gauge, ((_job(job), job[key]) for job in jobs))
    lag = GaugeMetricFamily(
        "speck_link_lag",
        "Messages sent that a reader has not yet received",
        labels=("site", "topic", "reader"),
    )
    ends = (
        (row["broker_site"], row["topic"], row["client_id"], row) for row in sampler.list_links()
    )
    yield _fill(lag, (((s, t, c), row["lag"]) for s, t, c, row in ends if row["role"] == "reader"))
    yield from _by_site(sampler.list_engines(), {}, _ENGINE, "speck_engine")
    yield from _by_site(sampler.list_brokers(), _BROKER_TOTALS, _BROKER, "speck_broker")
    polls = CounterMetricFamily("speck_collector_looks", "Polls that were answered")
    polls.add_metric([], sampler.polls)
    gaps = CounterMetricFamily("speck_collector_gaps", "Polls that were not answered in time")
    gaps.add_metric([], sampler.gaps)
    yield polls
    yield gaps


def _by_site(
    measures_by_site: Mapping[str, object],
    totals: Mapping[str, str],
    gauges: Mapping[str, tuple[str, str]],
    prefix: str,
) -> Iterator[Metric]:
    def values(name: str) -> Iterable[tuple[tuple[str, ...], float | None]]:
        return (((site,), getattr(measures, name)) for site, measures in measures_by_site.items())

    for name, about in totals.items():
        yield _fill(CounterMetricFamily(f"{prefix}_{name}", about, labels=["site"]), values(name))
    for key, (name, about) in gauges.items():
        yield _fill(GaugeMetricFamily(name, about, labels=["site"]), values(key))


def _fill(
    family: CounterMetricFamily | GaugeMetricFamily,
    values: Iterable[tuple[tuple[str, ...], float | None]],
) -> Metric:
    add: Callable[[tuple[str, ...], float], None] = family.add_metric
    for labels, value in values:
        if value is not None:
            add(labels, value)
    return family


def _job(job: JsonObject) -> tuple[str, str, str]:
    return (job["composition"] or "", job["job_name"], job["site"])
