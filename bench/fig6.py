"""Figure 6: chains of 1..100 jobs over 6 Flink instances, deployed, modified and deleted.

Three ways in one run, their order turned in each round so that a warm JVM favours nobody: speck;
the floor (bare REST calls of Flink, as many at once, over kept connections); and one job after
another, as the prototype of 2020 did it. Every way ends when all tasks of all jobs run, or are
gone. A round has its own random places of the jobs, the same for all ways.

`make bench-fig6` writes bench/results/fig6.json; QUICK=1 takes fewer jobs and rounds.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from bench.chains import AT_ONCE, CHECKPOINT_S, Bare, chain
from bench.common import Api, fog_with_service, say, timed
from bench.experiment import Check, Experiment, interval, is_quick
from speck.fog.paths import edge_jar
from speck.fog.sites import Fog
from speck.model import JsonObject

SIZES = (1, 10) if is_quick() else (1, 10, 25, 50, 75, 100)
MOST = SIZES[-1]
ROUNDS = 1 if is_quick() else 10
SLOW_SIZES = SIZES if is_quick() else (1, 25, 100)
SLOW_ROUNDS = 1 if is_quick() else 3
SITES = 6
WAYS = ("speck", "floor", "one_by_one")
WANTED_RATIO = 1.1


class Speck:
    """Chains by way of the service."""

    def __init__(self, fog: Fog, api: Api, seed: int):
        self._fog, self._api, self._seed = fog, api, seed

    def deploy(self, jobs: int) -> None:
        self._api.apply(chain(self._fog, jobs, seed=self._seed))

    def modify(self, jobs: int, changed: int, note: str) -> None:
        self._api.apply(chain(self._fog, jobs, changed, note, self._seed))

    def delete(self) -> None:
        """Without draining: the chain carries nothing."""
        self._api.call("DELETE", "/compositions/chain", drain="false", wait=600)


class Floor:
    """Chains by bare REST calls."""

    def __init__(self, fog: Fog, bare: Bare, seed: int):
        self._fog, self._bare, self._seed = fog, bare, seed

    def deploy(self, jobs: int) -> None:
        self._bare.deploy(chain(self._fog, jobs, seed=self._seed)["jobs"])

    def modify(self, jobs: int, changed: int, note: str) -> None:
        composition = chain(self._fog, jobs, changed, note, self._seed)
        self._bare.modify(composition["jobs"][:changed])

    def delete(self) -> None:
        self._bare.delete()


class OneByOne(Floor):
    """Chains by one REST call after another."""

    def deploy(self, jobs: int) -> None:
        self._bare.deploy_in_turn(chain(self._fog, jobs, seed=self._seed)["jobs"])

    def modify(self, jobs: int, changed: int, note: str) -> None:
        composition = chain(self._fog, jobs, changed, note, self._seed)
        self._bare.modify_in_turn(composition["jobs"][:changed])

    def delete(self) -> None:
        self._bare.delete_in_turn()


Way = Speck | Floor


def cycle(way: Way, sizes: Iterable[int], note: str) -> JsonObject:
    """Deploy and delete a chain of each size; modify 1..all of the longest. Seconds, by jobs."""
    found: dict[str, dict[str, float]] = {"deploy_s": {}, "modify_s": {}, "delete_s": {}}
    before, began = _busy_s(), time.monotonic()
    for jobs in sorted(sizes):
        found["deploy_s"][str(jobs)] = timed(lambda n=jobs: way.deploy(n))
        if jobs == MOST:
            for k in sorted(sizes):
                changed = f"{note}-{k}"
                took = timed(lambda k=k, c=changed: way.modify(MOST, k, c))
                found["modify_s"][str(k)] = took
            if isinstance(way, Speck):
                found["noop_s"] = {str(MOST): timed(lambda c=changed: way.modify(MOST, MOST, c))}
        found["delete_s"][str(jobs)] = timed(way.delete)
    share = (_busy_s() - before) / (time.monotonic() - began)
    return {**found, "cores_busy": round(share, 2)}


def measured(experiment: Experiment, fog: Fog, api: Api) -> None:
    """All rounds, series by series."""
    bare = Bare(fog)
    makers: dict[str, Callable[[int], Way]] = {
        "speck": lambda seed: Speck(fog, api, seed),
        "floor": lambda seed: Floor(fog, bare, seed),
        "one_by_one": lambda seed: OneByOne(fog, bare, seed),
    }
    say("warming up")
    for way in ("speck", "floor"):
        cycle(makers[way](0), (1, MOST), "warm")
    for round_ in range(1, ROUNDS + 1):
        turn = round_ % len(WAYS)
        for way in WAYS[turn:] + WAYS[:turn]:
            slow = way == "one_by_one"
            if slow and round_ > SLOW_ROUNDS:
                continue
            sizes = SLOW_SIZES if slow else SIZES
            made = makers[way](round_)
            experiment.row(
                f"{round_}/{way}",
                lambda w=made, s=sizes, r=round_, n=way: {
                    "way": n,
                    "round": r,
                    **cycle(w, s, f"r{r}"),
                },
            )


def summary(rows: list[JsonObject]) -> JsonObject:
    """By action and number of jobs, each way's interval of seconds."""
    found: JsonObject = {}
    for action in ("deploy", "modify", "delete"):
        found[action] = [
            {"jobs": jobs, **{f"{way}_s": _interval(rows, way, action, jobs) for way in WAYS}}
            for jobs in SIZES
        ]
        found[f"{action}_ratio"] = _ratio(rows, action)
    found["noop_s"] = _interval(rows, "speck", "noop", MOST)
    return found


