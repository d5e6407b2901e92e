"""Compositions: as a user describes them, and resolved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Annotated

from speck.model.job import Job, JobDescription
from speck.model.link import Link
from speck.model.shown import Shown

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
    site: Annotated[str | None, Shown(left_out=True)] = None
    broker: Annotated[str | None, Shown(left_out=True)] = None
    client_id: Annotated[str | None, Shown("session that is reserved", left_out=True)] = None


@dataclass(frozen=True, slots=True)
class CompositionDescription:
    """A composition as its user wrote it, with its defaults applied to the jobs."""

    name: Annotated[str, Shown(hidden=True)]
    jobs: tuple[JobDescription, ...]
    inputs: tuple[Port, ...] = ()
    outputs: tuple[Port, ...] = ()
    requirements: Annotated[dict[str, float], Shown("absent without any", left_out=True)] = field(
        default_factory=dict
    )
    drift: Annotated[Drift, Shown("absent: mend", left_out=True)] = Drift.MEND


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


@dataclass(frozen=True, slots=True)
class Revision:
    """One accepted version of a composition. `artifacts` gives the SHA-256 of the file that each
    `job_path` named when it was accepted, at `at` (RFC 3339) for the token `by`."""

    description: CompositionDescription
    artifacts: Mapping[str, str]
    at: str
    by: str | None = None


@dataclass(frozen=True, slots=True)
class Head:
    """Where a composition, or a job posted alone, stands: its newest revision, accepted at `at`
    (RFC 3339) with so many `jobs` and `bytes` of text, the one that is deployed, and its newest
    change. A head stays when all of it has been removed (`deleted`): revisions only grow."""

    name: str
    revision: int
    jobs: Annotated[int, Shown("number of jobs")]
    bytes: Annotated[int, Shown(hidden=True)]
    at: str
    last_change: Annotated[str, Shown(hidden=True)]
    deployed_revision: int | None = None
    removing: Annotated[bool, Shown(hidden=True)] = False
    deleted: Annotated[bool, Shown(hidden=True)] = False

    def with_change(self, change_id: str, *, removing: bool = False) -> Head:
        """The head once another change was accepted."""
        return replace(self, last_change=change_id, removing=removing)

    def as_deleted(self) -> Head:
        """The head once all of the composition has been removed."""
        return replace(self, deleted=True, removing=False, deployed_revision=None, jobs=0)
