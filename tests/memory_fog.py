"""A service over in-memory sites: for unit and property tests only."""

from __future__ import annotations

import io
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

from greenlet import getcurrent, greenlet

from binders.memory import World
from binders.memory.slots import SlotPool
from speck.binding import SavedState, StateKeeper, Transfer, TransferProgress
from speck.clock import Clock
from speck.config import Config
from speck.deploy.changes import registry
from speck.deploy.execution import Bounds
from speck.deploy.locks import NamedLocks, SessionLocks
from speck.deploy.operations import Patience
from speck.deploy.scheduler import THREADS, Scheduler
from speck.errors import UnreachableError
from speck.model.engines import EngineAt
from speck.model.site import Site
from speck.model.values import JsonObject
from speck.monitor.outcomes import Outcomes
from speck.service import Service
from speck.spec.site_schema import site_from_data
from speck.store.records import Records
from speck.store.tables import Batch
from tests.turns import Turns

FAST = Bounds(
    poll_s=0.001,
    poll_most_s=0.01,
    poll_calm_s=0.02,
    retry_first_s=0.001,
    retry_most_s=0.01,
    retry_for_s=0.05,
)
HASTY = Patience(
    start_s=5,
    start_ask_s=0.001,
    refill_s=0,
    cancel_s=5,
    stop_s=5,
    stop_starting_s=0.05,
    drain_idle_s=2,
    drain_poll_s=0.001,
    drain_quiet_s=0,
    drain_mark_s=0.05,
    stop_poll_s=0.001,
)


class MemoryKeeper:
    """Knows where memory engines keep states, as agents beside them would.

    Engines of the same `storage` share it. `calls` holds what was asked; `silent` are sites whose
    agent does not answer; a transfer needs `looks` looks to arrive.
    """

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []
        self.silent: set[str] = set()
        self.looks = 1
        self._begun: Counter[str] = Counter()

    def folder(self, site: str) -> str | None:
        return _engine(site).storage

    def shares_storage(self, one: str, other: str) -> bool:
        return self.folder(one) == self.folder(other)

    def newest(
        self, engine: EngineAt, engine_job_id: str, folder: str | None = None
    ) -> SavedState | None:
        self._ask("newest", engine.site)
        world = World.current()
        with world.lock:
            states = [
                SavedState(saved.checkpoint_id, path, 0, 0, "/savepoints/" in path)
                for path, saved in world.saved.items()
                if saved.storage == _engine(engine.site).storage
                and f"/{engine_job_id}/" in path
                and path.startswith((f"{saved.storage}/", f"{folder or saved.storage}/"))
            ]
        return max(states, key=lambda each: each.number, default=None)

    def carry(self, transfer: Transfer) -> TransferProgress:
        for site in (transfer.source, transfer.target):
            self._ask("carry", site)
        world, target = World.current(), _engine(transfer.target).storage
        self._begun[transfer.id] += 1
        if self._begun[transfer.id] < self.looks:
            return TransferProgress(False, bytes=self._begun[transfer.id], total=self.looks)
        with world.lock:
            saved = world.saved.get(transfer.path)
            if saved is None or saved.storage != _engine(transfer.source).storage:
                return TransferProgress(True, failure=f"nothing lies at {transfer.path}")
            location = f"{target}/carried/{transfer.id}"
            world.saved[location] = replace(saved, storage=target)
        return TransferProgress(True, location, bytes=self.looks, total=self.looks)

    def drop(self, site: str, path: str) -> None:
        self._ask("drop", site)
        with World.current().lock:
            World.current().saved.pop(path, None)

    def _ask(self, what: str, site: str) -> None:
        self.calls.append((what, site))
        if site in self.silent or _engine(site).unreachable:
            raise UnreachableError(f"cannot reach the agent of {site}")


def _engine(site: str) -> SlotPool:
    return World.current().engine(f"http://{site}.test:8081")


def jar_bytes(content: bytes = b"1", name: str = "package/ExampleJob.class") -> bytes:
    """The content of a small jar that holds one file."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(zipfile.ZipInfo(name), content)
    return buffer.getvalue()


def make_jar(folder: Path, name: str = "test-1.jar", content: bytes = b"1") -> Path:
    """A small jar that holds the class of the paper's listings."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(jar_bytes(content))
    return folder / name


