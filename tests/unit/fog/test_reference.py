"""The plain computation that the demo is checked against."""

from __future__ import annotations

import gzip
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from speck.errors import InvalidError, NotFoundError
from speck.fog.reference import (
    OWN_HEADER,
    PLAIN_HEADER,
    Detection,
    GlobalStat,
    LocalStat,
    Row,
    compare_global,
    compare_local,
    compute_global,
    compute_local,
    count_valid,
    parse_detection,
    read_trace,
)

GOOD = "28800.29,A1-03,v12,13.20,4.5,car"


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


def write(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_row_is_parsed_to_the_millisecond() -> None:
    assert parse_detection(GOOD) == Detection(28_800_290, "A1-03", "v12", 13.2, 4.5, "car")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "28800.29,A1-03,v12,13.20,car",
        GOOD + ",more",
        "28800.29,,v12,13.20,4.5,car",
        "28800.29,A1-03,v12,fast,4.5,car",
        "28800.29,A1-03,v12,nan,4.5,car",
        "28800.29,A1-03,v12,inf,4.5,car",
        "28800.29,A1-03,v12,1_0,4.5,car",
        "2880\\x00#~",
        "28800.29,A1-\udcff,v12,13.20,4.5,car",
    ],
)
def test_what_is_no_detection_is_none(text: str) -> None:
    assert parse_detection(text) is None


@pytest.mark.parametrize(
    ("columns", "possible"),
    [
        ("0,s,v,70,30,car", True),
        ("0,s,v,70.01,30,car", False),
        ("0,s,v,0,30,car", False),
        ("0,s,v,-3,30,car", False),
        ("0,s,v,900,30,car", False),
        ("0,s,v,70,30.1,car", False),
        ("0,s,v,70,0,car", False),
        ("-1,s,v,70,30,car", False),
        ("1e99,s,v,70,30,car", False),
    ],
)
def test_the_impossible_is_told_from_the_possible(columns: str, possible: bool) -> None:
    detection = parse_detection(columns)
    assert detection is not None
    assert detection.possible is possible


def test_our_own_format_keeps_malformed_rows_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "t.csv.gz"
    with gzip.open(path, "wb") as file:
        file.write(f"{OWN_HEADER}\r\nA1,{GOOD}\r\nA1,28\xff,#~\n\n".encode("latin-1"))
    rows = read_trace(path)
    assert [row.stream for row in rows] == ["A1", "A1"]
    assert rows[0].raw == GOOD
    assert rows[1].raw.encode("utf-8", "surrogateescape") == b"28\xff,#~"
    assert [row.valid for row in rows] == [True, False]


def test_the_plain_format_finds_streams_by_the_longest_prefix(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", PLAIN_HEADER, "1,s12,v,9,4,car", "2,s2,v,9,4,car", "broken")
    rows = read_trace(path, {"s": "A1", "s1": "A2", "": "C4"})
    assert [row.stream for row in rows] == ["A2", "A1", "C4"]


def test_a_plain_row_without_stream_is_named_by_its_line(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", PLAIN_HEADER, "1,s1,v,9,4,car", "2,x,v,9,4,car")
    with pytest.raises(InvalidError, match=r"stream of line 3 .*no stream is mapped to sensor 'x'"):
        read_trace(path, {"s": "A1"})


def test_a_row_of_ours_without_stream_is_named_by_its_line(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", OWN_HEADER, "broken")
    with pytest.raises(InvalidError, match="cannot find the stream of line 2"):
        read_trace(path)


def test_what_is_no_trace_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=r"cannot read the trace .*no such file"):
        read_trace(tmp_path / "none.csv")
    with pytest.raises(InvalidError, match="its first line must be"):
        read_trace(write(tmp_path / "t.csv", "a,b"))
    with pytest.raises(InvalidError, match="cannot read the trace"):
        read_trace(write(tmp_path / "t.csv.gz", "not gzip"))


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
