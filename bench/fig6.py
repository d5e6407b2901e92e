"""Figure 6: chains of 1..100 jobs over 6 Flink instances, deployed, modified and deleted.

Three ways in one run, their order reversed from round to round so that a warm JVM favours nobody:
speck; the floor (bare REST calls of Flink, as many at once, over kept connections); and one job
after another, as the prototype of 2020 did it. Every way ends when all tasks of all jobs run, or
are gone. A round has its own random places of the jobs, the same for all ways.

Two series: over a WAN, as the paper had it (three clusters of two sites, the control plane at the
first), and with all sites side by side, where on few cores the CPU decides. Flink lists all jobs
that ever ended, so that looks at it become dearer: each few rounds have a fresh fog.

`make bench-fig6` writes bench/results/fig6.json; QUICK=1 takes fewer jobs and rounds.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass

from bench.chains import AT_ONCE, CHECKPOINT_S, Bare, chain
from bench.common import Api, fog_with_service, say, timed
from bench.experiment import Check, Experiment, interval, is_quick
from bench.usage import Machine
from speck.fog.paths import edge_jar
from speck.fog.sites import Fog
from speck.fog.wan.model import Uplink, Wan
from speck.model.values import JsonObject

SIZES = (1, 10) if is_quick() else (1, 10, 25, 50, 75, 100)
MOST = SIZES[-1]
FEWER = SIZES if is_quick() else (1, 25, 50, 100)
SLOW_SIZES = SIZES if is_quick() else (1, 25, 100)
SITES = 6
LANS = (("edge-a", "edge-b"), ("edge-c", "edge-d"), ("edge-e", "cloud"))
ROUND_TRIP_MS = 18.6
WAN = {site: Uplink(latency_ms=ROUND_TRIP_MS / 4) for lan in LANS for site in lan}
NEAR = {site: Uplink() for site in WAN}
WAYS = ("speck", "floor", "one_by_one")
WANTED_RATIO = 1.1
QUIET_CORES = 0.4
"""A machine that is as busy as that has done with what was before."""
QUIET_S = 3.0
MOST_RESTLESS = 0.1
"""The share of actions that may begin on a busy machine."""
SIMULATED = (
    "The WAN: the six sites are network namespaces of one machine, and 18.6 ms between clusters"
    " are made by a delay element. We read the paper's 18.6 ms as the round trip, 9.3 ms one way.",
    "All six Flink instances, their brokers and the control plane share the cores of one machine.",
)


@dataclass(frozen=True, slots=True)
class Series:
    """Rounds under the same latencies."""

    name: str
    uplinks: Mapping[str, Uplink]
    sizes: tuple[int, ...]
    rounds: int
    slow_rounds: int
    """Of one after another: it takes long."""


SERIES = (
    Series("wan", WAN, SIZES, 1 if is_quick() else 10, 1 if is_quick() else 2),
    Series("near", NEAR, FEWER, 1 if is_quick() else 3, 0 if is_quick() else 1),
)
ROUNDS_OF_A_FOG = 4
WARM_UPS = 1 if is_quick() else 2
"""After one, JVMs still compile what the first measured round then pays for."""


class Speck:
    """Chains by way of the service."""

    def __init__(self, fog: Fog, api: Api, seed: int):
        self._fog, self._api, self._seed = fog, api, seed

    def deploy(self, jobs: int) -> None:
        self._api.apply(chain(self._fog, jobs, seed=self._seed))

    def modify(self, jobs: int, changes: int, note: str) -> None:
        self._api.apply(chain(self._fog, jobs, changes, note, self._seed))

    def delete(self) -> None:
        """Without draining: the chain carries nothing."""
        self._api.call("DELETE", "/compositions/chain", drain="false", wait=600)


class Floor:
    """Chains by bare REST calls."""

    def __init__(self, fog: Fog, bare: Bare, seed: int):
        self._fog, self._bare, self._seed = fog, bare, seed

    def deploy(self, jobs: int) -> None:
        self._bare.deploy(chain(self._fog, jobs, seed=self._seed)["jobs"])

    def modify(self, jobs: int, changes: int, note: str) -> None:
        composition = chain(self._fog, jobs, changes, note, self._seed)
        self._bare.modify(composition["jobs"][:changes])

    def delete(self) -> None:
        self._bare.delete()


class OneByOne(Floor):
    """Chains by one REST call after another."""

    def deploy(self, jobs: int) -> None:
        self._bare.deploy_in_turn(chain(self._fog, jobs, seed=self._seed)["jobs"])

    def modify(self, jobs: int, changes: int, note: str) -> None:
        composition = chain(self._fog, jobs, changes, note, self._seed)
        self._bare.modify_in_turn(composition["jobs"][:changes])

    def delete(self) -> None:
        self._bare.delete_in_turn()


Way = Speck | Floor


def cycle(way: Way, sizes: Iterable[int], note: str) -> JsonObject:
    """Deploy and delete a chain of each size; modify 1..all of the longest. Seconds, by jobs;
    `restless`: how many of the actions began though the machine was busy."""
    seconds: dict[str, dict[str, float]] = {"deploy_s": {}, "modify_s": {}, "delete_s": {}}
    quiet: list[bool] = []

    def timed_in_peace(action: Callable[[], object]) -> float:
        quiet.append(_await_quiet())
        return timed(action)

    machine = Machine()
    for jobs in sorted(sizes):
        seconds["deploy_s"][str(jobs)] = timed_in_peace(lambda n=jobs: way.deploy(n))
        if jobs == MOST:
            for k in sorted(sizes):
                change_note = f"{note}-{k}"
                time_s = timed_in_peace(lambda k=k, c=change_note: way.modify(MOST, k, c))
                seconds["modify_s"][str(k)] = time_s
            if isinstance(way, Speck):
                time_s = timed_in_peace(lambda c=change_note: way.modify(MOST, MOST, c))
                seconds["noop_s"] = {str(MOST): time_s}
        seconds["delete_s"][str(jobs)] = timed_in_peace(way.delete)
    return {
        **seconds,
        "cores_busy": round(machine.cores(), 2),
        "actions": len(quiet),
        "restless": quiet.count(False),
    }


def _await_quiet() -> bool:
    """Wait until the work of earlier runs has ended; false when some of it continues."""
    until = time.monotonic() + QUIET_S
    while time.monotonic() < until:
        machine = Machine()
        time.sleep(0.2)
        if machine.cores() < QUIET_CORES:
            return True
    return False


def rounds() -> list[tuple[Series, int]]:
    """All rounds, the series in turn."""
    most = max(series.rounds for series in SERIES)
    return [(series, n) for n in range(1, most + 1) for series in SERIES if n <= series.rounds]


def ways_of(series: Series, round_: int) -> list[str]:
    """The ways of a round, in its order."""
    ways = WAYS if round_ % 2 else WAYS[::-1]
    return [way for way in ways if way != "one_by_one" or round_ <= series.slow_rounds]


def measure(experiment: Experiment) -> None:
    """All rounds that were not measured before."""
    keys = {row["key"] for row in experiment.rows}
    missing = [
        (series, n)
        for series, n in rounds()
        if {f"{series.name}/{n}/{way}" for way in ways_of(series, n)} - keys
    ]
    for first in range(0, len(missing), ROUNDS_OF_A_FOG):
        wan = Wan(WAN, LANS, host=LANS[0][0])
        with fog_with_service(SITES - 1, 1, MOST // 2 + 5, CHECKPOINT_S, wan=wan) as (fog, api):
            bare = Bare(fog)
            say("warming up")
            for way in ("speck", "floor") * WARM_UPS:
                cycle(_make_way(way, fog, api, bare, 0), (MOST,), "warm")
            for series, n in missing[first : first + ROUNDS_OF_A_FOG]:
                for site, uplink in series.uplinks.items():
                    fog.shape(site, uplink)
                for way in ways_of(series, n):
                    sizes = SLOW_SIZES if way == "one_by_one" else series.sizes
                    driver = _make_way(way, fog, api, bare, n)
                    about: JsonObject = {"series": series.name, "round": n, "way": way}
                    experiment.row(
                        f"{series.name}/{n}/{way}",
                        lambda a=about, w=driver, s=sizes, n=n: {**a, **cycle(w, s, f"r{n}")},
                    )


def _make_way(way: str, fog: Fog, api: Api, bare: Bare, seed: int) -> Way:
    if way == "speck":
        return Speck(fog, api, seed)
    return Floor(fog, bare, seed) if way == "floor" else OneByOne(fog, bare, seed)


def summary(rows: list[JsonObject]) -> JsonObject:
    """By action and number of jobs, each way's interval of seconds; those without a WAN below
    `near`."""
    of = {name: [r for r in rows if r["series"] == name] for name in ("wan", "near")}
    return {**_summary(of["wan"], SIZES), "near": _summary(of["near"], FEWER)}


def _summary(rows: list[JsonObject], sizes: Iterable[int]) -> JsonObject:
    result: JsonObject = {}
    for action in ("deploy", "modify", "delete"):
        result[action] = [
            {"jobs": jobs, **{f"{way}_s": _interval(rows, way, action, jobs) for way in WAYS}}
            for jobs in sizes
        ]
        result[f"{action}_ratio"] = _ratio(rows, action)
        result[f"{action}_linear_r2"] = _linear(rows, action, sizes)
    result["noop_s"] = _interval(rows, "speck", "noop", MOST)
    actions = sum(row["actions"] for row in rows)
    result["restless"] = sum(row["restless"] for row in rows) / max(1, actions)
    return result


def checks(result: JsonObject) -> list[Check]:
    """The claims about the figures; in a trial, or on a machine that was busy otherwise, none is
    judged."""
    verdicts = []
    for name, series in (("over the WAN", result), ("side by side", result["near"])):
        ratio = series["deploy_ratio"]["median"]
        verdicts.append(
            _judge(
                f"deploy {MOST} jobs {name}, times the floor, median of the rounds",
                f"<= {WANTED_RATIO}",
                ratio,
                ratio <= WANTED_RATIO,
                series,
            )
        )
    for action in ("deploy", "modify"):
        r2 = result[f"{action}_linear_r2"]
        name = f"{action}: time grows with the jobs as a line, R2 over the WAN"
        verdicts.append(_judge(name, ">= 0.95", r2, r2 >= 0.95, result))
    return verdicts


def _judge(name: str, wanted: str, measured: float, ok: bool, series: JsonObject) -> Check:
    note = "a trial" if is_quick() else ""
    if series["restless"] > MOST_RESTLESS:
        note = f"the machine was busy before {series['restless']:.0%} of the actions"
    return Check(name, wanted, round(measured, 3), None if note else ok, note)


def _linear(rows: list[JsonObject], action: str, sizes: Iterable[int]) -> float:
    """R2 of the line through the means of speck's times over the number of jobs."""
    means = [_interval(rows, "speck", action, jobs)["mean"] for jobs in sizes]
    return statistics.correlation(list(map(float, sizes)), means) ** 2


