"""Typed access to the store; every write is one synced batch.

`speck.store.tables` lists the tables.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

from speck.clock import Clock, rfc3339
from speck.errors import ConflictError
from speck.model.change import Change, OperationRecord
from speck.model.ids import sink_client_id
from speck.model.incarnation import EndedSink, Incarnation, Inventory, Session
from speck.model.link import JobLinks, Link
from speck.model.site import Site
from speck.model.values import JsonObject
from speck.store.codec import from_json, to_json
from speck.store.deployed_index import DeployedIndex
from speck.store.generations import renew_store, take_location
from speck.store.group_commit import GroupCommit
from speck.store.leveldb import Store
from speck.store.link_index import LinkIndex, read_links, write_links
from speck.store.location import StoreLocation
from speck.store.retention import Retention
from speck.store.tables import INSTALLATION, RESTORED, Batch, KeptTable, Table, Tables

_UNNUMBERED = "event?"


class _Typed(dict[str, Any]):
    """A record beside what it was made of, which need not be parsed again."""

    value: Incarnation | Session | EndedSink

    @classmethod
    def of(cls, value: Incarnation | Session | EndedSink) -> _Typed:
        record = cls(to_json(value))
        record.value = value
        return record


def open_store(path: Path, clock: Clock) -> Store:
    """Open the store at `path`; at the first start, create it with a new UUID."""
    if Store.exists(path):
        return Store.open(path)
    installation = {
        "uuid": str(UUID(hex=clock.new_id(), version=4)),
        "generation": 1,
        "at": rfc3339(clock.now()),
    }
    return Store.create(path, {INSTALLATION: installation})


class Records(Tables):
    """Typed access to an open store; records without a type of their own are in its tables."""

    def __init__(self, store: Store, clock: Clock):
        super().__init__(store)
        self.store = store
        self._clock = clock
        self._read_meta()
        last = self.event_records.last_id()
        self._next_event = int(last) + 1 if last else 1
        self._commits = GroupCommit(self._write)
        self._retention = Retention(self, clock)
        self._marks = itertools.count()
        self.deployed = DeployedIndex()
        self._sinks: tuple[int, Mapping[Link, Sequence[str]]] = (-1, {})
        self._sites: dict[str, Site] = {}
        self.site_writes = 0
        """How many sites were written or read: addresses in stored documents follow them."""
        self._jars: dict[tuple[str, int], frozenset[str]] = {}
        self.jar_writes: Counter[str] = Counter()
        """SHA-256 of a jar -> how many revisions that name it were written or read."""
        self.links = LinkIndex()
        self._ended: defaultdict[Link, dict[tuple[str, str], EndedSink]] = defaultdict(dict)
        notes: dict[Table, Callable[[str, JsonObject | None], None]] = {
            self.session_records: self._note_session,
            self.incarnation_records: self._note_incarnation,
            self.ended_sinks: self._note_ended_sink,
            self.site_records: self._note_site,
            self.link_records: self._note_links,
            self.revisions: self._note_revision,
        }
        for table, note in notes.items():
            for identity, record in table.items():
                note(identity, record)
        for table in vars(self).values():
            if isinstance(table, KeptTable):
                notes[table] = table.note
        self._notes = {table.noun: note for table, note in notes.items()}
        """By the first part of a key: what takes note of a write."""

    @classmethod
    def open(
        cls, path: Path, clock: Clock, *, location: Callable[[Path], StoreLocation] | None = None
    ) -> Records:
        """The records of the store that `open_store` opens. A service that serves it gives
        `location`: a copy then becomes `restored`."""
        store = open_store(path, clock)
        try:
            if location is not None:
                take_location(store, location(path), clock.now())
            return cls(store, clock)
        except BaseException:
            store.close()
            raise

    def _read_meta(self) -> None:
        meta = self.meta.get("installation")
        assert meta is not None
        self.installation: str = meta["uuid"]
        self.generation: int = meta["generation"]
        self.restored = self.meta.get("restored")
        """When and why the store may be older than what runs, `{at, reason}`: it was restored,
        copied or rolled back. None once its state has been adopted."""

    def begin_generation(self, reason: str) -> None:
        """Become `restored`, for this reason. Only before any change has been taken up."""
        renew_store(self.store, self._clock.now(), reason)
        self._read_meta()

    def refuse_restored(self) -> None:
        """Raises ConflictError while the state of a restored store has not been adopted."""
        if self.restored is not None:
            raise ConflictError(
                f"cannot start a change: the store may be older than what runs, since"
                f" {self.restored['reason']}; `speck status` shows what runs, `speck adopt` takes"
                " it over"
            )

    def end_restored(self, *batches: Batch) -> None:
        """Write what was adopted; from now on the service works as usual."""
        self.write(*batches, {RESTORED: None})
        self.restored = None

    def write(self, *batches: Batch) -> None:
        """Write all batches as one; the events in them are numbered now.

        Writes that come while another one is being synced are combined into the next. Each still
        fails or succeeds on its own.
        """
        self._commits.write({key: value for batch in batches for key, value in batch.items()})

    def check_readable(self) -> None:
        """Raise StoreError if the store cannot be read."""
        self.meta.get("installation")

    @property
    def queued(self) -> int:
        """The number of writes that wait for the one that is being synced."""
        return self._commits.queued

    def _write(self, batches: list[Batch]) -> None:
        """Write once, synced. Events are numbered here, in the order in which they become readable:
        a client that has read event n never finds a lower one later."""
        combined: Batch = {}
        number = self._next_event
        for batch in batches:
            for key, record in batch.items():
                if key.startswith(_UNNUMBERED) and record is not None:
                    combined[self.event_records.key(number)] = {"id": number, **record}
                    number += 1
                else:
                    combined[key] = record
        self.store.write({**combined, **self._retention.find_superfluous(combined)})
        self._next_event = number
        for key, record in combined.items():
            self._note(key, record)

    def _note(self, key: str, record: JsonObject | None) -> None:
        """Update what is kept in memory with the record that is now stored at a key."""
        noun, _, identity = key.partition("/")
        note = self._notes.get(noun)
        if note is not None:
            note(identity, record)

    def _note_site(self, name: str, record: JsonObject | None) -> None:
        sites = self._sites.copy()
        _keep(sites, name, from_json(record, Site) if record else None)
        self._sites = dict(sorted(sites.items()))
        self.site_writes += 1

    def _note_session(self, identity: str, record: JsonObject | None) -> None:
        scope = identity.partition("/")[0]
        session = _typed(record, Session) if record else None
        self.deployed.put_session(scope, self.session_records.key(identity), session)

    def _note_incarnation(self, identity: str, record: JsonObject | None) -> None:
        scope, _, job_name = identity.partition("/")
        incarnation = _typed(record, Incarnation) if record else None
        self.deployed.put_incarnation(scope, job_name, incarnation)

    def _note_ended_sink(self, identity: str, record: JsonObject | None) -> None:
        scope, _, rest = identity.partition("/")
        sink = None if record is None else _typed(record, EndedSink)
        for link in [sink.link] if sink is not None else list(self._ended):
            _keep(self._ended[link], (scope, rest), sink)
            if not self._ended[link]:
                del self._ended[link]

    def _note_links(self, scope: str, record: JsonObject | None) -> None:
        self.links.put(scope, read_links(record) if record else ())

    def _note_revision(self, identity: str, record: JsonObject | None) -> None:
        scope, _, number = identity.rpartition("/")
        jars = frozenset(record.get("jars", {}).values()) if record else None
        self.jar_writes.update(jars or ())
        _keep(self._jars, (scope, int(number)), jars)

    def jars_of_revisions(self) -> Mapping[tuple[str, int], frozenset[str]]:
        """(scope, revision) -> the SHA-256 of the jars that it names."""
        return self._jars.copy()

    # -- sites ----------------------------------------------------------------------------

    def sites(self) -> Mapping[str, Site]:
        """The sites by name, in order of name; not a copy, since every call to a site needs it."""
        return self._sites

    def put_site(self, site: Site) -> Batch:
        return self.site_records.put(to_json(site), site.name)

    def drop_site(self, name: str) -> Batch:
        """Remove a site with all that was reported of it."""
        identities = (self.broker_identities, self.agent_identities)
        reports = (self.heartbeats, self.calibrations, *identities)
        batch = self.site_records.drop(name) | {table.key(name): None for table in reports}
        for scope, sink in self.all_ended_sinks():
            batch |= self.drop_ended_sink(scope, sink) if sink.site == name else {}
        return batch

    # -- inventory ------------------------------------------------------------------------

    def inventory(self, scope: str) -> Inventory:
        jobs = self.deployed.incarnations(scope)
        sessions = tuple(self.sessions(scope))
        attempts = {name: record["n"] for name, record in self.attempt_records.items(scope)}
        return Inventory(jobs, sessions, attempts, self.generation)

    def attempts(self, scope: str, job_name: str) -> int:
        """Return the highest attempt ever used; 0 if there was none."""
        record = self.attempt_records.get(scope, job_name)
        return int(record["n"]) if record else 0

    def incarnation(self, scope: str, job_name: str) -> Incarnation | None:
        return self.deployed.incarnation(scope, job_name)

    def all_incarnations(self) -> Mapping[tuple[str, str], Incarnation]:
        """(scope, job name) -> incarnation, over all scopes, in this order; not a copy."""
        return self.deployed.all_incarnations()

    def incarnations_at(self, site: str) -> Mapping[tuple[str, str], Incarnation]:
        """(scope, job name) -> incarnation, of those at the engine of one site."""
        return self.deployed.incarnations_at(site)

    def all_attempts(self) -> dict[tuple[str, str], int]:
        """(scope, job name) -> the highest attempt ever used, over all scopes."""
        return {
            (scope, job_name): int(record["n"])
            for (scope, _, job_name), record in (
                (identity.partition("/"), record)
                for identity, record in self.attempt_records.items()
            )
        }

    def links_read_outside(self, links: Iterable[Link], scopes: Collection[str]) -> frozenset[Link]:
        """Return those of the links on which a scope other than `scopes` has a session."""
        return frozenset(
            link
            for link in links
            if any(scope not in scopes for scope, _ in self.deployed.sessions_of(link))
        )

    def sinks_outside(
        self, links: Iterable[Link], scopes: Collection[str]
    ) -> dict[Link, list[str]]:
        """Return link -> client ids of the sinks that write to it, in scopes except `scopes`; of
        those of the links to which any does."""
        sinks: defaultdict[Link, list[str]] = defaultdict(list)
        for link in links:
            for (scope, job_name), incarnation in self.deployed.writing(link):
                if scope not in scopes:
                    source = incarnation.job.source
                    sinks[link].append(sink_client_id(self.installation, job_name, source, link))
        return dict(sinks)

    def sinks(self) -> Mapping[Link, Sequence[str]]:
        """Link -> client ids of the sinks that fed it, in all scopes, former ones too; not a
        copy."""
        writes = self.deployed.writes[0]
        if self._sinks[0] != writes:
            sinks: defaultdict[Link, list[str]] = defaultdict(list)
            for incarnation in self.all_incarnations().values():
                job = incarnation.job
                own = sink_client_id(self.installation, job.job_name, job.source, job.sink)
                sinks[job.sink] += (own, *incarnation.former_sinks)
            self._sinks = writes, sinks
        return self._sinks[1]

    def holders(self, client_id: str) -> list[tuple[str, Session]]:
        """(scope, session) of every session of a client id, one for each broker and scope."""
        return self.deployed.sessions_of(client_id)

    def put_incarnation(self, scope: str, incarnation: Incarnation) -> Batch:
        """Store an incarnation and the highest attempt of its job. The attempt of an adopted one
        may be lower than that of an earlier job of the same name in this scope."""
        name = incarnation.job.job_name
        highest = max(incarnation.attempt, self.attempts(scope, name))
        return {
            self.incarnation_records.key(scope, name): _Typed.of(incarnation),
            **self.put_attempts(scope, name, highest),
        }

    def put_attempts(self, scope: str, job_name: str, highest: int) -> Batch:
        return self.attempt_records.put({"n": highest}, scope, job_name)

    def drop_incarnation(self, scope: str, job_name: str) -> Batch:
        return self.incarnation_records.drop(scope, job_name)

    def session(self, scope: str, client_id: str, site: str) -> Session | None:
        return self.deployed.session(scope, self.session_records.key(scope, client_id, site))

    def sessions(self, scope: str) -> list[Session]:
        """The sessions of one scope, in order of their keys."""
        return self.deployed.sessions(scope)

    def sessions_on_link(self, scope: str, link: Link) -> list[Session]:
        """The sessions of one scope on a link."""
        return [session for at, session in self.deployed.sessions_of(link) if at == scope]

    def has_sessions(self, link: Link) -> bool:
        """Whether any scope has a session on a link, as far as is known."""
        return any(session.reserved for _, session in self.deployed.sessions_of(link))

    def all_sessions(self) -> list[tuple[str, Session]]:
        """(scope, session), over all scopes."""
        return list(self.deployed.all_sessions())

    def sessions_on(self, site: str) -> list[tuple[str, Session]]:
        """(scope, session), of those at the broker of one site."""
        return self.deployed.sessions_on(site)

    def put_session(self, scope: str, session: Session) -> Batch:
        record = _Typed.of(session)
        return self.session_records.put(record, scope, session.client_id, session.site)

    def drop_session(self, scope: str, client_id: str, site: str) -> Batch:
        return self.session_records.drop(scope, client_id, site)

    # -- sinks that have ended ------------------------------------------------------------

    def all_ended_sinks(self) -> list[tuple[str, EndedSink]]:
        """(scope, sink) of those that may have to send again, over all scopes."""
        return [each for link in list(self._ended) for each in self.ended_sinks_on(link)]

    def ended_sinks_on(self, link: Link) -> list[tuple[str, EndedSink]]:
        """Those of one link."""
        there = self._ended.get(link, {}).copy()
        return [(scope, sink) for (scope, _), sink in sorted(there.items())]

    def put_ended_sink(self, scope: str, sink: EndedSink) -> Batch:
        return self.ended_sinks.put(_Typed.of(sink), scope, sink.incarnation.engine_job_id)

    def drop_ended_sink(self, scope: str, sink: EndedSink) -> Batch:
        return self.ended_sinks.drop(scope, sink.incarnation.engine_job_id)

    # -- links ----------------------------------------------------------------------------

    def put_links(self, scope: str, jobs: Iterable[JobLinks]) -> Batch:
        """Store the links of a scope's newest revision. Those stored so far are kept until
        `settle_links`: jobs may still run with them."""
        newest = sorted(set(jobs))
        earlier = sorted(set(self.links.of(scope)) - set(newest))
        return self.link_records.put(write_links(newest, earlier), scope)

    def settle_links(self, scope: str) -> Batch:
        """Drop the links of earlier revisions: no job runs with them any more."""
        record = self.link_records.get(scope)
        if record is None or not record["earlier"]:
            return {}
        return self.link_records.put({**record, "earlier": []}, scope)

    def drop_links(self, scope: str) -> Batch:
        return self.link_records.drop(scope)

    # -- changes --------------------------------------------------------------------------

    def put_change(self, change: Change) -> Batch:
        return self.change_heads.put(change.head_json(), change.id)

    def put_operations(self, change_id: str, operations: Iterable[OperationRecord]) -> Batch:
        key = self.operation_records.key
        return {key(change_id, o.step.id): o.to_json() for o in operations}

    def change(self, change_id: str) -> JsonObject | None:
        head = self.change_heads.get(change_id)
        if head is None:
            return None
        return {**head, "operations": self.operations(change_id)}

    def operations(self, change_id: str) -> list[JsonObject]:
        """A change's operations with their outcomes, in the order of the plan."""
        return list(self.operation_records.values(change_id))

    def changes(self) -> Iterator[JsonObject]:
        """Heads of all changes, oldest first (ids begin with the time)."""
        return self.change_heads.values()

    # -- events ---------------------------------------------------------------------------

    def event(self, kind: str, message: str, **subjects: object) -> Batch:
        """An event, to be written in one batch with what it reports. Its `subjects` are a site, a
        job_name, a change, ..."""
        record: JsonObject = {
            "at": rfc3339(self._clock.now()),
            "kind": kind,
            "message": message,
            **{key: value for key, value in subjects.items() if value is not None},
        }
        return {f"{_UNNUMBERED}{next(self._marks)}": record}

    def events(self, after: int = 0) -> Iterator[JsonObject]:
        """Events with a number above `after`, oldest first."""
        return (record for _, record in self.event_records.items(after=after))


_K = TypeVar("_K")
_T = TypeVar("_T")


def _typed(record: JsonObject, of: type[_T]) -> _T:
    if isinstance(record, _Typed) and isinstance(record.value, of):
        return record.value
    return from_json(record, of)


def _keep(cache: dict[_K, _T], key: _K, value: _T | None) -> None:
    if value is None:
        cache.pop(key, None)
    else:
        cache[key] = value
