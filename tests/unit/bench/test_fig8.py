"""Figure 8: which runs are judged, and the claims about them."""

from __future__ import annotations

from typing import Any

from bench.fig8 import checks, summary, why_highest


def run(way: str, late: float, cpu: float = 0.4, processed: int = 1000) -> dict[str, Any]:
    return {
        "kind": "run",
        "way": way,
        "interval_ms": 2.0,
        "seconds": 2.0,
        "offered": 1000,
        "processed": processed,
        "latencies_ms": [late],
        "cpu": cpu,
        "feed_late_ms": 1.0,
        "wan_bytes_per_s": 100,
        "lost": 0,
        "repeated": 0,
        "different": 0,
        "over_time": {},
    }


def verdict(
    local: list[dict[str, Any]],
    remote: list[dict[str, Any]],
    of: str = "p95",
    highest_ms: float | None = 0.5,
) -> bool | None:
    (check,) = [it for it in checks(summary([*local, *remote], highest_ms)) if of in it.name]
    return check.ok


REMOTE = [run("remote", 30.0)] * 3


def test_one_run_on_a_busy_machine_spoils_no_others() -> None:
    assert verdict([run("local", 99.0, cpu=0.9), run("local", 9.0), run("local", 9.0)], REMOTE)


def test_when_most_were_busy_nothing_is_judged() -> None:
    assert verdict([run("local", 9.0, cpu=0.9)] * 2 + [run("local", 9.0)], REMOTE) is None


def test_a_job_that_falls_behind_is_judged() -> None:
    behind = run("local", 900.0, processed=500)
    assert verdict([behind] * 3, REMOTE) is False
    assert "500 of 1000" in why_highest(behind)
    assert verdict([behind] * 3, REMOTE, of="local keeps up") is False
    assert verdict([behind] * 3, REMOTE, of="remote keeps up") is True


def test_a_highest_rate_that_was_not_found_is_a_fault() -> None:
    local = [run("local", 9.0)] * 3
    assert verdict(local, REMOTE, of="highest", highest_ms=None) is False
    assert verdict(local, REMOTE, of="highest") is True


def test_results_that_differ_are_a_fault() -> None:
    local = [run("local", 9.0) | {"different": 1}] * 3
    assert verdict(local, REMOTE, of="different") is False
