"""Turns measures of engines and brokers into rows of the dataset. Pure; time is a parameter.

A counter that was not reported is null. An engine may answer from its cache: values that are equal
to the previous ones make no row. Since busy, idle and back-pressured time of a living task always
grow, such values are stale. Their growth is also the true time between two samples, whatever their
age when they were read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any

from speck.metrics.dataset.schema import ALONE
from speck.model.composition import visible_name
from speck.model.ids import sink_client_id, source_client_id
from speck.model.incarnation import Incarnation, Session
from speck.model.link import Link
from speck.model.measurement import (
    COUNTS,
    TIMES,
    BrokerMeasures,
    EngineMeasures,
    Host,
    JobMeasure,
    PlanNode,
    TaskMeasure,
)
from speck.model.observation import BrokerView
from speck.model.site import Calibration, Site

Row = dict[str, Any]
MOMENT_MS = 50.0
"""Samples of a task that are closer than this are one moment, from which no rate follows."""

TaskKey = tuple[str, str, int]
"""(engine job id, vertex, subtask)"""


@dataclass(frozen=True, slots=True)
class Sample:
    """The values of one task at one poll of its engine."""

    at: datetime
    job: JobMeasure
    task: TaskMeasure


Samples = Mapping[TaskKey, tuple[Sample | None, Sample]]
"""The last two different samples of each task, the older first."""


def composition_of(scope: str) -> str:
    """The partition of a scope's rows."""
    return visible_name(scope) or ALONE


def update_samples(at: datetime, measures: EngineMeasures, before: Samples) -> Samples:
    """Add the samples of this poll; a task without new values keeps its former samples.

    Tasks of jobs that are not in `measures` are dropped.
    """
    samples: dict[TaskKey, tuple[Sample | None, Sample]] = {}
    for job in measures.jobs.values():
        for task in job.tasks:
            key = (job.engine_job_id, task.vertex, task.subtask)
            previous = before.get(key)
            if previous is not None and _is_stale(previous[1], job, task):
                samples[key] = previous
            elif previous is not None:
                samples[key] = (previous[1], Sample(at, job, task))
            else:
                samples[key] = (None, Sample(at, job, task))
    return samples


def _is_stale(before: Sample, job: JobMeasure, now: TaskMeasure) -> bool:
    """Whether the values are repeated, or from the same moment as the previous ones.

    An engine may fetch twice in a row, and even out of order; the next poll has what is missing.
    Equal values of a task that reports no times are not stale: it may have been idle.
    """
    tells_times = any(getattr(now, name) is not None for name in TIMES)
    if tells_times and _counters_of(before.task) == _counters_of(now):
        return True
    old, new = before.task.lived_ms, now.lived_ms
    if old is None or new is None or before.job.restarts != job.restarts:
        return False
    return abs(new - old) < MOMENT_MS


def _counters_of(task: TaskMeasure) -> tuple[float | None, ...]:
    return tuple(getattr(task, name) for name in (*TIMES, *COUNTS))


def make_task_rows(
    at: datetime,
    samples: Samples,
    incarnations: Mapping[tuple[str, str], Incarnation],
    host: Host,
) -> list[Row]:
    """Rows for the samples that were new at `at`, for incarnations that speck deployed."""
    by_job_id = {
        incarnation.engine_job_id: (scope, incarnation)
        for (scope, _), incarnation in incarnations.items()
    }
    rows = []
    for (job_id, _, _), (_, sample) in samples.items():
        if sample.at != at or job_id not in by_job_id:
            continue
        scope, incarnation = by_job_id[job_id]
        job, task = sample.job, sample.task
        rows.append(
            {
                "at": at,
                "composition": composition_of(scope),
                "job_name": incarnation.job.job_name,
                "site": incarnation.job.site,
                "engine_job_id": job_id,
                "attempt": incarnation.attempt,
                "vertex": task.vertex,
                "subtask": task.subtask,
                "subtasks": task.subtasks,
                "is_source": task.is_source,
                "is_sink": task.is_sink,
                "busy_ms": task.busy_ms,
                "idle_ms": task.idle_ms,
                "back_pressured_ms": task.back_pressured_ms,
                "cpu_ms": task.cpu_ms,
                "records_in": task.records_in,
                "records_out": task.records_out,
                "bytes_in": task.bytes_in,
                "bytes_out": task.bytes_out,
                "restarts": job.restarts,
                "checkpoint_id": job.checkpoint_id,
                "checkpoint_bytes": job.checkpoint_bytes,
                "checkpoint_ms": job.checkpoint_ms,
                "host_cpu": host.cpu,
            }
        )
    return rows


