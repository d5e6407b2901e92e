"""Finds links where messages wait for a job that does not read them: it has to take those first.

This leaves no message behind when a user reverts a rewiring that is half done: the producer has
begun to write to the new link, whose reader has never run there. It also lets a reader that was
lost with its engine take messages that no other session has, before another reader follows it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from graphlib import CycleError, TopologicalSorter

from speck.deploy.planner.decisions import is_live, is_lost
from speck.deploy.planner.leaving import is_still_fed
from speck.deploy.planner.lineages import (
    Lineage,
    find_lineages,
    is_arriving,
    is_held_at_another_link,
    is_left_behind,
    is_outrun,
    is_running,
    was_followed,
)
from speck.deploy.planner.sessions import count_abandoned, is_new_reader, is_whole
from speck.deploy.planner.situation import Situation
from speck.deploy.planner.stranded import is_stranded, reaches_wanted_links
from speck.deploy.planner.wiring import Followers, Leaving, Wiring
from speck.model.ids import sink_client_id
from speck.model.incarnation import Incarnation, Session
from speck.model.job import DesiredState, Job
from speck.model.link import Link


@dataclass(slots=True)
class Backlog:
    """What has to be read before a plan: by which jobs, by name, as they should run meanwhile."""

    jobs: dict[str, Job] = field(default_factory=dict)
    reads: set[str] = field(default_factory=set)
    """The client ids of the sessions that they read."""
    spared: set[str] = field(default_factory=set)
    """The client ids of those, of those that are read in a plan after it, and of all sessions that
    hold the same messages: nobody is asked about them."""
    handed_back: dict[str, Session] = field(default_factory=dict)
    """The session of the reader that these follow once more, by the client id of theirs."""
    renewed: set[str] = field(default_factory=set)
    """Client ids of sessions that may hold messages for others."""
    set_aside: set[str] = field(default_factory=set)
    """Client ids of sessions that begin anew afterwards: what these jobs write is not for them."""
    giving_way: dict[str, Job] = field(default_factory=dict)
    """Their readers, by name, which stop meanwhile."""
    completed_links: set[Link] = field(default_factory=set)
    """Links that jobs write to as an interrupted change wants them: what was drained there before
    is for others."""

    def spare(self, session: Session, lineage: Lineage | None) -> None:
        """Note that its messages are read, in this plan or in one after it."""
        members = lineage.members if lineage is not None else (session,)
        self.spared |= {member.client_id for member in members}

    def add(
        self, situation: Situation, job: Job, session: Session, lineage: Lineage | None
    ) -> None:
        self.jobs[job.job_name] = job
        self.reads.add(session.client_id)
        if lineage is not None and lineage.owner != session:
            self.handed_back[session.client_id] = lineage.owner
        if session.drained and not is_running(situation, session):
            self.renewed.add(session.client_id)
        completes = is_outrun(situation, session) or not session.begun
        if completes or session.link in self.completed_links:
            self.completed_links.update(job.port)


def find_backlog(wiring: Wiring) -> Backlog:
    """What jobs have to read before the rest of a plan, in a stage of their own, which leaves
    everything else as it is."""
    conditions = wiring.situation.conditions
    if conditions.leave or not conditions.drains:
        return Backlog()
    backlog = _find_waiting(wiring.situation, wiring.followers)
    return backlog if backlog.jobs else _find_stopped_between(wiring)


def _find_waiting(situation: Situation, followers: Followers) -> Backlog:
    """The jobs that have to read a link first, but not a session that the change has read, unless
    its reader was lost with its engine since then and no queue may be dropped.

    The next plan finds them as readers of that link, which they leave like any reader. Which of
    several readers comes to an end depends on what the others read meanwhile, so it is looked at
    again.
    """
    backlog = _collect(situation, followers, {})
    for _ in range(_MOST_LOOKS):
        before, backlog = backlog, _collect(situation, followers, backlog.jobs)
        if before.jobs == backlog.jobs:
            break
    _set_aside(situation, backlog)
    return backlog


def _set_aside(situation: Situation, backlog: Backlog) -> None:
    """Note the sessions that were made after jobs which read first had left their link, and the
    readers that give way to those that were there before."""
    written = [(job, link) for job in backlog.jobs.values() for link in job.port]
    for job, link in written:
        sink = sink_client_id(situation.installation, job.job_name, job.source, link)
        for session in situation.present.on_link.get(link, ()):
            name = session.job_name or ""
            reader = backlog.jobs.get(name)
            if sink not in session.left_by or (reader and reader.source == session.link):
                continue
            backlog.set_aside.add(session.client_id)
            old = situation.inventory.jobs.get(name)
            if reader is None and is_running(situation, session) and old is not None:
                backlog.giving_way[name] = replace(old.job, state=DesiredState.STOPPED)


def _collect(situation: Situation, followers: Followers, meanwhile: Mapping[str, Job]) -> Backlog:
    lineage_of = {
        s.client_id: each for each in find_lineages(situation, meanwhile) for s in each.members
    }
    backlog, count = Backlog(), -1
    read = situation.conditions.has_read
    while count < len(backlog.jobs):  # others may have to read what one of them writes
        count = len(backlog.jobs)
        for session in sorted(situation.inventory.sessions, key=partial(_rank, situation)):
            if session.client_id in read and not _reads_again(situation, session):
                continue
            if session.drained and session.link in backlog.completed_links:
                continue
            lineage = lineage_of.get(session.client_id)
            reader = _find_first_reader(situation, followers, session, lineage, backlog)
            if reader is None or _is_out_of_reach(situation, reader):
                continue
            backlog.spare(session, lineage)
            if not _leaves_unread(situation, reader, backlog.jobs):
                backlog.add(situation, reader, session, lineage)
    return backlog


def _rank(situation: Situation, session: Session) -> tuple[bool, str]:
    """A reader that was lost goes on where it was before it reads another link."""
    return not _was_lost(situation, session), session.client_id


def _was_lost(situation: Situation, session: Session) -> bool:
    """Whether the session's reader was lost with its engine."""
    old = situation.inventory.jobs.get(session.job_name or "")
    return old is not None and old.job.source == session.link and is_lost(situation, old)


