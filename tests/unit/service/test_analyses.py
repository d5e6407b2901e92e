"""Analyses as the service runs them: real processes of the analyzer, over memory sites."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from speck.errors import ConflictError, InvalidError, NotFoundError
from speck.service import Service
from speck.service.analyses import WAITING, Analyses, AnalysisRequest
from tests.samples_by_hand import dataset, plan, running, site
from tests.service_helpers import reopened
from tests.waiting import wait_for

RUN_S = 300.0


def start(service: Service, **options: object) -> str:
    body = service.analyses.start(replace(AnalysisRequest(), **options)).body
    assert body is not None
    return str(body["id"])


def pid_of(service: Service, analysis_id: str) -> int:
    run = service.analyses._runs[analysis_id]
    wait_for(lambda: run.process is not None)
    assert run.process is not None
    return run.process.pid


def is_gone(pid: int) -> bool:
    return not psutil.pid_exists(pid)


@pytest.mark.long
def test_an_analysis_runs_and_is_kept_over_a_restart(service: Service) -> None:
    dataset(service.config.metrics, running(), [plan()], [*site("edge-a"), *site("cloud")])

    started = service.analyses.start(AnalysisRequest(composition="c", master="local[2]"))

    assert (started.status, started.location) == (202, f"/analyses/{started.body['id']}")
    service.analyses.wait(started.body["id"], RUN_S)
    analysis = service.analyses.get(started.body["id"])
    assert (analysis["state"], analysis["error"]) == ("done", None)
    assert analysis["jobs"][0]["core_s_per_record"] == pytest.approx(0.002)
    assert service.analyses.newest("c") == analysis
    assert service.analyses.newest("other") is None
    again = reopened(service)
    try:
        assert again.analyses.get(started.body["id"]) == analysis
    finally:
        again.close()


def test_without_samples_it_fails_and_says_what_to_do(service: Service) -> None:
    analysis_id = start(service)
    service.analyses.wait(analysis_id, RUN_S)

    analysis = service.analyses.get(analysis_id)

    assert analysis["state"] == "failed"
    assert analysis["error"].startswith("cannot analyse")
    assert "let the service collect metrics for a while" in analysis["error"]
    assert service.analyses.newest("c") is None


def test_a_cancelled_one_ends_with_its_process_and_those_that_wait_are_not_begun(
    service: Service,
) -> None:
    first, second = start(service), start(service)
    pid = pid_of(service, first)

    assert service.analyses.cancel(second)["state"] == "cancelled"
    assert service.analyses.cancel(first)["state"] == "cancelled"

    assert is_gone(pid)
    assert service.analyses.cancel(first)["state"] == "cancelled"


def test_a_stop_of_the_service_ends_it(service: Service) -> None:
    analysis_id = start(service)
    pid = pid_of(service, analysis_id)

    again = reopened(service)

    try:
        assert is_gone(pid)
        analysis = again.analyses.get(analysis_id)
        assert (analysis["state"], analysis["error"]) == ("failed", "the service stopped")
    finally:
        again.close()


def test_a_service_that_was_killed_left_one_that_failed(service: Service) -> None:
    record = {"id": "a", "state": "running", "composition": None, "follow": False}
    service.records.write({"analysis/a": record})

    again = reopened(service)

    try:
        assert again.analyses.get("a")["error"] == "the service stopped"
    finally:
        again.close()


def test_only_so_many_wait_and_one_follows(service: Service) -> None:
    running_now = [start(service) for _ in range(WAITING + 1)]
    with pytest.raises(ConflictError, match=running_now[0]):
        start(service)
    following = start(service, follow=True)
    with pytest.raises(ConflictError, match=f"{following} follows already"):
        start(service, follow=True)
    for analysis_id in reversed([*running_now, following]):
        service.analyses.cancel(analysis_id)


def test_what_cannot_be_is_refused(
    service: Service, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with pytest.raises(InvalidError, match="is no master"):
        start(service, master="yarn")
    with pytest.raises(NotFoundError):
        service.analyses.cancel("nothing")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(InvalidError, match="there is no Java"):
        start(service)


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({}, "the service has no secret of that cluster"),
        ({"spark_secret_file": Path("secret")}, "set SPECK_SPARK_DRIVER_HOST to this machine's"),
    ],
)
def test_a_cluster_needs_a_secret_and_a_way_to_the_driver(
    service: Service, more: dict[str, Any], says: str
) -> None:
    config = replace(service.config, spark_masters=("big=spark://10.0.0.5:7077",), **more)
    analyses = Analyses(config, service.records, service.clock, lambda: None)
    with pytest.raises(InvalidError, match=says):
        analyses.start(AnalysisRequest(master="big"))
