"""Reads what the runner of a site reports; it is written at the site, and so checked."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from speck.binding import JobException, SaveProgress
from speck.errors import UnreachableError
from speck.model.measurement import JobMeasure, LinkMeasure, TaskMeasure
from speck.model.observation import EngineJob, RunState, Slots
from speck.model.values import cut

PROGRAM = "program"
"""The only node of a program's plan."""


@dataclass(frozen=True, slots=True)
class ProgramStatus:
    """One program. `step` is the number of its newest state, None while it has none; `report` what
    it reports of itself (`speck.runner.reports`)."""

    label: str
    name: str
    state: RunState
    width: int
    saved: bool
    step: int | None
    at_ms: int
    location: str
    failures: Sequence[Sequence[Any]] = ()
    triggers: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    restarts: int = 0
    uptime_ms: int = 0
    cpu_ms: float | None = None
    bytes: int | None = None
    state_bytes: int | None = None
    report: Mapping[str, Any] = field(default_factory=dict)
    ended_ms: int = 0
    engine: str = "process"

    def to_job(self) -> EngineJob:
        running = self.width if self.state is RunState.RUNNING else 0
        return EngineJob(self.label, self.name, self.state, running, self.width)

    def find_progress(self, trigger: str) -> SaveProgress | None:
        progress = self.triggers.get(trigger)
        if progress is None:
            return None
        return SaveProgress(progress["done"], progress["location"], progress["failure"])

    def list_failures(self) -> list[JobException]:
        """Newest first."""
        failures = []
        for at_ms, why, log in reversed(self.failures):
            line = _pick_line(log)
            reason = cut(f"{why}: {line}" if line else why)
            failures.append(JobException(at_ms, "ProgramFailure", log or why, reason=reason))
        return failures

    def measure(self) -> JobMeasure:
        report = self.report
        task = TaskMeasure(
            vertex=PROGRAM,
            name=self.name,
            subtask=0,
            subtasks=1,
            is_source=True,
            is_sink=True,
            cpu_ms=self.cpu_ms,
            **{name: report.get(name) for name in _OF_TASK},
        )
        link = LinkMeasure(
            problem=report.get("problem"),
            **{name: report.get(name, 0) for name in ("left_out", "lost", "dropped")},
        )
        return JobMeasure(
            self.label,
            (task,),
            restarts=self.restarts,
            uptime_ms=self.uptime_ms,
            checkpoint_id=self.step,
            checkpoint_bytes=self.state_bytes,
            checkpoint_ms=report.get("checkpoint_ms"),
            link=link if report else None,
        )

    def list_metrics(self) -> Mapping[str, float]:
        """The counters of a program, named like those of other engines' jobs."""
        counts = {name: self.report.get(key) for key, name in _NAMES.items()}
        own = dict(self.report.get("counters", {}))
        values = {**own, **{k: v for k, v in counts.items() if v is not None}}
        return {f"{PROGRAM}.{name}": float(value) for name, value in values.items()}


def _pick_line(log: str) -> str:
    """The line of a program's output that says what went wrong: the last one that begins as errors
    of speck's own do, else the last one that is no frame of a Java stack trace."""
    lines = [line for line in log.splitlines() if line.strip() and not _FRAME.match(line)]
    own = (line for line in reversed(lines) if line.startswith("cannot "))
    return next(own, lines[-1] if lines else "")


_FRAME = re.compile(r"\s+(at \S+\(|\.\.\. \d+ (more|common frames))")
_OF_TASK = (
    *("busy_ms", "idle_ms", "back_pressured_ms", "records_in", "records_out"),
    *("bytes_in", "bytes_out"),
)
_NAMES = {
    "records_in": "numRecordsIn",
    "records_out": "numRecordsOut",
    "bytes_in": "numBytesIn",
    "bytes_out": "numBytesOut",
}


@dataclass(frozen=True, slots=True)
class RunnerStatus:
    """All that the runner of a site reports; `artifacts` are the Unix ms of their arrival by
    SHA-256, `spark` is the version of PySpark, if it has one. `isolated`: each program has a user
    of its own; `in_groups`: and a control group that limits its memory. `cores` are those that
    programs may use (None: an older runner), `cpu_ms` the CPU time of all programs by the kind of
    their engine."""

    version: str
    turn: int
    slots: Slots
    folder: str
    spark: str | None
    isolated: bool
    in_groups: bool
    programs: Mapping[str, ProgramStatus]
    artifacts: Mapping[str, int]
    cores: float | None = None
    cpu_ms: Mapping[str, float] = field(default_factory=dict)


def parse_status(status: Mapping[str, Any], site: str = "the site") -> RunnerStatus:
    """Raises UnreachableError for what no runner of this version writes."""
    with suppress(LookupError, TypeError, ValueError, AttributeError):
        runs = status["runs"].values()
        programs = [ProgramStatus(**{**run, "state": RunState(run["state"])}) for run in runs]
        return RunnerStatus(
            str(status["version"]),
            int(status["turn"]),
            Slots(int(status["slots"]), int(status["free"])),
            str(status["folder"]),
            status.get("spark"),
            bool(status["isolated"]),
            status["memory_by"] == "group",
            {program.label: program for program in programs},
            dict(status["artifacts"]),
            float(status["cores"]) if "cores" in status else None,
            {str(kind): float(value) for kind, value in status.get("cpu_ms", {}).items()},
        )
    raise UnreachableError(
        f"cannot reach the runner of {site}: what it reports cannot be read; update the runner"
    )
