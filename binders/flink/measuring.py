"""What Flink tells of the work of its jobs: counters of every subtask, in few requests.

Flink's metrics are as old as its last fetch from the workers, which a request only sets off
(`metrics.fetcher.update-interval`): the first answer after a pause is stale. All counters of one
subtask come from one fetch, so rates over the growth of busy + idle + back-pressured time are
right whenever that was; `speck.metrics.rows` leaves out what is no newer than the look before.
"""

from __future__ import annotations

import math
import re
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from urllib.parse import quote_plus

from binders.flink.rest import FlinkRest, RefusedAnswer
from speck.errors import SpeckError
from speck.model.measurement import EngineMeasures, JobMeasure, TaskMeasure

METRICS_AT_ONCE = 3000
"""Bytes of metric names in one request: they travel in the URL, of which Flink takes 4096."""

AT_ONCE = 8
"""Requests to one engine at a time: half of its connections are left to changes."""

JOBS_IN_TURN = 4
"""So many jobs of an engine nearby are asked about one after another before a further thread is
worth its while: of many engines with few jobs each, all threads would be more than one Python
process carries."""

FAR_S = 0.4
"""The first four answers of an engine that is far away, or busy, take longer."""

LONGEST_S = 5.0
"""No further job is asked about after so long: what it told would be of another moment."""

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
_RUNNING = ("RUNNING", "FAILING", "RESTARTING")


@dataclass(slots=True)
class _Vertex:
    """One task of an incarnation, and the metrics to ask for (`<subtask>.<name>`).

    They are asked for anew until they are told alike by a task that had `begun`. Operators add
    theirs while a task is initialized, and several looks may be answered from one fetch: that two
    answers are alike does not say that nothing is to come. Flink tells a task's busy time once
    its operators are open (StreamTask.invoke), NaN before.
    """

    id: str
    name: str
    subtasks: int
    metrics: tuple[str, ...] = ()
    settled: bool = False
    begun: bool = False
    source: bool = False
    sink: bool = False


@dataclass(slots=True)
class _Known:
    """What is remembered of an incarnation."""

    vertices: list[_Vertex]
    restarts: int | None = None


