"""Moves and updates under load: what is lost or repeated at the end of a chain, and how long it
is silent.

A chain edge -> cloud of a job without state (PassThrough) and one with state (Counting) carries
1000 messages a second. Again and again one of them, or both, is updated in place or moved to
another site. Once under `exactly_once`, once under `at_least_once`. Both keep their state, which
holds at least the numbers of the messages that they have taken.

The silence of a change is the longest pause at the end of the chain from the request for the change
on until the messages published after it have come out. Under `exactly_once` results wait for a
checkpoint also when nothing moves: `gap_at_rest_s`.

`make bench-moves` writes bench/results/moves.json; QUICK=1 makes four moves in each mode only. With
BROKER=kafka the chain goes from Mosquitto at the edge into Kafka in the cloud, and the result is
moves_kafka.json. With ENGINE=process or spark it is another experiment: bench/moves_engines.py.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

from bench.common import Api, fog_with_service, is_quick, say
from bench.experiment import Check, Experiment
from bench.instruments.checker import Checker
from bench.instruments.duplicate_monitor import DuplicateMonitor
from bench.instruments.feed import Feed
from speck.fog.site_record import MOSQUITTO
from speck.fog.sites import Fog
from speck.model.values import JsonObject

RATE = 1000
SLOTS = 8
CHECKPOINT_S = 1.0
STATELESS, STATEFUL = "pass", "count"
MODES = ("exactly_once", "at_least_once")
PART = 4 if is_quick() else 25
"""Moves and updates that are one row, so that an interrupted experiment goes on from there."""
PARTS = 1 if is_quick() else 2
WANTED_S = {"gap_stateless_s": 0.7, "gap_stateful_s": 1.2}
"""The longest silence of 95 % of the changes under `exactly_once`."""


@dataclass(frozen=True, slots=True)
class Where:
    """A composition: where its two jobs run, and with which argument."""

    name: str
    sites: dict[str, str]
    note: int

    def composition(self, delivery: str) -> JsonObject:
        name = self.name

        def job(short: str, entry: str, source: Sequence[str], sink: Sequence[str]) -> JsonObject:
            return {
                "job_name": f"{name}-{short}",
                "site": self.sites[short],
                "source_site": source[0],
                "source_topic": f"{name}.{source[1]}",
                "sink_site": sink[0],
                "sink_topic": f"{name}.{sink[1]}",
                "entry_class": f"io.speck.jobs.{entry}",
                "job_path": "speck-jobs.jar",
                "delivery": delivery,
                "args": ["--note", str(self.note)],
            }

        return {
            "name": name,
            "jobs": [
                job(STATELESS, "PassThrough", ("edge-a", "in"), ("cloud", "mid")),
                job(STATEFUL, "Counting", ("cloud", "mid"), ("cloud", "out")),
            ],
            "inputs": [{"site": "edge-a", "topic": f"{name}.in"}],
            "outputs": [{"site": "cloud", "topic": f"{name}.out", "client_id": f"{name}-end"}],
        }


def next_place(dice: random.Random, now: Where, names: Sequence[str]) -> tuple[Where, set[str]]:
    """The next arrangement, and the jobs that it changes.

    The note is an argument of both jobs: a job that stays is changed only when the note is, and
    then both are updated.
    """
    choice = dice.choice([STATELESS, STATEFUL, STATELESS, STATEFUL, "update"])
    if choice == "update":
        return Where(now.name, now.sites, now.note + 1), {STATELESS, STATEFUL}
    site = dice.choice([name for name in names if name != now.sites[choice]])
    return Where(now.name, {**now.sites, choice: site}, now.note), {choice}


@dataclass(slots=True)
class Measured:
    """One delivery mode: job moves and updates, and the silence of each hand-over in seconds."""

    moves: int
    gaps: dict[str, list[float]]
    at_rest: list[float]


def run(fog: Fog, api: Api, delivery: str, moves: int, seed: int) -> JsonObject:
    """Moves jobs about under load and counts."""
    brokers = {site.name: site.broker_address for site in fog.sites()}
    engines = {site.name: site.engine_address for site in fog.sites()}
    names = list(engines)
    dice = random.Random(seed)
    name = f"moves-{delivery.split('_')[0]}-{seed}"
    place = Where(name, {STATELESS: "edge-a", STATEFUL: "cloud"}, 0)
    api.apply(place.composition(delivery))
    results = Measured(0, {STATELESS: [], STATEFUL: []}, [])
    with (
        DuplicateMonitor(engines) as witness,
        Checker(brokers["cloud"], f"{name}.out", f"{name}-end") as end,
        Feed(brokers["edge-a"], f"{name}.in", rate=RATE, run=name) as feed,
    ):
        end.await_number(10 * RATE)
        results.at_rest = list(end.silences(time.monotonic() - 8, time.monotonic()))
        while results.moves < moves:
            place, jobs_changed = next_place(dice, place, names)
            _change(api, place.composition(delivery), jobs_changed, feed, end, results)
        published = feed.end()
        count = end.await_all(published)
        two = witness.two_copies()
        resent = feed.resent
    api.call("DELETE", f"/compositions/{name}", wait=600, drop_queues="true", drain_limit=0)
    if count.lost or count.repeated or count.miscounted:
        say(f"{delivery}: {count}")
    return {
        "moves": results.moves,
        **asdict(count),
        "resent_by_publisher": resent,
        "two_copies": len(two),
        "delivery": delivery,
        "gap_stateless_s": results.gaps[STATELESS],
        "gap_stateful_s": results.gaps[STATEFUL],
        "gap_at_rest_s": results.at_rest,
    }


def _change(
    api: Api,
    composition: JsonObject,
    changed: set[str],
    feed: Feed,
    end: Checker,
    results: Measured,
) -> None:
    """One change: apply, and wait until messages published after it have come out."""
    began = time.monotonic()
    answer = api.apply(composition)
    seconds = time.monotonic() - began
    end.await_number(feed.sent, timeout_s=120)
    end.await_number(feed.sent + RATE, timeout_s=120)
    gap = end.longest_silence(began, cut=True)
    kinds = ", ".join(
        f"{it['action']} {it['job_name']}"
        for it in answer["plan"]["jobs"]
        if it["action"] != "unchanged"
    )
    for short in changed if len(changed) == 1 else [STATEFUL]:
        results.gaps[short].append(gap)
    results.moves += len(changed)
    say(f"{results.moves}: {kinds}: {seconds:.2f} s, silent for {gap:.2f} s")


def spread(values: Sequence[float]) -> JsonObject:
    """Median, 95 % and longest of some times in seconds; None of fewer than two."""
    if len(values) < 2:
        return {"p50": None, "p95": None, "max": None, "of": len(values)}
    cuts = statistics.quantiles(values, n=100, method="inclusive")
    return {
        "p50": round(cuts[49], 3),
        "p95": round(cuts[94], 3),
        "max": round(max(values), 3),
        "of": len(values),
    }


def parts(modes: Sequence[str], count: int) -> Iterator[tuple[str, int]]:
    """The parts of the experiment, the modes in turn."""
    yield from ((mode, n) for n in range(1, count + 1) for mode in modes)


def summary(rows: Sequence[JsonObject]) -> JsonObject:
    """By mode: sums of what was counted, and the spread of each kind of silence."""
    result: JsonObject = {}
    for mode in dict.fromkeys(row["delivery"] for row in rows):
        of_mode = [row for row in rows if row["delivery"] == mode]
        counted = {key: sum(row[key] for row in of_mode) for key in COUNTED}
        gaps = {key: spread([s for row in of_mode for s in row[key]]) for key in GAPS}
        result[mode] = {**counted, **gaps}
    return result


COUNTED = ("moves", "published", "lost", "repeated", "miscounted", "two_copies")
GAPS = ("gap_stateless_s", "gap_stateful_s", "gap_at_rest_s")


def checks(result: JsonObject) -> list[Check]:
    """Nothing is lost or repeated, and the silence under `exactly_once` is short."""
    verdicts = []
    for mode, counted in result.items():
        note = f"of {counted['published']:,} published"
        for key in ("lost", "repeated", "two_copies"):
            name = f"{key.replace('_', ' ')}, {mode}"
            value = counted[key]
            verdicts.append(Check(name, "0", value, value == 0, note, always=True))
    for key, wanted in WANTED_S.items():
        gaps = result["exactly_once"][key]
        kind = key.removeprefix("gap_").removesuffix("_s")
        name = f"silence of a {kind} job's move, exactly_once, p95, s"
        is_short = gaps["p95"] is not None and gaps["p95"] <= wanted
        verdicts.append(Check(name, f"<= {wanted}", gaps["p95"], is_short))
    return verdicts


def main(broker: str = MOSQUITTO) -> int:
    """The command line; `broker` is what it says where it says nothing."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--moves", type=int, help="so many in each mode, no file")
    parser.add_argument("--seed", type=int, default=3)
    parser.add_argument("--delivery", action="append", help="only this mode, no file")
    parser.add_argument("--broker", default=broker, help="the cloud's")
    parser.add_argument("--engine", choices=("process", "spark"), help="beside Flink")
    options = parser.parse_args()
    if options.engine:
        if options.broker != MOSQUITTO or options.delivery:
            parser.error("cannot use --broker or --delivery with --engine: it has its own")
        from bench import moves_engines  # which uses this module

        if options.moves:
            return moves_engines.try_some(options.engine, options.moves)
        return moves_engines.measure(options.engine)
    if options.delivery or options.moves:
        modes = options.delivery or MODES
        with fog_with_service(2, 1, SLOTS, CHECKPOINT_S, cloud_broker=options.broker) as (fog, api):
            rows = [run(fog, api, mode, options.moves or PART, options.seed) for mode in modes]
        say(str(summary(rows)))
        return 0
    return measure(options.broker, options.seed)


def measure(broker: str, seed: int) -> int:
    """The experiment with its result; `broker` is the kind of the cloud's."""
    settings = {"rate_per_s": RATE, "checkpoint_interval_s": CHECKPOINT_S, "moves_of_a_row": PART}
    name = "moves" if broker == MOSQUITTO else f"moves_{broker}"
    experiment = Experiment(name, {**settings, "seed": seed})
    done = {row["key"] for row in experiment.rows}
    missing = [part for part in parts(MODES, PARTS) if f"{part[0]}/{part[1]}" not in done]
    if missing:
        with fog_with_service(2, 1, SLOTS, CHECKPOINT_S, cloud_broker=broker) as (fog, api):
            for mode, n in missing:
                one = seed + n
                experiment.row(f"{mode}/{n}", lambda m=mode, s=one: run(fog, api, m, PART, s))
    result = summary(experiment.rows)
    return experiment.finish(result, checks(result))


if __name__ == "__main__":
    sys.exit(main())
