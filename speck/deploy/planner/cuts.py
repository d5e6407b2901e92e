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
from collections.abc import Sequence
from dataclasses import dataclass

from speck.deploy.planner.decisions import is_live
from speck.deploy.planner.draft import Decision, Draft
from speck.deploy.planner.lineages import list_waiting_instead
from speck.deploy.planner.sessions import has_place, is_new_reader
from speck.deploy.planner.situation import Situation
from speck.deploy.planner.starts import is_rewired
from speck.model.ids import source_client_id
from speck.model.incarnation import Incarnation
from speck.model.job import DesiredState, Job, Upgrade
from speck.model.job_change import Action
from speck.model.link import Link
from speck.spec.job_contract import reports_numbers

_Ways = Sequence[tuple[str, Link, Link]]
"""The name, source and sink of each job."""


def note_cuts(draft: Draft, decisions: Sequence[Decision]) -> None:
    """Make jobs stop and start that feed, or lie between, readers that must change at the same
    record."""
    if not draft.situation.conditions.drains or draft.backlog_only:
        return
    by_name = {d.job_name: d for d in decisions}
    stopping, warned = set[str](), set[tuple[str, Link]]()
    for link, leaving in _find_leaving_readers(draft.situation, decisions).items():
        cuts = _find_torn(draft, link, leaving)
        for decision in leaving:
            for job in _find_successors(draft.situation, decision):
                cuts += _find_cuts(draft, by_name, decision, job)
        for cut in cuts:
            readers = _find_together(draft.situation, by_name, cut)
            if readers and cut.link is not None:
                draft.together[cut.link] = draft.together.get(cut.link, frozenset()) | readers
                joins = any(
                    is_new_reader(draft.situation, s, cut.link)
                    for s in draft.situation.wanted.on_link(cut.link)
                )
                draft.switching |= cut.changing
                draft.joined_links |= {cut.link} if joins else set()
                between = cut.between - (frozenset() if joins else readers)
                stopping |= {n for n in readers | between if _is_kept(by_name.get(n))}
                draft.cut_between |= between
                continue
            if cut.link is not None and draft.situation.has_foreign_producers(cut.link):
                warned |= {(d.job_name, cut.link) for d in leaving}
            stopping |= {n for n in cut.stopping | cut.between if _is_kept(by_name.get(n))}
            draft.cut_between |= cut.between
    for name, link in sorted(warned, key=str):
        _warn_of_loss(by_name[name], link)
    draft.cut_jobs = frozenset(stopping)
    for name in sorted(stopping):
        _restart(by_name[name])
    _note_unfinished(draft, by_name)


def _note_unfinished(draft: Draft, by_name: dict[str, Decision]) -> None:
    """Note the readers that are to begin behind a cut at which an earlier change, which ended
    early, has stopped those before them."""
    ways = [
        (d.job.job_name, d.job.source, d.job.sink) for d in draft.situation.inventory.jobs.values()
    ]
    for former in draft.situation.inventory.sessions:
        for session in list_waiting_instead(draft.situation, former):
            successor = draft.situation.jobs.wanted[session.job_name or ""]
            draft.instead_of.setdefault(session.client_id, former.client_id)
            for entry in _find_entries(draft.situation, by_name, session.link):
                parting = _find_nearest_common(former.link, entry, ways)
                if parting is not None:
                    draft.exchanges[parting][session.client_id] = successor


def _note_exchange(draft: Draft, parting: Link, decision: Decision, successor: Job) -> None:
    """Note that a reader goes on at another link from a cut on, or another one takes its place
    there."""
    assert decision.old is not None
    if _stays_on_source(decision):
        return
    old, there = decision.old.job, draft.situation.inventory.jobs.get(successor.job_name)
    if successor.source in (old.source, there.job.source if there is not None else None):
        return
    former = source_client_id(draft.situation.installation, old.job_name, old.source)
    new = source_client_id(draft.situation.installation, successor.job_name, successor.source)
    draft.exchanges[parting][new] = successor
    followed = {session.client_id for session in draft.predecessors.values()}
    # where one reader follows the other at a link, their lineage tells who takes what
    reached_before = new not in draft.predecessors and _has_link(draft.situation, successor.source)
    reached_later = former not in followed and _is_fed_later(draft.situation, old.source)
    if reached_before or reached_later:
        draft.instead_of[new] = former


def _has_link(situation: Situation, link: Link) -> bool:
    """Whether present jobs read or write a link: records reach it before the change, too."""
    return any(link in d.job.ends for d in situation.inventory.jobs.values())


def _is_fed_later(situation: Situation, link: Link) -> bool:
    """Whether records reach a link after the change, too."""
    is_written = any(job.sink == link for job in situation.jobs.wanted.values())
    return is_written or situation.has_foreign_producers(link)


