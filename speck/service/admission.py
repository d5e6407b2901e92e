"""What an apply is checked for before it is accepted: whose jobs they are, and how many go."""

from __future__ import annotations

from collections.abc import Iterable

from speck.deploy.change_intent import GONE
from speck.deploy.changes import Changes
from speck.errors import ConflictError
from speck.model.composition import (
    CompositionDescription,
    composition_of_one,
    job_posted_alone,
    title,
)
from speck.store.records import Records
from speck.store.tables import Batch


def owned(job_name: str, owner: str) -> ConflictError:
    """Refuses to change a job by itself that a composition owns."""
    return ConflictError(
        f"cannot change job {job_name!r} alone: composition {owner!r} owns it;"
        " apply a new version of that"
    )


class Owners:
    """Which jobs belong to whom, and how jobs posted alone come to a composition."""

    def __init__(self, records: Records, changes: Changes):
        self._records = records
        self._changes = changes

    def refuse_others(self, description: CompositionDescription, *, adopt: bool) -> None:
        """Raises ConflictError for a job that belongs elsewhere; with `adopt` one that was
        posted alone may be taken in."""
        for job in description.jobs:
            record = self._records.owners.get(job.job_name)
            owner = record["composition"] if record else description.name
            if owner == description.name:
                continue
            if job_posted_alone(description.name) is not None:
                raise owned(job.job_name, owner)
            refused = f"cannot apply {title(description.name)}"
            if job_posted_alone(owner) is None:
                raise ConflictError(
                    f"{refused}: composition {owner!r} owns job {job.job_name!r}; choose another"
                    " name"
                )
            if not adopt:
                raise ConflictError(
                    f"{refused}: job {job.job_name!r} was posted alone; apply with ?adopt=true to"
                    " take it in"
                )

    def posted_alone(self, description: CompositionDescription) -> dict[str, str]:
        """Jobs of the description that were posted alone (`refuse_others` let them pass), with
        the newest change of each."""
        changes = {}
        for job in description.jobs:
            alone = composition_of_one(job.job_name)
            head = self._records.heads.get(alone)
            if head is None or head.get("deleted") or alone == description.name:
                continue
            busy = self._changes.under_way(alone)
            if busy is not None:
                raise ConflictError(
                    f"cannot adopt job {job.job_name!r}: it is being changed", change=busy.change.id
                )
            changes[job.job_name] = head["last_change"]
        return changes

    def take_in(self, name: str, adopted: Iterable[str]) -> Batch:
        """Takes jobs posted alone into the composition as they run."""
        batch: Batch = {}
        for job_name in adopted:
            alone = composition_of_one(job_name)
            inventory = self._records.inventory(alone)
            head = self._records.heads.get(alone)
            assert head is not None
            batch[self._records.heads.key(alone)] = {**head, **GONE}
            batch |= self._records.revisions.drop(alone, head["revision"])
            for deployed in inventory.jobs.values():
                batch |= self._records.drop_deployed(alone, job_name)
                batch |= self._records.put_incarnation(name, deployed)
            used = max(self._records.attempts(s, job_name) for s in (alone, name))
            batch |= self._records.put_attempts(name, job_name, used)
            for session in inventory.sessions:
                batch |= self._records.drop_session(alone, session.client_id, session.site)
                batch |= self._records.put_session(name, session)
        return batch


def most_removed(description: CompositionDescription, records: Records) -> list[str]:
    """The deployed jobs that the description names no more, if they are more than half of
    the deployed ones and at least two; else none."""
    deployed = records.inventory(description.name).jobs
    removed = sorted(deployed.keys() - {job.job_name for job in description.jobs})
    return removed if len(removed) >= 2 and 2 * len(removed) > len(deployed) else []


def refuse_removing_most(name: str, removed: list[str], force: bool) -> None:
    """Raises ConflictError for what `most_removed` found, unless that is forced."""
    if removed and not force:
        raise ConflictError(
            f"cannot apply composition {name!r}: {removes(removed)}; if you mean it, apply with"
            " --force (?force=true)"
        )


def removes(removed: list[str]) -> str:
    """What an apply that removes these jobs does, in words."""
    return f"it removes more than half of the deployed jobs ({', '.join(removed)})"
