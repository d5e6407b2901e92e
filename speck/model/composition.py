"""Compositions: as a user describes them, and resolved."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from speck.model.job import Job, JobDescription
from speck.model.link import Link


class Drift(StrEnum):
    """What becomes of a job that does not run as it should, though nobody asked."""

    MEND = "mend"
    REPORT = "report"


@dataclass(frozen=True, slots=True)
class Port:
    """A topic that is fed from, or read by, something that is not a job of ours."""

    topic: str
    site: str | None = None
    broker: str | None = None
    client_id: str | None = None


@dataclass(frozen=True, slots=True)
class CompositionDescription:
    """A composition as its user wrote it, defaults already applied to the jobs."""

    name: str
    jobs: tuple[JobDescription, ...]
    inputs: tuple[Port, ...] = ()
    outputs: tuple[Port, ...] = ()
    requirements: dict[str, float] = field(default_factory=dict)
    drift: Drift = Drift.MEND


@dataclass(frozen=True, slots=True)
class Reader:
    """A session outside speck that is reserved on an output link: `outputs` with client_id."""

    client_id: str
    link: Link
    site: str


@dataclass(frozen=True, slots=True)
class Composition:
    """A resolved composition: what a plan makes true. A job posted alone has name None.

    `inputs` are the links that are declared to be fed from outside speck.
    """

    name: str | None
    jobs: tuple[Job, ...]
    readers: tuple[Reader, ...] = ()
    inputs: tuple[Link, ...] = ()

    def job(self, job_name: str) -> Job | None:
        return next((job for job in self.jobs if job.job_name == job_name), None)