@dataclass(frozen=True, slots=True)
class _Cut:
    """The jobs that stop first: the producers of `link`, or one reader alone (`link` is None then).
    The jobs `between` take all that these had sent before they stop."""

    link: Link | None
    stopping: frozenset[str]
    readers: frozenset[str]
    """Those of `link` that stop at the same record."""
    between: frozenset[str] = frozenset()
    changing: frozenset[str] = frozenset()
    """Those whose change makes it necessary."""


def _find_together(situation: Situation, by_name: dict[str, Decision], cut: _Cut) -> frozenset[str]:
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
        and (is_live(situation, decision.old) or decision.old.ended or decision.old.switched)
    ]
    if not all(
        reports_numbers(job) and job.site not in situation.conditions.cannot_save for job in readers
    ):
        return frozenset()
    return frozenset(job.job_name for job in readers)


def _find_leaving_readers(
    situation: Situation, decisions: Sequence[Decision]
) -> dict[Link, list[Decision]]:
    """The readers that stop and leave their link or their sink link, by the link that they read."""
    leaving: dict[Link, list[Decision]] = defaultdict(list)
    for decision in decisions:
        old = decision.old
        if old is None or not is_rewired(decision):
            continue
        link = old.job.source
        waits = situation.has_foreign_producers(link) and (old.ended or old.switched)
        if decision.stops or (waits and has_place(situation, old, link)):
            leaving[link].append(decision)
    return leaving


def _find_torn(draft: Draft, link: Link, leaving: Sequence[Decision]) -> list[_Cut]:
    """The cut at a link that several readers leave, if not each is replaced by one that does the
    same work."""
    leaving = [d for d in leaving if not _stays_on_source(d)]
    if len(leaving) < 2 or all(
        _is_replaced(draft, d) or _ends(draft.situation, d) for d in leaving
    ):
        return []
    names = frozenset(d.job_name for d in leaving)
    return [_Cut(link, _list_producers(draft.situation, link), names, changing=names)]


def _is_replaced(draft: Draft, decision: Decision) -> bool:
    """Whether exactly one reader of the same link, with the same sink link, replaces it."""
    assert decision.old is not None
    job = decision.old.job
    own = source_client_id(draft.situation.installation, decision.job_name, job.source)
    followers = [c for c, former in draft.predecessors.items() if former.client_id == own]
    sessions = (s for s in draft.situation.wanted.sessions if s.client_id in followers)
    successors = (draft.situation.jobs.wanted.get(s.job_name or "") for s in sessions)
    return [each.sink for each in successors if each is not None] == [job.sink]


def _ends(situation: Situation, decision: Decision) -> bool:
    """Whether it is removed, and no link that its records reached is written any more."""
    assert decision.old is not None
    ways = [(d.job.source, d.job.sink) for d in situation.inventory.jobs.values()]
    links = _find_reachable(decision.old.job.sink, ways)
    return decision.new is None and all(
        job.sink not in links for job in situation.jobs.wanted.values()
    )


def _find_successors(situation: Situation, decision: Decision) -> list[Job]:
    """The jobs that take a reader's place: those that newly write to its sink link, or else
    itself."""
    assert decision.old is not None
    old, old_jobs = decision.old.job, situation.inventory.jobs
    successors = [
        job
        for job in situation.jobs.wanted.values()
        if job.sink == old.sink and not _goes_on(situation, old_jobs.get(job.job_name), job)
    ]
    return successors or ([decision.new] if decision.new is not None else [])


def _goes_on(situation: Situation, old: Incarnation | None, job: Job) -> bool:
    """Whether the job takes the same records to the same link already, or goes on with that where
    it ended."""
    if old is None or old.job.ends != job.ends:
        return False
    return is_live(situation, old) or has_place(situation, old, job.source)


def _find_cuts(
    draft: Draft, by_name: dict[str, Decision], decision: Decision, successor: Job
) -> list[_Cut]:
    """The cuts for a reader and its successor on another link: where their paths part, with the
    jobs behind that keep their source. Until these have taken all earlier records, the successor
    must get nothing."""
    assert decision.old is not None
    first = decision.old.job.source
    before = [
        (d.job.job_name, d.job.source, d.job.sink) for d in draft.situation.inventory.jobs.values()
    ]
    after = [(job.job_name, job.source, job.sink) for job in draft.situation.jobs.wanted.values()]
    cuts: list[_Cut] = []
    for entry in _find_entries(draft.situation, by_name, successor.source):
        parting = _find_nearest_common(first, entry, before)
        if parting is None:
            continue
        old_way, entry_way = (
            _find_jobs_between(before, parting, first),
            _find_jobs_between(before, parting, entry),
        )
        new_way = _find_jobs_between(after, entry, successor.source)
        heads = _find_readers(before, parting, old_way | entry_way)
        heads |= {decision.job_name} if first == parting else set()
        if entry == parting:
            coming = _find_readers(after, parting, new_way)
            coming |= {successor.job_name} if successor.source == parting else set()
            heads |= {_find_predecessor(draft, name) for name in coming}
        names = old_way | entry_way | new_way | {decision.job_name, successor.job_name}
        between = frozenset(name for name in names if _stays_on_source(by_name.get(name)))
        if len(heads) == 1:  # all records pass it: it stops at the same record for all
            between -= heads
        if between and len(heads) == 1:
            cuts.append(_Cut(None, frozenset(heads), frozenset(heads), between))
        elif between:
            producers = _list_producers(draft.situation, parting)
            changing = frozenset({decision.job_name, successor.job_name})
            cuts.append(_Cut(parting, producers, frozenset(heads), between, changing))
        draft.cut_links |= {parting} if between else set()
        _note_exchange(draft, parting, decision, successor)
    return cuts


