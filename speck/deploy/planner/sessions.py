"""Plans readers' sessions: which are wanted, reserved and released, and what they abandon."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from speck.deploy.planner.decisions import is_live, may_arrive
from speck.deploy.planner.draft import Decision, Draft, ids
from speck.deploy.planner.lineages import (
    find_owner,
    is_held_at_another_link,
    is_left_behind,
    is_outdated,
    is_running,
    list_waiting_instead,
    was_followed,
)
from speck.deploy.planner.sinks import list_sinks, sink_of, sinks_of
from speck.deploy.planner.situation import Situation
from speck.deploy.planner.starts import is_rewired
from speck.model.ids import source_client_id
from speck.model.incarnation import Incarnation, Session
from speck.model.link import Link
from speck.model.plan import Release, Reserve, Start
from speck.spec.job_contract import reports_numbers


def reserve_sessions(
    draft: Draft, sessions: Iterable[Session], after: Mapping[str, Sequence[int]]
) -> None:
    """Add the steps that reserve missing sessions. `after` gives, by client id, further steps to
    wait for, besides the stops of producers that leave the link together."""
    former_sessions = {(s.client_id, s.link): s for s in draft.situation.inventory.sessions}
    there = {
        key
        for key, s in former_sessions.items()
        if s.usable
        and not is_left_behind(draft.situation, s)
        and not is_outdated(draft.situation, s)
    }
    for session in sessions:
        if (session.client_id, session.link) in there and session.client_id not in after:
            continue
        former = draft.predecessors.get(session.client_id)
        operation = Reserve(
            session.site,
            session.link,
            session.client_id,
            session.job_name,
            former.client_id if former else None,
            session.client_id in draft.readers_beside,
            session.client_id in after,
            list_sinks(draft.situation, session.link),
            is_fed_by_unknown(draft.situation, session.link),
            session.job,
            fresh=(session.client_id, session.link) in former_sessions,
            left_by=_list_sinks_left(draft, session.link),
            instead_of=draft.instead_of.get(session.client_id),
        )
        reason = f"follows {former.job_name}" if former else _explain_joining(draft, session)
        before = [*after.get(session.client_id, ()), *_find_producer_stops(draft, session.link)]
        step = draft.add(operation, before, reason)
        draft.reserves[session.link].append(step)
        draft.reserve_of[session.client_id] = step
        there_before = former_sessions.get((session.client_id, session.link))
        if there_before is not None and is_outdated(draft.situation, there_before):
            draft.made_anew[session.link].append(step)


def _explain_joining(draft: Draft, session: Session) -> str:
    """Explain that a reader is new, and what it means if it cannot follow the readers that leave
    its link."""
    job = draft.situation.jobs.wanted.get(session.job_name or "")
    leaving = [
        incarnation.job
        for name, incarnation in draft.situation.inventory.jobs.items()
        if incarnation.job.source == session.link
        and (
            name not in draft.situation.jobs.wanted
            or draft.situation.jobs.wanted[name].source != session.link
        )
    ]
    unnumbered_jobs = [
        each.job_name for each in (*leaving, job) if each and not reports_numbers(each)
    ]
    do = "numbers" if len(unnumbered_jobs) == 1 else "number"
    if job is None or not leaving or not unnumbered_jobs or not is_still_fed(draft, session.link):
        return "new reader"
    names = ", ".join(sorted(each.job_name for each in leaving))
    return (
        f"new reader, at least once: it cannot go on where {names} ended, since"
        f" {' and '.join(unnumbered_jobs)} {do} nothing"
    )


def _find_producer_stops(draft: Draft, link: Link) -> tuple[int, ...]:
    """The stops of a link's producers if all of them leave: their messages are for the old
    readers."""
    return () if is_still_fed(draft, link) else ids(d.stop_id for d in draft.leavers[link])


def _list_sinks_left(draft: Draft, link: Link) -> tuple[str, ...]:
    """The sinks of a link's producers if all of them leave and those that come back have other
    sources: their messages are for the readers that are there before."""
    if is_still_fed(draft, link):
        return ()
    return tuple(
        sorted(
            sink
            for each in draft.leavers.get(link, ())
            if each.old is not None and is_rewired(each)
            for sink in sinks_of(draft.situation, each.old)
        )
    )


def find_awaited_stops(situation: Situation, producers: Iterable[Decision]) -> tuple[int, ...]:
    """The stops of producers that the readers of their link wait for. If queues may be dropped,
    nobody waits for an engine that does not answer."""
    awaited = (
        d
        for d in producers
        if not (situation.conditions.drops and d.old and situation.is_engine_silent(d.old.job.site))
    )
    return ids(d.stop_id for d in awaited)


def is_still_fed(draft: Draft, link: Link) -> bool:
    """Whether a producer of the link, in speck or outside, goes on when its reader leaves."""
    producers = draft.situation.jobs.producers.get(link, ())
    running = {
        d.job.job_name
        for d in producers
        if is_live(draft.situation, d) or may_arrive(draft.situation, d)
    }
    leaving = {d.job_name for d in draft.leavers.get(link, ())}
    return draft.situation.is_fed_outside(link) or not producers or not running <= leaving


def is_fed_by_unknown(situation: Situation, link: Link) -> bool:
    """Whether programs outside speck are declared to write to a link, or nobody else would."""
    jobs = (job for job in situation.jobs.wanted.values() if job.sink == link)
    known = link in situation.outside.sinks or bool(situation.jobs.producers.get(link)) or any(jobs)
    return link in situation.desired.inputs or not known


def is_new_reader(situation: Situation, session: Session, link: Link) -> bool:
    """Whether the session's job begins to read a link, and has not been given a place there yet."""
    if session.link != link or session.job_name is None:
        return False
    old = situation.inventory.jobs.get(session.job_name)
    if old is not None and has_place(situation, old, link):
        return False
    there = situation.present.usable.get(session.client_id)
    return there is None or not there.skip or is_outdated(situation, there)