@dataclass(slots=True)
class Measuring:
    """Measures the jobs of one Flink; remembers the names of what it asks for."""

    rest: FlinkRest
    _known: dict[str, _Known] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def measure(self, engine_job_ids: Sequence[str]) -> EngineMeasures:
        """One look. Raises RefusedAnswer, SpeckErrors when the engine itself does not answer; a
        job whose requests fail is missing, as are those that were not asked about for `LONGEST_S`.
        """
        began = time.monotonic()
        overview = self.rest.get("/overview")
        worker = self._workers()  # sets off the fetch that the jobs' answers come from
        listed = self.rest.get("/jobs/overview")["jobs"]
        alive = {str(job["jid"]) for job in listed if job["state"] in _RUNNING}
        wanted = [job_id for job_id in engine_job_ids if job_id in alive]
        self._forget(set(engine_job_ids))
        found = dict(zip(wanted, self._jobs(wanted, began), strict=True))
        return EngineMeasures(
            jobs={job_id: job for job_id, job in found.items() if job is not None},
            slots_total=int(overview["slots-total"]),
            slots_free=int(overview["slots-available"]),
            **worker,
        )

    # -- workers --------------------------------------------------------------------------

    def _workers(self) -> dict[str, Any]:
        """CPU, memory and heap, summed over the TaskManagers; cores, over their machines."""
        workers = self.rest.get("/taskmanagers")["taskmanagers"]
        cores: dict[str, float] = {}
        total: dict[str, float] = {}
        for worker in workers:
            told = _numbers(
                self.rest.get(f"/taskmanagers/{worker['id']}/metrics", {"get": ",".join(_WORKER)})
            )
            for name, unit in _WORKER.items():
                value = told.get(name, math.nan)
                total[name] = total.get(name, 0.0) + (value * unit if value >= 0 else math.nan)
            cores[_host(str(worker["path"]))] = float(worker["hardware"]["cpuCores"])
        values = {
            name.removeprefix("Status.JVM."): None if math.isnan(value) else value
            for name, value in total.items()
        }
        parts = [
            values.get(f"Memory.{name}")
            for name in ("Heap.Committed", "NonHeap.Committed", "Direct.MemoryUsed")
        ]
        whole = [int(part) for part in parts if part is not None]
        return {
            "cores": sum(cores.values()) if cores else None,
            "cpu_ms": values.get("CPU.Time"),
            "memory_bytes": sum(whole) if len(whole) == len(parts) else None,
            "heap_used_bytes": _whole(values.get("Memory.Heap.Used")),
            "heap_max_bytes": _whole(values.get("Memory.Heap.Max")),
        }

    # -- jobs -----------------------------------------------------------------------------

    def _job_or_none(self, job_id: str, until: float) -> JobMeasure | None:
        try:
            if time.monotonic() > until:
                return None
            return self._job(job_id)
        except (SpeckError, RefusedAnswer, KeyError, TypeError, ValueError, AttributeError):
            return None  # it may have ended meanwhile; a gap of this job's own

    def _job(self, job_id: str) -> JobMeasure:
        told = _numbers(self.rest.get(f"/jobs/{job_id}/metrics", {"get": ",".join(_JOB)}))
        values = {to: _whole(told.get(name)) for name, to in _JOB.items()}
        values = {to: None if v is not None and v < 0 else v for to, v in values.items()}
        known = self._known_job(job_id, values["restarts"])
        tasks = [task for vertex in known.vertices for task in self._vertex(job_id, vertex)]
        return JobMeasure(job_id, tuple(tasks), **values)

    def _known_job(self, job_id: str, restarts: int | None) -> _Known:
        """The incarnation's vertices; their metrics are learned anew after a restart."""
        with self._lock:
            known = self._known.get(job_id)
        if known is None:
            vertices = self.rest.get(f"/jobs/{job_id}")["vertices"]
            known = _Known(
                [_Vertex(str(v["id"]), str(v["name"]), int(v["parallelism"])) for v in vertices]
            )
            if known.vertices:
                with self._lock:
                    self._known[job_id] = known
        if restarts != known.restarts:
            known.restarts = restarts
            for vertex in known.vertices:
                vertex.settled = False
        return known

    def _vertex(self, job_id: str, vertex: _Vertex) -> list[TaskMeasure]:
        path = f"/jobs/{job_id}/vertices/{vertex.id}/metrics"
        if not vertex.settled:
            _learn(vertex, (str(each["id"]) for each in self.rest.get(path)))
        answer: list[Mapping[str, Any]] = []
        for batch in batches(vertex.metrics):
            answer += self.rest.get(path, {"get": ",".join(batch)})
        if len(answer) < len(vertex.metrics):
            vertex.settled = False
        tasks = _tasks(vertex, answer)
        vertex.begun = sum(task.busy_ms is not None for task in tasks) >= vertex.subtasks
        return tasks

    # -- how ------------------------------------------------------------------------------

    def _jobs(self, job_ids: Sequence[str], began: float) -> list[JobMeasure | None]:
        ask = partial(self._job_or_none, until=began + LONGEST_S)
        far = time.monotonic() - began > FAR_S
        threads = min(AT_ONCE, len(job_ids) if far else len(job_ids) // JOBS_IN_TURN)
        if threads < 2:
            return [ask(each) for each in job_ids]
        with ThreadPoolExecutor(threads, thread_name_prefix="measure") as pool:
            return list(pool.map(ask, job_ids))

    def _forget(self, wanted: set[str]) -> None:
        with self._lock:
            for job_id in self._known.keys() - wanted:
                del self._known[job_id]


def _learn(vertex: _Vertex, listed: Iterable[str]) -> None:
    """Which of a vertex's metrics are wanted, and whether it holds a source or a sink."""
    by_subtask: dict[str, set[str]] = {}
    for name in listed:
        subtask, _, metric = name.partition(".")
        by_subtask.setdefault(subtask, set()).add(metric)
    wanted: list[str] = []
    vertex.source = vertex.sink = False
    for subtask, metrics in sorted(by_subtask.items()):
        source = {m for m in metrics if _SOURCE.fullmatch(m)}
        writer = {m for m in metrics if _WRITER.fullmatch(m)}
        chosen = (metrics & {*_TIMES, *_EXCHANGE}) | source | writer
        chosen |= {m for m in metrics if _COMMITTER.fullmatch(m) or _CPU.fullmatch(m)}
        vertex.source |= bool(source)
        vertex.sink |= bool(writer)
        wanted += sorted(f"{subtask}.{metric}" for metric in chosen)
    names = tuple(wanted)
    vertex.settled = vertex.begun and names == vertex.metrics
    vertex.metrics = names


def _tasks(vertex: _Vertex, answer: Iterable[Mapping[str, Any]]) -> list[TaskMeasure]:
    """The subtasks of which anything was told."""
    told: dict[int, dict[str, float]] = {}
    for name, value in _numbers(answer).items():
        subtask, _, metric = name.partition(".")
        told.setdefault(int(subtask), {})[metric] = value
    return [_task(vertex, subtask, values) for subtask, values in sorted(told.items())]


def _task(vertex: _Vertex, subtask: int, told: Mapping[str, float]) -> TaskMeasure:
    """Of a source or sink its own counters: in a chain the task's own ones stay 0.

    Flink has them for every connector, and it is the connector that counts: one that does not
    leaves them at 0, which is then no number.
    """
    counts = {to: told.get(name) for name, to in _EXCHANGE.items()}
    if vertex.source:
        counts["records_in"] = _sum(told, _SOURCE, "numRecordsIn")
        counts["bytes_in"] = _counted(_sum(told, _SOURCE, "numBytesIn"), counts["records_in"])
    if vertex.sink:
        sent, given = (_sum(told, _WRITER, each) for each in ("numRecordsSend", "numRecordsIn"))
        counts["records_out"] = _counted(sent, given)
        writer, committer = (_sum(told, each, "numBytesSend") for each in (_WRITER, _COMMITTER))
        both = None if writer is None else writer + (committer or 0.0)
        counts["bytes_out"] = _counted(both, max(sent or 0.0, given or 0.0))
    busy, idle, back_pressured = (told.get(name) for name in _TIMES)
    # source and sink of one chain tell of the same thread; -1 of one that has ended
    cpu = max((v for n, v in told.items() if _CPU.fullmatch(n) and v >= 0), default=None)
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
        **{to: _whole(value) for to, value in counts.items()},
    )


