"""The steps that release sessions, and what each of them abandons."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set

from speck.deploy.planner.decisions import Decision
from speck.deploy.planner.lineages import find_owner, is_running
from speck.deploy.planner.sessions import count_abandoned, find_ending_sessions, reserve_sessions
from speck.deploy.planner.situation import Situation
from speck.deploy.planner.steps import (
    HandedOver,
    Numbers,
    Released,
    Reserved,
    Started,
    StepList,
    Stopped,
    ids,
)
from speck.deploy.planner.wiring import Wiring
from speck.model.ids import source_client_id
from speck.model.incarnation import Session
from speck.model.link import Link
from speck.model.link_operations import Release


def renew_sessions(
    wiring: Wiring, stopped: Stopped, handed_over: HandedOver, numbers: Numbers
) -> tuple[Released, Reserved]:
    """Release the sessions that end and are reserved again: a broker ends a session as a whole,
    whatever its topic."""
    released, reserved = list[Released](), Reserved()
    for old in find_ending_sessions(wiring):
        ended = _release(wiring, stopped, handed_over, Started(), old, None, numbers)
        key = (old.link.site, old.client_id)
        sessions = wiring.situation.wanted.sessions
        new = [s for s in sessions if (s.link.site, s.client_id) == key]
        after = {old.client_id: ended.on[old.link]}
        begun = reserve_sessions(wiring, new, stopped, after, numbers)
        released.append(ended)
        reserved = reserved.joined(begun)
    return Released.gathered(released), reserved


def release_sessions(
    wiring: Wiring, stopped: Stopped, handed_over: HandedOver, started: Started, numbers: Numbers
) -> Released:
    """Release the sessions that are not wanted any more."""
    situation = wiring.situation
    keep = {(s.client_id, s.link.site) for s in situation.wanted.sessions}
    released: list[Released] = []
    for session in sorted(situation.inventory.sessions, key=lambda s: (s.reader, s.client_id)):
        if (session.client_id, session.link.site) not in keep and not session.released:
            holder = session.job_name
            ended = _release(wiring, stopped, handed_over, started, session, holder, numbers)
            released.append(ended)
    return Released.gathered(released)


def _release(
    wiring: Wiring,
    stopped: Stopped,
    handed_over: HandedOver,
    started: Started,
    session: Session,
    holder: str | None,
    numbers: Numbers,
) -> Released:
    successors = wiring.followers.follows(session)
    stop = stopped.of.get(holder or "")
    after = ids([stop, started.of.get(holder or "")])
    if stop is None:
        # its reader is not drained: the last messages of leaving producers are for it
        leaving = wiring.leaving.producers.get(session.link, ())
        after += find_awaited_stops(wiring.situation, stopped.of, leaving)
    # until those that come to its link have started, the old session is the way back; the same
    # holds for the sessions downstream of its reader
    after += ids(_find_starts_coming(wiring, started, session.link))
    after += ids(_find_upstream_starts(wiring, started, session.link))
    after += ids(handed_over.of.get(c) for c in successors)
    after += ids(started.readers.get(c or "") for c in (*successors, session.followed_by))
    abandons = _count(wiring, session, is_followed=bool(successors))
    operation = Release(
        session.site,
        session.link,
        session.client_id,
        session.job_name,
        last_reader=session.link not in wiring.situation.wanted.links_read,
        abandons=abandons,
    )
    steps = StepList(numbers)
    step = (steps.add(operation, after, _explain_release(abandons)),)
    return Released(steps.listed(), {session.job_name or "": step}, {session.link: step})


def _count(wiring: Wiring, session: Session, *, is_followed: bool) -> int | None:
    if is_followed and wiring.debts.is_drained(session):
        return 0
    emptied = wiring.debts.emptied
    return count_abandoned(wiring.situation, wiring.followers, session, emptied)


def find_awaited_stops(
    situation: Situation, stops: Mapping[str, int], producers: Iterable[Decision]
) -> tuple[int, ...]:
    """The stops of producers that the readers of their link wait for. If queues may be dropped,
    nobody waits for an engine that does not answer."""
    drops = situation.conditions.drops
    awaited = (
        each.job_name
        for each in producers
        if not (drops and each.old and situation.is_engine_silent(each.old.job.engine))
    )
    return ids(stops.get(name) for name in awaited)


def _find_starts_coming(wiring: Wiring, started: Started, link: Link) -> list[int | None]:
    """The starts of the jobs that begin to read a link, or to write what they read there to
    another one: one of them may be there for several that leave it."""
    coming = (s for s in wiring.situation.wanted.on_link(link) if _begins_there(wiring, s))
    return [started.readers.get(session.client_id) for session in coming]


def _begins_there(wiring: Wiring, session: Session) -> bool:
    """Whether the session's job is to read its link anew, to write to another one than now, or to
    read on from a cut."""
    name = session.job_name or ""
    if name in wiring.cuts.jobs:
        return True
    old = wiring.situation.inventory.jobs.get(name)
    new = wiring.situation.jobs.wanted.get(name)
    if old is None or new is None or not old.has_state:
        return True
    return old.job.ends != new.ends


def _find_upstream_starts(wiring: Wiring, started: Started, link: Link) -> list[int | None]:
    """The next starts of the leaving producers of the link, those of the jobs that follow them, and
    those further upstream: if one of them fails, or the change ends before it, what waits there is
    taken by the job as it was, which writes to its old link."""
    if not started.of:  # each link of a long chain that is removed has many upstream
        return []
    starts: list[int | None] = []
    visited, ahead = {link}, [link]
    while ahead:
        for producer in wiring.leaving.producers.get(ahead.pop(), ()):
            if producer.old is None or producer.old.job.source in visited:
                continue
            source = producer.old.job.source
            if producer.job_name not in wiring.cuts.jobs:
                starts.append(started.of.get(producer.job_name))
            own = source_client_id(wiring.situation.installation, producer.job_name, source)
            starts += [started.readers.get(c) for c in wiring.followers.follows_reader(own)]
            visited.add(source)
            ahead.append(source)
    return starts + _find_starts_instead(wiring, started, visited)


def _find_starts_instead(wiring: Wiring, started: Started, links: Set[Link]) -> list[int | None]:
    """The starts of those that take the place of jobs which wrote to these links, or were to, until
    a change ended early, and that write elsewhere: if they do not begin, what waits there is taken
    by these jobs."""
    present = wiring.situation.present
    starts: list[int | None] = []
    for session in (each for link in links for each in present.by_sink.get(link, ())):
        if session.job is None or is_running(wiring.situation, session):
            continue
        owner = find_owner(session, present.by_id) or session
        followers = wiring.followers.follows(owner)
        for client_id in (session.client_id, owner.client_id, *followers):
            job = started.jobs.get(client_id)
            if job is not None and job.port != session.job.port:
                starts.append(started.readers[client_id])
    return starts


def _explain_release(abandons: int | None) -> str:
    if abandons == 0:
        return "left"
    if abandons is None:
        return "left; abandons what is queued (number not known)"
    return f"left; abandons {abandons} queued messages"
