"""Readers' sessions: how they are reserved, and what waits in them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set

from speck.deploy.planner.decisions import is_live, is_rewired
from speck.deploy.planner.leaving import is_idle, is_still_fed
from speck.deploy.planner.lineages import (
    is_held_at_another_link,
    is_left_behind,
    is_outdated,
    list_waiting_instead,
    was_followed,
)
from speck.deploy.planner.sinks import list_sinks, sink_of, sinks_of
from speck.deploy.planner.situation import Situation
from speck.deploy.planner.steps import Numbers, Reserved, StepList, Stopped
from speck.deploy.planner.wiring import Followers, Wiring
from speck.model.ids import source_client_id
from speck.model.incarnation import Incarnation, Session
from speck.model.link import Link
from speck.model.link_operations import Reserve
from speck.spec.job_contract import reports_numbers


def reserve_fed_links(wiring: Wiring, numbers: Numbers) -> Reserved:
    """Reserve the missing sessions of links that are still fed when their readers leave."""
    fed = [s for s in _list_lasting(wiring) if _is_fed_on(wiring, s)]
    return reserve_sessions(wiring, fed, None, {}, numbers)


def reserve_left_links(wiring: Wiring, stopped: Stopped, numbers: Numbers) -> Reserved:
    """Reserve the missing sessions of links that all producers leave."""
    left = [s for s in _list_lasting(wiring) if not _is_fed_on(wiring, s)]
    return reserve_sessions(wiring, left, stopped, {}, numbers)


def _is_fed_on(wiring: Wiring, session: Session) -> bool:
    return is_still_fed(wiring.situation, wiring.leaving, session.link)


def _list_lasting(wiring: Wiring) -> list[Session]:
    """The wanted sessions that need not end first."""
    ending = {(s.link.site, s.client_id) for s in find_ending_sessions(wiring)}
    sessions = wiring.situation.wanted.sessions
    lasting = [s for s in sessions if (s.link.site, s.client_id) not in ending]
    if wiring.first is None:
        return lasting
    return [s for s in lasting if s.client_id in wiring.first.readers]


def find_ending_sessions(wiring: Wiring) -> list[Session]:
    """Sessions that end and are reserved again: those of outside readers that keep their client id
    with another topic, and those with messages that another reader has taken."""
    links = {(s.link.site, s.client_id): s.link for s in wiring.situation.wanted.sessions}
    return [
        s
        for s in sorted(wiring.situation.inventory.sessions, key=lambda s: s.client_id)
        if links.get((s.link.site, s.client_id), s.link) != s.link
        or s.client_id in wiring.followers.renewed
    ]


def reserve_sessions(
    wiring: Wiring,
    sessions: Iterable[Session],
    stopped: Stopped | None,
    after: Mapping[str, Sequence[int]],
    numbers: Numbers,
) -> Reserved:
    """Reserve missing sessions. `after` gives, by client id, further steps to wait for, besides the
    stops of producers that leave the link together."""
    steps, of = StepList(numbers), dict[str, int]()
    on, made_anew = (
        defaultdict[Link, tuple[int, ...]](tuple),
        defaultdict[Link, tuple[int, ...]](tuple),
    )
    situation = wiring.situation
    present = {(s.client_id, s.link): s for s in situation.inventory.sessions}
    for session in sessions:
        former = present.get((session.client_id, session.link))
        is_there = former is not None and _is_usable(situation, former)
        if is_there and session.client_id not in after:
            continue
        before = [*after.get(session.client_id, ())]
        if stopped is not None:
            before += _find_producer_stops(wiring, stopped, session.link)
        operation = _make_reserve(wiring, session, former, session.client_id in after)
        step = steps.add(operation, before, _explain_reservation(wiring, session))
        of[session.client_id] = step
        on[session.link] += (step,)
        is_made_anew = former is not None and is_outdated(situation, former)
        if is_made_anew or _has_idle_producer(situation, session.link):
            made_anew[session.link] += (step,)
    return Reserved(steps.listed(), of, dict(on), dict(made_anew))


def _has_idle_producer(situation: Situation, link: Link) -> bool:
    """Whether a job that runs will write to a link once others send to it."""
    producers = situation.jobs.producers.get(link, ())
    return any(is_live(situation, each) and is_idle(situation, each) for each in producers)


def _is_usable(situation: Situation, session: Session) -> bool:
    """Whether a present session holds what its reader is to take."""
    if not session.usable or is_left_behind(situation, session):
        return False
    return not is_outdated(situation, session)


def _make_reserve(
    wiring: Wiring, session: Session, present: Session | None, renews: bool
) -> Reserve:
    situation, followers = wiring.situation, wiring.followers
    former = followers.predecessors.get(session.client_id)
    return Reserve(
        session.site,
        session.link,
        session.client_id,
        session.job_name,
        former.client_id if former else None,
        session.client_id in followers.beside,
        renews,
        list_sinks(situation, session.link),
        is_fed_by_unknown(situation, session.link),
        session.job,
        fresh=present is not None,
        left_by=_list_sinks_left(wiring, session.link),
        instead_of=wiring.cuts.instead_of.get(session.client_id),
    )


def _explain_reservation(wiring: Wiring, session: Session) -> str:
    former = wiring.followers.predecessors.get(session.client_id)
    if former is not None:
        return f"follows {former.job_name}"
    return _explain_joining(wiring, session)


def _explain_joining(wiring: Wiring, session: Session) -> str:
    """Explain that a reader is new, and what it means if it cannot follow the readers that leave
    its link."""
    situation = wiring.situation
    wanted = situation.jobs.wanted
    job = wanted.get(session.job_name or "")
    leaving = [
        each.job
        for name, each in situation.inventory.jobs.items()
        if each.job.source == session.link
        and (name not in wanted or wanted[name].source != session.link)
    ]
    unnumbered_jobs = [
        each.job_name for each in (*leaving, job) if each and not reports_numbers(each)
    ]
    do = "numbers" if len(unnumbered_jobs) == 1 else "number"
    if job is None or not leaving or not unnumbered_jobs or not _is_fed_on(wiring, session):
        return "new reader"
    names = ", ".join(sorted(each.job_name for each in leaving))
    return (
        f"new reader, at least once: it cannot go on where {names} ended, since"
        f" {' and '.join(unnumbered_jobs)} {do} nothing"
    )


def _find_producer_stops(wiring: Wiring, stopped: Stopped, link: Link) -> list[int]:
    """The stops of a link's producers if all of them leave: their messages are for the old
    readers."""
    if is_still_fed(wiring.situation, wiring.leaving, link):
        return []
    leaving = wiring.leaving.producers.get(link, ())
    return [stopped.of[d.job_name] for d in leaving if d.job_name in stopped.of]


def _list_sinks_left(wiring: Wiring, link: Link) -> tuple[str, ...]:
    """The sinks of a link's producers if all of them leave and those that come back have other
    sources: their messages are for the readers that are there before."""
    if is_still_fed(wiring.situation, wiring.leaving, link):
        return ()
    return tuple(
        sorted(
            sink
            for each in wiring.leaving.producers.get(link, ())
            if each.old is not None and is_rewired(each)
            for sink in sinks_of(wiring.situation, each.old, link)
        )
    )


def is_fed_by_unknown(situation: Situation, link: Link) -> bool:
    """Whether programs outside speck are declared to write to a link, or nobody else would."""
    known = link in situation.outside.sinks or bool(situation.jobs.producers.get(link))
    known = known or link in situation.jobs.writers
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


def is_whole(situation: Situation, session: Session) -> bool:
    """Whether a session is there since before the last reader of its link that was drained."""
    there = situation.present.usable.get(session.client_id)
    return there is not None and there.whole and not is_outdated(situation, there)


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


def count_abandoned(
    situation: Situation,
    followers: Followers,
    session: Session,
    emptied: Set[str] = frozenset(),
) -> int | None:
    """The number of messages that are in the session when it is released and in no other session;
    None if unknown. The readers that `emptied` theirs have left nothing."""
    if (
        session.drained
        or session.client_id in emptied
        or is_left_behind(situation, session)
        or is_held_elsewhere(situation, followers, session)
    ):
        return 0
    return count_untaken(situation, session)


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
        own = sink_of(situation, incarnation, session.link)
        if not view.knows(topic, own):
            if incarnation.job.source not in situation.links_reached:
                continue  # it had nothing to send
            return None
        sinks += [own, *view.sinks_of(topic, incarnation.former_sinks_of(session.link))]
    if not sinks and session.owed:  # its producers have left, and their numbers are stored
        return view.untaken(session.client_id, view.find_last(topic, (), session.owed))
    return view.lag(session.client_id, topic, sinks, session.owed)


def is_held_elsewhere(situation: Situation, followers: Followers, session: Session) -> bool:
    """Whether another session has the messages of this one, or its reader has taken them. That
    holds in four cases: one of them is instead of the other, at another link; it waits to follow
    the other one, or was followed by it; it followed the other one, whose reader comes back; or the
    other one is a follower that is still wanted and was reserved before this reader was drained,
    even if the reader has gone on elsewhere since."""
    if is_held_at_another_link(situation, session) or list_waiting_instead(situation, session):
        return True
    if session.followed_by in situation.present.reserved_readers:
        return True
    if session.beside and session.follows is None:
        return False
    if session.follows in situation.present.reserved_readers:
        return True
    there = situation.present.usable
    comes_back = followers.follows(session)
    if any(c in there and was_followed(there[c], session, there) for c in comes_back):
        return True
    own_followers = [
        f for f in situation.present.followers.get(session.client_id, ()) if f in situation.wanted
    ]
    if any(
        f.whole and not f.beside and followers.predecessors.get(f.client_id) == session
        for f in own_followers
    ):
        return True
    old = situation.inventory.jobs.get(session.job_name or "")
    has_ended = old is not None and old.ended and old.job.source == session.link
    return has_ended and bool(own_followers)
