"""The contracts of engines and brokers, and the functions that open their binders.

A binder is a class that is registered as an entry point of group `speck.engines` or
`speck.brokers`. The name of the entry point is the `kind` of a site's `spe` or `broker`. speck
never imports `binders`. docs/binders.md shows how to add a binder.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Protocol, cast

from speck.errors import PermanentError
from speck.model.batches import Record
from speck.model.finding import Finding
from speck.model.measurement import BrokerMeasures, EngineMeasures, PlanNode
from speck.model.observation import BrokerView, EngineJob, EngineView, RunState

MAIN_TIMEOUT_S = 60.0
"""Seconds within which a job's `main` has to return, by default."""


class EngineCapability(StrEnum):
    """What an engine can do beyond starting and cancelling jobs."""

    SAVEPOINTS = "savepoints"
    TRY_MAIN = "try_main"
    RESEND = "resend"


class BrokerCapability(StrEnum):
    """What a broker can do beyond carrying messages."""

    SESSIONS = "sessions"  # keeps the messages of a reader that is not connected
    NUMBERS = "numbers"  # carries message properties (MQTT 5), so that repeats are recognised


@dataclass(frozen=True, slots=True)
class Submission:
    """Everything that an engine needs to start one incarnation.

    `jar_file` is the artifact on this machine, for an engine that has lost its copy.
    `savepoint` is a path or URI that the engine can read, or None to start without state.
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
class Trial:
    """What a trial of `main` showed: whether it built a job, and the highest parallelism of its
    operators (None: not known)."""

    has_built: bool = True
    parallelism: int | None = None


@dataclass(frozen=True, slots=True)
class SavepointProgress:
    """The progress of a savepoint (alone or with a stop).

    `location` is set once it is complete, `failure` once it has failed. Both may be set:
    the savepoint is good, but the job failed while stopping. Until it is done, `acknowledged`
    of `total` subtasks have completed their part, if the engine reports this.
    """

    done: bool
    location: str | None = None
    failure: str | None = None
    acknowledged: int | None = None
    total: int | None = None


@dataclass(frozen=True, slots=True)
class Upload:
    """An artifact that an engine keeps for later starts; `at_ms` is when it came, in Unix
    milliseconds of the engine's clock."""

    sha256: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class JobException:
    """One failure of a job as the engine reports it. `at_ms` is in Unix milliseconds; `reason` is
    the most informative line of `trace`, `place` the class of its cause and the line of the user's
    code that raised it, if there is one. `transient`: it may pass by itself, since it is about
    slots, workers or other servers rather than the job."""

    at_ms: int
    name: str
    trace: str
    task: str | None = None
    reason: str = ""
    transient: bool = False
    place: str = ""


@dataclass(frozen=True, slots=True)
class EngineEnd:
    """How an engine's process, or that of a worker, ended last, as a sentence, and when it was
    started again (Unix ms of the engine)."""

    at_ms: int
    reason: str


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
    """How a running job takes checkpoints: its interval (None: it takes none) and the newest
    completed one (None: none yet), which ended at `completed_ms` of the engine's clock. `folder` is
    the URI of the folder that holds it, as the engine reports it: a job may have set its own."""

    interval_s: float | None
    completed_id: int | None = None
    completed_ms: int | None = None
    folder: str | None = None


def ignore_request() -> None:
    """Do nothing: what `Target.on_request` is outside fault tests."""


@dataclass(frozen=True, slots=True)
class Target:
    """The address that a binder connects to. `credentials` is an existing file or None. A call may
    take `timeout_s` seconds, one that runs a job's `main` `main_timeout_s`.

    A binder may call `on_request` whenever a request that may change something has gone out, before
    it reads the answer: fault tests kill the service at that moment.
    """

    address: str
    credentials: Path | None = None
    timeout_s: float = 10.0
    on_request: Callable[[], None] = ignore_request
    main_timeout_s: float = MAIN_TIMEOUT_S


