"""What a simulated Flink answers: recorded answers of Flink 2.3 with each job's own values.

`bench/simulated_flink.json` holds the recorded ones.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bench.simulated_site import CHECKPOINT_S, Job, Savepoint, Site

RECORDED: dict[str, Any] = json.loads(
    Path(__file__).with_suffix("").with_name("simulated_flink.json").read_text()
)
VERTEX = str(RECORDED["job"]["vertices"][0]["id"])
RETAINED = 5
RECORDS_PER_S = 5.0
"""What the counters of a running task tell."""

_COUNTS = ("Source__", "__Writer.numRecords", "numRecordsIn", "numRecordsOut")


def overview(site: Site, now: float) -> Any:
    states = [job.state(now) for job in site.jobs.values()]
    return RECORDED["overview"] | {
        "slots-total": site.slots,
        "slots-available": site.free(now),
        "jobs-running": sum(state in ("RUNNING", "CANCELLING") for state in states),
        "jobs-finished": states.count("FINISHED"),
        "jobs-cancelled": states.count("CANCELED"),
        "jobs-failed": states.count("FAILED"),
    }


def list_jobs(site: Site, now: float) -> Any:
    return {"jobs": [_list_job(job, now) for job in site.jobs.values()]}


def _list_job(job: Job, now: float) -> Any:
    tasks = dict.fromkeys(RECORDED["listed"]["tasks"], 0)
    total = 0 if job.failure else job.parallelism
    tasks |= {"total": total, _task_word(job, now): total}
    ended = job.over(now)
    return RECORDED["listed"] | {
        "jid": job.id,
        "name": job.name,
        "start-time": _ms(job.begun),
        "end-time": _ms(job.ended) if ended and job.ended is not None else -1,
        "duration": _ms((job.ended if ended and job.ended is not None else now) - job.begun),
        "state": job.state(now),
        "last-modification": _ms(job.ended if ended and job.ended else job.begun),
        "tasks": tasks,
    }


def job(site: Site, of: Job, now: float) -> Any:
    ended = of.over(now)
    word = _task_word(of, now).upper()
    vertex = RECORDED["job"]["vertices"][0]
    tasks = dict.fromkeys(vertex["tasks"], 0) | {word: of.parallelism}
    vertices = [vertex | {"parallelism": of.parallelism, "status": word, "tasks": tasks}]
    return RECORDED["job"] | {
        "jid": of.id,
        "application-id": of.id,
        "name": of.name,
        "state": of.state(now),
        "start-time": _ms(of.begun),
        "end-time": _ms(of.ended) if ended and of.ended is not None else -1,
        "now": _ms(now),
        "vertices": [] if of.failure else vertices,
        "plan": plan(of.id, of.name, of.parallelism)["plan"],
    }


def plan(job_id: str, name: str, parallelism: int) -> Any:
    recorded = RECORDED["plan"]["plan"]
    node = recorded["nodes"][0] | {"parallelism": parallelism}
    return {"plan": recorded | {"jid": job_id, "name": name, "nodes": [node]}}


def checkpoints(site: Site, of: Job, now: float) -> Any:
    """The newest ones, savepoints among them, as many as Flink lists."""
    completed = site.completed(of, now)
    savepoints = [save for save in of.savepoints if save.done <= now]
    history = [_savepoint(of, save) for save in reversed(savepoints)]
    is_gone = of.over(now) and of.end == "FINISHED"
    numbers = range(of.first + completed - 1, max(of.first, of.first + completed - 10) - 1, -1)
    periodic = [
        _checkpoint(site, of, number, is_gone or number < of.first + completed - RETAINED)
        for number in numbers
    ]
    restored = RECORDED["restored"] | {
        "id": of.restored[0] if of.restored else 0,
        "restore_timestamp": _ms(of.begun),
        "is_savepoint": bool(of.restored and "/savepoint-" in of.restored[1]),
        "external_path": of.restored[1] if of.restored else "",
    }
    answer = RECORDED["checkpoints"]
    total = completed + len(savepoints)
    counts = answer["counts"] | {"total": total, "completed": total}
    latest = {
        "completed": periodic[0] if periodic else None,
        "savepoint": history[0] if history else None,
        "failed": None,
        "restored": restored if of.restored else None,
    }
    return answer | {
        "counts": counts | {"restored": int(of.restored is not None)},
        "latest": latest,
        "history": (history + periodic)[:10],
    }


def _checkpoint(site: Site, of: Job, number: int, discarded: bool) -> Any:
    assert of.running is not None
    at = of.running + (number - of.first + 1) * site.interval_s
    return RECORDED["checkpoint"] | {
        "id": number,
        "trigger_timestamp": _ms(at),
        "latest_ack_timestamp": _ms(at + CHECKPOINT_S),
        "num_subtasks": of.parallelism,
        "num_acknowledged_subtasks": of.parallelism,
        "external_path": site.checkpoint_path(of, number),
        "discarded": discarded,
    }


def _savepoint(of: Job, save: Savepoint) -> Any:
    return RECORDED["checkpoint"] | {
        "id": save.number,
        "is_savepoint": True,
        "savepointFormat": "CANONICAL",
        "trigger_timestamp": _ms(save.done - CHECKPOINT_S),
        "latest_ack_timestamp": _ms(save.done),
        "checkpoint_type": "SYNC_SAVEPOINT" if save.stops else "SAVEPOINT",
        "num_subtasks": of.parallelism,
        "num_acknowledged_subtasks": of.parallelism,
        "external_path": save.location,
    }


def savepoint(save: Savepoint, now: float) -> Any:
    """The answer on a trigger."""
    if now < save.done:
        return {"status": {"id": "IN_PROGRESS"}, "operation": None}
    if save.failure is not None:
        name, _, message = save.failure.partition(": ")
        trace = f"org.apache.flink.runtime.checkpoint.{name}: {message}"
        failure = {"class": f"org.apache.flink.{name}", "stack-trace": trace}
        return {"status": {"id": "COMPLETED"}, "operation": {"failure-cause": failure}}
    return {"status": {"id": "COMPLETED"}, "operation": {"location": save.location}}


def checkpoint_config(site: Site) -> Any:
    return RECORDED["checkpoint_config"] | {"interval": _ms(site.interval_s)}


def exceptions(of: Job) -> Any:
    if of.failure is None:
        return RECORDED["exceptions"]
    name = "org.apache.flink.runtime.client.JobInitializationException"
    trace = f"{name}: Could not start the JobMaster.\nCaused by: java.io.FileNotFoundException: "
    entry = {
        "exceptionName": name,
        "stacktrace": trace + of.failure,
        "timestamp": _ms(of.begun),
        "taskName": None,
    }
    return {"exceptionHistory": {"entries": [entry], "truncated": False}}


def environment() -> Any:
    """As of an engine of the fog."""
    options = ["-javaagent:/opt/speck/lib/speck-exit-guard.jar", "-Dfile.encoding=UTF-8"]
    return {
        "jvm": {"version": "OpenJDK 64-Bit Server VM - Debian - 17/17.0.15", "options": options}
    }


def settings(site: Site) -> Any:
    own = {
        "execution.checkpointing.interval": f"{_ms(site.interval_s)}ms",
        "taskmanager.numberOfTaskSlots": str(site.slots),
    }
    return [each | {"value": own.get(each["key"], each["value"])} for each in RECORDED["settings"]]


def taskmanagers(site: Site, now: float) -> Any:
    worker = RECORDED["taskmanager"] | {
        "slotsNumber": site.slots,
        "freeSlots": site.free(now),
        "timeSinceLastHeartbeat": _ms(now),
    }
    return {"taskmanagers": [worker]}


def worker_metrics(names: list[str], now: float) -> Any:
    value = {
        "Status.JVM.CPU.Time": int(now * 1e7),
        "Status.JVM.Memory.Metaspace.Max": 256 << 20,
    }
    return [{"id": name, "value": str(value.get(name, 64 << 20))} for name in names]


def job_metrics(site: Site, of: Job, names: list[str], now: float) -> Any:
    values = {
        "numRestarts": 0,
        "uptime": _ms(now - of.running) if of.running is not None else 0,
        "lastCompletedCheckpointId": of.first + site.completed(of, now) - 1,
        "lastCheckpointFullSize": 950,
        "lastCheckpointDuration": _ms(CHECKPOINT_S),
        "numberOfFailedCheckpoints": 0,
    }
    return [{"id": name, "value": str(values[name])} for name in names if name in values]


def vertex_metrics(of: Job, names: list[str] | None, now: float) -> Any:
    """Names alone, or values of some; counters grow with the time that the task has run."""
    if not of.tasks_run(now):
        return []
    if names is None:
        tasks = range(of.parallelism)
        return [{"id": f"{task}.{name}"} for task in tasks for name in RECORDED["metrics"]]
    lived = now - of.running if of.running is not None else 0.0
    metrics = []
    for each in names:
        task, _, name = each.partition(".")
        if name in _METRICS and int(task) < of.parallelism:
            metrics.append({"id": each, "value": _value(name, lived)})
    return metrics


_METRICS = frozenset(RECORDED["metrics"])


def _value(name: str, lived: float) -> str:
    if name == "accumulateBusyTimeMs":
        return str(lived * 20)
    if name == "accumulateIdleTimeMs":
        return str(int(lived * 980))
    if name.endswith(".connected"):
        return "1"
    if name.endswith("taskCpuTimeMs"):
        return str(int(lived * 15))
    records = RECORDS_PER_S * lived
    if any(part in name for part in _COUNTS):
        return str(int(records * (150 if "Bytes" in name else 1)))
    return "0"


def _task_word(of: Job, now: float) -> str:
    if of.over(now):
        return of.end.lower()
    if of.ending is not None and of.end == "CANCELED":
        return "canceling"
    return "running" if of.tasks_run(now) else "scheduled" if of.running is None else "deploying"


def _ms(seconds: float) -> int:
    return int(seconds * 1000)
