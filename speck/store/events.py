"""Events in the store, numbered in the order in which they become readable."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

from speck.clock import Clock, rfc3339
from speck.model.event import Event
from speck.store.tables import Batch, Tables

_UNNUMBERED = "event?"


class EventRecords:
    """All events. `event/<number>`."""

    def __init__(self, tables: Tables, clock: Clock):
        self._events = tables.table("event", Event, digits=12)
        self._clock = clock
        last = self._events.last_id()
        self._next = int(last) + 1 if last else 1
        self._marks = itertools.count()

    def make(
        self,
        kind: str,
        message: str,
        *,
        site: str | None = None,
        job_name: str | None = None,
        composition: str | None = None,
        change: str | None = None,
        by: str | None = None,
    ) -> Batch:
        """An event, to be written in one batch with what it reports."""
        now = rfc3339(self._clock.now())
        event = Event(0, now, kind, message, site, job_name, composition, change, by)
        return {f"{_UNNUMBERED}{next(self._marks)}": event}

    def after(self, number: int = 0) -> Iterator[Event]:
        """Events with a greater number, oldest first."""
        return (event for _, event in self._events.items(after=number))

    def number(self, batch: Batch) -> Batch:
        """The batch with its new events numbered, in their order: a client that has read event n
        never finds a lower one later. One thread at a time; `confirm` follows its write."""
        numbered: Batch = {}
        number = self._next
        for key, record in batch.items():
            if key.startswith(_UNNUMBERED) and isinstance(record, Event):
                numbered[self._events.key(number)] = replace(record, id=number)
                number += 1
            else:
                numbered[key] = record
        return numbered

    def confirm(self, batch: Batch) -> None:
        """A batch with numbered events has been written."""
        self._next += sum(self._events.id_of(key) is not None for key in batch)

    def drop(self, number: int) -> Batch:
        """Delete an event, if it has a valid number."""
        return self._events.drop(number) if number > 0 else {}
