"""Whatever happened between a backup and its restore: no job runs twice, no engine id is used
again, and what brokers hold is not lost."""

from __future__ import annotations

import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from binders.memory import World
from speck.clock import SystemClock
from speck.errors import ConflictError
from speck.model.values import JsonObject
from speck.service import Service
from speck.service.restored import Adopted
from speck.spec.schema import composition_from_data
from speck.store.backup import restore_backup, write_backup
from tests.examples import costly
from tests.memory_fog import FAST, HASTY, MemoryKeeper, memory_service, site_body
from tests.properties.test_moving import (
    BEGINNING,
    DONE,
    SITES,
    DuplicateMonitor,
    abandoned,
    all_running,
    arrived,
    ask,
    broker,
    chains,
    engine,
)
from tests.turns import Threads


class ThreadedMonitor(DuplicateMonitor):
    """Looks at the engines while no other thread changes them."""

    def send(self, count: int) -> None:
        with World.current().lock:
            super().send(count)

    def __call__(self, kind: str, subject: str) -> None:
        with World.current().lock:
            super().__call__(kind, subject)


SEVERAL = costly()


def restore(service: Service, backup: bytes, folder: Path) -> Service:
    """The service of a new home that is restored from a backup; the former one stops."""
    service.close()
    file = folder / "backup"
    file.write_bytes(backup)
    config = replace(service.config, home=folder / "home")
    config.home.mkdir()
    restore_backup(config.store, file, SystemClock().now())
    return Service(config, bounds=FAST, patience=HASTY, keeper=service.keeper)


def take_backup(service: Service) -> bytes:
    return b"".join(write_backup(service.records.store, SystemClock().now()))


def stateless(desired: JsonObject) -> JsonObject:
    """The same jobs, which may start without the state that cannot be established."""
    jobs = [{**job, "upgrade": "stateless"} for job in desired["jobs"]]
    return {**desired, "jobs": jobs}


def adopt(service: Service) -> Adopted:
    """Adopt what runs; cancel the rest only if there is any."""
    for _ in range(3):
        service.watch.poll()
    assert not service.changes.all_under_way()
    try:
        return service.restored.adopt()
    except ConflictError:
        return service.restored.adopt(cancel=True)


def held() -> set[int]:
    """What brokers hold in sessions that nobody reads."""
    return {
        int(message.payload)
        for site in SITES
        for session in broker(site).sessions.values()
        for message in session.queue
    }


def explain(service: Service) -> list[str]:
    """Why operations of the newest changes failed."""
    changes = [service.changes.get(head.id) for head in service.changes.all()]
    return [
        f"{operation.kind} {operation.job_name} {operation.site}: {operation.error}"
        for change in changes
        for operation in change.operations
        if operation.state == "failed"
    ]


@SEVERAL
@given(st.lists(chains(), max_size=2), st.lists(chains(), max_size=3), chains(), st.integers(1, 2))
def test_what_happened_since_the_backup_is_found(
    before: list[JsonObject], after: list[JsonObject], last: JsonObject, restores: int
) -> None:
    sites = [site_body(site) for site in SITES]
    with (
        tempfile.TemporaryDirectory() as name,
        memory_service(Path(name), sites, keeper=MemoryKeeper(), apart=False) as first,
    ):
        service = first
        service.compositions.apply(composition_from_data(BEGINNING), DONE)
        monitor = ThreadedMonitor(service, Threads())
        for desired in before:
            assert ask(service, all_running(desired), monitor) == "done"
            monitor.send(3)
        backup = take_backup(service)
        for desired in after:
            assert ask(service, all_running(desired), monitor) == "done"
            monitor.send(3)
        for number in range(restores):
            folder = Path(name) / str(number)
            folder.mkdir()
            service = monitor.service = restore(service, backup, folder)
            wish = all_running(last)
            adopted = adopt(service)
            if adopted.uncertain:
                wish = stateless(wish)
            ask(service, wish, monitor)
            assert ask(service, wish, monitor) == "done", explain(service)
            monitor.send(3)
        try:
            identities = Counter(
                identity
                for site in SITES
                for kind, identity in engine(site).calls
                if kind == "submit"
            )
            assert max(identities.values()) == 1, "an engine id was used again"
            assert monitor.twice == [], "a job ran twice"
            missing, _ = arrived(monitor)
            assert set(missing) <= abandoned() | held(), "lost"
        finally:
            service.close()
