"""The expected moves, a camera's records, and the checks of a series."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bench.cameras import CLOUD, camera, composition, expected_moves, laid_out
from bench.in_action import judge
from speck.fog.trace import Detection

SEEN = Detection(1_000, "A1-01", "v1", 13.5, 4.5, "car")


def test_a_camera_adds_to_the_detection() -> None:
    record = json.loads(camera("A1", 7, SEEN))
    assert record["id"] == 7
    assert record["speed_mps"] == 13.5
    assert len(record["plate"]) == 16


def test_all_begin_in_the_cloud_and_all_but_merge_leave_it() -> None:
    assert {job["site"] for job in composition()["jobs"]} == {CLOUD}
    stay = [job["job_name"] for job in laid_out()["jobs"] if job["site"] == CLOUD]
    assert stay == ["merge"]


def _row(**changed: Any) -> dict[str, Any]:
    late = {"results": 9, "p50_s": 1.0, "p95_s": 5.0, "p99_s": 6.0}
    soon = {"results": 9, "p50_s": 0.1, "p95_s": 0.2, "p99_s": 0.3}
    before = {"sink_per_s": 900.0, "wan_bytes_per_record": 800.0, "job3": late, "job4": late}
    after = {"sink_per_s": 1000.0, "wan_bytes_per_record": 210.0, "job3": soon, "job4": soon}
    before |= {"wan_bytes_per_s": 720_000.0, "machine_cpu": 0.5, "cloud_engine_cores": 0.6}
    after |= {"wan_bytes_per_s": 210_000.0, "machine_cpu": 0.6, "cloud_engine_cores": 0.2}
    prediction = {
        "moves": expected_moves(),
        "records_per_s": 900.0,
        "today_bytes_per_s": 700_000.0,
        "proposed_bytes_per_s": 180_000.0,
    }
    sums = {"lost": 0, "repeated": 0, "different": 0}
    return {"before": before, "after": after, "predicted": prediction, **sums, **changed}


def test_a_series_that_shows_it_all() -> None:
    assert all(check.ok for check in judge("by hand", _row(), 6.0))


def test_on_a_saturated_machine_only_losses_are_judged() -> None:
    busy = _row(after={**_row()["after"], "machine_cpu": 0.71}, lost=1)
    verdicts = {check.name: check.ok for check in judge("by hand", busy, 6.0)}
    assert {name for name, ok in verdicts.items() if ok is not None} == {
        "lost, by hand",
        "repeated, by hand",
        "different, by hand",
    }
    assert verdicts["lost, by hand"] is False


@pytest.mark.parametrize(
    ("changed", "name"),
    [
        ({"lost": 1}, "lost, by hand"),
        (
            {"before": {**_row()["before"], "wan_bytes_per_s": 500_000.0}},
            "use of the uplinks before, by hand",
        ),
        ({"after": _row()["before"]}, "cores of the cloud's engine, by hand"),
        ({"after": _row()["before"]}, "latency p95 of Job 4 (s), by hand"),
        ({"predicted": {**_row()["predicted"], "moves": {}}}, "jobs moved to their edges, by hand"),
        (
            {"predicted": {**_row()["predicted"], "proposed_bytes_per_s": 90_000.0}},
            "WAN bytes a record, proposed, by hand",
        ),
    ],
)
def test_what_is_missing_is_told(changed: dict[str, Any], name: str) -> None:
    wrong = [check.name for check in judge("by hand", _row(**changed), 6.0) if check.ok is False]
    assert name in wrong
