"""Brings back what ran before a change that ended early, where the next one wants something else.

A change that ended early leaves jobs of two wirings: the one that was deployed, and its own. The
planner goes on from there to either of them. To a third wiring it first goes back: the first stage
of such a change reverts to the deployed revision, and behind the gate its own wiring follows.

This is decided for each part of the composition by itself, that is, for jobs that share links,
be it through others. Where a part is wanted as it is deployed, or as it was begun, or has only got
further jobs, the first stage already does what is wanted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace

from speck.errors import ConflictError, SpeckError
from speck.model.change import Cause, Change, ChangeHead
from speck.model.composition import Composition, CompositionDescription, Head, Revision
from speck.model.ids import source_client_id
from speck.model.job import DesiredState, JobDescription
from speck.model.plan import Gate, Plan
from speck.spec.addresses import with_addresses
from speck.spec.job_files import ARTIFACT
from speck.store.records import Records

_End = tuple[str | None, str]
_Jobs = Mapping[str, JobDescription]
"""The jobs of a description by name, with every broker given by its address, and with artifacts by
their content."""


@dataclass(frozen=True, slots=True)
class Reverting:
    """What is brought back first: the jobs of these names, to their state in the revision. The jobs
    that are not in it give way."""

    revision: int
    jobs: frozenset[str]


def find_reverting(
    description: CompositionDescription, records: Records, change: Change | None = None
) -> Reverting | None:
    """What is brought back before a description is made true, by a `change` that is planned anew
    maybe; None if nothing is."""
    if change is not None:
        number = change.reverts_to
        return None if number is None else Reverting(number, change.reverting)
    head = records.compositions.last_head(description.name)
    if head is None or head.deleted or head.deployed_revision is None:
        return None
    last = records.changes.head(head.last_change)
    is_removal = last is not None and last.cause is Cause.REMOVE
    if head.deployed_revision == head.revision and not is_removal:
        return None
    wirings = _list_wirings(head, records)
    if wirings is None:
        return None
    wirings += [{}] if is_removal else []
    wanted = _index_jobs(description, records, {})
    jobs = _find_jobs(wirings, wanted, _list_not_begun(last))
    return Reverting(head.deployed_revision, jobs) if jobs else None


def _list_wirings(head: Head, records: Records) -> list[_Jobs] | None:
    """That of the deployed revision, and of all that came after it; None if one of the two ends is
    gone."""
    assert head.deployed_revision is not None
    numbers = range(head.deployed_revision, head.revision + 1)
    revisions = [records.compositions.revision(head.name, number) for number in numbers]
    if revisions[0] is None or revisions[-1] is None:
        return None
    return [_index_jobs(each.description, records, each.artifacts) for each in revisions if each]


def _index_jobs(
    description: CompositionDescription, records: Records, artifacts: Mapping[str, str]
) -> _Jobs:
    jobs = with_addresses(description, records.sites.all()).jobs
    return {job.job_name: _name_artifact(job, artifacts) for job in jobs}


def _list_not_begun(last: ChangeHead | None) -> Set[str]:
    """The jobs that the last change was still bringing back when it ended: it has not begun with
    what was wanted of these."""
    return frozenset(last.reverting) if last is not None else frozenset()


def _find_jobs(wirings: Sequence[_Jobs], wanted: _Jobs, not_begun: Set[str]) -> frozenset[str]:
    """The jobs of all parts that are reverted: `wirings` are the one that is deployed and those
    that came after it."""
    deployed, *later = wirings
    reverted = set[str]()
    for part in _divide([*wirings, wanted]):
        here, before, *after = (_restrict(each, part) for each in (wanted, deployed, *later))
        is_begun = _is_same(here, after[-1], before) and part.isdisjoint(not_begun)
        has_only_grown = all(
            each.get(name) == job for each in after for name, job in before.items()
        )
        if not (_is_same(here, before, here) or is_begun or has_only_grown):
            reverted |= part
    return frozenset(reverted)


def _is_same(wanted: _Jobs, other: _Jobs, deployed: _Jobs) -> bool:
    """Whether jobs are wanted with the same links and states; but those that are not deployed may
    be stopped by now: the way out where one of them cannot be started."""
    if wanted.keys() != other.keys():
        return False
    return all(
        _ends(job) == _ends(other[name])
        and (job.state is other[name].state or (name not in deployed and _is_stopped(job)))
        for name, job in wanted.items()
    )


def _is_stopped(job: JobDescription) -> bool:
    return job.state is DesiredState.STOPPED


def _ends(job: JobDescription) -> tuple[_End, _End]:
    """The source and the sink of a job."""
    return (job.source_broker, job.source_topic), (job.sink_broker, job.sink_topic)


def _divide(wirings: Iterable[_Jobs]) -> list[set[str]]:
    """The names of jobs, those together that share a link in one of the wirings or in two, be it
    through others."""
    links, names = defaultdict[str, set[_End]](set), defaultdict[_End, set[str]](set)
    for wiring in wirings:
        for name, job in wiring.items():
            links[name].update(_ends(job))
            for link in _ends(job):
                names[link].add(name)
    parts, visited = list[set[str]](), set[str]()
    for first in links:
        part, ahead = set[str](), {first} - visited
        while ahead:
            part |= ahead
            ahead = {
                name for each in ahead for link in links[each] for name in names.pop(link, ())
            } - part
        parts += [part] if part else []
        visited |= part
    return parts


def _restrict(wiring: _Jobs, part: Set[str]) -> _Jobs:
    return {name: job for name, job in wiring.items() if name in part}


# -- the first stage ----------------------------------------------------------------------


def describe_first(
    revision: Revision,
    wanted: CompositionDescription,
    artifacts: Mapping[str, str],
    jobs: Set[str],
) -> tuple[CompositionDescription, Mapping[str, str]]:
    """What the first stage makes true: these `jobs` as they are in the revision, all others as they
    are wanted; with the SHA-256 of the artifacts by `job_path`. Readers outside speck are there if
    they are in one of the two."""
    deployed = revision.description
    back = [job for job in deployed.jobs if job.job_name in jobs]
    rest = [_name_artifact(job, artifacts) for job in wanted.jobs if job.job_name not in jobs]
    known = {each.client_id for each in deployed.outputs}
    more = [each for each in wanted.outputs if each.client_id not in known]
    inputs = tuple(dict.fromkeys((*deployed.inputs, *wanted.inputs)))
    description = replace(
        wanted, jobs=(*back, *rest), inputs=inputs, outputs=(*deployed.outputs, *more)
    )
    return description, revision.artifacts


def _name_artifact(job: JobDescription, artifacts: Mapping[str, str]) -> JobDescription:
    """The job with its artifact's content instead of a path, which may have had another one."""
    sha256 = artifacts.get(job.job_path)
    return replace(job, job_path=f"{ARTIFACT}{sha256}") if sha256 else job


