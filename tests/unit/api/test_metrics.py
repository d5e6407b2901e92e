"""GET /metrics is kept ready while somebody scrapes."""

from __future__ import annotations

import threading

import pytest

from speck.api import metrics
from speck.errors import StoreError
from tests.unit.api.conftest import Bench, job
from tests.waiting import wait_for

DEPLOYED = 'speck_jobs{state="running"} 1.0'


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "KEPT_S", 0.01)


def keepers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "metrics-text"]


def test_the_state_is_written_again_without_a_scrape_that_waits(bench: Bench) -> None:
    bench.add_sites()
    assert DEPLOYED not in bench.client.get("/metrics").text
    assert bench.client.post("/jobs", json=job("A")).status_code == 201
    wait_for(lambda: DEPLOYED in bench.client.get("/metrics").text, "the job")


def test_a_scrape_does_not_read_the_state(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.add_sites()
    bench.client.get("/metrics")
    away = threading.Event()
    held = threading.Event()

    def hold() -> None:
        held.set()
        assert away.wait(30)

    monkeypatch.setattr(bench.service.sites, "all", hold)
    assert held.wait(30)
    text = bench.client.get("/metrics").text
    away.set()
    assert 'speck_site_up{site="edge-a"} 1.0' in text
    assert 'route="/metrics"' in text  # what is counted is never old


def test_a_fault_is_the_next_scrape_s_answer(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.add_sites()
    assert bench.client.get("/metrics").status_code == 200

    def fail() -> None:
        raise StoreError("cannot read the store: a disk is away")

    monkeypatch.setattr(bench.service.sites, "all", fail)
    wait_for(lambda: bench.client.get("/metrics").status_code == 500, "the fault")
    monkeypatch.undo()
    assert bench.client.get("/metrics").status_code == 200


def test_nothing_is_kept_ready_once_the_service_ends_or_nobody_asks(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = len(keepers())
    bench.client.get("/metrics")
    assert len(keepers()) == before + 1
    monkeypatch.setattr(metrics, "_SCRAPED_WITHIN_S", -1.0)
    wait_for(lambda: len(keepers()) == before, "the end of the thread")
    monkeypatch.undo()
    bench.client.get("/metrics")
    bench.service.closing.set()
    wait_for(lambda: len(keepers()) == before, "the end of the thread")
