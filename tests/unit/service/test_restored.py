"""A restored service starts nothing until what runs has been adopted."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from binders.memory import World
from speck.clock import SystemClock
from speck.config import Config
from speck.errors import ConflictError
from speck.model.ids import EngineJobId
from speck.service import Service
from speck.service.compositions import ApplyRequest
from speck.store.audit_log import read_entries
from speck.store.backup import read_backup, restore_backup, write_backup
from speck.store.location import StoreLocation
from tests.memory_fog import FAST, HASTY
from tests.service_helpers import DONE, broker, composition, engine, job_body, look_anew


class Lives:
    """A service, and its next lives from backups of earlier ones."""

    def __init__(self, first: Service, folder: Path):
        self.service = first
        self._folder = folder
        self._count = 0

    def backup(self) -> Path:
        self._count += 1
        file = self._folder / f"backup-{self._count}"
        file.write_bytes(b"".join(write_backup(self.service.records.store, SystemClock().now())))
        return file

    def restore(self, backup: Path) -> Service:
        """The service that is restored from a backup; the former one has stopped."""
        self._count += 1
        config = replace(self.service.config, home=self._folder / f"home-{self._count}")
        config.home.mkdir()
        restore_backup(config.store, backup, SystemClock().now())
        return self.start(config)

    def start_copy(self) -> Service:
        """The service of a copy of the home; the original has stopped."""
        self.service.close()
        self._count += 1
        home = self._folder / f"home-{self._count}"
        subprocess.run(["cp", "-a", self.service.config.home, home], check=True)
        return self.start(replace(self.service.config, home=home))

    def start(
        self, config: Config, location: Callable[[Path], StoreLocation] = StoreLocation.of
    ) -> Service:
        """The service of a home; the former one has stopped."""
        self.service.close()
        self.service = Service(config, bounds=FAST, patience=HASTY, location=location)
        return self.service


@pytest.fixture
def lives(service: Service, tmp_path: Path) -> Iterator[Lives]:
    lives = Lives(service, tmp_path)
    yield lives
    lives.service.close()


def apply(service: Service, *jobs: dict[str, object]) -> None:
    service.compositions.apply(composition(*jobs), DONE)


def running(*sites: str) -> dict[str, list[str]]:
    """The names of the live jobs of each site's engine."""
    return {
        site: sorted(job.submission.job_name for job in engine(site).running()) for site in sites
    }


def test_a_restored_service_starts_nothing(lives: Lives) -> None:
    apply(lives.service, job_body("A", "edge-a"))
    backup = lives.backup()
    apply(lives.service, job_body("A", "edge-b"))
    service = lives.restore(backup)
    for _ in range(5):
        service.watch.poll()
    assert running("edge-a", "edge-b") == {"edge-a": [], "edge-b": ["A"]}
    for request in (ApplyRequest(), ApplyRequest(dry_run=True)):
        if request.dry_run:
            service.compositions.apply(composition(job_body("A", "cloud")), request)
        else:
            with pytest.raises(ConflictError, match="speck adopt"):
                service.compositions.apply(composition(job_body("A", "cloud")), request)
    with pytest.raises(ConflictError, match="speck adopt"):
        service.compositions.delete("c", 1.0)


def test_a_job_that_has_finished_since_is_asked_about_once(lives: Lives) -> None:
    apply(lives.service, job_body("A", "edge-a"))
    backup = lives.backup()
    service = lives.restore(backup)
    incarnation = service.records.incarnations.get("c", "A")
    assert incarnation is not None
    pool = engine("edge-a")
    pool.finish(incarnation.engine_job_id)
    asked = pool.count("has_finished")
    for _ in range(5):
        look_anew(service)
        service.watch.poll()
    assert pool.count("has_finished") == asked + 1
    assert [e.message for e in service.records.events.after() if e.kind == "drift"] == []


