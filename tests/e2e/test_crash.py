"""The real service kills itself at a point of an operation; the one after it goes on.

Numbers flow through the chain all the time. tests/unit/deploy/test_crash.py tries all points over
memory sites, and names those that cannot be.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from speck.fog.sites import Fog
from tests.crash_scenarios import Crash
from tests.deaths import deaths, make_jar_of
from tests.dying import Grave

QUICK = ("start:after-request", "stop:after-answer", "drain:before-outcome", "reserve:after-intent")


@pytest.fixture(scope="module")
def grave(fog: Fog, jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Grave:
    grave = Grave(fog, tmp_path_factory.mktemp("dying") / "home", jars)
    grave.register()
    return grave


def lives_on(grave: Grave, crash: Crash) -> None:
    make_jar_of(crash, grave.jars)
    died = grave.live_through(crash)
    print(f"{crash}: on again after {died.recovery_s:.1f} s, {died.count}")
    assert died.mark == crash.at
    outcomes = [f"{o['kind']} {o['job_name']}: {o['error']}" for o in died.change["operations"]]
    assert died.change["state"] == "done", outcomes
    assert died.operations_left == []
    assert died.running == crash.scenario.wanted
    assert died.two_copies == []
    assert (died.count.lost, died.count.stray) == (0, 0), died.count


@pytest.mark.parametrize("crash", [d for d in deaths() if d.at in QUICK], ids=str)
def test_a_service_that_died_goes_on(grave: Grave, crash: Crash) -> None:
    lives_on(grave, crash)


@pytest.mark.long
@pytest.mark.parametrize("crash", [d for d in deaths() if d.at not in QUICK], ids=str)
def test_a_service_that_died_goes_on_at_every_point(grave: Grave, crash: Crash) -> None:
    lives_on(grave, crash)
