"""The wiring of a stage in which jobs only read what waits for them."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import replace

from speck.deploy.planner.backlog import Backlog
from speck.deploy.planner.cuts import pause
from speck.deploy.planner.decisions import Decision, decide, is_live
from speck.deploy.planner.leaving import leaves
from speck.deploy.planner.lineages import is_running
from speck.deploy.planner.partings import is_kept
from speck.deploy.planner.situation import Situation
from speck.deploy.planner.wire import complete
from speck.deploy.planner.wiring import Cuts, FirstStage, Followers, Wiring
from speck.model.incarnation import Session
from speck.model.link import Link


def read_first(then: Wiring, backlog: Backlog) -> Wiring:
    """The wiring in which the jobs of the backlog read first, before the one `then`. All others
    stay as they are."""
    inventory = then.situation.inventory
    meanwhile = {**backlog.jobs, **backlog.giving_way}
    rest = frozenset(inventory.jobs.keys() - meanwhile.keys())
    desired = replace(then.situation.desired, jobs=tuple(meanwhile.values()))
    situation = then.situation.reading_first(desired, rest)
    coming = _find_coming(situation, then, rest)
    sessions = [s for s in inventory.sessions if s.client_id not in backlog.set_aside]
    present = {(s.client_id, s.link) for s in inventory.sessions}
    sessions += [s for s in coming if (s.client_id, s.link) not in present]
    situation = replace(situation, wanted=situation.wanted.replaced(sessions))
    names = {s.client_id for s in coming}
    followers = Followers({**_find_predecessors(then, coming), **backlog.handed_back})
    first = FirstStage(rest, backlog.handed_back, frozenset(names | backlog.renewed))
    decisions = decide(situation)
    cuts = _find_cut(situation, decisions, backlog)
    decisions = tuple(pause(each) if each.job_name in cuts.jobs else each for each in decisions)
    return complete(situation, decisions, followers, cuts, first)


def _find_cut(situation: Situation, decisions: Sequence[Decision], backlog: Backlog) -> Cuts:
    """The cut at which jobs give way. If one that runs is to read another link first, the jobs
    between it and these stop for a moment: what it has sent until then is for those that give
    way."""
    ways, between = situation.jobs.present_ways, set[str]()
    leaving = [d for d in decisions if d.stops and d.old and d.new and leaves(d)]
    for each in leaving:
        for job in backlog.giving_way.values():
            assert each.old is not None
            for link in each.old.job.port:
                between |= ways.find_between(link, job.source)
    going_on = [d for d in decisions if d.job_name in between and is_kept(d)]
    jobs = frozenset(d.job_name for d in going_on if d.old and is_live(situation, d.old))
    stopping = jobs | {d.job_name for d in leaving} if jobs else jobs
    return Cuts(jobs=jobs, stopping=stopping, between=jobs | backlog.giving_way.keys())


def _find_predecessors(then: Wiring, sessions: list[Session]) -> dict[str, Session]:
    predecessors = then.followers.predecessors
    names = (s.client_id for s in sessions)
    return {name: predecessors[name] for name in names if name in predecessors}


def _find_coming(situation: Situation, then: Wiring, rest: Set[str]) -> list[Session]:
    """The sessions that are missing on links that the jobs of this stage write to: those of the
    readers that they will have `then`. And on links that they leave, those of their followers."""
    reserved = {(s.client_id, s.link) for s in situation.inventory.sessions if s.reserved}
    reading = [job for job in situation.jobs.wanted.values() if job.job_name not in rest]
    sinks = {link for job in reading for link in job.port}
    coming = []
    for session in then.situation.wanted.sessions:
        sources = {job.source for job in reading if session.link in job.port}
        before = _find_before(situation, sources)
        reads_on = session.link in sinks and not _has_it_already(then, before, session)
        is_missing = (session.client_id, session.link) not in reserved
        if is_missing and (reads_on or _leaves_to(situation, then, session)):
            coming.append(session)
    return coming


def _find_before(situation: Situation, links: Set[Link]) -> Set[Link]:
    """These links and all from which present jobs take records there."""
    visited, ahead = set(links), list(links)
    while ahead:
        producers = situation.jobs.producers.get(ahead.pop(), ())
        new = {each.job.source for each in producers} - visited
        visited |= new
        ahead += new
    return visited


def _has_it_already(then: Wiring, sources: Set[Link], session: Session) -> bool:
    """Whether another job already does what the session's reader will do, and reads one of the
    `sources` of its link: then it has the messages that come from there."""
    reader = then.situation.jobs.wanted.get(session.job_name or "")
    return reader is not None and any(
        set(reader.port) <= set(each.job.port) and each.job.source in sources
        for each in then.situation.inventory.jobs.values()
    )


def _leaves_to(situation: Situation, then: Wiring, session: Session) -> bool:
    """Whether a job that runs leaves the session's link with this stage, and the session's reader
    is to follow it there."""
    former = then.followers.predecessors.get(session.client_id)
    if former is None or not is_running(situation, former):
        return False
    job = situation.jobs.wanted.get(former.job_name or "")
    return job is not None and job.source != former.link