def revert_first(back: Plan, ahead: Plan, reverting: Reverting, idle: Set[str]) -> Plan:
    """The plan of the first stage, with what the plan `ahead` says of the jobs as they are wanted.
    Of the queues that the latter would drop those remain whose readers, by client id, are `idle` in
    the first stage, too."""
    later = [queue for queue in ahead.queues if queue.client_id in idle]
    return replace(
        back,
        jobs=ahead.jobs,
        queues=tuple(dict.fromkeys((*back.queues, *later))),
        gate=Gate(failed_too=ahead.drain_limit_s is not None),
        reverts_to=reverting.revision,
        reverting=reverting.jobs,
    )


def list_idle(composition: Composition, installation: str) -> Set[str]:
    """The client ids of the readers that take nothing while a composition is as described: jobs
    that are stopped, and those outside speck."""
    jobs = [each for each in composition.jobs if each.state is not DesiredState.RUNNING]
    ids = {source_client_id(installation, each.job_name, each.source) for each in jobs}
    return ids | {reader.client_id for reader in composition.readers}


def warn_of_new_beginnings(
    revision: Revision, wanted: CompositionDescription, there: Set[str]
) -> list[str]:
    """The warning about jobs that are `there`, and are wanted, but are not in the revision that is
    brought back first."""
    names = {job.job_name for job in wanted.jobs} & there
    names -= {job.job_name for job in revision.description.jobs}
    if not names:
        return []
    return [
        f"{', '.join(sorted(names))} will start again without the state of now: the deployed"
        " revision is brought back first, and is without them"
    ]


def describe_no_way_back(revision: int, why: SpeckError | str) -> str:
    """The warning about a revision that is not brought back first, though it should be."""
    reason = "others use its names or its readers by now" if isinstance(why, ConflictError) else why
    return (
        f"revision {revision} is not brought back first, though the change before this one ended"
        f" early: records may be lost or come twice ({reason})"
    )
