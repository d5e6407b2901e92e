"""Measurements of engines and brokers; plain data, returned by `measure` of the binders.

Counters grow from the start of an incarnation's tasks (a restart of the job by its engine resets
them to 0); rates are computed from their differences. None means "not reported", never zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

TIMES = ("busy_ms", "idle_ms", "back_pressured_ms")
"""Counters of a task's thread whose sum is the time that it has run."""
COUNTS = ("records_in", "records_out", "bytes_in", "bytes_out")
"""Counters of a task's input and output."""


@dataclass(frozen=True, slots=True)
class TaskMeasure:
    """One subtask (`subtask` of `subtasks`, from 0) of one vertex of a job.

    `busy_ms`, `idle_ms` and `back_pressured_ms` are accumulated wall time of its thread, `cpu_ms`
    is the CPU time that it has used (our connector reports it; engines may not). Records and bytes
    count the vertex's input and output. For a source or sink vertex they are the connector's own
    counters (bytes of the messages as their broker carries them), otherwise those of the exchange
    between vertices. A vertex that is both source and sink is a fully chained job.
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
        """How long it has run by its own clock; None unless it reports all three times."""
        times = [getattr(self, name) for name in TIMES]
        return None if None in times else float(sum(times))


MOST_OF_PROBLEM = 400
"""Characters of a problem that are kept: it comes from a site."""


def cut_problem(text: str | None) -> str | None:
    """A problem as it is kept; None if there is none."""
    return text[:MOST_OF_PROBLEM] if text else None


@dataclass(frozen=True, slots=True)
class LinkMeasure:
    """What the connector of an incarnation reports of its links, beside rates.

    `problem`: why it cannot read or write now; `is_lasting`, as the engine's binder judges it, if
    that does not pass before somebody changes credentials or permissions. Counters of records:
    `left_out` since no broker would take them, `lost` by the sink as its settings allow, `dropped`
    by the source since they found no room.
    """

    problem: str | None = None
    left_out: int = 0
    lost: int = 0
    dropped: int = 0
    is_lasting: bool = False


@dataclass(frozen=True, slots=True)
class JobMeasure:
    """The measurements of one incarnation. `restarts` counts restarts by the engine itself. The
    checkpoint is the newest completed one: its id, its size in bytes and its duration in ms. `link`
    is None if its connector reports nothing of the kind."""

    engine_job_id: str
    tasks: tuple[TaskMeasure, ...]
    restarts: int | None = None
    uptime_ms: int | None = None
    checkpoint_id: int | None = None
    checkpoint_bytes: int | None = None
    checkpoint_ms: int | None = None
    link: LinkMeasure | None = None


@dataclass(frozen=True, slots=True)
class EngineMeasures:
    """One measurement of an engine, summed over its workers.

    `cores` is the number of cores that it may use (a CPU quota counts as a fraction where it is
    known), `cpu_ms` the CPU time that its processes have used so far; memory and heap are in
    bytes. Metaspace (where a JVM keeps classes) is that of the process that has the smallest part
    of it left: a sum would hide that one is full. A requested job that is missing in `jobs` is
    unknown to the engine, or its metrics could not be read.
    """

    jobs: Mapping[str, JobMeasure] = field(default_factory=dict)
    slots_total: int | None = None
    slots_free: int | None = None
    cores: float | None = None
    cpu_ms: float | None = None
    memory_bytes: int | None = None
    heap_used_bytes: int | None = None
    heap_max_bytes: int | None = None
    metaspace_used_bytes: int | None = None
    metaspace_max_bytes: int | None = None

    @property
    def metaspace_share(self) -> float | None:
        """How full the metaspace is, from 0 to 1; None if the engine reports none, or no limit."""
        if self.metaspace_used_bytes is None or not self.metaspace_max_bytes:
            return None
        return self.metaspace_used_bytes / self.metaspace_max_bytes


@dataclass(frozen=True, slots=True)
class BrokerMeasures:
    """One measurement of a broker: totals since its start, and the `queued` messages that it
    holds for readers now."""

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
    """One vertex of an engine's plan: a description, and its `inputs` as pairs of a vertex id and
    the way in which records are exchanged (`FORWARD`, `HASH`, `REBALANCE`, ...); None: the engine
    does not look into jobs."""

    id: str
    description: str
    parallelism: int
    inputs: tuple[tuple[str, str], ...] | None = ()


@dataclass(frozen=True, slots=True)
class Host:
    """The machine of a site: `cpu` is the share of all its cores in use (0 to 1) over the last few
    seconds, by the engine and all other programs."""

    cpu: float | None = None
    cores: int | None = None
