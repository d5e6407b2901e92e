"""The real service kills itself at a point of an operation; the one after it goes on.

Numbers flow through the chain all the time. tests/unit/deploy/test_crash.py tries all points over
memory sites, and names those that cannot be; test_killed_service.py is quick.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from speck.fog.sites import Fog
from tests.crash_scenarios import Crash
from tests.deaths import deaths, make_jar_of
from tests.dying import Grave

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def grave(fog: Fog, jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Grave:
    grave = Grave(fog, tmp_path_factory.mktemp("dying") / "home", jars)
    grave.register()
    return grave


@pytest.mark.parametrize("crash", deaths(), ids=str)
def test_a_service_that_died_goes_on(grave: Grave, crash: Crash) -> None:
    make_jar_of(crash, grave.jars)
    death = grave.live_through(crash)
    print(f"{crash}: on again after {death.recovery_s:.1f} s, {death.count}")
    assert death.mark == crash.at
    outcomes = [f"{o['kind']} {o['job_name']}: {o['error']}" for o in death.change["operations"]]
    assert death.change["state"] == "done", outcomes
    assert death.operations_left == []
    assert death.running == crash.scenario.wanted
    assert death.two_copies == []
    assert (death.count.lost, death.count.stray) == (0, 0), death.count
