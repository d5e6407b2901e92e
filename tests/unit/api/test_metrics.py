"""GET /metrics is kept ready when there are many sites."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest
from flask.testing import FlaskClient

from speck.api import metrics
from speck.errors import StoreError
from tests.unit.api.bench import Bench, job
from tests.waiting import wait_for

DEPLOYED = 'speck_jobs{state="running"} 1.0'


@pytest.fixture
def client(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> FlaskClient:
    """Of an application for which three sites are many."""
    monkeypatch.setattr(metrics, "KEPT_S", 0.01)
    return bench.open(replace(bench.service.config, poller_sites=3))


def count_up(client: FlaskClient) -> int:
    return client.get("/metrics").text.count("speck_site_up{")


def test_the_state_is_written_again_without_a_scrape_that_waits(
    bench: Bench, client: FlaskClient
) -> None:
    bench.add_sites()
    assert DEPLOYED not in client.get("/metrics").text
    assert client.post("/jobs", json=job("A")).status_code == 201
    wait_for(lambda: DEPLOYED in client.get("/metrics").text, "the job")


def test_a_scrape_does_not_wait_for_the_state(
    bench: Bench, client: FlaskClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.add_sites()
    held, away, rest = threading.Event(), threading.Event(), bench.service.changes.all

    def hold() -> object:
        held.set()
        assert away.wait(30)
        return rest()

    monkeypatch.setattr(bench.service.changes, "all", hold)
    assert held.wait(30)
    away.set()
    wait_for(lambda: count_up(client) == 3, "the state")
    held.clear()
    away.clear()
    assert held.wait(30)
    text = client.get("/metrics").text
    away.set()
    assert 'speck_site_up{site="edge-a"} 1.0' in text
    assert 'route="/metrics"' in text  # what is counted is never old


def test_a_fault_is_the_next_scrape_s_answer(
    bench: Bench, client: FlaskClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.add_sites()
    assert client.get("/metrics").status_code == 200

    def fail() -> None:
        raise StoreError("cannot read the store: a disk is away")

    monkeypatch.setattr(bench.service.changes, "all", fail)
    wait_for(lambda: client.get("/metrics").status_code == 500, "the fault")
    monkeypatch.undo()
    wait_for(lambda: client.get("/metrics").status_code == 200, "the state")
