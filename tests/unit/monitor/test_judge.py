"""The state of a job, from everything that it follows from."""

from __future__ import annotations

from dataclasses import replace

import pytest

from speck.model.engines import ArtifactKind
from speck.model.incarnation import EndState, StartState
from speck.model.job import DesiredState
from speck.model.job_change import Action
from speck.model.job_state import JobState
from speck.model.observation import EngineJob, EngineView, RunState
from speck.model.plan_outline import OperationState
from speck.monitor.judge import Facts, JobFinding, Observed, Sight, Work, judge, observe

NEW, ADOPTED = StartState.REQUESTED, StartState.ACCEPTED
PENDING, RUNNING = OperationState.PENDING, OperationState.RUNNING
BLOCKED, DONE = OperationState.BLOCKED, OperationState.DONE
NEVER_STARTED = Facts(start=None)
ERROR = "cannot start A: no such sensor"
STALLS = JobFinding(stall="no checkpoint completed for 95 s")


def state(facts: Facts) -> str:
    return judge(facts).state


def seen(observed: Observed, finding: JobFinding | None = None) -> Facts:
    return Facts(observed=observed, finding=finding or JobFinding())


def under(action: Action, *operations: OperationState) -> Facts:
    work = Work(action, frozenset(operations))
    return Facts(observed=RunState.RUNNING, work=work)


@pytest.mark.parametrize(
    ("observed", "expected"),
    [
        (RunState.STARTING, "deploying"),
        (RunState.RUNNING, "running"),
        (RunState.RESTARTING, "restarting"),
        (RunState.STOPPING, "stopping"),
        (RunState.FINISHED, "finished"),
        (RunState.CANCELED, "stopped"),
        (RunState.FAILED, "failed"),
        (Sight.UNSEEN, "unknown"),
        (Sight.SILENT, "unreachable"),
        (Sight.ABSENT, "lost"),
    ],
)
def test_what_the_engine_reports_of_a_job_that_should_run(
    observed: Observed, expected: str
) -> None:
    assert state(seen(observed)) == expected


def test_what_a_poll_says_of_an_incarnation() -> None:
    view = EngineView("2.3", None, {"a1": EngineJob("a1", "A", RunState.RUNNING)})
    assert observe(view, "a1", ArtifactKind.JAR) is RunState.RUNNING
    assert observe(view, "a2", ArtifactKind.JAR) is Sight.ABSENT
    assert observe(None, "a1", ArtifactKind.JAR) is Sight.SILENT


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (NEVER_STARTED, "pending"),
        (Facts(DesiredState.STOPPED, start=None), "stopped"),
        (Facts(start=None, error=ERROR), "failed"),
        (Facts(start=NEW, error=ERROR, observed=RunState.STARTING), "failed"),
        (Facts(start=NEW, observed=RunState.STARTING), "deploying"),
        (Facts(start=NEW, has_base=True, error=ERROR, observed=RunState.RUNNING), "running"),
        (Facts(start=NEW, has_base=True, error=ERROR, observed=Sight.ABSENT), "failed"),
        (Facts(start=ADOPTED, has_base=True, observed=Sight.ABSENT), "lost"),
        (Facts(start=StartState.VOID, observed=Sight.SILENT), "failed"),
        (Facts(end=EndState.ENDED, observed=Sight.SILENT), "stopped"),
        (Facts(end=EndState.ENDED, error=ERROR), "failed"),
        (Facts(end=EndState.FINISHED), "finished"),
        (Facts(end=EndState.STOPPING, observed=RunState.STOPPING), "stopping"),
        (Facts(end=EndState.STOPPING, observed=RunState.RUNNING), "stopping"),
        (Facts(end=EndState.STOPPING, observed=RunState.STARTING), "stopping"),
        (Facts(end=EndState.STOPPING, observed=RunState.RUNNING, finding=STALLS), "stalled"),
        (Facts(end=EndState.STOPPING, observed=RunState.FAILED), "failed"),
        (Facts(error=ERROR, observed=RunState.RUNNING), "running"),
        (Facts(error=ERROR, observed=Sight.ABSENT), "lost"),
    ],
)
def test_what_is_stored_of_it(facts: Facts, expected: str) -> None:
    assert state(facts) == expected


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (under(Action.ADD, PENDING), "pending"),
        (under(Action.ADD, PENDING, RUNNING), "deploying"),
        (under(Action.UPDATE, PENDING), "running"),
        (under(Action.UPDATE, DONE, RUNNING), "updating"),
        (under(Action.MOVE, DONE, PENDING), "moving"),
        (under(Action.REMOVE, RUNNING), "stopping"),
        (under(Action.MOVE, BLOCKED, PENDING), "unreachable"),
        (under(Action.UPDATE, DONE, OperationState.SKIPPED), "running"),
        (under(Action.UNCHANGED, RUNNING), "running"),
    ],
)
def test_what_a_change_does_to_it(facts: Facts, expected: str) -> None:
    status = judge(facts)
    assert status.state == expected
    assert status.momentary is JobState.RUNNING, "repairs go by what it is now"


