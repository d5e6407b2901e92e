"""What a placement predicts at the offered rate, and the checks of a comparison."""

from __future__ import annotations

from typing import Any

import pytest

from bench.placing import summarise_prediction
from bench.policies import compare, judge, predict_at
from bench.policies_apps import EdgeServer

PREDICTION = {
    "proposed_max_rate": 240.0,
    "records_per_s": 200.0,
    "proposed_latency_ms": 12.0,
    "proposed_bytes_per_s": 100_000.0,
    "proposed_cloud_engine_cores": 0.2,
    "held_by": "the uplink of edge-a",
    "violations": [],
    "moves": {"filter-3": "edge-a"},
    "sites": {"filter-3": "edge-a"},
}


def test_figures_grow_with_the_rate_up_to_the_highest() -> None:
    carried = predict_at(PREDICTION, 220.0, 0.5, 0.1)
    assert carried["sink_per_s"] == pytest.approx(110)
    assert carried["wan_bytes_per_s"] == pytest.approx(110_000)
    assert carried["cloud_engine_cores"] == pytest.approx(0.32)
    assert (carried["keeps_up"], carried["latency_ms"]) == (True, 12.0)
    over = predict_at(PREDICTION, 480.0, 0.5, 0.1)
    assert over["sink_per_s"] == pytest.approx(120)
    assert (over["keeps_up"], over["latency_ms"]) == (False, None)


def _row(sink_per_s: float, **changed: Any) -> dict[str, Any]:
    row = {"offered_per_s": 220.0, "sink_per_s": sink_per_s, "p50_ms": 9.0, "p95_ms": 20.0}
    row |= {"wan_bytes_per_s": 105_000.0, "cloud_engine_cores": 0.35, "machine_cpu": 0.5}
    return {**row, "lost": 0, "repeated": 0, "different": 0, **changed}


def _cells(**changed: Any) -> list[dict[str, Any]]:
    cloud = {**PREDICTION, "proposed_max_rate": 100.0, "violations": ["uplink: full"]}
    analysed = {"idle_cloud_cores": 0.1, "placements": {"all-cloud": cloud, "milp": PREDICTION}}
    behind = _row(50.0, wan_bytes_per_s=50_000.0, cloud_engine_cores=0.2)
    return [
        compare(
            EdgeServer(),
            analysed,
            {"all-cloud": behind, "milp": _row(**{"sink_per_s": 108.0, **changed})},
        )
    ]


def test_a_comparison_that_shows_it_all() -> None:
    cells = _cells()
    assert [outcome["within_limits"] for outcome in cells[0]["policies"]] == [False, True]
    assert [outcome["measured"]["keeps_up"] for outcome in cells[0]["policies"]] == [False, True]
    checks = judge(cells)
    of_cloud = [check for check in checks if check.name.endswith("edge-server, all-cloud")]
    assert of_cloud and all(check.ok is None for check in of_cloud)  # beyond its limits
    assert all(check.ok for check in checks if check not in of_cloud)


@pytest.mark.parametrize(
    ("changed", "name"),
    [
        ({"lost": 1}, "records lost, edge-server"),
        ({"wan_bytes_per_s": 150_000.0}, "WAN bytes/s, edge-server, milp"),
        ({"sink_per_s": 80.0}, "records/s at the sink, edge-server, milp"),
        ({"sink_per_s": 40.0}, "records/s at the sink, milp against all-cloud, edge-server"),
        ({"cloud_engine_cores": 0.5}, "cores of the cloud's engine, edge-server, milp"),
    ],
)
def test_what_is_missing_is_reported(changed: dict[str, Any], name: str) -> None:
    assert name in [check.name for check in judge(_cells(**changed)) if check.ok is False]


def test_predictions_are_not_judged_on_a_saturated_machine() -> None:
    checks = judge(_cells(machine_cpu=0.8, sink_per_s=80.0))
    of_milp = [check for check in checks if check.name.endswith("edge-server, milp")]
    assert of_milp and all(check.ok is None for check in of_milp)


def test_a_prediction_is_read_from_a_placement() -> None:
    side = {
        "wan_bytes_per_s": 5.0,
        "latency_ms": None,
        "cores": {"cloud": 0.5},
        "max_rate": None,
        "in_rate": 7.0,
        "violations": [],
        "held_by": None,
    }
    placement = {
        "today": side,
        "proposed": {**side, "moves": [{"job_name": "a", "to": "edge-a"}]},
        **{name: [] for name in ("violations", "notes", "unmeasured")},
    }
    prediction = summarise_prediction(placement)
    assert (prediction["records_per_s"], prediction["moves"]) == (7.0, {"a": "edge-a"})


def test_both_filters_are_all_in_the_cloud_at_first() -> None:
    jobs = EdgeServer().composition()["jobs"]
    assert {job["site"] for job in jobs} == {"cloud"}
    assert len({job["job_name"] for job in jobs}) == 4
