"""The plain computation that the demo is checked against."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest

from speck.fog.trace import Row, parse_detection
from traffic.reference import (
    GlobalStat,
    LocalStat,
    compare_global,
    compare_local,
    compute_global,
    compute_local,
    count_valid,
)


def row(stream: str, time_s: float, speed: float, kind: str = "car", length: float = 5.0) -> Row:
    raw = f"{time_s},{stream}-01,v1,{speed},{length},{kind}"
    return Row(stream, raw, parse_detection(raw))


ROWS = [
    row("A1", 60.0, 10.0),
    row("A1", 119.999, 20.0),
    row("B1", 61.0, 30.0, "bus", 12.0),
    row("A1", 120.0, 10.0),
    row("A1", 121.0, -1.0),
    Row("A1", "122,A1", None),
]


def local_records(rows: list[Row] = ROWS) -> list[dict[str, Any]]:
    return [
        {"site": site, "sensor": sensor, "window_start_ms": start, "revision": 0, **asdict(stat)}
        for (site, sensor, start), stat in compute_local(rows).items()
    ]


def global_records(rows: list[Row] = ROWS) -> list[dict[str, Any]]:
    return [
        {"window_start_ms": start, "revision": 0, **asdict(stat)}
        for start, stat in compute_global(rows).items()
    ]


def test_local_statistics_are_by_site_sensor_and_window() -> None:
    statistics = compute_local(ROWS)
    assert statistics == {
        ("A", "A1-01", 60_000): LocalStat(2, 15.0, pytest.approx((0.5 + 0.25) / 60)),
        ("B", "B1-01", 60_000): LocalStat(1, 30.0, pytest.approx(0.4 / 60)),
        ("A", "A1-01", 120_000): LocalStat(1, 10.0, pytest.approx(0.5 / 60)),
    }


def test_global_statistics_count_sites_and_types() -> None:
    assert compute_global(ROWS) == {
        60_000: GlobalStat(3, 20.0, {"A": 2, "B": 1}, {"bus": 1, "car": 2}),
        120_000: GlobalStat(1, 10.0, {"A": 1}, {"car": 1}),
    }


def test_copies_multiply_counts_and_occupancy_but_not_the_mean() -> None:
    assert count_valid(ROWS, 3) == 12
    stat = compute_local(ROWS, copies=3)["A", "A1-01", 60_000]
    assert (stat.count, stat.mean_speed_mps) == (6, 15.0)
    assert stat.occupancy == pytest.approx(3 * 0.75 / 60)
    assert compute_global(ROWS, copies=3)[60_000].types == {"bus": 3, "car": 6}


def test_occupancy_never_exceeds_one() -> None:
    assert compute_local([row("A1", 1.0, 0.05)])["A", "A1-01", 0].occupancy == 1.0


def test_equal_results_are_equal_though_added_in_another_order() -> None:
    records = local_records()
    records[0]["mean_speed_mps"] += 1e-12
    outcome = compare_local(compute_local(ROWS), records)
    assert outcome.equal
    assert (outcome.published, outcome.delivered, outcome.lost, outcome.repeated) == (4, 4, 0, 0)
    assert str(outcome) == "equal: 4 detections, none lost, none repeated"
    assert compare_global(compute_global(ROWS), global_records()).equal


def test_a_lost_and_a_repeated_detection_show() -> None:
    records = local_records()
    records[0]["count"] -= 1
    records[1]["count"] += 2
    outcome = compare_local(compute_local(ROWS), records)
    assert (outcome.delivered, outcome.lost, outcome.repeated) == (5, 1, 2)
    assert outcome.different == (("A", "A1-01", 60_000), ("B", "B1-01", 60_000))
    assert "1 lost, 2 repeated; results: 0 missing, 0 extra, 2 different" in str(outcome)


def test_missing_and_extra_results_show() -> None:
    records = global_records()
    records[1]["window_start_ms"] = 180_000
    outcome = compare_global(compute_global(ROWS), records)
    assert (outcome.missing, outcome.extra) == ((120_000,), (180_000,))
    assert (outcome.lost, outcome.repeated) == (1, 1)
    assert not outcome.equal


def test_the_last_revision_counts_whatever_comes_after_it() -> None:
    first = local_records()
    stale = [{**record, "count": 1, "revision": 0} for record in first]
    corrected = [{**record, "revision": 2} for record in first]
    assert compare_local(compute_local(ROWS), [*stale, *corrected, *stale]).equal


def test_a_result_that_comes_twice_replaces_itself() -> None:
    assert compare_global(compute_global(ROWS), [*global_records(), *global_records()]).equal


def test_a_wrong_split_over_sites_or_types_shows() -> None:
    records = global_records()
    records[0]["sites"] = {"A": 1, "B": 2}
    outcome = compare_global(compute_global(ROWS), records)
    assert (outcome.lost, outcome.repeated, outcome.different) == (0, 0, (60_000,))