def make_plan_rows(
    at: datetime,
    scope: str,
    incarnation: Incarnation,
    nodes: Iterable[PlanNode],
    *,
    pinned: bool = False,
    stateful: bool | None = None,
    source_is_input: bool = False,
) -> list[Row]:
    """One row for each task of an incarnation.

    `pinned`, `stateful` and `source_is_input` are the user's current declarations; None: not
    declared.
    """
    job = incarnation.job
    return [
        {
            "at": at,
            "composition": composition_of(scope),
            "job_name": job.job_name,
            "site": job.site,
            "engine_job_id": incarnation.engine_job_id,
            "vertex": node.id,
            "description": node.description,
            "parallelism": node.parallelism,
            "ship_strategies": None
            if node.inputs is None
            else [strategy for _, strategy in node.inputs],
            "source_site": job.source_site,
            "source_topic": job.source.topic,
            "sink_site": job.sink_site,
            "sink_topic": job.sink.topic,
            "pinned": pinned,
            "stateful": stateful,
            "source_is_input": source_is_input,
        }
        for node in nodes
    ]


def make_site_row(
    at: datetime,
    site: Site,
    measures: EngineMeasures,
    host: Host,
    calibration: Calibration | None,
) -> Row:
    """One row. Without a calibration, `cores` is what the engine reports, `core_speed` null."""
    cores = calibration.cores if calibration else None
    return {
        "at": at,
        "site": site.name,
        "tier": str(site.tier),
        "slots_total": measures.slots_total,
        "slots_free": measures.slots_free,
        "cores": measures.cores if cores is None else cores,
        "core_speed": calibration.core_speed if calibration else None,
        "cpu_ms": measures.cpu_ms,
        "memory_bytes": measures.memory_bytes,
        "heap_used_bytes": measures.heap_used_bytes,
        "heap_max_bytes": measures.heap_max_bytes,
        "host_cpu": host.cpu,
        "host_cores": host.cores,
        "uplink_mbps": site.uplink_mbps,
    }


def make_broker_row(at: datetime, site: str, measures: BrokerMeasures) -> Row:
    """One row."""
    return {
        "at": at,
        "site": site,
        "messages_in": measures.messages_in,
        "messages_out": measures.messages_out,
        "bytes_in": measures.bytes_in,
        "bytes_out": measures.bytes_out,
        "dropped": measures.dropped,
        "queued": measures.queued,
        "clients": measures.clients,
        "uptime_s": measures.uptime_s,
    }


@dataclass(frozen=True)
class Ends:
    """Producers and readers of all links.

    All incarnations by (scope, job), the readers outside speck, and the installation, which is part
    of client ids. One object serves a poll of all sites, so that the properties are computed once.
    """

    installation: str
    incarnations: Mapping[tuple[str, str], Incarnation]
    sessions: Sequence[tuple[str, Session]] = ()

    @cached_property
    def sinks(self) -> Mapping[Link, list[str]]:
        """Link -> client ids of its present and former sinks."""
        clients: dict[Link, list[str]] = {}
        for incarnation in self.incarnations.values():
            job = incarnation.job
            for link in job.port:
                client_id = sink_client_id(self.installation, job.job_name, job.source, link)
                sinks = (client_id, *incarnation.former_sinks_of(link))
                clients.setdefault(link, []).extend(sinks)
        return clients

    @cached_property
    def by_site(self) -> Mapping[str, list[tuple[str, Incarnation]]]:
        """Site of a broker -> (scope, incarnation) of its producers and readers."""
        by_site: dict[str, list[tuple[str, Incarnation]]] = {}
        for (scope, _), incarnation in self.incarnations.items():
            if not incarnation.ended:
                for site in incarnation.job.link_sites:
                    by_site.setdefault(site, []).append((scope, incarnation))
        return by_site

    @cached_property
    def outside(self) -> Mapping[str, list[tuple[str, Session]]]:
        """Site of a broker -> (scope, session) of its readers outside speck."""
        sessions: dict[str, list[tuple[str, Session]]] = {}
        for scope, session in self.sessions:
            if session.job_name is None:
                sessions.setdefault(session.site, []).append((scope, session))
        return sessions


