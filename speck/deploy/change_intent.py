"""The purpose of a change, read from the store: a restart cannot lose it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from speck.errors import NotFoundError
from speck.model.change import Cause, Change, ChangeState
from speck.model.composition import CompositionDescription, Head, job_posted_alone, title
from speck.store.records import Records
from speck.store.tables import Batch


def read_desired_state(
    change: Change, records: Records
) -> tuple[CompositionDescription, Mapping[str, str]]:
    """The description that a change was accepted for, with its artifacts' SHA-256 by `job_path`.

    Raises NotFoundError when it is not stored any more.
    """
    revision = records.compositions.revision(change.composition, change.revision or 0)
    if revision is None:
        what = f"revision {change.revision} of {title(change.composition)}"
        raise NotFoundError(f"cannot go on with change {change.id}: {what} is gone")
    return revision.description, revision.artifacts


def put_result(change: Change, records: Records) -> Batch:
    """The writes that belong to the end of a change."""
    if change.state is not ChangeState.DONE or change.leave:
        return {}
    name, compositions = change.composition, records.compositions
    head = compositions.last_head(name)
    assert head is not None
    if change.cause is Cause.REMOVE:
        return put_removal(records, head)
    revision = compositions.revision(name, change.revision or 0)
    assert revision is not None
    names = {job.job_name for job in revision.description.jobs}
    return {
        **compositions.put_head(replace(head, deployed_revision=change.revision)),
        **_drop_owners(name, names, records),
        **compositions.settle_links(name),
    }


def put_removal(records: Records, head: Head) -> Batch:
    """The writes by which a composition, or a job posted alone, is removed; `head` is its own."""
    batch = {
        **records.compositions.put_head(head.as_deleted()),
        **_drop_owners(head.name, set(), records),
        **records.compositions.drop_links(head.name),
    }
    if job_posted_alone(head.name) is not None:  # its revision cannot be requested any more
        batch |= records.compositions.drop_revision(head)
    return batch


def _drop_owners(name: str, names: set[str], records: Records) -> Batch:
    """Give up the names of removed jobs. Only once they have ended: while an old incarnation runs,
    another job of that name would take over its session."""
    alone = job_posted_alone(name)
    if alone is not None:
        owners = [(alone, records.compositions.owner(alone))]
    else:
        owners = list(records.compositions.owners())
    return records.compositions.drop_owner(
        job_name for job_name, owner in owners if owner == name and job_name not in names
    )
