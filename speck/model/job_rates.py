"""The rates of a job and of its tasks between two polls. None: not known; a known zero is 0."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from speck.model.shown import Shown


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkRates:
    """What was done between the last two polls that returned new counters."""

    seconds: Annotated[float | None, Shown("time between those polls")]
    in_rate: Annotated[float | None, Shown("records per second that the sources received")]
    out_rate: Annotated[float | None, Shown("records per second that the sinks sent")]
    busy: Annotated[
        float | None, Shown("0 to 1: share of the time in which the busiest subtask worked")
    ]
    idle: Annotated[float | None, Shown("0 to 1: share of the time in which it waited for input")]
    back_pressured: Annotated[
        float | None, Shown("0 to 1: share of the time in which it waited for space in its output")
    ]
    records_in: Annotated[int | None, Shown("since its tasks started")]
    records_out: Annotated[int | None, Shown("since its tasks started")]
    bytes_in: Annotated[
        int | None,
        Shown("since its tasks started: messages received, as their broker carries them"),
    ]
    bytes_out: Annotated[
        int | None, Shown("since its tasks started: messages sent, as their broker carries them")
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRates(WorkRates):
    """One subtask of a task (`vertex`)."""

    vertex: str
    name: str
    subtask: int
    is_source: bool
    is_sink: bool


@dataclass(frozen=True, slots=True)
class CheckpointSize:
    """The newest completed checkpoint: its id, its size, and how long it took."""

    id: Annotated[int | None, Shown("the newest completed checkpoint")]
    bytes: Annotated[int | None, Shown("its size")]
    ms: Annotated[int | None, Shown("how long it took")]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRates(WorkRates):
    """A job: its shares are those of the busiest subtask, its totals those of sources and sinks."""

    at: Annotated[str | None, Shown("RFC 3339: the newest sample")]
    restarts: Annotated[int | None, Shown("how often the engine restarted the job")]
    lag: Annotated[
        int | None,
        Shown("unread messages of its source, from producers that publish sequence numbers"),
    ] = None
    checkpoint: CheckpointSize
    tasks: tuple[TaskRates, ...]


@dataclass(frozen=True, slots=True)
class RatedJob:
    """The rates of a job that is to run."""

    job_name: str
    composition: str | None
    site: str
    rates: Annotated[JobRates, Shown(hidden=True)]
