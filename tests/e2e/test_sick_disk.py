"""The service's disk fills, or fails to sync, in the middle of a change, under a flow."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from speck.clock import SystemClock
from speck.fog.sites import Fog
from speck.store.records import Records
from tests.e2e.killable import Killable
from tests.full_disk import KINDS, Disk, small_disk
from tests.service_helpers import list_stored_jobs
from tests.waiting import wait_for

pytestmark = [pytest.mark.usefixtures("agents_back"), pytest.mark.long]

SHIM = Path(__file__).with_name("failing_sync.c")


@pytest.fixture(params=KINDS)
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Disk]:
    with small_disk(request.param, tmp_path) as disk:
        yield disk


def in_its_middle(speck: Killable, change: str) -> bool:
    """Whether something of the change is done and something is not."""
    operations = speck.call("GET", f"/changes/{change}").json()["operations"]
    return any(it["kind"] == "stop" and it["state"] != "pending" for it in operations)


def read_stored(home: Path) -> set[str]:
    """Engine ids of the incarnations that are written down, with those before them."""
    records = Records.open(home / "store", SystemClock())
    names = list_stored_jobs(records)
    records.store.close()
    return names


def test_a_disk_that_fills_in_the_middle_of_a_change(disk: Disk, fog: Fog, jars: Path) -> None:
    speck = Killable(fog, disk.home, jars, "filled")
    with speck.running():
        speck.register()
        speck.apply(speck.variant(1))
        with speck.watched() as flow:
            accepted = speck.call("POST", "/compositions", json=speck.variant(2))
            assert accepted.status_code == 202, accepted.text
            change = accepted.json()["change"]
            wait_for(lambda: in_its_middle(speck, change), "the middle of the change")
            first = speck.server and speck.server.workers()
            disk.fill(speck.pids())
            wait_for(lambda: speck.status("/readyz") == 507, "the service to say so")
            # the page that the log has may last a while; then the next worker waits for room
            wait_for(lambda: speck.server and speck.server.workers() != first, "another worker")
            wait_for(lambda: speck.status("/changes") == 507, "its word")
            assert speck.status("/livez") == 200
            refusal = speck.call("POST", "/compositions", json=speck.variant(3))
            assert refusal.status_code == 507
            assert "free space" in refusal.json()["detail"]
            disk.free(speck.pids())
            wait_for(lambda: speck.status("/readyz") == 200, "the service")
            assert speck.settled()["id"] == change
            flow.go_on()
        speck.remove()


def test_a_sync_that_fails_in_the_middle_of_a_change(fog: Fog, jars: Path, tmp_path: Path) -> None:
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler; tests/unit/service/test_failing_disk.py is the other variant")
    shim = tmp_path / "failing_sync.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", shim, SHIM], check=True)
    sick = tmp_path / "sick"
    speck = Killable(fog, tmp_path / "home", jars, "unsynced")
    speck.env = {"LD_PRELOAD": str(shim), "SPECK_TEST_SICK": str(sick)}
    with speck.running():
        speck.register()
        speck.apply(speck.variant(1))
    before = speck.on_engines()
    with speck.watched() as flow:
        with speck.running() as server:
            accepted = speck.call("POST", "/compositions", json=speck.variant(2))
            assert accepted.status_code == 202, accepted.text
            change = accepted.json()["change"]
            wait_for(lambda: in_its_middle(speck, change), "the middle of the change")
            sick.touch()
            assert server.process.wait(60) == 1, "a supervisor is to see it"
            assert "Input/output error; check that disk" in server.log.whole()
            with pytest.raises(requests.ConnectionError):
                speck.call("GET", "/livez")
        names = speck.on_engines()
        sick.unlink()
        assert names - before <= read_stored(speck.home), "something went out that is not stored"
        with speck.running():
            assert speck.settled()["id"] == change
            flow.go_on()
    with speck.running():
        speck.remove()