def site_body(name: str, host: str | None = None) -> JsonObject:
    """A memory site; all share storage."""
    host = host or f"{name}.test"
    return {
        "name": name,
        "tier": "cloud" if name.startswith("cloud") else "edge",
        "spe": {"kind": "memory", "address": f"http://{host}:8081"},
        "broker": {"kind": "memory", "address": f"tcp://{host}:1883"},
        "labels": {"state_uri": "memory:/state"},
    }


@contextmanager
def memory_service(
    folder: Path,
    sites: Iterable[JsonObject] = (),
    *,
    slots: int = 16,
    bounds: Bounds = FAST,
    keeper: StateKeeper | None = None,
    apart: bool = True,
    clock: Clock | None = None,
    patience: Patience = HASTY,
    scheduler: Scheduler = THREADS,
) -> Iterator[Service]:
    """A service with its own new world, the given sites and one jar, `test-1.jar`.

    With a `keeper` each site has a storage of its own, unless they are not `apart`.
    """
    world = World.reset(slots=slots)
    if clock is not None:
        world.monotonic = clock.monotonic
    make_jar(folder / "jars")
    config = Config(home=folder / "home", jar_folders=(folder / "jars",), simulated=True)
    service = Service(
        config, clock, bounds=bounds, patience=patience, keeper=keeper, scheduler=scheduler
    )
    try:
        for body in sites:
            if keeper is not None:
                _engine(body["name"]).storage = f"memory:/{body['name'] if apart else 'all'}"
                body = {**body, "labels": {}}
            site: Site = site_from_data(body)
            service.sites.add(site)
        yield service
    finally:
        service.close()


def serve_again(dead: Service, turns: Turns) -> Service:
    """The service that is started after another one, whose threads took turns, was closed."""
    return Service(dead.config, turns, bounds=FAST, patience=HASTY, scheduler=turns)


@contextmanager
def service_in_turns(
    folder: Path,
    sites: Iterable[JsonObject],
    *,
    seed: int = 0,
    at_writes: bool = False,
    **more: Any,
) -> Iterator[tuple[Service, Turns]]:
    """A `memory_service` whose threads take turns: nobody sleeps, and a seed has one result. A
    change that fails does not poll its sites at its end: polls have threads of their own, which
    take no turns.

    With `at_writes` others have some turns before each write to the store, as during a sync:
    between what its thread has read there and what it writes. In any case, all that the threads of
    changes write of a session is written under the lock of its record.
    """
    turns = Turns(seed)
    with (
        patch.object(Outcomes, "report_end"),
        _watching_writes(turns, at_writes=at_writes),
        memory_service(folder, sites, clock=turns, scheduler=turns, **more) as service,
    ):
        yield service, turns


@contextmanager
def _watching_writes(turns: Turns, *, at_writes: bool) -> Iterator[None]:
    held, unlocked = set[tuple[greenlet, str]](), list[str]()

    class Watched(NamedLocks):
        @contextmanager
        def __getitem__(self, name: str) -> Iterator[None]:
            own, lock = (getcurrent(), name), super().__getitem__(name)
            with lock:
                is_outermost = own not in held
                held.add(own)
                try:
                    yield
                finally:
                    if is_outermost:
                        held.remove(own)

    class WatchedSessions(SessionLocks):
        def __init__(self, scheduler: Scheduler) -> None:
            super().__init__(scheduler)
            self.writing = Watched(scheduler)

    write, first = Records.write, getcurrent()

    def watch(records: Records, *batches: Batch) -> None:
        if at_writes:
            turns.wait_some()
        if getcurrent() is not first:
            names = [find_session(key) for batch in batches for key in batch]
            unlocked.extend(n for n in names if n and (getcurrent(), n) not in held)
        write(records, *batches)

    with (
        patch.object(registry, "SessionLocks", WatchedSessions),
        patch.object(Records, "write", watch),
    ):
        yield
    assert unlocked == [], "sessions are written without the locks of their records"


def find_session(key: str) -> str | None:
    """The client id of the session that is stored at a key, if it is that of one."""
    noun, _, identity = key.partition("/")
    return identity.partition("/")[2].rpartition("/")[0] if noun == "ses" else None