def has_place(situation: Situation, reader: Incarnation, link: Link) -> bool:
    """Whether a job reads a link, or goes on there when it starts again: another has not taken its
    place."""
    if reader.job.source != link:
        return False
    own = source_client_id(situation.installation, reader.job.job_name, link)
    session = situation.present.usable.get(own)
    if session is None or is_outdated(situation, session):
        return False
    return session.follows is None and session.followed_by is None


def find_ending_sessions(
    draft: Draft,
) -> list[Session]:
    """Sessions that end and are reserved again: those of outside readers that keep their client id
    with another topic, and those with messages that another reader has taken."""
    links = {(s.link.site, s.client_id): s.link for s in draft.situation.wanted.sessions}
    return [
        s
        for s in sorted(draft.situation.inventory.sessions, key=lambda s: s.client_id)
        if links.get((s.link.site, s.client_id), s.link) != s.link
        or s.client_id in draft.renewed_sessions
    ]


def renew_sessions(draft: Draft, ending: list[Session]) -> None:
    """Add the steps that release and reserve these sessions: a broker ends a session as a whole,
    whatever its topic."""
    for old in ending:
        step = release(draft, old, None)
        key = (old.link.site, old.client_id)
        new = [s for s in draft.situation.wanted.sessions if (s.link.site, s.client_id) == key]
        reserve_sessions(draft, new, {old.client_id: (step,)})


def release_sessions(draft: Draft, decisions: list[Decision]) -> dict[str, list[int]]:
    """Add the steps that release unwanted sessions; returns them by job name."""
    keep = {(s.client_id, s.link.site) for s in draft.situation.wanted.sessions}
    by_name = {d.job_name: d for d in decisions}
    steps: dict[str, list[int]] = defaultdict(list)
    for session in sorted(
        draft.situation.inventory.sessions, key=lambda s: (s.reader, s.client_id)
    ):
        if (session.client_id, session.link.site) not in keep and not session.released:
            step = release(draft, session, by_name.get(session.job_name or ""))
            steps[session.job_name or ""].append(step)
    return steps


def release(draft: Draft, session: Session, holder: Decision | None) -> int:
    successors = [c for c, former in draft.predecessors.items() if former == session]
    after = ids([holder.stop_id, holder.start_id]) if holder is not None else ()
    if holder is None or holder.stop_id is None:
        # its reader is not drained: the last messages of leaving producers are for it
        after += find_awaited_stops(draft.situation, draft.leavers.get(session.link, ()))
    # until those that come to its link have started, the old session is the way back; the same
    # holds for the sessions downstream of its reader
    after += ids(_find_starts_coming(draft, session.link))
    after += ids(_find_upstream_starts(draft, session.link))
    after += ids(draft.handover_of.get(c) for c in successors)
    after += ids(draft.start_of.get(c) for c in (*successors, session.followed_by))
    is_drained = bool(successors) and session.client_id in draft.drained_readers
    abandons = 0 if is_drained else count_abandoned(draft, session)
    operation = Release(
        session.site,
        session.link,
        session.client_id,
        session.job_name,
        last_reader=session.link not in draft.situation.wanted.links_read,
        abandons=abandons,
    )
    step = draft.add(operation, after, _explain_release(abandons))
    draft.releases_on[session.link].append(step)
    return step


def _find_starts_coming(draft: Draft, link: Link) -> list[int | None]:
    """The starts of the jobs that begin to read a link, or to write what they read there to
    another one: one of them may be there for several that leave it."""
    coming = (s for s in draft.situation.wanted.on_link(link) if _begins_there(draft, s))
    return [draft.start_of.get(session.client_id) for session in coming]


