"""From what engines and brokers tell to rows of the dataset, and to rates. Pure; time is given.

A counter that was not told is null. What was told before and is told once more unchanged, because
an engine answers from its cache, makes no row: busy, idle and back-pressured time of a living
task always grow together, so such an answer is not of now. Their growth is also the true time
between two samples, whatever age they had when they were read.
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
from speck.model.site import Site
from speck.model.values import JsonObject

Row = dict[str, Any]
MOMENT_MS = 50.0
"""What a task tells of itself within so long is of one moment: no rate comes out of it."""

TaskKey = tuple[str, str, int]
"""(engine job id, vertex, subtask)"""


@dataclass(frozen=True, slots=True)
class Sample:
    """What one task told at one look of its job."""

    at: datetime
    job: JobMeasure
    task: TaskMeasure


Samples = Mapping[TaskKey, tuple[Sample | None, Sample]]
"""The last two samples of each task that differ, the older first."""


def composition_of(scope: str) -> str:
    """The partition of a scope's rows."""
    return visible_name(scope) or ALONE


def samples_of(at: datetime, measures: EngineMeasures, before: Samples) -> Samples:
    """The samples with those of this look; of a task that told nothing new they are as they were.

    Tasks of jobs that are not in `measures` are gone from it.
    """
    found: dict[TaskKey, tuple[Sample | None, Sample]] = {}
    for job in measures.jobs.values():
        for task in job.tasks:
            key = (job.engine_job_id, task.vertex, task.subtask)
            old = before.get(key)
            if old is not None and _is_stale(old[1], job, task):
                found[key] = old
            elif old is not None:
                found[key] = (old[1], Sample(at, job, task))
            else:
                found[key] = (None, Sample(at, job, task))
    return found


def _is_stale(before: Sample, job: JobMeasure, now: TaskMeasure) -> bool:
    """Whether this is told once more, or of the same moment: an engine may fetch twice in a row,
    out of order even. What came meanwhile is told at the next look.

    A task that tells no times may well have had nothing to do.
    """
    tells_times = any(getattr(now, name) is not None for name in TIMES)
    if tells_times and _counts(before.task) == _counts(now):
        return True
    old, new = before.task.lived_ms, now.lived_ms
    if old is None or new is None or before.job.restarts != job.restarts:
        return False
    return abs(new - old) < MOMENT_MS


def _counts(task: TaskMeasure) -> tuple[float | None, ...]:
    return tuple(getattr(task, name) for name in (*TIMES, *COUNTS))


