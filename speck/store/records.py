"""The store's keys and records, one group for each noun; every write is one synced batch.

site/<name>                    a registered site
job/<job>                      the description of a job posted alone
head/<composition>             newest and deployed revision, time, who
rev/<composition>/<revision>   a description as it was accepted
inv/<scope>/<job>              the newest incarnation      (scope: composition, or ~<job>)
att/<scope>/<job>              the highest attempt ever used
ses/<scope>/<client id>/<site> a reader's session; the site is that of the broker
change/<id>, op/<id>/<step>    a change and its operations
event/<number>                 what happened, oldest first
calibration/<site>             how fast a site is, see speck.service.calibration
analysis/<id>                  an analysis; what it says is a file of its own
artifact/<sha256>, token/<name>, idem/<key>
"""

from __future__ import annotations

import itertools
import threading
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from speck.clock import Clock, new_installation, rfc3339
from speck.model.change import Change, OperationRecord
from speck.model.ids import sink_client_id
from speck.model.incarnation import Incarnation, Inventory, Session
from speck.model.link import Link
from speck.model.site import Site
from speck.model.values import JsonObject
from speck.store.codec import (
    incarnation_from_json,
    incarnation_to_json,
    session_from_json,
    session_to_json,
    site_from_json,
    site_to_json,
)
from speck.store.leveldb import Store
from speck.store.retention import Retention

Batch = dict[str, JsonObject | None]
"""What one atomic write holds; None deletes."""


_UNNUMBERED = "event?"


@dataclass(slots=True)
class _Write:
    batch: Batch
    over: bool = False
    error: BaseException | None = None


def scope_of(composition: str | None, job_name: str | None) -> str:
    """The scope of a plan: a composition's name, or `~job` for a job posted alone."""
    return composition if composition is not None else f"~{job_name}"


