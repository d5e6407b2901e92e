"""Retention: which old records are deleted when a newer one of their kind is written.

The store is scanned once, when it is opened; a write scans nothing.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from itertools import takewhile

from speck.clock import Clock
from speck.model.change import ChangeHead
from speck.model.event import Event
from speck.store.answers import AnswerRecords, FirstAnswer
from speck.store.changes import ChangeRecords
from speck.store.events import EventRecords
from speck.store.tables import Batch

EVENTS = 10_000
"""The number of events that are kept."""
CHANGES_OF_A_SCOPE = 200
"""The number of changes that are kept for one composition, or one job posted alone."""
CHANGES = 10_000
"""The number of changes that are kept in all."""
ANSWERS = timedelta(days=1)
"""How long the answer to an Idempotency-Key is kept."""


def is_expired(at: str, now: datetime) -> bool:
    """Whether an answer to an Idempotency-Key, of the time `at`, is too old to be repeated, or so
    far in the future that the clock must have been wrong when it was stored."""
    return abs(now - datetime.fromisoformat(at)) > ANSWERS


class Retention:
    """Determines which records a write makes superfluous. Not thread-safe: use it serially."""

    def __init__(
        self, changes: ChangeRecords, events: EventRecords, answers: AnswerRecords, clock: Clock
    ):
        self._stored_changes = changes
        self._events = events
        self._stored_answers = answers
        self._clock = clock
        self._scope_of: OrderedDict[str, str] = OrderedDict()  # change id -> scope, oldest first
        self._changes: defaultdict[str, deque[str]] = defaultdict(deque)
        for head in changes.heads():
            self._note_change(head)
        # identity of an answer -> when it was given, oldest first
        self._answers = dict(sorted(answers.times(), key=lambda item: item[1]))

    def find_superfluous(self, batch: Mapping[str, object | None]) -> Batch:
        """The deletions to be written together with `batch`."""
        superfluous: Batch = {}
        for key, record in batch.items():
            if isinstance(record, Event):
                superfluous |= self._events.drop(record.id - EVENTS)
            elif isinstance(record, FirstAnswer):
                self._answers[self._stored_answers.id_of(key)] = record.at
                for identity in self._list_expired_answers():
                    superfluous |= self._stored_answers.drop(identity)
            elif isinstance(record, ChangeHead):
                superfluous |= self._changes_before(record, batch)
        return {key: None for key in superfluous if key not in batch}

    def _changes_before(self, head: ChangeHead, batch: Mapping[str, object | None]) -> Batch:
        if not self._note_change(head):
            return {}
        superfluous: Batch = {}
        changes = self._changes[head.scope]
        while len(changes) > CHANGES_OF_A_SCOPE:
            superfluous |= self._drop(changes[0])
        if len(self._scope_of) > CHANGES:
            oldest = next((i for i in self._scope_of if self._is_over(i, batch)), None)
            superfluous |= self._drop(oldest) if oldest is not None else {}
        return superfluous

    def _note_change(self, head: ChangeHead) -> bool:
        """Record a change; returns whether it is new, rather than one whose state has changed."""
        if head.id in self._scope_of:
            return False
        self._scope_of[head.id] = head.scope
        self._changes[head.scope].append(head.id)
        return True

    def _drop(self, identity: str) -> Batch:
        scope = self._scope_of.pop(identity)
        self._changes[scope].remove(identity)
        if not self._changes[scope]:
            del self._changes[scope]
        return self._stored_changes.drop(identity)

    def _is_over(self, identity: str, batch: Mapping[str, object | None]) -> bool:
        """Whether a change has ended. Others are kept, though a blocked one may be the oldest."""
        written = batch.get(self._stored_changes.key(identity))
        head = written if isinstance(written, ChangeHead) else self._stored_changes.head(identity)
        return head is None or head.state.over

    def _list_expired_answers(self) -> Iterator[str]:
        now = self._clock.now()
        expired = takewhile(lambda item: is_expired(item[1], now), self._answers.items())
        for identity in [identity for identity, _ in expired]:  # oldest first
            del self._answers[identity]
            yield identity
