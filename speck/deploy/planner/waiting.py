"""Whether messages wait in a session that no other one has, and nobody takes them."""

from __future__ import annotations

from collections.abc import Mapping, Set
from functools import partial

from speck.deploy.planner.decisions import is_live, is_lost
from speck.deploy.planner.leaving import is_still_fed
from speck.deploy.planner.lineages import (
    Lineage,
    find_beside,
    is_held_at_another_link,
    is_left_behind,
    is_running,
    was_followed,
)
from speck.deploy.planner.sessions import count_abandoned, is_new_reader, is_whole
from speck.deploy.planner.situation import Situation
from speck.deploy.planner.stranded import is_stranded
from speck.deploy.planner.wiring import Followers, Leaving
from speck.model.incarnation import Incarnation, Session
from speck.model.job import Job
from speck.model.link import Link


def has_to_be_read(
    situation: Situation,
    followers: Followers,
    session: Session,
    lineage: Lineage | None,
    waiting: Mapping[str, Job],
    completed_links: Set[Link],
) -> bool:
    """Whether messages that no other session has may wait in the session, or may still arrive,
    while the jobs in `waiting` run as given."""
    if is_left_behind(situation, session):
        return False
    if session.link not in completed_links and is_held_at_another_link(situation, session):
        return False
    is_fed = is_fed_first(situation, session.link, waiting)
    if lineage is not None and lineage.find_reader(waiting, also_drained=is_fed) != session:
        return False
    if lost_its_follower(situation, followers, session):
        return True
    if lineage is not None:
        if any(is_running(situation, each, waiting) for each in lineage.members):
            return False
        if is_fed or is_stranded(situation, followers, lineage, waiting):
            return True
    return not session.drained and _holds_messages(situation, followers, session, waiting)


def _holds_messages(
    situation: Situation, followers: Followers, session: Session, waiting: Mapping[str, Job]
) -> bool:
    """Whether messages wait in a session that was not drained, by what its reader is to do."""
    count = partial(count_abandoned, situation, followers, session)
    old = situation.inventory.jobs.get(session.job_name or "")
    owed = old is not None and _is_owed(situation, followers, session, old, waiting)
    if session.job_name not in situation.jobs.wanted:
        return owed or _is_followed_while_fed(situation, followers, session)
    if session in situation.wanted:
        return situation.has_foreign_producers(session.link) or count() != 0
    if _goes_back(situation, session):
        return False
    if old is None or old.job.source != session.link or old.ended:
        return bool(count())
    if not session.begun and session.job is not None:
        return bool(count())
    # it failed or was lost: what it took since its last checkpoint is waiting again
    return owed or _is_followed_while_fed(situation, followers, session) or count() != 0


def is_read(situation: Situation, session: Session) -> bool:
    """Whether the session's reader runs on its link, or is wanted there and can go on with it as it
    did."""
    if session in situation.wanted and session.usable:
        return not (_is_exchanged(situation, session) or _has_more_than_another(situation, session))
    return is_running(situation, session)


def _is_exchanged(situation: Situation, session: Session) -> bool:
    """Whether the session's reader does not run, and gets the sink link of another job, or leaves
    its own to another one: what waits for it is for its former sink link."""
    name = session.job_name or ""
    old, new = situation.inventory.jobs.get(name), situation.jobs.wanted.get(name)
    if old is None or new is None or not old.has_state or is_live(situation, old):
        return False
    if old.job.source != new.source or old.job.port == new.port:
        return False
    if situation.has_foreign_producers(session.link) and _can_catch_up(situation, session.link):
        return False
    return any(
        link not in _find_port(situation.jobs.present_jobs, job)
        for link in set(old.job.port) - set(new.port)
        for job in situation.jobs.writers.get(link, ())
    ) or any(
        link not in _find_port(situation.jobs.wanted, producer.job)
        for link in set(new.port) - set(old.job.port)
        for producer in situation.jobs.producers.get(link, ())
    )


