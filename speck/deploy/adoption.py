"""Moves jobs posted alone into a composition without restarting them."""

from __future__ import annotations

from collections.abc import Iterable

from speck.model.composition import composition_of_one
from speck.model.incarnation import Inventory
from speck.store.records import Records
from speck.store.tables import Batch


def list_sessions(records: Records, job_names: Iterable[str]) -> list[str]:
    """The sessions, by client id, of jobs posted alone."""
    scopes = map(composition_of_one, job_names)
    return [each.client_id for scope in scopes for each in records.sessions.of_scope(scope)]


def take_in(records: Records, name: str, job_names: Iterable[str]) -> Batch:
    """Prepare the writes that move jobs posted alone into the composition. Nobody else writes the
    records of their sessions meanwhile."""
    batch: Batch = {}
    for job_name in job_names:
        alone = composition_of_one(job_name)
        inventory = records.inventory(alone)
        head = records.compositions.last_head(alone)
        assert head is not None
        batch |= records.compositions.put_head(head.as_deleted())
        batch |= records.compositions.drop_revision(head)
        batch |= records.compositions.drop_links(alone)
        for incarnation in inventory.jobs.values():
            batch |= records.incarnations.drop(alone, job_name)
            batch |= records.incarnations.put(name, incarnation)
        attempt = max(records.incarnations.attempts(s, job_name) for s in (alone, name))
        batch |= records.incarnations.put_attempts(name, job_name, attempt)
        for session in inventory.sessions:
            batch |= records.sessions.drop(alone, session.client_id, session.site)
            batch |= records.sessions.put(name, session)
    return batch


def read_inventory(records: Records, scope: str, adopted_jobs: Iterable[str]) -> Inventory:
    """What is deployed of a scope, with jobs posted alone that it takes in."""
    own = records.inventory(scope)
    for job_name in adopted_jobs:
        alone = records.inventory(composition_of_one(job_name))
        numbers = [i.attempts[job_name] for i in (own, alone) if job_name in i.attempts]
        attempts = {job_name: max(numbers)} if numbers else {}
        own = Inventory(
            {**own.jobs, **alone.jobs},
            (*own.sessions, *alone.sessions),
            {**own.attempts, **attempts},
            own.generation,
        )
    return own
