"""Generations of a store: a restore or a copy begins a new one, so that nothing is started under an
id that was used after the backup, or is used by the original."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from types import MappingProxyType

from speck.clock import rfc3339
from speck.model.change import ChangeHead, ChangeState
from speck.model.values import JsonObject
from speck.store.codec import read_record, to_json
from speck.store.installation import Installation, RestoredState
from speck.store.leveldb import Store
from speck.store.location import StoreLocation
from speck.store.tables import CHANGES, INSTALLATION, LOCATION, RESTORED, is_change

_ORIGIN = datetime(2020, 1, 1, tzinfo=UTC)
FROM_BACKUP = "it was restored from a backup"


def begin_generation(
    records: dict[str, JsonObject], now: datetime, reason: str = FROM_BACKUP
) -> None:
    """Turn the records of a backup, or of a copied store, into those of a store of its own.

    The generation is the time in milliseconds since 2020, and higher than that of the backup: two
    restores of one backup have different ones, though neither knows the other. The service starts
    as `restored`, for this `reason`. Changes that were under way are cancelled, since their
    operations may have taken place or not.
    """
    installation = read_record(INSTALLATION, records[INSTALLATION], Installation)
    generation = max(installation.generation + 1, int((now - _ORIGIN).total_seconds() * 1000))
    records[INSTALLATION] = to_json(replace(installation, generation=generation))
    records[RESTORED] = to_json(RestoredState(rfc3339(now), reason))
    records.pop(LOCATION, None)
    for key, record in records.items():
        if not is_change(key):
            continue
        head = read_record(key, record, ChangeHead)
        if not head.state.over:
            error = f"this change was under way at another location of the store: {reason}"
            cancelled = replace(head, state=ChangeState.CANCELLED, ended=rfc3339(now), error=error)
            records[key] = to_json(cancelled)


def take_location(store: Store, location: StoreLocation, now: datetime) -> None:
    """Store where a store is served now; begin a new generation if it is a copy of another."""
    stored = store.get(LOCATION)
    last = None if stored is None else read_record(LOCATION, stored, StoreLocation)
    here = {LOCATION: to_json(location)}
    reason = location.find_copy(last)
    if reason is not None:
        renew_store(store, now, reason, here)
    elif location != last:
        store.write(here)


def renew_store(
    store: Store, now: datetime, reason: str, more: Mapping[str, JsonObject] = MappingProxyType({})
) -> None:
    """Begin a new generation of an open store, and write `more` with it."""
    records = dict(store.scan(CHANGES))
    installation = store.get(INSTALLATION)
    assert installation is not None
    records[INSTALLATION] = installation
    begin_generation(records, now, reason)
    store.write({**records, **more})
