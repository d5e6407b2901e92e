"""What a change is for, as a function of what is stored: so a restart cannot lose it."""

from __future__ import annotations

from collections.abc import Mapping

from speck.errors import NotFoundError
from speck.model.change import Cause, Change, ChangeState
from speck.model.composition import CompositionDescription, job_posted_alone, title
from speck.model.values import JsonObject
from speck.spec.schema import composition_as_stored
from speck.store.records import Records
from speck.store.tables import Batch

GONE = {"deleted": True, "removing": False, "deployed_revision": None, "jobs": 0}
"""What the head of a composition says once nothing of it is left."""


def wanted_by(
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


def left_by(change: Change, records: Records) -> Batch:
    """What to store together with the end of a change."""
    if change.state is not ChangeState.DONE or change.leave:
        return {}
    name = change.composition
    head = records.heads.get(name)
    assert head is not None
    if change.cause is Cause.REMOVE:
        gone = {records.heads.key(name): {**head, **GONE}, **_disowned(name, set(), records)}
        if job_posted_alone(name) is not None:  # nobody can ask for its revision any more
            gone |= records.revisions.drop(name, head["revision"])
        return gone
    revision = records.revisions.get(name, change.revision or 0)
    assert revision is not None
    names = {job["job_name"] for job in revision["description"]["jobs"]}
    deployed = {**head, "deployed_revision": change.revision}
    return {records.heads.key(name): deployed, **_disowned(name, names, records)}


def _disowned(name: str, kept: set[str], records: Records) -> Batch:
    """Gives up the names of jobs that are gone for good. Not earlier: while an old incarnation
    runs, another of that name would take its session."""
    alone = job_posted_alone(name)
    owned = records.owners.items() if alone is None else _one(records.owners.get(alone), alone)
    return {
        records.owners.key(job_name): None
        for job_name, record in owned
        if record["composition"] == name and job_name not in kept
    }


def _one(record: JsonObject | None, job_name: str) -> list[tuple[str, JsonObject]]:
    return [(job_name, record)] if record else []
