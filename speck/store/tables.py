"""The tables of the store, one for each noun; only this module knows the form of their keys."""

from __future__ import annotations

from collections.abc import Iterator

from speck.model.values import JsonObject
from speck.store.leveldb import Store

Batch = dict[str, JsonObject | None]
"""The records of one atomic write by key; None deletes."""


INSTALLATION = "meta/installation"
"""The key of the record that a new store is created with."""

RESTORED = "meta/restored"
"""The key of the record that a restored or copied store has until its state has been adopted."""

PLACE = "meta/place"
"""The key of the record of where the store was served last."""

CHANGES = "change/"
"""The beginning of the keys of the heads of changes."""


def is_change(key: str) -> bool:
    """Whether the record at a key is the head of a change."""
    return key.startswith(CHANGES)


class Table:
    """The records of one noun. An id has one or more parts; numbers are padded to `digits`, so
    that keys sort in numeric order."""

    def __init__(self, store: Store, noun: str, digits: int = 0):
        self._store = store
        self._noun = noun
        self._digits = digits

    def key(self, *identity: str | int) -> str:
        """The key of a record in a batch."""
        parts = (f"{part:0{self._digits}d}" if isinstance(part, int) else part for part in identity)
        return "/".join((self._noun, *parts))

    def id_of(self, key: str) -> str | None:
        """The id in a key; None if the key does not belong to this table."""
        noun, _, identity = key.partition("/")
        return identity if noun == self._noun else None

    def get(self, *identity: str | int) -> JsonObject | None:
        """The record, if there is one."""
        return self._store.get(self.key(*identity))

    def has(self, *identity: str | int) -> bool:
        """Whether there is a record."""
        return self.get(*identity) is not None

    def put(self, record: JsonObject, *identity: str | int) -> Batch:
        """The batch that stores a record."""
        return {self.key(*identity): record}

    def drop(self, *identity: str | int) -> Batch:
        """The batch that deletes a record."""
        return {self.key(*identity): None}

    def items(
        self, *first: str | int, starting: str = "", after: str | int | None = None
    ) -> Iterator[tuple[str, JsonObject]]:
        """(rest of the id, record) of the records whose id begins with the parts `first`, in order
        of the id; only those whose rest starts with `starting`, or sorts after `after`."""
        prefix = f"{self.key(*first)}/"
        last = "" if after is None else self.key(*first, after)
        for key, record in self._store.scan(f"{prefix}{starting}", after=last):
            yield key.removeprefix(prefix), record

    def values(self, *first: str | int) -> Iterator[JsonObject]:
        """The records whose id begins with the parts `first`, in order of the id."""
        return (record for _, record in self.items(*first))

    def last_id(self) -> str | None:
        """The highest id."""
        last = self._store.last(f"{self._noun}/")
        return None if last is None else last[0].removeprefix(f"{self._noun}/")


class Tables:
    """All tables of the store. A scope is a composition, or `~<job>` for a job posted alone."""

    def __init__(self, store: Store):
        self.meta = Table(store, "meta")
        """"installation": its UUID and generation; "restored": when and why the service became so;
        "place": where the store was served last."""
        self.site_records = Table(store, "site")
        """<site>: a registered site."""
        self.heads = Table(store, "head")
        """<composition>: its newest and its deployed revision, with time and user."""
        self.revisions = Table(store, "rev", digits=8)
        """<composition>/<revision>: a description as it was accepted."""
        self.link_records = Table(store, "links")
        """<composition>: the links of its jobs, of the newest revision and of those that may still
        run."""
        self.owners = Table(store, "own")
        """<job>: the composition that names it."""
        self.incarnation_records = Table(store, "inv")
        """<scope>/<job>: the newest incarnation."""
        self.attempt_records = Table(store, "att")
        """<scope>/<job>: the highest attempt ever used."""
        self.session_records = Table(store, "ses")
        """<scope>/<client id>/<site>: a reader's session; the site is that of the broker."""
        self.kept_sessions = Table(store, "kept")
        """<client id>/<site>: a session that an adoption left at a broker for the next job of its
        name that reads its link."""
        self.change_heads = Table(store, "change")
        """<id>: a change without its operations."""
        self.operation_records = Table(store, "op", digits=6)
        """<change>/<step>: an operation and its outcome."""
        self.endings = Table(store, "ending")
        """<change>: a request to end it."""
        self.answers = Table(store, "idem")
        """<hash of an Idempotency-Key>: the first answer."""
        self.event_records = Table(store, "event", digits=12)
        """<number>: an event, oldest first."""
        self.requirements = Table(store, "required")
        """<composition>: which of its requirements were violated, and when."""
        self.tokens = Table(store, "token")
        """<name>: role and hash of a token."""
        self.artifacts = Table(store, "artifact")
        """<sha256>: size and time of a stored jar."""
        self.heartbeats = Table(store, "beat")
        """<site>: the last report of its agent."""
        self.calibrations = Table(store, "calibration")
        """<site>: how fast it is."""
        self.analyses = Table(store, "analysis")
        """<id>: an analysis; its result is a file of its own."""
        self.placements = Table(store, "placement")
        """<id>: a placement."""
        self.autopilots = Table(store, "pilot")
        """<composition>: settings and memory of its autopilot."""
        self.autopilot_logs = Table(store, "pilotlog")
        """<composition>: the log of its autopilot's decisions."""
