"""Plans which starts come before others, so that a rollback neither loses nor repeats messages."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field

from speck.deploy.planner.decisions import Decision, is_rewired
from speck.deploy.planner.lineages import is_held_at_another_link
from speck.deploy.planner.situation import Situation
from speck.deploy.planner.steps import Stopped
from speck.deploy.planner.ways import group
from speck.deploy.planner.wiring import Cuts, Wiring
from speck.model.ids import source_client_id
from speck.model.incarnation import Session
from speck.model.job import Job
from speck.model.job_change import Action
from speck.model.link import Link


@dataclass(frozen=True)
class _Rule:
    """Which jobs a start waits for."""

    awaited: Set[str]
    passed: Set[str]
    """Those of them behind which others are waited for, too. All others wait for those
    themselves."""
    waits: dict[Link, dict[str, Decision]] = field(default_factory=dict, compare=False)
    """A cache: what is waited for behind a link."""


@dataclass(frozen=True)
class _Rules:
    """Whom starts wait for, by what the job does: it takes over from another one, or gets other
    links; it stops and starts again with the same links; it begins to send; it changes at the same
    record as others."""

    taking_over: frozenset[str]
    """The jobs that follow another reader, or that ran with other links."""
    restarts: _Rule
    begins: _Rule
    takes_over: _Rule
    cuts: _Rule

    @classmethod
    def none(cls) -> _Rules:
        return cls(frozenset(), *(_Rule(set(), set()) for _ in range(4)))


@dataclass(frozen=True)
class _Readers:
    """Who reads, and stops to read, where."""

    decisions: Mapping[Link, Sequence[Decision]]
    stops: Mapping[Link, Sequence[int]]
    """The stops of those that leave a link, or will write elsewhere, by the link."""
    followers: Mapping[str, Sequence[Decision]]
    """Those that follow one reader, by its client id."""


@dataclass(frozen=True)
class StartOrder:
    """The order of the starts of a plan, from the ends of the changed part to its beginnings.

    A job that begins to send waits until jobs downstream of it run. Otherwise, if one of these
    could not start, what was sent would be in its session only, and not reach a reader that comes
    back to its old link.
    """

    situation: Situation
    cuts: Cuts
    predecessors: Mapping[str, Session]
    readers: _Readers
    rules: _Rules

    def find_beside(self, decision: Decision) -> list[Decision]:
        """The others that take the place of the reader which this one follows, or that change at
        the same record of its link. They start when all of them can: if one has taken records that
        another cannot take, the way back is closed."""
        assert decision.new is not None
        own = source_client_id(self.situation.installation, decision.job_name, decision.new.source)
        former = self.predecessors.get(own)
        beside = list(
            self.readers.followers.get(former.client_id, ()) if former is not None else ()
        )
        if decision.new.source in self.cuts.links:
            readers = self.readers.decisions.get(decision.new.source, ())
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
        reader leaves for good, and those of a cut that an earlier change has not completed. If it
        begins to send there, or its readers change at one record, also those that follow another
        reader. If it takes over from another job, or gets other links, also the new jobs, and where
        links branch those that read another link than before. If it changes at the same record as
        others, all that get other links.
        """
        if not self.readers.decisions:
            return []
        earlier = dict[str, Decision]()
        for each in (decision, *self.find_beside(decision)):
            earlier |= self._find_earlier(each)
        earlier |= {each.job_name: each for each in self._find_first(decision)}
        return list(earlier.values())

    def _find_earlier(self, decision: Decision) -> dict[str, Decision]:
        assert decision.new is not None
        if decision.new.source in self.cuts.links:
            rule = self.rules.cuts
        elif decision.job_name in self.rules.taking_over:
            rule = self.rules.takes_over
        elif decision.stops and decision.job_name not in self.cuts.jobs:
            rule = self.rules.restarts
        else:
            rule = self.rules.begins
        behind = dict[str, Decision]()
        for link in decision.new.port if rule.awaited else ():
            behind |= self._find_behind(link, rule)
        return behind

    def find_stops(self, decision: Decision) -> list[int]:
        """The stops downstream that come before the start of a job that did not run.

        The messages that wait for it would otherwise pass jobs that still run with their old links,
        and miss those that have left.
        """
        if decision.stops or decision.old is None or not self.readers.stops:
            return []
        assert decision.new is not None
        visited, ahead, stops = set(decision.new.port), list(decision.new.port), set[int]()
        while ahead:
            link = ahead.pop()
            stops.update(self.readers.stops.get(link, ()))
            readers = self.readers.decisions.get(link, ())
            behind = {sink for it in readers if it.new for sink in it.new.port}
            ahead += behind - visited
            visited |= behind
        return sorted(stops)

    def _find_behind(self, link: Link, rule: _Rule) -> dict[str, Decision]:
        """Whom a producer of a link waits for, by name. Links are looked at once for all starts,
        from their ends."""
        # no recursion: a chain may have thousands of links
        ahead, visited = [link], set[Link]()
        while ahead:
            each = ahead[-1]
            if each not in rule.waits and each not in visited:
                visited.add(each)
                # in their order, not a set's: in a circle it decides what is found behind a link
                ahead += [
                    sink for sink in self._list_passed_sinks(each, rule) if sink not in visited
                ]
                continue
            ahead.pop()
            if each not in rule.waits:
                rule.waits[each] = self._collect(each, rule)
        return rule.waits[link]

    def _collect(self, link: Link, rule: _Rule) -> dict[str, Decision]:
        behind = [rule.waits.get(sink, {}) for sink in self._list_passed_sinks(link, rule)]
        readers = self.readers.decisions.get(link, ())
        there = {it.job_name: it for it in readers if it.job_name in rule.awaited}
        if not there and len(behind) == 1:
            return behind[0]
        for each in behind:
            there |= each
        return there

    def _list_passed_sinks(self, link: Link, rule: _Rule) -> Iterator[Link]:
        """The sinks of the readers of a link behind which others are waited for."""
        for each in self.readers.decisions.get(link, ()):
            if each.new and (each.job_name in rule.passed or each.job_name not in rule.awaited):
                yield from each.new.port


