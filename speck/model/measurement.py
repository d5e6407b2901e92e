"""What engines and brokers tell of their work; plain data, made by the binders' `measure`.

Counters only grow, from the start of an incarnation's tasks (a restart of the job by its engine
sets them back to 0); their differences make rates. None: not told, which is never a zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

TIMES = ("busy_ms", "idle_ms", "back_pressured_ms")
"""Counters of a task's thread that add up to the time it has run."""
COUNTS = ("records_in", "records_out", "bytes_in", "bytes_out")
"""Counters of what a task takes in and gives out."""


@dataclass(frozen=True, slots=True)
class TaskMeasure:
    """One subtask (`subtask` of `subtasks`, from 0) of one vertex of a job.

    `busy_ms`, `idle_ms` and `back_pressured_ms` are accumulated wall time of its thread, `cpu_ms`
    the CPU time that it has used (our connector tells it; Flink itself does not). Records
    and bytes are those that the vertex takes in and gives out: of a source or sink vertex the
    connector's own counters (bytes of the messages as their broker carries them: MQTT PUBLISH
    packets), else those of the exchange between vertices. A vertex that is source and sink at
    once is one fully chained job.
    """

    vertex: str
    name: str
    subtask: int
    subtasks: int
    is_source: bool
    is_sink: bool
    busy_ms: float | None = None
    idle_ms: float | None = None
    back_pressured_ms: float | None = None
    records_in: int | None = None
    records_out: int | None = None
    bytes_in: int | None = None
    bytes_out: int | None = None
    cpu_ms: float | None = None

    @property
    def lived_ms(self) -> float | None:
        """For how long it has run, by its own clock: None when it does not tell all its time."""
        times = [getattr(self, name) for name in TIMES]
        return None if None in times else float(sum(times))


@dataclass(frozen=True, slots=True)
class JobMeasure:
    """One incarnation. `restarts` counts restarts by the engine itself; the checkpoint is the
    newest that completed: its id, its size in bytes and how long it took in ms."""

    engine_job_id: str
    tasks: tuple[TaskMeasure, ...]
    restarts: int | None = None
    uptime_ms: int | None = None
    checkpoint_id: int | None = None
    checkpoint_bytes: int | None = None
    checkpoint_ms: int | None = None


@dataclass(frozen=True, slots=True)
class EngineMeasures:
    """One look at an engine, summed over its workers.

    `cores` are those that it may use (a CPU quota counts as a fraction where it is known),
    `cpu_ms` the CPU time that its processes have used so far, memory and heap in bytes. A job
    that was asked for and is not in `jobs` did not answer, or is not known.
    """

    jobs: Mapping[str, JobMeasure]
    slots_total: int | None = None
    slots_free: int | None = None
    cores: float | None = None
    cpu_ms: float | None = None
    memory_bytes: int | None = None
    heap_used_bytes: int | None = None
    heap_max_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class BrokerMeasures:
    """One look at a broker: totals since it began, `queued` messages held for readers now."""

    messages_in: int | None = None
    messages_out: int | None = None
    bytes_in: int | None = None
    bytes_out: int | None = None
    dropped: int | None = None
    queued: int | None = None
    clients: int | None = None
    uptime_s: int | None = None


@dataclass(frozen=True, slots=True)
class PlanNode:
    """One vertex of an engine's plan: what it does, and how records come to it from which
    others (`FORWARD`, `HASH`, `REBALANCE`, ...)."""

    id: str
    description: str
    parallelism: int
    inputs: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Host:
    """The machine below a site: share of all its cores in use (0 to 1) over the last few
    seconds, and how many cores it has. Other programs than the engine count, too."""

    cpu: float | None = None
    cores: int | None = None
