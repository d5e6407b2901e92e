"""Readers' sessions: which are wanted, made, ended, and what they abandon."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from speck.contract import tells_numbers
from speck.inventory import Session
from speck.model import source_client_id
from speck.plan import Release, Reserve
from speck.planner.draft import Decision, Draft, ids
from speck.planner.sinks import sink_of


def wanted_sessions(
    draft: Draft,
) -> list[Session]:
    jobs = [
        Session(
            source_client_id(draft.installation, job.job_name, job.source),
            job.source,
            job.source_site,
            job.job_name,
        )
        for job in draft.desired.jobs
    ]
    outside = [
        Session(reader.client_id, reader.link, reader.site, None)
        for reader in draft.desired.readers
    ]
    return sorted(jobs + outside, key=lambda s: (s.reader, s.client_id))


def reserve_sessions(draft: Draft, sessions: Iterable[Session], after: Iterable[int] = ()) -> None:
    there = {(s.client_id, s.link) for s in draft.inventory.sessions if s.reserved}
    for session in sessions:
        if (session.client_id, session.link) in there:
            continue
        operation = Reserve(session.site, session.link, session.client_id, session.job_name)
        step = draft.add(operation, after, "new reader")
        draft.reserves[session.link].append(step)
        draft.reserve_of[session.client_id] = step


def ending_sessions(
    draft: Draft,
) -> list[Session]:
    """Sessions of outsiders that go on under the same client id with another topic."""
    wanted = {(s.link.broker, s.client_id): s.link for s in draft.sessions}
    return [
        s
        for s in sorted(draft.inventory.sessions, key=lambda s: s.client_id)
        if wanted.get((s.link.broker, s.client_id), s.link) != s.link
    ]


def renew_sessions(draft: Draft, ending: list[Session]) -> None:
    """A broker ends a session as a whole, whatever its topic: it ends first."""
    for old in ending:
        step = release(draft, old, None)
        wanted = (old.link.broker, old.client_id)
        new = [s for s in draft.sessions if (s.link.broker, s.client_id) == wanted]
        reserve_sessions(draft, new, (step,))


def release_sessions(draft: Draft, decisions: list[Decision]) -> dict[str, list[int]]:
    """Steps that release what nobody wants any more, by job name."""
    keep = {(s.client_id, s.link.broker) for s in draft.sessions}
    by_name = {d.job_name: d for d in decisions}
    released: dict[str, list[int]] = defaultdict(list)
    for session in sorted(draft.inventory.sessions, key=lambda s: (s.reader, s.client_id)):
        if (session.client_id, session.link.broker) not in keep:
            step = release(draft, session, by_name.get(session.job_name or ""))
            released[session.job_name or ""].append(step)
    return released


def release(draft: Draft, session: Session, holder: Decision | None) -> int:
    if holder is not None:
        after = ids([holder.stop_id, holder.start_id])
    else:  # what outsiders read may still be said while the links before it are drained
        after = ids(d.stop_id for d in draft.left_by.get(session.link, ()))
    abandons = abandoned(draft, session)
    operation = Release(
        session.site,
        session.link,
        session.client_id,
        session.job_name,
        last_reader=session.link not in draft.read,
        abandons=abandons,
    )
    return draft.add(operation, after, _release_reason(abandons))


def abandoned(draft: Draft, session: Session) -> int | None:
    """Messages that the session will hold when it is released; None: cannot be known."""
    if session.client_id in draft.emptied:
        return 0
    view = draft.observed.brokers.get(session.site)
    reader = draft.inventory.jobs.get(session.job_name or "")
    tells = reader is not None and tells_numbers(reader.job)
    if view is None or not (tells or session.client_id in view.taken):
        return None
    sinks: list[str] = []
    for deployed in draft.producers.get(session.link, ()):
        former = [sink for sink in deployed.former_sinks if sink in view.sent]
        sinks += [sink_of(draft, deployed), *former]  # a former one may have sent nothing
    return view.lag(session.client_id, sinks, session.owed)


def _release_reason(abandons: int | None) -> str:
    if abandons == 0:
        return "left"
    if abandons is None:
        return "left; abandons what is queued (number not known)"
    return f"left; abandons {abandons} queued messages"
