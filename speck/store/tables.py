"""Keys of the store: one table for each noun, and nobody else who knows how its keys look."""

from __future__ import annotations

from collections.abc import Iterator

from speck.model.values import JsonObject
from speck.store.leveldb import Store

Batch = dict[str, JsonObject | None]
"""What one atomic write holds; None deletes."""


INSTALLATION = "meta/installation"
"""Of the record that a store is made with."""


class Table:
    """The records of one noun. An id has one part or several; numbers have so many `digits`, so
    that they sort as numbers do."""

    def __init__(self, store: Store, noun: str, digits: int = 0):
        self._store = store
        self._noun = noun
        self._digits = digits

    def key(self, *identity: str | int) -> str:
        """The key of a record in a batch."""
        parts = (f"{part:0{self._digits}d}" if isinstance(part, int) else part for part in identity)
        return "/".join((self._noun, *parts))

    def id_of(self, key: str) -> str | None:
        """The id behind a key; None when it is not one of this table."""
        noun, _, identity = key.partition("/")
        return identity if noun == self._noun else None

    def get(self, *identity: str | int) -> JsonObject | None:
        """The record, if there is one."""
        return self._store.get(self.key(*identity))

    def has(self, *identity: str | int) -> bool:
        """Whether there is a record."""
        return self.get(*identity) is not None

    def put(self, record: JsonObject, *identity: str | int) -> Batch:
        """What to write to store it."""
        return {self.key(*identity): record}

    def drop(self, *identity: str | int) -> Batch:
        """What to write to delete it."""
        return {self.key(*identity): None}

    def items(
        self, *first: str | int, starting: str = "", after: str | int | None = None
    ) -> Iterator[tuple[str, JsonObject]]:
        """(rest of the id, record) by id, of the records whose id has these `first` parts; only
        those whose rest begins with `starting`, or comes `after` that one."""
        prefix = f"{self.key(*first)}/"
        last = "" if after is None else self.key(*first, after)
        for key, record in self._store.scan(f"{prefix}{starting}", after=last):
            yield key.removeprefix(prefix), record

    def values(self, *first: str | int) -> Iterator[JsonObject]:
        """The records by id, of those whose id has these `first` parts."""
        return (record for _, record in self.items(*first))

    def last_id(self) -> str | None:
        """The highest id."""
        last = self._store.last(f"{self._noun}/")
        return None if last is None else last[0].removeprefix(f"{self._noun}/")


class Tables:
    """Every noun that the store holds. A scope is a composition, or `~<job>` for a job posted
    alone."""

    def __init__(self, store: Store):
        self.meta = Table(store, "meta")
        """"installation": its UUID."""
        self.site_records = Table(store, "site")
        """<site>: a registered site."""
        self.heads = Table(store, "head")
        """<composition>: newest and deployed revision, time, who."""
        self.revisions = Table(store, "rev", digits=8)
        """<composition>/<revision>: a description as it was accepted."""
        self.owners = Table(store, "own")
        """<job>: the composition that names it."""
        self.incarnation_records = Table(store, "inv")
        """<scope>/<job>: the newest incarnation."""
        self.attempt_records = Table(store, "att")
        """<scope>/<job>: the highest attempt ever used."""
        self.session_records = Table(store, "ses")
        """<scope>/<client id>/<site>: a reader's session; the site is that of the broker."""
        self.change_heads = Table(store, "change")
        """<id>: a change without its operations."""
        self.operation_records = Table(store, "op", digits=6)
        """<change>/<step>: an operation and its outcome."""
        self.endings = Table(store, "ending")
        """<change>: that somebody asked for its end."""
        self.answers = Table(store, "idem")
        """<hash of an Idempotency-Key>: the first answer."""
        self.event_records = Table(store, "event", digits=12)
        """<number>: what happened, oldest first."""
        self.requirements = Table(store, "required")
        """<composition>: which of its requirements were not kept when."""
        self.tokens = Table(store, "token")
        """<name>: role and hash of a token."""
        self.artifacts = Table(store, "artifact")
        """<sha256>: size and time of a jar that is kept."""
        self.heartbeats = Table(store, "beat")
        """<site>: what its agent reported last."""
        self.calibrations = Table(store, "calibration")
        """<site>: how fast it is."""
        self.analyses = Table(store, "analysis")
        """<id>: an analysis; its result is a file of its own."""
        self.placements = Table(store, "placement")
        """<id>: a placement."""
        self.autopilots = Table(store, "pilot")
        """<composition>: settings and memory of its autopilot."""
        self.autopilot_logs = Table(store, "pilotlog")
        """<composition>: why its autopilot did what."""
