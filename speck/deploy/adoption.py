"""Moves jobs posted alone into a composition without restarting them."""

from __future__ import annotations

from collections.abc import Iterable

from speck.deploy.change_intent import DELETED_HEAD
from speck.model.composition import composition_of_one
from speck.store.records import Records
from speck.store.tables import Batch


def take_in(records: Records, name: str, job_names: Iterable[str]) -> Batch:
    """Prepare the writes that move jobs posted alone into the composition."""
    batch: Batch = {}
    for job_name in job_names:
        alone = composition_of_one(job_name)
        inventory = records.inventory(alone)
        head = records.heads.get(alone)
        assert head is not None
        batch[records.heads.key(alone)] = {**head, **DELETED_HEAD}
        batch |= records.revisions.drop(alone, head["revision"])
        batch |= records.drop_links(alone)
        for incarnation in inventory.jobs.values():
            batch |= records.drop_incarnation(alone, job_name)
            batch |= records.put_incarnation(name, incarnation)
        attempt = max(records.attempts(s, job_name) for s in (alone, name))
        batch |= records.put_attempts(name, job_name, attempt)
        for session in inventory.sessions:
            batch |= records.drop_session(alone, session.client_id, session.site)
            batch |= records.put_session(name, session)
    return batch
