"""Plans which starts come before others, so that a rollback neither loses nor repeats messages."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from speck.deploy.planner.draft import Decision, Draft
from speck.deploy.planner.situation import Situation
from speck.deploy.planner.starts import is_rewired, rank_start
from speck.model.ids import source_client_id
from speck.model.job import Job
from speck.model.link import Link


@dataclass(slots=True)
class _Rule:
    """Which jobs a start waits for."""

    awaited: set[str]
    passed: set[str]
    """Those of them behind which others are waited for, too. All others wait for those
    themselves."""
    found: dict[Link, dict[str, Decision]] = field(default_factory=dict)
    """What is waited for behind a link."""


class StartOrder:
    """The order of the starts of a plan, from the ends of the changed part to its beginnings.

    A job that begins to send waits until jobs downstream of it run. Otherwise, if one of these
    could not start, what was sent would be in its session only, and not reach a reader that comes
    back to its old link.
    """

    def __init__(self, draft: Draft, decisions: Sequence[Decision]) -> None:
        self._draft = draft
        self._decisions_reading = defaultdict[Link, list[Decision]](list)
        self._stops_reading = defaultdict[Link, list[int]](list)
        """The stops of those that leave a link, or will write elsewhere, by the link."""
        staying, sharing, reading_anew = set[str](), set[str](), set[str]()
        self._taking_over = set[str]()
        """The jobs that follow another reader, or that ran with other links."""
        self._followers = defaultdict[str, list[Decision]](list)
        """Those that follow one reader, by its client id."""
        if draft.backlog_only or not draft.situation.conditions.drains:
            return
        followed = {session.client_id for session in draft.predecessors.values()}
        branched = _find_branched_links(draft.situation, decisions)
        for link, leaving in draft.leaving_readers.items():
            self._stops_reading[link] += [step for _, step in leaving]
        for decision in decisions:
            old, new, name = decision.old, decision.new, decision.job_name
            if new is None:
                continue
            self._decisions_reading[new.source].append(decision)
            rewired = old is not None and is_rewired(decision)
            if decision.stop_id is not None and rewired:
                self._stops_reading[new.source].append(decision.stop_id)
            if not decision.starts:
                continue
            own = source_client_id(draft.situation.installation, name, new.source)
            others = {session for session, _ in draft.leaving_readers.get(new.source, ())} - {own}
            if others - followed:
                staying.add(name)
            if others or own in draft.predecessors:
                sharing.add(name)
            if old is None or (rewired and new.source in branched):
                reading_anew.add(name)
            if own in draft.predecessors:
                self._followers[draft.predecessors[own].client_id].append(decision)
            if own in draft.predecessors or rewired:
                self._taking_over.add(name)
        self._restarts = _Rule(staying, set())
        self._begins = _Rule(sharing, set())
        taken_over = sharing | reading_anew
        self._takes_over = _Rule(taken_over, taken_over - self._taking_over)
        changing = {it.job_name for it in decisions if it.starts and is_rewired(it)}
        self._cuts = _Rule(changing, changing)

    def find_beside(self, decision: Decision) -> list[Decision]:
        """The others that take the place of the reader which this one follows, or that change at
        the same record of its link. They start when all of them can: if one has taken records that
        another cannot take, the way back is closed."""
        assert decision.new is not None
        own = source_client_id(
            self._draft.situation.installation, decision.job_name, decision.new.source
        )
        former = self._draft.predecessors.get(own)
        beside = list(self._followers.get(former.client_id, ()) if former is not None else ())
        if decision.new.source in self._draft.cut_links:
            readers = self._decisions_reading.get(decision.new.source, ())
            beside += [each for each in readers if each.starts and each not in beside]
        return [each for each in beside if each is not decision]

    def _find_first(self, decision: Decision) -> list[Decision]:
        """Those of the jobs beside this one that start before it: if one cannot, nothing has been
        taken."""
        own = rank_start(decision)
        return [it for it in self.find_beside(decision) if rank_start(it) < own]

    def find_earlier(self, decision: Decision) -> list[Decision]:
        """The jobs downstream that start before this one, or those beside it, do.

        If it stops and starts again with the same links, those that stay at a link which another
        reader leaves for good. If it begins to send there, or its readers change at one record,
        also those that follow another reader. If it takes over from another job, or gets other
        links, also the new jobs, and where links branch those that read another link than before.
        If it changes at the same record as others, all that get other links.
        """
        if not self._decisions_reading:
            return []
        earlier = dict[str, Decision]()
        for each in (decision, *self.find_beside(decision)):
            earlier |= self._find_earlier(each)
        earlier |= {each.job_name: each for each in self._find_first(decision)}
        return list(earlier.values())

    def _find_earlier(self, decision: Decision) -> dict[str, Decision]:
        assert decision.new is not None
        if decision.new.source in self._draft.cut_links:
            rule = self._cuts
        elif decision.job_name in self._taking_over:
            rule = self._takes_over
        elif decision.stops and decision.job_name not in self._draft.cut_jobs:
            rule = self._restarts
        else:
            rule = self._begins
        return self._find_behind(decision.new.sink, rule) if rule.awaited else {}

    def find_stops(self, decision: Decision) -> list[int]:
        """The stops downstream that come before the start of a job that did not run.

        The messages that wait for it would otherwise pass jobs that still run with their old links,
        and miss those that have left.
        """
        if decision.stops or decision.old is None or not self._stops_reading:
            return []
        assert decision.new is not None
        visited, ahead, stops = {decision.new.sink}, [decision.new.sink], set[int]()
        while ahead:
            link = ahead.pop()
            stops.update(self._stops_reading.get(link, ()))
            behind = {it.new.sink for it in self._decisions_reading.get(link, ()) if it.new}
            ahead += behind - visited
            visited |= behind
        return sorted(stops)

    def _find_behind(self, link: Link, rule: _Rule) -> dict[str, Decision]:
        """Whom a producer of a link waits for, by name. Links are looked at once for all starts,
        from their ends."""
        ahead, visited = [link], set[Link]()
        while ahead:
            each = ahead[-1]
            if each not in rule.found and each not in visited:
                visited.add(each)
                ahead += set(self._list_passed_sinks(each, rule)) - visited
                continue
            ahead.pop()
            if each not in rule.found:
                rule.found[each] = self._collect(each, rule)
        return rule.found[link]

    def _collect(self, link: Link, rule: _Rule) -> dict[str, Decision]:
        behind = [rule.found.get(sink, {}) for sink in self._list_passed_sinks(link, rule)]
        readers = self._decisions_reading.get(link, ())
        there = {it.job_name: it for it in readers if it.job_name in rule.awaited}
        if not there and len(behind) == 1:
            return behind[0]
        for found in behind:
            there |= found
        return there

    def _list_passed_sinks(self, link: Link, rule: _Rule) -> Iterator[Link]:
        """The sinks of the readers of a link behind which others are waited for."""
        for each in self._decisions_reading.get(link, ()):
            if each.new and (each.job_name in rule.passed or each.job_name not in rule.awaited):
                yield each.new.sink


def _find_branched_links(situation: Situation, decisions: Sequence[Decision]) -> set[Link]:
    """The links that are joined, as they are or will be, to one with several readers. Elsewhere all
    messages go one way, so that those that wait for a job come back with it.

    Empty if no job is to have other links than before.
    """
    if not any(it.old and it.new and is_rewired(it) for it in decisions):
        return set()
    before = [it.job for it in situation.inventory.jobs.values()]
    outside = [s.link for s in situation.inventory.sessions if s.job_name is None]
    counts = (
        Counter([*(job.source for job in before), *outside, *situation.outside.readers]),
        Counter(
            [*(session.link for session in situation.wanted.sessions), *situation.outside.readers]
        ),
    )
    joined = _join_links(before, situation.desired.jobs)
    ahead = [link for count in counts for link, readers in count.items() if readers > 1]
    found = set(ahead)
    while ahead:
        new = joined[ahead.pop()] - found
        found |= new
        ahead += new
    return found


def _join_links(before: Iterable[Job], wanted: Iterable[Job]) -> defaultdict[Link, set[Link]]:
    """The links that are joined to each by a job, as it is or will be."""
    joined, sources = defaultdict[Link, set[Link]](set), dict[str, Link]()
    for job in (*before, *wanted):
        first = sources.setdefault(job.job_name, job.source)
        for one, other in ((job.source, job.sink), (first, job.source)):
            joined[one].add(other)
            joined[other].add(one)
    return joined