def order_starts(wiring: Wiring, stopped: Stopped) -> StartOrder:
    """The order of the starts of a plan; none where jobs only read first, or nothing is drained."""
    is_ordered = wiring.first is None and wiring.situation.conditions.drains
    predecessors = _find_predecessors(wiring)
    readers = _Readers({}, {}, {})
    rules = _Rules.none()
    if is_ordered:
        readers = _find_readers(wiring, stopped, predecessors)
        rules = _find_rules(wiring, predecessors)
    return StartOrder(wiring.situation, wiring.cuts, predecessors, readers, rules)


def _find_predecessors(wiring: Wiring) -> dict[str, Session]:
    """The sessions in whose place others are read, by the client ids of these: by this plan, or by
    an earlier one that handed them over and ended before the readers had begun."""
    present, wanted = wiring.situation.present.by_id, wiring.situation.wanted
    handed_over = {
        each.client_id: former
        for each in wiring.situation.inventory.sessions
        if each in wanted
        and not each.begun
        and (former := present.get(each.former or "")) is not None
    }
    return {**handed_over, **wiring.followers.predecessors}


def _find_readers(
    wiring: Wiring, stopped: Stopped, predecessors: Mapping[str, Session]
) -> _Readers:
    reading, stops, followers = [], [], []
    for link, leaving in wiring.leaving.readers.items():
        stops += [(link, stopped.of[name]) for _, name in leaving]
    for decision in wiring.decisions:
        old, new, name = decision.old, decision.new, decision.job_name
        if new is None:
            continue
        reading.append((new.source, decision))
        if name in stopped.of and old is not None and is_rewired(decision):
            stops.append((new.source, stopped.of[name]))
        former = _find_former(wiring, predecessors, decision)
        if decision.starts and former is not None:
            followers.append((former.client_id, decision))
    return _Readers(group(reading), group(stops), group(followers))


def _find_former(
    wiring: Wiring, predecessors: Mapping[str, Session], decision: Decision
) -> Session | None:
    """The session that a job's own one follows."""
    assert decision.new is not None
    source = decision.new.source
    own = source_client_id(wiring.situation.installation, decision.job_name, source)
    return predecessors.get(own)


def _find_rules(wiring: Wiring, predecessors: Mapping[str, Session]) -> _Rules:
    starting = [d for d in wiring.decisions if d.starts and d.new is not None]
    branched = _find_branched_links(wiring.situation, wiring.decisions)
    following = {d.job_name for d in starting if _find_former(wiring, predecessors, d)}
    rewired = {d.job_name for d in starting if is_rewired(d)}
    begins = {d.job_name for d in starting if d.action is Action.ADD}
    changed = rewired - begins
    followed = {session.client_id for session in predecessors.values()}
    others = {d.job_name: _find_others_leaving(wiring, d) for d in starting}
    held = {d.job_name for d in starting if _is_held_elsewhere(wiring.situation, d)}
    sharing = {name for name, leaving in others.items() if leaving} | following | held
    reading_anew = {
        d.job_name
        for d in starting
        if d.job_name in begins or (d.job_name in changed and d.new and d.new.source in branched)
    }
    taking_over, awaited = following | changed, sharing | reading_anew
    return _Rules(
        frozenset(taking_over),
        _Rule(held | {name for name, leaving in others.items() if leaving - followed}, set()),
        _Rule(sharing, set()),
        _Rule(awaited, awaited - taking_over),
        _Rule(rewired, rewired),
    )


def _is_held_elsewhere(situation: Situation, decision: Decision) -> bool:
    """Whether the records for a job are taken at another link until it has begun: an earlier change
    has not come so far."""
    assert decision.new is not None
    source = decision.new.source
    own = source_client_id(situation.installation, decision.job_name, source)
    session = situation.present.by_id.get(own)
    return session is not None and not session.begun and is_held_at_another_link(situation, session)


def _find_others_leaving(wiring: Wiring, decision: Decision) -> set[str]:
    """The client ids of the others that leave the link which a job reads."""
    assert decision.new is not None
    source = decision.new.source
    own = source_client_id(wiring.situation.installation, decision.job_name, source)
    return {client_id for client_id, _ in wiring.leaving.readers.get(source, ())} - {own}


def rank_start(decision: Decision) -> tuple[bool, str]:
    """The order of the starts of jobs that change at the same record. Those that ran with the same
    links come last: they can most likely start."""
    return not is_rewired(decision), decision.job_name


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
    branched = set(ahead)
    while ahead:
        new = joined[ahead.pop()] - branched
        branched |= new
        ahead += new
    return branched


def _join_links(before: Iterable[Job], wanted: Iterable[Job]) -> defaultdict[Link, set[Link]]:
    """The links that are joined to each by a job, as it is or will be."""
    joined, sources = defaultdict[Link, set[Link]](set), dict[str, Link]()
    for job in (*before, *wanted):
        first = sources.setdefault(job.job_name, job.source)
        for one, other in (*job.ways, (first, job.source)):
            joined[one].add(other)
            joined[other].add(one)
    return joined
