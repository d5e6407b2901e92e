"""Figure 6: chains of 1..100 jobs over 6 Flink instances, deployed, changed and deleted.

Three ways in one run, their order reversed from round to round so that a warm JVM favours nobody:
speck; the floor (bare REST calls of Flink, as many at once, over kept connections); and one job
after another, as the prototype of 2020 did it. Every way ends when all tasks of all jobs run, or
are gone. A round has its own random places of the jobs, the same for all ways.

The jobs keep no state (`upgrade: stateless`), and nothing flows through the chains: what a change
loses, and how long an application is silent, is measured by bench.moves and bench.rewire. Changed
are an argument of each job, the site of each job, and the chain: every second job is new, and each
of the others writes to a new one. `savepoint` changes an argument of jobs that keep their state.
The floor of the first two cancels a job and starts it once it is gone; that of the others stops it
with a savepoint and starts it from there.

A deletion has two floors: bare cancellations leave the session of each reader at its broker, where
messages are queued for nobody; speck ends it. The honest floor ends the sessions, too.

Two series: over a WAN, as the paper had it (three clusters of two sites, the control plane at the
first), and with all sites side by side, where on few cores the CPU decides. Flink lists all jobs
that ever ended, so that looks at it become dearer: each few rounds have a fresh fog.

`make bench-fig6` writes bench/results/fig6.json; QUICK=1 takes fewer jobs and rounds.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial

from bench.chains import AT_ONCE, CHECKPOINT_S, Bare, Chain
from bench.common import Api, fog_with_service, say, timed
from bench.experiment import Check, Experiment, interval, is_quick
from bench.usage import Machine
from speck.fog.paths import edge_jar
from speck.fog.wan.model import Uplink, Wan
from speck.model.values import JsonObject

SIZES = (1, 10) if is_quick() else (1, 10, 25, 50, 75, 100)
MOST = SIZES[-1]
FEWER = SIZES if is_quick() else (1, 10, 50, 100)
CHANGED = tuple(sorted({SIZES[1], MOST}))
SLOW_SIZES = SIZES if is_quick() else (1, 25, 100)
SITES = 6
LANS = (("edge-a", "edge-b"), ("edge-c", "edge-d"), ("edge-e", "cloud"))
ROUND_TRIP_MS = 18.6
WAN = {site: Uplink(latency_ms=ROUND_TRIP_MS / 4) for lan in LANS for site in lan}
NEAR = {site: Uplink() for site in WAN}
WAYS = ("speck", "floor", "one_by_one")
KINDS = ("argument", "move", "insert")
"""The kinds of change that are compared with a deployment."""
ACTIONS = ("deploy", "modify", "argument", "savepoint", "move", "insert", "delete")
WANTED_RATIO = 1.1
WANTED_CHANGE = 1.2
"""A change of stateless jobs, times their deployment; and a deletion, times its floor."""
WANTED_LEAD = 2.0
"""A deletion one by one, times speck's."""
WANTED_OF_FEW = 1.25
"""A composition of a few jobs, times its floor."""
QUIET_CORES = 0.4
"""A machine that is as busy as that has done with what was before."""
QUIET_S = 3.0
MOST_RESTLESS = 0.1
"""The share of actions that may begin on a busy machine."""
TIMES = "times the floor, median of the rounds"
MEDIAN = "median of the rounds"
WORDS = {"argument": "another argument", "move": "moves", "insert": "insertions in the middle"}
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
    Series("wan", WAN, SIZES, 1 if is_quick() else 6, 1 if is_quick() else 2),
    Series("near", NEAR, FEWER, 1 if is_quick() else 3, 0 if is_quick() else 1),
)
ROUNDS_OF_A_FOG = 3
WARM_UPS = 1 if is_quick() else 2
"""After one, JVMs still compile what the first measured round then pays for."""


class Speck:
    """Chains by way of the service."""

    def __init__(self, api: Api):
        self._api = api

    def apply(self, chain: Chain, kind: str | None = None) -> None:
        """Deploy a chain, or change it."""
        self._api.apply(chain.composition())

    def delete(self) -> None:
        """Without draining: the chain carries nothing."""
        self._api.call("DELETE", "/compositions/chain", drop_queues="true", drain_limit=0, wait=600)


