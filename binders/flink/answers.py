"""Flink's JSON -> the plain data of speck's engine contract. Pure; no I/O.

A KeyError or TypeError means that the answer did not come from Flink; the engine translates it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from binders.flink.failures import may_pass, place_of, reason_of
from binders.flink.numbers import count, unix_ms, whole
from speck.binding import Checkpointing, JobException, SavedState, SaveProgress
from speck.errors import EngineRefusedError
from speck.model.measurement import PlanNode
from speck.model.observation import EngineJob, EngineView, RunState, Slots

Json = Mapping[str, Any]

LONGEST_TRACE = 20_000
"""The most characters kept of a failure's stack trace: its reason and the frames around it."""

LONGEST_NAME = 500
"""The most characters kept of a version and of the names of jobs, tasks and exceptions."""

LONGEST_PATH = 4096

MOST_EXCEPTIONS = 100
"""Flink keeps 16 (`web.exception-history-size`)."""

_STATES = {
    "INITIALIZING": RunState.STARTING,
    "CREATED": RunState.STARTING,
    "RESTARTING": RunState.RESTARTING,
    "RECONCILING": RunState.RESTARTING,
    # given up by this JobManager only: the next leader recovers it
    "SUSPENDED": RunState.RESTARTING,
    # final: the restart strategy has given up, and tasks are being cancelled
    "FAILING": RunState.STOPPING,
    "CANCELLING": RunState.STOPPING,
    "FINISHED": RunState.FINISHED,
    "CANCELED": RunState.CANCELED,
    "FAILED": RunState.FAILED,
}

_SAVEPOINT_PATH = re.compile(r"savepoint has been created at: (\S+?),? but ")
_FAILED_AFTER_SAVEPOINT = "StopWithSavepointStoppingException"


def run_state(state: str, running: int, finished: int, total: int) -> RunState:
    """Flink's `state` of a job with the counts of its tasks.

    Flink reports RUNNING as soon as it has planned the job, even without slots. For speck a job is
    running only when all its tasks run (some may have finished: a bounded source beside another).
    """
    if state != "RUNNING":
        return _STATES[state]
    all_run = total > 0 and running > 0 and running + finished == total
    return RunState.RUNNING if all_run else RunState.STARTING


def engine_view(overview: Json, jobs: Json) -> EngineView:
    """From `/overview` and `/jobs/overview`."""
    return EngineView(
        version=str(overview["flink-version"])[:LONGEST_NAME],
        slots=Slots(count(overview["slots-total"]), count(overview["slots-available"])),
        jobs=engine_jobs(jobs),
    )


def engine_jobs(jobs: Json) -> dict[str, EngineJob]:
    """From `/jobs/overview`, by id."""
    engine_jobs = [_engine_job(each) for each in jobs["jobs"]]
    return {job.engine_job_id: job for job in engine_jobs}


def _engine_job(job: Json) -> EngineJob:
    tasks = job["tasks"]
    running, total = count(tasks["running"]), count(tasks["total"])
    state = run_state(job["state"], running, count(tasks["finished"]), total)
    return EngineJob(str(job["jid"]), str(job["name"])[:LONGEST_NAME], state, running, total)


def job_state(job: Json) -> RunState:
    """From `/jobs/:id`, whose `status-counts` count operator chains, not tasks."""
    counts = [vertex["tasks"] for vertex in job["vertices"]]
    running = sum(count(tasks["RUNNING"]) for tasks in counts)
    finished = sum(count(tasks["FINISHED"]) for tasks in counts)
    total = sum(count(vertex["parallelism"]) for vertex in job["vertices"])
    return run_state(job["state"], running, finished, total)


def engine_clock_ms(job: Json) -> int:
    """The engine's clock when it answered `/jobs/:id`, Unix ms (not taken from its cache)."""
    return unix_ms(job["now"])


def end_ms(jobs: Json, engine_job_id: str) -> int | None:
    """When the job in `/jobs/overview` ended, Unix ms of the engine; None: it has not ended."""
    ends = [whole(job["end-time"]) for job in jobs["jobs"] if job["jid"] == engine_job_id]
    return ends[0] if ends and ends[0] >= 0 else None


def savepoint_progress(answer: Json) -> SaveProgress:
    """From `/jobs/:id/savepoints/:trigger`, for savepoints and stops alike."""
    if answer["status"]["id"] != "COMPLETED":
        return SaveProgress(done=False)
    operation = answer.get("operation") or {}
    failure = operation.get("failure-cause")
    if failure is None:
        return SaveProgress(done=True, location=str(operation["location"]))
    trace = str(failure.get("stack-trace") or failure.get("class") or "")
    match = (
        _SAVEPOINT_PATH.search(trace[:LONGEST_TRACE]) if _FAILED_AFTER_SAVEPOINT in trace else None
    )
    location = match[1] if match else None
    return SaveProgress(done=True, location=location, failure=reason_of(trace))