def _reads_again(situation: Situation, session: Session) -> bool:
    """Whether the reader of a session that the change has read was lost meanwhile. A change that
    may drop its queue goes on if it cannot be started: it would be tried again for ever."""
    return not situation.conditions.drops and _was_lost(situation, session)


def _is_out_of_reach(situation: Situation, reader: Job) -> bool:
    """Whether a reader is not waited for, since the user has allowed to drop its queue and its
    engine or its broker does not answer."""
    silent = situation.is_engine_silent(reader.site) or situation.is_broker_silent(
        reader.source_site
    )
    return situation.conditions.drops and silent


def _leaves_unread(situation: Situation, reader: Job, waiting: Mapping[str, Job]) -> bool:
    """Whether, with the reader beside those in `waiting`, a link that one of them begins to write
    to would be left by its reader, and none of them come to it: then the reader has to wait for a
    plan after this one."""
    jobs = [*waiting.values(), reader]
    sources = {job.source for job in jobs}
    for job in jobs:
        old = situation.inventory.jobs.get(job.job_name)
        if old is None or old.job.source in sources or not is_live(situation, old):
            continue
        if any(old.job.source in other.port for other in jobs if other != job):
            return True
    return False


def _find_stopped_between(wiring: Wiring) -> Backlog:
    """The jobs between a cut and the readers that change there, by name, that do not run though
    messages wait for them: these come from before the cut, and have to reach the readers first."""
    situation, followers = wiring.situation, wiring.followers
    sessions = {(s.job_name, s.link): s for s in situation.inventory.sessions}
    backlog = Backlog()
    for decision in wiring.decisions:
        old, name = decision.old, decision.job_name
        if name not in wiring.cuts.between or old is None or is_live(situation, old):
            continue
        session = sessions.get((name, old.job.source))
        if not decision.starts or not old.has_state or wiring.cuts.find_together(old.job):
            continue
        if session is None or session.client_id in situation.conditions.has_read:
            continue
        if count_abandoned(situation, followers, session) != 0:
            backlog.add(situation, old.job, session, None)
    return backlog


def find_postponed(wiring: Wiring) -> list[Session]:
    """Sessions whose readers would close a circle now, but not among the jobs as they are wanted.
    Their messages are read after this plan, in a plan of their own."""
    situation, followers = wiring.situation, wiring.followers
    if situation.conditions.leave or not situation.conditions.drains:
        return []
    predecessors = followers.predecessors.values()
    return [
        session
        for session in situation.inventory.sessions
        if session.usable
        and session not in predecessors
        and _is_postponed(situation, followers, session)
    ]