class Floor:
    """Chains by bare REST calls."""

    def __init__(self, bare: Bare):
        self._bare = bare

    def apply(self, chain: Chain, kind: str | None = None) -> None:
        """Deploy a chain, or change it by the calls that a `kind` of change needs."""
        if kind is None:
            self._bare.deploy(chain.jobs())
        elif kind in ("modify", "argument", "move"):
            self._bare.replace(self._changed(chain))
        else:
            self._bare.restart(self._changed(chain))

    def delete(self) -> None:
        self._bare.delete()

    def release(self) -> None:
        """End the sessions that the deleted jobs have left."""
        self._bare.release()

    def _changed(self, chain: Chain) -> list[JsonObject]:
        running = {name: job for name, (_, job) in self._bare.running.items()}
        return [
            job
            for job in chain.jobs()
            if _started_with(running.get(job["job_name"])) != _started_with(job)
        ]


class OneByOne(Floor):
    """Chains by one REST call after another."""

    def apply(self, chain: Chain, kind: str | None = None) -> None:
        if kind is None:
            self._bare.deploy_in_turn(chain.jobs())
        else:
            self._bare.restart_in_turn(self._changed(chain))

    def delete(self) -> None:
        self._bare.delete_in_turn()


def _started_with(job: JsonObject | None) -> JsonObject | None:
    return job and {key: value for key, value in job.items() if key != "upgrade"}


Way = Speck | Floor


