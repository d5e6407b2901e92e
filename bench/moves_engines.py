"""Moves, updates and kills of jobs on an engine other than Flink, beside the same on Flink.

A chain edge -> cloud of a job without state and one that counts by key carries 500 records a
second. Twenty times one of the two is moved to another site or updated in place; then what runs the
second one is killed, piece by piece: the job's program (of Flink: the engine, which runs it), the
runner of the site's programs, and the site's agent. What was killed is started again at once, as
systemd does. All of it once with the jobs on the engine in question and once with the same jobs on
Flink, on the same fog, where every site keeps its state to itself.

- `process`, under at_least_once: both jobs are programs of the Python client.
- `spark`, under exactly_once: the second job is PySpark, at one of two clouds; the first one stays
  where it is, on Flink. A job of Spark that counts gives totals by key for each batch, one of Flink
  gives a record for each that comes.

The silence of a change or a kill is the longest pause at the end of the chain from then on until
the records published after it have come out. `stop_s` and `start_s` are what the operations of the
changes took: a stop ends with the state on disk, a start when the job runs.

`make bench-moves ENGINE=process` writes bench/results/moves_process.json, ENGINE=spark
moves_spark.json; MOVES=n: a trial that writes nothing.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime

from bench.common import Api, fog_with_service, is_quick, say
from bench.engine_jobs import COUNT, FLINK, PASS, PROCESS, SPARK, describe_program
from bench.experiment import Check, Experiment
from bench.instruments.checker import Checker, Tally
from bench.instruments.duplicate_monitor import DuplicateMonitor
from bench.instruments.feed import Feed
from bench.instruments.program_monitor import ProgramMonitor
from bench.instruments.totals import TotalsTally
from bench.moves import spread
from speck.fog.sites import Fog
from speck.model.values import JsonObject
from speck.runner.claims import FOLDER, read_claim
from speck.runner.processes import find_mains, find_members

RATE = 500
SLOTS = 8
CHECKPOINT_S = 1.0
MOVES = 4 if is_quick() else 20
KILLS = 1 if is_quick() else 3
"""Of each kind."""
PATIENCE_S = 600.0
"""A session of Spark on a busy machine takes minutes to start."""
UPDATE = "update"
PROGRAM, RUNNER, AGENT = "program", "runner", "agent"


@dataclass(frozen=True, slots=True)
class Trial:
    """What is tried on an engine. `on` says which of the chain's jobs run there (the others are
    Flink's), `places` which sites each may move to; one that may not move is not updated either."""

    engine: str
    delivery: str
    on: Sequence[str]
    places: Mapping[str, Sequence[str]]
    edges: int
    clouds: int

    def engine_of(self, short: str, engine: str) -> str:
        """Where a job runs in the part of the experiment that is about `engine`."""
        return engine if short in self.on else FLINK


_ALL = ("edge-a", "edge-b", "cloud")
TRIALS = {
    PROCESS: Trial(
        PROCESS, "at_least_once", (PASS, COUNT), {PASS: _ALL, COUNT: _ALL}, edges=2, clouds=1
    ),
    SPARK: Trial(SPARK, "exactly_once", (COUNT,), {COUNT: ("cloud", "cloud-2")}, edges=1, clouds=2),
}


@dataclass(frozen=True, slots=True)
class Arrangement:
    """A chain: the engines and sites of its two jobs, and an argument of each."""

    name: str
    delivery: str
    engines: Mapping[str, str]
    sites: Mapping[str, str]
    notes: Mapping[str, int]

    def composition(self) -> JsonObject:
        name = self.name

        def job(short: str, source: tuple[str, str], sink: tuple[str, str]) -> JsonObject:
            return {
                "job_name": f"{name}-{short}",
                "site": self.sites[short],
                "source_site": source[0],
                "source_topic": f"{name}.{source[1]}",
                "sink_site": sink[0],
                "sink_topic": f"{name}.{sink[1]}",
                "delivery": self.delivery,
                "args": ["--note", str(self.notes[short])],
                **describe_program(self.engines[short], short),
            }

        return {
            "name": name,
            "jobs": [
                job(PASS, ("edge-a", "in"), ("cloud", "mid")),
                job(COUNT, ("cloud", "mid"), ("cloud", "out")),
            ],
            "inputs": [{"site": "edge-a", "topic": f"{name}.in"}],
            "outputs": [{"site": "cloud", "topic": f"{name}.out", "client_id": f"{name}-end"}],
        }


def next_change(
    dice: random.Random, now: Arrangement, places: Mapping[str, Sequence[str]]
) -> tuple[Arrangement, str, str]:
    """The next arrangement, which job it changes, and how: `update`, or `move`. Every third change
    is an update."""
    short = dice.choice(sorted(places))
    if dice.randrange(3) == 0:
        notes = {**now.notes, short: now.notes[short] + 1}
        return Arrangement(now.name, now.delivery, now.engines, now.sites, notes), short, UPDATE
    site = dice.choice([each for each in places[short] if each != now.sites[short]])
    sites = {**now.sites, short: site}
    return Arrangement(now.name, now.delivery, now.engines, sites, now.notes), short, "move"


