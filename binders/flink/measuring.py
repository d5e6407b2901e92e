"""Reads the metrics of Flink's jobs: the counters of every subtask, with few requests.

Flink's metrics are as old as its last fetch from the workers. A request only triggers the next
fetch (`metrics.fetcher.update-interval`), so that the first answer after a pause is stale. All
counters of one subtask come from the same fetch, so rates over the growth of busy + idle +
back-pressured time are correct whenever that was; `speck.metrics.rows` drops samples that are no
newer than the previous one.
"""

from __future__ import annotations

import math
import re
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from urllib.parse import quote_plus

from binders.flink.counters import metric_queries
from binders.flink.numbers import MOST, count, finite, whole, whole_or_none
from binders.flink.refusals import is_lasting
from binders.flink.rest import FlinkRest, RefusedAnswer
from speck.errors import SpeckError
from speck.model.measurement import (
    EngineMeasures,
    JobMeasure,
    LinkMeasure,
    TaskMeasure,
    cut_problem,
)

AT_ONCE = 8
"""Concurrent requests to one engine: half of its connections are left to changes."""

JOBS_PER_THREAD = 4
"""How many jobs of a nearby engine one thread measures: with a thread for each job, many engines
with few jobs each would need more threads than one Python process can run."""

FAR_S = 0.4
"""An engine counts as far away (or busy) if its first answers, four or five, take longer."""

MOST_VERTICES = 1_000
MOST_NAME_BYTES = 1 << 20
"""Of a job, and of the metrics of one vertex: their names are cached. Names of a thousand subtasks
have some 300 kB. A job with more is not measured."""

LONGEST_S = 5.0
"""Jobs that are not reached within this time are skipped: their metrics would be of another
moment."""

_TIMES = ("accumulateBusyTimeMs", "accumulateIdleTimeMs", "accumulateBackPressuredTimeMs")
_EXCHANGE = {
    "numRecordsIn": "records_in",
    "numRecordsOut": "records_out",
    "numBytesIn": "bytes_in",
    "numBytesOut": "bytes_out",
}
_SOURCE = re.compile(r"Source__.+\.(numRecordsIn|numBytesIn)")
_WRITER = re.compile(r".+__Writer\.(numRecordsIn|numRecordsSend|numBytesSend)")
_CPU = re.compile(r"(?:.+\.)?taskCpuTimeMs")
_COMMITTER = re.compile(r".+__Committer\.numBytesSend")
_PROBLEM = "linkProblem"
_LINK = re.compile(
    r"(?:Source__.+|.+__(?:Writer|Committer))"
    rf"\.({_PROBLEM}|recordsUndeliverable|recordsUnread|numRecordsSendErrors|recordsFailed|messagesDropped)"
)
"""What our connector reports of its links."""
_JOB = {
    "numRestarts": "restarts",
    "uptime": "uptime_ms",
    "lastCompletedCheckpointId": "checkpoint_id",
    "lastCheckpointFullSize": "checkpoint_bytes",
    "lastCheckpointDuration": "checkpoint_ms",
}
_WORKER = {
    "Status.JVM.CPU.Time": 1e-6,  # of ns
    "Status.JVM.Memory.Heap.Used": 1.0,
    "Status.JVM.Memory.Heap.Max": 1.0,
    "Status.JVM.Memory.Heap.Committed": 1.0,
    "Status.JVM.Memory.NonHeap.Committed": 1.0,
    "Status.JVM.Memory.Direct.MemoryUsed": 1.0,
}
_METASPACE = ("Status.JVM.Memory.Metaspace.Used", "Status.JVM.Memory.Metaspace.Max")
_JOB_QUERY = f"?get={quote_plus(','.join(_JOB))}"
_WORKER_QUERY = f"?get={quote_plus(','.join((*_WORKER, *_METASPACE)))}"
_METASPACE_QUERY = f"?get={quote_plus(','.join(_METASPACE))}"
_RUNNING = ("RUNNING", "FAILING", "RESTARTING")


@dataclass(slots=True)
class _Vertex:
    """One vertex of an incarnation, and the metrics to request (`<subtask>.<name>`) with `queries`
    for them: encoded once, as encoding takes longer than reading the values.

    The list of metrics is read again until it is the same twice (`complete`), the second time
    after the tasks had `begun`. Operators add their metrics while a task is initialized, and
    several requests may be answered from one fetch: two equal lists alone do not mean that the
    list is complete. Flink reports a task's busy time once its operators are open
    (StreamTask.invoke), and NaN before.
    """

    id: str
    name: str
    subtasks: int
    metrics: tuple[str, ...] = ()
    queries: tuple[str, ...] = ()
    complete: bool = False
    begun: bool = False
    source: bool = False
    sink: bool = False


