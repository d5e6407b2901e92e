"""Whether the sessions are complete that are read from one record of a link on.

Readers of a link that is fed from outside stop at one record, and new ones begin there. A broker
that is killed before its next autosave loses the sessions of these, and publishers outside speck
send again to those that are there. So what comes until they are made again is in the sessions of
the others only, which take it first, as they ran.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NoReturn

from speck.deploy.operations.context import Context
from speck.errors import PermanentError
from speck.model.incarnation import Session
from speck.model.job import Job
from speck.model.job_operations import Start, Switch
from speck.model.link import Link
from speck.model.observation import BrokerView
from speck.model.values import cut
from speck.store.tables import Batch


def refuse_incomplete_switch(
    context: Context, operation: Switch, views: Mapping[str, BrokerView]
) -> None:
    """Raise PermanentError if a broker has lost a new session since the readers of its link were
    drained. That is stored: the next plan makes it anew."""
    lost = list[Session]()
    for each in (*operation.handovers, *operation.joining):
        session = context.records.sessions.get(context.scope, each.client_id, each.site)
        if session is None or session.begun or not session.fed_outside:
            continue
        if _is_lost(session, views[each.site]):
            lost.append(session)
    if not lost:
        return
    with context.writing.all_of(each.client_id for each in lost):
        context.records.write(_put_lost(context, lost))
    raise PermanentError(f"cannot bring readers to the same record: {_explain(lost)}")


def refuse_incomplete_start(context: Context, operation: Start) -> None:
    """Raise PermanentError if a reader is the first to begin at a record, and the broker has lost
    the session of one that is new there. The readers are then stored as they have stopped."""
    site, sessions = operation.job.source_site, context.records.sessions
    stored = (sessions.get(context.scope, name, site) for name in _list_group(context, operation))
    beginning = [each for each in stored if each is not None and _begins(context, each)]
    if not beginning:
        return
    view = context.views.view(site)
    lost = [each for each in beginning if _is_lost(each, view)]
    if lost:
        _refuse_to_begin(context, operation, lost)


def refuse_to_begin_alone(context: Context, operation: Start, session: Session) -> None:
    """The same if the session of the first one has turned out to be lost just now."""
    if _list_group(context, operation) and _begins(context, session):
        _refuse_to_begin(context, operation, [session])


def _list_group(context: Context, operation: Start) -> list[str]:
    """The client ids of a reader and of those that begin at the same record as it; none if it is
    alone."""
    source = operation.job.source
    others = [client_id for client_id, job, _ in operation.commits if job.source == source]
    return sorted({*others, context.source_client_id(operation.job)}) if others else []


def _refuse_to_begin(context: Context, operation: Start, lost: Sequence[Session]) -> NoReturn:
    put_back(context, operation.job.source, _list_group(context, operation), lost)
    raise PermanentError(f"cannot start {operation.job_name}: {_explain(lost)}")


def _begins(context: Context, session: Session) -> bool:
    """Whether the reader of a session is new at a link that is fed from outside, and no record has
    been taken yet by those that begin with it."""
    if not session.fed_outside or session.begun or session.committed:
        return False
    incarnation = context.find_incarnation(session.job_name or "")
    run = incarnation.run if incarnation is not None else None
    return run is None or run.job.source != session.link


def _is_lost(session: Session, view: BrokerView) -> bool:
    """Whether a session lacks what came since it was reserved: a log still holds that."""
    if session.link.topic in view.ends:
        return not session.reserved
    is_there = (session.client_id, session.link.topic) in view.sessions
    return not (session.reserved and is_there) or session.remade


def _explain(lost: Sequence[Session]) -> str:
    each = lost[0]
    return (
        f"the broker of {each.site} has lost the session of {each.reader} on"
        f" {cut(each.link.topic)} since it was reserved; apply again: the other readers then take"
        " what came meanwhile"
    )


def put_back(context: Context, link: Link, group: Collection[str], lost: Iterable[Session]) -> None:
    """Store that the readers of a link in a `group` of client ids have stopped there, that none of
    them that has not begun has its place yet, and that the sessions that are `lost` are to be made
    anew."""
    records, scope = context.records, context.scope
    names = {each.client_id for each in lost}
    with context.writing.all_of(each.client_id for each in records.sessions.on_link(scope, link)):
        batch, before = _put_runs(context, link, group)
        sessions = {each.client_id: each for each in records.sessions.on_link(scope, link)}
        for client_id in sorted({*group, *names} & sessions.keys()):
            session = sessions[client_id]
            if client_id in before:
                sessions[client_id] = replace(session, job=before[client_id], begun=True)
            elif client_id in names or not (session.begun or session.committed):
                sessions |= _take_back(session, sessions)
            if client_id in names:
                sessions[client_id] = _lose(sessions[client_id])
        for session in sessions.values():
            if session != records.sessions.get(scope, session.client_id, session.site):
                batch |= records.sessions.put(scope, session)
        records.write(batch)


def _put_runs(context: Context, link: Link, group: Collection[str]) -> tuple[Batch, dict[str, Job]]:
    """The writes for the incarnations of a group that were to begin there, and how those ran, by
    client id, that had read the link before."""
    records, scope = context.records, context.scope
    batch: Batch = {}
    before = dict[str, Job]()
    for switched in records.inventory(scope).jobs.values():
        base, client_id = switched.base, context.source_client_id(switched.job)
        if not switched.switched or client_id not in group:
            continue
        if base is None:
            batch |= records.incarnations.drop(scope, switched.job.job_name)
            continue
        batch |= records.incarnations.put(scope, replace(base, left=switched.left))
        if base.run is not None and base.run.job.source == link:
            before[client_id] = base.run.job
    return batch, before


def _take_back(session: Session, sessions: Mapping[str, Session]) -> dict[str, Session]:
    """A session that has been given a place, as it was before, and so the one that it follows."""
    former = sessions.get(session.former or "")
    if former is None:
        return {session.client_id: replace(session, skip=())}
    waiting = replace(
        session, skip=(), follows=former.client_id, former=None, whole=not session.remade
    )
    if former.followed_by == session.client_id:
        former = replace(former, followed_by=None)
    return {session.client_id: waiting, former.client_id: former}


def _put_lost(context: Context, lost: Iterable[Session]) -> Batch:
    """The writes for sessions that are to be made anew."""
    sessions = context.records.sessions
    batch: Batch = {}
    for each in lost:
        now = sessions.get(context.scope, each.client_id, each.site)
        if now is not None:
            batch |= sessions.put(context.scope, _lose(now))
    return batch


def _lose(session: Session) -> Session:
    return replace(session, reserved=False, remade=False, whole=False, skip=())