def test_what_runs_and_what_does_not_is_shown(lives: Lives) -> None:
    apply(lives.service, job_body("A", "edge-a"), job_body("B", "edge-a"))
    backup = lives.backup()
    apply(lives.service, job_body("A", "edge-b"), job_body("B", "edge-a"), job_body("C", "cloud"))
    report = lives.restore(backup).restored.report()
    assert report.state == "restored"
    assert [(each.job_name, each.site) for each in report.unknown_jobs] == [
        ("A", "edge-b"),
        ("C", "cloud"),
    ]
    assert [(each.job_name, each.site) for each in report.missing_jobs] == [("A", "edge-a")]
    readers = [(each.site, each.client_id.split("-")[2]) for each in report.unknown_sessions]
    assert readers == [("cloud", "C"), ("edge-b", "A")]
    assert report.silent_sites == ()


def test_a_job_that_was_moved_since_is_taken_over(lives: Lives) -> None:
    apply(lives.service, job_body("A", "edge-a"))
    backup = lives.backup()
    apply(lives.service, job_body("A", "edge-b"))
    service = lives.restore(backup)
    (adopted,) = service.restored.adopt().adopted
    assert (adopted.job_name, adopted.site) == ("A", "edge-b")
    incarnation = service.records.inventory("c").jobs["A"]
    assert incarnation.job.site == "edge-b"
    assert service.restored.report().unknown_jobs == ()
    apply(service, job_body("A", "cloud"))
    assert running("edge-a", "edge-b", "cloud") == {"edge-a": [], "edge-b": [], "cloud": ["A"]}


def test_a_job_that_had_not_begun_when_the_backup_was_made_has_begun(lives: Lives) -> None:
    apply(lives.service, job_body("A", "edge-a"))
    records = lives.service.records
    (session,) = (each for each in records.inventory("c").sessions if each.job_name == "A")
    records.write(records.sessions.put("c", replace(session, begun=False)))
    backup = lives.backup()
    apply(lives.service, job_body("A", "edge-a", parallelism=2))
    service = lives.restore(backup)
    service.restored.adopt()
    (session,) = (s for s in service.records.inventory("c").sessions if s.job_name == "A")
    assert session.begun and service.records.inventory("c").jobs["A"].attempt == 2


def test_a_job_that_the_store_does_not_know_is_in_the_way_until_it_is_cancelled(
    lives: Lives,
) -> None:
    apply(lives.service, job_body("A"))
    backup = lives.backup()
    apply(lives.service, job_body("A"), job_body("C", "cloud"))
    service = lives.restore(backup)
    with pytest.raises(ConflictError, match="C at cloud"):
        service.restored.adopt()
    assert running("edge-a", "cloud") == {"edge-a": ["A"], "cloud": ["C"]}
    with pytest.raises(ConflictError, match="speck adopt"):
        apply(service, job_body("A", "edge-b"))
    service.restored.adopt(cancel=True)
    assert running("edge-a", "cloud") == {"edge-a": ["A"], "cloud": []}


def test_a_job_that_was_removed_since_does_not_come_back_by_itself(lives: Lives) -> None:
    apply(lives.service, job_body("A"), job_body("B"))
    backup = lives.backup()
    lives.service.compositions.delete("c", 60.0)
    service = lives.restore(backup)
    result = service.restored.adopt()
    assert [each.job_name for each in result.uncertain] == ["A", "B"]


def test_ids_of_two_restores_of_one_backup_differ(lives: Lives) -> None:
    apply(lives.service, job_body("A", "edge-a"))
    backup = lives.backup()
    identities = []
    for site in ("edge-b", "cloud"):
        service = lives.restore(backup)
        service.restored.adopt(cancel=True)
        apply(service, job_body("A", site))
        incarnation = service.records.inventory("c").jobs["A"]
        identity = EngineJobId.parse(incarnation.engine_job_id, service.records.installation)
        assert identity is not None
        assert identity.generation == service.records.generation
        identities.append(identity)
    assert identities[0].order < identities[1].order


