"""Generations of a store: a restore begins a new one, so that nothing is started under an id that
was used after the backup."""

from __future__ import annotations

from datetime import UTC, datetime

from speck.clock import rfc3339
from speck.model.change import ChangeState
from speck.model.values import JsonObject
from speck.store.tables import INSTALLATION, RESTORED, is_change

_ORIGIN = datetime(2020, 1, 1, tzinfo=UTC)
_CUT_SHORT = "the store was restored from a backup that was taken while this change ran"


def begin_generation(records: dict[str, JsonObject], now: datetime) -> None:
    """Turn the records of a backup into those of the store that is restored from it.

    The generation is the time of the restore in milliseconds since 2020, and higher than that of
    the backup: two restores of one backup have different ones, though neither knows the other. The
    service starts as `restored`. Changes that were under way are cancelled, since their operations
    may have taken place or not.
    """
    installation = records[INSTALLATION]
    generation = max(installation["generation"] + 1, int((now - _ORIGIN).total_seconds() * 1000))
    records[INSTALLATION] = {**installation, "generation": generation}
    records[RESTORED] = {"at": rfc3339(now)}
    for key, record in records.items():
        if is_change(key) and not ChangeState(record["state"]).over:
            ended = {"state": str(ChangeState.CANCELLED), "ended": rfc3339(now)}
            records[key] = {**record, **ended, "error": _CUT_SHORT}
