"""Finds the queues that a plan drops, and guards the releases that might drop one.

A session that a running job leaves is drained first, as far as that is possible. Nobody takes what
waits in the session of a reader outside speck, or of a job that does not run: to release it drops
its queue. That needs the user's consent; without it such a release is `guarded`. With it the job
that runs is still drained, for a limited time, unless its engine or its broker does not answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from speck.deploy.planner.decisions import is_live
from speck.deploy.planner.draft import Draft
from speck.deploy.planner.lineages import is_left_behind
from speck.deploy.planner.sessions import is_held_elsewhere
from speck.deploy.planner.sinks import list_sinks
from speck.deploy.planner.situation import Situation
from speck.model.incarnation import Incarnation, Session
from speck.model.job import DesiredState
from speck.model.observation import RunState
from speck.model.plan import Plan, Release, Reserve, Step
from speck.model.queue import Count, DroppedQueue
from speck.model.unread import count_unread
from speck.spec.job_contract import reports_numbers

OUTSIDE = "its reader is outside speck"
NOT_RUNNING = "the job does not run"
STUCK = "the job takes nothing: it keeps failing or is stalled"
NOT_DRAINED = "the job leaves it undrained"


def mark_queues(draft: Draft) -> list[DroppedQueue]:
    """The queues that the releases of a plan drop, in their order. Lets these releases say so, and
    look again when they are carried out: messages may have come by then."""
    queues = []
    for position, operation, session in _list_releases(draft):
        why = None if _is_spent(draft, session) else _explain(draft.situation, session)
        if session.dropping is not None:  # its release has begun in a change that ended early
            why = session.dropping.why
        if draft.situation.conditions.drops:
            operation = replace(
                operation,
                limit_s=draft.situation.find_limit(session.site),
                why=why,
                sinks=list_sinks(draft.situation, session.link),
                counted=_is_counted(draft.situation, session),
                drained=_is_drained_for_good(draft, session),
            )
            draft.steps[position] = replace(draft.steps[position], operation=operation)
        if why is None:
            continue
        messages, count = _count(draft.situation, session)
        reason = "left" if messages == 0 else "left; drops its queue"
        sinks = list_sinks(draft.situation, session.link)
        guarded = _is_guarded(draft, session)
        operation = replace(operation, abandons=messages, guarded=guarded, sinks=sinks)
        draft.steps[position] = replace(draft.steps[position], operation=operation, reason=reason)
        if messages != 0:
            place = session.site, session.link.topic
            queues.append(
                DroppedQueue(session.client_id, session.job_name, *place, messages, count, why)
            )
    return queues


def _is_drained_for_good(draft: Draft, session: Session) -> bool:
    """Whether a session is drained whose later messages are in no other one. There should be none:
    but a producer may still run whose site does not answer."""
    is_followed = any(former == session for former in draft.predecessors.values())
    return session.client_id in draft.drained_readers and not is_followed


def _is_guarded(draft: Draft, session: Session) -> bool:
    """Whether a session is kept if something has come by the time of its release. Not that of a job
    which is to run elsewhere: what it has to read first is decided with the plan (`backlog.py`),
    and what comes during the change is for the new wiring. Nor one whose reader is followed: what
    comes from now on, once its producers run again, is in the follower's session, too."""
    is_followed = any(former == session for former in draft.predecessors.values())
    if is_followed and not draft.situation.has_foreign_producers(session.link):
        return False
    job = draft.situation.jobs.wanted.get(session.job_name or "")
    return not draft.situation.conditions.drops and (
        job is None or job.state is not DesiredState.RUNNING
    )


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


def _list_releases(draft: Draft) -> Iterator[tuple[int, Release, Session]]:
    """The positions of the steps that release sessions, their operations, and the sessions."""
    sessions = {(s.client_id, s.site, s.link): s for s in draft.situation.inventory.sessions}
    for position, step in enumerate(draft.steps):
        operation = step.operation
        if isinstance(operation, Release):
            key = operation.client_id, operation.site, operation.link
            yield position, operation, sessions[key]


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


def explain_undrained(situation: Situation, old: Incarnation) -> str | None:
    """Why a job that may run does not take first what waits on the link that it leaves; None if it
    does. Without the consent to drop queues, a site that does not answer is waited for."""
    engine_job = situation.observation.job(old.job.site, old.engine_job_id)
    is_restarting = engine_job is not None and engine_job.state is RunState.RESTARTING
    if is_restarting or old.job.job_name in situation.conditions.stuck_jobs:
        return STUCK
    if not situation.conditions.drains:
        return NOT_DRAINED
    if situation.conditions.drops and situation.is_engine_silent(old.job.site):
        return f"the engine of {old.job.site} does not answer"
    if situation.conditions.drops and situation.is_broker_silent(old.job.source_site):
        return f"the broker of {old.job.source_site} does not answer"
    return None


def _is_spent(draft: Draft, session: Session) -> bool:
    """Whether the messages of a session are for others, or were or will be taken before it is
    released: a drain that its reader does not end fails, and so drops nothing."""
    return (
        session.drained
        or session.client_id in draft.drained_readers
        or session.client_id in draft.renewed_sessions
        or is_left_behind(draft.situation, session)
        or is_held_elsewhere(draft, session)
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
    """Whether all who write to the link, and its reader, report numbers."""
    view = situation.observation.brokers.get(session.site)
    jobs = [producer.job for producer in situation.jobs.producers.get(session.link, ())]
    reader = situation.inventory.jobs.get(session.job_name or "")
    has_report = view is not None and session.client_id in view.taken
    if reader is not None and not has_report and reader.job.source == session.link:
        jobs.append(reader.job)
    is_uncounted = session.fed_outside or session.link in situation.desired.inputs
    return not is_uncounted and all(map(reports_numbers, jobs))