def _counted(count: float | None, of: float | None) -> float | None:
    """`count`, unless it is 0 though there was something to count."""
    return None if count == 0 and of else count


def _sum(told: Mapping[str, float], names: re.Pattern[str], metric: str) -> float | None:
    values = [v for n, v in told.items() if n.endswith("." + metric) and names.fullmatch(n)]
    return sum(values) if values else None


def _numbers(answer: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """By name what is a finite number; NaN (busy time of old sources) is not told."""
    found = {}
    for each in answer:
        try:
            value = float(each["value"])
        except (KeyError, TypeError, ValueError):
            continue
        if math.isfinite(value):
            found[str(each["id"])] = value
    return found


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)


def _host(path: str) -> str:
    """The machine in a worker's address `pekko.tcp://flink@host:port/...`; workers of one
    machine share its cores."""
    return re.sub(r":\d+/.*$", "", path) if "@" in path else ""


def batches(names: Iterable[str]) -> Iterator[list[str]]:
    """Metric names in parts that one request can carry."""
    batch: list[str] = []
    size = 0
    for name in names:
        length = len(quote_plus(name)) + len(quote_plus(","))
        if batch and size + length > METRICS_AT_ONCE:
            yield batch
            batch, size = [], 0
        batch.append(name)
        size += length
    if batch:
        yield batch
