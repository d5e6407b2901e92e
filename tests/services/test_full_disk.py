"""A served speck whose disk fills, and has room again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from tests.full_disk import KINDS, Disk, small_disk
from tests.server_process import Server, serving
from tests.waiting import wait_for

SITES = [
    {
        "name": name,
        "tier": "edge",
        "spe": {"kind": "memory", "address": f"http://{name}:8081"},
        "broker": {"kind": "memory", "address": f"tcp://{name}:1883"},
    }
    for name in ("edge-a", "edge-b")
]


@pytest.fixture(params=KINDS)
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Disk]:
    with small_disk(request.param, tmp_path) as disk:
        yield disk


def pids(server: Server) -> list[int]:
    return [server.process.pid, *server.workers()]


def put_site(server: Server, **labels: str) -> requests.Response:
    """Register or change edge-b."""
    body = {**SITES[1], "labels": labels}
    return requests.put(f"{server.url}/sites/edge-b", json=body, timeout=30)


def status(server: Server, path: str) -> int:
    """The status of a GET; 0 while there is no listener."""
    try:
        return requests.get(server.url + path, timeout=30).status_code
    except requests.RequestException:
        return 0


def says_full(answer: requests.Response) -> bool:
    """Whether it is a problem that names the disk and the mend; while one worker gives way to
    the next, a connection may break instead."""
    if answer.status_code != 507:
        return False
    problem = answer.json()
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert int(answer.headers["Retry-After"]) > 0
    # whoever waits for the store does not say where it is: anybody may ask there
    at_work, waiting = "cannot write to the store at ", "cannot take requests: the store's disk is"
    assert problem["detail"].startswith((at_work, waiting))
    assert "then speck goes on by itself" in problem["detail"]
    return True


@pytest.mark.long
def test_a_full_disk_is_told_and_the_service_goes_on_by_itself(disk: Disk) -> None:
    with serving(disk.home) as server:
        assert requests.post(f"{server.url}/sites", json=SITES[0], timeout=30).status_code == 201
        first = server.workers()
        disk.fill(pids(server))
        # the last page of the log may have room for some records still
        wait_for(lambda: says_full(put_site(server, note="x" * 1000)))
        wait_for(lambda: status(server, "/readyz") == 507)
        # the worker that met the fault gives way to one that waits for room
        wait_for(lambda: server.workers() not in ([], first))
        disk.fill(pids(server))
        wait_for(lambda: status(server, "/readyz") == 507)
        assert says_full(requests.get(f"{server.url}/sites", timeout=30))
        assert status(server, "/livez") == 200
        disk.free(pids(server))
        wait_for(lambda: status(server, "/readyz") == 200)
        sites = requests.get(f"{server.url}/sites", timeout=30).json()["sites"]
        assert {site["name"] for site in sites} <= {"edge-a", "edge-b"}
        assert "edge-a" in {site["name"] for site in sites}
        assert put_site(server).status_code in (200, 201)
        log = server.log.read_text()
        assert server.end() == 0
    assert "restarting the worker from the stored state" in log
    assert "the store could be opened: there is space on the disk again" in log
    assert "Traceback" not in log


@pytest.mark.long
def test_it_waits_for_room_when_it_starts(disk: Disk) -> None:
    with serving(disk.home):
        pass
    disk.fill([])
    with serving(disk.home, disk.prepare) as server:
        assert status(server, "/readyz") == 507
        assert status(server, "/livez") == 200
        disk.free(pids(server))
        wait_for(lambda: status(server, "/readyz") == 200)
        assert server.end() == 0
