"""Decides what happens to each job: add, update, move, remove, or leave unchanged, and why."""

from __future__ import annotations

from dataclasses import dataclass

from speck.deploy.planner.situation import Situation
from speck.model.incarnation import Incarnation
from speck.model.job import DesiredState, Job, Upgrade
from speck.model.job_change import Action
from speck.model.observation import RunState
from speck.spec.differences import differences


@dataclass(frozen=True, slots=True)
class Decision:
    """What will happen to one job."""

    job_name: str
    new: Job | None
    old: Incarnation | None
    action: Action
    reason: str
    stops: bool = False
    keeps_state: bool = False
    starts: bool = False
    again: bool = False  # the earlier start is sent again, under its id


def decide(situation: Situation) -> tuple[Decision, ...]:
    """What will happen to each job, by name."""
    names = sorted(situation.jobs.wanted.keys() | situation.inventory.jobs.keys())
    return tuple(_decide(situation, name) for name in names)


def _decide(situation: Situation, name: str) -> Decision:
    new, old = situation.jobs.wanted.get(name), situation.inventory.jobs.get(name)
    if name in situation.conditions.leave:
        return Decision(name, new, old, Action.UNCHANGED, "left alone")
    if old is None:
        assert new is not None
        starts = new.state is DesiredState.RUNNING
        reason = "new job" if starts else "new job, kept stopped"
        return Decision(name, new, None, Action.ADD, reason, starts=starts)
    if new is None:
        stops = is_live(situation, old) or may_arrive(situation, old)
        return Decision(name, None, old, Action.REMOVE, "no longer wanted", stops=stops)
    if new.state is DesiredState.RUNNING:
        return _decide_running(situation, name, new, old)
    return _decide_stopped(situation, name, new, old)


def _list_changes(situation: Situation, old: Incarnation, new: Job) -> list[str]:
    changes = differences(old.job, new)
    if is_live(situation, old) and old.ends_early:
        changes.append("it would stop at some record of its link")
    return changes


def _decide_running(situation: Situation, name: str, new: Job, old: Incarnation) -> Decision:
    """What happens to a job that is there and is to run."""
    changes = _list_changes(situation, old, new)
    live, sent = is_live(situation, old), may_arrive(situation, old)
    is_open = (sent and not live) or has_silent_start(situation, old) or _comes_up(situation, old)
    again = not changes and is_open
    runs = live and not again
    if not changes and (runs or old.finished):
        reason = "its sources have ended" if old.finished else "same fingerprint, running"
        return Decision(name, new, old, Action.UNCHANGED, reason)
    action = Action.MOVE if old.job.site != new.site else Action.UPDATE
    if not runs and not old.confirmed and old.base is None:
        action = Action.ADD
        changes.append(f"not started yet: {explain_not_live(situation, old)}")
    elif not runs:
        changes.append(explain_not_live(situation, old))
    return Decision(
        name,
        new,
        old,
        action,
        "; ".join(changes),
        stops=(live or sent) and not again,
        keeps_state=new.upgrade is Upgrade.SAVEPOINT and not old.finished,
        starts=True,
        again=again,
    )


def _decide_stopped(situation: Situation, name: str, new: Job, old: Incarnation) -> Decision:
    """What happens to a job that is there and is to be stopped."""
    changes = _list_changes(situation, old, new)
    if is_live(situation, old) or may_arrive(situation, old):
        reason = "; ".join([*changes, "state running -> stopped"])
        return Decision(name, new, old, Action.UPDATE, reason, stops=True, keeps_state=True)
    action = Action.UPDATE if changes else Action.UNCHANGED
    return Decision(name, new, old, action, "; ".join([*changes, "stopped, as wanted"]))


def is_rewired(decision: Decision) -> bool:
    """Whether a job will have other links than before, or begins or ends."""
    old, new = decision.old, decision.new
    if old is None or new is None or decision.action is Action.ADD:
        return True
    return old.job.ends != new.ends


def may_arrive(situation: Situation, old: Incarnation) -> bool:
    """Whether a start whose answer was lost may still be on its way to the engine."""
    return old.may_arrive and situation.observation.job(old.job.site, old.engine_job_id) is None


def has_silent_start(situation: Situation, old: Incarnation) -> bool:
    """Whether a start was sent to a site that does not answer now, and was never observed to
    run."""
    begun = not (old.confirmed or old.ended or old.void)
    return begun and situation.is_engine_silent(old.job.engine)


def _comes_up(situation: Situation, old: Incarnation) -> bool:
    """Whether it has never been seen running, and no plan waits until it does: its service has
    died."""
    there = situation.observation.job(old.job.site, old.engine_job_id)
    is_open = there is not None and there.state in (RunState.STARTING, RunState.RESTARTING)
    return is_open and not (old.confirmed or old.ended or old.stopping)


def is_live(situation: Situation, old: Incarnation) -> bool:
    """Whether an incarnation may run: a site that does not answer does not prove that it has
    stopped."""
    if old.ended:
        return False
    if situation.is_engine_silent(old.job.engine):
        return not old.void
    engine_job = situation.observation.job(old.job.site, old.engine_job_id)
    return engine_job is not None and not engine_job.state.terminal


def is_lost(situation: Situation, old: Incarnation) -> bool:
    """Whether it should run and its engine does not know it any more."""
    begun = not (old.ended or old.void or situation.is_engine_silent(old.job.engine))
    return begun and situation.observation.job(old.job.site, old.engine_job_id) is None


def explain_not_live(situation: Situation, old: Incarnation) -> str:
    if old.finished:
        return "had finished: runs once more, from its beginning"
    if old.ended:
        return "its last start was fenced" if old.void else "state stopped -> running"
    if situation.is_engine_silent(old.job.engine):
        return f"not known to run: {old.job.site} does not answer"
    engine_job = situation.observation.job(old.job.site, old.engine_job_id)
    if engine_job is None:
        return f"not running: {old.job.site} does not know it"
    return f"not running: {_WORDS.get(engine_job.state, str(engine_job.state))}"


_WORDS = {
    RunState.FAILED: "failed",
    RunState.CANCELED: "canceled",
    RunState.FINISHED: "finished",
    RunState.STARTING: "its tasks are starting",
    RunState.RESTARTING: "its tasks are starting again",
}
