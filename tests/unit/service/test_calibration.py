"""Calibrations over memory sites; the job itself is run by tests/services/test_calibration.py."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from speck.errors import (
    ConflictError,
    EngineRefusedError,
    InvalidError,
    NotFoundError,
    TransientError,
)
from speck.model.job import JobDescription
from speck.service import Service
from speck.service.calibration import PREFIX, job_name, read_result
from speck.service.jobs import JobMetrics
from speck.spec.schema import job_from_data
from tests.calibrating import DONE, count_units, make_job_jar
from tests.memory_fog import memory_service, site_body
from tests.service_helpers import engine
from tests.waiting import wait_for


@pytest.fixture
def jar(service: Service) -> str:
    return make_job_jar(service)


def test_what_the_counters_say() -> None:
    assert read_result({**DONE, "calibrate.done": 1.0}, 2) is None
    assert read_result({}, 1) is None
    result = read_result(DONE, 2)
    assert result is not None
    assert result.unit_s == pytest.approx(0.0005)
    assert result.wall_s == pytest.approx(0.00058)
    assert result.cores == pytest.approx(4000 * 0.0005 / 8)
    assert (result.tasks, result.units) == (2, 4000)


def test_counters_that_carry_no_figure() -> None:
    for lacking in ("lightUnits", "fullUnits"):
        with pytest.raises(EngineRefusedError, match=r"^cannot tell the site's speed: .* again$"):
            read_result({**DONE, f"calibrate.{lacking}": 0.0}, 2)


@pytest.mark.usefixtures("jar")
def test_paces_are_told_against_the_reference(service: Service) -> None:
    count_units(service, {"cloud": 0.5, "edge-a": 2.0})
    assert service.calibrations.reference() == "cloud"
    assert service.sites.get("cloud").calibration is None
    cloud = service.calibrations.run("cloud")
    edge = service.calibrations.run("edge-a")
    assert (cloud.core_speed, edge.core_speed) == (1.0, 0.25)
    assert cloud.cores == pytest.approx(4000 * 0.0005 / 8)
    assert edge.unit_s == pytest.approx(0.002)
    assert cloud.detail.contended is False  # a unit took 0.58 ms of wall time
    assert service.sites.get("edge-a").calibration == edge
    count_units(service, {"cloud": 1.0})
    service.calibrations.run("cloud")
    assert service.calibrations.of("edge-a") == replace(edge, core_speed=0.5)
    assert service.jobs.all() == []


@pytest.mark.usefixtures("jar")
def test_the_reference_comes_first(service: Service) -> None:
    with pytest.raises(ConflictError, match="run speck site calibrate cloud edge-a"):
        service.calibrations.run("edge-a")
    with pytest.raises(NotFoundError):
        service.calibrations.run("nowhere")


@pytest.mark.usefixtures("jar")
def test_jobs_are_not_disturbed_unless_that_is_wanted(service: Service) -> None:
    count_units(service, {"cloud": 1.0})
    job = {
        "job_name": "at-work",
        "site": "cloud",
        "source_topic": "a",
        "sink_topic": "b",
        "entry_class": "package.ExampleJob",
        "job_path": "test-1.jar",
    }
    service.jobs.post(job_from_data(job), 10)
    with pytest.raises(ConflictError, match=r"CPU time from at-work, .*\(--busy\)$"):
        service.calibrations.run("cloud")
    assert service.calibrations.run("cloud", busy=True).detail.tasks == 15  # the free ones of 16
    assert [body.job_name for body in service.jobs.all()] == ["at-work"]


def test_no_slot_is_free(service: Service, jar: str) -> None:
    many = {
        "job_name": "all",
        "site": "cloud",
        "source_topic": "a",
        "sink_topic": "b",
        "entry_class": "package.ExampleJob",
        "job_path": "test-1.jar",
        "parallelism": 16,
    }
    service.jobs.post(job_from_data(many), 10)
    with pytest.raises(ConflictError, match="none of its 16 slots is free"):
        service.calibrations.run("cloud", busy=True, job_path=jar)


def test_a_service_without_the_jar_says_what_to_do(service: Service) -> None:
    with pytest.raises(InvalidError, match=r"has no job io.speck.jobs.Calibrate .*SPECK_JARS"):
        service.calibrations.run("cloud")
    with pytest.raises(InvalidError, match=r"SPECK_JARS, or name it \(--jar\)"):
        service.calibrations.run("cloud", job_path="test-1.jar")
    assert service.jobs.all() == []


def test_a_job_of_somebody_else_stays_whatever_its_name(service: Service, jar: str) -> None:
    job = {
        "job_name": f"{PREFIX}cloud",
        "site": "edge-a",
        "source_topic": "a",
        "sink_topic": "b",
        "entry_class": "package.ExampleJob",
        "job_path": "test-1.jar",
    }
    service.jobs.post(job_from_data(job), 10)
    with pytest.raises(ConflictError, match="another of that name is there"):
        service.calibrations.run("cloud", job_path=jar)
    service.calibrations.sweep()
    service.calibrations.close()
    assert [body.state for body in service.jobs.all()] == ["running"]


def test_a_site_may_have_the_longest_name(tmp_path: Path) -> None:
    sites = [f"{letter}{'x' * 62}" for letter in "ab"]
    assert len({job_name(site) for site in sites}) == 2
    with memory_service(tmp_path, map(site_body, sites)) as service:
        make_job_jar(service)
        count_units(service, {job_name(sites[0]).removeprefix(PREFIX): 1.0})
        assert service.calibrations.run(sites[0]).core_speed == 1.0


def left_job(jar: str) -> JobDescription:
    """What calibrates edge-a, as a service that was killed leaves it."""
    return job_from_data(
        {
            "job_name": f"{PREFIX}edge-a",
            "site": "edge-a",
            "source_topic": "a",
            "sink_topic": "b",
            "entry_class": "io.speck.jobs.Calibrate",
            "job_path": jar,
        }
    )


def test_what_a_dead_service_left_is_removed(service: Service, jar: str) -> None:
    service.jobs.post(left_job(jar), 10)
    service.calibrations.sweep()
    wait_for(lambda: not service.jobs.all(), "the job to be removed")


def test_what_was_left_in_the_middle_of_its_start_is_removed(service: Service, jar: str) -> None:
    engine("edge-a").hold_starts = True
    assert service.jobs.post(left_job(jar), 0).under_way is not None
    wait_for(lambda: engine("edge-a").jobs, "the start that goes on")
    service.calibrations.sweep()
    with pytest.raises(ConflictError):
        service.jobs.delete(f"{PREFIX}edge-a", 0)
    assert service.jobs.all()
    engine("edge-a").let_go()
    wait_for(lambda: not service.jobs.all(), "the job to be removed")


@pytest.mark.usefixtures("jar")
def test_a_failed_measurement_leaves_nothing(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    def metrics(_: str) -> JobMetrics:
        counted = {**DONE, "calibrate.done": 99.0, "calibrate.fullUnits": 0.0}
        return JobMetrics("", None, "cloud", {}, counted)

    monkeypatch.setattr(service.jobs, "metrics", metrics)
    service.calibrations.run_s = 0
    with pytest.raises(EngineRefusedError, match=r"\(site cloud\)$"):
        service.calibrations.run("cloud")
    assert service.jobs.all() == []
    assert service.calibrations.of("cloud") is None


@pytest.mark.usefixtures("jar")
def test_a_job_that_tells_nothing_is_named_with_its_state(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    def metrics(_: str) -> JobMetrics:
        return JobMetrics(
            "", None, "cloud", {}, {}
        )  # its engine does not list it, or it has not counted yet

    monkeypatch.setattr(service.jobs, "metrics", metrics)
    monkeypatch.setattr("speck.service.calibration._MEASURE_S", 0.0)
    service.calibrations.run_s = 0
    says = rf"^cannot calibrate cloud: no result in 0 s, job {PREFIX}cloud is running; calibrate"
    with pytest.raises(TransientError, match=says):
        service.calibrations.run("cloud")
    assert service.jobs.all() == []


@pytest.mark.usefixtures("jar")
def test_a_site_that_goes_takes_its_calibration_along(service: Service) -> None:
    count_units(service, {"cloud": 1.0})
    service.calibrations.run("cloud")
    service.sites.delete("cloud")
    assert service.calibrations.of("cloud") is None
