"""One simulated Flink: jobs that come, run, take checkpoints and end, by the clock alone.

What a job does follows from when it was started, so a site that nobody asks costs nothing.
No record flows. Times are seconds of the given clock; how long things take is drawn from what
was measured of a real Flink (`Draw`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from secrets import token_hex

Draw = Callable[[str], float]
"""What takes how long: seconds of `starting`, `stopping` and `cancelling`."""

CHECKPOINT_S = 0.02
"""From a checkpoint's trigger to its completion."""


@dataclass(slots=True)
class Savepoint:
    """One that was asked for: done at `done`, under checkpoint id `number`; `failure` instead of
    a `location` when it cannot be made."""

    done: float
    location: str | None = None
    failure: str | None = None
    number: int = 0
    stops: bool = False


@dataclass(slots=True)
class Job:
    """One incarnation. `running` is None while it has no slots; `ended` is when it is over."""

    id: str
    name: str
    parallelism: int
    begun: float
    first: int = 1
    restored: tuple[int, str] | None = None
    running: float | None = None
    ending: float | None = None
    ended: float | None = None
    end: str = ""
    failure: str | None = None
    savepoints: list[Savepoint] = field(default_factory=list)

    def state(self, now: float) -> str:
        """Flink's word for it."""
        if self.ended is not None and now >= self.ended:
            return self.end
        if self.ending is not None and self.end == "CANCELED":
            return "CANCELLING"
        return "RUNNING"

    def over(self, now: float) -> bool:
        return self.ended is not None and now >= self.ended

    def tasks_run(self, now: float) -> bool:
        return self.running is not None and self.running <= now and not self.over(now)


class Site:
    """The JobManager and its slots. Raises LookupError for jobs and jars that it does not know."""

    def __init__(self, name: str, slots: int, interval_s: float, draw: Draw):
        self.name = name
        self.slots = slots
        self.interval_s = interval_s
        self.jobs: dict[str, Job] = {}
        self.jars: dict[str, float] = {}
        self.triggers: dict[tuple[str, str], Savepoint] = {}
        self.checkpoint_requests: dict[tuple[str, str], int] = {}
        """The checkpoints completed when another one was asked for."""
        self._locations: dict[str, int] = {}
        self._waiting: list[Job] = []
        self._draw = draw

    def free(self, now: float) -> int:
        """Slots in use by no job."""
        used_slots = sum(j.parallelism for j in self.jobs.values() if j.running and not j.over(now))
        return self.slots - used_slots

    def add_jar(self, name: str, now: float) -> str:
        """Its id, which is new each time."""
        identity = f"{token_hex(4)}-{token_hex(2)}-{token_hex(2)}_{name}"
        self.jars[identity] = now
        return identity

    def run(self, job_id: str, name: str, parallelism: int, restore: str | None, now: float) -> Job:
        """Start a job. Raises KeyError when its id is used up, FileNotFoundError (and lists it as
        failed) when there is nothing at `restore`."""
        if job_id in self.jobs:
            raise KeyError(job_id)
        job = self.jobs[job_id] = Job(job_id, name, parallelism, now)
        if restore is not None:
            number = self._number_of(restore, now)
            if number is None:
                job.ended, job.end = now, "FAILED"
                job.failure = f"Cannot find checkpoint or savepoint file/directory '{restore}'"
                raise FileNotFoundError(restore)
            job.first, job.restored = number + 1, (number, restore)
        self._waiting.append(job)
        self.place(now)
        return job

    def place(self, now: float) -> None:
        """Give slots to jobs that wait for them."""
        if not self._waiting:
            return
        free = self.free(now)
        for job in list(self._waiting):
            if job.ending is not None or job.ended is not None:
                self._waiting.remove(job)
            elif job.parallelism <= free:
                free -= job.parallelism
                job.running = now + self._draw("starting")
                self._waiting.remove(job)

    def cancel(self, job_id: str, now: float) -> None:
        """Raises KeyError, and ValueError with its state when it has ended otherwise."""
        job = self.jobs[job_id]
        if job.over(now):
            if job.end != "CANCELED":
                raise ValueError(job.end)
            return
        if job.ending is None or job.end != "CANCELED":
            job.ending, job.end = now, "CANCELED"
            job.ended = now + self._draw("cancelling")

    def save(
        self, job_id: str, trigger: str, folder: str | None, now: float, *, stops: bool
    ) -> None:
        """Begin a savepoint, once for each trigger."""
        if (job_id, trigger) in self.triggers:
            return
        job = self.jobs.get(job_id)
        if job is None:
            why = f"FlinkJobNotFoundException: Could not find Flink job ({job_id})"
            self.triggers[job_id, trigger] = Savepoint(now, failure=why)
            return
        if not job.tasks_run(now):
            why = "CheckpointException: Not all required tasks are currently running."
            self.triggers[job_id, trigger] = Savepoint(now, failure=why)
            return
        done = now + self._draw("stopping")
        where = (folder or "file:/flink/state/savepoints").rstrip("/")
        location = f"{where}/savepoint-{job_id[:6]}-{token_hex(6)}"
        number = job.first + self.completed(job, now) + len(job.savepoints)
        savepoint = Savepoint(done, location, number=number, stops=stops)
        self.triggers[job_id, trigger] = savepoint
        job.savepoints.append(savepoint)
        self._locations[location] = number
        if stops:
            job.ending = job.ended = done
            job.end = "FINISHED"

    def completed(self, job: Job, now: float) -> int:
        """How many checkpoints (not savepoints) it has completed."""
        if job.running is None:
            return 0
        until = min(now, job.ended if job.ended is not None else now) - CHECKPOINT_S
        return max(0, int((until - job.running) / self.interval_s))

    def checkpoint_path(self, job: Job, number: int) -> str:
        return f"file:/flink/state/{self.name}/checkpoints/{job.id}/chk-{number}"

    def _number_of(self, path: str, now: float) -> int | None:
        """The checkpoint id of the state at `path`; None: nothing is there."""
        if path in self._locations:
            return self._locations[path]
        match = re.fullmatch(r".*/checkpoints/([0-9a-f]{32})/chk-(\d+)", path)
        job = self.jobs.get(match[1]) if match else None
        if match is None or job is None:
            return None
        number = int(match[2])
        return number if number < job.first + self.completed(job, now) else None
