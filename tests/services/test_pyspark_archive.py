"""An archive as a real Spark writes and reads it; its records come from files instead of a link."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from speck.analyzer.run import configured
from speck.archive import compaction
from speck.fog.replay import expand
from speck.fog.trace import Row, read_trace
from speck.metrics.dataset.local import LocalStorage
from tests.archives import Kills, MortalPlace
from tests.pyspark_jobs import TRACE, load
from traffic.batch.report import Query
from traffic.reference import compute_global, compute_hours, count_valid

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LATE = 5
LATENESS_MS = 120_000
WINDOW_MS = 60_000
FIRST_WINDOW_MS = 28_800_000
END = b'{"stream": "A1", "time_ms": 1, "end": true}'
FUTURE = (
    b'{"stream": "A1", "time_ms": 9007199254740992, "id": 1, "sensor": "s", "vehicle": "v",'
    b' "type": "car", "speed_mps": 1, "length_m": 1}'
)
"""A record beyond the years that a day can be named of."""

AS_AT_A_SITE = {"spark.sql.ansi.enabled": "true", "spark.sql.session.timeZone": "Asia/Tokyo"}
"""What is set where jobs run, and not where an archive is read."""


def write_files(folder: Path, parts: Iterable[Iterable[bytes]]) -> None:
    """Files of which each becomes a batch, in their order."""
    folder.mkdir()
    for number, records in enumerate(parts):
        file = folder / f"{number}.txt"
        file.write_bytes(b"".join(record + b"\n" for record in records))
        os.utime(file, (number, number))


def run_query(spark: SparkSession, folder: Path, archive: Any) -> None:
    """What `SpeckJob.run_batches` does, until all files are read."""
    lines = spark.readStream.option("maxFilesPerTrigger", 1).text(str(folder))
    records = lines.selectExpr("cast(value as binary) as value")
    writer = records.writeStream.foreachBatch(archive.store).trigger(availableNow=True)
    writer.option("checkpointLocation", archive._checkpoint).start().awaitTermination()


def describe_online(rows: list[Row]) -> list[bytes]:
    """What `merge` publishes, the first window twice."""
    statistics = [
        {
            "window_start_ms": start,
            "window_ms": WINDOW_MS,
            "count": stat.count,
            "mean_speed_mps": stat.mean_speed_mps,
            "sites": stat.sites,
            "types": stat.types,
            "revision": 1,
        }
        for start, stat in compute_global(rows).items()
    ]
    outdated = {**statistics[0], "revision": 0, "count": 1}
    return [json.dumps(each).encode() for each in (*statistics, outdated)]


def read_rows(spark: SparkSession, storage: LocalStorage) -> dict[str, list[str]]:
    from traffic.batch.statistics import read_table

    rows = {}
    for table in ("detections", "global"):
        frame = read_table(spark, storage, table)
        assert frame is not None
        dicts = [row.asDict(recursive=True) for row in frame.collect()]
        rows[table] = sorted(str(sorted(each.items())) for each in dicts)
    return rows


@pytest.mark.long  # quick: the rules without Spark, in tests/unit/archive and tests/unit/traffic
def test_each_record_is_archived_once_and_the_archive_agrees_with_the_online_results(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = load("archive", monkeypatch)
    from pyspark.errors import StreamingQueryException
    from speck_spark.archive import Archive
    from speck_spark.places import HadoopPlace

    from traffic.batch.run import make_report

    rows = read_trace(TRACE)[:3000]
    records = [message.payload for message in expand(rows)]
    in_time = [*records[LATE:], *records[:LATE]]
    parts = [in_time[:1000], [*in_time[900:2000], END], [*in_time[2000:], FUTURE]]
    write_files(tmp_path / "detections", parts)
    write_files(tmp_path / "online", [describe_online(rows[LATE:])])

    root, kills = tmp_path / "an archive", Kills()
    root.mkdir()
    detections = Archive(
        MortalPlace(root, kills), "detections", tmp_path / "first", job.read_detections
    )
    with configured(spark, AS_AT_A_SITE):
        kills.at(4)  # two of four files are in their place
        with pytest.raises(StreamingQueryException):
            run_query(spark, tmp_path / "detections", detections)
        assert len(list((root / "detections").rglob("*.parquet"))) == 2
        kills.at(None)
        run_query(spark, tmp_path / "detections", detections)
        place = HadoopPlace(spark, f"file:{root}")
        online = Archive(place, "global", tmp_path / "second", job.read_statistics)
        run_query(spark, tmp_path / "online", online)
    assert {path.name for path in root.iterdir()} == {"detections", "global", ".writing"}
    assert not list((root / ".writing").iterdir())
    days = {path.name for path in (root / "detections").iterdir()}
    assert days == {"day=1970-01-01", "day=__HIVE_DEFAULT_PARTITION__"}

    storage = LocalStorage(root)
    report = make_report(spark, storage, Query(lateness_ms=LATENESS_MS))
    assert report.detections == count_valid(rows)
    repeated = rows[LATE + 900 : LATE + 1000]
    assert report.unreadable == 3000 - count_valid(rows) + 100 - count_valid(repeated) + 1
    hours = compute_hours(rows)
    assert {tuple(key) for key in report.hours} == set(hours)
    for key, hour in report.hours.items():
        expected = hours[tuple(key)]
        assert hour.count == expected.count
        assert hour.mean_speed_mps == pytest.approx(expected.mean_speed_mps)
        assert hour.occupancy == pytest.approx(expected.occupancy)
    comparison = report.comparison
    assert comparison is not None
    assert comparison.agrees, comparison
    (late,) = comparison.late
    assert (late.start_ms, late.archived - late.online) == (FIRST_WINDOW_MS, LATE)
    assert comparison.equal == len(compute_global(rows)) - 1

    before = read_rows(spark, storage)
    monkeypatch.setattr(compaction, "REPEATABLE", 0)
    joined = compaction.compact(storage, date(1970, 1, 2))
    assert (joined.joined, joined.written) == (12, 4)
    assert read_rows(spark, storage) == before
