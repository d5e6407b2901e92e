"""Links on which messages wait for a job that does not read them: it takes those first.

That is how a wish to go back leaves nothing behind when it meets a rewiring that is half done:
the producer has begun to write to the new link, its reader has never run there. And that is how
a reader that got lost with its engine takes what nobody else has, before another one follows it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from graphlib import CycleError, TopologicalSorter

from speck.inventory import Session
from speck.model import DesiredState, Job, Link
from speck.planner.decisions import is_live, is_lost
from speck.planner.draft import Draft
from speck.planner.sessions import abandoned, still_fed


def find_waiting(draft: Draft) -> dict[str, Job]:
    """The jobs that have to read a link first, as they are to run meanwhile, by name.

    If there are any they make a plan of their own, which leaves all else as it is: the plan that
    follows it finds them as readers of that link, which they leave as any reader does.
    """
    waiting: dict[str, Job] = {}
    for session in sorted(draft.inventory.sessions, key=lambda s: s.client_id):
        name = session.job_name or ""
        if name in waiting or not session.reserved or _is_read(draft, session):
            continue
        if _to_run(draft, session) and _has_to_be_read(draft, session):
            others = [d.job for n, d in draft.inventory.jobs.items() if n not in (name, *waiting)]
            for job in _to_run(draft, session):
                reader = replace(job, source=session.link, source_site=session.site)
                if not _has_circle([reader, *waiting.values(), *others]):
                    waiting[name] = reader
                    break
    return waiting


def keep_sessions(draft: Draft, then: Draft) -> None:
    """Let all sessions that are there be wanted, so that none is released; what the jobs of this
    plan write to has the readers that it is to have `then`."""
    there = {(s.client_id, s.link): s.reserved for s in draft.inventory.sessions}
    sinks = {job.sink for job in draft.wanted.values() if job.job_name not in draft.kept}
    draft.sessions = list(draft.inventory.sessions)
    for session in then.sessions:
        key = (session.client_id, session.link)
        if session.link not in sinks or there.get(key):
            continue
        draft.first_readers.add(session.client_id)
        if key not in there:
            draft.sessions.append(session)
        if session.client_id in then.predecessors:
            draft.predecessors[session.client_id] = then.predecessors[session.client_id]
    draft.read |= {session.link for session in draft.sessions}


def _to_run(draft: Draft, session: Session) -> list[Job]:
    """As what the session's reader may run, the best first: as it is wanted, with the sink that it
    had if that is read, or else with its new one; as it ran, if it got lost and is wanted no
    more."""
    name = session.job_name or ""
    job, old = draft.wanted.get(name), draft.inventory.jobs.get(name)
    if job is None:
        comes_back = old is not None and (is_lost(draft, old) or _lost_its_follower(draft, session))
        return [old.job] if old is not None and comes_back else []
    if job.state is not DesiredState.RUNNING:
        return []
    if old is None:
        return [job]
    before = replace(job, sink=old.job.sink, sink_site=old.job.sink_site)
    read = draft.outside_readers | {s.link for s in draft.inventory.sessions if s.reserved}
    return [before, job] if before.sink in read else [job, before]


def _is_read(draft: Draft, session: Session) -> bool:
    """Whether its reader runs, or is to run, on the session's link."""
    if any(s.client_id == session.client_id and s.link == session.link for s in draft.sessions):
        return True
    old = draft.inventory.jobs.get(session.job_name or "")
    return old is not None and old.job.source == session.link and is_live(draft, old)


def _has_to_be_read(draft: Draft, session: Session) -> bool:
    """Whether something may wait in the session that no other one has."""
    name = session.job_name or ""
    if _lost_its_follower(draft, session):
        return True
    if name not in draft.wanted:  # what a removed job has not taken matters to who follows it
        return _is_followed_while_fed(draft, session)
    if _goes_back(draft, session):
        return False
    old = draft.inventory.jobs.get(name)
    has_begun = old is not None and old.job.source == session.link and not old.ended
    if has_begun:  # it failed or got lost: what it had taken since its last checkpoint waits, too
        return _is_followed_while_fed(draft, session) or abandoned(draft, session) != 0
    return bool(abandoned(draft, session))


def _lost_its_follower(draft: Draft, session: Session) -> bool:
    """Whether a broker forgot the session of the reader that was to go on where this one's has
    ended: only this one holds what came since."""
    return session.followed_by is None and any(
        other.follows == session.client_id and not other.reserved
        for other in draft.inventory.sessions
    )


def _is_followed_while_fed(draft: Draft, session: Session) -> bool:
    followed = any(former == session for former in draft.predecessors.values())
    return followed and still_fed(draft, session.link)


def _goes_back(draft: Draft, session: Session) -> bool:
    """Whether another session has all that is in this one: that of a reader which was to be
    followed, or a follower's that was reserved before this one's reader was drained and ended."""
    old = draft.inventory.jobs.get(session.job_name or "")
    has_read = old is not None and old.job.source == session.link
    for other in draft.inventory.sessions:
        if not other.reserved or other.link != session.link:
            continue
        if not has_read and other.followed_by == session.client_id and _is_wanted(draft, other):
            return True
        if has_read and old is not None and old.ended and other.follows == session.client_id:
            return _is_wanted(draft, other)
    return False


def _is_wanted(draft: Draft, session: Session) -> bool:
    return any(s.client_id == session.client_id and s.link == session.link for s in draft.sessions)


def _has_circle(jobs: Iterable[Job]) -> bool:
    before: dict[Link, set[Link]] = defaultdict(set)
    for job in jobs:
        before[job.sink].add(job.source)
    try:
        TopologicalSorter(before).prepare()
    except CycleError:
        return True
    return False