class StreamEngine(Protocol):
    """A site's stream engine. Every call has a time limit and raises only SpeckErrors.

    UnreachableError: no answer. TransientError: it answered that a later call may succeed.
    EngineRefusedError: it refused, with the engine's own reason.
    """

    capabilities: frozenset[EngineCapability]

    def view(self) -> EngineView:
        """Return version, slots and all jobs, with as few requests as the engine allows."""

    def jobs(self) -> Mapping[str, EngineJob]:
        """Return every job that the engine knows, by id, in one request: it is called in a loop
        while an operation waits for one of them."""

    def upload(self, jar_file: Path, sha256: str) -> None:
        """Make the artifact available at the site; does nothing if it is there already."""

    def uploads(self) -> list[Upload]:
        """Return the artifacts that `upload` has made available, each once, also those of other
        installations of speck."""

    def delete_upload(self, sha256: str) -> None:
        """Delete an artifact at the site; does nothing if it is not there. Jobs that run go on, and
        a later start uploads it again."""

    def try_main(self, submission: Submission) -> Trial:
        """Run the job's `main` without starting the job. Raises EngineRefusedError if it fails,
        MainTimeoutError if it does not return in time. It is no stricter than `submit`: a `main`
        that catches what `execute()` throws builds no job here, but may start one."""

    def submit(self, submission: Submission) -> str | None:
        """Start the incarnation. Returns how `main` failed after that, if it did: the job runs all
        the same. Raises DuplicateJobError if the engine already knows the id, MainTimeoutError if
        its `main` does not return in time: it may start the job later."""

    def resend(self, submission: Submission) -> None:
        """Start the sink of an ended incarnation alone, from the state in which that has ended: it
        sends what its broker does not have any more, nothing else, and is FINISHED once the broker
        has all. It reads no link. Raises what `submit` raises; called only with the capability
        RESEND."""

    def fence(self, engine_job_id: str) -> None:
        """Make sure that a submission of this id, which may still be on its way, never runs: from
        then on the engine refuses the id. No code of users is run for it. Raises DuplicateJobError
        if the engine knows the id: the submission has arrived."""

    def status(self, engine_job_id: str) -> RunState | None:
        """Return the incarnation's state; None only if the engine reports that it knows no such
        job."""

    def has_finished(self, engine_job_id: str) -> bool:
        """Whether an incarnation that is FINISHED has ended by itself, since its sources have
        ended; False if it was stopped with a savepoint. Raises EngineRefusedError if the engine
        does not know it (any more)."""

    def stop(self, engine_job_id: str, target_directory: str | None, trigger_id: str) -> None:
        """Begin a stop with savepoint. Repeating the call with the same `trigger_id` (32 hex
        digits) does no harm."""

    def savepoint(self, engine_job_id: str, target_directory: str | None, trigger_id: str) -> None:
        """Begin a savepoint of a job that keeps running."""

    def checkpoint(self, engine_job_id: str, trigger_id: str) -> None:
        """Trigger a checkpoint now, in addition to the periodic ones, so that a reader acknowledges
        and reports the messages that it has taken. Does not wait for the checkpoint."""

    def checkpoint_progress(self, engine_job_id: str, trigger_id: str) -> SavepointProgress:
        """Return the progress of the checkpoint of `trigger_id`; its location is not known. Raises
        EngineRefusedError if the engine does not know the trigger."""

    def savepoint_progress(self, engine_job_id: str, trigger_id: str) -> SavepointProgress:
        """Return the progress of the savepoint of `trigger_id`."""

    def cancel(self, engine_job_id: str) -> None:
        """Cancel at once; does nothing if the job has already ended."""

    def newest_state(self, engine_job_id: str) -> CheckpointInfo | None:
        """Return the newest complete state of this incarnation that can be restored.

        None only if it was started without state and has completed no checkpoint, and so has
        acknowledged nothing. Raises EngineRefusedError if the engine does not know the job, or
        its states have been deleted.
        """

    def checkpointing(self, engine_job_id: str) -> Checkpointing | None:
        """Return how the incarnation takes checkpoints; None if the engine does not know it."""

    def exceptions(self, engine_job_id: str) -> list[JobException]:
        """Return the failures of the incarnation, newest first."""

    def last_end(self) -> EngineEnd | None:
        """Return how the engine's process, or that of a worker, ended before it was started again;
        None: that is not known. Asked when jobs were lost, or failed since a worker was."""

    def job_plan(self, engine_job_id: str) -> tuple[PlanNode, ...]:
        """Return the nodes of its plan. Raises EngineRefusedError if the engine does not know the
        job."""

    def metrics(self, engine_job_id: str) -> Mapping[str, float]:
        """Return counters by operator-scoped name, summed over subtasks; without those that the
        engine does not report."""

    def measure(self, engine_job_ids: Sequence[str]) -> EngineMeasures:
        """Measure these jobs and the engine; see `speck.model.measurement`. Jobs that do not run,
        or whose metrics cannot be read, are omitted. Values may be older than the call."""

    def check(self) -> list[Finding]:
        """Find settings that would lose data or starve jobs."""

    def checkpoint_folder(self) -> str | None:
        """Return the URI of its checkpoint folder; None if it has none, or does not report it."""

    def close(self) -> None:
        """Close all connections."""


