"""DuckDB's analysis is the analyzer's, figure by figure, whatever is wrong with the samples."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from bench.duckdb_analysis import analyse
from bench.duckdb_analysis.comparison import find_differences
from bench.samples import Spec, generate
from speck.analyzer import run
from speck.analyzer.reading import Span, find_newest
from speck.metrics.dataset.local import LocalStorage
from speck.model.shown import render
from tests.samples_by_hand import dataset, running, site

FAULTS = Spec(
    jobs=12,
    sites=4,
    hours=1.0,
    seed=7,
    stateful=0.4,
    silences_per_hour=2,
    restarts_per_hour=2,
    incarnations_per_hour=1,
    saturated=0.2,
    back_pressured=0.2,
    no_busy=0.2,
    nan=0.1,
    stale=0.1,
    duplicates=0.1,
    missed=0.1,
    contended=0.2,
)
LONG = replace(FAULTS, hours=9.3, every_s=45.0)


@pytest.mark.long
@pytest.mark.parametrize(
    ("spec", "hours", "composition"),
    [
        (FAULTS, 0.3, "flow-0001"),
        (FAULTS, 0.9, None),
        (LONG, 2.4, None),
        (LONG, 8.7, None),
    ],
)
def test_duckdb_computes_the_same_analysis(
    spark: SparkSession, tmp_path: Path, spec: Spec, hours: float, composition: str | None
) -> None:
    generate(tmp_path, spec)
    until = find_newest(LocalStorage(tmp_path)) - timedelta(seconds=71)
    span = Span(until - timedelta(hours=hours), until)

    ours = render(run.analyse(spark, LocalStorage(tmp_path), span, composition))
    its = analyse(tmp_path, span.since, span.until, composition)

    count, differences = find_differences(ours, its)
    assert differences == []
    assert count > 200
    assert its["ends"]


@pytest.mark.long
def test_a_dataset_without_links_or_plans(spark: SparkSession, tmp_path: Path) -> None:
    dataset(tmp_path, running(), [], site("edge-a"))
    until = find_newest(LocalStorage(tmp_path))
    span = Span(until - timedelta(seconds=300), until)

    its = analyse(tmp_path, span.since, span.until)

    assert find_differences(render(run.analyse(spark, LocalStorage(tmp_path), span)), its)[1] == []
    assert [job["job_name"] for job in its["jobs"]] == ["A"]


def test_a_comparison_finds_what_differs() -> None:
    one = {
        "jobs": [{"job_name": "A", "in_rate": 1.0}, {"job_name": "B", "in_rate": None}],
        "ends": [],
        "sites": [{"name": "A", "why": ["sends 10 B/s to edge-1", "stateless"]}],
    }
    same = {
        "jobs": [{"job_name": "B", "in_rate": None}, {"job_name": "A", "in_rate": 1.0 + 1e-8}],
        "ends": [],
        "sites": [{"name": "A", "why": ["sends 11 B/s to edge-1", "stateless"]}],
    }
    other = {
        "jobs": [{"job_name": "B", "in_rate": 0.0}, {"job_name": "A", "in_rate": 1.0 + 1e-5}],
        "ends": [],
        "sites": [{"name": "A", "why": ["sends 12 B/s to edge-1"]}],
    }

    assert find_differences(one, same)[1] == []
    assert [place.partition(":")[0] for place in find_differences(one, other)[1]] == [
        "/jobs[0]/in_rate",
        "/jobs[1]/in_rate",
        "/sites[0]/why/length",
        "/sites[0]/why[0]",
    ]