@dataclass(slots=True)
class Figures:
    """What one part gives: seconds, by kind."""

    move_gap_s: list[float] = field(default_factory=list)
    update_gap_s: list[float] = field(default_factory=list)
    change_s: list[float] = field(default_factory=list)
    stop_s: list[float] = field(default_factory=list)
    start_s: list[float] = field(default_factory=list)
    at_rest_s: list[float] = field(default_factory=list)
    recovery_s: dict[str, list[float]] = field(default_factory=dict)


@dataclass(slots=True)
class Chain:
    """A chain that flows, and those who look at it."""

    fog: Fog
    api: Api
    place: Arrangement
    feed: Feed
    end: Checker
    figures: Figures = field(default_factory=Figures)

    def change(self, after: Arrangement, short: str, what: str) -> None:
        """Apply, and wait until records published after it have come out."""
        before, self.place = self.place, after
        began = time.monotonic()
        answer = self.api.apply(after.composition())
        took_s = time.monotonic() - began
        gap = self._await_recovery(began)
        times = find_times(self.api.call("GET", f"/changes/{answer['change']}"))
        figures = self.figures
        figures.change_s.append(took_s)
        figures.stop_s += times["stop"]
        figures.start_s += times["start"]
        (figures.update_gap_s if what == UPDATE else figures.move_gap_s).append(gap)
        where = f"{before.sites[short]} -> {after.sites[short]}"
        say(f"{what} {short} {where}: {took_s:.2f} s, {times}, silent for {gap:.2f} s")

    def kill(self, what: str) -> None:
        """Kill what runs the second job, and wait until what was published after that has come."""
        site, began = self.place.sites[COUNT], time.monotonic()
        self._strike(what, site)
        gap = self._await_recovery(began)
        self.figures.recovery_s.setdefault(what, []).append(gap)
        say(f"killed the {what} at {site}: silent for {gap:.2f} s")

    def _strike(self, what: str, site: str) -> None:
        if what == PROGRAM and self.place.engines[COUNT] != FLINK:
            os.kill(self.find_program(site), signal.SIGKILL)
            return
        self.fog.kill(site, "engine" if what == PROGRAM else what)
        self.fog.start(site)

    def find_program(self, site: str) -> int:
        """The process id of the second job's program."""
        job = self.api.call("GET", f"/jobs/{self.place.name}-{COUNT}")
        folder = self.fog.state_folder(site) / FOLDER / str(job["engine_job_id"])
        claim = read_claim(folder)
        if claim is None or claim[1].session is None:
            raise RuntimeError(f"cannot find the program of {job['job_name']} in {folder}")
        session = claim[1].session
        (main,) = find_mains(find_members(session), session.id)
        return main.pid

    def _await_recovery(self, began: float) -> float:
        """The longest silence since then, once what is published from now on has come out."""
        self.end.await_number(self.feed.sent, timeout_s=PATIENCE_S)
        self.end.await_number(self.feed.sent + RATE, timeout_s=PATIENCE_S)
        return self.end.longest_silence(began, cut=True)


def find_times(change: JsonObject) -> dict[str, list[float]]:
    """Seconds of the stops and the starts of a change."""
    times: dict[str, list[float]] = {"stop": [], "start": []}
    for operation in change["operations"]:
        if operation["kind"] in times and operation["state"] == "done":
            began, ended = (datetime.fromisoformat(operation[key]) for key in ("started", "ended"))
            times[operation["kind"]].append(round((ended - began).total_seconds(), 3))
    return times


@contextmanager
def flowing(fog: Fog, api: Api, place: Arrangement) -> Iterator[Chain]:
    """The chain is deployed and carries records; removed at the end."""
    name = place.name
    brokers = {site.name: site.broker_address for site in fog.sites()}
    tally: Tally = TotalsTally() if place.engines[COUNT] == SPARK else Tally()
    api.apply(place.composition())
    with ExitStack() as stack:
        end = stack.enter_context(Checker(brokers["cloud"], f"{name}.out", f"{name}-end", tally))
        feed = stack.enter_context(Feed(brokers["edge-a"], f"{name}.in", rate=RATE, run=name))
        end.await_number(10 * RATE, timeout_s=PATIENCE_S)
        yield Chain(fog, api, place, feed, end)
    api.call("DELETE", f"/compositions/{name}", wait=600, drop_queues="true", drain_limit=0)


