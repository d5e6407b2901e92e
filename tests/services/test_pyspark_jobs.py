"""The jobs of edge_jobs/pyspark on a real Spark, without links: their rows stand still."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from speck.fog.replay import expand
from speck.fog.trace import read_trace
from tests.pyspark_jobs import TRACE, load
from tests.python_jobs import ROOT
from traffic.reference import compare_global, compute_global

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.long
def test_the_merge_counts_each_detection_once(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = read_trace(Path(TRACE))[:4000]
    payloads = [message.payload for message in expand(rows)]
    bad = [b"", b"{}", b"[1]", b'{"stream": "A1", "time_ms": 1, "end": true}', b"\xff"]
    records = spark.createDataFrame([(each,) for each in (*payloads, *bad, *payloads[:500])])
    merge = load("merge", monkeypatch).merge
    good = sys.modules["speck_spark.detections"].read_detections(records.toDF("value"))
    assert [row.value for row in good.where("d.end").select("value").collect()] == [bad[3]]
    results = merge(records.toDF("value"), 60_000, 600_000).collect()
    comparison = compare_global(compute_global(rows), [json.loads(row.value) for row in results])
    assert comparison.equal, str(comparison)
    assert comparison.delivered > 3000


@pytest.mark.long
def test_the_readmes_example_is_a_job(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    load("merge", monkeypatch)  # and with it speck_spark
    text = (ROOT / "edge_jobs/README.md").read_text()
    (example,) = re.findall(r"```python\n(from speck_spark.*?)```", text, re.DOTALL)
    written: list[str] = []

    class StillJob:
        """A job whose records stand still."""

        def read(self) -> Any:
            return spark.createDataFrame([(b"car",), (b"bus",)], "value binary")

        def run(self, rows: Any) -> None:
            written.extend(row.value for row in rows.collect())

    helper = sys.modules["speck_spark"]
    monkeypatch.setattr(helper.SpeckJob, "from_arguments", lambda: StillJob())
    exec(example, {})
    assert written == ["CAR", "BUS"]
