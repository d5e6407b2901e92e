from __future__ import annotations

import json

import pytest

from speck.runner.reports import Report, parse_report


def test_a_report_of_this_start_is_read() -> None:
    content = {"start": 2, "ready": True, "records_in": 7, "problem": "x" * 900, "other": 1}
    report = parse_report(json.dumps(content).encode(), 2)
    assert report == Report(ready=True, records_in=7, problem="x" * 400)


@pytest.mark.parametrize(
    "content", [None, b"", b"\xff", b"[1]", b'{"start": 1}', b"[" * 50_000, b'{"start": "2"}']
)
def test_anything_else_is_none(content: bytes | None) -> None:
    assert parse_report(content, 2) is None


def test_values_that_make_no_sense_are_left_out() -> None:
    odd = {"ready": 1, "records_in": -1, "busy_ms": float("inf"), "request": True, "lost": "3"}
    odd |= {"idle_ms": float("nan"), "dropped": 10**400}
    counters = {"fine": 2, "odd": None, **{f"c{n}": n for n in range(200)}}
    content = json.dumps({"start": 2, **odd, "counters": counters}).encode()
    report = parse_report(content, 2)
    assert report is not None
    assert report.to_json() == {"counters": report.counters}
    assert report.counters["fine"] == 2
    assert len(report.counters) == 99
