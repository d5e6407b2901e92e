"""Finds the queues that a plan drops, and guards the releases that might drop one.

A session that a running job leaves is drained first, as far as that is possible. Nobody takes what
waits in the session of a reader outside speck, or of a job that does not run: to release it drops
its queue. That needs the user's consent; without it such a release is `guarded`. With it the job
that runs is still drained, for a limited time, unless its engine or its broker does not answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from speck.deploy.planner.decisions import is_live
from speck.deploy.planner.leaving import explain_undrained
from speck.deploy.planner.lineages import is_left_behind
from speck.deploy.planner.sessions import is_held_elsewhere
from speck.deploy.planner.sinks import list_sinks
from speck.deploy.planner.situation import Situation
from speck.deploy.planner.wiring import Wiring
from speck.model.incarnation import Session
from speck.model.job import DesiredState
from speck.model.link_operations import Release, Reserve
from speck.model.plan import Plan, Step
from speck.model.queue import Count, DroppedQueue
from speck.model.unread import count_unread
from speck.spec.job_contract import reports_numbers

OUTSIDE = "its reader is outside speck"
NOT_RUNNING = "the job does not run"


def mark_queues(
    wiring: Wiring, steps: Sequence[Step]
) -> tuple[tuple[Step, ...], list[DroppedQueue]]:
    """The steps with what their releases drop, and the queues that they drop, in their order. Lets
    these releases say so, and look again when they are carried out: messages may have come by
    then."""
    marked, queues = [], []
    sessions = {(s.client_id, s.site, s.link): s for s in wiring.situation.inventory.sessions}
    for step in steps:
        release = step.operation
        if not isinstance(release, Release):
            marked.append(step)
            continue
        session = sessions[release.client_id, release.site, release.link]
        queue = _find_queue(wiring, session)
        reason = step.reason
        if wiring.situation.conditions.drops:
            release = _allow_to_drop(wiring, session, release, queue.why if queue else None)
        if queue is not None:
            sinks, guarded = (
                list_sinks(wiring.situation, session.link),
                _is_guarded(wiring, session),
            )
            release = replace(release, abandons=queue.messages, guarded=guarded, sinks=sinks)
            reason = "left" if queue.messages == 0 else "left; drops its queue"
        marked.append(replace(step, operation=release, reason=reason))
        queues += [queue] if queue is not None and queue.messages != 0 else []
    return tuple(marked), queues


def _find_queue(wiring: Wiring, session: Session) -> DroppedQueue | None:
    """What nobody takes of a session that is released; None if its reader takes everything."""
    why = None if _is_spent(wiring, session) else _explain(wiring.situation, session)
    if session.dropping is not None:  # its release has begun in a change that ended early
        why = session.dropping.why
    if why is None:
        return None
    messages, count = _count(wiring.situation, session)
    place = session.site, session.link.topic
    return DroppedQueue(session.client_id, session.job_name, *place, messages, count, why)


def _allow_to_drop(wiring: Wiring, session: Session, release: Release, why: str | None) -> Release:
    situation = wiring.situation
    return replace(
        release,
        limit_s=situation.find_limit(session.site),
        why=why,
        sinks=list_sinks(situation, session.link),
        counted=_is_counted(situation, session),
        drained=_is_drained_for_good(wiring, session),
    )


def _is_drained_for_good(wiring: Wiring, session: Session) -> bool:
    """Whether a session is drained whose later messages are in no other one. There should be none:
    but a producer may still run whose site does not answer."""
    return wiring.debts.is_drained(session) and not wiring.followers.follows(session)


def _is_guarded(wiring: Wiring, session: Session) -> bool:
    """Whether a session is kept if something has come by the time of its release. Not that of a job
    which is to run elsewhere: what it has to read first is decided with the plan (`backlog.py`),
    and what comes during the change is for the new wiring. Nor one whose reader is followed: what
    comes from now on, once its producers run again, is in the follower's session, too."""
    situation = wiring.situation
    is_followed = bool(wiring.followers.follows(session))
    if is_followed and not situation.has_foreign_producers(session.link):
        return False
    job = situation.jobs.wanted.get(session.job_name or "")
    is_elsewhere = job is not None and job.state is DesiredState.RUNNING
    return not situation.conditions.drops and not is_elsewhere


def keep_queues(plan: Plan) -> Plan | None:
    """The plan without the releases that would drop a queue: their sessions stay for a later plan.
    None if another step needs one of them, since a client id is to read another topic."""
    dropped = {(queue.client_id, queue.site, queue.topic) for queue in plan.queues}
    kept = {step.id for step in plan.steps if _identify(step) in dropped}
    rest = [step for step in plan.steps if step.id not in kept]
    if any(isinstance(step.operation, Reserve) and kept & set(step.after) for step in rest):
        return None
    steps = tuple(
        replace(
            step,
            after=tuple(before for before in step.after if before not in kept),
            whatever=step.whatever - kept,
        )
        for step in rest
    )
    return replace(plan, steps=steps, queues=())


def _identify(step: Step) -> tuple[str, str, str] | None:
    operation = step.operation
    if not isinstance(operation, Release):
        return None
    return operation.client_id, operation.site, operation.link.topic


def _explain(situation: Situation, session: Session) -> str | None:
    """Why nobody takes what waits in a session before it is released; None if its reader does."""
    if session.job_name is None:
        return OUTSIDE
    old = situation.inventory.jobs.get(session.job_name)
    if (
        session.job_name in situation.conditions.readers_stopped | situation.conditions.stopped_jobs
        and situation.conditions.drains
    ):
        return None
    if old is None or old.job.source != session.link or not is_live(situation, old):
        return NOT_RUNNING
    return explain_undrained(situation, old)


def _is_spent(wiring: Wiring, session: Session) -> bool:
    """Whether the messages of a session are for others, or were or will be taken before it is
    released: a drain that its reader does not end fails, and so drops nothing."""
    return (
        session.drained
        or wiring.debts.is_drained(session)
        or session.client_id in wiring.followers.renewed
        or is_left_behind(wiring.situation, session)
        or session.client_id in wiring.cuts.instead_of.values()
        or is_held_elsewhere(wiring.situation, wiring.followers, session)
    )


def _count(situation: Situation, session: Session) -> tuple[int | None, Count]:
    if session.dropping is not None:
        return session.dropping.messages, session.dropping.count
    view = situation.observation.brokers.get(session.site)
    if view is None or not _is_counted(situation, session):
        return None, Count.UNKNOWN
    count = Count.ABOUT if session.client_id in view.taken else Count.AT_MOST
    return count_unread(view, session, list_sinks(situation, session.link)), count


def _is_counted(situation: Situation, session: Session) -> bool:
    """Whether all who write to the link, and its reader, report numbers. A broker that keeps logs
    knows them."""
    view = situation.observation.brokers.get(session.site)
    if view is not None and session.link.topic in view.ends:
        return True
    jobs = [producer.job for producer in situation.jobs.producers.get(session.link, ())]
    reader = situation.inventory.jobs.get(session.job_name or "")
    has_report = view is not None and session.client_id in view.taken
    if reader is not None and not has_report and reader.job.source == session.link:
        jobs.append(reader.job)
    is_uncounted = session.fed_outside or session.link in situation.desired.inputs
    return not is_uncounted and all(map(reports_numbers, jobs))