class Records:
    """Typed access to an open store."""

    def __init__(self, store: Store, clock: Clock):
        self.store = store
        self._clock = clock
        meta = store.get("meta/installation")
        assert meta is not None
        self.installation: str = meta["uuid"]
        last = store.last("event/")
        self._next_event = int(last[0].split("/")[1]) + 1 if last else 1
        self._queue: list[_Write] = []
        self._queueing = threading.Lock()
        self._committing = threading.Lock()
        self._retention = Retention(store, clock)
        self._marks = itertools.count()
        # what every look needs of all jobs is kept as it is used, beside the store
        self._sessions: defaultdict[str, dict[str, Session]] = defaultdict(dict)
        self._deployed: defaultdict[str, dict[str, Incarnation]] = defaultdict(dict)
        self._sites: dict[str, Site] = {}
        for prefix in ("ses/", "inv/", "site/"):
            for key, record in store.scan(prefix):
                self._note(key, record)

    @classmethod
    def at(cls, path: Path, clock: Clock) -> Records:
        """Open the store at `path`; at the very first start make it, with a new UUID."""
        if Store.exists(path):
            return cls(Store.open(path), clock)
        first = {"meta/installation": {"uuid": new_installation(), "at": rfc3339(clock.now())}}
        return cls(Store.create(path, first), clock)

    def write(self, *batches: Batch) -> None:
        """Write all batches as one; events in them get their numbers now.

        Who writes while another write is being synced shares the next one. Each still fails
        or succeeds for itself.
        """
        mine = _Write({key: value for batch in batches for key, value in batch.items()})
        with self._queueing:
            self._queue.append(mine)
        with self._committing:
            if not mine.over:
                with self._queueing:
                    writes, self._queue = self._queue, []
                self._commit(writes)
        if mine.error is not None:
            raise mine.error

    @property
    def queued(self) -> int:
        """How many writes wait for the one that is being synced."""
        with self._queueing:
            return len(self._queue)

    def _commit(self, writes: list[_Write]) -> None:
        try:
            self._write([write.batch for write in writes])
        except BaseException as error:
            if len(writes) > 1:  # one of them is at fault: find out which
                for write in writes:
                    self._commit([write])
                return
            writes[0].error = error
        for write in writes:
            write.over = True

    def _write(self, batches: list[Batch]) -> None:
        """One synced write. Events are numbered here, in the order in which they can be read:
        whoever has read event n never meets a lower one later."""
        joined: Batch = {}
        number = self._next_event
        for batch in batches:
            for key, record in batch.items():
                if key.startswith(_UNNUMBERED) and record is not None:
                    joined[f"event/{number:012d}"] = {"id": number, **record}
                    number += 1
                else:
                    joined[key] = record
        self.store.write({**joined, **self._retention.superfluous(joined)})
        self._next_event = number
        for key, record in joined.items():
            self._note(key, record)

    def _note(self, key: str, record: JsonObject | None) -> None:
        """Keep what is stored now at a key, if it is of those that are kept."""
        noun, _, rest = key.partition("/")
        if noun == "site":
            sites = self._sites.copy()
            _keep(sites, rest, site_from_json(record) if record else None)
            self._sites = dict(sorted(sites.items()))
        elif noun == "ses":
            scope = self._sessions[rest.partition("/")[0]]
            _keep(scope, key, session_from_json(record) if record else None)
        elif noun == "inv":
            name, _, job_name = rest.partition("/")
            _keep(self._deployed[name], job_name, incarnation_from_json(record) if record else None)

    # -- sites ----------------------------------------------------------------------------

    def sites(self) -> Mapping[str, Site]:
        """By name, in that order; not to be altered: it is asked for at each call to a site."""
        return self._sites

    def put_site(self, site: Site) -> Batch:
        return {f"site/{site.name}": site_to_json(site)}

    def drop_site(self, name: str) -> Batch:
        return {f"site/{name}": None}

    # -- inventory ------------------------------------------------------------------------

    def inventory(self, scope: str) -> Inventory:
        jobs = dict(sorted(_copy(self._deployed, scope).items()))
        sessions = tuple(held for _, held in sorted(_copy(self._sessions, scope).items()))
        attempts = {
            key.rsplit("/", 1)[1]: int(record["n"])
            for key, record in self.store.scan(f"att/{scope}/")
        }
        return Inventory(jobs, sessions, attempts)

    def attempts(self, scope: str, job_name: str) -> int:
        """The highest attempt ever used; 0 when there was none."""
        record = self.store.get(f"att/{scope}/{job_name}")
        return int(record["n"]) if record else 0

    def deployed(self, scope: str, job_name: str) -> Incarnation | None:
        jobs = self._deployed.get(scope)
        return jobs.get(job_name) if jobs else None

    def all_incarnations(self) -> dict[tuple[str, str], Incarnation]:
        """(scope, job name) -> incarnation, over all scopes."""
        return {
            (scope, job_name): deployed
            for scope, jobs in sorted(self._deployed.copy().items())
            for job_name, deployed in sorted(jobs.copy().items())
        }

    def links_read_outside(self, scopes: Collection[str]) -> frozenset[Link]:
        """Links on which a session is held by a scope that is none of `scopes`."""
        return frozenset(session.link for scope, session in self._sessions_outside(scopes))

    def sinks_outside(self, scopes: Collection[str]) -> dict[Link, list[str]]:
        """Link -> client ids of the sinks that feed it, of jobs that none of `scopes` holds."""
        sinks: defaultdict[Link, list[str]] = defaultdict(list)
        for (scope, job_name), deployed in self.all_incarnations().items():
            if scope not in scopes:
                job = deployed.job
                sinks[job.sink].append(sink_client_id(self.installation, job_name, job.source))
        return dict(sinks)

    def readers_outside(self, scopes: Collection[str]) -> dict[tuple[str, str], str]:
        """(broker, client id) -> scope, of sessions that are held by none of `scopes`."""
        return {
            (session.link.broker, session.client_id): scope
            for scope, session in self._sessions_outside(scopes)
        }

    def _sessions_outside(self, scopes: Collection[str]) -> list[tuple[str, Session]]:
        return [
            (scope, session)
            for scope, held in self._sessions.copy().items()
            if scope not in scopes
            for session in held.copy().values()
        ]

    def put_incarnation(self, scope: str, deployed: Incarnation) -> Batch:
        """An adopted one may have a lower attempt than others of its name had in this scope."""
        name = deployed.job.job_name
        highest = max(deployed.attempt, self.attempts(scope, name))
        return {
            f"inv/{scope}/{name}": incarnation_to_json(deployed),
            **self.put_attempts(scope, name, highest),
        }

    def put_attempts(self, scope: str, job_name: str, highest: int) -> Batch:
        return {f"att/{scope}/{job_name}": {"n": highest}}

    def drop_deployed(self, scope: str, job_name: str) -> Batch:
        return {f"inv/{scope}/{job_name}": None}

    def session(self, scope: str, client_id: str, site: str) -> Session | None:
        held = self._sessions.get(scope)
        return held.get(f"ses/{scope}/{client_id}/{site}") if held else None

    def sessions(self, scope: str) -> list[Session]:
        """Those of one scope, by their keys."""
        return [held for _, held in sorted(_copy(self._sessions, scope).items())]

    def all_sessions(self) -> list[tuple[str, Session]]:
        """(scope, session), over all scopes."""
        return self._sessions_outside(())

    def put_session(self, scope: str, session: Session) -> Batch:
        key = f"ses/{scope}/{session.client_id}/{session.site}"
        return {key: session_to_json(session)}

    def drop_session(self, scope: str, client_id: str, site: str) -> Batch:
        return {f"ses/{scope}/{client_id}/{site}": None}

    # -- changes --------------------------------------------------------------------------

    def put_change(self, change: Change) -> Batch:
        return {f"change/{change.id}": change.head_json()}

    def put_operations(self, change_id: str, operations: Iterable[OperationRecord]) -> Batch:
        return {f"op/{change_id}/{o.step.id:06d}": o.to_json() for o in operations}

    def change(self, change_id: str) -> JsonObject | None:
        head = self.store.get(f"change/{change_id}")
        if head is None:
            return None
        return {**head, "operations": self.operations(change_id)}

    def operations(self, change_id: str) -> list[JsonObject]:
        """A change's operations with their outcomes, in the order of the plan."""
        return [record for _, record in self.store.scan(f"op/{change_id}/")]

    def changes(self) -> Iterator[JsonObject]:
        """Heads of all changes, oldest first (ids begin with their time)."""
        return (record for _, record in self.store.scan("change/"))

    # -- events ---------------------------------------------------------------------------

    def event(self, kind: str, message: str, **about: object) -> Batch:
        """An event to write with what it tells about; `about` holds site, job_name, change..."""
        record: JsonObject = {
            "at": rfc3339(self._clock.now()),
            "kind": kind,
            "message": message,
            **{key: value for key, value in about.items() if value is not None},
        }
        return {f"{_UNNUMBERED}{next(self._marks)}": record}

    def events(self, after: int = 0) -> Iterator[JsonObject]:
        """Events with a number above `after`, oldest first."""
        return (record for _, record in self.store.scan("event/", after=f"event/{after:012d}"))


_T = TypeVar("_T")


def _keep(held: dict[str, _T], key: str, value: _T | None) -> None:
    if value is None:
        held.pop(key, None)
    else:
        held[key] = value


def _copy(held: Mapping[str, dict[str, _T]], scope: str) -> dict[str, _T]:
    """Of one scope, as it is now: others write meanwhile."""
    found = held.get(scope)
    return found.copy() if found else {}
