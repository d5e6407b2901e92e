"""Compositions: as a user describes them, and resolved."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from speck.model.job import Job, JobDescription
from speck.model.link import Link

_ALONE = "~"  # no valid name begins with this character


def composition_of_one(job_name: str) -> str:
    """The hidden name of the composition that consists of one job posted alone."""
    return f"{_ALONE}{job_name}"


def job_posted_alone(composition: str) -> str | None:
    """The job of a composition with a hidden name; None for a composition that a user named."""
    return composition.removeprefix(_ALONE) if composition.startswith(_ALONE) else None


def visible_name(composition: str) -> str | None:
    """A composition's name as users see it; None if it consists of a job posted alone."""
    return None if composition.startswith(_ALONE) else composition


def title(composition: str) -> str:
    """The composition's title in messages: `composition 'x'`, or `job 'A'` for a job alone."""
    job_name = job_posted_alone(composition)
    return f"composition {composition!r}" if job_name is None else f"job {job_name!r}"


class Drift(StrEnum):
    """What speck does about a job that has left its desired state without a user's request."""

    MEND = "mend"
    REPORT = "report"


@dataclass(frozen=True, slots=True)
class Port:
    """A topic that an outside program writes or reads."""

    topic: str
    site: str | None = None
    broker: str | None = None
    client_id: str | None = None


@dataclass(frozen=True, slots=True)
class CompositionDescription:
    """A composition as its user wrote it, with its defaults applied to the jobs."""

    name: str
    jobs: tuple[JobDescription, ...]
    inputs: tuple[Port, ...] = ()
    outputs: tuple[Port, ...] = ()
    requirements: dict[str, float] = field(default_factory=dict)
    drift: Drift = Drift.MEND


@dataclass(frozen=True, slots=True)
class Reader:
    """An outside reader whose session speck reserves on an output link (`client_id` of an entry
    in `outputs`)."""

    client_id: str
    link: Link
    site: str


@dataclass(frozen=True, slots=True)
class Composition:
    """A resolved composition: the state that a plan establishes.

    `inputs` are the links that are declared as written by outside programs.
    """

    name: str
    jobs: tuple[Job, ...]
    readers: tuple[Reader, ...] = ()
    inputs: tuple[Link, ...] = ()

    def job(self, job_name: str) -> Job | None:
        return next((job for job in self.jobs if job.job_name == job_name), None)
