"""Windows of event time in PySpark: an operator in Java, against the plain computation.

Which revisions appear, and what is late, depends on how records are cut into batches; the final
revision of a window does not, but for what was late, which is counted.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speck.analyzer.run import configured
from speck.fog.replay import end_markers, expand
from speck.fog.trace import Detection, Row, read_trace
from tests.examples import costly
from tests.pyspark_jobs import JOBS, TRACE
from tests.waiting import wait_for
from traffic.reference import compare_global, compare_local, compute_global, compute_local

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

STREAMS = ("A1", "A2", "B1")
ONLY_WITH_DATA = {"spark.sql.streaming.noDataMicroBatches.enabled": "false"}
"""Else a query that ends when all is read would never end: silence has to be noticed."""


@pytest.fixture(autouse=True)
def helper(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let programs' own package be imported, as at a site."""
    monkeypatch.setattr(sys, "path", [*sys.path, str(JOBS)])


@dataclass
class History:
    """What a job has read, in batches that begin at times in milliseconds."""

    rows: list[Row]
    batches: list[tuple[int, list[bytes]]]
    repeats: bool


@st.composite
def histories(draw: st.DrawFn) -> History:
    """Streams in another order than their times, cut anywhere, with pauses; some records twice."""
    rows = []
    for stream in STREAMS:
        now = 0
        for _ in range(draw(st.integers(1, 12))):
            now += draw(st.integers(-30_000, 90_000))
            speed = draw(st.sampled_from((10.0, 13.2, 31.7)))
            kind = draw(st.sampled_from(("car", "truck")))
            detection = Detection(max(0, now), f"{stream}-01", "v", speed, 4.5, kind)
            rows.append(Row(stream, "", detection))
    chance = draw(st.randoms(use_true_random=False))
    chance.shuffle(rows)
    payloads = [message.payload for message in (*expand(rows), *end_markers(rows))]
    if has_repeats := draw(st.booleans()):
        payloads[-1:-1] = chance.sample(payloads[:-3], chance.randrange(len(payloads) - 3))
    batches, at = [], 1_000_000_000
    while payloads:
        size = draw(st.integers(1, 12))
        batches.append((at, payloads[:size]))
        payloads = payloads[size:]
        at += draw(st.sampled_from((0, 1_000, 60_000, 10_000_000)))
        if draw(st.booleans()):
            batches.append((at, []))
    return History(rows, batches, has_repeats)


def run_batches(
    spark: SparkSession, statistic: str, arguments: Mapping[str, str], history: History
) -> tuple[list[dict[str, Any]], dict[str, int]]:
    """Results and counts of the operator without a query; its state is bytes between batches."""
    jvm: Any = spark.sparkContext._jvm
    windows = jvm.io.speck.spark.windows.ClockedWindows.of(statistic, dict(arguments))
    state: bytes | None = None
    results: list[dict[str, Any]] = []
    counts: dict[str, int] = {}
    for at, records in history.batches:
        known = windows.restore(state, at)
        batch = known.run(records, at)
        results += [json.loads(record) for record in batch.records()]
        for name, count in batch.counts().items():
            counts[name] = counts.get(name, 0) + count
        state = bytes(known.toBytes())
    return results, counts


LATENESS = st.sampled_from(("0ms", "1m", "1d"))


@costly()
@given(history=histories(), lateness=LATENESS)
def test_the_final_revisions_over_all_sites_are_those_of_the_plain_computation(
    spark: SparkSession, history: History, lateness: str
) -> None:
    arguments = {"streams": ",".join(STREAMS), "lateness": lateness}
    results, counts = run_batches(spark, "merge", arguments, history)
    comparison = compare_global(compute_global(history.rows), results)
    late = counts.get("late_dropped", 0)
    assert (comparison.repeated, comparison.extra) == (0, ())
    assert comparison.lost <= late if history.repeats else comparison.lost == late
    assert late or comparison.equal, str(comparison)
    assert late == 0 or lateness != "1d"
    assert_rising(results, "window_start_ms")


@costly()
@given(history=histories().filter(lambda history: not history.repeats), lateness=LATENESS)
def test_the_final_revisions_of_sensors_are_those_of_the_plain_computation(
    spark: SparkSession, history: History, lateness: str
) -> None:
    results = []
    late = 0
    for site in ("A", "B"):
        streams = [stream for stream in STREAMS if stream.startswith(site)]
        own = [
            (at, [each for each in records if json.loads(each)["stream"] in streams])
            for at, records in history.batches
        ]
        arguments = {"streams": ",".join(streams), "lateness": lateness}
        part = History(history.rows, own, repeats=False)
        some, counts = run_batches(spark, "local_stats", arguments, part)
        results += some
        late += counts.get("late_dropped", 0)
    comparison = compare_local(compute_local(history.rows), results)
    assert (comparison.repeated, comparison.extra, comparison.lost) == (0, (), late)
    assert late or comparison.equal, str(comparison)
    assert_rising(results, "sensor", "window_start_ms")