@dataclass(slots=True)
class _Incarnation:
    """What is cached of an incarnation."""

    vertices: list[_Vertex]
    restarts: int | None = None


@dataclass(slots=True)
class Measuring:
    """Measures the jobs of one Flink; caches the names of their metrics."""

    rest: FlinkRest
    _incarnations: dict[str, _Incarnation] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def measure(self, engine_job_ids: Sequence[str]) -> EngineMeasures:
        """Measure once. Raises RefusedAnswer, or SpeckErrors if the engine itself does not answer.
        Jobs whose requests fail, and those not reached within `LONGEST_S`, are missing."""
        began = time.monotonic()
        overview = self.rest.get("/overview")
        worker = self._workers()  # triggers the fetch that the jobs' answers come from
        listed = self.rest.get("/jobs/overview")["jobs"]
        alive = {str(job["jid"]) for job in listed if job["state"] in _RUNNING}
        running_ids = [job_id for job_id in engine_job_ids if job_id in alive]
        self._forget_all_but(set(engine_job_ids))
        measures = dict(zip(running_ids, self._jobs(running_ids, began), strict=True))
        return EngineMeasures(
            jobs={job_id: job for job_id, job in measures.items() if job is not None},
            slots_total=count(overview["slots-total"]),
            slots_free=count(overview["slots-available"]),
            **worker,
        )

    # -- workers --------------------------------------------------------------------------

    def _workers(self) -> dict[str, Any]:
        """CPU, memory and heap summed over the TaskManagers; cores summed over their machines."""
        workers = self.rest.get("/taskmanagers")["taskmanagers"]
        cores: dict[str, float] = {}
        total: dict[str, float] = {}
        jvms: list[Mapping[str, float]] = []
        for worker in workers:
            path = f"/taskmanagers/{worker['id']}/metrics"
            metrics = _numbers(self.rest.get(path + _WORKER_QUERY))
            jvms.append(metrics)
            for name, unit in _WORKER.items():
                value = metrics.get(name, math.nan)
                total[name] = total.get(name, 0.0) + (value * unit if value >= 0 else math.nan)
            cores[_host(str(worker["path"]))] = finite(worker["hardware"]["cpuCores"])
        values = {
            name.removeprefix("Status.JVM."): None if math.isnan(value) else value
            for name, value in total.items()
        }
        parts = [
            values.get(f"Memory.{name}")
            for name in ("Heap.Committed", "NonHeap.Committed", "Direct.MemoryUsed")
        ]
        if all(cores):  # a JobManager in a JVM of its own: it runs the jobs' main
            jvms.append(self._job_manager())
        used, limit = fullest_metaspace(jvms)
        known = [part for part in parts if part is not None]
        return {
            "cores": sum(cores.values()) if cores else None,
            "cpu_ms": values.get("CPU.Time"),
            "memory_bytes": whole_or_none(sum(known)) if len(known) == len(parts) else None,
            "heap_used_bytes": whole_or_none(values.get("Memory.Heap.Used")),
            "heap_max_bytes": whole_or_none(values.get("Memory.Heap.Max")),
            "metaspace_used_bytes": used,
            "metaspace_max_bytes": limit,
        }

    def _job_manager(self) -> Mapping[str, float]:
        try:
            return _numbers(self.rest.get(f"/jobmanager/metrics{_METASPACE_QUERY}"))
        except RefusedAnswer:  # the JobManager of another version
            return {}

    def metaspace(self) -> tuple[int | None, int | None]:
        """The bytes in use, and the limit, of the metaspace that is fullest."""
        worker = self._workers()
        return worker["metaspace_used_bytes"], worker["metaspace_max_bytes"]

    # -- jobs -----------------------------------------------------------------------------

    def _job_or_none(self, job_id: str, until: float) -> JobMeasure | None:
        try:
            if time.monotonic() > until:
                return None
            return self._job(job_id)
        except (SpeckError, RefusedAnswer, KeyError, TypeError, ValueError, AttributeError):
            return None  # it may have ended meanwhile; only this job has a gap

    def _job(self, job_id: str) -> JobMeasure:
        metrics = _numbers(self.rest.get(f"/jobs/{job_id}/metrics{_JOB_QUERY}"))
        values = {to: whole_or_none(metrics.get(name)) for name, to in _JOB.items()}
        values = {to: None if v is not None and v < 0 else v for to, v in values.items()}
        incarnation = self._incarnation(job_id, values["restarts"])
        vertices = [self._vertex(job_id, vertex) for vertex in incarnation.vertices]
        tasks = [task for own, _ in vertices for task in own]
        link = measure_link(each for _, answer in vertices for each in answer)
        return JobMeasure(job_id, tuple(tasks), link=link, **values)

    def _incarnation(self, job_id: str, restarts: int | None) -> _Incarnation:
        """Return the cached incarnation; after a restart its lists of metrics are read again."""
        with self._lock:
            incarnation = self._incarnations.get(job_id)
        if incarnation is None:
            vertices = self.rest.get(f"/jobs/{job_id}")["vertices"]
            if len(vertices) > MOST_VERTICES:
                raise ValueError(f"it has {len(vertices)} vertices")
            incarnation = _Incarnation(
                [_Vertex(str(v["id"]), str(v["name"]), count(v["parallelism"])) for v in vertices]
            )
            if incarnation.vertices:
                with self._lock:
                    self._incarnations[job_id] = incarnation
        if restarts != incarnation.restarts:
            incarnation.restarts = restarts
            for vertex in incarnation.vertices:
                vertex.complete = False
        return incarnation

    def _vertex(
        self, job_id: str, vertex: _Vertex
    ) -> tuple[list[TaskMeasure], list[Mapping[str, Any]]]:
        """The measures of its tasks, and the answer that they were read from."""
        path = f"/jobs/{job_id}/vertices/{vertex.id}/metrics"
        if not vertex.complete:
            _choose_metrics(vertex, (str(each["id"]) for each in self.rest.get(path)))
        answer: list[Mapping[str, Any]] = []
        for query in vertex.queries:
            answer += self.rest.get(path + query)
        if len(answer) < len(vertex.metrics):
            vertex.complete = False
        tasks = _tasks(vertex, answer)
        vertex.begun = sum(task.busy_ms is not None for task in tasks) >= vertex.subtasks
        return tasks, answer

    # -- threads --------------------------------------------------------------------------

    def _jobs(self, job_ids: Sequence[str], began: float) -> list[JobMeasure | None]:
        measure = partial(self._job_or_none, until=began + LONGEST_S)
        far = time.monotonic() - began > FAR_S
        threads = min(AT_ONCE, len(job_ids) if far else len(job_ids) // JOBS_PER_THREAD)
        if threads < 2:
            return [measure(each) for each in job_ids]
        with ThreadPoolExecutor(threads, thread_name_prefix="measure") as pool:
            return list(pool.map(measure, job_ids))

    def _forget_all_but(self, job_ids: set[str]) -> None:
        with self._lock:
            for job_id in self._incarnations.keys() - job_ids:
                del self._incarnations[job_id]


def _choose_metrics(vertex: _Vertex, available: Iterable[str]) -> None:
    """Choose the metrics to request of a vertex; note whether it holds a source or a sink."""
    by_subtask: dict[str, set[str]] = {}
    for name in available:
        subtask, _, metric = name.partition(".")
        by_subtask.setdefault(subtask, set()).add(metric)
    names: list[str] = []
    vertex.source = vertex.sink = False
    for subtask, metrics in sorted(by_subtask.items()):
        source = {m for m in metrics if _SOURCE.fullmatch(m)}
        writer = {m for m in metrics if _WRITER.fullmatch(m)}
        selection = (metrics & {*_TIMES, *_EXCHANGE}) | source | writer
        selection |= {m for m in metrics if _COMMITTER.fullmatch(m) or _CPU.fullmatch(m)}
        selection |= {m for m in metrics if _LINK.fullmatch(m)}
        vertex.source |= bool(source)
        vertex.sink |= bool(writer)
        names += sorted(f"{subtask}.{metric}" for metric in selection)
    if (size := sum(map(len, names))) > MOST_NAME_BYTES:
        raise ValueError(f"the names of its metrics have {size} bytes")
    vertex.complete = vertex.begun and tuple(names) == vertex.metrics
    vertex.metrics = tuple(names)
    vertex.queries = tuple(metric_queries(names))


def _tasks(vertex: _Vertex, answer: Iterable[Mapping[str, Any]]) -> list[TaskMeasure]:
    """Measures of the subtasks that have metrics in the answer."""
    by_subtask: dict[int, dict[str, float]] = {}
    for name, value in _numbers(answer).items():
        subtask, _, metric = name.partition(".")
        by_subtask.setdefault(whole(subtask), {})[metric] = value
    return [_task(vertex, subtask, values) for subtask, values in sorted(by_subtask.items())]


def measure_link(answer: Iterable[Mapping[str, Any]]) -> LinkMeasure | None:
    """What the connector reports of a job's links, in the metrics of all its vertices; None if it
    is not ours. What a sink has given up are its failures but for those left out."""
    counts: Counter[str] = Counter()
    problem, is_ours = None, False
    for each in answer:
        match = _LINK.fullmatch(str(each.get("id", "")).partition(".")[2])
        if match is None:
            continue
        if match[1] == _PROBLEM:
            is_ours = True
            problem = problem or cut_problem(str(each.get("value") or ""))
        else:
            added = counts[match[1]] + sum(map(int, _numbers([each]).values()))
            counts[match[1]] = min(added, MOST)
    left_out, unread = counts["recordsUndeliverable"], counts["recordsUnread"]
    failed = counts["numRecordsSendErrors"] + counts["recordsFailed"]
    lost = max(0, failed - left_out) + unread
    if not is_ours:
        return None
    return LinkMeasure(problem, left_out, lost, counts["messagesDropped"], is_lasting(problem))


def _task(vertex: _Vertex, subtask: int, metrics: Mapping[str, float]) -> TaskMeasure:
    """Measure a subtask; for a source or sink by its own counters, since in a chain the counters
    of the task stay 0.

    Flink registers these counters for every connector, but the connector has to update them. If
    it does not, they stay 0, which then means "not reported".
    """
    counts = {to: metrics.get(name) for name, to in _EXCHANGE.items()}
    if vertex.source:
        counts["records_in"] = _sum(metrics, _SOURCE, "numRecordsIn")
        counts["bytes_in"] = _none_if_unused(
            _sum(metrics, _SOURCE, "numBytesIn"), counts["records_in"]
        )
    if vertex.sink:
        sent, received = (
            _sum(metrics, _WRITER, each) for each in ("numRecordsSend", "numRecordsIn")
        )
        counts["records_out"] = _none_if_unused(sent, received)
        writer, committer = (_sum(metrics, each, "numBytesSend") for each in (_WRITER, _COMMITTER))
        both = None if writer is None else writer + (committer or 0.0)
        counts["bytes_out"] = _none_if_unused(both, max(sent or 0.0, received or 0.0))
    busy, idle, back_pressured = (metrics.get(name) for name in _TIMES)
    # source and sink of one chain report the same thread; -1 once it has ended
    cpu = max((v for n, v in metrics.items() if _CPU.fullmatch(n) and v >= 0), default=None)
    return TaskMeasure(
        vertex.id,
        vertex.name,
        subtask,
        vertex.subtasks,
        vertex.source,
        vertex.sink,
        busy,
        idle,
        back_pressured,
        cpu_ms=cpu,
        **{to: whole_or_none(value) for to, value in counts.items()},
    )


def _none_if_unused(count: float | None, of: float | None) -> float | None:
    """Return `count`; None if it is 0 although there was something to count."""
    return None if count == 0 and of else count


def _sum(metrics: Mapping[str, float], names: re.Pattern[str], metric: str) -> float | None:
    values = [v for n, v in metrics.items() if n.endswith("." + metric) and names.fullmatch(n)]
    return sum(values) if values else None


def _numbers(answer: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """The numbers by name, without those that no counter reaches; NaN (busy time of old sources)
    means "not reported"."""
    numbers = {}
    for each in answer:
        try:
            value = float(each["value"])
        except (KeyError, TypeError, ValueError):
            continue
        if abs(value) <= MOST:
            numbers[str(each["id"])] = value
    return numbers


def fullest_metaspace(
    jvms: Iterable[Mapping[str, float]],
) -> tuple[int, int] | tuple[None, None]:
    """Used and limit, in bytes, of the JVM whose metaspace is fullest in proportion. A JVM without
    a limit reports -1."""
    pairs = [tuple(int(jvm.get(name, -1.0)) for name in _METASPACE) for jvm in jvms]
    limited = [(used, limit) for used, limit in pairs if used >= 0 and limit > 0]
    return max(limited, key=lambda pair: pair[0] / pair[1], default=(None, None))


def _host(path: str) -> str:
    """The machine in a worker's address `pekko.tcp://flink@host:port/...`; workers on the same
    machine share its cores."""
    return re.sub(r":\d+/.*$", "", path) if "@" in path else ""
