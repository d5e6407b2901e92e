"""The analyzer in follow mode: new rows of the dataset appear in the result."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from speck.analyzer.follow import begin
from speck.analyzer.run import configure_for_few_rows
from speck.metrics.dataset.local import LocalStorage
from speck.metrics.dataset.schema import TASKS
from speck.model.values import JsonObject
from tests.samples_by_hand import SPAN_S, at, dataset, plan, running, site, write
from tests.waiting import wait_for


@pytest.mark.long
def test_what_comes_while_it_follows_is_told(spark: SparkSession, tmp_path: Path) -> None:
    root, out = tmp_path / "metrics", tmp_path / "analysis.json"
    dataset(root, running(), [plan()], [*site("edge-a"), *site("cloud")])

    def read_analysis() -> JsonObject:
        analysis: JsonObject = json.loads(out.read_text()) if out.exists() else {"jobs": []}
        return {job["job_name"]: job for job in analysis["jobs"]}

    with configure_for_few_rows(spark):
        query = begin(spark, LocalStorage(root), out, SPAN_S)
        try:
            wait_for(lambda: "A" in read_analysis() or query.exception() is not None)
            assert read_analysis()["A"]["core_s_per_record"] == pytest.approx(0.002)
            later = {"begin": SPAN_S, "looks": 31}
            (
                root / TASKS.name / "day=2026-03-02" / "composition=c" / "part-2-0.parquet"
            ).write_bytes(b"cut off")
            write(root, TASKS, [*running(busy=0.4, **later), *running("B", **later)], part=3)
            wait_for(lambda: "B" in read_analysis() or query.exception() is not None)
        finally:
            query.stop()
    assert query.exception() is None
    assert read_analysis()["B"]["core_s_per_record"] == pytest.approx(0.002)
    window = json.loads(out.read_text())["window"]
    assert window["to"] == at(SPAN_S * 1.5).isoformat(timespec="milliseconds").replace(
        "+00:00", "Z"
    )