def _interval(rows: list[JsonObject], way: str, action: str, jobs: int) -> JsonObject:
    return interval(
        [
            row[f"{action}_s"][str(jobs)]
            for row in rows
            if row["way"] == way and str(jobs) in row[f"{action}_s"]
        ]
    )


def _ratio(rows: list[JsonObject], action: str) -> JsonObject:
    """Speck's seconds by the floor's for the longest chain, round by round; `median`: one floor
    that was slow for another reason makes no figure."""

    def by_round(way: str) -> dict[int, float]:
        return {r["round"]: r[f"{action}_s"][str(MOST)] for r in rows if r["way"] == way}

    ours, floor = by_round("speck"), by_round("floor")
    ratios = [ours[n] / floor[n] for n in sorted(ours.keys() & floor.keys())]
    return {**interval(ratios), "median": statistics.median(ratios)}


def main() -> int:
    settings: JsonObject = {
        "series": [asdict(series) for series in SERIES],
        "one_by_one_sizes": SLOW_SIZES,
        "sites": SITES,
        "lans": LANS,
        "control_plane_at": LANS[0][0],
        "at_once_per_site": AT_ONCE,
        "checkpoint_interval_s": CHECKPOINT_S,
        "rounds_of_a_fog": ROUNDS_OF_A_FOG,
        "warm_ups": WARM_UPS,
        "jar_bytes": edge_jar("speck-jobs.jar").stat().st_size,
    }
    experiment = Experiment("fig6", settings, simulated=SIMULATED)
    measure(experiment)
    result = summary(experiment.rows)
    return experiment.finish(result, checks(result))


if __name__ == "__main__":
    sys.exit(main())
