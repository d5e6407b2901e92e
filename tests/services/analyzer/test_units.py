"""An analysis of cached sums of ten minutes is that of the rows, whatever is wrong with them."""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from bench.samples import Spec, generate
from speck.analyzer import unit_cache
from speck.analyzer.reading import Span, find_newest
from speck.analyzer.run import analyse
from speck.analyzer.slicing import LONG, VERY_LONG
from speck.metrics.dataset.exchange import import_file
from speck.metrics.dataset.local import LocalStorage
from speck.metrics.dataset.maintenance import maintain
from speck.metrics.dataset.origins import UNIT_S, UNITS
from speck.metrics.dataset.schema import TABLES, TASKS
from speck.model.shown import render
from speck.model.values import JsonObject
from tests.samples_by_hand import T0, dataset, plan, running, site, task, write

TOLERANCE = 1e-8
"""How well a line fits is a quotient of small differences of large sums."""
_LOOKS = 1 + int(1.5 * LONG.total_seconds() / 10)
SPECS = st.builds(
    Spec,
    jobs=st.integers(1, 8),
    sites=st.integers(1, 4),
    hours=st.sampled_from([2.7, 8.9]),
    seed=st.integers(0, 2**16),
    every_s=st.sampled_from([10.0, 45.0, 400.0, 900.0]),
    links_every_s=st.sampled_from([30.0, 600.0, 1500.0]),
    stateful=st.sampled_from([0.0, 1.0]),
    no_busy=st.sampled_from([0.0, 0.5]),
    silences_per_hour=st.sampled_from([0.0, 3.0]),
    restarts_per_hour=st.sampled_from([0.0, 2.0]),
    incarnations_per_hour=st.sampled_from([0.0, 1.0]),
    nan=st.sampled_from([0.0, 0.2]),
    stale=st.sampled_from([0.0, 0.2]),
    duplicates=st.sampled_from([0.0, 0.2]),
    missed=st.sampled_from([0.0, 0.3]),
    contended=st.sampled_from([0.0, 0.5]),
)


def assert_same(one: Any, other: Any, place: str = "") -> None:
    """Raises AssertionError that names the first place where two analyses differ."""
    if isinstance(one, dict):
        assert one.keys() == other.keys(), place
        for name in one:
            assert_same(one[name], other[name], f"{place}/{name}")
    elif isinstance(one, list):
        assert len(one) == len(other), place
        for number, (each, its) in enumerate(zip(one, other, strict=True)):
            assert_same(each, its, f"{place}[{number}]")
    elif isinstance(one, float) and isinstance(other, float):
        assert math.isclose(one, other, rel_tol=TOLERANCE, abs_tol=1e-9), (place, one, other)
    else:
        assert one == other, place


def analyse_both(spark: SparkSession, root: Path, span: Span) -> JsonObject:
    """The analysis of units, which is that of the rows."""
    by_units = render(analyse(spark, LocalStorage(root), span))
    assert_same(by_units, render(analyse(spark, LocalStorage(root), span, by_units=False)))
    return by_units


def hold_back(root: Path, folder: Path, every: int) -> list[tuple[Path, Path]]:
    """Take every n-th file out of the dataset: where each was, and where it is."""
    moved = []
    for number, file in enumerate(sorted(root.glob("*/day=*/**/part-*.parquet"))[::every]):
        moved.append((file, file.rename(folder / f"{number}.parquet")))
    return moved


def deliver(root: Path, held: list[tuple[Path, Path]]) -> None:
    """Bring back what was held: half of the files come late, the rows of the others are
    imported."""
    for number, (place, file) in enumerate(held):
        if number % 2:
            file.rename(place)
            continue
        rows = pq.read_table(file, partitioning=None)
        if place.parent.name.startswith("composition="):
            names = pa.array([place.parent.name.partition("=")[2]] * len(rows))
            rows = rows.append_column("composition", names)
        pq.write_table(rows, file)
        table = TABLES[place.relative_to(root).parts[0]]
        import_file(LocalStorage(root), file, file.name, "parquet", table)


def units_of(root: Path) -> set[str]:
    return {path.name for path in (root / UNITS / TASKS.name).glob("*/*-*")}


