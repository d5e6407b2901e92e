"""Links on which messages wait for a job that does not read them: it takes those first.

That is how a wish to go back leaves nothing behind when it meets a rewiring that is half done:
the producer has begun to write to the new link, its reader has never run there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from graphlib import CycleError, TopologicalSorter

from speck.inventory import Session
from speck.model import DesiredState, Job, Link
from speck.planner.decisions import is_live
from speck.planner.draft import Draft
from speck.planner.sessions import abandoned, wanted_sessions


def take_what_waits(draft: Draft, leave: frozenset[str]) -> bool:
    """Let jobs read, in this plan, the link that would be released with messages in it.

    Their sessions on the links that they are to read are kept. Gives whether there is any such
    job: then another plan has to follow, in which it leaves that link as any reader does.
    """
    if not draft.drain or leave:
        return False
    waiting = _waiting(draft)
    if not waiting:
        return False
    then = draft.sessions
    jobs = {name: _reading(draft.wanted[name], session) for name, session in waiting.items()}
    desired = [jobs.get(job.job_name, job) for job in draft.desired.jobs]
    if _has_circle(desired):
        return False
    draft.desired = replace(draft.desired, jobs=tuple(desired))
    draft.wanted |= jobs
    now = wanted_sessions(draft)
    named = {(session.client_id, session.link) for session in now}
    draft.sessions = now + [s for s in then if (s.client_id, s.link) not in named]
    return True


def _waiting(draft: Draft) -> dict[str, Session]:
    """Job name -> a session in which messages are known to wait, and which nobody reads."""
    wanted = {(session.client_id, session.link) for session in draft.sessions}
    found: dict[str, Session] = {}
    for session in sorted(draft.inventory.sessions, key=lambda s: s.client_id):
        job = draft.wanted.get(session.job_name or "")
        if job is None or job.state is not DesiredState.RUNNING or not session.reserved:
            continue
        if (session.client_id, session.link) in wanted or job.job_name in found:
            continue
        old = draft.inventory.jobs.get(job.job_name)
        reads = old is not None and old.job.source == session.link and is_live(draft, old)
        if not reads and abandoned(draft, session):
            found[job.job_name] = session
    return found


def _reading(job: Job, session: Session) -> Job:
    return replace(job, source=session.link, source_site=session.site)


def _has_circle(jobs: Iterable[Job]) -> bool:
    before: dict[Link, set[Link]] = defaultdict(set)
    for job in jobs:
        before[job.sink].add(job.source)
    try:
        TopologicalSorter(before).prepare()
    except CycleError:
        return True
    return False
