"""Which reader follows which on a link, so that each record is taken by one of the two.

A job that comes to a link that another job leaves in the same plan follows it there. Its session
is reserved while the old reader runs (after the link's producers have stopped, if all leave), the
old reader stops, and what it has taken is handed over to the new one, which drops it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from speck.deploy.planner.draft import Decision, Draft, ids
from speck.model.incarnation import Session
from speck.model.job import Job
from speck.model.link import Link
from speck.model.plan import HandOver
from speck.spec.job_contract import reports_numbers


def match_readers(draft: Draft) -> None:
    """Note which session each new reader's follows, and which sessions have to begin anew.

    Where several leave a link and several come, those with the same sink link go together, then
    those of the same class, then by name. A new reader that is left over follows the last one
    that leaves: it goes on from there beside the others.
    """
    there = _job_sessions(draft.inventory.sessions)
    wanted = _job_sessions(draft.sessions)
    leaving: dict[Link, list[Session]] = defaultdict(list)
    coming: dict[Link, list[Session]] = defaultdict(list)
    for session in there.values():
        is_owner = session.follows is None and session.followed_by is None
        if session.client_id not in wanted and session.reserved and is_owner:
            leaving[session.link].append(session)
    for session in wanted.values():
        known = there.get(session.client_id)
        if known is None or not known.usable:
            coming[session.link].append(session)
            continue
        owner = owner_of(known, there)
        if owner is None or owner is known:
            continue
        if owner.client_id in wanted:
            draft.renewed.add(known.client_id)
        else:
            draft.predecessors[known.client_id] = owner
            leaving[known.link] = [s for s in leaving[known.link] if s != owner]
    for link, sessions in coming.items():
        _pair(draft, sessions, leaving[link])


def owner_of(session: Session, there: dict[str, Session]) -> Session | None:
    """Whose reader takes, or took last, what comes for `session`: itself if it neither waits to
    follow another one nor was followed; None when the one that it waits for is gone."""
    seen = {session.client_id}
    before = session.follows
    while (other := before or session.followed_by) is not None and other not in seen:
        if other not in there:
            return None if before else session
        seen.add(other)
        session, before = there[other], None
    return session


def _job_sessions(sessions: Iterable[Session]) -> dict[str, Session]:
    return {s.client_id: s for s in sessions if s.job_name is not None}


def _pair(draft: Draft, coming: list[Session], leaving: list[Session]) -> None:
    coming = sorted(coming, key=lambda s: s.client_id)
    left = sorted((s for s in leaving if _tells(_job_before(draft, s))), key=lambda s: s.client_id)
    coming = [s for s in coming if _tells(_job_after(draft, s))]
    last = left[-1:]
    for is_alike in (_same_sink, _same_class, _any):
        for session in list(coming):
            new = _job_after(draft, session)
            match = [s for s in left if is_alike(_job_before(draft, s), new)]
            if match:
                draft.predecessors[session.client_id] = match[0]
                left.remove(match[0])
                coming.remove(session)
    for session in coming:
        for followed in last:
            draft.predecessors[session.client_id] = followed
            draft.beside.add(session.client_id)


def _job_before(draft: Draft, session: Session) -> Job | None:
    deployed = draft.inventory.jobs.get(session.job_name or "")
    return deployed.job if deployed else None


def _job_after(draft: Draft, session: Session) -> Job | None:
    return draft.wanted.get(session.job_name or "")


def _tells(job: Job | None) -> bool:
    return job is not None and reports_numbers(job)


def _same_sink(old: Job | None, new: Job | None) -> bool:
    return old is not None and new is not None and old.sink == new.sink


def _same_class(old: Job | None, new: Job | None) -> bool:
    return old is not None and new is not None and old.entry_class == new.entry_class


def _any(old: Job | None, new: Job | None) -> bool:
    return True


def hand_over(draft: Draft, decisions: list[Decision]) -> None:
    """Add the steps in which readers follow others: after the old one's stop."""
    by_name = {d.job_name: d for d in decisions}
    for session in draft.sessions:
        former = draft.predecessors.get(session.client_id)
        if former is None or session.job_name is None:
            continue
        assert former.job_name is not None
        stop_id = None
        old = by_name.get(former.job_name)
        if old is not None and old.old is not None and old.old.job.source == former.link:
            stop_id = old.stop_id
        operation = HandOver(
            session.site,
            session.link,
            session.client_id,
            session.job_name,
            former.client_id,
            former.job_name,
        )
        after = ids([stop_id, draft.reserve_of.get(session.client_id)])
        draft.handover_of[session.client_id] = draft.add(operation, after, _reason(draft, former))


def _reason(draft: Draft, former: Session) -> str:
    """What each record meets, and where that is not exactly one reader, why."""
    reason = f"goes on where {former.job_name} ended"
    if not draft.drain:
        return f"{reason}; what it had not taken when it stopped is abandoned (no drain)"
    if former.link in draft.fed_outside or not draft.producers.get(former.link):
        return f"{reason}; at least once where a publisher does not number its messages"
    return reason