def make_link_rows(at: datetime, site: str, view: BrokerView, ends: Ends) -> list[Row]:
    """Rows for all ends of the links at one site's broker.

    The lag is null if a producer reports no numbers, or no producer is known.
    """
    sinks = ends.sinks
    rows = []
    for scope, incarnation in ends.by_site.get(site, ()):
        job, name = incarnation.job, incarnation.job.job_name
        for link in (link for link in job.port if link.site == site):
            client_id = sink_client_id(ends.installation, name, job.source, link)
            sent = view.find_sent(link.topic, client_id)
            row = _make_end(at, scope, site, link.topic, "producer", client_id, name, job.site)
            rows.append(
                {
                    **row,
                    "epoch": sent.epoch if sent else None,
                    "messages": sent.number if sent else None,
                }
            )
        if job.source_site == site:
            client_id = source_client_id(ends.installation, name, job.source)
            row = _make_end(at, scope, site, job.source.topic, "reader", client_id, name, job.site)
            rows.append({**row, **_read_position(view, client_id, job.source, sinks)})
    for scope, session in ends.outside.get(site, ()):
        row = _make_end(
            at, scope, site, session.link.topic, "reader", session.client_id, None, None
        )
        rows.append({**row, **_read_position(view, session.client_id, session.link, sinks)})
    return rows


def discount_first_lag(
    rows: Iterable[Row], view: BrokerView, previous: Mapping[str, int]
) -> tuple[list[Row], dict[str, int]]:
    """Subtract from the lag of new readers what was sent before they joined.

    `rows` are those of `make_link_rows`. A reader that has taken nothing yet has its lag counted
    from its first poll. Returns the rows, and `previous` for the next poll: client id -> the lag to
    subtract.
    """
    rows_out, first_lags = [], {}
    for row in rows:
        taken = view.taken.get(row["client_id"]) if row["role"] == "reader" else None
        lag = row["lag"]
        if taken is not None and not taken.taken and lag is not None:
            first_lags[row["client_id"]] = first_lag = min(lag, previous.get(row["client_id"], lag))
            row = {**row, "lag": lag - first_lag}
        rows_out.append(row)
    return rows_out, first_lags


def _read_position(
    view: BrokerView, client_id: str, link: Link, sinks: Mapping[Link, Sequence[str]]
) -> Row:
    """A reader's position and lag; both null until it has published its taken numbers."""
    taken = view.taken.get(client_id)
    # a new sink reports at its first flush
    reporting_sinks = view.sinks_of(link.topic, sinks.get(link, ()))
    return {
        "messages": taken.messages if taken else None,
        "lag": view.lag(client_id, link.topic, reporting_sinks) if taken else None,
    }


def _make_end(
    at: datetime,
    scope: str,
    site: str,
    topic: str,
    role: str,
    client_id: str,
    job_name: str | None,
    engine_site: str | None,
) -> Row:
    return {
        "at": at,
        "composition": composition_of(scope),
        "broker_site": site,
        "topic": topic,
        "role": role,
        "client_id": client_id,
        "job_name": job_name,
        "engine_site": engine_site,
        "epoch": None,
        "messages": None,
        "lag": None,
    }