class MessageBroker(Protocol):
    """A site's message broker. Every call has a time limit and raises only SpeckErrors."""

    capabilities: frozenset[BrokerCapability]

    def reach(self) -> str:
        """Connect once and return what answered, e.g. `mqtt 5`."""

    def identify(self, proposed: str | None = None) -> str | None:
        """Return the identity by which speck knows this broker again at another address: retained
        (`speck/broker`), 32 hex digits. If it has none, it gets the `proposed` one, which is
        returned then; None: it has none. It is kept with the sessions: a broker that has lost the
        one has lost the other, too."""

    def reserve(
        self, client_id: str, topic: str, *, fresh: bool = False, lost: bool = False
    ) -> bool:
        """Create the reader's session with its subscription and disconnect; returns whether the
        session existed already. An existing session is kept with its messages, unless it is to be
        `fresh`: a broker that was killed may restore a session that had been released.

        The broker keeps the session, with its messages, across a kill if it has saved anything
        since. Otherwise the session's announcement (retained, `speck/sessions/<topic>/<client id>`)
        is missing, too: the link's sinks then wait until the session is made again. With `lost`, or
        if a session that is not to be fresh did not exist, they are asked to send their recent
        messages again.

        Never call it for an id that an incarnation may hold: the broker would disconnect the
        holder. Also announces (retained, `speck/readers/<topic>`) that the link has readers.
        """

    def release(self, client_id: str, topic: str, *, last_reader: bool) -> None:
        """End the reader's session; its messages are lost and its retained numbers are cleared.
        With `last_reader` it announces that the link has no readers."""

    def announce(self, topic: str, *, readers: bool) -> None:
        """Announce to sinks (retained, `speck/readers/<topic>`) whether the link has readers."""

    def confirm_sessions(self, topic: str, client_ids: Iterable[str]) -> bool:
        """Tell the sinks of a link that it has no other sessions than these (`complete`, not
        retained, on `speck/readers/<topic>`), if all of them exist; returns whether they do. For a
        sink that misses a session which was released while it was not connected."""

    def mark(self, client_id: str, mark: str) -> bool:
        """Send a mark (up to 32 hex digits) through a reader's session, behind all messages queued
        in it. The reader reports it (`mark` of its taken numbers) with the checkpoint that covers
        these messages. Returns False if the session takes no marks: it belongs to an outside
        reader, or its reader was never connected."""

    def publish(self, topic: str, payloads: Sequence[bytes]) -> int:
        """Publish records that carry no numbers, in this order, at least once; returns how many of
        them found no reader, as far as the broker reports it: nobody will receive those."""

    def tap(
        self, topic: str, on_record: Callable[[Record], None], go_on: Callable[[], bool]
    ) -> None:
        """Hand over each record that is published on a link from now on, beside its readers, who
        notice nothing. Returns soon after `go_on`, which is asked at least twice a second, has
        returned False. Nothing stays at the broker."""

    def view(self, client_ids: Collection[str] | None = None) -> BrokerView:
        """Return all readers' taken and all sinks' sent numbers, with what else `BrokerView` holds.

        With `client_ids` only their numbers are needed, the identity and `up_since`; so it
        should cost what a few clients have reported, not what all have."""

    def forget(self, *sinks: str) -> None:
        """Clear the retained numbers of sinks, by client id, that are gone for good; without client
        ids it sends nothing to the broker."""

    def measure(self) -> tuple[BrokerMeasures, BrokerView]:
        """Return the broker's measurements (None for values that it does not publish, or hides),
        together with the result of `view`."""

    def check(self) -> list[Finding]:
        """Find settings that would lose data or starve jobs."""

    def close(self) -> None:
        """Close all connections."""


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
        self, site: str, engine_job_id: str, folder: str | None = None
    ) -> CheckpointInfo | None:
        """Find the newest complete checkpoint or savepoint of an incarnation by listing the site's
        folders, and the `folder` of its checkpoints if it has one of its own, for an engine that no
        longer knows the job. None: there is none."""

    def carry(self, transfer: Transfer) -> TransferProgress:
        """Begin the transfer, or continue it, and return its progress without waiting for it."""

    def drop(self, site: str, path: str) -> None:
        """Delete state that is no longer needed; does nothing if it does not exist."""