def _is_postponed(situation: Situation, followers: Followers, session: Session) -> bool:
    reader = situation.jobs.wanted.get(session.job_name or "")
    if reader is None or session in situation.wanted or _is_read(situation, session):
        return False
    if not _find_candidates(situation, followers, session, None, {}):
        return False
    reader = replace(reader, source=session.link)
    others = [job for name, job in situation.jobs.wanted.items() if name != reader.job_name]
    return not _has_circle([reader, *others]) and _has_to_be_read(
        situation, followers, session, None, Backlog()
    )


def _find_first_reader(
    situation: Situation,
    followers: Followers,
    session: Session,
    lineage: Lineage | None,
    backlog: Backlog,
) -> Job | None:
    """The session's reader as it has to run first; None if it need not, or cannot."""
    name, waiting = session.job_name or "", backlog.jobs
    if name in waiting or not session.reserved:
        return None
    if (early := _find_early(situation, session)) is not None:
        return early
    if (outrun := _find_outrun(situation, followers, session)) is not None:
        candidates = [outrun]
    elif _is_read(situation, session) or not _has_to_be_read(
        situation, followers, session, lineage, backlog
    ):
        return None
    else:
        candidates = _find_candidates(situation, followers, session, lineage, waiting)
    others = [
        incarnation.job
        for other, incarnation in situation.inventory.jobs.items()
        if other not in (name, *waiting) and is_live(situation, incarnation)
    ]
    for job in candidates:
        reader = replace(job, source=session.link)
        if not _has_circle([reader, *waiting.values(), *others]):
            return reader
    return None


def _find_early(situation: Situation, session: Session) -> Job | None:
    """The session's reader if it would stop at some record of its link: a change was interrupted
    while it caught up with others."""
    old = situation.inventory.jobs.get(session.job_name or "")
    if old is None or old.job.source != session.link:
        return None
    return old.job if old.ends_early and is_live(situation, old) else None


def _find_outrun(situation: Situation, followers: Followers, session: Session) -> Job | None:
    """The session's reader as it was to run, if it has to reach the record that a reader beside it
    has reached."""
    if session.job is None or not is_outrun(situation, session):
        return None
    is_followed = session in followers.predecessors.values()
    if not (is_followed or reaches_wanted_links(situation, session.job.port)):
        return None
    return replace(session.job, state=DesiredState.RUNNING)


def _find_candidates(
    situation: Situation,
    followers: Followers,
    session: Session,
    lineage: Lineage | None,
    waiting: dict[str, Job],
) -> list[Job]:
    """The forms in which the session's reader may run, the best first: as it ran or was to run
    there; as wanted, with its former sink if that is read, or with its new one; as it ran last, if
    it is no longer wanted."""
    name = session.job_name or ""
    job, old = situation.jobs.wanted.get(name), situation.inventory.jobs.get(name)
    forms = _find_unfinished_forms(situation, followers, session, lineage, waiting)
    if job is None:
        if old is None:
            return forms
        comes_back = is_lost(situation, old) or _lost_its_follower(situation, followers, session)
        again = old.job.source == session.link and _is_fed_first(situation, session.link, waiting)
        return [*forms, old.job] if comes_back or again else forms
    if job.state is not DesiredState.RUNNING:
        return forms
    if old is None:
        return [*forms, job]
    before = job.with_port(old.job.port)
    if session in situation.wanted:
        return [*forms, before]
    read = situation.outside.readers | situation.present.reserved_links
    is_read = not read.isdisjoint(before.port)
    return [*forms, before, job] if is_read else [*forms, job]


def _find_unfinished_forms(
    situation: Situation,
    followers: Followers,
    session: Session,
    lineage: Lineage | None,
    waiting: dict[str, Job],
) -> list[Job]:
    """The reader as it ran with the session or was to run, if a change that ended early has left
    messages there, or if it is to read what another job writes first."""
    if session.job is None or lineage is None:
        return []
    is_fed = _is_fed_first(situation, session.link, waiting)
    if not (is_fed or is_stranded(situation, followers, lineage, waiting)):
        return []
    old = situation.inventory.jobs.get(session.job_name or "")
    form = old.job if old is not None and is_arriving(situation, session) else session.job
    return [replace(form, state=DesiredState.RUNNING)]


