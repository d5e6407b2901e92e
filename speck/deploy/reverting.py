"""Brings back what ran before a change that ended early, where the next one wants something else.

A change that ended early leaves jobs of two wirings: the one that was deployed, and its own. The
planner goes on from there to either of them. To a third wiring it first goes back: the first stage
of such a change reverts the composition to its deployed revision, and behind the gate its own
wiring follows. New jobs that share no link with what was changed stay: they do not begin anew for
the sake of others.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence, Set
from dataclasses import dataclass, replace

from speck.model.change import Cause, Change
from speck.model.composition import Composition, CompositionDescription, Head
from speck.model.ids import source_client_id
from speck.model.job import DesiredState
from speck.model.plan import Gate, Plan
from speck.store.records import Records

_End = tuple[str | None, str | None, str]
_Way = tuple[_End, _End]
"""The source and the sink of a job, as they are described: (site, broker, topic)."""


@dataclass(frozen=True, slots=True)
class Base:
    """The revision to which a composition is reverted first, and the jobs of later revisions that
    stay as they are: they have nothing to do with what these have changed."""

    revision: int
    stays: frozenset[str]


def find_base(
    description: CompositionDescription, records: Records, change: Change | None = None
) -> Base | None:
    """What a composition is reverted to before a description of it is made true, by a `change` that
    is planned anew maybe. None if what is there is that revision, or may be turned into what is
    described directly."""
    name, compositions = description.name, records.compositions
    if change is not None:
        if change.reverts_to is None or change.revision is None:
            return None
        numbers = range(change.reverts_to, change.revision)
    else:
        head = compositions.last_head(name)
        if head is None or not _is_third(description, head, records):
            return None
        assert head.deployed_revision is not None
        numbers = range(head.deployed_revision, head.revision + 1)
    stored = [compositions.revision(name, number) for number in numbers]
    wirings = [_list_ways(each.description) if each is not None else {} for each in stored]
    stays = _find_apart(wirings[0], wirings[1:] or [{}])
    return None if stays is None else Base(numbers[0], stays)


def _is_third(description: CompositionDescription, head: Head, records: Records) -> bool:
    """Whether a change has ended early, and the description has neither its wiring nor the one that
    is deployed."""
    last = records.changes.head(head.last_change)
    if last is None or head.deleted or head.deployed_revision is None:
        return False
    deployed = records.compositions.revision(head.name, head.deployed_revision)
    begun = records.compositions.revision(head.name, head.revision)
    is_removal = last.cause is Cause.REMOVE
    if head.deployed_revision == head.revision and not is_removal:
        return False
    wanted = _list_links(description)
    if deployed is None or begun is None or wanted == _list_links(deployed.description):
        return False
    is_begun = not is_removal and last.reverts_to is None
    return not (is_begun and wanted == _list_links(begun.description))


def _find_apart(
    deployed: Mapping[str, _Way], later: Sequence[Mapping[str, _Way]]
) -> frozenset[str] | None:
    """The jobs of the `later` wirings whose links no job shares, be it through others of them, that
    these have changed or removed; None if no deployed job is changed or removed at all."""
    changed = {
        name for name, way in deployed.items() if any(wiring.get(name) != way for wiring in later)
    }
    if not changed:
        return None
    wirings = (deployed, *later)
    touched = {topic for name in changed for each in wirings for topic in _topics(each, name)}
    new = {name for each in later for name in each} - deployed.keys()
    while True:
        joined = {
            name
            for name in new
            if any(topic in touched for each in later for topic in _topics(each, name))
        }
        if not joined:
            return frozenset(new)
        new -= joined
        touched |= {topic for name in joined for each in later for topic in _topics(each, name)}


def _topics(wiring: Mapping[str, _Way], name: str) -> list[str]:
    """The topics of a job. Those of the same name at two brokers are taken for one: an address may
    be spelled in several ways."""
    return [topic for *_, topic in wiring[name]] if name in wiring else []


def _list_ways(description: CompositionDescription) -> Mapping[str, _Way]:
    return {
        job.job_name: (
            (job.source_site, job.source_broker, job.source_topic),
            (job.sink_site, job.sink_broker, job.sink_topic),
        )
        for job in description.jobs
    }


def _list_links(description: CompositionDescription) -> Set[Hashable]:
    """The jobs of a description with their links, and whether they are to run; and its outputs."""
    ways = _list_ways(description)
    jobs = {(job.job_name, ways[job.job_name], job.state) for job in description.jobs}
    return jobs | {(each.client_id, each.site, each.topic) for each in description.outputs}


def revert_first(back: Plan, ahead: Plan, revision: int, idle: Set[str]) -> Plan:
    """The plan `back` to a revision as the first stage of a change that the plan `ahead` would
    carry out at once. Of the queues that this would drop those remain whose readers, by client id,
    are `idle` in that revision, too."""
    later = [queue for queue in ahead.queues if queue.client_id in idle]
    queues = tuple(dict.fromkeys((*back.queues, *later)))
    gate = Gate(failed_too=ahead.drain_limit_s is not None)
    return replace(back, queues=queues, gate=gate, reverts_to=revision)


def list_idle(composition: Composition, installation: str) -> Set[str]:
    """The client ids of the readers that take nothing while a composition is as described: jobs
    that are stopped, and those outside speck."""
    jobs = [each for each in composition.jobs if each.state is not DesiredState.RUNNING]
    ids = {source_client_id(installation, each.job_name, each.source) for each in jobs}
    return ids | {reader.client_id for reader in composition.readers}


def describe_no_way_back(revision: int, why: str) -> str:
    """The warning about a composition that is not reverted first, though it should be."""
    return (
        f"revision {revision} is not brought back first, though the change before this one ended"
        f" early: records may be lost or come twice ({why})"
    )
