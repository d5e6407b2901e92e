"""What is averaged over the incarnations of a job, where much of the time was not measured."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from speck.analyzer.ends import Numbers
from speck.analyzer.incarnations import choose_incarnations
from speck.model.values import JsonObject

T0 = datetime(2026, 3, 2, 12, tzinfo=UTC)
PLANS = {
    name: {"source_site": "edge-a", "source_topic": "in", "sink_site": "cloud", "sink_topic": "out"}
    for name in ("one", "two")
}
READER = ("c", "A", "reader", "edge-a", "in")
PRODUCER = ("c", "A", "producer", "cloud", "out")


def incarnation(name: str, begin: float, end: float, seconds: float, rate: float) -> JsonObject:
    """It sends half of what it takes; records have 100 bytes."""
    return {
        "composition": "c",
        "job_name": "A",
        "site": "edge-a",
        "engine_job_id": name,
        "attempt": 1 + (name == "two"),
        "busy_s": 10.0,
        "seconds": seconds,
        "first_at": T0 + timedelta(seconds=begin),
        "last_at": T0 + timedelta(seconds=end),
        "in_rate": rate,
        "out_rate": rate / 2,
        "bytes_in_rate": 100 * rate,
        "bytes_out_rate": 50 * rate,
    }


def average(*incarnations: JsonObject, **numbers: Any) -> JsonObject:
    (row,) = choose_incarnations(incarnations, PLANS, numbers.get("numbers", {}))
    means = {name: row[f"mean_{name}"] for name in ("in_rate", "out_rate")}
    assert row["mean_bytes_in_rate"] == pytest.approx(100 * row["mean_in_rate"])
    assert row["mean_bytes_out_rate"] == pytest.approx(100 * row["mean_out_rate"])
    return means | {"covered": row["covered"]}


RESET_UNSEEN = incarnation("one", 0, 600, 450, 100.0)
"""No samples for 150 s, in which its counters were reset: what it took in them is not known."""
CAUGHT_UP = (incarnation("one", 0, 200, 200, 100.0), incarnation("two", 350, 600, 250, 160.0))
"""Its engine was dead for 150 s; then it took what had waited as well."""


@pytest.mark.parametrize("end", [READER, PRODUCER])
def test_a_job_that_ran_on_unseen_has_the_rate_of_the_time_that_was_sampled(end: Any) -> None:
    rate = 100.0 if end == READER else 50.0
    numbers = {end: Numbers(rate, 600.0)}
    means = average(RESET_UNSEEN, numbers=numbers)
    assert means == {"in_rate": 100.0, "out_rate": 50.0, "covered": 0.75}


@pytest.mark.parametrize("numbers", [{}, {READER: Numbers(100.0, 600.0)}])
def test_what_a_job_catches_up_with_is_not_its_rate(numbers: Any) -> None:
    means = average(*CAUGHT_UP, numbers=numbers)
    assert means == {"in_rate": 100.0, "out_rate": 50.0, "covered": 0.75}


@pytest.mark.parametrize(
    "numbers",
    [
        {READER: Numbers(100.0, 300.0)},  # of half of the time
        {("c", "B", *READER[2:]): Numbers(100.0, 600.0)},  # of another job
        {READER: Numbers(0.0, 600.0)},  # of a reader that takes no numbers
    ],
)
def test_numbers_that_tell_nothing_of_it_are_not_used(numbers: Any) -> None:
    assert average(RESET_UNSEEN, numbers=numbers)["in_rate"] == 75.0


@pytest.mark.parametrize(("told", "expected"), [(1.0, 75.0), (1000.0, 100.0)])
def test_numbers_only_choose_between_what_was_measured(told: float, expected: float) -> None:
    """At least as much as was counted since it was first seen, at most the rate while sampled."""
    means = average(RESET_UNSEEN, numbers={READER: Numbers(told, 600.0)})
    assert means["in_rate"] == pytest.approx(expected)


def test_where_nearly_all_was_measured_the_numbers_play_no_part() -> None:
    means = average(incarnation("one", 0, 600, 570, 100.0), numbers={READER: Numbers(9.0, 600.0)})
    assert means["in_rate"] == 100.0