class Cycle:
    """Deploys and deletes a chain of each size. In between `modify` changes an argument of 1 to
    all jobs of the longest, and chains of `CHANGED` jobs are changed in every way."""

    def __init__(self, way: Way, make_chain: Callable[[int], Chain], note: str):
        self._way = way
        self._make_chain = make_chain
        self._note = note
        self._quiet: list[bool] = []
        self._seconds: dict[str, dict[str, float]] = {}

    def run(self, sizes: Iterable[int]) -> JsonObject:
        """The seconds; `restless`: how many of the actions began though the machine was busy."""
        machine = Machine()
        for jobs in sorted(sizes):
            chain = self._make_chain(jobs)
            self._time("deploy", jobs, lambda c=chain: self._way.apply(c))
            if jobs == MOST:
                for k in sorted(sizes):
                    self._change("modify", chain, k)
                if isinstance(self._way, Speck):
                    self._time("noop", jobs, lambda c=chain: self._way.apply(c))
            if jobs in CHANGED and not isinstance(self._way, OneByOne):
                for kind in ("argument", "savepoint", "move"):
                    self._change(kind, chain, jobs)
            self._time("delete", jobs, self._way.delete)
            if isinstance(self._way, Floor):
                self._time("release", jobs, self._way.release)
            if jobs in CHANGED and not isinstance(self._way, OneByOne):
                self._insert(jobs)
        return {
            **self._seconds,
            "cores_busy": round(machine.cores(), 2),
            "actions": len(self._quiet),
            "restless": self._quiet.count(False),
        }

    def _change(self, kind: str, chain: Chain, jobs: int) -> None:
        chain.keeps_state = kind == "savepoint"
        if kind == "move":
            chain.move(jobs)
        else:
            chain.set_note(jobs, f"{self._note}-{kind}-{jobs}")
        self._time(kind, jobs, lambda: self._way.apply(chain, kind))

    def _insert(self, jobs: int) -> None:
        """Make a chain of half as many jobs into one of `jobs`."""
        chain = self._make_chain(jobs // 2)
        self._way.apply(chain)
        chain.insert(jobs)
        self._time("insert", jobs, lambda: self._way.apply(chain, "insert"))
        self._way.delete()

    def _time(self, action: str, jobs: int, act: Callable[[], object]) -> None:
        self._quiet.append(await_quiet())
        self._seconds.setdefault(f"{action}_s", {})[str(jobs)] = timed(act)


def await_quiet() -> bool:
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
                Cycle(make_way(way, api, bare), partial(Chain.at_random, fog), "warm").run((MOST,))
            for series, n in missing[first : first + ROUNDS_OF_A_FOG]:
                for site, uplink in series.uplinks.items():
                    fog.shape(site, uplink)
                for way in ways_of(series, n):
                    sizes = SLOW_SIZES if way == "one_by_one" else series.sizes
                    make_chain = partial(Chain.at_random, fog, seed=n)
                    cycle = Cycle(make_way(way, api, bare), make_chain, f"r{n}")
                    about: JsonObject = {"series": series.name, "round": n, "way": way}
                    experiment.row(
                        f"{series.name}/{n}/{way}",
                        lambda a=about, c=cycle, s=sizes: {**a, **c.run(s)},
                    )


def make_way(way: str, api: Api, bare: Bare) -> Way:
    if way == "speck":
        return Speck(api)
    return Floor(bare) if way == "floor" else OneByOne(bare)


def summary(rows: list[JsonObject]) -> JsonObject:
    """By action and number of jobs, each way's interval of seconds; those without a WAN below
    `near`."""
    of = {name: [r for r in rows if r["series"] == name] for name in ("wan", "near")}
    return {**_summary(of["wan"], SIZES), "near": _summary(of["near"], FEWER)}


def _summary(rows: list[JsonObject], sizes: Sequence[int]) -> JsonObject:
    result: JsonObject = {}
    for action in ACTIONS:
        of = sizes if action in ("deploy", "modify", "delete") else CHANGED
        result[action] = [
            {
                "jobs": jobs,
                **{f"{way}_s": _interval(rows, way, action, jobs) for way in WAYS},
                "ratio": _ratio(rows, action, jobs),
            }
            for jobs in of
        ]
    for point in result["delete"]:
        point |= compare_deletion(rows, point["jobs"])
    for action in ("deploy", "modify"):
        result[f"{action}_linear_r2"] = _linear(rows, action, sizes)
    result["of_a_deployment"] = {kind: _of_a_deployment(rows, kind) for kind in KINDS}
    result["of_a_restart"] = _of_a_restart(rows)
    result["noop_s"] = _interval(rows, "speck", "noop", MOST)
    actions = sum(row["actions"] for row in rows)
    result["restless"] = sum(row["restless"] for row in rows) / max(1, actions)
    return result


def checks(result: JsonObject) -> list[Check]:
    """The claims about the figures; in a trial, or on a machine that was busy otherwise, none is
    judged."""
    verdicts = []
    for where, series in (("over the WAN", result), ("side by side", result["near"])):
        ratio = _at(series, "deploy", MOST)["ratio"]["median"]
        verdicts.append(
            _at_most(f"deploy {MOST} jobs {where}, {TIMES}", WANTED_RATIO, ratio, series)
        )
        verdicts += _judge_deletion(where, series)
        for kind in KINDS:
            ratio = series["of_a_deployment"][kind]["median"]
            name = f"{WORDS[kind]} of {MOST} jobs {where}, times their deployment, {MEDIAN}"
            verdicts.append(_at_most(name, WANTED_CHANGE, ratio, series))
        ratio = series["of_a_restart"]["median"]
        name = f"another argument of {MOST} jobs {where}, times deleting and deploying, {MEDIAN}"
        verdicts.append(_at_most(name, 1.0, ratio, series))
        for action in ("deploy", *KINDS):
            ratio = _at(series, action, CHANGED[0])["ratio"]["median"]
            name = f"{WORDS.get(action, action)}: {CHANGED[0]} jobs {where}, {TIMES}"
            verdicts.append(_at_most(name, WANTED_OF_FEW, ratio, series))
    for action in ("deploy", "modify"):
        r2 = result[f"{action}_linear_r2"]
        name = f"{action}: time grows with the jobs as a line, R2 over the WAN"
        verdicts.append(_judge(name, ">= 0.95", r2, r2 >= 0.95, result))
    return verdicts


def _judge_deletion(where: str, series: JsonObject) -> Iterable[Check]:
    for jobs, limit in ((MOST, WANTED_CHANGE), (CHANGED[0], WANTED_OF_FEW)):
        ratio = _at(series, "delete", jobs)["ratio_released"]["median"]
        name = f"delete {jobs} jobs and their sessions {where}, {TIMES}"
        yield _at_most(name, limit, ratio, series)
    deletion = _at(series, "delete", MOST)
    lead, most = deletion["lead"]["median"], deletion["floor_lead"]["median"]
    if lead is not None:
        name = f"delete {MOST} jobs one by one {where}, times speck's time, {MEDIAN}"
        verdict = _judge(name, f">= {WANTED_LEAD}", lead, lead >= WANTED_LEAD, series)
        if most < WANTED_LEAD and verdict.ok is False:
            # without round trips that a loop waits for, what takes the time is the engines' work
            verdict = replace(verdict, ok=None, note=f"the floor is {most:.1f} times as fast")
        yield verdict


def _at(series: JsonObject, action: str, jobs: int) -> JsonObject:
    return next(point for point in series[action] if point["jobs"] == jobs)


def _at_most(name: str, limit: float, measured: float, series: JsonObject) -> Check:
    return _judge(name, f"<= {limit}", measured, measured <= limit, series)


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
            if row["way"] == way and str(jobs) in row.get(f"{action}_s", {})
        ]
    )


