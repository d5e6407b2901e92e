"""Real agents, real HTTP: state travels between two folders, straight or relayed."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from speck.agent.web import Caller
from speck.fog.service import serving
from tests.agents import Field, await_transfer, fields, large, transfer, write_state
from tests.memory_fog import site_body
from tests.waiting import wait_for


@pytest.fixture
def sites(tmp_path: Path) -> Iterator[Field]:
    with fields(tmp_path) as pair:
        yield pair


@pytest.mark.parametrize("direct", [True, False], ids=["direct", "relayed"])
def test_a_state_travels(sites: Field, direct: bool) -> None:
    sites.start_both(direct=direct)
    files = {"state-1": large(3), "state-2": b""}
    origin = write_state(sites.state("edge-a") / "savepoints/counter/x/savepoint-1", 9, files)
    progress = await_transfer(sites.service, transfer(origin))
    assert progress.failure is None
    arrived = Path(str(progress.location).removeprefix("file://"))
    assert arrived.is_relative_to(sites.state("edge-b"))
    assert {f.name: f.read_bytes() for f in arrived.iterdir()} == {
        f.name: f.read_bytes() for f in origin.iterdir()
    }
    assert list((sites.state("edge-b") / "carried/.arriving").iterdir()) == []
    (event,) = [e for e in sites.service.records.events() if "carried" in e["message"]]
    assert ("(direct)" if direct else "(relayed)") in event["message"]


@pytest.mark.long
def test_a_hundred_agents_that_wait_leave_threads_for_others(tmp_path: Path) -> None:
    """Over the real server; each waits as long as it is let."""
    answers: list[int] = []
    ended = threading.Event()
    names = [f"edge-{number}" for number in range(100)]

    def poll(url: str, name: str) -> None:
        caller = Caller(url, lambda: None)
        while not ended.is_set():
            status, answer = caller.json("GET", f"/sites/{name}/commands?wait=25", timeout_s=60)
            answers.append(status)
            ended.wait(float(answer["again"]))
        caller.close()

    with serving(tmp_path / "home", []) as server:
        for name in names:
            body = {**site_body(name), "labels": {}}
            assert requests.post(f"{server.url}/sites", json=body, timeout=30).status_code == 201
        threads = [
            threading.Thread(target=poll, args=(server.url, name), daemon=True) for name in names
        ]
        for thread in threads:
            thread.start()
        wait_for(lambda: len(answers) > 300, "agents that were sent away and came again")
        for _ in range(20):
            for path in ("/livez", "/readyz", "/jobs"):
                assert requests.get(server.url + path, timeout=5).status_code == 200
        assert set(answers) == {200}
        ended.set()
