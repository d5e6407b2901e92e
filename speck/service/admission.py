"""What an apply is checked for before it is accepted: whose jobs they are, and how many go."""

from __future__ import annotations

from collections.abc import Iterable

from speck.deploy.changes import Changes
from speck.errors import ConflictError
from speck.model.composition import CompositionDescription
from speck.service.jobs import Jobs
from speck.store.records import Records, scope_of
from speck.store.tables import Batch


class Owners:
    """Which jobs belong to whom, and how jobs posted alone come to a composition."""

    def __init__(self, records: Records, jobs: Jobs, changes: Changes):
        self._records = records
        self._jobs = jobs
        self._changes = changes

    def refuse_others(self, description: CompositionDescription, *, adopt: bool) -> None:
        """Raises ConflictError for a job that belongs elsewhere; with `adopt` one that was
        posted alone may be taken in."""
        for job in description.jobs:
            owner = self._jobs.owner(job.job_name)
            if owner is not None and owner != description.name:
                raise ConflictError(
                    f"cannot apply composition {description.name!r}: composition {owner!r}"
                    f" owns job {job.job_name!r}; choose another name"
                )
            alone = self._records.alone_jobs.get(job.job_name) is not None
            if alone and not adopt:
                raise ConflictError(
                    f"cannot apply composition {description.name!r}: job {job.job_name!r} was"
                    " posted alone; apply with ?adopt=true to take it in"
                )

    def alone(self, description: CompositionDescription) -> dict[str, str]:
        """Jobs of the description that were posted alone (`refuse_others` let them pass), with
        the newest change of each."""
        found = {}
        for job in description.jobs:
            record = self._records.alone_jobs.get(job.job_name)
            if record is None:
                continue
            busy = self._changes.under_way(scope_of(None, job.job_name))
            if busy is not None:
                raise ConflictError(
                    f"cannot adopt job {job.job_name!r}: it is being changed", change=busy.change.id
                )
            found[job.job_name] = record["last_change"]
        return found

    def take_in(self, name: str, adopted: Iterable[str]) -> Batch:
        """Takes jobs posted alone into the composition's scope as they run."""
        batch: Batch = {}
        for job_name in adopted:
            scope = scope_of(None, job_name)
            inventory = self._records.inventory(scope)
            batch[self._records.alone_jobs.key(job_name)] = None
            for deployed in inventory.jobs.values():
                batch |= self._records.drop_deployed(scope, job_name)
                batch |= self._records.put_incarnation(name, deployed)
            used = max(self._records.attempts(s, job_name) for s in (scope, name))
            batch |= self._records.put_attempts(name, job_name, used)
            for session in inventory.sessions:
                batch |= self._records.drop_session(scope, session.client_id, session.site)
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
