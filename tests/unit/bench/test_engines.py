"""The same jobs on each engine: what is counted of them, and what is claimed."""

from __future__ import annotations

import json

import pytest

from bench.detections import STREAMS, Log
from bench.engines import checks, compare, find_ratios, list_rows
from bench.instruments.arrivals import Arrivals, Filtered, Windowed
from bench.page.engines import SECTION
from bench.page.result import Result
from bench.page.section import markdown
from speck.fog.trace import Detection
from speck.model.values import JsonObject


def log(*published: tuple[str, int, int, float]) -> Log:
    """(stream, id, event time in ms, moment) of each detection, windows of 1 s."""
    written = Log(1000, [], {stream: {} for stream in STREAMS["A"]})
    for stream, number, time_ms, at in published:
        written.record(stream, Detection(time_ms, "A1-01", "v1", 10.0, 4.5, "car"), at)
        written.published[stream, number] = at
    return written


def hear(arrivals: Arrivals, *records: tuple[JsonObject, float]) -> None:
    for number, (fields, at) in enumerate(records, 1):
        arrivals.hear(f"p/1/{number}", json.dumps(fields).encode(), at)


def detection(stream: str, number: int) -> JsonObject:
    return {"stream": stream, "id": number}


def window(start: int, count: int) -> JsonObject:
    return {"sensor": "A1-01", "window_start_ms": start, "count": count}


PUBLISHED = log(("A1", 1, 100, 1.0), ("A2", 1, 200, 1.1), ("A1", 2, 300, 1.2))


def test_detections_that_do_not_come_are_lost_and_those_that_come_again_repeated() -> None:
    arrivals = Filtered()
    hear(arrivals, (detection("A1", 1), 2.0), (detection("A1", 1), 2.1), ({"end": True}, 3.0))
    assert arrivals.judge([PUBLISHED]) == (2, 1)
    assert arrivals.covered == 1
    assert arrivals.latencies(PUBLISHED, 0.0, 9.0) == [1.0]
    assert arrivals.latencies(PUBLISHED, 1.05, 9.0) == []


def test_a_repeat_by_its_stamp_is_dropped() -> None:
    arrivals = Filtered()
    for _ in range(2):
        arrivals.hear("p/1/1", json.dumps(detection("A1", 1)).encode(), 1.0)
    assert (arrivals.dropped, arrivals.repeated, arrivals.stray) == (1, 0, 0)


def test_what_is_no_record_of_the_job_is_stray() -> None:
    arrivals = Windowed()
    for payload in (b"", b"[]", b"{}"):
        arrivals.hear(None, payload, 1.0)
    assert arrivals.stray == 3


@pytest.mark.parametrize(
    ("counts", "judged"),
    [
        ((3,), (0, 0)),
        ((1, 3), (0, 0)),
        ((2,), (1, 0)),
        ((4,), (0, 1)),
        ((3, 3), (0, 1)),
        ((), (3, 0)),
    ],
)
def test_a_window_counts_by_its_last_result(
    counts: tuple[int, ...], judged: tuple[int, int]
) -> None:
    arrivals = Windowed()
    hear(arrivals, *((window(0, count), 2.0) for count in counts))
    assert arrivals.judge([PUBLISHED]) == judged


def test_a_window_is_late_since_the_message_that_completes_it() -> None:
    published = log(
        ("A1", 1, 100, 1.0), ("A1", 2, 1000, 2.0), ("A2", 1, 1000, 2.5), ("A3", 1, 1000, 2.2)
    )
    arrivals = Windowed()
    hear(arrivals, (window(0, 1), 3.0), (window(1000, 3), 4.0))
    assert arrivals.latencies(published, 0.0, 9.0) == [0.5]


def test_silence_is_the_longest_pause_within_a_time() -> None:
    arrivals = Filtered()
    hear(arrivals, *((detection("A1", n), float(at)) for n, at in enumerate((1, 2, 6, 7), 1)))
    assert arrivals.longest_silence(1.5, 6.5) == 4.0
    assert arrivals.longest_silence(6.5, 10.0) == 3.0


def test_each_engine_is_measured_over_each_broker() -> None:
    keys = list_rows()
    assert ("kafka", "filter", "process") in keys
    assert len(keys) == len(set(keys)) == 12


def row(engine: str, **more: object) -> JsonObject:
    figures = {"records_per_s": 9000, "p50_ms": 700.0, "p99_ms": 1200.0, "memory_mb": 300}
    times = {"move_gap_s": 1.2, "recovery_s": 9.0, "lost": 0, "repeated": 0, "published": 5}
    about = {"key": engine, "engine": engine, "broker": "mqtt", "job": "filter"}
    return {**about, **figures, **times, **more}


RELAY: JsonObject = {
    "ratio": 0.9,
    "records_per_s": {"job": 90_000, "relay": 100_000},
    "bytes": 100,
    "delivery": "at_least_once",
}


@pytest.mark.parametrize(
    ("more", "failed"),
    [
        ({}, []),
        ({"lost": 1}, ["lost: filter, spark, mqtt"]),
        ({"repeated": 1}, ["repeated: filter, spark, mqtt"]),
        ({"p50_ms": 1600.0}, ["p50 of a hop, ms: filter, spark, mqtt"]),
    ],
)
def test_what_is_not_as_wanted_fails(more: JsonObject, failed: list[str]) -> None:
    verdicts = checks([row("flink"), row("spark", **more)])
    assert [check.name for check in verdicts if check.ok is False] == failed


def test_a_ratio_that_is_too_low_fails_and_one_that_is_missing_is_not_judged() -> None:
    rows = [{"key": "relay", "comparison": {**RELAY, "ratio": 0.7}}]
    verdicts = {check.name: check.ok for check in checks(rows)}
    assert verdicts["a link over Kafka to a bare relay, ratio"] is False
    assert verdicts["the Flink connector after to before, ratio"] is None


def test_the_page_shows_the_rows_and_the_comparisons() -> None:
    rows = [{"key": "relay", "comparison": RELAY}]
    compared = compare(rows)
    assert find_ratios(compared) == {"kafka_to_relay": 0.9, "connector_before_after": None}
    content = {
        "seconds": 60.0,
        "settings": {"rate_per_s": 500, "checkpoint_interval_s": 1.0},
        "rows": [row("spark"), row("flink", broker="kafka"), row("flink")],
        "summary": compared,
    }
    text = markdown(SECTION, Result(content, "engines.json"))
    lines = [line for line in text.splitlines() if line.startswith("| filter")]
    assert [line.split(" | ")[1:3] for line in lines] == [
        ["Mosquitto", "Flink"],
        ["Mosquitto", "Spark"],
        ["Kafka", "Flink"],
    ]
    assert "100,000: 0.9 of it" in text
