"""Reading a dataset while its files are merged, and one that Spark cannot reach."""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from speck.analyzer import state
from speck.analyzer.reading import Span, read, retry_without_damaged
from speck.analyzer.request import describe_failure
from speck.analyzer.run import analyse
from speck.metrics.dataset.local import LocalStorage
from speck.metrics.dataset.maintenance import maintain
from speck.metrics.dataset.reading import hold_files
from speck.metrics.dataset.schema import TASKS
from speck.metrics.dataset.writer import Writer
from tests.dataset_rows import NOON, HandClock, task
from tests.storages import open_renaming


def test_files_that_go_while_nobody_sees_the_lock_are_listed_anew(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A reader on another machine than the service that merges."""
    (tmp_path / "there").mkdir()
    ours, theirs = (open_renaming(tmp_path / "there", tmp_path / name) for name in ("a", "b"))
    writer = Writer(theirs, clock=HandClock())
    for second in (0, 5):
        writer.append(TASKS, [task(second)])
        writer.flush()
    span = Span(NOON, NOON + timedelta(minutes=1))
    merged = []

    def work(without: Collection[str]) -> int:
        frame = read(spark, ours, TASKS, span, None, without)
        merged.append(maintain(theirs, NOON + timedelta(days=1), 30).merged)
        return frame.count()

    with hold_files(ours):
        assert retry_without_damaged(work, ours, span) == 2
    assert merged == [2, 0]


class EnoughError(Exception):
    """What the test wanted to see was seen."""


def test_no_file_disappears_while_an_analysis_reads(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = Writer(LocalStorage(tmp_path), clock=HandClock())
    writer.append(TASKS, [task(0), task(5)])
    writer.close()
    later, outcomes = NOON + timedelta(days=40), []

    def last_step(_: Any) -> None:
        outcomes.append(maintain(LocalStorage(tmp_path), later, 30))
        raise EnoughError

    monkeypatch.setattr("speck.analyzer.result.collect_rows", lambda _: [])
    monkeypatch.setattr(state, "choose_newest_plans", last_step)
    with pytest.raises(EnoughError):
        analyse(spark, LocalStorage(tmp_path), Span(NOON, NOON + timedelta(minutes=1)))
    assert [outcome.busy for outcome in outcomes] == [True]
    assert maintain(LocalStorage(tmp_path), later, 30).dropped_days


def test_without_its_connector_to_s3_spark_says_how_to_get_it(spark: SparkSession) -> None:
    with pytest.raises(Py4JJavaError) as raised:
        spark.read.parquet("s3a://bucket/folder")
    assert describe_failure(raised.value) == (
        "cannot analyse: Spark lacks its connector to S3; run `make spark-s3` and name the folder"
        " that it fills with SPECK_SPARK_JARS"
    )
