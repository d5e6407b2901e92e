"""Forecasts of links' rates: days that repeat, ramps, gaps, and how wrong they are."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, Row, SparkSession

from speck.analyzer.contracts import contract_of
from speck.analyzer.forecast import BINS, DAMPING, DAY, LEVEL, TREND, bin_rates, forecast
from speck.analyzer.run import FEW_ROWS, configured, forecast_links
from speck.metrics.dataset.local import LocalStorage
from speck.metrics.dataset.schema import LINKS
from tests.samples_by_hand import write

pytestmark = pytest.mark.usefixtures("few")

MONDAY = datetime(2026, 3, 2, tzinfo=UTC)
FIRST = int(MONDAY.timestamp()) // 60
AHEAD = timedelta(minutes=20)


def bins(spark: SparkSession, **series: Iterable[float | None]) -> DataFrame:
    """Rates by minute from Monday on, by topic; one more minute, which is not over, is added."""
    rows = [
        ("edge-a", topic, FIRST + minute, rate)
        for topic, rates in series.items()
        for minute, rate in enumerate([*rates, 0.0])
        if rate is not None
    ]
    return spark.createDataFrame(rows, BINS.ddl)


def make_day(noise: float, dice: random.Random, trend: float = 0.0) -> Callable[[int], float]:
    """A rate by minute: a sine over the day, with noise, that grows by `trend` a day."""

    def rate(minute: int) -> float:
        base = 500 - 400 * math.cos(2 * math.pi * minute / DAY)
        return base * (1 + trend * minute / DAY) * (1 + dice.uniform(-noise, noise))

    return rate


def smooth(rates: Iterable[float], ahead: int) -> float:
    """Holt's damped trend, computed plainly."""
    level: float | None = None
    trend = 0.0
    for rate in rates:
        if level is None:
            level = rate
            continue
        expected = level + DAMPING * trend
        before, level = level, expected + LEVEL * (rate - expected)
        trend = TREND * (level - before) + (1 - TREND) * DAMPING * trend
    assert level is not None
    return level + sum(DAMPING**j for j in range(1, ahead + 1)) * trend


def _days_until_14(days: int) -> list[float]:
    rate = make_day(0.1, random.Random(days))
    return [rate(minute) for minute in range(days * DAY - 600)]