LOOPS = JobFinding(failure="no sensor", failures=3)
DEAF = JobFinding(link_problem="not authorized", link_stalls=True)


@pytest.mark.parametrize(
    ("observed", "finding", "expected"),
    [
        (RunState.RUNNING, LOOPS, "restarting"),
        (RunState.STARTING, LOOPS, "restarting"),
        (RunState.FAILED, LOOPS, "failed"),
        (Sight.ABSENT, LOOPS, "lost"),
        (RunState.RUNNING, STALLS, "stalled"),
        (RunState.RESTARTING, STALLS, "restarting"),
        (Sight.SILENT, STALLS, "unreachable"),
        (RunState.RUNNING, DEAF, "stalled"),
        (RunState.STARTING, DEAF, "deploying"),
        (RunState.RUNNING, JobFinding(link_problem="not authorized"), "running"),
        (RunState.FINISHED, JobFinding(was_stopped=True), "stopped"),
        (RunState.RUNNING, JobFinding(failure="a first failure"), "running"),
    ],
)
def test_what_the_watch_has_found(observed: Observed, finding: JobFinding, expected: str) -> None:
    assert state(seen(observed, finding)) == expected


def test_between_its_failures_a_job_runs_and_is_shown_as_failing() -> None:
    status = judge(seen(RunState.RUNNING, LOOPS))
    assert (status.state, status.failures) == (JobState.RESTARTING, 3)
    assert status.momentary is JobState.RUNNING


def test_what_was_found_before_a_change_does_not_explain_what_the_change_does() -> None:
    finding = JobFinding(failure="no sensor", failures=3, link_problem="not authorized")
    facts = under(Action.UPDATE, RUNNING)
    status = judge(replace(facts, finding=finding))
    assert (status.state, status.reason, status.failures) == ("updating", "not authorized", 0)
    waits = judge(replace(facts, finding=finding, error=ERROR))
    assert waits.reason == ERROR


@pytest.mark.parametrize(
    ("error", "finding", "expected"),
    [
        (None, JobFinding(), None),
        (ERROR, STALLS, ERROR),
        (None, STALLS, "no checkpoint completed for 95 s"),
        (None, JobFinding(failure="bad", waits="it waits for slots"), "bad"),
        (None, JobFinding(waits="it waits for slots"), "it waits for slots"),
        (None, DEAF, "not authorized"),
        (None, JobFinding(failure="bad", link_problem="not authorized"), "bad: not authorized"),
    ],
)
def test_the_reason_is_the_nearest_cause(
    error: str | None, finding: JobFinding, expected: str | None
) -> None:
    assert judge(Facts(error=error, finding=finding)).reason == expected


def test_what_is_not_listed_may_run_on_the_engine_that_does_not_answer() -> None:
    view = EngineView("2.3", None, {}, silent={ArtifactKind.TEXT: "no answer"})
    assert observe(view, "a1", ArtifactKind.TEXT) is Sight.SILENT
    assert observe(view, "a1", ArtifactKind.JAR) is Sight.ABSENT