def test_a_silent_site_is_waited_for(lives: Lives) -> None:
    apply(lives.service, job_body("A"))
    service = lives.restore(lives.backup())
    engine("cloud").unreachable = True
    with pytest.raises(ConflictError, match="cloud is unknown"):
        service.restored.adopt()
    engine("cloud").unreachable = False


def test_only_a_restored_store_is_adopted(service: Service) -> None:
    with pytest.raises(ConflictError, match="was neither restored nor copied"):
        service.restored.adopt()


def test_a_change_that_ran_at_the_backup_is_not_continued(lives: Lives) -> None:
    engine("edge-a").unreachable = True
    lives.service.compositions.apply(composition(job_body("A")), ApplyRequest())
    backup = lives.backup()
    engine("edge-a").unreachable = False
    service = lives.restore(backup)
    (change,) = service.changes.all()
    assert change.state == "cancelled"
    assert "restored from a backup" in change.error
    (under_way,) = read_backup(backup).under_way
    assert (under_way["id"], under_way["composition"]) == (change.id, "c")
    assert under_way["state"] in ("running", "blocked")


def test_a_copied_home_starts_nothing_until_what_runs_is_adopted(lives: Lives) -> None:
    apply(lives.service, job_body("A", "edge-a"))
    before = lives.service.records.generation
    service = lives.start_copy()
    assert service.records.generation > before
    for _ in range(5):
        service.watch.poll()
    with pytest.raises(
        ConflictError, match=r"a copy of the one that was served last.*`speck adopt"
    ):
        apply(service, job_body("A", "edge-b"))
    report = service.restored.report()
    assert (report.state, report.unknown_jobs, report.missing_jobs) == ("restored", (), ())
    assert "copy" in report.reason
    *_, entry = read_entries(service.config.audit)
    assert (entry["verb"], entry["outcome"]) == ("speck serve", report.reason)
    service.restored.adopt()
    apply(service, job_body("A", "edge-b"))
    assert running("edge-a", "edge-b") == {"edge-a": [], "edge-b": ["A"]}


def test_the_original_goes_on_beside_its_copy(lives: Lives) -> None:
    original = lives.service.config
    apply(lives.service, job_body("A"))
    lives.start_copy()
    service = lives.start(original)
    assert service.records.restored is None
    apply(service, job_body("A", "edge-b"))


def test_a_change_that_ran_in_the_original_is_not_continued_by_a_copy(lives: Lives) -> None:
    engine("edge-a").unreachable = True
    lives.service.compositions.apply(composition(job_body("A")), ApplyRequest())
    service = lives.start_copy()
    engine("edge-a").unreachable = False
    (change,) = service.changes.all()
    assert change.state == "cancelled"
    assert "a copy" in change.error


def test_a_home_that_was_moved_or_started_again_is_no_copy(lives: Lives) -> None:
    apply(lives.service, job_body("A"))
    config = lives.service.config
    generation = lives.service.records.generation
    assert lives.start(config).records.restored is None
    lives.service.close()
    moved = config.home.rename(config.home.with_name("moved"))
    service = lives.start(replace(config, home=moved))
    assert service.records.restored is None
    assert service.records.generation == generation


def test_a_reboot_is_no_copy_and_another_machine_is_one(lives: Lives) -> None:
    config = lives.service.config

    def after_reboot(store: Path) -> StoreLocation:
        return replace(StoreLocation.of(store), boot="another")

    def elsewhere(store: Path) -> StoreLocation:
        return replace(StoreLocation.of(store), host="another")

    assert lives.start(config, after_reboot).records.restored is None
    restored = lives.start(config, elsewhere).records.restored
    assert restored is not None
    assert restored.reason == "its folder was copied from another machine"
    assert lives.start(config, elsewhere).records.restored == restored


def feed(topic: str, *payloads: bytes) -> None:
    """Messages from outside to edge-a."""
    World.current().feed("tcp://edge-a.test:1883", topic, payloads, "sensor")


