"""Tasks that take long hold a limited number of threads."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from speck.model.finding import PartFinding
from tests.unit.api.bench import Bench
from tests.waiting import wait_for


class Gate:
    """Holds all calls until it opens."""

    def __init__(self) -> None:
        self.held = 0
        self._open = threading.Event()
        self._lock = threading.Lock()

    def check(self, name: str) -> list[PartFinding]:
        with self._lock:
            self.held += 1
        assert self._open.wait(60), name
        return []

    def open(self) -> None:
        self._open.set()


@pytest.fixture
def gate(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    bench.add_sites()
    gate = Gate()
    monkeypatch.setattr(bench.service.sites, "check", gate.check)
    yield gate
    gate.open()


def test_many_checks_of_a_hanging_site_hold_a_few_threads_and_the_others_are_told(
    bench: Bench, gate: Gate
) -> None:
    most = bench.service.config.threads // 8
    statuses: list[int] = []

    def check() -> None:
        client = bench.client.application.test_client()
        statuses.append(client.get("/sites/edge-a/check").status_code)

    threads = [threading.Thread(target=check) for _ in range(40)]
    for thread in threads:
        thread.start()
    wait_for(lambda: len(statuses) == 40 - most, "the refusals")
    assert set(statuses) == {503}
    assert gate.held == most
    refusal = bench.client.get("/sites/edge-a/check")
    assert refusal.headers["Retry-After"] == "5"
    assert refusal.json["detail"].startswith("cannot check edge-a now: as many tasks")
    for path in ("/metrics/export", "/sites/edge-a/check"):
        assert bench.client.get(path).status_code == 503
    for path in ("/sites/edge-a/calibration", "/metrics/import"):
        assert bench.client.post(path, json={}).status_code == 503
    assert bench.client.get("/sites").status_code == 200
    gate.open()
    for thread in threads:
        thread.join()
    assert statuses.count(200) == most
    assert bench.client.get("/sites/edge-a/check").status_code == 200
