"""The jobs of edge_jobs/pyspark on a real Spark, without links: their rows stand still."""

from __future__ import annotations

import json
import re
import runpy
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pytest

from speck.fog.replay import end_markers, expand
from speck.fog.trace import read_trace
from tests.pyspark_jobs import JOBS, TRACE, load
from tests.python_jobs import ROOT
from traffic.reference import compare_global, compare_local, compute_global, compute_local

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class StillJob:
    """A job whose records stand still."""

    def __init__(self, records: DataFrame, words: Sequence[str] = ()) -> None:
        from speck_spark.arguments import Arguments

        self.arguments = Arguments(words)
        self.written: list[bytes | str] = []
        self._records = records

    def read(self) -> DataFrame:
        return self._records

    def run(self, rows: DataFrame) -> None:
        self.written.extend(row.value for row in rows.collect())


def run_program(name: str, job: StillJob, monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """What a program of edge_jobs/pyspark gives to a job's sink."""
    import speck_spark

    monkeypatch.setattr(speck_spark.SpeckJob, "from_arguments", lambda **_: job)
    runpy.run_path(str(JOBS / f"{name}.py"), run_name="__main__")
    return [bytes(each) for each in job.written if isinstance(each, bytes | bytearray)]


@pytest.mark.long  # quick: the operator of both statistics, in test_pyspark_windows.py
def test_each_job_gives_what_the_plain_computation_gives(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path, str(JOBS)])
    rows = read_trace(TRACE)[:4000]
    payloads = [message.payload for message in expand(rows)]
    ends = [message.payload for message in end_markers(rows)]
    bad = [b"", b"{}", b"[1]", b"\xff"]
    all_records = [*bad, *payloads, *payloads[:500], *ends]
    sources = {
        site: [each for each in all_records if b'"stream":"%b' % site.encode() in each]
        for site in "ABC"
    }

    def run(name: str, records: Sequence[bytes], *words: str) -> list[bytes]:
        frame = spark.createDataFrame([(each,) for each in records], "value binary").coalesce(1)
        return run_program(name, StillJob(frame, words), monkeypatch)

    good = [row.valid for row in rows]
    valid = [payload for payload, is_good in zip(payloads, good, strict=True) if is_good]
    repeated = [each for each, is_good in zip(payloads[:500], good, strict=False) if is_good]
    assert run("clean", all_records) == [*valid, *repeated, *ends]
    assert run("forward", all_records) == run("pass_through", all_records) == all_records

    streams = sorted({row.stream for row in rows})
    merged = run("merge", all_records, "--streams", ",".join(streams))
    comparison = compare_global(compute_global(rows), map(json.loads, merged))
    assert comparison.equal, str(comparison)
    assert comparison.delivered > 3000

    local: list[dict[str, Any]] = []
    for site, records in sources.items():
        own = ",".join(stream for stream in streams if stream.startswith(site))
        once = list(dict.fromkeys(records))
        local += map(json.loads, run("local_stats", once, "--streams", own))
    by_sensor = compare_local(compute_local(rows), local)
    assert by_sensor.equal, str(by_sensor)
    assert by_sensor.delivered == comparison.delivered


@pytest.mark.long
def test_the_readmes_examples_are_jobs(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    load("clean", monkeypatch)  # and with it speck_spark
    text = (ROOT / "edge_jobs/README.md").read_text()
    plain, windows = re.findall(r"```python\n(from speck_spark.*?)```", text, re.DOTALL)
    helper = sys.modules["speck_spark"]

    def run(example: str, records: Sequence[bytes], *words: str) -> list[bytes | str]:
        frame = spark.createDataFrame([(each,) for each in records], "value binary")
        job = StillJob(frame, words)
        monkeypatch.setattr(helper.SpeckJob, "from_arguments", lambda **_: job)
        exec(example, {})
        return job.written

    assert run(plain, [b"car", b"bus"]) == ["CAR", "BUS"]
    rows = [row for row in read_trace(TRACE) if row.stream == "A1"][:50]
    messages = (*expand(rows), *end_markers(rows))
    records = [message.payload for message in messages]
    results = [json.loads(each) for each in run(windows, records, "--streams", "A1")]
    comparison = compare_local(compute_local(rows), results)
    assert comparison.equal, str(comparison)
