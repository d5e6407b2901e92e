"""The same two jobs on Flink, on Spark and as a process, over Mosquitto and over Kafka.

The jobs: a filter (`clean`: it parses each detection, and drops what no sensor can have meant) and
a windowed count (`local_stats`: count, mean speed and occupancy by sensor and second of event time,
as state). Each has one site's engine, both its links at one broker, and exactly_once.

Of each job: latency at 500 records a second, from publication to arrival (of a window: from the
publication of the message that completes it); the silence of a move to another site and back; that
after a kill of its program (of Flink: of the engine), which is started again; memory; and the
highest rate, while it takes what has waited for it. What was lost or repeated counts over all of
it. Spark gives the windows that a batch has changed, Flink and processes those that are complete.

In the same run: `kafka_to_relay`, a link over Kafka beside a bare relay (bench/kafka_relay.py), and
`connector_before_after`, the Flink connector before and after the link core
(bench/before_after.py).

`make bench-engines` writes bench/results/engines.json. ENGINE=..., BROKER=..., JOB=... or PART=...
(rows, relay, before-after): a trial of a part that writes nothing.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence

from bench import before_after, kafka_relay
from bench.common import fog_with_service, say
from bench.engine_jobs import FILTER, FLINK, PROCESS, SPARK, WINDOWS
from bench.engines_run import BACKLOG, RATE, Row
from bench.experiment import Check, Experiment
from speck.fog.site_record import KAFKA, MOSQUITTO
from speck.model.values import JsonObject

ENGINES = (FLINK, PROCESS, SPARK)
JOBS = (FILTER, WINDOWS)
MQTT = "mqtt"
BROKERS = {MQTT: MOSQUITTO, KAFKA: KAFKA}
SLOTS = 4
CHECKPOINT_S = 1.0
SPARK_P50_MS = 1500.0
ROWS, RELAY, BEFORE_AFTER = "rows", "relay", "before-after"

Key = tuple[str, str, str]
"""Broker, job, engine."""


def list_rows(
    brokers: Sequence[str] = tuple(BROKERS),
    jobs: Sequence[str] = JOBS,
    engines: Sequence[str] = ENGINES,
) -> list[Key]:
    """What is measured, in this order."""
    return [(broker, job, engine) for broker in brokers for job in jobs for engine in engines]


def run_rows(keys: Sequence[Key], keep: Callable[[Key, Callable[[], JsonObject]], object]) -> None:
    """Measure some rows, on a fog for each broker; `keep(key, measure)` calls `measure`. A fog has
    two edges where programs run beside Flink, and two clouds where Spark does."""
    for broker in dict.fromkeys(key[0] for key in keys):
        some = [key for key in keys if key[0] == broker]
        has_spark = any(key[2] == SPARK for key in some)
        with fog_with_service(
            2,
            1 if {key[2] for key in some} == {PROCESS} else 2,
            SLOTS,
            CHECKPOINT_S,
            cloud_broker=BROKERS[broker],
            programs=True,
            spark=has_spark,
        ) as (fog, api):
            for key in some:
                row = Row(fog, api, engine=key[2], broker=broker, what=key[1])
                keep(key, row.measure)


def compare(rows: Sequence[JsonObject]) -> JsonObject:
    """The two comparisons with what was measured for them, by their names; None: there is none."""
    by_key = {row["key"]: row for row in rows}
    return {
        name: by_key.get(key, {}).get("comparison")
        for name, key in (("kafka_to_relay", RELAY), ("connector_before_after", BEFORE_AFTER))
    }


def find_ratios(compared: JsonObject) -> JsonObject:
    """The ratios alone."""
    return {name: each and each["ratio"] for name, each in compared.items()}


def checks(rows: Sequence[JsonObject]) -> list[Check]:
    """Nothing is lost or repeated; Spark's latency; the two ratios."""
    verdicts = []
    for row in (row for row in rows if "engine" in row):
        name = f"{row['job']}, {row['engine']}, {row['broker']}"
        note = f"of {row['published']:,} published"
        for key in ("lost", "repeated"):
            verdicts.append(
                Check(f"{key}: {name}", "0", row[key], row[key] == 0, note, always=True)
            )
        if row["engine"] == SPARK and row["job"] == FILTER:
            late = row["p50_ms"]
            verdicts.append(
                Check(
                    f"p50 of a hop, ms: {name}", f"<= {SPARK_P50_MS:g}", late, late <= SPARK_P50_MS
                )
            )
    ratios = find_ratios(compare(rows))
    for key, wanted, name in (
        ("kafka_to_relay", kafka_relay.WANTED, "a link over Kafka to a bare relay"),
        ("connector_before_after", before_after.WANTED, "the Flink connector after to before"),
    ):
        ratio = ratios[key]
        ok = None if ratio is None else ratio >= wanted
        note = "the history has no earlier connector" if ratio is None else ""
        verdicts.append(Check(f"{name}, ratio", f">= {wanted}", ratio, ok, note))
    return verdicts


def measure() -> int:
    """The experiment with its result."""
    settings = {"rate_per_s": RATE, "checkpoint_interval_s": CHECKPOINT_S, "backlog": BACKLOG}
    experiment = Experiment("engines", settings)
    done = {row["key"] for row in experiment.rows}

    def keep(key: Key, one: Callable[[], JsonObject]) -> None:
        experiment.row("/".join(key), one)

    run_rows([key for key in list_rows() if "/".join(key) not in done], keep)
    experiment.row(RELAY, lambda: {"comparison": kafka_relay.measure()})
    experiment.row(BEFORE_AFTER, lambda: {"comparison": before_after.measure()})
    rows = experiment.rows
    compared = compare(rows)
    jobs = [row for row in rows if "engine" in row]
    return experiment.finish(compared, checks(rows), more=find_ratios(compared), rows=jobs)


def try_part(options: argparse.Namespace) -> int:
    """A part that writes nothing."""
    if options.part == RELAY:
        say(str(kafka_relay.measure()))
        return 0
    if options.part == BEFORE_AFTER:
        say(str(before_after.measure()))
        return 0
    brokers = [options.broker] if options.broker else list(BROKERS)
    jobs = [options.job] if options.job else list(JOBS)
    engines = [options.engine] if options.engine else list(ENGINES)
    rows: list[JsonObject] = []

    def keep(key: Key, one: Callable[[], JsonObject]) -> None:
        rows.append({"key": "/".join(key), **one()})
        say(str(rows[-1]))

    run_rows(list_rows(brokers, jobs, engines), keep)
    failed = [check.name for check in checks(rows) if check.ok is False]
    say(f"not as wanted: {', '.join(failed) or 'none'}")
    return 1 if failed else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--part", choices=(ROWS, RELAY, BEFORE_AFTER))
    parser.add_argument("--engine", choices=ENGINES)
    parser.add_argument("--broker", choices=tuple(BROKERS))
    parser.add_argument("--job", choices=JOBS)
    options = parser.parse_args()
    if options.part or options.engine or options.broker or options.job:
        return try_part(options)
    return measure()


if __name__ == "__main__":
    sys.exit(main())