def checkpoint_progress(answer: Json) -> SaveProgress:
    """From `/jobs/:id/checkpoints/:trigger`."""
    if answer["status"]["id"] != "COMPLETED":
        return SaveProgress(done=False)
    failure = (answer.get("operation") or {}).get("failure-cause")
    if failure is None:
        return SaveProgress(done=True)
    trace = str(failure.get("stack-trace") or failure.get("class") or "")
    return SaveProgress(done=True, failure=reason_of(trace))


def with_subtasks(progress: SaveProgress, answer: Json) -> SaveProgress:
    """Add how many subtasks have completed their part of the current savepoint, from
    `/jobs/:id/checkpoints`; unchanged if no savepoint is listed (yet)."""
    under_way = [
        each
        for each in answer.get("history") or []
        if each["status"] == "IN_PROGRESS" and each["is_savepoint"]
    ]
    if not under_way:
        return progress
    newest = max(under_way, key=lambda each: count(each["id"]))
    return replace(
        progress,
        acknowledged=count(newest["num_acknowledged_subtasks"]),
        total=count(newest["num_subtasks"]),
    )


def newest_state(answer: Json) -> SavedState | None:
    """The newest state that can be restored, from `/jobs/:id/checkpoints`.

    Ids rise with time, of savepoints and checkpoints alike. Discarded ones no longer exist (Flink
    deletes the checkpoints of a job that finished), and an intermediate savepoint may be older
    than the newest checkpoint. If the incarnation has completed none, its newest state is the one
    that it was restored from, or None if it began without state. Raises EngineRefusedError if all
    its completed ones are discarded.
    """
    latest = answer["latest"]
    complete = [latest.get("completed"), latest.get("savepoint"), *(answer.get("history") or [])]
    usable = [state for state in complete if state is not None and _usable(state)]
    if usable:
        newest = max(usable, key=lambda state: count(state["id"]))
        return SavedState(
            number=count(newest["id"]),
            location=str(newest["external_path"]),
            at_ms=unix_ms(newest["trigger_timestamp"]),
            bytes=count(newest["state_size"]),
            on_request=bool(newest["is_savepoint"]),
        )
    restored = latest.get("restored")
    # once a checkpoint was completed, its input was acknowledged: the restored state is too old
    if count(answer["counts"]["completed"]) > 0:
        raise EngineRefusedError(
            "cannot find its newest state: every checkpoint that it completed was discarded"
        )
    if restored is None:
        return None
    if not _is_path(restored.get("external_path")):
        raise EngineRefusedError(
            "cannot find its newest state: the engine does not report the path of the state that"
            " it was restored from"
        )
    return SavedState(
        number=count(restored["id"]),
        location=str(restored["external_path"]),
        at_ms=unix_ms(restored["restore_timestamp"]),
        bytes=0,
        on_request=bool(restored["is_savepoint"]),
    )


def highest_parallelism(plan: Json) -> int | None:
    """The highest parallelism of a plan's nodes, which are chains of operators."""
    return max((count(node["parallelism"]) for node in plan["nodes"]), default=None)


def was_stopped(answer: Json) -> bool:
    """Whether a stop with savepoint has completed, from `/jobs/:id/checkpoints`. Its savepoint is
    synchronous: the tasks end with it."""
    latest = answer["latest"]
    states = [latest.get("savepoint"), *(answer.get("history") or [])]
    return any(
        state is not None
        and state.get("checkpoint_type") == "SYNC_SAVEPOINT"
        and state.get("status") == "COMPLETED"
        for state in states
    )


def any_discarded(answer: Json) -> bool:
    """Whether `/jobs/:id/checkpoints` lists completed ones that have been discarded. The list may
    come from a cache, but its `discarded` flags are current."""
    latest = answer["latest"]
    states = [latest.get("completed"), latest.get("savepoint"), *(answer.get("history") or [])]
    return any(state is not None and state.get("discarded", False) for state in states)


def checkpointing(interval_s: float, answer: Json) -> Checkpointing:
    """From `/jobs/:id/checkpoints`; without savepoints, which are taken on request."""
    latest = answer["latest"].get("completed")
    if latest is None:
        return Checkpointing(interval_s)
    path = latest.get("external_path")
    folder = str(path).rpartition("/")[0] if _is_path(path) else None
    return Checkpointing(
        interval_s, count(latest["id"]), unix_ms(latest["latest_ack_timestamp"]), folder
    )


def _usable(state: Json) -> bool:
    complete = state.get("status") == "COMPLETED" and not state.get("discarded", False)
    return complete and _is_path(state.get("external_path"))


def _is_path(path: object) -> bool:
    """Flink writes `<checkpoint-not-externally-addressable>` for state kept in its memory."""
    return isinstance(path, str) and 0 < len(path) <= LONGEST_PATH and not path.startswith("<")


