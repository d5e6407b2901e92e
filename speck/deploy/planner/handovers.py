"""Matches new readers of a link with old ones, so that one of each pair takes each record.

A job that joins a link that another job leaves in the same plan follows it there. Its session is
reserved while the old reader runs (after the link's producers have stopped, if all leave). The old
reader stops, and the numbers that it has taken are handed over to the new one, which skips those
messages.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from speck.deploy.planner.lineages import (
    find_beside,
    find_owner,
    index_job_sessions,
    is_outdated,
)
from speck.deploy.planner.situation import Situation
from speck.deploy.planner.steps import HandedOver, Numbers, Reserved, StepList, Stopped, ids
from speck.deploy.planner.wiring import Followers, Wiring
from speck.model.ids import source_client_id
from speck.model.incarnation import Incarnation, Session
from speck.model.job import Job
from speck.model.link import Link
from speck.model.link_operations import HandOver
from speck.spec.job_contract import reports_numbers


def find_followers(situation: Situation) -> Followers:
    """Which session each new reader's session follows, and which sessions have to begin again.

    If several readers leave a link and several join, those with the same sink link are paired
    first, then those of the same class, then by name. A new reader without a partner follows the
    last one that leaves: it continues from there beside the others.
    """
    there = index_job_sessions(situation.inventory.sessions)
    wanted_sessions = index_job_sessions(situation.wanted.sessions)
    leaving: dict[Link, list[Session]] = defaultdict(list)
    coming: dict[Link, list[Session]] = defaultdict(list)
    followed: dict[Link, list[Session]] = defaultdict(list)
    predecessors, renewed, beside = dict[str, Session](), set[str](), set[str]()
    for session in there.values():
        is_owner = session.follows is None and session.followed_by is None
        if session.client_id not in wanted_sessions and session.reserved and is_owner:
            leaving[session.link].append(session)
    for session in wanted_sessions.values():
        former = there.get(session.client_id)
        owner = find_owner(former, there) if former is not None else None
        is_there = former is not None and not is_outdated(situation, former)
        if former is None or owner is None or not (former.usable and is_there):
            coming[session.link].append(session)
        elif (followed_too := _find_followed_too(former, owner, there)) is not None:
            predecessors[former.client_id] = followed_too
            beside |= {former.client_id} if former.beside else set()
        elif owner is not former and owner.client_id in wanted_sessions:
            renewed.add(former.client_id)
        elif owner is not former:
            # nobody else may follow the owner, or two readers would go on where one has ended
            predecessors[former.client_id] = owner
            leaving[former.link] = [s for s in leaving[former.link] if s != owner]
            followed[former.link].append(owner)
    for link, sessions in coming.items():
        pairs, others = _pair(situation, sessions, leaving[link], followed[link])
        predecessors |= pairs | others
        beside |= others.keys()
    return Followers(predecessors, frozenset(beside), frozenset(renewed))


def _find_followed_too(
    session: Session, owner: Session, there: Mapping[str, Session]
) -> Session | None:
    """The reader that a session still follows, if a change ended after its link was handed over to
    another one beside it, which has not begun: the session holds all that the reader had not
    taken."""
    former = there.get(session.follows or "")
    if former is None or owner.begun or not (session.whole and former.reserved):
        return None
    return former if former.followed_by == owner.client_id else None


def _pair(
    situation: Situation,
    sessions: Sequence[Session],
    leaving: Sequence[Session],
    followed: Sequence[Session],
) -> tuple[dict[str, Session], dict[str, Session]]:
    """The predecessors of the readers that come to a link, and of those that only run beside one of
    them, by client id."""
    unmatched = [s for s in _sort(leaving) if _is_numbered(_find_old_job(situation, s))]
    coming = [s for s in _sort(sessions) if _is_numbered(_find_new_job(situation, s))]
    last = unmatched[-1:] or list(followed[-1:])
    pairs = dict[str, Session]()
    for is_alike in (_has_same_sink, _has_same_class, _is_any):
        for session in list(coming):
            new = _find_new_job(situation, session)
            match = [s for s in unmatched if is_alike(_find_old_job(situation, s), new)]
            if match:
                pairs[session.client_id] = match[0]
                unmatched.remove(match[0])
                coming.remove(session)
    return pairs, {session.client_id: former for session in coming for former in last}


def _sort(sessions: Iterable[Session]) -> list[Session]:
    return sorted(sessions, key=lambda s: s.client_id)


def _find_old_job(situation: Situation, session: Session) -> Job | None:
    """The reader as it was to run with the session, or as it runs."""
    incarnation = situation.inventory.jobs.get(session.job_name or "")
    return session.job or (incarnation.job if incarnation else None)


def _find_new_job(situation: Situation, session: Session) -> Job | None:
    return situation.jobs.wanted.get(session.job_name or "")


def _is_numbered(job: Job | None) -> bool:
    return job is not None and reports_numbers(job)


def _has_same_sink(old: Job | None, new: Job | None) -> bool:
    return old is not None and new is not None and old.port == new.port


def _has_same_class(old: Job | None, new: Job | None) -> bool:
    return old is not None and new is not None and old.entry_class == new.entry_class


def _is_any(old: Job | None, new: Job | None) -> bool:
    return True


def hand_over(
    wiring: Wiring, reserved: Reserved, stopped: Stopped, switched: HandedOver, numbers: Numbers
) -> HandedOver:
    """Let readers follow others, after the old reader's stop, unless that `switched` them."""
    steps, of = StepList(numbers), dict[str, int]()
    first, present = wiring.first, wiring.situation.inventory.jobs
    pairs = first.handed_back if first is not None else wiring.followers.predecessors
    for session in wiring.situation.wanted.sessions:
        former = pairs.get(session.client_id)
        if former is None or session.client_id in switched.of or session.client_id in of:
            continue
        others = list_others(wiring.situation, session, former)
        operation = make_handover(session, former, others)
        if operation is None:
            continue
        old, after = present.get(operation.former_job), list[int | None]()
        if old is not None:
            operation = replace(operation, trusts=trusts(wiring.situation, old))
        if old is not None and old.job.source == former.link:
            after.append(stopped.of.get(operation.former_job))
        after.append(reserved.of.get(session.client_id))
        reason = _explain_handover(wiring.situation, former)
        of[session.client_id] = steps.add(operation, ids(after), reason)
    return HandedOver(steps.listed(), of)