def _find_readers(ways: _Ways, link: Link, names: set[str]) -> set[str]:
    return {name for name, source, _ in ways if source == link and name in names}


def _find_predecessor(draft: Draft, name: str) -> str:
    """The reader that a new one continues, or the job itself: the two count as one."""
    job = draft.situation.jobs.wanted[name]
    own = source_client_id(draft.situation.installation, name, job.source)
    former = draft.predecessors.get(own)
    return former.job_name or name if former is not None else name


def _list_producers(situation: Situation, link: Link) -> frozenset[str]:
    return frozenset(
        incarnation.job.job_name for incarnation in situation.jobs.producers.get(link, ())
    )


def _find_entries(situation: Situation, by_name: dict[str, Decision], link: Link) -> list[Link]:
    """The links at which records pass from present jobs to wanted ones, on their way to `link`: the
    nearest present links upstream, and those behind jobs that newly write to them, or that nothing
    has reached: they are stopped, and so are, or have gone, those before them."""
    ways = [d.job.ends for d in situation.inventory.jobs.values()]
    there = {link for ends in ways for link in ends}
    reached = _find_reached(situation, ways)
    entries, visited, ahead = list[Link](), {link}, [link]
    while ahead:
        at = ahead.pop()
        if at in there:
            entries.append(at)
        for job in situation.jobs.wanted.values():
            is_new = at not in reached or not _is_kept(by_name.get(job.job_name))
            if job.sink == at and is_new and job.source not in visited:
                visited.add(job.source)
                ahead.append(job.source)
    return entries


def _find_reached(situation: Situation, ways: Sequence[tuple[Link, Link]]) -> set[Link]:
    """The links that records reach through present jobs, running or not, from outside."""
    written = {job.sink for job in situation.jobs.wanted.values()} | {sink for _, sink in ways}
    sources = {source for source, _ in ways}
    first = {s for s in sources if s not in written or situation.is_fed_outside(s)}
    return set[Link]().union(*(_find_reachable(link, ways) for link in first))


def _find_nearest_common(one: Link, other: Link, ways: _Ways) -> Link | None:
    """The nearest link upstream through which both get their records; it may be one of the two."""
    backwards = [(sink, source) for _, source, sink in ways]
    common = _find_reachable(one, backwards) & _find_reachable(other, backwards)
    nearest = (
        link
        for link in sorted(common, key=str)
        if not any(sink in common for _, source, sink in ways if source == link)
    )
    return next(nearest, None)


def _find_jobs_between(ways: _Ways, first: Link, last: Link) -> set[str]:
    """The jobs on paths from one link to another."""
    ahead = _find_reachable(first, [(source, sink) for _, source, sink in ways])
    behind = _find_reachable(last, [(sink, source) for _, source, sink in ways])
    return {name for name, source, sink in ways if source in ahead and sink in behind}


def _stays_on_source(decision: Decision | None) -> bool:
    if decision is None or decision.old is None or decision.new is None:
        return False
    is_wanted = decision.new.state is DesiredState.RUNNING and not decision.old.finished
    is_running = is_wanted or decision.stops
    return is_running and decision.old.job.source == decision.new.source


def _is_kept(decision: Decision | None) -> bool:
    """Whether the job goes on between the same links."""
    if decision is None:
        return False
    old, new = decision.old, decision.new
    if old is None or new is None or new.state is not DesiredState.RUNNING or old.finished:
        return False
    return (old.job.source, old.job.sink) == (new.source, new.sink)


def _find_reachable(start: Link, ways: Sequence[tuple[Link, Link]]) -> set[Link]:
    visited, ahead = {start}, [start]
    while ahead:
        link = ahead.pop()
        for source, sink in ways:
            if source == link and sink not in visited:
                visited.add(sink)
                ahead.append(sink)
    return visited


def _restart(decision: Decision) -> None:
    new = decision.new
    assert new is not None
    if decision.stops or decision.starts:
        return
    decision.action = Action.UPDATE
    decision.reason = "stops for a moment: its readers change at the same record"
    decision.stops = decision.starts = True
    decision.keeps_state = new.upgrade is Upgrade.SAVEPOINT


def _warn_of_loss(decision: Decision, link: Link) -> None:
    decision.reason += (
        f"; {link} is fed from outside, so records around the cut may be lost or come twice"
    )