def _ratio(rows: list[JsonObject], action: str, jobs: int) -> JsonObject:
    """Speck's seconds by the floor's, round by round; `median`: one floor that was slow for
    another reason makes no figure."""
    ours, floor = (_by_round(rows, way, action, jobs) for way in ("speck", "floor"))
    return _with_median([ours[n] / floor[n] for n in sorted(ours.keys() & floor.keys())])


def compare_deletion(rows: list[JsonObject], jobs: int) -> JsonObject:
    """The floor that ends the sessions, too: its seconds, and speck's by them; and the seconds one
    by one by speck's, and by those of the floor that leaves the sessions."""
    ours, one_by_one = (_by_round(rows, way, "delete", jobs) for way in ("speck", "one_by_one"))
    cancelled, released = (_by_round(rows, "floor", of, jobs) for of in ("delete", "release"))
    floor = {n: cancelled[n] + released[n] for n in cancelled.keys() & released.keys()}
    return {
        "floor_released_s": interval([floor[n] for n in sorted(floor)]),
        "ratio_released": _with_median(
            [ours[n] / floor[n] for n in sorted(ours.keys() & floor.keys())]
        ),
        "lead": _with_median(
            [one_by_one[n] / ours[n] for n in sorted(ours.keys() & one_by_one.keys())]
        ),
        "floor_lead": _with_median(
            [one_by_one[n] / cancelled[n] for n in sorted(cancelled.keys() & one_by_one.keys())]
        ),
    }


def _of_a_deployment(rows: list[JsonObject], kind: str) -> JsonObject:
    """Speck's seconds for a change of all jobs by those for their deployment, round by round."""
    change, deploy = (_by_round(rows, "speck", action, MOST) for action in (kind, "deploy"))
    return _with_median([change[n] / deploy[n] for n in sorted(change.keys() & deploy.keys())])


def _of_a_restart(rows: list[JsonObject]) -> JsonObject:
    """Speck's seconds for another argument of all jobs by those to delete and deploy them, round
    by round."""
    change, deploy, delete = (
        _by_round(rows, "speck", action, MOST) for action in ("argument", "deploy", "delete")
    )
    rounds_done = sorted(change.keys() & deploy.keys() & delete.keys())
    return _with_median([change[n] / (deploy[n] + delete[n]) for n in rounds_done])


def _by_round(rows: list[JsonObject], way: str, action: str, jobs: int) -> dict[int, float]:
    return {
        row["round"]: row[f"{action}_s"][str(jobs)]
        for row in rows
        if row["way"] == way and str(jobs) in row.get(f"{action}_s", {})
    }


def _with_median(ratios: list[float]) -> JsonObject:
    return {**interval(ratios), "median": statistics.median(ratios) if ratios else None}


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