def _begins_there(draft: Draft, session: Session) -> bool:
    """Whether the session's job is to read its link anew, to write to another one than now, or to
    read on from a cut."""
    if session.job_name in draft.cut_jobs:
        return True
    old = draft.situation.inventory.jobs.get(session.job_name or "")
    new = draft.situation.jobs.wanted.get(session.job_name or "")
    return old is None or new is None or old.job.ends != new.ends


def _find_upstream_starts(draft: Draft, link: Link) -> list[int | None]:
    """The next starts of the leaving producers of the link, those of the jobs that follow them, and
    those further upstream: if one of them fails, or the change ends before it, what waits there is
    taken by the job as it was, which writes to its old link."""
    if not draft.start_of:  # each link of a long chain that is removed has many upstream
        return []
    starts: list[int | None] = []
    visited, ahead = {link}, [link]
    while ahead:
        for producer in draft.leavers.get(ahead.pop(), ()):
            if producer.old is None or producer.old.job.source in visited:
                continue
            source = producer.old.job.source
            if producer.job_name not in draft.cut_jobs:
                starts.append(producer.start_id)
            own = source_client_id(draft.situation.installation, producer.job_name, source)
            followers = [c for c, f in draft.predecessors.items() if f.client_id == own]
            starts += [draft.start_of.get(c) for c in followers]
            visited.add(source)
            ahead.append(source)
    return starts + _find_starts_instead(draft, visited)


def _find_starts_instead(draft: Draft, links: set[Link]) -> list[int | None]:
    """The starts of those that take the place of jobs which wrote to these links, or were to, until
    a change ended early, and that write elsewhere: if they do not begin, what waits there is taken
    by these jobs."""
    starts: list[int | None] = []
    for session in (
        each for link in links for each in draft.situation.present.by_sink.get(link, ())
    ):
        if is_running(draft.situation, session):
            continue
        owner = find_owner(session, draft.situation.present.by_id) or session
        followers = [c for c, former in draft.predecessors.items() if former == owner]
        for client_id in (session.client_id, owner.client_id, *followers):
            step = draft.start_of.get(client_id)
            start = draft.steps[step - 1].operation if step is not None else None
            if isinstance(start, Start) and session.job and start.job.sink != session.job.sink:
                starts.append(step)
    return starts


def count_abandoned(draft: Draft, session: Session) -> int | None:
    """The number of messages that are in the session when it is released and in no other session;
    None if unknown."""
    if (
        session.drained
        or session.client_id in draft.emptied_readers
        or is_left_behind(draft.situation, session)
        or is_held_elsewhere(draft, session)
    ):
        return 0
    return count_untaken(draft.situation, session)


def count_untaken(situation: Situation, session: Session) -> int | None:
    """The number of messages of this scope's producers that its reader has not taken; None if
    unknown."""
    view = situation.observation.brokers.get(session.site)
    reader = situation.inventory.jobs.get(session.job_name or "")
    tells = reader is not None and reports_numbers(reader.job)
    if view is None or not (tells or session.client_id in view.taken):
        return None
    sinks: list[str] = []
    topic = session.link.topic
    for incarnation in situation.jobs.producers.get(session.link, ()):
        own = sink_of(situation, incarnation)
        if not view.knows(topic, own):
            return None
        sinks += [own, *view.sinks_of(topic, incarnation.former_sinks)]
    if not sinks and session.owed:  # its producers have left, and their numbers are stored
        return view.untaken(session.client_id, {(p, e): n for p, e, n in session.owed})
    return view.lag(session.client_id, topic, sinks, session.owed)


def is_held_elsewhere(draft: Draft, session: Session) -> bool:
    """Whether another session has the messages of this one, or its reader has taken them. That
    holds in four cases: one of them is instead of the other, at another link; it waits to follow
    the other one, or was followed by it; it followed the other one, whose reader comes back; or the
    other one is a follower that is still wanted and was reserved before this reader was drained,
    even if the reader has gone on elsewhere since."""
    if is_held_at_another_link(draft.situation, session) or list_waiting_instead(
        draft.situation, session
    ):
        return True
    if session.followed_by in draft.situation.present.reserved_readers:
        return True
    if session.beside and session.follows is None:
        return False
    if session.follows in draft.situation.present.reserved_readers:
        return True
    there = draft.situation.present.usable
    comes_back = (c for c, former in draft.predecessors.items() if former == session)
    if any(c in there and was_followed(there[c], session, there) for c in comes_back):
        return True
    followers = [
        f
        for f in draft.situation.present.followers.get(session.client_id, ())
        if f in draft.situation.wanted
    ]
    if any(
        f.whole and not f.beside and draft.predecessors.get(f.client_id) == session
        for f in followers
    ):
        return True
    old = draft.situation.inventory.jobs.get(session.job_name or "")
    has_ended = old is not None and old.ended and old.job.source == session.link
    return has_ended and bool(followers)


def _explain_release(abandons: int | None) -> str:
    if abandons == 0:
        return "left"
    if abandons is None:
        return "left; abandons what is queued (number not known)"
    return f"left; abandons {abandons} queued messages"
