"""What is made of the sums over an archive."""

from __future__ import annotations

import pytest

from traffic.batch.results import Hour, HourKey, WindowPart, join_parts, rank_congested
from traffic.reference import GlobalStat

HOUR_MS = 3_600_000
MON_8, MON_9 = ("A", "A1", 0, 8), ("A", "A1", 0, 9)
HOURS = {
    HourKey(*MON_8): Hour(100, 1000.0, 0.1 * HOUR_MS, HOUR_MS),
    HourKey(*MON_9): Hour(10, 200.0, 0.0, HOUR_MS),
    # twice as much in its only hour, but its site was observed for two
    HourKey("A", "A2", 0, 8): Hour(50, 100.0, 0.2 * HOUR_MS, HOUR_MS),
    HourKey("B", "B1", 6, 23): Hour(1, 9.0, 0.15 * HOUR_MS, HOUR_MS),
}


def test_sensors_are_ranked_by_occupancy_over_all_that_was_observed() -> None:
    ranked = rank_congested(HOURS)
    assert [(each.site, each.sensor) for each in ranked] == [("B", "B1"), ("A", "A2"), ("A", "A1")]
    assert [each.total.occupancy for each in ranked] == [
        pytest.approx(0.15),
        pytest.approx(0.1),
        pytest.approx(0.05),
    ]
    last = ranked[-1]
    assert last.total.count == 110
    assert last.total.mean_speed_mps == pytest.approx(1200 / 110)
    assert last.busiest == HourKey(*MON_8)


def test_of_equally_occupied_sensors_the_slower_one_is_first() -> None:
    hours = {
        HourKey("A", "fast", 0, 8): Hour(1, 30.0, 60.0, 600),
        HourKey("A", "slow", 0, 8): Hour(2, 10.0, 60.0, 600),
    }
    assert [each.sensor for each in rank_congested(hours)] == ["slow", "fast"]
    assert rank_congested({}) == []


def test_occupancy_is_a_share() -> None:
    assert Hour(1, 1.0, 700.0, 600).occupancy == 1.0


def test_parts_of_a_window_are_joined() -> None:
    parts = [
        WindowPart(60_000, "B", "car", 2, 20.0),
        WindowPart(0, "A", "bus", 1, 5.0),
        WindowPart(60_000, "A", "car", 1, 40.0),
        WindowPart(60_000, "A", "bus", 1, 20.0),
    ]
    assert join_parts(parts) == {
        0: GlobalStat(1, 5.0, {"A": 1}, {"bus": 1}),
        60_000: GlobalStat(4, 20.0, {"A": 2, "B": 2}, {"bus": 1, "car": 3}),
    }