def run(fog: Fog, api: Api, trial: Trial, engine: str, moves: int, kills: int) -> JsonObject:
    """One part: moves, updates and kills of the jobs on one engine."""
    name = f"moves-{trial.engine}-on-{engine}"
    shorts = (PASS, COUNT)
    place = Arrangement(
        name,
        trial.delivery,
        {short: trial.engine_of(short, engine) for short in shorts},
        {PASS: "edge-a", COUNT: "cloud"},
        dict.fromkeys(shorts, 0),
    )
    sites = fog.sites()
    with ExitStack() as stack:
        engines = {site.name: site.engine_address for site in sites}
        witness = stack.enter_context(DuplicateMonitor(engines))
        programs = stack.enter_context(
            ProgramMonitor(fog.state_folder(site.name) for site in sites)
        )
        chain = stack.enter_context(flowing(fog, api, place))
        time.sleep(8)
        chain.figures.at_rest_s = list(chain.end.silences(time.monotonic() - 8, time.monotonic()))
        dice = random.Random(5)
        for _ in range(moves):
            chain.change(*next_change(dice, chain.place, trial.places))
        by_moves = chain.end.count(0)
        for _ in range(kills):
            for what in kinds_of_kills(engine):
                chain.kill(what)
        count = chain.end.await_all(chain.feed.end(), PATIENCE_S, idle_s=120)
        two = [*witness.two_copies(), *programs.two_copies()]
    say(f"{engine}: {count}; two copies: {two}")
    return {
        "engine": engine,
        "delivery": trial.delivery,
        "moves": moves,
        "published": count.published,
        "lost": count.lost,
        "repeated": count.repeated,
        "miscounted": count.miscounted,
        "repeated_by_moves": by_moves.repeated,
        "miscounted_by_moves": by_moves.miscounted,
        "dropped": count.dropped,
        "two_copies": len(two),
        **{key: getattr(chain.figures, key) for key in KINDS},
        "recovery_s": chain.figures.recovery_s,
    }


KINDS = ("stop_s", "start_s", "change_s", "move_gap_s", "update_gap_s", "at_rest_s")


def kinds_of_kills(engine: str) -> Sequence[str]:
    """What is killed, one after another; Flink needs no runner."""
    return (PROGRAM, AGENT) if engine == FLINK else (PROGRAM, RUNNER, AGENT)


def summary(rows: Sequence[JsonObject]) -> JsonObject:
    """By engine: what was counted, and the spread of each kind of time."""
    counted = (
        *("delivery", "moves", "published", "lost", "repeated", "miscounted"),
        *("repeated_by_moves", "miscounted_by_moves", "two_copies"),
    )
    return {
        row["engine"]: {
            **{key: row[key] for key in counted},
            **{key: spread(row[key]) for key in KINDS},
            "recovery_s": {what: spread(times) for what, times in row["recovery_s"].items()},
        }
        for row in rows
    }


def checks(result: JsonObject) -> list[Check]:
    """Nothing is lost, nor repeated without a failure; under `exactly_once` never."""
    verdicts = []
    for engine, counted in result.items():
        is_exact = counted["delivery"] == "exactly_once"
        after = "" if is_exact else "_by_moves"
        note = f"of {counted['published']:,} published"
        for key in ("lost", f"repeated{after}", f"miscounted{after}", "two_copies"):
            words = key.replace("_by_moves", " without a kill").replace("_", " ")
            value = counted[key]
            verdicts.append(Check(f"{words}, {engine}", "0", value, value == 0, note, always=True))
    return verdicts


@contextmanager
def fog_of(trial: Trial) -> Iterator[tuple[Fog, Api]]:
    """A fog where the trial's engine stands beside Flink."""
    kinds = {"programs": trial.engine == PROCESS, "spark": trial.engine == SPARK}
    with fog_with_service(trial.edges, trial.clouds, SLOTS, CHECKPOINT_S, **kinds) as both:
        yield both


def try_some(engine: str, moves: int, kills: int = 1) -> int:
    """A trial that writes no file."""
    trial = TRIALS[engine]
    with fog_of(trial) as (fog, api):
        rows = [run(fog, api, trial, each, moves, kills) for each in (engine, FLINK)]
    say(str(summary(rows)))
    failed = [check.name for check in checks(summary(rows)) if not check.ok]
    say(f"not as wanted: {', '.join(failed) or 'none'}")
    return 1 if failed else 0


def measure(engine: str) -> int:
    """The experiment with its result."""
    trial, order = TRIALS[engine], (FLINK, engine)
    settings = {"rate_per_s": RATE, "checkpoint_interval_s": CHECKPOINT_S}
    experiment = Experiment(f"moves_{engine}", {**settings, "moves": MOVES, "kills": KILLS})
    done = {row["key"] for row in experiment.rows}
    missing = [each for each in order if each not in done]
    if missing:
        with fog_of(trial) as (fog, api):
            for each in missing:
                experiment.row(each, lambda e=each: run(fog, api, trial, e, MOVES, KILLS))
    rows = sorted(experiment.rows, key=lambda row: order.index(row["key"]))
    result = summary(rows)
    return experiment.finish(result, checks(result))


if __name__ == "__main__":
    sys.exit(measure(sys.argv[1]))
