"""The contracts of engines and brokers, and how their binders are found.

A binder is a class behind an entry point of group `speck.engines` or `speck.brokers`; the
entry point's name is the `kind` that a site's `spe` or `broker` gives. speck never imports
`binders`. docs/binders.md shows how to add one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Protocol, cast

from speck.errors import PermanentError
from speck.model.measurement import BrokerMeasures, EngineMeasures
from speck.model.observation import BrokerView, EngineJob, EngineView, RunState


class EngineCapability(StrEnum):
    """What an engine can do beyond starting and cancelling jobs."""

    SAVEPOINTS = "savepoints"
    TRY_MAIN = "try_main"


class BrokerCapability(StrEnum):
    """What a broker can do beyond carrying messages."""

    SESSIONS = "sessions"  # keeps what a reader has not taken while it is away
    NUMBERS = "numbers"  # carries message properties (MQTT 5), so repeats can be told


@dataclass(frozen=True, slots=True)
class Submission:
    """Everything an engine needs to start one incarnation.

    `jar_file` is the artifact on this machine, for an engine that has lost its copy;
    `savepoint` is a path or URI that the engine can read, None to start without state.
    """

    engine_job_id: str
    job_name: str
    jar: str
    jar_file: Path
    entry_class: str
    args: tuple[str, ...]
    parallelism: int = 1
    savepoint: str | None = None


@dataclass(frozen=True, slots=True)
class SavepointProgress:
    """Where a savepoint (alone or with a stop) stands.

    `location` is set once it is complete; `failure` once it has failed. Both may be set:
    the savepoint is good, but the job failed while stopping. Until it is done `acknowledged`
    of `total` subtasks have given their part, where the engine tells.
    """

    done: bool
    location: str | None = None
    failure: str | None = None
    acknowledged: int | None = None
    total: int | None = None


@dataclass(frozen=True, slots=True)
class JobException:
    """One failure of a job in the engine's own words; `at_ms` is Unix milliseconds, `reason`
    the one line of `trace` that says most."""

    at_ms: int
    name: str
    trace: str
    task: str | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class CheckpointInfo:
    """The newest complete state of an incarnation."""

    checkpoint_id: int
    path: str
    at_ms: int
    bytes: int
    is_savepoint: bool


@dataclass(frozen=True, slots=True)
class Checkpointing:
    """How a running job takes checkpoints: how often it means to (None: never), and the newest
    that it has completed (None: none yet), which ended at `completed_ms` of the engine's clock."""

    interval_s: float | None
    completed_id: int | None = None
    completed_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """A setting that would lose data or starve jobs, and the line that mends it."""

    severity: str  # "error": loses data or refuses work; "warning": slow or short-lived
    setting: str
    found: str
    why: str
    mend: str


@dataclass(frozen=True, slots=True)
class Target:
    """Where a binder connects to. `credentials` is an existing file or None."""

    address: str
    credentials: Path | None = None
    timeout_s: float = 10.0


class StreamEngine(Protocol):
    """A site's stream engine. Every call has a time limit and raises only SpeckErrors.

    UnreachableError: no answer. TransientError: answered, may work later.
    EngineRefusedError: answered no, with the engine's own reason.
    """

    capabilities: frozenset[EngineCapability]

    def view(self) -> EngineView:
        """Version, slots and all jobs, in as few requests as the engine allows."""

    def jobs(self) -> Mapping[str, EngineJob]:
        """Every job the engine knows, by id, in one request: asked again and again while
        something waits for one of them."""

    def upload(self, jar_file: Path, sha256: str) -> None:
        """Make the artifact available at the site; nothing happens when it is there."""

    def try_main(self, submission: Submission) -> None:
        """Run the job's `main` without starting anything; refuse what would fail."""

    def submit(self, submission: Submission) -> None:
        """Start the incarnation. A job id that the engine already knows is an
        EngineRefusedError whose message names the duplicate."""

    def fence(self, submission: Submission) -> None:
        """See to it that `submission`, which may still be on its way, never runs: afterwards
        its id is refused. DuplicateJobError when the engine knows the id, so it has arrived."""

    def status(self, engine_job_id: str) -> RunState | None:
        """The incarnation's state; None only when the engine says it knows no such job."""

    def stop(self, engine_job_id: str, target_directory: str | None, trigger_id: str) -> None:
        """Begin stop-with-savepoint; the same `trigger_id` (32 hex) again is harmless."""

    def savepoint(self, engine_job_id: str, target_directory: str | None, trigger_id: str) -> None:
        """Begin a savepoint of a job that goes on."""

    def checkpoint(self, engine_job_id: str) -> None:
        """Ask for a checkpoint now, beside those that come by themselves: a reader acknowledges,
        and reports, what it has taken. What comes of it is not waited for."""

    def savepoint_progress(self, engine_job_id: str, trigger_id: str) -> SavepointProgress:
        """How far the savepoint of `trigger_id` is."""

    def cancel(self, engine_job_id: str) -> None:
        """Cancel at once; harmless when the job is gone already."""

    def newest_state(self, engine_job_id: str) -> CheckpointInfo | None:
        """The newest complete state of this incarnation that can be restored.

        None only when it never completed any and began without: it has acknowledged nothing.
        EngineRefusedError when the engine does not know the job, or its states are gone.
        """

    def checkpointing(self, engine_job_id: str) -> Checkpointing | None:
        """How the incarnation takes checkpoints; None when the engine does not know it."""

    def exceptions(self, engine_job_id: str) -> list[JobException]:
        """Failures of the incarnation, newest first."""

    def job_plan(self, engine_job_id: str) -> Mapping[str, Any]:
        """The engine's own plan: `{"nodes": [{"id", "parallelism", "description", "inputs"}]}`."""

    def metrics(self, engine_job_id: str) -> Mapping[str, float]:
        """Counters summed over subtasks by operator-scoped name; a missing one is absent."""

    def measure(self, engine_job_ids: Sequence[str]) -> EngineMeasures:
        """Measure those jobs and the engine; see `speck.model.measurement`. A job that does not
        run, or does not answer, is left out. Values may be older than the call."""

    def check(self) -> list[Finding]:
        """Settings that would lose data or starve jobs."""

    def checkpoint_folder(self) -> str | None:
        """The URI of the folder of its checkpoints; None when it has none, or does not tell."""

    def close(self) -> None:
        """Give back connections."""


