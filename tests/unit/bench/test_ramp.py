"""What is seen of a ramp, and its checks."""

from __future__ import annotations

from typing import Any

import pytest

from bench.edge_server import EDGE
from bench.instruments.feed import Ramp
from bench.moved import Poll
from bench.ramp import judge
from bench.ramp_run import UP_MBPS, Course, Seen, composition, settings

RAMP = Ramp(10.0, 30.0, 20.0)
COURSE = Course(RAMP, 20.0, 60.0)
BEGIN = 1000.0


def _seen(full_from: int = 10, behind: int = 0) -> Seen:
    """Each record arrives 0.1 s after it was due, except the last `behind`; the uplink is half full
    until second `full_from`."""
    count = int(RAMP.count(20.0)) - behind
    came = [(BEGIN + RAMP.due(n) + 0.1, n) for n in range(1, count + 1)]
    second_bytes, sent = UP_MBPS * 125_000, 0.0
    polls = []
    for second in range(21):
        polls.append(Poll(BEGIN + second, {EDGE: int(sent)}, 0.5, 0.0))
        sent += second_bytes * (0.99 if second >= full_from else 0.5)
    return Seen(BEGIN, COURSE, came, polls)


def test_the_uplink_is_full_once_it_is_for_some_seconds() -> None:
    assert _seen().full_s() == 15.0
    assert _seen(full_from=99).full_s() is None


def test_bins_tell_rate_use_queue_and_latency() -> None:
    bins = _seen(behind=50).bins()
    assert bins["t_s"] == [float(n) for n in range(1, 21)]
    assert bins["input_per_s"][9] == 20.0
    assert bins["uplink_share"][4] == pytest.approx(0.5)
    assert bins["latency_p50_s"][4] == pytest.approx(0.1)
    assert bins["queue"][-1] == 50
    assert bins["queue"][4] <= 3


def test_figures_are_of_the_time_before_and_after_the_move() -> None:
    summary = _seen().summarise({"decided": BEGIN + 8, "applied": BEGIN + 9})
    assert summary["moments_s"] == {"decided": 8.0, "applied": 9.0, "full": 15.0}
    assert summary["before"]["uplink_share"] == pytest.approx(0.5)
    assert summary["after"]["p95_s"] == pytest.approx(0.1)
    assert "before" not in _seen().summarise({})


def test_bytes_alone_move_nothing() -> None:
    assert settings(300.0, COURSE)["min_gain"] == 1.0
    assert {job["site"] for job in composition("today")["jobs"]} == {"cloud"}


def _row(**moments: float) -> dict[str, Any]:
    span = {"max_s": 0.2}
    return {"moments_s": moments, "lost": 0, "repeated": 0, "before": span, "after": span}


def test_moved_before_with_a_forecast_and_after_without() -> None:
    rows = {
        "forecast": _row(decided=600.0, applied=605.0),
        "today": _row(decided=950.0, applied=955.0, full=900.0),
    }
    assert all(check.ok for check in judge(rows))


@pytest.mark.parametrize(
    ("rows", "name"),
    [
        ({"forecast": _row(applied=950.0, decided=940.0, full=900.0)}, "with a forecast"),
        ({"forecast": _row()}, "with a forecast"),
        ({"today": _row(applied=600.0, decided=590.0)}, "without a forecast"),
        ({"today": {**_row(full=900.0), "lost": 1}}, "records lost, today"),
    ],
)
def test_what_is_missing_is_reported(rows: dict[str, Any], name: str) -> None:
    assert name in [check.name for check in judge(rows) if check.ok is False]
