"""Finds where several readers must change at the same record, and makes their producers pause.

A reader that leaves a link stops at an arbitrary record. That is enough where one reader follows
one other. But if two readers leave a link and one new reader follows both, or if they swap places,
the first may have taken records that the second did not reach. The same holds if a reader moves to
a link that another reader of its old link writes to, directly or not, or back; and if a reader
stays and gets the sink link of another one, or leaves its own to another one. Then the link's
producers stop, the readers take everything that was sent, and all continue from there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace

from speck.deploy.planner.decisions import Decision, is_live, is_rewired, may_arrive
from speck.deploy.planner.lineages import list_waiting_instead
from speck.deploy.planner.partings import (
    Cut,
    Parting,
    awaits_its_cut,
    find_partings,
    find_partings_before,
    is_kept,
    list_producers,
    stays_on_source,
)
from speck.deploy.planner.sessions import count_untaken, has_place, is_new_reader, is_whole
from speck.deploy.planner.situation import Situation
from speck.deploy.planner.wiring import Cuts, Followers
from speck.model.ids import source_client_id
from speck.model.incarnation import Incarnation, Session
from speck.model.job import DesiredState, Job, Upgrade
from speck.model.job_change import Action
from speck.model.link import Link
from speck.spec.job_contract import reports_numbers


def find_cuts(
    situation: Situation, followers: Followers, decisions: Sequence[Decision]
) -> tuple[Cuts, tuple[Decision, ...]]:
    """The cuts, and the decisions with them: jobs stop and start that feed, or lie between, readers
    that must change at the same record."""
    if not situation.conditions.drains:
        return Cuts(), tuple(decisions)
    by_name = {d.job_name: d for d in decisions}
    partings, warned = list[Parting](), set[tuple[str, Link | None]]()
    cuts = _find_unfinished(situation, followers, decisions)
    pauses = [_pause(situation, by_name, cut) for cut in cuts]
    for link, leaving in _find_leaving_readers(situation, decisions).items():
        here_partings = [
            parting
            for decision in leaving
            for successor in _find_successors(situation, decision)
            for parting in find_partings(situation, followers, by_name, decision, successor)
        ]
        here = _find_torn(situation, followers, link, leaving)
        here += [parting.cut for parting in here_partings if parting.cut is not None]
        paused = [_pause(situation, by_name, cut) for cut in here]
        warned |= {(d.job_name, each.unstoppable) for each in paused for d in leaving}
        partings += here_partings
        pauses += paused
        cuts += here
    earlier = _find_earlier_partings(situation, followers, by_name)
    exchanges, instead_of = _find_exchanges(situation, followers, by_name, [*partings, *earlier])
    stopping = frozenset[str]().union(*(each.stopping for each in pauses))
    links = {each.link for each in partings if each.cut is not None}
    result = Cuts(
        frozenset(links | {each.link for each in cuts if each.link is not None}),
        frozenset(name for name in stopping if is_kept(by_name.get(name))),
        stopping,
        frozenset[str]().union(*(each.between for each in pauses)),
        _join_readers(pauses),
        frozenset[str]().union(*(each.changing for each in pauses)),
        frozenset(each.link for each in pauses if each.link is not None and each.joins),
        instead_of,
        exchanges,
    )
    return result, tuple(_apply(d, result, warned) for d in decisions)


def _apply(decision: Decision, cuts: Cuts, warned: Set[tuple[str, Link | None]]) -> Decision:
    """The decision about a job with what the cuts mean for it."""
    for name, link in sorted(warned, key=str):
        if name == decision.job_name and link is not None:
            decision = _warn_of_loss(decision, link)
    return pause(decision) if decision.job_name in cuts.jobs else decision


@dataclass(frozen=True, slots=True)
class _Pause:
    """Who stops at a cut."""

    stopping: frozenset[str]
    between: frozenset[str]
    link: Link | None = None
    """The link, if its readers stop at the same record without their producers."""
    together: frozenset[str] = frozenset()
    changing: frozenset[str] = frozenset()
    joins: bool = False
    unstoppable: Link | None = None
    """The link, if it has producers that nobody can stop."""


def _pause(situation: Situation, by_name: Mapping[str, Decision], cut: Cut) -> _Pause:
    readers = _find_together(situation, by_name, cut)
    if not readers or cut.link is None:
        is_foreign = cut.link is not None and situation.has_foreign_producers(cut.link)
        unstoppable = cut.link if is_foreign else None
        return _Pause(cut.stopping | cut.between, cut.between, unstoppable=unstoppable)
    wanted = situation.wanted.on_link(cut.link)
    joins = any(is_new_reader(situation, session, cut.link) for session in wanted)
    between = cut.between - (frozenset() if joins else readers)
    return _Pause(readers | between, between, cut.link, readers, cut.changing, joins)


def _join_readers(pauses: Sequence[_Pause]) -> dict[Link, frozenset[str]]:
    together = dict[Link, frozenset[str]]()
    for pause in pauses:
        if pause.link is not None:
            together[pause.link] = together.get(pause.link, frozenset()) | pause.together
    return together


def _find_exchanges(
    situation: Situation,
    followers: Followers,
    by_name: Mapping[str, Decision],
    partings: Sequence[Parting],
) -> tuple[dict[Link, dict[str, Job]], dict[str, str]]:
    """The readers that begin behind cuts, by link and client id, and the sessions from which their
    records are taken until then: for `Cuts`."""
    exchanges, instead_of = defaultdict[Link, dict[str, Job]](dict), dict[str, str]()
    for each in partings:
        exchange = _find_exchange(situation, followers, each)
        if exchange is not None:
            exchanges[each.link][exchange.new] = each.successor
            instead_of |= {exchange.new: exchange.former} if exchange.has_both else {}
    for former in situation.inventory.sessions:
        for session in list_waiting_instead(situation, former):
            # an earlier change, which ended early, has stopped those before these at a cut
            instead_of.setdefault(session.client_id, former.client_id)
            for link in find_partings_before(situation, by_name, former, session):
                successor = situation.jobs.wanted[session.job_name or ""]
                exchanges[link][session.client_id] = successor
    return dict(exchanges), instead_of


@dataclass(frozen=True, slots=True)
class _Exchange:
    """A reader goes on at another link from a cut on, or another one takes its place there."""

    former: str
    new: str
    has_both: bool
    """Whether the same records reach the sessions of both."""


def _find_exchange(
    situation: Situation, followers: Followers, parting: Parting
) -> _Exchange | None:
    decision, successor = parting.decision, parting.successor
    assert decision.old is not None
    if stays_on_source(decision):
        return None
    old, there = decision.old.job, situation.inventory.jobs.get(successor.job_name)
    # one whose records were taken at another link since it ended has no place there
    reads_there = there is not None and has_place(situation, there, successor.source)
    if successor.source == old.source or reads_there:
        return None
    former = source_client_id(situation.installation, old.job_name, old.source)
    new = source_client_id(situation.installation, successor.job_name, successor.source)
    # where one reader follows the other at a link, their lineage tells who takes what
    is_follower = new in followers.predecessors
    reached_before = not is_follower and _has_link(situation, successor.source)
    is_followed = bool(followers.follows_reader(former))
    reached_later = not is_followed and situation.is_fed_later(old.source)
    return _Exchange(former, new, reached_before or reached_later)


def _has_link(situation: Situation, link: Link) -> bool:
    """Whether present jobs read or write a link: records reach it before the change, too."""
    return link in situation.jobs.present_ways


def _find_together(
    situation: Situation, by_name: Mapping[str, Decision], cut: Cut
) -> frozenset[str]:
    """The readers that can stop at the same record without a stop of their producers; none if these
    stop, or if one of the readers cannot."""
    if cut.link is None or not situation.has_foreign_producers(cut.link):
        return frozenset()
    readers = [
        decision.old.job
        for name in cut.readers
        if (decision := by_name.get(name)) is not None
        and decision.old is not None
        and has_place(situation, decision.old, cut.link)
        and (is_live(situation, decision.old) or _waits(decision.old))
    ]
    if not all(reports_numbers(job) and situation.can_save(job) for job in readers):
        return frozenset()
    return frozenset(job.job_name for job in readers)


def _waits(old: Incarnation) -> bool:
    """Whether a reader has stopped, or its next start has been refused or not been made yet."""
    return old.ended or old.switched or old.void


def _find_unfinished(
    situation: Situation, followers: Followers, decisions: Sequence[Decision]
) -> list[Cut]:
    """The cuts at which an earlier change, which ended early, has stopped readers, but not stored
    yet that others begin there without following one of them."""
    cuts = []
    for session in situation.wanted.sessions:
        is_new = is_new_reader(situation, session, session.link) and is_whole(situation, session)
        if not is_new or session.client_id in followers.predecessors:
            continue
        readers = [d.old for d in decisions if d.starts and d.old is not None and d.old.ended]
        names = frozenset(r.job.job_name for r in readers if r.job.source == session.link)
        changing = frozenset({session.job_name or ""})
        cuts += [Cut(session.link, frozenset(), names, changing=changing)] if names else []
    return cuts


def _find_leaving_readers(
    situation: Situation, decisions: Sequence[Decision]
) -> dict[Link, list[Decision]]:
    """The readers that stop and leave their link or their sink link, by the link that they read."""
    leaving: dict[Link, list[Decision]] = defaultdict(list)
    for decision in decisions:
        old = decision.old
        if old is None or not is_rewired(decision) or _stays_stopped(decision):
            continue
        link = old.job.source
        waits = situation.has_foreign_producers(link) and (old.ended or old.switched)
        if decision.stops or (waits and has_place(situation, old, link)):
            leaving[link].append(decision)
    return leaving


def _stays_stopped(decision: Decision) -> bool:
    """Whether a job does not run, and is not to: nobody takes its place yet."""
    new = decision.new
    return not decision.stops and new is not None and new.state is DesiredState.STOPPED


def _find_earlier_partings(
    situation: Situation, followers: Followers, by_name: Mapping[str, Decision]
) -> list[Parting]:
    """Where the paths part to readers that an earlier change, which ended early, has stopped with
    the producers of their links, and to those in whose sessions this one begins: what these
    producers send when they run again is for the latter."""
    return [
        parting
        for decision in by_name.values()
        if is_rewired(decision) and _has_emptied(situation, decision)
        for successor in _find_successors(situation, decision)
        if _find_session(situation, successor) is None
        for parting in find_partings(situation, followers, by_name, decision, successor)
    ]


def _has_emptied(situation: Situation, decision: Decision) -> bool:
    """Whether a reader has stopped after it had taken all that was sent to its link, whose
    producers do not run either."""
    old = decision.old
    if old is None or not old.ended or decision.stops:
        return False
    link, producers = old.job.source, situation.jobs.producers.get(old.job.source, ())
    if situation.has_foreign_producers(link) or not has_place(situation, old, link):
        return False
    if any(is_live(situation, each) or may_arrive(situation, each) for each in producers):
        return False
    session = _find_session(situation, old.job)
    if session is None or not producers:
        return False
    return not session.drained and count_untaken(situation, session) == 0


def _find_session(situation: Situation, job: Job) -> Session | None:
    own = source_client_id(situation.installation, job.job_name, job.source)
    return situation.present.usable.get(own)


def _find_torn(
    situation: Situation, followers: Followers, link: Link, leaving: Sequence[Decision]
) -> list[Cut]:
    """The cut at a link that several readers leave, if not each is replaced by one that does the
    same work."""
    leaving = [d for d in leaving if not stays_on_source(d)]
    if len(leaving) < 2 or all(
        _is_replaced(situation, followers, d) or _ends(situation, d) for d in leaving
    ):
        return []
    names = frozenset(d.job_name for d in leaving)
    return [Cut(link, list_producers(situation, link), names, changing=names)]


def _is_replaced(situation: Situation, followers: Followers, decision: Decision) -> bool:
    """Whether exactly one reader of the same link, with the same sink link, replaces it."""
    assert decision.old is not None
    job = decision.old.job
    own = source_client_id(situation.installation, decision.job_name, job.source)
    own_followers = followers.follows_reader(own)
    sessions = (s for s in situation.wanted.sessions if s.client_id in own_followers)
    successors = (situation.jobs.wanted.get(s.job_name or "") for s in sessions)
    return [each.port for each in successors if each is not None] == [job.port]


def _ends(situation: Situation, decision: Decision) -> bool:
    """Whether it is removed, and no link that its records reached is written any more."""
    assert decision.old is not None
    links = situation.jobs.present_ways.find_reached(decision.old.job.port)
    return decision.new is None and links.isdisjoint(situation.jobs.writers)


def _find_successors(situation: Situation, decision: Decision) -> list[Job]:
    """The jobs that take a reader's place: those that newly write to its sink link, or else
    itself."""
    assert decision.old is not None
    old, old_jobs = decision.old.job, situation.inventory.jobs
    writing = {job.job_name: job for x in old.port for job in situation.jobs.writers.get(x, ())}
    successors = [
        job for name, job in writing.items() if not _goes_on(situation, old_jobs.get(name), job)
    ]
    return successors or ([decision.new] if decision.new is not None else [])


def _goes_on(situation: Situation, old: Incarnation | None, job: Job) -> bool:
    """Whether the job takes the same records to the same link already, or goes on with that where
    it ended. One that runs, but that no records have reached, does not."""
    if old is None or old.job.ends != job.ends or awaits_its_cut(situation, job):
        return False
    if job.source not in situation.links_reached:
        return False
    return is_live(situation, old) or has_place(situation, old, job.source)


def pause(decision: Decision) -> Decision:
    """The decision about a job that stops for a moment at a cut, and goes on unchanged."""
    new = decision.new
    assert new is not None
    if decision.stops or decision.starts:
        return decision
    return replace(
        decision,
        action=Action.UPDATE,
        reason="stops for a moment: its readers change at the same record",
        stops=True,
        starts=True,
        keeps_state=new.upgrade is Upgrade.SAVEPOINT,
    )


def _warn_of_loss(decision: Decision, link: Link) -> Decision:
    warning = f"{link} is fed from outside, so records around the cut may be lost or come twice"
    return replace(decision, reason=f"{decision.reason}; {warning}")
