"""What the collector knows of jobs, links, engines and brokers, for GET /metrics.

What is not known now has no sample: neither a zero nor the last value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from speck.metrics.sampler import Sampler
from speck.model.values import JsonObject

_JOB = ("composition", "job", "site")
_JOB_TOTALS = {
    "records_in": "Records that sources took in since the tasks began",
    "records_out": "Records that sinks gave out since the tasks began",
    "bytes_in": "Bytes of MQTT packets that sources took in since the tasks began",
    "bytes_out": "Bytes of MQTT packets that sinks sent since the tasks began",
    "restarts": "Restarts of the job by its engine",
}
_JOB_SHARES = {
    "busy": ("speck_job_busy_ratio", "Share of time in which the busiest subtask worked"),
    "idle": ("speck_job_idle_ratio", "Share of time in which it waited for input"),
    "back_pressured": (
        "speck_job_back_pressured_ratio",
        "Share of time in which it waited for room in its output",
    ),
}
_ENGINE = {
    "cores": ("speck_engine_cores", "Cores that the engine may use"),
    "memory_bytes": ("speck_engine_memory_bytes", "Memory of the engine's workers"),
    "heap_used_bytes": ("speck_engine_heap_used_bytes", "Used of the heap of its workers"),
}
_BROKER_TOTALS = {
    "messages_in": "Messages that the broker received",
    "messages_out": "Messages that the broker sent",
    "bytes_in": "Bytes that the broker received",
    "bytes_out": "Bytes that the broker sent",
}
_BROKER = {
    "queued": ("speck_broker_queued", "Messages kept for readers"),
    "clients": ("speck_broker_clients", "Connections"),
}


def collected(sampler: Sampler) -> Iterator[Metric]:
    """All families; empty ones when nothing is collected."""
    jobs = sampler.rate_jobs()
    for name, about in _JOB_TOTALS.items():
        counter = CounterMetricFamily(f"speck_job_{name}", about, labels=_JOB)
        yield _filled(counter, ((_job(job), job[name]) for job in jobs))
    for key, (name, about) in _JOB_SHARES.items():
        gauge = GaugeMetricFamily(name, about, labels=_JOB)
        yield _filled(gauge, ((_job(job), job[key]) for job in jobs))
    lag = GaugeMetricFamily(
        "speck_link_lag",
        "Messages sent and not yet taken by a reader",
        labels=("site", "topic", "reader"),
    )
    ends = (
        (row["broker_site"], row["topic"], row["client_id"], row) for row in sampler.list_links()
    )
    yield _filled(
        lag, (((s, t, c), row["lag"]) for s, t, c, row in ends if row["role"] == "reader")
    )
    yield from _by_site(sampler.list_engines(), {}, _ENGINE, "speck_engine")
    yield from _by_site(sampler.list_brokers(), _BROKER_TOTALS, _BROKER, "speck_broker")
    polls = CounterMetricFamily("speck_collector_looks", "Looks that were answered")
    polls.add_metric([], sampler.polls)
    gaps = CounterMetricFamily("speck_collector_gaps", "Looks that were not answered in time")
    gaps.add_metric([], sampler.gaps)
    yield polls
    yield gaps


def _by_site(
    told: Mapping[str, object],
    totals: Mapping[str, str],
    gauges: Mapping[str, tuple[str, str]],
    prefix: str,
) -> Iterator[Metric]:
    def values(name: str) -> Iterable[tuple[tuple[str, ...], float | None]]:
        return (((site,), getattr(measures, name)) for site, measures in told.items())

    for name, about in totals.items():
        yield _filled(CounterMetricFamily(f"{prefix}_{name}", about, labels=["site"]), values(name))
    for key, (name, about) in gauges.items():
        yield _filled(GaugeMetricFamily(name, about, labels=["site"]), values(key))


def _filled(
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