def job_exceptions(answer: Json) -> list[JobException]:
    """From `/jobs/:id/exceptions`, newest first."""
    entries = (answer.get("exceptionHistory") or {}).get("entries") or []
    exceptions = [
        JobException(
            at_ms=unix_ms(entry["timestamp"]),
            name=str(entry["exceptionName"])[:LONGEST_NAME],
            trace=str(entry["stacktrace"])[:LONGEST_TRACE],
            task=None if (task := entry.get("taskName")) is None else str(task)[:LONGEST_NAME],
            reason=reason_of(str(entry["stacktrace"])),
            transient=may_pass(str(entry["stacktrace"])),
            place=place_of(str(entry["stacktrace"])),
        )
        for entry in entries[:MOST_EXCEPTIONS]
    ]
    return sorted(exceptions, key=lambda each: each.at_ms, reverse=True)


@dataclass(frozen=True, slots=True)
class Jar:
    """A jar at the engine: Flink's id, the SHA-256 of which its name consists, and when it came."""

    id: str
    sha256: str
    uploaded_ms: int


def jars(answer: Json) -> list[Jar]:
    """The jars in `/jars` that speck has uploaded, oldest first."""
    files = sorted(answer["files"], key=lambda jar: unix_ms(jar["uploaded"]))
    return [
        Jar(str(jar["id"]), str(jar["name"]).removesuffix(".jar"), unix_ms(jar["uploaded"]))
        for jar in files
        if re.fullmatch(r"[0-9a-f]{64}\.jar", str(jar["name"]))
    ]


def jar_id(answer: Json) -> str:
    """From `/jars/upload`, which returns the path of the stored file."""
    return str(answer["filename"]).replace("\\", "/").rpartition("/")[2]


def counter_names(metrics: Iterable[Json]) -> list[str]:
    """The counters among one vertex's metrics: those whose differences and sums make sense.

    Flink's list does not distinguish counters from gauges. Returned are the operators' own
    counters (`0.Source__mqtt.numRecordsOut`; a task's own record counters stay 0 in a chained
    job), and the tasks' accumulated busy, idle and back-pressured time.
    """
    return sorted(str(each["id"]) for each in metrics if _is_counter(str(each["id"])))


_TASK_TIMES = ("accumulateBusyTimeMs", "accumulateIdleTimeMs", "accumulateBackPressuredTimeMs")
_NO_OPERATOR = ("Shuffle.", "buffers.", "Buffers.", "GarbageCollector.", "Status.")
_SOURCE_CONNECTED = re.compile(r"Source__.+\.connected")
_GAUGE = re.compile(
    r"PerSecond$|[wW]atermark|Lag$|(?:^|\.)current[A-Z]|Usage$|Ratio$|[iI]dleTime$"
    r"|_(?:min|max|mean|median|stddev|p\d+)$|\.split\."
)


def _is_counter(name: str) -> bool:
    subtask, _, metric = name.partition(".")
    if not subtask.isdigit():
        return False
    if metric in _TASK_TIMES:
        return True
    if "." not in metric or metric.startswith(_NO_OPERATOR):
        return False
    return _GAUGE.search(metric) is None


def sum_subtasks(vertex: str, values: Iterable[Json]) -> dict[str, float]:
    """Sum `0.name`, `1.name`, ... of one vertex by name; values that are no numbers are skipped.

    Names of the tasks' times are prefixed by the vertex's id, since each vertex has its own.
    """
    total: dict[str, float] = {}
    for each in values:
        metric = str(each["id"]).partition(".")[2]
        name = f"{vertex}.{metric}" if metric in _TASK_TIMES else metric
        try:
            value = float(each["value"])
        except (KeyError, TypeError, ValueError):
            continue
        if abs(value) != float("inf") and value == value:
            total[name] = total.get(name, 0.0) + value
    return total


def source_connected(metrics: Mapping[str, float]) -> bool | None:
    """Whether every source is connected (`Source__mqtt-source.connected`), by the sums of
    `FlinkEngine.metrics`; None if none reports it.

    Sinks report `connected`, too, and that of a committer is 0 while it has nothing to send.
    """
    gauges = [value for name, value in metrics.items() if _SOURCE_CONNECTED.fullmatch(name)]
    return all(gauges) if gauges else None


def plan_nodes(answer: Mapping[str, Any]) -> tuple[PlanNode, ...]:
    """The nodes of a plan (`/jobs/<id>/plan`). Raises KeyError, TypeError or ValueError for any
    other structure."""
    return tuple(
        PlanNode(
            str(node["id"]),
            str(node.get("description") or ""),
            count(node["parallelism"]),
            tuple(
                (str(each["id"]), str(each.get("ship_strategy") or ""))
                for each in node.get("inputs") or ()
            ),
        )
        for node in answer["plan"]["nodes"]
    )
