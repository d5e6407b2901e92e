"""Finds links where messages wait for a job that does not read them: it has to take those first.

This leaves no message behind when a user reverts a rewiring that is half done: the producer has
begun to write to the new link, whose reader has never run there. It also lets a reader that was
lost with its engine take messages that no other session has, before another reader follows it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field, replace
from functools import partial
from graphlib import CycleError, TopologicalSorter

from speck.deploy.planner.decisions import is_live, is_lost
from speck.deploy.planner.exact_ends import ends_exactly
from speck.deploy.planner.forms import find_candidates, find_outrun
from speck.deploy.planner.lineages import Lineage, find_lineages, is_outrun, is_running
from speck.deploy.planner.sessions import count_abandoned
from speck.deploy.planner.situation import Situation
from speck.deploy.planner.waiting import has_to_be_read, is_read
from speck.deploy.planner.wiring import Followers, Wiring
from speck.model.ids import sink_client_id, source_client_id
from speck.model.incarnation import Session
from speck.model.job import DesiredState, Job
from speck.model.link import Link


@dataclass(frozen=True)
class Backlog:
    """What has to be read before a plan: by which jobs, by name, as they should run meanwhile."""

    jobs: Mapping[str, Job] = field(default_factory=dict)
    reads: frozenset[str] = frozenset()
    """The client ids of the sessions that they read."""
    spared: frozenset[str] = frozenset()
    """The client ids of those, of those that are read in a plan after it, and of all sessions that
    hold the same messages: nobody is asked about them."""
    handed_back: Mapping[str, Session] = field(default_factory=dict)
    """The session of the reader that these follow once more, by the client id of theirs."""
    renewed: frozenset[str] = frozenset()
    """Client ids of sessions that may hold messages for others."""
    set_aside: frozenset[str] = frozenset()
    """Client ids of sessions that begin anew afterwards: what these jobs write is not for them."""
    giving_way: Mapping[str, Job] = field(default_factory=dict)
    """Their readers, by name, which stop meanwhile."""
    completed_links: frozenset[Link] = frozenset()
    """Links that jobs write to as an interrupted change wants them: what was drained there before
    is for others."""

    def sparing(self, session: Session, lineage: Lineage | None) -> Backlog:
        """With a session whose messages are read, in this plan or in one after it."""
        members = lineage.members if lineage is not None else (session,)
        return replace(self, spared=self.spared.union(each.client_id for each in members))

    def reading(
        self, situation: Situation, job: Job, session: Session, lineage: Lineage | None
    ) -> Backlog:
        """With a job that reads a session."""
        own = {session.client_id}
        followed = lineage is not None and lineage.owner != session
        handed_back = {session.client_id: lineage.owner} if lineage and followed else {}
        is_old = session.drained and not is_running(situation, session)
        completes = is_outrun(situation, session) or not session.begun
        completes = completes or session.link in self.completed_links
        return replace(
            self,
            jobs={**self.jobs, job.job_name: job},
            reads=self.reads | own,
            handed_back={**self.handed_back, **handed_back},
            renewed=self.renewed | (own if is_old else set()),
            completed_links=self.completed_links.union(job.port if completes else ()),
        )


def find_backlog(wiring: Wiring) -> Backlog:
    """What jobs have to read before the rest of a plan, in a stage of their own, which leaves
    everything else as it is."""
    conditions = wiring.situation.conditions
    if conditions.leave or not conditions.drains:
        return Backlog()
    backlog = _find_waiting(wiring.situation, wiring.followers)
    for find in (_find_stopped_between, _find_lost):
        backlog = backlog if backlog.jobs else find(wiring)
    return backlog


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
    return _set_aside(situation, backlog)


def _set_aside(situation: Situation, backlog: Backlog) -> Backlog:
    """With the sessions that were made after jobs which read first had left their link, and the
    readers that give way to those that were there before."""
    set_aside, giving_way = set[str](), dict[str, Job]()
    writing = [*backlog.jobs.values(), *_list_behind(situation, backlog.jobs)]
    written = [(job, link) for job in writing for link in job.port]
    for job, link in written:
        sink = sink_client_id(situation.installation, job.job_name, job.source, link)
        for session in situation.present.on_link.get(link, ()):
            name = session.job_name or ""
            reader = backlog.jobs.get(name)
            if sink not in session.left_by and session.instead_of not in backlog.reads:
                continue
            if reader is not None and reader.source == session.link:
                continue
            if _continues_alone(situation, session, backlog.reads):
                continue
            set_aside.add(session.client_id)
            old = situation.inventory.jobs.get(name)
            if reader is None and is_running(situation, session) and old is not None:
                giving_way[name] = replace(old.job, state=DesiredState.STOPPED)
    return replace(backlog, set_aside=frozenset(set_aside), giving_way=giving_way)


def _list_behind(situation: Situation, reading: Mapping[str, Job]) -> list[Job]:
    """The jobs that run, as they were before or came back, and take what these write."""
    behind = dict[str, Job]()
    ahead = [link for job in reading.values() for link in job.port]
    while ahead:
        for each in situation.jobs.readers.get(ahead.pop(), ()):
            name = each.job.job_name
            if name not in reading and name not in behind and is_live(situation, each):
                behind[name] = each.job
                ahead += each.job.port
    return list(behind.values())


def _continues_alone(situation: Situation, session: Session, reads: Set[str]) -> bool:
    """Whether the session's reader runs, and nobody takes its records where they were taken before
    it: from the session whose reader it followed, or from one at another link. The jobs between run
    as they are to, and send nothing there."""
    present = situation.present.by_id
    names = (session.former or "", session.instead_of or "")
    before = [present[name] for name in names if name in present]
    if not before or not is_running(situation, session):
        return False
    return not any(each.client_id in reads or is_running(situation, each) for each in before)


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
            # what was drained there is of the wiring before: it is not read again with the new one
            if session.drained and session.link in backlog.completed_links:
                continue
            lineage = lineage_of.get(session.client_id)
            reader = _find_first_reader(situation, followers, session, lineage, backlog)
            if reader is None and _comes_beside(situation, session, backlog):
                lineage = lineage_of.get(session.follows or "")
                reader = _find_as_reserved(situation, session, backlog)
            if reader is None or _is_out_of_reach(situation, reader):
                continue
            backlog = backlog.sparing(session, lineage)
            if not _leaves_unread(situation, reader, backlog.jobs, lineage_of):
                backlog = backlog.reading(situation, reader, session, lineage)
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
    silent = situation.is_engine_silent(reader.engine) or situation.is_broker_silent(
        reader.source_site
    )
    return situation.conditions.drops and silent


def _leaves_unread(
    situation: Situation,
    reader: Job,
    waiting: Mapping[str, Job],
    lineage_of: Mapping[str, Lineage],
) -> bool:
    """Whether, with the reader beside those in `waiting`, a link that one of them begins to write
    to would be left by its reader, and none of them come to it, nor one that has read it before:
    then the reader has to wait for a plan after this one."""
    reading = {**waiting, reader.job_name: reader}
    jobs = list(reading.values())
    sources = {job.source for job in jobs}
    for job in jobs:
        old = situation.inventory.jobs.get(job.job_name)
        if old is None or old.job.source in sources or not is_live(situation, old):
            continue
        if _is_read_at_another_link(situation, old.job, jobs):
            continue
        if _has_another_reader(situation, old.job, reading, lineage_of):
            continue
        if any(old.job.source in other.port for other in jobs if other != job):
            return True
    return False


def _has_another_reader(
    situation: Situation,
    left: Job,
    reading: Mapping[str, Job],
    lineage_of: Mapping[str, Lineage],
) -> bool:
    """Whether a job whose place another one has taken goes on at the link which that one leaves."""
    own = source_client_id(situation.installation, left.job_name, left.source)
    lineage = lineage_of.get(own)
    session = lineage.find_reader(reading, also_drained=True) if lineage is not None else None
    return session is not None and session.job is not None


def _is_read_at_another_link(situation: Situation, left: Job, jobs: Iterable[Job]) -> bool:
    """Whether the records on the link that a job leaves are taken at another link, by one of these
    jobs."""
    present = situation.present.by_id
    own = present.get(source_client_id(situation.installation, left.job_name, left.source))
    there = present.get(own.instead_of or "") if own is not None else None
    return there is not None and any(
        job.job_name == there.job_name and job.source == there.link for job in jobs
    )


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
            backlog = backlog.reading(situation, old.job, session, None)
    return backlog


def _find_lost(wiring: Wiring) -> Backlog:
    """The jobs that were lost with their engines and have to end exactly: what their last
    checkpoints hold may not be published yet, or not be known to their readers."""
    situation, backlog = wiring.situation, Backlog()
    sessions = {(s.job_name, s.link): s for s in situation.inventory.sessions}
    for decision in wiring.decisions:
        old = decision.old
        if old is None or not (is_lost(situation, old) and old.has_state):
            continue
        session = sessions.get((decision.job_name, old.job.source))
        if session is None or session.client_id in situation.conditions.has_read:
            continue
        if ends_exactly(wiring, decision):
            backlog = backlog.reading(situation, old.job, session, None)
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
    if reader is None or session in situation.wanted or is_read(situation, session):
        return False
    if not find_candidates(situation, followers, session, None, {}):
        return False
    reader = replace(reader, source=session.link)
    others = [job for name, job in situation.jobs.wanted.items() if name != reader.job_name]
    return not _has_circle([reader, *others]) and has_to_be_read(
        situation, followers, session, None, {}, frozenset()
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
    if (outrun := find_outrun(situation, followers, session)) is not None:
        candidates = [outrun]
    elif is_read(situation, session) or not has_to_be_read(
        situation, followers, session, lineage, waiting, backlog.completed_links
    ):
        return None
    else:
        candidates = find_candidates(situation, followers, session, lineage, waiting)
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


def _comes_beside(situation: Situation, session: Session, backlog: Backlog) -> bool:
    """Whether the session's reader was to follow one beside another reader, which is given the link
    to complete that change: what comes from there on is for both."""
    present = situation.present.by_id
    return session.beside and any(
        owner.client_id == session.follows == present[client_id].follows
        for client_id, owner in backlog.handed_back.items()
        if client_id in present
    )


def _find_as_reserved(situation: Situation, session: Session, backlog: Backlog) -> Job | None:
    """The session's reader as it was to run; None if it cannot beside the others."""
    if session.job is None or not session.usable or session.job_name in backlog.jobs:
        return None
    reader = replace(session.job, state=DesiredState.RUNNING)
    others = [
        incarnation.job
        for name, incarnation in situation.inventory.jobs.items()
        if name not in (session.job_name, *backlog.jobs) and is_live(situation, incarnation)
    ]
    return None if _has_circle([reader, *backlog.jobs.values(), *others]) else reader


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
"""Looks at what has to be read first, each with what the one before has found: two answers
might alternate for ever."""
