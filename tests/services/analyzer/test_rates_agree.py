"""The service's rates (speck.metrics.rates) and the analyzer's are the same of the same samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from speck.analyzer import rates, units
from speck.analyzer.result import collect_rows
from speck.analyzer.run import FEW_ROWS, configured
from speck.metrics.rates import compute_job_rates
from speck.metrics.rows import Sample
from speck.model.measurement import JobMeasure, TaskMeasure
from speck.model.shown import render
from speck.model.values import JsonObject
from tests.samples_by_hand import EVERY_S, Row, at, dataset, engine_job_id, running

TWO = 2
COMPARED = ("in_rate", "out_rate", "busy", "back_pressured")


def _even() -> list[Row]:
    return running(looks=TWO, busy=0.3, back=0.1)


def _slow_clock() -> list[Row]:
    """The values of the second look were 2 s old: the task's own time counts."""
    first, second = running(looks=TWO, busy=0.3)
    return [first, {**second, **running(looks=TWO, busy=0.3)[1], "at": at(EVERY_S + 2)}]


def _no_times() -> list[Row]:
    """The time of the looks counts."""
    nothing = dict.fromkeys(("busy_ms", "idle_ms", "back_pressured_ms"))
    return [{**row, **nothing} for row in running(looks=TWO)]


def _no_records_out() -> list[Row]:
    return [{**row, "records_out": None} for row in running(looks=TWO)]


def _parallel() -> list[Row]:
    """Two subtasks of one source: their rates add up, and the one that waits more is reported."""
    both = (("back", 0.1), ("back", 0.4))
    return [
        row
        for number, (_, back) in enumerate(both)
        for row in running(
            looks=TWO, rate=50.0 + number, busy=0.2, back=back, subtask=number, subtasks=2
        )
    ]


def _half_silent() -> list[Row]:
    """A sum is not known when a part of it is not."""
    return [{**row, "records_in": None} if row["subtask"] == 1 else row for row in _parallel()]


def _restarted() -> list[Row]:
    first, second = running(looks=TWO)
    return [first, {**second, **running(looks=TWO)[0], "at": second["at"], "restarts": 1}]


JOBS = {
    each.__name__: each()
    for each in (
        _even,
        _slow_clock,
        _no_times,
        _no_records_out,
        _parallel,
        _half_silent,
        _restarted,
    )
}


@pytest.fixture(scope="module")
def analysed(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, JsonObject]:
    """What the analyzer makes of each job, all by one query."""
    root = tmp_path_factory.mktemp("rates")
    rows = [
        {**row, "job_name": name, "engine_job_id": engine_job_id(name)}
        for name, rows in JOBS.items()
        for row in rows
    ]
    dataset(root, rows)
    with configured(spark, FEW_ROWS):
        frame = spark.read.option("basePath", str(root / "tasks")).parquet(str(root / "tasks"))
        summed = units.sum_tasks(frame.withColumn("day", F.col("day").cast("string")), "0L")
        sliced = collect_rows(units.slice_tasks(summed, "cast(unit AS int)"))
    return {job["job_name"]: job for job in rates.rate_jobs(sliced, rates.rate_tasks(sliced))}


@pytest.mark.parametrize("name", JOBS)
def test_both_make_the_same_of_the_same_samples(analysed: dict[str, JsonObject], name: str) -> None:
    of_service = _of_service(JOBS[name])
    for rate in COMPARED:
        assert of_service[rate] == pytest.approx(analysed[name][rate]), rate


def _of_service(rows: Sequence[Row]) -> JsonObject:
    """The same keys; `busy` of all subtasks, as the analyzer has it."""
    metrics = compute_job_rates(
        [
            tuple(_sample(row) for row in rows if row["subtask"] == subtask)  # type: ignore[misc]
            for subtask in sorted({row["subtask"] for row in rows})
        ]
    )
    busy = [task.busy for task in metrics.tasks]
    back = [task.back_pressured for task in metrics.tasks]
    return {
        **render(metrics),
        "busy": None if None in busy else sum(busy),
        "back_pressured": None if None in back else max(back),
    }


def _sample(row: Row) -> Sample:
    names = {field.name for field in fields(TaskMeasure)}
    task = TaskMeasure(**{"name": "x"} | {k: v for k, v in row.items() if k in names})
    return Sample(row["at"], JobMeasure("j", (task,), restarts=row["restarts"]), task)
