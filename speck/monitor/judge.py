"""The judge: says what state a job is in. Pure: no I/O, no clock.

The state follows from what is stored of the job (what is wanted, how far the start and the end of
its newest incarnation have got), from the change that is at work on it, from what its engine
reported last, and from what the watch has found in several reports. The watch, and with it all
events and repairs, and everything that users read go by this one function.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from speck.model.engines import ArtifactKind
from speck.model.incarnation import EndState, StartState
from speck.model.job import DesiredState
from speck.model.job_change import Action
from speck.model.job_state import JobState
from speck.model.observation import EngineView, RunState
from speck.model.plan_outline import OperationState


class Sight(StrEnum):
    """What there is instead of a state from the engine of an incarnation."""

    UNSEEN = "unseen"  # it has not been polled since the incarnation was started
    SILENT = "silent"  # it did not answer
    ABSENT = "absent"  # it answered, and does not know the incarnation


Observed = RunState | Sight
"""What an engine reported last of an incarnation."""


def observe(view: EngineView | None, engine_job_id: str, artifact: ArtifactKind) -> Observed:
    """What a poll of a site says of an incarnation that was started from an `artifact`. The engine
    that takes it may be silent: `view` is None if none of the site's has answered."""
    if view is None or artifact in view.silent:
        return Sight.SILENT
    job = view.jobs.get(engine_job_id)
    return Sight.ABSENT if job is None else job.state


@dataclass(frozen=True, slots=True)
class Work:
    """What a change under way does to a job: the job's action in the plan, and the states of the
    operations that are for it. An operation counts as blocked while one that it needs is."""

    action: Action
    operations: frozenset[OperationState]


@dataclass(frozen=True, slots=True)
class JobFinding:
    """What the watch has found out about an incarnation in several polls.

    `stall` says why it makes no progress, `failure` why it failed last, `waits` what a repair waits
    for. It has failed `failures` times if it is in a crash loop; `is_restarted`: as its engine
    knows, not only since speck had to start it again. `link_problem` says why it cannot use a link;
    `link_stalls`: for long, though the brokers answer. `was_stopped`: it is over since somebody
    stopped it at its engine with a savepoint, not since its sources have ended.
    """

    engine_job_id: str = ""
    stall: str | None = None
    failure: str | None = None
    failures: int = 0
    is_restarted: bool = False
    waits: str | None = None
    link_problem: str | None = None
    link_stalls: bool = False
    was_stopped: bool = False


