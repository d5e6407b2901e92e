"""The calibration job on a real engine, through the API and the CLI."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from speck.fog.paths import edge_jar
from speck.fog.service import serving
from speck.fog.sites import Fog
from speck.service.calibration import PREFIX
from tests.waiting import wait_for


@pytest.fixture(scope="module")
def url(fog: Fog, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A service that knows the cloud alone."""
    home = tmp_path_factory.mktemp("calibration")
    with serving(home, [edge_jar("speck-jobs.jar").parent]) as server:
        for body in fog.site_bodies():
            if body["name"] == "cloud":
                assert requests.post(f"{server.url}/sites", json=body, timeout=30).ok
        yield server.url


def jobs(url: str) -> list[str]:
    rows = requests.get(f"{url}/jobs", timeout=30).json()["jobs"]
    return [job["job_name"] for job in rows]


@pytest.mark.long
def test_a_site_is_calibrated_and_left_as_it_was(url: str) -> None:
    answers: list[requests.Response] = []

    def calibrate() -> None:
        answers.append(requests.post(f"{url}/sites/cloud/calibration", timeout=120))

    first = threading.Thread(target=calibrate)
    first.start()
    wait_for(lambda: f"{PREFIX}cloud" in jobs(url), "the calibration's job")
    calibrate()  # a second one meanwhile
    first.join()

    refusal, answer = answers
    assert refusal.status_code == 409
    assert "another calibration runs" in refusal.json()["detail"]
    assert answer.status_code == 200, answer.text
    result = answer.json()
    assert result["core_speed"] == 1.0  # it is the reference
    assert 0 < result["cores"] < 64
    assert 1e-6 < result["unit_s"] <= result["detail"]["wall_s"] * 1.1
    assert requests.get(f"{url}/sites/cloud", timeout=30).json()["calibration"] == result
    assert jobs(url) == []


@pytest.mark.long
def test_what_is_asked_for_is_checked(url: str) -> None:
    for body in ({"busy": "yes"}, {"job_path": 1}, {"speed": 2}):
        answer = requests.post(f"{url}/sites/cloud/calibration", json=body, timeout=30)
        assert answer.status_code == 422, answer.text
        assert "cannot calibrate cloud: give busy" in answer.json()["detail"]


@pytest.mark.long
def test_a_service_killed_in_the_middle_cleans_up_at_its_next_start(
    fog: Fog, tmp_path: Path
) -> None:
    jars = [edge_jar("speck-jobs.jar").parent]
    home = tmp_path / "home"
    with serving(home, jars) as server:
        for body in fog.site_bodies():
            requests.post(f"{server.url}/sites", json=body, timeout=30)

        def calibrate() -> None:
            try:
                requests.post(f"{server.url}/sites/cloud/calibration", timeout=120)
            except requests.RequestException:
                return  # its service is killed

        asking = threading.Thread(target=calibrate)
        asking.start()
        wait_for(lambda: jobs(server.url), "the calibration's job")
        server.process.kill()
        asking.join()
    with serving(home, jars) as server:
        wait_for(lambda: not jobs(server.url), "the job to be removed")
        site = requests.get(f"{server.url}/sites/cloud", timeout=30).json()
        assert site["calibration"] is None