def list_others(situation: Situation, session: Session, former: Session) -> tuple[str, ...]:
    """The client ids of the readers that took the place of `session`'s reader beside `former`'s,
    and that end together with it, so that the first one comes back for all of them. None if it has
    a session of its own since: it takes the place of one reader only, as any other does."""
    replaced = situation.present.by_id.get(session.client_id)
    if replaced is None or replaced.followed_by is None or former.former != session.client_id:
        return ()
    others = (s for s in find_beside(situation, former) if s.followed_by is None)
    return tuple(sorted(s.client_id for s in others if s not in situation.wanted))


def make_handover(
    session: Session, former: Session, others: tuple[str, ...] = ()
) -> HandOver | None:
    """The handover between two jobs; None if one of the sessions belongs to no job."""
    if session.job_name is None or former.job_name is None:
        return None
    return HandOver(
        session.site,
        session.link,
        session.client_id,
        session.job_name,
        former.client_id,
        former.job_name,
        others,
        session.job,
    )


def trusts(situation: Situation, reader: Incarnation) -> bool:
    """Whether what is known of a reader's end has to do, though its broker may have forgotten a
    part: the user has allowed to drop queues, and its engine is silent, or it was tried in vain."""
    if not situation.conditions.drops:
        return False
    run = reader.run or reader
    is_tried = run.engine_job_id in situation.conditions.has_read
    return is_tried or situation.is_engine_silent(run.job.engine)


def own_session(situation: Situation, reader: Incarnation) -> str:
    """The client id with which a reader reads its link."""
    return source_client_id(situation.installation, reader.job.job_name, reader.job.source)


def _explain_handover(situation: Situation, former: Session) -> str:
    """Explain the handover, and why records may not be taken exactly once."""
    reason = f"goes on where {former.job_name} ended"
    if not situation.conditions.drains:
        return f"{reason}; what it had not taken when it stopped is abandoned (no drain)"
    if situation.is_fed_outside(former.link) or not situation.jobs.producers.get(former.link):
        return f"{reason}; at least once where a publisher does not number its messages"
    return reason
