"""kill -9 of the service at random instants while it carries out changes, under a flow."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest
import requests

from speck.fog.sites import Fog
from tests.e2e.killable import Killable
from tests.waiting import wait_for

pytestmark = pytest.mark.usefixtures("agents_back")

LONGEST_S = 4.0


@pytest.mark.parametrize("rounds", [1, pytest.param(30, marks=pytest.mark.long)])
def test_a_service_that_is_killed_again_and_again_goes_on(
    rounds: int, fog: Fog, jars: Path, tmp_path: Path
) -> None:
    speck = Killable(fog, tmp_path / "home", jars, f"killed{rounds}")
    chance = random.Random(rounds)
    with speck.running():
        speck.register()
        speck.apply(speck.variant(0))
    with speck.watched() as flow:
        for number in range(1, rounds + 1):
            with speck.running():
                accepted = requests.post(
                    f"{speck.url}/compositions", json=speck.variant(number), timeout=60
                )
                assert accepted.status_code == 202, accepted.text
                threading.Event().wait(chance.uniform(0, LONGEST_S))  # any instant will do
                speck.kill()
            with speck.running():
                change = speck.settled()
                assert change["id"] == accepted.json()["change"]
                wait_for(speck.all_run, "all jobs to run")
                plan = speck.call("GET", f"/compositions/{speck.name}/plan").json()
                assert plan["operations"] == []
            flow.go_on()
    with speck.running():
        assert {it["cause"] for it in speck.changes()} == {"apply"}, "nothing needed a repair"
        speck.remove()
