"""A whole analysis of a small dataset, against figures computed by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from bench.foreign import convert
from speck.analyzer.reading import Span, find_newest
from speck.analyzer.run import analyse
from speck.metrics.dataset.exchange import import_file
from speck.metrics.dataset.local import LocalStorage
from speck.metrics.dataset.schema import TASKS
from speck.model.analysis_result import AnalysisResult
from speck.model.shown import render
from speck.model.values import JsonObject
from speck.store.codec import from_shown
from tests.samples_by_hand import SPAN_S, dataset, plan, running, site, write
from tests.samples_by_hand import at as moment

SPAN = Span(moment(0), moment(SPAN_S))


def job(analysis: JsonObject, name: str) -> JsonObject:
    (row,) = [job for job in analysis["jobs"] if job["job_name"] == name]
    return row


def test_one_job_that_works_evenly(spark: SparkSession, tmp_path: Path) -> None:
    """By a query for each table: what an analysis of few rows costs is the number of plans."""
    dataset(tmp_path, running(), [plan()], [*site("edge-a"), *site("cloud")])
    assert spark.sparkContext._jsc is not None
    scheduler = spark.sparkContext._jsc.sc().dagScheduler()
    before = scheduler.numTotalJobs()

    analysis = render(analyse(spark, LocalStorage(tmp_path), SPAN))

    assert scheduler.numTotalJobs() - before <= 4
    row = job(analysis, "A")
    assert row["evidence"] == "sufficient", row["why"]
    assert row["why"] == []
    assert row["in_rate"] == pytest.approx(100)
    assert row["out_rate"] == pytest.approx(50)
    assert row["selectivity"] == pytest.approx(0.5)
    assert row["core_s_per_record"] == pytest.approx(0.002)
    assert row["true_processing_rate"] == pytest.approx(500)
    assert row["true_output_rate"] == pytest.approx(250)
    assert row["utilisation"] == pytest.approx(0.2)
    assert row["bytes_out_per_record"] == pytest.approx(100)
    assert render(from_shown(analysis, AnalysisResult)) == analysis
    assert analysis["samples"] == {
        "rows": 61,
        "duplicates": 0,
        "resets": 0,
        "gaps": 0,
        "nan": 0,
        "contended": 0,
        "damaged_files": [],
    }
    (link_in, link_out) = analysis["links"]
    assert (link_in["broker_site"], link_out["broker_site"]) == ("cloud", "edge-a")
    assert link_in["wan_bytes_per_s"] == pytest.approx(5000)
    assert link_out["wan_bytes_per_s"] == 0
    (first,) = analysis["ranking"]
    assert (first["rank"], first["edge"]) == (1, "edge-a")
    assert first["wan_bytes_saved_per_s"] == pytest.approx(5000)
    assert first["score"] == pytest.approx(5000 / 0.2)
    assert analysis["bottlenecks"] == []
    json.dumps(analysis, allow_nan=False)


@pytest.mark.long
@pytest.mark.parametrize("part", ["pages", "footer"])
def test_a_file_that_is_damaged_inside_is_left_out_and_named(
    spark: SparkSession, tmp_path: Path, part: str
) -> None:
    dataset(tmp_path, running(), [plan()], [*site("edge-a"), *site("cloud")])
    write(tmp_path, TASKS, running("B"), part=2)
    (file,) = tmp_path.rglob("tasks/*/*/part-2-0.parquet")
    content = bytearray(file.read_bytes())
    footer = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    middle = 200 if part == "pages" else footer
    content[middle : middle + 100] = bytes(255 - byte for byte in content[middle : middle + 100])
    file.write_bytes(content)

    assert find_newest(LocalStorage(tmp_path)) == moment(SPAN_S)
    analysis = render(analyse(spark, LocalStorage(tmp_path), SPAN))

    assert analysis["samples"]["damaged_files"] == [str(file.relative_to(tmp_path))]
    assert [job["job_name"] for job in analysis["jobs"]] == ["A"]


@pytest.mark.long
def test_an_imported_trace_of_gauges_is_analysed(spark: SparkSession, tmp_path: Path) -> None:
    """Of a job of one task, whose site is not told."""
    gauges = ("busyTimeMsPerSecond", "idleTimeMsPerSecond", "backPressureTimeMsPerSecond",
              "numRecordsInPerSecond", "numRecordsOutPerSecond")  # fmt: skip
    lines = [",".join(("job", "vertex", "subtask", "timestamp", *gauges))]
    lines += [f"A,v,0,{(moment(s)).isoformat()},200,800,0,100,50" for s in range(0, 601, 10)]
    lines += [f"B,{v},0,{(moment(s)).isoformat()},200,800,0,100,50" for s in (0, 10) for v in "xy"]
    trace = tmp_path / "trace.csv"
    trace.write_text("\n".join(lines))
    rows = tmp_path / "rows.parquet"
    convert(trace, rows)
    import_file(LocalStorage(tmp_path / "metrics"), rows, rows.name, "parquet")

    analysis = render(analyse(spark, LocalStorage(tmp_path / "metrics"), SPAN))

    (imported,) = [job for job in analysis["jobs"] if job["job_name"] == "A"]
    assert (imported["evidence"], imported["site"]) == ("sufficient", None)
    assert imported["core_s_per_record"] == pytest.approx(0.002)
    assert imported["true_processing_rate"] == pytest.approx(500)
    assert imported["selectivity"] == pytest.approx(0.5)
    (unclear,) = [job for job in analysis["jobs"] if job["job_name"] == "B"]
    assert (unclear["evidence"], unclear["in_rate"]) == ("insufficient", None)
    assert "input records are not reported" in unclear["why"]
