"""From samples with all faults the analyzer computes their truth, however they lie in files."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from bench.samples import JobTruth, Spec, Truth, generate
from speck.analyzer.reading import Span, find_newest
from speck.analyzer.run import analyse
from speck.metrics.dataset.files import COMPACT, PART
from speck.metrics.dataset.local import LocalStorage
from speck.metrics.dataset.schema import TABLES
from speck.model.shown import render
from speck.model.values import JsonObject

SPEC = Spec(
    jobs=20,
    sites=5,
    seed=3,
    stateful=0.4,
    saturated=0.1,
    back_pressured=0.1,
    no_busy=0.1,
    silences_per_hour=1.0,
    restarts_per_hour=0.5,
    incarnations_per_hour=0.0,
    duplicates=0.01,
    contended=0.0,
)


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Truth]:
    root = tmp_path_factory.mktemp("metrics")
    return root, generate(root, SPEC)


def analysed(spark: SparkSession, root: Path) -> JsonObject:
    return render(
        analyse(spark, LocalStorage(root), Span(SPEC.start, find_newest(LocalStorage(root))))
    )


@pytest.fixture(scope="module")
def analysis(spark: SparkSession, generated: tuple[Path, Truth]) -> JsonObject:
    return analysed(spark, generated[0])


def test_jobs_are_told_as_they_are(analysis: JsonObject, generated: tuple[Path, Truth]) -> None:
    truths = generated[1].jobs
    jobs = {job["job_name"]: job for job in analysis["jobs"]}
    assert jobs.keys() == truths.keys()
    assert {truth.told_busy for truth in truths.values()} == {True, False}
    for name, truth in truths.items():
        _check(jobs[name], truth)


def _check(job: JsonObject, truth: JobTruth) -> None:
    near = {name: pytest.approx(getattr(truth, name), rel=0.03) for name in ("in_rate",)}
    near |= {
        name: pytest.approx(getattr(truth, name), rel=0.02)
        for name in ("selectivity", "bytes_in_per_record", "bytes_out_per_record")
    }
    costs = ("core_s_per_record", "reference_core_s_per_record")
    costs += ("utilisation",) if truth.tasks == 1 else ()  # the truth tells that of all tasks
    if truth.told_busy:
        near |= {name: pytest.approx(getattr(truth, name), rel=0.03) for name in costs}
        if truth.true_processing_rate is not None:
            near["true_processing_rate"] = pytest.approx(truth.true_processing_rate, rel=0.03)
        assert job["evidence"] == "sufficient", (truth.job_name, job["why"])
    else:
        near |= dict.fromkeys(costs)
        assert job["evidence"] == "insufficient"
    assert {name: job[name] for name in near} == near, truth
    assert job["stateful"] == truth.stateful


def test_faults_are_counted_as_they_were_made(
    analysis: JsonObject, generated: tuple[Path, Truth]
) -> None:
    truth, counted = generated[1], analysis["samples"]
    assert counted["rows"] == truth.rows["tasks"]
    assert counted["duplicates"] == truth.faults["duplicates"] > 0
    assert counted["contended"] == 0
    assert counted["resets"] > 0
    assert counted["gaps"] > 0


def test_the_ranking_is_by_the_score_that_the_truth_has(
    analysis: JsonObject, generated: tuple[Path, Truth]
) -> None:
    scored = [job for job in analysis["ranking"] if job["score"] is not None]
    assert len(scored) > 5
    for one, next_one in pairwise(scored):
        assert one["score"] > next_one["score"] * (0.98 if next_one["score"] > 0 else 1.02)
    core_speeds = generated[1].sites
    for ranked in scored:
        job = generated[1].jobs[ranked["job_name"]]
        out = job.selectivity * job.bytes_out_per_record
        cost = job.reference_core_s_per_record / core_speeds[ranked["edge"]].core_speed
        score = (job.bytes_in_per_record - out) / cost
        # a difference of two rates: what it errs by is told by the larger of them
        assert ranked["score"] == pytest.approx(score, rel=0.05, abs=0.05 * out / cost)


@pytest.mark.long
def test_how_the_rows_lie_in_files_changes_nothing(
    spark: SparkSession, analysis: JsonObject, generated: tuple[Path, Truth], tmp_path: Path
) -> None:
    """Any split over files, any order within them, and rows that a compaction has written again."""
    _rearranged(generated[0], tmp_path, random.Random(7))

    again = analysed(spark, tmp_path)

    assert again["samples"].pop("rows") > analysis["samples"]["rows"]
    assert again["samples"].pop("duplicates") > analysis["samples"]["duplicates"]
    first = {**analysis, "samples": dict(analysis["samples"])}
    del first["samples"]["rows"], first["samples"]["duplicates"]
    assert _parts(again) == {
        place: pytest.approx(value, rel=1e-9, abs=1e-12) if isinstance(value, float) else value
        for place, value in _parts(first).items()
    }


def _rearranged(root: Path, copy: Path, chance: random.Random) -> None:
    for table in TABLES:
        for folder in {file.parent for file in (root / table).rglob("*.parquet")}:
            rows = pa.concat_tables(
                pq.read_table(file, partitioning=None) for file in folder.iterdir()
            )
            order = list(range(len(rows)))
            chance.shuffle(order)
            into = copy / folder.relative_to(root)
            into.mkdir(parents=True)
            pieces = chance.randint(2, 4)
            for number in range(pieces):
                piece = rows.take(order[number::pieces])
                pq.write_table(piece, into / f"{PART}-{number}-0.parquet")
            merged = rows.take(sorted(order[: len(order) // 3]))
            pq.write_table(merged, into / f"{COMPACT}-0-0.parquet")


def _parts(value: Any, place: str = "") -> dict[str, Any]:
    """Each number and text by the place where it stands."""
    if isinstance(value, dict):
        inner = [_parts(each, f"{place}/{name}") for name, each in value.items()]
    elif isinstance(value, list):
        inner = [_parts(each, f"{place}/{number}") for number, each in enumerate(value)]
    else:
        return {place: value}
    return {place: len(inner)} | {name: each for part in inner for name, each in part.items()}
