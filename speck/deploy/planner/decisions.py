"""Decides what happens to each job: add, update, move, remove, or leave unchanged, and why."""

from __future__ import annotations

from speck.deploy.planner.draft import Decision
from speck.deploy.planner.situation import Situation
from speck.model.incarnation import Incarnation
from speck.model.job import DesiredState, Job, Upgrade
from speck.model.job_change import Action
from speck.model.observation import RunState
from speck.spec.fingerprint import differences


def decide(situation: Situation, name: str) -> Decision:
    new, old = situation.jobs.wanted.get(name), situation.inventory.jobs.get(name)
    if old is None:
        assert new is not None
        starts = new.state is DesiredState.RUNNING
        reason = "new job" if starts else "new job, kept stopped"
        return Decision(name, new, None, Action.ADD, reason, starts=starts)
    live = is_live(situation, old)
    if new is None:
        stops = live or may_arrive(situation, old)
        return Decision(name, None, old, Action.REMOVE, "no longer wanted", stops=stops)
    return decide_kept(situation, name, new, old, live)


def leave_alone(situation: Situation, name: str) -> Decision:
    return Decision(
        name,
        situation.jobs.wanted.get(name),
        situation.inventory.jobs.get(name),
        Action.UNCHANGED,
        "left alone",
    )


def decide_kept(
    situation: Situation, name: str, new: Job, old: Incarnation, live: bool
) -> Decision:
    is_wanted = new.state is DesiredState.RUNNING
    changes = differences(old.job, new)
    if live and old.ends_early:
        changes.append("it would stop at some record of its link")
    arriving = not live and may_arrive(situation, old)
    again = is_wanted and not changes and (arriving or has_silent_start(situation, old))
    action = Action.MOVE if old.job.site != new.site else Action.UPDATE
    if is_wanted and not changes and (old.finished or (live and not again)):
        reason = "its sources have ended" if old.finished else "same fingerprint, running"
        return Decision(name, new, old, Action.UNCHANGED, reason)
    if not is_wanted and not live and not arriving:
        changes_later = "; ".join([*changes, "stopped, as wanted"])
        action = Action.UPDATE if changes else Action.UNCHANGED
        return Decision(name, new, old, action, changes_later)
    if not is_wanted:
        changes.append("state running -> stopped")
    elif (again or not live) and not old.confirmed and old.base is None:
        action = Action.ADD
        changes = [*changes, f"not started yet: {explain_not_live(situation, old)}"]
    elif again or not live:
        changes.append(explain_not_live(situation, old))
    return Decision(
        name,
        new,
        old,
        action if is_wanted else Action.UPDATE,
        "; ".join(changes),
        stops=(live or arriving) and not again,
        keeps_state=not is_wanted or (new.upgrade is Upgrade.SAVEPOINT and not old.finished),
        starts=is_wanted,
        again=again,
    )


def may_arrive(situation: Situation, old: Incarnation) -> bool:
    """Whether a start whose answer was lost may still be on its way to the engine."""
    return old.may_arrive and situation.observation.job(old.job.site, old.engine_job_id) is None


def has_silent_start(situation: Situation, old: Incarnation) -> bool:
    """Whether a start was sent to a site that does not answer now, and was never observed to
    run."""
    begun = not (old.confirmed or old.ended or old.void)
    return begun and old.job.site not in situation.observation.engines


def is_live(situation: Situation, old: Incarnation) -> bool:
    """Whether an incarnation may run: a site that does not answer does not prove that it has
    stopped."""
    if old.ended:
        return False
    if old.job.site not in situation.observation.engines:
        return not old.void
    engine_job = situation.observation.job(old.job.site, old.engine_job_id)
    return engine_job is not None and not engine_job.state.terminal


def is_lost(situation: Situation, old: Incarnation) -> bool:
    """Whether it should run and its engine does not know it any more."""
    begun = not (old.ended or old.void) and old.job.site in situation.observation.engines
    return begun and situation.observation.job(old.job.site, old.engine_job_id) is None


def explain_not_live(situation: Situation, old: Incarnation) -> str:
    if old.finished:
        return "had finished: runs once more, from its beginning"
    if old.ended:
        return "its last start was fenced" if old.void else "state stopped -> running"
    if old.job.site not in situation.observation.engines:
        return f"not known to run: {old.job.site} does not answer"
    engine_job = situation.observation.job(old.job.site, old.engine_job_id)
    if engine_job is None:
        return f"not running: {old.job.site} does not know it"
    return f"not running: {_WORDS.get(engine_job.state, str(engine_job.state))}"


_WORDS = {RunState.FAILED: "failed", RunState.CANCELED: "canceled", RunState.FINISHED: "finished"}
