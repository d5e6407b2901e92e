"""Compositions: as a user describes them, and resolved."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from speck.model.job import Job, JobDescription
from speck.model.link import Link

_ALONE = "~"  # no name that a user may give begins so


def composition_of_one(job_name: str) -> str:
    """The hidden name of the composition that a job posted alone is all of."""
    return f"{_ALONE}{job_name}"


def job_posted_alone(composition: str) -> str | None:
    """The job that a composition was made for, if nobody but speck has named the composition."""
    return composition.removeprefix(_ALONE) if composition.startswith(_ALONE) else None


def visible_name(composition: str) -> str | None:
    """A composition's name as users see it: none of one that holds a job posted alone."""
    return None if composition.startswith(_ALONE) else composition


def title(composition: str) -> str:
    """What messages call it: `composition 'x'`, or `job 'A'` for a job posted alone."""
    job_name = job_posted_alone(composition)
    return f"composition {composition!r}" if job_name is None else f"job {job_name!r}"


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
    """A resolved composition: what a plan makes true.

    `inputs` are the links that are declared to be fed from outside speck.
    """

    name: str
    jobs: tuple[Job, ...]
    readers: tuple[Reader, ...] = ()
    inputs: tuple[Link, ...] = ()

    def job(self, job_name: str) -> Job | None:
        return next((job for job in self.jobs if job.job_name == job_name), None)
