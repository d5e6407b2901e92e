"""What nothing names any more is deleted at the engines, too."""

from __future__ import annotations

from dataclasses import replace

from binders.memory import World
from speck.service import Service
from speck.service.uploads import CollectedUploads, Uploads
from speck.store.artifacts import Artifacts
from speck.store.installation import RestoredState
from tests.memory_fog import jar_bytes
from tests.service_helpers import DONE, LIMIT_S, composition, job_body
from tests.unit.service.test_artifacts import put

OLD = "0" * 64


def engine_of(service: Service, site: str) -> dict[str, int]:
    """The uploads at a site's engine."""
    return World.current().engine(service.connections.site(site).spe.address).jars


def collector(service: Service, grace_s: float) -> Uploads:
    config = replace(service.config, artifact_grace_s=grace_s)
    artifacts = Artifacts(config, service.records, service.clock)
    return Uploads(service.records, service.connections, artifacts)


def test_an_engine_keeps_what_a_revision_names(service: Service) -> None:
    names = [put(service, jar_bytes(content)) for content in (b"first", b"second")]
    for sha256 in names:
        jobs = composition(job_body("A", job_path=f"artifact:{sha256}"))
        service.compositions.apply(jobs, DONE)
    site = service.records.incarnations.all()["c", "A"].job.site
    uploads = collector(service, 1e-9)
    assert set(names) <= set(engine_of(service, site))
    assert uploads.collect() == []

    service.compositions.delete("c", LIMIT_S)
    expected = [CollectedUploads(site, tuple(names), None)]
    assert uploads.collect(dry_run=True) == expected
    assert set(names) <= set(engine_of(service, site))
    assert uploads.collect(by="alice") == expected
    assert set(names).isdisjoint(engine_of(service, site))
    assert list(service.records.events.after())[-1].by == "alice"
    assert uploads.collect() == []


def test_the_grace_period_counts_at_engines(service: Service) -> None:
    now_ms = round(service.clock.now().timestamp() * 1000)
    engine_of(service, "edge-a").update({OLD: now_ms - 7200_000, "1" * 64: now_ms})
    assert collector(service, 0.0).collect() == []
    (site,) = collector(service, 3600.0).collect()
    assert (site.site, site.sha256s) == ("edge-a", (OLD,))


def test_a_site_that_does_not_answer_is_left_for_the_next_time(service: Service) -> None:
    for site in ("edge-a", "edge-b"):
        engine_of(service, site)[OLD] = 0
    world = World.current()
    away = world.engine(service.connections.site("edge-a").spe.address)
    away.unreachable = True
    first, second = collector(service, 1.0).collect()
    assert first.site == "edge-a"
    assert str(first.error).startswith("cannot")
    assert second == CollectedUploads("edge-b", (OLD,), None)
    away.unreachable = False
    assert [each.site for each in collector(service, 1.0).collect()] == ["edge-a"]


def test_a_restored_service_deletes_nothing(service: Service) -> None:
    engine_of(service, "edge-a")[OLD] = 0
    service.records.restored = RestoredState("2026-01-01T00:00:00Z", "a backup")
    assert collector(service, 1.0).collect() == []
    assert OLD in engine_of(service, "edge-a")
