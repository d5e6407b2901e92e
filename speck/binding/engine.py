"""The contract of stream engines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from speck.binding.artifacts import Artifact
from speck.binding.states import Checkpointing, SavedState, SaveProgress
from speck.model.engines import ArtifactKind
from speck.model.finding import Finding
from speck.model.measurement import EngineMeasures, PlanNode
from speck.model.observation import EngineJob, EngineView, RunState


class EngineCapability(StrEnum):
    """What an engine can do beyond starting and cancelling jobs."""

    STATE = "state"  # saves a job's state on request, and starts from it
    TRIAL = "trial"  # runs a job's `main` without starting the job
    RESEND = "resend"  # starts the sink of an ended job alone
    METRICS = "metrics"  # measures its jobs
    MEMORY = "memory"  # limits the memory of a single job


@dataclass(frozen=True, slots=True)
class Submission:
    """Everything that an engine needs to start one incarnation.

    `artifact` is on this machine, too, for an engine that has lost its copy. `entry` is where the
    program begins, in the engine's own terms (a class, a function); empty if the artifact says so
    itself. `state` is the location of a state that the engine can read, or None to start without
    any. `memory_mb` is the most that the job may use; None: as the engine has it.
    """

    engine_job_id: str
    job_name: str
    artifact: Artifact
    entry: str
    args: tuple[str, ...]
    parallelism: int = 1
    state: str | None = None
    memory_mb: int | None = None


@dataclass(frozen=True, slots=True)
class Trial:
    """What a trial of `main` showed: whether it built a job, and the highest parallelism of its
    operators (None: not known)."""

    has_built: bool = True
    parallelism: int | None = None


@dataclass(frozen=True, slots=True)
class Upload:
    """An artifact that an engine keeps for later starts; `at_ms` is when it came, in Unix
    milliseconds of the engine's clock."""

    sha256: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class JobException:
    """One failure of a job as the engine reports it. `at_ms` is in Unix milliseconds; `reason` is
    the most informative line of `trace`, `place` the kind of its cause and the line of the user's
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
class EngineLimits:
    """How long an engine of a kind may take, in seconds: until a job that it has accepted runs, and
    without progress while it stops one with its state. The defaults are for a runtime that stays
    up, on a Raspberry Pi, which unpacks and compiles slowly."""

    start_s: float = 180.0
    stop_idle_s: float = 30.0


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

    def upload(self, artifact: Artifact) -> None:
        """Make the artifact available at the site; does nothing if it is there already."""

    def uploads(self) -> list[Upload]:
        """Return the artifacts that `upload` has made available, each once, also those of other
        installations of speck."""

    def delete_upload(self, sha256: str) -> None:
        """Delete an artifact at the site; does nothing if it is not there. Jobs that run go on, and
        a later start uploads it again."""

    def submit(self, submission: Submission) -> str | None:
        """Start the incarnation. Returns how `main` failed after that, if it did: the job runs all
        the same. Raises DuplicateJobError if the engine already knows the id, MainTimeoutError if
        its `main` does not return in time: it may start the job later."""

    def fence(self, engine_job_id: str, artifact: ArtifactKind) -> None:
        """Make sure that a submission of this id, which may still be on its way, never runs: from
        then on the engine refuses the id. No code of users is run for it. `artifact` is the kind of
        the submission's. Raises DuplicateJobError if the engine knows the id: the submission has
        arrived, or the id was fenced before."""

    def status(self, engine_job_id: str) -> RunState | None:
        """Return the incarnation's state; None only if the engine reports that it knows no such
        job."""

    def has_finished(self, engine_job_id: str) -> bool:
        """Whether an incarnation that is FINISHED has ended by itself, since its sources have
        ended; False if it was stopped by `stop`. Raises EngineRefusedError if the engine
        does not know it (any more)."""

    def cancel(self, engine_job_id: str) -> None:
        """Cancel at once; does nothing if the job has already ended."""

    def exceptions(self, engine_job_id: str) -> list[JobException]:
        """Return the failures of the incarnation, newest first."""

    def last_end(self) -> EngineEnd | None:
        """Return how the engine's process, or that of a worker, ended before it was started again;
        None: that is not known. Asked when jobs were lost, or failed since a worker was."""

    def check(self) -> list[Finding]:
        """Find settings that would lose data or starve jobs."""

    def close(self) -> None:
        """Close all connections."""

    # -- called only with the capability STATE

    def stop(self, engine_job_id: str, folder: str | None, trigger_id: str) -> None:
        """Begin to save the state and stop then, once for each `trigger_id` (32 hex digits):
        repeating the call does no harm. `folder` is the URI of the folder for the state, which an
        engine may ignore that keeps the state of a job in one place."""

    def save(self, engine_job_id: str, folder: str | None, trigger_id: str) -> None:
        """Begin to save the state of a job that keeps running."""

    def save_progress(self, engine_job_id: str, trigger_id: str) -> SaveProgress:
        """Return the progress of the `stop` or `save` of `trigger_id`."""

    def checkpoint(self, engine_job_id: str, trigger_id: str) -> None:
        """Trigger a checkpoint now, in addition to the periodic ones, so that a reader acknowledges
        and reports the messages that it has taken. Does not wait for the checkpoint."""

    def checkpoint_progress(self, engine_job_id: str, trigger_id: str) -> SaveProgress:
        """Return the progress of the checkpoint of `trigger_id`; its location is not known. Raises
        EngineRefusedError if the engine does not know the trigger."""

    def newest_state(self, engine_job_id: str) -> SavedState | None:
        """Return the newest complete state of this incarnation that can be restored.

        None only if it was started without state and has completed no checkpoint, and so has
        acknowledged nothing. Raises EngineRefusedError if the engine does not know the job, or
        its states have been deleted.
        """

    def checkpointing(self, engine_job_id: str) -> Checkpointing | None:
        """Return how the incarnation takes checkpoints; None if the engine does not know it."""

    def state_folder(self) -> str | None:
        """Return the URI of the folder below which it keeps state; None if it has none, or does not
        report it."""

    # -- called only with the capability TRIAL

    def try_main(self, submission: Submission) -> Trial:
        """Run the job's `main` without starting the job. Raises EngineRefusedError if it fails,
        MainTimeoutError if it does not return in time. It is no stricter than `submit`: a `main`
        that catches what its engine throws builds no job here, but may start one."""

    # -- called only with the capability RESEND

    def resend(self, submission: Submission) -> None:
        """Start the sink of an ended incarnation alone, from the state in which that has ended: it
        sends what its broker does not have any more, nothing else, and is FINISHED once the broker
        has all. It reads no link. Raises what `submit` raises; called only with the capability
        RESEND."""

    # -- called only with the capability METRICS

    def metrics(self, engine_job_id: str) -> Mapping[str, float]:
        """Return counters by operator-scoped name, summed over subtasks; without those that the
        engine does not report."""

    def is_connected(self, engine_job_id: str) -> bool | None:
        """Whether the source of this incarnation is connected to its broker; None if it does not
        report that. What its sinks report does not count. Raises EngineRefusedError if the engine
        does not know the job."""

    def measure(self, engine_job_ids: Sequence[str]) -> EngineMeasures:
        """Measure these jobs and the engine; see `speck.model.measurement`. Jobs that do not run,
        or whose metrics cannot be read, are omitted. Values may be older than the call."""

    def job_plan(self, engine_job_id: str) -> tuple[PlanNode, ...]:
        """Return the nodes of its plan. Raises EngineRefusedError if the engine does not know the
        job."""
