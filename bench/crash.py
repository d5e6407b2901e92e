"""The service dies at every crash point of every kind of operation; what its next life makes of it.

Real Flink, Mosquitto and service, with numbers flowing through the chain all the time; the
scenarios are those of tests/e2e/test_crash.py. A death counts as recovered when the change that
it cut short is done, nothing is left to do, and every job runs where it should. The time is that
from the death to the end of the change, with the start of the next process in it.

`make bench-crash` writes bench/results/crash.json; QUICK=1 tries two points only.
"""

from __future__ import annotations

import shutil
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from bench.common import end_well_when_told, is_quick, machine, say, write_result
from speck.errors import SpeckError
from speck.fog.paths import edge_jar
from speck.fog.sites import Fog
from speck.model.values import JsonObject
from tests.crash_scenarios import Crash
from tests.deaths import deaths, make_jar_of
from tests.dying import Died, Grave

SLOTS = 8


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one death; `died` is None when the service did not recover that far."""

    crash: Crash
    died: Died | None
    fault: str | None

    @property
    def recovered(self) -> bool:
        return self.fault is None


def die(grave: Grave, crash: Crash) -> Outcome:
    """One death and its consequences."""
    try:
        death = grave.live_through(crash)
    except (AssertionError, SpeckError, OSError) as error:
        return Outcome(crash, None, str(error) or repr(error))
    fault = None
    if death.mark != crash.at:
        fault = f"it died at {death.mark}"
    elif death.change["state"] != "done":
        fault = f"the change is {death.change['state']}: {death.change['error']}"
    elif death.operations_left:
        fault = f"{len(death.operations_left)} operations are left to do"
    elif death.running != crash.scenario.wanted:
        fault = f"there run {death.running}, not {crash.scenario.wanted}"
    return Outcome(crash, death, fault)


def result_of(outcomes: list[Outcome], seconds: float) -> JsonObject:
    """The figures over all deaths."""
    lived = [outcome.died for outcome in outcomes if outcome.died is not None]
    times = sorted(death.recovery_s for death in lived)
    return {
        "points": len(outcomes),
        "recovered": sum(outcome.recovered for outcome in outcomes),
        "max_recovery_s": round(max(times), 2) if times else None,
        "median_recovery_s": round(statistics.median(times), 2) if times else None,
        "two_copies": sum(len(death.two_copies) for death in lived),
        "lost": sum(death.count.lost for death in lived),
        "stray": sum(death.count.stray for death in lived),
        "published": sum(death.count.published for death in lived),
        "seconds": round(seconds),
        "by_point": {
            str(outcome.crash): {
                "recovery_s": outcome.died and round(outcome.died.recovery_s, 2),
                **({"fault": outcome.fault} if outcome.fault else {}),
            }
            for outcome in outcomes
        },
        "machine": machine(),
    }


def main() -> int:
    end_well_when_told()
    started = time.monotonic()
    outcomes = []
    with tempfile.TemporaryDirectory(prefix="speck-bench-") as folder:
        fog = Fog(Path(folder) / "fog")
        try:
            say("bringing up 4 sites")
            fog.up(edges=3, slots=SLOTS, cloud_slots=SLOTS)
            jars = Path(folder) / "jars"
            jars.mkdir()
            shutil.copy(edge_jar("speck-jobs.jar"), jars)
            grave = Grave(fog, Path(folder) / "home", jars)
            grave.register()
            for crash in deaths()[:: 26 if is_quick() else 1]:
                make_jar_of(crash, jars)
                outcomes.append(die(grave, crash))
                death, fault = outcomes[-1].died, outcomes[-1].fault
                say(f"{crash}: {fault or (death and f'{death.recovery_s:.1f} s')}")
        finally:
            fog.down()
    result = result_of(outcomes, time.monotonic() - started)
    write_result("crash.json", result)
    bad = result["points"] - result["recovered"] + result["two_copies"] + result["lost"]
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
