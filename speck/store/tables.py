"""The tables of the store, one for each noun; only this module knows the form of their keys."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence

from speck.model.values import JsonObject
from speck.store.leveldb import Store

Batch = dict[str, JsonObject | None]
"""The records of one atomic write by key; None deletes."""


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


def is_change(key: str) -> bool:
    """Whether the record at a key is the head of a change."""
    return key.startswith(CHANGES)


class Table:
    """The records of one noun. An id has one or more parts; numbers are padded to `digits`, so
    that keys sort in numeric order."""

    def __init__(self, store: Store, noun: str, digits: int = 0):
        self._store = store
        self.noun = noun
        """What all its keys begin with."""
        self._digits = digits

    def key(self, *identity: str | int) -> str:
        """The key of a record in a batch."""
        parts = (f"{part:0{self._digits}d}" if isinstance(part, int) else part for part in identity)
        return "/".join((self.noun, *parts))

    def id_of(self, key: str) -> str | None:
        """The id in a key; None if the key does not belong to this table."""
        noun, _, identity = key.partition("/")
        return identity if noun == self.noun else None

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
        last = self._store.last(f"{self.noun}/")
        return None if last is None else last[0].removeprefix(f"{self.noun}/")


class KeptTable(Table):
    """A table that is kept in memory, too, since nearly every request and poll reads it. Records
    are flat. One thread at a time writes (`note`), any reads."""

    def __init__(self, store: Store, noun: str):
        super().__init__(store, noun)
        self._kept = dict(super().items())
        self.writes = 0
        """A number that changes whenever a record does."""
        self._sorted: tuple[int, Sequence[str]] = (-1, ())

    def note(self, identity: str, record: JsonObject | None) -> None:
        """Note the record that is stored now; None: it was deleted."""
        if record is None:
            self._kept.pop(identity, None)
        else:
            self._kept[identity] = record
        self.writes += 1

    def get(self, *identity: str | int) -> JsonObject | None:
        record = self._kept.get("/".join(map(str, identity)))
        return None if record is None else record.copy()

    def has(self, *identity: str | int) -> bool:
        return "/".join(map(str, identity)) in self._kept

    def items(
        self, *first: str | int, starting: str = "", after: str | int | None = None
    ) -> Iterator[tuple[str, JsonObject]]:
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
                yield identity.removeprefix(before), record.copy()

    def _identities(self) -> Sequence[str]:
        """All, in order."""
        writes, identities = self._sorted
        if writes != (now := self.writes):
            identities = sorted(self._kept.copy())
            self._sorted = now, identities
        return identities


class Tables:
    """All tables of the store. A scope is a composition, or `~<job>` for a job posted alone."""

    def __init__(self, store: Store):
        self.meta = Table(store, "meta")
        """"installation": its UUID and generation; "restored": when and why the service became so;
        "location": where the store was served last; "audit": the seal of the audit log."""
        self.site_records = Table(store, "site")
        """<site>: a registered site."""
        self.broker_identities = KeptTable(store, "brokerid")
        """<site>: `{id}`, by which its broker is known again at another address."""
        self.agent_identities = KeptTable(store, "agentid")
        """<site>: `{id}`, which lies in the state folder of its agent."""
        self.heads = KeptTable(store, "head")
        """<composition>: its newest and its deployed revision, with time and user."""
        self.revisions = Table(store, "rev", digits=8)
        """<composition>/<revision>: a description as it was accepted."""
        self.link_records = Table(store, "links")
        """<composition>: the links of its jobs, of the newest revision and of those that may still
        run."""
        self.owners = KeptTable(store, "own")
        """<job>: the composition that names it."""
        self.incarnation_records = Table(store, "inv")
        """<scope>/<job>: the newest incarnation."""
        self.attempt_records = KeptTable(store, "att")
        """<scope>/<job>: the highest attempt ever used."""
        self.session_records = Table(store, "ses")
        """<scope>/<client id>/<site>: a reader's session; the site is that of the broker."""
        self.ended_sinks = Table(store, "ended")
        """<scope>/<engine job id>: the sink of an ended incarnation that may have to send again."""
        self.kept_sessions = KeptTable(store, "kept")
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
        self.requirements = KeptTable(store, "required")
        """<composition>: which of its requirements were violated, and when."""
        self.tokens = Table(store, "token")
        """<name>: role and hash of a token."""
        self.artifacts = Table(store, "artifact")
        """<sha256>: size and time of a stored jar."""
        self.heartbeats = KeptTable(store, "beat")
        """<site>: the last report of its agent."""
        self.calibrations = KeptTable(store, "calibration")
        """<site>: how fast it is."""
        self.analyses = Table(store, "analysis")
        """<id>: an analysis; its result is a file of its own."""
        self.placements = Table(store, "placement")
        """<id>: a placement."""
        self.autopilots = Table(store, "pilot")
        """<composition>: settings and memory of its autopilot."""
        self.autopilot_logs = Table(store, "pilotlog")
        """<composition>: the log of its autopilot's decisions."""
