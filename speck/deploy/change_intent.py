"""What a change is for, as a function of what is stored: so a restart cannot lose it."""

from __future__ import annotations

from collections.abc import Mapping

from speck.errors import NotFoundError
from speck.model.change import Cause, Change, ChangeState
from speck.model.composition import CompositionDescription
from speck.spec.schema import composition_from_data, job_from_data
from speck.store.records import Records
from speck.store.tables import Batch


def wanted_by(
    change: Change, records: Records
) -> tuple[CompositionDescription, Mapping[str, str] | None]:
    """The description that a change was accepted for, with its jars' SHA-256 by `job_path`.

    Raises NotFoundError when it is not stored any more.
    """
    if change.composition is not None:
        what = f"revision {change.revision} of composition {change.composition}"
        record = records.revisions.get(change.composition, change.revision or 0)
    else:
        what = f"job {change.job_name}"
        record = records.alone_jobs.get(change.job_name or "")
    if record is None:
        raise NotFoundError(f"cannot go on with change {change.id}: {what} is gone")
    if change.composition is not None:
        return composition_from_data(record["description"]), record.get("jars")
    job = job_from_data(record["description"])
    alone = CompositionDescription(name=job.job_name, jobs=(job,))
    return alone, {job.job_path: record["jar"]}


def left_by(change: Change, records: Records) -> Batch:
    """What to store together with the end of a change."""
    if change.state is not ChangeState.DONE or change.leave:
        return {}
    name = change.composition
    if name is None:
        removed = change.cause is Cause.REMOVE
        return records.alone_jobs.drop(change.job_name or "") if removed else {}
    head = records.heads.get(name)
    assert head is not None
    if change.cause is Cause.REMOVE:
        gone = {"deleted": True, "removing": False, "deployed_revision": None, "jobs": 0}
        return {records.heads.key(name): {**head, **gone}, **_disowned(name, set(), records)}
    revision = records.revisions.get(name, change.revision or 0)
    assert revision is not None
    names = {job["job_name"] for job in revision["description"]["jobs"]}
    deployed = {**head, "deployed_revision": change.revision}
    return {records.heads.key(name): deployed, **_disowned(name, names, records)}


def _disowned(name: str, kept: set[str], records: Records) -> Batch:
    """Gives up the names of jobs that are gone for good. Not earlier: while an old incarnation
    runs, another of that name would take its session."""
    return {
        records.owners.key(job_name): None
        for job_name, record in records.owners.items()
        if record["composition"] == name and job_name not in kept
    }