NO_FINDING = JobFinding()


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything that the state of a job follows from.

    `wanted` is what its newest revision says. `start` (None: there is no incarnation), `end` and
    `has_base` are those of its newest incarnation. `work` is None unless a change is at work on it;
    `error` is that of the newest change that concerns it.
    """

    wanted: DesiredState = DesiredState.RUNNING
    start: StartState | None = StartState.CONFIRMED
    end: EndState = EndState.NONE
    has_base: bool = False
    work: Work | None = None
    error: str | None = None
    observed: Observed = Sight.UNSEEN
    finding: JobFinding = NO_FINDING


@dataclass(frozen=True, slots=True)
class JobStatus:
    """The state of a job, the reason if it is not as it should be, and how often it has failed if
    it is in a crash loop. `momentary` is its state at its engine at this moment, whatever a change
    is about to do and however often it has failed before: repairs go by it."""

    state: JobState
    reason: str | None = None
    failures: int = 0
    momentary: JobState = JobState.UNKNOWN


def judge(facts: Facts) -> JobStatus:
    """The state of a job."""
    momentary = _judge_now(facts)
    state = _judge_work(facts.work)
    if state is not None:  # what was found before the change does not explain what it does
        return JobStatus(state, facts.error or facts.finding.link_problem, 0, momentary)
    state = _judge_history(momentary, facts.finding)
    return JobStatus(state, _explain(facts), facts.finding.failures, momentary)


def is_stuck(facts: Facts) -> bool:
    """Whether a job takes nothing: it is stalled, or its engine keeps restarting it. One that speck
    has started again, even several times, since its engine had died, takes what comes."""
    status = judge(facts)
    if status.state is not JobState.RESTARTING:
        return status.state is JobState.STALLED
    if status.momentary not in (JobState.RUNNING, JobState.DEPLOYING):
        return True
    return facts.finding.is_restarted or facts.finding.link_stalls


_AT_ENGINE = {
    RunState.STARTING: JobState.DEPLOYING,
    RunState.RUNNING: JobState.RUNNING,
    RunState.RESTARTING: JobState.RESTARTING,
    RunState.STOPPING: JobState.STOPPING,
    RunState.FINISHED: JobState.FINISHED,
    RunState.CANCELED: JobState.STOPPED,
    RunState.FAILED: JobState.FAILED,
    Sight.UNSEEN: JobState.UNKNOWN,
    Sight.SILENT: JobState.UNREACHABLE,
    Sight.ABSENT: JobState.LOST,
}
_BY_ACTION = {
    Action.ADD: JobState.DEPLOYING,
    Action.UPDATE: JobState.UPDATING,
    Action.MOVE: JobState.MOVING,
    Action.REMOVE: JobState.STOPPING,
}
_UP = (JobState.RUNNING, JobState.DEPLOYING, JobState.STALLED)
"""States that do not last if the job fails again and again."""


def _judge_now(facts: Facts) -> JobState:
    """The state at this moment, without regard to a change at work."""
    confirmed = facts.start is StartState.CONFIRMED
    if facts.start is None or not (confirmed or facts.has_base):  # it has never run
        if facts.error is not None:
            return JobState.FAILED
        if facts.start is None:
            stopped = facts.wanted is DesiredState.STOPPED
            return JobState.STOPPED if stopped else JobState.PENDING
    if facts.end in (EndState.ENDED, EndState.FINISHED):
        if facts.error is not None:
            return JobState.FAILED
        return JobState.FINISHED if facts.end is EndState.FINISHED else JobState.STOPPED
    if facts.start is StartState.VOID:
        return JobState.FAILED
    match facts.observed:
        case Sight.ABSENT if facts.error is not None and not confirmed:
            return JobState.FAILED  # its start failed: there was nothing to lose
        case RunState.RUNNING if facts.finding.stall is not None:
            return JobState.STALLED
        case RunState.RUNNING | RunState.STARTING if facts.end is EndState.STOPPING:
            return JobState.STOPPING  # engines report it as running until its savepoint is complete
        case RunState.FINISHED if facts.finding.was_stopped:
            return JobState.STOPPED
        case observed:
            return _AT_ENGINE[observed]


def _judge_work(work: Work | None) -> JobState | None:
    """The state of a job that a change is at work on; None if it is as if there were none: before
    the first operation, and after the last."""
    if work is None or all(state.over for state in work.operations):
        return None
    if OperationState.BLOCKED in work.operations:
        return JobState.UNREACHABLE
    if work.operations == {OperationState.PENDING}:
        return JobState.PENDING if work.action is Action.ADD else None
    return _BY_ACTION.get(work.action)


def _judge_history(momentary: JobState, finding: JobFinding) -> JobState:
    """The state of a job between two failures, or that cannot use a link, is not what it seems."""
    if finding.failures and momentary in _UP:
        return JobState.RESTARTING
    if finding.link_stalls and momentary is JobState.RUNNING:
        return JobState.STALLED
    return momentary


def _explain(facts: Facts) -> str | None:
    """The nearest cause: what a change met, then what the watch found."""
    if facts.error is not None:
        return facts.error
    finding = facts.finding
    own = finding.stall or finding.failure or finding.waits
    if own and finding.link_problem:
        return f"{own}: {finding.link_problem}"
    return own or finding.link_problem