@pytest.mark.long
def test_whatever_is_wrong_with_samples_and_comes_late_units_equal_rows(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> None:
    @given(SPECS, st.floats(0, UNIT_S), st.floats(0, UNIT_S), st.integers(2, 7))
    @settings(
        max_examples=25,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def check(spec: Spec, late: float, early: float, every: int) -> None:
        root = tmp_path_factory.mktemp("units")
        generate(root, spec)
        held = hold_back(root, tmp_path_factory.mktemp("held"), every)
        since = spec.start + timedelta(seconds=late)
        length = VERY_LONG if spec.hours > 8 else LONG
        span = Span(since, since + length + timedelta(seconds=early))
        once = analyse_both(spark, root, span)
        assert_same(render(analyse(spark, LocalStorage(root), span)), once)  # all from the cache
        deliver(root, held)
        more = analyse_both(spark, root, span)
        assert more["samples"]["rows"] >= once["samples"]["rows"]
        assert units_of(root)

    check()


@pytest.mark.long
def test_late_rows_imports_and_compaction_are_seen(spark: SparkSession, tmp_path: Path) -> None:
    """One job; then rows that come late, then all files are merged."""
    sites = [*site("edge-a"), *site("cloud")]
    rows = running(looks=_LOOKS)
    late = [rows.pop(number) for number in (400, 401, 402)]
    dataset(tmp_path, rows, [plan()], sites)
    until = find_newest(LocalStorage(tmp_path))
    span = Span(until - LONG, until)
    before = analyse_both(spark, tmp_path, span)
    first_units = units_of(tmp_path)

    write(tmp_path, TASKS, late, part=7)
    after = analyse_both(spark, tmp_path, span)

    assert after["samples"]["rows"] == before["samples"]["rows"] + len(late)
    second_units = units_of(tmp_path)
    assert len(second_units - first_units) == len(
        {int(row["at"].timestamp()) // 600 for row in late}
    )
    assert maintain(LocalStorage(tmp_path), T0 + timedelta(days=3), 0).merged == 2
    assert_same(render(analyse(spark, LocalStorage(tmp_path), span)), after)
    assert units_of(tmp_path) < second_units | first_units  # replaced ones are gone, none is new


def test_only_new_units_are_computed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset(tmp_path, running(looks=_LOOKS), [plan()], [*site("edge-a"), *site("cloud")])
    until = find_newest(LocalStorage(tmp_path))
    spans: list[tuple[datetime, datetime]] = []
    read = unit_cache.read

    def note(_: Any, __: Any, table: Any, span: Span, *more: Any) -> Any:
        if table is TASKS:
            spans.append((span.since, span.until))
        return read(_, __, table, span, *more)

    monkeypatch.setattr(unit_cache, "read", note)
    earlier = Span(until - LONG - timedelta(minutes=20), until - timedelta(minutes=20))
    analyse(spark, LocalStorage(tmp_path), earlier)
    spans.clear()

    analyse(spark, LocalStorage(tmp_path), Span(until - LONG, until))

    hours = sum((last - first).total_seconds() for first, last in spans) / 3600
    assert hours == pytest.approx(1 / 3, abs=0.34)  # two units and the ends, of two hours


@pytest.mark.long
def test_a_damaged_file_is_skipped_and_nothing_is_cached(
    spark: SparkSession, tmp_path: Path
) -> None:
    dataset(tmp_path, running(looks=_LOOKS), [plan()], [*site("edge-a"), *site("cloud")])
    until = find_newest(LocalStorage(tmp_path))
    write(tmp_path, TASKS, [task(LONG.total_seconds(), "B")], part=9)
    (file,) = (tmp_path / TASKS.name).rglob("*-9-*.parquet")
    content = bytearray(file.read_bytes())
    content[8:40] = bytes(32)
    file.write_bytes(bytes(content))

    analysis = analyse_both(spark, tmp_path, Span(until - LONG, until))

    assert analysis["samples"]["damaged_files"] == [str(file.relative_to(tmp_path))]
    assert [job["job_name"] for job in analysis["jobs"]] == ["A"]