def checks(found: JsonObject) -> list[Check]:
    """What the figures should show; a trial judges nothing."""
    ratio = found["deploy_ratio"]["mean"]
    note = "a trial" if is_quick() else ""
    return [
        Check(
            f"deploy {MOST} jobs, times the floor",
            f"<= {WANTED_RATIO}",
            ratio,
            None if is_quick() else ratio <= WANTED_RATIO,
            note,
        )
    ]


def _interval(rows: list[JsonObject], way: str, action: str, jobs: int) -> JsonObject:
    return interval(
        [
            row[f"{action}_s"][str(jobs)]
            for row in rows
            if row["way"] == way and str(jobs) in row[f"{action}_s"]
        ]
    )


def _ratio(rows: list[JsonObject], action: str) -> JsonObject:
    """Speck's seconds by the floor's for the longest chain, round by round."""

    def by_round(way: str) -> dict[int, float]:
        return {r["round"]: r[f"{action}_s"][str(MOST)] for r in rows if r["way"] == way}

    ours, floor = by_round("speck"), by_round("floor")
    return interval([ours[n] / floor[n] for n in sorted(ours.keys() & floor.keys())])


def _busy_s() -> float:
    """Seconds that all cores of the machine were busy since it was started."""
    words = [int(w) for w in Path("/proc/stat").read_text().split("\n")[0].split()[1:9]]
    idle, waiting = words[3], words[4]
    return (sum(words) - idle - waiting) / 100


def main() -> int:
    settings = {
        "sizes": SIZES,
        "rounds": ROUNDS,
        "one_by_one": {"sizes": SLOW_SIZES, "rounds": SLOW_ROUNDS},
        "sites": SITES,
        "at_once_per_site": AT_ONCE,
        "checkpoint_interval_s": CHECKPOINT_S,
        "jar_bytes": edge_jar("speck-jobs.jar").stat().st_size,
    }
    experiment = Experiment("fig6", settings)
    with fog_with_service(SITES - 1, 1, MOST // 2 + 5, CHECKPOINT_S) as (fog, api):
        measured(experiment, fog, api)
    found = summary(experiment.rows)
    return experiment.finish(found, checks(found))


if __name__ == "__main__":
    sys.exit(main())
