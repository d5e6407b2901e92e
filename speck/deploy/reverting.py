"""Brings back what ran before a change that ended early, where the next one wants something else.

A change that ended early leaves jobs of two wirings: the one that was deployed, and its own. The
planner goes on from there to either of them. To a third wiring it first goes back: the first stage
of such a change reverts the composition to its deployed revision, and behind the gate its own
wiring follows.
"""

from __future__ import annotations

from collections.abc import Hashable, Set
from dataclasses import replace

from speck.model.change import Cause
from speck.model.composition import Composition, CompositionDescription
from speck.model.ids import source_client_id
from speck.model.job import DesiredState
from speck.model.plan import Gate, Plan
from speck.store.records import Records


def find_base(description: CompositionDescription, records: Records) -> int | None:
    """The revision to which a composition is reverted before a description of it is made true; None
    if what is there is that revision, or may be turned into what is described directly."""
    head = records.compositions.last_head(description.name)
    if head is None or head.deleted or head.deployed_revision is None:
        return None
    last = records.changes.head(head.last_change)
    deployed = records.compositions.revision(head.name, head.deployed_revision)
    begun = records.compositions.revision(head.name, head.revision)
    if last is None or deployed is None or begun is None:
        return None
    is_removal = last.cause is Cause.REMOVE
    if head.deployed_revision == head.revision and not is_removal:
        return None
    wanted = _list_links(description)
    if wanted == _list_links(deployed.description):
        return None
    if not is_removal and last.reverts_to is None and wanted == _list_links(begun.description):
        return None
    return head.deployed_revision


def _list_links(description: CompositionDescription) -> Set[Hashable]:
    """The jobs of a description with their links, and whether they are to run; and its outputs."""
    jobs = {
        (
            job.job_name,
            (job.source_site, job.source_broker, job.source_topic),
            (job.sink_site, job.sink_broker, job.sink_topic),
            job.state,
        )
        for job in description.jobs
    }
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
