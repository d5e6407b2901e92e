"""`speck batch traffic`, without Spark."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from speck.cli.main import root
from speck.metrics.dataset.storage import Storage
from traffic.batch import command
from traffic.batch.comparison import LateWindow, WindowComparison
from traffic.batch.report import Query, Report
from traffic.batch.results import Hour, HourKey

HOURS = {
    HourKey("A", "A1-01", 0, 8): Hour(3, 30.0, 36_000.0, 360_000),
    HourKey("B", "B1-01", 6, 23): Hour(1, 20.0, 3_600.0, 360_000),
}
AGREES = WindowComparison(60_000, 5, 1, late=(LateWindow(60_000, 7, 6),))
DIFFERS = WindowComparison(60_000, 4, 1, missing=(0,), different=(120_000,))


def run(monkeypatch: pytest.MonkeyPatch, report: Report, *args: str) -> tuple[Result, list[Query]]:
    queries: list[Query] = []

    def answer(_: Storage, query: Query, *__: str) -> Report:
        queries.append(query)
        return report

    monkeypatch.setattr(command, "_run", answer)
    return CliRunner().invoke(root, ["batch", "traffic", "file:///archive", *args]), queries


def test_tables_show_the_most_congested_sensors_and_what_was_late(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    result, _ = run(monkeypatch, Report(4, 2, HOURS, AGREES), "--top", "1")
    assert result.exit_code == 0, result.output
    lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
    assert lines[0] == "4 detections, and 2 records that could not be read"
    assert "A A1-01 10.00 % 10.0 3 Mon 08 10.00 %" in lines
    assert "A A1-01 Mon 08 3 10.0 10.00 %" in lines
    assert not any("B1-01" in line for line in lines)
    assert "1970-01-01T00:01:00Z 7 6 1" in lines
    assert "5 equal, 1 without detections that came too late, 0 different" in result.stdout


def test_the_exit_status_says_whether_results_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    result, _ = run(monkeypatch, Report(4, 0, HOURS, DIFFERS))
    assert result.exit_code == 1
    lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
    assert "1970-01-01T00:00:00Z missing" in lines
    assert "1970-01-01T00:02:00Z different" in lines
    result, _ = run(monkeypatch, Report(4, 0, HOURS, None))
    assert result.exit_code == 0
    assert "no online results to compare with" in result.stdout


def test_json_has_all_sensors(monkeypatch: pytest.MonkeyPatch) -> None:
    options = ("--since", "2026-11-01", "--until", "2026-11-30", "--timezone", "Europe/Rome")
    result, queries = run(
        monkeypatch,
        Report(4, 0, HOURS, AGREES),
        "--top",
        "1",
        "--lateness",
        "1h",
        "-o",
        "json",
        *options,
    )
    assert [str(query) for query in queries] == [
        "Query(first=datetime.date(2026, 11, 1), last=datetime.date(2026, 11, 30),"
        " timezone='Europe/Rome', lateness_ms=3600000)"
    ]
    data = json.loads(result.stdout)
    assert [each["sensor"] for each in data["sensors"]] == ["A1-01", "B1-01"]
    assert data["sensors"][1] == {
        "site": "B",
        "sensor": "B1-01",
        "weekday": "Sun",
        "hour": 23,
        "count": 1,
        "mean_speed_mps": 20.0,
        "occupancy": 0.01,
    }
    (congested,) = data["most_congested"]
    assert (congested["sensor"], congested["busiest"]["hour"]) == ("A1-01", 8)
    late = data["comparison"]["late"]
    assert late == [{"start_ms": 60_000, "archived": 7, "online": 6}]
    assert data["comparison"]["agrees"] is True


def test_wrong_options_are_refused(tmp_path: Path) -> None:
    result = CliRunner().invoke(root, ["batch", "traffic", str(tmp_path), "--timezone", "Mars"])
    assert result.exit_code == 1
    assert "there is no time zone 'Mars'" in result.stderr
    result = CliRunner().invoke(root, ["batch", "traffic", str(tmp_path)])
    assert result.exit_code == 1
    assert "cannot find an archive at" in result.stderr
