"""The tables of the store, each with records of one type; only this module knows the form of keys.

The repositories (`speck.store.compositions` and its like) hold them and answer the queries.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar

import orjson

from speck.model.bounded_cache import BoundedCache
from speck.model.values import JsonObject
from speck.store.codec import read_record
from speck.store.leveldb import Store

Batch = dict[str, object | None]
"""The records of one atomic write by key, as dataclasses; None deletes."""

R = TypeVar("R")
Listener = Callable[[str, R | None], None]
"""What is called with the id and the record of each write; None: it was deleted."""


INSTALLATION = "meta/installation"
"""The key of the record that a new store is created with."""

RESTORED = "meta/restored"
"""The key of the record that a restored or copied store has until its state has been adopted."""

AUDIT = "meta/audit"
"""The key of the record of the audit log's newest line, and of the key of its codes. No backup
holds it."""

LOCATION = "meta/location"
"""The key of the record of where the store was served last."""

CHANGES = "change/"
"""The beginning of the keys of the heads of changes."""


DECODED_BYTES = 4 << 20
"""Of all tables, the records that were read last are kept up to this size, counted as they are
stored. Their objects take some eight times as much."""

Decode = Callable[[str, bytes, type[Any]], Any]
"""(key, what is stored there, the record's type) -> the record."""

Decoded = BoundedCache[tuple[str, bytes], Any]
"""Records by their keys and the bytes they are stored as: while these stay the same, so does the
record, which nobody changes. To decode one takes ten times as long as to read its bytes."""


def is_change(key: str) -> bool:
    """Whether the record at a key is the head of a change."""
    return key.startswith(CHANGES)


def _decode(key: str, stored: bytes, record: type[R]) -> R:
    return read_record(key, orjson.loads(stored), record)


class Table(Generic[R]):
    """The records of one noun, of type `record`. An id has one or more parts; numbers are padded to
    `digits`, so that keys sort in numeric order. Made by `Tables`."""

    def __init__(
        self,
        store: Store,
        noun: str,
        record: type[R],
        digits: int = 0,
        decode: Decode = _decode,
    ):
        self._store = store
        self.noun = noun
        """What all its keys begin with."""
        self._digits = digits
        self._record = record
        self._decode = decode

    def key(self, *identity: str | int) -> str:
        """The key of a record in a batch."""
        parts = (f"{part:0{self._digits}d}" if isinstance(part, int) else part for part in identity)
        return "/".join((self.noun, *parts))

    def id_of(self, key: str) -> str | None:
        """The id in a key; None if the key does not belong to this table."""
        noun, _, identity = key.partition("/")
        return identity if noun == self.noun else None

    def get(self, *identity: str | int) -> R | None:
        """The record, if there is one."""
        key = self.key(*identity)
        stored = self._store.get_bytes(key)
        return None if stored is None else self._read(key, stored)

    def has(self, *identity: str | int) -> bool:
        """Whether there is a record."""
        return self._store.get_bytes(self.key(*identity)) is not None

    def put(self, record: R, *identity: str | int) -> Batch:
        """The batch that stores a record."""
        return {self.key(*identity): record}

    def drop(self, *identity: str | int) -> Batch:
        """The batch that deletes a record."""
        return {self.key(*identity): None}

    def items(
        self, *first: str | int, starting: str = "", after: str | int | None = None
    ) -> Iterator[tuple[str, R]]:
        """(rest of the id, record) of the records whose id begins with the parts `first`, in order
        of the id; only those whose rest starts with `starting`, or sorts after `after`."""
        prefix = self.key(*first, "")
        for key, stored in self._scan(first, starting, after):
            yield key.removeprefix(prefix), self._read(key, stored)

    def scan(
        self, *first: str | int, starting: str = "", after: str | int | None = None
    ) -> Iterator[tuple[str, JsonObject]]:
        """Like `items`, with the records as they are stored, for those who need one field of large
        ones."""
        prefix = self.key(*first, "")
        for key, stored in self._scan(first, starting, after):
            yield key.removeprefix(prefix), orjson.loads(stored)

    def _read(self, key: str, stored: bytes) -> R:
        record: R = self._decode(key, stored, self._record)
        return record

    def _scan(
        self, first: tuple[str | int, ...], starting: str, after: str | int | None
    ) -> Iterator[tuple[str, bytes]]:
        last = "" if after is None else self.key(*first, after)
        return self._store.scan_bytes(self.key(*first, starting), after=last)

    def values(self, *first: str | int) -> Iterator[R]:
        """The records whose id begins with the parts `first`, in order of the id."""
        return (record for _, record in self.items(*first))

    def last_id(self) -> str | None:
        """The highest id."""
        last = self._store.last(f"{self.noun}/")
        return None if last is None else last[0].removeprefix(f"{self.noun}/")


class KeptTable(Table[R]):
    """A table that is kept in memory, too, since nearly every request and poll reads it. One thread
    at a time writes (`keep`), any reads."""

    def __init__(self, store: Store, noun: str, record: type[R]):
        super().__init__(store, noun, record)
        self._kept = dict(super().items())
        self.writes = 0
        """A number that changes whenever a record does."""
        self._sorted: tuple[int, Sequence[str]] = (-1, ())

    def keep(self, identity: str, record: R | None) -> None:
        """Keep the record that is stored now; None: it was deleted."""
        if record is None:
            self._kept.pop(identity, None)
        else:
            self._kept[identity] = record
        self.writes += 1

    def get(self, *identity: str | int) -> R | None:
        return self._kept.get("/".join(map(str, identity)))

    def has(self, *identity: str | int) -> bool:
        return "/".join(map(str, identity)) in self._kept

    def items(
        self, *first: str | int, starting: str = "", after: str | int | None = None
    ) -> Iterator[tuple[str, R]]:
        parts = tuple(map(str, first))
        before = "/".join((*parts, ""))
        identities = self._identities()
        begin = bisect_left(identities, before + starting)
        if after is not None:
            begin = max(begin, bisect_right(identities, "/".join((*parts, str(after)))))
        for identity in identities[begin:]:
            if not identity.startswith(before + starting):
                return
            record = self._kept.get(identity)
            if record is not None:
                yield identity.removeprefix(before), record

    def _identities(self) -> Sequence[str]:
        """All, in order."""
        writes, identities = self._sorted
        if writes != (now := self.writes):
            identities = sorted(self._kept.copy())
            self._sorted = now, identities
        return identities


class Tables:
    """Makes the tables of a store, and keeps those informed that keep something in memory.

    A scope, the first part of many ids, is a composition, or `~<job>` for a job posted alone."""

    def __init__(self, store: Store):
        self._store = store
        self._decoded: Decoded = BoundedCache(DECODED_BYTES, lambda key, _: len(key[1]))
        self._listeners: dict[str, Listener[Any]] = {}
        self.types: dict[str, type[object]] = {}
        """The type of the records of each table, by noun."""

    def table(
        self, noun: str, record: type[R], *, digits: int = 0, on_write: Listener[R] | None = None
    ) -> Table[R]:
        """A table; `on_write` learns of each record, those that are there first."""
        self.types[noun] = record
        table = Table(self._store, noun, record, digits, self._decode)
        if on_write is not None:
            for identity, each in table.items():
                on_write(identity, each)
            self.inform(noun, on_write)
        return table

    def kept(self, noun: str, record: type[R]) -> KeptTable[R]:
        """A table that is kept in memory, too."""
        self.types[noun] = record
        table = KeptTable(self._store, noun, record)
        self.inform(noun, table.keep)
        return table

    def _decode(self, key: str, stored: bytes, record: type[R]) -> R:
        remembered: R = self._decoded.get((key, stored), lambda: _decode(key, stored, record))
        return remembered

    def inform(self, noun: str, listener: Listener[R]) -> None:
        """Have `listener` called with each write to the table of this noun."""
        self._listeners[noun] = listener

    def announce(self, batch: Mapping[str, object | None]) -> None:
        """Tell those that listen what is stored now."""
        for key, record in batch.items():
            noun, _, identity = key.partition("/")
            listener = self._listeners.get(noun)
            if listener is not None:
                listener(identity, record)