def leave_messages(lives: Lives) -> tuple[Service, str]:
    """A restored service, and the session of the job `C` that it does not know: `A` has sent to it
    what `C` has not taken. `C` has ended."""
    producer = job_body("A", sink_topic="C-in")
    apply(lives.service, producer)
    backup = lives.backup()
    apply(lives.service, producer, job_body("C"))
    feed("A-in", b"1", b"2")
    lives.service.watch.poll()
    (reader,) = (
        session.client_id
        for _, session in lives.service.records.sessions.all()
        if session.job_name == "C"
    )
    (incarnation,) = (it for it in engine("edge-a").running() if it.submission.job_name == "C")
    lives.service.connections.engine("edge-a").cancel(incarnation.submission.engine_job_id)
    feed("A-in", b"3", b"4", b"5")
    return lives.restore(backup), reader


def test_messages_that_wait_for_an_unknown_job_are_named_and_kept_for_it(lives: Lives) -> None:
    service, reader = leave_messages(lives)
    (session,) = service.restored.report().unknown_sessions
    assert (session.job_name, session.topic) == ("C", "C-in")
    assert session.messages >= 3
    result = service.restored.adopt(cancel=True)
    assert [each.client_id for each in result.kept_sessions] == [reader]
    assert result.released_sessions == ()
    waiting = {message.payload for message in broker("edge-a").sessions[reader].waiting}
    assert waiting >= {b"3", b"4", b"5"}
    apply(service, job_body("A", sink_topic="C-in"), job_body("C"))
    World.current().pump()
    sent = {message.payload for message in broker("edge-a").published["C-out"]}
    assert sent >= {b"1", b"2", b"3", b"4", b"5"}
    assert broker("edge-a").abandoned == {}
    assert service.records.sessions.kept() == []


def test_messages_that_wait_for_an_unknown_job_are_discarded_on_request(lives: Lives) -> None:
    service, reader = leave_messages(lives)
    result = service.restored.adopt(cancel=True, discard_messages=True)
    assert [each.client_id for each in result.released_sessions] == [reader]
    assert result.kept_sessions == ()
    assert reader not in broker("edge-a").sessions
    assert service.records.sessions.kept() == []
    assert service.restored.report().unknown_sessions == ()


def test_the_session_of_a_job_that_is_taken_over_is_not_one_that_is_kept(lives: Lives) -> None:
    apply(lives.service, job_body("A", "edge-a"))
    backup = lives.backup()
    apply(lives.service, job_body("A", "edge-b"))
    result = lives.restore(backup).restored.adopt(discard_messages=True)
    assert result.released_sessions == ()
    assert broker("edge-b").thrown_out == []


def test_a_home_that_was_rolled_back_is_restored(lives: Lives) -> None:
    apply(lives.service, job_body("A", "edge-a"))
    config = lives.service.config
    location = replace(StoreLocation.of(config.store), host="")
    lives.start(config, lambda store: location).close()
    subprocess.run(["cp", "-a", config.home, config.home.with_name("snapshot")], check=True)
    service = lives.start(config, lambda store: location)
    assert service.records.restored is None
    apply(service, job_body("A", "edge-b"))
    service.close()
    subprocess.run(["rm", "-r", config.home], check=True)
    config.home.with_name("snapshot").rename(config.home)
    service = lives.start(config, lambda store: location)
    assert service.records.restored is not None
    assert "edge-b knows an incarnation of A" in service.records.restored.reason
    service.watch.poll()
    assert running("edge-a", "edge-b") == {"edge-a": [], "edge-b": ["A"]}
    service.restored.adopt()
    apply(service, job_body("A", "cloud"))
    assert running("edge-a", "edge-b", "cloud") == {"edge-a": [], "edge-b": [], "cloud": ["A"]}


def test_the_original_notices_that_its_copy_has_taken_over(lives: Lives) -> None:
    original = lives.service.config
    apply(lives.service, job_body("A", "edge-a"))
    copy = lives.start_copy()
    copy.restored.adopt()
    apply(copy, job_body("A", "edge-b"))
    service = lives.start(original)
    assert service.records.restored is not None
    assert service.records.generation > copy.records.generation
