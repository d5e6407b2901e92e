"""Retention: which old records are deleted when a newer one of their kind is written.

The store is scanned once, when it is opened; a write scans nothing.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from itertools import takewhile

from speck.clock import Clock
from speck.model.change import ChangeState
from speck.model.composition import composition_of_one
from speck.model.values import JsonObject
from speck.store.tables import Tables

EVENTS = 10_000
"""The number of events that are kept."""
CHANGES_OF_A_SCOPE = 200
"""The number of changes that are kept for one composition, or one job posted alone."""
CHANGES = 10_000
"""The number of changes that are kept in all."""
ANSWERS = timedelta(days=1)
"""How long the answer to an Idempotency-Key is kept."""


def is_expired(record: JsonObject, now: datetime) -> bool:
    """Whether the answer to an Idempotency-Key is too old to be repeated, or so far in the future
    that the clock must have been wrong when it was stored."""
    return abs(now - datetime.fromisoformat(record["at"])) > ANSWERS


class Retention:
    """Determines which records a write makes superfluous. Not thread-safe: use it serially."""

    def __init__(self, tables: Tables, clock: Clock):
        self._tables = tables
        self._clock = clock
        self._scope_of: OrderedDict[str, str] = OrderedDict()  # change id -> scope, oldest first
        self._changes: defaultdict[str, deque[str]] = defaultdict(deque)
        self._answers: dict[str, JsonObject] = {}
        for identity, record in tables.change_heads.items():
            self._note_change(identity, record)
        answers = sorted(tables.answers.items(), key=lambda item: str(item[1]["at"]))
        self._answers.update((identity, {"at": record["at"]}) for identity, record in answers)

    def find_superfluous(self, batch: Mapping[str, JsonObject | None]) -> dict[str, None]:
        """Return the keys to delete together with the write of `batch`."""
        superfluous: dict[str, None] = {}
        for key, record in batch.items():
            if record is None:
                continue
            if self._tables.event_records.id_of(key) is not None:
                superfluous |= self._event(int(record["id"]) - EVENTS)
            elif (change := self._tables.change_heads.id_of(key)) is not None:
                superfluous |= self._changes_before(change, record, batch)
            elif (answer := self._tables.answers.id_of(key)) is not None:
                self._answers[answer] = {"at": record["at"]}
                superfluous |= dict.fromkeys(self._drop_expired_answers())
        return {key: None for key in superfluous if key not in batch}

    def _changes_before(
        self, identity: str, record: JsonObject, batch: Mapping[str, JsonObject | None]
    ) -> dict[str, None]:
        if not self._note_change(identity, record):
            return {}
        superfluous: dict[str, None] = {}
        changes = self._changes[self._scope_of[str(record["id"])]]
        while len(changes) > CHANGES_OF_A_SCOPE:
            superfluous |= self._drop(changes[0])
        if len(self._scope_of) > CHANGES:
            oldest = next((i for i in self._scope_of if self._is_over(i, batch)), None)
            superfluous |= self._drop(oldest) if oldest is not None else {}
        return superfluous

    def _note_change(self, identity: str, record: JsonObject) -> bool:
        """Record a change; returns whether it is new, rather than one whose state has changed."""
        if identity in self._scope_of:
            return False
        scope = record["composition"] or composition_of_one(record["job_name"])
        self._scope_of[identity] = scope
        self._changes[scope].append(identity)
        return True

    def _drop(self, identity: str) -> dict[str, None]:
        scope = self._scope_of.pop(identity)
        self._changes[scope].remove(identity)
        if not self._changes[scope]:
            del self._changes[scope]
        operations = self._tables.operation_records
        keys = (operations.key(identity, number) for number, _ in operations.items(identity))
        return dict.fromkeys([self._tables.change_heads.key(identity), *keys])

    def _is_over(self, identity: str, batch: Mapping[str, JsonObject | None]) -> bool:
        """Whether a change has ended. Others are kept, though a blocked one may be the oldest."""
        heads = self._tables.change_heads
        record = batch.get(heads.key(identity)) or heads.get(identity)
        return record is None or ChangeState(record["state"]).over

    def _drop_expired_answers(self) -> Iterator[str]:
        now = self._clock.now()
        expired = takewhile(lambda item: is_expired(item[1], now), self._answers.items())
        for identity in [identity for identity, _ in expired]:  # oldest first
            del self._answers[identity]
            yield self._tables.answers.key(identity)

    def _event(self, number: int) -> dict[str, None]:
        return {self._tables.event_records.key(number): None} if number > 0 else {}
