"""Where the paths to a reader and to the one that takes its place part.

That is the nearest link through which both get their records. If jobs behind it keep their source,
these must take all earlier records before the successor gets any: a cut.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from speck.deploy.planner.decisions import Decision
from speck.deploy.planner.lineages import awaits_cut
from speck.deploy.planner.situation import Situation
from speck.deploy.planner.ways import Ways
from speck.deploy.planner.wiring import Followers
from speck.model.ids import source_client_id
from speck.model.incarnation import Session
from speck.model.job import DesiredState, Job
from speck.model.link import Link


@dataclass(frozen=True, slots=True)
class Cut:
    """The jobs that stop first: the producers of `link`, or one reader alone (`link` is None then).
    The jobs `between` take all that these had sent before they stop."""

    link: Link | None
    stopping: frozenset[str]
    readers: frozenset[str]
    """Those of `link` that stop at the same record."""
    between: frozenset[str] = frozenset()
    changing: frozenset[str] = frozenset()
    """Those whose change makes it necessary."""


@dataclass(frozen=True, slots=True)
class Parting:
    """The link at which the paths to a reader and to its successor part, and the cut there."""

    link: Link
    decision: Decision
    successor: Job
    cut: Cut | None


def find_partings(
    situation: Situation,
    followers: Followers,
    by_name: Mapping[str, Decision],
    decision: Decision,
    successor: Job,
) -> list[Parting]:
    """Where the paths to a reader and to its successor on another link part."""
    assert decision.old is not None
    first, before = decision.old.job.source, situation.jobs.present_ways
    partings = []
    for entry in _find_entries(situation, by_name, successor.source):
        link = _find_nearest_common(first, entry, before)
        if link is not None:
            cut = _find_cut(situation, followers, by_name, decision, successor, link, entry)
            partings.append(Parting(link, decision, successor, cut))
    return partings


def _find_cut(
    situation: Situation,
    followers: Followers,
    by_name: Mapping[str, Decision],
    decision: Decision,
    successor: Job,
    parting: Link,
    entry: Link,
) -> Cut | None:
    """The cut where two paths part, if jobs behind it keep their source. Until these have taken all
    earlier records, the successor must get nothing."""
    assert decision.old is not None
    first, before = decision.old.job.source, situation.jobs.present_ways
    after = situation.jobs.wanted_ways
    present = before.find_between(parting, first) | before.find_between(parting, entry)
    coming = after.find_between(entry, successor.source)
    heads = present.intersection(before.list_readers(parting))
    heads |= {decision.job_name} if first == parting else set()
    if entry == parting:
        joining = coming.intersection(after.list_readers(parting))
        joining |= {successor.job_name} if successor.source == parting else set()
        heads |= {_find_predecessor(situation, followers, name) for name in joining}
    names = present | coming | {decision.job_name, successor.job_name}
    if awaits_its_cut(situation, successor):  # it runs, and has taken nothing yet
        names -= {successor.job_name}
        if any(_waits_there(situation, name, parting) for name in heads):
            return None  # they have stopped at the same record already
    between = frozenset(name for name in names if stays_on_source(by_name.get(name)))
    if len(heads) == 1:  # all records pass it: it stops at the same record for all
        between -= heads
    if not between:
        return None
    if len(heads) == 1:
        return Cut(None, frozenset(heads), frozenset(heads), between)
    changing = frozenset({decision.job_name, successor.job_name})
    producers = list_producers(situation, parting)
    return Cut(parting, producers, frozenset(heads), between, changing)


def awaits_its_cut(situation: Situation, job: Job) -> bool:
    own = source_client_id(situation.installation, job.job_name, job.source)
    session = situation.present.usable.get(own)
    return session is not None and awaits_cut(situation, session)


def _waits_there(situation: Situation, name: str, link: Link) -> bool:
    """Whether a job has been given a place on a link, and has not begun there."""
    own = source_client_id(situation.installation, name, link)
    session = situation.present.usable.get(own)
    return session is not None and bool(session.skip) and not session.begun


def find_partings_before(
    situation: Situation, by_name: Mapping[str, Decision], former: Session, session: Session
) -> list[Link]:
    """Where the paths to two links part."""
    ways = situation.jobs.present_ways
    entries = _find_entries(situation, by_name, session.link)
    partings = (_find_nearest_common(former.link, entry, ways) for entry in entries)
    return [link for link in partings if link is not None]


def _find_predecessor(situation: Situation, followers: Followers, name: str) -> str:
    """The reader that a new one continues, or the job itself: the two count as one."""
    job = situation.jobs.wanted[name]
    own = source_client_id(situation.installation, name, job.source)
    former = followers.predecessors.get(own)
    return former.job_name or name if former is not None else name


def list_producers(situation: Situation, link: Link) -> frozenset[str]:
    return frozenset(
        incarnation.job.job_name for incarnation in situation.jobs.producers.get(link, ())
    )


def _find_entries(situation: Situation, by_name: Mapping[str, Decision], link: Link) -> list[Link]:
    """The links at which records pass from present jobs to wanted ones, on their way to `link`: the
    nearest present links upstream, and those behind jobs that newly write to them, or that nothing
    has reached: they are stopped, and so are, or have gone, those before them."""
    reached = situation.links_reached
    entries, visited, ahead = list[Link](), {link}, [link]
    while ahead:
        at = ahead.pop()
        if at in situation.jobs.present_ways:
            entries.append(at)
        for job in situation.jobs.writers.get(at, ()):
            is_new = at not in reached or not is_kept(by_name.get(job.job_name))
            if is_new and job.source not in visited:
                visited.add(job.source)
                ahead.append(job.source)
    return entries


def _find_nearest_common(one: Link, other: Link, ways: Ways) -> Link | None:
    """The nearest link upstream through which both get their records; it may be one of the two."""
    common = ways.find_upstream(one) & ways.find_upstream(other)
    nearest = (link for link in common if common.isdisjoint(ways.list_onwards(link)))
    return min(nearest, key=str, default=None)


def stays_on_source(decision: Decision | None) -> bool:
    if decision is None or decision.old is None or decision.new is None:
        return False
    is_wanted = decision.new.state is DesiredState.RUNNING and not decision.old.finished
    is_running = is_wanted or decision.stops
    return is_running and decision.old.job.source == decision.new.source


def is_kept(decision: Decision | None) -> bool:
    """Whether the job goes on between the same links."""
    if decision is None:
        return False
    old, new = decision.old, decision.new
    if old is None or new is None or new.state is not DesiredState.RUNNING or old.finished:
        return False
    return old.job.ends == new.ends
