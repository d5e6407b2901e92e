"""The figures that describe the growth of the control plane."""

from __future__ import annotations

import pytest

from bench.page.scale import where_it_breaks
from bench.scale_checks import OPERATIONS, STEEPEST, WATCH_S, checks, compare, exponents, keeps_up
from speck.model.values import JsonObject

LATENCIES = {"starting": [0.5, 1.0, 1.5]}


def row(sites: int, seconds: float, every_s: float) -> JsonObject:
    times = dict.fromkeys(OPERATIONS, seconds)
    read = {"p50_ms": seconds, "p99_ms": seconds}
    return {
        "sites": sites,
        **times,
        "rss_mb": 100.0,
        "store_bytes": sites * 1000,
        "reads": {"jobs": read, "metrics": read},
        "watch": {"engine_every_s": every_s, "numbers_every_s": every_s},
        "collector": {"every_s": 10.0, "gaps": 0},
        "cores": {"apply": {"engines": 0.1, "mount": 0.1}},
    }


def test_growth_is_the_slope_on_logarithmic_axes() -> None:
    rows = [row(10, 1.0, WATCH_S), row(100, 100.0, WATCH_S), row(1000, 100.0, WATCH_S)]
    slopes = exponents(rows)
    assert slopes["apply_s"] == [2.0, 0.0]
    assert slopes["store_bytes"] == [1.0, 1.0]
    assert slopes["GET jobs"] == [2.0, 0.0]


@pytest.mark.parametrize(("power", "fine"), [(1.0, True), (STEEPEST + 0.2, False)])
def test_what_grows_too_steeply_at_the_largest_size_fails(power: float, fine: bool) -> None:
    verdicts = checks([row(10, 1.0, 5.0), row(100, 10.0**power, 5.0)], LATENCIES)
    assert {c.ok for c in verdicts if "grows" in c.name} == {fine}


def test_a_machine_that_was_busy_while_flink_was_measured_fails() -> None:
    rows = [row(10, 0.1, 5.0), row(100, 1.0, 5.0)]
    verdicts = checks(rows, {"starting": [20.0] * 10})
    assert [c.name for c in verdicts if c.ok is False] == [
        "the real Flink was measured on a quiet machine"
    ]


def test_where_it_broke_is_told_and_fails() -> None:
    verdicts = checks([row(10, 1.0, 5.0)], LATENCIES, "30 sites: cannot deploy")
    assert [(c.name, c.measured, c.note) for c in verdicts if c.ok is False] == [
        ("measured up to", "10 sites", "30 sites: cannot deploy")
    ]
    assert all(c.ok for c in checks([], LATENCIES))


def test_it_keeps_up_with_what_is_polled_in_time() -> None:
    rows = [row(10, 1.0, WATCH_S), row(100, 1.0, 1.05 * WATCH_S), row(1000, 1.0, 3 * WATCH_S)]
    assert keeps_up(rows) == 100
    verdicts = {c.name: c.ok for c in checks(rows, LATENCIES)}
    assert verdicts["each of 1000 sites is polled (numbers) every, s"] is False


def test_what_is_slower_than_before_at_the_smallest_size_fails() -> None:
    before = row(10, 1.0, WATCH_S)
    assert compare(before, before) == {}
    after = {**before, "plan_s": 1.2, "apply_s": 1.5}
    assert compare(before, after) == {"apply_s": 1.5}
    verdicts = checks([after], LATENCIES, slower=compare(before, after))
    assert [c.measured for c in verdicts if c.ok is False] == ["apply_s 1.5 times"]


def test_the_page_says_where_it_breaks() -> None:
    def at(sites: int, every_s: float, gaps: int, sites_ms: float) -> JsonObject:
        return {
            **row(sites, 1.0, every_s),
            "reads": {
                "job": {"p50_ms": 4.0, "p99_ms": 9.0},
                "sites": {"p50_ms": sites_ms, "p99_ms": 2 * sites_ms},
            },
            "collector": {"every_s": 10.0, "answered": 300 - gaps, "gaps": gaps},
        }

    fine, late = at(10, 5.0, 0, 2.0), at(1000, 15.0, 75, 2200.0)
    assert where_it_breaks([fine], 5.0) == "It broke at none of these sizes."
    text = where_it_breaks([fine, late], 5.0)
    assert "at 1,000 sites the watch comes to a site every 15 s instead of 5 s" in text
    assert (
        "at 1,000 sites the collector, asked to poll every 10 s, misses 25 % of its polls" in text
    )
    assert "at 1,000 sites GET sites takes 2.2 s (p50)" in text
    assert "at 1,000 sites GET sites takes 4.4 s (p99)" in text
    assert "GET job takes" not in text