ENGINES = "speck.engines"
BROKERS = "speck.brokers"


@cache
def _load(group: str, kind: str) -> Any:
    binders = entry_points(group=group, name=kind)
    if not binders:
        installed = ", ".join(sorted(entry_points(group=group).names)) or "none"
        raise PermanentError(
            f"cannot use kind {kind!r}: no binder of that name in entry points {group!r}"
            f" (installed: {installed}); install one, see docs/binders.md"
        )
    return next(iter(binders)).load()


@cache  # finding them reads the metadata of every installed package: some milliseconds
def kinds(group: str) -> tuple[str, ...]:
    """Return the installed kinds of a group, sorted."""
    return tuple(sorted(entry_points(group=group).names))


def is_simulated(group: str, kind: str) -> bool:
    """Whether binders of a kind simulate a server in this process (their class has the attribute
    `simulated`): what runs there is lost when the service ends."""
    return bool(getattr(_load(group, kind), "simulated", False))


def open_engine(kind: str, target: Target) -> StreamEngine:
    """Open a binder of `kind` for one site's engine. Raises PermanentError for an unknown kind."""
    return cast(StreamEngine, _load(ENGINES, kind)(target))


def open_broker(kind: str, target: Target) -> MessageBroker:
    """Open a binder of `kind` for one site's broker. Raises PermanentError for an unknown kind."""
    return cast(MessageBroker, _load(BROKERS, kind)(target))


class EnginePoll(StrEnum):
    """What an engine is polled for again and again."""

    VIEW = "view"
    CHECKPOINTING = "checkpointing"
    MEASURE = "measure"
    JOB_PLAN = "job plan"


class BrokerPoll(StrEnum):
    """What a broker is polled for again and again."""

    VIEW = "view"
    REACH = "reach"
    MEASURE = "measure"


def poll_engine(engine: StreamEngine, what: EnginePoll, job_ids: Sequence[str]) -> Any:
    """The result of the call of the same name; that of `checkpointing` for each of `job_ids` that
    the engine knows, that of `job_plan` for the only one."""
    match what:
        case EnginePoll.VIEW:
            return engine.view()
        case EnginePoll.MEASURE:
            return engine.measure(job_ids)
        case EnginePoll.JOB_PLAN:
            return engine.job_plan(job_ids[0])
        case EnginePoll.CHECKPOINTING:
            answers = {job_id: engine.checkpointing(job_id) for job_id in job_ids}
            return {job_id: answer for job_id, answer in answers.items() if answer is not None}


def poll_broker(broker: MessageBroker, what: BrokerPoll) -> Any:
    """The result of the call of the same name."""
    match what:
        case BrokerPoll.VIEW:
            return broker.view()
        case BrokerPoll.REACH:
            return broker.reach()
        case BrokerPoll.MEASURE:
            return broker.measure()
