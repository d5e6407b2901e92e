"""A site's agent is known by its state folder: another one is not asked for states."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from speck.agent.folder import IDENTITY, StateFolder
from speck.errors import (
    ConflictError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    PermanentError,
)
from speck.model.site import AgentReport
from speck.service import Service
from speck.spec.site_schema import site_from_data
from tests.memory_fog import memory_service, site_body
from tests.service_helpers import DONE, composition, job_body, reopened

FIRST, SECOND = "1" * 32, "2" * 32
OTHER = "its state folder is another one"


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with memory_service(tmp_path, map(site_body, ("edge-a", "cloud"))) as service:
        yield service


def use(service: Service) -> None:
    service.compositions.apply(composition(job_body("A"), job_body("B", "cloud")), DONE)


def beat(service: Service, identity: str | None, site: str = "edge-a") -> None:
    service.sites.heartbeat(site, AgentReport(identity=identity))


def messages(service: Service, word: str) -> list[str]:
    return [e.message for e in service.records.events.after() if word in e.message]


def test_another_agent_is_refused_and_gets_no_commands_while_jobs_use_the_site(
    service: Service,
) -> None:
    beat(service, FIRST)
    use(service)
    seen = service.sites.get("edge-a").last_seen
    for _ in range(2):
        with pytest.raises(ConflictError, match=OTHER):
            beat(service, SECOND)
        with pytest.raises(ConflictError, match="speck site update edge-a --new-agent"):
            service.sites.refuse_other_agent("edge-a", SECOND)
    assert service.sites.get("edge-a").last_seen == seen
    (message,) = messages(service, "an agent of site edge-a is refused")
    assert "A use the site" in message
    beat(service, FIRST)
    service.sites.refuse_other_agent("edge-a", FIRST)
    beat(service, SECOND, "cloud")  # each site has its own


def test_of_two_agents_at_a_site_that_nothing_uses_the_first_one_stays(service: Service) -> None:
    beat(service, FIRST)
    for _ in range(3):
        with pytest.raises(ConflictError, match="speck site update edge-a --new-agent"):
            beat(service, SECOND)
        with pytest.raises(ConflictError, match=OTHER):
            service.sites.refuse_other_agent("edge-a", SECOND)
        beat(service, FIRST)
        service.sites.refuse_other_agent("edge-a", FIRST)
    (message,) = messages(service, "an agent of site edge-a is refused")
    assert "use the site" not in message
    service.sites.put_all([site_from_data(site_body("edge-a"))], new_agent=True)
    beat(service, SECOND)
    with pytest.raises(ConflictError, match=OTHER):
        beat(service, FIRST)


def test_of_agents_that_come_at_the_same_moment_one_is_taken(service: Service) -> None:
    names = [f"{number:032x}" for number in range(8)]
    together = threading.Barrier(len(names))

    def come(identity: str) -> bool:
        together.wait()
        try:
            service.sites.refuse_other_agent("edge-a", identity)
        except ConflictError:
            return False
        return True

    with ThreadPoolExecutor(len(names)) as pool:
        taken = list(pool.map(come, names))
    assert taken.count(True) == 1
    beat(service, names[taken.index(True)])


@pytest.mark.parametrize("identity", ["", "x", "1" * 31, "1" * 33, "A" * 32, "1" * 32 + "\n"])
def test_what_is_no_identity_is_refused(service: Service, identity: str) -> None:
    with pytest.raises(InvalidError, match="32 hex digits"):
        service.sites.refuse_other_agent("edge-a", identity)
    assert service.records.sites.agent_identity("edge-a") is None


def test_nothing_is_stored_of_agents_of_sites_that_are_not_registered(service: Service) -> None:
    with pytest.raises(NotFoundError):
        service.sites.refuse_other_agent("nowhere", FIRST)
    assert service.records.sites.agent_identity("nowhere") is None


def test_an_agent_is_accepted_by_consent_once(service: Service) -> None:
    beat(service, FIRST)
    use(service)
    site = site_from_data(site_body("edge-a"))
    with pytest.raises(ForbiddenError, match="cannot accept a new agent"):
        service.sites.put(site, by_itself=True, new_agent=True)
    service.sites.put_all([site], new_agent=True)
    beat(service, SECOND)
    with pytest.raises(ConflictError):
        beat(service, FIRST)


def test_the_agent_is_known_after_a_restart_and_forgotten_with_its_site(
    service: Service,
) -> None:
    beat(service, FIRST)
    use(service)
    again = reopened(service)
    with pytest.raises(ConflictError):
        beat(again, SECOND)
    again.compositions.delete("c", 60, drop_queues=True)
    again.sites.delete("edge-a")
    again.sites.add(site_from_data(site_body("edge-a")))
    beat(again, SECOND)
    again.close()


def test_a_state_folder_has_one_identity_and_another_folder_another(tmp_path: Path) -> None:
    folders = [StateFolder(tmp_path / name) for name in ("a", "b")]
    for folder in folders:
        folder.root.mkdir()
    first, second = (folder.identity() for folder in folders)
    assert first != second
    assert StateFolder(tmp_path / "a").identity() == first
    assert [path.name for path in (tmp_path / "a").iterdir()] == [IDENTITY]
    (tmp_path / "a" / IDENTITY).write_text("")
    with pytest.raises(PermanentError, match="it must hold 32 hex digits"):
        folders[0].identity()
    with pytest.raises(PermanentError, match="cannot use the state folder"):
        StateFolder(tmp_path / "nowhere").identity()


def test_a_new_identity_is_on_disk_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power failure may leave a file empty that was never synced, and no agent starts then."""
    done: list[str] = []
    fsync, link = os.fsync, os.link

    def note_sync(descriptor: int) -> None:
        done.append(f"{os.fstat(descriptor).st_size} bytes")
        fsync(descriptor)

    def note_link(source: Path, target: Path) -> None:
        done.append(Path(target).name)
        link(source, target)

    monkeypatch.setattr(os, "fsync", note_sync)
    monkeypatch.setattr(os, "link", note_link)
    StateFolder(tmp_path).identity()
    assert done == ["32 bytes", IDENTITY]