def _week_until_saturday_noon() -> list[float]:
    """Yesterday was a working day with five times the rate."""
    dice = random.Random(7)

    def rate(minute: int) -> float:
        return make_day(0.02, dice)(minute) * (0.2 if minute // DAY % 7 >= 5 else 1.0)

    return [rate(minute) for minute in range(12 * DAY + DAY // 2)]


def _without_mornings() -> list[float | None]:
    rate = make_day(0.0, random.Random(1))
    return [None if 500 < minute % DAY < 700 else rate(minute) for minute in range(2 * DAY + 100)]


KNOWN = [200.0] * 30
RAMP = [100.0 + 10 * minute for minute in range(120)]
FALLING = [1000.0 - 10 * minute for minute in range(60)]
SERIES: dict[str, list[float | None] | list[float]] = {
    "two-days": _days_until_14(2),
    "three-days": _days_until_14(3),
    "week": _week_until_saturday_noon(),
    "ramp": RAMP,
    "stays": [50.0] * 60,
    "falls": FALLING,
    "nothing": [0.0] * 60,
    "gap": [*KNOWN, *[None] * 45, *KNOWN],
    "gaps": _without_mornings(),
    "short": [100.0] * 3,
    "high": [1000.0] * 30,
}


@pytest.fixture(scope="module")
def forecasts(spark: SparkSession) -> dict[str, Row]:
    """Of all series by one query: what a query costs is its plan, not data."""
    with configured(spark, FEW_ROWS):
        rows = forecast(bins(spark, **SERIES), AHEAD).collect()
    assert len(rows) == len(SERIES)
    return {row.topic: row for row in rows}


@pytest.mark.parametrize("days", ["two-days", "three-days"])
def test_a_day_that_repeats_is_forecast_within_15_per_cent(
    forecasts: dict[str, Row], days: str
) -> None:
    row = forecasts[days]
    assert row.method == "day"
    assert row.mape <= 0.15
    actual = [make_day(0.0, random.Random(1))(len(SERIES[days]) + j) for j in range(20)]
    assert row.rate == pytest.approx(max(actual), rel=0.15)
    assert max(actual) < row.high
    assert row.high == pytest.approx(row.rate * (1 + row.mape))


def test_a_weekend_is_forecast_from_last_week(forecasts: dict[str, Row]) -> None:
    row = forecasts["week"]
    assert row.method == "week"
    assert row.rate == pytest.approx(900 * 0.2, rel=0.1)


def test_a_ramp_is_followed_by_its_trend(forecasts: dict[str, Row]) -> None:
    row = forecasts["ramp"]
    assert row.method == "holt"
    assert row.rate == pytest.approx(smooth(RAMP, 20))
    assert row.rate > RAMP[-1] + 40
    assert row.high > RAMP[-1] + 100
    assert row.at == MONDAY.replace(tzinfo=row.at.tzinfo) + timedelta(minutes=120 + 20)


def test_what_stays_is_forecast_to_stay_and_a_fall_is_not_planned_for(
    forecasts: dict[str, Row],
) -> None:
    row = forecasts["stays"]
    assert (row.method, row.rate, row.mape) == ("holt", pytest.approx(50), pytest.approx(0))
    assert forecasts["falls"].rate == pytest.approx(FALLING[-1], rel=0.1)
    assert forecasts["nothing"].high == 0


def test_minutes_without_samples_are_no_zeros(forecasts: dict[str, Row]) -> None:
    assert forecasts["gap"].rate == pytest.approx(200)
    rate = make_day(0.0, random.Random(1))
    assert forecasts["gaps"].rate == pytest.approx(rate(120), rel=0.1)


def test_a_link_of_a_few_minutes_has_an_error_that_is_assumed(forecasts: dict[str, Row]) -> None:
    row = forecasts["short"]
    assert (row.mape, row.rate, row.high) == (None, pytest.approx(100), pytest.approx(125))


@pytest.mark.long
def test_without_any_minute_there_is_no_forecast(spark: SparkSession) -> None:
    assert forecast(bins(spark, raw=[]), AHEAD).collect() == []


def test_links_are_forecast_apart(forecasts: dict[str, Row]) -> None:
    rates = {topic: forecasts[topic].rate for topic in ("stays", "high")}
    assert rates == {"stays": pytest.approx(50), "high": pytest.approx(1000)}


def end(second: float, messages: int, role: str = "reader", **more: object) -> dict[str, object]:
    """One row of one end of a link."""
    return {
        **dict.fromkeys(contract_of(LINKS).columns),
        "at": MONDAY + timedelta(seconds=second),
        "broker_site": "edge-a",
        "topic": "raw",
        "role": role,
        "client_id": role,
        "messages": messages,
        **more,
    }


def rate_of(spark: SparkSession, rows: Iterable[dict[str, object]]) -> dict[int, float]:
    columns = contract_of(LINKS)
    frame = spark.createDataFrame(
        [tuple(row[c] for c in columns.columns) for row in rows], columns.ddl
    )
    return {row.minute - FIRST: row.rate for row in bin_rates(frame).collect()}


def test_what_arrives_is_what_was_taken_and_what_waits(spark: SparkSession) -> None:
    """The reader takes 10 records/s of the 30 that arrive."""
    rows = [end(s, 10 * s, lag=20 * s) for s in range(0, 121, 5)]
    rates = rate_of(spark, rows)
    assert (rates[0], rates[1]) == (pytest.approx(30), pytest.approx(30))


def test_a_pair_of_polls_counts_in_each_minute_that_it_covers(spark: SparkSession) -> None:
    rates = rate_of(spark, [end(30, 0), end(210, 1800), end(240, 1800)])
    assert {m: pytest.approx(r) for m, r in rates.items() if m < 4} == {0: 10, 1: 10, 2: 10, 3: 5}


def test_a_new_epoch_and_a_number_that_falls_are_no_rate(spark: SparkSession) -> None:
    rows = [end(s, s, "producer", epoch=1) for s in (0, 10, 20)]
    rows += [end(s, s - 20, "producer", epoch=2) for s in (30, 40, 50)]
    rates = rate_of(spark, rows)
    assert rates == {0: pytest.approx(1)}
    assert rate_of(spark, [end(0, 500), end(10, 20), end(20, 40)]) == {0: pytest.approx(2)}


def test_readers_take_the_same_and_producers_add_up(spark: SparkSession) -> None:
    readers = [end(s, n * s, client_id=f"r{n}") for n in (2, 3) for s in (0, 10, 20)]
    producers = [end(s, s, "producer", client_id=f"p{n}") for n in (1, 2) for s in (0, 10, 20)]
    assert rate_of(spark, readers) == {0: pytest.approx(3)}
    assert rate_of(spark, producers) == {0: pytest.approx(2)}


def test_a_dataset_is_forecast_from_the_last_days(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path, LINKS, [end(s, 10 * s, lag=2 * s) for s in range(0, 601, 10)])
    until = MONDAY + timedelta(minutes=10)
    (forecast,) = forecast_links(spark, LocalStorage(tmp_path), until, AHEAD)
    assert (forecast.site, forecast.topic) == ("edge-a", "raw")
    assert forecast.rate == pytest.approx(12)
    assert forecast.at == "2026-03-02T00:29:00.000Z"
    assert forecast_links(spark, LocalStorage(tmp_path), until - timedelta(days=30), AHEAD) == ()