def task_rows(
    at: datetime,
    samples: Samples,
    deployed: Mapping[tuple[str, str], Incarnation],
    host: Host,
) -> list[Row]:
    """Rows of the samples that were new at `at`, of incarnations that speck deployed."""
    known = {each.engine_job_id: (scope, each) for (scope, _), each in deployed.items()}
    rows = []
    for (job_id, _, _), (_, sample) in samples.items():
        if sample.at != at or job_id not in known:
            continue
        scope, each = known[job_id]
        job, task = sample.job, sample.task
        rows.append(
            {
                "at": at,
                "composition": composition_of(scope),
                "job_name": each.job.job_name,
                "site": each.job.site,
                "engine_job_id": job_id,
                "attempt": each.attempt,
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


def plan_nodes(plan: Mapping[str, Any]) -> tuple[PlanNode, ...]:
    """An engine's plan (`StreamEngine.job_plan`) as nodes. Raises KeyError, TypeError,
    ValueError for anything else."""
    return tuple(
        PlanNode(
            str(node["id"]),
            str(node.get("description") or ""),
            int(node["parallelism"]),
            tuple(
                (str(each["id"]), str(each.get("ship_strategy") or ""))
                for each in node.get("inputs") or ()
            ),
        )
        for node in plan["nodes"]
    )


def plan_rows(
    at: datetime,
    scope: str,
    deployed: Incarnation,
    nodes: Iterable[PlanNode],
    *,
    pinned: bool = False,
    stateful: bool | None = None,
) -> list[Row]:
    """One row for each task of an incarnation; what the user says of the job now goes with it,
    `stateful` None when that is nothing."""
    job = deployed.job
    return [
        {
            "at": at,
            "composition": composition_of(scope),
            "job_name": job.job_name,
            "site": job.site,
            "engine_job_id": deployed.engine_job_id,
            "vertex": node.id,
            "description": node.description,
            "parallelism": node.parallelism,
            "ship_strategies": [strategy for _, strategy in node.inputs],
            "source_site": job.source_site,
            "source_topic": job.source.topic,
            "sink_site": job.sink_site,
            "sink_topic": job.sink.topic,
            "pinned": pinned,
            "stateful": stateful,
        }
        for node in nodes
    ]


def site_row(
    at: datetime,
    site: Site,
    measures: EngineMeasures,
    host: Host,
    calibration: JsonObject | None,
) -> Row:
    """One row; cores are calibrated, else those that the engine told, and pace is null then."""
    calibration = calibration or {}
    cores = calibration.get("cores")
    return {
        "at": at,
        "site": site.name,
        "tier": str(site.tier),
        "slots_total": measures.slots_total,
        "slots_free": measures.slots_free,
        "cores": measures.cores if cores is None else cores,
        "pace": calibration.get("pace"),
        "cpu_ms": measures.cpu_ms,
        "memory_bytes": measures.memory_bytes,
        "heap_used_bytes": measures.heap_used_bytes,
        "heap_max_bytes": measures.heap_max_bytes,
        "host_cpu": host.cpu,
        "host_cores": host.cores,
        "uplink_mbps": site.uplink_mbps,
    }


def broker_row(at: datetime, site: str, measures: BrokerMeasures) -> Row:
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
    """Who sends to links and who reads them: all incarnations, by (scope, job), the readers
    outside speck, and the installation that client ids are made of. Made once for a look at all
    sites: what follows from all jobs is worked out once."""

    installation: str
    deployed: Mapping[tuple[str, str], Incarnation]
    sessions: Sequence[tuple[str, Session]] = ()

    @cached_property
    def sinks(self) -> Mapping[Link, list[str]]:
        """Link -> client ids of the sinks that feed it now or have fed it."""
        found: dict[Link, list[str]] = {}
        for each in self.deployed.values():
            own = sink_client_id(self.installation, each.job.job_name, each.job.source)
            found.setdefault(each.job.sink, []).extend((own, *each.former_sinks))
        return found

    @cached_property
    def by_site(self) -> Mapping[str, list[tuple[str, Incarnation]]]:
        """Site of a broker -> (scope, incarnation) of those that send or read there."""
        found: dict[str, list[tuple[str, Incarnation]]] = {}
        for (scope, _), each in self.deployed.items():
            if not each.ended:
                for site in {each.job.sink_site, each.job.source_site}:
                    found.setdefault(site, []).append((scope, each))
        return found

    @cached_property
    def outside(self) -> Mapping[str, list[tuple[str, Session]]]:
        """Site of a broker -> (scope, session) of readers there that are outside speck."""
        found: dict[str, list[tuple[str, Session]]] = {}
        for scope, session in self.sessions:
            if session.job_name is None:
                found.setdefault(session.site, []).append((scope, session))
        return found


def link_rows(at: datetime, site: str, view: BrokerView, ends: Ends) -> list[Row]:
    """Rows of all ends of the links of one site's broker. The lag is null where a producer
    tells no numbers, or none is known."""
    sinks = ends.sinks
    rows = []
    for scope, each in ends.by_site.get(site, ()):
        job, name = each.job, each.job.job_name
        if job.sink_site == site:
            client_id = sink_client_id(ends.installation, name, job.source)
            sent = view.find_sent(job.sink.topic, client_id)
            row = _end(at, scope, site, job.sink.topic, "producer", client_id, name, job.site)
            rows.append(
                {
                    **row,
                    "epoch": sent.epoch if sent else None,
                    "messages": sent.number if sent else None,
                }
            )
        if job.source_site == site:
            client_id = source_client_id(ends.installation, name, job.source)
            row = _end(at, scope, site, job.source.topic, "reader", client_id, name, job.site)
            rows.append({**row, **_reading(view, client_id, job.source, sinks)})
    for scope, session in ends.outside.get(site, ()):
        row = _end(at, scope, site, session.link.topic, "reader", session.client_id, None, None)
        rows.append({**row, **_reading(view, session.client_id, session.link, sinks)})
    return rows


def since_joining(
    rows: Iterable[Row], view: BrokerView, before: Mapping[str, int]
) -> tuple[list[Row], dict[str, int]]:
    """The rows of `link_rows` with the lag of readers that have taken nothing yet counted from
    when they were first seen: what was sent before is not theirs. Also what to give as `before`
    at the next look: client id -> the lag to leave out."""
    found, joined = [], {}
    for row in rows:
        taken = view.taken.get(row["client_id"]) if row["role"] == "reader" else None
        lag = row["lag"]
        if taken is not None and not taken.taken and lag is not None:
            joined[row["client_id"]] = least = min(lag, before.get(row["client_id"], lag))
            row = {**row, "lag": lag - least}
        found.append(row)
    return found, joined


def _reading(
    view: BrokerView, client_id: str, link: Link, sinks: Mapping[Link, Sequence[str]]
) -> Row:
    """Of a reader that has told nothing (yet) nothing is known, its lag neither."""
    taken = view.taken.get(client_id)
    # a new sink tells at its first flush
    told = view.sinks_of(link.topic, sinks.get(link, ()))
    return {
        "messages": taken.messages if taken else None,
        "lag": view.lag(client_id, told) if taken else None,
    }


def _end(
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
