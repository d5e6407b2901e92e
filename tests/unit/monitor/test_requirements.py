"""Requirements against measurements."""

from __future__ import annotations

import pytest

from speck.monitor.requirements import JobMeasurement, Stage, Verdict, judge_requirements

CHAIN = [Stage("clean", "raw", ("tidy",), 20.0), Stage("merge", "tidy", ("all",), 5.0)]
EASY = JobMeasurement(in_rate=100.0, busy=0.1, back_pressured=0.0, waiting=0)
FULL = JobMeasurement(in_rate=100.0, busy=0.9, back_pressured=0.08, waiting=None)


def rate(expected: float, **measurements: JobMeasurement) -> Verdict:
    (judged,) = judge_requirements({"min_rate": expected}, CHAIN, {"merge": EASY, **measurements})
    return judged


def latency(expected: float, **measurements: JobMeasurement) -> Verdict:
    (judged,) = judge_requirements(
        {"max_latency_ms": expected}, CHAIN, {"clean": EASY, "merge": EASY, **measurements}
    )
    return judged


@pytest.mark.parametrize(
    ("expected", "measurement", "measured", "ok"),
    [
        (100.0, EASY, 100.0, True),
        (101.0, EASY, 100.0, None),  # it could take more, but is not offered more
        (101.0, FULL, 100.0, False),
        (101.0, JobMeasurement(100.0, 0.5, 0.0, waiting=7), 100.0, False),
        (101.0, JobMeasurement(None, 0.5, 0.0), None, None),
        (101.0, JobMeasurement(100.0, None, None), 100.0, None),
    ],
)
def test_a_rate_is_missed_only_where_more_is_offered(
    expected: float, measurement: JobMeasurement, measured: float | None, ok: bool | None
) -> None:
    judged = rate(expected, clean=measurement)
    assert (judged.measured, judged.ok) == (measured, ok)
    assert judged.why


def test_what_two_jobs_read_alike_comes_in_once_and_two_entrances_add_up() -> None:
    twice = [*CHAIN, Stage("count", "raw", ("counts",)), Stage("more", "other", ("tidy",))]
    measurements = {
        "clean": EASY,
        "merge": EASY,
        "count": JobMeasurement(90.0, 0.1, 0.0, 0),
        "more": EASY,
    }
    (judged,) = judge_requirements({"min_rate": 1.0}, twice, measurements)
    assert judged.measured == 190.0


def test_latency_is_network_work_and_waiting_of_the_slowest_way() -> None:
    assert latency(30.0).measured == pytest.approx(25.0 + 1.0 + 1.0)
    assert latency(30.0).ok is True
    behind = latency(30.0, merge=JobMeasurement(100.0, 0.5, 0.0, waiting=50))
    assert behind.measured == pytest.approx(25.0 + 1.0 + 505.0)
    assert (behind.ok, behind.why) == (False, "on the path clean -> merge")


def test_what_is_not_known_is_not_taken_for_nothing() -> None:
    assert latency(30.0, clean=FULL) == Verdict(
        "max_latency_ms", 30.0, None, None, "the latency of clean is not known"
    )
    assert (
        latency(30.0, clean=JobMeasurement(100.0, 0.1, 0.0, waiting=None)).ok is True
    )  # time to spare
    assert latency(24.0, clean=FULL).ok is False  # the network alone is too slow
    assert latency(30.0, clean=JobMeasurement(0.0, 0.0, 0.0, waiting=5)).ok is None
    assert judge_requirements({"max_latency_ms": 1.0}, [], {})[0].ok is None
    assert judge_requirements({"min_rate": 1.0}, [], {})[0].ok is None


def test_half_a_rewiring_may_be_a_circle() -> None:
    circle = [Stage("a", "x", ("y",)), Stage("b", "y", ("x",))]
    assert (
        judge_requirements({"max_latency_ms": 10.0}, circle, {"a": EASY, "b": EASY})[0].ok is True
    )


def test_a_path_goes_through_any_link_of_a_port() -> None:
    """The slowest way is found behind the second link, and no link of the port is an entrance."""
    split = Stage("split", "raw", ("even", "odd"), 10.0)
    stages = [split, Stage("slow", "odd", ("all",), 50.0), Stage("fast", "even", ("all",), 1.0)]
    measured = {each.name: JobMeasurement(10.0, 0.1, waiting=0) for each in stages}
    (latency,) = judge_requirements({"max_latency_ms": 40}, stages, measured)
    assert latency.ok is False and "split -> slow" in latency.why