def _is_read(situation: Situation, session: Session) -> bool:
    """Whether the session's reader runs on its link, or is wanted there and can go on with it as it
    did."""
    if session in situation.wanted and session.usable:
        return not _is_exchanged(situation, session)
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
    others = [d.job for other, d in situation.inventory.jobs.items() if other != name]
    left, new_links = set(old.job.port) - set(new.port), set(new.port) - set(old.job.port)
    gives = any(
        left & (set(job.port) - set(_list_sinks(others, job.job_name)))
        for job in situation.jobs.wanted.values()
    )
    takes = any(
        new_links & (set(job.port) - set(_list_sinks(situation.desired.jobs, job.job_name)))
        for job in others
    )
    return gives or takes


def _can_catch_up(situation: Situation, link: Link) -> bool:
    """Whether the readers of a link that is fed from outside, and were stopped, need not run before
    they change: none comes to the link whose session lacks what came since then, or one of them
    runs."""
    readers = [d for d in situation.inventory.jobs.values() if d.job.source == link]
    if any(is_live(situation, each) for each in readers):
        return True
    return not any(
        is_new_reader(situation, session, link) and not is_whole(situation, session)
        for session in situation.wanted.on_link(link)
    )


def _list_sinks(jobs: Iterable[Job], name: str) -> list[Link]:
    return [link for job in jobs if job.job_name == name for link in job.port]


def _has_to_be_read(
    situation: Situation,
    followers: Followers,
    session: Session,
    lineage: Lineage | None,
    backlog: Backlog,
) -> bool:
    """Whether messages that no other session has may wait in the session, or may still arrive."""
    name, waiting = session.job_name or "", backlog.jobs
    if is_left_behind(situation, session):
        return False
    if session.link not in backlog.completed_links and is_held_at_another_link(situation, session):
        return False
    is_fed = _is_fed_first(situation, session.link, waiting)
    if lineage is not None and lineage.find_reader(waiting, also_drained=is_fed) != session:
        return False
    if _lost_its_follower(situation, followers, session):
        return True
    if lineage is not None:
        if any(is_running(situation, each, waiting) for each in lineage.members):
            return False
        if is_fed or is_stranded(situation, followers, lineage, waiting):
            return True
    if session.drained:
        return False
    old = situation.inventory.jobs.get(name)
    if name not in situation.jobs.wanted:
        is_followed = _is_followed_while_fed(situation, followers, session)
        return is_followed or (
            old is not None and _is_owed(situation, followers, session, old, waiting)
        )
    if session in situation.wanted:
        return (
            situation.has_foreign_producers(session.link)
            or count_abandoned(situation, followers, session) != 0
        )
    if _goes_back(situation, session):
        return False
    has_begun = old is not None and old.job.source == session.link and not old.ended
    has_begun = has_begun and (session.begun or session.job is None)
    if old is not None and has_begun:
        # it failed or was lost: what it took since its last checkpoint is waiting again
        is_followed = (
            _is_followed_while_fed(situation, followers, session)
            or count_abandoned(situation, followers, session) != 0
        )
        return is_followed or _is_owed(situation, followers, session, old, waiting)
    return bool(count_abandoned(situation, followers, session))


def _is_owed(
    situation: Situation,
    followers: Followers,
    session: Session,
    old: Incarnation,
    waiting: dict[str, Job],
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


def _is_fed_first(situation: Situation, link: Link, waiting: dict[str, Job]) -> bool:
    """Whether a job that runs first, with other links than wanted, writes to the link."""
    return any(
        link in job.port and _ends_of(situation.jobs.wanted.get(name)) != _ends_of(job)
        for name, job in waiting.items()
    )


def _ends_of(job: Job | None) -> tuple[Link, tuple[Link, ...]] | None:
    return job.ends if job is not None else None


def _lost_its_follower(situation: Situation, followers: Followers, session: Session) -> bool:
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


def _goes_back(situation: Situation, session: Session) -> bool:
    """Whether another session has all messages of this one: that of a reader which was to be
    followed, or that of a follower which was reserved before this reader was drained and ended."""
    if session.beside and session.follows is None:
        return False  # its predecessor does not do the same work
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


def _has_circle(jobs: Iterable[Job]) -> bool:
    before: dict[Link, set[Link]] = defaultdict(set)
    for job in jobs:
        for link in job.port:
            before[link].add(job.source)
    try:
        TopologicalSorter(before).prepare()
    except CycleError:
        return True
    return False


_MOST_LOOKS = 3
"""Looks at what has to be read first, each with what the one before has found."""
