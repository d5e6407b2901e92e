"""States of jobs: how an engine saves them, and how they reach another site."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from speck.model.engines import EngineAt


@dataclass(frozen=True, slots=True)
class SavedState:
    """A complete state of an incarnation. `number` rises over its states; `location` is the name
    by which the engine restores it. `on_request`: it was asked for, and is kept until speck drops
    it."""

    number: int
    location: str
    at_ms: int
    bytes: int
    on_request: bool


@dataclass(frozen=True, slots=True)
class Checkpointing:
    """How a running job takes checkpoints: its interval (None: it takes none) and the newest
    completed one (None: none yet), which ended at `completed_ms` of the engine's clock. `folder` is
    the URI of the folder that holds it, as the engine reports it: a job may have set its own.
    `parallelism` is that of its state if it can go on with no other (None: with any, as far as is
    known)."""

    interval_s: float | None
    completed_id: int | None = None
    completed_ms: int | None = None
    folder: str | None = None
    parallelism: int | None = None


@dataclass(frozen=True, slots=True)
class SaveProgress:
    """The progress of saving a state (alone or with a stop).

    `location` is set once it is complete, `failure` once it has failed. Both may be set: the state
    is good, but the job failed while stopping. Until it is done, `acknowledged` of `total` parts
    have completed theirs, if the engine reports this.
    """

    done: bool
    location: str | None = None
    failure: str | None = None
    acknowledged: int | None = None
    total: int | None = None


@dataclass(frozen=True, slots=True)
class Transfer:
    """A job's state that is to be copied from the disk of one site to the disk of another.

    `path` is its name at the engine of `source`. `id` is the same in every attempt, so that a
    repeated request continues the transfer.
    """

    id: str
    job_name: str
    engine_job_id: str
    source: str
    target: str
    path: str


@dataclass(frozen=True, slots=True)
class TransferProgress:
    """The progress of a transfer in bytes; `location` is its name at the target's engine."""

    done: bool
    location: str | None = None
    failure: str | None = None
    bytes: int = 0
    total: int | None = None


class StateKeeper(Protocol):
    """Access to the state of jobs on the sites' disks, and its transfer between sites.

    Raises UnreachableError while a site's agent does not answer, and PermanentError if a call
    needs an agent and the site has none.
    """

    def folder(self, site: str) -> str | None:
        """Return the URI below which the site's engine keeps state; None if it is not known."""

    def shares_storage(self, one: str, other: str) -> bool:
        """Whether two sites read the same storage, so that no state needs to be copied."""

    def newest(
        self, engine: EngineAt, engine_job_id: str, folder: str | None = None
    ) -> SavedState | None:
        """Find the newest complete state of an incarnation by listing the folders of its
        `engine`, which no longer knows the job, and the `folder` of its checkpoints if it has one
        of its own. None: there is none."""

    def carry(self, transfer: Transfer) -> TransferProgress:
        """Begin the transfer, or continue it, and return its progress without waiting for it."""

    def drop(self, site: str, path: str) -> None:
        """Delete state that is no longer needed; does nothing if it does not exist."""