def _has_more_than_another(situation: Situation, session: Session) -> bool:
    """Whether the session's reader was stopped so that another one begins where it ended, and the
    broker has lost that one's session: what came since is in this one only."""
    link, old = session.link, situation.inventory.jobs.get(session.job_name or "")
    if old is None or not old.has_state or old.job.source != link:
        return False
    if any(is_live(situation, each) for each in situation.jobs.readers.get(link, ())):
        return False  # it stops anew, and the others read on to where it ends
    return situation.has_foreign_producers(link) and any(
        not each.reserved and each in situation.wanted and is_new_reader(situation, each, link)
        for each in situation.present.on_link.get(link, ())
    )


def _can_catch_up(situation: Situation, link: Link) -> bool:
    """Whether the readers of a link that is fed from outside, and were stopped, need not run before
    they change: none comes to the link whose session lacks what came since then, or one of them
    runs."""
    readers = situation.jobs.readers.get(link, ())
    if any(is_live(situation, each) for each in readers):
        return True
    return not any(
        is_new_reader(situation, session, link) and not is_whole(situation, session)
        for session in situation.wanted.on_link(link)
    )


def _find_port(jobs: Mapping[str, Job], job: Job) -> tuple[Link, ...]:
    """The port that a job has among these."""
    there = jobs.get(job.job_name)
    return there.port if there is not None else ()


def _is_owed(
    situation: Situation,
    followers: Followers,
    session: Session,
    old: Incarnation,
    waiting: Mapping[str, Job],
) -> bool:
    """Whether jobs have sent, or will send, messages that are only for a reader that was lost: a
    running reader would take them before it leaves its link. Jobs that have left the link since
    have sent what is counted."""
    if old.job.source != session.link or not is_lost(situation, old):
        return False
    producers, count = (
        situation.jobs.producers.get(session.link, ()),
        count_abandoned(situation, followers, session),
    )
    sending = any(d.job.job_name in waiting or is_live(situation, d) for d in producers)
    return sending or (count != 0 if producers else bool(count))


def is_fed_first(situation: Situation, link: Link, waiting: Mapping[str, Job]) -> bool:
    """Whether a job that runs first, with other links than wanted, writes to the link."""
    return any(
        link in job.port and _ends_of(situation.jobs.wanted.get(name)) != _ends_of(job)
        for name, job in waiting.items()
    )


def _ends_of(job: Job | None) -> tuple[Link, tuple[Link, ...]] | None:
    return job.ends if job is not None else None


def lost_its_follower(situation: Situation, followers: Followers, session: Session) -> bool:
    """Whether the reader that was to continue after this one has no messages since its end: a
    broker forgot its session, or it never began and another one is wanted instead."""
    is_followed_anew = session in followers.predecessors.values() and not session.drained
    return session.followed_by is None and any(
        not other.reserved or (is_followed_anew and other not in situation.wanted)
        for other in situation.inventory.sessions
        if other.follows == session.client_id
    )


def _is_followed_while_fed(situation: Situation, followers: Followers, session: Session) -> bool:
    is_followed = bool(followers.follows(session))
    return is_followed and is_still_fed(situation, Leaving(), session.link)


def _is_whole_before(situation: Situation, session: Session) -> bool:
    """Whether the reader that the session's own one followed, beside others, comes back, and none
    of them has begun."""
    former = situation.present.usable.get(session.former or "")
    beside = (session, *find_beside(situation, session))
    return former is not None and former in situation.wanted and not any(s.begun for s in beside)


def _goes_back(situation: Situation, session: Session) -> bool:
    """Whether another session has all messages of this one: that of a reader which was to be
    followed, or that of a follower which was reserved before this reader was drained and ended."""
    if session.beside and session.follows is None:
        # its predecessor does not do the same work, but has all messages if nobody took any since
        return _is_whole_before(situation, session)
    old = situation.inventory.jobs.get(session.job_name or "")
    has_read = old is not None and old.job.source == session.link
    there = {s.client_id: s for s in situation.inventory.sessions if s.usable}
    for other in there.values():
        if other.link != session.link:
            continue
        if not has_read and was_followed(other, session, there) and other in situation.wanted:
            return True
        if has_read and old is not None and old.ended and other.follows == session.client_id:
            return other in situation.wanted
    return False
