"""The purpose of a change, read from the store: a restart cannot lose it."""

from __future__ import annotations

from collections.abc import Mapping

from speck.errors import NotFoundError
from speck.model.change import Cause, Change, ChangeState
from speck.model.composition import CompositionDescription, job_posted_alone, title
from speck.model.values import JsonObject
from speck.spec.schema import composition_as_stored
from speck.store.records import Records
from speck.store.tables import Batch

DELETED_HEAD = {"deleted": True, "removing": False, "deployed_revision": None, "jobs": 0}
"""The fields of a composition's head once all of it has been removed."""


def read_desired_state(
    change: Change, records: Records
) -> tuple[CompositionDescription, Mapping[str, str] | None]:
    """The description that a change was accepted for, with its jars' SHA-256 by `job_path`.

    Raises NotFoundError when it is not stored any more.
    """
    record = records.revisions.get(change.composition, change.revision or 0)
    if record is None:
        what = f"revision {change.revision} of {title(change.composition)}"
        raise NotFoundError(f"cannot go on with change {change.id}: {what} is gone")
    return composition_as_stored(record["description"]), record.get("jars")


def put_result(change: Change, records: Records) -> Batch:
    """The writes that belong to the end of a change."""
    if change.state is not ChangeState.DONE or change.leave:
        return {}
    name = change.composition
    head = records.heads.get(name)
    assert head is not None
    if change.cause is Cause.REMOVE:
        return put_removal(records, head)
    revision = records.revisions.get(name, change.revision or 0)
    assert revision is not None
    names = {job["job_name"] for job in revision["description"]["jobs"]}
    new_head = {**head, "deployed_revision": change.revision}
    return {
        records.heads.key(name): new_head,
        **_drop_owners(name, names, records),
        **records.settle_links(name),
    }


def put_removal(records: Records, head: JsonObject) -> Batch:
    """The writes by which a composition, or a job posted alone, is removed; `head` is its own."""
    name = head["name"]
    batch = {
        records.heads.key(name): {**head, **DELETED_HEAD},
        **_drop_owners(name, set(), records),
        **records.drop_links(name),
    }
    if job_posted_alone(name) is not None:  # its revision cannot be requested any more
        batch |= records.revisions.drop(name, head["revision"])
    return batch


def _drop_owners(name: str, names: set[str], records: Records) -> Batch:
    """Give up the names of removed jobs. Only once they have ended: while an old incarnation runs,
    another job of that name would take over its session."""
    alone = job_posted_alone(name)
    owners = (
        records.owners.items() if alone is None else _list_record(records.owners.get(alone), alone)
    )
    return {
        records.owners.key(job_name): None
        for job_name, record in owners
        if record["composition"] == name and job_name not in names
    }


def _list_record(record: JsonObject | None, job_name: str) -> list[tuple[str, JsonObject]]:
    return [(job_name, record)] if record else []
