"""What is dropped from the store when something newer of its kind is written.

Nothing is searched for at a write: what is there is learnt once, when the store is opened.
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
"""How many events are kept."""
CHANGES_OF_A_SCOPE = 200
"""How many changes of one composition, or of one job posted alone, are kept."""
CHANGES = 10_000
"""How many changes are kept in all."""
ANSWERS = timedelta(days=1)
"""How long the answer to an Idempotency-Key is kept."""


def expired(record: JsonObject, now: datetime) -> bool:
    """Whether the answer to an Idempotency-Key is too old to be given again, or from so far in
    the future that the clock was wrong then."""
    return abs(now - datetime.fromisoformat(record["at"])) > ANSWERS


class Retention:
    """Says what a write makes superfluous. Not thread-safe: one write at a time asks."""

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

    def superfluous(self, written: Mapping[str, JsonObject | None]) -> dict[str, None]:
        """The keys to delete together with what is `written`."""
        gone: dict[str, None] = {}
        for key, record in written.items():
            if record is None:
                continue
            if self._tables.event_records.id_of(key) is not None:
                gone |= self._event(int(record["id"]) - EVENTS)
            elif (change := self._tables.change_heads.id_of(key)) is not None:
                gone |= self._changes_before(change, record, written)
            elif (answer := self._tables.answers.id_of(key)) is not None:
                self._answers[answer] = {"at": record["at"]}
                gone |= dict.fromkeys(self._expired())
        return {key: None for key in gone if key not in written}

    def _changes_before(
        self, identity: str, record: JsonObject, written: Mapping[str, JsonObject | None]
    ) -> dict[str, None]:
        if not self._note_change(identity, record):
            return {}
        gone: dict[str, None] = {}
        of_scope = self._changes[self._scope_of[str(record["id"])]]
        while len(of_scope) > CHANGES_OF_A_SCOPE:
            gone |= self._drop(of_scope[0])
        if len(self._scope_of) > CHANGES:
            oldest = next((i for i in self._scope_of if self._over(i, written)), None)
            gone |= self._drop(oldest) if oldest is not None else {}
        return gone

    def _note_change(self, identity: str, record: JsonObject) -> bool:
        """False when it is known: only its state has changed."""
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

    def _over(self, identity: str, written: Mapping[str, JsonObject | None]) -> bool:
        """One under way is kept: a blocked one may be older than all others."""
        heads = self._tables.change_heads
        record = written.get(heads.key(identity)) or heads.get(identity)
        return record is None or ChangeState(record["state"]).over

    def _expired(self) -> Iterator[str]:
        now = self._clock.now()
        aged = takewhile(lambda item: expired(item[1], now), self._answers.items())
        for identity in [identity for identity, _ in aged]:  # oldest first
            del self._answers[identity]
            yield self._tables.answers.key(identity)

    def _event(self, number: int) -> dict[str, None]:
        return {self._tables.event_records.key(number): None} if number > 0 else {}