class MessageBroker(Protocol):
    """A site's message broker. Every call has a time limit and raises only SpeckErrors."""

    capabilities: frozenset[BrokerCapability]

    def reach(self) -> str:
        """Connect once and say what answered, e.g. `mqtt 5`."""

    def reserve(self, client_id: str, topic: str, *, fresh: bool = False) -> bool:
        """Make the reader's session and its subscription, and leave both behind; whether the
        session was there already. It is kept then, with all that waits in it, unless it is to be
        `fresh`: a broker that was killed may have a session again that had been released.

        Never call it for an id that an incarnation may hold: that throws the holder out.
        Also announces (retained, `speck/readers/<topic>`) that the link has readers.
        """

    def release(self, client_id: str, topic: str, *, last_reader: bool) -> None:
        """End the reader's session; what it still holds is gone, and its retained numbers are
        cleared. With `last_reader` the link is announced as having none."""

    def announce(self, topic: str, *, readers: bool) -> None:
        """Tell sinks (retained, `speck/readers/<topic>`) whether the link has readers."""

    def ask_again(self, topic: str) -> None:
        """Have the sinks of a link send once more what they sent not long ago (`again`, not
        retained, on `speck/readers/<topic>`): one of its readers has lost its session."""

    def mark(self, client_id: str, mark: str) -> bool:
        """Send a mark (up to 32 hex digits) through a reader's session, behind all that waits in
        it; the reader reports it (`mark` of its taken numbers) with the checkpoint that covers
        what came before. False when the session takes no marks: it is a foreign reader's, or one
        whose reader was never connected."""

    def view(self) -> BrokerView:
        """All readers' taken and all sinks' sent numbers."""

    def forget(self, *client_ids: str) -> None:
        """Clear the retained numbers of readers or sinks that are gone for good; without any
        nothing is asked of the broker."""

    def measure(self) -> tuple[BrokerMeasures, BrokerView]:
        """What the broker tells of its own work, None what it does not tell, or hides; and what
        `view` tells, in the same look."""

    def check(self) -> list[Finding]:
        """Settings that would lose data or starve jobs."""

    def close(self) -> None:
        """Give back connections."""


@dataclass(frozen=True, slots=True)
class Transfer:
    """A job's state to bring from the disk of one site to that of another.

    `path` is how the engine of `source` names it. `id` is the same in every try, so that asking
    again goes on with what was begun.
    """

    id: str
    job_name: str
    engine_job_id: str
    source: str
    target: str
    path: str


@dataclass(frozen=True, slots=True)
class TransferProgress:
    """How far a transfer is, in bytes; `location` is how the engine of its target names it."""

    done: bool
    location: str | None = None
    failure: str | None = None
    bytes: int = 0
    total: int | None = None


class StateKeeper(Protocol):
    """Where sites keep the state of jobs, and how it gets from one to another.

    Raises UnreachableError while a site's agent does not answer, PermanentError where a site
    has none and what is asked needs one.
    """

    def folder(self, site: str) -> str | None:
        """The URI below which the site's engine keeps state; None when it is not known."""

    def shares_storage(self, one: str, other: str) -> bool:
        """Whether two sites (or one) read the same storage: nothing needs to travel."""

    def newest(self, site: str, engine_job_id: str) -> CheckpointInfo | None:
        """The newest complete checkpoint or savepoint of an incarnation, found by listing the
        site's folders: for an engine that does not know the job any more. None: there is none."""

    def carry(self, transfer: Transfer) -> TransferProgress:
        """Begin the transfer, or go on with it, and say how far it is; never waits for it."""

    def drop(self, site: str, path: str) -> None:
        """Delete state that nobody will want; harmless when it is gone."""


ENGINES = "speck.engines"
BROKERS = "speck.brokers"


@cache
def _load(group: str, kind: str) -> Any:
    found = entry_points(group=group, name=kind)
    if not found:
        known = ", ".join(sorted(entry_points(group=group).names)) or "none"
        raise PermanentError(
            f"cannot use kind {kind!r}: no binder of that name in entry points {group!r}"
            f" (installed: {known}); install one, see docs/binders.md"
        )
    return next(iter(found)).load()


def kinds(group: str) -> list[str]:
    """The installed kinds of a group, sorted."""
    return sorted(entry_points(group=group).names)


def open_engine(kind: str, target: Target) -> StreamEngine:
    """The binder of `kind` for one site's engine. Raises PermanentError for an unknown kind."""
    return cast(StreamEngine, _load(ENGINES, kind)(target))


def open_broker(kind: str, target: Target) -> MessageBroker:
    """The binder of `kind` for one site's broker. Raises PermanentError for an unknown kind."""
    return cast(MessageBroker, _load(BROKERS, kind)(target))