def assert_rising(results: Sequence[Mapping[str, Any]], *key: str) -> None:
    """Each window's revisions are 0, 1, 2 and so on."""
    newest: dict[tuple[Any, ...], int] = {}
    for result in results:
        window = tuple(result[name] for name in key)
        assert result["revision"] == newest.get(window, -1) + 1
        newest[window] = result["revision"]


def test_an_argument_that_is_wrong_is_named(spark: SparkSession) -> None:
    from speck_spark.arguments import ArgumentFaultError, Arguments
    from speck_spark.windows import clocked_windows

    records = spark.createDataFrame([(b"",)], "value binary")
    for words, message in (
        ([], "cannot start the job: argument --streams is missing"),
        (["--streams", "A1", "--window", "0s"], 'cannot use --window "0s": it must be > 0'),
    ):
        with pytest.raises(ArgumentFaultError) as fault:
            clocked_windows(records, "merge", Arguments(words))
        assert str(fault.value) == message


def write_parts(folder: Path, parts: Sequence[Sequence[bytes]]) -> None:
    """Files of which each becomes a batch, in their order."""
    folder.mkdir()
    for number, records in enumerate(parts):
        file = folder / f"{number}.txt"
        file.write_bytes(b"".join(record + b"\n" for record in records))
        os.utime(file, (number, number))


def start_query(
    spark: SparkSession,
    folder: Path,
    words: Sequence[str],
    store: Callable[[DataFrame, int], None],
    **trigger: Any,
) -> StreamingQuery:
    """The operator behind files."""
    from speck_spark.arguments import Arguments
    from speck_spark.windows import clocked_windows

    lines = spark.readStream.option("maxFilesPerTrigger", 1).text(str(folder / "in"))
    records = lines.selectExpr("cast(value as binary) as value")
    windows = clocked_windows(records, "merge", Arguments(words))
    writer = windows.writeStream.foreachBatch(store).trigger(**trigger)
    return writer.option("checkpointLocation", str(folder / "query")).start()


@pytest.mark.long  # quick: the operator without a query, as above
def test_a_query_gives_the_same_and_a_batch_that_is_run_again_too(
    spark: SparkSession, tmp_path: Path
) -> None:
    from pyspark.errors import StreamingQueryException
    from speck_spark.reporting import Progress

    rows = read_trace(TRACE)[:3000]
    payloads = [message.payload for message in (*expand(rows), *end_markers(rows))]
    cuts = [payloads[at : at + 700] for at in range(0, len(payloads), 700)]
    write_parts(tmp_path / "in", [*cuts[:2], cuts[1], *cuts[2:]])
    streams = ",".join(sorted({row.stream for row in rows}))
    words = ["--streams", streams, "--lateness", "1d"]
    runs: dict[int, list[list[bytes]]] = {}
    progress = Progress()

    def store(batch: DataFrame, number: int) -> None:
        runs.setdefault(number, []).append([bytes(row.value) for row in batch.collect()])
        if number == 3 and len(runs[number]) == 1:
            raise RuntimeError("broken off")

    def run() -> None:
        query = start_query(spark, tmp_path, words, store, availableNow=True)
        try:
            query.awaitTermination()
        finally:
            progress.add([json.loads(each.json) for each in query.recentProgress])

    with configured(spark, ONLY_WITH_DATA):
        with pytest.raises(StreamingQueryException, match="broken off"):
            run()
        run()
    first, second = runs.pop(3)
    assert first == second != []
    results = [json.loads(each) for (once,) in runs.values() for each in once]
    results += [json.loads(each) for each in second]
    comparison = compare_global(compute_global(rows), results)
    assert comparison.equal, str(comparison)
    assert comparison.delivered > 2000
    repeated = sum(row.valid for row in rows[700:1400])
    assert progress.counters["repeats"] == repeated
    assert progress.counters["late_dropped"] == 0
    bad = [*rows, *rows[700:1400]]
    counted = progress.counters["malformed"] + progress.counters["impossible"]
    assert counted == sum(not row.valid for row in bad)


@pytest.mark.long  # quick: WindowStateTest, without Spark
def test_a_stream_falls_silent_without_data(spark: SparkSession, tmp_path: Path) -> None:
    rows = [Row("A1", "", Detection(1000, "A1-01", "v", 10.0, 4.5, "car"))]
    messages = (*expand(rows), *end_markers(rows))
    write_parts(tmp_path / "in", [[message.payload for message in messages]])
    results: list[dict[str, Any]] = []

    def store(batch: DataFrame, _: int) -> None:
        results.extend(json.loads(row.value) for row in batch.collect())

    words = ["--streams", "A1,A2", "--idle-limit", "1s"]
    query = start_query(spark, tmp_path, words, store, processingTime="200 milliseconds")
    try:
        wait_for(lambda: results or query.exception(), "a result", 120.0)
    finally:
        query.stop()
    assert [(each["window_start_ms"], each["count"]) for each in results] == [(0, 1)]
